// Sends every request of an archive's client and prints what comes of it, so that two archives can be compared.
package container.tests;

import io.aeron.Aeron;
import io.aeron.ChannelUri;
import io.aeron.ChannelUriStringBuilder;
import io.aeron.Counter;
import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.client.ReplayParams;
import io.aeron.archive.client.ReplicationParams;
import io.aeron.archive.codecs.AuthConnectRequestEncoder;
import io.aeron.archive.codecs.BooleanType;
import io.aeron.archive.codecs.CloseSessionRequestEncoder;
import io.aeron.archive.codecs.ConnectRequestEncoder;
import io.aeron.archive.codecs.ControlResponseDecoder;
import io.aeron.archive.codecs.ExtendRecordingRequestEncoder;
import io.aeron.archive.codecs.MessageHeaderDecoder;
import io.aeron.archive.codecs.MessageHeaderEncoder;
import io.aeron.archive.codecs.RecordingProgressDecoder;
import io.aeron.archive.codecs.RecordingStartedDecoder;
import io.aeron.archive.codecs.RecordingStoppedDecoder;
import io.aeron.archive.codecs.ReplicateRequestEncoder;
import io.aeron.archive.codecs.SourceLocation;
import io.aeron.archive.codecs.StartRecordingRequestEncoder;
import io.aeron.archive.codecs.TaggedReplicateRequestEncoder;
import io.aeron.archive.status.RecordingPos;
import io.aeron.logbuffer.FragmentHandler;
import io.aeron.logbuffer.LogBufferDescriptor;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongFunction;
import java.util.zip.CRC32;
import org.agrona.ExpandableArrayBuffer;
import org.agrona.MutableDirectBuffer;
import org.agrona.collections.MutableLong;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.CountersReader;

/**
 * Arguments: {@code only=name,…} for some scenarios alone, {@code ports=n,n,n} that are free, and channels:
 * {@code source} of another archive for replications (this one when it is not given), {@code events} of recording
 * events. The rest comes from Aeron's system properties. The archive is new: ids of recordings are printed as they are.
 */
public final class ArchiveRequests
{
    private static final int FIRST_STREAM_ID = 2001;
    private static final int REPLAY_STREAM_ID = 3001;
    private static final int INITIAL_TERM_ID = 7;
    private static final int TERM_LENGTH = 64 * 1024;
    private static final int MESSAGE_LENGTH = 96;
    private static final int FRAME_LENGTH = 128;
    private static final long UNKNOWN = 1_000_000;
    private static final int MAJOR_VERSION_2 = 2 << 16;

    private final Map<String, String> arguments;
    private final List<String> output = new ArrayList<>();
    private final MutableDirectBuffer buffer = new ExpandableArrayBuffer();
    private final MessageHeaderEncoder headerEncoder = new MessageHeaderEncoder();
    private final String[] ports;
    private final Aeron aeron;
    private final ArchiveSession session;
    private final Map<String, Long> subscriptions = new LinkedHashMap<>();
    private int streamCount;

    private ArchiveRequests(final Map<String, String> arguments, final Aeron aeron)
    {
        this.arguments = arguments;
        this.aeron = aeron;
        this.ports = arguments.getOrDefault("ports", "").split(",");
        this.session = new ArchiveSession(context(aeron), output);
        for (int i = 0; i < ports.length; i++)
        {
            session.replace(":" + ports[i], ":P" + (i + 1));
        }
    }

    /**
     * Runs the scenarios.
     *
     * @param args name=value.
     */
    public static void main(final String[] args)
    {
        final Map<String, String> arguments = new LinkedHashMap<>();
        for (final String argument : args)
        {
            final String[] parts = argument.split("=", 2);
            arguments.put(parts[0], parts[1]);
        }
        try (Aeron aeron = Aeron.connect())
        {
            final ArchiveRequests requests = new ArchiveRequests(arguments, aeron);
            try (requests.session)
            {
                requests.run();
            }
        }
    }

    private static AeronArchive.Context context(final Aeron aeron)
    {
        return new AeronArchive.Context().aeron(aeron).ownsAeronClient(false).clientName("requests");
    }

    private void run()
    {
        final Map<String, Runnable> scenarios = new LinkedHashMap<>();
        scenarios.put("sessions", this::sessions);
        scenarios.put("counters", this::counters);
        scenarios.put("start and stop", this::startAndStop);
        scenarios.put("old requests", this::oldRequests);
        scenarios.put("auto stop", this::autoStop);
        scenarios.put("udp", this::udp);
        scenarios.put("extend", this::extend);
        scenarios.put("lists", this::lists);
        scenarios.put("replay", this::replay);
        scenarios.put("live replay", this::liveReplay);
        scenarios.put("bounded replay", this::boundedReplay);
        scenarios.put("replay token", this::replayToken);
        scenarios.put("truncate", this::truncate);
        scenarios.put("segments", this::segments);
        scenarios.put("migrate", this::migrate);
        scenarios.put("purge", this::purge);
        scenarios.put("update channel", this::updateChannel);
        scenarios.put("replicate", this::replicate);
        scenarios.put("replicate and merge", this::replicateAndMerge);
        scenarios.put("replicate refused", this::replicateRefused);
        scenarios.put("events", this::events);
        scenarios.put("differences", this::differences);
        final String all = String.join(",", scenarios.keySet());
        final List<String> only = List.of(arguments.getOrDefault("only", all).split(","));
        for (final Map.Entry<String, Runnable> scenario : scenarios.entrySet())
        {
            if (only.contains(scenario.getKey()))
            {
                session.print("== " + scenario.getKey());
                scenario.getValue().run();
                session.settle();
                output.forEach(System.out::println);
                output.clear();
            }
        }
        System.out.println("== end");
    }

    // Scenarios

    private void sessions()
    {
        session.print("archive id " + session.archive().archiveId());
        session.ask("keepAlive", 0, (proxy, id, control) -> proxy.keepAlive(control, id));
        session.ask("archiveId", 1, (proxy, id, control) -> proxy.archiveId(id, control));
        session.ask("archiveId in another session", 0, (proxy, id, control) -> proxy.archiveId(id, control + UNKNOWN));
        session.ask("a foreign schema", 0, (proxy, id, control) -> offerHeader(proxy.publication(), 999, 3));
        session.ask("an unknown template", 0, (proxy, id, control) -> offerHeader(
            proxy.publication(), MessageHeaderEncoder.SCHEMA_ID, 250));
        session.ask("archiveId", 1, (proxy, id, control) -> proxy.archiveId(id, control));
        try (AeronArchive second = AeronArchive.connect(context(aeron)))
        {
            session.print("another session: " + (second.controlSessionId() != session.archive().controlSessionId()));
            session.print("the same archive: " + (second.archiveId() == session.archive().archiveId()));
        }
        rawConnect("connect without credentials", 501, this::connectRequest);
        rawConnect("connect with major version 2", 502, this::authConnectRequest);
    }

