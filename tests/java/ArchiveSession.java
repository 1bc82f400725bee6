// A client's session with an archive, message by message: sends requests and prints all that comes back, normalised.
package container.tests;

import io.aeron.Aeron;
import io.aeron.FragmentAssembler;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.client.ArchiveProxy;
import io.aeron.archive.codecs.ControlResponseCode;
import io.aeron.archive.codecs.ControlResponseDecoder;
import io.aeron.archive.codecs.MessageHeaderDecoder;
import io.aeron.archive.codecs.PingDecoder;
import io.aeron.archive.codecs.RecordingDescriptorDecoder;
import io.aeron.archive.codecs.RecordingSignalEventDecoder;
import io.aeron.archive.codecs.RecordingSubscriptionDescriptorDecoder;
import io.aeron.logbuffer.Header;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.IdleStrategy;

/**
 * Prints each request and, indented, every message that follows it, in the order of arrival. Pings are left out. What
 * differs from run to run has a name instead: ids of subscriptions, replays and replications, times, ports.
 */
final class ArchiveSession implements AutoCloseable
{
    /** One request to send. */
    @FunctionalInterface
    interface Request
    {
        boolean send(ArchiveProxy proxy, long correlationId, long controlSessionId);
    }

    /** One message that came; the relevant id counts for an OK, the detail is printed on a line of its own. */
    private record Message(long correlationId, boolean isOk, long relevantId, String text, String detail)
    {
        Message(final long correlationId, final String text)
        {
            this(correlationId, false, 0, text, "");
        }
    }

    private static final long LIMIT_NS = TimeUnit.SECONDS.toNanos(15);

    private static final String INNER = "inner";
    private static final Pattern IDS = Pattern.compile(
        "((?:subscription|correlation|controlSession|replaySession|replication|registration|session|image)" +
        "(?: ?[Ii]d)?[ =:]+)(-?\\d+)");
    private static final Pattern ADDRESS = Pattern.compile("(127\\.0\\.0\\.1|localhost):\\d+");

    private final IdleStrategy idleStrategy = new ShortParkIdleStrategy();
    private final MessageHeaderDecoder header = new MessageHeaderDecoder();
    private final Queue<Message> received = new ArrayDeque<>();
    private final Map<Long, String> names = new HashMap<>();
    private final Map<String, String> texts = new HashMap<>();
    private final FragmentAssembler assembler = new FragmentAssembler(this::onMessage);
    private final AeronArchive archive;
    private final List<String> output;
    private int requestCount;
    private long lastRelevantId = Aeron.NULL_VALUE;
    private long lastRecordingId = Aeron.NULL_VALUE;

    ArchiveSession(final AeronArchive.Context context, final List<String> output)
    {
        this.archive = AeronArchive.connect(context);
        this.output = output;
    }

    AeronArchive archive()
    {
        return archive;
    }

    /** Prints a text in place of another one, such as a name in place of a port. */
    void replace(final String text, final String replacement)
    {
        texts.put(text, replacement);
    }

    /** The recording that the last signal was about. */
    long lastRecordingId()
    {
        return lastRecordingId;
    }

    /** The relevant id of the last OK. */
    long lastRelevantId()
    {
        return lastRelevantId;
    }

    void print(final String line)
    {
        String text = line;
        for (final Map.Entry<String, String> entry : texts.entrySet())
        {
            text = text.replace(entry.getKey(), entry.getValue());
        }
        Collections.addAll(output, ADDRESS.matcher(text).replaceAll("$1:*").split("\n"));
    }

    /** Sends a request and prints what comes, so many messages; the relevant id of an OK is printed as it is. */
    void ask(final String text, final int messageCount, final Request request)
    {
        ask(text, null, messageCount, request);
    }

    /** Sends a request and prints what comes, so many messages; the relevant id of its OK gets a name. */
    void ask(final String text, final String name, final int messageCount, final Request request)
    {
        print("> " + text);
        final long correlationId = archive.context().aeron().nextCorrelationId();
        names.put(correlationId, "#" + ++requestCount);
        if (!request.send(archive.archiveProxy(), correlationId, archive.controlSessionId()))
        {
            print("  (not sent)");
            return;
        }
        receive(correlationId, name, messageCount, false);
    }

    /** As {@link #ask}, for messages whose order is not given: they are printed sorted. */
    void askUnordered(final String text, final int messageCount, final Request request)
    {
        print("> " + text);
        final long correlationId = archive.context().aeron().nextCorrelationId();
        names.put(correlationId, "#" + ++requestCount);
        if (request.send(archive.archiveProxy(), correlationId, archive.controlSessionId()))
        {
            receive(correlationId, null, messageCount, true);
        }
    }

    /** Prints so many messages that come without a new request. */
    void expect(final String text, final int messageCount)
    {
        print("> " + text);
        receive(Aeron.NULL_VALUE, null, messageCount, false);
    }

    /** Prints what has come since, up to the answer to a request made now, which is not printed. */
    void settle()
    {
        final long correlationId = archive.context().aeron().nextCorrelationId();
        archive.archiveProxy().archiveId(correlationId, archive.controlSessionId());
        for (Message message = next(); null != message && message.correlationId != correlationId; message = next())
        {
            print("  late: " + shown(message, Aeron.NULL_VALUE, null));
        }
    }

