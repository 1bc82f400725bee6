"""A member's directory goes from Java's node to ours and back, each killed in the middle of its work: sessions are
open, timers are pending, and messages of services to the cluster are under way."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Any

import pytest

from container.testing.processes.local_cluster import Node
from container.testing.processes.process import Process
from tests.system.conftest import NATIVE
from tests.system.harness import ROOT, CommandClient, NodeFactory, module_errors, release

pytestmark = pytest.mark.slow

SERVICE = [sys.executable, str(ROOT / "tests" / "system" / "restless_service.py")]
SILENT = {"AERON_CLUSTER_SERVICE_RESPONDER": "false"}
CHAINS = 4
LINKS = 50


def start(member: Node) -> list[Process]:
    """Start a node and its two services, of which the first answers clients."""
    member.start()
    services = [
        member.start_service(SERVICE, service_id=number, environment=SILENT if number else None) for number in range(2)
    ]
    member.await_leader()
    return services


def state_of(client: CommandClient) -> dict[str, Any]:
    state: dict[str, Any] = client.do("state")
    return state


def await_links(client: CommandClient, first_chain: int) -> None:
    """Wait until the chains that begin there are well under way, those of both services."""
    names = [
        f"{kind} {service + chain}"
        for kind in ("message", "timer")
        for service in (0, 1_000)
        for chain in range(first_chain, first_chain + CHAINS)
    ]

    def are_under_way() -> bool:
        came = state_of(client)["came"]
        return all(came.get(name, 0) >= LINKS for name in names)

    client.poll_until(are_under_way, f"{LINKS} links of each of {names}")


def states(service: Process) -> list[dict[str, Any]]:
    """What a service said of its state since its latest start, the questions of a replayed log among it."""
    return [json.loads(line) for line in service.output().rpartition("\n")[0].splitlines()]


def compare_digests(services: list[Process], known: dict[int, str]) -> None:
    """At the same question of a client each service, in each of its lives, has seen the same."""
    for service in services:
        for state in states(service):
            assert known.setdefault(state["questions"], state["digest"]) == state["digest"], service.name
            assert state["faults"] == []


def finish(client: CommandClient, services: list[Process]) -> dict[str, Any]:
    """End all chains, and return the state once all that both services have asked for came."""
    client.send("finish")

    def all_came() -> dict[str, Any] | None:
        state = state_of(client)
        others = [other for other in states(services[1]) if other["questions"] == state["questions"]]
        return state if others and state["asked"] | others[0]["asked"] == state["came"] else None

    return client.poll_until(all_came, "all that was asked for to come")


@pytest.mark.parametrize("kinds", ["native java native java native", "java native java native java"])
def test_nothing_of_what_is_under_way_is_lost_or_comes_twice(node: NodeFactory, kinds: str) -> None:
    base: dict[str, Any] = {}
    digests: dict[int, str] = {}

    def next_owner(kind: str) -> tuple[Node, list[Process]]:
        member = node(service_count=2, **(NATIVE if kind == "native" else {}), **base)
        base.update(base_dir=member.base_dir, members=member.members)
        return member, start(member)

    for number, kind in enumerate(kinds.split()):
        member, services = next_owner(kind)
        with ExitStack() as open_clients:
            client, _another = [open_clients.enter_context(CommandClient(member)) for _ in range(2)]
            client.send("begin", first=number * CHAINS, count=CHAINS)
            await_links(client, number * CHAINS)
            if number in (2, 3):  # before these, all is in the log
                assert member.cluster_tool("snapshot").return_code == 0
                await_links(client, number * CHAINS)
            assert module_errors(member) == []
            release(member, *services)  # kill -9 of all
        compare_digests(services, digests)
    came = []
    for kind in ("java", "native"):
        member, services = next_owner(kind)
        with CommandClient(member) as client:
            came.append(finish(client, services)["came"])
        release(member, *services)
        compare_digests(services, digests)
    assert came[0] == came[1]
    assert len(came[0]) == 2 * 2 * CHAINS * len(kinds.split())
