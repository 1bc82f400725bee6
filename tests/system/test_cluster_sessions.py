"""Three members, Java's container and ours mixed: sessions that open in another order than that of their ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from container.aeron import AeronClient
from container.codecs import messages as codecs
from container.testing.memory import transport_probe as probe
from container.testing.processes.endpoints import HOST, PortReservation
from container.transport.streams import Subscription
from tests.aeron_session import until
from tests.limits import LIMIT_S
from tests.soak.checks import compare_snapshots, is_framing, snapshots_of
from tests.soak.ledger import Op
from tests.soak.scenario import Scenario, started_at

INGRESS_STREAM_ID, EGRESS_STREAM_ID = 101, 102
PROTOCOL_VERSION = 3 << 8  # 0.3.0
EVENT_OK = 0
# Nobody keeps the two sessions alive. A leader that stands still for longer than its heartbeat's time-out, as on a busy
# machine, is followed by one that may have started anew; that one closes all sessions.
PATIENT = {
    "aeron.cluster.session.timeout": "3600s",
    "aeron.cluster.leader.heartbeat.timeout": "6s",
    "aeron.cluster.startup.canvass.timeout": "12s",
}


def await_session(client: AeronClient, egress: Subscription, correlation_id: int) -> int:
    """Wait until the cluster has opened the session of a request, and return its id."""

    def find() -> int | None:
        for data, _header in probe.poll(egress):
            name, fields = codecs.decode("cluster", data)
            if name == "SessionEvent" and fields["correlation_id"] == correlation_id:
                assert fields["code"] == EVENT_OK, fields
                return int(fields["cluster_session_id"])
        return None

    return until(client, find, f"session event {correlation_id}", LIMIT_S)


@contextmanager
def sessions_out_of_order(scenario: Scenario) -> Iterator[tuple[int, int]]:
    """Open two sessions, the second of which asked first; gives their ids in the order in which they opened.

    Ids are given when clients ask, and a session opens when its client is connected: the first listens later.
    """
    settings = scenario.cluster.client_settings()
    with (
        AeronClient(settings["aeron_dir"], "out-of-order", use_invoker=False) as client,
        closing(PortReservation(HOST)) as ports,
    ):
        channel = f"aeron:udp?endpoint={scenario.leader().node.endpoints.ingress}"
        ingress = probe.add_publication(client, channel, INGRESS_STREAM_ID, exclusive=True)
        until(client, lambda: probe.is_connected(ingress), "the leader to listen", LIMIT_S)
        channels = [f"aeron:udp?endpoint={HOST}:{ports.take()}" for _session in range(2)]
        egress = probe.add_subscription(client, channels[1], EGRESS_STREAM_ID)
        for correlation_id, egress_channel in enumerate(channels):
            request = codecs.encode(
                "cluster",
                "SessionConnectRequest",
                correlation_id=correlation_id,
                response_stream_id=EGRESS_STREAM_ID,
                version=PROTOCOL_VERSION,
                response_channel=egress_channel,
                encoded_credentials=b"",
                client_info="",
            )
            until(client, lambda: probe.offer(ingress, request) > 0, "a request to be taken", LIMIT_S)  # noqa: B023
        opened_first = await_session(client, egress, 1)
        late_egress = probe.add_subscription(client, channels[0], EGRESS_STREAM_ID)
        yield opened_first, await_session(client, late_egress, 0)


def order_in_snapshot(scenario: Scenario, session_ids: set[int]) -> list[int]:
    """These sessions in the order in which the latest snapshot, the same at all members, has them.

    Others may be there: a client under load comes back as another session when the machine stalls.
    """
    messages = compare_snapshots(scenario.cluster.members, max(snapshots_of(scenario.leader())))
    decoded = [codecs.decode("cluster", message) for message in messages if is_framing(message)]
    told = [int(fields["cluster_session_id"]) for name, fields in decoded if name == "ClientSession"]
    return [session_id for session_id in told if session_id in session_ids]


def test_all_members_tell_sessions_in_the_jars_order(java_classes: Path) -> None:
    with (
        Scenario(java_classes, client_count=0, properties=PATIENT) as scenario,
        sessions_out_of_order(scenario) as (first, second),
    ):
        assert first > second
        scenario.other_session_count = 2
        scenario.add_client(1).resume()
        scenario.command(Op.SESSIONS, 0)
        scenario.check()
        assert order_in_snapshot(scenario, {first, second}) == [first, second]

        # Not all at once: a consensus module whose first leader starts anew closes all sessions.
        scenario.resume()
        leader, (first_follower, second_follower) = scenario.leader(), scenario.cluster.followers
        for member in scenario.cluster.followers:
            member.kill()
        scenario.revive(first_follower)
        scenario.revive(second_follower, wiped=True)
        scenario.recover()
        assert started_at(second_follower) == 0 < started_at(first_follower)
        scenario.command(Op.SESSIONS, 0)
        leader.kill()
        scenario.cluster.await_leader(LIMIT_S, other_than=leader)
        scenario.recover(leader)
        assert started_at(leader) > 0
        scenario.command(Op.SESSIONS, 0)
        scenario.finish()
        assert order_in_snapshot(scenario, {first, second}) == [first, second]
