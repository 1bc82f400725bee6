"""The peers: a node of Java's with one service container beside it, in Python, Cython or Java, or any other program."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks._harness import CACHE, ROOT, RoundFailed
from container.common.aeron_defaults import CounterType
from container.errors import ContainerError
from container.testing.processes.java_tools import compile_java, resolve_jar
from container.testing.processes.node import Node
from container.testing.processes.process import Process
from tests.cython_module import compile_cython

LIMIT_S = 180.0
JAVA_SOURCES = [path for part in ("tests", "benchmarks") for path in sorted((ROOT / part / "java").glob("*.java"))]
TERMS = {
    "aeron.term.buffer.length": "8m",
    "aeron.ipc.term.buffer.length": "8m",
    "aeron.cluster.log.channel": "aeron:udp?term-length=8m",
    "aeron.cluster.max.sessions": "200",
}


@dataclass(frozen=True)
class Idle:
    """The same idle strategy, as Java and as we name it."""

    java: str
    python: str


IDLES = {
    "backoff 50us": Idle("container.tests.ShortParkIdleStrategy", "backoff(10,20,1us,50us)"),
    "backoff 1ms": Idle("backoff", "backoff(10,20,1us,1ms)"),
    "yield": Idle("yield", "yield"),
}
STANDARD_IDLE = "backoff 50us"

type Start = Callable[[Node, Idle], Process]


_classes = tempfile.TemporaryDirectory(prefix="bench-classes-")  # goes with the process


@cache
def java_classes() -> Path:
    """The compiled Java programs of the tests and the benchmarks."""
    return compile_java(JAVA_SOURCES, Path(_classes.name), [resolve_jar()])


def python_service(path: str, environment: Mapping[str, str] | None = None) -> Start:
    """A service of ours by ``package.module:Name``, found below the repository and where Cython modules are built."""

    def start(node: Node, idle: Idle) -> Process:
        variables = {
            "AERON_CLUSTER_IDLE_STRATEGY": idle.python,
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{CACHE}",
            **(environment or {}),
        }
        return node.start_service([sys.executable, "-m", "container", "run", path], environment=variables)

    return start


def cython_service(source: Path, name: str, environment: Mapping[str, str] | None = None) -> Start:
    """A service of ours in Cython, compiled in the cache."""

    def start(node: Node, idle: Idle) -> Process:
        return python_service(f"{compile_cython(source, CACHE).name.partition('.')[0]}:{name}", environment)(node, idle)

    return start


def java_service(service_class: str, properties: Mapping[str, str] | None = None) -> Start:
    """A service in Java's container, with system properties of its own."""

    def start(node: Node, idle: Idle) -> Process:
        return node.start_java_service(
            service_class, properties={"aeron.cluster.idle.strategy": idle.java, **(properties or {})}
        )

    return start


def program(command: str) -> Start:
    """Any other container: it finds its place in variables such as AERON_DIR and AERON_CLUSTER_DIR."""

    def start(node: Node, idle: Idle) -> Process:
        return node.start_service(shlex.split(command), environment={"AERON_CLUSTER_IDLE_STRATEGY": idle.python})

    return start


@cache
def build_aeron_go(source: str) -> Path:
    """Build our echo service in aeron-go's container with the machine's Go; where the program is.

    ``source`` is a version of its module, such as ``latest``, or a directory with its sources.
    """
    target = CACHE / "go"
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "benchmarks" / "go" / "main.go", target)
    for name in ("go.mod", "go.sum"):
        (target / name).unlink(missing_ok=True)
    module = "github.com/lirm/aeron-go"
    wanted = ["get", f"{module}@{source}"]
    if Path(source).is_dir():
        wanted = ["mod", "edit", f"-replace={module}={Path(source).resolve()}"]
    for arguments in (["mod", "init", "echo"], wanted, ["mod", "tidy"], ["build", "-o", "go-echo", "."]):
        try:
            subprocess.run(["go", *arguments], cwd=target, check=True, capture_output=True, text=True, timeout=LIMIT_S)
        except FileNotFoundError:
            raise SystemExit("--aeron-go needs Go: install it (apt install golang), or leave the option out") from None
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"--aeron-go {source}: go {' '.join(arguments)} failed:\n{error.stderr.strip()}") from None
    return target / "go-echo"


def add_peer_options(parser: argparse.ArgumentParser) -> None:
    """The options ``--aeron-go`` and ``--peer``."""
    parser.add_argument(
        "--aeron-go", metavar="VERSION", help="aeron-go's container as well: a version of its module, or its sources"
    )
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help="another container")


def other_peers(options: argparse.Namespace) -> dict[str, Start]:
    """The peers that these options add."""
    peers = {name: program(command) for name, _, command in (option.partition("=") for option in options.peer)}
    if options.aeron_go:
        peers["go"] = program(str(build_aeron_go(options.aeron_go)))
    return peers


@contextmanager
def running(
    start: Start, idle_name: str, properties: Mapping[str, str] | None = None, base_dir: Path | None = None
) -> Iterator[tuple[Node, Process]]:
    """A node that leads, with one service; what dies or does not come in time is a RoundFailed.

    It continues in ``base_dir``; a fresh one when not given.
    """
    idle = IDLES[idle_name]
    settings = {**TERMS, **(properties or {})}
    with Node(class_path=[java_classes()], idle_strategy=idle.java, properties=settings, base_dir=base_dir) as node:
        try:
            yield node, start_on(node, start, idle)
        except (ContainerError, TimeoutError) as error:
            raise RoundFailed(str(error)) from error


def start_on(node: Node, start: Start, idle: Idle) -> Process:
    """Start the node and, once it waits for its services, the service; return that when the node leads."""
    node.start().await_started(LIMIT_S)
    # Some containers end when they find no recovery state yet.
    node.wait_until(lambda: node.counter(CounterType.RECOVERY_STATE) is not None, LIMIT_S, "the recovery state counter")
    service = start(node, idle)
    node.await_leader(LIMIT_S)
    return service
