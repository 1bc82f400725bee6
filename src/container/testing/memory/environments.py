"""A service and its life in several processes: hash seed, time zone, language, member, clock, threads, Python."""

from __future__ import annotations

import datetime
import importlib.util
import os
import pickle
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from container.common.object_path import load_object
from container.common.values import shown
from container.errors import ConfigurationError, ContainerError
from container.testing.memory.check_findings import DivergenceError, Life
from container.testing.memory.environment_process import RESULT, Result, Surroundings
from container.testing.memory.memory_member import ServiceFactory

# Time limit of a check in another process, in seconds.
_LIMIT_S = 300.0
_PROCESS = "container.testing.memory.environment_process"
# How much of an environment a text shows.
_SHOWN = 400
# How many variables of a service get another value, each in a process of its own.
_VARIABLES_MAX = 20
# Variables that processes need, or that environments change anyway.
_VARIABLES_OF_ALL = frozenset({"HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER"})
_PREFIXES_OF_ALL = ("LC_", "LD_", "PYTHON")
# How long an interpreter may take to import the package, in seconds.
_IMPORT_LIMIT_S = 60.0


class Environment(msgspec.Struct, frozen=True):
    """One process of :func:`check_environments`. Everything not given is as in this process."""

    variables: dict[str, str] = {}
    """Environment variables, beside those of this process."""
    wall_clock: str | None = None
    """When the life begins, as in ``2041-07-09T03:30:00+00:00``. Needs the extra ``testing``."""
    seconds_per_event: float = 0.0
    """How far the wall clock goes with each message of the log. With a ``wall_clock`` it stands in between."""
    switch_interval: float | None = None
    """For ``sys.setswitchinterval``, in seconds."""
    busy_threads: int = 0
    """How many threads compute beside the life."""
    member: str | None = None
    """The process's arguments, its host and its user have this name; without it there are no arguments."""
    python: str | None = None
    """The interpreter's path or command. It needs this package."""

    def aspects(self) -> dict[str, Any]:
        """The aspects that may make a difference, by name."""
        found: dict[str, Any] = dict(self.variables)
        if self.wall_clock is not None:
            found["wall clock"] = f"{self.wall_clock} + {self.seconds_per_event:g} s per event"
        if self.switch_interval is not None or self.busy_threads:
            found["threads"] = f"{self.busy_threads} busy, switch interval {self.switch_interval} s"
        if self.member is not None:
            found["member"] = self.member
        if self.python is not None:
            found["Python"] = self.python
        return found

    def with_aspect(self, name: str, other: Environment) -> Environment:
        """This environment with one aspect of another."""
        if name not in _FIELDS:
            variables = {key: value for key, value in self.variables.items() if key != name}
            if name in other.variables:
                variables[name] = other.variables[name]
            return msgspec.structs.replace(self, variables=variables)
        return msgspec.structs.replace(self, **{field: getattr(other, field) for field in _FIELDS[name]})


