"""The pytest plugin of src/aeron_cluster_pytest.py, in runs of pytest of their own."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import aeron_cluster_pytest
import container.testing.memory.checks  # a run in this process must not load what is compiled a second time

pytest_plugins = ["pytester"]

PLUGIN = "-paeron_cluster_pytest"
SOURCE = Path(aeron_cluster_pytest.__file__).parent
SEEDED = """
    def test_counter(cluster_seed):
        print("seed", cluster_seed)
"""
SIMULATOR = """
    import sys
    import types

    class SimulationFailure(Exception):
        def __init__(self, seed):
            super().__init__(f"states differ with seed {seed}")
            self.seed = seed
            self.script = "def test_regression():\\n    assert 1 == 2\\n"
            self.plan = None

    def simulate(service, *, seed, payloads=(), members=None):
        assert service == "Counter"
        if seed == 2:
            raise SimulationFailure(seed)
        return f"simulated {members} members"

    stub = sys.modules["container.testing.simulation"] = types.ModuleType("container.testing.simulation")
    stub.SimulationFailure = SimulationFailure
    stub.simulate = simulate
"""
SERVICE = """
    from tests.services import Adding

    class Counter(Adding):
        def add(self, payload):
            self.state.total += STEP

    STEP = 1
"""

type Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest in this process, with this plugin and no other that happens to be installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(*arguments: str, passed: int = 0, failed: int = 0, errors: int = 0) -> pytest.RunResult:
        result = pytester.runpytest_inprocess(PLUGIN, "-pno:cacheprovider", *arguments)
        if passed or failed or errors:
            result.assert_outcomes(passed=passed, failed=failed, errors=errors)
        return result

    return run


def ids(result: pytest.RunResult) -> list[str]:
    """The tests that a run with ``-v`` names, without their files."""
    return [line.split("::", 1)[1].split(" ")[0] for line in result.outlines if "::" in line]


# Seeds


def test_a_test_runs_once_for_each_of_twenty_seeds(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(SEEDED)
    assert ids(run("-v", passed=20)) == [f"test_counter[seed-{seed}]" for seed in range(1, 21)]


@pytest.mark.parametrize(
    ("marker", "options", "seeds"),
    [
        ("3", [], [1, 2, 3]),
        ("n=2", [], [1, 2]),
        ("3, first=7", [], [7, 8, 9]),
        ("3, 0", [], [0, 1, 2]),
        ("n=1, first=5", [], [5]),
        ("3, first=7", ["--cluster-seeds", "2"], [7, 8]),
        ("3", ["--cluster-seeds=1", "--cluster-seeds=2"], [1, 2]),
        ("3", ["--cluster-seed", "7"], [7]),
        ("3", ["--cluster-seed", "0"], [0]),
        ("3", ["--cluster-seed=9", "--cluster-seed=7", "--cluster-seed=9"], [9, 7]),
        ("3", ["--cluster-seeds=5", "--cluster-seed=7"], [7]),
    ],
)
def test_marker_and_options_choose_the_seeds(
    pytester: pytest.Pytester, run: Run, marker: str, options: list[str], seeds: list[int]
) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.cluster_seeds({marker})\n{textwrap.dedent(SEEDED).strip()}")
    assert ids(run("-v", *options, passed=len(seeds))) == [f"test_counter[seed-{seed}]" for seed in seeds]


def test_the_closest_marker_counts(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.cluster_seeds(5)
        class TestCounter:
            @pytest.mark.cluster_seeds(2)
            def test_close(self, cluster_seed):
                pass

            def test_far(self, cluster_seed):
                pass
        """
    )
    run(passed=2 + 5)


