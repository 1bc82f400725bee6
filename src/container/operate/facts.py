"""The facts that each word of the command line answers with; ``--json`` prints them by these names.

A field is null where a file does not say it, also where Aeron writes -1 for that. Positions are log positions in bytes,
names in ``_ms`` are epoch milliseconds. New fields may come; what is here keeps its name and its meaning.
"""

from __future__ import annotations

import msgspec


class Facts(msgspec.Struct):
    """The answer of a word, or a part of it."""


class MarkFile(Facts):
    """A mark file: of a consensus module, a backup, or a service."""

    path: str
    """Path of the file."""
    component: str
    """CONSENSUS_MODULE, CONTAINER (a service), BACKUP, STANDBY or UNKNOWN."""
    state: str
    """running, stopped (in order), dead (no sign of life for 10 s), starting, or failed (at its start)."""
    version: str
    """Version of the file's protocol."""
    activity_timestamp_ms: int | None
    """Last sign of life; null after an orderly end and while it starts."""
    start_timestamp_ms: int
    """When it was started."""
    pid: int
    """Its process."""
    process: str
    """alive, gone, reused (another process has the pid now) or unknown (the system does not say)."""
    candidate_term_id: int | None
    """Set in files of old releases; newer ones keep it in the node state."""
    archive_stream_id: int
    """Control stream of its archive."""
    service_stream_id: int
    """Stream from the consensus module to services."""
    consensus_module_stream_id: int
    """Stream from services to the consensus module."""
    ingress_stream_id: int | None
    """Stream of clients; null for a service."""
    member_id: int | None
    """Its member; null for a service that has not joined a log."""
    service_id: int | None
    """Null for a consensus module."""
    cluster_id: int
    """Its cluster."""
    header_length: int
    """Offset of its error log, in bytes."""
    error_buffer_length: int
    """Bytes of its error log."""
    error_count: int
    """Distinct errors in its error log; an orderly end leaves one as well."""
    aeron_directory: str
    """Directory of its media driver."""
    control_channel: str
    """Channel between consensus module and services."""
    ingress_channel: str
    """Channel of clients."""
    service_name: str
    """The service's name."""
    authenticator: str
    """Class that authenticates clients."""
    services_cluster_dir: str
    """Directory of the mark files of services; empty for that of the cluster."""


class NodeState(Facts):
    """The highest term in which a member has voted or stood."""

    candidate_term_id: int | None
    """That term; null for none."""
    log_position: int | None
    """End of its log then."""
    timestamp_ms: int | None
    """When."""


class Description(Facts):
    """`describe`: who owns a member's directory, and whether it is alive."""

    cluster_dir: str
    """The directory."""
    consensus_module: MarkFile
    """Mark file of the consensus module, or of a backup."""
    services: list[MarkFile]
    """Mark files of its services."""
    node_state: NodeState | None
    """Contents of node-state.dat."""
    problems: list[str]
    """Files that could not be read, a sentence each."""


class Process(Facts):
    """`pid`: the process that owns a member's directory."""

    pid: int
    """Its number, as the mark file has it."""
    process: str
    """alive, gone, reused or unknown, as in `describe`."""
    state: str
    """State of the consensus module, as in `describe`."""


class LogEntry(Facts):
    """An entry of the recording log."""

    entry_index: int
    """Its place in the file, counted with removed ones."""
    type: str
    """TERM, SNAPSHOT or STANDBY_SNAPSHOT."""
    is_valid: bool
    """False for one that was invalidated."""
    recording_id: int
    """The recording of the log or the snapshot; of a standby snapshot in the archive that has it."""
    leadership_term_id: int
    """The term."""
    term_base_log_position: int
    """Log position at which the term begins."""
    log_position: int | None
    """A term's end, null while it is open; a snapshot's position."""
    timestamp: int
    """In the cluster's time unit."""
    service_id: int | None
    """The service of a snapshot; null for the consensus module's and for a term."""
    archive_endpoint: str | None
    """Archive that has a standby snapshot."""


