"""Finds where Python code depends on the order of a set, while it runs."""

from __future__ import annotations

import ast
import builtins
import dis
import itertools
import linecache
import math
import sys
import threading
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from types import BuiltinFunctionType, CodeType, FrameType, MemberDescriptorType
from typing import Any

from container.errors import ContainerError
from container.testing.memory.set_iteration import show_iterations

# From here on lists are made of sets without an iterator: then the expression in the source says whether it is a set.
_LISTS_READ_SETS = sys.version_info >= (3, 13)
_TOOL_NAME = "container.testing.memory.set_uses"
_SETS = (set, frozenset)

# Functions that come to the same whatever the order is, and those whose result is a text for people.
_ORDER_FREE_NAMES = frozenset({"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"})
_TEXTS = (ascii, format, print, repr, str)
_QUIET = [*(getattr(builtins, name) for name in _ORDER_FREE_NAMES), *_TEXTS, math.fsum, math.prod]
# Calls that only hand the elements on: what matters is who takes them.
_HANDING_ON = frozenset({"filter", "iter", "list", "map", "tuple"})
# Methods whose argument becomes a list inside.
_LISTING = (bytearray.join, bytes.join, list.extend, str.join)
_LIST_MAKERS = (bytearray, bytes, list, str)

_CALLS = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})
_ITERATIONS = frozenset(
    {"GET_ITER", "GET_YIELD_FROM_ITER", "LIST_EXTEND", "STORE_SLICE", "STORE_SUBSCR", "UNPACK_EX", "UNPACK_SEQUENCE"}
)
_LIST_EXTEND = dis.opmap["LIST_EXTEND"]
_BINARY_OP = dis.opmap["BINARY_OP"]
_SIGNS = [sign for _name, sign in dis._nb_ops]  # type: ignore[attr-defined]
_ADDITIONS = (_SIGNS.index("+"), _SIGNS.index("+="))
_COMPREHENSIONS = (ast.DictComp, ast.GeneratorExp, ast.ListComp, ast.SetComp)
_UNKNOWN = object()


