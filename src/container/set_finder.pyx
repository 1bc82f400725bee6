"""Finds the sets in what msgspec is to encode: it writes them in their order in memory, which differs between members.

Declared types do not bind what a field holds, so the values themselves are looked at.
"""
from enum import Enum

from msgspec import Struct

cdef dict _fields_by_type = {}              # type -> names of the fields that msgspec encodes; None: it has none


cdef inline bint _is_plain(object value) noexcept:
    # What can hold nothing else, and is most of what there is.
    return (type(value) is int or type(value) is str or type(value) is float or value is None or value is True
            or value is False or type(value) is bytes)


cdef tuple _fields_of(object kind):
    names = None
    if issubclass(kind, Struct):
        names = kind.__struct_fields__
    elif hasattr(kind, "__dataclass_fields__"):
        names = tuple(kind.__dataclass_fields__)
    elif hasattr(kind, "__attrs_attrs__"):
        names = tuple([attribute.name for attribute in kind.__attrs_attrs__])
    elif issubclass(kind, Enum):
        names = ("value",)
    _fields_by_type[kind] = names
    return names


cdef tuple _find(object value):
    """The path to the first set in a value, from its end to its beginning; None when there is none."""
    cdef tuple names
    cdef tuple found
    if isinstance(value, dict):
        for key, item in (<dict> value).items():
            if not _is_plain(key):
                found = _find(key)
                if found is not None:
                    return (*found, f", key {key!r:.50}")
            if not _is_plain(item):
                found = _find(item)
                if found is not None:
                    return (*found, f"[{key!r:.50}]")
        return None
    if isinstance(value, (list, tuple)):
        for item in value:
            if not _is_plain(item):
                found = _find(item)
                if found is not None:
                    return (*found, f"[{value.index(item)}]")
        return None
    if isinstance(value, (set, frozenset)):
        return ()
    names = _fields_by_type[type(value)] if type(value) in _fields_by_type else _fields_of(type(value))
    if names is not None:
        for name in names:
            field = getattr(value, name, None)
            if not _is_plain(field):
                found = _find(field)
                if found is not None:
                    return (*found, f".{name}")
    return None


def find_set(state, str name not None):
    """Where the first set is in ``state`` (str), which is called ``name``, or None.

    ``state`` is one that msgspec has encoded: it is no deeper than that allows, and refers to itself nowhere.
    """
    found = None if _is_plain(state) else _find(state)
    return None if found is None else name + "".join(reversed(found))
