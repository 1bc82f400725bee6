"""Walks over SBE messages: where each block and each text lies, checked, and what the blocks' fields are."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from container.common.sealed cimport seal

cdef extern from *:
    """
    #define SBE_HIGH_BITS UINT64_C(0x8080808080808080)
    #define SBE_FLOAT_MAX UINT64_C(0x7F800000)
    #define SBE_DOUBLE_MAX UINT64_C(0x7FF0000000000000)
    """
    const uint64_t HIGH_BITS "SBE_HIGH_BITS"        # of eight bytes: what none of ASCII has
    const uint64_t FLOAT_MAX "SBE_FLOAT_MAX"        # infinity; greater ones without their sign are NaN
    const uint64_t DOUBLE_MAX "SBE_DOUBLE_MAX"
    uint16_t __builtin_bswap16(uint16_t) nogil
    uint32_t __builtin_bswap32(uint32_t) nogil
    uint64_t __builtin_bswap64(uint64_t) nogil

cdef enum Failure:
    FAILURE_NONE
    FAILURE_MEMORY
    FAILURE_NO_HEADER
    FAILURE_SCHEMA
    FAILURE_TEMPLATE
    FAILURE_SHORT_BLOCK
    FAILURE_TRUNCATED
    FAILURE_ENTRIES
    FAILURE_TEXT

NO_HEADER = FAILURE_NO_HEADER
OTHER_SCHEMA = FAILURE_SCHEMA
UNKNOWN_TEMPLATE = FAILURE_TEMPLATE
SHORT_BLOCK = FAILURE_SHORT_BLOCK
TRUNCATED = FAILURE_TRUNCATED
TOO_MANY_ENTRIES = FAILURE_ENTRIES
NO_TEXT = FAILURE_TEXT

cdef enum:
    # Entries of no bytes cost nothing to send, and a batch takes memory for each: a message may have as many of them as
    # it has bytes, and this many more.
    FREE_ENTRIES = 255

cdef enum Encoding:
    ENCODING_BYTES
    ENCODING_UTF8
    ENCODING_LATIN1

BYTES = ENCODING_BYTES
UTF8 = ENCODING_UTF8
LATIN1 = ENCODING_LATIN1

cdef struct Vector:
    # Grows; `committed` is the length at the end of the last message that was right.
    uint8_t* data
    size_t length
    size_t committed
    size_t capacity

cdef struct Number:
    int32_t offset
    int32_t width
    bint is_signed

cdef struct Entry:
    const uint8_t* base
    int64_t version

cdef struct Bytes:
    const uint8_t* base     # NULL: the version of the message has none
    int64_t length

cdef struct Text:
    int32_t offset
    int32_t length
    int64_t since

cdef struct Data:
    int64_t since
    Number length
    int32_t header_size
    int32_t encoding
    Vector found            # Bytes for each entry of the block

cdef struct Group:
    int64_t since
    Number block_length
    Number count
    int32_t header_size
    int32_t child
    Vector firsts           # int32_t for each entry of the block: the first of its entries in the child; -1: none

cdef struct Required:
    int64_t since
    int64_t length

cdef struct Template:
    int64_t id
    int32_t block

cdef struct Block:
    Required* required
    int32_t required_count
    Text* texts             # of UTF-8, which may be wrong
    int32_t text_count
    Group* groups
    int32_t group_count
    Data* data
    int32_t data_count
    Vector entries          # Entry
    Vector rows             # int32_t: of a message the number of its payload

cdef struct Walk:
    Block* blocks
    bint is_big_endian
    int64_t free_entries    # how many more of a message may have no bytes
    int32_t failure
    int32_t failed_block
    int64_t failed_with


cdef inline int append(Vector* vector, const void* item, size_t size) noexcept nogil:
    cdef size_t capacity
    cdef void* grown
    if vector.length + size > vector.capacity:
        capacity = max(<size_t> 4096, vector.capacity * 2)
        grown = realloc(vector.data, capacity)
        if grown == NULL:
            return -1
        vector.data = <uint8_t*> grown
        vector.capacity = capacity
    memcpy(vector.data + vector.length, item, size)
    vector.length += size
    return 0


cdef inline uint64_t load(const uint8_t* at, int32_t width, bint is_big_endian) noexcept nogil:
    """The unsigned number of 1, 2, 4 or 8 bytes."""
    cdef uint16_t short_value
    cdef uint32_t int_value
    cdef uint64_t long_value
    if width == 8:
        memcpy(&long_value, at, 8)
        return __builtin_bswap64(long_value) if is_big_endian else long_value
    if width == 4:
        memcpy(&int_value, at, 4)
        return __builtin_bswap32(int_value) if is_big_endian else int_value
    if width == 2:
        memcpy(&short_value, at, 2)
        return __builtin_bswap16(short_value) if is_big_endian else short_value
    return at[0]


cdef inline int64_t load_number(const uint8_t* at, const Number* number, bint is_big_endian) noexcept nogil:
    """A number at its place behind an address; one without a sign that has more than 63 bits is negative."""
    cdef uint64_t value = load(at + number.offset, number.width, is_big_endian)
    cdef int32_t others = 64 - 8 * number.width
    return <int64_t> (value << others) >> others if number.is_signed else <int64_t> value


cdef bint is_utf8(const uint8_t* text, int64_t length) noexcept nogil:
    """Whether bytes are UTF-8, as RFC 3629 has it: no surrogates, no longer forms than needed."""
    cdef int64_t index = 0, more
    cdef uint64_t eight
    cdef uint8_t first, second
    while index < length:
        if index + 8 <= length:
            memcpy(&eight, text + index, 8)
            if eight & HIGH_BITS == 0:
                index += 8
                continue
        first = text[index]
        if first < 0x80:
            index += 1
            continue
        more = 1 if 0xC2 <= first <= 0xDF else 2 if 0xE0 <= first <= 0xEF else 3 if 0xF0 <= first <= 0xF4 else 0
        if more == 0 or index + more >= length:
            return False
        second = text[index + 1]
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return False
        if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
            return False
        index += 1
        while more > 0:
            if text[index] & 0xC0 != 0x80:
                return False
            index += 1
            more -= 1
    return True


cdef inline int64_t text_length(const uint8_t* text, int64_t length) noexcept nogil:
    """Bytes up to the first zero."""
    cdef int64_t index = 0
    while index < length and text[index] != 0:
        index += 1
    return index


cdef const uint8_t* fail(Walk* walk, int32_t failure, int32_t block, int64_t value) noexcept nogil:
    walk.failure = failure
    walk.failed_block = block
    walk.failed_with = value
    return NULL


cdef const uint8_t* walk_block(
    Walk* walk, int32_t number, const uint8_t* at, const uint8_t* end, int64_t block_length, int64_t version
) noexcept nogil:
    """Note a block and what follows it; return where that ends, or NULL after a failure."""
    cdef Block* block = &walk.blocks[number]
    cdef int32_t index
    cdef int64_t required = 0
    cdef Entry entry
    cdef Text* text
    if block_length > end - at:
        return fail(walk, FAILURE_TRUNCATED, number, end - at)
    for index in range(block.required_count):
        if block.required[index].since > version:
            break
        required = block.required[index].length
    if block_length < required:
        return fail(walk, FAILURE_SHORT_BLOCK, number, block_length)
    for index in range(block.text_count):
        text = &block.texts[index]
        if text.since <= version and not is_utf8(at + text.offset, text_length(at + text.offset, text.length)):
            return fail(walk, FAILURE_TEXT, number, text.offset)
    entry.base = at
    entry.version = version
    if append(&block.entries, &entry, sizeof(Entry)) < 0:
        return fail(walk, FAILURE_MEMORY, number, 0)
    at += block_length
    for index in range(block.group_count):
        at = walk_group(walk, number, &block.groups[index], at, end, version)
        if at == NULL:
            return NULL
    for index in range(block.data_count):
        at = walk_data(walk, number, &block.data[index], at, end, version)
        if at == NULL:
            return NULL
    return at


cdef const uint8_t* walk_group(
    Walk* walk, int32_t number, Group* group, const uint8_t* at, const uint8_t* end, int64_t version
) noexcept nogil:
    cdef int32_t first = -1
    cdef int64_t block_length, count, _
    cdef const uint8_t* begin
    cdef size_t entries = walk.blocks[group.child].entries.length // sizeof(Entry)
    if group.since <= version:
        if entries > INT32_MAX:
            return fail(walk, FAILURE_MEMORY, number, 0)
        first = <int32_t> entries
    if append(&group.firsts, &first, sizeof(int32_t)) < 0:
        return fail(walk, FAILURE_MEMORY, number, 0)
    if first < 0:
        return at
    if group.header_size > end - at:
        return fail(walk, FAILURE_TRUNCATED, number, end - at)
    block_length = load_number(at, &group.block_length, walk.is_big_endian)
    count = load_number(at, &group.count, walk.is_big_endian)
    at += group.header_size
    if block_length < 0 or count < 0 or count > end - at + walk.free_entries:
        return fail(walk, FAILURE_ENTRIES, group.child, count)
    for _ in range(count):
        begin = at
        at = walk_block(walk, group.child, at, end, block_length, version)
        if at == NULL:
            return NULL
        if at == begin:
            walk.free_entries -= 1
            if walk.free_entries < 0:
                return fail(walk, FAILURE_ENTRIES, group.child, count)
    return at


cdef const uint8_t* walk_data(
    Walk* walk, int32_t number, Data* data, const uint8_t* at, const uint8_t* end, int64_t version
) noexcept nogil:
    cdef Bytes found
    found.base = NULL
    found.length = 0
    if data.since <= version:
        if data.header_size > end - at:
            return fail(walk, FAILURE_TRUNCATED, number, end - at)
        found.length = load_number(at, &data.length, walk.is_big_endian)
        found.base = at + data.header_size
        if found.length < 0 or found.length > end - found.base:
            return fail(walk, FAILURE_TRUNCATED, number, end - found.base)
        if data.encoding == ENCODING_UTF8 and not is_utf8(found.base, found.length):
            return fail(walk, FAILURE_TEXT, number, -1)
        at = found.base + found.length
    if append(&data.found, &found, sizeof(Bytes)) < 0:
        return fail(walk, FAILURE_MEMORY, number, 0)
    return at


cdef void settle(Walk* walk, int32_t number, bint is_right) noexcept nogil:
    """Keep what was noted since the last message, or forget it."""
    cdef Block* block = &walk.blocks[number]
    cdef int32_t index
    settle_vector(&block.entries, is_right)
    for index in range(block.group_count):
        settle_vector(&block.groups[index].firsts, is_right)
        settle(walk, block.groups[index].child, is_right)
    for index in range(block.data_count):
        settle_vector(&block.data[index].found, is_right)


cdef inline void settle_vector(Vector* vector, bint is_right) noexcept nogil:
    if is_right:
        vector.committed = vector.length
    else:
        vector.length = vector.committed


cdef void forget(Block* block) noexcept nogil:
    cdef int32_t index
    block.entries.length = block.entries.committed = 0
    for index in range(block.group_count):
        block.groups[index].firsts.length = block.groups[index].firsts.committed = 0
    for index in range(block.data_count):
        block.data[index].found.length = block.data[index].found.committed = 0


cdef Number number_of(tuple given):
    cdef Number number
    number.offset, number.width, number.is_signed = given
    return number


cdef inline bytes new_bytes(int64_t size):
    """Allocate bytes for the caller to fill."""
    return PyBytes_FromStringAndSize(NULL, size)


cdef inline bytes new_bits(int64_t count):
    """Bits that are 0."""
    cdef bytes bits = new_bytes((count + 7) // 8)
    memset(<char*> bits, 0, (count + 7) // 8)
    return bits


cdef inline void store(uint8_t* at, uint64_t value, int32_t width) noexcept nogil:
    """Write a number with its low bytes, and zeros behind the first 8 bytes."""
    if width == 8:
        memcpy(at, &value, 8)
    elif width == 4:
        memcpy(at, &value, 4)
    elif width == 16:
        memcpy(at, &value, 8)
        memset(at + 8, 0, 8)
    elif width == 2:
        memcpy(at, &value, 2)
    else:
        at[0] = <uint8_t> value


cdef inline bint is_nan(uint64_t value, int32_t width) noexcept nogil:
    if width == 4:
        return (value & ~(<uint64_t> 1 << 31)) > FLOAT_MAX
    return (value & ~(<uint64_t> 1 << 63)) > DOUBLE_MAX


cdef tuple joined(const Bytes* found, int64_t count, int32_t encoding):
    """Texts one behind the other: (int32 offsets, bytes, bits of those that are there, how many are not)."""
    cdef int64_t index, at, total = 0, null_count = 0
    cdef const uint8_t* base
    for index in range(count):
        total += found[index].length
    if encoding == ENCODING_LATIN1:
        for index in range(count):
            base = found[index].base
            for at in range(found[index].length):
                total += base[at] >> 7
    if total > INT32_MAX:
        raise MemoryError(f"a batch of payloads has {total} bytes of a field: read fewer rows at once")
    cdef bytes offsets = new_bytes((count + 1) * 4), content = new_bytes(total), bits = new_bits(count)
    cdef int32_t* ends = <int32_t*> <char*> offsets
    cdef uint8_t* out = <uint8_t*> <char*> content
    cdef uint8_t* valid = <uint8_t*> <char*> bits
    cdef int32_t end = 0
    with nogil:
        ends[0] = 0
        for index in range(count):
            base = found[index].base
            if base == NULL:
                null_count += 1
            else:
                valid[index >> 3] |= 1 << (index & 7)
                if encoding == ENCODING_LATIN1:
                    for at in range(found[index].length):
                        if base[at] < 0x80:
                            out[end] = base[at]
                            end += 1
                        else:
                            out[end] = 0xC0 | base[at] >> 6
                            out[end + 1] = 0x80 | (base[at] & 0x3F)
                            end += 2
                else:
                    memcpy(out + end, base, found[index].length)
                    end += <int32_t> found[index].length
            ends[index + 1] = end
    return offsets, content, bits if null_count else None, null_count


cdef class BlockWalk:
    """Where the blocks of a batch of messages lie. Blocks have numbers: that of a message, and those of its groups.

    Args:
        header: (size, (offset, width, whether with a sign) of block length, template id, schema id and version).
        schema_id: whose messages these are.
        is_big_endian: how numbers are written.
        blocks: for each block (required lengths as (version, bytes), texts of UTF-8 as (offset, length, version),
            groups as (version, (offset, width) of block length, that of the number, size of the header, number of the
            block of an entry), data as (version, (offset, width) of the length, size of the header, encoding)).
        templates: template ids, and the number of the message's block.

    Raises:
        MemoryError: there is none for that.
    """
    cdef Walk _walk
    cdef int32_t _block_count
    cdef Number _block_length, _template_id, _schema_of, _version
    cdef int32_t _header_size
    cdef int64_t _schema_id
    cdef Template* _templates
    cdef int32_t _template_count
    cdef object _payloads

    def __init__(self, tuple header, int64_t schema_id, bint is_big_endian, list blocks, dict templates):
        if self._walk.blocks != NULL:
            raise RuntimeError("a BlockWalk is made once")
        self._header_size = header[0]
        self._block_length, self._template_id, self._schema_of, self._version = [number_of(one) for one in header[1:]]
        self._schema_id = schema_id
        self._walk.is_big_endian = is_big_endian
        self._templates = <Template*> PyMem_Calloc(len(templates), sizeof(Template))
        if self._templates == NULL:
            raise MemoryError
        for number, (template_id, block) in enumerate(sorted(templates.items())):
            self._templates[<int32_t> number].id = template_id
            self._templates[<int32_t> number].block = block
        self._template_count = <int32_t> len(templates)
        self._walk.blocks = <Block*> PyMem_Calloc(len(blocks), sizeof(Block))
        if self._walk.blocks == NULL:
            raise MemoryError
        self._block_count = len(blocks)
        for number, given in enumerate(blocks):
            self._fill(&self._walk.blocks[<int32_t> number], given)

    cdef int _fill(self, Block* block, tuple given) except -1:
        cdef int32_t index
        cdef list required, texts, groups, data
        required, texts, groups, data = given
        block.required = <Required*> PyMem_Calloc(len(required), sizeof(Required))
        block.texts = <Text*> PyMem_Calloc(len(texts), sizeof(Text))
        block.groups = <Group*> PyMem_Calloc(len(groups), sizeof(Group))
        block.data = <Data*> PyMem_Calloc(len(data), sizeof(Data))
        if block.required == NULL or block.texts == NULL or block.groups == NULL or block.data == NULL:
            raise MemoryError
        for index in range(<int32_t> len(required)):
            block.required[index].since, block.required[index].length = required[index]
        block.required_count = <int32_t> len(required)
        for index in range(<int32_t> len(texts)):
            block.texts[index].offset, block.texts[index].length, block.texts[index].since = texts[index]
        block.text_count = <int32_t> len(texts)
        for index in range(<int32_t> len(groups)):
            since, block_length, count, header_size, child = groups[index]
            block.groups[index].since = since
            block.groups[index].block_length = number_of(block_length)
            block.groups[index].count = number_of(count)
            block.groups[index].header_size = header_size
            block.groups[index].child = child
        block.group_count = <int32_t> len(groups)
        for index in range(<int32_t> len(data)):
            since, length, header_size, encoding = data[index]
            block.data[index].since = since
            block.data[index].length = number_of(length)
            block.data[index].header_size = header_size
            block.data[index].encoding = encoding
        block.data_count = <int32_t> len(data)
        return 0

    def __dealloc__(self):
        cdef int32_t number, index
        cdef Block* block
        for number in range(self._block_count):
            block = &self._walk.blocks[number]
            free(block.entries.data)
            free(block.rows.data)
            for index in range(block.group_count):
                free(block.groups[index].firsts.data)
            for index in range(block.data_count):
                free(block.data[index].found.data)
            PyMem_Free(block.required)
            PyMem_Free(block.texts)
            PyMem_Free(block.groups)
            PyMem_Free(block.data)
        PyMem_Free(self._walk.blocks)
        PyMem_Free(self._templates)

    def walk(self, payloads, size_t offsets, size_t data, size_t validity, int64_t first, int32_t count):
        """Walk over payloads, after forgetting those before; return (number, failure, block, value) of the wrong ones.

        Args:
            payloads: what the addresses belong to; kept until the next walk.
            offsets: address of int32 offsets, of one payload more than there are.
            data: address of the bytes.
            validity: address of the bits of payloads that are there; 0 when all are.
            first: the first payload.
            count: how many.

        Raises:
            MemoryError: there is none for what lies in them.
        """
        cdef int32_t number, row
        cdef const int32_t* at = <const int32_t*> offsets + first
        cdef const uint8_t* bits = <const uint8_t*> validity
        cdef const uint8_t* payload
        cdef Block* block
        self._payloads = payloads
        for number in range(self._block_count):
            block = &self._walk.blocks[number]
            block.rows.length = 0
            forget(block)
        failures = []
        row = 0
        while row < count:
            with nogil:
                while row < count:
                    if bits == NULL or bits[(first + row) >> 3] >> ((first + row) & 7) & 1:
                        payload = <const uint8_t*> data + at[row]
                        if self._walk_message(row, payload, at[row + 1] - at[row]) < 0:
                            break
                    row += 1
            if row < count:
                if self._walk.failure == FAILURE_MEMORY:
                    raise MemoryError("no memory for the fields of a batch of payloads")
                failures.append((row, self._walk.failure, self._walk.failed_block, self._walk.failed_with))
                row += 1
        return failures

    cdef int _walk_message(self, int32_t row, const uint8_t* payload, int64_t length) noexcept nogil:
        cdef bint is_big_endian = self._walk.is_big_endian
        cdef int64_t template_id, schema_id, block_length, version
        cdef int32_t low = 0, high = self._template_count, middle, block
        cdef const uint8_t* end
        if length < self._header_size:
            fail(&self._walk, FAILURE_NO_HEADER, -1, length)
            return -1
        schema_id = load_number(payload, &self._schema_of, is_big_endian)
        template_id = load_number(payload, &self._template_id, is_big_endian)
        block_length = load_number(payload, &self._block_length, is_big_endian)
        version = load_number(payload, &self._version, is_big_endian)
        if schema_id != self._schema_id:
            fail(&self._walk, FAILURE_SCHEMA, -1, schema_id)
            return -1
        while low < high:
            middle = (low + high) >> 1
            if self._templates[middle].id < template_id:
                low = middle + 1
            else:
                high = middle
        if low == self._template_count or self._templates[low].id != template_id:
            fail(&self._walk, FAILURE_TEMPLATE, -1, template_id)
            return -1
        block = self._templates[low].block
        if block_length < 0 or version < 0:
            fail(&self._walk, FAILURE_TRUNCATED, block, length)
            return -1
        self._walk.free_entries = length + FREE_ENTRIES
        end = walk_block(&self._walk, block, payload + self._header_size, payload + length, block_length, version)
        if end != NULL and append(&self._walk.blocks[block].rows, &row, sizeof(int32_t)) < 0:
            end = fail(&self._walk, FAILURE_MEMORY, block, 0)
        settle(&self._walk, block, end != NULL)
        return -1 if end == NULL else 0

    # Contents of the blocks

    cdef Block* _block(self, int32_t number) except NULL:
        if not 0 <= number < self._block_count:
            raise IndexError(f"block {number}: there are {self._block_count}")
        return &self._walk.blocks[number]

    def entry_count(self, int32_t number):
        """How many blocks with this number there are: messages, or entries of a group."""
        return <int64_t> (self._block(number).entries.length // sizeof(Entry))

    def rows(self, int32_t number):
        """The numbers of the payloads that are messages with this block: int32, as bytes."""
        cdef Block* block = self._block(number)
        return (<const char*> block.rows.data)[:block.rows.length] if block.rows.length else b""

    def numbers(
        self, int32_t number, int32_t offset, int32_t width, int32_t length, int32_t out_width, int64_t since,
        uint64_t null, bint has_null, bint is_nan_null
    ):
        """Numbers of all blocks with a number, as (values, bits of those that are there, how many are null).

        Args:
            number: of the block.
            offset: of the first one in the block.
            width: bytes of each.
            length: how many there are in each block.
            out_width: bytes of each value: the same, or more for unsigned ones, which get zeros in front.
            since: the version that has them first; of earlier ones they are null.
            null: what stands for null, where ``has_null``.
            has_null: see there.
            is_nan_null: whether NaN stands for null.
        """
        cdef Block* block = self._block(number)
        cdef const Entry* entry = <const Entry*> block.entries.data
        cdef int64_t count = block.entries.length // sizeof(Entry), index, at, null_count = 0
        cdef int32_t item
        cdef bint is_big_endian = self._walk.is_big_endian, is_null
        cdef uint64_t value
        cdef bytes values = new_bytes(count * length * out_width), bits = new_bits(count * length)
        cdef uint8_t* out = <uint8_t*> <char*> values
        cdef uint8_t* valid = <uint8_t*> <char*> bits
        with nogil:
            for index in range(count):
                for item in range(length):
                    at = index * length + item
                    value = 0
                    is_null = entry[index].version < since
                    if not is_null:
                        value = load(entry[index].base + offset + item * width, width, is_big_endian)
                        is_null = (has_null and value == null) or (is_nan_null and is_nan(value, width))
                    if is_null:
                        null_count += 1
                    else:
                        valid[at >> 3] |= 1 << (at & 7)
                    store(out + at * out_width, value, out_width)
        return values, bits if null_count else None, null_count

    def choices(self, int32_t number, int32_t offset, int32_t width, int32_t bit, int64_t since):
        """A bit of a set in all blocks with a number: (its bits, bits of those that are there, how many are null)."""
        cdef Block* block = self._block(number)
        cdef const Entry* entry = <const Entry*> block.entries.data
        cdef int64_t count = block.entries.length // sizeof(Entry), index, null_count = 0
        cdef bytes values = new_bits(count), bits = new_bits(count)
        cdef uint8_t* out = <uint8_t*> <char*> values
        cdef uint8_t* valid = <uint8_t*> <char*> bits
        cdef uint64_t value
        with nogil:
            for index in range(count):
                if entry[index].version < since:
                    null_count += 1
                    continue
                value = load(entry[index].base + offset, width, self._walk.is_big_endian)
                valid[index >> 3] |= 1 << (index & 7)
                out[index >> 3] |= <uint8_t> ((value >> bit & 1) << (index & 7))
        return values, bits if null_count else None, null_count

    def present(self, int32_t number, int64_t since):
        """Which blocks with a number are of a version or a later one: (their bits, how many are not)."""
        cdef Block* block = self._block(number)
        cdef const Entry* entry = <const Entry*> block.entries.data
        cdef int64_t count = block.entries.length // sizeof(Entry), index, null_count = 0
        cdef bytes bits = new_bits(count)
        cdef uint8_t* valid = <uint8_t*> <char*> bits
        for index in range(count):
            if entry[index].version < since:
                null_count += 1
            else:
                valid[index >> 3] |= 1 << (index & 7)
        return bits if null_count else None, null_count

    def texts(
        self, int32_t number, int32_t offset, int32_t length, int64_t since, int32_t null, int32_t encoding
    ):
        """Texts up to the first zero in all blocks with a number: (offsets, bytes, bits of those that are there, how
        many are null). Where ``null`` is 0 empty ones are null, else characters with that value; no one where it is -1.
        """
        cdef Block* block = self._block(number)
        cdef const Entry* entry = <const Entry*> block.entries.data
        cdef int64_t count = block.entries.length // sizeof(Entry), index
        cdef Vector found
        cdef Bytes text
        cdef size_t size = <size_t> max(1, count) * sizeof(Bytes)
        found.data = <uint8_t*> realloc(NULL, size)
        if found.data == NULL:
            raise MemoryError
        try:
            with nogil:
                for index in range(count):
                    text.base = NULL
                    text.length = 0
                    if entry[index].version >= since:
                        text.base = entry[index].base + offset
                        text.length = text_length(text.base, length)
                        if text.length == 0:
                            if null == 0:
                                text.base = NULL
                        elif length == 1 and text.base[0] == null:
                            text.base = NULL
                            text.length = 0
                    (<Bytes*> found.data)[index] = text
            return joined(<const Bytes*> found.data, count, encoding)
        finally:
            free(found.data)

    def data(self, int32_t number, int32_t index):
        """Data behind all blocks with a number, as for :meth:`texts`."""
        cdef Block* block = self._block(number)
        if not 0 <= index < block.data_count:
            raise IndexError(f"data {index}: there are {block.data_count}")
        cdef Data* data = &block.data[index]
        return joined(<const Bytes*> data.found.data, data.found.length // sizeof(Bytes), data.encoding)

    def groups(self, int32_t number, int32_t index):
        """Where the entries of a group begin for all blocks with a number: (int32 offsets, one more than there are
        blocks, bits of those that have the group, how many have not)."""
        cdef Block* block = self._block(number)
        if not 0 <= index < block.group_count:
            raise IndexError(f"group {index}: there are {block.group_count}")
        cdef Group* group = &block.groups[index]
        cdef const int32_t* first = <const int32_t*> group.firsts.data
        cdef int64_t count = group.firsts.length // sizeof(int32_t), at, null_count = 0
        cdef int32_t following = <int32_t> (self._walk.blocks[group.child].entries.length // sizeof(Entry))
        cdef bytes offsets = new_bytes((count + 1) * 4), bits = new_bits(count)
        cdef int32_t* out = <int32_t*> <char*> offsets
        cdef uint8_t* valid = <uint8_t*> <char*> bits
        out[count] = following
        for at in range(count - 1, -1, -1):
            if first[at] < 0:
                null_count += 1
            else:
                following = first[at]
                valid[at >> 3] |= 1 << (at & 7)
            out[at] = following
        return offsets, bits if null_count else None, null_count


seal((BlockWalk,))
