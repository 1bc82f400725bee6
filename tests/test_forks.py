"""Forked children of a process that has members and clients: they use nothing of their parent's, and harm nothing."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from container.aeron import AeronClient, MediaDriver, library
from container.api import ClientSession, Header, MessageBuffer, SessionMessages
from container.client import AeronCluster, AsyncAeronCluster, EgressListener, SessionPool
from container.common import forks
from container.files.cluster_mark_file import ClusterMarkFile
from container.files.error_log import DistinctErrorLog, read_error_log
from container.run_service import run
from container.testing.memory import transport_probe as probe
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_member import ScriptedMember
from container.testing.processes.process import Process
from container.transport.message_buffer import BufferClaim
from tests.aeron_session import connect, until
from tests.forking import Child, not_refused
from tests.limits import LIMIT_S
from tests.node import TICK_NS, Node
from tests.real_member import RealMember
from tests.threaded_members import PatientMember, ThreadedMembers


@pytest.fixture
def child() -> Iterator[Child]:
    with Child() as child:
        yield child


@pytest.fixture
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded() as driver:
        yield driver


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealMember]:
    with RealMember(RecordingService(), tmp_path) as member:
        member.join("leader")
        yield member


def uses_of(service: Any, session: ClientSession) -> dict[str, Callable[[], object]]:
    """All that a service can ask of its cluster."""
    cluster = service.cluster
    return {
        "offer": lambda: cluster.offer(b"x"),
        "send": lambda: cluster.send(b"x"),
        "try_claim": lambda: cluster.try_claim(8, BufferClaim()),
        "schedule_timer": lambda: cluster.schedule_timer(1, 2),
        "cancel_timer": lambda: cluster.cancel_timer(1),
        "close_client_session": lambda: cluster.close_client_session(session.id),
        "idle": cluster.idle,
        "session.offer": lambda: session.offer(b"x"),
        "session.send": lambda: session.send(b"x"),
        "session.send, in parts": lambda: session.send(b"x", b"y"),
        "session.try_claim": lambda: session.try_claim(8, BufferClaim()),
        "session.close": session.close,
    }


# The agent


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_child_of_a_callback_is_refused_by_cluster_and_session(role: str, child: Child) -> None:
    member = ScriptedMember()
    if role == "leader":
        member.lead()
    else:
        member.follow()
    member.cm.open_session(7)
    owner_id = os.getpid()

    def on_message(session: ClientSession, *_: object) -> None:
        if child.fork():
            uses = uses_of(member.service, session)
            uses |= {"do_work": member.agent.do_work, "on_start": member.agent.on_start}
            child.end(*not_refused(uses, owner_id))

    member.service.actions["on_session_message"] = on_message
    member.deliver(b"fork", session_id=7)
    assert child.outcome() == (0, [])
    member.service.actions["on_session_message"] = lambda session, *_: session.send(b"answer")
    member.deliver(b"ask", session_id=7)
    assert member.service.messages == [b"fork", b"ask"]
    assert len(member.cm.egress(7)) == (role == "leader")
    assert member.errors == []


def test_a_child_of_on_take_snapshot_is_refused_by_the_publication(child: Child) -> None:
    member = ScriptedMember().lead()
    owner_id = os.getpid()

    def on_take_snapshot(publication: Any) -> None:
        publication.send(b"parent's")
        if child.fork():
            uses = {
                "offer": lambda: publication.offer(b"x"),
                "send": lambda: publication.send(b"x"),
                "idle": publication.idle,
                "position": lambda: publication.position,
            }
            child.end(*not_refused(uses, owner_id))
        publication.send(b"parent's, too")

    member.service.actions["on_take_snapshot"] = on_take_snapshot
    member.take_snapshot()
    assert child.outcome() == (0, [])
    assert member.errors == []
    assert member.cm.acks[-1].relevant_id >= 0


def test_a_child_that_returns_from_a_callback_gets_no_further_message(child: Child) -> None:
    member = ScriptedMember().lead()
    member.open_session()
    owner_id = os.getpid()

    def on_message(*_: object) -> None:
        if len(member.service.messages) == 1:
            child.fork()

    member.service.actions["on_session_message"] = on_message
    background: list[int] = []

    def do_background_work(_now_ns: int) -> int:
        background.append(os.getpid())
        return 0

    member.service.actions["do_background_work"] = do_background_work
    for payload in (b"1", b"2", b"3"):
        member.cm.session_message(1, payload)
    member.cm.commit()
    with child.guard():
        member.agent.do_work()
        if os.getpid() != owner_id:
            child.tell(f"{member.service.messages} {os.getpid() in background}")
            wrong = not_refused({"do_work": member.agent.do_work}, owner_id)
            member.agent.close()
            child.end(*wrong, f"closed: {member.is_context_closed or 'on_terminate' in member.service.names()}")
    assert child.outcome() == (0, ["[b'1'] False", "closed: False"])
    assert member.service.messages == [b"1", b"2", b"3"]


def test_a_batch_that_fails_in_a_child_is_not_delivered_again(child: Child) -> None:
    calls: list[int] = []

    class Service(RecordingService):
        def on_session_messages(self, messages: SessionMessages) -> None:
            calls.append(len(messages))
            if len(calls) > 1:
                child.tell("delivered again")
            for index in messages:
                if index == 0 and child.fork():
                    raise ValueError("in the child")

    member = ScriptedMember(Service()).lead()
    member.cm.open_session(1)
    for _ in range(3):
        member.cm.session_message(1, b"x")
    member.cm.commit()
    with child.guard():
        while not calls:
            member.agent.do_work()
    assert child.outcome() == (0, ["raised ValueError('in the child')"])
    assert (calls, member.errors) == ([3], [])


def test_a_child_that_raises_in_on_take_snapshot_acknowledges_nothing(child: Child) -> None:
    member = ScriptedMember().lead()

    def on_take_snapshot(_publication: object) -> None:
        if child.fork():
            raise ValueError("in the child")

    member.service.actions["on_take_snapshot"] = on_take_snapshot
    member.cm.snapshot()
    member.cm.commit()
    with child.guard():
        member.agent.do_work()
    assert child.outcome() == (0, ["raised ValueError('in the child')"])
    assert member.cm.acks[-1].relevant_id >= 0
    assert member.errors == []


def test_a_child_of_on_start_is_refused_by_the_snapshots_image(child: Child) -> None:
    taken = ScriptedMember().lead()
    taken.in_callback(lambda publication: publication.send(b"state"), "on_take_snapshot")
    messages = taken.take_snapshot()
    member = ScriptedMember()
    owner_id = os.getpid()

    def on_start(_cluster: object, image: Any) -> None:
        if child.fork():
            uses = {
                "poll": lambda: image.poll(print),
                "iterate": lambda: list(image),
                "position": lambda: image.position,
                "is_end_of_stream": lambda: image.is_end_of_stream,
            }
            child.end(*not_refused(uses, owner_id))
        assert list(image) == [b"state"]

    member.service.actions["on_start"] = on_start
    member.start(messages)
    assert child.outcome() == (0, [])
    assert member.cm.acks[0].relevant_id == member.client_id


# A member over a driver


def test_a_child_of_a_callback_leaves_the_member_over_a_driver_alone(real: RealMember, child: Child) -> None:
    real.cm.open_session(1)
    real.deliver()
    owner_id = os.getpid()
    claim = BufferClaim()

    def on_message(session: ClientSession, *_: object) -> None:
        assert real.service.cluster.try_claim(4, claim) > 0
        claim.buffer[:] = b"good"
        if child.fork():
            claim.buffer[:] = b"evil"
            uses = uses_of(real.service, session) | {
                "commit": claim.commit,
                "invoke": real.container.invoke,
                "join": real.container.join,
                "conduct": lambda: probe.invoke(real.client),
                "correlation id": lambda: probe.next_correlation_id(real.client),
            }
            wrong = not_refused(uses, owner_id)
            claim.abort()
            real.container.context.counted_error_handler(ValueError("a child's error"))
            probe.signal_terminated(real.container.context.mark_file)
            real.container.close()
            real.container.context.close()
            probe.update_activity_timestamp(real.container.context.mark_file, 4711)
            child.end(*wrong, f"running: {real.container.is_running}")
        claim.commit()

    real.service.actions["on_session_message"] = on_message
    real.cm.session_message(1, b"fork")
    real.deliver()
    assert child.outcome() == (0, ["running: False"])
    del real.service.actions["on_session_message"]
    real.until(lambda: real.cm.service_messages, "the member's message")
    assert [message.payload for message in real.cm.service_messages] == [b"good"]
    real.cm.session_message(1, b"again")
    real.deliver()
    assert real.service.messages == [b"fork", b"again"]
    mark_file = cast("ClusterMarkFile", real.container.context.mark_file)
    assert mark_file.activity_timestamp > 4711
    assert read_error_log(mark_file.error_buffer) == []
    assert real.container.context.counted_error_handler.error_counter.value == 0
    assert real.errors == []
    assert not real.client.is_closed()


@pytest.mark.parametrize("way", ["return", "exit"])
def test_a_child_that_comes_back_does_not_move_the_parents_image_back(real: RealMember, child: Child, way: str) -> None:
    real.cm.open_session(1)
    real.deliver()

    def on_message(*_: object) -> None:
        if len(real.service.messages) == 2 and child.fork():
            child.await_gate()
            if way == "exit":
                raise SystemExit(7)

    real.service.actions["on_session_message"] = on_message
    for number in range(4):
        real.cm.session_message(1, b"%d" % number)
    position = real.cm.commit()
    with child.guard():
        while real.container._agent.cluster.log_position < position and real.container.is_running:
            real.container.invoke()
            if real.container.is_running:
                real.driver.step()
    assert real.container.is_running
    real.cm.session_message(1, b"4")
    real.deliver()
    child.open_gate()
    assert child.outcome() == (0, ["raised SystemExit(7)" if way == "exit" else "came back"])
    real.cm.session_message(1, b"5")
    real.deliver()
    assert real.service.messages == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert real.errors == []


# A container with a thread, and a main program


def launched(tmp_path: Path) -> Node:
    node = Node(tmp_path, auto_advance_ns=TICK_NS)
    node.cm.start()
    return node


LEAVE: dict[str, tuple[Callable[[], object], int, str]] = {
    "return": (lambda: None, 1, "service clustered-service-0-0 was made in process"),
    "raise": (lambda: 1 // 0, 1, "ZeroDivisionError"),
    "exit": (lambda: sys.exit(7), 7, ""),
    "exit in order": (sys.exit, 0, ""),
    "exit with a text": (lambda: sys.exit("why it ends"), 1, "why it ends"),
}


@pytest.mark.parametrize("way", LEAVE)
def test_a_child_that_leaves_a_callback_on_the_agents_thread_ends(
    tmp_path: Path, child: Child, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    leave, code, text = LEAVE[way]
    node = launched(tmp_path)
    forked = threading.Event()

    def on_start(*_: object) -> None:
        if child.fork():
            leave()
            return
        forked.set()

    node.service.actions["on_start"] = on_start
    with node.launch() as container:
        assert forked.wait(LIMIT_S)
        assert child.outcome()[0] == code
        assert container.is_running
        assert node.header()["activity_timestamp"] > 0
        assert node.recorded() == []
    standard_error = capfd.readouterr().err
    assert text in standard_error
    assert ("Traceback" in standard_error) == (way == "raise") or way == "return"


def test_a_child_of_a_main_program_ends_by_a_signal_and_the_program_goes_on(tmp_path: Path, child: Child) -> None:
    node = launched(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    forked = threading.Event()
    told: list[object] = []

    def on_start(*_: object) -> None:
        if child.fork():
            child.tell(str(signal.getsignal(signal.SIGINT) == before))
            child.await_gate()
        child.kill(signal.SIGTERM)  # as soon as it is there
        forked.set()

    def watch() -> None:
        try:
            assert forked.wait(LIMIT_S)
            told.append(child.outcome()[0])
            told.append(node.header()["activity_timestamp"] > 0)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=watch)
    node.service.actions["on_start"] = on_start
    watcher.start()
    run(node.service, **node.settings)
    watcher.join(LIMIT_S)
    assert told == [-signal.SIGTERM, True]
    assert node.service.names() == ["on_start", "on_terminate"]


def test_a_child_of_a_main_program_has_the_handlers_that_were_there_before(tmp_path: Path, child: Child) -> None:
    node = launched(tmp_path)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    owner_id = os.getpid()

    def on_start(*_: object) -> None:
        if child.fork():
            found = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
            child.end(str(found == before), str(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        os.kill(owner_id, signal.SIGTERM)

    node.service.actions["on_start"] = on_start
    run(node.service, **node.settings)
    assert child.outcome() == (0, ["True", "set()"])


def test_a_fork_on_another_thread_leaves_the_container_alone(tmp_path: Path, child: Child) -> None:
    node = launched(tmp_path)
    started = threading.Event()
    node.service.actions["on_start"] = lambda *_: started.set()
    owner_id = os.getpid()
    with node.launch() as container:
        assert started.wait(LIMIT_S)
        if child.fork():
            wrong = not_refused({"join": container.join, "send": lambda: node.service.cluster.send(b"x")}, owner_id)
            container.close()
            child.end(*wrong, repr(container))
        code, lines = child.outcome()
        assert container.is_running
    assert (code, lines) == (0, [f"<ClusteredServiceContainer clustered-service-0-0 of process {owner_id}>"])


# The transport


def test_a_child_is_refused_by_all_that_a_client_has_added(driver: MediaDriver, child: Child) -> None:
    owner_id = os.getpid()
    with AeronClient(driver.aeron_dir) as client:
        stream, exclusive = connect(client), connect(client, exclusive=True)
        counter = probe.add_counter(client, 1101)
        probe.set_counter(counter, 5)
        counters = probe.counters(client)
        pending = probe.begin_add_subscription(client, "aeron:ipc", 5)
        pending_counter = probe.begin_add_counter(client, 1103)
        destination = probe.begin_add_destination(stream.subscription, "aeron:udp?endpoint=localhost:20125")
        listener = probe.RecordingListener()
        probe.add_listener(client, listener)
        claim = probe.claim(stream.publication, 4)
        assert isinstance(claim, probe.OpenClaim)
        if child.fork():
            uses: dict[str, Callable[[], object]] = {
                "add_publication": lambda: probe.add_publication(client, "aeron:ipc", 6),
                "add_exclusive_publication": lambda: probe.add_publication(client, "aeron:ipc", 6, True),
                "add_subscription": lambda: probe.add_subscription(client, "aeron:ipc", 6),
                "add_counter": lambda: probe.add_counter(client, 1102),
                "begin_add": lambda: probe.begin_add_publication(client, "aeron:ipc", 6),
                "poll_add": lambda: probe.poll_add(pending),
                "invoke": lambda: probe.invoke(client),
                "session id": lambda: probe.next_session_id(client, 6),
                "add_listener": lambda: probe.add_listener(client, probe.RecordingListener()),
                "commit": claim.commit,
                "poll": lambda: probe.poll(stream.subscription),
                "poll an image": lambda: probe.poll(stream.image),
                "bounded poll": lambda: probe.poll(stream.image, limit_position=1024),
                "block poll": lambda: probe.poll_blocks(stream.image),
                "reject": lambda: stream.image.reject("no reason"),
                "new image": lambda: probe.take_new_image(stream.subscription),
                "begin_add_counter": lambda: probe.begin_add_counter(client, 1102),
                "poll_add of a counter": lambda: probe.poll_add(pending_counter),
                "destination": lambda: probe.begin_add_destination(stream.subscription, "aeron:udp?endpoint=a:1"),
                "poll_add of a destination": lambda: probe.poll_add(destination),
                "offer_block": lambda: probe.offer_block(exclusive.publication, bytes(32)),
                "append_padding": lambda: probe.append_padding(exclusive.publication, 0),
            }
            for name, publication in (("shared", stream.publication), ("exclusive", exclusive.publication)):
                uses[f"{name} offer"] = partial(probe.offer, publication, b"x")
                uses[f"{name} offer_vectors"] = partial(probe.offer_vectors, publication, [b"x"])
                uses[f"{name} claim"] = partial(probe.claim, publication, 1)
            wrong = not_refused(uses, owner_id)
            probe.set_counter(counter, 6)
            probe.increment_counter(counter)
            probe.propose_max_counter(counter, 7)
            wrong += [f"counter {counter.value}"] * (counter.value != -1)
            wrong += ["counters"] * (probe.counter_capacity(counters) != 0)
            probe.remove_listener(client, listener)
            closable: list[Any] = [stream.publication, stream.subscription, counter, pending, client, driver]
            closable += [pending_counter, destination]
            exclusive.publication.revoke()
            for closed in closable:
                closed.close()
            wrong += [f"{thing} is open" for thing in (stream.publication, stream.image) if not probe.is_closed(thing)]
            child.end(*wrong)
        assert child.outcome() == (0, [])
        claim.write(b"mine")
        claim.commit()
        stream.offer(b"two")
        exclusive.offer(b"three")
        assert stream.receive(2) == [b"mine", b"two"]
        assert exclusive.receive(1) == [b"three"]
        assert counter.value == 5
        until(client, lambda: probe.poll_add(pending), "the subscription")
        assert listener.close_count == 0


def test_garbage_and_the_end_of_a_child_touch_nothing(driver: MediaDriver, child: Child) -> None:
    holder: list[Any] = []
    with AeronClient(driver.aeron_dir) as client:
        stream = connect(client)
        holder.append(connect(client))
        if child.fork():
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                holder.clear()
                gc.collect()
                with AeronClient(driver.aeron_dir) as own:
                    stream = connect(own)
                    stream.offer(b"child's")
                    child.end(str(stream.receive(1)))
        assert child.outcome() == (0, ['[b"child\'s"]'])
        stream.offer(b"mine")
        assert stream.receive(1) == [b"mine"]
        holder[0].offer(b"mine, too")
        assert holder[0].receive(1) == [b"mine, too"]


def test_a_grandchild_is_told_of_the_owner(driver: MediaDriver, child: Child) -> None:
    owner_id = os.getpid()
    with AeronClient(driver.aeron_dir) as client:
        stream = connect(client)
        if child.fork():
            with Child() as grandchild:
                if grandchild.fork():
                    grandchild.end(*not_refused({"offer": lambda: probe.offer(stream.publication, b"x")}, owner_id))
                code, lines = grandchild.outcome()
            child.end(str(code), *lines)
        assert child.outcome() == (0, ["0"])


def test_a_child_can_load_the_library_that_another_thread_was_loading(driver: MediaDriver, child: Child) -> None:
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with vars(library)["_loading"]:
            locked.set()
            done.wait(LIMIT_S)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert locked.wait(LIMIT_S)
        if child.fork():
            with AeronClient(driver.aeron_dir):
                child.end("connected")
        assert child.outcome() == (0, ["connected"])
    finally:
        done.set()
        holder.join(LIMIT_S)


def test_a_child_of_an_error_handler_does_not_go_on_in_the_conductor(driver: MediaDriver, child: Child) -> None:
    forked: list[bool] = []

    def on_error(_error: Exception) -> None:
        if not forked:
            forked.append(child.fork())

    with AeronClient(driver.aeron_dir) as client:
        stream = connect(client)
        with MediaDriver.launch_embedded() as dying:
            orphan = AeronClient(
                dying.aeron_dir, error_handler=on_error, driver_timeout_ms=1_000, keepalive_interval_ms=1
            )
        with orphan:
            until(orphan, lambda: forked, "the client to find that its driver is gone")
        assert child.outcome()[0] == 1
        stream.offer(b"on")
        assert stream.receive(1) == [b"on"]


# Mark file and error log


def test_a_child_writes_neither_mark_file_nor_error_log(tmp_path: Path, child: Child) -> None:
    path = tmp_path / "cluster-mark-service-0.dat"
    mark_file = ClusterMarkFile(path)
    error_log = DistinctErrorLog(mark_file)
    owner_id = os.getpid()
    before = path.read_bytes()
    if child.fork():
        uses = {"signal_ready": mark_file.signal_ready}
        wrong = not_refused(uses, owner_id)
        mark_file.signal_terminated()
        mark_file.signal_failed_start()
        probe.set_member_id(mark_file, 3)
        probe.update_activity_timestamp(mark_file, 4)
        wrong += ["recorded"] * (error_log.record(ValueError("x")) != 0)
        error_log.close()
        mark_file.close()
        gc.collect()
        child.end(*wrong)
    assert child.outcome() == (0, [])
    assert path.read_bytes() == before
    assert error_log.record(ValueError("y")) == 1
    mark_file.signal_ready()
    error_log.close()
    mark_file.close()


# Clients


@pytest.fixture
def members() -> Iterator[ThreadedMembers]:
    with ThreadedMembers() as members:
        members.member(0, "aeron:ipc", PatientMember.echo)
        yield members


def settings(members: ThreadedMembers, **more: Any) -> dict[str, Any]:
    channels = {"ingress_channel": "aeron:ipc", "egress_channel": "aeron:ipc?alias=egress"}
    return channels | {"aeron_dir": members.aeron_dir, "message_timeout": LIMIT_S} | more


class Collecting(EgressListener):
    """Keeps the messages; ``action`` is called with each."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.action: Callable[[], object] = lambda: None

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        self.messages.append(bytes(buffer))
        self.action()


