"""A cluster of ledgers under load: what fault tests and the soak share."""

from __future__ import annotations

import json
import os
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

from container.client import AeronCluster
from container.errors import ContainerError
from container.files.cnc_file import MARK_FILE_TERMINATED
from container.testing.processes.local_archive import ArchiveKind
from container.testing.processes.local_cluster import JavaService, LocalCluster, LocalMember, Service
from container.testing.processes.network import Network
from container.testing.processes.process import ProcessEndedError, wait_until
from tests.linearizable.soak_history import SoakHistory
from tests.soak import checks, repairs, services
from tests.soak.disk import SmallDisk
from tests.soak.ledger import Armed, Kind, Ledger, Op, Times, suffix
from tests.soak.load_client import LoadClient, State
from tests.soak.resource_watch import ResourceWatch
from tests.soak.slow_clients import SlowClients
from tests.soak.warp import Warp

type Need = Literal["network", "disk", "separate", "warp"]

ROOT = Path(__file__).parents[2]
JAVA_LEDGER = JavaService("container.tests.SequencedLedgerService")
PYTHON_PROGRAM = (sys.executable, "-m")
PYTHON_LEDGER = Service(
    [*PYTHON_PROGRAM, "tests.soak.ledger_service"],
    {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
)

# How long it may take until a member that lost one of its parts has ended: it hears of it after the driver's and the
# clients' timeouts of QUICK_FAILOVER (5 s and 4 s), and closing takes its time on a busy machine.
END_LIMIT_S = 20.0
# Java's container waits 15 s for itself when its driver has died ("awaiting abort latch").
JAVA_END_LIMIT_S = END_LIMIT_S + 15.0
# How long until a cluster answers again and all members are whole.
RECOVERY_LIMIT_S = 90.0
# A busy machine may keep Java's parts from starting: that often a member is started again.
START_ATTEMPTS = 3
PROGRESS = 200
CRASHING_CLIENT_IDS = 1000
SLOW_CLIENT_IDS = 2000
DISK_MIB = 2048
BASE_DISK_MIB = 1024
PART_KINDS: Mapping[str, ArchiveKind | None] = {"N": "native", "J": None}
"""By a member's letter: whose driver, archive and consensus module it has."""
LIMITED_MEMBER_ID = 1
"""The member whose disks can be full, and whose driver, archive and consensus module are separate."""

# What the error log of our container may hold after any fault, each with the reason; a fault adds its own.
EXPECTED_ERRORS = (
    r"^__main__\.ArmedError: on_session_message",  # a command asked for it
)


@dataclass(frozen=True)
class Fault:
    """One way to hit a cluster, what it needs of the scenario, and what our container may log because of it."""

    name: str
    run: Callable[[Scenario, random.Random], None]
    needs: Need | None = None
    errors: Sequence[str] = ()


class LoggedError(NamedTuple):
    """A text of an error log: the name of its file, and whether it is that of a container of ours."""

    file_name: str
    text: str
    is_ours: bool


class Timing(NamedTuple):
    """Seconds from a fault until the parts that it hit had ended, that a client's command took at most, and in all."""

    end_s: float
    longest_wait_s: float
    whole_s: float


class Scenario:
    """A cluster with clients and their driver. ``with`` starts it, and ends all of it."""

    def __init__(
        self,
        java_classes: Path | None,
        *,
        seed: int = 0,
        member_count: int = 3,
        kinds: str | None = None,
        client_count: int = 2,
        rate: float = 300.0,
        java_members: Collection[int] | None = None,
        service_count: int = 1,
        has_network: bool = False,
        has_small_disk: bool = False,
        has_warps: bool = False,
        separate_processes: Collection[int] = (),
        archives: Sequence[ArchiveKind | None] = (),
        properties: Mapping[str, str] | None = None,
        history: SoakHistory | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Describe it; nothing is started.

        Args:
            java_classes: the compiled programs of ``tests/java``, where a part is Java's.
            kinds: a letter for each member: N where driver, archive and consensus module are ours, J where they are
                Java's. All are Java's by default.
            java_members: those whose service container is Java's: by default those of letter J, and without ``kinds``
                the first.
            archives: whose archive each member has, where its letter does not decide it.
        """
        self._java_classes = java_classes
        self._seed = seed
        self._kinds = kinds
        self._member_count = member_count if kinds is None else len(kinds)
        self._client_count = client_count
        self._rate = rate
        self._java_members = set(_members_of_java(kinds) if java_members is None else java_members)
        self._service_count = service_count
        self._has_network = has_network
        self._has_small_disk = has_small_disk
        self._has_warps = has_warps
        self._separate_processes = separate_processes
        self._archives = archives
        self._properties = {"aeron.archive.low.storage.space.threshold": "16m", **(properties or {})}
        self._stack = ExitStack()
        self.say = say
        self.history = history
        self.cluster: LocalCluster
        self.clients: list[LoadClient] = []
        #: Sessions that a test has opened beside those of the clients, and that are to stay.
        self.other_session_count = 0
        #: Of the limited member: its archive's, and that of its driver, its mark files and its outputs.
        self.disk: SmallDisk | None = None
        self.base_disk: SmallDisk | None = None
        self._disks: list[SmallDisk] = []
        self._warp: Warp | None = None
        self._crash_count = self._slow_count = 0
        self._begin_s = self._end_s = 0.0
        self._expected_errors: set[str] = set()
        self.timings: dict[str, list[Timing]] = {}
        self.resources = ResourceWatch()
        self.error_texts: list[LoggedError] = []
        self.failed_starts = 0
        #: What was done for members as an operator does it.
        self.repairs: Counter[str] = Counter()
        #: How often clients got no answer for a second beside clients that read slowly.
        self.stalls = 0
        #: When members were started that have not been whole since.
        self._starting: dict[LocalMember, int] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self) -> None:
        count = self._member_count
        network = self._stack.enter_context(Network(LocalCluster.network_hosts(count))) if self._has_network else None
        kinds = self._parts_by_letter()
        if self._has_warps:
            self._warp = Warp(Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="warps-"))))
        self.cluster = LocalCluster(
            {member_id: self._services(is_java=member_id in self._java_members) for member_id in range(count)},
            member_count=count,
            class_path=[] if self._java_classes is None else [self._java_classes],
            network=network,
            separate_processes=self._separate_processes,
            drivers=kinds,
            archives=self._archives or kinds,
            consensus_modules=kinds,
            properties=self._properties,
            environments=self._environments(),
        )
        # Before the cluster is closed, which removes the directory below which the disk is mounted; and its processes
        # end before that.
        self._stack.callback(self._close)
        if self._has_small_disk:
            self._mount_disks(self.limited_member)
        for member in self.cluster.members:
            self._start_member(member)
        wait_until(self._have_started, RECOVERY_LIMIT_S, "all members to have started")
        self.cluster.await_ready()
        self._starting.clear()
        self.cluster.start_client_driver()
        for client_id in range(1, self._client_count + 1):
            self.add_client(client_id).resume()
        try:
            self.await_progress()
        except Exception as error:
            error.add_note(self.cluster.report())
            raise

    def _parts_by_letter(self) -> list[ArchiveKind | None]:
        return [None] * self._member_count if self._kinds is None else [PART_KINDS[letter] for letter in self._kinds]

    def _environments(self) -> dict[int, dict[str, str]]:
        if self._warp is None:
            return {}
        return {member_id: self._warp.environment(str(member_id)) for member_id in range(self._member_count)}

    def _mount_disks(self, member: LocalMember) -> None:
        """What fills one leaves those below it alone. The journals, which belong to the checks, are never full."""
        self.base_disk = self._mount(member.node.base_dir, BASE_DISK_MIB)
        self.disk = self._mount(member.node.archive_dir, DISK_MIB)
        for service_id in range(self._service_count):
            self._mount(member.node.base_dir / f"journal{suffix(service_id)}", BASE_DISK_MIB)

    def _mount(self, path: Path, size_mib: int) -> SmallDisk:
        self._disks.append(SmallDisk(path, size_mib))
        return self._disks[-1]

    def _services(self, *, is_java: bool) -> Sequence[Service | JavaService]:
        first = JAVA_LEDGER if is_java else PYTHON_LEDGER
        return services.with_further(first, PYTHON_LEDGER, self._service_count)

    def _close(self) -> None:
        for client in self.clients:
            client.close()
        for member in self.cluster.members:
            member.kill()
        for disk in reversed(self._disks):
            disk.close()
        self.cluster.close()

    def add_client(self, client_id: int) -> LoadClient:
        """Connect one more client, which sends after its ``resume``."""
        settings = self.cluster.client_settings()
        client = LoadClient(client_id, settings, seed=self._seed, rate=self._rate, history=self.history)
        self.clients.append(client)
        return client

    # Members

    @property
    def limited_member(self) -> LocalMember:
        """The member with the small disk."""
        return self.cluster.members[LIMITED_MEMBER_ID]

    def leader(self) -> LocalMember:
        """The leader, awaited."""
        return self.cluster.await_leader(RECOVERY_LIMIT_S)

    def follower(self, choice: random.Random) -> LocalMember:
        """One of the followers."""
        return self.followers(choice, 1)[0]

    def followers(self, choice: random.Random, count: int) -> list[LocalMember]:
        """Some of the followers."""
        leader = self.leader()
        return choice.sample([member for member in self.cluster.members if member is not leader], count)

    def let_ours_lead(self) -> LocalMember:
        """The leader, after one of our members has taken over from Java's, if that led."""
        return self._let_lead(self.is_ours)

    def _let_lead(self, suits: Callable[[LocalMember], bool]) -> LocalMember:
        """The leader, after each that does not suit has died for another one to take over."""
        leader = self.leader()
        while not suits(leader):
            leader.kill()
            self.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
            self.recover(leader)
            leader = self.leader()
        return leader

    @property
    def ours(self) -> list[LocalMember]:
        """The members that run our container."""
        return [member for member in self.cluster.members if self.is_ours(member)]

    def our_follower(self) -> LocalMember:
        """A follower that runs our container; where our only member leads, another one takes over first."""
        leader = self._let_lead(lambda leader: self.ours != [leader])
        return next(member for member in self.ours if member is not leader)

    def inject(self, fault: Fault, choice: random.Random) -> None:
        """Let a fault happen; returns when all members are whole again."""
        self.expect_errors(*fault.errors)
        self._end_s = 0.0
        for client in self.clients:
            client.longest_wait_s = 0.0
        self._begin_s = time.monotonic()
        try:
            fault.run(self, choice)
        except Exception as error:
            error.add_note("\n".join(self._describe(member) for member in self.cluster.members))
            error.add_note(self.cluster.report())
            raise
        longest_wait_s = max(client.longest_wait_s for client in self.clients)
        timing = Timing(self._end_s, longest_wait_s, time.monotonic() - self._begin_s)
        self.timings.setdefault(fault.name, []).append(timing)

    def ask_for_snapshot(self) -> None:
        """Ask the leader for a snapshot that may fail."""
        with suppress(ContainerError):
            self.leader().node.ask_for("snapshot")

    # Load

    def await_progress(self, count: int = PROGRESS) -> None:
        """Wait until each client has ``count`` more acknowledgements."""
        for client in self.clients:
            client.await_acknowledged(count, RECOVERY_LIMIT_S)

    def command(self, op: Op, key: int, value: int = 0) -> None:
        """Let the first client send a command, and wait until it is surely carried out."""
        client = self.clients[0]
        goal = client.sent + 1
        client.request(op, key, value)
        wait_until(lambda: client.acknowledged >= goal, RECOVERY_LIMIT_S, f"{op.name} {key} to be acknowledged")

    def visit(self) -> None:
        """Let a client connect, and close its session at once."""
        AeronCluster.connect(
            client_name="visitor", message_timeout=RECOVERY_LIMIT_S, **self.cluster.client_settings()
        ).close()

    def crash_client(self, message_count: int) -> None:
        """Let a client with a driver of its own send long messages, and kill both after some of them."""
        self._crash_count += 1
        name = f"crashing-driver-{self._crash_count}"
        driver = self.cluster.start_client_driver(name)
        settings = json.dumps(self.cluster.client_settings(name))
        client_id = CRASHING_CLIENT_IDS + self._crash_count
        command = [*PYTHON_PROGRAM, "tests.soak.crashing_client", str(client_id), settings]
        environment = PYTHON_LEDGER.environment
        with self.cluster.client_process(f"crashing-client-{self._crash_count}", command, environment) as client:
            client.start()
            for _message in range(message_count + 1):
                client.read_line(RECOVERY_LIMIT_S)
            driver.kill()

    def slow_clients(self, count: int) -> SlowClients:
        """Connect clients that send and read slowly or not at all."""
        first = SLOW_CLIENT_IDS + self._slow_count
        self._slow_count += count
        return SlowClients(self.cluster.client_settings(), first, count)

    def fail_for_ever(self, callback: Armed) -> None:
        """Let a callback of all members raise each time, until :meth:`fail_no_more`."""
        self.command(Op.ARM, callback, Times.ALWAYS)

    def fail_no_more(self, callback: Armed) -> None:
        """Let a callback of all members work again."""
        self.command(Op.ARM, callback, Times.NEVER)

    def hold(self, behind: int, *members: LocalMember) -> None:
        """Let the services of members stand still, idling, while the log goes on, until :meth:`release`.

        Returns when they are more than ``behind`` bytes behind.
        """
        for member in members:
            (member.node.base_dir / "hold").touch()
        self.command(Op.HOLD, 0)
        leader = self.leader()

        def are_behind() -> bool:
            committed = leader.node.commit_position or 0
            return all(committed - services.log_position(member) > behind for member in members)

        wait_until(are_behind, RECOVERY_LIMIT_S, f"the services of {members} to be {behind} bytes behind")

    @staticmethod
    def release(*members: LocalMember) -> None:
        """Let services that are held go on."""
        for member in members:
            (member.node.base_dir / "hold").unlink(missing_ok=True)

    @staticmethod
    def pass_time(seconds: float) -> None:
        """Let a fault last; nothing is awaited."""
        threading.Event().wait(seconds)

    @staticmethod
    def has_error(member: LocalMember, text: str) -> bool:
        """Whether an error log of a member holds a text."""
        return any(text in record.text for records in member.node.errors().values() for record in records)

    @staticmethod
    def service_errors(member: LocalMember, text: str) -> list[str]:
        """What the error log of a member's first service holds with a text in it."""
        path = member.node.cluster_dir / "cluster-mark-service-0.dat"
        return [record.text for record in member.node.errors().get(path, []) if text in record.text]

    def await_our_error(self, text: str, *members: LocalMember) -> None:
        """Wait until the error logs of our containers hold a text: of those among ``members``, or of all."""
        for member in filter(self.is_ours, members or self.cluster.members):
            what = f"the error log of member {member.member_id} to hold {text!r}"
            wait_until(lambda member=member: self.has_error(member, text), RECOVERY_LIMIT_S, what)  # type: ignore[misc]

    def is_ours(self, member: LocalMember) -> bool:
        """Whether a member runs our container, and not Java's."""
        return member.member_id not in self._java_members

    @contextmanager
    def warped(self, member: LocalMember, *, step_s: int = 0, write_us: int = 0) -> Iterator[None]:
        """Have the time of day of a member off by some seconds, and each of its writes take longer, in a block."""
        assert self._warp is not None
        self._warp.set(str(member.member_id), step_s=step_s, write_us=write_us)
        try:
            yield
        finally:
            self._warp.set(str(member.member_id))

    # Recovery

    def end_limit_s(self, member: LocalMember) -> float:
        """How long the parts of a member may outlive the one that was hit."""
        return END_LIMIT_S if self.is_ours(member) else JAVA_END_LIMIT_S

    def await_end(self, member: LocalMember) -> None:
        """Wait until all parts of a member that was hit have ended by themselves."""
        member.await_end(self.end_limit_s(member))
        self.note_end()

    def note_end(self) -> None:
        """Take the time: parts that the fault hit have ended by themselves."""
        self._end_s = time.monotonic() - self._begin_s

    def change_kind(self, member: LocalMember, letter: str) -> None:
        """Have all parts of a member that has ended be of another kind, and start it: N is ours, J is Java's."""
        kind: ArchiveKind = PART_KINDS[letter] or "java"
        member.node.become(driver=kind, archive=kind, consensus_module=kind)
        member.replace_services(self._services(is_java=kind == "java"))
        self.revive(member)  # which keeps the errors of the kind that it was
        (self._java_members.add if kind == "java" else self._java_members.discard)(member.member_id)

    def revive(self, member: LocalMember, *, wiped: bool = False) -> None:
        """Start a member that has ended, with all that it had stored or, when ``wiped``, with nothing of it."""
        self.say(f"     member {member.member_id} starts again")
        member.kill()
        if wiped:
            self.keep_errors(member)
            member.wipe()
        self._start_member(member)

    def _start_member(self, member: LocalMember) -> None:
        for _attempt in range(START_ATTEMPTS):
            self._repair_archive(member)
            self.keep_errors(member)
            self._starting[member] = time.time_ns()
            try:
                member.restart()
                return
            except ProcessEndedError as error:
                self._count_failed_start(member, str(error).partition("\n")[0])
        raise AssertionError(f"member {member.member_id} did not start\n{member.node.report()}")

    def _count_failed_start(self, member: LocalMember, reason: str) -> None:
        if repairs.torn_recording(member.node.archive.errors()) is not None:
            return  # The repair counts it.
        self.failed_starts += 1
        self.say(f"     the start of member {member.member_id} failed, and is tried again: {reason}")

    def _repair_archive(self, member: LocalMember) -> None:
        """Truncate the recording for which a member's archive refused its last start, if there is one."""
        recording_id = repairs.torn_recording(member.node.archive.errors())
        if recording_id is None:
            return
        member.kill()
        repairs.truncate_torn_recording(member, recording_id)
        self.note_repair("torn recordings truncated by ArchiveTool", member)

    def note_repair(self, what: str, member: LocalMember) -> None:
        """Count what was done by hand for a member."""
        self.repairs[what] += 1
        self.say(f"     member {member.member_id} was repaired: {what}")

    def _have_started(self) -> bool:
        for member in self.cluster.members:
            if member.has_ended or self._gave_up_start(member):
                self._count_failed_start(member, "it has ended")
                self._start_member(member)
        return self.cluster.leader is not None and all(has_begun(member, 0) for member in self.cluster.members)

    def _gave_up_start(self, member: LocalMember) -> bool:
        """Whether a member's start has come to nothing: its consensus module has ended, and what is left does not end.

        Java's parts give each other up when a busy machine does not let them run for some seconds. Left are their
        processes, without an agent in them, and a service that waits for its consensus module.
        """
        if member not in self._starting:
            return False
        if has_begun(member, self._starting[member]) and any(service.is_running for service in member.services):
            return False  # These end by themselves, and hang if they do not.
        process = member.node.process
        return not process.is_running or any(
            (status.pid, status.activity_timestamp_ms) == (process.pid, MARK_FILE_TERMINATED)
            for status in member.node.mark_files()
        )

    def recover(self, *hit: LocalMember, limit_s: float = RECOVERY_LIMIT_S) -> None:
        """Wait until all members are whole, starting those of ``hit`` again that have ended.

        Whole: the member's service has come to a READ that was sent after the fault. A member that is neither whole
        nor ended in time hangs.

        Raises:
            TimeoutError: a member hangs.
            AssertionError: a member has ended that was not hit.
        """

        def try_once() -> bool:
            for member in self.cluster.members:
                if member.has_ended:
                    assert member in hit, f"member {member.member_id} has ended and was not hit\n{member.node.report()}"
                    self.revive(member)
                elif self._gave_up_start(member):
                    self._count_failed_start(member, "its consensus module has ended")
                    self.revive(member)
            if self.cluster.leader is None:
                return False
            position = self.clients[0].read(limit_s).position
            return all(self._is_whole(member, position) for member in self.cluster.members)

        try:
            wait_until(try_once, limit_s, "all members to be whole")
        except TimeoutError as error:
            states = [self._describe(member) for member in self.cluster.members]
            raise TimeoutError(f"{error}: " + "; ".join(states)) from None
        self.await_progress()

    def _is_whole(self, member: LocalMember, position: int) -> bool:
        what = f"member {member.member_id} to come to the READ at {position}, or to end"

        def decide() -> bool:
            return member.has_ended or (member.is_running and has_journaled(member, position))

        try:
            wait_until(decide, self.end_limit_s(member), what)
        except TimeoutError:
            return False
        if member.has_ended:
            return False
        self._starting.pop(member, None)
        return True

    @staticmethod
    def _describe(member: LocalMember) -> str:
        node = member.node
        running = [process.name for process in node.processes if process.is_running]
        role = f"{node.role} {node.module_state}"
        return f"member {member.member_id}: running {running}, {role}, committed {node.commit_position}"

    # Checks

    def check(self) -> tuple[checks.Findings, Ledger]:
        """Settle, and compare everything with everything. Raises when anything is wrong."""
        state = self.settle()
        runs = [run for member in self.cluster.members for run in checks.read_runs(member.node.base_dir)]
        findings = checks.check_journals(runs, self.clients)
        findings.raise_if_any()
        self.measure()
        ledger = checks.check_snapshots(self.cluster, self.clients)
        if self.history is not None:
            self.say(f"histories of accounts: {self.history.check(ledger.accounts)}")
        self.say(
            f"equal hashes {state.digest:016x} of {len(self.cluster.members)} members at log position "
            f"{state.position}; {findings.events} events in {findings.runs} journals"
        )
        return findings, ledger

    def settle(self) -> State:
        """Let the clients pause until nothing is under way, and compare the hashes; :meth:`resume` lets them go on."""
        return checks.settle(self.cluster, self.clients)

    def take_stock(self) -> None:
        """Settle, let our containers count what they hold and compare that, and let the clients go on."""
        self.settle()
        self.measure()
        self.resume()

    def measure(self) -> None:
        """Let our containers count what they hold, and compare; when everything is settled."""
        ours = [member for member in self.cluster.members if self.is_ours(member)]
        sessions = len(self.clients) + self.other_session_count
        self.resources.measure(ours, sessions, lambda number: self.command(Op.COUNT, number))

    def finish(self) -> None:
        """Compare everything, and let the clients go on; error logs hold what is expected and nothing else."""
        self.check()
        unexpected = self.unexpected_errors()
        assert not unexpected, f"{len(unexpected)} unexpected errors, the first is: {unexpected[0]}"
        self.resume()

    def resume(self) -> None:
        """Let the clients go on after a check."""
        for client in self.clients:
            client.resume()

    def keep_errors(self, member: LocalMember) -> None:
        """Remember the error logs of a member, before its files are taken over or wiped."""
        self.error_texts += self._errors_of(member)

    def _errors_of(self, member: LocalMember) -> list[LoggedError]:
        return [
            LoggedError(path.name, record.text, services.is_ours(path.name, is_java=not self.is_ours(member)))
            for path, records in member.node.errors().items()
            for record in records
        ]

    def all_errors(self) -> list[LoggedError]:
        """The texts of all error logs so far."""
        texts = list(self.error_texts)
        for member in self.cluster.members:
            texts += self._errors_of(member)
        return texts

    def our_errors(self) -> list[str]:
        """The texts in the error logs of our containers so far; those of Java's parts are Java's matter."""
        return [error.text for error in self.all_errors() if error.is_ours]

    def expect_errors(self, *patterns: str) -> None:
        """Take errors of our containers that one of these patterns finds for caused by what is done to them."""
        self._expected_errors.update(patterns)

    def unexpected_errors(self) -> list[str]:
        """The errors of our containers that none of the injected faults may cause."""
        of_others = services.EXPECTED_ERRORS if self._service_count > 1 else ()
        search = re.compile("|".join([*EXPECTED_ERRORS, *self._expected_errors, *of_others])).search
        missed = services.missed_messages(error.text for error in self.all_errors())
        return [*(text for text in self.our_errors() if not search(text)), *missed]


def _members_of_java(kinds: str | None) -> list[int]:
    return [0] if kinds is None else [member_id for member_id, letter in enumerate(kinds) if letter == "J"]


def has_begun(member: LocalMember, since_ns: int) -> bool:
    """Whether one of the member's services has begun after this time, by its journal."""
    paths = [
        path for number in range(member.node.service_count) for path in services.journals(member.node.base_dir, number)
    ]
    return any(int(path.stem) > since_ns and path.stat().st_size > 0 for path in paths)


def started_at(member: LocalMember) -> int:
    """The log position at which the latest start of a member's service began: that of the snapshot it took over."""
    return checks.read_runs(member.node.base_dir)[-1].records[0].position


def roles(member: LocalMember) -> list[int]:
    """The roles that the latest start of a member's service was told."""
    return [record.first for record in checks.read_runs(member.node.base_dir)[-1].records if record.kind == Kind.ROLE]


def has_journaled(member: LocalMember, position: int) -> bool:
    """Whether the latest starts of all of a member's services have come to this position of the log."""
    service_ids = range(member.node.service_count)
    return all(services.log_position(member, service_id) >= position for service_id in service_ids)
