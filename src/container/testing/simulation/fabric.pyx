"""The network of a simulation: it carries UDP streams between the drivers of its hosts, late but never damaged.

A stream is an ordered range of bytes for each of its destinations. A message says how far the stream has been sent; on
arrival the frames up to there are copied into a log of the receiving host, which its images read. A message that is
lost leaves a gap, which a later one shows and a round trip closes: loss is a delay. ``docs/design/fabric.md`` says what
is modelled.
"""
import dataclasses
import zlib

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t

from container.common.sealed cimport hide, seal
from container.errors import ConfigurationError, RegistrationError
from container.testing.memory.memory_log cimport MemoryImage, MemoryLog
from container.testing.memory.memory_stream cimport MemoryStream
from container.testing.memory.memory_transport cimport (
    MemoryClient, MemoryDriver, MemoryNetwork, MemoryPublication, MemorySubscription,
)
from container.testing.simulation.scheduler cimport Scheduler
from container.testing.simulation.virtual_time cimport Draws, NodeClock, Trace

__all__ = ["Fabric"]

cdef enum:
    # Kinds of messages, and of draws.
    DATA = 0
    HEARTBEAT = 1
    STATUS = 2
    REQUEST = 3                                             # to send a gap again
    REPAIR = 4
    KINDS = 8
    LOSS = 1
    FIRST_PORT = 40_000
    FIRST_SOURCE_PORT = 50_000
    SESSIONS_OF_A_HOST = 1_000_000
    LOOPBACK_LEAST_NS = 1_000
    LOOPBACK_MEAN_NS = 10_000

_OWN_HOST = ("127.0.0.1", "0.0.0.0")
_FLOW_CONTROLS = (None, "min", "max")


