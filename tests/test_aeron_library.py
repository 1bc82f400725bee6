"""Loading the Aeron C library: where it is searched, what is refused, and how its errors read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from container.aeron import library_path, library_version, load_library
from tests.limits import LIMIT_S

REPORT = """
try:
    {code}
except Exception as error:
    print(type(error).__name__, error)
"""


def python(code: str, environment: dict[str, str] | None = None, *options: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own: a process loads one library, once."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("AERON_")}
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env=variables | (environment or {}),
        timeout=LIMIT_S,
        capture_output=True,
        text=True,
        check=False,
    )


def error_of(code: str, environment: dict[str, str] | None = None) -> str:
    """The type and text of what one line of code raises."""
    result = python(f"from container.aeron import *\n{REPORT.format(code=code)}", environment)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.strip()


@pytest.fixture(scope="module")
def compiler() -> str:
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    assert found is not None, "there is no C compiler (cc, gcc or clang), which this package is built with"
    return found


def build(compiler: str, directory: Path, source: str, name: str = "libaeron.so", *options: str) -> Path:
    """Compile a shared library of C source."""
    library = directory / name
    (directory / "fake.c").write_text(source)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(directory / "fake.c"), *options],
        check=True,
        timeout=LIMIT_S,
    )
    return library


def versions(major: int, minor: int, patch: int) -> str:
    return "".join(
        f"int aeron_version_{part}(void) {{ return {value}; }}\n"
        for part, value in (("major", major), ("minor", minor), ("patch", patch))
    )


def test_pyaerons_library_is_found_without_importing_pyaeron() -> None:
    result = python(
        "import sys\n"
        "from container.aeron import library_path, library_version\n"
        "print(library_version() >= (1, 51, 0), library_path())\n"
        "assert 'pyaeron' not in sys.modules"
    )
    assert (result.returncode, result.stderr) == (0, "")
    is_new_enough, path = result.stdout.split()
    assert is_new_enough == "True"
    assert Path(path).parent.name == "pyaeron"


def test_the_library_is_loaded_at_first_use_and_not_on_import() -> None:
    result = python(
        "import container.aeron\n"
        "maps = lambda: '_pyaeron' in open('/proc/self/maps').read()\n"
        "before = maps(); container.aeron.load_library(); print(before, maps())"
    )
    if not Path("/proc/self/maps").exists():
        assert "No such file" in result.stderr
    else:
        assert result.stdout.split() == ["False", "True"]


def test_the_same_library_may_be_named_again() -> None:
    load_library()
    load_library(library_path())
    load_library(Path(library_path()))
    assert library_version() >= (1, 51, 0)


def test_its_symbols_stay_out_of_the_way_of_pyaeron_itself() -> None:
    result = python(
        "from container.aeron import AeronClient, MediaDriver\n"
        "driver = MediaDriver.launch_embedded(); client = AeronClient(driver.aeron_dir)\n"
        "import ctypes, pyaeron\n"
        "print(hasattr(ctypes.CDLL(None), 'aeron_init'))\n"
        "client.close(); driver.close()"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "False\n", "")


def test_a_second_library_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "libaeron.so"
    text = error_of(f"load_library(); load_library({str(other)!r})")
    assert text.startswith("ConfigurationError the Aeron library /")
    assert f"is loaded already, so {other} cannot be: a process has one" in text


@pytest.mark.parametrize("setting", ["AERON_LIBRARY", "library"])
def test_a_path_where_nothing_is_is_named_with_where_it_came_from(tmp_path: Path, setting: str) -> None:
    path = str(tmp_path / "no such" / "libaeron.so")
    if setting == "library":
        text = error_of(f"AeronClient(library={path!r})", {"AERON_LIBRARY": "not looked at"})
    else:
        text = error_of("library_version()", {"AERON_LIBRARY": path})
    assert text.startswith(f"ImportError the Aeron C library {path} ({setting}) is not there; install it with")
    assert "pip install pyaeron" in text
    assert "AERON_LIBRARY" in text


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "libaeron.so"
    path.write_text("this is text")
    text = error_of("load_library()", {"AERON_LIBRARY": str(path)})
    assert text.startswith(f"ImportError the Aeron C library {path} (AERON_LIBRARY) cannot be loaded: ")


def test_a_library_that_is_not_aerons_is_refused(tmp_path: Path, compiler: str) -> None:
    path = build(compiler, tmp_path, "int something_else(void) { return 0; }\n")
    text = error_of(f"load_library({str(path)!r})")
    assert text.startswith(f"ImportError {path} (library) is not a usable Aeron library: it lacks ")
    assert "aeron_version_major, aeron_version_minor, aeron_version_patch; install" in text


@pytest.mark.parametrize("version", [(1, 50, 9), (0, 60, 0)])
def test_a_library_that_is_too_old_is_refused(tmp_path: Path, compiler: str, version: tuple[int, int, int]) -> None:
    path = build(compiler, tmp_path, versions(*version))
    text = error_of("load_library()", {"AERON_LIBRARY": str(path)})
    shown = ".".join(map(str, version))
    assert f"is Aeron {shown}, which is too old: 1.51 is the least that works" in text


def test_a_library_that_lacks_functions_is_refused_with_their_names(tmp_path: Path, compiler: str) -> None:
    path = build(compiler, tmp_path, versions(1, 51, 0) + "int aeron_errcode(void) { return 0; }\n")
    text = error_of("load_library()", {"AERON_LIBRARY": str(path)})
    assert f"ImportError {path} (AERON_LIBRARY) is not a usable Aeron library: it lacks" in text
    assert "aeron_errmsg, aeron_default_path, aeron_context_init" in text
    assert "and 8" in text  # some eighty more


def test_a_failed_load_can_be_tried_again(tmp_path: Path, compiler: str) -> None:
    path = build(compiler, tmp_path, versions(1, 40, 0))
    code = f"try: load_library({str(path)!r})\n    except ImportError: load_library(); raise Exception('loaded')"
    assert error_of(code) == "Exception loaded"


def test_without_any_library_the_error_says_where_it_was_looked_for() -> None:
    result = python(
        "import sys\n"
        "class NoPyaeron:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pyaeron': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, NoPyaeron())\n"
        "from container.aeron import *\n" + REPORT.format(code="MediaDriver.launch_embedded()")
    )
    assert result.stdout.startswith("ImportError the Aeron C library was not found: no path was given, ")
    assert "AERON_LIBRARY is not set, and there is no package pyaeron for this Python" in result.stdout
    assert "pip install pyaeron" in result.stdout


def test_the_drivers_library_may_be_another_one(tmp_path: Path) -> None:
    # A copy of pyaeron's library stands for an official libaeron_driver.
    client, driver = tmp_path / "libaeron.so", tmp_path / "libdriver.so"
    shutil.copyfile(library_path(), client)
    shutil.copyfile(library_path(), driver)
    result = python(
        "from container.aeron import AeronClient, MediaDriver, library_path\n"
        "from container.testing.memory import transport_probe as probe\n"
        "with MediaDriver.launch_embedded() as driver, AeronClient(driver.aeron_dir) as client:\n"
        "    publication = probe.add_publication(client, 'aeron:ipc', 1)\n"
        "print(library_path())",
        {"AERON_LIBRARY": str(client), "AERON_DRIVER_LIBRARY": str(driver)},
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.strip() == str(client)


def test_a_drivers_library_that_is_not_there_is_named_with_where_it_came_from(tmp_path: Path) -> None:
    text = error_of("MediaDriver.launch_embedded()", {"AERON_DRIVER_LIBRARY": str(tmp_path / "libaeron_driver.so")})
    assert text.startswith(
        f"ImportError the Aeron C library {tmp_path / 'libaeron_driver.so'} (AERON_DRIVER_LIBRARY) is not there"
    )


def test_the_drivers_library_may_be_given_with_the_driver() -> None:
    assert error_of(f"MediaDriver.launch_embedded(library={library_path()!r}).close()") == ""
    text = error_of("MediaDriver.launch_embedded().close(); MediaDriver.launch_embedded(library='/no/other')")
    assert "is loaded already, so /no/other cannot be" in text


PACKETS = """
import logging, socket, sys, time
from contextlib import closing
from pathlib import Path
from container.aeron import AeronClient, MediaDriver
from container.files.cnc_file import CncFile
from container.testing.memory import transport_probe as probe
from container.testing.processes.endpoints import PortReservation

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
with (
    MediaDriver.launch_embedded(threading="INVOKER") as driver,
    AeronClient(driver.aeron_dir, use_invoker=True) as client,
    closing(PortReservation()) as ports,
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
):
    port = ports.take()
    subscription = probe.add_subscription(client, f"aeron:udp?endpoint=127.0.0.1:{port}", 1)
    most = total = 0
    for _ in range(20):     # the driver's own thread takes some where this one is kept from its turns for 20 ms
        for _ in range(4):
            sender.sendto(b"\\xff" * 1000, ("127.0.0.1", port))
        taken = []
        limit = time.monotonic() + 1
        while sum(taken) < 4 and time.monotonic() < limit:
            taken.append(driver.invoke() // 1000)
        most, total = max(most, *taken), max(total, sum(taken))
        if most == 4:
            break
    print("most", most, "of them all", total, "of", subscription.channel)
    with closing(CncFile.open_ready(Path(driver.aeron_dir))) as cnc:
        print("errors", [record.text for record in cnc.errors()])
"""


def packets(environment: dict[str, str]) -> str:
    """The output of a process whose driver receives packets."""
    result = python(PACKETS, environment)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each packet has a call of its own")
@pytest.mark.parametrize(("version", "is_known"), [((1, 54, 9), True), ((1, 55, 0), False), ((2, 0, 0), False)])
def test_a_driver_s_sockets_are_the_known_ones_up_to_a_version(
    tmp_path: Path, compiler: str, version: tuple[int, int, int], is_known: bool
) -> None:
    library = build(compiler, tmp_path, versions(*version), "libdriver.so", "-Wl,--no-as-needed", library_path())
    text = packets({"AERON_DRIVER_LIBRARY": str(library)})
    assert f"most {4 if is_known else 1} of them all 4" in text
    assert ("a turn takes one packet of each socket, as the library is newer" in text) is not is_known


BROKEN_SOCKET = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>

int recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags, struct timespec *timeout)
{
    static int (*real)(int, struct mmsghdr *, unsigned int, int, struct timespec *);
    static int received = 0;
    if (received > 0)
    {
        received = 0;
        errno = EIO;
        return -1;
    }
    if (NULL == real)
    {
        real = dlsym(RTLD_NEXT, "recvmmsg");
    }
    return received = real(fd, messages, count, flags, timeout);
}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each packet has a call of its own")
def test_an_error_of_a_socket_behind_a_packet_of_the_same_turn_is_in_the_driver_s_error_log(
    tmp_path: Path, compiler: str
) -> None:
    library = build(compiler, tmp_path, BROKEN_SOCKET, "libbroken.so", "-ldl")
    text = packets({"LD_PRELOAD": str(library)})
    assert "most 1 of them all 4" in text
    assert "Failed to recvmmsg" in text
