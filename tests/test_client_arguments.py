"""What a client's functions say of an argument that is wrong: its name, its value and what was expected."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from container.client import (
    AeronCluster,
    AsyncAeronCluster,
    AsyncConnect,
    AsyncReconnectingClient,
    ClientContext,
    OutboxPolicy,
    ReconnectingClient,
    ReconnectPolicy,
)
from container.errors import ConfigurationError
from container.transport.message_buffer import BufferClaim
from tests.client_world import MEMBER_0, World
from tests.ingress_member import IngressMember
from tests.limits import LIMIT_S
from tests.threaded_members import PatientMember, ThreadedMembers

TIMES: list[Any] = [math.inf, -math.inf, math.nan, -1, -0.001, 1e300, 10**400, True, "5", b"5", [], 1j]
"""What no function takes for a time in seconds."""
NO_FLAGS: list[Any] = ["yes", 1, 0, []]
NO_INTEGERS: list[Any] = ["5", 1.5, b"", [], object]
CLIENTS: tuple[Any, ...] = (AeronCluster, AsyncAeronCluster, AsyncReconnectingClient, ReconnectingClient)
NO_BUFFERS: list[Any] = ["text", 5, None, 1.5, [b"x"]]
SETTINGS: dict[str, Any] = {"ingress_channel": "aeron:ipc", "egress_channel": "aeron:ipc"}


@pytest.fixture
def client() -> Iterator[AeronCluster]:
    world = World()
    IngressMember(world.driver, 0, MEMBER_0)
    with world.connect() as client:
        client.enable_requests(lambda payload: payload)
        yield client


def refused(call: Callable[[], object], name: str, value: object, kind: type[Exception], expected: str) -> None:
    """The call names the argument, its value and what was expected."""
    with pytest.raises(kind) as raised:
        call()
    text = str(raised.value)
    assert re.match(rf"{re.escape(name)}(\[\d\])? must (be|have) .*{expected}", text), f"{name}={value!r}: {text}"
    assert text.endswith(f", not {_shown(value)}"), f"{name}={value!r}: {text}"


def _shown(value: object) -> str:
    from container.common.values import shown

    return shown(value)


@pytest.mark.parametrize("value", TIMES, ids=repr)
def test_what_is_no_time_is_refused_everywhere(client: AeronCluster, value: Any) -> None:
    for call in (
        lambda: client.send(b"x", timeout=value),
        lambda: client.request(b"x", key=1, timeout=value),
        lambda: client.begin_request(b"x", key=1, timeout=value),
        lambda: client.try_request(b"x", key=1, timeout=value),
    ):
        refused(call, "timeout", value, ConfigurationError, "a number of seconds from 0 to 1000000000")
    for name in ("message_timeout", "new_leader_timeout", "keep_alive_interval", "driver_timeout"):
        given = SETTINGS | {name: value}
        for make in (partial(ClientContext, **given), partial(ClientContext.from_environment, **given)):
            refused(make, name, value, ConfigurationError, "a number of seconds")
    for name in ("first_delay", "max_delay", "max_seconds", "jitter"):
        refused(partial(ReconnectPolicy, **{name: value}), name, value, ConfigurationError, "")
    assert client.request_counts.sent == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [*NO_FLAGS, None], ids=repr)
def test_what_is_no_flag_is_refused(client: AeronCluster, value: Any) -> None:
    refused(lambda: client.enable_requests(len, resend=value), "resend", value, ConfigurationError, "True or False")
    refused(
        lambda: AeronCluster.connect(**SETTINGS, resend=value), "resend", value, ConfigurationError, "True or False"
    )
    for make in (AsyncAeronCluster.connect, AsyncReconnectingClient.connect, ReconnectingClient.connect):
        call: Any = partial(make, **SETTINGS, resend=value)
        refused(call, "resend", value, ConfigurationError, "True or False")
    if value is not None:
        for call in (client.request, client.begin_request, client.try_request):
            refused(
                lambda call=call: call(b"x", key=1, idempotent=value),  # type: ignore[misc]
                "idempotent",
                value,
                ConfigurationError,
                "True or False",
            )


@pytest.mark.parametrize("value", NO_INTEGERS, ids=repr)
def test_what_is_no_int_is_refused(client: AeronCluster, value: Any) -> None:
    calls: dict[str, Callable[[], object]] = {
        "length": lambda: client.try_claim(value, BufferClaim()),
        "result": lambda: client.track_ingress_publication_result(value),
        "correlation_id": lambda: client.send_admin_request_to_take_a_snapshot(value),
        "work_count": lambda: client.idle(value),
        "fragment_limit": lambda: client.poll_egress(value),
        "cluster_session_id": lambda: client.on_new_leader(value, 1, 1, "", 1),
        "leadership_term_id": lambda: client.on_new_leader(1, value, 1, "", 1),
        "leader_member_id": lambda: client.on_new_leader(1, 1, value, "", 1),
        "session_id": lambda: client.on_new_leader(1, 1, 1, "", value),
    }
    for name, call in calls.items():
        refused(call, name, value, TypeError, "an int")


def test_a_number_with_too_many_bits_is_refused(client: AeronCluster) -> None:
    refused(lambda: client.poll_egress(2**31), "fragment_limit", 2**31, ValueError, "a whole number of 32 bits")
    refused(lambda: client.try_claim(2**63, BufferClaim()), "length", 2**63, ValueError, "a whole number of 64 bits")
    assert client.poll_egress(-1) == 0  # a limit like any other: nothing is read


@pytest.mark.parametrize("value", NO_BUFFERS, ids=repr)
def test_what_is_no_buffer_is_refused(client: AeronCluster, value: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: client.offer(b"x", value),
        lambda: client.send(value),
        lambda: client.request(value, key=1),
        lambda: client.begin_request(b"x", value, key=1),
        lambda: client.try_request(value, key=1),
        lambda: client.request(value, key=1, idempotent=True),
    ]
    for call in calls:
        refused(call, "buffers", value, TypeError, "a bytes-like object")


def test_a_key_that_cannot_be_hashed_is_refused(client: AeronCluster) -> None:
    key: Any = [1]
    for call in (client.request, client.begin_request, client.try_request):
        refused(lambda call=call: call(b"x", key=key), "key", key, TypeError, "hashable")  # type: ignore[misc]


@pytest.mark.parametrize("value", ["context", {}, 5, ClientContext], ids=repr)
def test_what_is_no_context_is_refused(value: Any) -> None:
    for make in (AeronCluster.async_connect, AsyncConnect, *(client.connect for client in CLIENTS)):
        refused(partial(make, value), "context", value, ConfigurationError, "a ClientContext")


@pytest.mark.parametrize("kind", [AsyncReconnectingClient, ReconnectingClient])
def test_settings_of_a_reconnecting_client_are_checked(kind: Any) -> None:
    for name, values, expected in (
        ("policy", [5, "fast", {}], "a ReconnectPolicy or None"),
        ("callbacks", [5, print], "a ConnectionListener or None"),
        ("resolve", ["0=a:1", 5], "callable or None"),
        ("outbox_policy", ["block", None, 5], "an OutboxPolicy"),
        ("outbox_messages", [0, 1.5, "9", True, math.inf, None], "a whole number"),
        ("outbox_bytes", [0, -1, b"", math.nan], "a whole number"),
    ):
        for value in values:
            refused(
                lambda name=name, value=value: kind.connect(**SETTINGS, **{name: value}),  # type: ignore[misc]
                name,
                value,
                ConfigurationError,
                expected,
            )
    assert OutboxPolicy.BLOCK.value == "block"


def test_what_policies_take() -> None:
    assert ReconnectPolicy(jitter=0, max_attempts=1, max_seconds=None).max_seconds is None
    for value in [0, 1.5, True, "3"]:
        with pytest.raises(
            ConfigurationError,
            match=re.escape(f"max_attempts must be a whole number from 1 to 2147483647, not {value!r}"),
        ):
            ReconnectPolicy(max_attempts=value)  # type: ignore[arg-type]


def test_correlate_must_be_a_function() -> None:
    value: Any = "key"
    refused(lambda: AeronCluster.connect(**SETTINGS, correlate=value), "correlate", value, ConfigurationError, "a func")


# asyncio


def test_an_asyncio_client_names_what_is_wrong() -> None:
    with ThreadedMembers() as members:
        members.member(0, "aeron:ipc", PatientMember.echo)
        given: dict[str, Any] = {
            "ingress_channel": "aeron:ipc",
            "egress_channel": "aeron:ipc?alias=e",
            "aeron_dir": members.aeron_dir,
            "message_timeout": LIMIT_S,
            "correlate": lambda payload: payload,
        }

        async def scenario() -> None:
            makers: list[Any] = [AsyncAeronCluster.connect, AsyncReconnectingClient.connect]
            for make in makers:
                async with make(**given) as client:
                    for value in TIMES:
                        await fails(client.send(b"x", timeout=value), "timeout", value, ConfigurationError, "a number")
                        await fails(
                            client.request(b"x", key=1, timeout=value), "timeout", value, ConfigurationError, "a num"
                        )
                    for value in NO_FLAGS:
                        asked = client.request(b"x", key=1, idempotent=value)
                        await fails(asked, "idempotent", value, ConfigurationError, "True or False")
                    await fails(client.request(b"x", key=[1]), "key", [1], TypeError, "hashable")
                    for value in NO_BUFFERS:
                        await fails(client.send(value), "buffers", value, TypeError, "a bytes-like object")
                        await fails(client.request(value, key=1), "buffers", value, TypeError, "a bytes-like object")
                    if make is AsyncAeronCluster.connect:
                        for value in TIMES:
                            await fails(
                                client.request_snapshot(value), "timeout", value, ConfigurationError, "a number"
                            )
                    assert client.request_counts.in_flight == 0
                    assert await client.request(b"x", key=b"x") == b"x"

        asyncio.run(scenario())


async def fails(call: Any, name: str, value: object, kind: type[Exception], expected: str) -> None:
    try:
        await call
    except Exception as error:
        caught = error
        refused(lambda: _raise(caught), name, value, kind, expected)
    else:
        pytest.fail(f"{name}={value!r} was taken")


def _raise(error: Exception) -> None:
    raise error


# Nothing is left out

SEEN = {
    "argument": {"length", "result", "correlation_id", "work_count", "fragment_limit", "cluster_session_id"}
    | {"leadership_term_id", "leader_member_id", "session_id", "buffers", "key", "timeout", "idempotent", "resend"}
    | {"correlate", "context", "policy", "callbacks", "resolve", "outbox_policy", "outbox_messages", "outbox_bytes"},
    "typed by Cython, whose errors name it": {"buffer_claim", "ingress_endpoints"},
    "checked by check_count, as its tests show": {"max_waiting", "max_waiting_bytes"},
    "of ClientContext, whose tests are in test_client_control": {"settings"},
}


def test_every_argument_of_a_public_function_is_among_these() -> None:
    functions: list[Any] = [AsyncConnect]
    for owner in (*CLIENTS, AsyncConnect):
        functions += [
            getattr(owner, name)
            for name in vars(owner)
            if not name.startswith("_") and callable(getattr(owner, name)) and name not in HANDLERS
        ]
    names = set[str]()
    for function in functions:
        names |= set(inspect.signature(function).parameters) - {"self"}
    assert names <= set().union(*SEEN.values()), names - set().union(*SEEN.values())


HANDLERS = {"on_fragment"}
