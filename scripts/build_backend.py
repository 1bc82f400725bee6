"""The build backend: that of setuptools, in a copy of the sources, so that an installation leaves the checkout alone.

pip builds in the directory that it is given, which may be read-only, another user's, or in use by another build.
Modules that ``./run build`` has compiled there are copied as well, and not compiled again. An editable installation is
one of the checkout itself, so that is where it builds.

If ``AERON_SOURCES`` names the sources of an Aeron release, as ``scripts/aeron_library.py`` brings them, a wheel
carries that release's C client and driver, and needs no package that has them.

Any Python that pip may use can read this file: it says which one the package needs.
"""

import contextlib
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PYTHON_MIN = (3, 12)
EPOCH = 315_532_800
"""1980-01-01, in seconds."""
if sys.version_info < PYTHON_MIN:
    sys.exit(
        f"aeron-cluster-container needs Python {'.'.join(map(str, PYTHON_MIN))} or newer, and {sys.executable} is "
        f"{'.'.join(map(str, sys.version_info[:3]))}: make the virtual environment with a newer one"
    )

from setuptools import build_meta  # noqa: E402 - after the sentence for other Pythons

from scripts import aeron_library  # noqa: E402

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


def _aeron_sources() -> Path | None:
    """The sources of the release that a wheel is to carry."""
    name = os.environ.get("AERON_SOURCES")
    if not name:
        return None
    tree = Path(name).absolute()
    if not (tree / "version.txt").is_file():
        sys.exit(f"AERON_SOURCES={name}: no sources of Aeron; `python scripts/aeron_library.py` brings and names them")
    return tree


def _need_no_library() -> None:
    """In the copy: the wheel does not ask for the package that has a library."""
    path = Path("requirements", "run.in")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("pyaeron")))


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """``wheel`` puts a bill of materials into one that carries Aeron's library; else nothing more (PEP 517)."""
    return ["wheel>=0.46"] if os.environ.get("AERON_SOURCES") else []


def get_requires_for_build_sdist(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Nothing beside what pyproject.toml names (PEP 517)."""
    return []


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Write the metadata, and return the name of their directory (PEP 517)."""
    place = str(Path(metadata_directory).absolute())
    sources = _aeron_sources()
    with _in_a_copy():
        if sources is not None:
            _add_license(sources)
            _need_no_library()
        return build_meta.prepare_metadata_for_build_wheel(place, config_settings)


def _add_license(sources: Path) -> None:
    shutil.copy(sources / "LICENSE", "LICENSE-aeron")


def _add_bill_of_materials(wheel: Path, text: str) -> None:
    """Add the bill of materials to a wheel, in the directory that PEP 770 names."""
    with tempfile.TemporaryDirectory(prefix="aeron-wheel-") as directory:

        def run(*arguments: str) -> None:
            subprocess.run([sys.executable, "-m", "wheel", *arguments], check=True, stdout=subprocess.DEVNULL)

        run("unpack", "--dest", directory, str(wheel))
        (content,) = Path(directory).iterdir()
        (information,) = content.glob("*.dist-info")
        (information / "sboms").mkdir()
        (information / "sboms" / "aeron.cdx.json").write_text(text)
        wheel.unlink()
        run("pack", "--dest-dir", str(wheel.parent), str(content))


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel, and return its name (PEP 517)."""
    place = str(Path(wheel_directory).absolute())
    metadata = None if metadata_directory is None else str(Path(metadata_directory).absolute())
    sources = _aeron_sources()
    with _in_a_copy():
        if sources is not None:
            _add_license(sources)
            _need_no_library()
            aeron_library.compile_library(sources, Path("src", "container", "aeron", aeron_library.LIBRARY))
        name: str = build_meta.build_wheel(place, config_settings, metadata)
        if sources is not None:
            text = aeron_library.bill_of_materials(aeron_library.version_of(sources))
            _add_bill_of_materials(Path(place, name), text)
        return name


def _pack_again(archive: Path) -> None:
    """Pack an archive so that the same files make the same bytes: in order, without times and owners.

    The time of all is ``SOURCE_DATE_EPOCH``, in seconds, or the first that a zip archive can have.
    """
    time = int(os.environ.get("SOURCE_DATE_EPOCH", EPOCH))
    packed = archive.with_suffix(".new")
    with (
        tarfile.open(archive) as old,
        packed.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=time) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = time, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    packed.replace(archive)


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Build a source distribution, and return its name (PEP 517). The same sources make the same bytes."""
    place = str(Path(sdist_directory).absolute())
    with _in_a_copy():
        name: str = build_meta.build_sdist(place, config_settings)
    _pack_again(Path(place, name))
    return name
