"""The command ``aeron-cluster run`` on a real node: where its settings come from, and what it says when it cannot."""

from __future__ import annotations

import importlib
import re
import signal
import sys
import tomllib
from pathlib import Path

import pytest

from container.aeron import library_path, load_library
from container.testing.processes.local_cluster import CounterType, Node
from container.testing.processes.process import Process
from examples.auction_client import AuctionClient
from tests.limits import LIMIT_S
from tests.system.harness import COMMAND, ROOT, NodeFactory, end_by

pytestmark = pytest.mark.nodes("native")

AUCTION = "examples.auction_service:AuctionService"
ECHO = "examples.echo_service:EchoService"
# The repository's root, from where the examples are found wherever the tests are run.
EXAMPLES = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


def run_command(
    member: Node, *arguments: str, environment: dict[str, str] | None = None, name: str = "service-0"
) -> Process:
    """Start ``aeron-cluster run`` with nothing in its environment but what is given."""
    return member.start_process(name, [*COMMAND, "run", *arguments], {**EXAMPLES, **(environment or {})})


def assert_auctions_work(member: Node) -> None:
    member.await_leader()
    properties = member.client_properties()
    with AuctionClient(
        "ada",
        aeron_dir=properties["aeron.dir"],
        ingress_channel=properties["aeron.cluster.ingress.channel"],
        ingress_endpoints=properties["aeron.cluster.ingress.endpoints"],
        egress_channel=properties["aeron.cluster.egress.channel"],
    ) as client:
        auction = client.open_auction("a clock", reserve_price=5, duration_ms=50)
        assert client.await_closed(auction).item == "a clock"


def options_of(member: Node) -> list[str]:
    return ["--aeron-dir", str(member.aeron_dir), "--cluster-dir", str(member.cluster_dir), "--service-id", "0"]


def test_the_command_takes_options(node: NodeFactory) -> None:
    member = node()
    member.start()
    service = run_command(member, AUCTION, *options_of(member), "--idle-strategy", "backoff(10,20,1us,50us)")
    assert_auctions_work(member)
    assert end_by(service, signal.SIGTERM) == 0
    assert "INFO container: clustered-service-0-0: ended" in service.errors()


def test_the_command_takes_environment_variables(node: NodeFactory) -> None:
    member = node(cluster_id=2)
    member.start()
    environment = {
        **member.service_environment(),
        "AERON_CLUSTER_SERVICE_CLASS_NAME": AUCTION,
        "AERON_CLUSTER_SERVICE_NAME": "auctions",
    }
    service = run_command(member, environment=environment)
    assert_auctions_work(member)
    assert end_by(service, signal.SIGINT) == 0
    assert "auctions: ended" in service.errors()


def test_the_command_takes_a_toml_file(node: NodeFactory, tmp_path: Path) -> None:
    member = node()
    member.start()
    config = tmp_path / "service.toml"
    config.write_text(
        f'service_class_name = "{AUCTION}"\naeron_dir = "{member.aeron_dir}"\n'
        f'cluster_dir = "{member.cluster_dir}"\nidle_strategy = "yield"\nlog_fragment_limit = 20\n'
    )
    service = run_command(member, "--config", str(config))
    assert_auctions_work(member)
    assert end_by(service, signal.SIGTERM) == 0


def test_help_tells_options_and_variables(node: NodeFactory) -> None:
    member = node()
    overview = member.start_process("help", [*COMMAND, "--help"], EXAMPLES)
    assert overview.wait(LIMIT_S) == 0
    assert re.search(r"run +run a service next to a consensus module", overview.output())
    help_of_run = run_command(member, "--help")
    assert help_of_run.wait(LIMIT_S) == 0
    for text in ("--cluster-dir", "[AERON_CLUSTER_DIR]", "--idle-strategy", "package.module:ServiceClass"):
        assert text in help_of_run.output()


def test_the_console_script_is_this_command() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["aeron-cluster"].partition(":")
    assert module == "aeron_cluster_command"
    assert callable(getattr(importlib.import_module(module), function))


# The Aeron library