    private void counters()
    {
        final CountersReader counters = aeron.countersReader();
        counters.forEach(
            (counterId, typeId, keyBuffer, label) ->
            {
                if (typeId > 100 && typeId < 113 && keyBuffer.getLong(0) == session.archive().archiveId())
                {
                    final boolean isCount = 101 == typeId || 102 == typeId || 111 == typeId || 112 == typeId;
                    final String text = label.replaceAll("version=.* commit=\\S+", "version=*");
                    session.print("counter " + typeId + " " + text +
                        (isCount ? ": " + counters.getCounterValue(counterId) : ""));
                }
            });
    }

    private void startAndStop()
    {
        final int streamId = nextStreamId();
        final String channel = "aeron:ipc?alias=first";
        startRecording(channel, streamId, SourceLocation.LOCAL, false, "sub1", 1);
        startRecording(channel, streamId, SourceLocation.LOCAL, false, "none", 1);
        startRecording("aeron:ipc?alias=second", streamId, SourceLocation.LOCAL, false, "none", 1);
        startRecording("aeron:ipc?session-id=77", streamId, SourceLocation.LOCAL, false, "sub2", 1);
        startRecording("aeron:ipc?term-length=1", streamId, SourceLocation.LOCAL, false, "none", 1);
        final long recordingId;
        try (ExclusivePublication publication = publish(streamId, 101, 0))
        {
            session.expect("a publication", 1);
            recordingId = session.lastRecordingId();
            publish(publication, recordingId, 10, MESSAGE_LENGTH);
            positions(recordingId);
            positionCounter(recordingId);
            describe(recordingId);
            stopRecording("sub1", 2);
        }
        positions(recordingId);
        describe(recordingId);
        positions(UNKNOWN);
        describe(UNKNOWN);
        stopRecording("sub1", 1);
        stopRecording("sub2", 1);
        session.ask("stopRecording(unknown)", 1,
            (proxy, id, control) -> proxy.stopRecording(UNKNOWN, id, control));
        startRecording(channel, streamId, SourceLocation.LOCAL, false, "sub3", 1);
        session.ask("stopRecording(channel)", 1,
            (proxy, id, control) -> proxy.stopRecording(channel, streamId, id, control));
        session.ask("stopRecording(channel) again", 1,
            (proxy, id, control) -> proxy.stopRecording(channel, streamId, id, control));
        startRecording(channel, streamId, SourceLocation.LOCAL, false, "sub4", 1);
        try (ExclusivePublication publication = publish(streamId, 102, 0))
        {
            session.expect("a publication", 1);
            final long second = session.lastRecordingId();
            publish(publication, second, 1, MESSAGE_LENGTH);
            stopByIdentity(second, 2);
            stopByIdentity(second, 1);
        }
        stopByIdentity(UNKNOWN, 1);
    }

    private void oldRequests()
    {
        final int streamId = nextStreamId();
        session.ask("startRecording of old", "old1", 1, (proxy, id, control) -> offer(
            proxy.publication(),
            new StartRecordingRequestEncoder().wrapAndApplyHeader(buffer, 0, headerEncoder)
                .controlSessionId(control).correlationId(id).streamId(streamId)
                .sourceLocation(SourceLocation.LOCAL).channel("aeron:ipc").encodedLength()));
        final long recordingId;
        try (ExclusivePublication publication = publish(streamId, 121, 0))
        {
            session.expect("a publication", 1);
            recordingId = session.lastRecordingId();
            publish(publication, recordingId, 3, MESSAGE_LENGTH);
            session.ask("stopRecording(channel)", 2,
                (proxy, id, control) -> proxy.stopRecording("aeron:ipc", streamId, id, control));
        }
        session.ask("extendRecording of old", "old2", 1, (proxy, id, control) -> offer(
            proxy.publication(),
            new ExtendRecordingRequestEncoder().wrapAndApplyHeader(buffer, 0, headerEncoder)
                .controlSessionId(control).correlationId(id).recordingId(recordingId).streamId(streamId)
                .sourceLocation(SourceLocation.LOCAL).channel("aeron:ipc").encodedLength()));
        try (ExclusivePublication publication = publish(streamId, 122, 3 * FRAME_LENGTH))
        {
            session.expect("a publication at the end", 1);
            publish(publication, recordingId, 3, MESSAGE_LENGTH);
        }
        session.expect("its end", 1);
        session.ask("stopRecording(channel)", 1,
            (proxy, id, control) -> proxy.stopRecording("aeron:ipc", streamId, id, control));
        describe(recordingId);
    }

    private void autoStop()
    {
        final int streamId = nextStreamId();
        startRecording("aeron:ipc", streamId, SourceLocation.LOCAL, true, "auto", 1);
        try (ExclusivePublication publication = publish(streamId, 131, 0))
        {
            session.expect("a publication", 1);
            publish(publication, session.lastRecordingId(), 5, MESSAGE_LENGTH);
        }
        session.expect("its end", 1);
        describe(session.lastRecordingId());
        stopRecording("auto", 1);
        startRecording("aeron:ipc", streamId, SourceLocation.LOCAL, false, "manual", 1);
        for (int sessionId = 132; sessionId < 134; sessionId++)
        {
            try (ExclusivePublication publication = publish(streamId, sessionId, 0))
            {
                session.expect("a publication", 1);
                publish(publication, session.lastRecordingId(), 2, MESSAGE_LENGTH);
            }
            session.expect("its end", 1);
        }
        stopRecording("manual", 1);
        try (ExclusivePublication publication = publish(streamId, 134, 10 * FRAME_LENGTH))
        {
            startRecording("aeron:ipc?session-id=134", streamId, SourceLocation.LOCAL, true, "joined", 2);
            final long recordingId = session.lastRecordingId();
            publish(publication, recordingId, 2, MESSAGE_LENGTH);
            publication.revoke();
            session.expect("a revoked publication", 1);
            describe(recordingId);
        }
    }

    private void udp()
    {
        final int streamId = nextStreamId();
        final String endpoint = "aeron:udp?endpoint=127.0.0.1:" + ports[0];
        startRecording(endpoint + "|ssc=true|alias=spied|mtu=1408", streamId, SourceLocation.LOCAL, true, "spy", 1);
        startRecording(endpoint + "|alias=other", streamId, SourceLocation.LOCAL, true, "none", 1);
        try (ExclusivePublication publication = aeron.addExclusivePublication(
            channel(endpoint + "|ssc=true", 141, 0), streamId))
        {
            session.expect("a publication that is spied on", 1);
            publish(publication, session.lastRecordingId(), 20, 1_000);
        }
        session.expect("its end", 1);
        describe(session.lastRecordingId());
        // Another port: the first publication lingers.
        final String remote = "aeron:udp?endpoint=127.0.0.1:" + ports[3];
        startRecording(remote + "|rcv-wnd=64k|so-rcvbuf=128k", streamId, SourceLocation.REMOTE, true, "remote", 1);
        try (ExclusivePublication publication = aeron.addExclusivePublication(channel(remote, 142, 0), streamId))
        {
            session.expect("a publication over the network", 1);
            publish(publication, session.lastRecordingId(), 20, 1_000);
            positionCounter(session.lastRecordingId());
        }
        session.expect("its end", 1);
        describe(session.lastRecordingId());
        replayAll(session.lastRecordingId());
    }

