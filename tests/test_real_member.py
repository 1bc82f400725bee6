"""Channels that only a real driver and the C client refuse: invalid ones of sessions and logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from container.errors import ClusterError
from container.testing.memory.recording_service import RecordingService
from tests.real_member import RealMember


@pytest.fixture
def member(tmp_path: Path) -> Iterator[RealMember]:
    with RealMember(RecordingService(), tmp_path) as member:
        member.join("leader")
        yield member


@pytest.mark.parametrize(
    "channel",
    [
        "",
        "aeron:tcp",
        "aeron:udp",
        "aeron:udp?endpoint=localhost",
        "aeron:udp?endpoint=localhost:99999",
        "aeron:ipc?term-length=7",
        "aeron:ipc?alias=a\0b",
        "aeron:ipc?alias=" + "x" * 4_200,
        "aeron-spy:aeron:udp?endpoint=localhost:20000",
    ],
    ids=lambda channel: repr(channel[:40]),
)
def test_a_session_that_can_not_be_answered_opens_all_the_same(member: RealMember, channel: str) -> None:
    member.cm.open_session(1, response_channel=channel, connect_egress=False)
    member.cm.session_message(1, b"question")
    member.deliver()
    assert member.service.of("on_session_open") == [(1, 1_000)]
    assert member.service.messages == [b"question"]
    member.until(lambda: member.errors, "the driver's refusal")
    (error,) = member.errors
    assert isinstance(error, ClusterError)
    assert str(error).startswith("failed to connect session response publication: ")


@pytest.mark.parametrize(
    "channel", ["", "aeron:ipc?alias", "aeron:udp?endpoint=localhost:99999", "aeron:ipc?tags=a\0b"]
)
def test_a_log_that_is_no_channel_ends_the_container(member: RealMember, channel: str) -> None:
    member.cm.begin_log("leader")
    member.cm.join_log(role=2, log_channel=channel)
    member.until(lambda: not member.container.is_running, "the container to end")
    assert "failed to join the log" in str(member.container.failure)
