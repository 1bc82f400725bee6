"""Fixtures of the system tests: Aeron's jar, our Java classes, nodes that end with their test, clusters under load."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from container.errors import ContainerError
from container.testing.processes.java_tools import JVM_FLAGS, JavaError, compile_java, resolve_jar
from container.testing.processes.local_cluster import Node
from tests.soak.scenario import Scenario
from tests.system.harness import Parts, Scenarios

JAVA_SOURCES = Path(__file__).parents[1] / "java"
# A JVM that the archive of classes does not fit does without it and says nothing.
SHORT_LIVED = ["-XX:TieredStopAtLevel=1", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
MANY_TESTS = 20
"""With which preparing JVMs for a short life takes less time than it saves."""
IDLE_STRATEGY = "container.tests.ShortParkIdleStrategy"

# A node without Java: a media driver, an archive and a consensus module, a process each.
NATIVE = {"driver": "native", "archive": "native", "consensus_module": "native"}

_open_nodes = pytest.StashKey[list[Node]]()

type NodeFactory = Callable[..., Node]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch the jar before the first test, whose time limit is not for that; a failure is the fixture's to tell."""
    count = sum("jar" in getattr(item, "fixturenames", ()) for item in session.items)
    if count:
        with suppress(JavaError):
            resolve_jar()
            if count >= MANY_TESTS:
                _make_jvms_short_lived()


def _make_jvms_short_lived() -> None:
    """Have the JVMs of the tests, hundreds that live for seconds, spend half of the time on their start.

    They do without the optimising compiler, and find Aeron's classes loaded in an archive that one node leaves here.
    """
    archive = Path(tempfile.mkdtemp(prefix="aeron-classes-"), "node.jsa")
    atexit.register(shutil.rmtree, archive.parent, ignore_errors=True)
    with (
        suppress(ContainerError, TimeoutError),
        Node(jvm_flags=[*JVM_FLAGS, f"-XX:ArchiveClassesAtExit={archive}"]) as node,
    ):
        node.start().await_started(30)
        node.stop(30)
    options = [*SHORT_LIVED, *([f"-XX:SharedArchiveFile={archive}"] if archive.exists() else [])]
    os.environ["CONTAINER_JVM_FLAGS"] = " ".join([*options, os.environ.get("CONTAINER_JVM_FLAGS", "")]).strip()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each kind of node that its mark ``nodes`` names."""
    mark = metafunc.definition.get_closest_marker("nodes")
    if mark is not None and "node" in metafunc.fixturenames:
        first, *others = mark.args
        kinds = [first, *(pytest.param(kind, marks=pytest.mark.slow) for kind in others)]
        metafunc.parametrize("node", kinds, indirect=True)


@pytest.fixture(scope="session")
def jar() -> Path:
    """Aeron's jar with a verified checksum."""
    return resolve_jar()


@pytest.fixture(scope="session")
def java_classes(jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the compiled programs of ``tests/java``."""
    out_dir = tmp_path_factory.mktemp("java-classes")
    return compile_java(sorted(JAVA_SOURCES.glob("*.java")), out_dir, [jar])


@pytest.fixture
def node(request: pytest.FixtureRequest, java_classes: Path) -> Iterator[NodeFactory]:
    """A factory of nodes that see our Java classes and park at most 50 us; all end with the test.

    It takes the arguments of :class:`Node` and does not start the node. The node is Java's, unless the test's mark
    ``nodes`` says otherwise.
    """
    of_the_kind = NATIVE if getattr(request, "param", "java") == "native" else {}
    nodes: list[Node] = request.node.stash.setdefault(_open_nodes, [])

    def make(**settings: object) -> Node:
        arguments = {"class_path": [java_classes], "idle_strategy": IDLE_STRATEGY, **of_the_kind, **settings}
        made = Node(**arguments)  # type: ignore[arg-type]
        nodes.append(made)
        return made

    yield make
    for made in nodes:
        made.close()
    nodes.clear()


@pytest.fixture(
    scope="module", params=[pytest.param("NNN", id="native"), pytest.param(None, id="java", marks=pytest.mark.slow)]
)
def scenarios(request: pytest.FixtureRequest) -> Iterator[Scenarios]:
    """Gives a scenario with these settings for a ``with`` block: that of the last block, if that ended well and had the
    same settings, else a new one.

    Its members are three native ones, then, in tests that are slow, three of Java's, of which the first has Java's
    container and the others have ours.
    """
    stack = ExitStack()
    kept: list[tuple[dict[str, Any], Scenario]] = []

    def end() -> None:
        kept.clear()
        stack.close()

    @contextmanager
    def use(**settings: Any) -> Iterator[Scenario]:
        kinds = settings.setdefault("kinds", request.param)
        if kept and kept[0][0] != settings:
            end()
        if not kept:
            needs_java = kinds is None or "J" in kinds or settings.get("java_members")
            classes = request.getfixturevalue("java_classes") if needs_java else None
            kept.append((settings, stack.enter_context(Scenario(classes, **settings))))
        scenario = kept[0][1]
        try:
            yield scenario
        except BaseException as error:
            error.add_note(scenario.cluster.report())
            end()
            raise

    yield use
    end()


@pytest.fixture(params=["native", pytest.param("java", marks=pytest.mark.slow)])
def parts(request: pytest.FixtureRequest) -> Parts:
    """Settings of a :class:`LocalCluster`: all members are native ones, then, in tests that are slow, Java's nodes."""
    native: Parts = {"drivers": "native", "archives": "native", "consensus_modules": "native"}
    return native if request.param == "native" else {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the outputs and error logs of the test's nodes, while they exist, to the report of a failure."""
    report = yield
    nodes: list[Node] = item.stash.get(_open_nodes, [])
    if report.failed:
        for index, failed in enumerate(nodes):
            report.sections.append((f"node {index}: member {failed.member_id}", failed.report()))
    return report
