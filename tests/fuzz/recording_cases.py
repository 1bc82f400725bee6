"""Cases of damaged recordings: a small member, one of whose files becomes a bad one, read strictly and permissively.

The rules: nothing crashes or hangs; a read raises a RecordingError in mode strict, in mode permissive only where a file
is missing, and it names the file, and of a segment file offset and log position; rows before the damage, and from the
next frame behind it on, are the right ones; and what is damaged is told once.
"""

from __future__ import annotations

import random
import re
import tempfile
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from container.codecs.messages import encode
from container.recordings import (
    VIEWS,
    Filters,
    RecordingError,
    RecordingUnavailableError,
    open_member,
    plan,
    read_partition,
    schema,
)
from tests.fuzz.recording_damage import FRAME_FIELDS, MESSAGE_FIELDS, MUTATIONS, Damage, Field
from tests.fuzz.world import Disagreement
from tests.plain_decoder import Frame, frames
from tests.recordings_world import TERM_LENGTH, World, marker, without_warnings

RECORDING_EPISODE_LENGTH = 100
LOG_VIEWS = ("messages", "frames", "session_messages", "sessions", "timers")
SPLIT_SHARE = 0.1
"""How often a log is read in two ranges as well, as a stream reads it."""
BATCH_ROWS = (9, 500)
EVERYTHING = Filters()

_CATALOG_FIELDS = (4, 4, 8, 4)
_CATALOG_ENTRY_FIELDS = (4, 4, 4)
_DESCRIPTOR_FIELDS = (8,) * 7 + (4,) * 6
_LOG_ENTRY_LENGTH = 64
_LOG_ENTRY_FIELDS = (8,) * 5 + (4,) * 2
# What a damaged recording log or catalog changes in rows of the log, though the log is whole.
_ABOUT_THE_LOG = ("committed", "leadership_term_id", "recording_id")


class Outcome:
    """The result of a read."""

    def __init__(self, table: pa.Table, error: RecordingError | None) -> None:
        self.table = table
        self.error = error
        self.first_error = 0
        """The index of the first row with an error."""
        self.errors: list[dict[str, Any]] = []
        self.good = table
        """The rows without errors."""
        if table["error"].null_count < table.num_rows:
            is_error = table["error"].is_valid()
            self.first_error = is_error.index(True).as_py()
            names = [name for name in ("log_position", "error") if name in table.schema.names]
            self.errors = table.select(names).filter(is_error).to_pylist()
            self.good = table.filter(pc.invert(is_error))

    def positions(self, name: str = "log_position") -> list[int]:
        """A column of the rows without errors."""
        values: list[int] = self.good[name].to_pylist()
        return values


@dataclass
class Target:
    """A file that can be damaged."""

    path: Path
    kind: str
    """``segment``, ``snapshot``, ``catalog`` or ``recording log``."""
    content: bytes
    used: int
    """Bytes that mean something."""
    fields: list[Field]
    message_ends: list[int] = field(default_factory=list)
    """Behind which bytes of a segment file a message ends."""
    base: int = 0
    """The log position at which a segment file begins."""
    recording_id: int = 0


def check(condition: object, text: str) -> None:
    """Raises Disagreement when something does not hold."""
    if not condition:
        raise Disagreement(text)


def written(rng: random.Random, base_dir: Path) -> World:
    """A member whose log has some Aeron terms in one to four segments, and two snapshots."""
    world = World(
        base_dir,
        segment_length=rng.choice([TERM_LENGTH, 2 * TERM_LENGTH]),
        initial_term_id=rng.choice([0, 2**31 - 2, -5]),
        start_position=rng.choice([0, 0, 4096, 5 * TERM_LENGTH + 64]),
        mtu_length=rng.choice([1408, 4096]),
        checksum=rng.random() < 0.2,
    )
    term_count = rng.randrange(1, 4)
    for index in range(term_count):
        term = world.begin_term()
        for _ in range(rng.randrange(1, 3)):
            world.append_some(rng, rng.randrange(2, 10), term)
            if rng.random() < 0.7:
                world.log.append_padding(None)
        if index < term_count - 1 and rng.random() < 0.3:
            world.log.append_frame(b"the last message of a leader that died", 0x80)
    world.append_some(rng, 5, term_count - 1)
    position = world.bases[-1]
    module = encode(
        "cluster",
        "ConsensusModule",
        next_session_id=8,
        next_service_session_id=9,
        log_service_session_id=8,
        pending_message_capacity=4096,
    )
    marks = [marker(mark, type_id=1, position=position) for mark in (0, 2)]
    world.add_snapshot(-1, [marks[0], module, marks[1]], position)
    data = [rng.randbytes(rng.choice([0, 5, 3000])) for _ in range(5)]
    world.add_snapshot(0, [marker(0, position=position), marker(2, position=position), *data], position)
    world.close(stop=rng.random() < 0.7)
    # An archive makes its catalog large beforehand; a short one is read more quickly.
    catalog = world.archive_dir / "archive.catalog"
    catalog.write_bytes(catalog.read_bytes().rstrip(b"\0").ljust(2048, b"\0"))
    return world