@pytest.mark.parametrize(
    ("option", "value", "range_"),
    [
        ("--cluster-seeds", "0", "1 to 100000"),
        ("--cluster-seeds", "-3", "1 to 100000"),
        ("--cluster-seeds", "many", "1 to 100000"),
        ("--cluster-seeds", "", "1 to 100000"),
        ("--cluster-seeds", "1.5", "1 to 100000"),
        ("--cluster-seeds", "100001", "1 to 100000"),
        ("--cluster-seeds", "9" * 5000, "1 to 100000"),
        ("--cluster-seed", "-1", "0 to 9223372036854775807"),
        ("--cluster-seed", "9223372036854775808", "0 to 9223372036854775807"),
        ("--cluster-seed", "seed-7", "0 to 9223372036854775807"),
        ("--cluster-seed", "\u0667", "0 to 9223372036854775807"),
    ],
)
def test_a_wrong_option_ends_the_run_with_value_and_fix(
    pytester: pytest.Pytester, run: Run, option: str, value: str, range_: str
) -> None:
    pytester.makepyfile(SEEDED)
    result = run(f"{option}={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"argument {option}: {value!r}: give a whole number from {range_}" in result.stderr.str()


@pytest.mark.parametrize(
    ("marker", "problem"),
    [
        ("0", "n is 0: give a whole number from 1 to 100000"),
        ("-1", "n is -1: give a whole number from 1 to 100000"),
        ("True", "n is True: give a whole number from 1 to 100000"),
        ("'5'", "n is '5': give a whole number from 1 to 100000"),
        ("5, first=-1", "first is -1: give a whole number from 0 to 4611686018427387904"),
        ("5, first=None", "first is None: give a whole number from 0 to 4611686018427387904"),
        ("", "write cluster_seeds(n) or cluster_seeds(n, first=1)"),
        ("first=2", "write cluster_seeds(n) or cluster_seeds(n, first=1)"),
        ("5, 1, 2", "write cluster_seeds(n) or cluster_seeds(n, first=1)"),
        ("5, n=5", "write cluster_seeds(n) or cluster_seeds(n, first=1)"),
        ("5, last=5", "write cluster_seeds(n) or cluster_seeds(n, first=1)"),
    ],
)
def test_a_wrong_marker_is_an_error_with_test_value_and_fix(
    pytester: pytest.Pytester, run: Run, marker: str, problem: str
) -> None:
    pytester.makepyfile(
        test_x=f"import pytest\n@pytest.mark.cluster_seeds({marker})\n{textwrap.dedent(SEEDED).strip()}"
    )
    result = run(errors=1)
    result.stdout.fnmatch_lines([f"E*UsageError: test_x.py::test_counter: cluster_seeds({marker}): {problem}"])


def test_the_marker_and_the_fixtures_are_registered(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.cluster_seeds(1)\ndef test_x(cluster_seed):\n    pass")
    run("--strict-markers", passed=1)
    run("--markers").stdout.fnmatch_lines(["@pytest.mark.cluster_seeds(n, first=1): run a test*"])
    text = run("--fixtures").stdout.str()
    assert all(name in text for name in ("cluster_seed --", "simulate_cluster --", "memory_member --"))
    assert "golden_snapshots --" in text


def test_other_parameters_multiply_with_the_seeds(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.cluster_seeds(2)
        @pytest.mark.parametrize("size", [1, 3])
        def test_sizes(size, cluster_seed):
            pass

        @pytest.mark.parametrize("cluster_seed", [40, 41])
        def test_own_seeds(cluster_seed):
            assert cluster_seed in (40, 41)

        @pytest.mark.parametrize(("a", "cluster_seed"), [(1, 40)])
        def test_own_pair(a, cluster_seed):
            assert cluster_seed == 40

        @pytest.fixture
        def shuffled(cluster_seed):
            return cluster_seed

        @pytest.mark.cluster_seeds(2)
        def test_through_a_fixture(shuffled):
            assert shuffled in (1, 2)
        """
    )
    run(passed=4 + 2 + 1 + 2)


def test_unittest_classes_and_tests_without_a_seed_are_not_touched(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import unittest

        class CounterTest(unittest.TestCase):
            def test_counter(self):
                self.assertTrue(True)

        def test_plain():
            pass
        """
    )
    assert ids(run("-v", "--cluster-seeds", "3", passed=2)) == ["CounterTest::test_counter", "test_plain"]


def test_a_seed_that_comes_too_late_is_an_error(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_x="def test_late(request):\n    request.getfixturevalue('cluster_seed')")
    run(failed=1).stdout.fnmatch_lines(["E*UsageError: cluster_seed has no value in test_x.py::test_late: take it*"])


# What a failure shows


def test_a_failed_simulation_shows_its_seed_and_its_regression_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(SIMULATOR)
    pytester.makepyfile(
        test_x="""
        import pytest

        @pytest.mark.cluster_seeds(3)
        def test_counter(simulate_cluster):
            assert simulate_cluster("Counter", members=3) == "simulated 3 members"
        """
    )
    result = run(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_counter[[]seed-2[]]*",
            "E*SimulationFailure: states differ with seed 2",
            "-* cluster seed -*",
            "pytest test_x.py::test_counter --cluster-seed 2",
            "-* regression test -*",
            "def test_regression():",
            "    assert 1 == 2",
        ]
    )
    result = run("--cluster-seed", "2", "test_x.py::test_counter", failed=1)
    assert "regression test" in result.stdout.str()


def test_a_failure_is_found_behind_other_errors_and_in_other_phases(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(SIMULATOR)
    pytester.makepyfile(
        """
        import pytest
        from conftest import SimulationFailure

        def test_cause():
            try:
                raise SimulationFailure(11)
            except SimulationFailure as failure:
                raise AssertionError("no") from failure

        def test_context():
            try:
                raise SimulationFailure(12)
            finally:
                raise KeyError("no")

        def test_group():
            raise ExceptionGroup("two", [KeyError(), SimulationFailure(13)])

        @pytest.fixture
        def world():
            raise SimulationFailure(14)

        def test_setup(world):
            pass
        """
    )
    text = run("-Wignore", failed=3, errors=1).stdout.str()
    for seed in (11, 12, 13, 14):
        assert f"\nseed {seed}\n" in text
    assert text.count(" regression test ") == 4


def test_other_errors_have_no_regression_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_x="""
        import pytest

        class SimulationFailure(Exception):
            seed = "text"

        def test_name_alone():
            raise SimulationFailure

        @pytest.mark.cluster_seeds(1)
        @pytest.mark.parametrize("size", ["big one"])
        def test_assertion(cluster_seed, size):
            assert False

        @pytest.mark.cluster_seeds(1)
        def test_skipped(cluster_seed):
            pytest.skip("no")
        """
    )
    result = run("-vv")
    text = result.stdout.str()
    assert "regression test" not in text
    assert text.count(" cluster seed ") == 1
    assert "pytest 'test_x.py::test_assertion[seed-1-big one]' --cluster-seed 1\n" in text


def test_the_line_repeats_from_where_pytest_was_started(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]")
    directory = pytester.mkdir("sub")
    (directory / "test_x.py").write_text("def test_a(cluster_seed):\n    assert cluster_seed != 7\n")
    monkeypatch.chdir(directory)
    run("--cluster-seed=7", failed=1).stdout.fnmatch_lines(["pytest test_x.py::test_a --cluster-seed 7"])


# Members in memory


def test_members_are_closed_at_the_end_of_the_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(service=SERVICE)
    pytester.makepyfile(
        """
        import pytest
        from container.api import Role
        from container.errors import ContainerError
        from service import Counter

        members = []

        def test_two(memory_member):
            for role in (Role.LEADER, Role.FOLLOWER):
                member = memory_member(Counter, role=role)
                assert member.role is role
                member.open_session().send(b"x")
                members.append(member)
            assert memory_member(Counter()).service.state.total == 0

        def test_closed():
            for member in members:
                assert member.service.state.total == 1
                with pytest.raises(ContainerError, match="closed"):
                    member.open_session()
        """
    )
    run(passed=2)


# Golden snapshots

GOLDEN = """
    from service import Counter

    def life(member):
        session = member.open_session()
        session.send(b"x")
        session.send(b"y")

    def test_golden(golden_snapshots):
        assert golden_snapshots(Counter, "golden", life, version={version!r}) == {count}
"""


def test_a_version_writes_its_golden_snapshot_when_told(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(service=SERVICE)
    pytester.makepyfile(test_x=GOLDEN.format(version="1.0", count=1))
    run(failed=1).stdout.fnmatch_lines(["E*ConfigurationError: *1.0.snapshot: there is no such golden snapshot. *"])
    path = pytester.path / "golden" / "1.0.snapshot"
    assert not path.parent.exists()

    run("--update-golden", passed=1).stdout.fnmatch_lines([f"wrote the golden snapshot {path}: commit it"])
    written = path.read_bytes()
    run(passed=1)
    assert "wrote" not in run("--update-golden", passed=1).stdout.str()
    assert path.read_bytes() == written
    assert [each.name for each in path.parent.iterdir()] == ["1.0.snapshot"]


def test_a_state_that_changed_is_a_failure_until_it_is_written(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(service=SERVICE)
    pytester.makepyfile(test_x=GOLDEN.format(version="1.0", count=1))
    run("--update-golden", passed=1)
    pytester.makepyfile(service=textwrap.dedent(SERVICE).replace("STEP = 1", "STEP = 2"))
    run(failed=1).stdout.fnmatch_lines(
        ["E*DivergenceError: *1.0.snapshot: the state after this life is not that of the golden snapshot: *: 2 in the "
         "snapshot, 4 now. If this version is not released yet,*"]
    )  # fmt: skip
    pytester.makepyfile(test_x=GOLDEN.format(version="1.1", count=2))
    run("--update-golden", passed=1)
    run(passed=1)
    pytester.makepyfile(test_x=GOLDEN.format(version="1.0", count=2))
    run("--update-golden", passed=1)
    run(passed=1)


def test_a_file_that_is_no_snapshot_is_named(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(service=SERVICE)
    pytester.makepyfile(test_x=GOLDEN.format(version="1.0", count=1))
    pytester.mkdir("golden").joinpath("0.9.snapshot").write_bytes(b"no")
    for options in ([], ["--update-golden"]):
        run(*options, failed=1).stdout.fnmatch_lines(
            ["E*SnapshotError: not written by*", "E*golden snapshot: *0.9.snapshot"]
        )


def test_a_wrong_use_names_value_and_fix(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(service=SERVICE)
    pytester.makepyfile(
        """
        import pytest
        from container.errors import ConfigurationError
        from service import Counter

        @pytest.mark.parametrize("version", ["", "..", ".", ".1", "a/b", "/etc/x"])
        def test_version(golden_snapshots, version):
            with pytest.raises(pytest.UsageError, match="give a name for a file"):
                golden_snapshots(Counter, "golden", len, version=version)

        def test_half(golden_snapshots):
            with pytest.raises(pytest.UsageError, match="version='1.0': give both"):
                golden_snapshots(Counter, "golden", version="1.0")
            with pytest.raises(pytest.UsageError, match="version=None: give both"):
                golden_snapshots(Counter, "golden", len)

        def test_none_there(golden_snapshots):
            with pytest.raises(ConfigurationError, match="has no golden snapshot"):
                golden_snapshots(Counter, "golden")
        """
    )
    run(passed=8)


# Every run of pytest


@pytest.fixture
def installed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of packages with this plugin's entry point, before all others on the path."""
    packages = pytester.mkdir("packages")
    information = packages / "planted-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[pytest11]\naeron_cluster = aeron_cluster_pytest\n")
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (packages, SOURCE))))
    return packages


def test_a_run_that_does_not_use_the_plugin_does_not_load_the_package(
    pytester: pytest.Pytester, installed: Path
) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_modules(request):
            assert request.config.pluginmanager.get_plugin("aeron_cluster") is sys.modules["aeron_cluster_pytest"]
            assert [name for name in sys.modules if name.partition(".")[0] == "container"] == []

        def test_seed(cluster_seed):
            assert "container" not in sys.modules
        """
    )
    pytester.runpytest_subprocess("--strict-markers", "-Werror").assert_outcomes(passed=21)


def test_a_project_may_have_a_container_and_an_option_of_its_own(pytester: pytest.Pytester, installed: Path) -> None:
    pytester.mkpydir("container")
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addoption('--update-golden')")
    pytester.makepyfile("import container\ndef test_own():\n    assert not hasattr(container, 'run')")
    pytester.runpytest_subprocess("-c/dev/null", "--rootdir=.").assert_outcomes(passed=1)


def test_it_can_be_left_out(pytester: pytest.Pytester, installed: Path) -> None:
    pytester.makepyfile(test_x=SEEDED)
    result = pytester.runpytest_subprocess("-pno:aeron_cluster")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E*fixture 'cluster_seed' not found"])
    assert pytester.runpytest_subprocess("-pno:aeron_cluster", "--cluster-seeds=2").ret == pytest.ExitCode.USAGE_ERROR


def test_the_package_names_it_as_its_plugin() -> None:
    assert "container.testing.memory.checks" in sys.modules
    text = (SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.entry-points.pytest11]\naeron_cluster = "aeron_cluster_pytest"\n' in text
    assert container.testing.memory.checks.compare_golden_snapshot.__doc__
