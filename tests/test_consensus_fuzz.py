"""A small share of the fuzzer of a consensus module, and proof that it notices what goes wrong."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest

from container.consensus.consensus_module_context import BackupRequests
from container.consensus.service_acks import ServiceAckQueues
from tests.fuzz.__main__ import INGRESS, LENGTHS, SERVICE_IPC, run_episode
from tests.fuzz.ingress_cases import IngressEpisode
from tests.fuzz.mutations import MUTATIONS
from tests.fuzz.service_cases import ServiceIpcEpisode
from tests.member_world import Echo

EPISODES = 4
KINDS = {INGRESS: IngressEpisode, SERVICE_IPC: ServiceIpcEpisode}


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What is reported is counted."""
    caplog.set_level(logging.CRITICAL + 1, "container")


def fuzz(part: str, seed: int, episodes: int) -> tuple[str, Counter[str]]:
    """What went wrong first, and what was counted."""
    counts: Counter[str] = Counter()
    for number in range(episodes):
        failure = run_episode(seed, number, counts, part=part)
        if failure:
            return failure, counts
    return "", counts


@pytest.mark.parametrize("part", KINDS)
def test_bad_messages_are_reported_or_mean_what_they_say_and_other_clients_go_on(part: str) -> None:
    failure, counts = fuzz(part, 1, EPISODES)
    assert failure == ""
    assert sum(counts[name] for name in (*MUTATIONS, "endless")) == EPISODES * LENGTHS[part]
    assert all(counts[name] for name in MUTATIONS)
    assert all(counts[name] for name in KINDS[part].requests)
    assert all(counts[f"refused: {kind}"] for kind in ("CodecError", "ClusterError"))
    assert counts["logs replayed"] == EPISODES
    assert counts["snapshots"]


@pytest.mark.parametrize("part", KINDS)
def test_a_seed_gives_the_same_cases_again(part: str) -> None:
    assert fuzz(part, 2, 1) == fuzz(part, 2, 1)


def raise_value_error(*arguments: Any) -> bool:
    raise ValueError("sabotage")


def has_reached(queues: ServiceAckQueues, log_position: int, ack_id: int) -> bool:
    """Upstream's: what nobody waits for stays."""
    heads = [queue[0] for queue in queues._queues if queue]
    return [(ack.ack_id, ack.log_position) for ack in heads] == [(ack_id, log_position)]


def answer_twice(service: Echo, session: Any, timestamp: int, buffer: Any, header: Any) -> None:
    message = bytes(buffer)
    service.events.append(("message", None if session is None else session.id, message))
    if session is not None:
        session.send(message)
        if len(message) == 1:
            session.send(message)


SABOTAGES: dict[str, tuple[str, Any, str, Any, str]] = {
    "an answer too many": (INGRESS, Echo, "on_session_message", answer_twice, "hears something else"),
    "a call too few": (INGRESS, Echo, "on_session_close", lambda *_: None, "sessions of a client that is gone"),
    "an error of another kind": (INGRESS, BackupRequests, "is_authorised", raise_value_error, "reported: ValueError"),
    "acks that stay": (SERVICE_IPC, ServiceAckQueues, "has_reached", has_reached, "did not happen"),
    "a timer that is lost": (SERVICE_IPC, Echo, "on_timer_event", lambda *_: None, "timers have not fired"),
}


@pytest.mark.parametrize("name", SABOTAGES)
def test_the_fuzzer_notices_what_is_broken(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    part, owner, method, broken, text = SABOTAGES[name]
    monkeypatch.setattr(owner, method, broken)
    failure, _ = fuzz(part, 3, 5)
    assert text in failure
    assert "\nin: " in failure
