"""Events in the log: their text and fields, their limit, JSON lines, and the page that lists them."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from container.common import log_events
from container.common.log_events import (
    EVENTS,
    LIMIT_COUNT,
    LIMIT_S,
    WaitLog,
    log_closing,
    log_ended,
    log_event,
    log_started,
)
from container.common.loggers import JsonFormatter

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (".py", ".pyx")
PAGE = (ROOT / "docs" / "logs.md").read_text()


@pytest.fixture(autouse=True)
def no_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_events, "_counts", {})


def json_of(record: logging.LogRecord) -> dict[str, object]:
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, object] = json.loads(text)
    return found


def test_an_event_has_a_text_for_people_and_fields_for_programs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "container"):
        log_event("a-service", "term_began", leadership_term_id=3, leader_member_id=0, log_position=96)
    (record,) = caplog.records
    text = "a-service: a leadership term began: leadershipTermId=3 leaderMemberId=0 logPosition=96"
    assert record.getMessage() == text
    assert record.levelname == "INFO"
    record.created = 1_700_000_000.1239
    assert json_of(record) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "info",
        "logger": "container",
        "message": text,
        "event": "term_began",
        "source": "a-service",
        "leadership_term_id": 3,
        "leader_member_id": 0,
        "log_position": 96,
    }


def test_of_one_event_so_many_are_logged_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0

    def log(event: str = "slow_callback") -> None:
        log_event("a-service", event, monotonic=lambda: now, log_position=1)

    with caplog.at_level("INFO", "container"):
        for _ in range(LIMIT_COUNT + 7):
            log()
        assert len(caplog.records) == LIMIT_COUNT
        log("sessions")  # has a limit of its own
        assert len(caplog.records) == LIMIT_COUNT + 1
        now = LIMIT_S
        log()
        log()
    assert [record.fields.get("left_out") for record in caplog.records[-2:]] == [7, None]  # type: ignore[attr-defined]


def test_a_flood_of_one_service_hides_no_event_of_another(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "container"):
        for _ in range(1_000):
            log_event("one", "slow_callback", monotonic=lambda: 0.0, log_position=1)
        log_event("other", "slow_callback", monotonic=lambda: 0.0, log_position=2)
    assert len(caplog.records) == LIMIT_COUNT + 1
    assert json_of(caplog.records[-1])["source"] == "other"


def test_what_was_left_out_is_counted_at_the_end_also_when_no_further_event_came(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", "container"):
        for _ in range(LIMIT_COUNT + 7):
            log_event("a-service", "slow_callback", monotonic=lambda: 0.0, log_position=1)
        log_ended("a", was_asked_for=True)
        log_ended("a", was_asked_for=True)
    left_out, *ended = caplog.records[LIMIT_COUNT:]
    assert (left_out.getMessage(), left_out.levelname) == ("a-service: slow_callback: 7 more left out", "WARNING")
    assert (json_of(left_out)["left_out"], json_of(left_out)["source"]) == (7, "a-service")
    assert [json_of(record)["event"] for record in ended] == ["ended", "ended"]


def test_a_wait_is_logged_after_5_s_and_then_every_30_s_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    log = WaitLog("a")
    waits = [(0, "x"), (4.9, "x"), (5, "x"), (34.9, "y"), (35, "y"), (36, None), (70, "z"), (74, "z"), (75, "z")]
    for seconds, what in waits:
        log.tick(what, int(seconds * 1_000_000_000))
    lines = [json_of(record) for record in caplog.records]
    assert [(line["event"], line["source"], line["what"], line["waited_s"]) for line in lines] == [
        ("waiting", "a", "x", 5),
        ("waiting", "a", "y", 35),
        ("waiting", "a", "z", 5),
    ]
    assert lines[0]["message"] == "a: still waiting for x after 5 s"


def test_a_wait_says_when_it_is_logged_next(caplog: pytest.LogCaptureFixture) -> None:
    log = WaitLog("a")
    assert log.tick("x", 1) == 5_000_000_001
    assert log.tick("x", 4_000_000_001) == 5_000_000_001
    assert not caplog.records
    assert log.tick("x", 5_000_000_001) == 35_000_000_001
    (line,) = [json_of(record) for record in caplog.records]
    assert (line["message"], line["source"], line["what"]) == ("a: still waiting for x after 5 s", "a", "x")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_failed_start_is_an_event_where_standard_error_has_json(log_format: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "container", "run", "no_such_module:Service"],
        env={**os.environ, "AERON_CLUSTER_LOG_FORMAT": log_format},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    if log_format == "text":
        assert done.stderr.startswith("aeron-cluster: error: ")
        assert done.stderr.count("\n") == 1
        return
    line = json.loads(done.stderr)
    assert (line["event"], line["exit_code"], line["error"]) == ("ended", 2, "ConfigurationError")
    assert line["reason"]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_is_printed_as_it_is_becomes_a_record_among_lines_of_json(log_format: str) -> None:
    code = (
        "import sys\nfrom container.common.loggers import log_to_stderr, print_notice\n"
        f"log_to_stderr('info', {log_format!r})\n"
        "print_notice('WARNING: saved', sys.stderr); print_notice('out', sys.stdout, level='info')\n"
        "print_notice('none', None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if log_format == "text":
        assert (done.stdout, done.stderr) == ("out\n", "WARNING: saved\n")
    else:
        assert done.stdout == ""
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        assert [(line["message"], line["level"]) for line in lines] == [("saved", "warning"), ("out", "info")]


def test_nothing_is_raised_whatever_an_event_is() -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise ValueError

    log_event("a-service", "unknown")
    log_event("a-service", "sessions", open=Unprintable())  # type: ignore[arg-type]


def test_the_end_of_a_program_has_its_reason_and_exit_code(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "container"):
        log_started("a", "a is ready: with 100 %")
        log_closing("a", "SIGTERM")
        log_ended("a", was_asked_for=True)
        log_ended("a", was_asked_for=False)
        log_ended("a", was_asked_for=False, failure=("ValueError", "a bad day"))
    assert [record.getMessage() for record in caplog.records] == [
        "a is ready: with 100 %",
        "SIGTERM: closing a",
        "a: ended: reason=a signal exitCode=0",
        "a: ended: reason=the cluster exitCode=0",
        "a: ended by ValueError: a bad day: exitCode=1",
    ]
    lines = [json_of(record) for record in caplog.records]
    assert [line["event"] for line in lines] == ["started", "closing", "ended", "ended", "ended"]
    assert [line.get("exit_code") for line in lines] == [None, None, 0, 0, 1]
    assert [line.get("reason") for line in lines[2:]] == ["a signal", "the cluster", "a bad day"]
    assert lines[4]["level"] == "error"


def test_a_line_of_json_holds_what_cannot_be_json_as_text() -> None:
    record = logging.makeLogRecord({"msg": "a\n%s", "args": ("b",), "event": "error"})
    record.fields = {
        "a": object,
        "message": "hidden",
        "long": "x" * 10_000,
        "none": None,
        "true": True,
        "nan": float("nan"),
    }
    line = json_of(record)
    assert line["message"] == "a\nb"
    assert line["a"] == "<class 'object'>"
    assert len(str(line["long"])) == 4_096
    assert (line["none"], line["true"], line["nan"]) == (None, True, "nan")


def test_a_line_of_json_has_the_stack() -> None:
    try:
        raise ValueError("a bad day")
    except ValueError:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info()})
    assert str(json_of(record)["stack"]).endswith("ValueError: a bad day")


@pytest.mark.parametrize("variable", ["AERON_CLUSTER_LOG_FORMAT", "AERON_CLUSTER_LOG_LEVEL"])
@pytest.mark.parametrize("word", ["run", "container.run"])
def test_a_variable_that_is_no_choice_is_one_line_and_code_2(variable: str, word: str) -> None:
    code = "from container.__main__ import main; raise SystemExit(main(['run', 'a:B']))"
    if word == "container.run":
        code = "import container; container.run()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, variable: "xml"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert re.fullmatch(f"(aeron-cluster|container.run): error: {variable}='xml': must be one of .*\n", done.stderr)


def test_container_run_prints_what_happens_in_the_format_of_the_environment() -> None:
    code = (
        "import logging\nfrom container.common.loggers import log_as_the_environment_says, report\n"
        "log_as_the_environment_says(); report('info', 'heard', event='started', fields={'source': 'a'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "AERON_CLUSTER_LOG_FORMAT": "json"},
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    line = json.loads(done.stderr)
    assert (line["message"], line["event"], line["source"]) == ("heard", "started", "a")


def test_the_page_lists_each_event_that_is_logged_and_its_level() -> None:
    listed = dict(re.findall(r"(?m)^\| `(\w+)` \| (\w+)", PAGE))
    sources = [path.read_text() for path in (ROOT / "src" / "container").rglob("*.py*") if path.suffix in SOURCES]
    named = set(EVENTS)
    for source in sources:
        named.update(re.findall(r'''(?:event=|"event": )"(\w+)"''', source))
    assert set(listed) == named
    assert {name: event.level for name, event in EVENTS.items()} == {name: listed[name] for name in EVENTS}
    for source in sources:
        for call in re.findall(r"(?s)log_event\(\s*self(.*?)\)\n", source):
            for field in re.findall(r"[ (](\w+)=(?!=)", call):
                assert f"`{field}`" in PAGE, field
