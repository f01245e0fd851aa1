import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.util.Collections;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonRDD;

/**
 * Runs a function of Python in the tasks of a job, without a plan of Spark SQL, which lasts longer than a small task.
 * Compiled by the compiler that Spark uses for generated code, which knows no generics; see spark.py.
 */
public class TaskJob {
    /**
     * Return the answers in the order of the tasks, a length of four bytes before each. `function` gives one array of
     * bytes for each partition, which is empty.
     */
    public byte[] run(Object context, int tasks, Object function) throws Exception {
        JavaSparkContext spark = (JavaSparkContext) context;
        PythonRDD rdd = new PythonRDD(
            spark.parallelize(Collections.emptyList(), tasks).rdd(),
            (PythonFunction) function,
            false,
            false
        );
        byte[][] answers = (byte[][]) rdd.collect();
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        for (int i = 0; i < answers.length; i++) {
            out.writeInt(answers[i].length);
            out.write(answers[i]);
        }
        return bytes.toByteArray();
    }
}
