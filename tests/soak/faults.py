"""The faults: each hits a cluster under load in one way, checks what must follow, and leaves all members whole."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from container.api import Role
from container.testing.processes.local_cluster import CounterType, LocalMember
from container.testing.processes.process import wait_until
from tests.soak import repairs
from tests.soak.ledger import SLOW_CALLBACK_MS, Armed, Op
from tests.soak.scenario import END_LIMIT_S, PROGRESS, RECOVERY_LIMIT_S, Fault, Need, Scenario
from tests.soak.slow_clients import MANY

# Longer than the leader's heartbeat timeout (2 s), shorter than what driver and clients wait for each other (4 s, 5 s).
SHORT_PAUSE_S = 3.0
# Less than what a driver waits for its clients (4 s).
_STEP_S = 2
# Longer than any timeout of a living cluster.
LONG_PAUSE_S = 8.0
_CUT_S = 5.0
# Fifty times this is what a process must go through without holding more than before.
LIVE_VISITS, LIVE_SNAPSHOTS = 20, 2

_SLOW_CLIENTS = 8
# Without an election, no answer to another client may take longer beside slow ones, which cost a tenth of the time.
_SLOW_CLIENTS_LIMIT_S = 5.0
_FORKS = 6
_TRIES = 10
# How far a service is behind that is held when its leader dies, in bytes.
_LAG = 16 * 1024

# Errors without end: what is recorded of one place, and what is printed at once and per second (docs/reliability.md).
_RECORDED_ERRORS = 21
_PRINTED_BYTES, _PRINTED_BYTES_PER_S = 64 * 1024, 8 * 1024

# What our container writes into its error log when …
_DRIVER_GONE = (  # … its media driver does not answer any more, which takes archive and consensus module with it.
    r"AgentTermination: ERROR - unexpected Aeron close",
    r"DriverTimeoutError: ERROR - MediaDriver keepalive: age=\d+ms > timeout=5000ms",
)
_GIVEN_UP = (  # … driver or consensus module have given it up.
    r"AgentTermination: ERROR - unexpected Aeron close",
    r"TimedOutError: ERROR - client timeout from driver",
    r"DriverTimeoutError: ERROR - unexpected close of heartbeat timestamp counter: \d+",  # seen before that notice
    r"TimedOutError: ERROR - service interval exceeded in ns: timeout=4000000000",
)
_MODULE_GONE = (  # … its consensus module has ended by itself, or is gone.
    r"AeronEvent: WARN - commit-pos counter unexpectedly closed, terminating",
    r"ClusterEvent: WARN - service terminate: logPosition=\d+, and the consensus module ends by itself",
    r"ClusterTermination: ERROR - unexpected termination",
    r"PublicationUnavailableError: ERROR - publication is not connected",  # a native one does not wait for the answer
)
_FAILING = (r"^(another than the \d+ recorded messages of )?__main__\.ArmedError",)
_NO_LOG_BUFFER = (  # in the words of Java's driver, and of C's
    r"RegistrationError: ERROR - cannot add .*: (ERROR - )?insufficient usable storage for new log",
)
_NO_SPACE = (r"AgentTermination: ERROR - the archive is out of storage space: start recording",)


ENDINGS = (*_DRIVER_GONE, *_GIVEN_UP, *_MODULE_GONE)
"""Where parts of a member end in whatever order."""


def _armed(*callbacks: Armed) -> Sequence[str]:
    return [rf"^__main__\.ArmedError: {callback.name}" for callback in callbacks]


FAULTS: dict[str, Fault] = {}


def fault(
    needs: Need | None = None, *, errors: Sequence[str] = ()
) -> Callable[[Callable[[Scenario, random.Random], None]], Fault]:
    """Makes a function a fault under its own name."""

    def register(run: Callable[[Scenario, random.Random], None]) -> Fault:
        FAULTS[run.__name__] = Fault(run.__name__, run, needs, errors)
        return FAULTS[run.__name__]

    return register


# Deaths


@fault()
def kill_leader_container(scenario: Scenario, choice: random.Random) -> None:
    """The leader's service container dies: its node ends by itself, another member leads."""
    leader = scenario.leader()
    leader.service.kill()
    scenario.await_end(leader)
    scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
    scenario.await_progress()
    scenario.recover(leader)


