"""The storage seam: what real files and a simulated disk do alike, and that the real side's calls reach the system."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from container.errors import ForkedError
from container.storage.file_storage import FileStorage, OpenFile
from container.storage.storage_seam import CREATE, EXCLUSIVE, NO_FOLLOW, READ_ONLY, Storage, StorageFile
from container.testing.simulation.disk import SimulatedDisk
from tests.forking import Child
from tests.limits import LIMIT_S

PAGE = 4096


@pytest.fixture(params=["files", "simulated"])
def storage(request: pytest.FixtureRequest) -> Storage:
    return FileStorage() if request.param == "files" else SimulatedDisk().process()


@pytest.fixture
def root(storage: Storage, tmp_path: Path) -> str:
    if isinstance(storage, FileStorage):
        return str(tmp_path)
    storage.make_directory("/base")
    return "/base"


@pytest.fixture
def path(root: str) -> str:
    return f"{root}/file"


@pytest.fixture
def file(storage: Storage, path: str) -> StorageFile:
    return storage.open_file(path, CREATE | EXCLUSIVE)


def fails(expected: int, call: Callable[..., object], *arguments: object) -> OSError:
    """The error that the call raises, which must have this errno and say what failed."""
    with pytest.raises(OSError, match="cannot|failed before") as raised:
        call(*arguments)
    error = raised.value
    assert error.errno == expected, error
    assert error.filename
    return error


def test_a_file_is_created_opened_and_created_exclusively(storage: Storage, path: str) -> None:
    fails(errno.ENOENT, storage.open_file, path, 0)
    fails(errno.ENOENT, storage.open_file, path, READ_ONLY)
    storage.open_file(path, CREATE).write(b"kept", 0)
    assert storage.open_file(path, 0).read(9, 0) == b"kept"
    assert storage.open_file(path, CREATE).read(9, 0) == b"kept"
    error = fails(errno.EEXIST, storage.open_file, path, CREATE | EXCLUSIVE)
    assert isinstance(error, FileExistsError)
    assert error.filename == path


@pytest.mark.parametrize("flags", [EXCLUSIVE, READ_ONLY | CREATE, READ_ONLY | EXCLUSIVE, NO_FOLLOW | EXCLUSIVE, 16, -1])
def test_flags_that_make_no_sense_are_refused(storage: Storage, path: str, flags: int) -> None:
    fails(errno.EINVAL, storage.open_file, path, flags)
    assert not storage.exists(path)


def test_what_is_no_file_is_not_opened(storage: Storage, root: str, file: StorageFile) -> None:
    fails(errno.EISDIR, storage.open_file, root, 0)
    fails(errno.EISDIR, storage.open_file, root, READ_ONLY)
    fails(errno.ENOENT, storage.open_file, f"{root}/none/file", CREATE)
    fails(errno.ENOTDIR, storage.open_file, f"{file.path}/below", CREATE)


def test_bytes_are_written_and_read_at_offsets(file: StorageFile) -> None:
    assert file.length() == 0
    assert file.read(10, 0) == b""
    file.write(b"later", 10_000)
    file.write(b"first", 0)
    file.write(b"", 50_000)
    assert file.length() == 10_005
    assert file.read(8, 0) == b"first\0\0\0"
    assert file.read(100, 9_998) == b"\0\0later"
    assert file.read(1, 10_005) == file.read(0, 3) == file.read(5, 1 << 40) == b""
    file.write(bytearray(b"FIR"), 0)
    assert file.read(5, 0) == b"FIRst"
    fails(errno.EINVAL, file.write, b"x", -1)
    fails(errno.EINVAL, file.read, 1, -1)
    fails(errno.EINVAL, file.read, -1, 1)


def test_a_large_write_is_whole(file: StorageFile) -> None:
    content = os.urandom(3_000_001)
    file.write(content, 777)
    assert file.read(4_000_000, 777) == content


def test_a_file_open_for_reading_is_not_changed(storage: Storage, file: StorageFile) -> None:
    file.write(b"content", 0)
    reader = storage.open_file(file.path, READ_ONLY)
    assert reader.is_read_only
    fails(errno.EBADF, reader.write, b"x", 0)
    fails(errno.EBADF, reader.set_length, 1)
    fails(errno.EBADF, reader.reserve, 100)
    fails(errno.EBADF, reader.prepare, 0, 100)
    with memoryview(reader.map_range(0, 7)) as view:
        assert view.readonly
        assert bytes(view) == b"content"
    assert reader.read(9, 0) == b"content"
    reader.force(with_metadata=False)


def test_a_length_is_set(file: StorageFile) -> None:
    file.write(b"x" * 10_000, 0)
    file.set_length(5_000)
    assert file.length() == 5_000
    file.set_length(20_000)
    assert file.read(20_000, 0) == b"x" * 5_000 + bytes(15_000)
    fails(errno.EINVAL, file.set_length, -1)
    file.set_length(0)
    assert file.read(1, 0) == b""


def test_reserving_extends_and_never_cuts(file: StorageFile) -> None:
    file.write(b"content", 0)
    file.reserve(3)
    file.reserve(0)
    assert file.length() == 7
    file.reserve(100_000)
    assert file.read(100_001, 0) == b"content".ljust(100_000, b"\0")
    fails(errno.EINVAL, file.reserve, -1)


def test_a_range_that_is_prepared_reads_as_before(file: StorageFile) -> None:
    file.write(b"content", 0)
    file.set_length(50_000)
    assert file.prepare(0, 100_000)
    assert file.read(100_001, 0) == b"content".ljust(50_000, b"\0")
    assert not file.prepare(0, 0)
    assert not file.prepare(-1, 10)
    file.write(b"x" * 20_000, 30_000)
    assert file.read(60_000, 0) == b"content".ljust(30_000, b"\0") + b"x" * 20_000


def test_names(storage: Storage, root: str, file: StorageFile) -> None:
    file.write(b"old", 0)
    directory = f"{root}/directory"
    storage.make_directory(directory)
    fails(errno.EEXIST, storage.make_directory, directory)
    fails(errno.EEXIST, storage.make_directory, file.path)
    fails(errno.ENOENT, storage.make_directory, f"{root}/none/below")
    fails(errno.ENOTDIR, storage.make_directory, f"{file.path}/below")
    assert storage.list_directory(root) == ["directory", "file"]
    assert storage.list_directory(directory) == []
    fails(errno.ENOTDIR, storage.list_directory, file.path)
    fails(errno.ENOENT, storage.list_directory, f"{root}/none")
    assert storage.exists(directory)
    assert storage.exists(file.path)
    assert not storage.exists(f"{root}/none")
    assert not storage.exists(f"{file.path}/below")
    assert storage.length_of(file.path) == 3
    fails(errno.ENOENT, storage.length_of, f"{root}/none")


def test_a_rename_replaces(storage: Storage, root: str, file: StorageFile) -> None:
    new = storage.open_file(f"{root}/new", CREATE)
    new.write(b"new", 0)
    file.write(b"old!", 0)
    storage.rename(f"{root}/new", file.path)
    assert storage.list_directory(root) == ["file"]
    assert storage.open_file(file.path, 0).read(9, 0) == b"new"
    assert file.read(9, 0) == b"old!"
    new.write(b"NEW", 0)
    assert storage.open_file(file.path, 0).read(9, 0) == b"NEW"
    storage.rename(file.path, file.path)
    assert storage.length_of(file.path) == 3
    fails(errno.ENOENT, storage.rename, f"{root}/new", file.path)
    storage.make_directory(f"{root}/directory")
    fails(errno.EXDEV, storage.rename, file.path, f"{root}/directory/file")
    fails(errno.EISDIR, storage.rename, file.path, f"{root}/directory")


def test_who_has_an_unlinked_file_open_keeps_it(storage: Storage, root: str, file: StorageFile) -> None:
    file.write(b"kept", 0)
    storage.unlink(file.path)
    assert storage.list_directory(root) == []
    assert file.read(9, 0) == b"kept"
    fails(errno.ENOENT, storage.unlink, file.path)
    storage.open_file(file.path, CREATE | EXCLUSIVE).write(b"another", 0)
    assert file.read(9, 0) == b"kept"


def test_a_file_knows_whether_another_has_its_name(storage: Storage, root: str, file: StorageFile) -> None:
    def place(of: StorageFile) -> tuple[bool, bool]:
        return of.is_replaced(), of.is_in_place()

    assert place(file) == (False, True)
    storage.rename(file.path, f"{root}/elsewhere")
    assert place(file) == (False, False), "nothing is there"
    again = storage.open_file(file.path, CREATE | EXCLUSIVE)
    assert place(file) == (True, False)
    assert place(again) == (False, True)
    storage.unlink(file.path)
    assert place(file) == (False, False)
    storage.rename(f"{root}/elsewhere", file.path)
    assert place(file) == (False, True)
    storage.unlink(file.path)
    storage.make_directory(file.path)
    assert file.is_replaced()


def test_access_rights_leave_others_out(file: StorageFile) -> None:
    assert file.access_rights() & 0o137 == 0
    assert file.access_rights() & 0o600 == 0o600


def test_a_regular_file_is_opened_without_following(storage: Storage, file: StorageFile) -> None:
    file.write(b"content", 0)
    for flags in (NO_FOLLOW, NO_FOLLOW | READ_ONLY, NO_FOLLOW | CREATE):
        assert storage.open_file(file.path, flags).read(9, 0) == b"content"
    fails(errno.EEXIST, storage.open_file, file.path, NO_FOLLOW | CREATE | EXCLUSIVE)


def test_a_map_shares_memory_with_the_file_and_other_maps(storage: Storage, file: StorageFile) -> None:
    file.set_length(3 * PAGE)
    near, far = file.map_range(0, 3 * PAGE), storage.open_file(file.path, 0).map_range(PAGE + 100, 1_000)
    with memoryview(near) as view, memoryview(far) as other:
        assert (len(view), len(other), other.readonly) == (3 * PAGE, 1_000, False)
        other[0:3] = b"far"
        assert bytes(view[PAGE + 100 : PAGE + 103]) == b"far"
        assert file.read(3, PAGE + 100) == b"far"
        file.write(b"written", PAGE + 200)
        assert bytes(other[100:107]) == b"written"
        with pytest.raises(BufferError, match="release its 1 buffers"):
            far.close()
    near.force(0, 3 * PAGE)
    far.force(10, 500)
    far.force(1_000, 0)
    fails(errno.EINVAL, far.force, 1, 1_000)
    fails(errno.EINVAL, far.force, 1_001, 0)
    file.close()
    near.force(PAGE, 1)
    for each in (near, near, far):
        each.close()
    fails(errno.EBADF, near.force, 0, 1)
    with pytest.raises(BufferError, match="closed"):
        memoryview(near)


def test_only_what_is_in_the_file_is_mapped(file: StorageFile) -> None:
    file.set_length(100)
    for offset, length in [(0, 101), (100, 1), (101, 0), (-1, 5), (0, 0), (50, 1 << 40)]:
        assert "100 bytes" in str(fails(errno.EINVAL, file.map_range, offset, length))


def test_a_mapped_file_is_not_cut(file: StorageFile) -> None:
    file.set_length(2 * PAGE)
    view = file.map_range(0, PAGE)
    assert "close its 1 maps" in str(fails(errno.EBUSY, file.set_length, PAGE))
    file.set_length(3 * PAGE)
    view.close()
    file.set_length(PAGE)


def test_a_closed_file_refuses(file: StorageFile) -> None:
    file.close()
    file.close()
    for call in (
        file.length,
        lambda: file.read(1, 0),
        lambda: file.write(b"x", 0),
        lambda: file.set_length(1),
        lambda: file.reserve(1),
        lambda: file.prepare(0, 1),
        lambda: file.force(True),
        lambda: file.map_range(0, 1),
        file.access_rights,
        file.is_replaced,
    ):
        assert "open it again" in str(fails(errno.EBADF, call))


def test_forcing(storage: Storage, root: str, file: StorageFile) -> None:
    file.write(b"x", 0)
    file.force(with_metadata=False)
    file.force(with_metadata=True)
    storage.force_directory(root)
    fails(errno.ENOTDIR, storage.force_directory, file.path)
    fails(errno.ENOENT, storage.force_directory, f"{root}/none")


def in_child(act: Callable[[], None]) -> None:
    """Run it in a forked child, which must not raise."""
    with Child() as child:
        if child.fork():
            act()
        else:
            code, told = child.outcome()
            assert code == 0, "\n".join(told)


def full_files(tmp_path: Path) -> Iterator[tuple[Storage, str]]:
    """A file system of 64 KiB."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("only root can mount a small file system, on Linux")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.decode().strip()}")
    try:
        yield FileStorage(), str(tmp_path)
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


