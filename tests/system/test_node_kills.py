"""Kills of a real node under load, by seed: a few of those that ``./run soak --node`` does by the thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.node_kills import Lost, NodeKills

pytestmark = pytest.mark.usefixtures("jar")


def test_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    with NodeKills(tmp_path, 7) as kills:
        kills.run(2)
        assert kills.counts["kills"] == 2
        assert kills.counts["messages acknowledged"] > 0
        client_id, answers = next((each, answers) for each, answers in kills.answers.items() if answers)
        answers[-1], last = answers[-1][:-1] + bytes([answers[-1][-1] ^ 1]), answers[-1]
        with pytest.raises(Lost, match=f"client {client_id} was told something else than the replay gives"):
            kills.check_replay()
        answers[-1:] = [last] * 10_000
        with pytest.raises(Lost, match=f"client {client_id} has .* answers, and the log "):
            kills.check_log()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 13))
def test_java_s_tools_find_the_files_in_order(tmp_path: Path, seed: int) -> None:
    with NodeKills(tmp_path, seed) as kills:
        kills.run(5)
        kills.check_with_java()
        assert kills.counts["looks of Java's tools"] == 1