@fault(errors=_DRIVER_GONE)
def kill_leader_node(scenario: Scenario, choice: random.Random) -> None:
    """The leader's node dies: its container ends by itself, another member leads."""
    leader = scenario.leader()
    leader.node.kill()
    scenario.await_end(leader)
    scenario.await_our_error("unexpected Aeron close", leader)
    scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
    scenario.await_progress()
    scenario.recover(leader)


@fault()
def kill_follower_container(scenario: Scenario, choice: random.Random) -> None:
    """A follower's service container dies: its node ends by itself, clients notice nothing."""
    follower = scenario.follower(choice)
    follower.service.kill()
    scenario.await_progress()
    scenario.await_end(follower)
    scenario.recover(follower)


@fault(errors=_DRIVER_GONE)
def kill_follower_node(scenario: Scenario, choice: random.Random) -> None:
    """A follower's node dies: its container ends by itself, clients notice nothing."""
    follower = scenario.follower(choice)
    follower.node.kill()
    scenario.await_progress()
    scenario.await_end(follower)
    scenario.await_our_error("unexpected Aeron close", follower)
    scenario.recover(follower)


@fault("separate", errors=_DRIVER_GONE)
def kill_driver(scenario: Scenario, choice: random.Random) -> None:
    """A member's media driver dies: consensus module and container end by themselves."""
    member = scenario.limited_member
    member.node.driver.kill()
    scenario.await_end(member)
    scenario.await_our_error("unexpected Aeron close", member)
    scenario.recover(member)


@fault("separate", errors=_MODULE_GONE)
def kill_consensus_module(scenario: Scenario, choice: random.Random) -> None:
    """A member's consensus module dies while driver and archive live: the container ends by itself."""
    member = scenario.limited_member
    member.node.process.kill()
    member.service.wait(END_LIMIT_S)
    scenario.note_end()
    scenario.await_our_error("commit-pos counter unexpectedly closed", member)
    member.node.kill()
    scenario.recover(member)


@fault()
def kill_all(scenario: Scenario, choice: random.Random) -> None:
    """All members die at once, and come back from snapshot and log."""
    for member in scenario.cluster.members:
        member.kill()
    scenario.recover(*scenario.cluster.members)


# Pauses


@fault(errors=(*_DRIVER_GONE, *_GIVEN_UP))
def pause_leader_node(scenario: Scenario, choice: random.Random) -> None:
    """The leader's node stands still for longer than the heartbeat timeout: another member leads."""
    leader = scenario.leader()
    leader.node.pause()
    scenario.pass_time(SHORT_PAUSE_S)
    leader.node.resume()
    scenario.recover(leader)


@fault(errors=(*_DRIVER_GONE, *_GIVEN_UP))
def pause_leader_node_long(scenario: Scenario, choice: random.Random) -> None:
    """The leader's node stands still for so long that its container gives it up."""
    leader = scenario.leader()
    leader.node.pause()
    leader.service.wait(scenario.end_limit_s(leader))
    scenario.await_our_error("unexpected Aeron close", leader)
    scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
    leader.node.resume()
    scenario.await_end(leader)
    scenario.recover(leader)


@fault(errors=(*_DRIVER_GONE, *_GIVEN_UP))
def pause_follower_node(scenario: Scenario, choice: random.Random) -> None:
    """A follower's node stands still for longer than the heartbeat timeout."""
    follower = scenario.follower(choice)
    follower.node.pause()
    scenario.pass_time(SHORT_PAUSE_S)
    follower.node.resume()
    scenario.recover(follower)


@fault()
def pause_container(scenario: Scenario, choice: random.Random) -> None:
    """The leader's container stands still, for less than what the driver waits: it continues as if nothing was."""
    leader = scenario.leader()
    leader.service.pause()
    scenario.pass_time(SHORT_PAUSE_S - 1)
    leader.service.resume()
    scenario.recover()


@fault(errors=_GIVEN_UP)
def pause_container_long(scenario: Scenario, choice: random.Random) -> None:
    """A follower's container stands still until driver and consensus module give it up: it ends when it goes on."""
    follower = scenario.follower(choice)
    follower.service.pause()
    scenario.pass_time(LONG_PAUSE_S)
    follower.service.resume()
    scenario.await_end(follower)
    scenario.recover(follower)