    private void extend()
    {
        final int streamId = nextStreamId();
        final long recordingId = record(streamId, 151, 10, MESSAGE_LENGTH);
        final long end = 10 * FRAME_LENGTH;
        extendRecording(UNKNOWN, "aeron:ipc", streamId, true, "none", 1);
        extendRecording(recordingId, "aeron:ipc", streamId + 500, true, "none", 1);
        extendRecording(recordingId, "aeron:ipc?alias=extended", streamId, true, "extension", 1);
        try (ExclusivePublication publication = publish(streamId, 152, end))
        {
            session.expect("a publication at the end", 1);
            extendRecording(recordingId, "aeron:ipc?session-id=5", streamId, true, "none", 1);
            publish(publication, recordingId, 10, MESSAGE_LENGTH);
        }
        session.expect("its end", 1);
        describe(recordingId);
        extendRecording(recordingId, "aeron:ipc", streamId, true, "wrong", 1);
        try (ExclusivePublication publication = publish(streamId, 153, end))
        {
            session.expect("a publication that joins elsewhere", 1);
            stopRecording("wrong", 1);
            session.print("its position " + publication.position());
        }
        final String other = new ChannelUriStringBuilder().media("ipc").mtu(1408).sessionId(154)
            .initialPosition(2 * end, INITIAL_TERM_ID, 2 * TERM_LENGTH).build();
        extendRecording(recordingId, "aeron:ipc", streamId, true, "other", 1);
        try (ExclusivePublication publication = aeron.addExclusivePublication(other, streamId))
        {
            session.expect("a publication with longer terms", 1);
            session.print("its position " + publication.position());
        }
        describe(recordingId);
        replayAll(recordingId);
    }

    private void lists()
    {
        final int streamId = nextStreamId();
        final long first = record(streamId, 161, 1, MESSAGE_LENGTH);
        final long second = record(streamId, 162, 2, MESSAGE_LENGTH);
        final long third = record(nextStreamId(), 162, 3, MESSAGE_LENGTH);
        session.ask("listRecordings(first, 3)", 3,
            (proxy, id, control) -> proxy.listRecordings(first, 3, id, control));
        session.ask("listRecordings(second, 5)", 3,
            (proxy, id, control) -> proxy.listRecordings(second, 5, id, control));
        session.ask("listRecordings(unknown, 1)", 1,
            (proxy, id, control) -> proxy.listRecordings(UNKNOWN, 1, id, control));
        session.ask("listRecordings(-5, 1)", 1,
            (proxy, id, control) -> proxy.listRecordings(-5, 1, id, control));
        session.ask("listRecordingsForUri(first, 5, ipc)", 3,
            (proxy, id, control) -> proxy.listRecordingsForUri(first, 5, "ipc", streamId, id, control));
        session.ask("listRecordingsForUri(first, 5, udp)", 1,
            (proxy, id, control) -> proxy.listRecordingsForUri(first, 5, "udp", streamId, id, control));
        session.ask("listRecordingsForUri(first, 1, empty)", 1,
            (proxy, id, control) -> proxy.listRecordingsForUri(first, 1, "", streamId, id, control));
        findLast(first, "ipc", streamId, 161);
        findLast(first, "ipc", streamId, 162);
        findLast(first, "", streamId, 162);
        findLast(third, "ipc", streamId, 162);
        findLast(first, "udp", streamId, 162);
        findLast(-1, "ipc", streamId, 162);
        startRecording("aeron:ipc?alias=a", streamId, SourceLocation.LOCAL, false, "a", 1);
        startRecording("aeron:ipc?alias=b|session-id=1", streamId, SourceLocation.LOCAL, false, "b", 1);
        startRecording("aeron:ipc?alias=c", streamId + 500, SourceLocation.LOCAL, false, "c", 1);
        session.askUnordered("listRecordingSubscriptions(0, 5, alias)", 4,
            (proxy, id, control) -> proxy.listRecordingSubscriptions(0, 5, "alias", 0, false, id, control));
        session.askUnordered("listRecordingSubscriptions(0, 2, alias, stream)", 2,
            (proxy, id, control) -> proxy.listRecordingSubscriptions(0, 2, "alias", streamId, true, id, control));
        session.askUnordered("listRecordingSubscriptions(0, 5, alias=c)", 2,
            (proxy, id, control) -> proxy.listRecordingSubscriptions(0, 5, "alias=c", 0, false, id, control));
        session.askUnordered("listRecordingSubscriptions(0, 5, none)", 1,
            (proxy, id, control) -> proxy.listRecordingSubscriptions(0, 5, "none", 0, false, id, control));
        session.ask("listRecordingSubscriptions(-1, 1, alias)", 1,
            (proxy, id, control) -> proxy.listRecordingSubscriptions(-1, 1, "alias", 0, false, id, control));
        stopRecording("a", 1);
        stopRecording("b", 1);
        stopRecording("c", 1);
    }

    private void replay()
    {
        final int streamId = nextStreamId();
        final int count = 2_000;
        final long recordingId = record(streamId, 171, count, MESSAGE_LENGTH);
        final long end = session.lastRelevantId();
        session.print("its end " + end);
        replayAll(recordingId);
        replay("from the start", recordingId, AeronArchive.NULL_POSITION, 10 * FRAME_LENGTH, "");
        replay("of a part", recordingId, 5 * FRAME_LENGTH, 3 * FRAME_LENGTH, "");
        replay("that ends within a frame", recordingId, 5 * FRAME_LENGTH, 3 * FRAME_LENGTH + 32, "");
        replay("that is longer than the recording", recordingId, end - FRAME_LENGTH, Long.MAX_VALUE, "");
        replay("over the end of a term", recordingId, TERM_LENGTH - 8 * FRAME_LENGTH, 16 * FRAME_LENGTH, "");
        replay("with a session id", recordingId, 0, 4 * FRAME_LENGTH, "|session-id=-99|linger=0|eos=false");
        replay("to the end and stop", recordingId, end - FRAME_LENGTH, AeronArchive.REPLAY_ALL_AND_STOP, "");
        refused("of an unknown recording", UNKNOWN, 0, 1);
        refused("that is unaligned", recordingId, 1, 1);
        refused("at the end", recordingId, end, 1);
        refused("behind the end", recordingId, end + FRAME_LENGTH, 1);
        refused("before the start", recordingId, -64, 1);
        refused("within a frame", recordingId, 32, 1);
        refused("of a negative length", recordingId, 0, -3);
        session.ask("replay in small pieces", 1, (proxy, id, control) -> proxy.replay(
            recordingId, "aeron:ipc", REPLAY_STREAM_ID, new ReplayParams().fileIoMaxLength(1024), id, control));
        session.ask("replay nobody reads", "replay", 2, (proxy, id, control) -> proxy.replay(
            recordingId, 0, 1, "aeron:ipc", REPLAY_STREAM_ID, id, control));
        session.ask("stopReplay(unknown)", 1, (proxy, id, control) -> proxy.stopReplay(UNKNOWN, id, control));
        session.ask("stopAllReplays(unknown)", 1, (proxy, id, control) -> proxy.stopAllReplays(UNKNOWN, id, control));
        session.ask("stopAllReplays(-1)", 1,
            (proxy, id, control) -> proxy.stopAllReplays(Aeron.NULL_VALUE, id, control));
        stopped("stopReplay", recordingId, replayId -> (proxy, id, control) -> proxy.stopReplay(replayId, id, control));
        stopped("stopAllReplays", recordingId,
            replayId -> (proxy, id, control) -> proxy.stopAllReplays(recordingId, id, control));
    }

