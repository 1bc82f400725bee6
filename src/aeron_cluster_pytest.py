"""The pytest plugin ``aeron_cluster``: seeds for tests of clusters, members in memory, golden snapshots.

pytest loads it in every run of an environment that has the package. So it stands outside the package ``container``, and
imports that only in a fixture that a test uses. docs/testing.md has its options, its marker and its fixtures.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from container.testing.checks import Life
    from container.testing.memory.memory_member import MemoryMember, Service, ServiceFactory

    # Only for type checkers: creating these classes takes longer than everything else here.

    class MemberFactory(Protocol):
        """Type of the fixture ``memory_member``."""

        def __call__[S: Service](self, service: S | Callable[[], S], **options: Any) -> MemoryMember[S]:
            """Make a member with the options of :class:`~container.testing.memory.memory_member.MemoryMember`."""

    class Simulator(Protocol):
        """Type of the fixture ``simulate_cluster``."""

        def __call__(self, service: Any, **options: Any) -> Any:
            """Run the simulation of this test's seed, with the options of ``container.testing.simulation.simulate``."""

    class GoldenSnapshots(Protocol):
        """Type of the fixture ``golden_snapshots``."""

        def __call__(
            self,
            service: ServiceFactory,
            directory: str | Path,
            life: Life | None = None,
            *,
            version: str | None = None,
        ) -> int:
            """Start ``service`` from each snapshot of a directory, below pytest's root; return how many there are.

            With ``life`` and ``version`` the directory must also have ``<version>.snapshot`` with the state that
            ``service`` comes to in this life. ``--update-golden`` writes it when it is missing or differs.
            """


DEFAULT_SEEDS = 20
MOST_SEEDS = 100_000
_SEED = "cluster_seed"
_MARKER = "cluster_seeds"
_UPDATE = "--update-golden"
_WRITTEN = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("aeron_cluster", "Aeron cluster services")
    group.addoption(
        "--cluster-seeds",
        type=_count,
        metavar="N",
        help=f"run each test that takes {_SEED} with N seeds (default: what its marker says, or {DEFAULT_SEEDS})",
    )
    group.addoption(
        "--cluster-seed",
        type=_seed,
        action="append",
        metavar="S",
        help=f"run each test that takes {_SEED} with seed S alone, to repeat a failure; may be given again",
    )


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None, Any, Any]:
    """Add ``--update-golden`` unless the project has an option of that name, which counts then."""
    result = yield
    with suppress(ValueError):
        parser.getgroup("aeron_cluster").addoption(
            _UPDATE,
            action="store_true",
            help="write the golden snapshot of the present version if it is missing or differs",
        )
    return result


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(n, first=1): run a test that takes the fixture {_SEED} with n seeds, from first on",
    )


def _count(text: str) -> int:
    return _number(text, 1, MOST_SEEDS)


def _seed(text: str) -> int:
    return _number(text, 0, 2**63 - 1)


