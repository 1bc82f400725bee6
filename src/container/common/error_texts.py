"""The identity of an exception, and its text: both of bounded length, whatever the exception is.

An exception may come from a service, so nothing of it is trusted: its message may have megabytes, its traceback and its
chain of causes thousands of members, and each of its methods and attributes may raise, even SystemExit.

There may also be no memory. Python 3.13.0 frees code that is in use when it has no memory for a function made of it
(python/cpython#122752). So what an error comes through has neither generator expressions nor nested functions.
"""

from __future__ import annotations

import importlib
import linecache
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from container.common import interruptions
from container.common.regular_files import read_regular
from container.errors import AgentTermination, Category, Event

TEXT_LENGTH_MAX = 16 * 1024
"""Characters of a whole text."""
MESSAGE_LENGTH_MAX = 4 * 1024
"""Characters of one exception's message."""
LINE_LENGTH_MAX = 100
"""Characters of an error of which there is room for one line only."""

_NAME_LENGTH_MAX = 200
_SOURCE_LENGTH_MAX = 200
_SOURCE_FILE_LENGTH_MAX = 4 * 1024 * 1024
_PLACE_LENGTH_MAX = 40
_NEAREST_EXCEPTIONS = 5
_FARTHEST_EXCEPTIONS = 3
_CHAIN_WALK_MAX = 100
_FIRST_FRAMES = 10
_LAST_FRAMES = 30
_FRAME_WALK_MAX = 2_000
_MEMBERS_MAX = 8
_NOTES_MAX = 5
_EDGE_LENGTH = 1_024
_HIDDEN = "<its message is left out>"
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"

# The attributes as the interpreter keeps them, whatever a class of the service's makes of their names.
cause_of = BaseException.__dict__["__cause__"].__get__
context_of = BaseException.__dict__["__context__"].__get__
members_of = BaseExceptionGroup.__dict__["exceptions"].__get__
_traceback_of = BaseException.__dict__["__traceback__"].__get__
_is_context_suppressed = BaseException.__dict__["__suppress_context__"].__get__
_name_of_type = type.__dict__["__qualname__"].__get__
_module_of_type = type.__dict__["__module__"].__get__

_remarks: dict[int, str] = {}  # by id() of exceptions that are being reported
_facts: dict[int, dict[str, Any]] = {}  # the same
_LIBRARY = f"{Path(importlib.__file__).parents[1]}{os.sep}"
_OWN_DIRECTORY = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_SOURCES_MAX = 64
_sources: dict[str, list[str]] = {}  # lines by file name


def report_with(
    remark: str,
    error: BaseException,
    handler: Callable[[BaseException], object],
    facts: dict[str, Any] | None = None,
) -> None:
    """Call a handler with an exception of which, until it returns, texts say more: where it came from, what it means.

    The exception itself stays as it is: it may be raised again, or refuse to be changed. ``facts`` are what the remark
    says, for programs.
    """
    _remarks[id(error)] = remark
    if facts is not None:
        _facts[id(error)] = facts
    try:
        handler(error)
    finally:
        _remarks.pop(id(error), None)
        _facts.pop(id(error), None)


def remark_on(error: BaseException) -> str:
    """The remark with which an exception is being reported, or an empty text."""
    return _remarks.get(id(error), "")


def facts_on(error: BaseException) -> dict[str, Any]:
    """The facts with which an exception is being reported, or that the end of an agent has: names and values."""
    if not issubclass(type(error), AgentTermination):
        return _facts.get(id(error), {})
    try:
        facts: Any = getattr(error, "facts", None)
    except BaseException as unreadable:  # as above
        interruptions.keep(unreadable)
        return {}
    return facts if type(facts) is dict else {}


def shorten(text: str, length_max: int) -> str:
    """A text of at most about ``length_max`` characters: its beginning and its end, with what was left out between."""
    length = str.__len__(text)
    if length <= length_max:
        return str.__str__(text)
    end = length_max // 4
    begin = length_max - end
    head, tail = str.__getitem__(text, slice(0, begin)), str.__getitem__(text, slice(length - end, length))
    return f"{head}... {length - length_max} characters left out ...{tail}"