    private void liveReplay()
    {
        final int streamId = nextStreamId();
        startRecording("aeron:ipc", streamId, SourceLocation.LOCAL, true, "live", 1);
        try (ExclusivePublication publication = publish(streamId, 181, 0))
        {
            session.expect("a publication", 1);
            final long recordingId = session.lastRecordingId();
            publish(publication, recordingId, 10, MESSAGE_LENGTH);
            refused("behind a live end", recordingId, 20 * FRAME_LENGTH, 1);
            session.ask("replay a live recording", "replay", 1, (proxy, id, control) -> proxy.replay(
                recordingId, 0, Long.MAX_VALUE, "aeron:ipc", REPLAY_STREAM_ID, id, control));
            try (Reader reader = new Reader("aeron:ipc"))
            {
                reader.readTo(10 * FRAME_LENGTH);
                publish(publication, recordingId, 1_000, MESSAGE_LENGTH);
                reader.readTo(publication.position());
                session.ask("replay from the live end", "replay", 1, (proxy, id, control) -> proxy.replay(
                    recordingId, publication.position(), Long.MAX_VALUE, "aeron:ipc", REPLAY_STREAM_ID, id, control));
                try (Reader second = new Reader("aeron:ipc"))
                {
                    session.ask("truncate under a replay", 1,
                        (proxy, id, control) -> proxy.truncateRecording(recordingId, 0, id, control));
                    publish(publication, recordingId, 5, MESSAGE_LENGTH);
                    stopRecording("live", 2);
                    second.readToEnd();
                }
                reader.readToEnd();
            }
        }
    }

    private void boundedReplay()
    {
        final int streamId = nextStreamId();
        final long recordingId = record(streamId, 191, 20, MESSAGE_LENGTH);
        session.ask("boundedReplay by no counter", 1, (proxy, id, control) -> proxy.boundedReplay(
            recordingId, 0, Long.MAX_VALUE, 1_000, "aeron:ipc", REPLAY_STREAM_ID, id, control));
        final Counter limit = aeron.addCounter(5_001, "limit");
        try
        {
            limit.set(5 * FRAME_LENGTH);
            session.ask("boundedReplay", "replay", 1, (proxy, id, control) -> proxy.boundedReplay(
                recordingId, 0, 20 * FRAME_LENGTH, limit.id(), "aeron:ipc", REPLAY_STREAM_ID, id, control));
            try (Reader reader = new Reader("aeron:ipc"))
            {
                reader.readTo(5 * FRAME_LENGTH);
                limit.set(12 * FRAME_LENGTH);
                reader.readTo(12 * FRAME_LENGTH);
                limit.set(20 * FRAME_LENGTH);
                reader.readToEnd();
            }
            limit.set(3 * FRAME_LENGTH);
            session.ask("boundedReplay behind its limit", 1, (proxy, id, control) -> proxy.boundedReplay(
                recordingId, 4 * FRAME_LENGTH, FRAME_LENGTH, limit.id(), "aeron:ipc", REPLAY_STREAM_ID, id, control));
            session.ask("boundedReplay whose limit goes", "replay", 1, (proxy, id, control) -> proxy.boundedReplay(
                recordingId, 0, 20 * FRAME_LENGTH, limit.id(), "aeron:ipc", REPLAY_STREAM_ID, id, control));
            try (Reader reader = new Reader("aeron:ipc"))
            {
                reader.readTo(3 * FRAME_LENGTH);
                limit.close();
                reader.readToEnd();
            }
        }
        finally
        {
            limit.close();
        }
    }

    private void replayToken()
    {
        final long recordingId = record(nextStreamId(), 201, 1, MESSAGE_LENGTH);
        session.ask("requestReplayToken", "token", 1,
            (proxy, id, control) -> proxy.requestReplayToken(id, control, recordingId));
        session.print("a token: " + (session.lastRelevantId() != Aeron.NULL_VALUE));
    }

    private void truncate()
    {
        final int streamId = nextStreamId();
        final long recordingId = record(streamId, 211, 2_000, MESSAGE_LENGTH);
        final long end = session.lastRelevantId();
        truncate(UNKNOWN, 0, 1);
        truncate(recordingId, 1, 1);
        truncate(recordingId, end + FRAME_LENGTH, 1);
        truncate(recordingId, -32, 1);
        truncate(recordingId, end, 2);
        truncate(recordingId, 1_600 * FRAME_LENGTH, 2);
        positions(recordingId);
        replayAll(recordingId);
        truncate(recordingId, 2 * TERM_LENGTH, 2);
        replayAll(recordingId);
        extendRecording(recordingId, "aeron:ipc", streamId, true, "longer", 1);
        try (ExclusivePublication publication = publish(streamId, 212, 2 * TERM_LENGTH))
        {
            session.expect("a publication at the new end", 1);
            publish(publication, recordingId, 3, 50);
        }
        session.expect("its end", 1);
        replayAll(recordingId);
        truncate(recordingId, 0, 2);
        describe(recordingId);
        session.ask("replay of nothing", 1, (proxy, id, control) -> proxy.replay(
            recordingId, 0, Long.MAX_VALUE, "aeron:ipc", REPLAY_STREAM_ID, id, control));
        extendRecording(recordingId, "aeron:ipc", streamId, true, "anew", 1);
        try (ExclusivePublication publication = publish(streamId, 213, 0))
        {
            session.expect("a publication at the start", 1);
            publish(publication, recordingId, 1, 60);
            truncate(recordingId, 0, 1);
        }
        session.expect("its end", 1);
        replayAll(recordingId);
    }

    private void segments()
    {
        final int streamId = nextStreamId();
        final long recordingId = record(streamId, 221, 3_000, MESSAGE_LENGTH);
        final long end = session.lastRelevantId();
        final int segment = TERM_LENGTH;
        segments("detachSegments", UNKNOWN, segment, 1);
        segments("detachSegments", recordingId, segment + 32, 1);
        segments("detachSegments", recordingId, 0, 1);
        segments("detachSegments", recordingId, 100L * segment, 1);
        segments("detachSegments", recordingId, 2L * segment, 1);
        positions(recordingId);
        refused("of what is detached", recordingId, 0, 1);
        session.ask("attachSegments", 1, (proxy, id, control) -> proxy.attachSegments(recordingId, id, control));
        session.ask("attachSegments again", 1, (proxy, id, control) -> proxy.attachSegments(recordingId, id, control));
        positions(recordingId);
        replayAll(recordingId);
        segments("detachSegments", recordingId, segment, 1);
        session.ask("deleteDetachedSegments", 2,
            (proxy, id, control) -> proxy.deleteDetachedSegments(recordingId, id, control));
        session.ask("deleteDetachedSegments again", 2,
            (proxy, id, control) -> proxy.deleteDetachedSegments(recordingId, id, control));
        session.ask("attachSegments", 1, (proxy, id, control) -> proxy.attachSegments(recordingId, id, control));
        segments("purgeSegments", UNKNOWN, segment, 1);
        segments("purgeSegments", recordingId, segment + 32, 1);
        segments("purgeSegments", recordingId, 3L * segment, 2);
        positions(recordingId);
        replayAll(recordingId);
        session.ask("replay under a purge", "replay", 1, (proxy, id, control) -> proxy.replay(
            recordingId, 3L * segment, AeronArchive.NULL_LENGTH, "aeron:ipc", REPLAY_STREAM_ID, id, control));
        try (Reader reader = new Reader("aeron:ipc"))
        {
            segments("purgeSegments", recordingId, 5L * segment, 1);
            session.ask("purgeRecording", 1, (proxy, id, control) -> proxy.purgeRecording(recordingId, id, control));
            reader.readToEnd();
        }
        session.ask("attachSegments(unknown)", 1, (proxy, id, control) -> proxy.attachSegments(UNKNOWN, id, control));
        session.ask("deleteDetachedSegments(unknown)", 1,
            (proxy, id, control) -> proxy.deleteDetachedSegments(UNKNOWN, id, control));
    }