class RecordingLog(Facts):
    """`recording-log`: terms and snapshots of a member, in the order of recovery."""

    path: str
    """The file."""
    is_sorted: bool
    """True if the file has them in this order."""
    entries: list[LogEntry]
    """All entries."""


class RecordingLogChange(Facts):
    """Result of a word that changes the recording log."""

    path: str
    """The file."""
    has_changed: bool
    """False when there was nothing to change."""
    backup: str | None
    """The file as it was before; null when nothing has changed."""
    invalidated: list[LogEntry]
    """Entries that no longer count, as they were before."""
    entry_count: int
    """Entries in the file now."""


class PlanSnapshot(Facts):
    """A snapshot that a start would load."""

    recording_id: int
    """Its recording."""
    leadership_term_id: int
    """Its term."""
    term_base_log_position: int
    """Log position at which that term begins."""
    log_position: int
    """The position that it represents."""
    timestamp: int
    """In the cluster's time unit."""
    service_id: int | None
    """Null for the consensus module's."""


class PlanLog(Facts):
    """The log that a start would replay."""

    recording_id: int
    """Its recording."""
    leadership_term_id: int
    """The last term."""
    term_base_log_position: int
    """Log position at which that term begins."""
    log_position: int | None
    """End of that term; null while it is open."""
    start_position: int
    """From where it would be replayed."""
    stop_position: int | None
    """End of the recording by the catalog; null while it is recorded, and after a crash."""
    initial_term_id: int
    """Initial term id of the recording."""
    term_buffer_length: int
    """Term length of the recording, in bytes."""
    mtu_length: int
    """MTU of the recording, in bytes."""
    session_id: int
    """Aeron session of the recording."""


class RecoveryPlan(Facts):
    """`recovery-plan`: from what a start would continue."""

    service_count: int
    """For how many services it was made."""
    last_leadership_term_id: int | None
    """The last term; null without a log."""
    last_term_base_log_position: int
    """Log position at which that term begins."""
    appended_log_position: int
    """Up to where the log is recorded; upstream has -1 while it is recorded and after a crash."""
    committed_log_position: int
    """Up to where the recording log shows that it is committed."""
    snapshots: list[PlanSnapshot]
    """The consensus module's, then those of the services."""
    log: PlanLog | None
    """The log; null for a member that has none."""


class ErrorRecord(Facts):
    """A distinct error."""

    count: int
    """Number of occurrences."""
    first_ms: int
    """When first."""
    last_ms: int
    """When last."""
    text: str
    """The error's text."""


class ErrorLog(Facts):
    """The errors of one part of a node."""

    source: str
    """consensus module, backup, service N, archive or media driver."""
    path: str
    """The file that has them."""
    errors: list[ErrorRecord]
    """In the order in which they came first."""


class Errors(Facts):
    """`errors`: the error logs of all parts of a node."""

    logs: list[ErrorLog]
    """One for each part."""
    problems: list[str]
    """Files that could not be read, a sentence each."""


class ClusterMember(Facts):
    """A member, as the one that was asked knows it."""

    member_id: int
    """Its id."""
    is_leader: bool
    """True for the leader."""
    leadership_term_id: int | None
    """Its term."""
    log_position: int | None
    """End of its log, by the last election unless the leader was asked; null where the node does not say."""
    behind: int | None
    """Bytes that the leader's log is longer; null unless the leader was asked, to which all say how far they are."""
    time_of_last_append_ns: int | None
    """When its log grew last, by the clock of the leader; null for a member that the node has not heard from."""
    ingress_endpoint: str
    """For clients."""
    consensus_endpoint: str
    """For members."""
    log_endpoint: str
    """For the log."""
    catchup_endpoint: str
    """For a member that has fallen behind."""
    archive_endpoint: str
    """Endpoint of its archive."""