@fault(errors=(*_DRIVER_GONE, *_GIVEN_UP, *_MODULE_GONE))
def pause_member(scenario: Scenario, choice: random.Random) -> None:
    """All of the leader's member stands still, as on a machine that is suspended, and goes on."""
    leader = scenario.leader()
    leader.pause()
    scenario.pass_time(choice.uniform(SHORT_PAUSE_S, LONG_PAUSE_S))
    leader.resume()
    scenario.recover(leader)


# Network


@fault("network")
def cut_off_leader(scenario: Scenario, choice: random.Random) -> None:
    """The leader is cut off: the others elect one of theirs, and it follows when it is back."""
    leader = scenario.leader()
    scenario.cluster.cut_off(leader)
    scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
    scenario.await_progress()
    scenario.cluster.reconnect(leader)
    scenario.recover(leader)


@fault("network")
def cut_off_follower(scenario: Scenario, choice: random.Random) -> None:
    """A follower is cut off, and catches up when it is back."""
    follower = scenario.follower(choice)
    scenario.cluster.cut_off(follower)
    scenario.await_progress()
    scenario.pass_time(choice.uniform(1.0, _CUT_S))
    scenario.cluster.reconnect(follower)
    scenario.recover(follower)


@fault("network")
def cut_link_to_leader(scenario: Scenario, choice: random.Random) -> None:
    """The link between the leader and a follower is cut while the others see both: who leads is left to them."""
    leader = scenario.leader()
    follower = scenario.follower(choice)
    scenario.cluster.cut_link(leader, follower)
    scenario.pass_time(choice.uniform(SHORT_PAUSE_S, LONG_PAUSE_S))
    scenario.cluster.heal_link(leader, follower)
    scenario.recover()


@fault("network")
def cut_link_between_followers(scenario: Scenario, choice: random.Random) -> None:
    """The link between two followers is cut while both see the leader: nobody notices anything."""
    leader = scenario.leader()
    one, other = scenario.followers(choice, 2)
    scenario.cluster.cut_link(one, other)
    scenario.await_progress()
    scenario.pass_time(choice.uniform(SHORT_PAUSE_S, LONG_PAUSE_S))
    assert scenario.leader() is leader
    scenario.cluster.heal_link(one, other)
    scenario.recover()


@fault("network")
def cut_ways_from_leader(scenario: Scenario, choice: random.Random) -> None:
    """What the leader sends reaches no other member, and it hears them all: another one leads, and it follows."""
    leader = scenario.leader()
    others = [member for member in scenario.cluster.members if member is not leader]
    for other in others:
        scenario.cluster.cut_way(leader, other)
    scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
    for other in others:
        scenario.cluster.heal_way(leader, other)
    scenario.recover(leader)


@fault("network")
def cut_ways_to_leader(scenario: Scenario, choice: random.Random) -> None:
    """The leader hears no other member, and they hear it: it stands back, or it leads again when it hears them."""
    leader = scenario.leader()
    others = [member for member in scenario.cluster.members if member is not leader]
    for other in others:
        scenario.cluster.cut_way(other, leader)
    scenario.pass_time(choice.uniform(SHORT_PAUSE_S, LONG_PAUSE_S))
    for other in others:
        scenario.cluster.heal_way(other, leader)
    scenario.recover(leader)


@fault("network")
def cut_way_from_follower(scenario: Scenario, choice: random.Random) -> None:
    """What a follower sends does not reach the leader, which it hears: the leader continues without it."""
    leader = scenario.leader()
    follower = scenario.follower(choice)
    scenario.cluster.cut_way(follower, leader)
    scenario.pass_time(choice.uniform(SHORT_PAUSE_S, LONG_PAUSE_S))
    scenario.cluster.heal_way(follower, leader)
    scenario.recover()


# Disk


@fault("disk", errors=(*_MODULE_GONE, *_NO_SPACE))
def fill_disk(scenario: Scenario, choice: random.Random) -> None:
    """A member's archive cannot write any more: the member is lost until there is space again; the others continue."""
    assert scenario.disk is not None
    member = scenario.limited_member
    scenario.disk.fill()
    wait_until(
        lambda: not member.is_running or scenario.has_error(member, "No space left on device"),
        RECOVERY_LIMIT_S,
        "the archive to notice that its disk is full",
    )
    scenario.await_progress()
    member.kill()
    scenario.disk.free()
    scenario.recover(member)


