"""Finds the sentence that says why a Spark worker failed, in the many lines of Spark's error."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from container.errors import ContainerError

# The last line of a Python traceback: an exception of this package, else of any.
_OURS = re.compile(r"^\s*container\.[\w.]*?(\w+): (.+)$", re.MULTILINE)
_ANY = re.compile(r"^(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
# Python only says that Java raised an exception; the last cause names it.
_OF_JAVA = Py4JJavaError.__name__
_CAUSE = re.compile(r"^(?:: |Caused by: )(?!py4j\.)(?:[\w.$]+\.)?(\w+): (.+)$", re.MULTILINE)


def plain_error(error: PySparkException | Py4JJavaError) -> ContainerError:
    """The error that a worker of Python raised, by its text alone; else its cause in Java, or what Spark says first."""
    text = f"{_OF_JAVA}: {error}" if isinstance(error, Py4JJavaError) else str(error)
    for pattern in (_OURS, _ANY):
        found = pattern.findall(text)
        if found and found[-1][0] == _OF_JAVA:
            found = _CAUSE.findall(text) or found
        if found:
            name, message = found[-1]
            return ContainerError(message if pattern is _OURS else f"{name}: {message}")
    return ContainerError(text.strip().partition("\n")[0] or type(error).__name__)