def _number(text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number from {least} to {most}")
    return int(text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each of its seeds."""
    if _SEED not in metafunc.fixturenames or _has_seeds_of_its_own(metafunc):
        return
    seeds = _seeds_of(metafunc)
    metafunc.parametrize(_SEED, seeds, ids=[f"seed-{seed}" for seed in seeds], indirect=True)


def _has_seeds_of_its_own(metafunc: pytest.Metafunc) -> bool:
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        if _SEED in (names.replace(",", " ").split() if isinstance(names, str) else names):
            return True
    return False


def _seeds_of(metafunc: pytest.Metafunc) -> Sequence[int]:
    mark = metafunc.definition.get_closest_marker(_MARKER)
    count, first = (DEFAULT_SEEDS, 1) if mark is None else _checked(mark, metafunc.definition.nodeid)
    chosen: list[int] | None = metafunc.config.getoption("--cluster-seed")
    if chosen:
        return list(dict.fromkeys(chosen))
    given: int | None = metafunc.config.getoption("--cluster-seeds")
    return range(first, first + (count if given is None else given))


def _checked(mark: pytest.Mark, test: str) -> tuple[int, int]:
    """The count and the first seed of a marker."""
    words = [*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())]
    text = f"{test}: {_MARKER}({', '.join(words)})"
    given = {**dict(zip(("n", "first"), mark.args, strict=False)), **mark.kwargs}
    if (
        len(mark.args) > 2
        or len(given) < len(mark.args) + len(mark.kwargs)
        or not {"n"} <= given.keys() <= {"n", "first"}
    ):
        raise pytest.UsageError(f"{text}: write {_MARKER}(n) or {_MARKER}(n, first=1)")
    for name, least, most in (("n", 1, MOST_SEEDS), ("first", 0, 2**62)):
        value = given.get(name, 1)
        if type(value) is not int or not least <= value <= most:
            raise pytest.UsageError(f"{text}: {name} is {value!r}: give a whole number from {least} to {most}")
    return given["n"], given.get("first", 1)


@pytest.fixture
def cluster_seed(request: pytest.FixtureRequest) -> int:
    """A seed: the test runs once for each."""
    if not hasattr(request, "param"):
        raise pytest.UsageError(
            f"{_SEED} has no value in {request.node.nodeid}: take it, or a fixture that needs it, as an argument of a "
            "test function. request.getfixturevalue() and unittest classes come too late to run a test for each seed"
        )
    seed: int = request.param
    return seed


@pytest.fixture
def simulate_cluster(cluster_seed: int) -> Simulator:
    """Simulate a cluster with this test's seed: ``simulate_cluster(Service, **options)``."""
    simulate = import_module("container.testing.simulation").simulate

    def simulate_cluster(service: Any, **options: Any) -> Any:
        return simulate(service, seed=cluster_seed, **options)

    return simulate_cluster


@pytest.fixture
def memory_member() -> Iterator[MemberFactory]:
    """Make members in memory, ``memory_member(Service, **options)``; all are closed at the end of the test."""
    from container.testing.memory.memory_member import MemoryMember

    with ExitStack() as stack:

        def memory_member[S: Service](service: S | Callable[[], S], **options: Any) -> MemoryMember[S]:
            return stack.enter_context(MemoryMember(service, **options))

        yield memory_member


@pytest.fixture
def golden_snapshots(request: pytest.FixtureRequest) -> GoldenSnapshots:
    """Check golden snapshots: ``golden_snapshots(Service, "tests/golden", life, version="1.1")``."""
    from container.testing.memory.checks import check_golden_snapshots, compare_golden_snapshot

    config = request.config

    def golden_snapshots(
        service: ServiceFactory, directory: str | Path, life: Life | None = None, *, version: str | None = None
    ) -> int:
        if (life is None) != (version is None):
            raise pytest.UsageError(
                f"life={life!r}, version={version!r}: give both, to compare this version's own snapshot, or neither"
            )
        place = config.rootpath / directory
        if life is None or version is None:
            return check_golden_snapshots(service, place)
        if not version or version.startswith(".") or Path(version).name != version:
            raise pytest.UsageError(f"version={version!r}: give a name for a file, such as '1.1'")
        path = place / f"{version}.snapshot"
        update = bool(config.getoption(_UPDATE, False))
        if update:
            place.mkdir(parents=True, exist_ok=True)
        elif any(place.glob("*.snapshot")):  # else what is missing is this version's own, which the comparison reports
            check_golden_snapshots(service, place)
        if compare_golden_snapshot(service, life, path, update=update):
            config.stash.setdefault(_WRITTEN, []).append(str(path))
        return check_golden_snapshots(service, place) if update else len(list(place.glob("*.snapshot")))

    return golden_snapshots


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the golden snapshots that were written."""
    for path in config.stash.get(_WRITTEN, []):
        terminalreporter.write_line(f"wrote the golden snapshot {path}: commit it")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say of a test that failed how to repeat it, and add the regression test of a simulation."""
    report = yield
    if report.failed and call.excinfo is not None:
        failure = _failure_in(call.excinfo.value)
        if (line := _repetition(item)) is not None:
            report.sections.append(("cluster seed", line))
        elif failure is not None:
            report.sections.append(("cluster seed", f"seed {failure.seed}"))
        if failure is not None:
            report.sections.append(("regression test", failure.script.rstrip("\n")))
    return report


def _repetition(item: pytest.Item) -> str | None:
    """The command that runs the test again with its seed; None when it has no seed."""
    spec: Any = getattr(item, "callspec", None)
    seed = None if spec is None else spec.params.get(_SEED)
    if not isinstance(seed, int):
        return None
    name = item.nodeid.partition("::")[2]
    if spec.id == f"seed-{seed}":  # with more parameters the id names them
        name = name.removesuffix(f"[{spec.id}]")
    path = os.path.relpath(item.path, item.config.invocation_params.dir)
    return f"pytest {shlex.quote(f'{path}::{name}')} --cluster-seed {seed}"


def _failure_in(error: BaseException) -> Any:
    """The failure of a simulation in an error, its causes or its group; None when there is none.

    It is known by its name and attributes: the simulator may not be loaded.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop(0)
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        is_named = any(kind.__name__ == "SimulationFailure" for kind in type(each).__mro__)
        if is_named and isinstance(getattr(each, "seed", None), int) and isinstance(getattr(each, "script", None), str):
            return each
        waiting += (each.__cause__, each.__context__)
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
    return None
