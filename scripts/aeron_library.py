"""Makes Aeron's C client and media driver from a release's sources: `python scripts/aeron_library.py [DIRECTORY]`.

A wheel that is built with ``AERON_SOURCES=DIRECTORY`` carries the library. Cargo brings the sources, as the registry of
Rust's packages has them; they are checked against the digest below. A C compiler is all else that this needs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CRATE = "libaeron_driver-sys"
VERSION = "1.54.0"
SHA256 = "b2719da7d2dc8c05cc8368d83b09a216872080c1d8bed252066fcb47f3f4f00f"
DIRECTORY = Path("build", "aeron")
"""Where the sources are, unless another place is named."""
SUFFIX = "dylib" if sys.platform == "darwin" else "so"
LIBRARY = f"libaeron_driver.{SUFFIX}"
"""The file name of the library: the driver's of a release has the client as well."""
ROOMS = tuple(Path(room, "src", "main", "c") for room in ("aeron-client", "aeron-driver"))
PROGRAM = "aeronmd.c"
"""The source of a program of its own, and not of the library."""
USUAL = ("FALLOCATE", "POSIX_FALLOCATE", "DEV_URANDOM", "POSIX_MEMALIGN", "POLL", "EPOLL")
MACROS = {
    "linux": [
        "_DEFAULT_SOURCE",
        *(f"HAVE_{name}" for name in (*USUAL, "STRUCT_MMSGHDR", "RECVMMSG", "SENDMMSG")),
    ],
    "darwin": [
        *(f"HAVE_{name}" for name in ("F_PREALLOCATE", "DEV_URANDOM", "POSIX_MEMALIGN", "REALLOCF", "ARC4RANDOM")),
        *(f"HAVE_{name}" for name in ("POLL", "SENDMSG_X", "RECVMSG_X")),
    ],
}
"""Facts of a system that upstream's CMake finds out; libuuid and libbsd are done without."""


def fetch(directory: Path) -> Path:
    """Bring the sources of the release into a directory, unless they are there; the path of their tree."""
    tree = directory / f"{CRATE}-{VERSION}" / "aeron"
    if tree.is_dir():
        return tree
    with tempfile.TemporaryDirectory(prefix="aeron-sources-") as name:
        project = Path(name)
        (project / "lib.rs").touch()
        (project / "Cargo.toml").write_text(
            '[package]\nname = "sources"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n'
            f'[dependencies]\n{CRATE} = "={VERSION}"\n'
        )
        subprocess.run(
            ["cargo", "vendor", "--quiet", "--versioned-dirs", "crates"],
            cwd=project,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        crate = project / "crates" / f"{CRATE}-{VERSION}"
        found = json.loads((crate / ".cargo-checksum.json").read_text())["package"]
        if found != SHA256:
            sys.exit(f"{CRATE} {VERSION} has the SHA-256 {found}, and not {SHA256}: it is not what was tested")
        directory.mkdir(parents=True, exist_ok=True)
        shutil.move(crate, directory)
    return tree


def version_of(tree: Path) -> str:
    """The release that a tree of sources is."""
    return (tree / "version.txt").read_text().split()[0]


def compile_library(tree: Path, target: Path) -> None:
    """Compile client and driver into one library; an object of each source, as many at once as there are cores."""
    version = version_of(tree)
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version)
    if numbers is None:
        sys.exit(f"{tree / 'version.txt'}: {version!r} is not a release")
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC").split()[0]
    macros = [*MACROS[sys.platform], "DISABLE_BOUNDS_CHECKS", "NDEBUG"]
    macros += [f'AERON_VERSION_TXT="{version}"', 'AERON_VERSION_GITSHA=""']
    macros += [f"AERON_VERSION_{part}={numbers[place]}" for place, part in enumerate(("MAJOR", "MINOR", "PATCH"), 1)]
    flags = ["-std=gnu11", "-O3", "-g0", "-fPIC", "-w"]
    flags += [f"-D{macro}" for macro in macros] + [f"-I{tree / room}" for room in ROOMS]
    libraries = ["-lm", "-pthread"]
    if sys.platform == "linux":
        libraries += ["-ldl", "-lrt", "-Wl,--as-needed", "-s"]
    sources = sorted(path for room in ROOMS for path in (tree / room).rglob("*.c") if path.name != PROGRAM)
    with tempfile.TemporaryDirectory(prefix="aeron-objects-") as directory:

        def compile_one(number: int) -> str:
            made = str(Path(directory, f"{number}.o"))
            subprocess.run([compiler, *flags, "-c", str(sources[number]), "-o", made], check=True)
            return made

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, range(len(sources))))
        subprocess.run([compiler, "-shared", "-o", str(target), *objects, *libraries], check=True)


def bill_of_materials(version: str) -> str:
    """The release of Aeron in a wheel, as a bill of materials in the form of CycloneDX; PEP 770 says where it goes."""
    return json.dumps(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "components": [
                {
                    "type": "library",
                    "name": "aeron",
                    "version": version,
                    "description": "C client and C media driver",
                    "licenses": [{"license": {"id": "Apache-2.0"}}],
                    "purl": f"pkg:cargo/{CRATE}@{version}",
                    "externalReferences": [{"type": "vcs", "url": "https://github.com/aeron-io/aeron"}],
                }
            ],
        },
        indent=1,
    )


if __name__ == "__main__":
    place = fetch(Path(sys.argv[1]) if sys.argv[1:] else DIRECTORY)
    print(place.absolute())