class Members(Facts):
    """`list-members`: the cluster, as one node knows it."""

    member_id: int | None
    """The node that was asked."""
    leader_member_id: int | None
    """Id of the leader; null during an election."""
    current_time_ns: int | None
    """Clock of the node."""
    has_current_positions: bool
    """True if the leader was asked; other members know only the positions of the last election."""
    members: list[ClusterMember]
    """All members."""


class Leadership(Facts):
    """`is-leader`: whether a node leads its cluster."""

    is_leader: bool
    """True if it leads and its election is over."""
    member_id: int | None
    """The node."""
    role: str | None
    """FOLLOWER, CANDIDATE or LEADER; null when it does not run."""
    election_state: str | None
    """CLOSED outside of an election; null when it does not run."""


class BackupQuery(Facts):
    """`backup-query-delay`: when a backup asks its cluster next."""

    next_query_ms: int
    """When it asks next."""
    delay_ms: int
    """In how many milliseconds that is; negative when it is over."""
    has_changed: bool
    """True if this command set it."""


class ControlResult(Facts):
    """`snapshot`, `suspend`, `resume`, `shutdown` or `abort`: what became of it."""

    action: str
    """The action asked for."""
    is_done: bool
    """True if the node has finished the action."""
    member_id: int | None
    """The node."""
    state: str | None
    """State of its consensus module then; null when it has ended."""
    reason: str | None
    """Why it was not done."""
    snapshot: list[LogEntry]
    """The snapshot that was taken, by the node's recording log."""
    errors: list[ErrorLog]
    """Errors that came meanwhile."""
    duration_ms: int
    """Duration, in milliseconds."""


class SnapshotSession(Facts):
    """A client session in a snapshot."""

    cluster_session_id: int
    """Its id."""
    correlation_id: int | None
    """The client's connect request; null in a service's snapshot."""
    opened_log_position: int | None
    """Log position at which it was opened; null in a service's snapshot."""
    close_reason: str | None
    """Why it is being closed; null while it is open."""
    response_stream_id: int
    """Stream of its answers."""
    response_channel: str
    """Channel of its answers."""
    principal: str | None
    """Identity of the client, in hexadecimal digits; null in the consensus module's snapshot."""


class SnapshotTimer(Facts):
    """A timer that has not fired."""

    correlation_id: int
    """Its id."""
    deadline: int
    """In the cluster's time unit."""


class PendingMessages(Facts):
    """Message that a service has sent to its own cluster, and that is not in the log yet."""

    service_id: int
    """The service."""
    next_service_session_id: int
    """Id of its next message."""
    log_service_session_id: int
    """Id of its last one in the log; the least of all numbers before the first."""
    pending_message_capacity: int
    """Bytes of the queue."""
    message_count: int
    """Messages in the snapshot."""


class ConsensusModuleSnapshot(Facts):
    """`describe-latest-consensus-module-snapshot`: sessions, timers and what services have sent."""

    recording_id: int
    """Its recording."""
    log_position: int
    """The position that it represents."""
    leadership_term_id: int
    """Its term."""
    length: int
    """Bytes of the recording up to its end marker."""
    time_unit: str | None
    """Unit of the cluster's times."""
    app_version: str | None
    """Version of the application."""
    next_session_id: int | None
    """The next client session."""
    next_service_session_id: int | None
    """The next message of a service to its cluster."""
    log_service_session_id: int
    """The last message of a service in the log; the least of all numbers before the first."""
    pending_message_capacity: int
    """Bytes of the queue of such messages."""
    sessions: list[SnapshotSession]
    """Client sessions."""
    timers: list[SnapshotTimer]
    """Timers."""
    pending: list[PendingMessages]
    """For each service."""


class ServiceSnapshot(Facts):
    """`describe-latest-service-snapshot`: sessions, and the size of the service's own state."""

    service_id: int
    """The service."""
    recording_id: int
    """Its recording."""
    log_position: int
    """The position that it represents."""
    leadership_term_id: int
    """Its term."""
    time_unit: str | None
    """Unit of the cluster's times."""
    app_version: str | None
    """Version of the application."""
    sessions: list[SnapshotSession]
    """Client sessions."""
    state_message_count: int
    """Messages of the service's own state."""
    state_length: int
    """Bytes of these."""


