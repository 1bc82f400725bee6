"""The benchmarks on real nodes, tiny: every peer comes through, and each prints what it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import _harness, recordings
from benchmarks import all as all_benchmarks

PEERS = {"java", "python", "cython"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_benchmarks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_harness, "HISTORY", tmp_path / "history.jsonl")
    found = all_benchmarks.main(["--short"])
    assert set(found) == set(all_benchmarks.BENCHMARKS)
    for name in ("echo", "snapshot"):
        for row in found[name]["rows"].values():
            assert set(row) == PEERS
    assert set(found["replay"]["rows"]["from the archive, 5,000 messages of 32 B"]) == PEERS
    for result in found.values():
        assert set(result["failures"].values()) <= {0}
    goals = json.loads(capsys.readouterr().out.splitlines()[-1])["goals"]
    assert {name: result["goals"] for name, result in found.items()} == goals
    assert len(goals["echo"]) > 50


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_decoding_of_recordings_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_harness, "HISTORY", tmp_path / "history.jsonl")
    found = recordings.main(["--rounds=1", "--gib", "0.005", "0.01", "--segment-mib=4", f"--dir={tmp_path}"])
    rates, growth = found["rows"].values()
    assert set(rates) == {"memcpy", "files", "python", *recordings.VIEWS}
    assert set(growth) == {"0.005 GiB", "0.01 GiB"}
    assert set(found["failures"].values()) == {0}
    assert list(tmp_path.glob("log-*")) == []
