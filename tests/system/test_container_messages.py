"""Messages between clients and a Python service in a real cluster: of all sizes, in order, under back pressure."""

from __future__ import annotations

import json
import signal
import time
from functools import partial

import pytest

from container.client import SessionPool
from container.testing.processes.local_cluster import CounterType
from container.testing.processes.process import wait_until
from tests.client_world import Counting
from tests.limits import LIMIT_S
from tests.system.harness import (
    ECHO_SERVICE,
    REPORTING_SERVICE,
    CommandClient,
    NodeFactory,
    await_report,
    end_by,
    error_texts,
    reports,
    run_echo_client,
    start,
)

pytestmark = pytest.mark.nodes("native", "java")

# Messages of up to 8 KiB fit a term of this length, and half of a term is all that may be under way.
SHORT_TERM = "aeron:udp?endpoint=127.0.0.1:0|term-length=64k"
# Neither driver nor consensus module is to drop a client that does not poll.
PATIENCE = {
    "aeron.client.liveness.timeout": "60s",
    "aeron.publication.unblock.timeout": "70s",
    "aeron.cluster.session.timeout": "60s",
}


def test_ten_thousand_messages_of_up_to_100_kib_come_back_over_udp(node: NodeFactory) -> None:
    member = node()
    start(member, ECHO_SERVICE)
    result = run_echo_client(member)
    assert (result["sent"], result["received"], result["mismatches"]) == (10_000, 10_000, 0)
    assert result["bytes"] > 10_000_000
    assert member.counter_value(CounterType.CLUSTERED_SERVICE_ERROR_COUNT, service_id=0) == 0
    assert error_texts(member) == []


@pytest.mark.smoke
def test_a_thousand_messages_come_back_over_ipc(node: NodeFactory) -> None:
    member = node()
    start(member, ECHO_SERVICE)
    result = run_echo_client(member, "messages=1000", ipc=True)
    assert (result["sent"], result["received"], result["mismatches"]) == (1_000, 1_000, 0)


def test_send_waits_out_the_back_pressure_of_a_client(node: NodeFactory) -> None:
    member = node()
    start(member, ECHO_SERVICE)
    sent = [bytes([number]) * 2_000 for number in range(100)]
    # Nobody polls until all are sent, and the egress stream holds a third of them at most.
    with CommandClient(member, egress_channel=SHORT_TERM) as client:
        for message in sent:
            client.send_without_polling(message)
        client.poll_until(lambda: len(client.messages) == len(sent), "all echoes")
        assert client.messages == sent


def test_a_java_client_under_back_pressure_gets_every_message_back(node: NodeFactory) -> None:
    member = node()
    start(member, ECHO_SERVICE)
    # The client offers before it polls, up to this window, into an egress stream that holds far less. Meanwhile the
    # service waits for it, which it does for two seconds at most: a longer window would take that on a busy machine.
    result = run_echo_client(
        member, "messages=2000", "max-length=8000", "window=50", aeron_cluster_egress_channel=SHORT_TERM
    )
    assert (result["sent"], result["received"], result["mismatches"]) == (2_000, 2_000, 0)


def test_a_client_that_stops_polling_is_given_up_and_served_again_once_it_polls(node: NodeFactory) -> None:
    member = node(properties=PATIENCE)
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as stuck, CommandClient(member) as other:
        # More than the egress stream holds, while nobody polls it.
        for _ in range(16):
            stuck.send_without_polling(json.dumps({"do": "reply", "length": 100_000}).encode())
        # The last one is in progress, so the service has given up one at least; others are served.
        await_report(service, "on_session_message", count=16)
        assert other.do("echo", text="still here") == "still here"
        # What was sent before that arrives, whole, and later answers as well, once there is room for one.

        def is_answered() -> bool:
            stuck.send("echo", text="again")
            return b'{"result": "again"}' in stuck.messages

        stuck.poll_until(is_answered, "the answer to echo")
        long_messages = [message for message in stuck.messages if len(message) > 100]
        assert 4 <= len(long_messages) < 16
        assert set(long_messages) == {b"r" * 100_000}
    assert end_by(service, signal.SIGTERM) == 0
    assert await_report(service, "on_terminate")["back_pressured"] > 0


def test_twenty_sessions_that_never_poll_do_not_stall_another_one_in_turn(node: NodeFactory) -> None:
    member = node(properties={**PATIENCE, "aeron.cluster.max.sessions": "30"})
    start(member, ECHO_SERVICE)
    properties = member.client_properties()
    answered = Counting()
    with (
        SessionPool.connect(
            aeron_dir=properties["aeron.dir"],
            ingress_channel=properties["aeron.cluster.ingress.channel"],
            ingress_endpoints=properties["aeron.cluster.ingress.endpoints"],
            egress_channel=SHORT_TERM,
            message_timeout=LIMIT_S,
            listener=answered,
        ) as pool,
        CommandClient(member, egress_channel=SHORT_TERM) as other,
    ):
        stuck = pool.open_all(20)
        stalls = sent = 0
        for number in range(100):
            # Far more than their stream holds; each of them has several turns.
            offer = partial(stuck[number % len(stuck)].offer, bytes(4_000))
            wait_until(lambda offer=offer: offer() > 0, LIMIT_S, "ingress to take a message")  # type: ignore[misc]
            sent += 1
            begin = time.monotonic()
            assert other.ask("echo", number=number)
            stalls += time.monotonic() - begin > 0.5
        # Waiting a second for each of them would make 20.
        assert stalls <= 3
        while pool.poll():
            pass
        assert 0 < answered.count < sent, "they were stuck"


def test_s25_a_message_of_many_fragments_arrives_whole_with_the_end_of_its_last_fragment(
    node: NodeFactory,
) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        assert client.do("length", text="x" * 50_000) == 50_000
        assert client.do("length", text="x" * 100) == 100
    await_report(service, "on_session_close")
    *_, before, long, short, _close = reports(service)
    assert before["callback"] == "on_session_open"
    assert [long["callback"], short["callback"]] == ["on_session_message", "on_session_message"]
    # Every fragment has a header; the last one of each message ends at a multiple of 32.
    assert long["header_position"] == long["log_position"]
    assert long["header_position"] > before["log_position"] + 50_000 + 36 * 32
    assert long["header_position"] % 32 == 0
    assert short["header_position"] - long["header_position"] == -(-(short["length"] + 64) // 32) * 32


@pytest.mark.parametrize("ipc", [False, True], ids=["udp", "ipc"])
def test_s32_long_answers_arrive_whole_and_in_order(node: NodeFactory, ipc: bool) -> None:
    member = node()
    start(member, REPORTING_SERVICE)
    with CommandClient(member, ipc=ipc) as client:
        for length in (0, 1, 1343, 1344, 1345, 16_353, 100_000):
            client.messages.clear()
            client.send("reply", length=length)
            client.poll_until(lambda: len(client.messages) == 2, "a reply and an answer")
            assert client.messages[0] == b"r" * length
            assert json.loads(client.messages[1])["result"] > 0


def test_s34_the_consensus_module_and_the_service_share_the_egress_stream(node: NodeFactory) -> None:
    member = node()
    start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        assert client.do("echo", text="x") == "x"
        egress_streams = [
            counter
            for counter in member.counters()
            if counter.label.startswith("snd-pos: ") and " 102 " in counter.label
        ]
        # One publication in the driver, with one session id: both add it, and it belongs to whoever was first.
        assert len(egress_streams) == 1
