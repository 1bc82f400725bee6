"""Messages of a recording as batches of columns: what the decoders of logs and of snapshots share."""
from container.common.sealed cimport hide
from container.recordings.columns cimport ColumnBatch, is_full
from container.recordings.message_reader cimport MessageReader

cdef enum:
    BATCH_BYTES = 16 * 1024 * 1024


cdef class BatchDecoder(MessageReader):
    """Decodes into a batch, which is taken when it is full; a subclass puts the rows."""

    cdef int _open_batch(self, object columns, dict indices, int batch_rows) except -1:
        """`columns` has the types by the names of the wanted columns, `indices` where each column of the view is."""
        kinds = [None] * len(indices)
        for name, kind in columns.items():
            kinds[indices[name]] = kind
        self._names = sorted(columns, key=indices.__getitem__)
        self._batch = ColumnBatch(kinds, batch_rows, BATCH_BYTES)
        return 0

    @property
    def rows(self):
        """Rows (int) of the batch in progress."""
        return self._batch.columns.rows

    @property
    def is_full(self):
        """Whether the batch in progress must be taken before another row is decoded (bool)."""
        return is_full(&self._batch.columns)

    def take(self):
        """The batch as a dict of column name to Arrow array; another one begins.

        The arrays own their memory. Raises MemoryError when there was too little for them.
        """
        return dict(zip(self._names, self._batch.take(), strict=True))


hide((BatchDecoder,))
