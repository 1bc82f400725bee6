"""The mark file: created, taken over in every state that a dead owner can leave, and refused untouched otherwise."""

from __future__ import annotations

import contextlib
import io
import os
import re
import resource
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from container.codecs.messages import decode
from container.errors import ClusterEvent, ConfigurationError, MarkFileError
from container.files.cluster_mark_file import (
    ERROR_BUFFER_MAX_LENGTH,
    ERROR_BUFFER_MIN_LENGTH,
    ClusterMarkFile,
    ensure_link_file,
    link_file_name,
    mark_file_name,
)
from container.files.error_log import DistinctErrorLog, read_error_log
from container.storage.file_storage import FileStorage
from container.testing.memory.manual_time import ManualClock

GOLDEN = Path(__file__).parent / "golden" / "mark_file_service.txt"
NOW_MS = 1_700_000_000_000
ACTIVATING = 2**63 - 1
TERMINATED = -1
MIB = 1024 * 1024
DEFAULT_LENGTH = 1_056_768

CONSENSUS_MODULE = 1
CONTAINER = 2
READY = 768

SBE_HEADER = struct.pack("<HHHH", 128, 200, 110, 2)
# version, component type, activity timestamp, start timestamp, pid, candidate term id, archive, service and consensus
# module stream id, ingress stream id, member id, service id, header length, error buffer length, cluster id
BLOCK = struct.Struct("<iiqqqqiiiiiiiii")
TIMESTAMP_OFFSET = 16
FILE_MAX_LENGTH = 2**31

