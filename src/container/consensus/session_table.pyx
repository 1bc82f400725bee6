"""The sessions that are in the log, by their ids, without an object for an id: each message of a client is looked up.

Upstream: SessionManager.java (sessionByIdMap, sessions).
"""
from libc.stdint cimport int64_t

from container.common.sealed cimport seal
from container.consensus.cluster_session cimport ClusterSession
from container.consensus.long_map cimport NOT_IN_MAP, LongMap


def _id_of(ClusterSession session):
    return session.id


cdef class SessionTable:
    """Sessions by their ids."""

    def __cinit__(self):
        self._places = LongMap()
        self.sessions = []

    def __len__(self):
        return len(self.sessions)

    cpdef ClusterSession find(self, int64_t cluster_session_id):
        """The session with an id, or None."""
        cdef int64_t place = self._places.get(cluster_session_id)
        return None if place == NOT_IN_MAP else <ClusterSession> self.sessions[place]

    cpdef int add(self, ClusterSession session) except -1:
        """Add a session, in place of one with the same id if there is one."""
        cdef int64_t place = self._places.get(session.id)
        if place == NOT_IN_MAP:
            self._places.put(session.id, len(self.sessions))
            self.sessions.append(session)
        else:
            self.sessions[place] = session
        return 0

    cpdef int remove(self, int64_t cluster_session_id) except -1:
        """Remove the session with an id, if there is one; the last one takes its place."""
        cdef int64_t place = self._places.remove(cluster_session_id)
        cdef ClusterSession last
        if place != NOT_IN_MAP:
            last = self.sessions.pop()
            if last.id != cluster_session_id:
                self.sessions[place] = last
                self._places.put(last.id, place)
        return 0

    cpdef list in_order(self):
        """All sessions by their ids, as a new list."""
        return sorted(self.sessions, key=_id_of)


seal((SessionTable,))
