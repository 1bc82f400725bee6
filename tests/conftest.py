"""Fixtures of the unit tests: a world in memory and a client in it."""

from __future__ import annotations

import faulthandler
import gc
import inspect
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from container.testing.memory.manual_time import ManualClock
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.testing.processes.endpoints import PortReservation
from tests import failures
from tests.client_world import World
from tests.failures import FailuresPlugin
from tests.pauses import run
from tests.seeds import DAY, commit, day, drawn
from tests.threaded_members import ThreadedMembers
from tests.times import VARIABLE, TimesPlugin

if TYPE_CHECKING:
    from tests.object_store import ObjectStore

# A run in the background of a shell has Ctrl-C ignored, one with nohup SIGHUP, and so would every process that a test
# starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A test's Spark lives for seconds: what the optimising compiler and a parallel collector take, it never gives back.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# What Hypothesis draws depends on the commit alone: not on chance, on earlier failures or on how fast the machine is.
settings.register_profile(
    "tests", database=None, deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")

OWN_DIRECTORY = pytest.StashKey[str]()
"""Where a run that was given no directory writes."""

STDERR = os.dup(2)
_file = ""
"""Which the tests are of now."""
END_LIMIT_S = 600
"""After which a run is aborted that does not get on; it prints where each of its threads is."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give each run a directory of its own: pytest's default one is swept by every other run on the machine."""
    os.dup2(2, STDERR)  # what it was when this file was read, is captured
    if os.environ.get(VARIABLE):
        config.pluginmanager.register(TimesPlugin(Path(os.environ[VARIABLE])))
    if os.environ.get(failures.VARIABLE):
        config.pluginmanager.register(FailuresPlugin(Path(os.environ[failures.VARIABLE])))
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(drawn("hypothesis", 1)[0])
    if config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix="container-tests-")
        config.stash[OWN_DIRECTORY] = config.option.basetemp


@pytest.fixture
def ports() -> Iterator[PortReservation]:
    made = PortReservation()
    yield made
    made.close()


@pytest.fixture
def port(ports: PortReservation) -> int:
    """The first of the ports of a node in a row."""
    return ports.take_row(5)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A process that takes no permission away from what it creates."""
    previous = os.umask(0)
    yield
    os.umask(previous)


def pytest_report_header() -> str:
    """Say where the seeds come from that each commit and each day draw again."""
    return f"seeds of commit {commit() or '(none)'}, and of the day {DAY}={day()}"


def leave_out_of_collections() -> None:
    """Leave all that is there now out of later garbage collections."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    """Leave the collected tests out: 13,000 of them took a tenth of a second each time."""
    leave_out_of_collections()


def pytest_runtest_logstart(location: tuple[str, int | None, str]) -> None:
    """Leave out what earlier files have left, such as reports: in a whole run they took a third of a second each time.

    Many a test collects, to see that nothing is left.
    """
    global _file
    if location[0] != _file:
        _file = location[0]
        leave_out_of_collections()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove what a run that passed has written; what a failed one wrote may say why."""
    directory = session.config.stash.get(OWN_DIRECTORY, None)
    if directory is not None and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        shutil.rmtree(directory, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Limit the end of each test: a test that fails has lost the limits that pytest and pytest-timeout give it."""
    faulthandler.dump_traceback_later(END_LIMIT_S, exit=True, file=STDERR)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Limit the end of Python, which waits for each thread that a test has left and takes all objects down."""
    gc.unfreeze()
    faulthandler.dump_traceback_later(END_LIMIT_S, exit=True, file=STDERR)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine: by its fixture ``run`` where it has one, else in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    run_test: Any = pyfuncitem.funcargs.get("run", run)
    run_test(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """A bucket in the one S3 server of the run."""
    from tests.object_store import running_object_store

    with running_object_store() as store:
        yield store


@pytest.fixture
def clock() -> ManualClock:
    """The driver's clock."""
    return ManualClock()


@pytest.fixture
def driver(clock: ManualClock) -> MemoryDriver:
    """A driver in memory, with nobody connected."""
    return MemoryDriver(clock)


@pytest.fixture
def client(driver: MemoryDriver) -> MemoryClient:
    """A client of ``driver`` in invoker mode."""
    return driver.connect("test")


@pytest.fixture
def world() -> World:
    """A client of the cluster over memory, with what it needs."""
    return World()


@pytest.fixture
def members() -> Iterator[ThreadedMembers]:
    """A media driver in this process, for scripted members in a thread of their own."""
    with ThreadedMembers() as members:
        yield members
