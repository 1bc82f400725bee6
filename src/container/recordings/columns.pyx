"""Growing buffers in Arrow's layout, which become Arrow arrays without a copy."""
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from container.common.sealed cimport hide, seal

cdef enum:
    DATA_CAPACITY_MIN = 4096
    ROW_LIMIT_MAX = 1 << 24

cdef dict KINDS = {"int32": KIND_INT32, "int64": KIND_INT64, "bool": KIND_BOOL, "binary": KIND_BINARY,
                   "string": KIND_BINARY}


cdef class OwnedMemory:
    """Memory of malloc that is freed with this object; pyarrow refers to it by the buffer protocol."""
    cdef void* _data
    cdef Py_ssize_t _length

    def __dealloc__(self):
        free(self._data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self._data, self._length, 1, flags)


cdef OwnedMemory own(void* data, Py_ssize_t length):
    cdef OwnedMemory memory = OwnedMemory.__new__(OwnedMemory)
    memory._data = data
    memory._length = length
    return memory


cdef inline int32_t width_of(const Column* column) noexcept nogil:
    return 8 if column.kind == KIND_INT64 else 4


cdef uint8_t* values_of(int32_t kind, int32_t row_limit) noexcept nogil:
    """New memory for the values of fixed columns; of bits all are zero, so that setting one is enough."""
    if kind == KIND_INT64:
        return <uint8_t*> malloc(<size_t> row_limit * 8)
    if kind == KIND_INT32:
        return <uint8_t*> malloc(<size_t> row_limit * 4)
    return <uint8_t*> calloc((<size_t> row_limit + 7) // 8, 1)


cdef int fill_nulls(Column* column, int32_t row, int32_t row_limit) noexcept nogil:
    """Make the rows from `column.filled` up to `row` null; their values are zero, so that no old memory shows."""
    cdef int32_t index
    if column.validity == NULL:
        column.validity = <uint8_t*> calloc((<size_t> row_limit + 7) // 8, 1)
        if column.validity == NULL:
            return COLUMNS_NO_MEMORY
        memset(column.validity, 0xFF, column.filled >> 3)
        for index in range(column.filled & ~7, column.filled):
            set_bit(column.validity, index)
    if column.kind == KIND_BINARY:
        for index in range(column.filled, row):
            column.offsets[index + 1] = <int32_t> column.data_length
    elif column.kind != KIND_BOOL:
        memset(column.values + <size_t> column.filled * width_of(column), 0,
               <size_t> (row - column.filled) * width_of(column))
    column.null_count += row - column.filled
    column.filled = row
    return COLUMNS_OK


cdef int prepare_row(Columns* batch, Column* column) noexcept nogil:
    """Allocate what the first value of a batch needs, and make the rows before this one null."""
    cdef int32_t row_limit = batch.row_limit
    if column.values == NULL:
        if column.kind == KIND_BINARY:
            if column.offsets == NULL:
                column.offsets = <int32_t*> malloc((<size_t> row_limit + 1) * sizeof(int32_t))
            if column.offsets == NULL or reserve_data(column, column.data_hint) < 0:
                return COLUMNS_NO_MEMORY
            column.offsets[0] = 0
        else:
            column.values = values_of(column.kind, row_limit)
            if column.values == NULL:
                return COLUMNS_NO_MEMORY
    if column.filled < batch.rows:
        return fill_nulls(column, batch.rows, row_limit)
    return COLUMNS_OK


cdef int reserve_data(Column* column, int64_t length) noexcept nogil:
    """Room for `length` more bytes. Arrow's offsets have 32 bits, which a batch's byte limit keeps far away."""
    cdef int64_t needed = column.data_length + length
    cdef int64_t capacity = max(column.data_capacity, <int64_t> DATA_CAPACITY_MIN)
    cdef void* grown
    if needed > INT32_MAX:
        return COLUMNS_NO_MEMORY
    while capacity < needed:
        capacity *= 2
    grown = realloc(column.values, <size_t> capacity)
    if grown == NULL:
        return COLUMNS_NO_MEMORY
    column.values = <uint8_t*> grown
    column.data_capacity = capacity
    return COLUMNS_OK


cdef class ColumnBatch:
    """Columns of a batch of rows.

    Args:
        kinds: for each column its type as Arrow names it (``int32``, ``int64``, ``bool``, ``binary``, ``string``), or
            ``None`` for one that is not wanted: what is put there is dropped.
        row_limit: rows (int) at which a batch is full, 1 to 2**24.
        byte_limit: bytes (int) of binary columns at which it is full; one row may exceed them.

    Raises ValueError for a limit out of range.
    """

    def __cinit__(self):
        self.columns.columns = NULL

    def __init__(self, kinds, int row_limit, int64_t byte_limit):
        if not 0 < row_limit <= ROW_LIMIT_MAX:
            raise ValueError(f"a batch has 1 to {ROW_LIMIT_MAX} rows, got batch_rows={row_limit}")
        self._kinds = tuple(kinds)
        self.columns.columns = <Column*> calloc(max(1, len(self._kinds)), sizeof(Column))
        if self.columns.columns == NULL:
            raise MemoryError("no memory for the columns of a batch")
        self.columns.count = len(self._kinds)
        for index, kind in enumerate(self._kinds):
            self.columns.columns[index].kind = KIND_UNWANTED if kind is None else <int32_t> KINDS[kind]
        self.columns.row_limit = row_limit
        self.columns.byte_limit = byte_limit
        self._types = None
        self._nulls = {}

    def __dealloc__(self):
        if self.columns.columns != NULL:
            self.clear()
            free(self.columns.columns)

    cdef void clear(self) noexcept:
        """Forget all rows and free what was not taken."""
        cdef int index
        cdef Column* column
        for index in range(self.columns.count):
            column = &self.columns.columns[index]
            free(column.values)
            free(column.validity)
            free(column.offsets)
            column.values = column.validity = NULL
            column.offsets = NULL
            column.filled = column.null_count = 0
            column.data_hint = column.data_length
            column.data_length = column.data_capacity = 0
        self.columns.rows = 0
        self.columns.bytes = 0
        self.columns.is_failed = COLUMNS_OK

    cdef list take(self):
        """The wanted columns as Arrow arrays, in the order of their indices; a new batch begins.

        Raises MemoryError when a put found no memory; all rows are lost then.
        """
        import pyarrow
        cdef int index
        cdef Column* column
        cdef list arrays = []
        if self._types is None:
            self._types = [None if kind is None else pyarrow.type_for_alias(kind) for kind in self._kinds]
        try:
            if self.columns.is_failed:
                raise MemoryError(f"no memory for a batch of {self.columns.rows} rows with {self.columns.bytes} bytes")
            for index in range(self.columns.count):
                column = &self.columns.columns[index]
                if column.kind != KIND_UNWANTED:
                    arrays.append(self._take_column(pyarrow, column, self._types[index]))
        finally:
            self.clear()
        return arrays

    cdef object _take_column(self, object pyarrow, Column* column, object arrow_type):
        cdef int32_t rows = self.columns.rows
        cdef list buffers
        if column.filled == 0:
            return self._take_nulls(pyarrow, arrow_type, rows)
        if column.filled < rows and fill_nulls(column, rows, self.columns.row_limit) < 0:
            raise MemoryError("no memory for a validity bitmap")
        buffers = [None]
        if column.validity != NULL:
            buffers[0] = pyarrow.py_buffer(own(column.validity, (rows + 7) // 8))
            column.validity = NULL
        if column.kind == KIND_BINARY:
            buffers.append(pyarrow.py_buffer(own(column.offsets, (<Py_ssize_t> rows + 1) * 4)))
            column.offsets = NULL
            buffers.append(pyarrow.py_buffer(own(column.values, column.data_length)))
        elif column.kind == KIND_BOOL:
            buffers.append(pyarrow.py_buffer(own(column.values, (rows + 7) // 8)))
        else:
            buffers.append(pyarrow.py_buffer(own(column.values, <Py_ssize_t> rows * width_of(column))))
        column.values = NULL
        return pyarrow.Array.from_buffers(arrow_type, rows, buffers, column.null_count)

    cdef object _take_nulls(self, object pyarrow, object arrow_type, int32_t rows):
        """Nulls of one allocation for all columns and batches that have nothing else."""
        nulls = self._nulls.get(arrow_type)
        if nulls is None:
            nulls = self._nulls[arrow_type] = pyarrow.nulls(self.columns.row_limit, arrow_type)
        return nulls.slice(0, rows)


hide((OwnedMemory,))
seal((ColumnBatch,))