@pytest.fixture(params=["files", "simulated"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Storage, str]]:
    if request.param == "files":
        yield from full_files(tmp_path)
    else:
        yield SimulatedDisk(capacity=64 * 1024).process(), ""


def test_a_full_disk_is_an_error(small: tuple[Storage, str]) -> None:
    storage, root = small
    file = storage.open_file(f"{root}/file", CREATE)
    space = storage.usable_space(f"{root}/")
    assert 0 < space <= 64 * 1024
    error = fails(errno.ENOSPC, file.write, b"x" * 100_000, 100)
    assert f"cannot write 100000 bytes at 100, {file.length() - 100} of them are written" in str(error)
    assert file.read(100_000, 100) == b"x" * (file.length() - 100)
    assert storage.usable_space(f"{root}/") == 0
    file.set_length(PAGE)
    assert storage.usable_space(f"{root}/") == space - PAGE
    file.set_length(10 * space)
    assert not file.prepare(0, 10 * space)
    file.set_length(PAGE)
    file.set_length(10 * space)
    fails(errno.ENOSPC, file.reserve, 10 * space)
    fails(errno.ENOSPC, file.map_range, 0, 10 * space)
    file.set_length(PAGE)
    storage.unlink(f"{root}/file")
    file.close()
    assert storage.usable_space(f"{root}/") == space


