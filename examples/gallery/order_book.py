"""An order book for one instrument: the best price trades first, and at one price the order that waits longest.

Prices are whole numbers, such as cents. An order waits until it is filled or cancelled, or its session ends.
"""

from __future__ import annotations

import bisect
from typing import Annotated

import msgspec

from container import ClusteredService, read_snapshot, write_snapshot
from container.api import ClientSession, CloseReason, Cluster, Header, MessageBuffer, SnapshotImage, SnapshotPublication

MAX_REQUEST_LENGTH, MAX_ORDERS_OF_SESSION, MAX_ORDERS = 256, 1_000, 10_000
type Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
type Amount = Annotated[int, msgspec.Meta(ge=1, le=10**9)]


class Request(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """Sent by clients, in MessagePack."""

    request_id: Id


class Place(Request):
    """Buys or sells at this price or a better one."""

    is_buy: bool
    units: Amount
    price: Amount


class Cancel(Request):
    """Takes back an order of the same session."""

    order_id: Id


class Reply(msgspec.Struct, tag=True, frozen=True):
    """An order was placed or cancelled: the units that traded and wait now, and what they cost; or why it was not."""

    request_id: int
    order_id: int = 0
    traded: int = 0
    cost: int = 0
    waiting: int = 0
    error: str = ""


class Filled(msgspec.Struct, tag=True, frozen=True):
    """A waiting order has traded: sent to its session."""

    order_id: int
    units: int
    price: int


class Order(msgspec.Struct):
    """One that waits."""

    session_id: int
    is_buy: bool
    units: int
    price: int


class State(msgspec.Struct):
    """Everything that a snapshot holds."""

    last_id: int = 0
    orders: dict[int, Order] = {}
    buyers: list[tuple[int, int]] = []  # minus the price, and the id: the first one trades next
    sellers: list[tuple[int, int]] = []  # the price, and the id
    by_session: dict[int, dict[int, None]] = {}  # ids of the orders of each session that has any

    def add(self, order_id: int, order: Order) -> None:
        """Let an order wait, behind those at its price."""
        self.orders[order_id] = order
        self.by_session.setdefault(order.session_id, {})[order_id] = None
        bisect.insort(*self._place_of(order_id, order))

    def remove(self, order_id: int) -> None:
        """Take an order out of the book."""
        order = self.orders.pop(order_id)
        del self.by_session[order.session_id][order_id]
        if not self.by_session[order.session_id]:
            del self.by_session[order.session_id]
        queue, place = self._place_of(order_id, order)
        del queue[bisect.bisect_left(queue, place)]

    def _place_of(self, order_id: int, order: Order) -> tuple[list[tuple[int, int]], tuple[int, int]]:
        return (self.buyers, (-order.price, order_id)) if order.is_buy else (self.sellers, (order.price, order_id))


class OrderBook(ClusteredService):
    """The book on every member of the cluster."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        self.state = State() if snapshot_image is None else read_snapshot(snapshot_image, State)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        write_snapshot(snapshot_publication, self.state)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None:
            session.send(msgspec.msgpack.encode(self._reply(bytes(buffer[:MAX_REQUEST_LENGTH]), session.id)))

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        for order_id in list(self.state.by_session.get(session.id, ())):
            self.state.remove(order_id)

    def _reply(self, payload: bytes, session_id: int) -> Reply:
        try:
            request = msgspec.msgpack.decode(payload, type=Place | Cancel)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return Reply(0, error=f"not understood: {error}")
        own = self.state.by_session.get(session_id, {})
        if isinstance(request, Cancel):
            if request.order_id not in own:
                return Reply(request.request_id, error=f"you have no order {request.order_id}")
            self.state.remove(request.order_id)
            return Reply(request.request_id, request.order_id)
        return self._place(request, session_id, len(own))

    def _place(self, request: Place, session_id: int, own: int) -> Reply:
        state = self.state
        queue, limit = (state.sellers, request.price) if request.is_buy else (state.buyers, -request.price)
        does_trade = bool(queue) and queue[0][0] <= limit  # it is filled, or fills an order: the book does not grow
        if own >= MAX_ORDERS_OF_SESSION or (len(state.orders) >= MAX_ORDERS and not does_trade):
            return Reply(request.request_id, error="too many orders wait")
        state.last_id += 1
        units, cost = request.units, 0
        while units and queue and queue[0][0] <= limit:
            other_id = queue[0][1]
            other = state.orders[other_id]
            traded = min(units, other.units)
            units, cost, other.units = units - traded, cost + traded * other.price, other.units - traded
            if not other.units:
                state.remove(other_id)
            if owner := self.cluster.get_client_session(other.session_id):
                owner.send(msgspec.msgpack.encode(Filled(other_id, traded, other.price)))
        if units:
            state.add(state.last_id, Order(session_id, request.is_buy, units, request.price))
        return Reply(request.request_id, state.last_id, request.units - units, cost, units)
