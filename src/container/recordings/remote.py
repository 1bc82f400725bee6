"""Reads the files of a member that do not lie in a local directory: at a URL of a file system that fsspec knows.

Segment files are never copied to a local file: a reader asks for a range of bytes and gets these or an error, so what
was not fetched cannot look like the zeros behind the end of a log.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from container.common.regular_files import read_at
from container.common.slow_answers import said_when_slow
from container.common.values import shown
from container.errors import ConfigurationError, RecordingUnavailableError
from container.files.catalog import POSITION_MAX
from container.files.directories import Directory, RemoteDirectory, SegmentReader, open_in
from container.files.segments import segment_file_name
from container.recordings.shipped import (
    MANIFEST_DIRECTORY,
    MANIFEST_LENGTH_MAX,
    ShippedManifest,
    manifest_path,
    newest_manifest,
    parse_manifest,
)

_FILE_LENGTH_MAX = 1024**3
_POINT_LENGTH = 4096
# Reading on in a segment fetches more each time; what is fetched for nothing is at most some times what was read.
_WINDOW_MIN, _WINDOW_MAX, _WINDOW_FACTOR = 64 * 1024, 8 * 1024 * 1024, 4
_AHEAD_MIN = 1024 * 1024
_KEPT_LENGTH_MAX, _KEPT_MAX = _WINDOW_MIN + 4096, 256
_THREADS_MAX = 16
_DIRECTORIES_MAX = 256
_SEGMENT_NAME = re.compile(r"([0-9]{1,19})-([0-9]{1,19})\.rec", re.ASCII)
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)(?=://|::)")
_TAG_KEYS, _TIME_KEYS = ("ETag", "etag"), ("mtime", "LastModified")
_LOCAL_PREFIX = "file://"
_log = logging.getLogger(__name__)
# The greatest step of a file system's times: two seconds on FAT, a tick of the kernel on most others.
_MTIME_RESOLUTION_NS = 2_000_000_000

_directories: dict[tuple[str, StorageOptions | None], StoredDirectory] = {}
_pools: list[ThreadPoolExecutor] = []


class StorageOptions(msgspec.Struct, frozen=True):
    """Options that fsspec passes to a file system, such as an endpoint or a key; the ``repr`` shows no value."""

    text: str
    """A JSON object."""

    def __repr__(self) -> str:
        """Only the names."""
        return f"StorageOptions({', '.join(sorted(self.values()))})"

    def values(self) -> dict[str, Any]:
        """Return the options by their names."""
        return msgspec.json.decode(self.text, type=dict[str, Any])


def parse_storage_options(name: str, value: str | Mapping[str, Any] | StorageOptions | None) -> StorageOptions | None:
    """Return options of a file system, of a JSON object or a mapping; None for none. No error shows a value of them.

    Raises:
        ConfigurationError: it is neither.
    """
    if value is None or isinstance(value, StorageOptions):
        return value
    try:
        found = msgspec.json.decode(value, type=dict[str, Any]) if isinstance(value, str) else dict(value)
        return StorageOptions(msgspec.json.encode(found, order="sorted").decode()) if found else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError, ValueError):
        raise ConfigurationError(
            f'{name}: must be a JSON object of what fsspec passes to the file system, such as {{"endpoint_url": "…"}}'
        ) from None


def is_url(path: object) -> bool:
    """Whether a path is a URL, and so not to be opened by the operating system."""
    return isinstance(path, str) and _SCHEME.match(path) is not None


def resolve(directory: str, storage: StorageOptions | None) -> Directory:
    """Return what opens the files of a directory: its path, or for a URL its :class:`StoredDirectory`."""
    if not is_url(directory):
        return Path(directory)
    key = directory, storage
    found = _directories.get(key)
    if found is None:
        if len(_directories) >= _DIRECTORIES_MAX:
            _directories.clear()
        found = _directories[key] = StoredDirectory(directory, storage)
    return found


def _forget() -> None:
    """Connections and threads are those of the process that made them."""
    _directories.clear()
    _pools.clear()


os.register_at_fork(after_in_child=_forget)


def pool() -> ThreadPoolExecutor:
    """Return the threads that fetch."""
    if not _pools:
        _pools.append(ThreadPoolExecutor(_THREADS_MAX, "fetch"))
    return _pools[0]


def in_parallel[T, R](directory: Directory, function: Callable[[T], R], arguments: Iterable[T]) -> Iterator[R]:
    """Yield the results of a function that reads a few bytes each time, in order; a remote directory is asked at once
    for many of them."""
    if isinstance(directory, RemoteDirectory):
        return pool().map(function, arguments)
    return map(function, arguments)


def _file_system(url: str, storage: StorageOptions | None) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    Raises:
        ImportError: a package is missing; the text names it.
        ConfigurationError: there is no such file system, or it does not take the options.
    """
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(
            f'{url} needs fsspec, and s3:// s3fs: pip install "aeron-cluster-container[storage]"'
        ) from error
    options = {} if storage is None else storage.values()
    scheme = url.partition("://")[0]
    try:
        if (local := local_path(url)) is not None:
            # Its name may have "::", with which fsspec parts the URLs of one file system in another.
            file_system, root = fsspec.filesystem("file", **options), local
        else:
            file_system, root = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        extra = 'pip install "aeron-cluster-container[storage]"' if scheme in ("s3", "s3a") else str(error)
        raise ImportError(f"{scheme}:// needs a package that is not installed: {extra}") from error
    except OSError as error:
        raise RecordingUnavailableError(f"its file system cannot be reached: {error}", file=url) from error
    except Exception as error:
        if scheme not in fsspec.available_protocols():
            raise ConfigurationError(f"path={shown(url)}: fsspec knows no file system {scheme}://") from None
        # Its text may show a value of the options.
        what = f" with storage_options {', '.join(sorted(options))}" if options else f": {error}"
        raise ConfigurationError(
            f"path={shown(url)}: its file system cannot be opened ({type(error).__name__}){what}"
        ) from None
    return file_system, root.rstrip("/") or "/"


