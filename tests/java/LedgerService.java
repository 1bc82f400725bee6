// A small deterministic clustered service with state, timers and a snapshot; README.md describes its byte format.
package container.tests;

import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.Publication;
import io.aeron.cluster.codecs.CloseReason;
import io.aeron.cluster.service.ClientSession;
import io.aeron.cluster.service.Cluster;
import io.aeron.cluster.service.ClusteredService;
import io.aeron.logbuffer.Header;
import java.util.Map;
import java.util.TreeMap;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Keeps int64 values under int64 keys. Every command is answered with the hash of the whole state after it, so one
 * answer tells whether two services agree.
 */
public final class LedgerService implements ClusteredService
{
    private static final int SNAPSHOT_FRAGMENT_LIMIT = 10;
    private static final long HEADER_NOT_READ = -1;

    private final TreeMap<Long, Long> entries = new TreeMap<>();
    private final UnsafeBuffer buffer = new UnsafeBuffer(new byte[Ledger.ANSWER_LENGTH]);
    private Cluster cluster;
    private long snapshotEntriesExpected = HEADER_NOT_READ;

    @Override
    public void onStart(final Cluster cluster, final Image snapshotImage)
    {
        this.cluster = cluster;
        if (null != snapshotImage)
        {
            loadSnapshot(snapshotImage);
        }
    }

    @Override
    public void onSessionOpen(final ClientSession session, final long timestamp)
    {
    }

    @Override
    public void onSessionClose(final ClientSession session, final long timestamp, final CloseReason closeReason)
    {
    }

    @Override
    public void onSessionMessage(
        final ClientSession session,
        final long timestamp,
        final DirectBuffer message,
        final int offset,
        final int length,
        final Header header)
    {
        if (null == session)
        {
            return;
        }

        if (Ledger.COMMAND_LENGTH != length)
        {
            answer(session, Ledger.OP_INVALID, 0, length);
            return;
        }

        final byte op = message.getByte(offset + Ledger.OP_OFFSET);
        final long key = Ledger.getLong(message, offset + Ledger.KEY_OFFSET);
        final long value = Ledger.getLong(message, offset + Ledger.VALUE_OFFSET);
        execute(session, timestamp, op, key, value);
    }

    private void execute(
        final ClientSession session, final long timestamp, final byte op, final long key, final long value)
    {
        switch (op)
        {
            case Ledger.OP_PUT:
                entries.put(key, value);
                answer(session, op, key, value);
                break;

            case Ledger.OP_GET:
                answer(session, op, key, entries.getOrDefault(key, 0L));
                break;

            case Ledger.OP_ADD:
                answer(session, op, key, entries.merge(key, value, Long::sum));
                break;

            case Ledger.OP_SCHEDULE:
                schedule(key, timestamp + value);
                answer(session, op, key, timestamp + value);
                break;

            case Ledger.OP_HASH:
                answer(session, op, key, entries.size());
                break;

            default:
                answer(session, Ledger.OP_INVALID, key, op & 0xFF);
                break;
        }
    }

    private void schedule(final long correlationId, final long deadline)
    {
        while (!cluster.scheduleTimer(correlationId, deadline))
        {
            cluster.idleStrategy().idle();
        }
    }

    private void answer(final ClientSession session, final byte op, final long key, final long value)
    {
        final int length = Ledger.putAnswer(buffer, op, key, value, Ledger.hash(entries));
        long result = session.offer(buffer, 0, length);
        while (Publication.BACK_PRESSURED == result || Publication.ADMIN_ACTION == result)
        {
            cluster.idleStrategy().idle();
            result = session.offer(buffer, 0, length);
        }
    }

    @Override
    public void onTimerEvent(final long correlationId, final long timestamp)
    {
        entries.merge(correlationId, 1L, Long::sum);
    }

    @Override
    public void onTakeSnapshot(final ExclusivePublication snapshotPublication)
    {
        write(snapshotPublication, Ledger.putSnapshotFrame(buffer, Ledger.SNAPSHOT_MAGIC, entries.size()));
        for (final Map.Entry<Long, Long> entry : entries.entrySet())
        {
            write(snapshotPublication, Ledger.putSnapshotFrame(buffer, entry.getKey(), entry.getValue()));
        }
    }

    private void write(final ExclusivePublication publication, final int length)
    {
        long result = publication.offer(buffer, 0, length);
        while (result < 0)
        {
            if (Publication.BACK_PRESSURED != result && Publication.ADMIN_ACTION != result)
            {
                throw new IllegalStateException("snapshot frame not written: " + Publication.errorString(result));
            }

            cluster.idleStrategy().idle();
            result = publication.offer(buffer, 0, length);
        }
    }

    private void loadSnapshot(final Image image)
    {
        while (!image.isEndOfStream() && !image.isClosed())
        {
            cluster.idleStrategy().idle(image.poll(this::onSnapshotFrame, SNAPSHOT_FRAGMENT_LIMIT));
        }

        if (entries.size() != snapshotEntriesExpected)
        {
            throw new IllegalStateException(
                "snapshot ended with " + entries.size() + " entries, expected " + snapshotEntriesExpected);
        }
    }

    private void onSnapshotFrame(final DirectBuffer frame, final int offset, final int length, final Header header)
    {
        if (Ledger.SNAPSHOT_FRAME_LENGTH != length)
        {
            throw new IllegalStateException(
                "snapshot frame of " + length + " bytes, expected " + Ledger.SNAPSHOT_FRAME_LENGTH);
        }

        final long first = Ledger.getLong(frame, offset + Ledger.SNAPSHOT_FIRST_OFFSET);
        final long second = Ledger.getLong(frame, offset + Ledger.SNAPSHOT_SECOND_OFFSET);
        if (HEADER_NOT_READ != snapshotEntriesExpected)
        {
            entries.put(first, second);
        }
        else if (Ledger.SNAPSHOT_MAGIC == first)
        {
            snapshotEntriesExpected = second;
        }
        else
        {
            throw new IllegalStateException("not a ledger snapshot: first word 0x" + Long.toHexString(first));
        }
    }

    @Override
    public void onRoleChange(final Cluster.Role newRole)
    {
    }

    @Override
    public void onTerminate(final Cluster cluster)
    {
    }
}
