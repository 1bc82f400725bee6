"""Loads on an archive, and the peers that it is compared with, for benchmarks/archive.py: publishers, a reader of
replays, round trips to a recorded position, a recorder of nothing but block polls and pwrite, and pwrite alone."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.fcntl cimport O_CREAT, O_RDWR, open
from posix.time cimport CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID, clock_gettime, clockid_t, timespec
from posix.unistd cimport close, ftruncate, pwrite

from container.transport.idle_strategy cimport IdleStrategy
from container.transport.counters cimport Counter, Counters
from container.transport.frames cimport CLOSED, PUBLICATION_ERROR
from container.transport.transport_seam cimport Client
from container.transport.streams cimport BlockHandler, Image, Publication, Subscription

cdef extern from "sched.h" nogil:
    int sched_yield() noexcept

cdef enum:
    BURST = 64                  # frames of a publication before it is the next one's turn
    HEADER_LENGTH = 32          # all that is written of a padding frame
    TYPE_OFFSET = 6             # of a frame's type, which is 0 for padding
    MESSAGE_LENGTH = 65536      # the longest that is sent
    TURNS = 1 << 12             # between two looks at the time
    IDLE_TURNS = 1 << 6         # between two questions whether it is over


cdef int64_t now_ns(clockid_t clock=CLOCK_MONOTONIC) noexcept nogil:
    cdef timespec now
    clock_gettime(clock, &now)
    return <int64_t> now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef class Deadline:
    """Raises TimeoutError from so many seconds on; looks at the time now and then."""
    cdef int64_t _end_ns
    cdef int64_t _turns
    cdef str _what

    def __init__(self, double limit_s, str what):
        self._end_ns, self._what = now_ns() + <int64_t> (limit_s * 1e9), what

    cdef int check(self) except -1:
        self._turns += 1
        if self._turns % TURNS == 0 and now_ns() > self._end_ns:
            raise TimeoutError(self._what)
        sched_yield()
        return 0


def publish(list publications, int length, int64_t total, double limit_s=60.0):
    """Send messages of so many bytes until the publications have grown by ``total`` bytes of log, in equal parts."""
    cdef uint8_t[MESSAGE_LENGTH] message
    cdef list ends = [(<Publication> each).position() + total // len(publications) for each in publications]
    cdef Publication publication
    cdef Deadline deadline = Deadline(limit_s, "the archive did not take what was sent")
    cdef int64_t end, result
    cdef int done
    cdef bint has_sent
    memset(message, 7, MESSAGE_LENGTH)
    while True:
        done = 0
        has_sent = False
        for publication, end in zip(publications, ends):
            result = publication.position()
            for _ in range(BURST):
                if result >= end:
                    break
                result = publication.offer(message, length)
                if result < 0:
                    break
                has_sent = True
            if result >= end:
                done += 1
            elif result == CLOSED or result == PUBLICATION_ERROR:
                raise RuntimeError(f"{publication} is at an end: {result}")
        if done == len(publications):
            return
        if not has_sent:
            deadline.check()


def await_counters(Counters counters, list awaited, double limit_s=60.0):
    """Wait until each counter, by id, has reached a value."""
    cdef Deadline deadline = Deadline(limit_s, "what was sent is not recorded")
    cdef int32_t counter_id
    cdef int64_t value
    for counter_id, value in awaited:
        while counters.value(counter_id) < value:
            deadline.check()


def round_trips(Publication publication, Counters counters, int32_t counter_id, int length, int count,
                int64_t interval_ns):
    """Nanoseconds (list) from each offer of a message until the counter has its position; one each interval."""
    cdef uint8_t[MESSAGE_LENGTH] message
    cdef Deadline deadline = Deadline(60.0, "a message is not recorded")
    cdef int64_t begin, position, next_ns = now_ns()
    cdef list found = []
    memset(message, 7, MESSAGE_LENGTH)
    for _ in range(count):
        while now_ns() < next_ns:
            sched_yield()
        begin = now_ns()
        position = publication.offer(message, length)
        while position < 0:
            deadline.check()
            position = publication.offer(message, length)
        while counters.value(counter_id) < position:
            deadline.check()
        found.append(now_ns() - begin)
        next_ns = max(now_ns(), next_ns + interval_ns)
    return found


cdef class _Ignored(BlockHandler):
    cdef int on_block(self, const uint8_t* block, size_t length, int32_t session_id, int32_t term_id) except -1:
        return 0


def drain(Image image, int64_t end, double limit_s=60.0):
    """Read an image up to a position, and throw all away."""
    cdef _Ignored handler = _Ignored()
    cdef Deadline deadline = Deadline(limit_s, "the replay does not go on")
    while image.position() < end:
        if image.block_poll(handler, 1 << 20) == 0:
            if image.is_closed():
                raise RuntimeError(f"the replay ended at {image.position()}")
            deadline.check()


cdef class _Files:
    """Files of one length that follow each other."""
    cdef bytes _prefix
    cdef int64_t _length, _position, _begin
    cdef int _file

    def __init__(self, prefix, int64_t length):
        self._prefix, self._length, self._file = prefix.encode(), length, -1

    cdef int write(self, const uint8_t* block, size_t length, size_t step) except -1:
        """Write a block, and advance by ``step``, which may be more."""
        cdef ssize_t written
        cdef int64_t offset = self._position % self._length
        if self._file < 0 or offset == 0:
            self.close()
            self._file = open(self._prefix + b"-%d" % self._position, O_RDWR | O_CREAT, 0o640)
            if self._file < 0 or ftruncate(self._file, self._length) != 0:
                raise OSError(f"cannot make {self._prefix!r}")
        with nogil:
            written = pwrite(self._file, block, length, offset)
        if written != <ssize_t> length:
            raise OSError(f"wrote {written} of {length} bytes")
        self._position += <int64_t> step
        return 0

    cdef int close(self) except -1:
        if self._file >= 0:
            close(self._file)
            self._file = -1
        return 0


cdef class _BareRecording(BlockHandler):
    cdef Image image
    cdef Counter counter
    cdef _Files files

    cdef int on_block(self, const uint8_t* block, size_t length, int32_t session_id, int32_t term_id) except -1:
        self.files.write(block, length if block[TYPE_OFFSET] != 0 else HEADER_LENGTH, length)
        self.counter.set(self.image.join_position + self.files._position)
        return 0


def record(Client client, list subscriptions, make_counter, str directory, int64_t segment_length, int block_length,
           IdleStrategy idle, is_over):
    """Record all images: a block poll, a pwrite, a counter, and nothing else, until ``is_over()``, which is asked while
    there is nothing to do. ``make_counter`` is called with each image."""
    cdef list recordings = []
    cdef _BareRecording recording
    cdef Subscription subscription
    cdef Image image
    cdef int work_count
    cdef int64_t turns = 0
    while turns % IDLE_TURNS != 1 or not is_over():
        work_count = 0
        for recording in recordings:
            work_count += recording.image.block_poll(recording, block_length)
        if work_count == 0:
            turns += 1
            client.invoke()
            for subscription in subscriptions:
                image = subscription.image_at_index(0)
                if image is not None and not any(each.image is image for each in <list[_BareRecording]> recordings):
                    recording = _BareRecording()
                    recording.image, recording.counter = image, make_counter(image)
                    recording.files = _Files(f"{directory}/{image.session_id}", segment_length)
                    recordings.append(recording)
        idle.idle(work_count)


def write_blocks(str prefix, int64_t total, size_t block_length, int64_t segment_length, int64_t memory_length):
    """Write so many bytes in blocks, of as much memory as the terms of a log have; seconds and processor time (float).
    """
    cdef uint8_t* memory = <uint8_t*> calloc(memory_length, 1)
    cdef _Files files = _Files(prefix, segment_length)
    cdef int64_t begin, begin_cpu, position = 0
    if memory == NULL:
        raise MemoryError()
    memset(memory, 7, memory_length)
    begin, begin_cpu = now_ns(), now_ns(CLOCK_THREAD_CPUTIME_ID)
    try:
        while position < total:
            files.write(memory + position % memory_length, block_length, block_length)
            position += <int64_t> block_length
    finally:
        files.close()
        free(memory)
    return (now_ns() - begin) / 1e9, (now_ns(CLOCK_THREAD_CPUTIME_ID) - begin_cpu) / 1e9
