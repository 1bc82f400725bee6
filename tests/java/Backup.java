// Runs ClusterBackup by itself, beside any driver and archive; upstream launches it with archive and driver of its own.
package container.tests;

import io.aeron.cluster.ClusterBackup;
import org.agrona.concurrent.ShutdownSignalBarrier;

/**
 * Takes its settings from system properties and ends when its process does. Tells when it is launched.
 */
public final class Backup
{
    private Backup()
    {
    }

    public static void main(final String[] args)
    {
        try (ShutdownSignalBarrier barrier = new ShutdownSignalBarrier();
            ClusterBackup backup = ClusterBackup.launch(
                new ClusterBackup.Context().terminationHook(barrier::signalAll)))
        {
            System.out.println("launched in " + backup.context().clusterDirectoryName());
            barrier.await();
        }
    }
}
