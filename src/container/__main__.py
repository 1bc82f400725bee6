"""The command ``aeron-cluster``, also ``python -m container``; its first word says what to do."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from container import not_built_error
from container.errors import ConfigurationError, ContainerError

PROGRAM = "aeron-cluster"
EXIT_FAILURE = 1
EXIT_USAGE = 2

_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (without the program's name); returns the exit code.

    0 for an end that was asked for, 1 when the container could not start or ended otherwise, 2 for wrong usage or
    settings.
    """
    try:
        options = _parse(sys.argv[1:] if arguments is None else arguments)
        logging.basicConfig(level=options.log_level.upper(), format=_LOG_FORMAT, stream=sys.stderr)
        command: Callable[[argparse.Namespace], None] = options.command
        command(options)
    except ConfigurationError as error:
        return _fail(error, EXIT_USAGE)
    except ModuleNotFoundError as error:
        return _fail(not_built_error(error) or error, EXIT_FAILURE)
    except (ContainerError, ImportError, OSError) as error:
        return _fail(error, EXIT_FAILURE)
    return 0


def _fail(error: Exception, code: int) -> int:
    logging.getLogger("container").debug("failed", exc_info=error)
    print(f"{PROGRAM}: error: {' '.join(str(error).split())}", file=sys.stderr)
    return code


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    if list(arguments[:1]) == ["client"]:
        from container.client.command import client_parser  # needs compiled modules, which --help does not

        return client_parser(_Parser, f"{PROGRAM} client").parse_args(arguments[1:])
    if list(arguments[:1]) == ["pipeline"]:
        from container.pipeline.command import pipeline_parser

        return pipeline_parser(_Parser, f"{PROGRAM} pipeline").parse_args(arguments[1:])
    return _parser().parse_args(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROGRAM, description="Clustered services for Aeron Cluster, in Python.")
    words = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_run(words)
    words.add_parser("client", help="send to a cluster, measure it, show what it sends", add_help=False)
    words.add_parser("pipeline", help="tables, audits and replays of what clusters recorded, on Spark", add_help=False)
    return parser


def _add_run(words: Any) -> None:
    parser = words.add_parser(
        "run",
        help="run a service beside a consensus module",
        description="Run a service beside a consensus module, until the consensus module ends it, Ctrl-C or SIGTERM.",
        epilog="An option counts before the environment variable in brackets, that before the TOML file of --config.",
    )
    parser.add_argument(
        "service",
        nargs="?",
        metavar="package.module:ServiceClass",
        help="the service; found from the current directory, too [AERON_CLUSTER_SERVICE_CLASS_NAME]",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file with settings, by their names [AERON_CLUSTER_CONFIG_FILE]"
    )
    parser.add_argument(
        "--log-level", choices=_LOG_LEVELS, default="info", help="what is logged to standard error (default: info)"
    )
    _add_settings(parser)
    parser.set_defaults(command=_run)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    from container.settings import Setting, settings_table
    from container.settings_sources import parse_text

    def value(setting: Setting, text: str) -> Any:
        try:
            return parse_text(setting, text)
        except ConfigurationError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    group = parser.add_argument_group("settings")
    for setting in settings_table().values():
        if setting.name == "service_class_name":
            continue  # the positional argument
        default = f" Default: {setting.default.replace('`', '')}." if setting.default else ""
        about = f"{setting.doc} Allowed: {setting.allowed}.{default} [{setting.variable}]".replace("%", "%%")
        option = "--" + setting.name.replace("_", "-")
        if setting.is_flag:
            group.add_argument(option, action=argparse.BooleanOptionalAction, default=None, help=about)
        else:
            group.add_argument(
                option, type=partial(value, setting), metavar=setting.unit.upper() or "VALUE", help=about
            )


def _run(options: argparse.Namespace) -> None:
    from container.context import Context
    from container.run_service import run
    from container.service_handler import ServiceHandler, check_service
    from container.settings import settings_table

    settings: dict[str, Any] = {name: getattr(options, name, None) for name in settings_table()}
    settings["service_class_name"] = options.service
    context = Context(config_file=options.config, **settings)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does; a console script has its own directory there
    context.service = context.create_service()  # now: a mistake is told at once, and not after a wait for the driver
    if not isinstance(context.service, ServiceHandler):
        check_service(context.service)
    run(context)


if __name__ == "__main__":
    sys.exit(main())