@fault("disk", errors=_NO_SPACE)
def snapshot_on_full_disk(scenario: Scenario, choice: random.Random) -> None:
    """A snapshot finds no space on one member: that member's container ends, the others take theirs.

    A native leader asks its archive for space first, takes no snapshot and goes on.
    """
    assert scenario.disk is not None
    member = scenario.limited_member
    others = [other for other in scenario.cluster.members if other is not member]
    before = [other.node.snapshot_count or 0 for other in others]
    was_leader = scenario.leader() is member
    scenario.disk.fill(leaving=8 * 1024 * 1024)
    scenario.ask_for_snapshot()
    if not was_leader:
        for other, count in zip(others, before, strict=True):
            other.node.await_counter(CounterType.SNAPSHOT_COUNTER, count + 1, RECOVERY_LIMIT_S)
    if was_leader and member.node.consensus_module_kind == "native":
        what = "the leader to take no snapshot"
        wait_until(lambda: scenario.has_error(member, "no snapshot is taken, and"), RECOVERY_LIMIT_S, what)
        assert [other.node.snapshot_count or 0 for other in others] == before
    else:
        scenario.await_end(member)
        scenario.await_our_error("the archive is out of storage space", member)
    scenario.disk.free()
    scenario.recover(member)


@fault("disk", errors=(*_FAILING, *_MODULE_GONE))
def fill_log_disk(scenario: Scenario, choice: random.Random) -> None:
    """Background work fails forever while standard error and mark file of a member are on a full disk: it goes on."""
    assert scenario.base_disk is not None
    scenario.base_disk.fill()
    with _flood_of_errors(scenario):
        scenario.base_disk.fill()  # with what the driver has given back since
        scenario.pass_time(choice.uniform(1.0, SHORT_PAUSE_S))
    scenario.base_disk.free()
    scenario.recover(scenario.limited_member)


@fault("disk", errors=(*_MODULE_GONE, *_DRIVER_GONE, *_NO_LOG_BUFFER))
def fill_driver_directory(scenario: Scenario, choice: random.Random) -> None:
    """Where a member's driver has its log buffers (``/dev/shm``) is full: the member is lost, the others continue."""
    assert scenario.base_disk is not None
    member, disk = scenario.limited_member, scenario.base_disk

    def is_refused() -> bool:
        # The driver gives log buffers back some time after their use, and a snapshot finds space in them.
        disk.fill()
        scenario.ask_for_snapshot()
        return not member.is_running or scenario.has_error(member, "insufficient usable storage")

    wait_until(is_refused, RECOVERY_LIMIT_S, "the driver to refuse a log buffer")
    member.kill()
    scenario.await_progress()
    disk.free()
    scenario.recover(member)


@fault()
def tear_log(scenario: Scenario, choice: random.Random) -> None:
    """A follower dies in the middle of a write to its log: Java's archive refuses to start until the log is truncated.

    Ours knows where the log ends, and starts.
    """
    scenario.cluster.take_snapshot()
    before = scenario.repairs.total()
    for _ in range(_TRIES):
        follower = scenario.follower(choice)
        follower.kill()
        torn = repairs.tear_log(follower)
        if torn is not None:
            break
        scenario.say(f"     member {follower.member_id} was in an election, and wrote no log: another one dies")
        scenario.revive(follower)
        scenario.recover(follower)
    else:
        raise AssertionError(f"none of {_TRIES} followers was recording the log when it died")
    scenario.say(f"     member {follower.member_id}: {torn.name} is torn")
    scenario.revive(follower)
    scenario.recover(follower)
    needed = 1 if follower.node.archive_kind == "java" else 0
    assert scenario.repairs.total() == before + needed, f"a torn recording needed other than {needed} repairs"


@fault("warp")
def slow_disk(scenario: Scenario, choice: random.Random) -> None:
    """Each write of a member's archive takes its time, that of the leader or a follower: the others continue."""
    member = choice.choice(scenario.cluster.members)
    with scenario.warped(member, write_us=choice.randrange(20_000, 200_000)):
        scenario.pass_time(choice.uniform(SHORT_PAUSE_S, LONG_PAUSE_S))
        scenario.await_progress()
    scenario.recover(member)


# Clocks