_FIELDS = {
    "wall clock": ("wall_clock", "seconds_per_event"),
    "threads": ("switch_interval", "busy_threads"),
    "member": ("member",),
    "Python": ("python",),
}
_HINTS = {
    "PYTHONHASHSEED": "look for sets of texts or bytes, and hash()",
    "TZ": "look for local time, of a timestamp or of the clock",
    "LC_ALL": "look for sorting or formatting by language",
    "wall clock": "look for the clock: use the timestamp of the event",
    "threads": "look for threads: their work must not come back to the service",
    "member": "look for arguments, the names of host and user, and the number of processors",
    "Python": "look for what changed between the versions: texts of errors, repr(), methods of random.Random",
}
_VARIABLE_HINT = "look for environment variables"
_PLAIN = {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C"}
# At every time one of the two other zones has another date than UTC: so the local date of the clock is found.
ENVIRONMENTS: tuple[Environment, ...] = (
    Environment(_PLAIN),
    Environment({"PYTHONHASHSEED": "1", "TZ": "Pacific/Chatham", "LC_ALL": "C.UTF-8"}, member="ada"),
    Environment({"PYTHONHASHSEED": "4294967295", "TZ": "Etc/GMT+12", "LC_ALL": "C"}, member="grace"),
    Environment(_PLAIN, wall_clock="2041-07-09T03:30:00+00:00", seconds_per_event=2_000.0),
    Environment(_PLAIN, switch_interval=1e-6, busy_threads=2),
)
"""The environments that :func:`check_environments` compares by default."""


def has_time_machine() -> bool:
    """Can an environment have a wall clock of its own here? The extra ``testing`` has what that needs."""
    return importlib.util.find_spec("time_machine") is not None


def check_environments(
    service: str | ServiceFactory,
    life: str | Life,
    *,
    environments: Sequence[Environment | Mapping[str, str]] = ENVIRONMENTS,
    pythons: Sequence[str] = (),
) -> int:
    """Run ``life`` in a process for each of several environments; return how many states were compared.

    ``service`` and ``life`` are ``package.module:name``, found from the current directory, or what a module has, which
    the processes import again. By default the environments differ in the order of sets and hashes (``PYTHONHASHSEED``),
    the time zone, the language, the arguments, the names of host and user and the number of processors, the wall clock
    and the timing of threads. Each environment variable that the service's code asks for by name gets another value in
    a process of its own.
    A mapping is an environment with these variables. Each of ``pythons`` is an interpreter that runs the life as well,
    as the first environment has it.

    Raises:
        DivergenceError: two processes came to other states; the text has the position and both environments.
        ConfigurationError: service or life cannot be imported by another process, an interpreter of ``pythons`` cannot
            import this package, or a wall clock was asked for and the extra ``testing`` is not installed.
        ContainerError: a process failed; the text has the end of what it printed.
    """
    task = _task(service, life)
    all_environments = [given if isinstance(given, Environment) else Environment(dict(given)) for given in environments]
    base = all_environments[0] if all_environments else Environment(_PLAIN)
    all_environments += [msgspec.structs.replace(base, python=python) for python in pythons]
    _check_wall_clocks(all_environments)
    for python in dict.fromkeys(environment.python for environment in all_environments):
        if python is not None:
            _check_python(python)
    first, *others = all_environments or [base]
    result = _result(task, first)
    expected = result.digests
    compared = len(expected)
    differing: list[tuple[int, Environment]] = []
    for environment in others:
        try:
            outcome = _outcome(task, environment)
        except ContainerError:
            if differing:
                break
            raise
        compared += len(outcome)
        differing += _first_difference(expected, outcome, environment)
    if not differing:
        differing = _of_variables(task, first, result)
    if differing:
        position, environment = differing[0]
        raise DivergenceError(
            f"the state, an answer or a request at log position {position} differs between processes with "
            f"{shown(first.aspects(), _SHOWN)} and {shown(environment.aspects(), _SHOWN)}: "
            f"{_cause(task, first, [environment for _, environment in differing], expected)}",
            position,
        )
    return compared


def _first_difference(
    expected: Mapping[int, str], outcome: Mapping[int, str], environment: Environment
) -> list[tuple[int, Environment]]:
    positions = sorted(expected.keys() | outcome.keys())
    return [(at, environment) for at in positions if expected.get(at) != outcome.get(at)][:1]


def _of_variables(task: bytes, base: Environment, result: Result) -> list[tuple[int, Environment]]:
    """Differences that come of another value of a variable that the service's code asks for; each has one alone.

    A process that fails is not a difference: a variable may be one that has to be right on each member, such as a level
    of logging.
    """
    found: list[tuple[int, Environment]] = []
    for name in result.variables[:_VARIABLES_MAX]:
        if name in _VARIABLES_OF_ALL or name.startswith(_PREFIXES_OF_ALL) or name in base.variables:
            continue
        other = msgspec.structs.replace(base, variables={**base.variables, name: f"{os.environ.get(name, '')}7"})
        try:
            found += _first_difference(result.digests, _outcome(task, other), other)
        except ContainerError:
            continue
    return found


def _task(service: str | ServiceFactory, life: str | Life) -> bytes:
    for name, given in (("service", service), ("life", life)):
        if isinstance(given, str):
            load_object(given, name)  # a mistake is reported here, and not by a process
        elif getattr(given, "__module__", None) == "__main__":
            raise ConfigurationError(f"{name}={shown(given)}: is of __main__, which another process cannot import")
    try:
        return pickle.dumps((service, life), protocol=4)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigurationError(
            f"service={shown(service)}, life={shown(life)}: another process cannot import them: {error}"
        ) from error


def _check_wall_clocks(environments: Sequence[Environment]) -> None:
    for clock in [environment.wall_clock for environment in environments if environment.wall_clock is not None]:
        try:
            datetime.datetime.fromisoformat(clock)
        except ValueError:
            raise ConfigurationError(
                f"wall_clock={shown(clock)}: must be a date and time as in 2041-07-09T03:30:00+00:00"
            ) from None
        if not has_time_machine():
            raise ConfigurationError(
                f"wall_clock={shown(clock)}: needs time-machine, which is not installed: "
                'pip install "aeron-cluster-container[testing]", or give environments without a wall_clock'
            )


def _check_python(python: str) -> None:
    try:
        ended = subprocess.run(
            [python, "-c", f"import {_PROCESS}"],
            env=_variables(Environment(python=python)),
            capture_output=True,
            timeout=_IMPORT_LIMIT_S,
            check=False,
        )
    except OSError as error:
        raise ConfigurationError(f"python={shown(python)}: cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            f"python={shown(python)}: did not import container within {_IMPORT_LIMIT_S:g} s"
        ) from None
    if ended.returncode != 0:
        last = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ConfigurationError(
            f"python={shown(python)}: cannot import container: {last}; "
            f"install this package for it: {python} -m pip install aeron-cluster-container"
        )


def _cause(task: bytes, base: Environment, others: Sequence[Environment], expected: Mapping[int, str]) -> str:
    """Which aspects make the difference, each alone and each time, by more processes, while ``base`` alone makes none.

    All environments that differ count: local time of the clock differs with the time zone and with the clock.
    """

    def differs(environment: Environment) -> bool:
        try:
            return _outcome(task, environment) != expected
        except ContainerError:
            return True  # it ends its process, or hangs

    if differs(base):
        return _DIFFERS_ANYWAY
    causes: dict[str, str] = {}
    changed: dict[str, None] = {}
    for other in others:
        mine, theirs = base.aspects(), other.aspects()
        for name in [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]:
            changed[name] = None
            alone = base.with_aspect(name, other)
            if name in causes or not (alone in others or differs(alone)):
                continue
            if differs(base):
                return _DIFFERS_ANYWAY
            if differs(alone):
                causes[name] = _HINTS.get(name, _VARIABLE_HINT)
    if causes:
        hints = "".join(f"; {hint}" for hint in causes.values() if hint)
        return f"it differs with {', and also with '.join(causes)}{hints}"
    if len(changed) < 2 or not differs(others[0]) or differs(base):
        return _DIFFERS_ANYWAY
    return f"it differs with several of {', '.join(changed)} together, and with none of them alone"


_DIFFERS_ANYWAY = "it differs in the same environment too; look for clocks, random numbers and addresses of objects"


def _outcome(task: bytes, environment: Environment) -> dict[int, str]:
    return _result(task, environment).digests


def _result(task: bytes, environment: Environment) -> Result:
    surroundings = Surroundings(
        environment.wall_clock,
        environment.seconds_per_event,
        environment.switch_interval,
        environment.busy_threads,
        environment.member,
    )
    try:
        ended = subprocess.run(
            [environment.python or sys.executable, "-m", _PROCESS, msgspec.json.encode(surroundings).decode()],
            input=task,
            env=_variables(environment),
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ContainerError(
            f"the life did not end within {_LIMIT_S:g} s in a process with {shown(environment.aspects(), _SHOWN)}"
        ) from None
    _, is_there, last = ended.stdout.rpartition(RESULT)
    if ended.returncode != 0 or not is_there:
        raise ContainerError(
            f"the service failed in a process with {shown(environment.aspects(), _SHOWN)}, code {ended.returncode}: "
            f"{ended.stderr.decode(errors='replace')[-2000:]}"
        )
    result = msgspec.json.decode(last, type=Result)
    if result.error:
        failure = ContainerError(f"in a process with {shown(environment.aspects(), _SHOWN)}: {result.error}")
        if result.stack:
            failure.add_note(result.stack)
        raise failure
    return result


def _variables(environment: Environment) -> dict[str, str]:
    path = [directory for directory in sys.path if directory and (environment.python is None or not _is_own(directory))]
    names = {} if environment.member is None else dict.fromkeys(("HOSTNAME", "LOGNAME", "USER"), environment.member)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **names, **environment.variables}


def _is_own(directory: str) -> bool:
    """Does a directory belong to this interpreter, and so not to the path of another?"""
    paths = sysconfig.get_paths()
    own = [Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found = Path(directory).resolve()
    return found.suffix == ".zip" or any(found.is_relative_to(each) for each in own)
