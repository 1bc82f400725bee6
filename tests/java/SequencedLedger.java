// The state, the byte formats and the hash of the sequenced ledger; docs/testing.md describes them.
package container.tests;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.zip.CRC32;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

import static java.nio.ByteOrder.LITTLE_ENDIAN;

/**
 * The whole replicated state of {@link SequencedLedgerService}. All integers are little-endian.
 */
final class SequencedLedger
{
    static final int COMMAND_LENGTH = 33;
    static final int ANSWER_LENGTH = 33;
    static final int RELAY_LENGTH = 32;
    static final int JOURNAL_RECORD_LENGTH = 40;

    /** The bytes {@code LEDGER02} read as an int64. */
    private static final long SNAPSHOT_MAGIC = 0x323052454744454CL;
    private static final int HEADER_FIELDS = 12;
    private static final int HEADER_LENGTH = HEADER_FIELDS * Long.BYTES;
    private static final int ENTRY_FIELDS = 3;
    private static final int ENTRY_LENGTH = ENTRY_FIELDS * Long.BYTES;
    private static final int TOTALS_INDEX = 2;
    private static final int COUNTS_INDEX = 7;
    private static final long PRIME = 0x9E3779B97F4A7C15L;

    final TreeMap<Long, Long> clients = new TreeMap<>();
    final TreeMap<Long, Long> accounts = new TreeMap<>();
    final TreeMap<Long, Long> timers = new TreeMap<>();
    final TreeMap<Long, Long> relays = new TreeMap<>();
    final TreeMap<Long, Long> sessions = new TreeMap<>();
    long chain;
    long messages;
    private final List<TreeMap<Long, Long>> sections = List.of(clients, accounts, timers, relays, sessions);
    private long timersFired;
    private long timersSpurious;
    private long relaysBack;
    private long relaysSpurious;
    private long entriesExpected = -1;
    private long entriesRead;

    static long mix(final long hash, final long... numbers)
    {
        long result = hash;
        for (final long number : numbers)
        {
            result = (result ^ number) * PRIME;
            result ^= result >>> 32;
        }

        return result;
    }

    static long crc32(final DirectBuffer buffer, final int offset, final int length)
    {
        final byte[] bytes = new byte[length];
        buffer.getBytes(offset, bytes);
        final CRC32 crc = new CRC32();
        crc.update(bytes);
        return crc.getValue();
    }

    void happened(
        final long kind,
        final long position,
        final long timestamp,
        final long first,
        final long second,
        final long payload)
    {
        chain = mix(chain, kind, position, timestamp, first, second, payload);
    }

    void add(final long key, final long value)
    {
        accounts.merge(key, value, Long::sum);
    }

    boolean timerFired(final long correlationId)
    {
        final boolean isExpected = null != timers.remove(correlationId);
        if (isExpected)
        {
            timersFired++;
        }
        else
        {
            timersSpurious++;
        }

        return isExpected;
    }

    boolean relayBack(final long key)
    {
        final boolean isExpected = null != relays.remove(key);
        if (isExpected)
        {
            relaysBack++;
        }
        else
        {
            relaysSpurious++;
        }

        return isExpected;
    }

    void forEachFrame(final Consumer<UnsafeBuffer> consumer)
    {
        final UnsafeBuffer header = new UnsafeBuffer(new byte[HEADER_LENGTH]);
        putLongs(header, 0, SNAPSHOT_MAGIC, chain, messages, timersFired, timersSpurious, relaysBack, relaysSpurious);
        for (int i = 0; i < sections.size(); i++)
        {
            putLongs(header, (COUNTS_INDEX + i) * Long.BYTES, sections.get(i).size());
        }

        consumer.accept(header);
        final UnsafeBuffer frame = new UnsafeBuffer(new byte[ENTRY_LENGTH]);
        for (int i = 0; i < sections.size(); i++)
        {
            for (final Map.Entry<Long, Long> entry : sections.get(i).entrySet())
            {
                putLongs(frame, 0, i + 1, entry.getKey(), entry.getValue());
                consumer.accept(frame);
            }
        }
    }

    long digest()
    {
        final long[] result = new long[1];
        forEachFrame((frame) -> result[0] = mix(result[0], crc32(frame, 0, frame.capacity())));
        return result[0];
    }

    void onSnapshotFrame(final DirectBuffer buffer, final int offset, final int length)
    {
        final boolean isHeader = entriesExpected < 0;
        if ((isHeader ? HEADER_LENGTH : ENTRY_LENGTH) != length)
        {
            throw new IllegalStateException("snapshot frame of " + length + " bytes after " + entriesRead + " entries");
        }

        if (isHeader)
        {
            readHeader(buffer, offset);
        }
        else
        {
            entriesRead++;
            sections.get((int)getLong(buffer, offset) - 1).put(
                getLong(buffer, offset + Long.BYTES), getLong(buffer, offset + 2 * Long.BYTES));
        }
    }

    private void readHeader(final DirectBuffer buffer, final int offset)
    {
        if (SNAPSHOT_MAGIC != getLong(buffer, offset))
        {
            throw new IllegalStateException("not a snapshot of a sequenced ledger");
        }

        chain = getLong(buffer, offset + Long.BYTES);
        final int totals = offset + TOTALS_INDEX * Long.BYTES;
        messages = getLong(buffer, totals);
        timersFired = getLong(buffer, totals + Long.BYTES);
        timersSpurious = getLong(buffer, totals + 2 * Long.BYTES);
        relaysBack = getLong(buffer, totals + 3 * Long.BYTES);
        relaysSpurious = getLong(buffer, totals + 4 * Long.BYTES);
        entriesExpected = 0;
        for (int i = COUNTS_INDEX; i < HEADER_FIELDS; i++)
        {
            entriesExpected += getLong(buffer, offset + i * Long.BYTES);
        }
    }

    void checkSnapshotEnd()
    {
        if (entriesRead != entriesExpected)
        {
            throw new IllegalStateException(
                "snapshot ended with " + entriesRead + " entries, expected " + entriesExpected);
        }
    }

    static void putLongs(final UnsafeBuffer buffer, final int offset, final long... values)
    {
        for (int i = 0; i < values.length; i++)
        {
            buffer.putLong(offset + i * Long.BYTES, values[i], LITTLE_ENDIAN);
        }
    }

    static long getLong(final DirectBuffer buffer, final int index)
    {
        return buffer.getLong(index, LITTLE_ENDIAN);
    }
}
