"""Replays of the leader's log for members that are behind: from where a member has it, to its catch-up endpoint.

Upstream: ConsensusModuleAgent.java (onCatchupPosition, trackCatchupCompletion, stopAllCatchups).
"""
from libc.stdint cimport INT64_MAX, int64_t

from container.archive import error_codes
from container.archive.client.archive_connection cimport ArchiveRequest
from container.archive.client.async_archive cimport AsyncArchive
from container.common.error_texts import message_of
from container.common.sealed cimport hide, seal
from container.consensus import channels
from container.consensus.cluster_member cimport ClusterMember
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.election_host import APPEND_POSITION_FLAG_CATCHUP
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording
from container.errors import ArchiveError, ClusterEvent
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport Client

cdef enum:
    RETRY_INTERVAL_NS = 100_000_000

cdef int FLAG_CATCHUP = APPEND_POSITION_FLAG_CATCHUP

_TOO_SHORT = (
    "; where this member has deleted that part of the log (aeron.cluster.snapshots.retained), start that one with the "
    "archive's and the cluster's directories of a backup")


cdef class CatchupReplay:
    """A replay of the log for one member."""


cdef class FollowerCatchups:
    """Has the archive replay the log, one replay for each follower that asks.

    Args:
        context: concluded (ConsensusModuleContext).
        archive: of the member (AsyncArchive).
        publisher: says StopCatchup (ConsensusPublisher).
        log_publisher, recording: of this member.
    """

    def __init__(self, context, AsyncArchive archive not None, ConsensusPublisher publisher not None,
                 LogPublisher log_publisher not None, LogRecording recording not None):
        cdef Client client = context.client
        self._settings, self._on_error = context.settings, context.counted_error_handler
        self._clock = client.clock
        self._archive, self._publisher, self._log_publisher = archive, publisher, log_publisher
        self._recording, self._replays, self._reached, self._given_up = recording, {}, set(), []

    cdef int begin(self, ClusterMember follower, int64_t log_position, str endpoint) except -1:
        """Replay the log to a member from a position on, unless a replay to it is in progress."""
        cdef CatchupReplay replay
        if follower.id in self._replays:
            return 0
        replay = CatchupReplay.__new__(CatchupReplay)
        replay.log_position, replay.endpoint = log_position, endpoint
        # Before its member canvasses again, so that it is reported.
        replay.deadline_ns = self._clock.nano_time() + self._settings.leader_heartbeat_timeout_ns * 3 // 4
        self._replays[follower.id] = replay
        self._reached.add(follower.id)
        return self._ask(follower.id, replay)

    cdef int _ask(self, int32_t member_id, CatchupReplay replay) except -1:
        replay.request = self._archive.replay(
            self._recording.recording_id, replay.log_position, INT64_MAX, channels.catchup_channel(
                self._settings.follower_catchup_channel, replay.endpoint, self._log_publisher.session_id(), member_id),
            self._settings.log_stream_id, NULL_VALUE)
        self._archive.follow(replay.request)    # what ends the replay later is an error of this one as well
        return 0

    cdef int poll(self) except -1:
        """Report a replay that has failed, and forget it: its member asks again.

        One that does not begin is asked for again for as long as its member waits: the publication of the replay
        before, which has the same session, takes a while to go.
        """
        cdef CatchupReplay replay
        cdef ArchiveRequest request
        cdef list given_up
        if self._replays:
            for member_id, replay in list(self._replays.items()):
                if replay.request.error is None:
                    replay.has_begun = replay.request.is_done
                elif self._is_given_up(member_id, replay):
                    del self._replays[member_id]
                    advice = _TOO_SHORT if self._is_too_short(replay.request) else ""
                    self._on_error(ClusterEvent(
                        f"catchup replay of member {member_id} failed - {message_of(replay.request.error)}{advice}"))
        if self._given_up:
            given_up, self._given_up = self._given_up, []
            for request in given_up:
                self._end(request)
        return 0

    cdef bint _is_too_short(self, ArchiveRequest request) except -1:
        error = request.error
        return isinstance(error, ArchiveError) and error.code == error_codes.INVALID_POSITION

    cdef bint _is_given_up(self, int32_t member_id, CatchupReplay replay) except -1:
        cdef int64_t now_ns = self._clock.nano_time()
        if replay.has_begun or self._is_too_short(replay.request) or now_ns >= replay.deadline_ns:
            return True
        if replay.due_ns == 0:
            replay.due_ns = now_ns + RETRY_INTERVAL_NS
        elif now_ns >= replay.due_ns:
            replay.due_ns = 0
            self._ask(member_id, replay)
        return False

    cdef int complete(self, ClusterMember follower, int64_t leadership_term_id, int flags) except -1:
        """End the replay of a member that has said it has all that is published, and say so to it."""
        if (follower.id in self._replays or flags & FLAG_CATCHUP) and (
                follower.log_position >= self._log_publisher.position()):
            self.stop(follower)
            # Lost, it is said again to the next AppendPosition, which still has the flag.
            self._publisher.stop_catchup(follower, leadership_term_id)
        return 0

    cdef bint is_of_this_log(self, ClusterMember follower, int flags) except -1:
        """Whether a member of upstream's says of this leader's log, in the term that it has read, what it records."""
        return bool(flags & FLAG_CATCHUP and follower.is_upstream() and follower.id in self._reached)

    cdef int stop(self, ClusterMember follower) except -1:
        """End the replay of a member, if there is one."""
        cdef CatchupReplay replay = self._replays.pop(follower.id, None)
        if replay is not None:
            self._end(replay.request)
        return 0

    cdef int _end(self, ArchiveRequest request) except -1:
        if not request.is_done:
            self._given_up.append(request)
        elif request.error is None:
            self._archive.forget(request)
            try:
                self._archive.stop_replay(request.relevant_id)
            except ArchiveError as error:
                self._on_error(error)
        return 0

    cdef int stop_all(self) except -1:
        """End them all: this member leads no more."""
        cdef CatchupReplay replay
        cdef dict replays = self._replays
        self._replays = {}
        self._reached.clear()
        for replay in replays.values():
            self._end(replay.request)
        return 0


hide((CatchupReplay,))
seal((FollowerCatchups,))