class Counter(Facts):
    """A counter of a media driver."""

    counter_id: int
    """Its id."""
    type_id: int
    """Its type."""
    value: int
    """Its value."""
    meaning: str | None
    """Meaning of the value, such as LEADER or ACTIVE; null for a plain number."""
    label: str
    """Its label."""
    registration_id: int
    """Id by which its owner registered it."""
    owner_id: int
    """The client that owns it."""


class Counters(Facts):
    """`counters`: what the parts of a node count."""

    aeron_dir: str
    """Directory of the media driver."""
    driver_pid: int
    """Its process."""
    is_driver_alive: bool
    """True if it has shown a sign of life lately; counters of a dead one keep their values."""
    counters: list[Counter]
    """In the order of their ids."""


class StreamPosition(Facts):
    """A position of a stream."""

    name: str
    """Which one, such as pub-pos, snd-lmt or sub-pos."""
    registration_id: int
    """Id of the publication, image or subscription."""
    value: int
    """In bytes; of NAKs and back pressure how often."""


class Stream(Facts):
    """A stream that the media driver carries."""

    session_id: int
    """Its session."""
    stream_id: int
    """Its stream."""
    channel: str
    """Its channel."""
    positions: list[StreamPosition]
    """Its counted positions."""


class Streams(Facts):
    """`streams`: the positions of all streams of a media driver."""

    aeron_dir: str
    """Directory of the media driver."""
    streams: list[Stream]
    """By channel, stream and session."""


class LossEntry(Facts):
    """Loss on one stream."""

    observation_count: int
    """Number of observed losses."""
    total_bytes_lost: int
    """Bytes lost in all."""
    first_ms: int
    """When first."""
    last_ms: int
    """When last."""
    session_id: int
    """Its session."""
    stream_id: int
    """Its stream."""
    channel: str
    """Its channel."""
    source: str
    """Address of its sender."""


class Loss(Facts):
    """`loss`: what the media driver has not received the first time."""

    path: str
    """The loss report."""
    entries: list[LossEntry]
    """One for each stream with loss."""


class Backlog(Facts):
    """Backlog of a stream: what is written, and not yet sent or read."""

    session_id: int
    """Its session."""
    stream_id: int
    """Its stream."""
    channel: str
    """Its channel."""
    publisher_position: int | None
    """Up to where it is written; null where this driver does not publish it."""
    publisher_window: int | None
    """Bytes until its publisher feels back pressure."""
    sender_backlog: int | None
    """Bytes written and not sent; null for IPC."""
    sender_window: int | None
    """Bytes that receivers still let it send."""
    receiver_position: int | None
    """Up to where it is received without a gap; null where this driver does not receive it."""
    receiver_gap: int | None
    """Bytes between that and the highest position heard of."""
    subscriber_backlog: int | None
    """Bytes that the slowest subscriber has not read."""


class Backlogs(Facts):
    """`backlog`: where the streams of a media driver pile up."""

    aeron_dir: str
    """Directory of the media driver."""
    streams: list[Backlog]
    """By channel, stream and session."""


class ServiceStatus(Facts):
    """A service of a node."""

    service_id: int | None
    """Its id."""
    state: str
    """As in `describe`."""
    pid: int
    """Its process."""
    activity_timestamp_ms: int | None
    """Its last sign of life; null after an orderly end and while it starts."""
    error_count: int
    """Distinct errors in its error log."""


class BackupStatus(Facts):
    """A backup that runs."""

    state: str
    """BACKUP_QUERY, SNAPSHOT_RETRIEVE, LIVE_LOG_RECORD, LIVE_LOG_REPLAY, UPDATE_RECORDING_LOG, BACKING_UP,
    RESET_BACKUP or CLOSED."""
    live_log_position: int | None
    """Up to where it has recorded the log since its start."""
    next_query_ms: int | None
    """When it asks a member again."""
    snapshot_count: int | None
    """Snapshots that it has copied since its start."""
    error_count: int | None
    """Errors counted since its start."""


