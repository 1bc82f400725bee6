// The sequenced ledger as a clustered service, with a journal; its twin is tests/soak/ledger_service.py.
package container.tests;

import io.aeron.ExclusivePublication;
import io.aeron.FragmentAssembler;
import io.aeron.Image;
import io.aeron.Publication;
import io.aeron.cluster.codecs.CloseReason;
import io.aeron.cluster.service.ClientSession;
import io.aeron.cluster.service.Cluster;
import io.aeron.cluster.service.ClusterTerminationException;
import io.aeron.cluster.service.ClusteredService;
import io.aeron.logbuffer.FragmentHandler;
import io.aeron.logbuffer.Header;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Carries out the commands of clients, each once, and answers with the hash of all that has happened.
 *
 * <p>It journals to {@code journal/<start>.bin} beside the cluster directory. A file {@code fail-on-start} there lets
 * the next start fail, once, and a file {@code terminate} the next TERMINATE end the service. It is service 0; the
 * further services of a member, of which {@code test.service.count} tells, are Python's, and pass its relays on.
 */
public final class SequencedLedgerService implements ClusteredService
{
    private static final byte OP_ADD = 1;
    private static final byte OP_TIMER = 2;
    private static final byte OP_RELAY = 3;
    private static final byte OP_READ = 4;
    private static final byte OP_RAISE = 5;
    private static final byte OP_ARM = 6;
    private static final byte OP_BLOCK = 7;
    private static final byte OP_IDLE = 8;
    private static final byte OP_TERMINATE = 11;
    private static final byte OP_SESSIONS = 12;
    private static final byte OP_GET = 14;

    private static final byte STATUS_OK = 0;
    private static final byte STATUS_DUPLICATE = 1;
    private static final byte STATUS_GAP = 2;
    private static final byte STATUS_STATE = 3;
    private static final byte STATUS_VALUE = 4;
    private static final byte STATUS_INVALID = (byte)255;

    private static final long KIND_START = 0;
    private static final long KIND_MESSAGE = 1;
    private static final long KIND_RELAYED = 2;
    private static final long KIND_TIMER = 3;
    private static final long KIND_SESSION_OPEN = 4;
    private static final long KIND_SESSION_CLOSE = 5;
    private static final long KIND_READ = 6;
    private static final long KIND_SNAPSHOT = 7;
    private static final long KIND_ANOMALY = 8;
    private static final long KIND_ROLE = 9;

    private static final long ARMED_TIMER = 1;
    private static final long ARMED_SESSION_OPEN = 2;
    private static final long ARMED_SESSION_CLOSE = 3;
    private static final long ARMED_SNAPSHOT = 4;
    private static final long ARMED_ROLE_CHANGE = 5;
    private static final long ARMED_BACKGROUND_WORK = 6;
    private static final long ARMED_NEW_TERM = 7;
    private static final long ARMED_TERMINATE = 8;

    private static final long ANOMALY_TIMER_NOT_SCHEDULED = 1;
    private static final long ANOMALY_RELAY_NOT_SENT = 2;
    private static final long ANOMALY_SESSIONS_DIFFER = 3;

    private static final int EGRESS_ATTEMPTS = 3;
    private static final int SNAPSHOT_FRAGMENT_LIMIT = 10;
    private static final long ACCOUNTS_OF_RELAYS = 1024;
    private static final long SERVICE_COUNT = Long.getLong("test.service.count", 1);
    private static final int SERVICE_ID_SHIFT = 56;

    private final SequencedLedger ledger = new SequencedLedger();
    private final Set<Long> armed = new HashSet<>();
    private final UnsafeBuffer answer = new UnsafeBuffer(new byte[SequencedLedger.ANSWER_LENGTH]);
    private final UnsafeBuffer relay = new UnsafeBuffer(new byte[SequencedLedger.RELAY_LENGTH]);
    private final UnsafeBuffer record =
        new UnsafeBuffer(ByteBuffer.allocateDirect(SequencedLedger.JOURNAL_RECORD_LENGTH));
    private final Path memberDir = Path.of(System.getProperty("aeron.cluster.dir")).getParent();
    private final FileChannel journal;
    private Cluster cluster;

    public SequencedLedgerService() throws IOException
    {
        final Path directory = Files.createDirectories(memberDir.resolve("journal"));
        final long startNs = ChronoUnit.NANOS.between(Instant.EPOCH, Instant.now());
        journal = FileChannel.open(
            directory.resolve(startNs + ".bin"), StandardOpenOption.CREATE_NEW, StandardOpenOption.APPEND);
    }

