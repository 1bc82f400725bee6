"""The client's benchmarks, tiny: they run to their end and print what they promise."""

from __future__ import annotations

import json

import pytest

from benchmarks import churn, client_java, client_round_trip, node, session_pool


@pytest.mark.slow
def test_round_trips_are_compared_with_javas_client(capsys: pytest.CaptureFixture[str]) -> None:
    client_round_trip.main(rounds=1, messages=500, single=50)
    *tables, line = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    titles = [f"{medium}, window {window}" for medium in ("ipc", "udp") for window in (256, 1)]
    assert [row for row in tables if not row.startswith(" ")] == [
        f"{title:<20}          java        python        cython   python/java   cython/java" for title in titles
    ]
    for title in titles:
        comparison = found[title.replace(", ", "_").replace(" ", "_")]
        assert set(comparison["medians"]) == {"java", "python", "cython"}
        assert set(comparison["ratios"]) == {"python", "cython"}
        for of_peer in (*comparison["medians"].values(), *comparison["ratios"].values()):
            assert set(of_peer) == {"per_second", "p50_us", "p99_us", "cpu_s_per_million"}
            assert min(of_peer.values()) > 0


@pytest.mark.slow
def test_the_cost_of_a_pooled_session_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    session_pool.main(sessions=50, silent_s=0.5)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["sessions"] == 50
    assert found["echo_us_per_session"] > 0


@pytest.mark.slow
def test_fail_over_idling_round_trips_and_memory_are_compared_with_javas_client(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--rounds=1", "--kills=1", "--requests=50", "--trips=20", "--idle-s=1"]
    report = client_java.main(options)
    rows = {row.name: row.medians for row in report.rows}
    kill = rows["fail-over, 50 requests in flight"]
    assert set(kill) == {"java", "asyncio", "blocking"}
    for of_peer in kill.values():
        assert (of_peer["answered"], of_peer["failed"], of_peer["without_outcome"]) == (50, 0, 0)
        assert of_peer["resent"] > 0
        assert 0 < of_peer["p50_s"] <= of_peer["last_s"]
    for name, metric in (("memory", "resident_mib"), ("round trips, one at a time", "p50_us")):
        assert min(of_peer[metric] for of_peer in rows[name].values()) > 0
    assert "requests without an outcome" in capsys.readouterr().out


@pytest.mark.slow
def test_nodes_are_compared_while_sessions_come_and_go() -> None:
    report = churn.main(["--rounds=1", "--sessions=20", "--connects=20"])
    assert not report.failures or not any(report.failures.values())
    [row] = report.rows
    assert set(row.medians) == set(node.PEERS)
    assert all(set(of_peer) == set(churn.METRICS) for of_peer in row.medians.values())
