"""The time of day is set while a node serves: Aeron's C client and driver compare it, and judge each other by it."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import LIMIT_S

ROOT = Path(__file__).parents[1]
HOST = "127.0.0.1"
MINUTE_S = 60
DAY_S = 86_400
YEAR_S = 365 * DAY_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the clock of a process is set by LD_PRELOAD")

# Preloaded into a process: the time of day plus the seconds (int64) in the file CLOCK_STEP.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *step_s;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CLOCK_STEP");
    const int descriptor = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0)
    {
        void *found = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, descriptor, 0);
        step_s = found == MAP_FAILED ? NULL : found;
        close(descriptor);
    }
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (real == NULL)
    {
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    const int result = real(clock, time);
    if (result == 0 && step_s != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    {
        time->tv_sec += *step_s;
    }
    return result;
}

int gettimeofday(struct timeval *time, void *zone)
{
    struct timespec now;
    (void)zone;
    const int result = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *found)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found != NULL)
    {
        *found = now.tv_sec;
    }
    return now.tv_sec;
}
"""

PROGRAM = """
import os, struct, sys, time
from pathlib import Path
import container
from container.client import AeronCluster
from container.errors import ClosedError
from tests.services import Counter
from tests.test_cluster_node import HOST, Answers, ask

def launch():
    quick = dict(timer_interval_ns=100_000_000)  # the driver looks at its clients that often
    return container.launch_node(Counter(), directory=sys.argv[1], host=HOST, port=int(sys.argv[2]), driver=quick)

def step(seconds):
    before = time.time()
    with open(os.environ["CLOCK_STEP"], "r+b") as file:
        set_to = struct.unpack("q", file.read(8))[0] + seconds
        file.seek(0)
        file.write(struct.pack("q", set_to))
    assert abs(time.time() - before - seconds) < abs(seconds) / 2, "the clock was not set"

class Client:
    def __init__(self, node):
        self.answers = Answers()
        self.client = AeronCluster.connect(aeron_dir=node.aeron_dir, listener=self.answers, ingress_channel="aeron:ipc",
            egress_channel="aeron:ipc", message_timeout=60.0)
    def ask(self):
        count = len(self.answers.found)
        self.client.send(b"1")
        while len(self.answers.found) == count:
            self.client.poll_egress()
"""


@pytest.fixture(scope="session")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("clock") / "clock_steps.so"
    source = made.with_suffix(".c")
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True, timeout=LIMIT_S)
    return made


def run(code: str, clock: Path, directory: Path, port: int) -> subprocess.CompletedProcess[str]:
    step = directory / "step"
    step.write_bytes(struct.pack("q", 0))
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + code, str(directory / "node"), str(port)],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(clock), "CLOCK_STEP": str(step)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_a_node_goes_on_when_the_clock_is_set_back_or_forward_by_less_than_the_timeouts(
    clock: Path, tmp_path: Path, port: int
) -> None:
    code = f"""
with launch() as node:
    client = Client(node)
    for seconds in (9, -9, {-2 * MINUTE_S}, {-DAY_S}, {-40 * YEAR_S}):
        client.ask()
        step(seconds)
        end = time.monotonic() + 1.5  # the driver looks each 100 ms, its clients each 500 ms
        while time.monotonic() < end:
            client.ask()
        assert node.is_running, node.failure
        print(seconds, flush=True)
    client.client.close()
"""
    done = run(code, clock, tmp_path, port)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(each) for each in (9, -9, -2 * MINUTE_S, -DAY_S, -40 * YEAR_S)]


@pytest.mark.parametrize("seconds", [2 * MINUTE_S, DAY_S])
def test_a_step_forward_by_more_than_the_timeouts_ends_a_node_which_goes_on_when_it_is_started_again(
    clock: Path, tmp_path: Path, port: int, seconds: int
) -> None:
    code = f"""
node = launch()
client = Client(node)
client.ask()
step({seconds})
assert node.join({LIMIT_S})
print(node.failure, flush=True)
node.close()
with launch() as node:
    print(ask(node, b"1").decode(), flush=True)
sys.exit(1)
"""
    done = run(code, clock, tmp_path, port)
    assert done.returncode == 1, done.stderr
    failure, total = done.stdout.splitlines()
    assert failure.startswith("unexpected ")  # Aeron close, or termination where another part was the first
    assert total == "2"  # nothing that was acknowledged is lost