@contextmanager
def _unavailable(what: str, url: str) -> Iterator[None]:
    """Raise what a file system raises as the error for it; FileNotFoundError stays. Log when a store takes long."""
    try:
        # Not of this machine's disks, from which a task reads thousands of times what is small.
        with nullcontext() if local_path(url) is not None else said_when_slow(_log, f"{url}: reading it"):
            yield
    except (FileNotFoundError, RecordingUnavailableError):
        raise
    except Exception as error:  # each file system has errors of its own
        # Python's own errors are of options that the file system does not know, which it looks at when it is used.
        advice = "; look at storage_options" if isinstance(error, TypeError | AttributeError | ValueError) else ""
        raise RecordingUnavailableError(f"{what}: {type(error).__name__}: {error}{advice}", file=url) from error


class StoredFile(NamedTuple):
    """A file by the listing of its directory."""

    length: int
    state: tuple[object, ...] | None
    """Values that change when it is written again; ``None`` where the file system has none, or only a time that is too
    recent to show the next write."""


class Part(NamedTuple):
    """Bytes of a segment file that lie in one object."""

    offset: int
    """In the segment file."""
    length: int
    path: str
    """Relative to the directory."""
    state: object
    """A value that changes when the object is written again, the SHA-256 of a shipped one; ``None`` without one."""


