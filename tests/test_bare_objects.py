"""No Python program crashes or hangs the interpreter with an object that nobody initialised."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import container
from container.errors import ClusterError
from container.service.cluster import Cluster
from container.testing.memory.memory_log import MemoryLog
from tests.limits import LIMIT_S
from tests.test_free_threading import MODULES

BASETYPE = 1 << 10
HEAPTYPE = 1 << 9
OPEN = {
    f"container.{name}"
    for name in [
        "agent.agent.Agent",
        "archive.server.archive_conductor.Conductor",
        "service.cluster.Cluster",
        "service.event_handler.EventHandler",
        "service.service_handler.ServiceHandler",
        "client.egress_handler.EgressHandler",
        "transport.message_buffer.BufferClaim",
        "transport.idle_strategy.IdleStrategy",
        "transport.idle_strategy.NoOpIdleStrategy",
        "transport.idle_strategy.BusySpinIdleStrategy",
        "transport.idle_strategy.YieldingIdleStrategy",
        "transport.idle_strategy.SleepingIdleStrategy",
        "transport.idle_strategy.BackoffIdleStrategy",
        "transport.streams.FragmentHandler",
        "transport.streams.BlockHandler",
        "transport.streams.Image",
        "transport.streams.Subscription",
        "transport.streams.Publication",
        "transport.counters.Counter",
        "transport.counters.Counters",
        "transport.clocks.Clock",
        "transport.clocks.SystemClock",
        "transport.transport_seam.ClientListener",
        "transport.streams.PendingAdd",
        "transport.transport_seam.Client",
        "transport.transport_seam.SnapshotWriter",
        "transport.transport_seam.SnapshotReader",
        "transport.transport_seam.SnapshotStore",
        "transport.transport_seam.MarkFile",
        "consensus.consensus_event_handler.ConsensusEventHandler",
        "consensus.pending_service_messages.MessageAppender",
        "consensus.pending_service_messages.PendingMessageSnapshot",
        "consensus.timer_service.TimerHandler",
        "consensus.timer_service.TimerService",
        "consensus.timer_service.TimerSnapshot",
        "storage.storage_seam.StorageMap",
        "storage.storage_seam.StorageFile",
        "storage.storage_seam.Storage",
    ]
}
"""The types that classes in Python may derive from: safe to use whatever a derived __init__ leaves out."""

# Makes objects of the given types without their constructors, and calls all that they have. Prints what it is about
# to do; a type that takes longer than its limit ends the process.
CALLS = """
import copy, copyreg, faulthandler, importlib, sys

ARGUMENTS = ((), (1,), (b"x",), ("x",), (None,), (1, 1), (b"x", 1), (None, None), ("aeron:ipc", 1),
             (lambda *a: 0,), (1, 1, 1), (None, None, None))
SKIPPED = {"__class__", "__dict__", "__doc__", "__dir__", "__getattribute__", "__setattr__", "__delattr__"}

def bare(T):
    yield "__new__", lambda: T.__new__(T)
    yield "object.__new__", lambda: object.__new__(T)
    yield "copyreg", lambda: copyreg.__newobj__(T)
    yield "()", lambda: T() if T.__name__ != "AeronClient" else None       # that one waits for a driver
    yield "derived()", lambda: type("Derived", (T,), {"__init__": lambda self: None})()
    yield "derived.__new__", lambda: type("Derived", (T,), {"__new__": lambda cls: T.__new__(cls)})()

for name in sys.argv[1:]:
    faulthandler.dump_traceback_later(10, exit=True)
    module, _, type_name = name.rpartition(".")
    T = getattr(importlib.import_module(module), type_name)
    for how, make in bare(T):
        try:
            made = make()
        except TypeError:
            continue
        for attribute in sorted(set(dir(made)) - SKIPPED):
            print(name, how, attribute, flush=True)
            try:
                value = getattr(made, attribute)
            except Exception:
                continue
            for arguments in (*ARGUMENTS, (made,)) if callable(value) else ():
                print(name, how, attribute, arguments, flush=True)
                try:
                    value(*arguments)
                except Exception:
                    pass
        print(name, how, "repr, copy", flush=True)
        try:
            repr(made), copy.copy(made)
        except Exception:
            pass
        print(name, how, "deallocation", flush=True)
        del made
"""


def extension_types() -> Iterator[tuple[str, type]]:
    for module in MODULES:
        for name, value in sorted(vars(importlib.import_module(module)).items()):
            if isinstance(value, type) and value.__module__ == module and not value.__flags__ & HEAPTYPE:
                yield f"{module}.{name}", value


TYPES = dict(extension_types())


def test_no_bare_object_crashes_or_hangs_the_interpreter(tmp_path: Path) -> None:
    left, failures = list(TYPES), []
    environment = os.environ | {"PYTHONPATH": str(Path(container.__file__).parents[1])}
    while left:
        command = [sys.executable, "-W", "ignore", "-c", CALLS, *left]
        ended = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False, timeout=LIMIT_S
        )
        if ended.returncode == 0:
            break
        name, *call = ended.stdout.splitlines()[-1].split(" ")
        failures.append(f"{name} {' '.join(call)}: exit status {ended.returncode}\n{ended.stderr[:300]}")
        left = left[left.index(name) + 1 :]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("name", sorted(set(TYPES) - OPEN))
def test_only_its_own_call_makes_an_object(name: str) -> None:
    sealed: Any = TYPES[name]
    assert not sealed.__flags__ & BASETYPE, "a class in Python can derive from it, and not initialise it"
    assert "__new__" not in vars(sealed), "__new__ makes objects that are not initialised"
    assert sealed.__init__ is object.__init__, "__init__ can be called again on a live object"


@pytest.mark.parametrize("name", TYPES)
def test_nothing_unpickles_an_object(name: str) -> None:
    assert not [attribute for attribute in dir(TYPES[name]) if attribute.endswith("_cython__")]


def test_a_cluster_without_a_container_refuses_to_send() -> None:
    cluster = Cluster()
    for call in (cluster.offer, cluster.send):
        with pytest.raises(ClusterError, match="cannot send"):
            call(b"x")


def test_an_object_is_not_copied_pickled_or_initialised_again() -> None:
    log = MemoryLog(7)
    for refused in (
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        lambda log: pickle.dumps(log, 0),
        lambda log: log.__init__(8),
    ):
        with pytest.raises(TypeError, match="cannot pickle|takes exactly one argument"):
            refused(log)
    assert log.session_id == 7
