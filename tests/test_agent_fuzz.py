"""A small share of the fuzzer, each message cut at each length, and proof that the fuzzer notices what goes wrong."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_messages import encode
from tests.fuzz.__main__ import run_episode
from tests.fuzz.cases import EPISODE_LENGTH, control_messages, log_messages
from tests.fuzz.mutations import MUTATIONS, UNFRAGMENTED, whole
from tests.fuzz.sabotage import SABOTAGES
from tests.fuzz.snapshot_cases import MARK_BEGIN, MARK_END, SnapshotEpisode, client_session, laid_out, load, marker
from tests.fuzz.wire import Refused
from tests.fuzz.world import Disagreement, World
from tests.limits import LIMIT_S

ROOT = Path(__file__).parent.parent
EPISODES = 25


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)


def new_world(seed: int = 1) -> World:
    world = World(random.Random(seed), Counter())
    world.join()
    return world


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_bad_frames_are_counted_and_the_next_good_message_arrives_once(seed: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(EPISODES):
        assert run_episode(seed, number, counts) == ""
    cases = sum(count for name, count in counts.items() if name.startswith(("control: ", "log: ", "snapshot: ")))
    assert cases == EPISODES * EPISODE_LENGTH
    assert counts["good log messages"] > cases / 2


def test_each_mutation_is_used_on_each_stream() -> None:
    counts: Counter[str] = Counter()
    for number in range(4 * EPISODES):
        assert run_episode(7, number, counts) == ""
    used = {name for name in counts if ": " in name}
    assert used >= {f"{stream}: {mutation}" for stream in ("control", "log", "snapshot") for mutation in MUTATIONS}


def test_a_seed_gives_the_same_cases_again() -> None:
    one, other = Counter[str](), Counter[str]()
    for number in (3, 4):
        run_episode(5, number, one)
        run_episode(5, number, other)
    assert one == other


@pytest.mark.parametrize("name", list(control_messages(new_world())))
def test_a_control_message_cut_at_each_length_does_no_harm(name: str) -> None:
    world = new_world()
    message = control_messages(world)[name]()
    for length in range(len(message)):
        world.send_control([(message[:length], UNFRAGMENTED)])
        world.good_control_message()
        world.good_log_message()
        assert world.model.ended is None
    world.end()


@pytest.mark.parametrize("name", list(log_messages(new_world())))
def test_a_logged_message_cut_at_each_length_does_no_harm(name: str) -> None:
    world = new_world()
    message = log_messages(world)[name]()[:500]
    for length in range(len(message)):
        world.append([(message[:length], UNFRAGMENTED)])
        world.commit()
        world.good_log_message()
        assert world.model.ended is None
    world.end()


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_snapshot_with_a_message_cut_at_each_length_fails_the_start(index: int) -> None:
    messages = [marker(MARK_BEGIN), client_session(1, b"principal"), marker(MARK_END), b"state"]
    episode = SnapshotEpisode(1, 1, Counter(), RecordingService)
    for length in range(len(messages[index])):
        frames = [frame for message in messages for frame in whole(message)]
        frames[index] = (messages[index][:length], UNFRAGMENTED)
        if index == 0 or length < 48:
            with pytest.raises(Refused):
                load(laid_out(frames))
        episode.run_case("cut", frames)


@pytest.mark.parametrize("sabotage", ["lose", "double", "raise"])
def test_the_fuzzer_notices_a_service_that_goes_wrong(sabotage: str) -> None:
    failure = run_episode(1, 0, Counter(), sabotage)
    assert "the agent has" in failure
    assert "good 7 " in failure or "ValueError" in failure
    assert "\nin: " in failure


def test_the_fuzzer_notices_an_error_that_is_not_counted() -> None:
    world = new_world()
    world.send_control(whole(b"bad"))
    world.member.errors.pop()
    with pytest.raises(Disagreement, match=r"counted errors: the agent has \[\], the model \['CodecError'\]"):
        world.check()


def test_the_fuzzer_notices_an_ack_that_is_missing() -> None:
    world = new_world()
    world.send_control(whole(encode("RequestServiceAck", log_position=0)))
    world.member.cm.poll()
    with pytest.raises(Disagreement, match=r"acks: the agent has \[\], the model \[Ack"):
        world.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sabotage", "limit", "text"), [("hang", "3", "a hang: the episode has not"), ("crash", "50", "a crash: SIG")]
)
def test_the_command_notices_a_hang_and_a_crash_and_says_how_to_replay_it(sabotage: str, limit: str, text: str) -> None:
    result = fuzz("--cases", "100", "--seed", "11", "--limit", limit, "--sabotage", sabotage)
    assert result.returncode == 1
    assert f"FAILED in episode 0: {text}" in result.stdout
    assert result.stdout.endswith(f"replay: ./run fuzz --seed 11 --episode 0 --sabotage {sabotage}\n")


@pytest.mark.slow
def test_the_command_reports_and_replays_a_disagreement() -> None:
    result = fuzz("--cases", "100", "--seed", "11", "--sabotage", "lose")
    assert result.returncode == 1
    *_, line = result.stdout.splitlines()
    replayed = fuzz(*line.removeprefix("replay: ./run fuzz ").split())
    assert replayed.returncode == 1
    assert _failure(replayed.stdout) == _failure(result.stdout)


def _failure(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(("FAILED", "in: "))]


def test_the_command_prints_the_seed_and_what_it_counted() -> None:
    result = fuzz("--cases", "90")
    assert result.returncode == 0, result.stdout
    *counts, seed, verdict = result.stdout.splitlines()
    assert seed.startswith("seed ")
    assert ": 100 cases in " in seed
    assert verdict == "no disagreement, no crash, no hang"
    assert sum(int(line.split()[0]) for line in counts if line.split()[1] in ("control:", "log:", "snapshot:")) == 100


def test_there_is_a_sabotage_for_each_promise() -> None:
    assert list(SABOTAGES) == ["none", "lose", "double", "raise", "hang", "crash"]
