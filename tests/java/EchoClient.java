// Sends messages of many sizes to an echo service and checks that each comes back byte for byte and in order.
package container.tests;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Arguments, all optional: {@code messages=10000 max-length=102400 seed=1 window=64 limit-s=120}; the connection is set
 * by the system properties of {@code AeronCluster.Context}.
 *
 * <p>Prints one line of JSON and exits with 0 when all came back as sent, else with 1 and a sentence on stderr.
 */
public final class EchoClient
{
    /** Lengths around the limits of one frame (MTU 1408) and of the control stream; then random ones follow. */
    private static final int[] EDGE_LENGTHS = {0, 1, 1343, 1344, 1345, 1375, 1376, 1377, 16_351, 16_352, 16_353};
    private static final long STALL_LIMIT_NS = TimeUnit.SECONDS.toNanos(30);
    private static final long GOLDEN_GAMMA = 0x9E3779B97F4A7C15L;

    private final int messages;
    private final int maxLength;
    private final long seed;
    private final int window;
    private final long limitNs;
    private final UnsafeBuffer outgoing;
    private final UnsafeBuffer expected;
    private int sent;
    private int received;
    private int mismatches;
    private long bytes;
    private long lastEchoNs;

    private EchoClient(final Map<String, String> arguments)
    {
        messages = (int)take(arguments, "messages", 10_000);
        maxLength = (int)take(arguments, "max-length", 100 * 1024);
        seed = take(arguments, "seed", 1);
        window = (int)take(arguments, "window", 64);
        limitNs = TimeUnit.SECONDS.toNanos(take(arguments, "limit-s", 120));
        if (!arguments.isEmpty())
        {
            throw new TestClient.Failure("unknown arguments: " + arguments.keySet());
        }

        outgoing = new UnsafeBuffer(new byte[maxLength + Long.BYTES]);
        expected = new UnsafeBuffer(new byte[maxLength + Long.BYTES]);
    }

    public static void main(final String[] args)
    {
        try
        {
            System.exit(new EchoClient(parse(args)).run() ? 0 : 1);
        }
        catch (final TestClient.Failure ex)
        {
            System.err.println(ex.getMessage());
            System.exit(1);
        }
    }

    private boolean run()
    {
        String failure = null;
        final long startNs = System.nanoTime();
        lastEchoNs = startNs;
        try (TestClient client = TestClient.connect(this::onEcho, limitNs))
        {
            exchange(client, startNs + limitNs);
        }
        catch (final TestClient.Failure ex)
        {
            failure = ex.getMessage();
        }

        final double seconds = (System.nanoTime() - startNs) / 1e9;
        System.out.printf(
            "{\"sent\": %d, \"received\": %d, \"bytes\": %d, \"mismatches\": %d, \"seconds\": %.3f}%n",
            sent, received, bytes, mismatches, seconds);
        if (null != failure)
        {
            System.err.println(failure);
        }

        return null == failure && 0 == mismatches;
    }

    private void exchange(final TestClient client, final long deadlineNs)
    {
        int pendingLength = fill(outgoing, 0);
        while (received < messages)
        {
            int workCount = client.poll();
            if (sent < messages && sent - received < window && client.trySend(outgoing, pendingLength))
            {
                sent++;
                workCount++;
                pendingLength = fill(outgoing, sent);
            }

            client.idle(workCount);
            TestClient.failAfter(deadlineNs, this::progress);
            TestClient.failAfter(lastEchoNs + STALL_LIMIT_NS, () -> "no echo for 30 s; " + progress());
        }
    }

    private String progress()
    {
        return "sent " + sent + " and received " + received + " of " + messages + " messages";
    }

    private void onEcho(final DirectBuffer buffer, final int offset, final int length)
    {
        final int expectedLength = fill(expected, received);
        if (length != expectedLength || !sameBytes(buffer, offset, length))
        {
            mismatches++;
            System.err.println("echo " + received + " has " + length + " bytes and differs from the " + expectedLength +
                " bytes that were sent");
        }

        received++;
        bytes += length;
        lastEchoNs = System.nanoTime();
    }

    private boolean sameBytes(final DirectBuffer buffer, final int offset, final int length)
    {
        for (int i = 0; i < length; i++)
        {
            if (buffer.getByte(offset + i) != expected.getByte(i))
            {
                return false;
            }
        }

        return true;
    }

    /** Writes message number {@code index} and returns its length; both depend on nothing but seed and index. */
    private int fill(final UnsafeBuffer buffer, final int index)
    {
        final long start = mix(seed * GOLDEN_GAMMA + index);
        final int length = index < EDGE_LENGTHS.length ? Math.min(EDGE_LENGTHS[index], maxLength) : randomLength(start);
        for (int offset = 0; offset < length; offset += Long.BYTES)
        {
            buffer.putLong(offset, mix(start + offset));
        }

        return length;
    }

    /** Spread evenly over the orders of magnitude, so that most messages are small and some are of full length. */
    private int randomLength(final long random)
    {
        final double unit = (random >>> 11) * 0x1.0p-53;
        return (int)Math.min(maxLength, Math.round(StrictMath.expm1(unit * StrictMath.log1p(maxLength))));
    }

    private static long mix(final long value)
    {
        long mixed = value * GOLDEN_GAMMA;
        mixed = (mixed ^ (mixed >>> 32)) * 0xD6E8FEB86659FD93L;
        return mixed ^ (mixed >>> 29);
    }

    private static Map<String, String> parse(final String[] args)
    {
        final Map<String, String> arguments = new HashMap<>();
        for (final String arg : args)
        {
            final int equals = arg.indexOf('=');
            if (equals < 0)
            {
                throw new TestClient.Failure("expected name=value, got: " + arg);
            }

            arguments.put(arg.substring(0, equals), arg.substring(equals + 1));
        }

        return arguments;
    }

    private static long take(final Map<String, String> arguments, final String name, final long defaultValue)
    {
        final String value = arguments.remove(name);
        return null == value ? defaultValue : Long.parseLong(value);
    }
}
