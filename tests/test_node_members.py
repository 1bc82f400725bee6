"""The members of a node: what of them is refused and how, what follows from them, and which directory they may have."""

from __future__ import annotations

import json
import re
import socket
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest

import container
from container.__main__ import main
from container.consensus.cluster_member import ClusterMember, parse_cluster_members
from container.errors import ClusterError, ConfigurationError, TimedOutError
from container.node.cluster_node import waited_for
from container.node.members import ENDPOINTS, NOTE_NAME, Member, Membership, members_given
from container.node.node_command import _NODE_KEYS
from container.testing.processes.endpoints import HOST, PortReservation
from tests.services import Counter
from tests.test_cluster_mark_file import CONSENSUS_MODULE, CONTAINER, left_file

ROOT = Path(__file__).parents[1]
THREE = [{"id": each, "host": f"node{each}", "port": 9010} for each in range(3)]
BY_NAME = {name: f"node0:{9010 + number}" for number, name in enumerate(("ingress", "consensus", "log", "catchup"))}


def test_members_are_upstream_s_list_in_the_order_of_their_ports() -> None:
    found = Membership.of_several(THREE, 1)
    assert found.own == Member(1, ("node1:9010", "node1:9011", "node1:9012", "node1:9013", "node1:9014"))
    assert found.ingress_endpoints == "0=node0:9010,1=node1:9010,2=node2:9010"
    parsed = parse_cluster_members(found.cluster_members)
    assert [each.id for each in parsed] == [0, 1, 2]
    assert parsed[1].archive_endpoint == found.own.archive == "node1:9014"
    assert found.own.any_port == "node1:0"
    assert not found.is_one


def test_endpoints_by_name_may_lie_on_several_networks() -> None:
    member = {"id": 4, **BY_NAME, "archive": "[fd00::1]:8010", "catchup": "fast0:9040"}
    found = Membership.of_several([member], None)
    assert found.own.endpoints == ("node0:9010", "node0:9011", "node0:9012", "fast0:9040", "[fd00::1]:8010")
    assert found.own.any_port == "fast0:0"
    assert found.is_one


def test_a_port_that_is_not_given_is_9010_and_an_address_of_ipv6_gets_its_brackets() -> None:
    found = Membership.of_several([{"id": 0, "host": "fd00::1"}], 0)
    assert found.own.ingress == "[fd00::1]:9010"


