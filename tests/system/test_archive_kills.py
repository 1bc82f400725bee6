"""Kills of a real archive under load, by seed: a few of those that ``./run soak --archive`` does by the thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.archive_kills import UNBLOCKED_COMMANDS, ArchiveKills, Lost

pytestmark = pytest.mark.usefixtures("jar")


@pytest.mark.parametrize("seed", [7, 8])
def test_nothing_that_was_announced_is_lost(tmp_path: Path, seed: int) -> None:
    with ArchiveKills(tmp_path, seed) as kills:
        kills.run(3)
        assert kills.counts["kills"] == 3
        assert kills.counts["messages"] > 0


def test_a_byte_that_was_not_published_is_found(tmp_path: Path) -> None:
    with ArchiveKills(tmp_path, 9) as kills:
        kills.run(1)
        segment = sorted(kills.archive.archive_dir.glob("*.rec"))[0]
        with segment.open("r+b") as file:
            file.seek(20)
            file.write(b"\x55")
        with pytest.raises(Lost):
            kills.check()


def test_a_failure_has_the_state_of_the_driver(tmp_path: Path) -> None:
    with ArchiveKills(tmp_path, 10) as kills:
        report = kills.driver_report()
        assert "running" in report
        assert f"{UNBLOCKED_COMMANDS} = " in report
        kills.driver.kill()
        assert "ended with -9" in kills.driver_report()
    (tmp_path / "driver" / "cnc.dat").unlink(missing_ok=True)
    assert "cnc.dat" in kills.driver_report()
