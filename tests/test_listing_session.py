"""Lists that a client gets piece by piece: statements 61 and 62 of the conformance checklist, and what they leave."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from container.archive.error_codes import GENERIC, UNKNOWN_RECORDING
from container.archive.server.sessions.control_session import SESSION_CLOSED, ControlSession
from container.archive.server.sessions.listing_session import ListingSession, SubscriptionListing, find_last_matching
from container.errors import ArchiveError
from container.testing.simulation.disk import SimulatedDisk
from tests.control_world import ERROR, RECORDING_UNKNOWN, SUBSCRIPTION_UNKNOWN, ControlWorld, RawClient
from tests.recorded_frames import TERM_LENGTH
from tests.store_world import NOW_MS, StoreWorld

CORRELATION_ID = 77
SCANS_PER_TURN = 64
SMALL_WINDOW = 2048

type Listing = ListingSession | SubscriptionListing
type Message = tuple[str, dict[str, Any]]


class Archive:
    """A catalog, and a control session with a client."""

    def __init__(self, *, window: int = 0) -> None:
        self.disk = SimulatedDisk()
        self.storage = self.disk.process()
        self.storage.make_directory("archive")
        self.files = StoreWorld(self.storage, "archive")
        self.catalog = self.files.store.catalog
        self.world = ControlWorld(window=window)
        self.client: RawClient = self.world.connect()
        self.session: ControlSession = self.client.open()
        self.errors: list[Exception] = []

    def add(self, count: int = 1, *, stream_id: int = 10, session_id: int = 3, channel: str = "aeron:ipc") -> list[int]:
        """Stopped recordings; their ids."""
        made = []
        for _ in range(count):
            writer = self.files.store.start_recording(
                start_position=0,
                initial_term_id=0,
                term_buffer_length=TERM_LENGTH,
                mtu_length=1408,
                session_id=session_id,
                stream_id=stream_id,
                stripped_channel="aeron:stripped",
                original_channel=channel,
                source_identity="source",
                now_ms=NOW_MS,
            )
            self.files.store.stop(writer, NOW_MS)
            made.append(writer.recording_id)
        return made

    def purge(self, *recording_ids: int) -> None:
        for recording_id in recording_ids:
            self.files.delete(self.files.store.purge(recording_id))

    def recordings(self, first: int = 0, count: int = 2**31 - 1, **options: Any) -> ListingSession:
        fields: dict[str, Any] = {"from_recording_id": first, "record_count": count, "on_error": self.errors.append}
        return ListingSession(self.session, self.catalog, CORRELATION_ID, **fields | options)

    def subscriptions(self, *subscriptions: tuple[int, int, str], **options: Any) -> SubscriptionListing:
        fields: dict[str, Any] = {
            "pseudo_index": 0,
            "subscription_count": 2**31 - 1,
            "apply_stream_id": False,
            "stream_id": 0,
            "channel_fragment": b"",
            "on_error": self.errors.append,
        }
        return SubscriptionListing(self.session, CORRELATION_ID, subscriptions, **fields | options)

    def run(self, listing: Listing, turns: int = 10_000) -> list[Message]:
        """What the client gets of a list, of which it reads all in each turn."""
        received = []
        for _ in range(turns):
            if listing.is_done:
                break
            listing.do_work()
            self.world.work()
            received += self.client.received()
        else:
            raise AssertionError(f"{listing} did not end")
        assert listing.do_work() == 0
        self.world.work()
        return received + self.client.received()

    def outcome(self, listing: Listing) -> tuple[list[int], int | None]:
        """The recordings, or subscriptions, that came, and the id in the reply that ended the list, if there is one."""
        received = self.run(listing)
        end = None
        if received and received[-1][0] == "ControlResponse":
            _, fields = received.pop()
            is_of_recordings = isinstance(listing, ListingSession)
            assert fields["code"] == (RECORDING_UNKNOWN if is_of_recordings else SUBSCRIPTION_UNKNOWN)
            assert fields["correlation_id"] == CORRELATION_ID
            end = fields["relevant_id"]
        key = "recording_id" if isinstance(listing, ListingSession) else "subscription_id"
        assert {fields["correlation_id"] for _, fields in received} <= {CORRELATION_ID}
        return [fields[key] for _, fields in received], end


@pytest.fixture
def archive() -> Archive:
    return Archive()


# Recordings: 8.


def test_a_descriptor_has_all_that_the_catalog_has(archive: Archive) -> None:
    [recording_id] = archive.add(channel="aeron:ipc?alias=x", stream_id=-5, session_id=-6)
    [(name, fields)] = archive.run(archive.recordings(count=1))
    descriptor = archive.catalog.descriptor(recording_id)
    assert descriptor is not None
    assert name == "RecordingDescriptor"
    assert (fields.pop("control_session_id"), fields.pop("correlation_id")) == (
        archive.session.session_id,
        CORRELATION_ID,
    )
    texts = {name: value.decode() for name, value in fields.items() if isinstance(value, bytes)}
    for key, value in (fields | texts).items():
        assert value == getattr(descriptor, key), key


@pytest.mark.parametrize(
    ("first", "count", "expected"),
    [
        (0, 100, ([0, 1, 2, 3, 4], 5)),
        (0, 6, ([0, 1, 2, 3, 4], 5)),
        (0, 5, ([0, 1, 2, 3, 4], None)),
        (0, 2, ([0, 1], None)),
        (3, 1, ([3], None)),
        (4, 2, ([4], 5)),
        (5, 2, ([], 5)),
        (1000, 2, ([], 1000)),
        (-1, 2, ([0, 1], None)),
        (-(2**63), 2, ([0, 1], None)),
        (2**63 - 1, 2, ([], 2**63 - 1)),
        (2, 0, ([], 2)),
        (2, -1, ([], 2)),
        (2, -(2**31), ([], 2)),
    ],
)
def test_a_list_begins_and_ends_where_it_was_asked_to(
    archive: Archive, first: int, count: int, expected: tuple[list[int], int | None]
) -> None:
    archive.add(5)
    assert archive.outcome(archive.recordings(first, count)) == expected


@pytest.mark.parametrize(
    ("first", "count", "expected"),
    [(0, 9, ([1, 3, 5], 6)), (2, 1, ([3], None)), (4, 1, ([5], None)), (6, 9, ([], 6)), (0, 3, ([1, 3, 5], None))],
)
def test_recordings_that_were_purged_do_not_exist(
    archive: Archive, first: int, count: int, expected: tuple[list[int], int | None]
) -> None:
    archive.add(7)
    archive.purge(0, 2, 4, 6)
    assert archive.outcome(archive.recordings(first, count)) == expected


@pytest.mark.parametrize("first", [0, 7, -3])
def test_an_empty_catalog(archive: Archive, first: int) -> None:
    assert archive.outcome(archive.recordings(first)) == ([], first)


@pytest.mark.parametrize("total", [1, 63, 64, 65, 127, 128, 129, 200])
def test_at_most_64_entries_are_looked_at_in_a_turn(total: int) -> None:
    archive = Archive()
    archive.add(total)
    listing = archive.recordings()
    turns = []
    while not listing.is_done:
        listing.do_work()
        turns.append([fields.get("recording_id") for _, fields in archive.client.received()])
    assert max(map(len, turns)) <= SCANS_PER_TURN
    assert len(turns) == total // SCANS_PER_TURN + 1
    assert [each for turn in turns for each in turn] == [*range(total), None]


def test_what_does_not_match_counts_as_looked_at(archive: Archive) -> None:
    archive.add(100, stream_id=1)
    archive.add(1, stream_id=2)
    listing = archive.recordings(stream_id=2, channel_fragment=b"")
    assert listing.do_work() == SCANS_PER_TURN
    assert archive.client.received() == []
    assert listing.do_work() == 101 - SCANS_PER_TURN + 1
    assert len(archive.client.received()) == 2


def test_a_client_that_does_not_read_gets_each_descriptor_once() -> None:
    archive = Archive(window=SMALL_WINDOW)
    archive.add(50)
    listing = archive.recordings()
    assert listing.do_work() > 0
    assert listing.do_work() == 0
    assert not listing.is_done
    assert archive.outcome(listing) == (list(range(50)), 50)


def test_what_is_added_while_a_list_is_sent_is_in_it() -> None:
    archive = Archive(window=SMALL_WINDOW)
    archive.add(20)
    listing = archive.recordings(count=30)
    listing.do_work()
    archive.add(5)
    assert archive.outcome(listing) == (list(range(25)), 25)


def test_what_is_purged_while_a_list_is_sent_is_not_in_it() -> None:
    archive = Archive(window=SMALL_WINDOW)
    archive.add(20)
    listing = archive.recordings()
    listing.do_work()
    sent = len(archive.client.received())
    archive.purge(sent, sent + 1, 19)
    assert archive.outcome(listing) == (list(range(sent + 2, 19)), 19)


def test_what_is_added_and_purged_while_a_list_is_sent_is_not_in_it() -> None:
    archive = Archive(window=SMALL_WINDOW)
    archive.add(20)
    listing = archive.recordings(5)
    listing.do_work()
    archive.add(3)
    archive.purge(20, 22)
    assert archive.outcome(listing) == ([*range(5, 20), 21], 22)


def test_a_list_from_an_id_that_is_yet_to_come() -> None:
    archive = Archive(window=SMALL_WINDOW)
    archive.add(3)
    listing = archive.recordings(4)
    archive.add(3)
    assert archive.outcome(listing) == ([4, 5], 6)


# By stream and channel: 9.


@pytest.mark.parametrize(
    ("stream_id", "fragment", "expected"),
    [
        (1, b"", [0, 2, 4]),
        (1, b"alias=x", [0, 4]),
        (1, b"aeron:ipc", [0, 2, 4]),
        (2, b"x", [1]),
        (2, b"y", []),
        (3, b"", []),
        (1, b"aeron:stripped", []),
        (1, b"source", []),
        (1, b"ALIAS", []),
        (1, b"aeron:ipc?alias=xy", [4]),
        (1, b"aeron:ipc?alias=xyz", []),
        (1, b"\xff", []),
        (1, b"x" * 1000, []),
    ],
)
def test_only_recordings_of_stream_and_channel_are_listed(
    archive: Archive, stream_id: int, fragment: bytes, expected: list[int]
) -> None:
    for stream, channel in [(1, "x"), (2, "x"), (1, "y"), (4, "x"), (1, "xy")]:
        archive.add(stream_id=stream, channel=f"aeron:ipc?alias={channel}")
    assert archive.outcome(archive.recordings(stream_id=stream_id, channel_fragment=fragment)) == (expected, 5)


def test_a_count_is_of_those_that_match(archive: Archive) -> None:
    for stream_id in [1, 2, 1, 2, 1, 2]:
        archive.add(stream_id=stream_id)
    assert archive.outcome(archive.recordings(1, 2, stream_id=1, channel_fragment=b"ipc")) == ([2, 4], None)


# One: 10.


def test_a_single_recording_has_no_reply_but_its_descriptor(archive: Archive) -> None:
    archive.add(3)
    assert archive.outcome(archive.recordings(1, 0, is_single=True)) == ([1], None)


@pytest.mark.parametrize("recording_id", [2, 3, -1, 2**63 - 1, 1 - 2**63])
def test_a_single_recording_that_is_not_there(archive: Archive, recording_id: int) -> None:
    archive.add(3)
    archive.purge(2)
    assert archive.outcome(archive.recordings(recording_id, 1, is_single=True)) == ([], recording_id)


def test_a_single_recording_waits_for_a_client_that_does_not_read() -> None:
    archive = Archive(window=SMALL_WINDOW)
    archive.add(50)
    archive.recordings().do_work()
    listing = archive.recordings(7, 1, is_single=True)
    assert listing.do_work() == 0
    archive.client.received()
    assert archive.outcome(listing) == ([7], None)


def test_a_single_recording_that_is_purged_while_it_waits() -> None:
    archive = Archive(window=SMALL_WINDOW)
    archive.add(50)
    archive.recordings().do_work()
    listing = archive.recordings(7, 1, is_single=True)
    assert listing.do_work() == 0
    archive.purge(7)
    archive.client.received()
    assert archive.outcome(listing) == ([], 7)


# How lists end.

LISTS: list[Callable[[Archive], Listing]] = [
    lambda archive: archive.recordings(),
    lambda archive: archive.recordings(1, 1, is_single=True),
    lambda archive: archive.subscriptions((1, 2, "aeron:ipc")),
]


@pytest.mark.parametrize("make", LISTS, ids=["all", "single", "subscriptions"])
def test_a_list_that_is_aborted_sends_nothing(archive: Archive, make: Callable[[Archive], Listing]) -> None:
    archive.add(3)
    listing = make(archive)
    before = listing.is_done
    listing.abort("for a reason")
    assert (before, listing.is_done, listing.do_work()) == (False, True, 0)
    assert archive.client.received() == []


@pytest.mark.parametrize("make", LISTS, ids=["all", "single", "subscriptions"])
def test_a_list_ends_with_its_control_session(archive: Archive, make: Callable[[Archive], Listing]) -> None:
    archive.add(3)
    listing = make(archive)
    archive.session.active_listing = listing
    archive.session.abort(SESSION_CLOSED)
    assert listing.is_done
    assert listing.do_work() == 0
    assert archive.session.active_listing is None


@pytest.mark.parametrize("make", LISTS, ids=["all", "single", "subscriptions"])
def test_a_list_ends_when_its_client_goes_while_it_is_sent(make: Callable[[Archive], Listing]) -> None:
    archive = Archive()
    archive.add(3)
    archive.client.responses.close()
    listing = make(archive)
    listing.do_work()
    assert archive.session.is_done
    assert listing.is_done


def error_of(archive: Archive, listing: Listing) -> tuple[int, str]:
    *_, (name, fields) = archive.run(listing)
    assert (name, fields["code"], fields["correlation_id"]) == ("ControlResponse", ERROR, CORRELATION_ID)
    assert [str(error) for error in archive.errors] == [fields["error_message"].decode()]
    return fields["relevant_id"], fields["error_message"].decode()


@pytest.mark.parametrize("is_single", [False, True])
def test_a_descriptor_that_is_too_long_ends_the_list_with_an_error(archive: Archive, is_single: bool) -> None:
    archive.add(1, channel="aeron:ipc?alias=" + "x" * 20_000)
    code, text = error_of(archive, archive.recordings(0, 1, is_single=is_single))
    assert code == GENERIC
    assert text.startswith("a response of 20")
    assert archive.session.state == "ACTIVE"


def test_a_subscription_that_is_too_long_ends_the_list_with_an_error(archive: Archive) -> None:
    code, text = error_of(archive, archive.subscriptions((1, 2, "aeron:ipc?alias=" + "x" * 20_000)))
    assert code == GENERIC
    assert text.startswith("a response of 20")


def test_a_disk_that_fails_ends_the_list_with_an_error(archive: Archive) -> None:
    archive.add(3)
    archive.disk.fail("read", errno.EIO, after=1)
    received = archive.run(archive.recordings(on_error=None))
    assert [name for name, _ in received] == ["RecordingDescriptor", "ControlResponse"]
    assert (received[-1][1]["code"], received[-1][1]["relevant_id"]) == (ERROR, GENERIC)


def test_a_catalog_that_is_closed_ends_the_list_with_an_error(archive: Archive) -> None:
    archive.add(3)
    archive.catalog.close()
    code, text = error_of(archive, archive.recordings())
    assert (code, text) == (GENERIC, "the catalog archive/archive.catalog is closed")


def test_lists_are_shown(archive: Archive) -> None:
    listing = archive.recordings(3, 4)
    assert repr(listing) == "<ListingSession correlation_id=77 from=3 left=4>"
    archive.run(listing)
    assert repr(listing) == "<ListingSession correlation_id=77 from=3 left=4 done>"
    subscriptions = archive.subscriptions(subscription_count=2)
    assert repr(subscriptions) == "<SubscriptionListing correlation_id=77 index=0 of 0 left=2>"


# Subscriptions: 17.

SUBSCRIPTIONS = [(11, 1, "aeron:ipc?alias=a"), (12, 2, "aeron:udp?endpoint=a:1"), (13, 1, "aeron:ipc?alias=b")]


def test_a_subscription_has_all_that_is_known(archive: Archive) -> None:
    [(name, fields)] = archive.run(archive.subscriptions(SUBSCRIPTIONS[1], subscription_count=1))
    assert (name, fields) == (
        "RecordingSubscriptionDescriptor",
        {
            "control_session_id": archive.session.session_id,
            "correlation_id": CORRELATION_ID,
            "subscription_id": 12,
            "stream_id": 2,
            "stripped_channel": b"aeron:udp?endpoint=a:1",
        },
    )


@pytest.mark.parametrize(
    ("options", "expected", "is_ended_by_reply"),
    [
        ({}, [11, 12, 13], True),
        ({"subscription_count": 4}, [11, 12, 13], True),
        ({"subscription_count": 3}, [11, 12, 13], False),
        ({"subscription_count": 1}, [11], False),
        ({"subscription_count": 0}, [], True),
        ({"subscription_count": -1}, [], True),
        ({"pseudo_index": 1, "subscription_count": 1}, [12], False),
        ({"pseudo_index": 2}, [13], True),
        ({"pseudo_index": 3}, [], True),
        ({"pseudo_index": 2**31 - 1}, [], True),
        ({"pseudo_index": -1}, [], True),
        ({"pseudo_index": -(2**31)}, [], True),
        ({"apply_stream_id": True, "stream_id": 1}, [11, 13], True),
        ({"apply_stream_id": True, "stream_id": 1, "pseudo_index": 1}, [13], True),
        ({"apply_stream_id": True, "stream_id": 3}, [], True),
        ({"stream_id": 3}, [11, 12, 13], True),
        ({"channel_fragment": b"ipc"}, [11, 13], True),
        ({"channel_fragment": b"alias=b", "subscription_count": 1}, [13], False),
        ({"channel_fragment": b"\xff"}, [], True),
        ({"channel_fragment": b"aeron:ipc?alias=ab"}, [], True),
    ],
)
def test_only_the_subscriptions_that_were_asked_for_are_listed(
    archive: Archive, options: dict[str, Any], expected: list[int], is_ended_by_reply: bool
) -> None:
    listed, end = archive.outcome(archive.subscriptions(*SUBSCRIPTIONS, **options))
    assert listed == expected
    assert end == (0 if is_ended_by_reply else None)


def test_a_client_that_does_not_read_gets_each_subscription_once() -> None:
    archive = Archive(window=SMALL_WINDOW)
    subscriptions = [(each, each % 3, f"aeron:ipc?alias={each}") for each in range(200)]
    listing = archive.subscriptions(*subscriptions)
    assert listing.do_work() > 0
    assert listing.do_work() == 0
    assert archive.outcome(listing) == (list(range(200)), 0)


def test_at_most_64_subscriptions_are_looked_at_in_a_turn(archive: Archive) -> None:
    listing = archive.subscriptions(*[(each, 1, "aeron:ipc") for each in range(150)])
    assert [listing.do_work() for _ in range(4)] == [64, 64, 23, 0]


# The newest: 16.


def newest(archive: Archive, **options: Any) -> int:
    fields: dict[str, Any] = {"min_recording_id": 0, "session_id": 3, "stream_id": 10, "channel_fragment": b""}
    return find_last_matching(archive.catalog, **fields | options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 4),
        ({"min_recording_id": 4}, 4),
        ({"min_recording_id": 5}, -1),
        ({"min_recording_id": 2**63 - 1}, -1),
        ({"session_id": -7}, 1),
        ({"session_id": -7, "min_recording_id": 2}, -1),
        ({"stream_id": 11}, 2),
        ({"stream_id": 12}, -1),
        ({"session_id": -7, "stream_id": 11}, 5),
        ({"channel_fragment": b"alias=x"}, 3),
        ({"channel_fragment": b"alias=z"}, -1),
        ({"channel_fragment": b"stripped"}, -1),
    ],
)
def test_the_newest_that_matches_is_found(archive: Archive, options: dict[str, Any], expected: int) -> None:
    archive.add(channel="aeron:ipc?alias=x")
    archive.add(session_id=-7)
    archive.add(stream_id=11)
    archive.add(channel="aeron:ipc?alias=xyz")
    archive.add()
    archive.add(session_id=-7, stream_id=11)
    assert newest(archive, **options) == expected


def test_the_newest_is_not_one_that_was_purged(archive: Archive) -> None:
    archive.add(3)
    archive.purge(2)
    assert newest(archive) == 1
    archive.purge(0, 1)
    assert newest(archive) == -1


@pytest.mark.parametrize("recording_id", [-1, -(2**63)])
def test_the_newest_from_an_id_that_cannot_be(archive: Archive, recording_id: int) -> None:
    with pytest.raises(ArchiveError, match=rf"^minRecordingId={recording_id} < 0$") as caught:
        newest(archive, min_recording_id=recording_id)
    assert caught.value.code == UNKNOWN_RECORDING


def test_the_newest_on_a_disk_that_fails(archive: Archive) -> None:
    archive.add()
    archive.disk.fail("read", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        newest(archive)
