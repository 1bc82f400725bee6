"""The gallery as a whole: each service is short, and passes all checks that there are for services."""

from __future__ import annotations

from pathlib import Path

import pytest

from container.__main__ import main
from container.testing.memory import checks
from tests.test_check_environments import ALL, PLAIN

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "examples" / "gallery"
SERVICES = {
    "expiring_store": "ExpiringStore",
    "fencing_lock": "FencingLock",
    "order_book": "OrderBook",
    "rate_limiter": "RateLimiter",
    "scheduler": "Scheduler",
}


def test_each_service_has_its_page_and_its_test_and_fewer_than_150_lines() -> None:
    page = (DIRECTORY / "README.md").read_text(encoding="utf-8")
    paths = sorted(DIRECTORY.glob("*.py"))
    assert [path.stem for path in paths] == list(SERVICES)
    for path in paths:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 150, path
        assert f"]({path.name})" in page
        assert f"](../../tests/gallery/test_{path.name})" in page


@pytest.mark.parametrize("name", SERVICES)
def test_the_checks_find_nothing(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environments differ in all that there is at once, and not one after the other."""
    monkeypatch.setattr(checks, "ENVIRONMENTS", (PLAIN, ALL))
    service = f"examples.gallery.{name}:{SERVICES[name]}"
    life = f"tests.gallery.test_{name}:life"
    arguments = ["--life", life, "--simulations", "10", "--memory-messages", "1000"]
    status = main(["check", service, *arguments])
    report = capsys.readouterr().out
    assert status == 0, report
    assert [line.split()[1] for line in report.splitlines()] == ["ok"] * 8, report
