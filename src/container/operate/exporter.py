"""Serves the metrics of nodes to Prometheus, and to OpenTelemetry by the same names."""

from __future__ import annotations

import argparse
import errno
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from container.common.log_events import log_closing, log_started
from container.common.main_program import Ending
from container.common.process_end import Stage, close_at_end
from container.common.threads import check_threads
from container.common.values import host_of_endpoint, shown, without_brackets
from container.errors import ConfigurationError, ContainerError
from container.operate.node_arguments import HOST, INSTALL_HINT, PORT_MAX, add_directories, directories
from container.operate.node_metrics import METRICS, Metric, Sample, sample_nodes
from container.settings.arguments import add_log_level, number

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from prometheus_client.core import Metric as Family

_KEPT_S = 0.5
PORT = 9644


class NodeCollector:
    """The collector for a registry of prometheus_client: the metrics of nodes, read again each time.

    Register it in a registry of your own to serve them beside others:
    ``prometheus_client.REGISTRY.register(NodeCollector([Path("/var/lib/cluster")]))``.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._reader = _Reader(paths, 0.0)

    def __repr__(self) -> str:
        return f"NodeCollector({[str(path) for path in self._paths]})"

    def describe(self) -> Iterable[Family]:
        """Return all metrics, without values."""
        return [_family(metric) for metric in METRICS]

    def collect(self) -> Iterable[Family]:
        """Read all nodes, and return their metrics with values."""
        families = {metric: _family(metric) for metric in METRICS}
        for sample in self._reader.samples():
            families[sample.metric].add_metric(sample.labels, sample.value)
        return list(families.values())


def _family(metric: Metric) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
    return kind(metric.name, metric.help, labels=metric.labels)


class Exporter:
    """Serves the metrics of nodes over HTTP, at ``/metrics``, on threads of its own.

    Args:
        paths: directories of nodes.
        host: name or address to listen on.
        port: to listen on; 0 for one that is free.

    Raises:
        ConfigurationError: prometheus_client is not installed.
        ContainerError: nothing can be listened on there.
    """

    def __init__(self, paths: Sequence[Path], host: str = HOST, port: int = PORT) -> None:
        check_threads("an exporter")
        try:
            from prometheus_client import CollectorRegistry, make_wsgi_app
        except ImportError as error:
            raise ConfigurationError(f"metrics need the package prometheus-client: {INSTALL_HINT}") from error
        from container.operate.http_server import MetricsServer

        registry = CollectorRegistry(auto_describe=False)
        registry.register(NodeCollector(paths))
        try:
            self._server = MetricsServer(without_brackets(host), port, make_wsgi_app(registry))
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a name of a host"
            what = "port" if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES) else "host"
            raise ContainerError(
                f"metrics cannot be served on {shown(host)[1:-1]}:{port}: {reason}; choose another {what}"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()
        close_at_end(self, Stage.POOL)
        self.port: int = self._server.server_port
        """The port on which it listens."""
        self.url = f"http://{host_of_endpoint(host)}:{self.port}/metrics"
        """Where the metrics are."""

    def __repr__(self) -> str:
        return f"<Exporter {self.url}>"

    def close(self) -> None:
        """End it. May be called twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def register_instruments(meter: Meter, paths: Sequence[Path]) -> None:
    """Make an instrument of OpenTelemetry of each metric: observable, named as for Prometheus, with its labels.

    Nodes are read once for all that is collected within half a second.

    Args:
        meter: of your application's meter provider, which exports the values.
        paths: directories of nodes.
    """
    reader = _Reader(paths, _KEPT_S)
    for metric in METRICS:
        make = meter.create_observable_counter if metric.is_counter else meter.create_observable_gauge
        make(metric.name, [_observer(metric, reader)], description=metric.help)


class _Reader:
    """Reads nodes, once for all who ask at the same time, and keeps that for a while.

    Instruments of OpenTelemetry ask one by one for their part of it.
    """

    def __init__(self, paths: Sequence[Path], kept_s: float) -> None:
        self._paths = list(paths)
        self._kept_s = kept_s
        self._guard = threading.Lock()
        self._samples: list[Sample] = []
        self._begin_s = -math.inf

    def samples(self) -> list[Sample]:
        """Return all samples, from one look at the nodes that began after this call, or at most so long before it."""
        asked_s = time.monotonic()
        with self._guard:
            if self._begin_s < asked_s - self._kept_s:
                self._begin_s = time.monotonic()
                self._samples = sample_nodes(self._paths)
            return self._samples


def _observer(metric: Metric, reader: _Reader) -> Callable[[Any], Iterable[Any]]:
    from opentelemetry.metrics import Observation

    def observe(_options: Any) -> Iterable[Any]:
        return [_observation(Observation, sample) for sample in reader.samples() if sample.metric == metric]

    return observe


def _observation(make: Callable[..., Any], sample: Sample) -> Any:
    return make(sample.value, dict(zip(sample.metric.labels, sample.labels, strict=True)))


# The command.


def exporter_parser(make: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """Return the parser of what follows ``aeron-cluster exporter``; its result has ``command``, to be called."""
    parser = make(
        prog=program,
        description="Serve the metrics of nodes of this machine to Prometheus, until Ctrl-C or SIGTERM. Metrics are "
        "described in docs/metrics.md of the project.",
    )
    add_directories(parser)
    parser.add_argument("--host", default=HOST, help=f"name or address to listen on (default: {HOST})")
    parser.add_argument(
        "--port", type=number(0, PORT_MAX), default=PORT, help=f"port to listen on; 0: a free one (default: {PORT})"
    )
    add_log_level(parser)
    parser.set_defaults(command=_run)
    return parser


class _Starting:
    """Nothing that a signal would have to interrupt."""

    is_starting = False


def _run(options: argparse.Namespace) -> None:
    paths = directories(options)
    with Ending(_Starting()) as end:
        exporter = Exporter(paths, options.host, options.port)
        try:
            log_started("exporter", f"the metrics of {', '.join(map(str, paths))} are at {exporter.url}")
            caught = end.wait()
        finally:
            exporter.close()
    if caught is not None:
        log_closing("exporter", caught.name)
