# Messages of a recording as batches of columns: what the decoders of logs and of snapshots share.
from container.recordings.columns cimport ColumnBatch
from container.recordings.message_reader cimport MessageReader


cdef class BatchDecoder(MessageReader):
    cdef ColumnBatch _batch             # None until _open_batch
    cdef list _names                    # of the wanted columns, in the order of their indices
    cdef int _open_batch(self, object columns, dict indices, int batch_rows) except -1
