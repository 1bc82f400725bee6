"""Histories of real clients: registers in a cluster of native members, whose leader is killed again and again."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from container.testing.processes.local_cluster import LocalMember
from container.testing.processes.native_cluster import NativeCluster
from container.testing.processes.process import wait_until
from tests.linearizable.checker import ROOT
from tests.linearizable.history import History
from tests.linearizable.registers import RegisterClients

ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
SERVICE = "tests.linearizable.registers:RegisterService"
LIMIT_S = 180.0
ANSWERS = 50
"""Answers to each client before a leader is killed, after that, and once it is back."""


def record(
    members: int,
    *,
    kills: int,
    seed: int = 1,
    service: str = SERVICE,
    say: Callable[[str], None] = lambda _: None,
) -> History:
    """Run a cluster with clients, and return their history.

    Args:
        members: how many; a cluster of one is killed and started again as well.
        kills: of a leader.
        seed: decides what clients ask.
        service: the registers.
        say: takes a line about each kill.

    Raises:
        TimeoutError: there is no leader, or clients get no answers.
    """
    with NativeCluster(service, member_count=members, environment=ENVIRONMENT) as cluster:
        cluster.start().await_leader(LIMIT_S)
        cluster.start_client_driver()
        with RegisterClients(cluster.client_settings(), seed=seed) as clients:
            try:
                clients.await_answers(ANSWERS, LIMIT_S)
                for _ in range(kills):
                    leader = cluster.await_leader(LIMIT_S)
                    leader.kill()
                    if members > 1:
                        cluster.await_leader(LIMIT_S, other_than=leader)
                        clients.await_answers(ANSWERS, LIMIT_S)
                    leader.restart()
                    wait_until(partial(_is_back, leader), LIMIT_S, f"{leader} to be back")
                    clients.await_answers(ANSWERS, LIMIT_S)
                    history = clients.history
                    say(f"member {leader.member_id} was killed: {len(history)} operations, {history.unknown} unknown")
            except Exception as error:
                error.add_note(cluster.report())
                raise
    return clients.history


def _is_back(member: LocalMember) -> bool:
    return member.is_running and member.node.election_is_closed
