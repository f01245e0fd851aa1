import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.trees.Origin;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.Product;

/**
 * Writes all that a plan or an expression of Spark is made of as JSON, so that Python reads it at once instead of node
 * by node. Compiled by the compiler that Spark uses for generated code, which knows no generics; see logical_plans.py.
 *
 * Always holds: the kind of everything that is found is named, also of what is not known. Each node of a tree stands
 * behind the one that holds it; other values belong to the node that holds them.
 *
 *     {"kinds": [..], "fields": [..], "types": [..],       names, to which the numbers below refer
 *      "nodes": [[kind, holder, field, start, end, type], ..],  -1: there is none
 *      "texts": [[node, field, text], ..]}                 texts, flags that are true, beginnings of literals
 */
public class PlanReader implements java.util.function.Function {
    private static final String CATALYST = "org.apache.spark.sql.catalyst.";
    private static final int NODES_MAX = 1000000;
    /** The number of the field of what a class counts as inside itself without having it as an element. */
    private static final int INNER = 1;
    /** Of the text of a literal. */
    private static final int VALUE_LENGTH_MAX = 64;
    /** A longer answer of py4j would wait 40 ms for a delayed acknowledgement. */
    private static final int PIECE_LENGTH = 8000;

    /** A text of JSON; a longer one as an iterator over its pieces; null for a plan of too many nodes. */
    public Object apply(Object root) {
        return inPieces(new Reading().read(root));
    }

    public static Object inPieces(String text) {
        return text == null || text.length() <= PIECE_LENGTH ? text : new Pieces(text);
    }

    /** A node that is left to be looked at. */
    private static final class Item {
        final TreeNode node;
        final int holder;
        final int field;
        final boolean isListed;

        Item(TreeNode node, int holder, int field, boolean isListed) {
            this.node = node;
            this.holder = holder;
            this.field = field;
            this.isListed = isListed;
        }
    }

    /** Names and their numbers, in the order in which they were met. */
    private static final class Names {
        private final List names = new ArrayList();
        private final Map numbers = new HashMap();

        int of(String name) {
            Integer known = (Integer) numbers.get(name);
            if (known == null) {
                known = Integer.valueOf(names.size());
                numbers.put(name, known);
                names.add(name);
            }
            return known.intValue();
        }

        void write(StringBuilder out) {
            for (int index = 0; index < names.size(); index++) {
                out.append(index == 0 ? '[' : ',');
                quote((String) names.get(index), out);
            }
            out.append(names.isEmpty() ? "[]" : "]");
        }
    }

    private static final class Reading {
        private final Names kinds = new Names();
        private final Names fields = new Names();
        private final Names types = new Names();
        private final StringBuilder nodes = new StringBuilder();
        private final StringBuilder texts = new StringBuilder();
        /** By type its number; naming a type is slow, and lists of literals are long. */
        private final Map typeNumbers = new IdentityHashMap();
        /** Plans that were read. */
        private final Set plans = Collections.newSetFromMap(new IdentityHashMap());
        /** Plans inside of plans; most of them are read with the expression that holds them. */
        private final ArrayDeque inner = new ArrayDeque();
        private int count = 0;
        /** Whether the node that is read now holds a list, whose values may be very many. */
        private boolean isListing = false;

        String read(Object root) {
            ArrayDeque stack = new ArrayDeque();
            stack.push(new Item((TreeNode) root, -1, fields.of(""), false));
            int inside = fields.of("inner");
            assert inside == INNER;
            while (!stack.isEmpty() || !inner.isEmpty()) {
                if (count == NODES_MAX) {
                    return null;
                }
                Item item = (Item) (stack.isEmpty() ? inner.pop() : stack.pop());
                if (item.field == INNER && plans.contains(item.node)) {
                    continue;
                }
                List below = new ArrayList();
                readNode(item, below);
                for (int index = below.size() - 1; index >= 0; index--) {
                    stack.push(below.get(index));
                }
            }
            StringBuilder out = new StringBuilder("{\"kinds\":");
            kinds.write(out);
            out.append(",\"fields\":");
            fields.write(out);
            out.append(",\"types\":");
            types.write(out);
            out.append(",\"nodes\":[").append(nodes).append("],\"texts\":[").append(texts).append("]}");
            return out.toString();
        }

