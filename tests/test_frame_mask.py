"""What of a log's bytes must be equal on all members: any cut into blocks gives the same, and damage hides nothing."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from container.recordings.frame_mask import mask_frames
from tests.plain_decoder import frames
from tests.recordings_world import TERM_LENGTH, World


def written(world: World, *, count: int = 400) -> bytes:
    """A log with messages of all kinds and paddings; returns its bytes."""
    world.begin_term()
    world.append_some(random.Random(5), count)
    world.close()
    segments = -(-world.log.position // world.log.segment_length)
    return b"".join(world.segment(number).read_bytes() for number in range(segments))[: world.log.position]


def masked(content: bytes, cuts: list[int], of: bytes | None = None) -> tuple[bytes, int]:
    """The bytes with zeros where they need not be equal, by the frames of ``of``; and how many lie in no frame."""
    found, state, lost = b"", (0, 0, -1), 0
    for begin, end in pairwise(cuts):
        target = bytearray(content[begin:end])
        *following, count = mask_frames((of or content)[begin:end], target, begin, *state, TERM_LENGTH)
        state, lost = (following[0], following[1], following[2]), lost + count
        found += target
    return found, lost


def test_all_but_session_reserved_value_and_what_is_between_frames_is_left(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    content = written(world)
    expected = bytearray(len(content))
    kinds = set()
    for frame in frames(world.archive_dir, 0, 0, len(content), world.log.segment_length):
        kinds.add(frame.kind)
        end = frame.position + (frame.length if frame.kind == 1 else 32)
        expected[frame.position : end] = content[frame.position : end]
        expected[frame.position + 12 : frame.position + 16] = bytes(4)
        expected[frame.position + 24 : frame.position + 32] = bytes(8)
    assert kinds == {0, 1}
    noisy = bytearray(content)
    rng = random.Random(6)
    counting, _ = masked(b"\1" * len(content), [0, len(content)], content)
    for place, byte in enumerate(counting):
        if byte == 0:
            assert expected[place] == 0
            noisy[place] = rng.randrange(256)
    for step in (len(content), TERM_LENGTH, 4096, 96, 32):
        cuts = [*range(0, len(content), step), len(content)]
        assert masked(content, cuts) == (bytes(expected), 0), f"blocks of {step}"
        assert masked(bytes(noisy), cuts) == (bytes(expected), 0), f"blocks of {step}, with other ids and gaps"


@pytest.mark.parametrize(
    ("offset", "byte"),
    [(0, 0xFF), (3, 0x80), (6, 2), (7, 1), (8, 1)],
    ids=["length", "negative", "type", "type2", "at"],
)
def test_behind_a_header_that_is_none_all_bytes_count_up_to_the_next_term(
    tmp_path: Path, offset: int, byte: int
) -> None:
    world = World(tmp_path)
    content = written(world)
    assert len(content) > 2 * TERM_LENGTH
    place = next(frame.position for frame in frames(world.archive_dir, 0, 4096, len(content), TERM_LENGTH * 2))
    flipped = bytearray(content)
    flipped[place + offset] = byte
    cuts = [*range(0, len(content), 4096), len(content)]
    found, lost = masked(bytes(flipped), cuts)
    whole, _ = masked(content, cuts)
    assert 0 < lost <= TERM_LENGTH - place
    assert found[:place] == whole[:place]
    assert found[TERM_LENGTH:] == whole[TERM_LENGTH:]
    assert found[place + offset] == byte
    tail = slice(TERM_LENGTH - lost, TERM_LENGTH)
    assert found[tail] == bytes(flipped)[tail]


def test_blocks_and_targets_have_one_length() -> None:
    with pytest.raises(ValueError, match="target has 31 bytes, and block 32"):
        mask_frames(bytes(32), bytearray(31), 0, 0, 0, -1, TERM_LENGTH)


def test_a_frame_before_the_block_is_refused() -> None:
    with pytest.raises(ValueError, match="next_frame 32 lies before the block at 64"):
        mask_frames(bytes(32), bytearray(32), 64, 32, 32, -1, TERM_LENGTH)