def test_a_write_that_the_system_cuts_short_is_reported(tmp_path: Path) -> None:
    def child() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        file = FileStorage().open_file(str(tmp_path / "file"), CREATE)
        error = fails(errno.EFBIG, file.write, b"x" * 20_000, 0)
        assert "10000 of them are written" in str(error)
        assert file.length() == 10_000

    in_child(child)


def opened(path: Path) -> OpenFile:
    file = FileStorage().open_file(str(path), CREATE)
    assert isinstance(file, OpenFile)
    return file


@pytest.mark.parametrize("with_metadata", [False, True])
def test_a_force_reaches_the_system_and_is_not_trusted_again(tmp_path: Path, with_metadata: bool) -> None:
    file = opened(tmp_path / "file")
    file.write(b"content", 0)
    view = file.map_range(0, 7)
    kept = os.dup(file.descriptor)
    reader, writer = os.pipe()
    os.dup2(writer, file.descriptor)  # the system cannot force a pipe, and says so
    error = fails(errno.EINVAL, file.force, with_metadata)
    assert "cannot force the file" in str(error)
    os.dup2(kept, file.descriptor)
    assert file.read(9, 0) == b"content"
    for force in (lambda: file.force(with_metadata), lambda: view.force(0, 7)):
        assert "failed before" in str(fails(errno.EINVAL, force))
    for each in (kept, reader, writer):
        os.close(each)