class SetWatch:
    """Reports uses of sets to ``report(frame, type)`` while it :attr:`is_on`, on the thread that made it.

    The frame is at the line that depends on the order. Sets with fewer than two elements have only one order. The
    standard library and this package may do what they like. Use it as a context manager.

    ``see(function, argument)`` is called for each call in Python with what is called and its first argument; the frame
    that calls is two above its own.
    """

    def __init__(
        self, report: Callable[[FrameType, type], object], see: Callable[[Any, Any], object] | None = None
    ) -> None:
        self.is_on = False
        self._see = see
        self._is_looking = False
        self._report = report
        self._thread = threading.get_ident()
        self._call: tuple[CodeType | None, int, Any] = (None, 0, None)
        self._sources: dict[str, _Source] = {}
        # The last results of Python functions that were sets, by the calling code and the place in it.
        self._returned: dict[tuple[CodeType, int], AbstractSet[Any]] = {}
        self._tool = -1

    def __enter__(self) -> SetWatch:
        monitoring = sys.monitoring
        # Debuggers, coverage and profilers have 0, 1, 2 and 5 by convention.
        free = [tool for tool in (4, 3, 2, 5, 1, 0) if monitoring.get_tool(tool) is None]
        if not free:
            raise ContainerError("sys.monitoring has no tool id left: end a profiler, debugger or coverage tool")
        self._tool = free[0]
        monitoring.use_tool_id(self._tool, _TOOL_NAME)
        events = monitoring.events.CALL
        monitoring.register_callback(self._tool, monitoring.events.CALL, self._on_call)
        if _LISTS_READ_SETS:
            events |= monitoring.events.PY_START | monitoring.events.PY_RETURN
            monitoring.register_callback(self._tool, monitoring.events.PY_START, self._on_start)
            monitoring.register_callback(self._tool, monitoring.events.PY_RETURN, self._on_return)
            monitoring.register_callback(self._tool, monitoring.events.INSTRUCTION, self._on_instruction)
            monitoring.restart_events()
        monitoring.set_events(self._tool, events)
        show_iterations(self._on_iteration)
        return self

    def __exit__(self, *_details: object) -> None:
        show_iterations(None)
        monitoring, events = sys.monitoring, sys.monitoring.events
        monitoring.set_events(self._tool, 0)
        for event in (events.CALL, events.PY_START, events.PY_RETURN, events.INSTRUCTION):
            monitoring.register_callback(self._tool, event, None)
        self._returned.clear()
        monitoring.free_tool_id(self._tool)

    def _is_watched(self) -> bool:
        return self.is_on and threading.get_ident() == self._thread

    def _on_iteration(self, iterable: AbstractSet[Any]) -> None:
        """A set gives out an iterator."""
        if self._is_looking:
            return
        self._is_looking = True  # calls from here are not those of the service
        try:
            if len(iterable) > 1 and self._is_watched():
                self._iterated(sys._getframe(1), iterable)
        finally:
            self._is_looking = False

    def _iterated(self, frame: FrameType, iterable: AbstractSet[Any]) -> None:
        if _is_of_library(frame):
            return
        code, offset = frame.f_code, frame.f_lasti
        name = dis.opname[code.co_code[offset]]
        if name in _CALLS:
            function = self._call[2] if self._call[:2] == (code, offset) else None
            if not _is_quiet(function, iterable):
                self._found(frame, offset, type(iterable))
        elif name in _ITERATIONS or (name == "BINARY_OP" and _is_addition(code, offset)):
            self._found(frame, offset, type(iterable))

    def _on_call(self, code: CodeType, offset: int, function: Any, first: Any) -> None:
        """A function is called; some of C read sets without an iterator."""
        if self._is_looking or not self._is_watched():
            return
        if self._see is not None:
            self._see(function, first)
        self._call = (code, offset, function)
        name = function.__name__ if isinstance(function, BuiltinFunctionType) else ""
        if function is set.pop:
            found = first
        elif name == "pop" and isinstance(function.__self__, set):
            found = function.__self__
        elif name == "fromkeys" and isinstance(function.__self__, type):
            found = first
        elif not _LISTS_READ_SETS:
            return
        elif function is list:
            found = first
        elif any(function is method for method in _LISTING):
            found = self._argument(sys._getframe(1), offset, first)
        elif name in ("extend", "join") and isinstance(function.__self__, _LIST_MAKERS):
            found = first
        else:
            return
        self._look_at(sys._getframe(1), offset, found)

    def _on_return(self, _code: CodeType, _offset: int, value: Any) -> None:
        """A function of Python returns; calls and properties are not repeated to see what they give."""
        is_set = type(value) in _SETS
        if not (is_set or self._returned) or not self._is_watched():
            return
        if (caller := sys._getframe(1).f_back) is not None:
            place = caller.f_code, caller.f_lasti
            if is_set:
                self._returned[place] = value
            else:
                self._returned.pop(place, None)

    def _on_start(self, code: CodeType, _offset: int) -> object:
        instructions = code.co_code[::2]
        if _LIST_EXTEND in instructions or any(
            _is_addition(code, 2 * at) for at, number in enumerate(instructions) if number == _BINARY_OP
        ):
            sys.monitoring.set_local_events(self._tool, code, sys.monitoring.events.INSTRUCTION)
        return sys.monitoring.DISABLE

    def _on_instruction(self, code: CodeType, offset: int) -> object:
        number = code.co_code[offset]
        if number != _LIST_EXTEND and not (number == _BINARY_OP and _is_addition(code, offset)):
            return sys.monitoring.DISABLE
        frame = sys._getframe(1)
        if self._is_watched() and not _is_of_library(frame):
            values = _Values(frame, self._returned)
            for node in self._source(code).at(code, offset):
                for part in _listed(node):
                    self._look_at(frame, offset, values.of(part))
        return None

    def _argument(self, frame: FrameType, offset: int, first: Any) -> Any:
        for node in self._source(frame.f_code).at(frame.f_code, offset):
            if isinstance(node, ast.Call) and node.args:
                return _Values(frame, self._returned).of(node.args[-1])
        return first

    def _look_at(self, frame: FrameType, offset: int, found: Any) -> None:
        if type(found) in _SETS and len(found) > 1 and not _is_of_library(frame):
            self._found(frame, offset, type(found))

    def _found(self, frame: FrameType, offset: int, kind: type) -> None:
        source = self._source(frame.f_code)
        if not any(source.is_order_free(node) for node in source.at(frame.f_code, offset)):
            self._report(frame, kind)

    def _source(self, code: CodeType) -> _Source:
        name = code.co_filename
        if name not in self._sources:
            self._sources[name] = _Source("".join(linecache.getlines(name)))
        return self._sources[name]


