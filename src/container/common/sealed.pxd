# Closes extension types at the end of their module: only a call of the type makes an object, and initialises it once.
# Methods rely on what __init__ sets and check nothing, so an object without it would crash the interpreter.
cdef extern from *:
    """
    static int container_refuse(PyObject *self, PyObject *arguments, PyObject *keywords) {
        (void) arguments;
        (void) keywords;
        PyErr_Format(PyExc_TypeError, "cannot create a %s: only the package makes these objects",
                     Py_TYPE(self)->tp_name);
        return -1;
    }

    /* Takes __new__ and __init__ from Python alone: object's, which it finds instead, refuse. Cython and a call of the
       type use the slots, which stay. No class in Python can derive from the type and leave its __init__ out. */
    static int container_seal(PyObject *sealed, int is_hidden) {
        static const char *const closed[] = {"__new__", "__init__"};
        PyTypeObject *const type = (PyTypeObject *) sealed;
        PyObject *const attributes = PyType_GetDict(type);
        int result = attributes == NULL ? -1 : 0;
        for (size_t i = 0; result >= 0 && i < sizeof closed / sizeof *closed; i++) {
            PyObject *const name = PyUnicode_InternFromString(closed[i]);
            result = name == NULL ? -1 : PyDict_Contains(attributes, name);
            if (result > 0)
                result = PyDict_DelItem(attributes, name);
            Py_XDECREF(name);
        }
        Py_XDECREF(attributes);
        if (result < 0)
            return -1;
        if (is_hidden) {
            type->tp_init = container_refuse;
            type->tp_vectorcall = NULL;
        }
        type->tp_flags &= ~Py_TPFLAGS_BASETYPE;
        PyType_Modified(type);
        return 0;
    }

    static int container_initialise(PyObject *base, PyObject *self, PyObject *arguments, PyObject *keywords) {
        return ((PyTypeObject *) base)->tp_init(self, arguments, keywords);
    }
    """
    int _seal "container_seal" (object sealed, bint is_hidden) except -1
    # Same as base.__init__(self, *arguments, **keywords), for a type derived from a sealed one.
    int initialise "container_initialise" (object base, object self, tuple arguments, dict keywords) except -1


cdef inline int seal(tuple types) except -1:
    for sealed in types:
        _seal(sealed, False)
    return 0


# Those that a call does not make either: Cython makes them with __new__ and sets their fields.
cdef inline int hide(tuple types) except -1:
    for hidden in types:
        _seal(hidden, True)
    return 0
