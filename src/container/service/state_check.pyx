"""Checks that a state which msgspec has encoded comes back as it is: each value, and of the very same type.

msgspec writes what is there and not what the type declares: a text in a number's field, a tuple in a field of any
type, a struct derived from the declared one. Some of that cannot be read back, the rest comes back as something else.
Here a value passes when its type is exactly what decoding makes for the declared type. Where more than that decides
(constraints, `__post_init__`, dates, enums, dataclasses …) the value itself is decoded from its encoding and compared.

A container that is in a state twice comes back as two. Then a change of one no longer changes the other, so it is
refused.
"""
import enum
import functools
import types
import typing

from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free

import msgspec
from msgspec import Struct, UnsetType

from container.common.sealed cimport hide
from container.common.values import shown
from container.errors import ConfigurationError

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object value) noexcept
    int Py_EnterRecursiveCall(const char* where) except -1
    void Py_LeaveRecursiveCall() noexcept

cdef enum:
    SCALAR
    ANY
    LIST
    TUPLE
    DICT
    STRUCT
    UNION
    DECODED                                     # is decoded from its encoding and compared

cdef enum:
    MAX_DEPTH = 1000                            # every Python reads that, and from any callback
    MAX_PATH_LENGTH = 400

cdef dict _rules = {}                           # a state's type -> its _Rule, complete
cdef tuple _SCALARS = (bool, int, float, str, bytes, type(None))


class _Difference(Exception):
    """A part of a state that would not come back, and the parts of its path, from the end."""

    def __init__(self, reason):
        self.reason = reason
        self.path = []


cdef class _Rule:
    """The rule for values of one declared type."""

    cdef int kind
    cdef bint is_frozen                         # STRUCT
    cdef bint has_dict                          # STRUCT
    cdef object type                            # what is declared
    cdef object exact                           # what values are made of; None where that depends on the value
    cdef tuple parts                            # rules of elements, of key and value, of fields, of alternatives
    cdef tuple names                            # of a STRUCT's fields
    cdef object decoder


cdef class _Addresses:
    """A set of addresses, of 8 to 16 bytes for each."""

    cdef uintptr_t* _slots
    cdef size_t _capacity
    cdef size_t _count

    def __dealloc__(self):
        free(self._slots)

    cdef bint add(self, uintptr_t address) except -1:
        """Whether it is new."""
        if 2 * self._count >= self._capacity:
            self._grow()
        if not self._put(address):
            return False
        self._count += 1
        return True

    cdef bint _put(self, uintptr_t address) noexcept:
        cdef size_t index = (address >> 4) * <uintptr_t> 0x9E3779B97F4A7C15u & self._capacity - 1
        while self._slots[index] != 0:
            if self._slots[index] == address:
                return False
            index = index + 1 & self._capacity - 1
        self._slots[index] = address
        return True

    cdef int _grow(self) except -1:
        cdef uintptr_t* slots = self._slots
        cdef size_t capacity = self._capacity
        cdef size_t index
        cdef size_t grown = 2 * capacity if capacity > 0 else 1024
        cdef void* room = calloc(grown, sizeof(uintptr_t))
        if room == NULL:
            raise MemoryError("no memory to check a state")
        self._slots = <uintptr_t*> room
        self._capacity = grown
        for index in range(capacity):
            if slots[index] != 0:
                self._put(slots[index])
        free(slots)
        return 0


cdef inline bint _is_scalar(object value) noexcept:
    return (type(value) is int or type(value) is str or type(value) is float or value is None or value is True
            or value is False or type(value) is bytes)


cdef _Rule _rule_of(object declared, dict known):
    """``known``: rules made so far, which may not be complete yet, as a type may contain itself."""
    cdef _Rule rule
    declared = _without_alias(declared)
    rule = known.get(declared)
    if rule is None:
        rule = known[declared] = _Rule.__new__(_Rule)
        _complete(rule, declared, known)
    return rule


cdef object _without_alias(object declared):
    while True:
        if isinstance(declared, typing.TypeAliasType):
            declared = declared.__value__
        elif isinstance(declared, typing.NewType):
            declared = declared.__supertype__
        elif isinstance(declared, typing.TypeVar):
            declared = typing.Any if declared.__bound__ is None else declared.__bound__
        elif declared is None:
            declared = type(None)
        elif typing.get_origin(declared) is typing.Annotated and not any(
                [isinstance(each, msgspec.Meta) for each in declared.__metadata__]):
            declared = declared.__origin__      # notes for others, which may be anything
        else:
            return declared