    private void migrate()
    {
        final int streamId = nextStreamId();
        final long source = record(streamId, 231, 2 * TERM_LENGTH / FRAME_LENGTH, MESSAGE_LENGTH);
        final long middle = session.lastRelevantId();
        startRecording("aeron:ipc", streamId, SourceLocation.LOCAL, true, "continued", 1);
        final long destination;
        try (ExclusivePublication publication = publish(streamId, 232, middle))
        {
            session.expect("a publication at the other's end", 1);
            destination = session.lastRecordingId();
            publish(publication, destination, TERM_LENGTH / FRAME_LENGTH + 5, MESSAGE_LENGTH);
        }
        session.expect("its end", 1);
        final long other = record(nextStreamId(), 233, 1, MESSAGE_LENGTH);
        migrate(UNKNOWN, destination, 1);
        migrate(source, UNKNOWN, 1);
        migrate(other, destination, 1);
        migrate(source, destination, 2);
        describe(source);
        describe(destination);
        replayAll(destination);
    }

    private void purge()
    {
        final long recordingId = record(nextStreamId(), 241, 1_500, MESSAGE_LENGTH);
        session.ask("purgeRecording", 2, (proxy, id, control) -> proxy.purgeRecording(recordingId, id, control));
        describe(recordingId);
        positions(recordingId);
        session.ask("purgeRecording again", 1, (proxy, id, control) -> proxy.purgeRecording(recordingId, id, control));
        session.ask("purgeRecording(unknown)", 1, (proxy, id, control) -> proxy.purgeRecording(UNKNOWN, id, control));
        final int streamId = nextStreamId();
        startRecording("aeron:ipc", streamId, SourceLocation.LOCAL, true, "active", 1);
        try (ExclusivePublication publication = publish(streamId, 242, 0))
        {
            session.expect("a publication", 1);
            session.print("connected " + publication.isConnected());
            final long active = session.lastRecordingId();
            session.ask("purgeRecording(active)", 1,
                (proxy, id, control) -> proxy.purgeRecording(active, id, control));
            stopRecording("active", 2);
            session.ask("purgeRecording of an empty one", 2,
                (proxy, id, control) -> proxy.purgeRecording(active, id, control));
        }
    }

    private void updateChannel()
    {
        final long recordingId = record(nextStreamId(), 251, 1, MESSAGE_LENGTH);
        updateChannel(recordingId, "aeron:udp?endpoint=localhost:8010|alias=a-much-longer-name-than-before|mtu=8k");
        describe(recordingId);
        updateChannel(recordingId, "aeron:ipc");
        describe(recordingId);
        updateChannel(UNKNOWN, "aeron:ipc");
        final long next = record(nextStreamId(), 252, 1, MESSAGE_LENGTH);
        describe(next);
        replayAll(recordingId);
    }

    private void replicate()
    {
        try (Source source = new Source())
        {
            final int streamId = nextStreamId();
            final long original = source.record(streamId, 261, 1_000);
            replicate("new", source, original, new ReplicationParams(), 7);
            final long copy = session.lastRecordingId();
            describe(copy);
            replayAll(copy);
            replicate("in sync", source, original, new ReplicationParams().dstRecordingId(copy), 3);
            source.extend(original, streamId, 262, 10);
            replicate("continue", source, original, new ReplicationParams().dstRecordingId(copy), 6);
            describe(copy);
            replayAll(copy);
            final long part = 100 * FRAME_LENGTH;
            replicate("up to a position", source, original, new ReplicationParams().stopPosition(part), 6);
            positions(session.lastRecordingId());
            replicate("with tags", source, original,
                new ReplicationParams().channelTagId(901).subscriptionTagId(902), 7);
            replicate("with a session id", source, original, new ReplicationParams().replicationSessionId(-5), 7);
            describe(session.lastRecordingId());
            session.ask("replicate of old", "replication", 7, (proxy, id, control) -> offer(
                proxy.publication(),
                new ReplicateRequestEncoder().wrapAndApplyHeader(buffer, 0, headerEncoder)
                    .controlSessionId(control).correlationId(id).srcRecordingId(original)
                    .dstRecordingId(Aeron.NULL_VALUE).srcControlStreamId(source.controlStreamId())
                    .srcControlChannel(source.controlChannel()).liveDestination("").encodedLength()));
            session.ask("taggedReplicate of old", "replication", 7, (proxy, id, control) -> offer(
                proxy.publication(),
                new TaggedReplicateRequestEncoder().wrapAndApplyHeader(buffer, 0, headerEncoder)
                    .controlSessionId(control).correlationId(id).srcRecordingId(original)
                    .dstRecordingId(Aeron.NULL_VALUE).channelTagId(903).subscriptionTagId(904)
                    .srcControlStreamId(source.controlStreamId()).srcControlChannel(source.controlChannel())
                    .liveDestination("").encodedLength()));
            final long empty = source.record(nextStreamId(), 263, 0);
            replicate("empty", source, empty, new ReplicationParams(), 4);
            final long emptyCopy = session.lastRecordingId();
            describe(emptyCopy);
            replicate("into an empty one", source, original, new ReplicationParams().dstRecordingId(emptyCopy), 6);
            describe(emptyCopy);
            try (Recorded live = source.start("aeron:ipc", nextStreamId(), 264))
            {
                live.publish(10);
                replicate("a live one", source, live.recordingId, new ReplicationParams(), 4);
                final long liveCopy = session.lastRecordingId();
                final long replicationId = session.lastRelevantId();
                session.print("recorded " + awaitRecorded(liveCopy, 10 * FRAME_LENGTH));
                live.publish(10);
                session.print("recorded " + awaitRecorded(liveCopy, 20 * FRAME_LENGTH));
                replicate("into an active one", source, original, new ReplicationParams().dstRecordingId(liveCopy), 1);
                session.ask("stopReplication", 3,
                    (proxy, id, control) -> proxy.stopReplication(replicationId, id, control));
                session.ask("stopReplication again", 1,
                    (proxy, id, control) -> proxy.stopReplication(replicationId, id, control));
                positions(liveCopy);
            }
        }
        session.ask("stopReplication(unknown)", 1, (proxy, id, control) -> proxy.stopReplication(UNKNOWN, id, control));
    }

