"""The look-up of a member's sessions, over all shapes of ids, beside a set."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from container.testing.memory.scripted_member import ScriptedMember

EDGES = [-(2**63) + 1, -(2**63) + 2, -(2**62), -1, 0, 1, 2**62, 2**63 - 2, 2**63 - 1]
IDS = st.one_of(st.integers(1, 40), st.sampled_from(EDGES), st.integers(-(2**63) + 1, 2**63 - 1))


@settings(max_examples=60)
@given(st.lists(st.tuples(IDS, st.booleans()), max_size=40), st.lists(IDS, max_size=20))
def test_a_session_is_found_while_it_is_open(opened: list[tuple[int, bool]], others: list[int]) -> None:
    member = ScriptedMember().follow()
    present: set[int] = set()
    for session_id, _ in opened:
        if session_id not in present:
            member.cm.open_session(session_id, correlation_id=7)
            present.add(session_id)
    for session_id, is_closed in opened:
        if is_closed and session_id in present:
            member.cm.close_session(session_id)
            present.remove(session_id)
    member.commit()
    near = {
        session_id + step for session_id, _ in opened for step in (-1, 0, 1) if -(2**63) <= session_id + step < 2**63
    }
    for session_id in near | set(others) | set(EDGES):
        session = member.agent.cluster.get_client_session(session_id)
        assert (session is not None) == (session_id in present)
        assert session is None or session.id == session_id
    assert {session.id for session in member.agent.cluster.client_sessions} == present
    assert member.errors == []
