"""Objects that a forked child may not use: they share memory, files or threads with the process that made them.

Such an object calls :func:`own` when it gets hold of these. In a forked child its ``_disown`` is called before anything
else runs there: it lets go of all that is shared, so that the checks which every call makes anyway refuse it, with
:func:`refusal`. To close what was disowned does nothing. So the rule costs a call nothing.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn, Protocol
from weakref import WeakValueDictionary

from container.common.error_texts import stack_text
from container.common.line_printer import print_line
from container.errors import AgentTermination, ForkedError


class Owned(Protocol):
    """An object that a forked child may not use."""

    def _disown(self, process_id: int) -> None:
        """Let go of what is shared with the process of that id, of which this one is a fork. Take no lock."""


_process_id = os.getpid()
_owned: WeakValueDictionary[int, Owned] = WeakValueDictionary()


def own(owned: Owned) -> None:
    """Have ``_disown`` called in forked children from now on, for as long as the object lives."""
    _owned[id(owned)] = owned


def refusal(what: str, owner: str, process_id: int) -> ForkedError:
    """The error for a call that a forked child makes of what was made in the process of that id."""
    return ForkedError(
        f"cannot {what}: {owner} was made in process {process_id} and cannot be used in its forked child, process "
        f"{os.getpid()}. Make a new one in the child, or start the child by spawn instead of fork: "
        'multiprocessing.get_context("spawn")'
    )


def end_child(error: BaseException | None) -> NoReturn:
    """End a child that has come back to a place where only its parent may continue; no ``atexit`` function is called.

    Look for the child's own error in the error that ended the agent.

    The exit code is that of a SystemExit, else 1, and then standard error has the reason.
    """
    code = 1
    while isinstance(error, AgentTermination) and error.__cause__ is not None:
        error = error.__cause__
    try:
        if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
            code = error.code or 0
        elif isinstance(error, SystemExit):
            print_line(str(error.code), sys.stderr)
        elif error is not None:
            print_line(stack_text(error), sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)


def _disown_all() -> None:
    global _owned, _process_id
    parent_id, _process_id = _process_id, os.getpid()
    references = _owned.valuerefs()
    _owned = WeakValueDictionary()
    try:
        for reference in references:
            owned = reference()
            if owned is not None:
                owned._disown(parent_id)
    except BaseException as error:
        end_child(error)  # rather than let it write where its parent does


os.register_at_fork(after_in_child=_disown_all)