cdef int _complete(_Rule rule, object declared, dict known) except -1:
    cdef object origin = typing.get_origin(declared) or declared
    cdef tuple arguments = typing.get_args(declared)
    rule.type = declared
    rule.parts = ()
    if declared is typing.Any or declared is object:
        rule.kind = ANY
    elif declared in _SCALARS:
        rule.kind = SCALAR
    elif origin is list:
        rule.kind = LIST
        rule.parts = _rules_of(arguments or (typing.Any,), known)
    elif origin is dict:
        rule.kind = DICT
        rule.parts = _rules_of(arguments or (typing.Any, typing.Any), known)
    elif origin is tuple:
        _complete_tuple(rule, declared, arguments, known)
    elif origin is typing.Union or origin is types.UnionType:
        rule.parts = _rules_of(arguments, known)
        rule.kind = UNION if _is_plain_union(rule.parts) else DECODED
    elif isinstance(declared, type) and issubclass(declared, enum.Enum) and _is_plain_enum(declared):
        rule.kind = SCALAR
    elif isinstance(declared, type) and issubclass(declared, Struct) and origin is declared:
        _complete_struct(rule, declared, known)
    else:
        rule.kind = DECODED
    if rule.kind == LIST:
        rule.exact = tuple if rule.is_frozen else list
    elif rule.kind == TUPLE:
        rule.exact = tuple
    elif rule.kind == DICT:
        rule.exact = dict
    elif rule.kind == SCALAR or rule.kind == STRUCT:
        rule.exact = declared
    return 0


cdef tuple _rules_of(tuple declared, dict known):
    return tuple([_rule_of(each, known) for each in declared])


cdef int _complete_tuple(_Rule rule, object declared, tuple arguments, dict known) except -1:
    if declared is tuple or declared is typing.Tuple:
        arguments = (typing.Any, ...)
    if len(arguments) == 2 and arguments[1] is ...:
        rule.kind = LIST
        rule.is_frozen = True
        arguments = arguments[:1]
    else:
        rule.kind = TUPLE
    rule.parts = _rules_of(arguments, known)
    return 0


cdef bint _is_plain_union(tuple parts) except -1:
    # Each alternative is known by its value's type, as it is by what is written of it.
    cdef _Rule part
    for part in parts:
        if part.kind not in (SCALAR, LIST, TUPLE, DICT, STRUCT):
            return False
    return True


cdef bint _is_plain_enum(object declared) except -1:
    """Whether each member comes back as itself."""
    if issubclass(declared, enum.Flag):
        return False                            # combinations of members are values as well
    cdef bint is_plain = False
    try:
        is_plain = all([msgspec.msgpack.decode(msgspec.msgpack.encode(member), type=declared) is member
                        for member in declared])
    except (msgspec.MsgspecError, TypeError, ValueError):
        pass
    return is_plain


cdef int _complete_struct(_Rule rule, object declared, dict known) except -1:
    cdef list fields = list(msgspec.structs.fields(declared))
    rule.kind = STRUCT
    rule.is_frozen = declared.__struct_config__.frozen
    rule.has_dict = declared.__struct_config__.dict
    rule.names = tuple([field.name for field in fields])
    rule.parts = _rules_of(
        tuple([field.type for field in fields if not _may_be_unset(field.type)]), known)
    if hasattr(declared, "__post_init__") or len(rule.parts) < len(fields):
        rule.kind = DECODED
    return 0


cdef bint _may_be_unset(object declared) except -1:
    # Such a field is not written when it is UNSET: its struct has to be decoded.
    return declared is UnsetType or UnsetType in typing.get_args(declared)


