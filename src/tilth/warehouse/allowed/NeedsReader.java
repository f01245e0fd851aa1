import java.util.ArrayDeque;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.BinaryExpression;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.Iterator;

/**
 * Writes what an optimized plan needs of each of its leaves: the columns, and the predicate of the filter right above.
 * Compiled by the compiler that Spark uses for generated code, which knows no generics; see logical_plans.py. Leaves and
 * their columns are called as in needs_spark.py, predicates are written as the nouns of predicates.py.
 *
 * Always holds: each place where a leaf is read is written; the work grows linearly with the plan and its literals.
 * What is not understood is `{"type":"any"}`; columns that are not certain are null.
 *
 *     [{"table": 0, "columns": ["a"], "where": {"type": "in", "column": "a", "values": [1, 2]}}, ..]
 */
public class NeedsReader implements java.util.function.Function {
    private static final String UNKNOWN = "{\"type\":\"any\"}";
    /** Of AND, OR and NOT inside of each other; chains of one of these count once. */
    private static final int DEPTH_MAX = 60;

    /** A text of JSON; a longer one as an iterator over its pieces. */
    public Object apply(Object plan) {
        StringBuilder out = new StringBuilder("[");
        new Reading(out).visit((QueryPlan) plan, null);
        return PlanReader.inPieces(out.append(']').toString());
    }

    /** A node with those above it. */
    private static final class Path {
        final QueryPlan plan;
        final Path above;

        Path(QueryPlan plan, Path above) {
            this.plan = plan;
            this.above = above;
        }
    }

    private static final class Reading {
        private final StringBuilder out;

        Reading(StringBuilder out) {
            this.out = out;
        }

        void visit(QueryPlan plan, Path above) {
            if (plan instanceof LogicalRDD) {
                writeLeaf((LogicalRDD) plan, above);
            }
            Set seen = Collections.newSetFromMap(new IdentityHashMap());
            visitAll(plan.children().iterator(), new Path(plan, above), seen);
            // The plans in expressions have nothing above them.
            visitAll(plan.innerChildren().iterator(), null, seen);
            visitAll(plan.subqueries().iterator(), null, seen);
        }

        private void visitAll(Iterator each, Path above, Set seen) {
            while (each.hasNext()) {
                Object plan = each.next();
                if (plan instanceof QueryPlan && seen.add(plan)) {
                    visit((QueryPlan) plan, above);
                }
            }
        }

        private void writeLeaf(LogicalRDD leaf, Path above) {
            Iterator columns = leaf.output().iterator();
            String first = columns.hasNext() ? ((Attribute) columns.next()).name() : "";
            int colon = first.indexOf(':');
            if (colon < 1 || !isNumber(first.substring(0, colon))) {
                return;
            }
            out.append(out.length() == 1 ? "{\"table\":" : ",{\"table\":").append(first, 0, colon);
            out.append(",\"columns\":");
            writeColumns(leaf, colon + 1, above);
            out.append(",\"where\":");
            if (above != null && above.plan instanceof Filter) {
                Predicates predicates = new Predicates(leaf.outputSet(), out);
                predicates.write((Expression) ((Filter) above.plan).condition(), 0);
            } else {
                out.append(UNKNOWN);
            }
            out.append('}');
        }

        /**
         * The optimizer puts a projection above a leaf of which not all is needed; between them is a filter at most.
         * Without a projection all columns may be needed.
         */
        private void writeColumns(LogicalRDD leaf, int prefix, Path above) {
            AttributeSet needed = org.apache.spark.sql.catalyst.expressions.AttributeSet$.MODULE$.empty();
            Path each = above;
            while (each != null && each.plan instanceof Filter) {
                needed = needed.$plus$plus(each.plan.references());
                each = each.above;
            }
            if (each == null || !(each.plan instanceof Project || each.plan instanceof Aggregate)) {
                out.append("null");
                return;
            }
            needed = needed.$plus$plus(each.plan.references());
            out.append('[');
            boolean isFirst = true;
            for (Iterator columns = leaf.output().iterator(); columns.hasNext(); ) {
                Attribute column = (Attribute) columns.next();
                if (needed.contains(column)) {
                    out.append(isFirst ? "" : ",");
                    PlanReader.quote(column.name().substring(prefix), out);
                    isFirst = false;
                }
            }
            out.append(']');
        }
    }

