import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistryBase;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.UnresolvedNamedLambdaVariable;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.types.YearMonthIntervalType;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * Functions that stand for expressions of Spark, for all sessions of a JVM. Compiled by the compiler that Spark uses for
 * generated code, which knows no generics; see functions.py.
 *
 * Always holds: a call becomes an expression of Spark's own functions while the query is analyzed, so that nothing
 * behind the analysis meets a function of this file.
 *
 * A line describes a variant: name, kinds of the arguments (separated by blanks; `*`: any number), expression, separated
 * by tabs; `!` behind a kind: the argument is never NULL; `!` before an expression: the call is refused. In the
 * expression `__argument0` is the first argument.
 */
public class ClickHouseFunctions implements java.util.function.BiFunction {
    private static final String PREFIX = "__argument";
    private static final String REFUSAL = "refused: ";

    /** Register what the lines describe, of scalar and aggregate functions, or else of functions in FROM. */
    public Object apply(Object registry, Object lines) {
        FunctionRegistryBase functions = (FunctionRegistryBase) registry;
        boolean isOfTables = registry instanceof org.apache.spark.sql.catalyst.analysis.TableFunctionRegistry;
        Map builders = new HashMap();
        String[] all = ((String) lines).split("\n");
        for (int i = 0; i < all.length; i++) {
            String[] cells = all[i].split("\t", 3);
            Builder builder = (Builder) builders.get(cells[0]);
            if (builder == null) {
                FunctionIdentifier name = new FunctionIdentifier(cells[0]);
                builder = new Builder(cells[0], functions, functions.lookupFunctionBuilder(name));
                builders.put(cells[0], builder);
                functions.registerFunction(name, new ExpressionInfo("tilth.ClickHouseFunctions", cells[0]), builder);
            }
            if (cells[1].equals("*")) {
                builder.other = new FunctionIdentifier(cells[2]);
            } else {
                builder.variants.add(new Variant(cells[1], cells[2], isOfTables));
            }
        }
        return Integer.valueOf(builders.size());
    }

    private static final class Variant {
        final String[] kinds;
        private final String text;
        private final boolean isOfTables;
        private Object template = null;

        Variant(String kinds, String text, boolean isOfTables) {
            this.kinds = kinds.isEmpty() ? new String[0] : kinds.split(" ");
            this.text = text;
            this.isOfTables = isOfTables;
        }

        /** What the call stands for. Parsed when it is first called: all of them would keep a starting JVM for a second. */
        synchronized Object template() {
            if (template == null) {
                CatalystSqlParser parser = new CatalystSqlParser();
                template = isOfTables ? (Object) parser.parsePlan(text) : parser.parseExpression(text);
            }
            return template;
        }

        boolean fits(Seq arguments) {
            if (arguments.size() != kinds.length) return false;
            for (int i = 0; i < kinds.length; i++) {
                if (!fits(kinds[i], (Expression) arguments.apply(i))) return false;
            }
            return true;
        }

        private boolean fits(String kind, Expression argument) {
            if (kind.equals("any")) return true;
            if (!argument.resolved()) return false;
            if (!kind.endsWith("!")) return fits(kind, argument.dataType());
            return !argument.nullable() && fits(kind.substring(0, kind.length() - 1), argument.dataType());
        }

        private static boolean fits(String kind, DataType type) {
            if (kind.startsWith("array<")) {
                String inner = kind.substring("array<".length(), kind.length() - 1);
                return type instanceof ArrayType && fits(inner, ((ArrayType) type).elementType());
            }
            if (kind.equals("number")) return type instanceof NumericType;
            if (kind.equals("text")) return type instanceof StringType;
            if (kind.equals("date")) return type instanceof DateType;
            if (kind.equals("boolean")) return type instanceof BooleanType;
            if (kind.equals("whole")) return isWhole(type);
            if (kind.equals("long")) return type instanceof LongType || (type instanceof DecimalType && isWhole(type));
            if (kind.equals("wide")) return type instanceof DecimalType && isWhole(type);
            if (kind.equals("decimal")) return type instanceof DecimalType;
            if (kind.equals("float")) return type instanceof DoubleType || type instanceof FloatType;
            if (kind.equals("single")) return type instanceof FloatType;
            if (kind.equals("time")) return type instanceof TimestampType;
            if (kind.equals("array")) return type instanceof ArrayType;
            if (kind.equals("map")) return type instanceof MapType;
            if (kind.equals("tuple")) return type instanceof StructType;
            if (kind.equals("days")) return type instanceof DayTimeIntervalType;
            if (kind.equals("months")) return type instanceof YearMonthIntervalType;
            return type instanceof ArrayType || type instanceof MapType;
        }

