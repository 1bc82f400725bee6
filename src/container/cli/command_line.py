"""The command line of ``aeron-cluster``: its words, and an option for each setting."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from typing import Any, NoReturn

from container.common.values import shown, suggestion
from container.errors import ConfigurationError
from container.operate.operator_command import WORDS, find_word, operator_parser


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and accepts only whole names of options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        java = (
            ", and docs/from-java.md for Aeron's properties" if "-Daeron." in message or "--aeron." in message else ""
        )
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help{java}\n")


def parse(program: str, arguments: list[str], run: Callable[[Any], None]) -> argparse.Namespace:
    """Return the options that the arguments stand for; their ``command`` is the function to call with them.

    Args:
        program: its name, for the texts.
        arguments: what follows the name.
        run: the command of the word ``run``.

    Raises:
        SystemExit: after the help, or one line about what is wrong; with the exit code.
    """
    word = find_word(arguments)
    if word is not None:
        name, found, rest = word
        return operator_parser(_Parser, f"{program} {name}", found).parse_args(rest)
    if arguments[:1] == ["client"]:
        from container.client.client_command import client_parser  # loads what other words do not need

        return client_parser(_Parser, f"{program} client").parse_args(arguments[1:])
    if arguments[:1] == ["archive"]:
        from container.archive.server.archive_command import archive_parser

        return archive_parser(_Parser, f"{program} archive").parse_args(arguments[1:])
    if arguments[:1] == ["backup"]:
        from container.backup.backup_command import backup_parser

        return backup_parser(_Parser, f"{program} backup").parse_args(arguments[1:])
    if arguments[:1] == ["consensus-module"]:
        from container.consensus.consensus_module_command import consensus_module_parser

        return consensus_module_parser(_Parser, f"{program} consensus-module").parse_args(arguments[1:])
    if arguments[:1] == ["dev"]:
        from container.node.node_command import dev_parser

        return dev_parser(_Parser, f"{program} dev").parse_args(arguments[1:])
    if arguments[:1] == ["exporter"]:
        from container.operate.exporter import exporter_parser

        return exporter_parser(_Parser, f"{program} exporter").parse_args(arguments[1:])
    if arguments[:1] == ["node"]:
        from container.node.node_command import node_parser

        return node_parser(_Parser, f"{program} node").parse_args(arguments[1:])
    if arguments[:1] == ["top"]:
        from container.operate.top_command import top_parser

        return top_parser(_Parser, f"{program} top").parse_args(arguments[1:])
    if arguments[:1] == ["pipeline"]:
        from container.pipeline.pipeline_command import pipeline_parser

        return pipeline_parser(_Parser, f"{program} pipeline").parse_args(arguments[1:])
    if arguments[:1] == ["replay"]:
        from container.replay.replay_command import replay_parser

        return replay_parser(_Parser, f"{program} replay").parse_args(arguments[1:])
    if arguments[:1] == ["check"]:
        return _check_parser(f"{program} check").parse_args(arguments[1:])
    if arguments[:1] == ["run"]:
        return _run_parser(f"{program} run", run).parse_args(arguments[1:])
    parser, words = _parser(program)
    if arguments and not arguments[0].startswith("-"):
        raise ConfigurationError(
            f"unknown command {shown(arguments[0])}: {suggestion(arguments[0], words, f'{program} --help')}"
        )
    return parser.parse_args(arguments)


def _check_parser(program: str) -> argparse.ArgumentParser:
    """The parser of the test kit, found by its entry point: production code does not import the kit."""
    from importlib.metadata import entry_points

    found = entry_points(group="aeron_cluster.commands", name="check")
    if not found:
        raise ConfigurationError(
            f"{program}: command not found: install the package (pip install aeron-cluster-container)"
        )
    parser: argparse.ArgumentParser = next(iter(found)).load()(_Parser, program)
    return parser


def _parser(program: str) -> tuple[argparse.ArgumentParser, Collection[str]]:
    """The parser of what follows no word, for help, version and errors; and all words."""
    parser = _Parser(prog=program, description="Clustered services for Aeron Cluster, in Python.")
    words = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    words.add_parser("run", help="run a service next to a consensus module", add_help=False)
    words.add_parser(
        "dev", help="run a cluster for a service on this machine, of one member or several", add_help=False
    )
    words.add_parser("node", help="run a member for production, configured by a TOML file", add_help=False)
    words.add_parser("top", help="show a live full-screen view of this machine's nodes", add_help=False)
    words.add_parser("exporter", help="serve the metrics of this machine's nodes to Prometheus", add_help=False)
    words.add_parser("archive", help="run an archive next to a media driver", add_help=False)
    words.add_parser("backup", help="keep a copy of a cluster's log and snapshots away from it", add_help=False)
    words.add_parser("consensus-module", help="run the consensus module of a member", add_help=False)
    words.add_parser("client", help="send messages to a cluster, measure it or show its messages", add_help=False)
    words.add_parser("pipeline", help="build tables, audits and replays from recordings, on Spark", add_help=False)
    words.add_parser("replay", help="run a service over a recorded log here, with a debugger", add_help=False)
    words.add_parser("check", help="find mistakes that let replicas of a service diverge", add_help=False)
    for name, word in WORDS.items():
        if name.startswith("--"):
            parser.add_argument(name, action="store_true", help=word.help)
        else:
            words.add_parser(name, help=word.help, add_help=False)
    return parser, words.choices


def _run_parser(program: str, run: Callable[[Any], None]) -> argparse.ArgumentParser:
    # Many settings, which no other word needs.
    from container.operate.metrics_server import add_metrics_port
    from container.settings.arguments import add_config, add_log_level, add_settings
    from container.settings.container_table import settings_table

    parser = _Parser(
        prog=program,
        description="Run a service next to a consensus module, until the module, Ctrl-C or SIGTERM stops it.",
        epilog="Options override the environment variable in brackets, which overrides the file of --config.",
    )
    parser.add_argument(
        "service",
        nargs="?",
        metavar="package.module:ServiceClass",
        help="the service; the current directory is searched as well [AERON_CLUSTER_SERVICE_CLASS_NAME]",
    )
    add_config(parser, "AERON_CLUSTER_CONFIG_FILE")
    add_metrics_port(parser)
    add_log_level(parser)
    add_settings(parser, settings_table(), without=("service_class_name",))  # the positional argument
    parser.set_defaults(command=run)
    return parser