@fault("warp")
def step_clock(scenario: Scenario, choice: random.Random) -> None:
    """A member's time of day is set forward or back by less than what driver and clients wait, and then right again."""
    member = choice.choice(scenario.cluster.members)
    with scenario.warped(member, step_s=choice.choice((-1, 1)) * choice.randrange(1, _STEP_S + 1)):
        scenario.await_progress()
        scenario.pass_time(SHORT_PAUSE_S)
    scenario.recover(member)


@fault("warp", errors=(*_DRIVER_GONE, *_GIVEN_UP, *_MODULE_GONE))
def step_clock_far(scenario: Scenario, choice: random.Random) -> None:
    """The leader's time of day is set forward by half a minute, and then right again: its parts give each other up."""
    leader = scenario.leader()
    with scenario.warped(leader, step_s=30):
        scenario.pass_time(SHORT_PAUSE_S)
    scenario.recover(leader)


# Services that misbehave


@fault()
def block_leader_service(scenario: Scenario, choice: random.Random) -> None:
    """A callback of the leader's service takes its time and does not idle."""
    scenario.command(Op.BLOCK, scenario.leader().member_id, choice.randrange(500, 2_500))
    scenario.recover()


@fault()
def idle_in_service(scenario: Scenario, choice: random.Random) -> None:
    """A callback of every member's service waits, as it should, for longer than driver and clients would."""
    scenario.command(Op.IDLE, -1, choice.randrange(5_000, 7_000))
    scenario.recover()


@fault(errors=_armed(Armed.BACKGROUND_WORK, Armed.TIMER, Armed.SESSION_OPEN, Armed.SESSION_CLOSE))
def raise_in_callbacks(scenario: Scenario, choice: random.Random) -> None:
    """Callbacks of all members raise, each once: the exception is counted, the state stays the same everywhere."""
    for callback in (Armed.BACKGROUND_WORK, Armed.TIMER, Armed.SESSION_OPEN, Armed.SESSION_CLOSE):
        scenario.command(Op.ARM, callback)
    scenario.command(Op.TIMER, choice.randrange(2**32, 2**33), 0)
    scenario.visit()
    for callback in (Armed.BACKGROUND_WORK, Armed.TIMER, Armed.SESSION_OPEN, Armed.SESSION_CLOSE):
        scenario.await_our_error(f"ArmedError: {callback.name}")
    scenario.recover()


@fault(errors=_armed(Armed.SNAPSHOT))
def raise_in_snapshot(scenario: Scenario, choice: random.Random) -> None:
    """The snapshot fails on all members: it is given up, the cluster goes on, and the next one is taken."""
    scenario.command(Op.ARM, Armed.SNAPSHOT)
    scenario.ask_for_snapshot()
    scenario.await_our_error("ArmedError: SNAPSHOT")
    scenario.await_progress()
    scenario.cluster.take_snapshot()
    scenario.recover()


@fault(errors=(*_DRIVER_GONE, *_armed(Armed.ROLE_CHANGE, Armed.NEW_TERM)))
def raise_in_election(scenario: Scenario, choice: random.Random) -> None:
    """The role change and the new term that follow a leader's death raise on all members."""
    scenario.command(Op.ARM, Armed.ROLE_CHANGE)
    scenario.command(Op.ARM, Armed.NEW_TERM)
    leader = scenario.leader()
    leader.node.kill()
    scenario.await_end(leader)
    scenario.await_our_error("ArmedError: NEW_TERM", *(each for each in scenario.cluster.members if each is not leader))
    scenario.recover(leader)


@fault(errors=[r"AgentTermination: ERROR - failed to start service=.*: ArmedError: on_start"])
def raise_at_start(scenario: Scenario, choice: random.Random) -> None:
    """A service fails to start: the consensus module gives up, and the member's next start succeeds."""
    follower = scenario.follower(choice)
    follower.kill()
    (follower.node.base_dir / "fail-on-start").touch()
    scenario.revive(follower)
    wait_until(
        lambda: scenario.has_error(follower, "failed to start clustered service"),
        RECOVERY_LIMIT_S,
        "the consensus module to tell that its service failed to start",
    )
    if scenario.is_ours(follower):
        assert follower.service.wait(END_LIMIT_S) == 1
        scenario.await_our_error("ArmedError: on_start", follower)
    follower.kill()  # Java's processes stay, without an agent in them.
    scenario.recover(follower)