    @Override
    public void onStart(final Cluster cluster, final Image snapshotImage)
    {
        this.cluster = cluster;
        if (isSwitched("fail-on-start"))
        {
            throw new IllegalStateException("armed: on_start");
        }

        if (null != snapshotImage)
        {
            final FragmentHandler assembler = new FragmentAssembler(
                (buffer, offset, length, header) -> ledger.onSnapshotFrame(buffer, offset, length));
            while (!snapshotImage.isEndOfStream() && !snapshotImage.isClosed())
            {
                cluster.idleStrategy().idle(snapshotImage.poll(assembler, SNAPSHOT_FRAGMENT_LIMIT));
            }

            ledger.checkSnapshotEnd();
        }

        write(KIND_START, 0, 0, ledger.chain);
    }

    @Override
    public void onTakeSnapshot(final ExclusivePublication snapshotPublication)
    {
        checkSessions();
        ledger.forEachFrame((frame) -> offer(snapshotPublication, frame));
        write(KIND_SNAPSHOT, 0, 0, ledger.digest());
        throwIfArmed(ARMED_SNAPSHOT);
    }

    private void offer(final ExclusivePublication publication, final UnsafeBuffer frame)
    {
        long result = publication.offer(frame);
        while (result < 0)
        {
            if (Publication.BACK_PRESSURED != result && Publication.ADMIN_ACTION != result)
            {
                throw new IllegalStateException("snapshot frame not written: " + Publication.errorString(result));
            }

            cluster.idleStrategy().idle();
            result = publication.offer(frame);
        }
    }

    @Override
    public void onRoleChange(final Cluster.Role newRole)
    {
        write(KIND_ROLE, newRole.code(), 0, ledger.chain);
        throwIfArmed(ARMED_ROLE_CHANGE);
    }

    @Override
    public void onNewLeadershipTermEvent(
        final long leadershipTermId,
        final long logPosition,
        final long timestamp,
        final long termBaseLogPosition,
        final int leaderMemberId,
        final int logSessionId,
        final TimeUnit timeUnit,
        final int appVersion)
    {
        throwIfArmed(ARMED_NEW_TERM);
    }

    @Override
    public void onTerminate(final Cluster cluster)
    {
        throwIfArmed(ARMED_TERMINATE);
    }

    @Override
    public int doBackgroundWork(final long nowNs)
    {
        throwIfArmed(ARMED_BACKGROUND_WORK);
        return 0;
    }

    @Override
    public void onSessionOpen(final ClientSession session, final long timestamp)
    {
        ledger.sessions.put(session.id(), 0L);
        event(KIND_SESSION_OPEN, timestamp, session.id(), 0, 0);
        throwIfArmed(ARMED_SESSION_OPEN);
    }

    @Override
    public void onSessionClose(final ClientSession session, final long timestamp, final CloseReason closeReason)
    {
        ledger.sessions.remove(session.id());
        event(KIND_SESSION_CLOSE, timestamp, session.id(), closeReason.value(), 0);
        throwIfArmed(ARMED_SESSION_CLOSE);
    }

    @Override
    public void onTimerEvent(final long correlationId, final long timestamp)
    {
        if (!ledger.timerFired(correlationId))
        {
            write(KIND_ANOMALY, ANOMALY_TIMER_NOT_SCHEDULED, correlationId, ledger.chain);
        }

        event(KIND_TIMER, timestamp, correlationId, 0, 0);
        throwIfArmed(ARMED_TIMER);
    }

    @Override
    public void onSessionMessage(
        final ClientSession session,
        final long timestamp,
        final DirectBuffer buffer,
        final int offset,
        final int length,
        final Header header)
    {
        if (null == session)
        {
            onRelayed(timestamp, buffer, offset);
        }
        else if (length < SequencedLedger.COMMAND_LENGTH)
        {
            answer(session, STATUS_INVALID, 0);
        }
        else
        {
            onCommand(session, timestamp, buffer, offset, length);
        }
    }

    private void onRelayed(final long timestamp, final DirectBuffer buffer, final int offset)
    {
        final long clientId = SequencedLedger.getLong(buffer, offset);
        final long sequence = SequencedLedger.getLong(buffer, offset + 8);
        final long key = SequencedLedger.getLong(buffer, offset + 16);
        if (!ledger.relayBack(key))
        {
            write(KIND_ANOMALY, ANOMALY_RELAY_NOT_SENT, key, ledger.chain);
        }

        ledger.add(Math.floorMod(key, ACCOUNTS_OF_RELAYS), SequencedLedger.getLong(buffer, offset + 24));
        event(KIND_RELAYED, timestamp, clientId, sequence, 0);
    }

