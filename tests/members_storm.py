"""Random faults against native members in memory, from one seed; in the end all have the same log and the same reads.

Run one by ``python -m tests.members_storm SEED``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from container.codecs import messages as codecs
from container.common.aeron_defaults import EGRESS_STREAM_ID, INGRESS_STREAM_ID
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryClient
from container.transport.streams import Publication
from tests.consensus_world import OK, SNAPSHOT, VERSION, decoded
from tests.control_world import MS
from tests.members_world import CLIENT_HOST, MembersWorld, MemberWorld, payloads

ROUNDS = 12
CONNECT_MS = 1_000
CUT_CHANCE = 0.5
NEW_SESSION_CHANCE = 0.3


class Sender:
    """A client that follows the leader, and never waits."""

    def __init__(self, world: MembersWorld) -> None:
        self.world = world
        self.client: MemoryClient = world.driver.connect("sender")
        self.publications = [self._publish(each.host) for each in world.members]
        world.egress_port += 1
        self.channel = f"aeron:udp?endpoint={CLIENT_HOST}:{world.egress_port}"
        self.egress = seam.add_subscription(self.client, self.channel, EGRESS_STREAM_ID)
        self.session_id = self.term_id = self.leader_id = -1
        self.asked_ms = -CONNECT_MS
        self.waiting: list[bytes] = []
        world.on_step.append(self.work)

    def begin_anew(self) -> None:
        """Leave the session: what said that it ended may have been lost."""
        self.session_id = -1

    def work(self) -> None:
        """A turn."""
        seam.invoke(self.client)
        for data, _ in seam.poll(self.egress, 100):
            name, fields = decoded(data)
            if name == "NewLeaderEvent" and fields["cluster_session_id"] == self.session_id:
                self.leader_id, self.term_id = fields["leader_member_id"], fields["leadership_term_id"]
            elif name == "SessionEvent" and fields["code"] == OK:
                self.session_id = fields["cluster_session_id"]
                self.leader_id, self.term_id = fields["leader_member_id"], fields["leadership_term_id"]
            elif name == "SessionEvent" and fields["cluster_session_id"] == self.session_id:
                self.session_id = -1
        now_ms = self.world.time.now_ns // MS
        if now_ms - self.asked_ms >= CONNECT_MS:
            self.asked_ms = now_ms
            self._ask()
        while self.waiting and self.session_id != -1:
            if not self._offer(self.leader_id, "SessionMessageHeader", self.waiting[0], timestamp=0, **self._ids()):
                return
            del self.waiting[0]

    def _publish(self, host: str) -> Publication:
        return seam.add_publication(self.client, f"aeron:udp?endpoint={host}:9010", INGRESS_STREAM_ID, exclusive=True)

    def _ids(self) -> dict[str, Any]:
        return {"leadership_term_id": self.term_id, "cluster_session_id": self.session_id}

    def _ask(self) -> None:
        """Keep the session alive, or ask all members for one."""
        if self.session_id != -1:
            self._offer(self.leader_id, "SessionKeepAlive", **self._ids())
            return
        for member in self.world.members:
            if not seam.is_connected(self.publications[member.member_id]):  # ingress takes no lost image back
                self.publications[member.member_id].close()
                self.publications[member.member_id] = self._publish(member.host)
            self._offer(
                member.member_id,
                "SessionConnectRequest",
                correlation_id=self.asked_ms,
                response_stream_id=EGRESS_STREAM_ID,
                version=VERSION,
                response_channel=self.channel,
                encoded_credentials=b"",
                client_info="",
            )

    def _offer(self, member_id: int, name: str, payload: bytes = b"", **fields: Any) -> bool:
        publication = self.publications[member_id]
        message = codecs.encode("cluster", name, **fields) + payload
        result = seam.offer(publication, message)
        while seam.result_name(result) == "ADMIN_ACTION":
            result = seam.offer(publication, message)
        return result > 0


class Storm:
    """A cluster, and what happens to it."""

    def __init__(self, seed: int, count: int = 3) -> None:
        self.random = random.Random(seed)
        self.world = MembersWorld(count, seed=seed)
        self.sender = Sender(self.world)
        self.sent = 0
        self.notes: list[str] = []

    def run(self) -> None:
        """All rounds, and then peace."""
        faults: list[Callable[[], str]] = [self._kill, self._cut, self._stall, self._snapshot, self._schedule]
        for _ in range(ROUNDS):
            self._converse()
            self.notes.append(self.random.choice(faults)())
            self._run(self.random.choice((50, 300, 1_500, 4_000)))
            if self.random.random() < CUT_CHANCE:
                self._heal()
            self._revive()
        self._heal()
        self._revive(all_of_them=True)
        for member in self.world.members:
            member.is_stalled = False
        self._check()

    def _run(self, duration_ms: int) -> None:
        self.world.run(duration_ms)

    def _converse(self) -> None:
        if self.random.random() < NEW_SESSION_CHANCE:
            self.sender.begin_anew()
        for _ in range(self.random.randrange(1, 30)):
            self.sent += 1
            self.sender.waiting.append(b"%d:" % self.sent + bytes(self.random.choice((0, 100, 3_000))))

    def _pick(self) -> MemberWorld | None:
        up = [each for each in self.world.up() if not each.is_stalled]
        return self.random.choice(up) if len(up) > len(self.world.members) // 2 else None

    def _kill(self) -> str:
        member = self._pick()
        if member is None:
            return "nothing"
        member.die()
        return f"killed {member.host}"

    def _cut(self) -> str:
        hosts = [each.host for each in self.world.members]
        self.random.shuffle(hosts)
        cut = self.random.randrange(1, len(hosts))
        self.world.fabric.partition([[*hosts[:cut], CLIENT_HOST], hosts[cut:]])
        return f"cut {hosts[:cut]} from {hosts[cut:]}"

    def _heal(self) -> None:
        hosts = [each.host for each in self.world.members] + [CLIENT_HOST]
        for index, host in enumerate(hosts):
            for other in hosts[index + 1 :]:
                self.world.fabric.heal(host, other)

    def _stall(self) -> str:
        member = self._pick()
        if member is None:
            return "nothing"
        member.is_stalled = True
        self._run(self.random.choice((200, 1_500)))
        member.is_stalled = False
        return f"stalled {member.host}"

    def _snapshot(self) -> str:
        for leader in self.world.leaders:
            leader.set_toggle(SNAPSHOT)
        return "snapshot"

    def _schedule(self) -> str:
        correlation_id = self.random.randrange(1_000)
        for member in self.world.up():
            member.services[0].schedule(correlation_id, seam.epoch_ms(member.member) + 500)
        return f"timer {correlation_id}"

    def _revive(self, *, all_of_them: bool = False) -> None:
        for member in self.world.members:
            if member.failure is not None:
                member.die()
            if not member.is_up and (all_of_them or self.random.random() < CUT_CHANCE):
                member.come_back()
                self.notes.append(f"{member.host} came back")

    def _check(self) -> None:
        world = self.world
        world.await_leader()
        self.sender.begin_anew()
        self.sender.waiting.append(b"last")
        world.await_read(b"last", world.members)
        logs = [member.recorded(member.log_recording_id) for member in world.members]
        length = min(map(len, logs))
        assert all(log[:length] == logs[0][:length] for log in logs), "the recordings of the log differ"
        terms = [
            {each.leadership_term_id: each.term_base_log_position for each in member.entries() if each.is_term}
            for member in world.members
        ]
        for ours in terms:
            for term_id, base in ours.items():
                for theirs in terms:
                    assert theirs.get(term_id, base) == base, f"recording logs differ about term {term_id}: {terms}"


def main() -> None:
    """Run the seeds that are named."""
    for seed in map(int, sys.argv[1:]):
        storm = Storm(seed, 3 + 2 * (seed % 2))
        try:
            storm.run()
        except BaseException:
            print(f"seed {seed}: {storm.notes}\n{storm.world.describe()}")
            raise
        print(f"seed {seed}: ok, {storm.sent} sent, {len(payloads(storm.world.members[0]))} read: {storm.notes}")


if __name__ == "__main__":
    main()