        private void readNode(Item item, List below) {
            TreeNode node = item.node;
            int self = count++;
            Origin origin = node.origin();
            Option start = origin.startIndex();
            Option stop = origin.stopIndex();
            nodes.append(self == 0 ? "[" : ",[").append(kinds.of(kind(node))).append(',').append(item.holder);
            nodes.append(',').append(item.field);
            nodes.append(',').append(start.isDefined() ? ((Integer) start.get()).intValue() : -1);
            nodes.append(',').append(stop.isDefined() ? ((Integer) stop.get()).intValue() + 1 : -1);
            nodes.append(',').append(type(node)).append(']');
            if (node instanceof Literal) {
                Object value = ((Literal) node).value();
                if (value instanceof UTF8String && !item.isListed) {
                    String text = value.toString();
                    addText(self, fields.of("value"), text.substring(0, Math.min(text.length(), VALUE_LENGTH_MAX)));
                }
                return;
            }
            if (node instanceof Cast && node.containsTag(Cast.USER_SPECIFIED_CAST())) {
                addText(self, fields.of("isUserSpecified"), "true");
            }
            int before = below.size();
            isListing = node instanceof In;
            readElements((Product) node, self, below);
            // What a class counts among its children without having it as an element.
            Set seen = Collections.newSetFromMap(new IdentityHashMap());
            for (int index = before; index < below.size(); index++) {
                seen.add(((Item) below.get(index)).node);
            }
            scala.collection.Iterator child = node.children().iterator();
            while (child.hasNext()) {
                Object value = child.next();
                if (seen.add(value)) {
                    below.add(new Item((TreeNode) value, self, INNER, false));
                }
            }
            if (node instanceof QueryPlan) {
                plans.add(node);
                scala.collection.Iterator plan = node.innerChildren().iterator();
                while (plan.hasNext()) {
                    Object value = plan.next();
                    if (value instanceof TreeNode && seen.add(value)) {
                        inner.add(new Item((TreeNode) value, self, INNER, false));
                    }
                }
            }
        }

        private void readElements(Product value, int self, List below) {
            scala.collection.Iterator each = value.productIterator();
            for (int index = 0; each.hasNext(); index++) {
                readValue(each.next(), self, fields.of(value.productElementName(index)), below);
            }
        }

        /** Reads what a field holds; nodes of the tree are left for later. */
        private void readValue(Object value, int self, int field, List below) {
            if (value == null || value == scala.None$.MODULE$) {
                return;
            }
            if (value instanceof TreeNode) {
                below.add(new Item((TreeNode) value, self, field, isListing));
            } else if (value instanceof String) {
                addText(self, field, (String) value);
            } else if (value instanceof Boolean) {
                if (((Boolean) value).booleanValue()) {
                    addText(self, field, "true");
                }
            } else if (value instanceof DataType) {
                kinds.of("org.apache.spark.sql.types.DataType");
            } else if (value instanceof scala.collection.Iterable) {
                scala.collection.Iterator each = ((scala.collection.Iterable) value).iterator();
                while (each.hasNext()) {
                    readValue(each.next(), self, field, below);
                }
            } else if (value instanceof Object[]) {
                Object[] each = (Object[]) value;
                for (int index = 0; index < each.length; index++) {
                    readValue(each[index], self, field, below);
                }
            } else if (value instanceof Map) {
                kinds.of(kind(value));
                Iterator each = ((Map) value).entrySet().iterator();
                while (each.hasNext()) {
                    Map.Entry entry = (Map.Entry) each.next();
                    readValue(entry.getKey(), self, field, below);
                    readValue(entry.getValue(), self, field, below);
                }
            } else if (value instanceof Product && value.getClass().getName().startsWith("scala.")) {
                // Some, Tuple2 and so on.
                scala.collection.Iterator each = ((Product) value).productIterator();
                while (each.hasNext()) {
                    readValue(each.next(), self, field, below);
                }
            } else {
                kinds.of(kind(value));
                if (value instanceof Product) {
                    readElements((Product) value, self, below);
                }
            }
        }

        private int type(TreeNode node) {
            if (!(node instanceof Expression) || !((Expression) node).resolved()) {
                return -1;
            }
            DataType type;
            try {
                type = ((Expression) node).dataType();
            } catch (Exception error) {
                // Frames of windows and their like are resolved and have none.
                return -1;
            }
            Integer known = (Integer) typeNumbers.get(type);
            if (known == null) {
                known = Integer.valueOf(types.of(type.simpleString()));
                typeNumbers.put(type, known);
            }
            return known.intValue();
        }

        private void addText(int node, int field, String text) {
            texts.append(texts.length() == 0 ? "[" : ",[").append(node).append(',').append(field).append(',');
            quote(text, texts);
            texts.append(']');
        }
    }

    /** A long text bit by bit; the end is an empty piece. */
    public static final class Pieces implements java.util.function.Supplier {
        private final String text;
        private int place = 0;

        Pieces(String text) {
            this.text = text;
        }

        public Object get() {
            int end = Math.min(text.length(), place + PIECE_LENGTH);
            String piece = text.substring(place, end);
            place = end;
            return piece;
        }
    }

    /** The simple name of a class of Spark's Catalyst, the whole name of any other. */
    private static String kind(Object value) {
        String name = value.getClass().getName();
        if (name.indexOf("$$Lambda") >= 0) {
            return "Lambda";
        }
        if (name.endsWith("$")) {
            name = name.substring(0, name.length() - 1);
        }
        return name.startsWith(CATALYST) ? name.substring(name.lastIndexOf('.') + 1) : name;
    }

    public static void quote(String text, StringBuilder out) {
        out.append('"');
        for (int index = 0; index < text.length(); index++) {
            char letter = text.charAt(index);
            if (letter == '"' || letter == '\\') {
                out.append('\\').append(letter);
            } else if (letter < ' ' || letter > '~') {
                String digits = Integer.toHexString(letter);
                out.append("\\u").append("0000".substring(digits.length())).append(digits);
            } else {
                out.append(letter);
            }
        }
        out.append('"');
    }
}