cdef class _Check:
    cdef _Addresses _seen                       # containers that may change and may be met again
    cdef int _depth

    cdef int value(self, _Rule rule, object value, bint is_shared) except -1:
        """``is_shared``: what this is part of may be met again."""
        if self._depth >= MAX_DEPTH:
            raise _Difference(f"is below {MAX_DEPTH} others: a member that loads the snapshot may fail to read it; "
                              "keep the parts in a list or a dict, and let them refer to each other by a key")
        self._depth += 1
        self._value(rule, value, is_shared)
        self._depth -= 1
        return 0

    cdef int _value(self, _Rule rule, object value, bint is_shared) except -1:
        cdef int kind = rule.kind
        if rule.exact is None:
            return self._loose(rule, value, is_shared)
        if type(value) is not rule.exact:
            raise _mismatch(rule, value)
        if kind == STRUCT:
            return self._struct(rule, value, is_shared)
        if kind == DICT:
            return self._dict(<_Rule> rule.parts[0], <_Rule> rule.parts[1], value, is_shared)
        if kind == TUPLE:
            return self._tuple(rule, value, is_shared)
        if kind == LIST and rule.is_frozen:
            return self._items(<_Rule> rule.parts[0], value, is_shared or Py_REFCNT(value) > 2)
        if kind == LIST:
            return self._list(<_Rule> rule.parts[0], value, is_shared)
        return 0

    cdef int _loose(self, _Rule rule, object value, bint is_shared) except -1:
        if rule.kind == ANY:
            if _is_scalar(value):
                return 0
            if type(value) is list:
                return self._list(rule, value, is_shared)
            if type(value) is dict:
                return self._dict(rule, rule, value, is_shared)
            return self._decoded(rule, value)
        if rule.kind == DECODED:
            return self._decoded(rule, value)
        return self._union(rule, value, is_shared)

    cdef int _see(self, object value, bint is_shared) except -1:
        # One reference is the caller's, one of what holds it: whatever is held twice has more.
        if (is_shared or Py_REFCNT(value) > 2) and not self._seen.add(<uintptr_t> <void*> value):
            raise _Difference("is the same object as another part of the state: a member that loads the snapshot would "
                              "have two, and change only one; keep it once, and refer to it by a key")
        return 0

    # A value has a reference from its parent and one from the caller's variable; no argument here takes another.

    cdef int _list(self, _Rule rule, object value, bint is_shared) except -1:
        self._see(value, is_shared)
        return self._items(rule, value, False)

    cdef int _items(self, _Rule rule, object value, bint is_shared) except -1:
        cdef Py_ssize_t index = 0
        try:
            for item in value:
                if rule.kind != SCALAR or type(item) is not rule.exact:
                    self.value(rule, item, is_shared)
                index += 1
        except _Difference as difference:
            difference.path.append(f"[{index}]")
            raise
        return 0

    cdef int _tuple(self, _Rule rule, object value, bint is_shared) except -1:
        cdef Py_ssize_t index = 0
        if len(value) != len(rule.parts):
            raise _mismatch(rule, value)
        try:
            for item in <tuple> value:
                self.value(<_Rule> rule.parts[index], item, is_shared or Py_REFCNT(value) > 2)
                index += 1
        except _Difference as difference:
            difference.path.append(f"[{index}]")
            raise
        return 0

    cdef int _dict(self, _Rule key_rule, _Rule rule, object value, bint is_shared) except -1:
        key = item = None
        cdef bint is_key = False
        self._see(value, is_shared)
        try:
            for key, item in (<dict> value).items():
                if (key_rule.kind != SCALAR or type(key) is not key_rule.exact or type(key) is float):
                    is_key = True
                    self._key(key_rule, key)
                    is_key = False
                if rule.kind != SCALAR or type(item) is not rule.exact:
                    self.value(rule, item, False)
        except _Difference as difference:
            difference.path.append(f", key {shown(key)}" if is_key else f"[{shown(key)}]")
            raise
        return 0

    cdef int _key(self, _Rule rule, object key) except -1:
        if _has_nan(key):
            raise _Difference("is NaN, which no look-up finds again when it was loaded; use another key")
        if rule.kind != ANY or _is_scalar(key):
            return self.value(rule, key, True)
        if not _same({key: None}, _decoder_of(rule).decode(msgspec.msgpack.encode({key: None}))):
            raise _Difference("would come back as something else; declare the type of the dict's keys")
        return 0

    cdef int _struct(self, _Rule rule, object value, bint is_shared) except -1:
        cdef Py_ssize_t index = 0
        cdef _Rule part
        if rule.is_frozen:
            is_shared = is_shared or Py_REFCNT(value) > 2
        else:
            self._see(value, is_shared)
            is_shared = False
        if rule.has_dict:
            _check_attributes(value)
        try:
            for index in range(len(rule.names)):
                part = <_Rule> rule.parts[index]
                item = getattr(value, rule.names[index])
                if part.kind != SCALAR or type(item) is not part.exact:
                    self.value(part, item, is_shared)
        except _Difference as difference:
            difference.path.append(f".{rule.names[index]}")
            raise
        return 0

    cdef int _union(self, _Rule rule, object value, bint is_shared) except -1:
        cdef _Rule part
        for part in rule.parts:
            if type(value) is part.exact:
                return self._value(part, value, is_shared)
        raise _mismatch(rule, value)

    cdef int _decoded(self, _Rule rule, object value) except -1:
        if isinstance(value, (set, frozenset)):
            raise _mismatch(rule, value)
        try:
            restored = _decoder_of(rule).decode(msgspec.msgpack.encode(value))
            is_same = _same(value, restored)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise _Difference(
                f"is {shown(value)}, which cannot be read back as {_name_of(rule)}: {error}") from None
        if not is_same:
            raise _Difference(
                f"is {shown(value)} and would come back as {shown(restored)} ({type(restored).__name__}): a member "
                "that loads the snapshot would differ from the others")
        return self._see_parts(value)

    cdef int _see_parts(self, object value) except -1:
        """Containers below a value that was decoded as a whole."""
        if _is_scalar(value):
            return 0
        if isinstance(value, Struct):
            if not value.__struct_config__.frozen:
                self._see(value, True)
            for name in value.__struct_fields__:
                self._see_parts(getattr(value, name))
        elif isinstance(value, dict):
            self._see(value, True)
            for item in value.values():
                self._see_parts(item)
        elif isinstance(value, (list, tuple)):
            if isinstance(value, list):
                self._see(value, True)
            for item in value:
                self._see_parts(item)
        elif isinstance(value, bytearray):
            self._see(value, True)
        elif hasattr(type(value), "__dataclass_fields__") or hasattr(type(value), "__attrs_attrs__"):
            if not getattr(getattr(type(value), "__dataclass_params__", None), "frozen", False):
                self._see(value, True)
            for item in _attributes_of(value).values():
                self._see_parts(item)
        return 0


