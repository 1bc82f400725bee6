"""The table of sessions does what a dict would, and no message makes an object."""

from __future__ import annotations

import random
import sys

from container.consensus.cluster_session import ClusterSession
from container.consensus.session_table import SessionTable


def session_of(session_id: int) -> ClusterSession:
    return ClusterSession(session_id, "aeron:ipc", 102, "a session", lambda error: None)


def test_it_does_what_a_dict_does() -> None:
    rng = random.Random(7)
    table, model = SessionTable(), dict[int, ClusterSession]()
    for _ in range(20_000):
        session_id = rng.randrange(40) + 2**40
        if rng.random() < 0.5:
            model[session_id] = session_of(session_id)
            table.add(model[session_id])
        else:
            model.pop(session_id, None)
            table.remove(session_id)
        asked = rng.randrange(40) + 2**40
        assert table.find(asked) is model.get(asked)
        assert len(table) == len(model)
    assert table.in_order() == [model[each] for each in sorted(model)]


def test_it_lets_go_of_what_is_removed() -> None:
    table = SessionTable()
    sessions = [session_of(each) for each in (5, 3, 4)]
    before = [sys.getrefcount(each) for each in sessions]
    for index in range(3):
        table.add(sessions[index])
    assert [each.id for each in table.in_order()] == [3, 4, 5]
    for session_id in (5, 5, 3, 4):
        table.remove(session_id)
        assert table.find(session_id) is None
    assert [sys.getrefcount(each) for each in sessions] == before
    assert table.in_order() == []