    private void receive(final long correlationId, final String name, final int messageCount, final boolean isSorted)
    {
        final List<String> lines = new ArrayList<>();
        for (int i = 0; i < messageCount; i++)
        {
            final Message message = next();
            if (null == message)
            {
                lines.add("(" + i + " of " + messageCount + " messages came)");
                break;
            }
            if (message.isOk && message.correlationId == correlationId)
            {
                lastRelevantId = message.relevantId;
                if (null != name)
                {
                    names.put(message.relevantId, name);
                }
            }
            else if (message.isOk)
            {
                // The archive's answer to its own request for a replication: the id of a subscription.
                names.put(message.relevantId, INNER);
            }
            lines.add(shown(message, correlationId, message.correlationId == correlationId ? name : INNER));
        }
        if (isSorted)
        {
            Collections.sort(lines);
        }
        for (final String line : lines)
        {
            print("  " + line);
        }
    }

    private String shown(final Message message, final long correlationId, final String name)
    {
        final String known = names.get(message.relevantId);
        final String relevant = null == name || null == known ? Long.toString(message.relevantId) : known;
        final String of = message.correlationId == correlationId ? "" : " of " + named(message.correlationId);
        final String detail = message.detail.isEmpty() ? "" : "\n    text " + message.detail;
        return message.text + (message.isOk ? " " + relevant : "") + of + detail;
    }

    private String named(final long id)
    {
        final String name = names.get(id);
        return null != name ? name : Aeron.NULL_VALUE == id ? "-1" : "?";
    }

    private Message next()
    {
        await(() -> !received.isEmpty());
        return received.poll();
    }

    /** Polls until a condition holds or {@link #LIMIT_NS} is over; whether it holds. */
    boolean await(final BooleanSupplier condition)
    {
        final long deadlineNs = System.nanoTime() + LIMIT_NS;
        idleStrategy.reset();
        while (!condition.getAsBoolean())
        {
            if (System.nanoTime() - deadlineNs > 0)
            {
                return false;
            }
            idleStrategy.idle(poll());
        }
        return true;
    }

    private int poll()
    {
        return archive.controlResponsePoller().subscription().poll(assembler, 1);
    }

    private void onMessage(final DirectBuffer buffer, final int offset, final int length, final Header frame)
    {
        header.wrap(buffer, offset);
        final Message message = switch (header.templateId())
        {
            case ControlResponseDecoder.TEMPLATE_ID -> response(buffer, offset);
            case RecordingSignalEventDecoder.TEMPLATE_ID -> signal(buffer, offset);
            case RecordingDescriptorDecoder.TEMPLATE_ID -> recording(buffer, offset);
            case RecordingSubscriptionDescriptorDecoder.TEMPLATE_ID -> subscription(buffer, offset);
            case PingDecoder.TEMPLATE_ID -> null;
            default -> new Message(Aeron.NULL_VALUE, "template " + header.templateId());
        };
        if (null != message)
        {
            received.add(message);
        }
    }

    private Message response(final DirectBuffer buffer, final int offset)
    {
        final ControlResponseDecoder decoder = new ControlResponseDecoder().wrapAndApplyHeader(buffer, offset, header);
        if (decoder.controlSessionId() != archive.controlSessionId())
        {
            return new Message(decoder.correlationId(), "response of another session");
        }
        final ControlResponseCode code = decoder.code();
        if (ControlResponseCode.OK == code)
        {
            return new Message(decoder.correlationId(), true, decoder.relevantId(), "OK", "");
        }
        final String text = code + " " + decoder.relevantId();
        return new Message(decoder.correlationId(), false, 0, text, withNames(decoder.errorMessage()));
    }

    /** A text without what differs from run to run: known ids have their names, other ids and directories none. */
    private String withNames(final String text)
    {
        final String shortened = text.replaceAll("Publication\\{.*", "*").replaceAll("/\\S+/([^/ ]+\\.rec)", "$1")
            .replaceAll("(replay in progress.* upperBound=)\\d+", "$1*");
        return IDS.matcher(shortened).replaceAll(match -> match.group(1) + named(Long.parseLong(match.group(2))));
    }

    private Message signal(final DirectBuffer buffer, final int offset)
    {
        final RecordingSignalEventDecoder decoder =
            new RecordingSignalEventDecoder().wrapAndApplyHeader(buffer, offset, header);
        lastRecordingId = decoder.recordingId();
        final String text = decoder.signal() + " recording=" + decoder.recordingId() + " position=" +
            decoder.position() + " subscription=" + named(decoder.subscriptionId());
        return new Message(decoder.correlationId(), text);
    }

    private Message recording(final DirectBuffer buffer, final int offset)
    {
        final RecordingDescriptorDecoder decoder =
            new RecordingDescriptorDecoder().wrapAndApplyHeader(buffer, offset, header);
        final String times = decoder.stopTimestamp() == AeronArchive.NULL_TIMESTAMP ? "active" :
            decoder.stopTimestamp() >= decoder.startTimestamp() ? "stopped" : "stopped before its start";
        final String text = "recording " + decoder.recordingId() + " " + times +
            " start=" + decoder.startPosition() + " stop=" + decoder.stopPosition() +
            " initial-term=" + decoder.initialTermId() + " segment=" + decoder.segmentFileLength() +
            " term=" + decoder.termBufferLength() + " mtu=" + decoder.mtuLength() +
            " session=" + decoder.sessionId() + " stream=" + decoder.streamId();
        final String channels = " stripped=" + decoder.strippedChannel() + " original=" + decoder.originalChannel() +
            " source=" + decoder.sourceIdentity();
        return new Message(decoder.correlationId(), text + channels);
    }

    private Message subscription(final DirectBuffer buffer, final int offset)
    {
        final RecordingSubscriptionDescriptorDecoder decoder =
            new RecordingSubscriptionDescriptorDecoder().wrapAndApplyHeader(buffer, offset, header);
        final String text = "subscription " + named(decoder.subscriptionId()) + " stream=" + decoder.streamId() +
            " channel=" + decoder.strippedChannel();
        return new Message(decoder.correlationId(), text);
    }

    @Override
    public void close()
    {
        archive.close();
    }
}
