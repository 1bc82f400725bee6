"""An auction house as a replicated service: messages, the state machine they drive, and the service around it.

Auctions are opened with a duration and close by a cluster timer; the highest bid wins. The state is one msgspec Struct,
which is also what a snapshot holds. Run it beside a consensus module::

    aeron-cluster run examples.auction_service:AuctionService
"""

from __future__ import annotations

import zlib

import msgspec

import container
from container.api import (
    ClientSession,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SnapshotImage,
    SnapshotPublication,
    TimeUnit,
)
from container.snapshots import read_snapshot, write_snapshot

# --- messages: what clients send (requests), and what they hear (replies and events)


class OpenAuction(msgspec.Struct, tag=True, frozen=True):
    """Opens an auction that closes after ``duration_ms`` of cluster time."""

    request_id: int
    item: str
    reserve_price: int
    duration_ms: int


class PlaceBid(msgspec.Struct, tag=True, frozen=True):
    """Bids ``price`` in an auction."""

    request_id: int
    auction_id: int
    bidder: str
    price: int


class QueryState(msgspec.Struct, tag=True, frozen=True):
    """Asks for all auctions."""

    request_id: int


Request = OpenAuction | PlaceBid | QueryState
"""What a client may send: also a decoder of payloads for :mod:`container.spark`."""


class Accepted(msgspec.Struct, tag=True, frozen=True):
    """The request was carried out."""

    request_id: int
    auction_id: int


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The request was not carried out, and why."""

    request_id: int
    reason: str


class AuctionState(msgspec.Struct, tag=True, frozen=True):
    """The whole state: every auction, and a checksum that is equal on all members at the same log position."""

    request_id: int
    auctions: list[Auction]
    checksum: int


class AuctionClosed(msgspec.Struct, tag=True, frozen=True):
    """Told to every client when an auction closes; ``winner`` is empty when the reserve price was not met."""

    auction_id: int
    item: str
    winner: str
    price: int


# --- the state machine: knows nothing of Aeron


class Auction(msgspec.Struct):
    """One auction."""

    auction_id: int
    item: str
    reserve_price: int
    closes_at: int
    highest_bidder: str = ""
    highest_price: int = 0
    bid_count: int = 0
    is_open: bool = True


class AuctionHouse(msgspec.Struct):
    """All auctions by their ids; everything that a snapshot must hold."""

    next_auction_id: int = 1
    auctions: dict[int, Auction] = {}

    def open(self, item: str, reserve_price: int, closes_at: int) -> Auction:
        """Opens an auction that closes at cluster time ``closes_at``."""
        auction = Auction(self.next_auction_id, item, reserve_price, closes_at)
        self.auctions[auction.auction_id] = auction
        self.next_auction_id += 1
        return auction

    def bid(self, auction_id: int, bidder: str, price: int) -> str:
        """Places a bid; returns why it was refused, or an empty text."""
        auction = self.auctions.get(auction_id)
        if auction is None:
            return f"no auction {auction_id}"
        if not auction.is_open:
            return f"auction {auction_id} is closed"
        if price <= auction.highest_price:
            return f"{price} is not above the highest bid, {auction.highest_price}"
        auction.highest_bidder, auction.highest_price = bidder, price
        auction.bid_count += 1
        return ""

    def close(self, auction_id: int) -> AuctionClosed | None:
        """Closes an auction and tells the outcome; None when it is closed already."""
        auction = self.auctions.get(auction_id)
        if auction is None or not auction.is_open:
            return None
        auction.is_open = False
        sold = auction.highest_price >= auction.reserve_price
        return AuctionClosed(
            auction_id, auction.item, auction.highest_bidder if sold else "", auction.highest_price if sold else 0
        )

    def checksum(self) -> int:
        """CRC-32 of the whole state."""
        return zlib.crc32(msgspec.msgpack.encode(self))


# --- the service: decodes requests, drives the state machine, answers

_ENCODER = msgspec.msgpack.Encoder()
_REQUESTS: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_MILLIS = {TimeUnit.MILLIS: 1, TimeUnit.MICROS: 1_000, TimeUnit.NANOS: 1_000_000}


class AuctionService(ClusteredService):
    """The auction house on every member of the cluster."""

    def __init__(self) -> None:
        self.house = AuctionHouse()
        self.cluster: Cluster

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        """Takes up the state of the newest snapshot."""
        self.cluster = cluster
        if snapshot_image is not None:
            self.house = read_snapshot(snapshot_image, AuctionHouse)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        """Writes the state."""
        write_snapshot(snapshot_publication, self.house)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        """Carries out one request of a client and answers it."""
        if session is None:
            return
        try:
            request = _REQUESTS.decode(buffer)
        except msgspec.MsgspecError as error:
            session.send(_ENCODER.encode(Refused(0, f"not understood: {error}")))
            return
        session.send(_ENCODER.encode(self._carry_out(request, timestamp)))

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """Closes the auction that the timer was set for, and tells every client."""
        closed = self.house.close(correlation_id)
        if closed is not None:
            message = _ENCODER.encode(closed)
            for session in self.cluster.client_sessions:
                session.send(message)

    def _carry_out(self, request: Request, timestamp: int) -> Accepted | Refused | AuctionState:
        if isinstance(request, OpenAuction):
            unit = self.cluster.time_unit or TimeUnit.MILLIS
            auction = self.house.open(
                request.item, request.reserve_price, timestamp + request.duration_ms * _MILLIS[unit]
            )
            while not self.cluster.schedule_timer(auction.auction_id, auction.closes_at):
                self.cluster.idle()
            return Accepted(request.request_id, auction.auction_id)
        if isinstance(request, PlaceBid):
            reason = self.house.bid(request.auction_id, request.bidder, request.price)
            if reason:
                return Refused(request.request_id, reason)
            return Accepted(request.request_id, request.auction_id)
        return AuctionState(request.request_id, list(self.house.auctions.values()), self.house.checksum())


if __name__ == "__main__":
    container.run(AuctionService())
