"""What the operators' words print: JSON that is documented, text for people, and what a reader that stops does."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import container
from container.aeron.media_driver import MediaDriver
from container.operate import facts
from container.operate.driver_counters import ELECTION_STATES
from container.operate.operator_command import WORDS, find_word
from container.operate.show import _text
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import Process
from tests import operator_document
from tests.limits import LIMIT_S
from tests.operator_world import Words, written
from tests.recordings_world import World
from tests.services import Counter

COMMAND = [sys.executable, "-m", "container"]
FACTS = {
    "status": facts.Status,
    "health": facts.Health,
    "describe": facts.Description,
    "pid": facts.Process,
    "is-leader": facts.Leadership,
    "recording-log": facts.RecordingLog,
    "recovery-plan": facts.RecoveryPlan,
    "errors": facts.Errors,
    "describe-latest-consensus-module-snapshot": facts.ConsensusModuleSnapshot,
    "describe-latest-service-snapshot": facts.ServiceSnapshot,
    "log": facts.LogMessage,
    "archive list": facts.Recordings,
    "archive describe": facts.Recordings,
    "archive verify": facts.Verification,
    "archive dump": facts.Frame,
}


@pytest.fixture
def words() -> Words:
    return Words()


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> World:
    return written(tmp_path_factory.mktemp("member") / "member")


@pytest.mark.parametrize("word", FACTS)
def test_json_is_what_the_structs_say(words: Words, member: World, word: str) -> None:
    directory = member.archive_dir if word.startswith("archive") else member.base_dir
    found = words(word, directory, "--json")
    assert found.code in (0, 1)
    documents = found.output.splitlines() if word in ("log", "archive dump") else [found.output]
    assert documents
    for document in documents:
        decoded = msgspec.json.decode(document, type=FACTS[word], strict=True)
        assert msgspec.json.decode(document).keys() == set(decoded.__struct_fields__)


def test_json_of_other_words_is_what_the_structs_say(words: Words, tmp_path: Path) -> None:
    aeron_dir = tmp_path / "driver"
    ports = PortReservation()
    with container.launch_node(
        Counter(), directory=tmp_path / "node", aeron_dir=aeron_dir, host="127.0.0.1", port=ports.take_row(5)
    ):
        for word, directory, kind in (
            ("counters", aeron_dir, facts.Counters),
            ("streams", aeron_dir, facts.Streams),
            ("backlog", aeron_dir, facts.Backlogs),
            ("loss", aeron_dir, facts.Loss),
            ("list-members", tmp_path / "node", facts.Members),
            ("snapshot", tmp_path / "node", facts.ControlResult),
            ("recording-log validate", tmp_path / "node", facts.RecordingLogChange),
            ("suspend", tmp_path / "node", facts.ControlResult),
        ):
            found = words(word, directory, "--json")
            assert found.code == 0, (word, found)
            msgspec.json.decode(found.output, type=kind, strict=True)
            assert words(word, directory).code == (1 if word == "suspend" else 0), "as text"
    ports.close()
    member = written(tmp_path / "member")
    for word in ("recording-log sort", "invalidate-latest-snapshot", "recording-log seed"):
        found = words(word, member.base_dir, "--json", "--yes")
        msgspec.json.decode(found.output, type=facts.RecordingLogChange, strict=True)
    msgspec.json.decode(words("--version", None, "--json").output, type=facts.Version, strict=True)


@pytest.mark.parametrize("word", FACTS)
def test_text_has_no_line_that_is_cut_or_padded(words: Words, member: World, word: str) -> None:
    directory = member.archive_dir if word.startswith("archive") else member.base_dir
    found = words(word, directory)
    assert found.code in (0, 1)
    lines = found.output.splitlines()
    assert lines
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in found.output
    assert "…" not in found.output


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("activity_timestamp_ms", 1_795_818_897_675, "2026-11-27T22:34:57.675Z"),
        ("current_time_ns", 1_795_818_897_675_123_456, "2026-11-27T22:34:57.675Z"),
        ("time_of_last_append_ns", 1_795_818_897_675_123_456, "2026-11-27T22:34:57.675Z"),
        ("timestamp", 1_795_818_897_675, "2026-11-27T22:34:57.675Z"),
        ("timestamp", 1_795_818_897_675_123, "2026-11-27T22:34:57.675Z"),
        ("timestamp", 1_795_818_897_675_123_456, "2026-11-27T22:34:57.675Z"),
        ("timestamp", 1_000, "1000"),  # of a simulated clock: no date of today
        ("timestamp", -1, "-1"),
        ("snapshots_retained", 0, "0 (all)"),
        ("snapshots_retained", 3, "3"),
        ("snapshot_count", 0, "0"),
    ],
)
def test_text_shows_times_as_dates_and_what_a_number_means(name: str, value: int, shown: str) -> None:
    assert _text(name, value) == shown


def test_a_table_fits_a_terminal(member: World) -> None:
    command = [*COMMAND, "recording-log", str(member.base_dir)]
    script = f"import pty, sys; sys.exit(pty.spawn({command!r}))"
    narrow = os.environ | {"COLUMNS": "60"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=LIMIT_S, check=True, env=narrow)
    plain = re.sub(rb"\x1b\[[0-9;]*m", b"", done.stdout).decode()
    assert max(len(line) for line in plain.splitlines()) <= 60


def test_a_terminal_that_does_not_know_a_character_is_written_to(member: World, tmp_path: Path) -> None:
    directory = tmp_path / "snow\N{SNOWMAN}"
    directory.symlink_to(member.base_dir)
    command = [*COMMAND, "recording-log", str(directory)]
    script = f"import pty, sys; sys.exit(pty.spawn({command!r}))"
    latin = os.environ | {"COLUMNS": "500", "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=LIMIT_S, check=False, env=latin)
    assert b"snow\\u2603" in done.stdout
    assert b"Traceback" not in done.stdout


def test_a_question_that_is_answered_in_another_encoding_is_a_no(member: World) -> None:
    before = (member.cluster_dir / "recording.log").read_bytes()
    command = [*COMMAND, "invalidate-latest-snapshot", str(member.base_dir)]
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    controller, terminal = pty.openpty()
    with subprocess.Popen(command, stdin=terminal, stderr=subprocess.PIPE, env=strict) as asking:
        os.write(controller, b"\xff\xfe\n")
        _, error = asking.communicate(timeout=LIMIT_S)
    os.close(controller)
    os.close(terminal)
    assert asking.returncode == 1
    assert error.endswith(b"Continue? [y/N] aeron-cluster: nothing has changed\n")
    assert (member.cluster_dir / "recording.log").read_bytes() == before


def test_following_ends_with_0_wherever_ctrl_c_meets_it(
    words: Words, member: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("container.operate.show.write_json", interrupt)
    assert words("log", member.base_dir, "--json", "--follow") == (0, "", "")
    assert words("log", member.base_dir, "--json").code == 130


def test_the_document_has_the_fields_and_every_word() -> None:
    text = operator_document.DOCUMENT.read_text(encoding="utf-8")
    chapter = text[text.index(operator_document.HEADING) :]
    assert chapter == operator_document.fields_markdown(), "run python -m tests.operator_document"
    table = text[text.index("## Commands") : text.index("## Changes")]
    for word in WORDS:
        *_, last = word.split()
        assert re.search(rf"`({word}|{last})`", table), word


def test_every_word_explains_itself(words: Words) -> None:
    for word in WORDS:
        found = words(f"{word} --help", None)
        assert found.code == 0
        assert "Exit codes: 0 done or yes" in " ".join(found.output.split())
    every = words("--help", None).output
    assert all(word in every for word in WORDS)


def test_the_version_is_printed(words: Words) -> None:
    assert words("--version", None).output.startswith("aeron-cluster 0.")
    found = words("--version", None, "--json")
    assert found.facts["aeron"] == "1.51.0"


def test_the_archive_s_words_stand_beside_the_one_that_runs_it() -> None:
    assert find_word(["archive", "--dir", "list"]) is None
    assert find_word(["archive"]) is None
    name, _, rest = find_word(["archive", "list", "here"]) or pytest.fail("not found")
    assert (name, rest) == ("archive list", ["here"])
    name, _, rest = find_word(["recording-log", "./sort"]) or pytest.fail("not found")
    assert (name, rest) == ("recording-log", ["./sort"])


def test_election_states_are_those_of_the_consensus_module() -> None:
    from container.consensus.election_host import ElectionState

    assert [state.name for state in ElectionState] == list(ELECTION_STATES)


def test_a_reader_that_has_enough_ends_the_word(member: World) -> None:
    command = f"{' '.join(COMMAND)} archive dump {member.archive_dir} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("health {} >&-", 1, ""),
        ("status {} --json >&-", 1, ""),
        ("log {} >&-", 0, ""),
        ("health {} | true; exit ${{PIPESTATUS[0]}}", 1, ""),
        ("recording-log {} >/dev/full", 1, "standard output cannot be written: No space left on device"),
        ("recording-log {} --watch >/dev/full", 1, "standard output cannot be written: No space left on device"),
        ("recording-log seed {} <&-", 1, "there is no terminal to confirm on; pass --yes"),
        ("describe {}/none 2>&-", 3, ""),
    ],
)
def test_closed_and_full_files_cost_no_trace_and_no_exit_code(member: World, line: str, code: int, said: str) -> None:
    command = f"{' '.join(COMMAND)} {line.format(member.base_dir)}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == code, done
    assert said in done.stderr
    assert done.stderr.count("\n") == (1 if said else 0), done.stderr


def test_watching_goes_on_until_ctrl_c(tmp_path: Path, member: World) -> None:
    command = [*COMMAND, "recording-log", str(member.base_dir), "--json", "--watch", "0.05"]
    with Process("watch", command, directory=tmp_path) as watch:
        watch.start()
        watch.wait_until(lambda: watch.output().count("\n") >= 3, LIMIT_S, "three looks")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(LIMIT_S) == 0
        lines = watch.output().splitlines()
    assert len({line for line in lines if line}) == 1  # nothing has changed
    assert msgspec.json.decode(lines[0], type=facts.RecordingLog).entries


def test_watching_survives_a_file_that_comes_later(tmp_path: Path) -> None:
    command = [*COMMAND, "recording-log", str(tmp_path / "member"), "--json", "--watch", "0.05"]
    with Process("watch", command, directory=tmp_path) as watch:
        watch.start()
        watch.wait_until(lambda: "does not exist" in watch.errors(), LIMIT_S, "a look at nothing")
        written(tmp_path / "member")
        watch.wait_until(lambda: "SNAPSHOT" in watch.output(), LIMIT_S, "a look at the file")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(LIMIT_S) == 0


def test_a_media_driver_is_shown_and_its_end_noticed(words: Words, tmp_path: Path) -> None:
    aeron_dir = tmp_path / "driver"
    with MediaDriver.launch_embedded(aeron_dir, dir_delete_on_shutdown=False):
        every = words.facts("counters", aeron_dir)
        assert every["is_driver_alive"]
        assert every["driver_pid"] == os.getpid()
        some = words.facts("counters", aeron_dir, "--type", "0", "--label", "BYTES")
        assert 0 < len(some["counters"]) < len(every["counters"])
        assert all("bytes" in counter["label"].lower() for counter in some["counters"])
        for word, name in (("streams", "streams"), ("backlog", "streams"), ("loss", "entries")):
            assert words.facts(word, aeron_dir)[name] == []
        assert [log["source"] for log in words.facts("errors", aeron_dir)["logs"]] == ["media driver"]
    assert words.facts("counters", aeron_dir, code=1)["is_driver_alive"] is False


@pytest.mark.parametrize("line", ["status", "pid", "is-leader", "recording-log", "health", "archive list", "log"])
def test_a_word_loads_what_it_needs_and_no_more(member: World, line: str) -> None:
    """What is left out here is what makes a start slow: the settings, a client of Aeron, tables, Arrow."""
    directory = member.archive_dir if line.startswith("archive") else member.base_dir
    program = (
        "import sys\nfrom container.__main__ import main\n"
        f"try:\n    main({[*line.split(), str(directory), '--json']!r})\nexcept SystemExit:\n    pass\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    loaded = set(done.stderr.split())
    assert "container.operate.show" in loaded
    slow = {"rich", "pyarrow", "numpy", "asyncio", "tomllib", "ctypes", "subprocess", "socket", "http"}
    slow |= {"container.settings.container_table", "container.aeron.client", "container.context", "container.testing"}
    assert not loaded & slow
