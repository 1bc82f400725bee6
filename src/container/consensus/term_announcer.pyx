"""NewLeadershipTerm: that this member leads a term, and what follows a member's last term in its log.

Upstream: Election.java (publishNewLeadershipTerm), ConsensusModuleAgent.java (onCanvassPosition).
"""
from libc.stdint cimport int32_t, int64_t

from container.common.sealed cimport seal
from container.consensus.cluster_member cimport ClusterMember
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.log_recording cimport LogRecording
from container.transport.frames cimport NULL_VALUE

cdef enum:
    NULL_POSITION = -1


cdef class TermAnnouncer:
    """Says to members who leads.

    Args:
        context: concluded (ConsensusModuleContext).
        publisher: what sends it (ConsensusPublisher).
        recording: of this member.
    """

    def __init__(self, context, ConsensusPublisher publisher not None, LogRecording recording not None):
        self._recording_log, self._cluster_clock = context.recording_log, context.cluster_clock
        self._publisher, self._recording = publisher, recording
        self._app_version = context.settings.app_version

    cdef bint announce(
            self, ClusterMember member, int64_t log_leadership_term_id, int64_t leadership_term_id,
            int64_t term_base_log_position, int64_t log_position, int64_t commit_position, int32_t log_session_id,
            bint is_startup, bint is_in_election) except -1:
        """Say to a member whose log ends in ``log_leadership_term_id`` that this one leads ``leadership_term_id``.

        In an election a term without an end in the recording log ends where the log does; later on it has none.
        """
        cdef int64_t next_term_id = NULL_VALUE, next_base = NULL_POSITION, next_position = NULL_POSITION
        if is_in_election or log_leadership_term_id < leadership_term_id:
            following = self._following_term(
                log_leadership_term_id, member.log_position if member.is_upstream() else NULL_POSITION)
            if following is None:
                next_term_id, next_base = leadership_term_id, term_base_log_position
            else:
                next_term_id, next_base = following.leadership_term_id, following.term_base_log_position
                next_position = following.log_position
                if next_term_id == log_leadership_term_id and not member.is_upstream():
                    # It may have that term as an empty one, and then compares its log by the last one before. That is
                    # mostly the same here: so it need not ask.
                    filled = self._recording_log.find_last_filled_term(next_term_id, next_base)
                    if filled is not None:
                        self.announce(
                            member, filled.leadership_term_id, leadership_term_id, term_base_log_position, log_position,
                            commit_position, log_session_id, is_startup, is_in_election)
                if is_in_election and next_position == NULL_POSITION:
                    next_position = log_position
        return self._publisher.new_leadership_term(
            member, log_leadership_term_id, next_term_id, next_base, next_position, leadership_term_id,
            term_base_log_position, log_position, commit_position, self._recording.recording_id,
            self._cluster_clock.time(), log_session_id, self._app_version, is_startup)

    cdef object _following_term(self, int64_t log_leadership_term_id, int64_t log_position):
        """The next term (RecordingLogEntry) after a member's last one that this log has something of, or None.

        Upstream says the very next one, so that a member goes through all that are empty, one message each.

        It is the member's last one itself where nothing of that is in this log, and it begins here behind a position:
        that of a member of upstream's, whose log is of an older term then, and -1 for a native one. That one takes back
        what it has of a term that nobody else has, wherever it would begin here. A gap hides no such term.
        """
        own = self._recording_log.find_empty_term(log_leadership_term_id)
        if own is not None and own.term_base_log_position > log_position:
            return own
        return self._recording_log.find_term_after(log_leadership_term_id)


seal((TermAnnouncer,))
