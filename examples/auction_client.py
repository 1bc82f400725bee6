"""A client of the auction service: sends requests, waits for their replies, and collects the events in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import msgspec

from container.api import Header, MessageBuffer
from container.client import AeronCluster, EgressListener
from examples.auction_service import (
    Accepted,
    Auction,
    AuctionClosed,
    AuctionState,
    OpenAuction,
    PlaceBid,
    QueryState,
    Refused,
)

Reply = Accepted | Refused | AuctionState

_ENCODER = msgspec.msgpack.Encoder()
_REPLIES: msgspec.msgpack.Decoder[Reply | AuctionClosed] = msgspec.msgpack.Decoder(Reply | AuctionClosed)


class AuctionClient(EgressListener):
    """One client session. ``options`` are those of :class:`container.client.ClientContext`.

    Every wait ends after ``reply_timeout`` seconds with a TimeoutError that says what did not come.
    """

    def __init__(self, name: str, *, reply_timeout: float = 15.0, **options: Any) -> None:
        self.name = name
        self.closed_auctions: list[AuctionClosed] = []
        self._reply_timeout = reply_timeout
        self._replies: dict[int, Reply] = {}
        self._next_request_id = 1
        self._cluster = AeronCluster.connect(listener=self, client_name=name, message_timeout=20.0, **options)

    @property
    def cluster_session_id(self) -> int:
        """Id of the session with the cluster."""
        return self._cluster.cluster_session_id

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        """Takes a message of the service."""
        message = _REPLIES.decode(buffer)
        if isinstance(message, AuctionClosed):
            self.closed_auctions.append(message)
        else:
            self._replies[message.request_id] = message

    def open_auction(self, item: str, reserve_price: int, duration_ms: int) -> int:
        """Opens an auction; returns its id."""
        reply = self._request(lambda request_id: OpenAuction(request_id, item, reserve_price, duration_ms))
        if not isinstance(reply, Accepted):
            raise ValueError(f"the auction of {item!r} was not opened: {reply}")
        return reply.auction_id

    def bid(self, auction_id: int, price: int) -> str:
        """Places a bid; returns an empty text, or why it was refused."""
        reply = self._request(lambda request_id: PlaceBid(request_id, auction_id, self.name, price))
        return reply.reason if isinstance(reply, Refused) else ""

    def request_snapshot(self) -> None:
        """Asks the cluster for a snapshot, which it takes if it lets clients ask. The answer says only that it will."""
        deadline = time.monotonic() + self._reply_timeout
        while not self._cluster.send_admin_request_to_take_a_snapshot(1):
            self._cluster.poll_egress()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the request for a snapshot could not be sent in {self._reply_timeout:g} s")

    def state(self) -> AuctionState:
        """All auctions that the service keeps, at one position of the log."""
        deadline = time.monotonic() + self._reply_timeout
        while time.monotonic() <= deadline:  # until no other client changes anything between two pages
            auctions: list[Auction] = []
            page = self._page(0)
            checksum = page.checksum
            while page.checksum == checksum:
                auctions += page.auctions
                if page.next_auction_id is None:
                    return AuctionState(page.request_id, auctions, checksum)
                page = self._page(page.next_auction_id)
        raise TimeoutError(f"client {self.name}: the state did not rest for one query in {self._reply_timeout} s")

    def _page(self, first_auction_id: int) -> AuctionState:
        reply = self._request(lambda request_id: QueryState(request_id, first_auction_id))
        if not isinstance(reply, AuctionState):
            raise ValueError(f"the state was not sent: {reply}")
        return reply

    def keep_alive(self) -> None:
        """Takes what has come, and keeps the session alive."""
        self._cluster.poll_egress()

    def await_leader(self, member_id: int) -> None:
        """Waits until the client knows that a member leads: what it sends before would go to the one that led."""
        self._poll_until(lambda: self._cluster.leader_member_id == member_id, f"the news that member {member_id} leads")

    def await_closed(self, auction_id: int) -> AuctionClosed:
        """Waits for the event that an auction was closed."""
        self._poll_until(
            lambda: any(event.auction_id == auction_id for event in self.closed_auctions),
            f"the close of auction {auction_id}",
        )
        return next(event for event in self.closed_auctions if event.auction_id == auction_id)

    def _request(self, make: Callable[[int], OpenAuction | PlaceBid | QueryState]) -> Reply:
        request_id = self._next_request_id
        self._next_request_id += 1
        self._cluster.send(_ENCODER.encode(make(request_id)))
        self._poll_until(lambda: request_id in self._replies, f"the reply to request {request_id}")
        return self._replies.pop(request_id)

    def _poll_until(self, is_there: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self._reply_timeout
        while not is_there():
            if time.monotonic() > deadline:
                raise TimeoutError(f"client {self.name}: {what} did not come in {self._reply_timeout} s")
            self._cluster.poll_egress()
            self._cluster.idle()

    def close(self) -> None:
        """Closes the session."""
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