@pytest.mark.parametrize(
    ("members", "member_id", "message"),
    [
        ([], 0, r"members=\[\]: must be a list of members, such as \{id = 0, host = "),
        ("0,a:1", 0, "members='0,a:1': must be a list of members"),
        ([1], 0, "members: 1: must be a table, such as"),
        ([{"host": "a"}], 0, r"members: id=None of \{'host': 'a'\}: must be a whole number, 0 or more"),
        ([{"id": True, "host": "a"}], 0, "members: id=True of .*: must be a whole number"),
        ([{"id": -1, "host": "a"}], 0, "members: id=-1 of .*: must be a whole number"),
        ([{"id": 0}], 0, "members: member 0: host must be given"),
        ([{"id": 0, "hots": "a"}], 0, "members: member 0: unknown key 'hots': did you mean 'host'"),
        (
            [{"id": 0, "weight": 3}],
            0,
            "member 0: unknown key 'weight': see docs/deployment.md; the keys are id, host, port, ingress, consensus",
        ),
        ([{"id": 0, "host": "a,b"}], 0, "members: member 0: host='a,b': must be a name or an address of its machine"),
        ([{"id": 0, "host": ""}], 0, "members: member 0: host='': must be a name"),
        ([{"id": 0, "host": "a", "port": 65_532}], 0, "members: member 0: port=65532: must be a whole number from 1"),
        ([{"id": 0, "host": "a", "port": "1"}], 0, "members: member 0: port='1': must be a whole number"),
        ([{"id": 0, "host": "a", "ingress": "a:1"}], 0, "member 0: leave out host='a': ingress decides$"),
        (
            [{"id": 0, "port": 1, **BY_NAME}],
            0,
            "member 0: leave out port=1: ingress, consensus, log, catchup decide$",
        ),
        ([{"id": 0, **BY_NAME}], 0, "members: member 0: archive must be given as well, each as host:port; or give"),
        ([{"id": 0, **BY_NAME, "archive": "a"}], 0, "members: member 0: archive='a': must be host:port, such as"),
        ([{"id": 0, **BY_NAME, "archive": "a:0"}], 0, "archive='a:0': must be host:port"),
        ([{"id": 0, **BY_NAME, "archive": "a:65536"}], 0, "archive='a:65536': must be host:port"),
        ([{"id": 0, **BY_NAME, "archive": "a|b:1"}], 0, r"archive='a\|b:1': must be host:port"),
        ([{"id": 0, **BY_NAME, "archive": 5}], 0, "archive=5: must be host:port"),
        ([{"id": 0, **BY_NAME, "archive": "node0:9012"}], 0, "node0:9012 is log of member 0 and archive of member 0"),
        ([THREE[0], THREE[0]], 0, "members: the id 0 is given twice: give each member an id of its own"),
        (
            [THREE[0], {"id": 1, "host": "NODE0", "port": 9014}],
            0,
            "members: NODE0:9014 is archive of member 0 and ingress of member 1: members on one host need ports",
        ),
        (THREE, None, "member_id must be given: which of the members 0, 1, 2 this node is"),
        (THREE, 3, "member_id=3: is not an id of members, which are 0, 1, 2: give one of them, or add it"),
        (THREE, False, "member_id=False: is not an id of members"),
    ],
)
def test_what_is_wrong_with_members_is_named(members: Any, member_id: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Membership.of_several(members, member_id)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"member_id": 1}, "member_id=1: give members as well, or leave it out"),
        ({"members": THREE, "member_id": 0, "host": "a"}, "host='a': leave it out: members has it"),
        ({"members": THREE, "member_id": 0, "port": 9010}, "port=9010: leave it out: members has it"),
    ],
)
def test_a_node_has_members_or_a_host_and_a_port(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        members_given(**{"members": None, "member_id": None, "host": None, "port": None} | given)


def test_the_ports_of_the_own_member_must_be_free() -> None:
    ports = PortReservation(HOST)
    port = ports.take_row(5)
    members = [{"id": 0, "host": HOST, "port": port}, {"id": 1, "host": "not-to-be-resolved.invalid"}]
    try:
        assert members_given(members, 0, None, None).own.id == 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((HOST, port + 3))
            expected = (
                rf"members: catchup='{HOST}:{port + 3}' of this node, member 0: UDP port {port + 3} cannot be had: "
                r".*; end the process that has it, or give this member another port"
            )
            with pytest.raises(ClusterError, match=expected):
                members_given(members, 0, None, None)
    finally:
        ports.close()


def _record(directory: Path) -> None:
    archive = directory / "archive"
    archive.mkdir()
    (archive / "0-0.rec").touch()


def test_the_members_of_a_start_that_recorded_nothing_can_be_corrected(tmp_path: Path) -> None:
    Membership.of_several(THREE, 1).note(tmp_path)
    corrected = Membership.of_several([{"id": each, "host": f"node{each}"} for each in (1, 2, 3)], 1)
    corrected.check_directory(tmp_path)
    corrected.note(tmp_path)
    _record(tmp_path)
    with pytest.raises(ConfigurationError, match="the ids are 0, 1, 2, and the log in .* is of a cluster of 1, 2, 3: "):
        Membership.of_several(THREE, 1).check_directory(tmp_path)


def test_a_log_of_other_members_is_refused(tmp_path: Path) -> None:
    three = Membership.of_several(THREE, 1)
    three.check_directory(tmp_path)
    three.note(tmp_path)
    three.note(tmp_path)
    _record(tmp_path)
    moved = Membership.of_several([{**each, "host": f"other{each['id']}"} for each in reversed(THREE)], 2)
    moved.check_directory(tmp_path)  # the same members, elsewhere
    message = rf"members: the ids are 0, 1, and the log in {tmp_path} is of a cluster of 0, 1, 2: members that never"
    with pytest.raises(ConfigurationError, match=message):
        Membership.of_several(THREE[:2], 1).check_directory(tmp_path)
    for content in ("", "{}", '{"members": 5}', '{"members": ["a"]}', "[" * 100_000):
        (tmp_path / NOTE_NAME).write_text(content)
        Membership.of_several(THREE[:2], 1).check_directory(tmp_path)
    three.note(tmp_path)
    assert json.loads((tmp_path / NOTE_NAME).read_text()) == {"members": [0, 1, 2]}


def test_the_log_of_another_member_is_refused(tmp_path: Path) -> None:
    mark = tmp_path / "cluster" / "cluster-mark.dat"
    mark.parent.mkdir()
    members = [{"id": each, "host": f"node{each}"} for each in (1, 3)]
    mark.write_bytes(left_file(component_type=CONSENSUS_MODULE))
    Membership.of_several(members, 3).check_directory(tmp_path)
    with pytest.raises(ConfigurationError, match="member_id=1: .* has the log of member 3, by its mark file: give mem"):
        Membership.of_several(members, 1).check_directory(tmp_path)
    mark.write_bytes(left_file(component_type=CONTAINER))
    Membership.of_several(members, 1).check_directory(tmp_path)


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        ((), "members 0, 1 and 2, of which it has not heard"),
        ((1,), "members 0 and 2, of which it has not heard"),
        ((0, 1), "member 2, of which it has not heard"),
        ((0, 1, 2), "the election of a leader"),
    ],
)
def test_a_member_without_a_leader_says_what_it_waits_for(heard: tuple[int, ...], expected: str) -> None:
    others = [ClusterMember(each, ["a:1", "a:2", "a:3", "a:4", "a:5"]) for each in range(3)]
    for each in heard:
        others[each].set_log(0, 0, 1)
    assert waited_for(others) == expected


