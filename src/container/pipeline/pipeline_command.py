"""The command ``aeron-cluster pipeline``: ingest, compact, ship, audit, replay, diff, analytics of recordings."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from container.common.loggers import print_notice
from container.common.values import counted, shown
from container.errors import ConfigurationError, ContainerError
from container.settings.arguments import add_log_level, number, path, seconds
from container.settings.setting import MAX_SERVICE_COUNT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from container.pipeline.manifest import Manifest
    from container.spark.options import SourceOptions

_LINE_INTERVAL_S = 10.0


def pipeline_parser(make: Callable[..., argparse.ArgumentParser], program: str) -> argparse.ArgumentParser:
    """The parser of what follows ``aeron-cluster pipeline``; its result has ``command``, to be called with it."""
    parser = make(
        prog=program,
        description="Run pipelines over clusters' recordings, on Spark. A PATH is the directory of a member (with its "
        "cluster and archive directories below), its cluster directory, its archive directory, or a place to which it "
        "was shipped; it may be a URL such as s3://bucket/member-0, and a pattern.",
    )
    parser.add_argument("--master", metavar="URL", help="Spark's master, such as spark://host:7077 (default: local[*])")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark; may be repeated"
    )
    add_log_level(parser, "warning", "least severe level that is logged")
    words = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_ingest(words)
    _add_compact(words)
    _add_audit(words)
    _add_replay(words)
    _add_diff(words)
    _add_analytics(words)
    _add_ship(words)
    return parser


def _add_word(words: Any, name: str, about: str, command: Callable[..., None]) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = words.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="directory of a member, or the URL of one")
    parser.add_argument(
        "--archive-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="archive directory of each PATH, in the same order",
    )
    parser.add_argument(
        "--committed",
        metavar="WHAT",
        help="what counts as committed while no member runs: recorded (all), known (by closed terms and snapshots), or "
        "a log position (default: what a majority of the PATHs has recorded; for one PATH all, unless another member "
        "ever led)",
    )
    _add_storage_options(parser, "each PATH that is a URL")
    parser.set_defaults(command=_on_spark(command))
    return parser


def _add_storage_options(parser: argparse.ArgumentParser, place: str) -> None:
    parser.add_argument(
        "--storage-options", metavar="JSON", help=f"options that fsspec passes to the file system of {place}"
    )


def _add_mode(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mode",
        choices=("strict", "permissive"),
        default="strict",
        help="strict: stop at damage; permissive: report it as a row (default: strict)",
    )


def _on_spark(command: Callable[[SparkSession, argparse.Namespace], None]) -> Callable[[argparse.Namespace], None]:
    def run(options: argparse.Namespace) -> None:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        from container.pipeline.spark_errors import plain_error

        source_options(options)  # a mistake is reported immediately, not after Spark's start
        spark = _session(options)
        try:
            command(spark, options)
        except (PySparkException, Py4JJavaError) as error:
            raise plain_error(error) from error
        except KeyboardInterrupt:
            raise ContainerError("interrupted") from None
        finally:
            with contextlib.suppress(Exception):  # of a connection to the JVM that Ctrl-C has broken
                spark.stop()

    return run


def _session(options: argparse.Namespace) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from container.spark import open_session

    settings = {"spark.ui.showConsoleProgress": "true", "spark.log.level": "ERROR", **_format_settings(options)}
    try:
        return open_session(f"aeron-cluster {options.word}", master=options.master, settings=settings)
    except (PySparkException, Py4JError) as error:
        text = str(getattr(error, "java_exception", error)).partition("\n")[0].rstrip(".")
        raise ContainerError(
            f"Spark does not start: {text}. Its own lines above say more; look at --master and --conf"
        ) from error


def _settings(given: list[str]) -> dict[str, str]:
    settings = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"--conf {shown(text)}: must be NAME=VALUE, such as spark.driver.memory=2g")
        settings[name] = value
    return settings


def source_options(options: argparse.Namespace) -> SourceOptions:
    """The options of the source that the command line gives.

    Raises:
        ConfigurationError: one of them is wrong.
        RecordingError: a path is not a member's.
    """
    import json

    from container.spark.options import parse_options
    from container.spark.source import open_source_members

    given = {
        "path": json.dumps(options.paths),
        "archive_dir": json.dumps(options.archive_dir) if options.archive_dir else None,
        "member": getattr(options, "member", None),
        "view": getattr(options, "view", None),
        "mode": getattr(options, "mode", None),
        "committed": getattr(options, "committed", None),
        "decoder": getattr(options, "decoder", None),
        "max_bytes_per_batch": getattr(options, "max_bytes_per_batch", None),
        "storage_options": options.storage_options,
    }
    parsed = parse_options({name: value for name, value in given.items() if value is not None})
    open_source_members(parsed)
    return parsed


# ingest


def _add_ingest(words: Any) -> None:
    parser = _add_word(
        words, "ingest", "read committed messages into a table, exactly once, even across restarts", _ingest
    )
    _add_table(parser, "parquet", "delta", "iceberg", default="parquet")
    parser.add_argument("--state-dir", type=path, metavar="DIR", help="directory of an iceberg ingest's checkpoint")
    parser.add_argument(
        "--partition-by",
        type=lambda text: tuple(text.split(",")),
        metavar="COLUMNS",
        help="columns that divide the table, out of cluster, date, hour and term (default: cluster,date,term)",
    )
    parser.add_argument("--view", default="messages", help="the view to read (default: messages)")
    parser.add_argument(
        "--member",
        metavar="WHICH",
        help="any: each message once, from whichever of the PATHs has it; all: the log of each; or a member's id "
        "(default: any)",
    )
    parser.add_argument("--cluster", metavar="NAME", help="name of the cluster in the table (default: its cluster id)")
    parser.add_argument("--decoder", metavar="DECODER", help="decoder of payloads, as the source's option decoder")
    parser.add_argument("--every", type=seconds, metavar="S", help="keep running until Ctrl-C, polling every S seconds")
    parser.add_argument(
        "--max-bytes-per-batch", metavar="SIZE", help="maximum bytes of log in a micro-batch, such as 256m"
    )
    _add_mode(parser)
    parser.set_defaults(word="ingest")


def _ingest(spark: SparkSession, options: argparse.Namespace) -> None:
    from container.pipeline.ingest import IngestStopped, ingest
    from container.spark.options import ANY

    progress = _IngestProgress()
    with _stop_signals() as stop:

        def on_progress(manifest: Manifest, query: StreamingQuery) -> None:
            progress.show(manifest, query)
            if stop.is_set():
                raise IngestStopped

        manifest = ingest(
            spark,
            source_options(options),
            options.table,
            table_format=options.format,
            partition_by=options.partition_by,
            state_dir=options.state_dir,
            cluster=options.cluster,
            interval_s=options.every,
            on_progress=on_progress,
        )
    for key, member in sorted(manifest.members.items()):
        covered = ", ".join(f"{one.begin_position} to {one.end_position}" for one in member.covered)
        name = "the cluster's log" if key == ANY else f"the log of member {key}"
        print(f"{name}: {f'positions {covered}' if covered else 'nothing yet'}; {counted(len(member.gaps), 'gap')}")
    print(f"{counted(manifest.row_count, 'row')} in {counted(manifest.file_count, 'file')} of {options.table}")


def _add_table(parser: argparse.ArgumentParser, *formats: str, default: str | None = None) -> None:
    parser.add_argument(
        "--table",
        required=True,
        type=path,
        metavar="TABLE",
        help="directory of the table; of iceberg its name with its catalog, such as local.logs.messages",
    )
    if default is None:
        parser.add_argument("--format", required=True, choices=formats, help="format of the table")
    else:
        parser.add_argument(
            "--format", choices=formats, default=default, help=f"format of the table (default: {default})"
        )
    parser.add_argument(
        "--warehouse", type=path, metavar="DIR", help="directory of the iceberg catalog named local, without a service"
    )


def _format_settings(options: argparse.Namespace) -> dict[str, str]:
    """Settings for the format of the table, unless the command line has a jar of its own choice."""
    from container.spark.table_formats import ICEBERG, table_format_settings

    given = _settings(options.conf)
    if getattr(options, "format", None) != ICEBERG:
        return given
    if any(name.startswith("spark.jars") for name in given):
        return given
    return {**table_format_settings([ICEBERG], warehouse=options.warehouse), **given}


def _note(text: str, level: str = "info") -> None:
    print_notice(text, sys.stderr, level=level)


class _IngestProgress:
    """A line on standard error for each finished micro-batch, and a sign of life when there is none."""

    def __init__(self) -> None:
        self._batch_id = -1
        self._next_s = time.monotonic() + _LINE_INTERVAL_S

    def show(self, manifest: Manifest, query: StreamingQuery) -> None:
        if manifest.batch_id == self._batch_id and time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _LINE_INTERVAL_S
        positions = ", ".join(f"{key}: {one.end_position}" for key, one in sorted(manifest.members.items()))
        state = "" if manifest.batch_id != self._batch_id else f" ({query.status['message'].lower()})"
        self._batch_id = manifest.batch_id
        if manifest.batch_id < 0:
            _note(f"no batch yet{state}")
            return
        _note(f"batch {manifest.batch_id}: {counted(manifest.row_count, 'row')}, positions {positions}{state}")


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM set an event, so that what is in progress can end in order; the second one ends it at once."""
    stop = threading.Event()

    def on_signal(*_: object) -> None:
        stop.set()
        restore()

    def restore() -> None:
        for caught, handler in before.items():
            signal.signal(caught, handler)

    before = {caught: signal.signal(caught, on_signal) for caught in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        restore()


# compact


def _add_compact(words: Any) -> None:
    about = "merge a table's small files"
    parser: argparse.ArgumentParser = words.add_parser("compact", help=about, description=about.capitalize() + ".")
    _add_table(parser, "delta", "iceberg")
    parser.set_defaults(word="compact", command=_compact)


def _compact(options: argparse.Namespace) -> None:
    from container.pipeline.compact import compact_delta, compact_iceberg

    if options.format == "delta":
        before, after = compact_delta(options.table)
    else:
        before, after = compact_iceberg(lambda: _session(options), str(options.table))
    print(
        f"{options.table}: {counted(before, 'file')} before, {after:,} now"
        if before
        else f"{options.table} has nothing to compact"
    )


# audit


def _add_audit(words: Any) -> None:
    parser = _add_word(words, "audit", "compare members, and check the history that they share", _audit)
    parser.add_argument(
        "--report",
        type=path,
        default=Path("report.html"),
        metavar="FILE",
        help="write an HTML report here and JSON beside it (default: report.html)",
    )
    parser.add_argument(
        "--block", type=_block, default="1m", metavar="SIZE", help="bytes of log with one hash (default: 1m)"
    )
    parser.set_defaults(word="audit", member="all")


def _block(text: str) -> int:
    """The length of a block; a mistake is reported before Spark's start."""
    from container.spark.options import parse_size

    try:
        length = parse_size("--block", text)
    except ConfigurationError:
        length = 0
    if not length or length % 32:
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a multiple of 32 bytes, such as 65536, 64k or 1m")
    return length


def _audit(spark: SparkSession, options: argparse.Namespace) -> None:
    from container.pipeline.audit import audit
    from container.pipeline.audit_report import write_audit

    report = audit(spark, source_options(options), block_length=options.block)
    for one in report.checks:
        print(f"{one.state}  {one.name}: {one.summary}")
        for found in one.findings:
            print(f"      {found.state}: {found.text}")
        if one.finding_count > len(one.findings):
            print(f"      {one.finding_count - len(one.findings):,} more findings are not listed")
    page, data = write_audit(report, options.report)
    print(f"verdict: {report.verdict}; {page}, {data}")
    if report.verdict == "fail":
        raise ContainerError("the audit failed: the members' histories differ or are invalid: see the report")


# replay and diff


def _add_replay(words: Any) -> None:
    parser = _add_word(words, "replay", "run a service over a recorded log, and compare its state", _replay)
    parser.add_argument("--service", required=True, metavar="package.module:Name", help="the service to run")
    _add_range(parser)
    parser.set_defaults(word="replay")


def _add_diff(words: Any) -> None:
    parser = _add_word(words, "diff", "run two services over a recorded log, and compare what they do", _diff)
    parser.add_argument("--service", required=True, metavar="package.module:Name", help="the service to compare with")
    parser.add_argument("--other", required=True, metavar="package.module:Name", help="the service to compare")
    parser.add_argument("--ignore-state", action="store_true", help="compare the actions of the two, not their states")
    _add_range(parser)
    parser.set_defaults(word="diff")


def _add_range(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, type=path, metavar="DIR", help="directory of the Parquet table")
    parser.add_argument(
        "--service-id",
        type=number(0, MAX_SERVICE_COUNT - 1),
        default=0,
        metavar="N",
        help="whose snapshots to use (default: 0)",
    )
    parser.add_argument(
        "--begin", type=number(0), metavar="POSITION", help="0 or a snapshot's log position (default: the earliest)"
    )
    parser.add_argument(
        "--end", type=number(0), metavar="POSITION", help="log position (default: all that is committed)"
    )
    parser.add_argument(
        "--hash", type=number(0), action="append", default=[], metavar="POSITION", help="also hash the state there"
    )
    parser.add_argument(
        "--continuous", action="store_true", help="keep the service's own state across snapshots, in one task"
    )
    _add_mode(parser)


def _plan(options: argparse.Namespace) -> dict[str, Any]:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # services are found as `python -m` finds them
    return {
        "service_id": options.service_id,
        "begin_position": options.begin,
        "end_position": options.end,
        "hash_positions": options.hash,
        "is_continuous": options.continuous,
    }


def _stored(rows: DataFrame, directory: Path) -> DataFrame:
    """The rows, once they are written: using them again must not run the service again."""
    rows.write.mode("overwrite").parquet(str(directory))
    return rows.sparkSession.read.parquet(str(directory))


def _replay(spark: SparkSession, options: argparse.Namespace) -> None:
    from container.pipeline.replay import replay, summarise_replay

    plan = _plan(options)
    found = summarise_replay(_stored(replay(spark, source_options(options), options.service, **plan), options.out))
    for kind, count in found.row_counts.items():
        print(f"{kind}: {count}")
    print(f"recorded snapshots compared: {found.compared_count}, {found.differing_count} differ; rows in {options.out}")
    if found.first_error is not None:
        raise ContainerError(f"the service failed, first at log position {found.first_error}")
    if found.first_difference is not None:
        raise ContainerError(
            f"the service's state is not the recorded one, first at the snapshot at {found.first_difference}"
        )


def _diff(spark: SparkSession, options: argparse.Namespace) -> None:
    from container.pipeline.replay import diff, summarise_diff

    plan = _plan(options)
    ignore_state = options.ignore_state
    rows = diff(spark, source_options(options), options.service, options.other, ignore_state=ignore_state, **plan)
    found = summarise_diff(_stored(rows, options.out))
    for (kind, change), count in found.counts.items():
        print(f"{kind} {change}: {count}")
    if not found.counts:
        print(f"{options.other} does what {options.service} does")
        return
    firsts = (
        ("do something different", found.first_answer),
        ("have different states", found.first_state),
        ("have states that cannot be compared", found.first_unknown),
    )
    text = ", and ".join(f"{what} from log position {at} on" for what, at in firsts if at is not None)
    raise ContainerError(f"the services {text}; rows in {options.out}")


# analytics


def _add_analytics(words: Any) -> None:
    parser = _add_word(
        words, "analytics", "write rates, sizes, sessions, timers and leaders as tables and plots", _analytics
    )
    parser.add_argument(
        "--out", required=True, type=path, metavar="DIR", help="directory of the tables and report.html"
    )
    _add_mode(parser)
    parser.set_defaults(word="analytics")


def _analytics(spark: SparkSession, options: argparse.Namespace) -> None:
    from container.pipeline.analytics import analyse, write_analytics

    page = write_analytics(analyse(spark, source_options(options)), options.out)
    print(f"tables in {options.out}, report: {page}")


# ship


def _add_ship(words: Any) -> None:
    about = "copy a member's committed log and snapshots to a place that other hosts can read"
    text = f"{about[0].upper()}{about[1:]}."
    parser: argparse.ArgumentParser = words.add_parser("ship", help=about, description=text)
    parser.add_argument("paths", nargs=1, metavar="PATH", help="directory of a member, on this machine")
    parser.add_argument("--archive-dir", metavar="DIR", help="archive directory of PATH, when it is elsewhere")
    parser.add_argument(
        "--to", required=True, metavar="PLACE", help="an empty directory or URL for this member, such as s3://logs/m0"
    )
    parser.add_argument("--every", type=seconds, metavar="S", help="keep running until Ctrl-C, looking every S seconds")
    parser.add_argument(
        "--check", action="store_true", help="read everything in PLACE and compare it with its manifest; copy nothing"
    )
    parser.add_argument(
        "--committed",
        metavar="WHAT",
        help="what counts as committed while the member does not run: recorded (all), known (by closed terms and "
        "snapshots), or a log position (default: known)",
    )
    _add_storage_options(parser, "PLACE")
    parser.set_defaults(word="ship", command=_ship)


def _ship(options: argparse.Namespace) -> None:
    from container.pipeline.ship import Pass, Shipper, ShipStopped, check_place
    from container.pipeline.ship_place import open_place
    from container.recordings import open_member
    from container.recordings.remote import parse_storage_options

    storage = parse_storage_options("--storage-options", options.storage_options)
    member = open_member(options.paths[0], archive_dir=options.archive_dir, committed=options.committed)
    place = open_place(options.to, {} if storage is None else storage.values(), make=not options.check)
    if options.check:
        manifest, faults = check_place(place, _note)
        for fault in faults:
            print(fault)
        if faults:
            raise ContainerError(
                f"{options.to}: {counted(len(faults), 'object')} missing or damaged: move damaged ones away, and ship "
                "again; where the member no longer has what is missing, ship it to an empty place"
            )
        print(f"{options.to} is whole: log positions {manifest.start_position} to {manifest.end_position}")
        return

    def show(done: Pass) -> None:
        _note(
            f"log shipped to {done.end_position} of {done.committed_position}; {counted(done.copied_count, 'object')}, "
            f"{done.copied_length} bytes copied, {done.taken_over_count} taken over"
        )

    warned = 0
    with _stop_signals() as stop:
        shipper = Shipper(member, place, stop=stop, on_publish=show)
        with contextlib.suppress(ShipStopped):
            while True:
                done = shipper.run()
                if done.unknown_length not in (0, warned):
                    _note(
                        f"warning: {options.paths[0]} does not run, and its last {done.unknown_length} bytes of log, "
                        f"from {done.committed_position} on, are not shipped: nothing in its files shows that they "
                        "are committed, and an election may remove them. Start the member, or give --committed "
                        "recorded if its cluster has no other member",
                        level="warning",
                    )
                warned = done.unknown_length
                if options.every is None:
                    print(f"{options.to} has the log up to {done.end_position}, manifest {done.number}")
                    return
                if stop.wait(options.every):
                    return
