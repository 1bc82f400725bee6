"""Signals whose handlers raised where everything is swallowed: such a handler is called again.

Python calls the handler of a signal wherever the main thread is, so also within a function that swallows whatever is
raised in it, such as one that prints a line. Without this, Ctrl-C would be lost there.
"""

from __future__ import annotations

import _thread
import opcode
import signal
import threading
from types import CodeType

_RAISE = opcode.opmap["RAISE_VARARGS"]


def keep(error: BaseException) -> None:
    """Have the handler of a signal called once more, by the main thread's next Python code, if it raised ``error``.

    For what a function that otherwise raises nothing has caught.
    """
    if isinstance(error, Exception) or threading.current_thread() is not threading.main_thread():
        return
    try:
        number = _raised_by(error)
        if number is not None:
            _thread.interrupt_main(number)
    except Exception:  # no memory, or a handler that is not a function of Python's
        return


def _raised_by(error: BaseException) -> signal.Signals | None:
    """The signal whose handler is among the calls that raised an error.

    Python's own handler of SIGINT is not such a call: no statement has raised its KeyboardInterrupt.
    """
    codes: set[CodeType] = set()
    trace, is_raised_by_statement = error.__traceback__, False
    while trace is not None:
        code = trace.tb_frame.f_code
        codes.add(code)
        is_raised_by_statement = code.co_code[trace.tb_lasti] == _RAISE
        trace = trace.tb_next
    for number in signal.Signals:
        handler = signal.getsignal(number)
        if getattr(getattr(handler, "__func__", handler), "__code__", None) in codes:
            return number
    return signal.SIGINT if isinstance(error, KeyboardInterrupt) and not is_raised_by_statement else None
