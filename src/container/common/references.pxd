# Whether anybody beside its owner refers to an object: only then may what the owner hands out be used again.
cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    /* Of the thread that made the object; on any other the answer is no. The fence orders what another thread read
       before it let go with what is written now. */
    static inline int container_is_uniquely_referenced(PyObject *object)
    {
    #if PY_VERSION_HEX >= 0x030E0000
        const int is_unique = PyUnstable_Object_IsUniquelyReferenced(object);
    #else
        /* All of ob_ref_shared, its flags too: no other thread can get at the object any more. */
        const int is_unique = _Py_IsOwnedByCurrentThread(object)
            && __atomic_load_n(&object->ob_ref_local, __ATOMIC_RELAXED) == 1
            && __atomic_load_n(&object->ob_ref_shared, __ATOMIC_RELAXED) == 0;
    #endif
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        return is_unique;
    }
    #else
    #define container_is_uniquely_referenced(object) (Py_REFCNT(object) == 1)
    #endif
    """
    bint is_uniquely_referenced "container_is_uniquely_referenced" (object object) noexcept
