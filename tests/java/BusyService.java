// A clustered service that is busy with each message for as long as a file is there.
package container.tests;

import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.cluster.codecs.CloseReason;
import io.aeron.cluster.service.ClientSession;
import io.aeron.cluster.service.Cluster;
import io.aeron.cluster.service.ClusteredService;
import io.aeron.logbuffer.Header;
import java.io.File;
import java.io.IOException;
import org.agrona.DirectBuffer;

/**
 * Waits in the callback of each message while there is the file that the property {@code test.busy.file} names, and
 * says so by a file beside it, with {@code .in} behind its name. It keeps no state, so its snapshot is empty.
 */
public final class BusyService implements ClusteredService
{
    @Override
    public void onStart(final Cluster cluster, final Image snapshotImage)
    {
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
        final int length,
        final Header header)
    {
        final File busy = new File(System.getProperty("test.busy.file"));
        try
        {
            if (busy.exists())
            {
                new File(busy.getPath() + ".in").createNewFile();
            }
            while (busy.exists())
            {
                Thread.sleep(10);
            }
        }
        catch (final IOException | InterruptedException ex)
        {
            throw new IllegalStateException(ex);
        }
    }

    @Override
    public void onTimerEvent(final long correlationId, final long timestamp)
    {
    }

    @Override
    public void onTakeSnapshot(final ExclusivePublication snapshotPublication)
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
