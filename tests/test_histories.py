"""Random histories of clusters: what views, streams and replays say of them is what a plain reader finds.

``./run histories`` checks a thousand of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.histories import checks

SEEDS = (1, 2, 3, 5, 8, 13)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_readers_agree_on_a_random_history(seed: int, tmp_path: Path) -> None:
    checks.run(seed, tmp_path)