    private void replicateAndMerge()
    {
        final String live = "aeron:udp?control-mode=dynamic|control=127.0.0.1:" + ports[1];
        try (Source source = new Source();
            Recorded recorded = source.start(live, nextStreamId(), 271))
        {
            recorded.publish(10);
            replicate("and merge", source, recorded.recordingId, new ReplicationParams().liveDestination(live), 4);
            final long copy = session.lastRecordingId();
            session.expect("when it has caught up", 2);
            recorded.publish(10);
            session.print("recorded " + awaitRecorded(copy, 20 * FRAME_LENGTH));
            stopByIdentity(copy, 2);
            positions(copy);
        }
    }

    private void replicateRefused()
    {
        try (Source source = new Source())
        {
            final long original = source.record(nextStreamId(), 281, 10);
            replicate("unknown", source, UNKNOWN, new ReplicationParams(), 3);
            replicate("into an unknown one", source, original, new ReplicationParams().dstRecordingId(UNKNOWN), 1);
            session.ask("replicate from nobody", "replication", 3, (proxy, id, control) -> proxy.replicate(
                original, 10, "aeron:udp?endpoint=127.0.0.1:" + ports[2], new ReplicationParams(), id, control));
            session.ask("replicate from nonsense", "replication", 3, (proxy, id, control) -> proxy.replicate(
                original, 10, "aeron:nonsense", new ReplicationParams(), id, control));
        }
    }

    /** What our archive does differently on purpose: see docs/interoperation.md. */
    private void differences()
    {
        final long recordingId = record(nextStreamId(), 301, 1, MESSAGE_LENGTH);
        session.ask("requestReplayToken(unknown)", "token", 1,
            (proxy, id, control) -> proxy.requestReplayToken(id, control, UNKNOWN));
        try (Source source = new Source())
        {
            final long original = source.record(nextStreamId(), 302, 10);
            replicate("a stopped one with a live destination", source, original,
                new ReplicationParams().liveDestination("aeron:udp?control-mode=dynamic|control=127.0.0.1:" + ports[1]),
                4);
        }
        session.ask("replay with a unit in its linger", "replay", 2, (proxy, id, control) -> proxy.replay(
            recordingId, 0, 1, "aeron:ipc?linger=5s", REPLAY_STREAM_ID, id, control));
    }

    private void events()
    {
        final String channel = arguments.get("events");
        if (null == channel)
        {
            session.print("(no channel of events)");
            return;
        }
        final List<String> seen = new ArrayList<>();
        final MutableLong progress = new MutableLong(-1);
        try (Subscription subscription = aeron.addSubscription(channel, 30))
        {
            session.await(subscription::isConnected);
            final FragmentHandler handler = (message, offset, length, frame) ->
            {
                final MessageHeaderDecoder header = new MessageHeaderDecoder().wrap(message, offset);
                if (RecordingStartedDecoder.TEMPLATE_ID == header.templateId())
                {
                    final RecordingStartedDecoder started =
                        new RecordingStartedDecoder().wrapAndApplyHeader(message, offset, header);
                    seen.add("started " + started.recordingId() + " at " + started.startPosition() +
                        " session=" + started.sessionId() + " stream=" + started.streamId() +
                        " channel=" + started.channel() + " source=" + started.sourceIdentity());
                }
                else if (RecordingProgressDecoder.TEMPLATE_ID == header.templateId())
                {
                    final RecordingProgressDecoder moved =
                        new RecordingProgressDecoder().wrapAndApplyHeader(message, offset, header);
                    progress.set(moved.position());
                }
                else if (RecordingStoppedDecoder.TEMPLATE_ID == header.templateId())
                {
                    final RecordingStoppedDecoder stopped =
                        new RecordingStoppedDecoder().wrapAndApplyHeader(message, offset, header);
                    seen.add("progress to " + progress.get());
                    seen.add("stopped " + stopped.recordingId() + " from " + stopped.startPosition() + " at " +
                        stopped.stopPosition());
                }
            };
            final long recordingId = record(nextStreamId(), 291, 10, MESSAGE_LENGTH);
            session.await(() -> subscription.poll(handler, 1) > 0 && seen.size() >= 3);
            seen.forEach(session::print);
            session.print("of " + recordingId);
        }
    }

    // Parts of scenarios

    private int nextStreamId()
    {
        return FIRST_STREAM_ID + streamCount++;
    }

    private void startRecording(
        final String channel,
        final int streamId,
        final SourceLocation location,
        final boolean isAutoStop,
        final String name,
        final int messageCount)
    {
        final String text = "startRecording(" + channel + ", " + location + ", " + isAutoStop + ")";
        session.ask(text, name, messageCount, (proxy, id, control) -> proxy.startRecording(
            channel, streamId, location, isAutoStop, id, control));
        subscriptions.put(name, session.lastRelevantId());
    }

    private void extendRecording(
        final long recordingId,
        final String channel,
        final int streamId,
        final boolean isAutoStop,
        final String name,
        final int messageCount)
    {
        final String text = "extendRecording(" + recordingId + ", " + channel + ", " + streamId + ")";
        session.ask(text, name, messageCount, (proxy, id, control) -> proxy.extendRecording(
            channel, streamId, SourceLocation.LOCAL, isAutoStop, recordingId, id, control));
        subscriptions.put(name, session.lastRelevantId());
    }

    private void stopRecording(final String name, final int messageCount)
    {
        final long subscriptionId = subscriptions.get(name);
        session.ask("stopRecording(" + name + ")", messageCount,
            (proxy, id, control) -> proxy.stopRecording(subscriptionId, id, control));
    }

    private void stopByIdentity(final long recordingId, final int messageCount)
    {
        session.ask("stopRecordingByIdentity(" + recordingId + ")", messageCount,
            (proxy, id, control) -> proxy.stopRecordingByIdentity(recordingId, id, control));
    }

    private void describe(final long recordingId)
    {
        session.ask("listRecording(" + recordingId + ")", 1,
            (proxy, id, control) -> proxy.listRecording(recordingId, id, control));
    }

    private void positions(final long recordingId)
    {
        session.ask("getStartPosition(" + recordingId + ")", 1,
            (proxy, id, control) -> proxy.getStartPosition(recordingId, id, control));
        session.ask("getRecordingPosition(" + recordingId + ")", 1,
            (proxy, id, control) -> proxy.getRecordingPosition(recordingId, id, control));
        session.ask("getStopPosition(" + recordingId + ")", 1,
            (proxy, id, control) -> proxy.getStopPosition(recordingId, id, control));
        session.ask("getMaxRecordedPosition(" + recordingId + ")", 1,
            (proxy, id, control) -> proxy.getMaxRecordedPosition(recordingId, id, control));
    }

