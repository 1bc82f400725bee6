// The load of the echo benchmark: keeps a window of messages in flight over one or many sessions and checks each echo.
package container.benchmarks;

import io.aeron.Aeron;
import io.aeron.cluster.client.AeronCluster;
import io.aeron.cluster.client.EgressListener;
import io.aeron.cluster.codecs.EventCode;
import io.aeron.logbuffer.Header;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Answers each line {@code sessions messages length window} on its standard input with {@code OPEN} when it has the
 * sessions, the line that follows with {@code DONE} when all echoes have come, and then with a line of JSON: between
 * the two is nothing but the messages. Set up by the system properties of {@code AeronCluster.Context}. It ends when it
 * is killed.
 */
public final class EchoLoad
{
    private static final long LIMIT_NS = TimeUnit.SECONDS.toNanos(120);
    private static final long KEEP_ALIVE_INTERVAL_NS = TimeUnit.SECONDS.toNanos(1);
    private static final int BASE_EGRESS_STREAM_ID = 1000;
    private static final int CONNECTS_AT_ONCE = 64;
    private static final int BUCKETS_PER_DECADE = 20;

    private final IdleStrategy idleStrategy = new BackoffIdleStrategy(10, 20, 1_000, 50_000);
    private final List<Session> sessions = new ArrayList<>();
    private final Aeron aeron = Aeron.connect(new Aeron.Context());
    private final UnsafeBuffer message = new UnsafeBuffer(new byte[64 * 1024]);
    private int length;
    private int received;
    private int mismatches;
    private String failure;
    private long[] sentNs;
    private long[] durationsNs;

    /** One session: its echoes come in the order in which its messages were sent. */
    private final class Session implements EgressListener
    {
        private final AeronCluster.AsyncConnect connecting;
        private AeronCluster cluster;
        private int[] inFlight;
        private int head;
        private int tail;
        private long lastSendNs;

        Session(final int number)
        {
            final AeronCluster.Context context = new AeronCluster.Context()
                .aeron(aeron)
                .ownsAeronClient(false)
                .egressStreamId(BASE_EGRESS_STREAM_ID + number)
                .messageTimeoutNs(LIMIT_NS)
                .egressListener(this);
            connecting = AeronCluster.asyncConnect(context);
        }

        /** Goes on connecting; returns whether it has connected. */
        boolean tryConnect()
        {
            cluster = connecting.poll();
            lastSendNs = System.nanoTime();
            return cluster != null;
        }

        /** Nothing is in flight: forgets all numbers, and makes room for those of a window. */
        void reset(final int window)
        {
            inFlight = new int[Integer.highestOneBit(window) << 1];
            head = 0;
            tail = 0;
        }

        boolean trySend(final int number)
        {
            message.putLong(0, number);
            final long nowNs = System.nanoTime();
            if (cluster.offer(message, 0, length) <= 0)
            {
                return false;
            }
            sentNs[number] = nowNs;
            lastSendNs = nowNs;
            inFlight[tail++ & (inFlight.length - 1)] = number;
            return true;
        }

        void keepAlive(final long nowNs)
        {
            if (nowNs - lastSendNs > KEEP_ALIVE_INTERVAL_NS && cluster.sendKeepAlive())
            {
                lastSendNs = nowNs;
            }
        }

        @Override
        public void onMessage(
            final long clusterSessionId,
            final long timestamp,
            final DirectBuffer buffer,
            final int offset,
            final int messageLength,
            final Header header)
        {
            final int expected = inFlight[head++ & (inFlight.length - 1)];
            if (messageLength != length || buffer.getLong(offset) != expected || !hasPattern(buffer, offset))
            {
                mismatches++;
                return;
            }
            durationsNs[received++] = System.nanoTime() - sentNs[expected];
        }

        @Override
        public void onSessionEvent(
            final long correlationId,
            final long clusterSessionId,
            final long leadershipTermId,
            final int leaderMemberId,
            final EventCode code,
            final String detail)
        {
            if (EventCode.OK != code)
            {
                // What a listener throws goes to the client's error handler, and no further.
                failure = "session " + clusterSessionId + " got event " + code + ": " + detail;
            }
        }
    }

    private EchoLoad()
    {
        for (int i = 0; i < message.capacity(); i++)
        {
            message.putByte(i, (byte)(i * 31 + 7));
        }
    }

    public static void main(final String[] args) throws IOException
    {
        final EchoLoad load = new EchoLoad();
        System.out.println("READY");
        while (true)
        {
            final String[] words = load.awaitLine().trim().split(" ");
            final int[] numbers = Arrays.stream(words).mapToInt(Integer::parseInt).toArray();
            load.run(numbers[0], numbers[1], numbers[2], numbers[3]);
        }
    }