def answers(client: AeronCluster, listener: Collecting, count: int) -> list[bytes]:
    """Poll until so many answers came; all of them."""
    deadline = time.monotonic() + LIMIT_S
    while len(listener.messages) < count:
        client.idle(client.poll_egress())
        assert time.monotonic() < deadline, f"{listener.messages} of {count} answers"
    return listener.messages


def client_uses(client: AeronCluster) -> dict[str, Callable[[], object]]:
    return {
        "offer": lambda: client.offer(b"evil"),
        "send": lambda: client.send(b"evil", timeout=0.1),
        "try_claim": lambda: client.try_claim(4, BufferClaim()),
        "poll_egress": client.poll_egress,
        "poll_state_changes": client.poll_state_changes,
        "keep alive": client.send_keep_alive,
        "idle": client.idle,
        "admin request": lambda: client.send_admin_request_to_take_a_snapshot(1),
        "correlation id": client.next_correlation_id,
    }


@pytest.mark.parametrize("place", ["outside", "callback"])
def test_a_child_does_not_spoil_its_parents_session(members: ThreadedMembers, child: Child, place: str) -> None:
    listener = Collecting()
    owner_id = os.getpid()

    def fork() -> None:
        if child.fork():
            wrong = not_refused(client_uses(client), owner_id)
            with client:
                child.tell(client.state.name)
            client.close()
            if client.close_reason != f"it was made in process {owner_id}, of which this one is a forked child":
                child.tell(str(client.close_reason))
            if client.ingress_publication is not None:
                child.tell("has a publication")
            if place == "outside":
                child.end(*wrong)
            child.tell(str(wrong or "returns"))

    with AeronCluster.connect(**settings(members, listener=listener)) as client:
        client.send(b"first")
        if place == "callback":
            listener.action = fork
        with child.guard():
            while not listener.messages:
                client.poll_egress()
        listener.action = lambda: None
        if place == "outside":
            fork()
        assert child.outcome() == (0, ["CLOSED"] + ["returns", "came back"] * (place == "callback"))
        for number in range(5):
            client.send(b"%d" % number)
        assert answers(client, listener, 6) == [b"first", b"0", b"1", b"2", b"3", b"4"]