    private void positionCounter(final long recordingId)
    {
        final CountersReader counters = aeron.countersReader();
        final int counterId =
            RecordingPos.findCounterIdByRecording(counters, recordingId, session.archive().archiveId());
        session.print("position counter " + counters.getCounterLabel(counterId) + " of " +
            RecordingPos.getSourceIdentity(counters, counterId));
    }

    private void findLast(final long least, final String fragment, final int streamId, final int sessionId)
    {
        session.ask("findLastMatchingRecording(" + least + ", " + fragment + ", " + sessionId + ")", 1,
            (proxy, id, control) -> proxy.findLastMatchingRecording(least, fragment, streamId, sessionId, id, control));
    }

    private void truncate(final long recordingId, final long position, final int messageCount)
    {
        session.ask("truncateRecording(" + recordingId + ", " + position + ")", messageCount,
            (proxy, id, control) -> proxy.truncateRecording(recordingId, position, id, control));
    }

    private void segments(final String name, final long recordingId, final long position, final int messageCount)
    {
        session.ask(name + "(" + recordingId + ", " + position + ")", messageCount,
            (proxy, id, control) -> "purgeSegments".equals(name) ?
                proxy.purgeSegments(recordingId, position, id, control) :
                proxy.detachSegments(recordingId, position, id, control));
    }

    private void migrate(final long source, final long destination, final int messageCount)
    {
        session.ask("migrateSegments(" + source + ", " + destination + ")", messageCount,
            (proxy, id, control) -> proxy.migrateSegments(source, destination, id, control));
    }

    private void updateChannel(final long recordingId, final String channel)
    {
        session.ask("updateChannel(" + recordingId + ", " + channel + ")", 1,
            (proxy, id, control) -> proxy.updateChannel(recordingId, channel, id, control));
    }

    private void replicate(
        final String text,
        final Source source,
        final long recordingId,
        final ReplicationParams parameters,
        final int messageCount)
    {
        session.ask("replicate " + text, "replication", messageCount, (proxy, id, control) -> proxy.replicate(
            recordingId, source.controlStreamId(), source.controlChannel(), parameters, id, control));
    }

    private void refused(final String text, final long recordingId, final long position, final long length)
    {
        session.ask("replay " + text, 1, (proxy, id, control) -> proxy.replay(
            recordingId, position, length, "aeron:ipc", REPLAY_STREAM_ID, id, control));
    }

    private void replayAll(final long recordingId)
    {
        replay("all", recordingId, AeronArchive.NULL_POSITION, AeronArchive.NULL_LENGTH, "");
    }

    private void replay(
        final String text, final long recordingId, final long position, final long length, final String parameters)
    {
        final String channel = parameters.isEmpty() ? "aeron:ipc" : "aeron:ipc?" + parameters.substring(1);
        session.ask("replay " + text, "replay", 1, (proxy, id, control) -> proxy.replay(
            recordingId, position, length, channel, REPLAY_STREAM_ID, id, control));
        try (Reader reader = new Reader("aeron:ipc"))
        {
            reader.readToEnd();
        }
    }

    private void stopped(final String text, final long recordingId, final LongFunction<ArchiveSession.Request> request)
    {
        session.ask("replay that is stopped", "replay", 1, (proxy, id, control) -> proxy.replay(
            recordingId, 0, Long.MAX_VALUE, "aeron:ipc", REPLAY_STREAM_ID, id, control));
        final long replayId = session.lastRelevantId();
        try (Reader reader = new Reader("aeron:ipc"))
        {
            session.ask(text, 1, request.apply(replayId));
            session.print("  revoked " + session.await(reader.image::isPublicationRevoked));
        }
    }

    private static String channel(final String base, final int sessionId, final long position)
    {
        return new ChannelUriStringBuilder(base).mtu(1408).sessionId(sessionId)
            .initialPosition(position, INITIAL_TERM_ID, TERM_LENGTH).build();
    }

    private ExclusivePublication publish(final int streamId, final int sessionId, final long position)
    {
        return aeron.addExclusivePublication(channel("aeron:ipc", sessionId, position), streamId);
    }

    private void publish(
        final Publication publication, final long recordingId, final int messageCount, final int messageLength)
    {
        offer(publication, messageCount, messageLength);
        if (!awaitRecorded(recordingId, publication.position()))
        {
            session.print("  (not recorded up to " + publication.position() + ")");
        }
    }

    private void offer(final Publication publication, final int messageCount, final int messageLength)
    {
        final UnsafeBuffer message = new UnsafeBuffer(new byte[messageLength]);
        for (int i = 0; i < messageCount; i++)
        {
            message.setMemory(0, messageLength, (byte)i);
            message.putLong(0, publication.position());
            if (!session.await(() -> publication.offer(message) > 0))
            {
                session.print("  (not published)");
            }
        }
    }

    private boolean awaitRecorded(final long recordingId, final long position)
    {
        final CountersReader counters = aeron.countersReader();
        return session.await(
            () ->
            {
                final int counterId =
                    RecordingPos.findCounterIdByRecording(counters, recordingId, session.archive().archiveId());
                return CountersReader.NULL_COUNTER_ID != counterId && counters.getCounterValue(counterId) >= position;
            });
    }

    private long record(final int streamId, final int sessionId, final int messageCount, final int messageLength)
    {
        startRecording("aeron:ipc?session-id=" + sessionId, streamId, SourceLocation.LOCAL, true, "recorder", 1);
        final long recordingId;
        try (ExclusivePublication publication = publish(streamId, sessionId, 0))
        {
            session.expect("a publication", 1);
            recordingId = session.lastRecordingId();
            publish(publication, recordingId, messageCount, messageLength);
        }
        session.expect("its end", 1);
        session.ask("getStopPosition(" + recordingId + ")", 1,
            (proxy, id, control) -> proxy.getStopPosition(recordingId, id, control));
        return recordingId;
    }

    // Requests as bytes

    private boolean offer(final Publication publication, final int encodedLength)
    {
        return session.await(
            () -> publication.offer(buffer, 0, MessageHeaderEncoder.ENCODED_LENGTH + encodedLength) > 0);
    }

    private boolean offerHeader(final Publication publication, final int schemaId, final int templateId)
    {
        headerEncoder.wrap(buffer, 0).blockLength(16).templateId(templateId).schemaId(schemaId).version(1);
        return offer(publication, 16);
    }

    private int connectRequest(final String responseChannel)
    {
        return new ConnectRequestEncoder().wrapAndApplyHeader(buffer, 0, headerEncoder)
            .correlationId(4711).responseStreamId(20).version(AeronArchive.Configuration.PROTOCOL_SEMANTIC_VERSION)
            .responseChannel(responseChannel).encodedLength();
    }

    private int authConnectRequest(final String responseChannel)
    {
        return new AuthConnectRequestEncoder().wrapAndApplyHeader(buffer, 0, headerEncoder)
            .correlationId(4711).responseStreamId(20).version(MAJOR_VERSION_2).responseChannel(responseChannel)
            .putEncodedCredentials(new byte[0], 0, 0).clientInfo("").encodedLength();
    }