class _Source:
    """The syntax tree of a file, by positions; empty when there is none."""

    def __init__(self, text: str) -> None:
        self._parents: dict[ast.AST, ast.AST] = {}
        self._nodes: dict[tuple[int | None, ...], list[ast.AST]] = {}
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):  # no Python
            return
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
            if isinstance(node, (ast.expr, ast.stmt)):
                place = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
                self._nodes.setdefault(place, []).append(node)

    def at(self, code: CodeType, offset: int) -> list[ast.AST]:
        """The expressions and statements that an instruction belongs to."""
        place = next(itertools.islice(code.co_positions(), offset // 2, None))
        return self._nodes.get(place, [])

    def is_order_free(self, node: ast.AST) -> bool:
        """Does what takes the elements of an expression come to the same whatever the order is?"""
        if isinstance(node, (ast.GeneratorExp, ast.List, ast.ListComp)) or (
            isinstance(node, ast.Call) and _name_of(node.func) in _HANDING_ON
        ):
            return self._goes_to_order_free(node)
        if isinstance(node, ast.SetComp):
            return True
        parent = self._parents.get(node)
        if isinstance(parent, ast.Starred):
            return self.is_order_free(self._parents[parent])
        if isinstance(parent, ast.comprehension) and parent.iter is node:
            return self.is_order_free(self._parents[parent])
        return False

    def _goes_to_order_free(self, node: ast.AST) -> bool:
        parent = self._parents.get(node)
        match parent:
            case ast.Call():
                if node not in parent.args:
                    return False
                name = _name_of(parent.func)
                return name in _ORDER_FREE_NAMES or (name in _HANDING_ON and self._goes_to_order_free(parent))
            case ast.comprehension():
                return parent.iter is node and self.is_order_free(self._parents[parent])
            case ast.Starred():
                return isinstance(self._parents[parent], ast.Set)
        return False


def _name_of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_addition(code: CodeType, offset: int) -> bool:
    return code.co_code[offset + 1] in _ADDITIONS


def _listed(node: ast.AST) -> list[ast.expr]:
    """The expressions whose elements a list gets where its instruction belongs to ``node``."""
    match node:
        case ast.AugAssign():
            return [node.value]
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Call(args=parts):
            return [part.value for part in parts if isinstance(part, ast.Starred)]
    return []


def _is_of_library(frame: FrameType) -> bool:
    room = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return room == "container" or room in sys.stdlib_module_names


def _is_quiet(function: Any, iterable: AbstractSet[Any]) -> bool:
    """May a function of C read a set whose order is unknown?"""
    if function is sum:
        return not any(isinstance(element, float) for element in iterable)
    if any(function is each for each in _QUIET):
        return True
    owner = getattr(function, "__objclass__", None) or type(getattr(function, "__self__", None))
    if isinstance(owner, type) and issubclass(owner, _SETS):
        return True
    return str(getattr(function, "__module__", "")).partition(".")[0] == "container"


class _Values:
    """Values of simple expressions of a frame, without a call of anything that the user wrote."""

    def __init__(self, frame: FrameType, returned: dict[tuple[CodeType, int], AbstractSet[Any]]) -> None:
        self._frame = frame
        self._returned = returned

    def of(self, node: ast.AST) -> Any:
        """The value of an expression; ``_UNKNOWN`` for what is not simple."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                for names in (self._frame.f_locals, self._frame.f_globals, vars(builtins)):
                    if node.id in names:
                        return names[node.id]
            case ast.Attribute():
                value = _attribute(self.of(node.value), node.attr)
                return self._result(node) if value is _UNKNOWN else value
            case ast.Subscript():
                return _item(self.of(node.value), self.of(node.slice))
            case ast.Set():
                return _set_of([self.of(part) for part in self._unstarred(node.elts)])
            case ast.BinOp():
                return _combined(type(node.op), self.of(node.left), self.of(node.right))
            case ast.NamedExpr():
                return self.of(node.value)
            case ast.Call():
                value = self._call(node)
                return self._result(node) if value is _UNKNOWN else value
        return _UNKNOWN

    def _call(self, node: ast.Call) -> Any:
        match node:
            case ast.Call(func=ast.Name(id="set" | "frozenset"), args=[argument], keywords=[]):
                value = self.of(argument)
                if type(value) in (bytes, dict, frozenset, list, range, set, str, tuple):
                    return _set_of(list(value))
            case ast.Call(func=ast.Attribute(value=owner, attr=name), args=[argument], keywords=[]) if name in _METHODS:
                return _combined(_METHODS[name], self.of(owner), self.of(argument))
            case ast.Call(func=ast.Attribute(value=owner, attr="copy"), args=[], keywords=[]):
                value = self.of(owner)
                return value if type(value) in _SETS else _UNKNOWN
            case ast.Call(func=ast.Attribute(value=owner, attr="get" | "setdefault"), args=[key, *_], keywords=[]):
                return _item(self.of(owner), self.of(key))
        return _UNKNOWN

    def _result(self, node: ast.expr) -> Any:
        place = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
        code = self._frame.f_code
        for number, found in enumerate(code.co_positions()):
            if found == place and (code, 2 * number) in self._returned:
                return self._returned[code, 2 * number]
        return _UNKNOWN

    def _unstarred(self, nodes: list[ast.expr]) -> Iterator[ast.AST]:
        for node in nodes:
            if not isinstance(node, ast.Starred):
                yield node
            elif type(elements := self.of(node.value)) in (frozenset, list, set, tuple):
                yield from (ast.Constant(element) for element in elements)


_METHODS = {
    "difference": ast.Sub,
    "intersection": ast.BitAnd,
    "symmetric_difference": ast.BitXor,
    "union": ast.BitOr,
}


def _attribute(owner: Any, name: str) -> Any:
    """An attribute that is stored in the instance or its class; properties are not called."""
    if owner is _UNKNOWN:
        return _UNKNOWN
    mro = owner.__mro__ if isinstance(owner, type) else type(owner).__mro__
    stored = next((vars(kind)[name] for kind in mro if name in vars(kind)), _UNKNOWN)
    if isinstance(stored, MemberDescriptorType):
        try:
            return stored.__get__(owner)
        except AttributeError:
            return _UNKNOWN
    values = {} if isinstance(owner, type) else getattr(owner, "__dict__", {})
    return values.get(name, _UNKNOWN if hasattr(type(stored), "__get__") else stored)


def _item(owner: Any, key: Any) -> Any:
    if type(owner) is dict and type(key) in (bytes, int, str):
        return owner.get(key, _UNKNOWN)
    if type(owner) in (list, tuple) and type(key) is int and -len(owner) <= key < len(owner):
        return owner[key]
    return _UNKNOWN


def _set_of(elements: list[Any]) -> Any:
    """Elements that are not known count as others than all the rest."""
    if any(type(element) not in _SIMPLE for element in elements if element is not _UNKNOWN):
        return _UNKNOWN
    known = [element for element in elements if element is not _UNKNOWN]
    return {*known, *(object() for _ in range(len(elements) - len(known)))}


_SIMPLE = (bool, bytes, int, str, type(None))


def _combined(operator: type[ast.operator], one: Any, other: Any) -> Any:
    if type(one) not in _SETS or type(other) not in _SETS:
        return _UNKNOWN
    if any(type(element) not in _SIMPLE for element in itertools.chain(one, other)):
        return _UNKNOWN
    if operator is ast.BitOr:
        return one | other
    if operator is ast.BitAnd:
        return one & other
    if operator is ast.Sub:
        return one - other
    return one ^ other if operator is ast.BitXor else _UNKNOWN
