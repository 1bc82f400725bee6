"""What a hostile program sends to a real node's ingress is reported or ignored, and the sessions of others go on."""

from __future__ import annotations

import random
import struct
from functools import partial

import pytest

import container
from container.aeron.client import AeronClient
from container.client import AeronCluster
from container.common.aeron_defaults import INGRESS_STREAM_ID
from container.testing.memory import transport_probe as seam
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import wait_until
from tests.fuzz.mutations import MUTATIONS, whole
from tests.golden.vectors import load
from tests.limits import LIMIT_S
from tests.services import Echo
from tests.test_cluster_node import Answers

CASES = 5_000
EACH = 250
"""After so many messages the good client asks."""
SESSION_IDS = (0, 99, -1, 2**62)
"""What stands for a session's id: never that of a session, as whoever knows that may use it (upstream)."""
_FIELDS = (8, 16)


def is_answered(client: AeronCluster, answers: Answers, case: int) -> bool:
    """Whether the last answer is that to the message of a case."""
    client.poll_egress()
    return answers.found[-1:] == [b"%d" % case]


def hostile_message(rng: random.Random, vectors: list[bytes]) -> list[bytes]:
    """A message of the cluster's schema, most often damaged: the frames of it."""
    message = rng.choice(vectors)
    position = rng.choice(_FIELDS)
    if rng.random() < 0.5 and len(message) >= position + 8:
        message = message[:position] + struct.pack("<q", rng.choice(SESSION_IDS)) + message[position + 8 :]
    mutation = MUTATIONS[rng.choice(sorted(MUTATIONS))]
    frames = mutation(rng, message) if rng.random() < 0.9 else whole(message)
    return [payload for payload, _flags in frames]


@pytest.mark.parametrize("seed", [1, 2])
def test_other_sessions_go_on(seed: int) -> None:
    rng = random.Random(seed)
    vectors = [vector.encoded for vector in load("cluster").vectors]
    ports = PortReservation()
    answers = Answers()
    with container.launch_node(Echo(), host=ports.host, port=ports.take_row(5)) as node:
        with (
            AeronCluster.connect(
                aeron_dir=node.aeron_dir,
                ingress_channel="aeron:ipc",
                egress_channel="aeron:ipc",
                listener=answers,
                message_timeout=LIMIT_S,
            ) as client,
            AeronClient(node.aeron_dir) as other,
        ):
            publication = seam.add_publication(other, "aeron:ipc", INGRESS_STREAM_ID, exclusive=True)
            accepted = 0
            for case in range(CASES):
                for payload in hostile_message(rng, vectors):
                    accepted += seam.offer(publication, payload) > 0
                if case % EACH == 0:
                    client.send(b"%d" % case)
                    wait_until(partial(is_answered, client, answers, case), LIMIT_S, f"an answer after {case} cases")
            assert accepted > CASES // 2
        assert node.is_running
        assert node.failure is None
    assert answers.found == [b"%d" % case for case in range(0, CASES, EACH)]
    ports.close()
