"""Fixtures of the Spark tests: one session for all of them, and members whose files were written in the true format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from container.spark import open_session
from container.spark.versions import IS_4_1
from tests.spark.written_members import WrittenMember, write_history

# A session takes ten seconds to start, each of its first jobs some more.
LIMIT_S = 600
# PySpark 4.1 leaves the sockets of collected rows to the garbage collector.
_SOCKETS_OF_4_1 = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test here the time that Spark needs on a busy machine."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(LIMIT_S))
            if IS_4_1:
                item.add_marker(pytest.mark.filterwarnings(_SOCKETS_OF_4_1))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of all tests; it has two workers, few partitions after a shuffle, and compiles no query.

    For so few rows Spark takes longer to compile a query than to interpret it.
    """
    session = open_session(
        "tests",
        master="local[2]",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def member(tmp_path_factory: pytest.TempPathFactory) -> WrittenMember:
    """A member with two leadership terms, several segments, sessions, timers and messages of one to many frames."""
    return write_history(tmp_path_factory.mktemp("member"))
