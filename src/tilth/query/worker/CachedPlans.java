import java.lang.ref.SoftReference;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.catalyst.plans.logical.Sample;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import scala.collection.Iterator;

/**
 * Retains the plans that Spark's analyzer and optimizer made of a query, and opens them again in another session with
 * the same settings. Compiled by the compiler that Spark uses for generated code, which knows no generics; see
 * plan_cache_spark.py.
 *
 * Always holds: only a plan that means the same at any time is retained: it reads files alone, and has nothing random
 * and nothing of the time or the session; a retained plan is never changed, since Spark plans a copy of it. The garbage
 * collector of the JVM removes retained plans before memory ends.
 */
public class CachedPlans {
    /** Return a handle of the query's plans, or null where the query may mean something else the next time. */
    public Object retain(Object dataset) {
        Dataset rows = (Dataset) dataset;
        QueryExecution execution = rows.queryExecution();
        LogicalPlan analyzed = execution.analyzed();
        if (!new Search().isConstant(analyzed)) {
            return null;
        }
        LogicalPlan plain = (LogicalPlan) analyzed.clone();
        plain.unsetTagValue(Dataset.DATASET_ID_TAG());
        return new Handle(new Plans(plain, execution.optimizedPlan(), rows.encoder()));
    }

    /** Return the rows of retained plans as a Dataset of the session, or null where the plans are gone. */
    public Object open(Object handle, Object session) {
        Plans plans = (Plans) ((Handle) handle).plans.get();
        if (plans == null) {
            return null;
        }
        return new Dataset(new CachedExecution((SparkSession) session, plans), plans.encoder);
    }

    private static final class Plans {
        final LogicalPlan analyzed;
        final LogicalPlan optimized;
        final Encoder encoder;

        Plans(LogicalPlan analyzed, LogicalPlan optimized, Encoder encoder) {
            this.analyzed = analyzed;
            this.optimized = optimized;
            this.encoder = encoder;
        }
    }

    /** The plans of a query for as long as the JVM has memory for them. */
    public static final class Handle {
        final SoftReference plans;

        Handle(Plans plans) {
            this.plans = new SoftReference(plans);
        }
    }

    /** An execution that is analyzed and optimized already. */
    public static final class CachedExecution extends QueryExecution {
        private final LogicalPlan analyzed;
        private final LogicalPlan optimized;

        CachedExecution(SparkSession session, Plans plans) {
            super(
                session,
                plans.analyzed,
                QueryExecution.$lessinit$greater$default$3(),
                QueryExecution.$lessinit$greater$default$4(),
                QueryExecution.$lessinit$greater$default$5(),
                QueryExecution.$lessinit$greater$default$6(),
                QueryExecution.$lessinit$greater$default$7(),
                QueryExecution.$lessinit$greater$default$8()
            );
            // A Dataset writes its number into its plan.
            this.analyzed = (LogicalPlan) plans.analyzed.clone();
            this.optimized = plans.optimized;
        }

        public LogicalPlan analyzed() {
            return analyzed;
        }

        public LogicalPlan commandExecuted() {
            return analyzed;
        }

        public LogicalPlan optimizedPlan() {
            return optimized;
        }
    }

    /** Search for expressions and relations that may mean something else the next time. */
    private static final class Search {
        private final Set seen = Collections.newSetFromMap(new IdentityHashMap());

        boolean isConstant(QueryPlan plan) {
            if (!seen.add(plan)) {
                return true;
            }
            boolean isLeaf = plan.children().isEmpty();
            if (plan instanceof Sample || plan instanceof Command || (isLeaf && !isKnownLeaf(plan))) {
                return false;
            }
            if (plan.containsPattern(TreePattern.CURRENT_LIKE())) {
                return false;
            }
            for (Iterator each = plan.expressions().iterator(); each.hasNext(); ) {
                if (!isConstant((Expression) each.next())) {
                    return false;
                }
            }
            return areConstant(plan.children().iterator())
                && areConstant(plan.innerChildren().iterator())
                && areConstant(plan.subqueries().iterator());
        }

        private boolean areConstant(Iterator plans) {
            while (plans.hasNext()) {
                Object each = plans.next();
                if (each instanceof QueryPlan && !isConstant((QueryPlan) each)) {
                    return false;
                }
            }
            return true;
        }

        private boolean isKnownLeaf(QueryPlan leaf) {
            if (leaf instanceof LogicalRelation) {
                return ((LogicalRelation) leaf).relation() instanceof HadoopFsRelation;
            }
            return leaf instanceof LocalRelation || leaf instanceof OneRowRelation || leaf instanceof Range
                || leaf instanceof CTERelationRef;
        }

        private boolean isConstant(Expression expression) {
            if (!expression.deterministic() || isTimeWord(expression)) {
                return false;
            }
            if (expression instanceof RuntimeReplaceable
                && !isConstant(((RuntimeReplaceable) expression).replacement())) {
                return false;
            }
            for (Iterator each = expression.children().iterator(); each.hasNext(); ) {
                if (!isConstant((Expression) each.next())) {
                    return false;
                }
            }
            return true;
        }

        /** Return whether a constant text becomes a time without being one in digits: 'now' and 'today' may. */
        private boolean isTimeWord(Expression expression) {
            if (!(expression instanceof Cast)) {
                return false;
            }
            Expression text = (Expression) ((Cast) expression).child();
            DataType type = expression.dataType();
            boolean isTime = type instanceof DateType || type instanceof TimestampType
                || type instanceof TimestampNTZType;
            if (!isTime || !(text.dataType() instanceof StringType) || !text.foldable()) {
                return false;
            }
            Object value = text.eval(null);
            String trimmed = value == null ? "" : value.toString().trim();
            return !trimmed.isEmpty() && !Character.isDigit(trimmed.charAt(0));
        }
    }
}
