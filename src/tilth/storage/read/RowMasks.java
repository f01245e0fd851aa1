import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.UnsafeArrayData;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataTypes;

/**
 * Makes a constant of many numbers, which tasks read in place. A constant of SQL would be an object for each number, and
 * a text in every description of the plan. Compiled by the compiler that Spark uses for generated code, which knows no
 * generics; see spark.py.
 */
public class RowMasks {
    /** Return an ARRAY of BIGINT as a Column. `numbers`: eight bytes each, the lowest first. */
    public Object column(byte[] numbers) {
        long[] values = new long[numbers.length / Long.BYTES];
        ByteBuffer.wrap(numbers).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(values);
        return ExpressionUtils.column(
            new Literal(UnsafeArrayData.fromPrimitiveArray(values), DataTypes.createArrayType(DataTypes.LongType, false))
        );
    }
}
