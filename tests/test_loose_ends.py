"""Loose ends of an event: claims that are open for too long, and what was not sent and is not tried again."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from container.aeron import AeronClient, MediaDriver
from container.api import BACK_PRESSURED, SessionMessages
from container.common.aeron_defaults import CONTROL_CHANNEL
from container.errors import ClaimLostError, ClusterError, ClusterEvent
from container.settings.callback_errors import HALT, SKIP
from container.testing.memory import transport_probe as probe
from container.testing.memory.memory_log import MemoryLog
from container.testing.memory.memory_transport import MemoryClient, MemoryPublication
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_member import ScriptedMember
from container.transport.message_buffer import BufferClaim
from tests.aeron_session import Stream, connect, until
from tests.client_world import MEMBER_0, World
from tests.ingress_member import IngressMember

TERM_LENGTH = 64 * 1024


# A claim that the media driver has given up, over a real one


@pytest.fixture(scope="module")
def impatient_driver() -> Iterator[MediaDriver]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AERON_PUBLICATION_UNBLOCK_TIMEOUT", "1200ms")
        driver = MediaDriver.launch_embedded(
            term_buffer_length=TERM_LENGTH,
            ipc_term_buffer_length=TERM_LENGTH,
            client_liveness_timeout_ns=1_100_000_000,
            timer_interval_ns=20_000_000,
        )
    with driver:
        yield driver


@pytest.fixture
def stream(impatient_driver: MediaDriver) -> Iterator[Stream]:
    with AeronClient(impatient_driver.aeron_dir) as client:
        yield connect(client)


def given_up(stream: Stream) -> probe.OpenClaim:
    """A claim of ``stream`` that the driver has given up: the message behind it came."""
    claim = probe.claim(stream.publication, 5)
    assert isinstance(claim, probe.OpenClaim)
    claim.write(b"first")
    stream.offer(b"behind")
    assert probe.poll(stream.image) == []
    assert stream.receive(1) == [b"behind"]
    return claim


def claimed(stream: Stream) -> probe.OpenClaim | None:
    """A claim of five bytes; None when there is no room."""
    claim = probe.claim(stream.publication, 5)
    return claim if isinstance(claim, probe.OpenClaim) else None


@pytest.mark.parametrize("call", ["commit", "abort"])
def test_a_claim_that_the_driver_gave_up_is_an_error_and_the_stream_goes_on(stream: Stream, call: str) -> None:
    claim = given_up(stream)
    if call == "commit":
        with pytest.raises(ClaimLostError, match=r"a claim of aeron:ipc stream \d+ is lost: it was open for"):
            claim.commit()
    else:
        claim.abort()
    stream.offer(b"next")
    assert stream.receive(1) == [b"next"]


@pytest.mark.parametrize("call", ["commit", "abort"])
@pytest.mark.parametrize("is_written_again", [False, True], ids=["clean", "written"])
def test_a_claim_that_was_given_up_writes_nothing_to_what_its_memory_is_used_for_later(
    stream: Stream, call: str, *, is_written_again: bool
) -> None:
    claim = given_up(stream)
    # Three terms on, the memory is clean. What is written there now has the same place and length.
    frame = -(-(32 + 5) // 32) * 32
    begin = 3 * TERM_LENGTH
    while True:
        position = probe.position(stream.publication)
        room = min(1376, begin - position - 32)
        if room < 0:
            break
        stream.offer(bytes(room))
        stream.receive(1)
    assert probe.position(stream.publication) == begin
    later: probe.OpenClaim | None = None
    if is_written_again:
        later = until(stream.client, lambda: claimed(stream), "a claim to be taken")
        assert later.position == begin + frame
        later.write(b"later")
    if call == "commit":
        with pytest.raises(ClaimLostError):
            claim.commit()
    else:
        claim.abort()
    assert probe.poll(stream.image) == []
    if later is not None:
        later.commit()
        assert stream.receive(1) == [b"later"]
    stream.offer(b"next")
    assert stream.receive(1) == [b"next"]


# The same inside of an agent


def give_up(client: MemoryClient, channel: str, stream_id: int, position: int, length: int) -> MemoryLog:
    """Does what the driver does with a claim of ``length`` bytes, frame and all, that ends at ``position``."""
    publications = [resource for resource in client.open_resources if isinstance(resource, MemoryPublication)]
    (publication,) = [each for each in publications if (each.channel, each.stream_id) == (channel, stream_id)]
    publication.log.overwrite(position - -(-length // 32) * 32, struct.pack("<iBBH", length, 0, 0xC0, 0))
    return publication.log


@pytest.mark.parametrize("policy", [HALT, SKIP])
@pytest.mark.parametrize("target", ["session", "cluster"])
@pytest.mark.parametrize("in_batches", [False, True])
def test_a_service_whose_claim_was_given_up_ends_its_member(policy: str, target: str, *, in_batches: bool) -> None:
    member = ScriptedMember(Each() if in_batches else None, callback_error_policy=policy).lead()
    session = member.open_session()

    logs: list[MemoryLog] = []

    def too_late(*_: Any) -> None:
        with BufferClaim() as claim:
            if target == "session":
                position = session.try_claim(4, claim)
                logs.append(give_up(member.client, session.response_channel, session.response_stream_id, position, 68))
            else:
                position = member.service.cluster.try_claim(4, claim)
                logs.append(give_up(member.client, CONTROL_CHANNEL, 105, position, 68))
            claim.buffer[:] = b"late"

    member.in_callback(too_late)
    member.cm.session_message(1, b"go")
    member.cm.commit()
    termination = member.terminated()
    assert "raised container.errors.ClaimLostError in the event at logPosition=" in str(termination)
    assert isinstance(termination.__cause__, ClaimLostError)
    frame = logs[0].frames()[-1]
    assert (frame.type, frame.payload[32:]) == (0, bytes(4)), "the bytes of the message are not written either"
    assert member.cm.service_messages == []
    assert member.cm.egress(1) == []


@pytest.mark.parametrize("ending", ["abort", "exception", "forgotten"])
def test_a_claim_that_was_given_up_and_is_not_to_be_sent_does_no_harm(ending: str) -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster

    def gives_up(*_: Any) -> None:
        claim = BufferClaim()
        give_up(member.client, CONTROL_CHANNEL, 105, cluster.try_claim(4, claim), 68)
        if ending == "abort":
            claim.abort()
        elif ending == "exception":
            with pytest.raises(KeyError), claim:
                raise KeyError("why")

    member.in_callback(gives_up)
    member.deliver(b"go")
    assert len(member.errors) == (1 if ending == "forgotten" else 0)
    member.in_callback(lambda *_: cluster.send(b"next"))
    member.deliver(b"go")
    assert [message.payload for message in member.cm.service_messages] == [b"next"]


def test_a_client_hears_that_its_claim_was_given_up() -> None:
    world = World()
    member = IngressMember(world.driver, 0, MEMBER_0)
    client = world.connect()
    world.poll(client, 1)
    claim = BufferClaim()
    position = client.try_claim(4, claim)
    ingress = [each for each in world.client.open_resources if isinstance(each, MemoryPublication)][-1]
    give_up(world.client, ingress.channel, ingress.stream_id, position, 68)
    with pytest.raises(ClaimLostError, match="a claim of .* is lost"):
        claim.commit()
    assert client.offer(b"next") > 0
    client.poll_egress()
    assert member.payloads() == [b"next"]


# A claim that outlives its event: one rule for single messages and for batches


class Each(RecordingService):
    """Handles its messages in batches, each of them as without batches."""

    def on_session_messages(self, messages: SessionMessages) -> None:
        header = SimpleNamespace(position=0)
        for index in messages:
            self.on_session_message(
                messages.session(index),
                messages.timestamps[index],
                cast("Any", messages.payload(index)),
                cast("Any", header),
            )


class Step:
    """What a service does at each of three messages, and what came of it."""

    def __init__(self, member: ScriptedMember) -> None:
        self.member = member
        self.session = member.open_session()
        self.cluster = member.service.cluster
        self.claim = BufferClaim()
        self.outcomes: list[Any] = []

    def run(self, *steps: Callable[[Step], Any]) -> list[Any]:
        """Logs a message for each step, and commits them together; what the steps returned or raised."""
        pending = list(steps)

        def handle(*_: Any) -> None:
            try:
                self.outcomes.append(pending.pop(0)(self))
            except Exception as error:
                self.outcomes.append(f"{type(error).__name__}: {error}")
                if isinstance(error, KeyError):
                    raise

        self.member.service.actions["on_session_message"] = handle
        for _ in steps:
            self.member.cm.session_message(1, b"go")
        self.member.commit()
        return self.outcomes


def claims(step: Step) -> bool:
    """Leaves a claim open."""
    return bool(step.cluster.try_claim(3, step.claim) > 0)


def claims_and_raises(step: Step) -> None:
    """Leaves a claim open, and raises."""
    step.cluster.try_claim(3, step.claim)
    raise KeyError("why")


def commits(step: Step) -> None:
    """Commits what may be open."""
    step.claim.commit()


def aborts(step: Step) -> None:
    """Aborts what may be open."""
    step.claim.abort()


def offers(step: Step) -> None:
    """Sends one message, and does not look whether it went out."""
    step.cluster.offer(b"offered")


def schedules(step: Step) -> None:
    """Schedules one timer, and does not look whether it could be."""
    step.cluster.schedule_timer(5, 100)


def closes(step: Step) -> None:
    """Closes the session, and does not look whether it could be."""
    step.cluster.close_client_session(1)


@pytest.mark.parametrize(
    ("steps", "results", "reports"),
    [
        ((claims, commits, offers), (), 1),
        ((claims, aborts, offers), (), 1),
        ((claims_and_raises, commits, offers), (), 2),
        ((offers, claims, claims), (), 2),
        ((offers, offers, commits), (BACK_PRESSURED,), 1),
        ((schedules, schedules, offers), (BACK_PRESSURED,), 1),
        ((closes, closes, offers), (BACK_PRESSURED,) * 3, 1),
        ((offers, offers, schedules), (), 0),
    ],
    ids=["commit", "abort", "raise", "again", "offer", "timer", "close", "nothing"],
)
def test_nothing_goes_from_one_message_to_the_next_with_batches_or_without(
    steps: tuple[Callable[[Step], Any], ...], results: tuple[int, ...], reports: int
) -> None:
    seen = []
    for service in (RecordingService(), Each()):
        member = ScriptedMember(service).lead()
        step = Step(member)
        member.results(*results)
        outcomes = step.run(*steps)
        assert len(member.errors) == reports
        seen.append(
            (
                outcomes,
                [str(error) for error in member.errors],
                [message.payload for message in member.cm.service_messages],
                member.cm.scheduled_timers,
                member.cm.close_requests,
                member.cm.egress(1),
            )
        )
    assert seen[0] == seen[1]
    if steps[1] is commits:
        assert seen[0][0][1].startswith("ClusterError: this claim was aborted when the event that made it ended")


def test_a_claim_of_a_batch_outside_of_its_iteration_ends_with_the_callback() -> None:
    class Columns(RecordingService):
        claim = BufferClaim()

        def on_session_messages(self, messages: SessionMessages) -> None:
            assert len(messages.payloads) > 0
            self.cluster.try_claim(1, self.claim)

    member = ScriptedMember(Columns()).lead()
    member.deliver(b"go")
    (event,) = member.errors
    assert "neither committed nor aborted when its event ended" in str(event)
    assert member.service.claim.length == 0


def test_a_claim_after_the_iteration_cannot_be_one_of_the_last_message() -> None:
    class Late(RecordingService):
        claim = BufferClaim()

        def on_session_messages(self, messages: SessionMessages) -> None:
            for _index in messages:
                if self.claim.length == 0:
                    self.cluster.try_claim(1, self.claim)
            with pytest.raises(ClusterError, match="aborted when the event that made it ended"):
                self.claim.commit()

    member = ScriptedMember(Late()).lead()
    member.deliver(b"go")
    assert len(member.errors) == 1
    assert member.cm.service_messages == []


# Requests whose False nobody cares for


def closed(session: Any) -> bool:
    """Asks for the close of a session; whether that was sent."""
    session.close()
    return bool(session.is_closing)


REQUESTS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "schedule_timer": (lambda cluster: cluster.schedule_timer(5, 100), 1),
    "cancel_timer": (lambda cluster: cluster.cancel_timer(5), 1),
    "close_client_session": (lambda cluster: cluster.close_client_session(5), 3),
    "session.close": (lambda cluster: closed(cluster.get_client_session(5)), 3),
}


@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize("call", REQUESTS)
@pytest.mark.parametrize("is_read", [True, False])
def test_a_request_that_is_not_repeated_until_it_was_sent_is_reported(
    call: str, *, is_read: bool, is_leader: bool
) -> None:
    member = ScriptedMember()
    member = member.lead() if is_leader else member.follow()
    member.open_session(5)
    cluster = member.service.cluster
    request, attempts = REQUESTS[call]

    def gives_up(*_: Any) -> None:
        result = request(cluster)
        if is_read:
            assert not result

    member.in_callback(gives_up)
    member.results(*[BACK_PRESSURED] * attempts)
    member.deliver(b"go")
    (event,) = member.errors
    assert isinstance(event, ClusterEvent)
    name = "close_client_session" if call == "session.close" else call
    assert str(event).startswith(f"{name} of 5 returned False at logPosition={cluster.log_position} and was not repeat")
    member.deliver(b"next")
    assert len(member.errors) == 1


@pytest.mark.parametrize("call", REQUESTS)
def test_a_request_that_is_repeated_until_it_was_sent_is_not_reported(call: str) -> None:
    member = ScriptedMember().lead()
    member.open_session(5)
    cluster = member.service.cluster
    request, attempts = REQUESTS[call]

    def repeats(*_: Any) -> None:
        request(cluster)
        while request(cluster) is False:
            cluster.idle()

    member.in_callback(repeats)
    member.results(*[BACK_PRESSURED] * (attempts * 3))
    member.deliver(b"go")
    assert member.errors == []


def test_the_last_request_for_a_timer_counts() -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster

    def changes_its_mind(*_: Any) -> None:
        assert cluster.schedule_timer(5, 100) is False
        assert cluster.schedule_timer(6, 100) is False
        assert cluster.cancel_timer(5) is True

    member.in_callback(changes_its_mind)
    member.results(BACK_PRESSURED, BACK_PRESSURED)
    member.deliver(b"go")
    (event,) = member.errors
    assert str(event).startswith("schedule_timer of 6 returned False")


def test_requests_and_messages_are_not_taken_for_each_other() -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster

    def several(*_: Any) -> None:
        cluster.schedule_timer(5, 100)
        cluster.close_client_session(5)
        cluster.try_claim(5, BufferClaim())
        cluster.cancel_timer(5)

    member.open_session(5)
    member.in_callback(several)
    member.results(*[BACK_PRESSURED] * 5)
    member.deliver(b"go")
    assert sorted(str(error).split(" ", 1)[0] for error in member.errors) == [
        "Cluster.try_claim",
        "close_client_session",
    ]


@pytest.mark.parametrize("policy", [HALT, SKIP])
@pytest.mark.parametrize("ending", ["interrupted", "raised"])
def test_what_is_not_sent_by_a_member_that_ends_is_not_called_lost(ending: str, policy: str) -> None:
    member = ScriptedMember(callback_error_policy=policy).lead()
    cluster = member.service.cluster
    claim = BufferClaim()

    def ends(*_: Any) -> None:
        assert not cluster.schedule_timer(5, 100)
        cluster.try_claim(1, claim)
        if ending == "raised":
            raise MemoryError
        member.agent.interrupt()
        cluster.idle()

    member.in_callback(ends)
    member.results(BACK_PRESSURED)
    member.cm.session_message(1, b"go")
    member.cm.commit()
    member.terminated()
    assert member.errors == []
    with pytest.raises(ClusterError, match="aborted"):
        claim.commit()


def test_a_retry_that_takes_long_holds_no_memory() -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster
    attempts = 2_000
    grown: list[int] = []

    def retries(*_: Any) -> None:
        tracemalloc.start()
        try:
            while cluster.offer(bytes(10_000)) < 0 or not cluster.schedule_timer(5, 1):
                cluster.idle()
            grown.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()

    member.in_callback(retries)
    member.results(*[BACK_PRESSURED] * attempts)
    member.deliver(b"go")
    assert member.errors == []
    assert grown[0] < 1_000_000
