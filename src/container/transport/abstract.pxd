# The error of an abstract class of the seam whose method is missing.
cdef inline object abstract(object self, str method):
    return TypeError(f"{type(self).__name__} does not implement {method}()")
