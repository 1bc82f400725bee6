"""What reads recordings for users does not need the test kit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import container

ROOT = Path(container.__file__).parent
PACKAGES = ("recordings", "spark", "pipeline")
PROGRAM = """
import importlib, pkgutil, sys
import container
for package in sys.argv[1:]:
    found = importlib.import_module(f"container.{package}")
    for module in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
        importlib.import_module(module.name)
print([name for name in sys.modules if name.startswith("container.testing")])
"""


def test_no_module_of_the_pipeline_imports_the_test_kit() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *PACKAGES], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_no_source_of_the_pipeline_names_the_test_kit() -> None:
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.suffix in (".py", ".pyx")]
    assert len(sources) > 20
    assert [path.name for path in sources if "container.testing" in path.read_text(encoding="utf-8")] == []