def test_a_second_start_with_other_members_is_refused_before_anything_starts(tmp_path: Path) -> None:
    ports = PortReservation(HOST)
    port = ports.take_row(5)
    try:
        with container.launch_node(Counter(), directory=tmp_path, host=HOST, port=port) as node:
            assert node.member_id == 0
        others = [{"id": 0, "host": HOST, "port": port}, {"id": 1, "host": "node1"}, {"id": 2, "host": "node2"}]
        with pytest.raises(ConfigurationError, match="the ids are 0, 1, 2, and the log in .* is of a cluster of 0: "):
            container.launch_node(Counter(), directory=tmp_path, members=others, member_id=0)
        with container.launch_node(Counter(), directory=tmp_path, members=others[:1]) as node:
            assert node.ingress_endpoints == f"0={HOST}:{port}"
    finally:
        ports.close()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("SHARED", {"node", "services"}),
        ("DEDICATED", {"archive", "consensus-module-0-0", "clustered-service-0-0"}),
    ],
)
def test_the_services_of_a_member_of_several_have_another_thread_than_the_member(
    mode: str, expected: set[str], tmp_path: Path
) -> None:
    ports = PortReservation(HOST)
    members = [{"id": each, "host": HOST, "port": ports.take_row(5)} for each in range(3)]
    ports.close()
    before = {thread.name for thread in threading.enumerate()}
    found: set[str] = set()

    def launch() -> None:
        with pytest.raises(TimedOutError, match="it waits for members 1 and 2"):
            container.launch_node(
                Counter(), directory=tmp_path, members=members, member_id=0, threading_mode=mode, timeout=1
            )

    launching = threading.Thread(target=launch, name="launching")
    launching.start()
    while launching.is_alive():
        found |= {thread.name for thread in threading.enumerate()}
        launching.join(0.01)
    assert {name.partition(" ")[0] for name in found - before} - {"launching"} == expected


def test_the_page_s_files_are_what_a_node_takes() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    whole, by_name, threads = [tomllib.loads(each.partition("```")[0]) for each in page.split("```toml\n")[1:]]
    assert threads.keys() <= _NODE_KEYS.keys()
    found = Membership.of_several(whole["members"], whole["member_id"])
    assert f"`{found.ingress_endpoints}`" in page
    assert (found.own.id, found.ids) == (0, "0, 1, 2")
    assert set(whole) <= set(_NODE_KEYS)
    for number, (name, endpoint) in enumerate(zip(ENDPOINTS, found.own.endpoints, strict=True)):
        assert f"| {9010 + number} | `{name}` |" in page
        assert endpoint == f"node0:{9010 + number}"
    assert Membership.of_several(by_name["members"], None).own.any_port == "node0-fast:0"


def test_the_settings_page_has_each_key_of_a_node() -> None:
    chapter = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8").partition("\n## A node\n")[2]
    named = [name for cell in re.findall(r"^\| (`.*?) \|", chapter, re.M) for name in re.findall(r"`(\w+)`", cell)]
    assert named == list(_NODE_KEYS)


TOML = """
services = ["tests.services:Counter"]
directory = "{directory}"
{more}
"""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("members = 5", "members=5: must be a list of tables, [[members]] for each"),
        ("member_id = '0'", "member_id='0': must be a whole number"),
        ("member_id = 1\n[[members]]\nid = 0\nhost = 'a'", "member_id=1: is not an id of members, which are 0"),
        ("host = 'a'\n[[members]]\nid = 0\nhost = 'a'", "host='a': leave it out: members has it"),
        ("[[members]]\nid = 0\nhost = 'a'\n[[members]]\nid = 1\nhost = 'a'", "a:9010 is ingress of member 0 and ingre"),
    ],
)
def test_a_file_with_wrong_members_ends_the_command_with_code_2(
    tmp_path: Path, more: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(TOML.format(directory=tmp_path, more=more), encoding="utf-8")
    assert main(["node", "--config", str(file)]) == 2
    assert message in capsys.readouterr().err
