"""An S3 server in this process, members that are copied to it, and the bytes that are fetched from it."""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import pytest
from moto.server import ThreadedMotoServer

from container.files.names import CATALOG_NAME, RECORDING_LOG_NAME
from container.files.segments import segment_file_name
from container.recordings import open_member
from container.recordings.cluster_time import time_unit
from container.recordings.identity import log_identity
from container.recordings.remote import StorageOptions
from container.recordings.shipped import Piece, ShippedManifest, ShippedObject, encode_manifest, manifest_path


class ObjectStore:
    """A bucket of its own in a server that speaks S3."""

    def __init__(self, endpoint_url: str) -> None:
        self.options = {"key": "test", "secret": "a-secret-value", "endpoint_url": endpoint_url}
        self.storage = StorageOptions(json.dumps(self.options))
        self.file_system = fsspec.filesystem("s3", **self.options)
        self.bucket = f"bucket-{uuid.uuid4().hex}"
        self.file_system.mkdir(self.bucket)
        self._places = 0

    def place(self) -> str:
        """The URL of a place where nothing is yet."""
        self._places += 1
        return f"s3://{self.bucket}/cluster/member-{self._places:03}"

    def copy(self, base_dir: Path) -> str:
        """Copy a member's directories as ``aws s3 cp --recursive`` does; return the URL."""
        url = self.place()
        self.file_system.put(str(base_dir), url, recursive=True)
        return url

    def write(self, url: str, content: bytes) -> None:
        """Write an object."""
        self.file_system.pipe_file(url, content)

    @contextmanager
    def fetched(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
        """Count what is fetched meanwhile: bytes by object, its key."""
        found: dict[str, int] = {}
        original = type(self.file_system)._call_s3

        async def counted(file_system: Any, method: str, *arguments: Any, **options: Any) -> Any:
            answer = await original(file_system, method, *arguments, **options)
            if method == "get_object":
                key = options["Key"] if "Key" in options else arguments[-1]
                found[key] = found.get(key, 0) + answer["ContentLength"]
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(type(self.file_system), "_call_s3", counted)
            yield found


@contextmanager
def running_object_store() -> Iterator[ObjectStore]:
    """A server on a free port, for the time of the block."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield ObjectStore(f"http://{host}:{port}")
    finally:
        server.stop()


def write_place(
    store: ObjectStore, base_dir: Path, url: str, *, number: int = 1, end: int | None = None, member_id: int = 2
) -> ShippedManifest:
    """Write what a member has, up to a log position, as the objects of a shipped place, with a manifest."""
    member = open_member(base_dir)
    descriptor = member.log_descriptor()
    log_range = member.log_range()
    end = log_range.committed_position if end is None else end
    segment_length = descriptor.segment_file_length

    def put(path: str, content: bytes) -> ShippedObject:
        store.write(f"{url}/{path}", content)
        return ShippedObject(path=path, length=len(content), sha256=hashlib.sha256(content).hexdigest())

    def piece(path: str, content: bytes, recording_id: int, position: int) -> Piece:
        one = put(path, content)
        return Piece(path=path, length=one.length, sha256=one.sha256, recording_id=recording_id, position=position)

    archive = Path(member.archive_dir)
    log: list[Piece] = []
    for base in range(log_range.start_position // segment_length * segment_length, end, segment_length):
        content = archive.joinpath(segment_file_name(descriptor.recording_id, base)).read_bytes()
        if base + segment_length <= end:
            path = f"archive/{segment_file_name(descriptor.recording_id, base)}"
            log.append(piece(path, content, descriptor.recording_id, base))
            continue
        cuts = [base, base + (end - base) // 64 * 32, end]
        for begin, until in pairwise(cuts):
            if begin < until:
                path = f"tail/{descriptor.recording_id}-{begin}-{until}.rec"
                log.append(piece(path, content[begin - base : until - base], descriptor.recording_id, begin))
    snapshots = []
    for one in member.recordings():
        if one.recording_id != descriptor.recording_id:
            name = segment_file_name(one.recording_id, 0)
            content = archive.joinpath(name).read_bytes()[: one.stop_position]
            snapshots.append(piece(f"archive/{name}", content, one.recording_id, 0))
    places = [archive / CATALOG_NAME, Path(member.cluster_dir or "", RECORDING_LOG_NAME)]
    identity = log_identity(archive, descriptor)
    manifest = ShippedManifest(
        cluster_id=7,
        member_id=member_id,
        time_unit=time_unit(member),
        recording_id=descriptor.recording_id,
        recording=identity.recording,
        first_term=identity.first_term,
        start_position=log_range.start_position,
        end_position=end,
        segment_length=segment_length,
        written_ms=0,
        metadata=[put(f"metadata/{number:020}-0/{place.name}", place.read_bytes()) for place in places],
        log=log,
        snapshots=snapshots,
    )
    store.write(f"{url}/{manifest_path(number)}", encode_manifest(manifest))
    return manifest
