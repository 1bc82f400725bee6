"""The report of a failed run: the finding, how to repeat it, and the events that led to it."""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import msgspec

from container.common.values import shown
from container.testing.simulation.nodes.cluster import NativePlan
from container.testing.simulation.plan import Plan
from container.testing.simulation.simulated_cluster import Finding

STORY_LINES = 40


class Story:
    """The last lines of a run's story."""

    def __init__(self, lines: int = STORY_LINES) -> None:
        self.lines: deque[str] = deque(maxlen=lines)

    def __call__(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line if len(line) <= 240 else line[:240] + "...")


def source_of(value: Any) -> str:
    """A plan, or a part of it, as the Python expression that makes it; fields with their defaults are left out."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, msgspec.Struct) or is_dataclass(value):
        fields = [f"{name}={source_of(given)}" for name, given in _given(value)]
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(source_of, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def _given(value: Any) -> list[tuple[str, Any]]:
    """The fields of a plan, or of a part of it, that do not have their defaults."""
    fields = msgspec.structs.fields(value) if isinstance(value, msgspec.Struct) else dataclasses.fields(value)
    return [(field.name, given) for field in fields if (given := getattr(value, field.name)) != field.default]


def script_of(plan: Plan | NativePlan, finding: Finding, service: Any, **arguments: Any) -> str:
    """A test in Python that repeats a plan; ``arguments`` are those of ``simulate`` that are not the plan's."""
    listed, happenings = ("events", plan.events) if isinstance(plan, Plan) else ("operations", plan.operations)
    names = sorted(
        {type(event).__name__ for event in happenings}
        | {type(part).__name__ for event in happenings for _, part in _given(event) if isinstance(part, enum.Enum)}
        | {type(plan).__name__, "simulate"}
    )
    imports = {"container.testing.simulation": set(names)}
    world = [f"        {name}={source_of(given)}," for name, given in _given(plan) if name != listed]
    if any("TimeUnit." in line for line in world):
        imports["container.api"] = {"TimeUnit"}
    events = [f"            {source_of(event)}," for event in happenings]
    remarks: list[str] = []
    call = [_named(service, "MyService", imports, remarks)]
    call.append("plan=plan")
    for name, value in arguments.items():
        if not callable(value):
            call.append(f"{name}={value!r}")
            continue
        call.append(f"{name}={_named(value, name, imports, remarks)}")
    return "\n".join(
        [
            *(f"from {module} import {', '.join(sorted(found))}" for module, found in sorted(imports.items())),
            "",
            "",
            f"def test_{finding.oracle.replace(' ', '_')}_of_seed_{plan.seed}():",
            f"    plan = {type(plan).__name__}(",
            *world,
            *([f"        {listed}=(", *events, "        ),"] if events else []),
            "    )",
            *dict.fromkeys(remarks),
            f"    simulate({', '.join(call)})",
            "",
        ]
    )


def _named(value: Any, default: str, imports: dict[str, set[str]], remarks: list[str]) -> str:
    """How a test names a class or function, which is added to ``imports``; ``default`` when it cannot import it.

    ``remarks`` gets the comment that says what to change before the test can run.
    """
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    found: Any = sys.modules.get(module) if isinstance(module, str) else None
    for part in name.split(".") if isinstance(name, str) else ():
        found = getattr(found, part, None)
    if module == "__main__" and found is value:
        module = _module_of_main()
    if module != getattr(value, "__module__", None) and module is not None:
        remarks.append(
            f'    # {module} is the program that ran: put its simulate(...) behind `if __name__ == "__main__":`, as\n'
            "    # the import runs all the rest, and keep this test beside it."
        )
    if not isinstance(module, str) or not isinstance(name, str) or found is not value:
        remarks.append(f"    # {default} is {shown(value)}, which a test cannot import: put it into a module.")
        return default
    imports.setdefault(module, set()).add(name.partition(".")[0])
    return name


def _module_of_main() -> str | None:
    """The name by which a test imports the program that runs; None of one that is in no file."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name
    stem = Path(getattr(main, "__file__", None) or "").stem
    return stem if stem.isidentifier() else None


def report_of(finding: Finding, seed: int, shrunk: str, story: Sequence[str], script: str, repeats: bool) -> str:
    """The report of a failed run; ``repeats`` says whether another run of the plan came to the same finding."""
    member = "" if finding.member is None else f" on member {finding.member}"
    position = "" if finding.log_position < 0 else f" at log position {finding.log_position}"
    remark = [] if repeats else ["", _DOES_NOT_REPEAT]
    use = (
        "Save this as a test:"
        if repeats
        else "This test runs the same plan, and passes or fails by chance until the service is mended:"
    )
    return "\n".join(
        [
            f"{finding.oracle}{member}{position}, after {finding.time_ms:.3f} ms: {finding.text}",
            *remark,
            "",
            f"Seed {seed}, shrunk to {shrunk}. {use}",
            "",
            script,
            *(["The last events:", *story] if story else []),
        ]
    )


_DOES_NOT_REPEAT = (
    "This failure does not repeat: another run of the same plan did something else. The service depends on something\n"
    "outside the log, such as a clock, chance or an address. `aeron-cluster check` names the line of most such calls."
)
