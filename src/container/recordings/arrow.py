"""Imports Arrow when it is first used: only readers of rows need it."""

from __future__ import annotations

from types import ModuleType


def import_pyarrow() -> ModuleType:
    """Return the module ``pyarrow``.

    Raises:
        ImportError: it is not installed; the text says how to get it.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            'reading recordings needs pyarrow: pip install "aeron-cluster-container[spark]", or pyarrow alone'
        ) from error
    module: ModuleType = pyarrow
    return module
