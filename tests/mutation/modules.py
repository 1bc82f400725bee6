"""Which modules have mutants, and which tests must notice them: those of the module in memory, the fast ones first.

The fuzzers and everything that starts a process or a JVM are left out: a fault must fail a test that says what is
wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

AGENT = (
    *("agent_start", "agent_log", "agent_gap", "agent_sends", "agent_snapshot", "agent_end", "agent_thread"),
    *("agent_details", "agent_client", "callback_errors", "slow_clients", "forks"),
)
SNAPSHOTS = ("snapshots", "cython_service")
CLIENT = ("client", "client_control", "async_client", "every_client")


@dataclass(frozen=True)
class Module:
    """A source file and the names of its test files."""

    path: str
    tests: tuple[str, ...]


def _module(path: str, *tests: str) -> Module:
    return Module(f"src/container/{path}", tuple(f"tests/test_{name}.py" for name in tests))


MODULES = {
    "agent": _module("service/clustered_service_agent.pyx", *AGENT, "session_messages"),
    "log_adapter": _module("service/bounded_log_adapter.pyx", *AGENT),
    "service_adapter": _module("service/service_adapter.pyx", *AGENT),
    "proxy": _module("service/consensus_module_proxy.pyx", *AGENT),
    "snapshot_loader": _module("service/snapshot_loader.pyx", *AGENT, *SNAPSHOTS, "snapshot_damage", "archive"),
    "snapshot_taker": _module("service/snapshot_taker.pyx", *AGENT, *SNAPSHOTS),
    "snapshots": _module("snapshots.py", "snapshots"),
    "session": _module("service/container_client_session.pyx", *AGENT, "client_sessions", "cython_service"),
    "session_messages": _module("service/session_messages.pyx", "session_messages", *AGENT),
    "batch_delivery": _module("service/batch_delivery.pyx", "session_messages", *AGENT),
    "client": _module("client/aeron_cluster.pyx", *CLIENT, "client_requests", "cython_client", "forks"),
    "egress_poller": _module("client/egress_poller.pyx", *CLIENT),
    "egress_handler": _module("client/egress_handler.pyx", *CLIENT, "session_pool"),
    "archive": _module("archive/client/archive_snapshot_store.pyx", "archive", "agent_details"),
    "archive_connection": _module("archive/client/archive_connection.pyx", "archive", "async_archive", "aeron_archive"),
    "long_map": _module("consensus/long_map.pyx", "long_map"),
    "timer_service": _module("consensus/timer_service.pyx", "timer_service"),
    "pending_messages": _module("consensus/pending_service_messages.pyx", "pending_service_messages"),
    "fragment_assembler": _module("transport/fragment_assembler.pyx", "fragment_assembler", "client_control"),
    "mark_file": _module("files/mark_file.pyx", "cluster_mark_file", "archive_mark_file", "file_safety", "forks"),
    "cluster_mark_file": _module("files/cluster_mark_file.pyx", "cluster_mark_file", "file_safety", "forks"),
    "archive_mark_file": _module("archive/server/archive_mark_file.pyx", "archive_mark_file"),
    "error_log": _module("files/error_log.pyx", "error_log", "forks"),
}
