"""The command ``aeron-cluster client``: sends messages, measures round trips, and shows what a cluster sends."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Self, TextIO

from container.api import Header, MessageBuffer
from container.client.aeron_cluster import AeronCluster
from container.client.client_context import check_setting
from container.client.egress_handler import EgressHandler
from container.client.egress_listener import EgressListener, EventCode
from container.client.round_trips import RoundTrips, percentile_us
from container.common.loggers import print_notice
from container.common.values import counted, shown
from container.errors import ClosedError, ConfigurationError, TimedOutError
from container.settings.arguments import add_log_level, number, seconds

_PROGRESS_INTERVAL_S = 0.2
_LINE_INTERVAL_S = 1.0
_CONNECT_PAUSE_S = 0.001
_BENCH_SLICE_S = 0.05
_NS_PER_S = 1_000_000_000


def client_parser(make: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """The parser of what follows ``aeron-cluster client``; its result has ``command``, to be called with it."""
    parser = make(
        prog=program,
        description="Send messages to a cluster, measure it or show its messages. "
        "Other settings come from Aeron's variables, such as "
        "AERON_CLUSTER_INGRESS_ENDPOINTS, AERON_CLUSTER_EGRESS_CHANNEL and AERON_DIR.",
    )
    _add_connection(parser)
    words = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    send = words.add_parser("send", help="send messages and print the answers, one per line")
    send.add_argument(
        "messages",
        nargs="*",
        metavar="MESSAGE",
        help="message to send; without any, each line of stdin is sent without its line ending (LF or CR LF)",
    )
    send.add_argument("--hex", action="store_true", help="messages and answers are hexadecimal")
    send.add_argument(
        "--replies", type=number(0), metavar="N", help="answers to wait for (default: one for each message)"
    )
    send.add_argument("--wait", type=seconds, default=10.0, metavar="S", help="seconds to wait for them (default: 10)")
    send.set_defaults(command=_send)
    bench = words.add_parser("bench", help="measure round trips with a service that sends each message back")
    bench.add_argument(
        "--messages", type=number(0, 2**31 - 1), default=100_000, metavar="N", help="messages to send (default: 100000)"
    )
    bench.add_argument(
        "--length",
        type=number(0, 2**31 - 1),
        default=32,
        metavar="BYTES",
        help="their length, at least 8 (default: 32)",
    )
    bench.add_argument(
        "--window", type=number(0, 2**31 - 1), default=64, metavar="N", help="maximum messages in flight (default: 64)"
    )
    bench.add_argument(
        "--wait", type=seconds, default=10.0, metavar="S", help="give up after S seconds with no answer (default: 10)"
    )
    bench.set_defaults(command=_bench)
    tail = words.add_parser("tail", help="print the cluster's messages to this session, until Ctrl-C")
    tail.add_argument("--hex", action="store_true", help="print payloads in hexadecimal")
    tail.add_argument("--count", type=number(0), metavar="N", help="end after N messages")
    tail.add_argument("--seconds", type=seconds, metavar="S", help="end after S seconds")
    tail.set_defaults(command=_tail)
    return parser


def _add_connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ingress",
        type=_setting("ingress_endpoints"),
        metavar="ENDPOINTS",
        help="addresses of the members for clients, such as 0=host0:9010,1=host1:9010",
    )
    parser.add_argument(
        "--ingress-channel",
        type=_setting("ingress_channel"),
        metavar="CHANNEL",
        help="channel to the members (default: aeron:udp with --ingress); aeron:ipc on a member's own machine",
    )
    parser.add_argument(
        "--egress",
        type=_setting("egress_channel"),
        metavar="CHANNEL",
        help="channel for answers to this client (default: aeron:udp?endpoint=localhost:0; aeron:ipc if the ingress "
        "channel is aeron:ipc)",
    )
    parser.add_argument("--aeron-dir", metavar="DIR", help="directory of the media driver [AERON_DIR]")
    parser.add_argument("--embedded-driver", action="store_true", help="start a media driver in this process")
    parser.add_argument("--name", metavar="NAME", help="name of the client, up to 100 characters")
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        help="time limit of the connect and of each send, in seconds (default: 5)",
    )
    add_log_level(parser, "warning", "least severe level that is logged")


def _setting(name: str) -> Callable[[str], str]:
    """A function that returns an option's text, if it is a value of the client's setting of that name."""

    def accept(text: str) -> str:
        try:
            check_setting(name, text)
        except ConfigurationError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return accept


class Progress:
    """One line that is written over again on a terminal; elsewhere a line each second."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_live = stream.isatty()
        self._interval_s = _PROGRESS_INTERVAL_S if self._is_live else _LINE_INTERVAL_S
        self._next_s = time.monotonic() + self._interval_s
        self._width = 0

    def show(self, text: Callable[[], str]) -> None:
        """Show the text, if it is time to."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._interval_s
            self._write(text(), "\r" if self._is_live else "\n")

    def finish(self, text: str) -> None:
        """Show the last text, whatever the time."""
        self._write(text, "\n")

    def clear(self) -> None:
        """Take the line off a terminal, so that other text can be printed."""
        if self._width > 0:
            self._write("", "\r")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.clear()

    def _write(self, text: str, end: str) -> None:
        if not self._is_live:
            print_notice(text, self._stream, level="info")
            return
        self._stream.write(text.ljust(self._width) + end)
        self._stream.flush()
        self._width = len(text) if end == "\r" else 0


class _Session(EgressListener):
    """A connected session, and what came in on it."""

    def __init__(self) -> None:
        self.received: list[tuple[int, bytes]] = []
        self.cluster: AeronCluster

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        self.received.append((timestamp, bytes(buffer)))

    def on_session_event(
        self,
        correlation_id: int,
        cluster_session_id: int,
        leadership_term_id: int,
        leader_member_id: int,
        code: EventCode | int,
        detail: str,
    ) -> None:
        _note(f"session event: {code.name if isinstance(code, EventCode) else code}: {detail}")

    def on_new_leader(
        self, cluster_session_id: int, leadership_term_id: int, leader_member_id: int, ingress_endpoints: str
    ) -> None:
        _note(f"member {leader_member_id} leads now, in term {leadership_term_id}")

    def on_extension_message(
        self, block_length: int, template_id: int, schema_id: int, version: int, body: bytes
    ) -> None:
        _note(f"message {template_id} of schema {schema_id} version {version}: {body.hex()}")

    def poll(self) -> int:
        """One poll; raises ClosedError when the session is closed."""
        work_count = self.cluster.poll_egress()
        if self.cluster.is_closed:
            raise ClosedError(f"the session is closed: {self.cluster.close_reason}")
        return work_count


def _note(text: str) -> None:
    print_notice(text, sys.stderr, level="info")


@contextlib.contextmanager
def _connected(
    options: argparse.Namespace, session: _Session, listener: EgressListener | EgressHandler
) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        settings = connection_settings(options)
        if options.embedded_driver:
            from container.aeron import MediaDriver  # loads the Aeron library: only where it is needed

            # Aeron's own term lengths: messages may be as long as the cluster takes them.
            driver = MediaDriver.launch_embedded(term_buffer_length=None, ipc_term_buffer_length=None)
            settings["aeron_dir"] = stack.enter_context(driver).aeron_dir
        session.cluster = stack.enter_context(_connect(listener=listener, **settings))
        _note(
            f"session {session.cluster.cluster_session_id}, leader is member {session.cluster.leader_member_id}, "
            f"term {session.cluster.leadership_term_id}"
        )
        yield


def _connect(**settings: Any) -> AeronCluster:
    with AeronCluster.async_connect(**settings) as connecting, Progress(sys.stderr) as progress:
        while (cluster := connecting.poll()) is None:
            progress.show(lambda: f"connecting: waiting for {connecting.awaited}")
            time.sleep(_CONNECT_PAUSE_S)
        return cluster


def connection_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of :class:`ClientContext` that the options give; what else is needed has a default."""
    given = {
        "ingress_endpoints": options.ingress,
        "ingress_channel": options.ingress_channel,
        "egress_channel": options.egress,
        "aeron_dir": options.aeron_dir,
        "client_name": options.name,
        "message_timeout": options.timeout,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    if options.ingress is not None:
        settings.setdefault("ingress_channel", "aeron:udp")
    channel = settings.get("ingress_channel") or os.environ.get("AERON_CLUSTER_INGRESS_CHANNEL")
    if not channel:
        if not os.environ.get("AERON_CLUSTER_INGRESS_ENDPOINTS"):
            raise ConfigurationError(
                "no cluster is given: pass --ingress 0=host0:9010,1=host1:9010 or set AERON_CLUSTER_INGRESS_ENDPOINTS, "
                "or pass --ingress-channel aeron:ipc on a member's own machine"
            )
        channel = settings["ingress_channel"] = "aeron:udp"
    is_ipc = channel.startswith("aeron:ipc")
    if is_ipc and options.ingress_channel is not None:
        settings["ingress_endpoints"] = options.ingress  # and not those of the environment
    if "egress_channel" not in settings and not os.environ.get("AERON_CLUSTER_EGRESS_CHANNEL"):
        settings["egress_channel"] = "aeron:ipc" if is_ipc else "aeron:udp?endpoint=localhost:0"
    return settings


def _send(options: argparse.Namespace) -> None:
    given = [os.fsencode(text) for text in options.messages] or map(_without_line_ending, sys.stdin.buffer)
    messages = [_payload(message, options.hex) for message in given]
    expected = len(messages) if options.replies is None else options.replies
    session = _Session()
    with _connected(options, session, session), Progress(sys.stderr) as progress:
        for message in messages:
            session.cluster.send(message)
        deadline = time.monotonic() + options.wait
        printed = 0
        while True:
            work_count = session.poll()
            if len(session.received) > printed:
                progress.clear()
            for _, payload in session.received[printed:]:
                print(_shown(payload, options.hex), flush=True)
            printed = len(session.received)
            if printed >= expected:
                break
            if time.monotonic() >= deadline:
                raise TimedOutError(
                    f"{printed} of {expected} answers came within {options.wait:g} s (--wait): the leader took "
                    f"{counted(len(messages), 'message')}; does the service run, and does it answer each one? "
                    "--replies is the number of answers to wait for"
                )
            progress.show(
                lambda: f"sent {len(messages)}, received {len(session.received)} of {expected}, waiting for the service"
            )
            session.cluster.idle(work_count)


def _without_line_ending(line: bytes) -> bytes:
    """All bytes of a line but its ending, LF or CR LF; white space is as good a message as any."""
    return line.removesuffix(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line


def _payload(message: bytes, is_hex: bool) -> bytes:
    if not is_hex:
        return message
    try:
        return bytes.fromhex(message.decode("ascii"))
    except ValueError:
        raise ConfigurationError(f"not hexadecimal: {shown(message)[1:]}") from None


def _shown(payload: bytes, is_hex: bool) -> str:
    return payload.hex() if is_hex else payload.decode(errors="backslashreplace")


def _tail(options: argparse.Namespace) -> None:
    deadline = time.monotonic() + options.seconds if options.seconds is not None else float("inf")
    count = 0
    session = _Session()
    with (
        contextlib.suppress(KeyboardInterrupt),
        _connected(options, session, session),
        Progress(sys.stderr) as progress,
    ):
        while time.monotonic() < deadline and (options.count is None or count < options.count):
            work_count = session.poll()
            arrived, session.received = session.received, []
            if arrived:
                progress.clear()
            for timestamp, payload in arrived:
                print(timestamp, _shown(payload, options.hex), flush=True)
            count += len(arrived)
            if sys.stderr.isatty():
                progress.show(f"{counted(count, 'message')}; Ctrl-C ends".__str__)
            session.cluster.idle(work_count)
    _note(counted(count, "message"))


def _bench(options: argparse.Namespace) -> None:
    session = _Session()
    trips = RoundTrips(options.length, session)
    trips.begin(options.messages, options.window)
    with _connected(options, session, trips):
        progress = Progress(sys.stderr)
        begin_ns = time.perf_counter_ns()
        last_ns, last_count = begin_ns, 0

        def text() -> str:
            seconds = (time.perf_counter_ns() - begin_ns) / _NS_PER_S
            return (
                f"{trips.received}/{trips.messages} {100 * trips.received // trips.messages:3d} %  "
                f"{trips.received / seconds:,.0f}/s  {trips.recent_mean_us():,.0f} us"
            )

        while not trips.run(session.cluster, _BENCH_SLICE_S):
            now_ns = time.perf_counter_ns()
            if trips.received != last_count:
                last_ns, last_count = now_ns, trips.received
            elif now_ns - last_ns > options.wait * _NS_PER_S:
                others = f", {trips.others} messages that were not answers" if trips.others else ""
                raise TimedOutError(
                    f"no answer for {options.wait:g} s after {trips.received} of {trips.messages}{others}; does the "
                    "service send each message back as it is, and was there a new leader?"
                )
            progress.show(text)
        seconds = (time.perf_counter_ns() - begin_ns) / _NS_PER_S
        progress.finish(text())
    ordered = sorted(trips.durations_ns())
    print(
        f"{trips.messages} round trips of {options.length} bytes, window {options.window}: "
        f"{trips.messages / seconds:,.0f}/s, p50 {percentile_us(ordered, 50):,.1f} us, "
        f"p99 {percentile_us(ordered, 99):,.1f} us, max {percentile_us(ordered, 100):,.1f} us"
    )