cdef object _decoder_of(_Rule rule):
    if rule.decoder is None:
        rule.decoder = msgspec.msgpack.Decoder(rule.type)
    return rule.decoder


cdef str _name_of(_Rule rule):
    return getattr(rule.type, "__qualname__", None) or str(rule.type)


cdef object _mismatch(_Rule rule, object value):
    if isinstance(value, (set, frozenset)):
        return _Difference("is a set: the order of its elements differs between members; use a dict or a sorted list")
    return _Difference(
        f"is {shown(value)} ({type(value).__qualname__}), and its type is {_name_of(rule)}: a member that loads the "
        "snapshot would fail, or differ from the others")


cdef int _check_attributes(object value) except -1:
    for name in value.__dict__:
        if not _is_computed(value, name):
            error = _Difference("is not a field of its struct, and would be gone; declare it")
            error.path.append(f".{name}")
            raise error
    return 0


cdef bint _is_computed(object value, str name) except -1:
    """Whether a ``cached_property`` keeps it, which must be what a member that has just loaded computes."""
    kept = getattr(type(value), name, None)
    if not isinstance(kept, functools.cached_property):
        return False
    if not _same(value.__dict__[name], kept.func(value)):
        error = _Difference("was computed from what has changed since: a member that loads the snapshot would compute "
                            "another value; delete it when that changes")
        error.path.append(f".{name}")
        raise error
    return True


cdef bint _has_nan(object key) except -1:
    if type(key) is float:
        return key != key
    if isinstance(key, Struct):
        return any([_has_nan(getattr(key, name)) for name in key.__struct_fields__])
    return isinstance(key, tuple) and any([_has_nan(part) for part in key])


cdef bint _same(object one, object other) except -1:
    """Whether two values are equal, and of the same types all through. Raises TypeError when that cannot be known."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if _is_scalar(one):
        return one == other if type(one) is not float else repr(one) == repr(other)
    Py_EnterRecursiveCall(" in the check of a state")
    try:
        if type(one) is list or type(one) is tuple:
            return len(one) == len(other) and all(
                [_same(mine, its) for mine, its in zip(one, other)])
        if type(one) is dict:
            return _same(list(one.items()), list(other.items()))
        if isinstance(one, (set, frozenset)):
            return False
        if isinstance(one, Struct) or hasattr(type(one), "__dataclass_fields__") or hasattr(
                type(one), "__attrs_attrs__"):
            return _same(_attributes_of(one), _attributes_of(other))
        return _same(one.__reduce_ex__(4), other.__reduce_ex__(4))
    finally:
        Py_LeaveRecursiveCall()


cdef dict _attributes_of(object value):
    cdef dict found = {}
    names = getattr(value, "__struct_fields__", None) or getattr(value, "__dataclass_fields__", None) or [
        attribute.name for attribute in getattr(value, "__attrs_attrs__", ())]
    for name in names:
        found[name] = getattr(value, name, msgspec.UNSET)
    for name, item in getattr(value, "__dict__", {}).items():
        if not _is_computed(value, name):
            found[name] = item
    return found


def check_state(state, state_type, str name not None):
    """Raise ConfigurationError, with the place, unless ``state`` (called ``name``) comes back as it is.

    ``state`` is one that msgspec has encoded: it is no deeper than that allows, and refers to itself nowhere.
    """
    cdef _Check check = _Check.__new__(_Check)
    cdef _Rule rule = _rules.get(state_type)
    if rule is None:
        rule = _rules[state_type] = _rule_of(state_type, {})
    check._seen = _Addresses.__new__(_Addresses)
    try:
        check.value(rule, state, False)
    except _Difference as difference:
        path = "".join(reversed(difference.path))
        if len(path) > MAX_PATH_LENGTH:
            path = f"{path[:MAX_PATH_LENGTH // 2]}…{path[-MAX_PATH_LENGTH // 2:]}"
        raise ConfigurationError(f"{name}{path} {difference.reason}") from None


hide((_Rule, _Addresses, _Check))