class _Digest:
    """How far an object of a shipped place was compared with its SHA-256."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.position = 0
        """All bytes before it are in the hash."""
        self.lock = threading.Lock()


class StoredDirectory(RemoteDirectory):
    """A directory at a URL: an archive's, a cluster's, or a place to which a member was shipped, which is both.

    It knows what it saw when it looked last. Where a member was shipped that is a manifest, and all that is asked for
    is of this one. It looks again by itself for bytes of a segment that were not there then.
    """

    def __init__(self, url: str, storage: StorageOptions | None) -> None:
        self.url = url.rstrip("/")
        self.storage = storage
        self._fs, self._root = _file_system(url, storage)
        self._lock = threading.RLock()
        self._has_looked = False
        self._files: dict[str, StoredFile] = {}
        #: The times of files by their directories and names, and since when they were seen.
        self._times: dict[str, dict[str, tuple[object, int]]] = {}
        self._directory_names: list[str] = []
        self._segments: dict[tuple[int, int], tuple[Part, ...]] = {}
        #: Ends of segment files that were still so when they were looked up again.
        self._ends: dict[tuple[int, int], int] = {}
        self._manifest: ShippedManifest | None = None
        #: Its number, and its object as it was then.
        self._manifest_file: tuple[int, StoredFile] | None = None
        #: Small files of the manifest, and small ranges of segment files, that were fetched.
        self._contents: dict[str, bytes] = {}
        self._ranges: dict[tuple[object, ...], bytes] = {}
        #: Digests of shipped objects, by path and by the SHA-256 of the manifest.
        self._digests: dict[tuple[str, str], _Digest] = {}

    def __str__(self) -> str:
        """Its URL."""
        return self.url

    def look(self) -> ShippedManifest | None:
        """List the directory again; return the newest manifest where a member was shipped to it, else ``None``.

        Raises:
            RecordingUnavailableError: there is nothing, or it cannot be listed.
            RecordingError: the manifest is damaged.
        """
        with self._lock:
            try:
                self._look()
            except FileNotFoundError as error:
                raise RecordingUnavailableError("there is no such directory", file=self.url) from error
            self._has_looked = True
            return self._manifest

    def _look(self) -> None:
        if self._manifest is None:
            files, directories = self._list("")
            if MANIFEST_DIRECTORY not in directories or not self._look_for_manifest():
                self._files, self._directory_names = files, directories
                self._segments = {
                    key: (Part(0, file.length, name, file.state),)
                    for name, file in files.items()
                    if (key := _segment_key(name)) is not None
                }
        elif not self._look_for_manifest():
            raise RecordingUnavailableError(f"there is no manifest in {MANIFEST_DIRECTORY}/ any more", file=self.url)

    def _look_for_manifest(self) -> bool:
        for is_last in (False, True):
            files, _ = self._list(MANIFEST_DIRECTORY)
            number = newest_manifest(f"{MANIFEST_DIRECTORY}/{name}" for name in files)
            if number is None:
                return False
            path = manifest_path(number)
            file = files[path.rpartition("/")[2]]
            if file.state is not None and (number, file) == self._manifest_file:
                return True
            try:
                content = self._whole(path, file.length, MANIFEST_LENGTH_MAX)
            except FileNotFoundError:
                if is_last:
                    raise
                continue  # A newer one has taken its place.
            # A place that was deleted and begun again has the same numbers.
            if (manifest := parse_manifest(content, f"{self.url}/{path}")) != self._manifest:
                self._take(manifest)
            self._manifest_file = number, file
            return True
        return True

    def _take(self, manifest: ShippedManifest) -> None:
        segments: dict[tuple[int, int], tuple[Part, ...]] = {}
        first = manifest.log[0].position if manifest.log else 0
        for piece in (*manifest.log, *manifest.snapshots):
            base = piece.position
            if piece.recording_id == manifest.recording_id:
                base = first + (base - first) // manifest.segment_length * manifest.segment_length
            key = piece.recording_id, base
            part = Part(piece.position - base, piece.length, piece.path, piece.sha256)
            segments[key] = (*segments.get(key, ()), part)
        self._manifest, self._segments = manifest, segments
        named = {(piece.path, piece.sha256) for piece in (*manifest.log, *manifest.snapshots)}
        self._digests = {key: digest for key, digest in self._digests.items() if key in named}
        self._ends.clear()
        self._contents.clear()

    def _list(self, path: str) -> tuple[dict[str, StoredFile], list[str]]:
        """The files right below a path of the directory, and the names of the directories."""
        place, url = (f"{self._root}/{path}", f"{self.url}/{path}") if path else (self._root, self.url)
        with _unavailable("the directory cannot be listed", url):
            self._fs.invalidate_cache(place)
            entries = self._fs.ls(place, detail=True)
        files: dict[str, StoredFile] = {}
        directories = []
        before, self._times[path] = self._times.get(path, {}), {}
        for entry in entries:
            name = entry["name"].rstrip("/").rpartition("/")[2]
            if entry["name"].rstrip("/") == place.rstrip("/"):
                if entry["type"] != "directory":
                    raise RecordingUnavailableError("is not a directory", file=url)
            elif entry["type"] == "directory":
                directories.append(name)
            else:
                length = int(entry["size"] or 0)
                state, seen = _state_of(entry, length, before.get(name))
                files[name] = StoredFile(length, state)
                if seen is not None:
                    self._times[path][name] = seen
        return files, directories

    @property
    def manifest(self) -> ShippedManifest | None:
        """The newest manifest that it has seen."""
        if not self._has_looked:
            self.look()
        return self._manifest

    def names(self) -> list[str]:
        """Return the names of the files that are there, segment files as an archive names them."""
        manifest = self.manifest
        if manifest is None:
            self.look()
            return list(self._files)
        return [segment_file_name(*key) for key in self._segments] + [
            one.path.rpartition("/")[2] for one in manifest.metadata
        ]

    def directory_names(self) -> list[str]:
        """Return the names of the directories below it, in ascending order."""
        self.look()
        return sorted(self._directory_names)

    def state(self, name: str) -> tuple[object, ...] | None:
        """Return what changes when a file is written again, as it was seen last; ``None`` where nothing says it."""
        found = self._files.get(name)
        return None if found is None else found.state

    def content(self, name: str) -> bytes:
        """Return all bytes of a small file."""
        missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.url}/{name}")
        for is_last in (False, True):
            manifest = self.manifest
            shipped = None if manifest is None else manifest.metadata_object(name)
            if manifest is None:
                try:
                    return self._whole(name, None, _FILE_LENGTH_MAX)
                except FileNotFoundError:
                    raise missing from None
            if shipped is None:
                raise missing
            if shipped.path in self._contents:
                return self._contents[shipped.path]
            try:
                content = self._whole(shipped.path, shipped.length, _FILE_LENGTH_MAX)
            except FileNotFoundError:
                if is_last:  # The member had it: that is not the same as a member that never had one.
                    raise RecordingUnavailableError(
                        "the manifest names it, and it is not there: it was removed since it was shipped. Ship the "
                        "member again, which copies what is missing",
                        file=f"{self.url}/{shipped.path}",
                    ) from None
                self.look()  # A newer manifest names another one.
                continue
            if hashlib.sha256(content).hexdigest() != shipped.sha256:
                raise _changed(f"{self.url}/{shipped.path}")
            self._contents[shipped.path] = content
            return content
        raise missing

    def _whole(self, path: str, length: int | None, length_max: int) -> bytes:
        """All bytes of an object, which are so many where that is known."""
        url = f"{self.url}/{path}"
        known = self._files.get(path)
        listed = length or (0 if known is None else known.length)
        if listed > length_max:
            raise RecordingUnavailableError(f"it has {listed} bytes, at most {length_max} are possible", file=url)
        with _unavailable("it cannot be fetched", url):
            content: bytes = self._fs.cat_file(f"{self._root}/{path}")
        if length is not None and len(content) != length:
            raise RecordingUnavailableError(f"it has {length} bytes, and {len(content)} came: read again", file=url)
        return content

    def parts(self, recording_id: int, segment_position: int, end: int = 0) -> tuple[Part, ...]:
        """Return the objects that hold a segment file, in ascending order; none where there is no such file.

        Looks again when the file was not there, or ended before an offset ``end``.
        """
        key = recording_id, segment_position
        if not self._has_looked:
            self.look()
        found = self._segments.get(key, ())
        if not found or _end(found) < min(end, self._ends.get(key, end)):
            self.look()
            found = self._segments.get(key, ())
            if found:
                self._ends[key] = _end(found)
        return found

    def read_segment(
        self, recording_id: int, segment_position: int, offset: int, length: int, *, is_checked: bool = False
    ) -> bytes:
        """Return bytes of a segment file from an offset on: ``length``, or fewer where it ends before.

        With ``is_checked`` they count for the SHA-256 of their objects, in a shipped place: what lies before them in an
        object is fetched as well, once. The last byte of an object that is read so shows whether all were right; see
        :func:`check_objects`.

        Raises:
            FileNotFoundError: there is no such segment file.
            RecordingUnavailableError: the bytes cannot be fetched, or not all of them came.
        """
        for is_last in (False, True):
            parts = self.parts(recording_id, segment_position, offset + length)
            if not parts:
                name = segment_file_name(recording_id, segment_position)
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.url}/{name}")
            try:
                return b"".join(self._bytes_of(parts, offset, offset + length, is_checked=is_checked))
            except FileNotFoundError as error:
                if is_last:
                    raise RecordingUnavailableError(
                        "it was there when the directory was listed, and has gone", file=error.filename
                    ) from error
                self.look()  # Another object may hold these bytes by now.
        raise AssertionError("unreachable")

    def _bytes_of(self, parts: Sequence[Part], begin: int, end: int, *, is_checked: bool) -> Iterator[bytes]:
        for part in parts:
            first, last = max(begin, part.offset), min(end, part.offset + part.length)
            if first < last:
                content = self._range(part, first - part.offset, last - part.offset)
                if is_checked and isinstance(part.state, str):
                    self._add_to_digest(part.path, part.state, part.length, first - part.offset, content)
                yield content

    def _add_to_digest(self, path: str, sha256: str, length: int, begin: int, content: bytes = b"") -> None:
        """Take bytes of an object into its digest, and first what lies before them; compare it at the object's end.

        Raises:
            FileNotFoundError: there is no such object any more.
            RecordingUnavailableError: it has other bytes than were shipped, or cannot be fetched.
        """
        with self._lock:
            digest = self._digests.setdefault((path, sha256), _Digest())
        with digest.lock:
            if digest.position == length:
                return  # It was right.
            while digest.position < begin:
                block = self._fetch(path, digest.position, min(begin, digest.position + _WINDOW_MAX))
                digest.hash.update(block)
                digest.position += len(block)
            fresh = memoryview(content)[digest.position - begin :]
            digest.hash.update(fresh)
            digest.position += len(fresh)
            if digest.position == length and digest.hash.hexdigest() != sha256:
                digest.hash, digest.position = hashlib.sha256(), 0  # The next call looks again.
                with self._lock:
                    self._ranges = {key: known for key, known in self._ranges.items() if key[0] != path}
                raise _changed(f"{self.url}/{path}")

    def check(self, recording_id: int, begin: int, end: int, *, is_read: bool) -> None:
        """Compare what was read of a recording between two positions; see :func:`check_objects`."""
        manifest = self.manifest
        for piece in [] if manifest is None else manifest.pieces(recording_id, begin, end):
            if not is_read or (piece.path, piece.sha256) in self._digests:
                try:
                    self._add_to_digest(piece.path, piece.sha256, piece.length, piece.length)
                except FileNotFoundError as error:
                    raise RecordingUnavailableError(
                        "it has gone while it was read, so its SHA-256 cannot be checked: read again",
                        file=error.filename,
                    ) from error

    def _range(self, part: Part, begin: int, end: int) -> bytes:
        """Bytes of an object. Small ranges are kept: each look asks for the same begins of terms and files."""
        is_small = part.state is not None and end - begin <= _KEPT_LENGTH_MAX
        key = part.path, part.state, begin, end
        if is_small and (known := self._ranges.get(key)) is not None:
            return known
        content = self._fetch(part.path, begin, end)
        if is_small:
            with self._lock:
                if len(self._ranges) >= _KEPT_MAX:
                    del self._ranges[next(iter(self._ranges))]
                self._ranges[key] = content
        return content

    def _fetch(self, path: str, begin: int, end: int) -> bytes:
        url = f"{self.url}/{path}"
        with _unavailable(f"bytes {begin} to {end} cannot be fetched", url):
            try:
                content: bytes = self._fs.cat_file(f"{self._root}/{path}", start=begin, end=end)
            except FileNotFoundError as error:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from error
        if len(content) != end - begin:
            raise RecordingUnavailableError(
                f"bytes {begin} to {end} were asked for, which are {end - begin}, and {len(content)} came: the object "
                "was changed or the transfer cut; read again",
                file=url,
                offset=begin,
            )
        return content

    def segment_reader(self, recording_id: int) -> SegmentReader:
        """Return what reads the segment files of a recording."""
        return _ReadAhead(self, recording_id, None)

    def until(self, position: int) -> RemoteDirectory:
        """Return the same directory for readers whose rows are given away, and that are not likely to read beyond a
        log position: what they read is compared with its SHA-256, when :func:`check_objects` is called behind it."""
        return _Until(self, position)


def checked(directory: Directory, until: int = POSITION_MAX) -> Directory:
    """Return a directory for reading rows to hand out, up to a log position.

    Reads of a shipped place are compared with the SHA-256 of its objects: call :func:`check_objects` before you hand
    out the last rows.
    """
    return directory.until(until) if isinstance(directory, StoredDirectory) else directory


def check_objects(directory: Directory, recording_id: int, begin: int, end: int, *, is_read: bool = True) -> None:
    """Compare the objects that were read of a recording between two log positions with what was shipped.

    If an object was read in part, the rest is fetched, in blocks of 8 MiB. Each object is compared once in a process.
    Without ``is_read``, objects that were not read are compared as well. Nothing is done where the member was not
    shipped.

    Raises:
        RecordingUnavailableError: an object has other bytes than were shipped, or cannot be fetched.
    """
    if isinstance(directory, StoredDirectory):
        directory.check(recording_id, begin, end, is_read=is_read)


def _changed(url: str) -> RecordingUnavailableError:
    return RecordingUnavailableError(
        "its SHA-256 is not that of the manifest: the object was changed since it was shipped. `aeron-cluster pipeline "
        "ship --check` finds all such objects: move them away, and ship again",
        file=url,
    )


def _state_of(
    entry: Mapping[str, Any], length: int, before: tuple[object, int] | None
) -> tuple[tuple[object, ...] | None, tuple[object, int] | None]:
    """The state of a file by its entry in a listing, and where that is a time, this and since when it was seen."""
    tag, written = (next((entry[key] for key in keys if entry.get(key)), None) for keys in (_TAG_KEYS, _TIME_KEYS))
    if tag is not None or written is None:
        return None if tag is None else (length, str(tag)), None
    # Nobody knows the time on the store's clock. A time of change counts once it has been the same for longer than its
    # step.
    state, now_ns = (length, str(written)), time.monotonic_ns()
    if before is None or before[0] != state:
        return None, (state, now_ns)
    return state if now_ns - before[1] > _MTIME_RESOLUTION_NS else None, before


def _segment_key(name: str) -> tuple[int, int] | None:
    """The recording id and the log position in the name of a segment file; ``None`` for any other file."""
    match = _SEGMENT_NAME.fullmatch(name)
    key = (int(match[1]), int(match[2])) if match else None
    return key if key is not None and name == f"{key[0]}-{key[1]}.rec" and max(key) <= POSITION_MAX else None


def _end(parts: Sequence[Part]) -> int:
    return parts[-1].offset + parts[-1].length


class _Until(RemoteDirectory):
    """A directory whose readers fetch nothing ahead behind a log position."""

    def __init__(self, directory: StoredDirectory, position: int) -> None:
        self._directory = directory
        self._position = position

    def __str__(self) -> str:
        return str(self._directory)

    def content(self, name: str) -> bytes:
        return self._directory.content(name)

    def names(self) -> list[str]:
        return self._directory.names()

    def segment_reader(self, recording_id: int) -> SegmentReader:
        return _ReadAhead(self._directory, recording_id, self._position)


class _Chunk(NamedTuple):
    segment_position: int
    begin: int
    """In the segment file."""
    content: bytes

    @property
    def end(self) -> int:
        return self.begin + len(self.content)


class _ReadAhead(SegmentReader):
    """Fetches more with each step of a continuing reader, and the next step's bytes while it decodes these."""

    def __init__(self, directory: StoredDirectory, recording_id: int, until: int | None) -> None:
        self._directory = directory
        self._recording_id = recording_id
        self._until = until
        self._chunks: list[_Chunk] = []
        self._window = _WINDOW_MIN
        self._ahead: tuple[int, int, Future[bytes]] | None = None

    def has(self, segment_position: int) -> bool:
        return bool(self._directory.parts(self._recording_id, segment_position))

    def read(self, segment_position: int, offset: int, length: int) -> bytes:
        for chunk in self._chunks:
            if chunk.segment_position == segment_position and chunk.begin <= offset < chunk.end:
                return chunk.content[offset - chunk.begin : offset - chunk.begin + length]
        last = self._chunks[-1] if self._chunks else None
        begin = offset
        if (
            last is not None
            and last.segment_position == segment_position
            and last.end <= offset < last.end + self._window
        ):
            begin, self._window = last.end, min(self._window * _WINDOW_FACTOR, _WINDOW_MAX)
        elif length <= _POINT_LENGTH:
            return self._fetch(segment_position, offset, length)
        else:
            self._window = _WINDOW_MIN
        content = self._next(segment_position, begin, self._bounded(segment_position, begin, offset + 1))
        chunk = _Chunk(segment_position, begin, content)
        self._chunks = [*self._chunks[-1:], chunk]
        return content[offset - begin : offset - begin + length]

    def _bounded(self, segment_position: int, begin: int, needed_end: int) -> int:
        """How much to fetch from an offset on."""
        end = begin + self._window
        if self._until is not None:
            end = min(end, self._until - segment_position)
        # A reader needs a frame's header at least.
        return max(end, needed_end + _POINT_LENGTH) - begin

    def _next(self, segment_position: int, begin: int, length: int) -> bytes:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[:2] == (segment_position, begin):
            content = ahead[2].result()
        else:
            content = self._fetch(segment_position, begin, length)
        following = begin + len(content)
        is_more = content and (self._until is None or segment_position + following < self._until)
        parts = self._directory.parts(self._recording_id, segment_position) if is_more else ()
        if self._window >= _AHEAD_MIN and parts and following < _end(parts):
            length = self._bounded(segment_position, following, following)
            future = pool().submit(self._fetch, segment_position, following, length)
            self._ahead = segment_position, following, future
        return content

    def _fetch(self, segment_position: int, offset: int, length: int) -> bytes:
        try:
            return self._directory.read_segment(
                self._recording_id, segment_position, offset, length, is_checked=self._until is not None
            )
        except FileNotFoundError as error:
            raise RecordingUnavailableError(
                "it was there when the directory was listed, and has gone", file=error.filename
            ) from error


