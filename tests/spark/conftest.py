"""Fixtures of the Spark tests: one session for all of them, and members whose files were written in the true format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from container.spark import open_session
from tests.spark.written_members import WrittenMember, write_history

# A session takes ten seconds to start, each of its first jobs some more.
LIMIT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test here the time that Spark needs on a busy machine."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(LIMIT_S))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of all tests; it has two workers, and few partitions after a shuffle."""
    session = open_session(
        "tests",
        master="local[2]",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def member(tmp_path_factory: pytest.TempPathFactory) -> WrittenMember:
    """A member with two leadership terms, several segments, sessions, timers and messages of one to many frames."""
    return write_history(tmp_path_factory.mktemp("member"))