        /** Unsigned numbers of 64 bits are stored as decimals without a fraction. */
        private static boolean isWhole(DataType type) {
            return type instanceof IntegralType || (type instanceof DecimalType && ((DecimalType) type).scale() == 0);
        }
    }

    /** Makes of the arguments of a call what the call stands for. */
    public static final class Builder extends AbstractFunction1 {
        final List variants = new ArrayList();
        FunctionIdentifier other = null;
        private final String name;
        private final FunctionRegistryBase functions;
        private final Option before;

        Builder(String name, FunctionRegistryBase functions, Option before) {
            this.name = name;
            this.functions = functions;
            this.before = before;
        }

        public Object apply(Object given) {
            Seq arguments = (Seq) given;
            if (other != null) return call(other, arguments);
            for (int i = 0; i < variants.size(); i++) {
                Variant variant = (Variant) variants.get(i);
                if (!variant.fits(arguments)) continue;
                if (variant.text.startsWith("!")) throw new IllegalArgumentException(REFUSAL + variant.text.substring(1));
                return filled(variant.template(), arguments);
            }
            if (before.isDefined()) return ((Function1) before.get()).apply(arguments);
            throw new IllegalArgumentException(name + " does not take these arguments");
        }

        private Object filled(Object template, Seq arguments) {
            Arguments fill = new Arguments(arguments);
            if (template instanceof LogicalPlan) return ((LogicalPlan) template).transformAllExpressions((scala.PartialFunction) fill);
            Expression filled = (Expression) ((Expression) template).transformUp(fill);
            return filled instanceof UnresolvedFunction ? called((UnresolvedFunction) filled) : filled;
        }

        /** An aggregate function itself, which may be followed by FILTER or OVER, where the call has no more to it. */
        private Expression called(UnresolvedFunction call) {
            if (call.isDistinct() || call.nameParts().size() != 1) return call;
            FunctionIdentifier called = new FunctionIdentifier((String) call.nameParts().head());
            Seq arguments = call.arguments();
            for (int i = 0; i < arguments.size(); i++) {
                Expression argument = (Expression) arguments.apply(i);
                boolean isLambda = argument instanceof org.apache.spark.sql.catalyst.expressions.LambdaFunction;
                if (!isLambda && !argument.resolved()) return call;
            }
            return (Expression) call(called, arguments);
        }

        private Object call(FunctionIdentifier function, Seq arguments) {
            return ((Function1) functions.lookupFunctionBuilder(function).get()).apply(arguments);
        }
    }

    private static final class Arguments extends AbstractPartialFunction {
        private final Seq given;

        Arguments(Seq given) {
            this.given = given;
        }

        public boolean isDefinedAt(Object node) {
            return index(node) >= 0;
        }

        public Object applyOrElse(Object node, Function1 otherwise) {
            int index = index(node);
            return index >= 0 ? given.apply(index) : otherwise.apply(node);
        }

        private static int index(Object node) {
            // In the body of a lambda, Spark's parser takes every name for a variable of it.
            String name = "";
            if (node instanceof UnresolvedAttribute) name = ((UnresolvedAttribute) node).name();
            if (node instanceof UnresolvedNamedLambdaVariable) name = ((UnresolvedNamedLambdaVariable) node).name();
            return name.startsWith(PREFIX) ? Integer.parseInt(name.substring(PREFIX.length())) : -1;
        }
    }
}