def read_segment(
    directory: Directory, recording_id: int, segment_position: int, offset: int, length: int
) -> bytes | None:
    """Return a few bytes of a segment file, fewer where it ends before; ``None`` where they cannot be read.

    Raises:
        RecordingUnavailableError: they cannot be fetched from a remote directory.
    """
    try:
        if isinstance(directory, StoredDirectory):
            return directory.read_segment(recording_id, segment_position, offset, length)
        file = open_in(directory, segment_file_name(recording_id, segment_position))
        try:
            return read_at(file, offset, length)
        finally:
            os.close(file)
    except OSError:
        return None


def file_state(directory: Directory, name: str) -> tuple[object, ...] | None:
    """Return what changes when a file is written; ``None`` while that was too recently for the next write to show."""
    if isinstance(directory, RemoteDirectory):
        return directory.state(name) if isinstance(directory, StoredDirectory) else None
    try:
        status = Path(directory, name).stat()
    except OSError:
        return None
    if not status.st_mtime_ns < time.time_ns() - _MTIME_RESOLUTION_NS:
        return None
    # The time of the last change of the file itself as well: a program can set back only the other one.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def local_path(url: str) -> str | None:
    """Return the path of a URL ``file://``; ``None`` for any other."""
    return url.removeprefix(_LOCAL_PREFIX) if url.startswith(f"{_LOCAL_PREFIX}/") else None