def _fields(offset: int, lengths: tuple[int, ...]) -> list[Field]:
    return [Field(offset + end - length, length) for length, end in zip(lengths, accumulate(lengths), strict=True)]


def _is_last_frame_unsure(outcome: Outcome) -> bool:
    """Whether a frame was not believed because none follows: then its length may be wrong, for all that can be seen."""
    return any("no frame begins at" in error["error"] for error in outcome.errors)


class RecordingEpisode:
    """The cases of one episode, all of one member, all drawn from ``seed`` and ``number``."""

    def __init__(self, seed: int, number: int, counts: Counter[str]) -> None:
        self.rng = random.Random(f"{seed}/{number}")
        self.counts = counts
        self.case = ""
        """The present action, for the report of a failure."""

    def run(self, cases: int) -> None:
        """Runs the cases. Raises Disagreement, or whatever else went wrong."""
        with tempfile.TemporaryDirectory(prefix="fuzz-") as directory, without_warnings():
            self.case = "a member that is whole"
            self._world = written(self.rng, Path(directory) / "node")
            self._member = open_member(self._world.base_dir, committed="known")
            self._is_stopped = self._member.log_descriptor().stop_position >= 0
            self._batch_rows = max(BATCH_ROWS)
            self._targets = self._find_targets()
            self._whole = {view: self._read(view, "strict") for view in VIEWS}
            for view, outcome in self._whole.items():
                check(outcome.error is None, f"{view} of a whole member: {outcome.error}")
                check(self._read(view, "permissive").table.equals(outcome.table), f"{view}: modes do not agree")
            self._whole_positions = {view: self._whole[view].positions() for view in LOG_VIEWS}
            self._whole_begins = {view: self._whole[view].positions("begin_position") for view in LOG_VIEWS}
            for _ in range(cases):
                self._run_case()

    def _find_targets(self) -> list[Target]:
        world, log, targets = self._world, self._world.log, []
        first = log.start_position // TERM_LENGTH * TERM_LENGTH
        found = list(frames(world.archive_dir, 0, log.start_position, log.position, log.segment_length, first))
        self._frames = found
        for base in range(first, log.position, log.segment_length):
            inside = [frame for frame in found if base <= frame.position < base + log.segment_length]
            targets.append(self._segment(0, base, inside, "segment"))
        for descriptor in world.descriptors:
            inside = list(
                frames(world.archive_dir, descriptor.recording_id, 0, descriptor.stop_position, log.segment_length)
            )
            targets.append(self._segment(descriptor.recording_id, 0, inside, "snapshot"))
        path = world.archive_dir / "archive.catalog"
        content = path.read_bytes()
        fields, offset = _fields(0, _CATALOG_FIELDS), 32
        self._catalog_ends = []
        for _ in range(3):
            fields += _fields(offset, _CATALOG_ENTRY_FIELDS) + _fields(offset + 32, _DESCRIPTOR_FIELDS)
            fields.append(Field(offset + 32 + 80, 4))
            offset += 32 + int.from_bytes(content[offset : offset + 4], "little")
            self._catalog_ends.append(offset)
        targets.append(Target(path, "catalog", content, offset, fields))
        path = world.cluster_dir / "recording.log"
        content = path.read_bytes()
        entries = range(0, len(content), _LOG_ENTRY_LENGTH)
        fields = [field for offset in entries for field in _fields(offset, _LOG_ENTRY_FIELDS)]
        targets.append(Target(path, "recording log", content, len(content), fields))
        return targets

    def _segment(self, recording_id: int, base: int, inside: list[Frame], kind: str) -> Target:
        path = self._world.archive_dir / f"{recording_id}-{base}.rec"
        content = path.read_bytes()
        fields = []
        for frame in inside:
            offset = frame.position - base
            fields += [Field(offset + place, length) for place, length in FRAME_FIELDS]
            if frame.payload is not None and frame.length >= 32 + 48:
                fields += [Field(offset + place, length) for place, length in MESSAGE_FIELDS]
        used = max(frame.position - base + (32 if frame.payload is None else frame.length) for frame in inside)
        ends = [frame.end - base for frame in inside if frame.payload is not None and frame.flags & 0x40]
        return Target(path, kind, content, used, fields, ends, base, recording_id)

    def _run_case(self) -> None:
        rng = self.rng
        kind = rng.choices(["segment", "snapshot", "catalog", "recording log"], [6, 1, 2, 1])[0]
        target = rng.choice([target for target in self._targets if target.kind == kind])
        name = rng.choice(list(MUTATIONS))
        damage = MUTATIONS[name](rng, target.content, target.used, target.fields)
        self._batch_rows = rng.choice(BATCH_ROWS)
        self.case = f"{name} of {target.path.name} (bytes {damage.begin} to {damage.end})"
        self.counts[f"{kind}: {name}"] += 1
        if damage.content is None:
            target.path.unlink()
        else:
            target.path.write_bytes(damage.content)
        if kind == "segment":
            self._check_log(target, damage)
        elif kind == "snapshot":
            self._check_snapshot(target, damage)
        elif not (kind == "catalog" and damage.content is None):
            self._check_lists(target, damage)
        else:
            self._check_no_archive()
        target.path.write_bytes(target.content)

    def _read(self, view: str, mode: str, filters: Filters = EVERYTHING) -> Outcome:
        batches, error = [], None
        try:
            for partition in plan(self._member, view, filters=filters, mode=mode):
                for batch in read_partition(partition, filters=filters, batch_rows=self._batch_rows):
                    batch.validate(full=True)
                    batches.append(batch)
        except RecordingError as failure:
            error = failure
        return Outcome(pa.Table.from_batches(batches, schema(view)), error)

    def _read_both(self, view: str) -> Outcome:
        """The rows of a permissive read, when that and a strict one keep the rules of all views."""
        self.case = f"{self.case.removesuffix(']').partition(' [')[0]} [{view}]"
        strict, permissive = self._read(view, "strict"), self._read(view, "permissive")
        if isinstance(permissive.error, RecordingUnavailableError):
            self._check_error(permissive.error)
            if not permissive.errors:
                check(str(permissive.error) == str(strict.error), f"modes do not agree on {permissive.error}")
                check(permissive.table.equals(strict.table), "modes do not agree on the rows before what is missing")
            return permissive
        check(permissive.error is None, f"mode permissive raised {permissive.error!r}")
        check(not strict.errors, "mode strict gave a row with an error")
        if strict.error is None:
            check(not permissive.errors, f"an error in mode permissive only: {permissive.errors[:1]}")
            check(strict.table.equals(permissive.table), "modes do not agree on rows without an error")
            return permissive
        self.counts[f"told: {re.sub('-?[0-9]+', 'N', strict.error.detail)[:50]}"] += 1
        self._check_error(strict.error)
        if strict.error.log_position is not None:
            errors = permissive.errors
            told = errors[0]["error"].partition(";")[0] if errors else ""
            check(told == str(strict.error).partition(";")[0], f"modes do not agree on {strict.error}")
            rows = permissive.table.slice(0, permissive.first_error)
            check(strict.table.equals(rows), "modes do not agree on the rows before damage")
        return permissive

    def _check_error(self, error: RecordingError) -> None:
        file = error.file or ""
        check(Path(file).is_relative_to(self._world.base_dir), f"no file is named: {error}")
        names = [file]
        if file.endswith(".rec"):
            check(error.offset is not None and error.log_position is not None, f"no place is named: {error}")
            names += [f"offset {error.offset}", f"log position {error.log_position}"]
        check(all(name in str(error) for name in names), f"a place is not in the text: {error}")

    def _check_log(self, target: Target, damage: Damage) -> None:
        """Rows that end before the damage, and rows from the next frame behind it on, are those of the whole log."""
        view = self.rng.choice(LOG_VIEWS)
        permissive = self._read_both(view)
        whole, good = self._whole[view].table, permissive.good
        begin = target.base + damage.begin
        length = len(target.content)
        is_cut = damage.content is None or len(damage.content) < length
        last = length - 1 if is_cut else max(damage.begin, damage.end - 1)
        resume = target.base + length
        if not is_cut:
            resume = next((f.position for f in self._frames if f.position > target.base + last), resume)
        positions = permissive.positions()
        check(positions == sorted(positions), "rows are not in order")
        before, expected = bisect_right(positions, begin), bisect_right(self._whole_positions[view], begin)
        # After a crash the last frame is perhaps not whole, if it crosses a page that is empty.
        is_torn = not self._is_stopped and before == expected - 1
        is_unsure = _is_last_frame_unsure(permissive)
        rows = whole.slice(0, before)
        check(
            before == expected or is_torn or (is_unsure and before == expected - 1),
            f"{before} rows before log position {begin}, not {expected}",
        )
        check(good.slice(0, before).equals(rows), f"rows before log position {begin} are not the right ones")
        if self._is_stopped and permissive.error is None:
            behind = good.slice(bisect_left(permissive.positions("begin_position"), resume))
            rows = whole.slice(bisect_left(self._whole_begins[view], resume))
            if view == "frames":
                # Of a leadership term whose first frame is damaged they are told to be of the one before.
                behind, rows = behind.drop_columns(_ABOUT_THE_LOG[1]), rows.drop_columns(_ABOUT_THE_LOG[1])
            check(behind.equals(rows), f"rows from log position {resume} on are not the right ones")
        messages = self._whole_positions["messages"]
        intact = bisect_right(messages, begin)
        low = messages[intact - 1] if intact else self._world.log.start_position
        if is_unsure:
            low = max((f.position for f in self._frames if f.end <= begin), default=low)
        for error in permissive.errors:
            place = error["log_position"]
            check(low <= place < resume, f"the damage is from {low} to {resume}: {error['error']}")
        data_end = max((f.position + 32 for f in self._frames if f.position < target.base + length), default=0)
        if is_cut and self._is_stopped and begin < data_end:
            check(permissive.errors or permissive.error, "what is cut off is not told")
        if permissive.error is None and self.rng.random() < SPLIT_SHARE:
            self._check_split(view, permissive)

    def _check_split(self, view: str, whole: Outcome) -> None:
        """Two ranges of positions have the rows of the whole log, each once."""
        log = self._world.log
        errors = [error["log_position"] for error in whole.errors]
        near = self.rng.choice([*errors, self.rng.randrange(log.start_position, log.position)])
        cut = max(log.start_position, near + self.rng.choice([-32, -1, 0, 0, 1, 32]))
        self.case += f" in two ranges, divided at {cut}"
        ranges = (Filters(end_position=cut), Filters(begin_position=cut))
        parts = [self._read(view, "permissive", filters).table for filters in ranges]
        check(pa.concat_tables(parts).equals(whole.table), "two ranges have not the rows of the whole log")
        self.counts["reads in two ranges"] += 1

    def _check_snapshot(self, target: Target, damage: Damage) -> None:
        """The other snapshot is whole, and so are the things before the damage."""
        permissive = self._read_both("snapshots")
        whole = self._whole["snapshots"].table
        for recording_id in (1, 2) if permissive.error is None else range(1, target.recording_id):
            rows, expected = (
                table.filter(pc.equal(table["recording_id"], recording_id)).drop_columns(["is_complete"])
                for table in (permissive.table, whole)
            )
            if recording_id == target.recording_id:
                # Before its things comes the row of its entry.
                count = 1 + sum(end <= damage.begin for end in target.message_ends)
                count -= _is_last_frame_unsure(permissive) and count > 1
                rows, expected = rows.slice(0, count), expected.slice(0, count)
            check(rows.equals(expected), f"rows of snapshot {recording_id} are not the right ones")

    def _check_lists(self, target: Target, damage: Damage) -> None:
        """Entries before the damage are rows; of the log nothing is told that it does not have."""
        own_view, ends = "recordings", self._catalog_ends
        if target.kind == "recording log":
            own_view = "recording_log"
            ends = list(range(_LOG_ENTRY_LENGTH, len(target.content) + 1, _LOG_ENTRY_LENGTH))
        view = self.rng.choice([own_view, *VIEWS])
        permissive = self._read_both(view)
        whole, good = self._whole[view].table, permissive.good
        if view == own_view:
            count = sum(end <= damage.begin for end in ends) if target.kind != "catalog" or damage.begin >= 32 else 0
            check(good.slice(0, count).equals(whole.slice(0, count)), "entries before the damage are not right")
        elif view in LOG_VIEWS and good.num_rows and self._log_recording_id() == self._world.log.recording_id:
            places = {place: index for index, place in enumerate(self._places(whole))}
            found = [places.get(place) for place in self._places(good)]
            check(None not in found, "a row that the log does not have")
            names = [name for name in whole.schema.names if name not in _ABOUT_THE_LOG]
            check(whole.take(found).select(names).equals(good.select(names)), "a row that the log has otherwise")

    def _places(self, table: pa.Table) -> list[tuple[int, int]]:
        return list(zip(table["begin_position"].to_pylist(), table["log_position"].to_pylist(), strict=True))

    def _log_recording_id(self) -> int:
        return self._member.log_descriptor("permissive").recording_id

    def _check_no_archive(self) -> None:
        """Without its catalog no member is found, whatever the mode."""
        try:
            open_member(self._world.base_dir, committed="known")
        except RecordingError as error:
            check("there is no archive.catalog" in str(error), f"the catalog is missing: {error}")
        else:
            check(False, "a member without a catalog was found")
        self._read_both(self.rng.choice(VIEWS))
