"""SBE payloads decoded by us and by Real Logic's own tools; and a cluster's log with the schema of Aeron Cluster."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import container
from container.recordings import read
from container.sbe.decoder import SbeDecoder
from container.sbe.schema import read_schema
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.java_tools import JVM_FLAGS, compile_java, find_java, resolve_sbe_jar
from tests.limits import LIMIT_S
from tests.sbe_reference import Reference
from tests.services import Counter
from tests.test_cluster_node import ask

SCHEMAS = Path(__file__).parents[1] / "schemas"
SOURCE = Path(__file__).parents[1] / "java" / "sbe" / "SbeJson.java"
NULLS = ("null", "0/0", "", 7, -1, -(2**7), -(2**31), -(2**63))
"""What is printed for the fields of the schemas that are null."""


@pytest.fixture(scope="module")
def class_path(jar: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    jars = [resolve_sbe_jar(), jar]
    return [compile_java([SOURCE], tmp_path_factory.mktemp("sbe-classes"), jars), *jars]


def agree(theirs: Any, ours: Any) -> bool:
    """Whether values are equal. JSON has unsigned numbers with a sign, nulls as numbers or names, bytes as hex."""
    if isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(agree(theirs[name], ours[name]) for name in ours)
    if isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(agree, theirs, ours))
    if ours is None:
        return theirs in NULLS
    if isinstance(ours, float) and math.isnan(ours):
        return bool(theirs == "0/0")
    if isinstance(ours, bytes):
        return bool(theirs == ours.hex())
    if isinstance(ours, str):
        return bool(theirs.rstrip("\0") == ours)
    if isinstance(ours, bool | float):
        return bool(theirs == ours)
    return bool(theirs % 2**64 == int(ours) % 2**64)


@pytest.mark.parametrize("name", ["orders", "big_endian"])
def test_real_logic_s_decoder_reads_the_same(name: str, class_path: list[Path], tmp_path: Path) -> None:
    for path in SCHEMAS.glob("*.xml"):
        # Data of an encoding that Java does not have end its JSON.
        (tmp_path / path.name).write_text(path.read_text().replace(' characterEncoding="EBCDIC"', ""))
    path = tmp_path / f"{name}.xml"
    schema = read_schema(str(path))
    random, reference = Random(17), Reference(schema)
    # Of the schema's own version: what is printed does not heed the version of a message.
    payloads = [reference.message(random, random.choice(schema.messages), schema.version) for _ in range(300)]
    (tmp_path / "messages").write_bytes(b"".join(struct.pack(">I", len(one)) + one for one in payloads))
    command = [str(find_java()), *JVM_FLAGS, "-Dstdout.encoding=UTF-8", "-Dfile.encoding=UTF-8"]
    command += ["-cp", os.pathsep.join(map(str, class_path)), "container.tests.sbe.SbeJson"]
    done = subprocess.run(
        [*command, str(path), str(tmp_path / "messages")], capture_output=True, timeout=LIMIT_S, check=True
    )
    printed = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    decoder = SbeDecoder(schema)
    arrays, errors = decoder.decode(pa.array(payloads, pa.binary()))
    assert errors == {}
    rows = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(decoder.fields)).to_pylist()
    assert len(printed) == len(rows) == 300
    for theirs, row in zip(printed, rows, strict=True):
        (ours,) = [value for value in row.values() if value is not None]
        assert agree(theirs, {} if ours is True else ours), (theirs, ours)


def test_a_cluster_s_log_is_read_with_the_schema_of_aeron_cluster(jar: Path, tmp_path: Path) -> None:
    schema = tmp_path / "aeron-cluster-codecs.xml"
    with zipfile.ZipFile(jar) as content:
        schema.write_bytes(content.read("cluster/aeron-cluster-codecs.xml"))
    directory = tmp_path / "node"
    ports = PortReservation()
    with container.launch_node(Counter(), directory=directory, host=ports.host, port=ports.take_row(5)) as node:
        for _ in range(3):
            ask(node, b"1", b"2")
        node.take_snapshot()
    ports.close()
    payloads = pa.concat_arrays([batch["payload"] for batch in read(directory, "frames", columns=["payload"])])
    decoder = SbeDecoder(read_schema(str(schema)))
    arrays, errors = decoder.decode(payloads)
    assert errors == {}
    rows = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(decoder.fields)).to_pylist()
    found = [next(((name, value) for name, value in row.items() if value), None) for row in rows]
    messages = [row for batch in read(directory, "messages") for row in batch.to_pylist()]
    names = {1: "SessionMessageHeader", 21: "SessionOpenEvent", 22: "SessionCloseEvent", 23: "ClusterActionRequest"}
    names |= {24: "NewLeadershipTermEvent"}
    assert {message["template_id"] for message in messages} == set(names)
    decoded = [one for one in found if one is not None]  # padding has no payload
    assert [name for name, _ in decoded] == [names[message["template_id"]] for message in messages]
    for (name, values), message in zip(decoded, messages, strict=True):
        pairs = {"leadershipTermId": "leadership_term_id", "timestamp": "timestamp"}
        pairs |= {"clusterSessionId": "cluster_session_id", "closeReason": "close_reason", "timeUnit": "time_unit"}
        pairs |= {"responseChannel": "response_channel", "encodedPrincipal": "encoded_principal", "action": "action"}
        pairs |= {"responseStreamId": "response_stream_id", "leaderMemberId": "leader_member_id"}
        common = {theirs: ours for theirs, ours in pairs.items() if theirs in values}
        for theirs, ours in common.items():
            assert values[theirs] == message[ours], (name, theirs)
        assert len(common) >= 2, name
