"""Attempts to connect that fail are reported: the reason is not the client's secret while it tries for minutes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from container.client import AsyncReconnectingClient, ReconnectingClient, ReconnectPolicy, SessionPool
from container.client.reconnecting_base import FailureLog
from container.client.reconnection import Reconnection
from container.errors import ClosedError, ClusterUnavailableError, SendTimedOutError
from tests.client_world import ENDPOINTS, MEMBER_0, MS, S, World
from tests.pauses import until
from tests.test_session_pool import Gateway
from tests.threaded_members import ThreadedMembers

HOST = "no-such-host.invalid"
PATIENT = ReconnectPolicy(first_delay=0.01, max_delay=0.02)


def unresolved(members: ThreadedMembers, **more: Any) -> Any:
    """Settings of a client whose only member has a name that does not resolve."""
    given = {"ingress_channel": "aeron:udp", "ingress_endpoints": f"0={HOST}:9010", "policy": PATIENT}
    return members.settings(**given | more)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "container.client" and record.levelno == logging.WARNING
    ]


def test_a_blocking_client_says_which_host_does_not_resolve(
    members: ThreadedMembers, caplog: pytest.LogCaptureFixture
) -> None:
    client = ReconnectingClient.connect(**unresolved(members))
    with pytest.raises(SendTimedOutError, match=rf"(?s)0={HOST}:9010.*Unable to resolve host=\({HOST}\)"):
        client.send(b"x", timeout=0.5)
    assert client._machine.failures > 1
    client.close()
    (text,) = warnings_of(caplog)
    assert text.startswith(
        f"no session with the cluster at 0={HOST}:9010 after 1 attempts to connect, the next in 0.0 s"
    )
    assert f"Unable to resolve host=({HOST})" in text


async def test_an_asyncio_client_says_which_host_does_not_resolve(
    members: ThreadedMembers, caplog: pytest.LogCaptureFixture
) -> None:
    async def enter() -> None:
        async with AsyncReconnectingClient.connect(**unresolved(members)):
            pass

    entering = asyncio.create_task(enter())
    await until(lambda: warnings_of(caplog), "a warning")
    entering.cancel()
    await asyncio.wait([entering])
    assert f"Unable to resolve host=({HOST})" in warnings_of(caplog)[0]


def test_one_attempt_is_an_error_and_no_warning(members: ThreadedMembers, caplog: pytest.LogCaptureFixture) -> None:
    policy = ReconnectPolicy(max_attempts=1)
    with (
        pytest.raises(ClosedError, match=f"no session after 1 attempt: .*{HOST}"),
        ReconnectingClient.connect(**unresolved(members, policy=policy)),
    ):
        pass
    assert warnings_of(caplog) == []


def test_reports_have_a_bounded_rate(world: World, caplog: pytest.LogCaptureFixture) -> None:
    machine = Reconnection(ReconnectPolicy(max_delay=1.0, max_seconds=None), random=lambda: 0.0, now_ns=0)
    report = FailureLog(world.context())
    for second in range(100):
        machine.poll(second * S)
        machine.on_failed(ClusterUnavailableError("nobody there"), second * S)
        report.failed(machine, second * S)
    assert len(warnings_of(caplog)) == 10
    assert warnings_of(caplog)[-1] == (
        f"no session with the cluster at {ENDPOINTS} after 91 attempts to connect, the next in 1.0 s: nobody there"
    )


def test_a_pool_that_lost_its_streams_reports_attempts(world: World, caplog: pytest.LogCaptureFixture) -> None:
    member = Gateway(world.driver, 0, MEMBER_0)
    pool = SessionPool.connect(world.context(), policy=ReconnectPolicy(max_seconds=30.0))
    pool.open_all(2)
    member.stop()
    for _ in range(4_000):
        world.advance(20 * MS)
        pool.poll()
        if pool.is_closed:
            break
    assert pool.is_closed
    assert 1 <= len(warnings_of(caplog)) <= 4
    assert "a member that listens on ingress" in warnings_of(caplog)[0]