def test_a_child_of_a_pool_closes_no_session(members: ThreadedMembers, child: Child) -> None:
    listener = Collecting()
    owner_id = os.getpid()
    pool = SessionPool.connect(**settings(members, listener=listener))
    try:
        if child.fork():
            wrong = not_refused({"open": pool.open, "poll": pool.poll, "idle": pool.idle}, owner_id)
            with pool:
                pass
            child.end(*wrong)
        assert child.outcome() == (0, [])
        pool.cluster.send(b"mine")
        assert answers(pool.cluster, listener, 1) == [b"mine"]
    finally:
        pool.close()


def test_a_child_of_an_asyncio_client_leaves_it_alone(members: ThreadedMembers, child: Child) -> None:
    owner_id = os.getpid()

    async def scenario() -> None:
        async with AsyncAeronCluster.connect(**settings(members)) as client:
            await client.send(b"1")
            assert (await client.receive()).payload == b"1"
            if child.fork():

                def step(coroutine: Any) -> None:
                    try:
                        coroutine.send(None)
                    finally:
                        coroutine.close()

                wrong = not_refused(
                    {
                        "offer": lambda: client.offer(b"evil"),
                        "send": lambda: step(client.send(b"evil")),
                        "receive": lambda: step(client.receive()),
                        "request_snapshot": lambda: step(client.request_snapshot()),
                    },
                    owner_id,
                )
                try:
                    client.aclose().send(None)
                except StopIteration:
                    child.tell("closed")
                client.__del__()
                child.end(*wrong)
            assert child.outcome() == (0, ["closed"])
            for number in range(5):
                await client.send(b"%d" % number)
                assert (await client.receive()).payload == b"%d" % number

    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))


