"""The client against a real node: authentication, endpoints that are dead, wrong or slow, timeouts, many messages."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from container.aeron import MediaDriver
from container.api import NOT_CONNECTED
from container.client import AdminResponseCode, AeronCluster, AsyncAeronCluster, ClientState, EgressListener, EventCode
from container.codecs.messages import decode
from container.errors import AuthenticationError, TimedOutError
from container.testing.processes.local_cluster import CounterType, Node
from container.testing.processes.process import wait_until
from container.testing.processes.recordings import recorded_messages
from examples.challenge import HmacCredentials
from examples.ledger_client import LedgerClient
from tests.limits import LIMIT_S
from tests.system.harness import ROOT, NodeFactory
from tests.system.test_client import Collecting, poll_until, settings, start_echo

pytestmark = pytest.mark.nodes("native", "java")

SECRET = "only we know"
AUTHENTICATION = {
    "aeron.cluster.authenticator.supplier": "container.tests.HmacAuthenticator",
    "container.tests.secret": SECRET,
}
MESSAGE_COUNT = 100_000


# Authentication


@pytest.fixture
def guarded(node: NodeFactory) -> Node:
    return start_echo(node(properties=AUTHENTICATION))


@pytest.mark.nodes("java")
@pytest.mark.parametrize("user", ["alice", "twice"])
def test_one_and_two_challenges_are_answered(guarded: Node, user: str) -> None:
    listener = Collecting()
    credentials = HmacCredentials(user, SECRET.encode())
    with AeronCluster.connect(**settings(guarded, listener), credentials_supplier=credentials) as client:
        client.send(b"in")
        poll_until(client, lambda: listener.messages == [b"in"], "the echo")


@pytest.mark.nodes("java")
@pytest.mark.parametrize(("user", "secret"), [("alice", "a guess"), ("mallory", SECRET)])
def test_a_wrong_answer_or_user_is_rejected(guarded: Node, user: str, secret: str) -> None:
    credentials = HmacCredentials(user, secret.encode())
    with pytest.raises(AuthenticationError, match="session failed authentication.*members tried: 0=") as refused:
        AeronCluster.connect(**settings(guarded, Collecting()), credentials_supplier=credentials)
    assert refused.value.code == EventCode.AUTHENTICATION_REJECTED
    assert refused.value.detail == "session failed authentication"


@pytest.mark.nodes("java")
def test_an_authenticator_that_does_not_answer_times_the_connect_out(guarded: Node) -> None:
    slow = settings(guarded, Collecting()) | {"message_timeout": 2.0}
    with pytest.raises(TimedOutError, match="s for an answer on egress .*step=POLL_RESPONSE"):
        AeronCluster.connect(**slow, credentials_supplier=HmacCredentials("slow", SECRET.encode()))


@pytest.mark.nodes("java")
@pytest.mark.parametrize(
    ("secret", "code", "text"), [(SECRET, 0, "welcome, alice"), ("a guess", 1, "refused: session")]
)
def test_the_example_of_a_challenge(guarded: Node, tmp_path: Path, secret: str, code: int, text: str) -> None:
    secret_file = tmp_path / "secret.txt"
    secret_file.write_text(secret)
    arguments = ["--user", "alice", "--secret-file", str(secret_file), *client_options(guarded)]
    example = guarded.start_process(
        "challenge", [sys.executable, "-m", "examples.challenge", *arguments], cwd_environment()
    )
    assert example.wait(LIMIT_S) == code
    assert text in example.tail()


def cwd_environment() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}


def client_options(node: Node) -> list[str]:
    properties = node.client_properties()
    return ["--ingress", properties["aeron.cluster.ingress.endpoints"], "--aeron-dir", properties["aeron.dir"]]


# Endpoints that are dead, wrong or slow


def test_dead_members_are_passed_over(node: NodeFactory) -> None:
    echo = start_echo(node())
    listener = Collecting()
    live = settings(echo, listener)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unheard:
        unheard.bind(("localhost", 0))  # takes everything, answers nothing
        silent = f"localhost:{unheard.getsockname()[1]}"
        endpoint = live["ingress_endpoints"].partition("=")[2]
        live["ingress_endpoints"] = f"7={silent},8=no.such.host.invalid:4000,0={endpoint}"
        with AeronCluster.connect(**live) as client:
            assert client.leader_member_id == 0
            client.send(b"found")
            poll_until(client, lambda: listener.messages == [b"found"], "the echo")


def test_wrong_endpoints_are_told_with_the_timeout(node: NodeFactory) -> None:
    echo = start_echo(node())
    wrong = settings(echo, Collecting()) | {
        "message_timeout": 2.0,
        "ingress_endpoints": "1=localhost:1,2=no.such.host.invalid:4000",
    }
    with pytest.raises(TimedOutError) as late:
        AeronCluster.connect(**wrong)
    assert "1=localhost:1: nobody listens there" in str(late.value)
    assert "2=no.such.host.invalid:4000: refused by the driver" in str(late.value)


def test_a_member_that_is_slow_is_waited_for(node: NodeFactory) -> None:
    echo = start_echo(node())
    listener = Collecting()
    slow = settings(echo, listener)
    pause = threading.Timer(1.5, echo.resume)
    with AeronCluster.connect(**slow | {"client_name": "before"}) as before:
        before.send(b"x")
    # The client has a driver of its own, so the node alone is slow.
    with MediaDriver.launch_embedded() as driver:
        echo.pause()
        pause.start()
        with AeronCluster.connect(**slow | {"aeron_dir": driver.aeron_dir}) as client:
            client.send(b"at last")
            poll_until(client, lambda: listener.messages == [b"at last"], "the echo")
    pause.join(LIMIT_S)


# Timeouts


def test_a_client_that_slept_past_the_session_timeout_is_told(node: NodeFactory) -> None:
    echo = start_echo(node(properties={"aeron.cluster.session.timeout": "1s"}))
    listener = Collecting()
    with AeronCluster.connect(**settings(echo, listener), keep_alive_interval=0.2) as client:
        threading.Event().wait(3.0)  # asleep: nothing is polled, nothing is sent
        poll_until(client, lambda: client.is_closed, "the news that the session is gone")
        assert client.close_reason == "closed by the cluster: TIMEOUT"
        assert listener.events == [(EventCode.CLOSED, "TIMEOUT")]


def test_a_node_that_dies_ends_the_client_when_no_leader_comes(node: NodeFactory) -> None:
    echo = start_echo(node())
    with (
        MediaDriver.launch_embedded(image_liveness_timeout_ns=1_000_000_000) as driver,
        AeronCluster.connect(
            **settings(echo, Collecting()) | {"aeron_dir": driver.aeron_dir}, new_leader_timeout=1.0
        ) as client,
    ):
        echo.kill()
        poll_until(client, lambda: client.is_closed, "the end of the client")
        assert client.close_reason == "no new leader within 1 s after the connection to member 0 was lost"


@pytest.mark.parametrize("is_idle", [True, False], ids=["idle", "sending"])
def test_a_pause_of_the_leader_does_not_lose_the_session(node: NodeFactory, is_idle: bool) -> None:
    """Longer than the 5 s after which a publication counts as not connected, shorter than the 10 s of an image."""
    echo = start_echo(node())
    listener = Collecting()
    with (
        MediaDriver.launch_embedded() as driver,
        AeronCluster.connect(**settings(echo, listener) | {"aeron_dir": driver.aeron_dir}) as client,
    ):
        session_id = client.cluster_session_id
        results: set[int] = set()
        echo.pause()
        pause = threading.Timer(7.0, echo.resume)
        pause.start()
        while pause.is_alive():
            client.idle(client.poll_egress())
            if not is_idle:
                results.add(min(0, client.offer(b"x" * 100)))
            threading.Event().wait(0.01)  # a program that does something else in between
            assert client.state == ClientState.CONNECTED
        assert is_idle or NOT_CONNECTED in results
        client.send(b"goes on")
        poll_until(client, lambda: listener.messages[-1:] == [b"goes on"], "the echo")
        assert client.cluster_session_id == session_id
        assert listener.events == []


# Requests of administrators


def test_a_snapshot_is_accepted_where_everything_is_allowed(node: NodeFactory) -> None:
    echo = start_echo(node(properties={"aeron.cluster.authorisation.service.supplier": "ALLOW_ALL"}))
    before = echo.snapshot_count or 0

    async def ask() -> None:
        options = settings(echo, EgressListener())
        async with AsyncAeronCluster.connect(**options) as client:
            response = await client.request_snapshot()
            assert response.response_code == AdminResponseCode.OK
            busy = await client.request_snapshot()
            assert busy.response_code in (AdminResponseCode.ERROR, AdminResponseCode.OK)

    asyncio.run(ask())
    echo.await_counter(CounterType.SNAPSHOT_COUNTER, before + 1, LIMIT_S)


# Many messages


def test_100_000_messages_are_echoed_once_and_in_order(node: NodeFactory) -> None:
    echo = start_echo(node())

    async def exchange() -> None:
        async with AsyncAeronCluster.connect(**settings(echo, EgressListener())) as client:

            async def send_all() -> None:
                for number in range(MESSAGE_COUNT):
                    await client.send(number.to_bytes(8, "little"))

            sending = asyncio.create_task(send_all())
            for number in range(MESSAGE_COUNT):
                assert (await client.receive()).payload == number.to_bytes(8, "little")
            await sending

    asyncio.run(exchange())


def test_the_ledger_applies_each_transfer_once_over_a_lost_session(node: NodeFactory) -> None:
    ledger = node(properties={"aeron.cluster.session.timeout": "2s"})
    ledger.start()
    ledger.start_service([sys.executable, "-m", "examples.ledger_service"], environment=cwd_environment())
    ledger.await_leader()
    options = settings(ledger, Collecting())
    del options["listener"]

    async def run() -> None:
        async with LedgerClient(**options, client_id=7) as client:
            balances = await asyncio.gather(*(client.transfer(1, 1) for _ in range(2000)))
            assert balances == list(range(1, 2001))
            session = client._client._client
            assert session is not None
            await session.aclose()  # the session is lost, and with it what was under way
            more = await asyncio.gather(*(client.transfer(1, 1) for _ in range(2000)))
            assert more == list(range(2001, 4001))
            assert client.sessions == 2

    asyncio.run(run())


def test_the_command_line_sends_measures_and_tails(node: NodeFactory) -> None:
    echo = start_echo(node())
    command = [sys.executable, "-m", "container", "client", *client_options(echo)]
    sent = echo.start_process("client-send", [*command, "send", "hello", "world"])
    assert sent.wait(LIMIT_S) == 0, sent.tail()
    assert sent.output().splitlines()[-2:] == ["hello", "world"]
    bench = echo.start_process("client-bench", [*command, "bench", "--messages", "20000", "--window", "128"])
    assert bench.wait(LIMIT_S) == 0, bench.tail()
    assert "20000 round trips of 32 bytes, window 128: " in bench.output()
    tail = echo.start_process("client-tail", [*command, "tail", "--seconds", "1"])
    assert tail.wait(LIMIT_S) == 0, tail.tail()
    endless = echo.start_process("client-tail-2", [*command, "tail"])
    wait_until(lambda: "session " in endless.tail(), LIMIT_S, "the connect")
    endless.send_signal(signal.SIGINT)
    assert endless.wait(LIMIT_S) == 0, endless.tail()


def test_the_log_has_the_port_that_egress_was_bound_to(node: NodeFactory) -> None:
    echo = start_echo(node())
    listener = Collecting()
    with AeronCluster.connect(**settings(echo, listener)) as client:
        assert client.egress_subscription.channel.endswith(":0|rejoin=false")
        client.send(b"what comes before it is recorded")
        poll_until(client, lambda: listener.messages, "the echo")
        opened = [
            fields["response_channel"].decode()
            for name, fields in map(decoded, recorded_messages(echo.archive_dir, 0))
            if name == "SessionOpenEvent"
        ]
    assert len(opened) == 1
    port = opened[0].partition("endpoint=")[2].partition("|")[0].rpartition(":")[2]
    assert int(port) > 0


def decoded(message: bytes) -> tuple[str, dict[str, Any]]:
    return decode("cluster", message)