class Status(Facts):
    """`status`: a node on one page."""

    cluster_dir: str
    """Its directory."""
    member_id: int | None
    """Its member."""
    cluster_id: int
    """Its cluster."""
    component: str
    """CONSENSUS_MODULE, BACKUP or STANDBY, as in `describe`."""
    node: str
    """State of its consensus module's process, as in `describe`."""
    pid: int
    """Its process."""
    activity_timestamp_ms: int | None
    """Last sign of life of its consensus module; null after an orderly end and while it starts."""
    is_driver_alive: bool
    """True if its media driver shows signs of life."""
    archive: str
    """State of its archive, as in `describe`; unknown without one beside or below."""
    archive_activity_timestamp_ms: int | None
    """Last sign of life of its archive; null after an orderly end and while it starts."""
    archive_id: int | None
    """Id of its archive; null where that is not known."""
    module_state: str | None
    """INIT, ACTIVE, SUSPENDED, SNAPSHOT, QUITTING, TERMINATING or CLOSED; null when it does not run."""
    role: str | None
    """FOLLOWER, CANDIDATE or LEADER."""
    election_state: str | None
    """CLOSED outside of an election."""
    election_count: int | None
    """Elections since its start."""
    leadership_term_id: int | None
    """The term."""
    commit_position: int | None
    """Up to where the log is committed."""
    log_start_position: int | None
    """Start of the log in its archive; older parts were deleted."""
    recorded_position: int | None
    """Up to where its archive has recorded the log."""
    control_toggle: str | None
    """Action that was asked for and is not done yet; NEUTRAL when there is none, INACTIVE on a follower."""
    snapshot_count: int | None
    """Snapshots since its start."""
    snapshots_retained: int | None
    """Number of snapshots that it keeps, with the log from the oldest on; 0: all. Null when it does not run."""
    last_snapshot: LogEntry | None
    """The snapshot that a start would load."""
    consensus_module_errors: int | None
    """Errors counted since its start."""
    timed_out_clients: int | None
    """Clients that were lost since its start."""
    backup: BackupStatus | None
    """State and progress of a backup; null of a member, and of a backup that does not run."""
    services: list[ServiceStatus]
    """Its services."""
    problems: list[str]
    """Parts that could not be read, a sentence each."""


class Health(Facts):
    """`health`: an answer for a probe."""

    check: str
    """live, ready or leader."""
    is_healthy: bool
    """True if it meets all needs of the check."""
    reasons: list[str]
    """Needs that are not met, a sentence each."""
    member_id: int | None
    """The node."""
    module_state: str | None
    """As in `status`."""
    role: str | None
    """As in `status`."""
    waited_ms: int
    """Time until it became healthy, or until the time limit."""


class Recording(Facts):
    """A recording in an archive."""

    recording_id: int
    """Its id."""
    state: str
    """VALID, INVALID or DELETED."""
    control_session_id: int
    """The client that extended it; 0 until then."""
    correlation_id: int
    """That client's request."""
    start_timestamp_ms: int
    """When it began."""
    stop_timestamp_ms: int | None
    """When it ended; null while it is recorded, and after a crash."""
    start_position: int
    """Start of the recording."""
    stop_position: int | None
    """End by the catalog; null while it is recorded, and after a crash."""
    recorded_position: int | None
    """Up to where it is recorded; null where the files do not say."""
    initial_term_id: int
    """Term id at position 0."""
    segment_file_length: int
    """Bytes of a segment file."""
    term_buffer_length: int
    """Bytes of a term."""
    mtu_length: int
    """The longest frame."""
    session_id: int
    """Its Aeron session."""
    stream_id: int
    """Its Aeron stream."""
    segment_count: int
    """Segment files that are there."""
    stripped_channel: str
    """The channel without what does not matter for recording."""
    original_channel: str
    """The channel as it was asked for."""
    source_identity: str
    """Address of the sender, or `aeron:ipc`."""


