"""Instructions that the agent takes for a message over the memory transport, counted by valgrind's callgrind.

Run as a program it is what callgrind runs: it feeds each service with FEW and with MANY messages; what the second takes
more is what the messages take, without start and end. Only duty cycles are counted, and of ROUNDS the least. Large
memory is always new, for clearing what was used before would count.
"""

from __future__ import annotations

import gc
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

from container.api import ClientSession, ClusteredService, Header, MessageBuffer, SessionMessages
from container.service.service_handler import ServiceHandler
from container.testing.memory.scripted_member import ScriptedMember
from tests.services import Echo

ROOT = Path(__file__).resolve().parents[1]
FEW, MANY = 50, 300
ROUNDS = 3
BATCH = 50
PAYLOAD = bytes(32)
_AGENT = "__pyx_f_9container_7service_23clustered_service_agent_21ClusteredServiceAgent_"
_LIMIT_S = 600


class CountingService(ClusteredService):
    """Counts messages and bytes."""

    def __init__(self) -> None:
        self.count = 0
        self.length = 0

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.count += 1
        self.length += len(buffer)


class BatchService(CountingService):
    """Counts the messages of a batch without a look at each."""

    def on_session_messages(self, messages: SessionMessages) -> None:
        self.count += len(messages)
        self.length += len(messages.payloads)


SERVICES: dict[str, Callable[[], ClusteredService | ServiceHandler]] = {
    "handler in C": ServiceHandler,
    "callback in Python": CountingService,
    "echo in Python": Echo,
    "batches in Python": BatchService,
}


def feed(service: ClusteredService | ServiceHandler, messages: int) -> None:
    """Log, commit and let the agent have the messages, poll after poll; egress is drained, so that nothing waits."""
    member = ScriptedMember(service, log_fragment_limit=BATCH, log_term_length=1024 * 1024).lead()
    member.open_session()
    end = answered = 0
    for _ in range(messages // BATCH):
        for _ in range(BATCH):
            member.cm.session_message(1, PAYLOAD)
        end = member.cm.commit()
        member.agent.do_work()
        answered = len(member.cm.egress(1))
    if answered != (messages if isinstance(service, Echo) else 0):
        raise RuntimeError(f"{messages} messages were logged and {answered} answered")
    position = member.agent.cluster.log_position
    if position != end or member.errors:
        raise RuntimeError(f"log position {position} instead of {end}, errors: {member.errors}")
    if (count := getattr(service, "count", messages)) != messages:
        raise RuntimeError(f"{messages} messages were logged, the service had {count}")
    member.agent.close()


def run_callgrind(output: Path, program: Sequence[str], *options: str) -> None:
    """Run a module, with its arguments, under callgrind, which counts the agent's duty cycles into ``output``.

    Raises RuntimeError with what it printed when it fails, subprocess.TimeoutExpired when it does not end.
    """
    counting = ["valgrind", "--tool=callgrind", f"--toggle-collect={_AGENT}_do_work", f"--callgrind-out-file={output}"]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}
    result = subprocess.run(
        [*counting, *options, sys.executable, "-m", *program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(f"callgrind ended with {result.returncode}:\n{result.stdout}{result.stderr}")


def count_rounds(directory: Path) -> dict[str, list[tuple[int, int]]]:
    """Instructions of FEW and of MANY messages in each round of each service, by its name.

    Callgrind writes into ``directory``.
    """
    output = directory / "callgrind.out"
    run_callgrind(output, ["tests.instruction_counts"], f"--dump-before={_AGENT}_close")
    totals = iter([_total(Path(f"{output}.{number}")) for number in range(1, 2 * ROUNDS * len(SERVICES) + 1)])
    return {name: [(next(totals), next(totals)) for _ in range(ROUNDS)] for name in SERVICES}


def per_message(rounds: Sequence[tuple[int, int]]) -> int:
    """Instructions of a message, by the least of all rounds."""
    few, many = min(each[0] for each in rounds), min(each[1] for each in rounds)
    return round((many - few) / (MANY - FEW))


def _total(path: Path) -> int:
    found = re.search(r"^totals: (\d+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{path} has no totals: callgrind saw no duty cycle")
    return int(found[1])


def build_name() -> str:
    """The facts on which the counts depend: versions of CPython and of its compiler, and whether CPython is
    optimised."""
    version = ".".join(platform.python_version_tuple()[:2])
    compiler = " ".join(platform.python_compiler().split()[:2]).partition(".")[0]
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return f"CPython {version}, {compiler}, {'PGO' if '--enable-optimizations' in options else 'no PGO'}"


if __name__ == "__main__":
    gc.disable()  # when it would collect depends on all that was allocated before
    for make_service in SERVICES.values():
        for _ in range(ROUNDS):
            feed(make_service(), FEW)
            feed(make_service(), MANY)
