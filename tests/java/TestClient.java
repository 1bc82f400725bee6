// What the client programs share: connect, send and poll with limits, keep the session alive, fail with a sentence.
package container.tests;

import io.aeron.Publication;
import io.aeron.cluster.client.AeronCluster;
import io.aeron.cluster.client.EgressListener;
import io.aeron.cluster.codecs.EventCode;
import io.aeron.exceptions.TimeoutException;
import io.aeron.logbuffer.Header;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.IdleStrategy;

/**
 * A connection to a cluster, set up by the system properties of {@link AeronCluster.Context}.
 */
final class TestClient implements AutoCloseable, EgressListener
{
    /** Takes the payload of one egress message. */
    interface MessageHandler
    {
        void onMessage(DirectBuffer buffer, int offset, int length);
    }

    /** Says what did not happen; its message is meant for a person. */
    static final class Failure extends RuntimeException
    {
        private static final long serialVersionUID = 1L;

        Failure(final String message)
        {
            super(message);
        }
    }

    private static final long KEEP_ALIVE_INTERVAL_NS = TimeUnit.SECONDS.toNanos(1);

    private final IdleStrategy idleStrategy = new BackoffIdleStrategy(10, 20, 1_000, 50_000);
    private final MessageHandler handler;
    private final AeronCluster cluster;
    private long lastSendNs;

    private TestClient(final MessageHandler handler, final long connectLimitNs)
    {
        this.handler = handler;
        this.cluster = connect(connectLimitNs);
        this.lastSendNs = System.nanoTime();
    }

    static TestClient connect(final MessageHandler handler, final long connectLimitNs)
    {
        return new TestClient(handler, connectLimitNs);
    }

    private AeronCluster connect(final long limitNs)
    {
        final long deadlineNs = System.nanoTime() + limitNs;
        while (true)
        {
            try
            {
                return AeronCluster.connect(new AeronCluster.Context().egressListener(this));
            }
            catch (final TimeoutException ex)
            {
                if (System.nanoTime() - deadlineNs >= 0)
                {
                    throw new Failure(
                        "not connected after " + TimeUnit.NANOSECONDS.toSeconds(limitNs) + " s: " + ex.getMessage());
                }
            }
        }
    }

    AeronCluster cluster()
    {
        return cluster;
    }

    /** One attempt; true if the message was sent, false to try again after a poll. */
    boolean trySend(final DirectBuffer buffer, final int length)
    {
        final long result = cluster.offer(buffer, 0, length);
        if (result > 0)
        {
            lastSendNs = System.nanoTime();
            return true;
        }

        // NOT_CONNECTED comes between leaders: the client finds the new one while it is polled, or closes itself.
        if (Publication.MAX_POSITION_EXCEEDED == result)
        {
            throw new Failure("ingress is at its maximum position");
        }

        return false;
    }

    void send(final DirectBuffer buffer, final int length, final long limitNs)
    {
        final long deadlineNs = System.nanoTime() + limitNs;
        while (!trySend(buffer, length))
        {
            idle(poll());
            failAfter(deadlineNs, () -> "message of " + length + " bytes not accepted by ingress");
        }
    }

    /** Polls egress, keeps the session alive, and fails when the session is gone. */
    int poll()
    {
        final int workCount = cluster.pollEgress();
        if (cluster.isClosed())
        {
            throw new Failure("session " + cluster.clusterSessionId() + " is closed: no new leader in time");
        }

        final long nowNs = System.nanoTime();
        if (nowNs - lastSendNs >= KEEP_ALIVE_INTERVAL_NS && cluster.sendKeepAlive())
        {
            lastSendNs = nowNs;
        }

        return workCount;
    }

    void idle(final int workCount)
    {
        idleStrategy.idle(workCount);
    }

    static void failAfter(final long deadlineNs, final Supplier<String> what)
    {
        if (System.nanoTime() - deadlineNs >= 0)
        {
            throw new Failure("limit reached: " + what.get());
        }
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
        handler.onMessage(buffer, offset, length);
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
            throw new Failure("session " + clusterSessionId + " got event " + code + ": " + detail);
        }
    }

    @Override
    public void close()
    {
        cluster.close();
    }
}