    private void onCommand(
        final ClientSession session,
        final long timestamp,
        final DirectBuffer buffer,
        final int offset,
        final int length)
    {
        final byte op = buffer.getByte(offset);
        final long clientId = SequencedLedger.getLong(buffer, offset + 1);
        final long sequence = SequencedLedger.getLong(buffer, offset + 9);
        final long key = SequencedLedger.getLong(buffer, offset + 17);
        final long value = SequencedLedger.getLong(buffer, offset + 25);
        if (OP_READ == op)
        {
            read(session, clientId);
            return;
        }

        final long last = ledger.clients.getOrDefault(clientId, 0L);
        if (sequence != last + 1)
        {
            answer(session, sequence <= last ? STATUS_DUPLICATE : STATUS_GAP, clientId);
            return;
        }

        ledger.clients.put(clientId, sequence);
        ledger.messages++;
        carryOut(op, timestamp, clientId, sequence, key, value);
        event(KIND_MESSAGE, timestamp, clientId, sequence, SequencedLedger.crc32(buffer, offset, length));
        if (OP_RAISE == op)
        {
            throw new IllegalStateException("armed: on_session_message");
        }

        if (OP_TERMINATE == op && isSwitched("terminate"))
        {
            throw new ClusterTerminationException(false);
        }

        if (OP_GET == op)
        {
            offer(session, STATUS_VALUE, clientId, sequence, ledger.accounts.getOrDefault(key, 0L));
        }

        answer(session, STATUS_OK, clientId);
    }

    private void carryOut(
        final byte op,
        final long timestamp,
        final long clientId,
        final long sequence,
        final long key,
        final long value)
    {
        switch (op)
        {
            case OP_ADD:
                ledger.add(key, value);
                break;

            case OP_TIMER:
                ledger.timers.put(key, timestamp + value);
                while (!cluster.scheduleTimer(key, timestamp + value))
                {
                    cluster.idleStrategy().idle();
                }
                break;

            case OP_RELAY:
                for (long serviceId = 0; serviceId < SERVICE_COUNT; serviceId++)
                {
                    ledger.relays.put(key | serviceId << SERVICE_ID_SHIFT, sequence);
                }
                SequencedLedger.putLongs(relay, 0, clientId, sequence, key, value);
                while (cluster.offer(relay, 0, relay.capacity()) < 0)
                {
                    cluster.idleStrategy().idle();
                }
                break;

            case OP_ARM:
                if (value < 0)
                {
                    armed.remove(key);
                }
                else
                {
                    armed.add(key);
                }
                break;

            case OP_SESSIONS:
                for (final ClientSession session : cluster.clientSessions())
                {
                    ledger.chain = SequencedLedger.mix(ledger.chain, session.id());
                }
                break;

            case OP_BLOCK:
            case OP_IDLE:
                if (-1 == key || cluster.memberId() == key)
                {
                    await(op, value);
                }
                break;

            default:
                break;
        }
    }

    private void await(final byte op, final long milliseconds)
    {
        final long deadlineNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(milliseconds);
        while (System.nanoTime() - deadlineNs < 0)
        {
            if (OP_BLOCK == op)
            {
                Thread.onSpinWait();
            }
            else
            {
                cluster.idleStrategy().idle();
            }
        }
    }

    private void read(final ClientSession session, final long clientId)
    {
        checkSessions();
        final long digest = ledger.digest();
        write(KIND_READ, clientId, 0, digest);
        offer(session, STATUS_STATE, clientId, ledger.timers.size() + ledger.relays.size(), digest);
    }

    private void answer(final ClientSession session, final byte status, final long clientId)
    {
        offer(session, status, clientId, ledger.clients.getOrDefault(clientId, 0L), ledger.chain);
    }

    private void offer(
        final ClientSession session, final byte status, final long clientId, final long number, final long hash)
    {
        answer.putByte(0, status);
        SequencedLedger.putLongs(answer, 1, clientId, number, cluster.logPosition(), hash);
        for (int i = 0; i < EGRESS_ATTEMPTS; i++)
        {
            if (session.offer(answer, 0, answer.capacity()) > 0)
            {
                return;
            }

            cluster.idleStrategy().idle();
        }
    }

    private void event(
        final long kind, final long timestamp, final long first, final long second, final long payload)
    {
        ledger.happened(kind, cluster.logPosition(), timestamp, first, second, payload);
        write(kind, first, second, ledger.chain);
    }

    private void write(final long kind, final long first, final long second, final long hash)
    {
        SequencedLedger.putLongs(record, 0, kind, cluster.logPosition(), first, second, hash);
        try
        {
            journal.write(record.byteBuffer().clear());
        }
        catch (final IOException ex)
        {
            throw new UncheckedIOException(ex);
        }
    }

    private void checkSessions()
    {
        boolean isSame = cluster.clientSessions().size() == ledger.sessions.size();
        for (final ClientSession session : cluster.clientSessions())
        {
            isSame = isSame && ledger.sessions.containsKey(session.id());
        }

        if (!isSame)
        {
            write(KIND_ANOMALY, ANOMALY_SESSIONS_DIFFER, ledger.sessions.size(), ledger.chain);
        }
    }

    private boolean isSwitched(final String name)
    {
        try
        {
            return Files.deleteIfExists(memberDir.resolve(name));
        }
        catch (final IOException ex)
        {
            throw new UncheckedIOException(ex);
        }
    }

    private void throwIfArmed(final long callback)
    {
        if (armed.remove(callback))
        {
            throw new IllegalStateException("armed: " + callback);
        }
    }
}
