# Growing buffers in Arrow's layout: one struct per column, filled row by row from C, given to pyarrow without a copy.
#
# A column that is never set in a batch costs nothing: it becomes an array of nulls. Skipped rows become null when the
# next row is set or the batch is taken, so a validity bitmap exists only where there are nulls.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

cdef enum:
    COLUMNS_OK = 0
    COLUMNS_NO_MEMORY = -1

    KIND_UNWANTED = 0           # puts do nothing
    KIND_INT32 = 1
    KIND_INT64 = 2
    KIND_BOOL = 3               # one bit per row
    KIND_BINARY = 4             # also text: offsets and bytes

ctypedef struct Column:
    int32_t kind
    int32_t filled              # rows that have a value or are known to be null
    int32_t null_count
    uint8_t* values             # NULL until the first value of a batch; of KIND_BINARY the bytes
    uint8_t* validity           # NULL while no row is null
    int32_t* offsets            # of KIND_BINARY: where each row begins, and the end of the last
    int64_t data_length         # of KIND_BINARY: bytes used
    int64_t data_capacity       # of KIND_BINARY: bytes allocated
    int64_t data_hint           # of KIND_BINARY: what the batch before needed, to be allocated at once


ctypedef struct Columns:
    Column* columns
    int32_t count
    int32_t rows                # ended rows
    int32_t row_limit
    int32_t is_failed           # COLUMNS_NO_MEMORY once a put could not allocate
    int64_t bytes               # in all binary columns
    int64_t byte_limit          # the batch is full when they have this many


cdef class ColumnBatch:
    """The columns of one batch, by index: `put_…` for the values of a row, then `end_row`."""
    cdef Columns columns
    cdef tuple _kinds
    cdef list _types
    cdef dict _nulls

    cdef list take(self)
    cdef void clear(self) noexcept
    cdef object _take_column(self, object pyarrow, Column* column, object arrow_type)
    cdef object _take_nulls(self, object pyarrow, object arrow_type, int32_t rows)


cdef int prepare_row(Columns* batch, Column* column) noexcept nogil
cdef int reserve_data(Column* column, int64_t length) noexcept nogil


cdef inline bint is_full(Columns* batch) noexcept nogil:
    return batch.rows >= batch.row_limit or batch.bytes >= batch.byte_limit


cdef inline void end_row(Columns* batch) noexcept nogil:
    batch.rows += 1


cdef inline void set_bit(uint8_t* bits, int32_t index) noexcept nogil:
    bits[index >> 3] |= <uint8_t> (1 << (index & 7))


cdef inline Column* begin_put(Columns* batch, int index) noexcept nogil:
    """The column, ready for the value of this row; NULL when it is not wanted or there is no memory."""
    cdef Column* column = &batch.columns[index]
    cdef int32_t row = batch.rows       # once: behind a write to bytes it would be read again
    if column.kind == KIND_UNWANTED:
        return NULL
    if column.filled != row or column.values == NULL:
        if prepare_row(batch, column) < 0:
            batch.is_failed = COLUMNS_NO_MEMORY
            return NULL
    if column.validity != NULL:
        set_bit(column.validity, row)
    column.filled = row + 1
    return column


cdef inline void put_int32(Columns* batch, int index, int32_t value) noexcept nogil:
    cdef Column* column = begin_put(batch, index)
    if column != NULL:
        (<int32_t*> column.values)[batch.rows] = value


cdef inline void put_int64(Columns* batch, int index, int64_t value) noexcept nogil:
    cdef Column* column = begin_put(batch, index)
    if column != NULL:
        (<int64_t*> column.values)[batch.rows] = value


cdef inline void put_bool(Columns* batch, int index, bint value) noexcept nogil:
    cdef Column* column = begin_put(batch, index)
    if column != NULL and value:
        set_bit(column.values, batch.rows)


cdef inline void put_bytes(Columns* batch, int index, const uint8_t* data, int64_t length) noexcept nogil:
    cdef Column* column = begin_put(batch, index)
    if column == NULL:
        return
    if length > column.data_capacity - column.data_length and reserve_data(column, length) < 0:
        batch.is_failed = COLUMNS_NO_MEMORY
        length = 0
    if length > 0:
        memcpy(column.values + column.data_length, data, <size_t> length)
        column.data_length += length
        batch.bytes += length
    column.offsets[batch.rows + 1] = <int32_t> column.data_length
