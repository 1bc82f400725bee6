"""The main job, end to end: an auction service in a real Aeron cluster, a snapshot, a crash, and recovery.

Media driver, archive, consensus module and service run in one process, and three clients here. With ``--java`` the
first three are Java's, in a process of their own. Everything lies in one temporary directory, which is removed at the
end.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from container.testing.cluster import CounterType, Node
from container.testing.native_node import NativeNode
from container.testing.processes.process import Process
from examples.auction_client import AuctionClient
from examples.auction_service import AuctionState

SERVICE = "examples.auction_service:AuctionService"
BIDDERS = ("ada", "grace", "edsger")
_BEGIN = time.monotonic()


def say(text: str) -> None:
    """Prints one line with the seconds since the start."""
    print(f"[{time.monotonic() - _BEGIN:5.1f} s] {text}", flush=True)


def main() -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run demo", description="A Python service in a real Aeron cluster.")
    parser.add_argument("--java", action="store_true", help="Java's driver, archive and consensus module")
    is_java = parser.parse_args().java
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = {"PYTHONPATH": path}
    try:
        with Node() if is_java else NativeNode(SERVICE, environment=environment) as node:
            say(f"all files lie in {node.base_dir}, which is removed at the end")
            run(node, environment)
    except KeyboardInterrupt:
        print("interrupted: every process was ended and every directory removed", flush=True)
        return 130
    print("demo ok", flush=True)
    return 0


def run(node: Node, environment: dict[str, str]) -> None:
    """Auctions, a snapshot, a crash of everything, and the same auctions again."""
    processes = start(node, environment)
    with ExitStack() as stack:
        clients = connect(node, stack)
        before = trade(node, clients)
    crash(node, processes)
    processes = start(node, environment)
    with ExitStack() as stack:
        clients = connect(node, stack)
        go_on(clients, before)
    say("closing with SIGTERM")
    for process in reversed(processes):
        process.stop()


def start(node: Node, environment: dict[str, str]) -> list[Process]:
    """Starts the node, Java's with the Python container beside it, and waits until it leads; returns the processes."""
    node.start()
    processes = [node.process]
    if isinstance(node, NativeNode):
        say(f"started the node (driver, archive, consensus module, service), pid {node.pid}")
    else:
        say(f"started the Java node (driver, archive, consensus module), pid {node.pid}")
        command = [sys.executable, "-m", "container", "run", SERVICE]
        processes.append(node.start_service(command, environment=environment))
        say(f"started the Python service container, pid {processes[-1].pid}")
    node.await_leader()
    say("the service has recovered its state and joined the log; this member leads")
    return processes


def connect(node: Node, stack: ExitStack) -> list[AuctionClient]:
    """Opens a session for each bidder, the last one over shared memory, the others over UDP."""
    clients = []
    for name in BIDDERS:
        properties = node.client_properties(ipc=name == BIDDERS[-1])
        client = AuctionClient(
            name,
            aeron_dir=properties["aeron.dir"],
            ingress_channel=properties["aeron.cluster.ingress.channel"],
            ingress_endpoints=properties.get("aeron.cluster.ingress.endpoints"),
            egress_channel=properties["aeron.cluster.egress.channel"],
        )
        stack.enter_context(client)
        say(f"{name} has session {client.cluster_session_id}")
        clients.append(client)
    return clients


def trade(node: Node, clients: list[AuctionClient]) -> AuctionState:
    """Two auctions before the snapshot, bids after it; returns the state that must come back."""
    ada, grace, edsger = clients
    clock = ada.open_auction("a clock", reserve_price=50, duration_ms=1_500)
    vase = ada.open_auction("a vase", reserve_price=10, duration_ms=60_000)
    say(f"ada opened auction {clock} for 1.5 s and auction {vase} for 60 s")
    say(f"grace bids 40 for the clock: {grace.bid(clock, 40) or 'accepted'}")
    say(f"edsger bids 60 for the clock: {edsger.bid(clock, 60) or 'accepted'}")
    say(f"grace bids 55 for the clock: {grace.bid(clock, 55) or 'accepted'}")
    for client in clients:
        event = client.await_closed(clock)
    say(f"a timer closed the auction of {event.item}: {event.winner} pays {event.price}; all three clients heard it")

    take_snapshot(node, ada)

    for price, client in enumerate(clients * 2, start=20):
        client.bid(vase, price)
    late = grace.open_auction("a lamp", reserve_price=1, duration_ms=1)
    grace.await_closed(late)
    edsger.keep_alive()
    state = ada.state()
    describe(state, "the state, with bids and an auction since the snapshot")
    return state


def take_snapshot(node: Node, client: AuctionClient) -> None:
    """Asks for a snapshot, as a client that may, and waits until it is taken; Java's node is asked by its tool."""
    if isinstance(node, NativeNode):
        snapshots = node.snapshot_count or 0
        client.request_snapshot()
        node.await_counter(CounterType.SNAPSHOT_COUNTER, snapshots + 1, 30)
    else:
        node.take_snapshot()
    say("took a snapshot")


def crash(node: Node, processes: list[Process]) -> None:
    """Kills everything, and with Java waits until the mark files may be taken over."""
    for process in processes:
        process.kill()
        say(f"killed pid {process.pid} with SIGKILL")
    node.await_mark_files_stale(say=say)
    if isinstance(node, NativeNode):
        say("its locks went with it: the next one need not wait")


def go_on(clients: list[AuctionClient], before: AuctionState) -> None:
    """Shows that the state came back, and uses it."""
    ada, grace, edsger = clients
    after = ada.state()
    describe(after, "the state after the restart: from the snapshot, and the log since")
    if (after.auctions, after.checksum) != (before.auctions, before.checksum):
        raise RuntimeError(f"the state differs\nbefore: {before}\nafter:  {after}")
    say("it is the same")
    vase = next(auction for auction in after.auctions if auction.is_open)
    say(f"edsger bids {vase.highest_price} for {vase.item}: {edsger.bid(vase.auction_id, vase.highest_price)}")
    say(f"edsger bids 100 for {vase.item}: {edsger.bid(vase.auction_id, 100) or 'accepted'}")
    book = grace.open_auction("a book", reserve_price=500, duration_ms=200)
    event = edsger.await_closed(book)
    say(f"a new auction of {event.item} ends {'unsold' if not event.winner else 'sold'}: timers go on as well")


def describe(state: AuctionState, title: str) -> None:
    """Prints the auctions."""
    say(f"{title} (checksum {state.checksum:08x}):")
    for auction in state.auctions:
        status = "open" if auction.is_open else "closed"
        print(
            f"          auction {auction.auction_id}, {auction.item}: {status}, {auction.bid_count} bids, "
            f"highest {auction.highest_price} by {auction.highest_bidder or 'nobody'}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