class Recordings(Facts):
    """`archive list` and `archive describe`: the recordings of an archive."""

    archive_dir: str
    """Its directory."""
    archive: str
    """State of the archive, as in `describe`."""
    pid: int | None
    """Its process."""
    archive_id: int | None
    """Its id; null where that is not known."""
    start_timestamp_ms: int | None
    """When it was started."""
    activity_timestamp_ms: int | None
    """Its last sign of life; null after an orderly end and while it starts."""
    aeron_directory: str
    """Directory of its media driver."""
    recordings: list[Recording]
    """In the order of the catalog."""


class VerifiedRecording(Facts):
    """Findings in one recording."""

    recording_id: int
    """Its id."""
    is_intact: bool
    """True if nothing is wrong with it."""
    verified_from: int
    """From which position on frames were read."""
    verified_to: int
    """Up to which position they are whole."""
    frame_count: int
    """Frames that were read."""
    problems: list[str]
    """Faults, a sentence each."""


class Verification(Facts):
    """`archive verify`: whether recordings are what the catalog says; nothing is changed."""

    archive_dir: str
    """Its directory."""
    is_intact: bool
    """True if nothing is wrong with any recording."""
    recordings: list[VerifiedRecording]
    """In the order of the catalog."""


class Deletion(Facts):
    """`archive delete-snapshots` and `archive purge`: what was deleted."""

    archive_dir: str
    """Its directory."""
    has_changed: bool
    """False when there was nothing to delete."""
    deleted_recordings: list[int]
    """Recordings of snapshots that are gone."""
    invalidated: list[LogEntry]
    """Entries of the recording log that no longer count, as they were before."""
    recording_id: int | None
    """The recording whose beginning was to go; null for snapshots."""
    start_position: int | None
    """Its start now."""
    deleted_segments: int
    """Its segment files that are gone."""
    freed_bytes: int
    """Disk space that the archive's recordings no longer take, in bytes."""


class Frame(Facts):
    """`archive dump`: a frame of a recording; with `--json` one on each line."""

    recording_id: int
    """Its recording."""
    position: int
    """Position at which the frame begins."""
    frame_length: int
    """Bytes with its header."""
    type: str
    """DATA or PAD."""
    flags: int
    """0x80 a message begins, 0x40 it ends."""
    term_id: int
    """Its Aeron term."""
    term_offset: int
    """Its offset there."""
    session_id: int
    """Its Aeron session, or the checksum of its payload."""
    stream_id: int
    """Its Aeron stream."""
    reserved_value: int
    """Its reserved value."""
    payload: str | None
    """Its bytes in hexadecimal digits; null for padding."""


class LogMessage(Facts):
    """`log`: a message of the cluster's log; with `--json` one on each line."""

    log_position: int
    """End of the message: what a service sees as position."""
    begin_position: int
    """Log position at which the message begins."""
    is_committed: bool
    """True if a majority certainly has it; an election may remove the others."""
    message: str
    """Its name in Aeron's schema, or unknown."""
    template_id: int
    """Its number there."""
    leadership_term_id: int | None
    """Its term."""
    timestamp: int | None
    """Cluster time, in the cluster's time unit."""
    cluster_session_id: int | None
    """The client's session; negative when a service sent it."""
    correlation_id: int | None
    """A timer's id, or a session's connect request."""
    fields: dict[str, int | str | None]
    """Other fields of the message."""
    length: int
    """Bytes of the payload of a session message, else of the whole message."""
    payload: str | None
    """Its bytes in hexadecimal digits, of a session message and of an unknown one, with `--payload`."""


class Version(Facts):
    """`--version`: what runs here."""

    version: str
    """Version of this package."""
    aeron: str
    """Release of Aeron that files and messages are those of."""
    python: str
    """Version of the interpreter."""
