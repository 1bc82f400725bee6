"""The state machine of a backup; it never waits, and each turn takes one step. Upstream: ClusterBackupAgent.java.

A round asks a member, copies its latest snapshots, records its log as it is committed, and enters both into the copy's
recording log. From then on the log is followed, and after an interval a member is asked again. After each failure the
backup lets go of everything, waits, and begins a round with the next member.

The recording log names nothing before its copy is whole: a snapshot once it is copied to its last byte and the log is
recorded up to it, a term once the log is recorded up to its beginning. A round adds all of its entries together. So a
node that starts from the copy, at any time, finds one to start from or none. Upstream appends them earlier, and one by
one.

Other differences: a member that is not acceptable is left for the next one at once; where no member is, that is said.
A recording is copied as the log only where it shows that it is one (member_log.py). A log continues only where the
member has the end of the copy, byte for byte. A snapshot's copy must have the length of the member's, and the markers
of what the member names. The remains of a failed copy are deleted from the archive. A disk without room ends a round,
and not the backup.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from enum import IntEnum
from typing import Protocol

from container.archive.client.archive_connection import ArchiveRequest
from container.archive.client.async_archive import AsyncArchive
from container.backup.backup_transport import BackupTransport, FirstMessage, ReplayHash
from container.backup.member_answer import (
    BEGIN_ANEW,
    MemberAnswer,
    MemberSnapshot,
    check_same_log,
    check_start,
    check_terms,
    compared_from,
    first_position,
    is_acceptable,
    needed_snapshots,
    read_answer,
)
from container.backup.member_log import (
    TermPlace,
    check_log_recording,
    check_reach,
    check_term,
    ended,
    named_log,
    term_places,
)
from container.codecs.messages import decode, encode
from container.common.channel_uri import ENDPOINT, ChannelUri
from container.common.error_texts import message_of
from container.consensus.channels import destination, replication_channels
from container.consensus.cluster_member import ClusterMember
from container.consensus.log_orphans import LogOrphans
from container.consensus.snapshot_copy import SnapshotCopy, snapshot_name
from container.consensus.steps import Deadline, answer, connected, stopped
from container.error_handlers import ErrorHandler
from container.errors import (
    ArchiveError,
    ClusterError,
    ClusterEvent,
    CodecError,
    ConfigurationError,
    ContainerError,
    RegistrationError,
    TimedOutError,
)
from container.files.catalog import RecordingDescriptor
from container.files.recording_log import (
    CONSENSUS_MODULE_SERVICE_ID,
    ENTRY_TYPE_SNAPSHOT,
    ENTRY_TYPE_TERM,
    NULL_POSITION,
    NULL_VALUE,
    RecordingLog,
    RecordingLogEntry,
)
from container.settings.backup_table import BackupSettings
from container.transport.streams import FragmentHandler, Subscription

ANYWHERE = 2**63 - 1
PROTOCOL_VERSION = 0 << 16 | 3 << 8

_NS_PER_MS = 1_000_000
_MAX_ANSWER_LENGTH = 64 * 1024  # of a message: more members and snapshots than a cluster can have
_ERROR_CODES = {1: "ERROR", 3: "AUTHENTICATION_REJECTED"}
_REDIRECT = 2


class BackupState(IntEnum):
    """The state of a backup; the counter of type 208 has its number."""

    BACKUP_QUERY = 0
    SNAPSHOT_RETRIEVE = 1
    LIVE_LOG_RECORD = 2
    LIVE_LOG_REPLAY = 3
    UPDATE_RECORDING_LOG = 4
    BACKING_UP = 5
    RESET_BACKUP = 6
    CLOSED = 7


class CredentialsSupplier(Protocol):
    """Proves who the backup is, where the cluster has an authenticator."""

    def encoded_credentials(self) -> bytes:
        """The credentials of a query."""

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        """The answer to a challenge."""


class BackupDisplay(Protocol):
    """Where a backup shows how far it is: its counters."""

    def show_state(self, state: int) -> None:
        """The state that begins."""

    def show_position(self, position: int) -> None:
        """How far the log is recorded, in bytes."""

    def show_next_query(self, epoch_ms: int) -> None:
        """When a member is asked next."""

    def next_query_ms(self) -> int:
        """The time last shown, unless an operator has set another."""

    def show_snapshots(self) -> None:
        """Snapshots were copied, and are in the recording log."""


class ClusterBackupMachine:
    """A backup without its thread, its mark file and its settings' sources.

    Args:
        transport: the consensus stream, clocks and what is shown of recordings.
        settings: of the backup.
        recording_log: of the copy, with a file sync level of 1 or 2.
        orphans: notes what is being copied.
        new_archive: makes a client of the backup's own archive.
        new_member_archive: makes a client of a member's archive.
        credentials_supplier: for members that ask.
        random_source: of session ids and of the order of members.
        display: where it shows how far it is.
        on_failure: gets what has ended a round, which an event says as well.
        on_error: gets other errors.
        on_event: gets an event's name and its fields.
    """

    def __init__(
        self,
        transport: BackupTransport,
        settings: BackupSettings,
        recording_log: RecordingLog,
        orphans: LogOrphans,
        *,
        new_archive: Callable[[], AsyncArchive],
        new_member_archive: Callable[[ClusterMember], AsyncArchive],
        credentials_supplier: CredentialsSupplier,
        random_source: random.Random,
        display: BackupDisplay,
        on_failure: ErrorHandler,
        on_error: ErrorHandler,
        on_event: Callable[..., object],
    ) -> None:
        self._transport, self._settings = transport, settings
        self._recording_log, self._orphans = recording_log, orphans
        self._new_archive, self._new_member_archive = new_archive, new_member_archive
        self._credentials, self._random, self._display = credentials_supplier, random_source, display
        self._on_failure, self._on_error, self._on_event = on_failure, on_error, on_event
        self._endpoints = [each.strip() for each in str(settings.cluster_consensus_endpoints).split(",")]
        random_source.shuffle(self._endpoints)
        self._cursor = 0
        self.state = BackupState.BACKUP_QUERY
        self.position = NULL_POSITION
        """How far the log is recorded, -1 until that is known."""
        self._archive: AsyncArchive | None = None  # the backup's own
        self._source: AsyncArchive | None = None  # the member's
        self._answer: MemberAnswer | None = None  # of the member whose log is recorded
        self._log_recording_id = NULL_VALUE  # of the copy
        self._log_session_id = NULL_VALUE  # with which that was recorded
        self._counter_id = NULL_VALUE  # of that recording while it is active
        self._recording: ArchiveRequest | None = None  # that began it
        self._replay: ArchiveRequest | None = None  # of the member's archive
        self._copy: SnapshotCopy | None = None  # of snapshots, to the backup's own archive
        self._subscriptions: list[Subscription] = []  # by which ports are kept until the log is recorded
        self._work = self._run()

    def do_work(self) -> int:
        """Take a turn; how much was done. Raises AgentTermination alone."""
        before = self.state, self.position
        failure = self._tend()
        if failure is None:
            next(self._work)
        else:
            self._work.throw(failure)
        return int(before != (self.state, self.position))

    def close(self) -> None:
        """End it: what is recorded so far is a copy, or there is none."""
        self._work.close()
        self._let_go()
        if self._archive is not None:
            self._quietly(self._archive.close)
            self._archive = None
        self._transport.close()
        self._enter(BackupState.CLOSED)

    # Rounds.

    def _run(self) -> Generator[None]:
        while True:
            try:
                yield from self._round()
            except (ContainerError, OSError) as error:
                self._fail(error)
            except Exception as error:  # a program's credentials may raise anything
                self._on_error(error)
                self._fail(error)
            yield from self._reset()

    def _round(self) -> Generator[None]:
        self._enter(BackupState.BACKUP_QUERY)
        archive = yield from self._connect()
        unnamed = self._unnamed_recording()
        if unnamed != NULL_VALUE:
            self._orphans.note(self._log_session_id)  # again: of many notes the oldest ones go
        yield from self._orphans.remove(archive, self._deadline(), unnamed)
        yield from self._check_own_archive(archive)
        yield from self._transport.listen()
        while True:
            found = yield from self._query()
            snapshots = needed_snapshots(self._recording_log, found)
            source = yield from self._connect_source(found)
            # Its archive answers: what was asked for is of the cluster whose log is recorded, and of no later one.
            original = yield from self._descriptor(source, found.log_recording_id, f"member {found.member.id}")
            check_terms(self._recording_log, found)
            yield from self._check_log(source, found, original, snapshots)
            copies: list[MemberSnapshot] = []
            if snapshots:
                self._enter(BackupState.SNAPSHOT_RETRIEVE)
                for each in snapshots:
                    copies.append((yield from self._retrieve(archive, source, found.member, each)))
            if self._counter_id == NULL_VALUE:
                yield from self._record(archive, source, found, original, snapshots)
            needed = max(found.term_base_log_position, *(each.log_position for each in copies), 0)
            yield from self._catch_up(needed)
            self._enter(BackupState.UPDATE_RECORDING_LOG)
            self._update(found, copies)
            yield
            self._enter(BackupState.BACKING_UP)
            yield from self._await_next_query()
            self._enter(BackupState.BACKUP_QUERY)

    def _await_next_query(self) -> Generator[None]:
        """Let the interval pass, also where the clock is set back, or the time that an operator has set come."""
        interval_ns, begin_ns = self._settings.backup_interval_ns, self._transport.nano_time()
        shown_ms = self._transport.epoch_ms() + interval_ns // _NS_PER_MS
        self._display.show_next_query(shown_ms)
        while self._transport.epoch_ms() <= (deadline_ms := self._display.next_query_ms()):
            if deadline_ms == shown_ms and self._transport.nano_time() - begin_ns > interval_ns:
                return
            yield

    def _check_own_archive(self, archive: AsyncArchive) -> Generator[None]:
        """Raise ClusterError unless the archive has what a node would start from.

        One that was put back to an earlier state, or is another one, would give the ids of what it lacks to recordings
        to come, and the recording log would name those.
        """
        log = self._recording_log
        last, latest = log.find_last_term(), log.get_latest_snapshot(CONSENSUS_MODULE_SERVICE_ID)
        what = {} if last is None else {last.recording_id: "the log"}
        if latest is not None:
            what |= {
                each.recording_id: snapshot_name(each)
                for each in log.entries
                if each.is_valid_snapshot and each.log_position == latest.log_position
            }
        for recording_id, name in what.items():
            request = archive.list_recording(recording_id)
            yield from answer(archive, request)
            if not request.items:
                raise ClusterError(
                    f"the archive of the backup does not know recording {recording_id}, which is {name}: start both "
                    f"with the directories that belong together; where they are gone, {BEGIN_ANEW}"
                )

    def _fail(self, error: Exception) -> None:
        self._cursor = (self._cursor + 1) % len(self._endpoints)
        wait_s = self._settings.cool_down_interval_ns / 1e9
        text = f"{message_of(error)} (in state {self.state.name}; the next try begins in {wait_s:g} s)"
        self._on_event("backup_failed", state=self.state.name, log_position=self.position, reason=message_of(error))
        self._on_failure(ClusterEvent(text))

    def _reset(self) -> Generator[None]:
        self._enter(BackupState.RESET_BACKUP)
        self._let_go()
        archive, self._archive = self._archive, None
        if archive is not None:
            # The log's recording is asked for its end when the backup continues.
            self._quietly(archive.close)
        yield from self._pause(self._settings.cool_down_interval_ns)

    def _let_go(self) -> None:
        """Have everything end that is in progress. An archive that does not receive a request ends the work with its
        stream."""
        source, archive, replay, recording = self._source, self._archive, self._replay, self._recording
        replication = None if self._copy is None else self._copy.request
        if replication is not None and replication.is_done and archive is not None:
            self._tell(archive, "StopReplicationRequest", {"replication_id": replication.relevant_id})
        if replay is not None and replay.is_done and replay.error is None and source is not None:
            self._tell(source, "StopReplayRequest", {"replay_session_id": replay.relevant_id})
        if recording is not None and recording.is_done and recording.error is None and archive is not None:
            self._tell(archive, "StopRecordingSubscriptionRequest", {"subscription_id": recording.relevant_id})
        if source is not None:
            self._quietly(source.close)
        self._close_subscriptions()
        self._transport.disconnect()
        self._source = self._answer = self._recording = self._replay = self._copy = None
        self._counter_id = NULL_VALUE

    def _close_subscriptions(self) -> None:
        while self._subscriptions:
            self._subscriptions.pop().close()

    def _tell(self, archive: AsyncArchive, name: str, fields: dict[str, int]) -> None:
        if archive.is_connected:
            self._quietly(lambda: archive.tell(name, fields))

    def _quietly(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            self._on_error(error)

    def _tend(self) -> Exception | None:
        """Do the work that continues in every state; return the error if some of it failed."""
        try:
            for archive in (self._archive, self._source):
                if archive is not None:
                    archive.poll()
                    error = archive.take_error()
                    if error is not None:
                        raise error
            self._check_recording()
        except Exception as error:
            return error
        return None

    def _check_recording(self) -> None:
        """See how far the log is recorded. Raises what has ended that."""
        if self._counter_id == NULL_VALUE:
            return
        for request in (self._recording, self._replay):
            if request is not None and request.error is not None:
                raise request.error
        position = self._transport.position(self._counter_id, self._log_recording_id)
        if position is None:
            assert self._answer is not None
            raise ClusterEvent(
                f"the log of member {self._answer.member.id} is not recorded any longer, from {self.position} on: the "
                "member has ended, has another leader now, or cannot be reached"
            )
        if position > self.position:
            self._show_position(position)

    def _show_position(self, position: int) -> None:
        self.position = position
        self._display.show_position(position)

    # Time.

    def _deadline(self) -> Deadline:
        return Deadline(self._transport.client.clock, self._settings.progress_timeout_ns)

    def _pause(self, limit_ns: int) -> Generator[None]:
        begin_ns = self._transport.nano_time()
        while self._transport.nano_time() - begin_ns < limit_ns:
            yield

    def _progressing(self, what: Callable[[], str], progress: Callable[[], object]) -> Generator[None]:
        """Let turns pass for ever; raises TimedOutError once ``progress`` has returned the same for too long."""
        limit_ns, last, begin_ns = self._settings.progress_timeout_ns, progress(), self._transport.nano_time()
        while True:
            yield
            now_ns, current = self._transport.nano_time(), progress()
            if current != last:
                last, begin_ns = current, now_ns
            elif now_ns - begin_ns >= limit_ns:
                raise TimedOutError(f"no progress within {limit_ns / 1e9:g} s: {what()}")

    def _enter(self, state: BackupState) -> None:
        if state != self.state:
            self._on_event("backup_state", state=state.name, former_state=self.state.name)
        self.state = state
        self._display.show_state(state)

    # BACKUP_QUERY

    def _connect(self) -> Generator[None, None, AsyncArchive]:
        """A session with the backup's own archive."""
        archive = self._archive = self._new_archive()
        self._copy = SnapshotCopy(
            archive,
            self._transport.client,
            self._orphans,
            self._deadline(),
            lambda recording_id: self._transport.find_position(recording_id, archive.archive_id),
            replay_channel="aeron:ipc",
            replay_stream_id=self._settings.log_stream_id,
        )
        archive.on_signal = self._copy.on_signal
        yield from connected(archive)
        return archive

    def _query(self) -> Generator[None, None, MemberAnswer]:
        """Return the answer of an acceptable member."""
        reasons: list[str] = []
        for _ in self._endpoints:
            endpoint = self._endpoints[self._cursor]
            try:
                found = yield from self._ask(endpoint)
                if is_acceptable(self._settings.source_type, found):
                    self._check_supplier(found)
                    return found
                role = "the leader" if found.leader_member_id == found.member.id else "a follower"
                reasons.append(f"{endpoint} is {role}, source_type={self._settings.source_type}")
            except (ClusterError, CodecError, ConfigurationError, RegistrationError, TimedOutError) as error:
                reasons.append(f"{endpoint}: {message_of(error)}")
            finally:
                self._transport.disconnect()
            self._cursor = (self._cursor + 1) % len(self._endpoints)
        raise ClusterError(f"no member answers as it should: {'; '.join(reasons)}")

    def _check_supplier(self, found: MemberAnswer) -> None:
        """While the log of one member is recorded, the snapshots of no other one are copied."""
        known = self._answer
        if known is None:
            return
        if (known.member.id, known.log_recording_id) != (found.member.id, found.log_recording_id):
            raise ClusterError(
                f"the log is that of member {known.member.id}, recording {known.log_recording_id}, and member "
                f"{found.member.id} answers with recording {found.log_recording_id}"
            )

    def _ask(self, endpoint: str) -> Generator[None, None, MemberAnswer]:
        channel = ChannelUri.parse(str(self._settings.consensus_channel))
        channel.put(ENDPOINT, endpoint)
        yield from self._transport.connect(str(channel))
        limit_ns = self._settings.response_timeout_ns
        deadline_ns = self._transport.nano_time() + limit_ns
        correlation_id = self._transport.new_id()
        message: bytes | None = encode(
            "cluster",
            "BackupQuery",
            correlation_id=correlation_id,
            response_stream_id=self._transport.stream_id,
            version=PROTOCOL_VERSION,
            log_position=ANYWHERE,
            response_channel=str(self._transport.response_channel()).encode("ascii"),
            encoded_credentials=self._credentials.encoded_credentials(),
        )
        stray: str | None = None
        while True:
            if message is not None and self._transport.send(message):
                message = None
            for each in self._transport.poll():
                if len(each) > _MAX_ANSWER_LENGTH:
                    stray = f"a message of {len(each)} bytes"
                    continue
                try:
                    name, fields = decode("cluster", each)
                except CodecError as error:  # from somebody else, maybe: the member may still answer
                    stray = message_of(error)
                    continue
                if fields.get("correlation_id") != correlation_id:
                    continue
                if name == "BackupResponse":
                    return read_answer(fields)
                if name == "Challenge":
                    correlation_id = self._transport.new_id()
                    message = self._challenge_response(correlation_id, fields)
                elif name == "SessionEvent":
                    self._on_session_event(fields)
            if self._transport.nano_time() >= deadline_ns:
                what = "it was not reached" if message is not None else "it was asked and does not answer"
                came = "" if stray is None else f"; received something else: {stray}"
                raise TimedOutError(f"{what} within {limit_ns / 1e9:g} s{came}")
            yield

    def _challenge_response(self, correlation_id: int, challenge: dict[str, object]) -> bytes:
        encoded = challenge["encoded_challenge"]
        assert isinstance(encoded, bytes)
        return encode(
            "cluster",
            "ChallengeResponse",
            correlation_id=correlation_id,
            cluster_session_id=challenge["cluster_session_id"],  # type: ignore[arg-type]
            encoded_credentials=self._credentials.on_challenge(encoded),
        )

    def _on_session_event(self, event: dict[str, object]) -> None:
        code, detail = event["code"], event["detail"]
        if code == _REDIRECT:
            raise ClusterError("it sends the backup to another member")
        if code in _ERROR_CODES:
            text = detail.decode("ascii", "replace") if isinstance(detail, bytes) else ""
            raise ClusterError(f"{_ERROR_CODES[code]}: {text}")

    # SNAPSHOT_RETRIEVE

    def _connect_source(self, found: MemberAnswer) -> Generator[None, None, AsyncArchive]:
        """A session with the member's archive."""
        if self._source is None:
            self._source = self._new_member_archive(found.member)
            yield from connected(self._source)
        self._answer = found
        return self._source

    def _check_log(
        self,
        source: AsyncArchive,
        found: MemberAnswer,
        original: RecordingDescriptor,
        snapshots: tuple[MemberSnapshot, ...],
    ) -> Generator[None]:
        """Raise ClusterError unless the member's recording is its log, with the terms that are entered."""
        recording_id = found.log_recording_id
        check_log_recording(found, original, self._settings.log_stream_id)
        end = yield from answer(source, source.recording_position(recording_id))
        if end == NULL_POSITION:
            raise ended(found)
        check_reach(found, snapshots, end)
        places = term_places(
            self._recording_log, found, snapshots, original.start_position, is_followed=self._counter_id != NULL_VALUE
        )
        for place in places:
            yield from self._check_term(source, found, place, original.term_buffer_length)

    def _check_term(
        self, source: AsyncArchive, found: MemberAnswer, place: TermPlace, term_buffer_length: int
    ) -> Generator[None]:
        """Raise ClusterError unless the member's recording has a term; a message is shorter than a term buffer."""
        first, begin = FirstMessage(not place.is_base), place.position
        end = begin + term_buffer_length
        try:
            yield from self._read_source(
                source, found.log_recording_id, begin, end, first, lambda: first.message is not None
            )
        except ArchiveError as error:
            raise ClusterError(f"{named_log(found)} is not read from {begin} on: {message_of(error)}") from error
        check_term(found, place, first.message)

    def _retrieve(
        self, archive: AsyncArchive, source: AsyncArchive, member: ClusterMember, snapshot: MemberSnapshot
    ) -> Generator[None, None, MemberSnapshot]:
        """Copy a snapshot to its last byte; what it is in the backup's archive."""
        settings, what = self._settings, snapshot_name(snapshot)
        original = yield from self._descriptor(source, snapshot.recording_id, f"member {member.id}")
        if original.stop_position == NULL_POSITION:
            raise ClusterError(f"{what} of member {member.id} is still being recorded")
        if original.stop_position == original.start_position:  # its copy would not have the session that is noted
            named = f"recording {snapshot.recording_id}, which member {member.id} names as {what},"
            raise ClusterError(f"{named} is not whole: it is empty")
        channel, response_channel = replication_channels(self._catchup_channel(), member.archive_response_endpoint)
        assert self._copy is not None
        copied = yield from self._copy.run(
            snapshot,
            owner=f"member {member.id}",
            source_channel=destination(settings.member_archive_control_channel, member.archive_endpoint),
            source_stream_id=settings.member_archive_control_stream_id,
            channel=channel,
            response_channel=response_channel,
            session_id=self._new_session_id(),
        )
        made = yield from self._descriptor(archive, copied, "the backup")
        if (made.start_position, made.stop_position) != (original.start_position, original.stop_position):
            raise ClusterError(
                f"the copy of {what} ends at {made.stop_position}, that of member {member.id} at "
                f"{original.stop_position}"
            )
        return MemberSnapshot(
            copied,
            snapshot.leadership_term_id,
            snapshot.term_base_log_position,
            snapshot.log_position,
            snapshot.timestamp,
            snapshot.service_id,
        )

    def _descriptor(
        self, archive: AsyncArchive, recording_id: int, owner: str
    ) -> Generator[None, None, RecordingDescriptor]:
        request = archive.list_recording(recording_id)
        yield from answer(archive, request)
        if not request.items:
            raise ClusterError(f"the archive of {owner} does not know recording {recording_id}, which it names")
        found: RecordingDescriptor = request.items[0]
        return found

    def _new_session_id(self) -> int:
        return self._random.getrandbits(32) - (1 << 31)

    def _catchup_channel(self) -> str:
        uri = ChannelUri.parse(self._settings.catchup_channel)
        uri.put(ENDPOINT, str(self._settings.catchup_endpoint))
        return str(uri)

    # LIVE_LOG_RECORD and LIVE_LOG_REPLAY

    def _unnamed_recording(self) -> int:
        """The active recording of the log that the recording log does not name yet."""
        return self._log_recording_id if self._recording_log.find_last_term() is None else NULL_VALUE

    def _record(
        self,
        archive: AsyncArchive,
        source: AsyncArchive,
        found: MemberAnswer,
        original: RecordingDescriptor,
        snapshots: tuple[MemberSnapshot, ...],
    ) -> Generator[None]:
        """Have the own archive record what the member's replays of its log, from where the copy ends."""
        self._enter(BackupState.LIVE_LOG_RECORD)
        term = self._recording_log.find_last_term()
        extended = self._log_recording_id if term is None else term.recording_id
        if extended != NULL_VALUE:
            try:
                begin = yield from self._continued(archive, source, found, extended, original, snapshots)
            except (ArchiveError, ClusterError):
                if term is None:  # no copy yet: the next round deletes it, and begins with what the member has
                    self._log_recording_id, self.position = NULL_VALUE, NULL_POSITION
                raise
            self._show_position(begin)
        else:
            begin = first_position(self._settings.initial_replay_start, found, original, snapshots)
        session_id = self._new_session_id()
        if term is None:
            self._orphans.note(session_id)
        recorded_channel, replayed_channel = yield from self._live_channels(session_id)
        stream_id = self._settings.log_stream_id
        if extended == NULL_VALUE:
            request = archive.start_recording(recorded_channel, stream_id, False, True)
        else:
            request = archive.extend_recording(extended, recorded_channel, stream_id, False, True)
        self._recording = request
        archive.follow(request)
        yield from answer(archive, request)
        self._close_subscriptions()

        self._enter(BackupState.LIVE_LOG_REPLAY)
        replay = self._replay = source.bounded_replay(
            found.log_recording_id, begin, NULL_VALUE, found.commit_position_counter_id, replayed_channel, stream_id
        )
        source.follow(replay)
        yield from answer(source, replay)
        what = f"the replay of the log of member {found.member.id} from {begin} on to {replayed_channel}"
        waiting = self._progressing(lambda: what, lambda: None)
        while True:
            active = self._transport.find_recording(session_id, archive.archive_id)
            if active is not None:
                break
            for each in (request, replay):
                if each.error is not None:
                    raise each.error
            next(waiting)
            yield
        self._counter_id, self._log_recording_id = active
        self._log_session_id = session_id
        self._show_position(max(begin, self.position))

    def _continued(
        self,
        archive: AsyncArchive,
        source: AsyncArchive,
        found: MemberAnswer,
        extended: int,
        original: RecordingDescriptor,
        snapshots: tuple[MemberSnapshot, ...],
    ) -> Generator[None, None, int]:
        """Where the recording that is extended ends. Raise ClusterError where the member's log cannot continue it."""
        yield from answer(archive, archive.stop_recording_by_identity(extended))
        begin = yield from stopped(archive, self._deadline(), extended)
        own = yield from self._descriptor(archive, extended, "the backup")
        check_same_log(self._recording_log, found, own, original)
        check_start(self._recording_log, found, own, snapshots)
        yield from self._check_end(archive, source, found, own, original)
        return begin

    def _live_channels(self, session_id: int) -> Generator[None, None, tuple[str, str]]:
        """The channels to record and to replay to. For port 0 a subscription finds a port."""
        uri = ChannelUri.parse(self._catchup_channel())
        uri.put("session-id", str(session_id))
        endpoint = str(self._settings.catchup_endpoint)
        if not endpoint.endswith(":0"):
            return str(uri), str(uri)
        recorded = ChannelUri.parse(str(uri))
        recorded.remove(ENDPOINT)
        recorded.put("tags", f"{self._transport.new_id()},{self._transport.new_id()}")
        listening = ChannelUri.parse(str(recorded))
        listening.put(ENDPOINT, endpoint)
        _, uri.params[ENDPOINT] = yield from self._listen(str(listening))
        return str(recorded), str(uri)

    def _listen(self, channel: str) -> Generator[None, None, tuple[Subscription, str]]:
        """Subscribe to what a member replays; the subscription, and its endpoint with the port that it has."""
        endpoint = str(self._settings.catchup_endpoint)
        subscription = yield from self._transport.add_subscription(channel, self._settings.log_stream_id)
        self._subscriptions.append(subscription)
        waiting = self._progressing(lambda: f"a port for {endpoint}", lambda: None)
        while not (resolved := self._transport.resolved_endpoint(subscription)):
            next(waiting)
            yield
        return subscription, f"{endpoint.rpartition(':')[0]}:{resolved.rpartition(':')[2]}"

    def _check_end(
        self,
        archive: AsyncArchive,
        source: AsyncArchive,
        found: MemberAnswer,
        own: RecordingDescriptor,
        original: RecordingDescriptor,
    ) -> Generator[None]:
        """Raise ClusterError unless the member's log has what the copy ends with.

        Terms alone do not show that: those of a cluster that began again from an older state may fit.
        """
        begin, end = compared_from(self._recording_log, own, original), own.stop_position
        if begin == end:
            return
        session_id = self._new_session_id()
        channel = f"aeron:ipc?session-id={session_id}"
        subscription = yield from self._transport.add_subscription(channel, self._settings.log_stream_id)
        self._subscriptions.append(subscription)
        copied, theirs = ReplayHash(), ReplayHash()
        yield from self._read(archive, own.recording_id, begin, end, channel, subscription, session_id, copied)
        yield from self._read_source(source, found.log_recording_id, begin, end, theirs)
        if copied.digest() != theirs.digest():
            raise ClusterError(
                f"the log of member {found.member.id} from {begin} to {end} does not match the end of the copy: the "
                f"cluster began again from an older state: {BEGIN_ANEW}"
            )

    def _read_source(
        self,
        source: AsyncArchive,
        recording_id: int,
        begin: int,
        end: int,
        found: FragmentHandler,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> Generator[None]:
        """Read a part of a member's log, as :meth:`_read` does."""
        session_id = self._new_session_id()
        uri = ChannelUri.parse(self._catchup_channel())
        uri.put("session-id", str(session_id))
        subscription, uri.params[ENDPOINT] = yield from self._listen(str(uri))
        yield from self._read(source, recording_id, begin, end, str(uri), subscription, session_id, found, is_enough)
        self._close_subscriptions()

    def _read(
        self,
        archive: AsyncArchive,
        recording_id: int,
        begin: int,
        end: int,
        channel: str,
        subscription: Subscription,
        session_id: int,
        found: FragmentHandler,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> Generator[None]:
        """Read a part of a log, as an archive replays it, up to its end or until it is enough."""
        request = archive.replay(recording_id, begin, end - begin, channel, self._settings.log_stream_id, NULL_VALUE)
        archive.follow(request)
        try:
            yield from answer(archive, request)
            position = begin
            waiting = self._progressing(
                lambda: f"recording {recording_id} is read up to {position} on {channel}", lambda: position
            )
            while position < end and not is_enough():
                if request.error is not None:
                    raise request.error
                next(waiting)
                yield
                position = max(position, self._transport.read_replay(subscription, session_id, found))
        finally:
            archive.forget(request)

    def _catch_up(self, position: int) -> Generator[None]:
        """Wait until the log is recorded up to where what is entered next needs it."""
        waiting = self._progressing(
            lambda: f"the log is recorded up to {self.position}, needed is {position}", lambda: self.position
        )
        while self.position < position:
            next(waiting)
            yield

    # UPDATE_RECORDING_LOG

    def _update(self, found: MemberAnswer, copies: list[MemberSnapshot]) -> None:
        """Enter what was copied: all of it, or after a crash nothing."""
        log = self._recording_log
        entries: list[RecordingLogEntry] = []
        if copies and copies[0].leadership_term_id < found.leadership_term_id:
            is_before = copies[0].leadership_term_id == found.leadership_term_id - 1
            end = found.term_base_log_position if is_before else NULL_POSITION
            entries += self._unknown_term(copies[0].leadership_term_id, copies[0].term_base_log_position, end)
        entries += self._unknown_term(found.leadership_term_id, found.term_base_log_position, NULL_POSITION)
        entries += [_snapshot_entry(each) for each in copies]
        if not entries:
            return
        log.append_together(entries)
        if copies:
            self._display.show_snapshots()
        snapshot = log.get_latest_snapshot(CONSENSUS_MODULE_SERVICE_ID)
        self._on_event(
            "backup_updated",
            member_id=found.member.id,
            leadership_term_id=found.leadership_term_id,
            log_position=self.position,
            snapshot_position=NULL_POSITION if snapshot is None else snapshot.log_position,
        )

    def _unknown_term(self, leadership_term_id: int, base: int, end: int) -> list[RecordingLogEntry]:
        """The entry of a term, unless there is one; an end of -1 is that of the copy."""
        if not self._recording_log.is_unknown(leadership_term_id):
            return []
        fields = (self._log_recording_id, leadership_term_id, base, end, NULL_VALUE, NULL_VALUE)
        return [RecordingLogEntry(NULL_VALUE, *fields, ENTRY_TYPE_TERM, True)]


def _snapshot_entry(snapshot: MemberSnapshot) -> RecordingLogEntry:
    return RecordingLogEntry(
        NULL_VALUE,
        snapshot.recording_id,
        snapshot.leadership_term_id,
        snapshot.term_base_log_position,
        snapshot.log_position,
        snapshot.timestamp,
        snapshot.service_id,
        ENTRY_TYPE_SNAPSHOT,
        True,
    )