def test_the_library_can_be_named(node: NodeFactory) -> None:
    load_library()
    member = node()
    member.start()
    service = run_command(member, ECHO, *options_of(member), environment={"AERON_LIBRARY": str(library_path())})
    member.await_leader()
    assert end_by(service, signal.SIGTERM) == 0


def one_line_of_error(process: Process, return_code: int) -> str:
    """The only line on standard error of a command that could not do its work."""
    assert process.wait(LIMIT_S) == return_code, process.tail()
    (line,) = process.errors().splitlines()
    assert line.startswith("aeron-cluster: error: ")
    return line


def test_a_library_that_is_not_there_is_named(node: NodeFactory, tmp_path: Path) -> None:
    member = node()
    member.start().await_started()
    path = tmp_path / "libaeron.so"
    service = run_command(member, ECHO, *options_of(member), environment={"AERON_LIBRARY": str(path)})
    line = one_line_of_error(service, 1)
    assert str(path) in line
    assert "AERON_LIBRARY" in line


def test_a_library_that_is_no_library_is_named(node: NodeFactory, tmp_path: Path) -> None:
    member = node()
    member.start().await_started()
    path = tmp_path / "libaeron.so"
    path.write_text("not a library\n")
    service = run_command(member, ECHO, *options_of(member), environment={"AERON_LIBRARY": str(path)})
    assert str(path) in one_line_of_error(service, 1)


# Starts that cannot succeed


def test_without_a_driver_the_command_says_so_after_the_timeout(node: NodeFactory) -> None:
    member = node()
    service = run_command(member, ECHO, *options_of(member), "--driver-timeout-ms", "500ms")
    line = one_line_of_error(service, 1)
    assert str(member.aeron_dir) in line
    assert "driver" in line
    assert "500 ms" in line


def test_a_control_channel_that_is_not_the_consensus_modules_is_refused(node: NodeFactory) -> None:
    # The driver compares with publications of others: with those of service 0 here.
    member = node(service_count=2)
    member.start()
    run_command(member, ECHO, *options_of(member))
    member.await_started()
    member.wait_until(
        lambda: member.counter(CounterType.CLUSTERED_SERVICE_ERROR_COUNT, service_id=0), LIMIT_S, "service 0"
    )
    arguments = [*options_of(member)[:-1], "1", "--control-channel", "aeron:ipc?term-length=64k"]
    line = one_line_of_error(run_command(member, ECHO, *arguments, name="service-1"), 1)
    assert "aeron:ipc?term-length=64k" in line
    assert "105" in line


@pytest.mark.parametrize("option", ["--cluster-dir", "--mark-file-dir"])
def test_a_directory_that_can_not_be_made_is_refused(node: NodeFactory, tmp_path: Path, option: str) -> None:
    member = node()
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    service = run_command(member, ECHO, *options_of(member), option, str(in_the_way / "directory"))
    line = one_line_of_error(service, 2)
    assert str(in_the_way / "directory") in line
    assert option[2:].replace("-", "_") in line


def test_a_directory_that_can_not_be_written_is_refused(node: NodeFactory) -> None:
    member = node()
    member.start().await_started()
    # Not even the superuser makes a file there.
    service = run_command(member, ECHO, *options_of(member), "--cluster-dir", "/proc")
    line = one_line_of_error(service, 1)
    assert "/proc/cluster-mark-service-0.dat" in line


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["examples.echo_service:NoSuchService"], "NoSuchService"),
        (["examples.no_such_module:Service"], "examples.no_such_module"),
        ([ECHO, "--service-id", "10"], "service_id=10"),
        ([ECHO, "--log-fragment-limit", "many"], "log-fragment-limit"),
        ([ECHO, "--no-such-option"], "--no-such-option"),
        ([], "AERON_CLUSTER_SERVICE_CLASS_NAME"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(node: NodeFactory, arguments: list[str], text: str) -> None:
    member = node()
    assert text in one_line_of_error_or_usage(run_command(member, *arguments), text)


def one_line_of_error_or_usage(process: Process, text: str) -> str:
    assert process.wait(LIMIT_S) == 2, process.tail()
    (line,) = process.errors().splitlines()
    assert re.match(r"aeron-cluster( run)?: error: ", line)
    return line


def test_python_of_the_command_is_this_one() -> None:
    assert COMMAND[0] == sys.executable
