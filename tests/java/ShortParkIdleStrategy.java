// An idle strategy whose longest park is 50 us, for agents that take only the name of a class.
package container.tests;

import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.IdleStrategy;

/**
 * Backoff as upstream's default, but with parks of at most 50 us instead of 1 ms: with several agents on few cores the
 * longer parks make round trips jump between two levels.
 */
public final class ShortParkIdleStrategy implements IdleStrategy
{
    private static final long MAX_SPINS = 10;
    private static final long MAX_YIELDS = 20;
    private static final long MIN_PARK_NS = 1_000;
    private static final long MAX_PARK_NS = 50_000;

    private final IdleStrategy backoff = new BackoffIdleStrategy(MAX_SPINS, MAX_YIELDS, MIN_PARK_NS, MAX_PARK_NS);

    @Override
    public void idle(final int workCount)
    {
        backoff.idle(workCount);
    }

    @Override
    public void idle()
    {
        backoff.idle();
    }

    @Override
    public void reset()
    {
        backoff.reset();
    }

    @Override
    public String alias()
    {
        return "short-park";
    }
}
