// Sends commands to a ledger service, one line each from its arguments or from stdin, and prints the answers.
package container.tests;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

import static java.nio.charset.StandardCharsets.US_ASCII;

/**
 * Commands: {@code put KEY VALUE}, {@code get KEY}, {@code add KEY VALUE}, {@code schedule ID DELAY}, {@code hash},
 * and {@code await KEY VALUE}, which sends GET until the value is there. With arguments each argument is one command;
 * without, commands are read from stdin until its end, and the session is kept alive in between.
 *
 * <p>Prints {@code CONNECTED sessionId leaderMemberId}, then a line {@code OP key value hash} for each command, the
 * hash in 16 hexadecimal digits. Exits with 0, or with 1 and a sentence on stderr when something did not happen in
 * 30 s (system property {@code ledger.limit.s}).
 */
public final class LedgerClient
{
    private static final String END = "";

    private final BlockingQueue<String> commands = new LinkedBlockingQueue<>();
    private final UnsafeBuffer command = new UnsafeBuffer(new byte[Ledger.COMMAND_LENGTH]);
    private final UnsafeBuffer answer = new UnsafeBuffer(new byte[Ledger.ANSWER_LENGTH]);
    private final long limitNs = TimeUnit.SECONDS.toNanos(Long.getLong("ledger.limit.s", 30));
    private boolean isAnswered;

    private LedgerClient()
    {
    }

    public static void main(final String[] args) throws IOException
    {
        final LedgerClient ledger = new LedgerClient();
        if (args.length > 0)
        {
            ledger.readArguments(args);
        }
        else
        {
            final Thread reader = new Thread(ledger::readInput, "stdin");
            reader.setDaemon(true);
            reader.start();
        }

        try
        {
            ledger.run();
        }
        catch (final TestClient.Failure ex)
        {
            System.err.println(ex.getMessage());
            System.exit(1);
        }
    }

    private void readArguments(final String[] args)
    {
        for (final String arg : args)
        {
            commands.add(arg);
        }

        commands.add(END);
    }

    private void readInput()
    {
        try
        {
            final BufferedReader reader = new BufferedReader(new InputStreamReader(System.in, US_ASCII));
            for (String line = reader.readLine(); null != line; line = reader.readLine())
            {
                if (!line.isBlank())
                {
                    commands.add(line);
                }
            }
        }
        catch (final IOException ex)
        {
            System.err.println("stdin failed, taken as its end: " + ex.getMessage());
        }

        commands.add(END);
    }

    private void run()
    {
        try (TestClient client = TestClient.connect(this::onAnswer, limitNs))
        {
            System.out.println(
                "CONNECTED " + client.cluster().clusterSessionId() + " " + client.cluster().leaderMemberId());
            while (true)
            {
                final String line = commands.poll();
                if (null == line)
                {
                    client.idle(client.poll());
                }
                else if (END.equals(line))
                {
                    return;
                }
                else
                {
                    execute(client, line.trim().split("\\s+"));
                }
            }
        }
    }

    private void execute(final TestClient client, final String[] words)
    {
        final long key = words.length > 1 ? Long.parseLong(words[1]) : 0;
        final long value = words.length > 2 ? Long.parseLong(words[2]) : 0;
        if ("await".equals(words[0]))
        {
            await(client, key, value);
        }
        else
        {
            exchange(client, opOf(words[0]), key, value);
        }

        System.out.printf(
            "%s %d %d %016x%n",
            Ledger.opName(answer.getByte(Ledger.OP_OFFSET)),
            Ledger.getLong(answer, Ledger.KEY_OFFSET),
            Ledger.getLong(answer, Ledger.VALUE_OFFSET),
            Ledger.getLong(answer, Ledger.HASH_OFFSET));
    }

    private void await(final TestClient client, final long key, final long value)
    {
        final long deadlineNs = System.nanoTime() + limitNs;
        exchange(client, Ledger.OP_GET, key, 0);
        while (value != Ledger.getLong(answer, Ledger.VALUE_OFFSET))
        {
            TestClient.failAfter(
                deadlineNs,
                () -> "key " + key + " is " + Ledger.getLong(answer, Ledger.VALUE_OFFSET) + ", not " + value);
            exchange(client, Ledger.OP_GET, key, 0);
        }
    }

    private void exchange(final TestClient client, final byte op, final long key, final long value)
    {
        final long deadlineNs = System.nanoTime() + limitNs;
        isAnswered = false;
        client.send(command, Ledger.putCommand(command, op, key, value), limitNs);
        while (!isAnswered)
        {
            client.idle(client.poll());
            TestClient.failAfter(deadlineNs, () -> "no answer to " + Ledger.opName(op) + " " + key + " " + value);
        }
    }

    private void onAnswer(final DirectBuffer buffer, final int offset, final int length)
    {
        if (Ledger.ANSWER_LENGTH != length)
        {
            throw new TestClient.Failure("answer of " + length + " bytes, expected " + Ledger.ANSWER_LENGTH);
        }

        answer.putBytes(0, buffer, offset, length);
        isAnswered = true;
    }

    private static byte opOf(final String word)
    {
        switch (word)
        {
            case "put":
                return Ledger.OP_PUT;
            case "get":
                return Ledger.OP_GET;
            case "add":
                return Ledger.OP_ADD;
            case "schedule":
                return Ledger.OP_SCHEDULE;
            case "hash":
                return Ledger.OP_HASH;
            default:
                throw new TestClient.Failure("unknown command: " + word);
        }
    }
}
