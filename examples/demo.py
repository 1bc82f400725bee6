"""The main job, end to end: an auction service in a real Aeron cluster of three, and its leader is killed.

Each member is one process with media driver, archive, consensus module and service; with ``--java`` the first three are
Java's, in a process of their own. The clients are here. Everything lies in one temporary directory, which is removed at
the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from container.testing.cluster import CounterType, LocalCluster, LocalMember, NativeCluster, Service
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
    parser.add_argument("--java", action="store_true", help="Java's drivers, archives and consensus modules")
    is_java = parser.parse_args().java
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = {"PYTHONPATH": path}
    command = [sys.executable, "-m", "container", "run", SERVICE]
    try:
        with (
            LocalCluster([Service(command, environment)])
            if is_java
            else NativeCluster(SERVICE, environment=environment)
        ) as cluster:
            say(f"all files lie in {cluster.base_dir}, which is removed at the end")
            run(cluster)
    except KeyboardInterrupt:
        print("interrupted: every process was ended and every directory removed", flush=True)
        return 130
    print("demo ok", flush=True)
    return 0


def run(cluster: LocalCluster) -> None:
    """Auctions, a snapshot, the end of the leader, the same auctions again, and its return."""
    leader = start(cluster)
    with ExitStack() as stack:
        clients = connect(cluster, stack)
        before = trade(leader, clients)
        leader, killed = kill(cluster, leader)
        for client in clients:
            client.await_leader(leader.member_id)
        go_on(clients, before)
    rejoin(cluster, leader, killed)
    say("closing with SIGTERM")
    for member in cluster.members:
        member.stop()


def start(cluster: LocalCluster) -> LocalMember:
    """Starts the members, and waits until all of them follow one leader; returns it."""
    cluster.start()
    for member in cluster.members:
        say(f"started member {member.member_id}, pid {member.node.pid}")
        for service in member.services:
            say(f"started its service container, pid {service.pid}")
    leader = cluster.await_ready()
    say(f"the members have elected a leader: member {leader.member_id} leads, the others follow")
    return leader


def connect(cluster: LocalCluster, stack: ExitStack) -> list[AuctionClient]:
    """Opens a session for each bidder, over a media driver of the clients' own."""
    driver = cluster.start_client_driver()
    say(f"started a media driver for the clients, pid {driver.pid}")
    clients = []
    for name in BIDDERS:
        client = AuctionClient(name, **cluster.client_settings())
        stack.enter_context(client)
        say(f"{name} has session {client.cluster_session_id}")
        clients.append(client)
    return clients


def trade(leader: LocalMember, clients: list[AuctionClient]) -> AuctionState:
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

    take_snapshot(leader, ada)

    for price, client in enumerate(clients * 2, start=20):
        client.bid(vase, price)
    late = grace.open_auction("a lamp", reserve_price=1, duration_ms=1)
    grace.await_closed(late)
    edsger.keep_alive()
    state = ada.state()
    describe(state, "the state, with bids and an auction since the snapshot")
    return state


def take_snapshot(leader: LocalMember, client: AuctionClient) -> None:
    """Asks for a snapshot, as a client that may, and waits until it is taken; Java's leader is asked by its tool."""
    if leader.node.consensus_module_kind == "native":
        snapshots = leader.node.snapshot_count or 0
        client.request_snapshot()
        leader.node.await_counter(CounterType.SNAPSHOT_COUNTER, snapshots + 1, 30)
    else:
        leader.node.take_snapshot()
    say("took a snapshot")


def kill(cluster: LocalCluster, leader: LocalMember) -> tuple[LocalMember, LocalMember]:
    """Kills the leader, and waits for the next one; returns that one and the killed one."""
    begin = time.monotonic()
    pid = leader.node.pid
    leader.kill()
    say(f"killed pid {pid} with SIGKILL: member {leader.member_id}, which led")
    successor = cluster.await_leader(other_than=leader)
    say(f"member {successor.member_id} leads, {time.monotonic() - begin:.1f} s after the kill")
    return successor, leader


def go_on(clients: list[AuctionClient], before: AuctionState) -> None:
    """Shows that nothing was lost, and continues in the same sessions."""
    ada, grace, edsger = clients
    after = ada.state()
    describe(after, "the state under the new leader")
    if (after.auctions, after.checksum) != (before.auctions, before.checksum):
        raise RuntimeError(f"the state differs\nbefore: {before}\nafter:  {after}")
    say("it is the same: nothing was lost, and the sessions are the same as well")
    vase = next(auction for auction in after.auctions if auction.is_open)
    say(f"edsger bids {vase.highest_price} for {vase.item}: {edsger.bid(vase.auction_id, vase.highest_price)}")
    say(f"edsger bids 100 for {vase.item}: {edsger.bid(vase.auction_id, 100) or 'accepted'}")
    book = grace.open_auction("a book", reserve_price=500, duration_ms=200)
    event = edsger.await_closed(book)
    say(f"a new auction of {event.item} ends {'unsold' if not event.winner else 'sold'}: timers continue as well")


def rejoin(cluster: LocalCluster, leader: LocalMember, killed: LocalMember) -> None:
    """Starts the killed member again, and shows that it has what the others have."""
    killed.restart()
    say(f"started member {killed.member_id} again, pid {killed.node.pid}")
    cluster.await_ready()
    say("it has loaded the snapshot, replayed its log, and got what it missed from the leader")
    cluster.take_snapshot()
    wanted = leader.node.snapshot_messages()
    if any(member.node.snapshot_messages() != wanted for member in cluster.members):
        raise RuntimeError("the snapshots of the members differ")
    say("the snapshots of all three members are equal, byte by byte")


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
