"""The build backend: that of setuptools, in a copy of the sources, so that an installation leaves the checkout alone.

pip builds in the directory that it is given, which may be read-only, another user's, or in use by another build.
Modules that ``./run build`` has compiled there are copied as well, and not compiled again. An editable installation is
one of the checkout itself, so that is where it builds.

Any Python that pip may use can read this file: it says which one the package needs.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PYTHON_MIN = (3, 12)
if sys.version_info < PYTHON_MIN:
    sys.exit(
        f"aeron-cluster-container needs Python {'.'.join(map(str, PYTHON_MIN))} or newer, and {sys.executable} is "
        f"{'.'.join(map(str, sys.version_info[:3]))}: make the virtual environment with a newer one"
    )

from setuptools import build_meta  # noqa: E402 - after the sentence for other Pythons

build_editable = build_meta.build_editable
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable

_LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", ".*cache", ".hypothesis", "__pycache__", "*.egg-info", "dist")


@contextlib.contextmanager
def _in_a_copy() -> Iterator[None]:
    """Work in a copy of the current directory."""
    checkout = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="aeron-cluster-build-") as directory:
        copy = shutil.copytree(checkout, Path(directory, "sources"), symlinks=True, ignore=_LEFT_OUT)
        os.chdir(copy)
        try:
            yield
        finally:
            os.chdir(checkout)


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Nothing beside what pyproject.toml names (PEP 517)."""
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Write the metadata, and return the name of their directory (PEP 517)."""
    place = str(Path(metadata_directory).absolute())
    with _in_a_copy():
        return build_meta.prepare_metadata_for_build_wheel(place, config_settings)


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel, and return its name (PEP 517)."""
    place = str(Path(wheel_directory).absolute())
    metadata = None if metadata_directory is None else str(Path(metadata_directory).absolute())
    with _in_a_copy():
        return build_meta.build_wheel(place, config_settings, metadata)


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Build a source distribution, and return its name (PEP 517)."""
    place = str(Path(sdist_directory).absolute())
    with _in_a_copy():
        return build_meta.build_sdist(place, config_settings)
