"""The benchmarks on real nodes, tiny: every peer comes through, and each prints what it promises."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks import _harness, recordings, start
from benchmarks import all as all_benchmarks
from benchmarks.echo import BARE

PEERS = {"java", "python", "cython"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_benchmarks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_harness, "HISTORY", tmp_path / "history.jsonl")
    found = {name: report.as_json() for name, report in all_benchmarks.main(["--short"]).items()}
    assert set(found) == set(all_benchmarks.BENCHMARKS)
    for name, peers in (("echo", PEERS | {BARE}), ("snapshot", PEERS)):
        for row in found[name]["rows"].values():
            assert set(row) == peers
    assert set(found["replay"]["rows"]["from the archive, 5,000 messages of 32 B"]) == PEERS
    for result in found.values():
        assert set(result["failures"].values()) <= {0}
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {name: set(result["goals"]) for name, result in found.items()} == {
        name: set(goals) for name, goals in summary["goals"].items()
    }
    assert len(summary["goals"]["echo"]) > 50
    assert sum(summary["counts"].values()) == sum(len(goals) for goals in summary["goals"].values())


@pytest.mark.slow
def test_decoding_of_recordings_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_harness, "HISTORY", tmp_path / "history.jsonl")
    options = ["--rounds=1", "--gib", "0.005", "0.01", "--segment-mib=4", f"--dir={tmp_path}"]
    found = recordings.main(options).as_json()
    rates, growth = found["rows"].values()
    assert set(rates) == {"memcpy", "files", "python", *recordings.VIEWS}
    assert set(growth) == {"0.005 GiB", "0.01 GiB"}
    assert set(found["failures"].values()) == {0}
    assert list(tmp_path.glob("log-*")) == []


def test_a_start_of_dev_is_measured_beside_another_node_on_the_default_port() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        with suppress(OSError):  # some node has it already
            other.bind(("127.0.0.1", 9010))
        assert start.start_dev()["leads_s"] > 0
