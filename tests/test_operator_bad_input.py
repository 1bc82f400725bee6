"""The operators' words on directories without a whole node: a sentence or an answer each, never a trace."""

from __future__ import annotations

import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from container.errors import TimedOutError
from container.operate.answers import RefusedError
from container.operate.control import _members, _old_members
from container.operate.node_metrics import sample_node
from container.operate.operator_command import WORDS, _fail
from tests.operator_world import Result, Words, written
from tests.recordings_world import archive_mark
from tests.test_cnc_file import cnc_content

DIRECTORY_WORDS = [word for word in WORDS if WORDS[word].variables]
CONTROL = ("snapshot", "suspend", "resume", "shutdown", "abort", "list-members", "backup-query-delay")
NOBODY = 65534
TIB = 1 << 40
# Runs words as a user who may read nothing; first as the user who started it, so that all is imported.
AS_NOBODY = f"""
import os, sys
from container.__main__ import main

def run(line):
    try:
        return main(line.split())
    except SystemExit as end:
        return end.code

lines = sys.stdin.readlines()
for line in lines:
    run(line)
for stream in (sys.stdout, sys.stderr):
    print("BEGIN", file=stream, flush=True)
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
for line in lines:
    print(run(line), flush=True)
"""


@pytest.fixture
def words() -> Words:
    return Words()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A member that has all the files; its media driver's directory is below it."""
    base_dir = tmp_path_factory.mktemp("whole") / "member"
    world = written(base_dir)
    (world.archive_dir / "archive-mark.dat").write_bytes(archive_mark())
    shutil.copy(world.cluster_dir / "cluster-mark.dat", world.cluster_dir / "cluster-mark-service-0.dat")
    (base_dir / "driver").mkdir()
    (base_dir / "driver" / "cnc.dat").write_bytes(cnc_content())
    (base_dir / "driver" / "loss-report.dat").write_bytes(bytes(4096))
    return base_dir


@pytest.fixture
def member(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "member"))


def place(word: str, base_dir: Path) -> Path:
    """The directory that a word is given: what it reads lies there."""
    if word in ("counters", "streams", "backlog", "loss"):
        return base_dir / "driver"
    return base_dir / "archive" if WORDS[word].variables == ("AERON_ARCHIVE_DIR",) else base_dir


def check(word: str, found: Result) -> None:
    """A word has answered, or said why not in one sentence."""
    assert found.code in (0, 1, 3), (word, found)
    assert "Traceback" not in found.error + found.output, (word, found)
    assert found.error.count("\n") <= 1, (word, found)
    if found.code == 3:
        assert found.error.startswith("aeron-cluster: "), (word, found)


def arguments(word: str) -> tuple[str, ...]:
    needed = {"archive delete-snapshots": ("--keep", "1"), "archive purge": ("--before", "1")}.get(word, ())
    is_changing = word.startswith(("recording-log ", "invalidate")) or needed
    return (*needed, "--yes", "--json") if is_changing else ("--json",)


# Directories.


