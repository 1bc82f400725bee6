"""An auction house as a replicated service: messages, the state machine they drive, and the service around it.

Auctions are opened with a duration and close by a cluster timer; the highest bid wins. The state is one msgspec Struct,
which is also what a snapshot holds. Run it beside a consensus module::

    aeron-cluster run examples.auction_service:AuctionService

****Treat clients' messages as hostile until you have checked them.** An exception that leaves a callback ends the
member, and the log holds the same message for every other member: a service that raises on bad input lets any client
stop the cluster. So

* the types of the messages say what is allowed, and the decoder refuses everything else before the state is touched;
* each method of the state machine checks first and changes then, and returns the reason when it refuses;
* everything that clients can make the service keep has a limit, by session and in total.
"""

from __future__ import annotations

import itertools
import zlib
from typing import Annotated

import msgspec

import container
from container import read_snapshot, write_snapshot
from container.api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SnapshotImage,
    SnapshotPublication,
    TimeUnit,
)

# --- limits: of one request, and of what is kept

MAX_REQUEST_LENGTH = 512
"""Bytes of a request; the longest valid one has fewer than 400."""
MAX_TEXT_LENGTH = 64
MAX_PRICE = 10**15
MAX_DURATION_MS = 30 * 24 * 3_600_000
"""30 days: the deadline fits 64 bits in every time unit."""
MAX_OPEN = 1_000
MAX_OPEN_BY_SESSION = 100
MAX_CLOSED = 1_000
"""How many closed auctions are kept; the one that closed first goes first."""
PAGE_LENGTH = 10
"""Auctions in one answer: it fits the shortest term buffer that a client can choose for its egress."""

Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Price = Annotated[int, msgspec.Meta(ge=0, le=MAX_PRICE)]
DurationMs = Annotated[int, msgspec.Meta(ge=1, le=MAX_DURATION_MS)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT_LENGTH)]

# --- messages: what clients send (requests), and what they hear (replies and events)
# Unknown fields are forbidden: the decoder would have to skip them, and how deep it can go differs between members.


class OpenAuction(msgspec.Struct, tag=True, frozen=True, forbid_unknown_fields=True):
    """Opens an auction that closes after ``duration_ms`` of cluster time."""

    request_id: Id
    item: Text
    reserve_price: Price
    duration_ms: DurationMs


class PlaceBid(msgspec.Struct, tag=True, frozen=True, forbid_unknown_fields=True):
    """Bids ``price`` in an auction."""

    request_id: Id
    auction_id: Id
    bidder: Text
    price: Price


class QueryState(msgspec.Struct, tag=True, frozen=True, forbid_unknown_fields=True):
    """Asks for the auctions whose ids are ``first_auction_id`` or higher."""

    request_id: Id
    first_auction_id: Id = 0


Request = OpenAuction | PlaceBid | QueryState
"""The requests of a client: also a decoder of payloads for :mod:`container.spark`."""