def type_name(error: BaseException) -> str:
    """The name of an exception's type with its module; built-in types have no module."""
    kind = type(error)
    module = _module_of_type(kind)
    name = shorten(_name_of_type(kind), _NAME_LENGTH_MAX)
    if not issubclass(type(module), str):
        return name
    module = shorten(module, _NAME_LENGTH_MAX)
    return name if module == "builtins" else f"{module}.{name}"


def message_of(error: BaseException, *, is_shown: bool = True) -> str:
    """An exception's message, shortened.

    ``is_shown=False`` leaves it out, except for the container's own texts: its events, and why the agent ended unless
    an exception of the service is the cause.
    """
    if not (is_shown or issubclass(type(error), Event) or is_plain_end(error)):
        return _HIDDEN
    try:
        return shorten(str(error), MESSAGE_LENGTH_MAX)
    except BaseException as unprintable:  # SystemExit as well: nothing that a text raises may end the agent
        interruptions.keep(unprintable)
        return f"<its text could not be made: {type_name(unprintable)}>"


def headline(error: BaseException, *, has_message: bool = True) -> str:
    """The first line of an error's record: ``<type>: <CATEGORY> - <message>``."""
    text = message_of(error, is_shown=has_message)
    category = category_of(error)
    if category is not None:
        text = f"{category.value} - {text}"
    name = type_name(error)
    return f"{name}: {text}" if text else name


def category_of(error: BaseException) -> Category | None:
    """The category of an exception of Aeron or of the container; None when it has none."""
    try:
        category: Any = getattr(error, "category", None)
    except BaseException as unreadable:  # as above
        interruptions.keep(unreadable)
        return None
    return category if type(category) is Category else None


def is_plain_end(error: BaseException) -> bool:
    """Whether it is the end of the agent, with no other exception as the cause."""
    return issubclass(type(error), AgentTermination) and cause_of(error) is None


def has_stack(error: BaseException) -> bool:
    """Whether there is more to say than the first line: an event has no stack worth showing."""
    if issubclass(type(error), Event):
        return False
    if issubclass(type(error), BaseExceptionGroup):
        return True  # its members
    return not (_traceback_of(error) is cause_of(error) is context_of(error) is None)


def identify(error: BaseException, *, has_message: bool = True) -> tuple[int, int]:
    """Two hashes that distinguish an error: of its place (type and stack, with those of the causes), and of all of it.

    An error that was never raised has no stack: there the beginning of its message counts as the place, up to the first
    colon and without digits. Text from others, such as a channel, stands behind that, and makes no new places.
    """
    places: list[object] = []
    messages: list[object] = []
    chain = _chain(error)[0] if has_stack(error) else [error]
    for each in chain:
        places.append(type_name(each))
        messages.append(_edges(message_of(each, is_shown=has_message)))
        frames, _ = _frames(each)
        places += [(code.co_filename, code.co_name, line) for code, line in frames]
        if issubclass(type(each), BaseExceptionGroup):
            for member in members_of(each)[:_MEMBERS_MAX]:
                places.append(type_name(member))
                messages.append(_edges(message_of(member, is_shown=has_message)))
    if len(places) == 1:
        places.append(_begin_of(message_of(error, is_shown=has_message)))
    place = hash(tuple(places))
    return place, hash((place, *messages))


def kind_of(error: BaseException) -> int:
    """A hash of the kind of error: the type and the line that raised it, and those of its causes.

    Code alone makes kinds, whatever clients send. An error that was never raised counts by the beginning of its
    message, like in :func:`identify`.
    """
    parts: list[object] = []
    for each in _chain(error)[0] if has_stack(error) else [error]:
        frames, _ = _frames(each)
        code, line = frames[-1] if frames else (None, 0)
        parts.append((type_name(each), code and code.co_filename, line))
    if parts[0] == (type_name(error), None, 0):
        parts.append(_begin_of(message_of(error)))
    return hash(tuple(parts))


def line_of(error: BaseException, *, has_message: bool = True) -> str:
    """One line of at most 100 characters: type, message and where it was raised, each as far as there is room."""
    frames, _ = _frames(error)
    place = f" (in {frames[-1][0].co_name[:_PLACE_LENGTH_MAX]}, line {frames[-1][1]})" if frames else ""
    text = " ".join(headline(error, has_message=has_message).split())
    length_max = LINE_LENGTH_MAX - len(place)
    return (text if len(text) <= length_max else f"{text[: length_max - 3]}...") + place


