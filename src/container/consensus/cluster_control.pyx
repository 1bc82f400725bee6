"""Control of a cluster by tools and clients: the toggles of its leader's counters, and admin requests."""
from libc.stdint cimport int32_t, int64_t

from container.codecs.cluster cimport (
    ADMIN_REQUEST_TEMPLATE_ID, ADMIN_REQUEST_TYPE_SNAPSHOT, ADMIN_RESPONSE_CODE_ERROR, ADMIN_RESPONSE_CODE_OK,
    ADMIN_RESPONSE_CODE_UNAUTHORISED_ACCESS, CLUSTER_ACTION_RESUME, CLUSTER_ACTION_SNAPSHOT, CLUSTER_ACTION_SUSPEND,
)
from container.common.sealed cimport seal
from container.consensus cimport egress_publisher
from container.consensus.archive_upkeep cimport ArchiveUpkeep
from container.consensus.cluster_session cimport ClusterSession
from container.consensus.consensus_counters cimport (
    NODE_TOGGLE_VALIDATE_RECORDING_LOG, TOGGLE_ABORT, TOGGLE_INACTIVE, TOGGLE_NEUTRAL, TOGGLE_RESUME, TOGGLE_SHUTDOWN,
    TOGGLE_SNAPSHOT, TOGGLE_STANDBY_SNAPSHOT, TOGGLE_SUSPEND,
)
from container.consensus.log_commit cimport LogCommit
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.member_status cimport STATE_ACTIVE, STATE_SUSPENDED, MemberStatus
from container.consensus.member_termination cimport MemberTermination
from container.consensus.session_manager cimport SessionManager
from container.errors import ClusterEvent

cdef enum:                                      # flags of an action in the log
    ACTION_FLAGS_DEFAULT = 0
    ACTION_FLAGS_STANDBY_SNAPSHOT = 1


