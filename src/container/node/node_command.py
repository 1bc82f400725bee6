"""The commands ``aeron-cluster dev`` and ``node``: a member or a cluster of them, until it is asked to end."""

from __future__ import annotations

import argparse
import contextlib
import math
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from container.api import ClusteredService
from container.common.directories import check_is_there
from container.common.error_texts import message_of, type_name
from container.common.log_events import log_closing, log_ended, log_started
from container.common.loggers import prints_json, report
from container.common.main_program import Ending, report_crashes
from container.common.object_path import search_current_directory
from container.common.values import shown, suggestion
from container.errors import ConfigurationError
from container.node.cluster_node import OF_BOTH, ClusterNode
from container.node.members import PORT, check_size
from container.node.service_process import ServiceProcess
from container.operate.metrics_server import add_metrics_port, metrics_address, serve_metrics
from container.service.given_service import check_path, service_at
from container.service.service_handler import ServiceHandler
from container.settings.archive_table import archive_settings_table
from container.settings.arguments import add_log_level, number, path
from container.settings.consensus_module_table import consensus_module_settings_table
from container.settings.container_table import settings_table
from container.settings.driver_table import driver_settings_table
from container.settings.sources import given_values, parse_text, read_config_file, settings_of_properties
from container.testing.processes.endpoints import MEMBER_COUNTS

if TYPE_CHECKING:
    from container.node.launched_cluster import LaunchedCluster

_SOURCE = "the node"
_KINDS = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    (int, str): "a port, or host:port as a text",
    list: "a list of package.module:Class",
    (list,): "a list of tables, [[members]] for each",
    dict: "a table of settings",
}
_NODE_KEYS: dict[str, type | tuple[type, ...]] = {
    "services": list,
    "directory": str,
    "host": str,
    "port": int,
    "members": (list,),
    "member_id": int,
    "aeron_dir": str,
    "threading_mode": str,
    "service_processes": bool,
    "metrics_port": (int, str),
    "driver": dict,
    "archive": dict,
    "consensus_module": dict,
    "container": dict,
}
_NODE_HELP = "docs/consensus-module.md"

_DEV_TERM_LENGTH = "4m"
_DEV_COUNTERS_BUFFER_LENGTH = 1024 * 1024
"""8,192 counters. With these two lengths 45 MB are enough, also for a start that replays; containers have 64 MB."""


