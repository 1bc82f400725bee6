"""Compiles a module in Cython outside of the package, against the shipped .pxd files, as a user does."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import container

_LIMIT_S = 600


def compile_cython(source: Path, directory: Path, optimisation: str = "-O2") -> Path:
    """Compile a .pyx into an extension module in ``directory`` (which is made if needed) and return its path.

    A module that exists stays, unless the source, or the package's declarations, are newer.
    """
    package = Path(container.__file__).parent
    target = directory / f"{source.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    newest = max(path.stat().st_mtime_ns for path in [source, *package.rglob("*.pxd"), *package.rglob("*.h")])
    if target.exists() and target.stat().st_mtime_ns > newest:
        return target
    directory.mkdir(parents=True, exist_ok=True)
    c_file = directory / f"{source.stem}.c"
    options = ["-3", "-X", "freethreading_compatible=True", "-I", str(package.parent), "-o", str(c_file)]
    translate = [sys.executable, "-m", "cython", *options, str(source)]
    subprocess.run(translate, check=True, cwd=directory, timeout=_LIMIT_S)
    return compile_c(c_file, directory, optimisation)


def compile_c(c_file: Path, directory: Path, optimisation: str = "-O0") -> Path:
    """Compile a C file of Cython's into an extension module in ``directory`` and return its path."""
    target = directory / f"{c_file.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    headers = Path(container.__file__).parent / "codecs"
    flags = [optimisation, "-fPIC", "-shared", "-I", sysconfig.get_path("include"), "-I", str(headers)]
    if sys.platform == "darwin":
        flags += ["-undefined", "dynamic_lookup"]
    subprocess.run([*compiler, *flags, "-o", str(target), str(c_file)], check=True, timeout=_LIMIT_S)
    return target


def load_module(path: Path) -> ModuleType:
    """Import an extension module by its path."""
    name = path.name.partition(".")[0]
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def compile_module(name: str, source: str, directory: Path) -> ModuleType:
    """Writes the source into the directory, compiles it and imports it."""
    pyx = directory / f"{name}.pyx"
    pyx.write_text(source)
    return load_module(compile_cython(pyx, directory / "built", "-O0"))
