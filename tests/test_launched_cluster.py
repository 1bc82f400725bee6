"""A cluster of several processes for development: what is refused, where its processes find a service, their files."""

from __future__ import annotations

import functools
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import container
from container.__main__ import main
from container.errors import ConfigurationError, MarkFileError
from container.files.directory_lock import DirectoryLock
from container.node.launched_cluster import _service_path
from container.node.members import Membership, check_size
from container.testing.processes.native_cluster import NativeCluster
from tests.services import Counter

SERVICE = "tests.services:Counter"


def make_counter() -> Counter:
    """What makes a service."""
    return Counter()


@pytest.mark.parametrize(
    ("services", "settings", "message"),
    [
        ([], {}, "services: give at least one service"),
        ([SERVICE], {"members": 2}, "members=2: must be one of 1, 3, 5, 7"),
        ([SERVICE], {"members": "3"}, "members='3': must be one of"),
        ([SERVICE], {"port": 65_531}, "port=65531: must be a whole number from 0 to 65511"),
        ([SERVICE], {"port": -1}, "port=-1: must be a whole number"),
        ([lambda: Counter()], {}, "services: <function .*: must be a class, or a function that makes a service, at th"),
        ([functools.partial(make_counter)], {}, "must be a class, or a function that makes a service"),
        ([Counter()], {}, "must be a class, or a function that makes a service"),
    ],
)
def test_what_cannot_be_launched_is_refused_before_anything_starts(
    services: list[Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        container.launch_cluster(*services, **settings)


def test_a_service_is_found_by_other_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert _service_path(SERVICE) == (SERVICE, None)
    assert _service_path(Counter) == (SERVICE, None)
    assert _service_path(make_counter) == (f"{__name__}:make_counter", None)
    script = type(sys)("__main__")
    script.__file__ = str(tmp_path / "my_program.py")
    monkeypatch.setitem(sys.modules, "__main__", script)
    monkeypatch.setattr(make_counter, "__module__", "__main__")
    assert _service_path(make_counter) == ("my_program:make_counter", str(tmp_path))
    script.__spec__ = sys.modules[__name__].__spec__  # python -m
    assert _service_path(make_counter) == (f"{__name__}:make_counter", None)
    del script.__file__
    script.__spec__ = None
    with pytest.raises(ConfigurationError, match="must be in a file"):
        _service_path(make_counter)


def test_each_member_has_the_same_list_and_an_id_of_its_own(tmp_path: Path) -> None:
    settings = {"consensus_module": {"session_timeout_ns": "30s"}}
    with NativeCluster(SERVICE, base_dir=tmp_path, host="node0", port=9010, settings=settings) as cluster:
        files = [
            tomllib.loads((tmp_path / f"member-{each.member_id}" / "node.toml").read_text()) for each in cluster.members
        ]
    assert [each.pop("member_id") for each in files] == [0, 1, 2]
    assert len({each.pop("directory") for each in files}) == len({each.pop("aeron_dir") for each in files}) == 3
    assert files[1:] == files[:1] * 2
    found = Membership.of_several(files[0]["members"], 2)
    assert found.ingress_endpoints == "0=node0:9010,1=node0:9020,2=node0:9030"
    assert found.own.archive == "node0:9034"
    module = files[0]["consensus_module"]
    assert (module["session_timeout_ns"], module["leader_heartbeat_timeout_ns"]) == ("30s", 2_000_000_000)


def test_members_whose_directory_another_node_has_are_not_touched(tmp_path: Path) -> None:
    with NativeCluster(SERVICE, base_dir=tmp_path, host="node0", port=9010) as cluster:
        driver_file = cluster.members[1].node.aeron_dir / "cnc.dat"
        driver_file.parent.mkdir()
        driver_file.touch()
        configs = [tmp_path / f"member-{member_id}" / "node.toml" for member_id in range(3)]
        texts = [config.read_text() for config in configs]
        with closing(DirectoryLock(tmp_path / "member-1")):
            with pytest.raises(MarkFileError, match="another node runs on .*member-1.*: end it first"):
                NativeCluster(SERVICE, base_dir=tmp_path, host="node1", port=9110)
            with pytest.raises(MarkFileError, match="another node runs on .*member-1.*: end it first"):
                cluster.members[1].start()
        assert [config.read_text() for config in configs] == texts
        assert driver_file.exists()


@pytest.mark.parametrize("lock_of", [".", "member-2"])
def test_a_launch_beside_a_running_cluster_is_refused_and_leaves_its_own_lock_free(
    tmp_path: Path, lock_of: str
) -> None:
    (tmp_path / "member-2").mkdir()
    with closing(DirectoryLock(tmp_path / lock_of)), pytest.raises(MarkFileError, match="end it first"):
        container.launch_cluster(SERVICE, members=3, directory=tmp_path, port=0)
    assert not (tmp_path / "member-0").exists()
    DirectoryLock(tmp_path).close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--members", "2"), "argument --members: invalid choice: 2 (choose from 1, 3, 5, 7)"),
        (
            ("--members", "3", "--aeron-dir", "/d"),
            "--aeron-dir: leave it out: each member has a media driver of its own",
        ),
        (("--members", "3", "--port", "65531"), "port=65531: must be a whole number from 0 to 65511"),
        (("--members", "3", "--metrics-port", "0.0.0.0"), "must be a port from 0"),
    ],
)
def test_dev_refuses_what_several_members_do_not_take(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["dev", SERVICE, *arguments])
    except SystemExit as end:
        code = int(str(end.code))
    assert code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("held", "arguments", "message"),
    [
        (3, (), "{} holds a cluster of 3 members (member-0 …): give --members 3, or another --dir"),
        (3, ("--reload",), "{} holds a cluster of 3 members (member-0 …): give --members 3, or another --dir"),
        (3, ("--members", "5"), "{} holds a cluster of 3 members (member-0 …): give --members 3, or another --dir"),
        (5, ("--members", "3"), "{} holds a cluster of 5 members (member-0 …): give --members 5, or another --dir"),
        (0, ("--members", "3"), "{} holds a cluster of 1 member, which has no directory of its own in it: give"),
        (1, (), "{} holds a cluster of 1 member (member-0): give another --dir"),
    ],
)
def test_a_directory_that_holds_a_cluster_of_another_size_is_refused(
    tmp_path: Path, held: int, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "place"
    for directory in [place / f"member-{member_id}" for member_id in range(held)] or [place]:
        (directory / "archive").mkdir(parents=True)
        (directory / "archive" / "0-0.rec").touch()
    assert main(["dev", SERVICE, "--dir", str(place), *arguments]) == 2
    assert message.format(place) in capsys.readouterr().err
    assert not list(place.rglob("cluster"))


def test_a_cluster_that_misses_a_member_has_the_size_that_its_members_noted(tmp_path: Path) -> None:
    for member_id in (1, 2):
        directory = tmp_path / f"member-{member_id}"
        (directory / "archive").mkdir(parents=True)
        (directory / "archive" / "0-0.rec").touch()
        (directory / "node-members.json").write_text('{"members": [0, 1, 2]}')
    check_size(tmp_path, 3, is_apart=True, option="members=", other="another directory")
    with pytest.raises(
        ConfigurationError, match=r"holds a cluster of 3 members \(member-1 …\): give members=3, or ano"
    ):
        container.launch_cluster(SERVICE, members=5, directory=tmp_path, port=0)


def test_dev_names_a_service_that_cannot_be_imported_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "tests.services:Countre", "--members", "3"]) == 2
    assert "service='tests.services:Countre': tests.services has no Countre" in capsys.readouterr().err
