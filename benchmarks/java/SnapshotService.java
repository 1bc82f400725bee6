// A service whose state is messages of one length: writes them as a snapshot, and checks them when it starts.
package container.benchmarks;

import io.aeron.ExclusivePublication;
import io.aeron.FragmentAssembler;
import io.aeron.Image;
import io.aeron.cluster.codecs.CloseReason;
import io.aeron.cluster.service.ClientSession;
import io.aeron.cluster.service.Cluster;
import io.aeron.cluster.service.ClusteredService;
import io.aeron.logbuffer.Header;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Set up by the system properties {@code SNAPSHOT_LENGTH} and {@code SNAPSHOT_COUNT}. Prints {@code taken SECONDS}
 * and {@code loaded SECONDS}. Each message has its number in its first 8 bytes.
 */
public final class SnapshotService implements ClusteredService
{
    private final int length = Integer.parseInt(System.getProperty("SNAPSHOT_LENGTH"));
    private final int count = Integer.parseInt(System.getProperty("SNAPSHOT_COUNT"));
    private Cluster cluster;
    private int loaded;

    @Override
    public void onStart(final Cluster cluster, final Image snapshotImage)
    {
        this.cluster = cluster;
        if (null == snapshotImage)
        {
            return;
        }

        final long startNs = System.nanoTime();
        final FragmentAssembler assembler = new FragmentAssembler(
            (buffer, offset, messageLength, header) ->
            {
                if (messageLength != length || buffer.getLong(offset) != loaded)
                {
                    throw new IllegalStateException("message " + loaded + " of the snapshot is not what was written");
                }
                loaded++;
            });
        while (!snapshotImage.isEndOfStream())
        {
            cluster.idleStrategy().idle(snapshotImage.poll(assembler, 10));
        }
        if (loaded != count)
        {
            throw new IllegalStateException(loaded + " of " + count + " messages");
        }
        print("loaded", startNs);
    }

    @Override
    public void onTakeSnapshot(final ExclusivePublication snapshotPublication)
    {
        final long startNs = System.nanoTime();
        final UnsafeBuffer buffer = new UnsafeBuffer(new byte[length]);
        for (int i = 0; i < count; i++)
        {
            buffer.putLong(0, i);
            cluster.idleStrategy().reset();
            while (snapshotPublication.offer(buffer, 0, length) <= 0)
            {
                cluster.idleStrategy().idle();
            }
        }
        print("taken", startNs);
    }

    private static void print(final String what, final long startNs)
    {
        System.out.println(what + " " + (System.nanoTime() - startNs) / 1e9);
        System.out.flush();
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
        final DirectBuffer buffer,
        final int offset,
        final int messageLength,
        final Header header)
    {
    }

    @Override
    public void onTimerEvent(final long correlationId, final long timestamp)
    {
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