cdef class Fabric:
    """The hosts of a simulation and the network between them, driven by ``scheduler``.

    Messages take at least ``latency_ns`` and on average ``mean_latency_ns``, drawn from ``draws``. ``receiver_window``
    (bytes, at most half a term, which is what 0 means) is how far a sender may be ahead of what a receiver has read.
    The other times (nanoseconds) have the defaults of Aeron's driver. Arrivals are noted in ``trace``, if given.
    ``lost_images``, ``rejoined_images`` and ``repaired_gaps`` count sessions that were not heard for too long, those
    that came back to where they were lost, and gaps that a second transmission has closed (int). Raises
    ConfigurationError for a negative latency or window, and for other times that are not positive.
    """

    def __init__(self, Scheduler scheduler not None, Draws draws not None, *, Trace trace=None,
                 int64_t latency_ns=50_000, int64_t mean_latency_ns=200_000, int64_t receiver_window=0,
                 int64_t heartbeat_ns=100_000_000, int64_t status_ns=200_000_000,
                 int64_t image_liveness_ns=10_000_000_000, int64_t connection_timeout_ns=5_000_000_000,
                 int64_t linger_ns=5_000_000_000, int64_t client_liveness_ns=10_000_000_000,
                 int64_t unblock_timeout_ns=15_000_000_000):
        _check_latency(latency_ns, mean_latency_ns, 0)
        if receiver_window < 0:
            raise ConfigurationError(f"receiver_window is {receiver_window}: it must not be negative (bytes)")
        if min(heartbeat_ns, status_ns, image_liveness_ns, connection_timeout_ns, linger_ns, client_liveness_ns,
               unblock_timeout_ns) <= 0:
            raise ConfigurationError("a time of the fabric is not positive: give intervals and timeouts in nanoseconds")
        self.scheduler = scheduler
        self.time = scheduler.time
        self.draws = draws
        self.trace = trace
        self.latency_ns = latency_ns
        self.mean_latency_ns = mean_latency_ns
        self.receiver_window = receiver_window
        self.heartbeat_ns = heartbeat_ns
        self.status_ns = status_ns
        self.image_liveness_ns = image_liveness_ns
        self.connection_timeout_ns = connection_timeout_ns
        self.linger_ns = linger_ns
        self.client_liveness_ns = client_liveness_ns
        self.unblock_timeout_ns = unblock_timeout_ns
        self._hosts = {}
        self._paths = {}

    def host(self, str name not None, *, clock=None, wake=None, int32_t term_length=64 * 1024, **options):
        """Start a host; return its :class:`MemoryDriver`.

        A UDP endpoint ``name:port`` belongs to it. ``clock`` is a NodeClock of the scheduler's time when not given.
        ``wake()`` is called when something has arrived or a publication may continue. The other options are the
        driver's; ``publication_window``, of IPC, is half of ``term_length`` when not given. The host of a driver that
        was killed can be started again. Raise ConfigurationError when the host is up, or for a name that is empty or
        has a colon.
        """
        cdef Host host = self._hosts.get(name)
        if not name or ":" in name:
            raise ConfigurationError(f"host name is {name!r}: it must be a non-empty string without a colon")
        if host is not None and host.driver.is_alive:
            raise ConfigurationError(f"host {name!r} is up: kill its driver before it is started again")
        self._lives += 1
        host = Host.__new__(Host)
        host.fabric = self
        host.name = name
        host.bound = {}
        host.endpoints = []
        host._wake = wake
        host._next_port = FIRST_PORT
        host._next_source_port = FIRST_SOURCE_PORT
        options.setdefault("publication_window", term_length // 2)
        options.setdefault("first_session_id", -SESSIONS_OF_A_HOST * self._lives)
        host.driver = MemoryDriver(NodeClock(self.time) if clock is None else clock, term_length=term_length, **options)
        host.driver.network = host
        self._hosts[name] = host
        return host.driver

    def link(self, str a not None, str b not None, *, int64_t latency_ns, int64_t mean_latency_ns, double loss=0.0,
             bint both_ways=True):
        """Set the latency from ``a`` to ``b`` (nanoseconds) and the probability that a message is lost.

        Raises ConfigurationError for a negative latency, a mean below the least, or a ``loss`` not from 0 to below 1.
        """
        cdef Path path
        _check_latency(latency_ns, mean_latency_ns, loss)
        for path in self._both(a, b, both_ways):
            path.least_ns, path.mean_ns, path.loss = latency_ns, mean_latency_ns, loss

    def cut(self, str a not None, str b not None, bint both_ways=True):
        """Lose all that is on the way from ``a`` to ``b``, and all that is sent, until :meth:`heal`."""
        cdef Path path
        for path in self._both(a, b, both_ways):
            path.is_cut = True

    def heal(self, str a not None, str b not None, bint both_ways=True):
        """End what :meth:`cut` and :meth:`clog` do between two hosts."""
        cdef Path path
        for path in self._both(a, b, both_ways):
            path.is_cut = False
            path.clogged_until_ns = 0

    def clog(self, str a not None, str b not None, int64_t until_ns, bint both_ways=False):
        """Hold up all that is on the way from ``a`` to ``b`` until a virtual time; nothing is lost."""
        cdef Path path
        for path in self._both(a, b, both_ways):
            path.clogged_until_ns = until_ns

    def partition(self, groups not None):
        """Cut between hosts of different groups, heal within a group; other hosts stay as they are."""
        listed = [(name, index) for index, group in enumerate(groups) for name in group]
        for a, group in listed:
            for b, other in listed:
                if group != other:
                    self.cut(a, b, False)
                elif a != b:
                    self.heal(a, b, False)

    def sever(self, MemoryClient client not None):
        """The process of a client dies; its driver notices after the client liveness timeout.

        Until then its publications, subscriptions and counters stay. A claim that it left open blocks its stream until
        the publication's end, or the unblock timeout where others share it, and becomes padding.
        """
        cdef MemoryPublication publication
        for resource in client.open_resources:
            if isinstance(resource, MemoryPublication):
                publication = resource
                claims = publication.log.open_claims()
                if claims:
                    self.scheduler.after(self.unblock_timeout_ns, self._unblock, publication._stream, claims)
        client.sever()
        self.scheduler.after(self.client_liveness_ns, self._expire, client)

    def _expire(self, MemoryClient client):
        if client.driver.is_alive:
            client.expire()

    def _unblock(self, MemoryStream stream, claims):
        for position in claims:
            stream.log.unblock(position)
        if stream.sender is not None:
            stream.sender.on_append()

    cdef Path path(self, str sender, str receiver):
        cdef Path path = self._paths.get((sender, receiver))
        if path is None:
            path = Path.__new__(Path)
            path.least_ns = LOOPBACK_LEAST_NS if sender == receiver else self.latency_ns
            path.mean_ns = LOOPBACK_MEAN_NS if sender == receiver else self.mean_latency_ns
            self._paths[sender, receiver] = path
        return path

    cdef list _both(self, str a, str b, bint both_ways):
        return [self.path(a, b), self.path(b, a)] if both_ways else [self.path(a, b)]

    cdef Host reached(self, str address):
        cdef Host host = self._hosts.get(address.rpartition(":")[0])
        return host if host is not None and host.driver.is_alive else None

    def __repr__(self):
        return f"<Fabric hosts={', '.join(self._hosts)}>"


cdef class Path:
    """How messages fare from one host to another."""


cdef class Wire:
    """Carries the messages of one stream in one direction, in order."""

    cdef int carry(self, int kind, object action, tuple arguments) except -1:
        # Calls action(*arguments) on arrival, unless the message is lost.
        cdef Path path = self.path
        cdef int64_t now_ns = self.fabric.time.now_ns
        cdef uint64_t key = <uint64_t> now_ns * KINDS + kind
        cdef int64_t delay_ns
        if path.is_cut or (path.loss > 0 and self.fabric.draws.happens(self.stream + LOSS, key, path.loss)):
            return 0
        delay_ns = self.fabric.draws.delay_ns(self.stream, key, path.least_ns, path.mean_ns)
        self.last_ns = max(self.last_ns + 1, now_ns + delay_ns)
        self.fabric.scheduler.add(self.last_ns, self._arrive, (kind, action, arguments))
        return 0

    def _arrive(self, int kind, action, tuple arguments):
        if self.path.is_cut:
            return
        if self.path.clogged_until_ns > self.fabric.time.now_ns:
            self.last_ns = max(self.last_ns + 1, self.path.clogged_until_ns)
            self.fabric.scheduler.add(self.last_ns, self._arrive, (kind, action, arguments))
            return
        if self.fabric.trace is not None:
            self.fabric.trace.note(
                self.fabric.time.now_ns, kind, <int64_t> (self.stream >> 32), arguments[0] if arguments else 0)
        action(*arguments)


cdef class Link:
    """A stream on its way to one of its destinations."""

    cdef bint is_live(self) noexcept:
        # Have there been status messages lately?
        cdef Fabric fabric = self.source.host.fabric
        return self.status_ns >= 0 and fabric.time.now_ns - self.status_ns < fabric.connection_timeout_ns

    cdef int offer(self, int kind, int64_t begin) except -1:
        # To the receiver: the frames from there to the sender's position; none is a heartbeat.
        cdef bint is_revoked = self.source.stream.is_revoked
        cdef bint is_end = is_revoked or (self.source.stream.channel.signals_end and self.source.is_drained())
        return self.forward.carry(kind, self._arrive, (begin, self.source.position, is_end, is_revoked))

    def _arrive(self, int64_t begin, int64_t end, bint is_end, bint is_revoked):
        cdef Host host = self.source.host.fabric.reached(self.address)
        cdef Endpoint endpoint = None if host is None else host.bound.get(self.address)
        cdef MemoryLog log = self.source.stream.log
        cdef Receiver receiver
        if endpoint is None:
            return
        receiver = endpoint.receivers.get((log.stream_id, log.session_id))
        if receiver is not None and is_revoked:
            receiver.revoke(self, end)
        elif receiver is not None:
            receiver.accept(self, begin, end, is_end)
        elif not is_end and not self.source._is_gone:
            endpoint.join(self, end)

    def _on_status(self, int64_t limit):
        # At the sender: all is read, or will fit, up to there.
        if self.source.has_gone():
            return
        # A publisher waits for it where it could publish nothing until now.
        is_news = not self.is_live() or self.source.stream.log.position() >= self.source.limit()
        self.status_ns = self.source.host.fabric.time.now_ns
        self.status_limit = max(self.status_limit, limit)
        self.source.update_limit()
        self.source.send()
        if is_news:
            self.source.host.wake()

    def _on_gone(self):
        # At the sender: the receiver is no more.
        self.status_ns = -1
        self.source.host.wake()

    def _on_request(self, int64_t begin, Receiver receiver):
        # At the sender: frames from there on are missing. It sends again what it has not yet written over.
        cdef MemoryLog log = self.source.stream.log
        if not self.source.has_gone() and begin >= self.source.position - log.term_length // 2 - log.max_message_length:
            self.forward.carry(REPAIR, self._on_repair, (begin, receiver))

    def _on_repair(self, int64_t begin, Receiver receiver):
        # At the receiver: the frames from there to the last that it knows of.
        receiver.repair_ns = -1
        if not receiver.is_closed and begin <= receiver.log.position() < receiver.known_position:
            receiver.accept(self, receiver.log.position(), receiver.known_position, False)
            self.source.host.fabric.repaired_gaps += 1


cdef class Sender(StreamSender):
    """A publication as its host's driver sends it."""

    cdef bint is_connected(self) noexcept:
        cdef Link link
        for link in self.links:
            if link.is_live():
                return True
        return self.stream.channel.spies_connect and len(self.stream._images) > 0

    cdef int64_t limit(self) noexcept:
        cdef MemoryImage spy
        cdef int64_t position = self.position
        if not self.is_connected():
            return position
        for spy in self.stream._images:
            position = min(position, spy.position())
        return position + self._window

    cdef int64_t release_position(self) noexcept:
        # Frames on their way are copied from here, and lost ones are sent again from here.
        cdef Link link
        cdef Receiver receiver
        cdef int64_t position = self.position - self.stream.log.term_length
        for link in self.links:
            receiver = _receiver_of(link)
            if receiver is not None:
                position = min(position, receiver.log.position())
        return position

    cdef int on_append(self) except -1:
        if not self._is_due:
            self._is_due = True
            self.host.fabric.scheduler.after(0, self._turn)
        return 0

    cdef bint is_drained(self) noexcept:
        # Has all been sent that ever will be?
        return self._is_closed and self.position == self.stream.log.position()

    cdef bint has_gone(self) noexcept:
        return self._is_gone or not self.host.driver.is_alive

    cdef int add_link(self, str address) except -1:
        cdef Fabric fabric = self.host.fabric
        cdef Link link = Link.__new__(Link)
        cdef str receiver = address.rpartition(":")[0]
        cdef int stream_id = self.stream.log.stream_id
        link.source = self
        link.address = address
        link.begin_ns = fabric.time.now_ns
        link.status_ns = link.heard_ns = -1
        link.forward = _wire(fabric, self.host.name, receiver, stream_id, "data")
        link.back = _wire(fabric, receiver, self.host.name, stream_id, "status")
        self.links.append(link)
        return link.offer(HEARTBEAT, self.position)

    cdef int find_links(self) except -1:
        # Dynamic destinations: endpoints that ask this control address for the stream; those that ask no longer go.
        cdef Fabric fabric = self.host.fabric
        cdef str control = self.host.address(self.stream.channel.control)
        cdef Host host
        cdef Endpoint endpoint
        cdef Link link
        cdef MemorySubscription subscription
        cdef int64_t since_ns = fabric.time.now_ns - fabric.connection_timeout_ns
        self.links = [link for link in self.links if max(link.begin_ns, link.status_ns) > since_ns]
        known = [link.address for link in self.links]
        for host in fabric._hosts.values():
            if not host.driver.is_alive or fabric.path(host.name, self.host.name).is_cut:
                continue
            for endpoint in host.endpoints:
                if endpoint.control == control and endpoint.addresses[0] not in known:
                    for subscription in endpoint.subscriptions:
                        if subscription.stream_id == self.stream.log.stream_id:
                            self.add_link(endpoint.addresses[0])
                            break
        return 0

    cdef int update_limit(self) except -1:
        cdef Link link
        cdef list limits = [link.status_limit for link in self.links if link.is_live()]
        if limits:
            self._limit = max(self._limit, min(limits) if self.stream.channel.flow_control == "min" else max(limits))
        return 0

    cdef int send(self) except -1:
        cdef int64_t begin = self.position
        cdef Link link
        self.position = self.stream.log.sendable_position(begin, self._limit)
        if self.position > begin:
            for link in self.links:
                link.offer(DATA, begin)
        return 0

    def _turn(self):
        self._is_due = False
        if not self.has_gone():
            self.send()

    def _tick(self):
        # Each heartbeat interval.
        cdef Fabric fabric = self.host.fabric
        cdef MemoryImage spy
        cdef Link link
        cdef int64_t now_ns = fabric.time.now_ns
        if self.has_gone():
            return
        if self.stream.channel.control_mode == "dynamic":
            self.find_links()
        self.update_limit()
        if self.stream.channel.spies_connect and not any([link.is_live() for link in self.links]):
            for spy in self.stream._images:
                self.position = max(self.position, spy.position())
            self._limit = max(self._limit, self.position)
        self.send()
        if self._linger_from_ns < 0 and (self.is_drained() or self.stream.is_revoked
                                         or self._is_closed and not self.is_connected()):
            self._linger_from_ns = now_ns
        if self._linger_from_ns >= 0 and now_ns - self._linger_from_ns >= fabric.linger_ns:
            self._is_gone = True
            return
        for link in self.links:
            link.offer(HEARTBEAT, self.position)
        fabric.scheduler.after(fabric.heartbeat_ns, self._tick)


cdef class Endpoint:
    """Addresses of a host, the subscriptions that receive there, and what they receive."""

    cdef Receiver join(self, Link link, int64_t position):
        # A stream that is set up: it is received from there on, if somebody wants it.
        cdef Fabric fabric = self.host.fabric
        cdef MemoryLog source = link.source.stream.log
        cdef MemorySubscription subscription
        cdef Receiver receiver
        key = (source.stream_id, source.session_id)
        wanting = [subscription for subscription in self.subscriptions if self._wants(subscription, key)]
        if not wanting or fabric.time.now_ns < self.barred.get(key, 0):
            return None
        receiver = Receiver.__new__(Receiver)
        receiver.endpoint = self
        receiver.log = MemoryLog(
            source.session_id, stream_id=source.stream_id, initial_term_id=source.initial_term_id,
            term_length=source.term_length, mtu_length=source.mtu_length, start_position=position)
        receiver.correlation_id = self.host.driver.take_id()
        receiver.source_identity = link.source.stream.source_identity
        receiver.links = [link]
        receiver.images = []
        receiver.subscriptions = []
        receiver.window = min(fabric.receiver_window or INT64_MAX, source.term_length // 2)
        receiver.status_position = receiver.known_position = position
        receiver.active_ns = link.heard_ns = fabric.time.now_ns
        receiver.repair_ns = -1
        link.is_ended = False
        self.receivers[key] = receiver
        fabric.rejoined_images += key in self.barred
        for subscription in wanting:
            receiver.add_reader(subscription)
        self.host.wake()
        receiver._tick()
        return receiver

    def _wants(self, MemorySubscription subscription, key):
        stream_id, session_id = key
        return (subscription.stream_id == stream_id
                and subscription._channel.session_id in (None, session_id)
                and (subscription.registration_id, session_id) not in self.refused)


cdef class Receiver(ReaderListener):
    """A session's frames as they have arrived at a host, and the images that read them."""

    cdef Fabric fabric(self):
        return self.endpoint.host.fabric

    cdef int add_reader(self, MemorySubscription subscription) except -1:
        # As upstream's PublicationImage.joinPosition: where the slowest reader is.
        cdef MemoryImage image = MemoryImage(self.log, min(self.log.position(), self.consumed_position()))
        image.listener = self
        image.correlation_id = self.correlation_id
        image.source_identity = self.source_identity
        self.images.append(image)
        self.subscriptions.append(subscription)
        return subscription._client._add_image(subscription, image)

    cdef int remove_reader(self, MemorySubscription subscription) except -1:
        cdef int index = self.subscriptions.index(subscription)
        del self.subscriptions[index]
        subscription._client._remove_image(subscription, self.images.pop(index))
        if not self.images:
            self.close()
        return 0

    cdef int64_t consumed_position(self) noexcept:
        cdef MemoryImage image
        cdef int64_t position = INT64_MAX
        for image in self.images:
            position = min(position, image.position())
        return position

    cdef bint is_drained(self) noexcept:
        return (self.is_draining or self.log.end_of_stream_position != INT64_MAX) and (
            self.consumed_position() >= self.log.position())

    cdef int accept(self, Link link, int64_t begin, int64_t end, bint is_end) except -1:
        cdef Fabric fabric = self.fabric()
        cdef MemoryLog source = link.source.stream.log
        cdef int64_t tail = self.log.position()
        cdef int64_t limit = self.status_position + self.window
        if self.is_rejected or self.is_draining:
            return 0
        if link not in self.links:
            self.links.append(link)
            link.is_ended = False
            self.send_status()
        # Frames beyond or behind the window are dropped, and do not keep the image alive.
        if end < self.status_position or begin > limit:
            return 0
        if begin <= tail:
            begin = min(tail, end)                          # the sender may have given up what is before
        if end > limit and begin < end:
            end = source.sendable_position(begin, limit)
            if end == begin:
                return 0
        self.active_ns = link.heard_ns = fabric.time.now_ns
        self.known_position = max(self.known_position, end)
        if begin <= tail < end:
            self.log.extend(source, end)
            self.endpoint.host.wake()
        tail = self.log.position()
        if tail < self.known_position and (
                self.repair_ns < 0 or fabric.time.now_ns - self.repair_ns >= fabric.heartbeat_ns):
            self.repair_ns = fabric.time.now_ns
            link.back.carry(REQUEST, link._on_request, (tail, self))
        if is_end and tail == end:
            link.is_ended = True
            if self.have_all_ended():
                self.log.end_stream()
                self.on_read()
        return 0

    cdef bint have_all_ended(self) except -1:
        return all([(<Link> link).is_ended for link in self.links])

    cdef int on_read(self) except -1:
        if self.is_closed:
            return 0
        if not self.is_draining and self.consumed_position() - self.status_position >= self.window // 4:
            self.send_status()
        if self.is_drained():
            self.fabric().scheduler.after(0, self._end)
        return 0

    cdef int on_reject(self) except -1:
        # The sender hears of it in place of a status message. The images stay until they have heard nothing for long.
        cdef Link link
        if not self.is_rejected:
            self.is_rejected = True
            for link in self.links:
                link.back.carry(STATUS, link._on_gone, ())
        return 0

    cdef int transport_count(self) noexcept:
        cdef Fabric fabric = self.fabric()
        cdef Link link
        cdef int count = 0
        for link in self.links:
            count += link.heard_ns >= 0 and fabric.time.now_ns - link.heard_ns < fabric.image_liveness_ns
        return count

    cdef int revoke(self, Link link, int64_t end) except -1:
        # The images go without what they have not read, unless another stream fills them as well; what has not arrived
        # they never had.
        link.is_ended = True
        if not self.have_all_ended():
            return 0
        self.log.end_of_stream_position = max(end, self.log.position())
        return self.close()

    cdef int send_status(self) except -1:
        cdef Link link
        if self.is_rejected:
            return 0
        self.status_position = self.consumed_position()
        self.log.release_before(self.status_position)
        for link in self.links:
            link.back.carry(STATUS, link._on_status, (self.status_position + self.window,))
        return 0

    def _tick(self):
        # Each status interval.
        cdef Fabric fabric = self.fabric()
        if self.is_closed or not self.endpoint.host.driver.is_alive:
            return
        if fabric.time.now_ns - self.active_ns >= fabric.image_liveness_ns:
            fabric.lost_images += 1
            # It hears nothing more. Until all have read what came, it is there, also for a new subscription.
            self.is_draining = True
            self.on_read()
            return
        self.send_status()
        fabric.scheduler.after(fabric.status_ns, self._tick)

    def _end(self):
        if not self.is_closed:
            self.close()

    cdef int close(self) except -1:
        # The images go. Their session may come back after a while, but not to a subscription that does not rejoin.
        cdef MemorySubscription subscription
        cdef MemoryImage image
        cdef Link link
        cdef Endpoint endpoint = self.endpoint
        key = (self.log.stream_id, self.log.session_id)
        self.is_closed = True
        del endpoint.receivers[key]
        if self.images:
            endpoint.barred[key] = self.fabric().time.now_ns + self.fabric().image_liveness_ns
        for subscription, image in zip(self.subscriptions, self.images):
            if not subscription._channel.rejoins:
                endpoint.refused.add((subscription.registration_id, self.log.session_id))
            subscription._client._remove_image(subscription, image)
        if endpoint.host.driver.is_alive:
            for link in self.links:
                link.back.carry(STATUS, link._on_gone, ())
        return endpoint.host.wake()


cdef class Host(MemoryNetwork):
    """A host as its driver sees the network."""

    cdef str address(self, str endpoint):
        # The text by which all hosts know an endpoint that was given on this one.
        if endpoint is None:
            return None
        host, _, port = endpoint.rpartition(":")
        return f"{self.name if host in _OWN_HOST else host}:{port}"

    cdef int wake(self) except -1:
        if self._wake is not None and self.driver.is_alive:
            self._wake()
        return 0

    cdef object bind(self, object channel):
        endpoint = channel.endpoint
        if endpoint is None and channel.control is not None and channel.control_mode == "dynamic":
            endpoint = "0.0.0.0:0"
        if endpoint is None:
            return channel
        if not self.address(endpoint).startswith(f"{self.name}:"):
            raise RegistrationError(f"cannot bind {endpoint}: this is host {self.name!r}: {channel.text}")
        if endpoint.endswith(":0"):
            while f"{self.name}:{self._next_port}" in self.bound:
                self._next_port += 1
            endpoint = f"{endpoint.removesuffix('0')}{self._next_port}"
            self._next_port += 1
        return dataclasses.replace(channel, endpoint=endpoint)

    cdef int add_stream(self, MemoryStream stream) except -1:
        cdef Sender sender = Sender.__new__(Sender)
        channel = stream.channel
        if channel.flow_control not in _FLOW_CONTROLS:
            raise RegistrationError(f"flow control {channel.flow_control!r} is not simulated, give min or max: "
                                    f"{channel.text}")
        if channel.control is not None and not self.address(channel.control).startswith(f"{self.name}:"):
            raise RegistrationError(f"cannot bind {channel.control}: this is host {self.name!r}: {channel.text}")
        sender.host = self
        sender.stream = stream
        sender.links = []
        sender.position = sender._limit = stream.log.first_position()
        sender._window = stream.log.term_length // 2
        sender._linger_from_ns = -1
        stream.sender = sender
        stream.source_identity = f"{self.name}:{self._next_source_port}"
        self._next_source_port += 1
        if channel.endpoint is not None:
            sender.add_link(self.address(channel.endpoint))
        self.fabric.scheduler.after(0, sender._tick)
        return 0

    cdef int remove_stream(self, MemoryStream stream) except -1:
        cdef Sender sender = stream.sender
        for position in stream.log.open_claims():
            stream.log.unblock(position)
        sender._is_closed = True
        return sender.on_append()

    cdef Endpoint endpoint_of(self, object channel):
        # A tag alone attaches to the endpoint of a subscription that has it.
        cdef Endpoint endpoint
        cdef str address = self.address(channel.endpoint)
        if address in self.bound:
            return self.bound[address]
        if address is None and channel.tag is not None:
            for endpoint in self.endpoints:
                if endpoint.tag == channel.tag:
                    return endpoint
        endpoint = Endpoint.__new__(Endpoint)
        endpoint.host = self
        endpoint.addresses = []
        endpoint.destinations = {}
        endpoint.tag = channel.tag
        endpoint.control = channel.control if channel.control_mode == "dynamic" else None
        endpoint.subscriptions = []
        endpoint.receivers = {}
        endpoint.barred = {}
        endpoint.refused = set()
        if address is not None:
            endpoint.addresses.append(address)
            self.bound[address] = endpoint
        self.endpoints.append(endpoint)
        return endpoint

    cdef int add_subscription(self, MemorySubscription subscription) except -1:
        cdef Endpoint endpoint = self.endpoint_of(subscription._channel)
        cdef Receiver receiver
        subscription.endpoint = endpoint
        endpoint.subscriptions.append(subscription)
        for key, receiver in endpoint.receivers.items():
            if endpoint._wants(subscription, key):
                receiver.add_reader(subscription)
        return 0

    cdef int remove_subscription(self, MemorySubscription subscription) except -1:
        cdef Endpoint endpoint = subscription.endpoint
        cdef Receiver receiver
        endpoint.subscriptions.remove(subscription)
        for receiver in list(endpoint.receivers.values()):
            if subscription in receiver.subscriptions:
                receiver.remove_reader(subscription)
        if not endpoint.subscriptions:
            for address in endpoint.addresses:
                del self.bound[address]
            self.endpoints.remove(endpoint)
        return 0

    cdef int add_destination(self, object owner, object channel) except -1:
        cdef Endpoint endpoint
        is_publication = isinstance(owner, MemoryStream)
        own = (<MemoryStream> owner).channel if is_publication else (<MemorySubscription> owner)._channel
        if own.control_mode != "manual" or channel.endpoint is None:
            raise RegistrationError(
                f"cannot add destination {channel.text} to {own.text}: the channel needs control-mode=manual and the "
                f"destination an endpoint")
        if is_publication:
            return (<Sender> (<MemoryStream> owner).sender).add_link(self.address(channel.endpoint))
        endpoint = (<MemorySubscription> owner).endpoint
        address = self.address(self.bind(channel).endpoint)
        if address in self.bound:
            raise RegistrationError(f"cannot bind {channel.endpoint}: a subscription has it: {channel.text}")
        endpoint.addresses.append(address)
        endpoint.destinations[channel.text] = address
        self.bound[address] = endpoint
        return 0

    cdef int remove_destination(self, object owner, object channel) except -1:
        cdef Endpoint endpoint
        cdef Receiver receiver
        cdef Sender sender
        cdef Link link
        address = self.address(channel.endpoint)
        if isinstance(owner, MemoryStream):
            sender = (<MemoryStream> owner).sender
            sender.links = [link for link in sender.links if link.address != address]
            return 0
        endpoint = (<MemorySubscription> owner).endpoint
        address = endpoint.destinations.pop(channel.text, address)      # a port that was 0 is another now
        if address in endpoint.addresses:
            endpoint.addresses.remove(address)
            del self.bound[address]
            for receiver in endpoint.receivers.values():
                receiver.links = [link for link in receiver.links if link.address != address]
        return 0

    cdef str resolved_endpoint(self, MemorySubscription subscription):
        cdef Endpoint endpoint = subscription.endpoint
        return endpoint.addresses[0] if endpoint.addresses else ""


cdef Receiver _receiver_of(Link link):
    # The receiver that the link fills now, or None.
    cdef Host host = link.source.host.fabric.reached(link.address)
    cdef Endpoint endpoint = None if host is None else host.bound.get(link.address)
    cdef MemoryLog log = link.source.stream.log
    return None if endpoint is None else endpoint.receivers.get((log.stream_id, log.session_id))


cdef Wire _wire(Fabric fabric, str sender, str receiver, int stream_id, str purpose):
    cdef Wire wire = Wire.__new__(Wire)
    wire.fabric = fabric
    wire.path = fabric.path(sender, receiver)
    wire.stream = <uint64_t> zlib.crc32(f"{purpose}.{sender}.{receiver}.{stream_id}".encode()) << 32
    return wire


cdef int _check_latency(int64_t latency_ns, int64_t mean_latency_ns, double loss) except -1:
    if not 0 <= latency_ns <= mean_latency_ns or not 0 <= loss < 1:
        raise ConfigurationError(
            f"latency_ns={latency_ns}, mean_latency_ns={mean_latency_ns}, loss={loss}: the least must not be negative "
            f"nor above the mean, the loss from 0 to below 1")
    return 0


hide((Path, Wire, Link, Sender, Endpoint, Receiver, Host))
seal((Fabric,))
