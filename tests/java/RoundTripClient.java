// Measures round trips with an echo service: how many in a second, and how long each takes.
package container.tests;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * For each line {@code messages length window} that is written to the file of its argument one round, answered by a
 * line of JSON; the connection is set by the system properties of {@code AeronCluster.Context}. Messages are numbered,
 * and each answer must be the next message, byte for byte. It ends when it is killed.
 */
public final class RoundTripClient
{
    private static final long LIMIT_NS = TimeUnit.SECONDS.toNanos(120);
    private static final long REST_NS = TimeUnit.MILLISECONDS.toNanos(20);

    private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    private UnsafeBuffer message;
    private long[] sentNs;
    private long[] durationsNs;
    private int sent;
    private int received;

    private RoundTripClient()
    {
    }

    public static void main(final String[] args) throws IOException
    {
        final RoundTripClient roundTrips = new RoundTripClient();
        try (RandomAccessFile orders = new RandomAccessFile(args[0], "r");
            TestClient client = TestClient.connect(roundTrips::onEcho, LIMIT_NS))
        {
            System.out.println("READY");
            while (true)
            {
                final String[] words = awaitLine(orders, client).trim().split(" ");
                roundTrips.run(
                    client, Integer.parseInt(words[0]), Integer.parseInt(words[1]), Integer.parseInt(words[2]));
            }
        }
    }

    /** Keeps the session alive, and leaves the cores alone, while the other client has its turn. */
    private static String awaitLine(final RandomAccessFile orders, final TestClient client) throws IOException
    {
        String line;
        while (null == (line = orders.readLine()))
        {
            client.poll();
            LockSupport.parkNanos(REST_NS);
        }

        return line;
    }

    private void run(final TestClient client, final int messages, final int length, final int window)
    {
        message = new UnsafeBuffer(new byte[length]);
        sentNs = new long[messages];
        durationsNs = new long[messages];
        sent = 0;
        received = 0;
        final long startCpuNs = threads.getCurrentThreadCpuTime();
        final long startNs = System.nanoTime();
        while (received < messages)
        {
            int workCount = client.poll();
            while (sent < messages && sent - received < window)
            {
                write(sent);
                sentNs[sent] = System.nanoTime();
                if (!client.trySend(message, length))
                {
                    break;
                }

                sent++;
                workCount++;
            }

            client.idle(workCount);
            TestClient.failAfter(startNs + LIMIT_NS, () -> received + " of " + messages + " echoes came");
        }

        final double seconds = (System.nanoTime() - startNs) / 1e9;
        final double cpuSeconds = (threads.getCurrentThreadCpuTime() - startCpuNs) / 1e9;
        Arrays.sort(durationsNs);
        System.out.printf(
            "{\"per_second\": %.1f, \"p50_us\": %.3f, \"p99_us\": %.3f, \"cpu_s_per_million\": %.4f}%n",
            messages / seconds, durationsNs[messages / 2] / 1e3, durationsNs[(int)(messages * 0.99)] / 1e3,
            cpuSeconds / messages * 1e6);
    }

    private void write(final long number)
    {
        message.putLong(0, number, ByteOrder.LITTLE_ENDIAN);
        for (int i = Long.BYTES; i < message.capacity(); i++)
        {
            message.putByte(i, (byte)(number + i));
        }
    }

    private void onEcho(final DirectBuffer buffer, final int offset, final int length)
    {
        final long nowNs = System.nanoTime();
        if (received >= sent || length != message.capacity() || !isNext(buffer, offset))
        {
            throw new TestClient.Failure("a message came that is not the echo of message " + received);
        }

        durationsNs[received] = nowNs - sentNs[received];
        received++;
    }

    private boolean isNext(final DirectBuffer buffer, final int offset)
    {
        boolean isSame = received == buffer.getLong(offset, ByteOrder.LITTLE_ENDIAN);
        for (int i = Long.BYTES; i < message.capacity(); i++)
        {
            isSame &= (byte)(received + i) == buffer.getByte(offset + i);
        }

        return isSame;
    }
}