    private boolean hasPattern(final DirectBuffer buffer, final int offset)
    {
        int i = Long.BYTES;
        for (; i <= length - Long.BYTES; i += Long.BYTES)
        {
            if (buffer.getLong(offset + i) != message.getLong(i))
            {
                return false;
            }
        }
        for (; i < length; i++)
        {
            if (buffer.getByte(offset + i) != message.getByte(i))
            {
                return false;
            }
        }
        return true;
    }

    /** Holds the sessions, and leaves the cores alone, until a command comes. */
    private String awaitLine() throws IOException
    {
        final StringBuilder line = new StringBuilder();
        while (true)
        {
            while (System.in.available() > 0)
            {
                final int c = System.in.read();
                if (c == '\n')
                {
                    return line.toString();
                }
                line.append((char)c);
            }
            poll(System.nanoTime());
            LockSupport.parkNanos(1_000_000);
        }
    }

    private int poll(final long nowNs)
    {
        return poll(sessions, nowNs);
    }

    private int poll(final List<Session> connected, final long nowNs)
    {
        int workCount = 0;
        for (final Session session : connected)
        {
            workCount += session.cluster.pollEgress();
            session.keepAlive(nowNs);
        }
        if (failure != null)
        {
            throw new IllegalStateException(failure);
        }
        return workCount;
    }

    private void open(final int count)
    {
        while (sessions.size() > count)
        {
            sessions.remove(sessions.size() - 1).cluster.close();
        }
        while (sessions.size() < count)
        {
            // Some at once: the rounds through all that are there, here and in the node, serve them together.
            final List<Session> connecting = new ArrayList<>();
            while (connecting.size() < CONNECTS_AT_ONCE && sessions.size() + connecting.size() < count)
            {
                connecting.add(new Session(sessions.size() + connecting.size()));
            }
            final List<Session> together = new ArrayList<>(connecting);
            final List<Session> opened = new ArrayList<>();
            while (!connecting.isEmpty())
            {
                connecting.removeIf((session) -> session.tryConnect() && opened.add(session));
                // The first of them must not time out while the last connects.
                poll(opened, System.nanoTime());
                poll(System.nanoTime());
                LockSupport.parkNanos(20_000);
            }
            sessions.addAll(together);
        }
    }

    private void run(final int sessionCount, final int messages, final int messageLength, final int window)
        throws IOException
    {
        open(sessionCount);
        sessions.forEach((session) -> session.reset(window));
        length = messageLength;
        sentNs = new long[messages];
        durationsNs = new long[messages];
        received = 0;
        mismatches = 0;
        int sent = 0;
        int next = 0;
        System.out.println("OPEN");
        awaitLine();
        final long startNs = System.nanoTime();
        while (received + mismatches < messages)
        {
            int workCount = poll(System.nanoTime());
            while (sent < messages && sent - received - mismatches < window && sessions.get(next).trySend(sent))
            {
                sent++;
                workCount++;
                next = (next + 1) % sessionCount;
            }
            idleStrategy.idle(workCount);
            if (System.nanoTime() - startNs > LIMIT_NS)
            {
                throw new IllegalStateException(
                    received + " of " + messages + " echoes came within " + LIMIT_NS / 1_000_000_000 + " s");
            }
        }
        final long endNs = System.nanoTime();
        System.out.println("DONE");
        print((endNs - startNs) / 1e9);
    }

    private void print(final double seconds)
    {
        final long[] sorted = Arrays.copyOf(durationsNs, received);
        Arrays.sort(sorted);
        final StringBuilder histogram = new StringBuilder();
        int begin = 0;
        while (begin < received)
        {
            final int bucket = (int)Math.floor(Math.log10(Math.max(1, sorted[begin])) * BUCKETS_PER_DECADE);
            final double limitNs = Math.pow(10, (bucket + 1.0) / BUCKETS_PER_DECADE);
            int end = begin + 1;
            while (end < received && sorted[end] < limitNs)
            {
                end++;
            }
            histogram.append(begin > 0 ? ", " : "").append(
                String.format("[%.3f, %d]", Math.pow(10, (double)bucket / BUCKETS_PER_DECADE) / 1e3, end - begin));
            begin = end;
        }
        System.out.printf(
            "{\"per_second\": %.1f, \"p50_us\": %.3f, \"p99_us\": %.3f, \"p999_us\": %.3f, " +
            "\"mismatches\": %d, \"histogram\": [%s]}%n",
            received / seconds, at(sorted, 0.5), at(sorted, 0.99), at(sorted, 0.999), mismatches, histogram);
    }

    private static double at(final long[] sorted, final double quantile)
    {
        return sorted.length == 0 ? -1 : sorted[(int)(sorted.length * quantile)] / 1e3;
    }
}
