"""A service of a real node forks in its callbacks: the member goes on as if nothing had happened."""

from __future__ import annotations

import os

import pytest

from container.files.cnc_file import read_mark_file
from tests.system.harness import (
    REPORTING_SERVICE,
    ROOT,
    CommandClient,
    NodeFactory,
    error_texts,
    module_errors,
    reports,
    start,
)

pytestmark = pytest.mark.nodes("native", "java")

CODES = {"_exit": 5, "exit": 6, "raise": 1, "return": 1}


@pytest.mark.slow  # shown by a member over a driver as well
def test_a_child_of_a_callback_harms_neither_log_nor_session_nor_mark_file(node: NodeFactory) -> None:
    member = node()
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    service = start(member, REPORTING_SERVICE, {"PYTHONPATH": path})
    mark_path = member.cluster_dir / "cluster-mark-service-0.dat"
    with CommandClient(member) as client:
        for way, code in CODES.items():
            assert client.do("fork", way=way) == [code], way
            assert client.do("echo", text=way) == way
            assert read_mark_file(mark_path).is_alive(read_mark_file(mark_path).activity_timestamp_ms + 1)
        heard = [(report["session_id"], report["length"]) for report in reports(service, "on_session_message")]
        positions = [report["header_position"] for report in reports(service, "on_session_message")]
        assert {session_id for session_id, _ in heard} == {client.session_id}
        assert len(heard) == 2 * len(CODES)
        assert positions == sorted(set(positions))
        assert client.do("state")[0] == 2 * len(CODES) + 1
        assert client.do("sessions") == [client.session_id]
        assert reports(service, "on_timer_event") == []
        assert reports(service, "on_session_close") == []
    assert error_texts(member) == []
    assert module_errors(member) == []