def test_a_force_of_a_map_reaches_the_system_and_is_not_trusted_again(tmp_path: Path) -> None:
    def child() -> None:
        file = opened(tmp_path / "file")
        file.set_length(PAGE)
        view = file.map_range(0, PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        assert ctypes.CDLL(None).munmap(ctypes.c_void_p(address), PAGE) == 0
        assert "of a map" in str(fails(errno.ENOMEM, view.force, 0, PAGE))
        for force in (lambda: file.force(False), lambda: view.force(0, PAGE)):
            assert "failed before" in str(fails(errno.ENOMEM, force))

    in_child(child)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a directory that cannot be forced")
def test_a_force_of_a_directory_reaches_the_system_and_is_not_trusted_again() -> None:
    storage = FileStorage()
    assert "cannot force the directory" in str(fails(errno.EINVAL, storage.force_directory, "/proc"))
    assert "failed before" in str(fails(errno.EINVAL, storage.force_directory, "/proc"))


def test_a_call_of_the_system_that_fails_is_an_error(tmp_path: Path) -> None:
    file = opened(tmp_path / "file")
    kept = os.dup(file.descriptor)
    os.close(file.descriptor)
    for call in (
        file.length,
        lambda: file.write(b"x", 0),
        lambda: file.reserve(1),
        lambda: file.force(True),
        lambda: file.force(False),
        file.access_rights,
        file.is_replaced,
        file.close,
    ):
        fails(errno.EBADF, call)
    os.close(kept)


def test_a_symbolic_link_is_followed_unless_refused(tmp_path: Path) -> None:
    storage = FileStorage()
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    fails(errno.ELOOP, storage.open_file, str(link), NO_FOLLOW | CREATE)
    assert not target.exists()
    target.write_bytes(b"content")
    fails(errno.ELOOP, storage.open_file, str(link), NO_FOLLOW)
    file = storage.open_file(str(link), 0)
    assert file.read(9, 0) == b"content"
    assert file.is_replaced(), "the link has its name"


def test_who_cannot_look_for_a_name_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    file = opened(tmp_path / "directory" / "file")
    (tmp_path / "directory").rename(tmp_path / "moved")
    assert not file.is_replaced()
    (tmp_path / "directory").write_bytes(b"a file")
    assert (file.is_replaced(), file.is_in_place()) == (False, False)
    (tmp_path / "directory").unlink()
    (tmp_path / "directory").symlink_to("directory")
    fails(errno.ELOOP, file.is_replaced)
    fails(errno.ELOOP, file.is_in_place)


def test_access_rights_are_those_of_the_file(tmp_path: Path) -> None:
    file = opened(tmp_path / "file")
    (tmp_path / "file").chmod(0o4666)
    assert file.access_rights() == 0o666


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "regular file" in str(fails(errno.EINVAL, FileStorage().open_file, str(tmp_path / "pipe"), 0))


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    storage = FileStorage()
    storage.open_file(str(tmp_path / "file"), CREATE)
    storage.make_directory(str(tmp_path / "directory"))
    assert (tmp_path / "file").stat().st_mode & 0o137 == 0
    assert (tmp_path / "directory").stat().st_mode & 0o027 == 0


def test_a_forked_child_uses_nothing_of_its_parents(tmp_path: Path) -> None:
    file = opened(tmp_path / "file")
    file.write(b"content", 0)
    view = memoryview(file.map_range(0, 7))

    def child() -> None:
        with pytest.raises(ForkedError, match="cannot write .*the file was made in process"):
            file.write(b"x", 0)
        view[:] = b"CHANGED"

    in_child(child)
    assert file.read(9, 0) == b"content"
    assert (tmp_path / "file").read_bytes() == b"content"


def test_the_boot_is_the_same_for_all_that_use_the_machine(storage: Storage) -> None:
    other = FileStorage() if isinstance(storage, FileStorage) else SimulatedDisk().process()
    boot_id = storage.boot_id()
    assert isinstance(boot_id, bytes)
    assert len(boot_id) == 16
    assert any(boot_id)
    assert storage.boot_id() == other.boot_id() == boot_id


def test_the_boot_is_the_one_of_the_system() -> None:
    source = Path("/proc/sys/kernel/random/boot_id")
    boot_id = FileStorage().boot_id()
    if source.exists():
        assert str(uuid.UUID(bytes=boot_id)) == source.read_text().strip()
    program = "from container.storage.file_storage import FileStorage; print(FileStorage().boot_id().hex())"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    assert result.stdout.strip() == boot_id.hex()
