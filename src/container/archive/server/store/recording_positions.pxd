# How far the recordings in progress are written: archive.positions, a file beside the catalog, which upstream ignores.
from libc.stdint cimport int64_t, uint8_t

from container.storage.storage_seam cimport Storage, StorageFile, StorageMap


cdef class RecordingPosition:                   # of one recording in progress
    cdef readonly int64_t recording_id
    cdef RecordingPositions _owner              # None once closed
    cdef StorageMap _map
    cdef int64_t _offset                        # of its place in the map
    # Move the position: a store through a map, which survives the end of the process, and not of power.
    cpdef int set(self, int64_t position) except -1
    cpdef int force(self) except -1             # what is set survives the end of power
    cpdef int close(self) except -1             # frees the place: the catalog has the stop position
    cdef uint8_t* _place(self) except NULL


cdef class RecordingPositions:
    cdef readonly str path
    cdef readonly int sync_level
    cdef Storage _storage
    cdef str _directory
    cdef bytes _former                          # the file as it was found, empty when it is not to be believed
    cdef bint _is_same_boot
    cdef dict _known                            # recording id -> list of (identity, position), as found
    cdef dict _truncations                      # recording id -> position; in the file too, once it is ours
    cdef StorageFile _file                      # None until the ownership has begun, and once closed
    cdef list _maps                             # StorageMap: each PAGE bytes of the file
    cdef list _free                             # places as (StorageMap, offset); the next one is the last
    cdef dict _notes                            # recording id -> its truncation's RecordingPosition
    cpdef int begin_recovery(self, object owner) except -1      # a crash from here on does not lose what is known
    cpdef int begin_ownership(self, object owner) except -1     # once recovery is over: places can be taken
    cpdef RecordingPosition begin(self, object descriptor, int64_t position)    # forces it at level 1 and 2
    cpdef object known(self, object descriptor)                 # KnownPosition(position, is_exact) or None
    cpdef int note_truncation(self, int64_t recording_id, int64_t position) except -1   # before the catalog changes
    cpdef int end_truncation(self, int64_t recording_id) except -1      # once the tail is zero, the files are gone
    cpdef dict truncations(self)                                # recording id -> position, to be redone at a start
    cpdef int close(self) except -1             # may be called twice
    cdef int _load(self, object owner) except -1
    cdef int _load_place(self, bytes place) except -1
    cdef int _map_page(self, int64_t begin) except -1
    cdef int _replace_file(self, bytes content) except -1
    cdef int _grow(self) except -1
    cdef RecordingPosition _take(self, int kind, int64_t recording_id, bytes identity, int64_t position)
    cdef int _check_owned(self) except -1
