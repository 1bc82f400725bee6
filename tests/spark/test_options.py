"""Options and filters of the source, without a session: what they are read as, and what is said about wrong ones."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from container.errors import ConfigurationError
from container.pipeline.rows import source_options
from container.recordings import Filters
from container.spark.filters import narrow
from container.spark.options import SourceOptions, parse_options

POSITION, TEMPLATE, TIME, TERM = ("log_position",), ("template_id",), ("timestamp",), ("leadership_term_id",)


def test_options_are_read_with_names_in_any_case() -> None:
    given = {"Path": "/a, /b", "VIEW": "frames", "Batch_Rows": "10", "committed_only": "TRUE", "mode": "permissive"}
    assert parse_options(given) == SourceOptions(
        ("/a", "/b"), view="frames", batch_rows=10, committed_only=True, mode="permissive"
    )


def test_directories_come_from_load_from_a_list_or_as_json() -> None:
    assert parse_options({"paths": '["/a", "/b,c"]'}).paths == ("/a", "/b,c")
    assert parse_options({"path": '["/a", "/b,c"]'}).paths == ("/a", "/b,c")
    assert parse_options({"path": "/a", "archive_dir": "/x"}).archive_dirs == ("/x",)


def test_options_survive_the_way_through_spark() -> None:
    options = SourceOptions(
        ("/a", "/b,c"),
        archive_dirs=("/x", "/y"),
        view="timers",
        mode="permissive",
        decoder="a.b:C",
        committed_only=True,
        committed=96,
        columns=("log_position",),
        batch_rows=7,
        max_bytes_per_batch=64 * 1024,
    )
    assert parse_options(source_options(options)) == options
    for committed in ("recorded", "known", None):
        chosen = SourceOptions(("/a",), committed=committed)
        assert parse_options(source_options(chosen)) == chosen


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("view", "message", "view='message': must be one of frames, messages"),
        ("mode", "FAILFAST", "mode='FAILFAST': must be one of strict, permissive"),
        ("committed_only", "yes", "committed_only='yes': must be true or false"),
        ("committed", "all", r"committed='all': must be recorded \(all that is recorded\), known"),
        ("committed", "-1", "committed='-1': must be recorded"),
        ("batch_rows", "0", "batch_rows='0': must be a number of rows from 1 to 1048576"),
        ("batch_rows", "many", "batch_rows='many'"),
        ("max_bytes_per_batch", "1.5m", "max_bytes_per_batch='1.5m': must be a positive number of bytes"),
        ("columns", "log_position,", "columns='log_position,': a column's name is empty"),
        ("columns", "error,timestamp,error", "columns='error,timestamp,error': 'error' is there twice; name each"),
        ("decoder", " ", "decoder is empty"),
        ("veiw", "frames", "option 'veiw' is unknown; did you mean 'view'?"),
        ("quote", "x", "option 'quote' is unknown; known options: path, archive_dir"),
        ("path", "/a,,/b", "path='/a,,/b': an entry is empty"),
        ("path", "[1]", r"path='\[1\]': is not a JSON list of directories"),
        ("archive_dir", "/x,/y", "archive_dir names 2 directories and path 1"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(option: str, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_options({"path": "/a", option: value})


def test_a_missing_path_and_an_option_of_another_view_are_errors() -> None:
    with pytest.raises(ConfigurationError, match="path is missing: give the base directory of a member"):
        parse_options({})
    with pytest.raises(ConfigurationError, match="committed_only: the view 'terms' is not of the log"):
        parse_options({"path": "/a", "view": "terms", "committed_only": "true"})


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], Filters()),
        ([GreaterThan(POSITION, 100), LessThan(POSITION, 200)], Filters(begin_position=100, end_position=200)),
        (
            [GreaterThanOrEqual(POSITION, 96), LessThanOrEqual(POSITION, 96)],
            Filters(begin_position=95, end_position=97),
        ),
        ([EqualTo(POSITION, 64)], Filters(begin_position=63, end_position=65)),
        ([GreaterThanOrEqual(TIME, 5), LessThan(TIME, 9)], Filters(begin_timestamp=5, end_timestamp=9)),
        ([In(TEMPLATE, (20, 21, 70_000))], Filters(template_ids=frozenset([20, 21]))),
        ([In(TEMPLATE, (20, 21)), LessThan(TEMPLATE, 21)], Filters(template_ids=frozenset([20]))),
        ([EqualTo(TERM, 3), IsNotNull(TERM)], Filters(leadership_term_ids=frozenset([3]))),
        # What cannot narrow it is left to Spark.
        ([Not(EqualTo(TERM, 3)), StringContains(("error",), "x"), EqualTo(("service_id",), 1)], Filters()),
        ([EqualTo(("a", "log_position"), 1), EqualTo(POSITION, None), EqualTo(POSITION, True)], Filters()),
    ],
)
def test_filters_narrow_what_is_read(filters: list[Filter], expected: Filters) -> None:
    assert narrow("messages", filters) == expected


def test_times_of_frames_are_left_to_spark() -> None:
    filters: list[Filter] = [GreaterThan(POSITION, 100), GreaterThan(TIME, 5), EqualTo(TEMPLATE, 20)]
    assert narrow("frames", filters) == Filters(begin_position=100)


def test_filters_that_nothing_passes_leave_nothing_to_read() -> None:
    assert narrow("messages", [GreaterThan(POSITION, 100), LessThan(POSITION, 100)]) is None
    assert narrow("messages", [EqualTo(TEMPLATE, 1), EqualTo(TEMPLATE, 2)]) is None
    assert narrow("messages", [In(TEMPLATE, ())]) is None


def test_views_that_are_not_of_the_log_are_read_whole() -> None:
    assert narrow("recording_log", [EqualTo(POSITION, 64)]) == Filters()