# Processes that a callback may start


def square(number: int) -> int:
    """For a process of a pool, which loads this module."""
    return number * number


def use_fork() -> object:
    return _use_multiprocessing("fork")


def use_forkserver() -> object:
    return _use_multiprocessing("forkserver")


def use_spawn() -> object:
    return _use_multiprocessing("spawn")


def _use_multiprocessing(method: str) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = multiprocessing.get_context(method).Pool(1)
    try:
        return pool.apply_async(square, (3,)).get(LIMIT_S)
    finally:
        pool.terminate()
        pool.join()


def use_subprocess() -> object:
    return int(subprocess.run(["echo", "9"], capture_output=True, check=True, timeout=LIMIT_S).stdout)


def use_subprocess_with_preexec_fn() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return int(
            subprocess.run(
                ["echo", "9"],
                capture_output=True,
                check=True,
                timeout=LIMIT_S,
                preexec_fn=lambda: None,
            ).stdout
        )


@pytest.mark.parametrize(
    "use",
    [use_fork, use_forkserver, use_spawn, use_subprocess, use_subprocess_with_preexec_fn],
    ids=lambda use: use.__name__,
)
def test_a_callback_may_start_processes(real: RealMember, use: Callable[[], object]) -> None:
    real.cm.open_session(1)
    real.deliver()
    results: list[object] = []
    real.service.actions["on_session_message"] = lambda *_: results.append(use())
    real.cm.session_message(1, b"start")
    real.deliver()
    assert results == [9]
    del real.service.actions["on_session_message"]
    real.cm.session_message(1, b"next")
    real.deliver()
    assert real.service.messages == [b"start", b"next"]
    assert real.errors == []


# The rule itself


def test_what_can_not_be_let_go_of_ends_the_child(child: Child, capfd: pytest.CaptureFixture[str]) -> None:
    class Stubborn:
        def _disown(self, process_id: int) -> None:
            raise MemoryError(f"no memory in the child of {process_id}")

    stubborn = Stubborn()
    forks.own(stubborn)
    child.fork()
    assert child.outcome() == (1, [])
    assert f"no memory in the child of {os.getpid()}" in capfd.readouterr().err
    del stubborn


def test_a_child_ends_no_process_of_its_parent(tmp_path: Path, child: Child) -> None:
    with Process("sleeper", ["sleep", "60"], directory=tmp_path) as sleeper:
        sleeper.start()
        if child.fork():
            with sleeper:
                pass
            sleeper.kill()
            child.end(str(sleeper.is_running))
        assert child.outcome() == (0, ["False"])
        assert sleeper.is_running
