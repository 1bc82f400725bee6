"""The benchmark of archives runs, tiny: beside Java's, with a row of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import _harness, archive, archive_client


@pytest.mark.slow
def test_archives_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_harness, "CACHE", tmp_path)
    monkeypatch.setattr(_harness, "HISTORY", tmp_path / "history.jsonl")
    found = archive.main([*archive.SHORT, "--only=1024 B|trip|idle|start", f"--dir={tmp_path}"]).as_json()
    assert set(found["failures"].values()) == {0}
    assert {name for name, peers in found["rows"].items() if {"java", "native"} <= set(peers)} == set(found["rows"])
    assert len(found["rows"]) == 9
    recorded = found["rows"]["record, ipc, 1024 B, 8"]
    assert set(recorded) == set(archive.PEERS)
    assert all(of_peer["mib_per_s"] > 0 and of_peer["cpu_s_per_gib"] > 0 for of_peer in recorded.values())
    assert list(tmp_path.glob("archive-*")) == []


@pytest.mark.slow
def test_clients_of_an_archive_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_harness, "HISTORY", tmp_path / "history.jsonl")
    found = archive_client.main(archive_client.SHORT).as_json()
    assert set(found["failures"].values()) == {0}
    [row] = found["rows"].values()
    assert set(row) == {"java", "blocking", "asyncio"}
    assert all(of_peer["requests_per_s"] > 0 for of_peer in row.values())