    /** Predicates over the columns of one leaf. */
    private static final class Predicates {
        private final AttributeSet columns;
        private final StringBuilder out;

        Predicates(AttributeSet columns, StringBuilder out) {
            this.columns = columns;
            this.out = out;
        }

        void write(Expression condition, int depth) {
            int start = out.length();
            boolean isKnown = depth < DEPTH_MAX && writeKnown(condition, depth);
            if (!isKnown) {
                out.setLength(start);
                out.append(UNKNOWN);
            }
        }

        private boolean writeKnown(Expression condition, int depth) {
            if (condition instanceof And || condition instanceof Or) {
                writeChain((BinaryExpression) condition, depth);
                return true;
            }
            if (condition instanceof Not) {
                out.append("{\"type\":\"not\",\"item\":");
                write(((Not) condition).child(), depth + 1);
                out.append('}');
                return true;
            }
            if (condition instanceof IsNull) {
                return writeIsNull(((IsNull) condition).child());
            }
            if (condition instanceof IsNotNull) {
                out.append("{\"type\":\"not\",\"item\":");
                boolean isKnown = writeIsNull(((IsNotNull) condition).child());
                out.append('}');
                return isKnown;
            }
            if (condition instanceof In) {
                return writeIn((In) condition);
            }
            if (condition instanceof InSet) {
                InSet set = (InSet) condition;
                return writeList(set.child(), set.hset().iterator());
            }
            if (condition instanceof StartsWith) {
                return writePrefix((StartsWith) condition);
            }
            if (condition instanceof AttributeReference && condition.dataType() instanceof BooleanType) {
                return writeCompared(condition, "=", "true");
            }
            return condition instanceof BinaryExpression && writeComparison((BinaryExpression) condition);
        }

        /** Writes a chain of any length as one node, from left to right. */
        private void writeChain(BinaryExpression chain, int depth) {
            Class kind = chain.getClass();
            out.append(chain instanceof And ? "{\"type\":\"and\",\"items\":" : "{\"type\":\"or\",\"items\":");
            ArrayDeque stack = new ArrayDeque();
            stack.push(chain);
            char before = '[';
            while (!stack.isEmpty()) {
                Expression each = (Expression) stack.pop();
                if (each.getClass() == kind) {
                    stack.push(((BinaryExpression) each).right());
                    stack.push(((BinaryExpression) each).left());
                } else {
                    out.append(before);
                    before = ',';
                    write(each, depth + 1);
                }
            }
            out.append("]}");
        }

        private boolean writeIsNull(Expression child) {
            return begin("null", child) && end();
        }

        private boolean writePrefix(StartsWith condition) {
            Expression prefix = (Expression) condition.right();
            if (!(prefix instanceof Literal) || ((Literal) prefix).value() == null || !isText(prefix.dataType())) {
                return false;
            }
            if (!begin("prefix", (Expression) condition.left())) {
                return false;
            }
            out.append(",\"prefix\":");
            return writeValue(((Literal) prefix).value(), prefix.dataType(), out) && end();
        }

        private boolean writeComparison(BinaryExpression condition) {
            Expression left = (Expression) condition.left();
            Expression right = (Expression) condition.right();
            boolean isTurned = left instanceof Literal;
            String comparison = comparison(condition, isTurned);
            Expression value = isTurned ? left : right;
            if (comparison == null || !(value instanceof Literal) || ((Literal) value).value() == null) {
                return false;
            }
            StringBuilder text = new StringBuilder();
            return writeValue(((Literal) value).value(), value.dataType(), text)
                && writeCompared(isTurned ? right : left, comparison, text.toString());
        }