def dev_parser(make: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """The parser of what follows ``aeron-cluster dev``; its result has ``command``, to be called."""
    parser = make(
        prog=program,
        description="Run a cluster on this machine until a tool, Ctrl-C or SIGTERM stops it. A single member runs in "
        "this process, with its media driver, archive, consensus module and services; of several, each is a process.",
    )
    parser.add_argument(
        "services",
        nargs="+",
        metavar="package.module:ServiceClass",
        help="the services, with the ids 0, 1, …; the current directory is searched as well",
    )
    parser.add_argument(
        "--dir",
        dest="directory",
        type=path,
        metavar="DIR",
        help="directory of the cluster's data, new or of an earlier run (default: a temporary one, removed at the end)",
    )
    parser.add_argument(
        "--members",
        type=int,
        choices=MEMBER_COUNTS,
        default=1,
        help="number of members, each in its own process if there are several (default: 1)",
    )
    parser.add_argument("--host", default="localhost", help="this machine's name for clients (default: localhost)")
    parser.add_argument(
        "--port",
        type=number(1, 65_531),
        default=PORT,
        metavar="N",
        help=f"UDP port for clients, the first of five that a member uses; the next member's is 10 higher (default: "
        f"{PORT})",
    )
    parser.add_argument("--aeron-dir", type=path, metavar="DIR", help="directory of the media driver that it starts")
    parser.add_argument(
        "--term-length",
        type=_term_length,
        default=_DEV_TERM_LENGTH,
        metavar="BYTES",
        help="term length of a new log, such as 64m, the default of `node`: /dev/shm needs room for three terms, or "
        "for six while a start replays, and no message is longer than an eighth of a term (default: "
        f"{_DEV_TERM_LENGTH})",
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        help="restart the services over the same log when their files change, and report what they do differently; "
        "the report needs the extra `recordings`",
    )
    add_metrics_port(parser)
    add_log_level(parser)
    parser.set_defaults(command=_run_dev)
    return parser


def node_parser(make: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """The parser of what follows ``aeron-cluster node``; its result has ``command``, to be called."""
    parser = make(
        prog=program,
        description="Run one member of a cluster as a TOML file configures it, with its media driver, archive, "
        "consensus module and services in this process, until a tool, Ctrl-C or SIGTERM stops it.",
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="TOML file, as docs/deployment.md describes it")
    parser.add_argument(
        "--properties", metavar="FILE", help="Aeron's properties for the parts, in a .properties or TOML file"
    )
    parser.add_argument(
        "--java",
        action="store_true",
        help="use Java's media driver, archive and consensus module, in a JVM of its own; needs the extra `cluster`",
    )
    add_metrics_port(parser)
    add_log_level(parser)
    parser.set_defaults(command=_run_node)
    return parser


def _term_length(text: str) -> int:
    """A term length that the driver takes."""
    setting = driver_settings_table()["term_buffer_length"]
    with contextlib.suppress(ConfigurationError):
        length = parse_text(setting, text)
        if setting.allows(length):
            return int(length)
    raise argparse.ArgumentTypeError(f"{shown(text)}: must be {setting.allowed}")


class _Start:
    """A signal interrupts it until it is over: then it ends the node that was started."""

    is_starting = True

    def is_over(self) -> None:
        self.is_starting = False


def _run_dev(options: argparse.Namespace) -> None:
    if options.directory is not None:
        is_apart = options.members > 1
        check_size(
            Path(options.directory), options.members, is_apart=is_apart, option="--members ", other="another --dir"
        )
    if options.reload:
        from container.node.dev_reload import run_reloading  # not needed otherwise

        run_reloading(options)
        return
    names = ("directory", "host", "port", "aeron_dir", "metrics_port")
    settings = {name: getattr(options, name) for name in names}
    settings["driver"] = {"counters_buffer_length": _DEV_COUNTERS_BUFFER_LENGTH}
    settings["consensus_module"] = {"log_channel": f"aeron:udp?term-length={options.term_length}"}
    if options.members > 1:
        _run_cluster(options, settings)
        return
    _run(options.services, settings)


def _run_cluster(options: argparse.Namespace, settings: dict[str, Any]) -> None:
    """Run several members as processes until all have ended, or a signal comes."""
    from container.node.launched_cluster import LaunchedCluster  # what one member does not need

    if settings.pop("aeron_dir") is not None:
        raise ConfigurationError("--aeron-dir: leave it out: each member has a media driver of its own")
    metrics_port = settings.pop("metrics_port")
    if metrics_port is not None:
        metrics_address(metrics_port)
    search_current_directory()
    for each in options.services:
        check_path(each, "service")  # once, and before anything starts
    report_crashes()
    start = _Start()
    with Ending(start) as end:
        try:
            cluster = LaunchedCluster.launch(*options.services, members=options.members, **settings)
        except KeyboardInterrupt:
            report("info", "interrupted while starting")
            return
        start.is_over()
        with cluster, serve_metrics(metrics_port, *[member.node.base_dir for member in cluster.members]):
            if not prints_json():
                _print_cluster(cluster)
            threading.Thread(target=_tell_of_the_end, args=(cluster, end), name="cluster-end", daemon=True).start()
            caught = end.wait()
            if caught is not None:
                log_closing("the cluster", caught.name)
    log_ended("the cluster", was_asked_for=caught is not None)


def _tell_of_the_end(cluster: LaunchedCluster, end: Ending) -> None:
    cluster.join()
    end.tell(None)


def _print_cluster(cluster: LaunchedCluster) -> None:
    """Print how to reach it, and where its members are, on standard output."""
    leader = cluster.leader
    print(
        f"A cluster of {len(cluster.members)} members is ready."
        + ("" if leader is None else f" Member {leader.member_id} leads."),
        f"  clients                 ingress channel aeron:udp, ingress endpoints {cluster.ingress_endpoints}",
        f"  for example             aeron-cluster client --ingress {cluster.ingress_endpoints} "
        "--embedded-driver send TEXT",
        *[f"  member {each.member_id}, pid {each.node.pid:<11} {each.node.base_dir}" for each in cluster.members],
        f"  watch them              aeron-cluster top {cluster.directory}/member-*",
        sep="\n",
        flush=True,
    )


def _run_node(options: argparse.Namespace) -> None:
    file = options.config
    if file.endswith(".properties"):
        raise ConfigurationError(
            f"{file}: --config must be a TOML file with services and directory; give this file with --properties"
        )
    found, properties, _path = read_config_file(file, "--config")
    if options.metrics_port is not None:
        found["metrics_port"] = options.metrics_port
    for name, value in found.items():
        kind = _NODE_KEYS.get(name)
        if kind is None:
            raise ConfigurationError(f"{file}: unknown key {shown(name)}: {suggestion(name, _NODE_KEYS, _NODE_HELP)}")
        if type(value) not in (kind if isinstance(kind, tuple) else (kind,)):
            raise ConfigurationError(f"{file}: {name}={shown(value)}: must be {_KINDS[kind]}")
        if isinstance(value, dict) and any(key.partition(".")[0] == "aeron" for key in value):
            raise ConfigurationError(f"{file}: {name}: write settings that begin with aeron above the first table")
    for name, example in (("services", '["package.module:Class"]'), ("directory", '"/var/lib/cluster"')):
        if not found.get(name):
            raise ConfigurationError(f"{file}: {name} must be given, such as {name} = {example}")
    check_is_there("directory", found["directory"])
    if options.properties is not None:
        own, others, path_of_properties = read_config_file(options.properties, "--properties")
        if own:
            raise ConfigurationError(
                f"{path_of_properties}: {shown(next(iter(own)))} is not a property of Aeron's: it belongs into {file}"
            )
        _take_properties(found, others, path_of_properties, before=properties)
    _take_properties(found, properties, file)
    services = found.pop("services")
    if options.java:
        from container.node.java_node import JavaNode  # needs packages that the rest does not

        for name in ("threading_mode", "service_processes"):
            if name in found:
                raise ConfigurationError(f"{file}: leave out {name}: it is the native node's")
        _run(services, found, JavaNode.launch, file=file)
        return
    # Production: too little memory for a log buffer is an error then, and not the end of the process.
    found["driver"] = {"term_buffer_sparse_file": False, **found.get("driver", {})}
    _run(services, found, file=file)


def _take_properties(
    found: dict[str, Any], properties: dict[str, Any], file: str, *, before: Collection[str] = ()
) -> None:
    """Give the parts of a node what Aeron's properties say of them.

    Values given by our names stay, and so do those that a property of ``before`` will give.
    """
    left = {name: value for name, value in properties.items() if name not in before}
    tables = {
        "consensus_module": consensus_module_settings_table(),
        "container": {name: each for name, each in settings_table().items() if name not in OF_BOTH},
        "archive": archive_settings_table(),
        "driver": driver_settings_table(),
    }
    for part, table in tables.items():
        values = given_values(settings_of_properties(left, file, table), table)
        aeron_dir = values.pop("aeron_dir", None)
        if aeron_dir is not None:
            found.setdefault("aeron_dir", aeron_dir)
        if values:
            found[part] = {**values, **found.get(part, {})}


def _launch(*services: Any, **settings: Any) -> ClusterNode:
    """Wait for the end of a long replay as well: whoever supervises the command decides how long is too long."""
    return ClusterNode.launch(*services, timeout=math.inf, **settings)


def _run(
    paths: list[str], settings: dict[str, Any], launch: Callable[..., Any] = _launch, *, file: str | None = None
) -> None:
    """Run a node until it ends. A setting that is refused says that it is from the file, if one is given."""
    metrics_port = settings.pop("metrics_port", None)
    if metrics_port is not None:
        metrics_address(metrics_port)  # a mistake is reported before anything starts
    search_current_directory()
    is_apart = settings.pop("service_processes", False)
    make: Callable[[str], Any] = ServiceProcess if is_apart else lambda each: service_at(each, "service")
    if is_apart:
        for each in paths:
            check_path(each, "service")  # before anything starts
    services: list[ClusteredService | ServiceHandler | ServiceProcess] = [make(each) for each in paths]
    report_crashes()
    start = _Start()
    with Ending(start) as end:
        try:
            # Inside: a signal that comes before closes what there is, and one that comes after ends what there is.
            node = launch(*services, on_ready=start.is_over, on_end=lambda: end.tell(None), **settings)
        except ConfigurationError as error:
            if file is None:
                raise
            raise ConfigurationError(f"{file}: {error}") from error
        except KeyboardInterrupt:
            report("info", "interrupted while starting")
            return
        with node, serve_metrics(metrics_port, node.directory):
            if not prints_json():
                _print_connection(node)
            log_started(
                _SOURCE,
                f"{_SOURCE} is ready in {node.directory}{_leadership(node)}",
                directory=str(node.directory),
                ingress_endpoints=node.ingress_endpoints,
                aeron_dir=str(node.aeron_dir),
            )
            caught = end.wait()
            if caught is not None:
                log_closing(_SOURCE, caught.name)
    if caught is not None:
        log_ended(_SOURCE, was_asked_for=True)
        return
    failure = node.failure
    if failure is not None:
        found = type_name(failure).rpartition(".")[2], message_of(failure, is_shown=node.has_error_messages)
        log_ended(_SOURCE, was_asked_for=False, failure=found)
        raise SystemExit(1)
    log_ended(_SOURCE, was_asked_for=False)


def _leadership(node: Any) -> str:
    """Return who leads, where there are several members."""
    if "," not in node.ingress_endpoints:
        return ""
    leader = node.leader_member_id
    leads = "another one leads" if leader is None else f"member {leader} leads"
    return f": member {node.member_id}; {leads}"


def _print_connection(node: Any) -> None:
    """How to reach it, on standard output."""
    client = f"aeron-cluster client --ingress {node.ingress_endpoints} --embedded-driver"
    leadership = _leadership(node)
    print(
        f"A member is ready{leadership}." if leadership else "A cluster of one member is ready.",
        f"  clients over UDP        ingress channel aeron:udp, ingress endpoints {node.ingress_endpoints}",
        f"  clients of this machine ingress channel aeron:ipc, media driver {node.aeron_dir}",
        f"  for example             {client} send TEXT",
        f"  directory               {node.directory}",
        sep="\n",
        flush=True,
    )