@fault(errors=_armed(Armed.TERMINATE))
def raise_at_end(scenario: Scenario, choice: random.Random) -> None:
    """The last callback of all members raises: they end in order all the same."""
    scenario.command(Op.ARM, Armed.TERMINATE)
    scenario.leader()
    scenario.cluster.abort()
    scenario.note_end()
    scenario.await_our_error("ArmedError: TERMINATE")
    scenario.recover(*scenario.cluster.members)


@fault(errors=_FAILING)
def fail_in_background(scenario: Scenario, choice: random.Random) -> None:
    """Background work of all members raises forever, also during a snapshot and an election: nothing is cut short."""
    with _flood_of_errors(scenario):
        scenario.pass_time(choice.uniform(0.0, 2.0))
    scenario.fail_for_ever(Armed.BACKGROUND_WORK)
    scenario.cluster.take_snapshot()
    leader = scenario.leader()
    leader.kill()
    scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
    scenario.await_progress()
    scenario.fail_no_more(Armed.BACKGROUND_WORK)
    scenario.recover(leader)


@contextmanager
def _flood_of_errors(scenario: Scenario) -> Iterator[None]:
    """In a block background work fails each time, with another text each time; what is said of it must have limits."""
    printed = {member: _printed_bytes(member) for member in scenario.ours}
    begin = time.monotonic()
    scenario.fail_for_ever(Armed.BACKGROUND_WORK)
    scenario.await_our_error("ArmedError: BACKGROUND_WORK")
    yield
    scenario.await_progress()
    scenario.fail_no_more(Armed.BACKGROUND_WORK)
    scenario.await_progress()
    for member, before in printed.items():
        errors = scenario.service_errors(member, "ArmedError: BACKGROUND_WORK")
        assert len(errors) <= _RECORDED_ERRORS, f"member {member.member_id}: {len(errors)} errors of one place"
        limit = 2 * _PRINTED_BYTES + _PRINTED_BYTES_PER_S * (time.monotonic() - begin)
        grown = _printed_bytes(member) - before
        assert grown <= limit, f"member {member.member_id} has printed {grown} bytes of errors"


def _printed_bytes(member: LocalMember) -> int:
    return member.service.err_path.stat().st_size


@fault()
def block_service_long(scenario: Scenario, choice: random.Random) -> None:
    """A callback of one of our members takes longer than driver and clients wait, asleep or with the GIL held."""
    member = choice.choice(scenario.ours)
    milliseconds = choice.randrange(SLOW_CALLBACK_MS - 1_000, SLOW_CALLBACK_MS + 1_000)
    scenario.command(Op.BLOCK, member.member_id, choice.choice((1, -1)) * milliseconds)
    scenario.recover()


@fault()
def load_slowly(scenario: Scenario, choice: random.Random) -> None:
    """Our members take longer to write a snapshot, and one to load it, than driver and clients wait."""
    for member in scenario.ours:
        (member.node.base_dir / "slow-on-snapshot").touch()
    scenario.cluster.take_snapshot()
    follower = scenario.our_follower()
    follower.kill()
    (follower.node.base_dir / "slow-on-start").touch()
    scenario.recover(follower)


@fault()
def fork_in_callbacks(scenario: Scenario, choice: random.Random) -> None:
    """Callbacks of our members fork; the children try to send, and end: all of it is refused, and nothing is seen."""
    for number in range(_FORKS):
        scenario.command(Op.FORK, number)
    scenario.recover()


@fault()
def kill_leader_while_services_lag(scenario: Scenario, choice: random.Random) -> None:
    """Services of followers are held in a callback when their leader dies, and for seconds after: nothing is lost."""
    leader = scenario.leader()
    held = [member for member in scenario.ours if member is not leader]
    try:
        scenario.hold(_LAG, *held)
        scenario.pass_time(choice.uniform(0.0, SHORT_PAUSE_S))
        leader.kill()
        scenario.pass_time(choice.uniform(1.0, LONG_PAUSE_S))
    finally:
        scenario.release(*held)
    scenario.recover(leader)


# Clients