def error_text(error: BaseException, *, has_message: bool = True) -> str:
    """The text under which an exception is recorded, of at most about 16 KiB; nothing of it can make this raise.

    The first line is its type, category and message, the next one the remark, if there is one. A traceback with the
    chain of causes follows, unless the exception is an :class:`~container.errors.Event` or was never raised. A longer
    text loses its middle.

    Args:
        error: the exception.
        has_message: False leaves the messages out, its own and those of its causes.
    """
    text = headline(error, has_message=has_message)
    remark = remark_on(error)
    if remark:
        text = f"{text}\n{remark}"
    if not has_stack(error):
        return text
    return f"{text}\n{stack_text(error, has_message=has_message)}"


def stack_text(error: BaseException, *, has_message: bool = True) -> str:
    """The traceback of an exception and of its causes, much as Python prints it.

    The container's frames that have called the user's code stand behind it.
    """
    return _chain_text(*_chain(error), has_message=has_message, is_users=False)


def user_stack_text(error: BaseException) -> str:
    """As :func:`stack_text`, from the user's first frame on, without the frames that import modules.

    Exceptions that have no frame of the user's are left out. It is empty when all are, and when it says no more than
    one line with the exception and its place: there is one exception, with one such frame.
    """
    chain, left_out = _chain(error)
    frames = {id(each): _user_frames(each)[0] for each in chain}
    chain = [each for each in chain if frames[id(each)]]
    if len(chain) + sum(len(frames[id(each)]) for each in chain) <= 2:
        return ""
    return _chain_text(chain, left_out, has_message=True, is_users=True)


def _chain_text(chain: list[BaseException], left_out: int, *, has_message: bool, is_users: bool) -> str:
    parts = []
    for index in range(len(chain) - 1, -1, -1):
        parts.append(_one_text(chain[index], has_message, is_users))
        if left_out > 0 and index == _NEAREST_EXCEPTIONS:
            parts.append(f"... {left_out} exceptions of the chain left out ...")
        elif index > 0:
            parts.append(_CAUSE if cause_of(chain[index - 1]) is not None else _CONTEXT)
    return shorten("\n\n".join(parts), TEXT_LENGTH_MAX - MESSAGE_LENGTH_MAX)


def _is_importer(file_name: str) -> bool:
    return file_name == importlib.__file__ or file_name.startswith("<frozen importlib")


def _chain(error: BaseException) -> tuple[list[BaseException], int]:
    """The exception, its cause, that one's cause and so on; from a long chain both ends, and how many are left out."""
    chain: list[BaseException] = []
    seen = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen and len(chain) < _CHAIN_WALK_MAX:
        seen.add(id(each))
        chain.append(each)
        cause = cause_of(each)
        each = cause if cause is not None or _is_context_suppressed(each) else context_of(each)
    left_out = len(chain) - _NEAREST_EXCEPTIONS - _FARTHEST_EXCEPTIONS
    if left_out <= 0:
        return chain, 0
    return chain[:_NEAREST_EXCEPTIONS] + chain[-_FARTHEST_EXCEPTIONS:], left_out


def _frames(error: BaseException) -> tuple[list[tuple[Any, int]], int]:
    """Code and line of the frames of a traceback; of many the ends, and how many are left out between."""
    first: Any = _traceback_of(error)
    count, each = 0, first
    while each is not None and count < _FRAME_WALK_MAX:  # most tracebacks are short, some are of an endless recursion
        each = each.tb_next
        count += 1
    left_out = max(0, count - _FIRST_FRAMES - _LAST_FRAMES)
    kept = []
    each = first
    for index in range(count):
        if not _FIRST_FRAMES <= index < _FIRST_FRAMES + left_out:
            kept.append((each.tb_frame.f_code, each.tb_lineno))
        each = each.tb_next
    return kept, left_out


def _user_frames(error: BaseException) -> tuple[list[tuple[Any, int]], int]:
    """The same from the first frame on that is of the user's code, without importers; of installed packages as well."""
    found: list[tuple[Any, int]] = []
    each: Any = _traceback_of(error)
    for _ in range(_FRAME_WALK_MAX):
        if each is None:
            break
        code = each.tb_frame.f_code
        is_users = not is_of_standard_library(code.co_filename) and not _is_own(code.co_filename)
        if not _is_importer(code.co_filename) and (found or is_users):
            found.append((code, each.tb_lineno))
        each = each.tb_next
    left_out = max(0, len(found) - _FIRST_FRAMES - _LAST_FRAMES)
    return found[:_FIRST_FRAMES] + found[_FIRST_FRAMES + left_out :], left_out