class Accepted(msgspec.Struct, tag=True, frozen=True):
    """The request was carried out."""

    request_id: int
    auction_id: int


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The request was not carried out, and why."""

    request_id: int
    reason: str


class AuctionState(msgspec.Struct, tag=True, frozen=True):
    """Auctions by ascending ids, and a checksum of all of them, which is equal on all members at a log position."""

    request_id: int
    auctions: list[Auction]
    checksum: int
    next_auction_id: int | None = None
    """Where the next page begins; None when this is the last."""


class AuctionClosed(msgspec.Struct, tag=True, frozen=True):
    """Sent to every client when an auction closes; ``winner`` is empty when the reserve price was not met."""

    auction_id: int
    item: str
    winner: str
    price: int


# --- the state machine: knows nothing of Aeron


class Auction(msgspec.Struct):
    """One auction."""

    auction_id: int
    session_id: int
    item: str
    reserve_price: int
    closes_at: int
    highest_bidder: str = ""
    highest_price: int = 0
    bid_count: int = 0
    is_open: bool = True


class AuctionHouse(msgspec.Struct):
    """The auctions by their ids; everything that a snapshot must hold."""

    next_auction_id: int = 1
    auctions: dict[int, Auction] = {}
    closed: list[int] = []
    """Ids of the closed auctions, in the order in which they closed."""
    open_counts: dict[int, int] = {}
    """How many auctions each session has open; only of open sessions that have any."""

    def open(self, session_id: int, item: str, reserve_price: int, closes_at: int) -> Auction | str:
        """Opens an auction that closes at cluster time ``closes_at``; returns it, or why it was refused."""
        count = self.open_counts.get(session_id, 0)
        if count >= MAX_OPEN_BY_SESSION:
            return f"your session has {count} auctions open: wait until one closes"
        if len(self.auctions) - len(self.closed) >= MAX_OPEN:
            return f"{MAX_OPEN} auctions are open: wait until one closes"
        auction = Auction(self.next_auction_id, session_id, item, reserve_price, closes_at)
        self.auctions[auction.auction_id] = auction
        self.open_counts[session_id] = count + 1
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
        """Closes an auction and returns the outcome; None when there is no such open auction."""
        auction = self.auctions.get(auction_id)
        if auction is None or not auction.is_open:
            return None
        auction.is_open = False
        self.closed.append(auction_id)
        if len(self.closed) > MAX_CLOSED:
            del self.auctions[self.closed.pop(0)]
        count = self.open_counts.pop(auction.session_id, 0)
        if count > 1:
            self.open_counts[auction.session_id] = count - 1
        sold = auction.highest_price >= auction.reserve_price
        return AuctionClosed(
            auction_id, auction.item, auction.highest_bidder if sold else "", auction.highest_price if sold else 0
        )

    def forget_session(self, session_id: int) -> None:
        """The session is closed. Its auctions continue, because others bid in them, and count only in the total."""
        self.open_counts.pop(session_id, None)

    def page(self, first_auction_id: int) -> tuple[list[Auction], int | None]:
        """Some auctions from that id on, and the id of the next one after them."""
        found = (auction for auction in self.auctions.values() if auction.auction_id >= first_auction_id)
        page = list(itertools.islice(found, PAGE_LENGTH + 1))
        return page[:PAGE_LENGTH], page[PAGE_LENGTH].auction_id if len(page) > PAGE_LENGTH else None

    def checksum(self) -> int:
        """CRC-32 of all auctions, not of the sessions' counts: a session that closes changes no auction."""
        return zlib.crc32(msgspec.msgpack.encode((self.next_auction_id, self.auctions, self.closed)))


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
        """Carries out one request of a client and answers it, whatever it is."""
        if session is None:
            return
        request = _decoded(buffer)
        reply = request if isinstance(request, Refused) else self._carry_out(request, session.id, timestamp)
        session.send(_ENCODER.encode(reply))

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """Forgets what is kept for the session."""
        self.house.forget_session(session.id)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """Closes the auction that the timer was set for, and informs every client."""
        closed = self.house.close(correlation_id)
        if closed is not None:
            message = _ENCODER.encode(closed)
            for session in self.cluster.client_sessions:
                session.send(message)

    def _carry_out(self, request: Request, session_id: int, timestamp: int) -> Accepted | Refused | AuctionState:
        if isinstance(request, OpenAuction):
            unit = self.cluster.time_unit or TimeUnit.MILLIS
            closes_at = timestamp + request.duration_ms * _MILLIS[unit]
            auction = self.house.open(session_id, request.item, request.reserve_price, closes_at)
            if isinstance(auction, str):
                return Refused(request.request_id, auction)
            while not self.cluster.schedule_timer(auction.auction_id, auction.closes_at):
                self.cluster.idle()
            return Accepted(request.request_id, auction.auction_id)
        if isinstance(request, PlaceBid):
            reason = self._bid(request)
            if reason:
                return Refused(request.request_id, reason)
            return Accepted(request.request_id, request.auction_id)
        auctions, next_auction_id = self.house.page(request.first_auction_id)
        return AuctionState(request.request_id, auctions, self.house.checksum(), next_auction_id)

    def _bid(self, request: PlaceBid) -> str:
        return self.house.bid(request.auction_id, request.bidder, request.price)


def _decoded(buffer: MessageBuffer) -> Request | Refused:
    """The request in a message, or the refusal of an invalid one: it depends on the bytes alone."""
    if len(buffer) > MAX_REQUEST_LENGTH:
        return Refused(0, f"a request of {len(buffer)} bytes: {MAX_REQUEST_LENGTH} are allowed")
    try:
        return _REQUESTS.decode(buffer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return Refused(0, f"not understood: {error}")


if __name__ == "__main__":
    container.run(AuctionService())
