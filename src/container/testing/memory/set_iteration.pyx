"""Shows each iteration over a set to a function: it stands before the slot through which Python iterates over sets."""

cdef extern from "Python.h":
    ctypedef object (*getiterfunc)(object)
    ctypedef struct PyTypeObject:
        getiterfunc tp_iter
    PyTypeObject PySet_Type
    PyTypeObject PyFrozenSet_Type

cdef getiterfunc original = PySet_Type.tp_iter
cdef object look = None
cdef bint is_looking = False


cdef object iterate(object iterable):
    global is_looking
    if look is not None and not is_looking:
        is_looking = True
        try:
            look(iterable)
        finally:
            is_looking = False
    return original(iterable)


cdef int replace(object kind, getiterfunc old, getiterfunc new) except -1:
    """Replace the slot of a type and of the types below it that have it from there."""
    cdef PyTypeObject *slots = <PyTypeObject *> <void *> kind
    if slots.tp_iter == old:
        slots.tp_iter = new
        for below in type.__subclasses__(kind):
            replace(below, old, new)
    return 0


def show_iterations(function):
    """Call a function with each set that is iterated over, before that; None ends it.

    Types that define ``__iter__`` are not shown, and neither is what reads a set without an iterator: the methods and
    operators of sets, and in Python 3.13 and newer ``list`` and what works like it.
    """
    global look
    look = function
    for kind in (set, frozenset):
        if function is None:
            replace(kind, iterate, original)
        else:
            replace(kind, original, iterate)
