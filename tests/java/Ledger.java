// The byte format of the ledger service: commands, answers, snapshot frames and the hash of its state.
package container.tests;

import java.util.Map;
import java.util.SortedMap;
import org.agrona.DirectBuffer;
import org.agrona.MutableDirectBuffer;

import static java.nio.ByteOrder.LITTLE_ENDIAN;

/**
 * Offsets, lengths and codes of what README.md describes. All integers are little-endian.
 */
final class Ledger
{
    static final byte OP_PUT = 1;
    static final byte OP_GET = 2;
    static final byte OP_ADD = 3;
    static final byte OP_SCHEDULE = 4;
    static final byte OP_HASH = 5;
    static final byte OP_INVALID = (byte)255;

    static final int OP_OFFSET = 0;
    static final int KEY_OFFSET = 1;
    static final int VALUE_OFFSET = 9;
    static final int COMMAND_LENGTH = 17;
    static final int HASH_OFFSET = 17;
    static final int ANSWER_LENGTH = 25;

    /** The bytes {@code LEDGER01} read as an int64. */
    static final long SNAPSHOT_MAGIC = 0x313052454744454CL;
    static final int SNAPSHOT_FIRST_OFFSET = 0;
    static final int SNAPSHOT_SECOND_OFFSET = 8;
    static final int SNAPSHOT_FRAME_LENGTH = 16;

    private static final long FNV_OFFSET_BASIS = 0xCBF29CE484222325L;
    private static final long FNV_PRIME = 0x100000001B3L;

    private Ledger()
    {
    }

    static int putCommand(final MutableDirectBuffer buffer, final byte op, final long key, final long value)
    {
        buffer.putByte(OP_OFFSET, op);
        buffer.putLong(KEY_OFFSET, key, LITTLE_ENDIAN);
        buffer.putLong(VALUE_OFFSET, value, LITTLE_ENDIAN);
        return COMMAND_LENGTH;
    }

    static int putAnswer(
        final MutableDirectBuffer buffer, final byte op, final long key, final long value, final long hash)
    {
        putCommand(buffer, op, key, value);
        buffer.putLong(HASH_OFFSET, hash, LITTLE_ENDIAN);
        return ANSWER_LENGTH;
    }

    static int putSnapshotFrame(final MutableDirectBuffer buffer, final long first, final long second)
    {
        buffer.putLong(SNAPSHOT_FIRST_OFFSET, first, LITTLE_ENDIAN);
        buffer.putLong(SNAPSHOT_SECOND_OFFSET, second, LITTLE_ENDIAN);
        return SNAPSHOT_FRAME_LENGTH;
    }

    static long getLong(final DirectBuffer buffer, final int index)
    {
        return buffer.getLong(index, LITTLE_ENDIAN);
    }

    static String opName(final byte op)
    {
        switch (op)
        {
            case OP_PUT:
                return "PUT";
            case OP_GET:
                return "GET";
            case OP_ADD:
                return "ADD";
            case OP_SCHEDULE:
                return "SCHEDULE";
            case OP_HASH:
                return "HASH";
            default:
                return "INVALID";
        }
    }

    static long hash(final SortedMap<Long, Long> entries)
    {
        long hash = FNV_OFFSET_BASIS;
        for (final Map.Entry<Long, Long> entry : entries.entrySet())
        {
            hash = hashLong(hash, entry.getKey());
            hash = hashLong(hash, entry.getValue());
        }

        return hash;
    }

    private static long hashLong(final long hash, final long value)
    {
        long result = hash;
        for (int shift = 0; shift < Long.SIZE; shift += Byte.SIZE)
        {
            result = (result ^ ((value >>> shift) & 0xFF)) * FNV_PRIME;
        }

        return result;
    }
}
