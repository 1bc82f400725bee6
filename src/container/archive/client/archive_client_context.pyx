"""Where an archive is, and how one of its clients talks to it."""
from libc.stdint cimport int32_t, int64_t

from container.common.aeron_defaults import (
    ARCHIVE_CONTROL_STREAM_ID, ARCHIVE_LOCAL_CONTROL_CHANNEL, ARCHIVE_MESSAGE_RETRY_ATTEMPTS,
    ARCHIVE_MESSAGE_TIMEOUT_NS, ARCHIVE_RESPONSE_STREAM_ID,
)
from container.common.channel_uri import ChannelUri, add_alias_if_absent
from container.common.sealed cimport seal
from container.common.values import shown, suggestion
from container.errors import ConfigurationError

cdef dict UNITS = {
    "message_timeout_ns": "an int of nanoseconds, such as 10_000_000_000 for 10 s",
    "term_buffer_length": "an int of bytes",
    "mtu_length": "an int of bytes",
}

SETTINGS = (
    "control_channel", "control_stream_id", "response_channel", "response_stream_id", "message_timeout_ns",
    "message_retry_attempts", "term_buffer_length", "term_buffer_sparse", "mtu_length", "client_name",
    "credentials_supplier",
)
"""The fields of :class:`ArchiveClientContext`."""


cdef int64_t _int(str name, object value, object bits) except? -1:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ConfigurationError(f"archive {name} must be {UNITS.get(name, 'an int')}, not {shown(value)}")
    return value


def check_names(names, known):
    """Refuse names of settings that are not among the known ones, with a ConfigurationError that has a near one."""
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"unknown setting {shown(name)}: "
                f"{suggestion(name, known, 'the settings of ArchiveClientContext')}")


cdef class ArchiveClientContext:
    """The address of an archive and the settings of its client (upstream's ``AeronArchive.Context``).

    They are checked when the context is made.

    ``control_channel`` and ``control_stream_id`` are what the archive listens to; ``response_channel`` and
    ``response_stream_id`` are what it answers on, and the latter must be this client's alone. Both channels are IPC if
    not given; with a ``control_channel`` of UDP give a ``response_channel``.
    ``term_buffer_length`` (bytes), ``term_buffer_sparse`` and ``mtu_length`` (bytes) are added to both
    channels where they do not say. Sparse log buffers, upstream's default here whatever the driver's is, turn a full
    ``/dev/shm`` into a SIGBUS of whoever writes. ``message_timeout_ns`` is the limit of a whole connect and of each
    request, and ``message_retry_attempts`` the number of attempts to send one. The archive shows ``client_name`` for
    this client. ``credentials_supplier`` has ``encoded_credentials() -> bytes`` and ``on_challenge(bytes) -> bytes``,
    or is None.
    """

    cdef readonly str control_channel
    cdef readonly int32_t control_stream_id
    cdef readonly str response_channel
    cdef readonly int32_t response_stream_id
    cdef readonly int64_t message_timeout_ns
    cdef readonly int32_t message_retry_attempts
    cdef readonly int32_t term_buffer_length
    cdef readonly bint term_buffer_sparse
    cdef readonly int32_t mtu_length
    cdef readonly str client_name
    cdef readonly object credentials_supplier

    def __init__(
            self, *, str control_channel not None=ARCHIVE_LOCAL_CONTROL_CHANNEL,
            control_stream_id=ARCHIVE_CONTROL_STREAM_ID, str response_channel=None,
            response_stream_id=ARCHIVE_RESPONSE_STREAM_ID, message_timeout_ns=ARCHIVE_MESSAGE_TIMEOUT_NS,
            message_retry_attempts=ARCHIVE_MESSAGE_RETRY_ATTEMPTS, term_buffer_length=64 * 1024,
            bint term_buffer_sparse=False, mtu_length=1408, str client_name not None="", credentials_supplier=None,
            **unknown):
        check_names(unknown, SETTINGS)
        if response_channel is None:
            if ChannelUri.parse(control_channel).is_udp:
                raise ConfigurationError(
                    f"archive response_channel must be set with control_channel={shown(control_channel)}: an archive "
                    "cannot answer over the network on shared memory; give an address of this host that the archive "
                    "reaches, such as response_channel='aeron:udp?endpoint=client0:0'")
            response_channel = ARCHIVE_LOCAL_CONTROL_CHANNEL
        ChannelUri.parse(control_channel)
        ChannelUri.parse(response_channel)
        self.message_timeout_ns = _int("message_timeout_ns", message_timeout_ns, 64)
        self.message_retry_attempts = <int32_t> _int("message_retry_attempts", message_retry_attempts, 32)
        for name, value in (
                ("message_timeout_ns", message_timeout_ns), ("message_retry_attempts", message_retry_attempts)):
            if value < 1:
                raise ConfigurationError(f"archive {name} must be at least 1, not {value}")
        self.control_channel = control_channel
        self.control_stream_id = <int32_t> _int("control_stream_id", control_stream_id, 32)
        self.response_channel = response_channel
        self.response_stream_id = <int32_t> _int("response_stream_id", response_stream_id, 32)
        self.term_buffer_length = <int32_t> _int("term_buffer_length", term_buffer_length, 32)
        self.term_buffer_sparse = term_buffer_sparse
        self.mtu_length = <int32_t> _int("mtu_length", mtu_length, 32)
        self.client_name = client_name
        self.credentials_supplier = credentials_supplier

    def __repr__(self):
        return (f"<ArchiveClientContext of {self.control_channel} stream {self.control_stream_id}, "
                f"answers on {self.response_channel} stream {self.response_stream_id}>")

    @classmethod
    def for_service(
            cls, cluster_id, service_id, *, str control_channel not None=ARCHIVE_LOCAL_CONTROL_CHANNEL, **settings):
        """The context of a service's container: IPC channels with aliases that name cluster and service, and
        the response stream that upstream's container would use.

        ``settings`` are fields of the context. ``response_channel`` is ``control_channel`` if not given;
        ``response_stream_id`` is the base (20) to which the ids are added.
        """
        base = settings.pop("response_stream_id", ARCHIVE_RESPONSE_STREAM_ID)
        response_channel = settings.pop("response_channel", control_channel)
        for channel in (control_channel, response_channel):
            if not channel.startswith("aeron:ipc"):
                raise ConfigurationError(f"local archive control must be IPC, not {channel!r}")
        return cls(
            control_channel=add_alias_if_absent(
                control_channel, f"sc-{service_id}-archive-ctrl-req-cluster-{cluster_id}"),
            response_channel=add_alias_if_absent(
                response_channel, f"sc-{service_id}-archive-ctrl-resp-cluster-{cluster_id}"),
            response_stream_id=cluster_id * 100 + 100 + base + service_id + 1,
            **settings)


seal((ArchiveClientContext,))
