"""The command ``aeron-cluster``, also ``python -m container``; its first word says what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import SimpleNamespace

from container import not_built_error
from container.error_texts import stack_text
from container.errors import ConfigurationError, ContainerError
from container.line_printer import print_line
from container.loggers import log_to_stderr, report
from container.type_names import Any

PROGRAM = "aeron-cluster"
EXIT_FAILURE = 1
EXIT_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (without the program's name); returns the exit code.

    0 for an end that was asked for, 1 when the container could not start or ended otherwise, 2 for wrong usage or
    settings.
    """
    try:
        options = _parse(sys.argv[1:] if arguments is None else arguments)
        log_to_stderr(options.log_level)
        options.command(options)
    except ConfigurationError as error:
        return _fail(error, EXIT_USAGE)
    except ModuleNotFoundError as error:
        return _fail(not_built_error(error) or error, EXIT_FAILURE)
    except (ContainerError, ImportError, OSError) as error:
        return _fail(error, EXIT_FAILURE)
    return 0


def _fail(error: Exception, code: int) -> int:
    report("debug", "failed:\n%s", stack_text(error))
    print_line(f"{PROGRAM}: error: {' '.join(str(error).split())}", sys.stderr)
    return code


def _parse(arguments: Sequence[str]) -> Any:
    """The options of a command, with ``log_level``, and ``command`` that is to be called with them."""
    words = list(arguments)
    if words[:1] == ["run"] and len(words) <= 2 and not any(word.startswith("-") for word in words):
        # How services are run where the environment sets them up: the parser would be most of what this starts with.
        service = words[1] if len(words) == 2 else None
        return SimpleNamespace(service=service, config=None, log_level="info", command=_run)
    from container.command_line import parse

    return parse(PROGRAM, words, _run)


def _run(options: Any) -> None:
    from container.context import Context
    from container.run_service import run
    from container.service_handler import ServiceHandler, check_service
    from container.settings import settings_table

    settings: dict[str, Any] = {name: getattr(options, name, None) for name in settings_table()}
    settings["service_class_name"] = options.service
    context = Context(config_file=options.config, **settings)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; a console script has its own directory there
    context.service = context.create_service()  # now: a mistake is told at once, and not after a wait for the driver
    if not isinstance(context.service, ServiceHandler):
        check_service(context.service)
    run(context)


if __name__ == "__main__":
    sys.exit(main())