def _one_text(error: BaseException, has_message: bool, is_users: bool) -> str:
    frames, left_out = _user_frames(error) if is_users else _frames(error)
    own_count = 0
    while own_count < len(frames) and _is_own(frames[own_count][0].co_filename):
        own_count += 1
    if own_count == len(frames):  # nobody else's
        own_count = 0
        if cause_of(error) is not None and issubclass(type(error), AgentTermination):
            frames = []  # the cause says where
    lines = ["Traceback (most recent call last):"] if frames else []
    lines += _frame_lines(frames, own_count, len(frames), left_out)
    text = message_of(error, is_shown=has_message)
    lines.append(f"{type_name(error)}: {text}" if text else type_name(error))
    if has_message:
        lines += _notes(error)
    if issubclass(type(error), BaseExceptionGroup):
        members = members_of(error)
        lines += [f"  + {headline(member, has_message=has_message)}" for member in members[:_MEMBERS_MAX]]
        if len(members) > _MEMBERS_MAX:
            lines.append(f"  + ... {len(members) - _MEMBERS_MAX} members left out ...")
    if own_count > 0:
        lines.append("Called by the container (most recent call last):")
        lines += _frame_lines(frames, 0, own_count, left_out)
    return "\n".join(lines)


def _frame_lines(frames: list[tuple[Any, int]], begin: int, end: int, left_out: int) -> list[str]:
    lines = []
    for index in range(begin, end):
        code, line = frames[index]
        if left_out > 0 and index == _FIRST_FRAMES:
            lines.append(f"  ... {left_out} frames left out ...")
        lines.append(f'  File "{shorten(code.co_filename, _NAME_LENGTH_MAX)}", line {line}, in {code.co_qualname}')
        source = _source(code.co_filename, line)
        if source:
            lines.append(f"    {source}")
    return lines


def is_of_standard_library(file_name: str) -> bool:
    """Whether a frame is of Python's own modules, and not of an installed package."""
    return file_name.startswith(_LIBRARY) and "site-packages" not in file_name


def _is_own(file_name: str) -> bool:
    """Whether a frame is of this package: compiled modules name their files from the root of the sources on."""
    return file_name.startswith(("src/container/", "container/", _OWN_DIRECTORY))


def _source(file_name: str, line: int) -> str:
    try:
        return shorten(_lines_of(file_name)[line - 1].strip(), _SOURCE_LENGTH_MAX)
    except BaseException as unreadable:  # no such file, or none that may be read
        interruptions.keep(unreadable)
        return ""


def _lines_of(file_name: str) -> list[str]:
    """The lines of a source file: those that Python has already, or else of a regular file, which is read once.

    linecache itself would wait for a pipe, read a device without end and ask loaders of the service's.
    """
    known: Any = linecache.cache.get(file_name)
    if known is not None and len(known) > 1:  # a shorter one would be read by a loader
        return known[2]  # type: ignore[no-any-return]
    if file_name not in _sources:
        if len(_sources) >= _SOURCES_MAX:
            _sources.clear()
        _sources[file_name] = read_regular(file_name, _SOURCE_FILE_LENGTH_MAX).decode("utf-8", "replace").split("\n")
    return _sources[file_name]


def _notes(error: BaseException) -> list[str]:
    try:
        notes: Any = getattr(error, "__notes__", None)
        if type(notes) is not list:
            return []
        return [shorten(note, _EDGE_LENGTH) for note in notes[:_NOTES_MAX] if issubclass(type(note), str)]
    except BaseException as unreadable:  # as above
        interruptions.keep(unreadable)
        return []


def _edges(text: str) -> object:
    """The ends and the length of a long text: enough to recognise it, and quick to compare."""
    if len(text) <= 2 * _EDGE_LENGTH:
        return text
    return text[:_EDGE_LENGTH], text[-_EDGE_LENGTH:], len(text)


def _begin_of(text: str) -> str:
    begin = text[:_EDGE_LENGTH].partition(":")[0]
    return "".join([character for character in begin if not "0" <= character <= "9"])
