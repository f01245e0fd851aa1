import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructType;

/**
 * Makes empty temporary views that the optimizer cannot fold away, all of them in one call. Compiled by the compiler that
 * Spark uses for generated code, which knows no generics; see needs_spark.py.
 */
public class EmptyViews implements java.util.function.BiFunction {
    /**
     * `views`: for each view its name and the columns of its leaf as DDL, with NUL behind each; the leaf's columns are
     * called `n:column`, the view's `column`. Return how many there are.
     */
    public Object apply(Object session, Object views) {
        SparkSession spark = (SparkSession) session;
        String[] texts = ((String) views).split("\0");
        RDD empty = spark.sparkContext().emptyRDD(scala.reflect.ClassTag$.MODULE$.apply(InternalRow.class));
        for (int i = 0; i + 1 < texts.length; i += 2) {
            StructType leaf = StructType.fromDDL(texts[i + 1]);
            String[] names = leaf.fieldNames();
            for (int k = 0; k < names.length; k++) {
                names[k] = names[k].substring(names[k].indexOf(':') + 1);
            }
            Dataset rows = spark.internalCreateDataFrame(empty, leaf, false);
            rows.toDF(names).createOrReplaceTempView(texts[i]);
        }
        return Integer.valueOf(texts.length / 2);
    }
}
