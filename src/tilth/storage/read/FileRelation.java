import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.ArrayWritable;
import org.apache.hadoop.io.Writable;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileStatusCache;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.SharedInMemoryCache;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * Makes the scan of files that are known already: no folder is listed. Compiled by the compiler that Spark uses for
 * generated code, which knows no generics; see spark.py.
 */
public class FileRelation {
    // More than the statuses of any list of files weigh: from a cache that is full, Spark drops some and lists the folder.
    private static final long CACHE_BYTES = 1L << 50;

    /**
     * Return the rows of the files as a Dataset. `schema` is JSON, `options` are names and values in turns and `folders`
     * the folders of the files, with NUL behind each; `statuses` has a Hadoop ArrayWritable of FileStatus for each
     * folder. `count` and `size`: files, and bytes in them.
     */
    public Object frame(
        Object session,
        String schema,
        String options,
        String folders,
        byte[] statuses,
        int count,
        long size
    ) throws Exception {
        SparkSession spark = (SparkSession) session;
        // The session's cache is shared, bounded, and may be switched off.
        FileStatusCache cache = new SharedInMemoryCache(CACHE_BYTES, -1L).createForNewClient();
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(statuses));
        List paths = new ArrayList();
        String[] names = folders.split("\0");
        for (int i = 0; i < names.length; i++) {
            ArrayWritable read = new ArrayWritable(FileStatus.class);
            read.readFields(in);
            Writable[] found = read.get();
            Path path = new Path(names[i]);
            cache.putLeafFiles(path, (FileStatus[]) Arrays.copyOf(found, found.length, FileStatus[].class));
            paths.add(path);
        }
        StructType columns = (StructType) DataType.fromJson(schema);
        InMemoryFileIndex index = new InMemoryFileIndex(
            spark,
            PythonUtils.toSeq(paths),
            scala.collection.immutable.Map$.MODULE$.empty(),
            Option.apply(columns),
            cache,
            Option.empty(),
            Option.empty()
        );
        int listed = index.allFiles().size();
        if (listed != count || index.sizeInBytes() != size) {
            // A folder holds files that no snapshot shows any more, or yet: a listed index would read those too.
            throw new IllegalStateException(
                listed + " files of " + index.sizeInBytes() + " bytes instead of " + count + " of " + size
            );
        }
        Map given = new HashMap();
        String[] words = options.split("\0");
        for (int i = 0; i + 1 < words.length; i += 2) {
            given.put(words[i], words[i + 1]);
        }
        return spark.baseRelationToDataFrame(
            new HadoopFsRelation(
                index,
                new StructType(),
                columns,
                Option.empty(),
                new ParquetFileFormat(),
                PythonUtils.toScalaMap(given),
                spark
            )
        );
    }
}
