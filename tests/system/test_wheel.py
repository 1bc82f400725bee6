"""A wheel with Aeron's own library: built, installed where nothing else is, and serving a client of Java's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from container.testing.processes.java_tools import JVM_FLAGS, find_java
from container.testing.processes.process import Process
from scripts import aeron_library
from tests.limits import LIMIT_S
from tests.system.harness import ECHO_CLIENT, ROOT

pytestmark = pytest.mark.slow

BUILD_LIMIT_S = 3_000
READY = re.compile(r"clients of this machine\s+ingress channel aeron:ipc, media driver (\S+)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a release's is, of this checkout."""
    if shutil.which("cargo") is None:
        pytest.skip("no cargo, which brings Aeron's sources")
    sources = aeron_library.fetch(ROOT / aeron_library.DIRECTORY)
    made = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(made), str(ROOT)],
        env=os.environ | {"AERON_SOURCES": str(sources)},
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (path,) = made.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs of an environment in which the wheel and its dependencies are, and nothing else."""
    place = tmp_path_factory.mktemp("bare")
    venv.create(place, with_pip=True)
    programs = place / "bin"
    subprocess.run([programs / "pip", "install", "--quiet", str(wheel)], timeout=BUILD_LIMIT_S, check=True)
    return programs


def test_a_wheel_says_what_it_carries(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (information,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        metadata = archive.read(f"{information}/METADATA").decode()
        bill = json.loads(archive.read(f"{information}/sboms/aeron.cdx.json"))
    assert f"container/aeron/{aeron_library.LIBRARY}" in names
    assert f"{information}/licenses/LICENSE-aeron" in names
    assert "pyaeron" not in metadata
    assert [(part["name"], part["version"]) for part in bill["components"]] == [("aeron", aeron_library.VERSION)]


def test_a_service_runs_from_the_wheel_alone_and_java_s_client_is_served(
    bare: Path, jar: Path, java_classes: Path, tmp_path: Path
) -> None:
    environment = {"PATH": "/nonexistent", "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    program = "from container.aeron import library_path, library_version; print(*library_version(), library_path())"
    found = subprocess.run(
        [bare / "python", "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    assert ".".join(found[:3]) == aeron_library.VERSION
    assert Path(found[3]).name == aeron_library.LIBRARY
    shutil.copy(ROOT / "examples" / "echo_service.py", tmp_path)
    command = [str(bare / "aeron-cluster"), "dev", "echo_service:EchoService"]
    with Process("dev", command, directory=tmp_path, environment=environment) as node:
        node.start()
        ready = node.wait_until(
            lambda: READY.search(node.output() + node.errors()), LIMIT_S, "the cluster of one to be ready"
        )
        properties = {
            "aeron.dir": ready[1],
            "aeron.cluster.ingress.channel": "aeron:ipc",
            "aeron.cluster.egress.channel": "aeron:ipc",
        }
        flags = [*JVM_FLAGS, *(f"-D{name}={value}" for name, value in properties.items())]
        path = os.pathsep.join(map(str, (jar, java_classes)))
        java = [str(find_java()), *flags, "-classpath", path, ECHO_CLIENT, "messages=1000"]
        with Process("client", java, directory=tmp_path) as client:
            client.start()
            assert client.wait(2 * LIMIT_S) == 0, client.tail()
        assert node.stop(LIMIT_S) == 0, node.tail()  # what it has in /dev/shm goes with an end in order


def test_the_program_that_tries_a_release_s_wheel_fits_where_that_is_built(bare: Path, tmp_path: Path) -> None:
    """A container's /dev/shm has 64 MiB, unless another size is asked for."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a /dev/shm of its own needs root and unshare")
    script = 'mount -t tmpfs -o size=64m none /dev/shm && exec "$0" "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, bare / "python", ROOT / "tests" / "wheel_smoke.py"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"served a client with Aeron {aeron_library.VERSION}\n"), done.stderr