WRITTEN: dict[str, Any] = {
    "archive_stream_id": 10,
    "service_stream_id": 104,
    "consensus_module_stream_id": 105,
    "service_id": 0,
    "cluster_id": 0,
    "aeron_dir": "/dev/shm/aeron",
    "control_channel": "aeron:ipc?term-length=128k",
    "service_name": "clustered-service-0-0",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / mark_file_name(0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(epoch_ms=NOW_MS)


@pytest.fixture
def take(path: Path, clock: ManualClock) -> Iterator[Any]:
    """Creates or takes the file; what is still open at the end is closed."""
    taken: list[ClusterMarkFile] = []

    def make(**arguments: Any) -> ClusterMarkFile:
        taken.append(ClusterMarkFile(path, clock=clock, **arguments))
        return taken[-1]

    yield make
    for mark_file in taken:
        mark_file.close()


def left_file(
    *,
    version: int = READY,
    component_type: int = CONTAINER,
    activity_timestamp: int = TERMINATED,
    candidate_term_id: int = 5,
    error_buffer_length: int = MIB,
    header_length: int = 8192,
    errors: tuple[str, ...] = (),
    is_legacy: bool = False,
) -> bytes:
    """The file that an owner left, as upstream writes it."""
    block = BLOCK.pack(
        version,
        component_type,
        activity_timestamp,
        NOW_MS - 100_000,
        4711,
        candidate_term_id,
        10,
        104,
        105,
        -1,
        3,
        0,
        header_length,
        error_buffer_length,
        0,
    )
    texts = b"".join(
        struct.pack("<I", len(text)) + text for text in (b"/old/aeron", b"aeron:ipc", b"", b"old name", b"")
    )
    header = (b"" if is_legacy else SBE_HEADER) + block.ljust(128, b"\0") + texts
    log = bytearray(MIB)
    offset = 0
    for number, text in enumerate(errors):
        record = struct.pack("<iiqq", 24 + len(text), number + 1, NOW_MS - 50_000, NOW_MS - 90_000) + text.encode()
        log[offset : offset + len(record)] = record
        offset += -(-len(record) // 8) * 8
    return header.ljust(8192, b"\0") + bytes(log)


def header_of(path: Path) -> dict[str, Any]:
    name, fields = decode("mark", path.read_bytes())
    assert name == "MarkFileHeader"
    return fields


def saved_errors(path: Path) -> list[Path]:
    return sorted(path.parent.glob("*-error.log"))


@contextlib.contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """No file may grow beyond ``limit`` bytes: what a full disk answers, without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def read_only_directory(content: bytes | None = None) -> Iterator[Path]:
    """A directory in which nothing can be created, with a mark file that can be written if there is content for one.

    Root may write anywhere, so root becomes nobody.
    """
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / mark_file_name(0)
        if content is not None:
            path.write_bytes(content)
            path.chmod(0o666)
        Path(name).chmod(0o555)
        was_root = os.geteuid() == 0
        if was_root:
            os.seteuid(65_534)
        try:
            yield path
        finally:
            if was_root:
                os.seteuid(0)
            Path(name).chmod(0o755)


# --- a new file


def test_s3_new_file_has_the_bytes_of_the_reference(path: Path, take: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]
    length = int(lines[0].removeprefix("length "))
    expected = bytes.fromhex("".join(lines[1:])).ljust(length, b"\0")
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    mark_file = take()
    mark_file.write_header(**WRITTEN)
    mark_file.signal_ready()
    assert path.read_bytes() == expected


def test_s3_new_file_has_the_default_length(path: Path, take: Any) -> None:
    take()
    assert path.stat().st_size == DEFAULT_LENGTH


@pytest.mark.parametrize(
    ("error_buffer_length", "page_size", "expected"),
    [
        (MIB, 4096, DEFAULT_LENGTH),
        (MIB + 1, 4096, DEFAULT_LENGTH + 4096),
        (2 * MIB, 4096, 8192 + 2 * MIB),
        (MIB, 16 * 1024, 1_064_960),
        (MIB, 2 * MIB, 2 * MIB),
    ],
)
def test_length_is_a_multiple_of_the_page_size(
    path: Path, take: Any, error_buffer_length: int, page_size: int, expected: int
) -> None:
    mark_file = take(error_buffer_length=error_buffer_length, page_size=page_size)
    assert path.stat().st_size == expected
    assert len(mark_file.error_buffer) == error_buffer_length
    assert header_of(path)["error_buffer_length"] == error_buffer_length


@pytest.mark.parametrize("length", [0, -1, ERROR_BUFFER_MIN_LENGTH - 1, ERROR_BUFFER_MAX_LENGTH + 1, 2**40], ids=str)
def test_error_buffer_length_out_of_range_is_refused(path: Path, take: Any, length: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"error_buffer_length={length}: .*1048576 to 2147475455"):
        take(error_buffer_length=length)
    assert not path.exists()


@pytest.mark.parametrize("page_size", [0, -4096, 1, 2048, 4097, 12_288, 2**30 + 4096, 2**31], ids=str)
def test_page_size_that_is_no_power_of_two_in_range_is_refused(path: Path, take: Any, page_size: int) -> None:
    with pytest.raises(ConfigurationError, match=f"page size {page_size}: must be a power of two from 4096"):
        take(page_size=page_size)
    assert not path.exists()


def test_s4_new_file_keeps_version_0_until_it_is_ready(path: Path, take: Any) -> None:
    mark_file = take()
    assert header_of(path)["version"] == 0
    mark_file.write_header(**WRITTEN)
    assert header_of(path)["version"] == 0
    mark_file.signal_ready()
    assert header_of(path)["version"] == mark_file.version == READY


def test_start_in_a_new_file_shows_the_time_so_that_it_goes_stale_when_killed(
    path: Path, take: Any, clock: ManualClock
) -> None:
    take()
    assert header_of(path)["activity_timestamp"] == NOW_MS
    with pytest.raises(MarkFileError, match="active mark file detected"):
        take()
    clock.advance(10_000_000_000)
    assert take().version == 0


def test_s6_new_file_has_no_candidate_term(take: Any) -> None:
    assert take().candidate_term_id == -1


def test_others_may_not_write_the_file(path: Path, take: Any) -> None:
    previous = os.umask(0)
    try:
        take()
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_all_bytes_have_their_place_on_the_disk(path: Path, take: Any) -> None:
    take()
    assert path.stat().st_blocks * 512 >= DEFAULT_LENGTH


def test_full_disk_is_an_error_at_creation_that_leaves_nothing(path: Path, take: Any) -> None:
    with (
        file_size_limit(64 * 1024),
        pytest.raises(MarkFileError, match=rf"{path} cannot be created with {DEFAULT_LENGTH} bytes: "),
    ):
        take()
    assert not path.exists()
    assert take().version == 0


def test_full_disk_at_the_first_write_leaves_nothing(path: Path, take: Any) -> None:
    with file_size_limit(0), pytest.raises(MarkFileError, match="cannot be created"):
        take()
    assert not path.exists()


@pytest.mark.parametrize(
    "error", [None, OSError(95, "not supported"), OSError(22, "invalid")], ids=["none", "95", "22"]
)
def test_file_system_without_fallocate_gets_each_page_written(
    path: Path, take: Any, monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    def refuse(*_arguments: int) -> None:
        assert error is not None
        raise error

    if error is None:
        monkeypatch.delattr(os, "posix_fallocate")
    else:
        monkeypatch.setattr(os, "posix_fallocate", refuse)
    take()
    assert path.stat().st_size == DEFAULT_LENGTH
    assert path.stat().st_blocks * 512 >= DEFAULT_LENGTH
    assert header_of(path)["component_type"] == CONTAINER


def test_page_by_page_reserving_keeps_what_is_in_the_file(
    path: Path, take: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    path.write_bytes(left_file(candidate_term_id=77))
    assert take().candidate_term_id == 77


def test_a_start_that_is_interrupted_leaves_no_new_file(path: Path, take: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def interrupt(fd: int, *_range: int) -> None:
        seen.extend(BLOCK.unpack(os.pread(fd, BLOCK.size, len(SBE_HEADER)).ljust(BLOCK.size, b"\0"))[:3])
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "posix_fallocate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        take()
    assert seen == [0, CONTAINER, NOW_MS], "what a killed start would leave is a container's file"
    assert not path.exists()


def test_missing_directory_is_named(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "missing" / mark_file_name(0)
    with pytest.raises(MarkFileError, match=rf"{path} cannot be created: No such file or directory"):
        ClusterMarkFile(path, clock=clock)


def test_read_only_directory_is_an_error(clock: ManualClock) -> None:
    with read_only_directory() as path, pytest.raises(MarkFileError, match="cannot be created: Permission denied"):
        ClusterMarkFile(path, clock=clock)


def test_directory_in_the_place_of_the_file_is_an_error(path: Path, take: Any) -> None:
    path.mkdir()
    with pytest.raises(MarkFileError, match="cannot be opened with .*: Is a directory"):
        take()


# --- whether an existing file may be taken


@pytest.mark.parametrize("is_legacy", [False, True])
@pytest.mark.parametrize("age_ms", [0, 1, 9_999, -1, -60_000])
def test_s5_file_of_a_live_owner_is_refused_and_left_as_it_is(
    path: Path, take: Any, age_ms: int, is_legacy: bool
) -> None:
    content = left_file(activity_timestamp=NOW_MS - age_ms, errors=("boom",), is_legacy=is_legacy)
    path.write_bytes(content)
    with pytest.raises(MarkFileError, match=rf"active mark file detected: {path}: its owner, pid 4711, was alive at"):
        take()
    assert path.read_bytes() == content
    assert saved_errors(path) == []


@pytest.mark.parametrize("is_legacy", [False, True])
@pytest.mark.parametrize("timestamp", [NOW_MS - 10_000, NOW_MS - 10**9, 0, TERMINATED, -(2**63)])
def test_s5_file_of_a_dead_owner_is_taken(path: Path, take: Any, timestamp: int, is_legacy: bool) -> None:
    path.write_bytes(left_file(activity_timestamp=timestamp, is_legacy=is_legacy))
    mark_file = take()
    assert header_of(path)["activity_timestamp"] == NOW_MS
    mark_file.write_header(**WRITTEN)
    mark_file.signal_ready()
    assert header_of(path)["activity_timestamp"] == NOW_MS


def test_file_that_is_being_activated_is_refused_with_what_to_do(path: Path, take: Any) -> None:
    content = left_file(activity_timestamp=ACTIVATING)
    path.write_bytes(content)
    with pytest.raises(MarkFileError, match="active mark file detected.*pid 4711.*delete the file if no such process"):
        take()
    assert path.read_bytes() == content


@pytest.mark.parametrize("version", [1 << 16, 3 << 16 | 768, 255 << 16])
def test_other_major_version_is_refused_and_left_as_it_is(path: Path, take: Any, version: int) -> None:
    content = left_file(version=version)
    path.write_bytes(content)
    with pytest.raises(MarkFileError, match=f"major version {version >> 16} does not match software: 0"):
        take()
    assert path.read_bytes() == content


@pytest.mark.parametrize("version", [0, 1, 768, 0x00FFFF])
def test_s4_taken_file_keeps_its_version_until_it_is_ready(path: Path, take: Any, version: int) -> None:
    path.write_bytes(left_file(version=version))
    mark_file = take()
    mark_file.write_header(**WRITTEN)
    assert header_of(path)["version"] == version
    mark_file.signal_ready()
    assert header_of(path)["version"] == READY


def test_file_of_a_failed_start_is_taken_with_a_notice(path: Path, take: Any, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(left_file(version=-1))
    assert take().version == -1
    assert f"mark file {path} has version -1" in caplog.text


@pytest.mark.parametrize("is_legacy", [False, True])
@pytest.mark.parametrize(
    ("component_type", "name"),
    [(1, "CONSENSUS_MODULE"), (3, "BACKUP"), (4, "STANDBY"), (9, "9"), (-(2**31), "-2147483648")],
)
def test_file_of_another_component_is_refused_and_given_back(
    path: Path, take: Any, component_type: int, name: str, is_legacy: bool
) -> None:
    content = left_file(component_type=component_type, errors=("not ours",), is_legacy=is_legacy)
    path.write_bytes(content)
    with pytest.raises(MarkFileError, match=f"existing mark file type {name} not same as required type CONTAINER"):
        take()
    assert path.read_bytes() == content
    assert saved_errors(path) == []


def test_file_of_a_backup_is_a_consensus_module_s_to_take(path: Path, take: Any) -> None:
    path.write_bytes(left_file(component_type=3))
    take(is_of_consensus_module=True)
    assert header_of(path)["component_type"] == CONSENSUS_MODULE


def test_file_of_an_unknown_component_is_taken(path: Path, take: Any) -> None:
    path.write_bytes(left_file(component_type=0))
    take()
    assert header_of(path)["component_type"] == CONTAINER


@pytest.mark.parametrize("length", [0, 1, 8, 23, 25, 127, 135])
def test_file_that_is_too_short_is_refused(path: Path, take: Any, length: int) -> None:
    content = left_file()[:length]
    path.write_bytes(content)
    with pytest.raises(MarkFileError, match=f"mark file too short: {path} has {length} bytes; .*delete it"):
        take()
    assert path.read_bytes() == content


def test_file_of_an_owner_that_was_killed_after_its_first_write_is_free_after_10_s(path: Path, take: Any) -> None:
    path.write_bytes(SBE_HEADER + struct.pack("<iiq", 0, CONTAINER, NOW_MS - 9_999))
    with pytest.raises(MarkFileError, match="active mark file detected"):
        take()
    path.write_bytes(SBE_HEADER + struct.pack("<iiq", 0, CONTAINER, NOW_MS - 10_000))
    assert take().candidate_term_id == -1


def test_file_of_zeros_that_a_killed_creator_left_is_taken(path: Path, take: Any) -> None:
    path.write_bytes(bytes(DEFAULT_LENGTH))
    mark_file = take()
    mark_file.write_header(**WRITTEN)
    mark_file.signal_ready()
    assert header_of(path)["version"] == READY


def test_other_process_that_claims_between_check_and_claim_wins(
    path: Path, take: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(left_file())
    reserve = os.posix_fallocate

    def claimed_meanwhile(fd: int, offset: int, length: int) -> None:
        reserve(fd, offset, length)
        os.pwrite(fd, struct.pack("<q", ACTIVATING), TIMESTAMP_OFFSET)

    monkeypatch.setattr(os, "posix_fallocate", claimed_meanwhile)
    with pytest.raises(MarkFileError, match="concurrent mark file activation: another process has just claimed"):
        take()
    assert path.read_bytes() == left_file(activity_timestamp=ACTIVATING)


CLAIMER = """
import sys
from container.files.cluster_mark_file import ClusterMarkFile
from container.errors import MarkFileError
print("ready", flush=True)
sys.stdin.readline()
try:
    mark_file = ClusterMarkFile(sys.argv[1])
except MarkFileError as error:
    print("refused", error, flush=True)
else:
    print("taken", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("is_new", [False, True])
def test_of_several_processes_that_start_at_once_one_gets_the_file(path: Path, is_new: bool) -> None:
    if not is_new:
        path.write_bytes(left_file())
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    answers = []
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            assert process.stdout is not None
            answers.append(process.stdout.readline())
    finally:
        for process in processes:
            process.communicate("\n")
    assert sorted(answer.split()[0] for answer in answers) == ["refused"] * 3 + ["taken"]
    assert all(
        "active" in answer or "concurrent" in answer or "too short" in answer or "taken" in answer for answer in answers
    )


# --- taking over


@pytest.mark.parametrize("is_legacy", [False, True])
def test_s6_candidate_term_is_carried_over(path: Path, take: Any, is_legacy: bool) -> None:
    path.write_bytes(left_file(candidate_term_id=123_456_789_012, is_legacy=is_legacy))
    mark_file = take()
    mark_file.write_header(**WRITTEN)
    mark_file.signal_ready()
    assert mark_file.candidate_term_id == header_of(path)["candidate_term_id"] == 123_456_789_012


def test_taken_file_tells_the_new_owner(path: Path, take: Any) -> None:
    path.write_bytes(left_file())
    take()
    header = header_of(path)
    assert header["start_timestamp"] == NOW_MS
    assert header["pid"] == os.getpid()
    assert header["member_id"] == 3, "as the last owner left it, until the header is written"


@pytest.mark.parametrize("is_legacy", [False, True])
def test_s5_errors_of_the_last_owner_are_saved_and_cleared(path: Path, take: Any, is_legacy: bool) -> None:
    path.write_bytes(left_file(errors=("java.lang.Error: first", "second\n  at line 2"), is_legacy=is_legacy))
    notices = io.StringIO()
    mark_file = take(fallback=notices)
    (saved,) = saved_errors(path)
    assert re.fullmatch(r"CONTAINER-\d{4}(-\d\d){5}-\d{3}[+-]\d{4}-error\.log", saved.name)
    assert stat.S_IMODE(saved.stat().st_mode) & 0o022 == 0
    text = saved.read_text()
    assert "1 observations from " in text
    assert "2 observations from " in text
    assert "java.lang.Error: first\n" in text
    assert text.endswith("\n2 distinct errors observed.\n")
    assert notices.getvalue() == f"WARNING: existing errors saved to: {saved}\n"
    assert path.read_bytes()[8192:] == bytes(MIB)
    assert read_error_log(mark_file.error_buffer) == []


def test_no_file_is_written_when_there_were_no_errors(path: Path, take: Any) -> None:
    path.write_bytes(left_file())
    notices = io.StringIO()
    take(fallback=notices)
    assert saved_errors(path) == []
    assert notices.getvalue() == ""


def test_errors_are_saved_without_a_notice_when_none_is_wanted(path: Path, take: Any) -> None:
    path.write_bytes(left_file(errors=("boom",)))
    take(fallback=None)
    assert len(saved_errors(path)) == 1


def test_error_with_an_impossible_time_is_saved_all_the_same(path: Path, take: Any) -> None:
    content = bytearray(left_file())
    content[8192 : 8192 + 28] = struct.pack("<iiqq", 28, 1, 2**62, -(2**62)) + b"boom"
    path.write_bytes(content)
    take()
    assert "boom" in saved_errors(path)[0].read_text()


def test_longer_error_region_of_the_last_owner_is_saved_and_cleared_whole(path: Path, take: Any) -> None:
    content = bytearray(left_file(error_buffer_length=2 * MIB) + bytes(MIB))
    content[8192 : 8192 + 28] = struct.pack("<iiqq", MIB + 512 * 1024, 1, 1, 1) + b"long"
    content[-8:] = b"leftover"
    path.write_bytes(content)
    mark_file = take()
    assert len(saved_errors(path)) == 1
    assert path.read_bytes()[8192:] == bytes(2 * MIB)
    assert len(mark_file.error_buffer) == header_of(path)["error_buffer_length"] == MIB


@pytest.mark.parametrize("header_length", [128, 8192])
def test_the_shortest_header_that_there_can_be_is_taken(path: Path, take: Any, header_length: int) -> None:
    path.write_bytes(left_file(header_length=header_length, error_buffer_length=512, is_legacy=True))
    assert take().candidate_term_id == 5


def test_the_longest_file_that_an_owner_can_have_asked_for_is_taken(
    path: Path, take: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: None)
    path.write_bytes(left_file())
    os.truncate(path, FILE_MAX_LENGTH)
    take()
    path.write_bytes(left_file())
    os.truncate(path, FILE_MAX_LENGTH + 1)
    with pytest.raises(MarkFileError, match=f"it has {FILE_MAX_LENGTH + 1} bytes, at most {FILE_MAX_LENGTH} are"):
        take()


def test_a_machine_without_memory_for_the_claim_leaves_the_file_as_it_was(
    path: Path, take: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = left_file()
    path.write_bytes(content)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: resource.setrlimit(resource.RLIMIT_AS, (1, limits[1])))
    try:
        with pytest.raises(MarkFileError, match="cannot be opened with 1056768 bytes: Cannot allocate memory"):
            take()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert path.read_bytes() == content


def test_shorter_file_of_the_last_owner_is_extended(path: Path, take: Any) -> None:
    path.write_bytes(left_file())
    take(error_buffer_length=3 * MIB)
    assert path.stat().st_size == 8192 + 3 * MIB
    assert path.stat().st_blocks * 512 >= 8192 + 3 * MIB


def test_sparse_file_as_java_makes_it_gets_its_place_on_the_disk(path: Path, take: Any) -> None:
    with path.open("wb") as file:
        file.write(left_file()[:8192])
        file.truncate(DEFAULT_LENGTH)
    take()
    assert path.stat().st_blocks * 512 >= DEFAULT_LENGTH


def test_full_disk_leaves_the_file_of_the_last_owner_as_it_was(path: Path, take: Any) -> None:
    content = left_file(errors=("boom",))[:10_000]
    path.write_bytes(content)
    with file_size_limit(64 * 1024), pytest.raises(MarkFileError, match="cannot be opened with 1056768 bytes: "):
        take()
    assert path.read_bytes()[:10_000] == content
    assert not any(path.read_bytes()[10_000:])
    assert take().candidate_term_id == 5


def test_full_disk_while_saving_errors_gives_the_file_back(path: Path, take: Any) -> None:
    content = left_file(errors=("x" * 10_000,))
    path.write_bytes(content)
    with file_size_limit(4096), pytest.raises(MarkFileError, match="errors of the last run cannot be saved to"):
        take()
    assert path.read_bytes() == content
    assert saved_errors(path) == []
    take()
    assert len(saved_errors(path)) == 1


@pytest.mark.parametrize("is_legacy", [False, True])
def test_directory_that_takes_no_error_file_gives_the_mark_file_back(clock: ManualClock, is_legacy: bool) -> None:
    content = left_file(errors=("boom",), is_legacy=is_legacy)
    with read_only_directory(content) as path:
        with pytest.raises(MarkFileError, match="cannot be saved to .*: Permission denied"):
            ClusterMarkFile(path, clock=clock)
        assert path.read_bytes() == content


@pytest.mark.parametrize("is_legacy", [False, True])
@pytest.mark.parametrize(
    ("header_length", "error_buffer_length"),
    [(8192, -1), (8192, 2**31 - 1), (2**31 - 1, 2**31 - 1), (-8192, 100), (0, 100), (8192, MIB + 1)],
)
def test_lengths_that_reach_out_of_the_file_are_refused_and_the_file_given_back(
    path: Path, take: Any, header_length: int, error_buffer_length: int, is_legacy: bool
) -> None:
    content = left_file(header_length=header_length, error_buffer_length=error_buffer_length, is_legacy=is_legacy)
    path.write_bytes(content)
    with pytest.raises(MarkFileError, match=f"damaged, delete it: headerLength={header_length} "):
        take()
    assert path.read_bytes() == content


def test_legacy_file_gets_the_layout_of_today(path: Path, take: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(left_file(candidate_term_id=-1, is_legacy=True))
    mark_file = take()
    assert header_of(path)["version"] == 0
    mark_file.write_header(**WRITTEN)
    mark_file.signal_ready()
    taken = path.read_bytes()
    path.unlink()
    created = take()
    created.write_header(**WRITTEN)
    created.signal_ready()
    assert taken == path.read_bytes()


def test_nothing_of_a_legacy_header_shows_through(path: Path, take: Any) -> None:
    content = bytearray(left_file(is_legacy=True))
    content[128:8192] = b"x" * (8192 - 128)
    path.write_bytes(content)
    take()
    assert path.read_bytes()[128 + 8 : 8192] == bytes(8192 - 128 - 8)


# --- the header


def test_header_tells_what_was_written(path: Path, take: Any) -> None:
    mark_file = take()
    mark_file.write_header(
        archive_stream_id=11,
        service_stream_id=204,
        consensus_module_stream_id=-205,
        service_id=9,
        cluster_id=-7,
        aeron_dir="/dev/shm/other",
        control_channel="aeron:ipc?term-length=64k",
        service_name="my service",
    )
    assert header_of(path) == {
        "version": 0,
        "component_type": CONTAINER,
        "activity_timestamp": NOW_MS,
        "start_timestamp": NOW_MS,
        "pid": os.getpid(),
        "candidate_term_id": -1,
        "archive_stream_id": 11,
        "service_stream_id": 204,
        "consensus_module_stream_id": -205,
        "ingress_stream_id": -1,
        "member_id": -1,
        "service_id": 9,
        "header_length": 8192,
        "error_buffer_length": MIB,
        "cluster_id": -7,
        "aeron_directory": b"/dev/shm/other",
        "control_channel": b"aeron:ipc?term-length=64k",
        "ingress_channel": b"",
        "service_name": b"my service",
        "authenticator": b"",
        "services_cluster_dir": b"",
    }


def test_longer_texts_of_the_last_owner_do_not_show_through(path: Path, take: Any) -> None:
    mark_file = take()
    mark_file.write_header(**WRITTEN | {"service_name": "x" * 1000})
    mark_file.write_header(**WRITTEN)
    assert path.read_bytes()[216:8192] == bytes(8192 - 216)
    assert header_of(path)["services_cluster_dir"] == b""


def test_the_header_leaves_the_errors_alone(path: Path, take: Any) -> None:
    mark_file = take()
    mark_file.write_errors(0, b"an error")
    mark_file.write_header(**WRITTEN)
    assert mark_file.error_buffer[:8] == b"an error"


def test_directory_that_is_not_ascii_is_shown_as_upstream_does(path: Path, take: Any) -> None:
    take().write_header(**WRITTEN | {"aeron_dir": "/dev/shm/äron"})
    assert header_of(path)["aeron_directory"] == b"/dev/shm/?ron"


@pytest.mark.parametrize(("length", "fits"), [(7989, True), (7990, False), (100_000, False)])
def test_header_must_fit_8192_bytes(path: Path, take: Any, length: int, fits: bool) -> None:
    mark_file = take()
    written = WRITTEN | {"aeron_dir": "x" * length}
    if fits:
        mark_file.write_header(**written)
        assert header_of(path)["authenticator"] == b""
        assert path.read_bytes()[8192:] == bytes(MIB)
    else:
        with pytest.raises(MarkFileError, match=rf"headerLength={length + 203} > headerLengthCapacity=8192: shorten"):
            mark_file.write_header(**written)


# --- life and end


def test_s6_activity_and_member_id_are_written(path: Path, take: Any) -> None:
    mark_file = take()
    mark_file.update_activity_timestamp(NOW_MS + 1_000)
    mark_file.set_member_id(2)
    header = header_of(path)
    assert header["activity_timestamp"] == mark_file.activity_timestamp == NOW_MS + 1_000
    assert header["member_id"] == mark_file.member_id == 2


def test_terminated_file_is_free_at_once(path: Path, take: Any) -> None:
    mark_file = take()
    mark_file.write_header(**WRITTEN)
    mark_file.signal_ready()
    mark_file.signal_terminated()
    mark_file.close()
    assert header_of(path)["activity_timestamp"] == TERMINATED
    assert header_of(path)["version"] == READY
    take()


@pytest.mark.parametrize("is_new", [True, False])
def test_s8_failed_start_frees_the_file_at_once(path: Path, take: Any, is_new: bool) -> None:
    if not is_new:
        path.write_bytes(left_file())
    mark_file = take()
    mark_file.signal_failed_start()
    mark_file.close()
    assert header_of(path)["activity_timestamp"] == TERMINATED
    assert header_of(path)["version"] == -1
    assert take().version == -1


END: dict[str, Callable[[ClusterMarkFile], object]] = {
    "ready": ClusterMarkFile.signal_ready,
    "failed": ClusterMarkFile.signal_failed_start,
    "terminated": ClusterMarkFile.signal_terminated,
}


@pytest.mark.parametrize("end", END)
def test_what_ends_a_start_or_a_run_is_forced_to_the_disk(
    path: Path, take: Any, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    mark_file = take()
    forced: list[tuple[int, int]] = []

    def fsync(fd: int) -> None:
        assert os.fstat(fd).st_ino == path.stat().st_ino
        header = header_of(path)
        forced.append((header["version"], header["activity_timestamp"]))

    monkeypatch.setattr(os, "fsync", fsync)
    END[end](mark_file)
    expected = {"ready": (READY, NOW_MS), "failed": (-1, TERMINATED), "terminated": (0, TERMINATED)}
    assert forced == [expected[end]]


@pytest.mark.parametrize("end", END)
def test_a_disk_that_takes_nothing_is_told(
    path: Path, take: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    def fsync(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    mark_file = take()
    monkeypatch.setattr(os, "fsync", fsync)
    text = f"mark file {path} cannot be written to its disk: Input/output error"
    if end == "failed":
        END[end](mark_file)
        assert [record.getMessage() for record in caplog.records] == [text]
    else:
        with pytest.raises(MarkFileError, match=re.escape(text)):
            END[end](mark_file)


@pytest.mark.parametrize("use", ["set_member_id", "signal_terminated", "signal_failed_start"])
def test_what_another_owner_prevents_is_logged(
    path: Path, take: Any, caplog: pytest.LogCaptureFixture, use: str
) -> None:
    mark_file = take()
    path.unlink()
    other = take()
    content = path.read_bytes()
    getattr(mark_file, use)(*[3] * (use == "set_member_id"))
    (text,) = [record.getMessage() for record in caplog.records]
    assert text.startswith(f"mark file {path} is not this container's any more: another file is in its place; ")
    assert path.read_bytes() == content
    other.close()


def test_a_file_that_nobody_holds_is_closed_with_its_owner(path: Path, clock: ManualClock) -> None:
    def free_descriptor() -> int:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        os.close(descriptor)
        return descriptor

    free = free_descriptor()
    mark_file = ClusterMarkFile(path, clock=clock)
    assert free_descriptor() > free
    del mark_file
    assert free_descriptor() == free


def test_closed_file_is_left_alone(path: Path, take: Any) -> None:
    mark_file = take()
    mark_file.close()
    mark_file.close()
    content = path.read_bytes()
    mark_file.update_activity_timestamp(1)
    mark_file.set_member_id(1)
    mark_file.signal_terminated()
    mark_file.signal_failed_start()
    assert path.read_bytes() == content
    assert mark_file.is_closed
    assert (mark_file.version, mark_file.activity_timestamp, mark_file.member_id, mark_file.candidate_term_id) == (
        (-1,) * 4
    )
    for use in (mark_file.signal_ready, lambda: mark_file.write_header(**WRITTEN)):
        with pytest.raises(MarkFileError, match=f"mark file {path} is closed"):
            use()
    for use in (lambda: mark_file.error_buffer, lambda: mark_file.write_errors(0, b"x")):
        with pytest.raises(MarkFileError, match=f"mark file {path} is closed"):
            use()


@pytest.mark.parametrize("offset", [-1, MIB - 3, MIB, 2**62])
def test_errors_are_written_within_their_region(path: Path, take: Any, offset: int) -> None:
    mark_file = take()
    content = path.read_bytes()
    with pytest.raises(ValueError, match=f"4 bytes at {offset} are not within the error log's {MIB}"):
        mark_file.write_errors(offset, b"text")
    assert path.read_bytes() == content


def test_file_is_initialised_once(path: Path, take: Any) -> None:
    mark_file = take()
    with pytest.raises(TypeError, match="takes exactly one argument"):
        mark_file.__init__(path)


def test_errors_are_written_behind_the_header(path: Path, take: Any) -> None:
    mark_file = take()
    log = DistinctErrorLog(mark_file)
    log.record(ClusterEvent("seen from outside"))
    (record,) = read_error_log(path.read_bytes()[8192:])
    assert record.text == "container.errors.ClusterEvent: WARN - seen from outside"
    log.close()


# --- the link file


def test_s7_link_file_names_the_directory_of_the_mark_file(tmp_path: Path) -> None:
    mark_file_dir = tmp_path / "elsewhere"
    ensure_link_file(FileStorage(), tmp_path, mark_file_dir, 3)
    assert (tmp_path / "cluster-mark-service-3.lnk").read_bytes() == str(mark_file_dir).encode()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [link_file_name(3)]


def test_link_file_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / link_file_name(0)).write_text("/a/much/longer/directory/of/the/past" * 9)
    ensure_link_file(FileStorage(), tmp_path, tmp_path / "m", 0)
    assert (tmp_path / link_file_name(0)).read_text() == str(tmp_path / "m")


@pytest.mark.parametrize("is_there", [True, False])
def test_s7_no_link_file_is_left_when_the_mark_file_is_in_the_cluster_directory(tmp_path: Path, is_there: bool) -> None:
    if is_there:
        (tmp_path / link_file_name(0)).write_text("/old")
    ensure_link_file(FileStorage(), tmp_path, tmp_path, 0)
    assert list(tmp_path.iterdir()) == []


def test_link_file_can_not_name_a_directory_that_is_not_ascii(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="mark_file_dir='.*größe': must be ASCII"):
        ensure_link_file(FileStorage(), tmp_path, tmp_path / "größe", 0)


def test_link_file_that_can_not_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MarkFileError, match="link file .* cannot be written: No such file or directory"):
        ensure_link_file(FileStorage(), tmp_path / "missing", tmp_path, 0)