cdef class ClusterControl:
    """Suspends and resumes the cluster, takes its snapshots, ends it; for the leader.

    Args:
        context: concluded (ConsensusModuleContext).
        status, sessions, log_publisher, commit, termination, snapshots, upkeep: of this member.
    """

    def __init__(self, context, MemberStatus status not None, SessionManager sessions not None,
                 LogPublisher log_publisher not None, LogCommit commit not None,
                 MemberTermination termination not None, MemberSnapshots snapshots not None,
                 ArchiveUpkeep upkeep not None):
        self._on_error, self._counters = context.counted_error_handler, context.counters
        self._cluster_clock, self._status, self._sessions = context.cluster_clock, status, sessions
        self._log_publisher, self._commit, self._termination = log_publisher, commit, termination
        self._snapshots, self._upkeep = snapshots, upkeep

    cdef int poll(self, int64_t now_ns) except -1:
        """Do what the toggle of the cluster asks for; how much was done."""
        cdef int64_t toggle = self._counters.control_toggle.get()
        if toggle == TOGGLE_NEUTRAL or toggle == TOGGLE_INACTIVE:
            return 0
        if toggle < 0 or toggle > TOGGLE_STANDBY_SNAPSHOT:
            self._on_error(ClusterEvent(f"invalid toggle value: {toggle}"))
            self._counters.control_toggle.set(TOGGLE_NEUTRAL)
        elif self._status.state == STATE_ACTIVE:
            return self._poll_active(toggle, now_ns)
        elif self._status.state == STATE_SUSPENDED and toggle == TOGGLE_RESUME:
            if self._append(CLUSTER_ACTION_RESUME) > 0:
                self._status.set_state(STATE_ACTIVE, "RESUME")
                self._sessions.refresh_activity()       # what clients sent meanwhile was not read
                self._counters.control_toggle.set(TOGGLE_NEUTRAL)
            return 1
        return 0

    cdef int _poll_active(self, int64_t toggle, int64_t now_ns) except -1:
        if toggle == TOGGLE_SUSPEND:
            if self._append(CLUSTER_ACTION_SUSPEND) == 0:
                return 0
            self._status.set_state(STATE_SUSPENDED, "SUSPEND")
            return 1
        if (toggle == TOGGLE_SNAPSHOT or toggle == TOGGLE_SHUTDOWN) and not self._snapshots.has_space:
            return self._snapshots.ask_for_space()
        if toggle == TOGGLE_SNAPSHOT:
            self._begin_snapshot(now_ns, "SNAPSHOT")
            return 1
        if toggle == TOGGLE_STANDBY_SNAPSHOT:
            if self._log_publisher.append_cluster_action(
                    self._status.leadership_term_id, self._cluster_clock.time(), CLUSTER_ACTION_SNAPSHOT,
                    ACTION_FLAGS_STANDBY_SNAPSHOT) > 0:
                self._counters.control_toggle.set(TOGGLE_NEUTRAL)
            return 1
        if toggle == TOGGLE_SHUTDOWN:
            return self._begin_shutdown(now_ns)
        return self._begin_abort(now_ns) if toggle == TOGGLE_ABORT else 0

    cdef int poll_node(self) except -1:
        """Do what the toggle of the node asks for; how much was done."""
        cdef int64_t toggle = self._counters.node_control_toggle.get()
        if toggle == TOGGLE_NEUTRAL or toggle == TOGGLE_INACTIVE:
            return 0
        self._counters.node_control_toggle.set(TOGGLE_NEUTRAL)
        if toggle == NODE_TOGGLE_VALIDATE_RECORDING_LOG:
            self._upkeep.is_validation_wanted = True
        else:
            self._on_error(ClusterEvent(f"node control toggle {toggle} asks for what this consensus module cannot do"))
        return 1

    cdef bint request_snapshot(self) except -1:
        """Ask for a snapshot, as a tool does; whether it could be asked for. For any thread."""
        if self._status.state != STATE_ACTIVE or self._counters.control_toggle.get() != TOGGLE_NEUTRAL:
            return False
        self._snapshots.forget_failure()
        self._counters.control_toggle.set(TOGGLE_SNAPSHOT)
        return True

    cdef int on_admin_request(self, ClusterSession session, int64_t correlation_id, int32_t request_type) except -1:
        """Do what the client of an open session asks for, and answer it."""
        code, text = self._answer(session, request_type)
        egress_publisher.send_admin_response(session.publication, session.id, correlation_id, request_type, code, text)
        return 0

    def _answer(self, ClusterSession session, int32_t request_type):
        name = "SNAPSHOT" if request_type == ADMIN_REQUEST_TYPE_SNAPSHOT else str(request_type)
        if not self._sessions.may(ADMIN_REQUEST_TEMPLATE_ID, request_type, session):
            return ADMIN_RESPONSE_CODE_UNAUTHORISED_ACCESS, f"Execution of the {name} request was not authorised"
        if request_type != ADMIN_REQUEST_TYPE_SNAPSHOT:
            return ADMIN_RESPONSE_CODE_ERROR, f"Unknown request type: {name}"
        if self._counters.control_toggle.get() != TOGGLE_NEUTRAL:
            return ADMIN_RESPONSE_CODE_ERROR, "Failed to switch ClusterControl to the ToggleState.SNAPSHOT state"
        self._counters.control_toggle.set(TOGGLE_SNAPSHOT)
        return ADMIN_RESPONSE_CODE_OK, ""

    cdef int64_t _append(self, int32_t action) except -1:
        """Append an action that ends the state of just now; return its position, 0 where the log did not take it."""
        cdef int64_t position = self._log_publisher.append_cluster_action(
            self._status.leadership_term_id, self._cluster_clock.time(), action, ACTION_FLAGS_DEFAULT)
        if position <= 0:
            return 0
        self._commit.note_state(position)
        return position

    cdef bint _begin_snapshot(self, int64_t now_ns, str reason) except -1:
        cdef int64_t position = self._append(CLUSTER_ACTION_SNAPSHOT)
        if position == 0:
            return False
        self._snapshots.await_services(position, now_ns, reason)
        return True

    cdef int _begin_shutdown(self, int64_t now_ns) except -1:
        if not self._begin_snapshot(now_ns, "SHUTDOWN"):
            return 0
        self._termination.begin(now_ns, self._log_publisher.position())
        return 1

    cdef int _begin_abort(self, int64_t now_ns) except -1:
        self._termination.begin(now_ns, self._log_publisher.position())
        self._termination.tell_services("ABORT")
        return 1


seal((ClusterControl,))