@pytest.mark.parametrize("word", DIRECTORY_WORDS)
def test_what_is_no_directory_of_a_node_is_said_so(words: Words, word: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("none", "file", "empty", "pipe", "file/below", "empty/../empty", "x" * 300):
        found = words(word, tmp_path / name, *arguments(word))
        check(word, found)
        assert found.code == (1 if word == "health" else 3), (name, found)


def test_several_nodes_in_one_directory_are_named(words: Words, tmp_path: Path, whole: Path) -> None:
    for name in ("one", "other"):
        shutil.copytree(whole / "cluster", tmp_path / name)
    assert "contains several: name one of one, other" in words.refusal("describe", tmp_path, code=3)


# Files.


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: min(len(content) // 2, 100)])


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def noise(path: Path) -> None:
    path.write_bytes(random.Random(3).randbytes(min(path.stat().st_size, 20_000)))


def ones(path: Path) -> None:
    path.write_bytes(b"\xff" * min(path.stat().st_size, 20_000))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def giant(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(TIB)


def gone(path: Path) -> None:
    path.unlink()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


FILES = {
    "cluster/cluster-mark.dat": ("cluster", "control"),
    "cluster/cluster-mark-service-0.dat": ("cluster",),
    "cluster/recording.log": ("cluster",),
    "archive/archive.catalog": ("cluster", "archive"),
    "archive/0-0.rec": ("cluster", "archive"),
    "archive/archive-mark.dat": ("cluster", "archive"),
    "driver/cnc.dat": ("driver",),
    "driver/loss-report.dat": ("driver",),
}
KINDS: list[Callable[[Path], None]] = [
    *(empty, half, zeros, noise, ones, pipe, directory, giant, gone, dangling, loop, device)
]


def words_of(name: str) -> list[str]:
    """The words that may read a file."""
    if name.startswith("driver"):
        return ["counters", "streams", "backlog", "loss"]
    if name.startswith("archive/"):
        return [word for word in DIRECTORY_WORDS if word.startswith(("archive", "log", "describe-latest", "recovery"))]
    return [word for word in DIRECTORY_WORDS if not word.startswith("archive")]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none_is_a_sentence(words: Words, member: Path, name: str, kind: Callable[[Path], None]) -> None:
    if kind is giant and name == "archive/0-0.rec":
        pytest.skip("a segment file is read as far as its recording goes")
    kind(member / name)
    for word in words_of(name):
        check(word, words(word, place(word, member), *arguments(word)))
        check(word, words(word, place(word, member), *arguments(word)[:-1]))


def test_files_of_other_versions_are_named(words: Words, member: Path) -> None:
    mark = member / "cluster" / "cluster-mark.dat"
    content = bytearray(mark.read_bytes())
    struct.pack_into("<i", content, 8, 9 << 16)
    mark.write_bytes(content)
    assert "has version 9.0.0, only 0.x is known" in words.refusal("describe", member, code=3)
    catalog = member / "archive" / "archive.catalog"
    content = bytearray(catalog.read_bytes())
    struct.pack_into("<i", content, 0, 4 << 16)
    catalog.write_bytes(content)
    assert "only 3.x is known" in words.refusal("archive list", member / "archive", code=3)
    cnc = member / "driver" / "cnc.dat"
    content = bytearray(cnc.read_bytes())
    struct.pack_into("<i", content, 0, 1 << 16)
    cnc.write_bytes(content)
    assert "major version 1" in words.refusal("counters", member / "driver", code=3)


def test_a_mark_file_of_an_old_release_is_read(words: Words, member: Path) -> None:
    mark = member / "cluster" / "cluster-mark.dat"
    mark.write_bytes(mark.read_bytes()[8:])
    facts = words.facts("describe", member)["consensus_module"]
    assert (facts["component"], facts["member_id"], facts["services_cluster_dir"]) == ("CONSENSUS_MODULE", 2, "")


@pytest.mark.parametrize(
    "text", [b"", b"\xff\xfe", b"/nowhere/at/all", b"a\0b", b"x" * 20_000, b"/dev", b"."], ids=repr
)
def test_a_link_to_a_mark_file_that_leads_nowhere_is_a_sentence(words: Words, member: Path, text: bytes) -> None:
    (member / "cluster" / "cluster-mark.lnk").write_bytes(text)
    for word in ("describe", "pid", "status", "errors", "snapshot", "is-leader"):
        check(word, words(word, member, "--json"))
    assert words("describe", member).code == 3


def test_what_is_flipped_in_files_is_a_sentence(words: Words, member: Path, whole: Path) -> None:
    rng = random.Random(11)
    names = [name for name in FILES if name != "archive/0-0.rec"]
    for _ in range(120):
        name = rng.choice(names)
        content = bytearray((whole / name).read_bytes())
        for _ in range(rng.choice([1, 4, 30])):
            content[rng.randrange(min(len(content), 400))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        (member / name).write_bytes(content)
        word = rng.choice(words_of(name))
        check(word, words(word, place(word, member), *arguments(word)))
        shutil.copy(whole / name, member / name)


@pytest.mark.parametrize("length", range(0, 129, 4))
def test_a_mark_file_of_a_shorter_message_is_a_sentence(words: Words, member: Path, length: int) -> None:
    """Its header says that a field is not there, or a field has what stands for none."""
    mark = member / "cluster" / "cluster-mark.dat"
    content = mark.read_bytes()
    mark.write_bytes(struct.pack("<H", length) + content[2:])
    check("describe", words("describe", member))
    for null in (-(2**63), 2**31 - 1, -(2**31)):
        mark.write_bytes(content[: 8 + length] + struct.pack("<q", null) + content[16 + length :])
        check("describe", words("describe", member, "--json"))
    assert sample_node(member).samples


@pytest.mark.parametrize("word", ["describe-latest-consensus-module-snapshot", "describe-latest-service-snapshot"])
def test_a_snapshot_s_message_that_is_shorter_is_a_sentence(words: Words, member: Path, word: str) -> None:
    entry = words.facts(word, member)["recording_id"]
    segment = member / "archive" / f"{entry}-0.rec"
    content = segment.read_bytes()
    frames = words("archive dump", member / "archive", "--recording", str(entry), "--json").facts
    said = set()
    for frame in frames[:8]:
        for length in range(0, 80, 4):
            place = frame["position"] + 32
            segment.write_bytes(content[:place] + struct.pack("<H", length) + content[place + 2 :])
            found = words(word, member, "--json")
            check(word, found)
            said.add(found.error)
    assert any(" has no " in each for each in said), said


@pytest.mark.parametrize("answer", [b"", b"a,b", b"0,a|", b"\xff"])
def test_an_answer_that_names_no_member_is_a_sentence(answer: bytes) -> None:
    with pytest.raises(RefusedError, match="which is not a member"):
        _old_members({"leader_member_id": 0, "active_members": answer})


@pytest.mark.parametrize(
    ("log_position", "time_ns", "shown"),
    [(64, 5_000_000_000, 5_000_000_000), (-1, 5_000_000_000, None), (-1, -1, None), (64, -1, None), (64, 0, None)],
)
def test_a_member_never_heard_from_has_no_time(log_position: int, time_ns: int, shown: int | None) -> None:
    endpoints = {f"{name}_endpoint": b"a:1" for name in ("ingress", "consensus", "log", "catchup", "archive")}
    member = {"member_id": 1, "leadership_term_id": 0, "log_position": log_position, "time_of_last_append_ns": time_ns}
    fields = {"member_id": 0, "leader_member_id": 0, "current_time_ns": 9, "active_members": [member | endpoints]}
    (found,) = _members(fields).members
    assert found.time_of_last_append_ns == shown


@pytest.mark.parametrize(("leader", "is_current"), [(0, True), (1, False), (-1, False)])
def test_positions_are_marked_as_old_where_a_follower_says_them(leader: int, is_current: bool) -> None:
    endpoints = {f"{name}_endpoint": b"a:1" for name in ("ingress", "consensus", "log", "catchup", "archive")}
    member = {"member_id": 1, "leadership_term_id": 0, "log_position": 64, "time_of_last_append_ns": 5}
    fields = {"member_id": 0, "leader_member_id": leader, "current_time_ns": 9, "active_members": [member | endpoints]}
    found = _members(fields)
    assert found.has_current_positions is is_current
    assert found.members[0].log_position == 64


def test_text_of_a_file_cannot_control_the_terminal(words: Words, member: Path) -> None:
    mark = member / "cluster" / "cluster-mark.dat"
    content = bytearray(mark.read_bytes())
    text = b"\x1b[2J\x07[bold]\r\n"
    struct.pack_into(f"<i{len(text)}s", content, 136, len(text), text)
    mark.write_bytes(content)
    found = words("describe", member)
    assert found.code == 0
    assert "\x1b" not in found.output
    assert "\x07" not in found.output
    assert "[bold]" in found.output
    for word in ("counters", "status", "health", "errors", "list-members"):
        for line in (word, f"{word} --json"):
            found = words(line, member)
            assert not {"\x1b", "\x07"} & {*found.output, *found.error}, line


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_files_that_may_not_be_read_are_named(whole: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        base_dir = Path(shutil.copytree(whole, Path(name) / "member"))
        base_dir.chmod(0o755)
        for path in base_dir.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o600)
        lines = [
            f"{word} {place(word, base_dir)} {' '.join(arguments(word))}\n"
            for word in DIRECTORY_WORDS
            if word not in ("health", "errors")
        ]
        command = [sys.executable, "-c", AS_NOBODY]
        done = subprocess.run(command, input="".join(lines), capture_output=True, text=True, check=True)
        codes = done.stdout.rpartition("BEGIN\n")[2].split()
        assert codes == ["3"] * len(lines), done.stderr
        sentences = done.stderr.rpartition("BEGIN\n")[2].splitlines()
        assert len(sentences) == len(lines)
        assert all("ermission denied" in sentence for sentence in sentences), sentences


# Arguments.


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("describe --nonsense", "unrecognized arguments"),
        ("describe one two", "unrecognized arguments"),
        ("health --check dead", "invalid choice"),
        ("health --timeout never", "must be a number of seconds"),
        ("health --timeout nan", "must be a number of seconds"),
        ("log --from -1", "must be a whole number from 0 on"),
        ("log --message poem", "invalid choice"),
        ("archive dump --recording first", "must be a whole number from 0 on"),
        ("archive dump --limit 99999999999999999999", "must be a whole number from 0 on"),
        ("archive delete-snapshots --keep x", "'x': must be a whole number from 1 on"),
        ("archive delete-snapshots --keep -1", "'-1': must be a whole number from 1 on"),
        ("archive delete-snapshots --keep 0", "'0': must be a whole number from 1 on"),
        ("backup-query-delay --set soon", "must be a duration"),
        ("counters --type x", "must be a whole number"),
        ("status --watch -1", "must be a number of seconds"),
        ("status --watch 0", "must be a number of seconds, more than 0"),
        ("recording-log --yes", "unrecognized arguments"),
        ("status --watch 0", "'0': must be a number of seconds, more than 0"),
        ("archive describe x --stream 3", "unrecognized arguments"),
        ("snapshots", "unknown command 'snapshots': did you mean 'snapshot'?"),
    ],
)
def test_wrong_arguments_are_one_line(words: Words, line: str, said: str) -> None:
    found = words(line, None)
    assert found.code == 2
    assert said in found.error
    assert found.error.count("\n") == 1
    assert found.output == ""


def test_a_nul_in_a_path_is_refused(words: Words) -> None:
    assert words("describe", None, "a\0b").code == 2


@pytest.mark.parametrize("word", ["status", "archive list", "counters", "exporter"])
@pytest.mark.parametrize("text", ["\udcff", "a" * 70_000])
def test_a_variable_that_is_no_path_is_named(
    words: Words, monkeypatch: pytest.MonkeyPatch, word: str, text: str
) -> None:
    for variable in ("AERON_CLUSTER_DIR", "AERON_DIR", "AERON_ARCHIVE_DIR"):
        monkeypatch.setattr(os, "environ", {variable: text})
        found = words(word, None)
        assert found.code == 2
        assert found.error.count("\n") == 1
        assert re.search(f"{variable}=.*must be a path in UTF-8|name (a|the) directory", found.error), found.error


@pytest.mark.parametrize("host", ["a..b", "x" * 300, "\udcff", "no host", "", "256.1.1.1"])
def test_a_host_that_is_none_is_refused(words: Words, tmp_path: Path, host: str) -> None:
    found = words("exporter", tmp_path, "--port", "0", "--host", host)
    assert found.code == 1
    assert "metrics cannot be served on" in found.error
    assert found.error.count("\n") == 1


def test_no_memory_is_a_sentence(words: Words, member: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_path: Path) -> None:
        raise MemoryError

    monkeypatch.setattr("container.operate.recording_logs.show", fail)
    assert words.refusal("recording-log", member, code=3) == "aeron-cluster: there is not enough memory\n"


def test_a_time_out_is_no_file_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """It is an OSError as well."""
    assert _fail(TimedOutError("waited 3 s for the driver"), 1) == 1
    assert capsys.readouterr().err == "aeron-cluster: waited 3 s for the driver\n"