    /** Connects without the client's code, prints the first answer, and closes the session or waits for its end. */
    private void rawConnect(final String text, final int sessionId, final Encoder encoder)
    {
        session.print("> " + text);
        final String requestChannel = session.archive().context().controlRequestChannel();
        final String channel = new ChannelUriStringBuilder(requestChannel).sessionId(sessionId).build();
        final String responseChannel = "aeron:ipc?term-length=64k|session-id=" + sessionId;
        final int requestStreamId = session.archive().context().controlRequestStreamId();
        final MutableLong controlSessionId = new MutableLong(Aeron.NULL_VALUE);
        final List<String> answers = new ArrayList<>();
        final FragmentHandler handler = (message, offset, length, frame) ->
        {
            final ControlResponseDecoder response =
                new ControlResponseDecoder().wrapAndApplyHeader(message, offset, new MessageHeaderDecoder());
            controlSessionId.set(response.controlSessionId());
            answers.add("  " + response.code() + " its session: " +
                (response.controlSessionId() == response.relevantId()) + " correlation " + response.correlationId() +
                " version " + response.version());
            answers.add("    text " + response.errorMessage());
        };
        try (Subscription responses = aeron.addSubscription(responseChannel, 20);
            ExclusivePublication requests = aeron.addExclusivePublication(channel, requestStreamId))
        {
            session.await(requests::isConnected);
            offer(requests, encoder.encode(responseChannel));
            session.await(() -> responses.poll(handler, 1) > 0 && !answers.isEmpty());
            answers.forEach(session::print);
            answers.clear();
            session.print("  again " + session.await(() -> responses.poll(handler, 1) > 0));
            if (sessionId == 501)
            {
                offer(requests, new CloseSessionRequestEncoder().wrapAndApplyHeader(buffer, 0, headerEncoder)
                    .controlSessionId(controlSessionId.get()).encodedLength());
            }
            session.print("  ended " + session.await(() -> responses.poll(handler, 1) == 0 && responses.hasNoImages()));
            session.print("  rejected " + (501 != sessionId && session.await(() -> !requests.isConnected())));
        }
    }

    /** Writes a request to {@link #buffer}. */
    @FunctionalInterface
    private interface Encoder
    {
        int encode(String responseChannel);
    }

    /** Reads a replay, whose id is that of the session's last OK, and prints what came. */
    private final class Reader implements AutoCloseable
    {
        final Subscription subscription;
        final Image image;
        private final CRC32 hash = new CRC32();
        private final MutableLong frames = new MutableLong();
        private final MutableLong bytes = new MutableLong();

        Reader(final String channel)
        {
            final int sessionId = (int)session.lastRelevantId();
            subscription = aeron.addSubscription(ChannelUri.addSessionId(channel, sessionId), REPLAY_STREAM_ID);
            final boolean isThere = session.await(() -> null != subscription.imageBySessionId(sessionId));
            image = subscription.imageBySessionId(sessionId);
            if (!isThere)
            {
                throw new IllegalStateException("no image of replay session " + sessionId + ": " + output);
            }
            session.print("  joined at " + image.joinPosition() + " initial-term=" + image.initialTermId() +
                " term=" + image.termBufferLength() + " mtu=" + image.mtuLength());
        }

        void readTo(final long position)
        {
            session.await(() -> read() && image.position() >= position);
            report();
        }

        void readToEnd()
        {
            session.await(() -> read() && (image.isEndOfStream() || image.isClosed()));
            report();
            session.print("  end " + image.isEndOfStream() + " revoked " + image.isPublicationRevoked());
        }

        private boolean read()
        {
            image.poll(
                (message, offset, length, frame) ->
                {
                    final byte[] payload = new byte[length];
                    message.getBytes(offset, payload);
                    hash.update(payload);
                    frames.increment();
                    bytes.addAndGet(length);
                    if (frame.sessionId() != image.sessionId() || frame.streamId() != REPLAY_STREAM_ID)
                    {
                        session.print(
                            "  (a frame of session " + frame.sessionId() + " stream " + frame.streamId() + ")");
                    }
                },
                100);
            return true;
        }

        private void report()
        {
            final int bits = LogBufferDescriptor.positionBitsToShift(image.termBufferLength());
            session.print(
                "  read " + frames + " frames, " + bytes + " bytes, hash " + Long.toHexString(hash.getValue()) +
                ", to " + image.position() + " in term " + (image.position() >> bits));
        }

        @Override
        public void close()
        {
            subscription.close();
        }
    }

    /** A session with the archive that recordings are replicated from. */
    private final class Source implements AutoCloseable
    {
        private final List<String> unread = new ArrayList<>();
        private final ArchiveSession source;

        Source()
        {
            final AeronArchive.Context context = context(aeron);
            if (arguments.containsKey("source"))
            {
                context.controlRequestChannel(arguments.get("source")).controlResponseChannel(
                    "aeron:udp?endpoint=127.0.0.1:0");
            }
            source = new ArchiveSession(context, unread);
        }

        String controlChannel()
        {
            return arguments.getOrDefault("source", session.archive().context().controlRequestChannel());
        }

        int controlStreamId()
        {
            return source.archive().context().controlRequestStreamId();
        }

        Recorded start(final String base, final int streamId, final int sessionId)
        {
            final boolean isIpc = "aeron:ipc".equals(base);
            final String recorded = isIpc ? "aeron:ipc?session-id=" + sessionId : base;
            source.ask("start", 1, (proxy, id, control) -> proxy.startRecording(
                recorded, streamId, SourceLocation.LOCAL, true, id, control));
            final String ssc = isIpc ? base : base + "|ssc=true";
            return recorded(aeron.addExclusivePublication(ArchiveRequests.channel(ssc, sessionId, 0), streamId));
        }

        private Recorded recorded(final ExclusivePublication publication)
        {
            source.expect("a publication", 1);
            return new Recorded(source, publication, source.lastRecordingId());
        }

        long record(final int streamId, final int sessionId, final int messageCount)
        {
            try (Recorded recorded = start("aeron:ipc", streamId, sessionId))
            {
                recorded.publish(messageCount);
                return recorded.recordingId;
            }
        }

        void extend(final long recordingId, final int streamId, final int sessionId, final int messageCount)
        {
            source.ask("extend", 1, (proxy, id, control) -> proxy.extendRecording(
                "aeron:ipc", streamId, SourceLocation.LOCAL, true, recordingId, id, control));
            final long position = source.archive().getStopPosition(recordingId);
            try (Recorded recorded = recorded(publish(streamId, sessionId, position)))
            {
                recorded.publish(messageCount);
            }
        }

        @Override
        public void close()
        {
            source.close();
        }
    }

    /** A publication that the source's archive records. */
    private final class Recorded implements AutoCloseable
    {
        final long recordingId;
        private final ArchiveSession source;
        private final ExclusivePublication publication;

        Recorded(final ArchiveSession source, final ExclusivePublication publication, final long recordingId)
        {
            this.source = source;
            this.publication = publication;
            this.recordingId = recordingId;
        }

        void publish(final int messageCount)
        {
            offer(publication, messageCount, MESSAGE_LENGTH);
            final long position = publication.position();
            session.await(() -> source.archive().getMaxRecordedPosition(recordingId) >= position);
        }

        @Override
        public void close()
        {
            publication.close();
            source.expect("its end", 1);
        }
    }
}
