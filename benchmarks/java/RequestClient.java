// Requests over Java's client, as one writes them by hand: numbered, matched with their replies, and sent again to a
// new leader.
package container.benchmarks;

import io.aeron.cluster.client.AeronCluster;
import io.aeron.cluster.client.EgressListener;
import io.aeron.logbuffer.Header;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Does what each line of its standard input says, see {@code benchmarks/_request_peer.py}; set up by the system
 * properties of {@code AeronCluster.Context}. It ends when it is killed, or its input ends.
 */
public final class RequestClient implements EgressListener
{
    private static final long LIMIT_NS = TimeUnit.SECONDS.toNanos(60);
    private static final long KEEP_ALIVE_INTERVAL_NS = TimeUnit.SECONDS.toNanos(1);
    private static final long REST_NS = TimeUnit.MILLISECONDS.toNanos(20);

    private final AeronCluster cluster;
    private final IdleStrategy idleStrategy;
    private final UnsafeBuffer message = new UnsafeBuffer(new byte[32]);
    private final Map<Long, Boolean> inFlight = new LinkedHashMap<>();
    private final ArrayDeque<Long> unsent = new ArrayDeque<>();
    private long nextCorrelationId;
    private long lastSendNs = System.nanoTime();
    private long leaderNs;
    private long resent;
    private long[] endsNs;
    private int ends;

    private RequestClient()
    {
        final AeronCluster.Context context = new AeronCluster.Context()
            .messageTimeoutNs(LIMIT_NS)
            .newLeaderTimeoutNs(LIMIT_NS)
            .egressListener(this);
        cluster = AeronCluster.connect(context);
        idleStrategy = context.idleStrategy();
    }

    public static void main(final String[] args) throws IOException
    {
        final RequestClient client = new RequestClient();
        System.out.println("READY");
        String line;
        while (null != (line = client.awaitLine()))
        {
            final String[] words = line.trim().split(" ");
            final int number = Integer.parseInt(words[1]);
            switch (words[0])
            {
                case "trips" -> client.roundTrips(number);
                case "idle" -> client.hold(number, Long.parseLong(words[2]));
                default -> client.request(number);
            }
        }
        client.cluster.close();
    }

    /** Holds the session, and leaves the cores alone, until a command comes. */
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
            poll();
            LockSupport.parkNanos(REST_NS);
        }
    }

    private int poll()
    {
        final int workCount = cluster.pollEgress();
        final long nowNs = System.nanoTime();
        if (nowNs - lastSendNs >= KEEP_ALIVE_INTERVAL_NS && cluster.sendKeepAlive())
        {
            lastSendNs = nowNs;
        }

        return workCount;
    }

    private boolean trySend(final long correlationId)
    {
        message.putLong(0, correlationId);
        if (cluster.offer(message, 0, message.capacity()) <= 0)
        {
            return false;
        }

        lastSendNs = System.nanoTime();
        return true;
    }

    private void send(final long correlationId)
    {
        inFlight.put(correlationId, Boolean.TRUE);
        while (!trySend(correlationId))
        {
            if (cluster.isClosed())
            {
                throw new IllegalStateException("the session is closed");
            }
            idleStrategy.idle(poll());
        }
    }

    /** To a new leader, what the last one has not answered: as much as it takes now. */
    private int resend()
    {
        int workCount = 0;
        while (!unsent.isEmpty() && (!inFlight.containsKey(unsent.peek()) || trySend(unsent.peek())))
        {
            resent += inFlight.containsKey(unsent.poll()) ? 1 : 0;
            workCount++;
        }

        return workCount;
    }

    private void roundTrips(final int trips)
    {
        endsNs = new long[trips];
        final long[] durationsNs = new long[trips];
        for (int i = 0; i < trips; i++)
        {
            final long startNs = System.nanoTime();
            final int before = ends = 0;
            send(nextCorrelationId++);
            while (before == ends)
            {
                idleStrategy.idle(poll() + resend());
            }
            durationsNs[i] = endsNs[0] - startNs;
        }
        Arrays.sort(durationsNs);
        System.out.printf(
            "{\"p50_us\": %.3f, \"p99_us\": %.3f}%n",
            durationsNs[trips / 2] / 1e3,
            durationsNs[trips * 99 / 100] / 1e3);
    }

    /** An idle session of a polling loop, whose pauses grow to so many microseconds. */
    private void hold(final int seconds, final long maxParkUs)
    {
        final IdleStrategy idle = new BackoffIdleStrategy(10, 20, 1_000, TimeUnit.MICROSECONDS.toNanos(maxParkUs));
        final long endNs = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (System.nanoTime() - endNs < 0)
        {
            idle.idle(poll());
        }
        System.out.println("HELD");
    }

    private void request(final int count)
    {
        endsNs = new long[count];
        ends = 0;
        resent = 0;
        leaderNs = 0;
        for (int i = 0; i < count; i++)
        {
            send(nextCorrelationId++);
        }
        System.out.println("SENT");
        final long deadlineNs = System.nanoTime() + LIMIT_NS;
        while (!inFlight.isEmpty() && !cluster.isClosed() && System.nanoTime() - deadlineNs < 0)
        {
            idleStrategy.idle(poll() + resend());
        }
        final long[] sorted = Arrays.copyOf(endsNs, ends);
        Arrays.sort(sorted);
        System.out.printf(
            "{\"answered\": %d, \"failed\": 0, \"resent\": %d, \"leader_ns\": %d, \"p50_ns\": %d, \"last_ns\": %d}%n",
            ends, resent, leaderNs, ends == 0 ? 0 : sorted[ends / 2], ends == 0 ? 0 : sorted[ends - 1]);
        inFlight.clear();
        unsent.clear();
    }

    @Override
    public void onMessage(
        final long clusterSessionId,
        final long timestamp,
        final DirectBuffer buffer,
        final int offset,
        final int length,
        final Header header)
    {
        if (null != inFlight.remove(buffer.getLong(offset)))
        {
            endsNs[ends++] = System.nanoTime();
        }
    }

    @Override
    public void onNewLeader(
        final long clusterSessionId,
        final long leadershipTermId,
        final int leaderMemberId,
        final String ingressEndpoints)
    {
        leaderNs = System.nanoTime();
        unsent.clear();
        unsent.addAll(inFlight.keySet());
    }
}