@fault()
def slow_clients(scenario: Scenario, choice: random.Random) -> None:
    """Clients send, and read no answers or few: the others get theirs."""
    scenario.let_ours_lead()
    term_id = _leadership_term_id(scenario)
    stalls = sum(client.stalls for client in scenario.clients)
    for client in scenario.clients:
        client.longest_wait_s = 0.0
    with scenario.slow_clients(_SLOW_CLIENTS) as slow:
        slow.await_sent(MANY, RECOVERY_LIMIT_S)
        scenario.await_progress(5 * PROGRESS)
        longest_wait_s = max(client.longest_wait_s for client in scenario.clients)
        is_calm = term_id == _leadership_term_id(scenario)
        assert not is_calm or slow.session_count == _SLOW_CLIENTS, f"only {slow.session_count} are left"
    scenario.stalls += sum(client.stalls for client in scenario.clients) - stalls
    assert not is_calm or longest_wait_s < _SLOW_CLIENTS_LIMIT_S, f"a client waited {longest_wait_s:.1f} s"
    scenario.recover()


def _leadership_term_id(scenario: Scenario) -> int | None:
    return scenario.leader().node.counter_value(CounterType.LEADERSHIP_TERM_ID)


@fault()
def crash_client(scenario: Scenario, choice: random.Random) -> None:
    """A client and its driver die while messages of many fragments are under way: its session is closed."""
    scenario.crash_client(choice.randrange(200))
    scenario.await_progress()
    scenario.recover()


@fault()
def visit(scenario: Scenario, choice: random.Random) -> None:
    """Clients come and go."""
    for _visit in range(choice.randrange(3, 8)):
        scenario.visit()
    scenario.recover()


# Operations


@fault()
def snapshot_under_load(scenario: Scenario, choice: random.Random) -> None:
    """Snapshots are taken while clients send."""
    for _snapshot in range(choice.randrange(1, 4)):
        scenario.cluster.take_snapshot()
    scenario.recover()


@fault()
def live_on(scenario: Scenario, choice: random.Random) -> None:
    """Sessions come and go, snapshots are taken and another member leads, and no process ends or holds more."""
    scenario.take_stock()
    for _visit in range(LIVE_VISITS):
        scenario.visit()
    for _snapshot in range(LIVE_SNAPSHOTS):
        scenario.cluster.take_snapshot()
    leader = scenario.leader()
    if scenario.cluster.network is not None:
        scenario.cluster.cut_off(leader)
        scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
        scenario.cluster.reconnect(leader)
        leader.node.await_role(Role.FOLLOWER, RECOVERY_LIMIT_S)
    else:
        leader.node.pause()
        scenario.pass_time(SHORT_PAUSE_S)
        leader.node.resume()
    scenario.recover()
    scenario.take_stock()


@fault()
def shut_down(scenario: Scenario, choice: random.Random) -> None:
    """All members take a snapshot and end while clients send, and start again."""
    scenario.leader()
    scenario.cluster.shut_down()
    scenario.note_end()
    scenario.recover(*scenario.cluster.members)


@fault()
def abort(scenario: Scenario, choice: random.Random) -> None:
    """All members end without a snapshot while clients send, and start again."""
    scenario.leader()
    scenario.cluster.abort()
    scenario.note_end()
    scenario.recover(*scenario.cluster.members)


@fault()
def wipe_follower(scenario: Scenario, choice: random.Random) -> None:
    """A follower loses everything it has stored, and gets it from the others."""
    follower = scenario.follower(choice)
    follower.kill()
    scenario.keep_errors(follower)
    follower.wipe()
    scenario.await_progress()
    scenario.recover(follower)


@fault(errors=[r"AgentTermination: ERROR - failed to start service=.*: (SnapshotError|ArchiveError)"])
def damage_snapshot(scenario: Scenario, choice: random.Random) -> None:
    """A follower's snapshot is damaged while it is down: it refuses to start, and gets all from the others, wiped."""
    scenario.cluster.take_snapshot()
    follower = scenario.our_follower()
    follower.kill()
    scenario.say(f"     member {follower.member_id}: {repairs.damage_snapshot(follower, choice)}")
    scenario.revive(follower)
    assert follower.service.wait(RECOVERY_LIMIT_S) == 1
    scenario.note_end()
    scenario.await_our_error("failed to start service", follower)
    scenario.revive(follower, wiped=True)
    scenario.note_repair("members wiped after their snapshot was damaged", follower)
    scenario.recover(follower)


@fault()
def rolling_restart(scenario: Scenario, choice: random.Random) -> None:
    """One member after the other ends in order and starts again."""
    for member in scenario.cluster.members:
        member.service.stop(scenario.end_limit_s(member))
        scenario.await_end(member)
        scenario.recover(member)