def place_of(path: str, storage: StorageOptions | None) -> StoredDirectory | None:
    """Return the directory of a URL, or of a local path to which a member was shipped; ``None`` for others."""
    local = local_path(path) if is_url(path) else path
    if local is not None:
        try:
            names = [file.name for file in Path(local, MANIFEST_DIRECTORY).iterdir()]
        except OSError:
            names = []
        if newest_manifest(f"{MANIFEST_DIRECTORY}/{name}" for name in names) is None:
            return None
        path = f"{_LOCAL_PREFIX}{Path(local).absolute()}"
    found = resolve(path.rstrip("/"), storage)
    assert isinstance(found, StoredDirectory)
    return found


def is_pattern(path: str) -> bool:
    """Whether a path or URL stands for all directories that match it, which may be one or many."""
    if is_url(path) and local_path(path) is None:
        return not path.startswith(("http://", "https://")) and glob.has_magic(path)
    local = local_path(path) or path
    return glob.has_magic(local) and not os.path.exists(local)  # noqa: PTH110 - no error


def expand(path: str, storage: StorageOptions | None) -> list[str]:
    """Return the directories that a path or URL stands for: itself, or those that match it as a pattern, sorted.

    Raises:
        RecordingUnavailableError: none matches, or the file system cannot be read.
    """
    if not is_pattern(path):
        return [path]
    if is_url(path) and local_path(path) is None:
        file_system, root = _file_system(path, storage)
        prefix = path[: -len(root)] if path.endswith(root) else ""
        with _unavailable("the pattern cannot be looked up", path):
            file_system.invalidate_cache()
            try:
                entries = file_system.glob(root, detail=True)
            except FileNotFoundError:
                entries = {}
        found = [
            f"{prefix}{name}" if prefix else file_system.unstrip_protocol(name)
            for name, entry in entries.items()
            if entry["type"] == "directory"
        ]
    else:
        local = local_path(path) or path
        found = [one for one in glob.glob(local) if Path(one).is_dir()]  # noqa: PTH207 - a Path knows no pattern
    if not found:
        raise RecordingUnavailableError("no directory matches this pattern", file=path)
    return sorted(found)