        private boolean writeCompared(Expression column, String comparison, String value) {
            if (!begin("cmp", column)) {
                return false;
            }
            out.append(",\"comparison\":\"").append(comparison).append("\",\"value\":").append(value);
            return end();
        }

        private boolean writeIn(In condition) {
            java.util.ArrayList values = new java.util.ArrayList();
            for (Iterator each = condition.list().iterator(); each.hasNext(); ) {
                Object item = each.next();
                if (!(item instanceof Literal)) {
                    return false;
                }
                values.add(((Literal) item).value());
            }
            return writeList(condition.value(), scala.jdk.javaapi.CollectionConverters.asScala(values.iterator()));
        }

        /** All values are of the column's type; null is one of them. */
        private boolean writeList(Expression column, Iterator values) {
            if (!begin("in", column)) {
                return false;
            }
            DataType type = column.dataType();
            out.append(",\"values\":[");
            for (boolean isFirst = true; values.hasNext(); isFirst = false) {
                out.append(isFirst ? "" : ",");
                if (!writeValue(values.next(), type, out)) {
                    return false;
                }
            }
            out.append(']');
            return end();
        }

        /** Begins a predicate of a column of the leaf; false for any other expression. */
        private boolean begin(String type, Expression column) {
            if (!(column instanceof AttributeReference) || !columns.contains((AttributeReference) column)) {
                return false;
            }
            String name = ((AttributeReference) column).name();
            out.append("{\"type\":\"").append(type).append("\",\"column\":");
            PlanReader.quote(name.substring(name.indexOf(':') + 1), out);
            return true;
        }

        private boolean end() {
            out.append('}');
            return true;
        }
    }

    /** The sign of a comparison, with its sides changed where the literal is on the left; null for any other. */
    private static String comparison(BinaryExpression condition, boolean isTurned) {
        if (condition instanceof EqualTo) {
            return "=";
        }
        if (condition instanceof LessThan) {
            return isTurned ? ">" : "<";
        }
        if (condition instanceof LessThanOrEqual) {
            return isTurned ? ">=" : "<=";
        }
        if (condition instanceof GreaterThan) {
            return isTurned ? "<" : ">";
        }
        if (condition instanceof GreaterThanOrEqual) {
            return isTurned ? "<=" : ">=";
        }
        return null;
    }

    /** Writes a value as the ranges of parts have it; false where they do not: NaN, infinity, bytes that are no text. */
    private static boolean writeValue(Object value, DataType type, StringBuilder out) {
        if (value == null) {
            out.append("null");
            return true;
        }
        if (type instanceof FloatType || type instanceof DoubleType) {
            // A FLOAT is the number that its four bytes hold, not the shortest text that names it.
            double number = ((Number) value).doubleValue();
            out.append(number);
            return !Double.isNaN(number) && !Double.isInfinite(number);
        }
        if (isText(type)) {
            PlanReader.quote(value.toString(), out);
            return ((UTF8String) value).isValid();
        }
        if (type instanceof DecimalType) {
            PlanReader.quote(((Decimal) value).toJavaBigDecimal().toPlainString(), out);
            return true;
        }
        out.append(value);
        // Dates are days, times are microseconds.
        return type instanceof ByteType || type instanceof ShortType || type instanceof IntegerType
            || type instanceof LongType || type instanceof BooleanType || type instanceof DateType
            || type instanceof TimestampType || type instanceof TimestampNTZType;
    }

    /** Whether texts of the type compare by their bytes. */
    private static boolean isText(DataType type) {
        return DataTypes.StringType.equals(type);
    }

    private static boolean isNumber(String text) {
        for (int index = 0; index < text.length(); index++) {
            if (text.charAt(index) < '0' || text.charAt(index) > '9') {
                return false;
            }
        }
        return true;
    }
}
