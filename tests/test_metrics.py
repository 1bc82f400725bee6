"""Metrics: the table, the dashboard and the alerts agree, and an exporter serves what a parser reads."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import socket
import struct
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import container
from container.__main__ import main
from container.archive.server.native_archive import Archive
from container.common.aeron_defaults import CounterType
from container.errors import ConfigurationError, ContainerError
from container.operate.driver_counters import open_cnc
from container.operate.exporter import Exporter, NodeCollector, register_instruments
from container.operate.http_server import REQUESTS_MAX
from container.operate.metrics_server import serve_metrics
from container.operate.node_metrics import METRICS, UP, NodeSample, Sample, sample_node
from container.testing.processes.endpoints import PortReservation
from tests.limits import LIMIT_S
from tests.operator_world import written
from tests.recordings_world import write_mark
from tests.services import Counter

ROOT = Path(__file__).resolve().parents[1]
MONITORING = ROOT / "docs" / "monitoring"
PAGE = (ROOT / "docs" / "metrics.md").read_text()
NAMES = {metric.name for metric in METRICS}
DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())
ALERTS = yaml.safe_load((MONITORING / "alert-rules.yml").read_text())["groups"][0]["rules"]
EXPRESSIONS = [
    *[target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]],
    *[alert["expr"] for alert in ALERTS],
]


def values_of(found: NodeSample) -> dict[str, float]:
    """The values by name and, where there are more than those of the node, labels."""
    return {
        sample.metric.name + "".join(f" {label}" for label in sample.labels[3:]): sample.value
        for sample in found.samples
    }


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as found:
            found.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_names_are_prometheus_s() -> None:
    assert len(NAMES) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch("aeron_(cluster|archive|driver)_[a-z_]+", metric.name)
        assert metric.is_counter == metric.name.endswith("_total"), metric.name
        assert metric.help[0].isupper() or metric.help[0].isdigit()


def test_the_page_lists_all_metrics() -> None:
    rows = re.findall(r"(?m)^\| `(aeron_\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", PAGE)
    assert [(name, kind, re.findall("`([a-z_]+)`", labels), text) for name, kind, labels, text in rows] == [
        (
            metric.name,
            "counter" if metric.is_counter else "gauge",
            [label for label in metric.labels if label not in ("node", "cluster_id", "member_id")],
            metric.help,
        )
        for metric in METRICS
    ]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_are_promql_over_metrics_that_there_are(expression: str) -> None:
    promql_parser.parse(expression)
    used = set(re.findall(r"aeron_\w+", expression))
    assert used
    assert used <= NAMES


def test_the_dashboard_is_one_that_grafana_s_own_library_reads() -> None:
    dashboard: Any = Dashboard.from_json(DASHBOARD)
    written = json.loads(JSONEncoder(sort_keys=True).encode(dashboard))
    assert_contains(written, DASHBOARD)
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)), "panels lie upon each other"
    assert max(x for x, _ in cells) < 24


def assert_contains(found: Any, wanted: Any, path: str = "") -> None:
    """Whatever is in one is in the other."""
    if isinstance(wanted, dict):
        for name, value in wanted.items():
            assert name in found, f"{path}/{name} is unknown"
            assert_contains(found[name], value, f"{path}/{name}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_contains(one, other, f"{path}/{number}")
    else:
        assert found == wanted, path


def test_each_alert_says_what_it_is_and_the_page_what_to_do() -> None:
    assert re.findall(r"(?m)^\| (Aeron\w+) \| .+ \|$", PAGE) == [alert["alert"] for alert in ALERTS]
    for alert in ALERTS:
        assert alert["annotations"]["summary"]
        assert alert["labels"]["severity"] in ("warning", "critical")


ALERT_TESTS = ROOT / "tests" / "alert_rules_test.yml"


def test_each_alert_is_tried_with_what_it_is_for_and_with_a_cluster_at_work() -> None:
    cases = [case for test in yaml.safe_load(ALERT_TESTS.read_text())["tests"] for case in test["alert_rule_test"]]
    wanted = {alert["alert"] for alert in ALERTS}
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == wanted
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == wanted


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus's promtool")
def test_prometheus_evaluates_the_alerts_so() -> None:
    done = subprocess.run(
        ["promtool", "test", "rules", ALERT_TESTS.name], cwd=ALERT_TESTS.parent, capture_output=True, text=True,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_backup_is_no_member_that_never_gets_ready(tmp_path: Path) -> None:
    world = written(tmp_path / "backup")
    write_mark(world.base_dir, -1, age_ms=0, component_type=3)
    found = sample_node(world.base_dir)
    assert found.status is not None
    assert found.status.component == "BACKUP"
    values = values_of(found)
    assert values["aeron_cluster_up"] == 1
    assert not {"aeron_cluster_ready", "aeron_cluster_leader"} & set(values)


def test_another_archive_of_the_same_media_driver_is_not_counted(tmp_path: Path) -> None:
    ports = PortReservation()
    directory = tmp_path / "node"
    with (
        container.launch_node(Counter(), directory=directory, host="127.0.0.1", port=ports.take_row(5)) as node,
        Archive.launch(
            archive_dir=tmp_path / "other",
            aeron_dir=node.aeron_dir,
            control_channel=f"aeron:udp?endpoint=127.0.0.1:{ports.take()}",
            replication_channel="aeron:udp?endpoint=127.0.0.1:0",
            local_control_stream_id=77,
        ),
    ):
        found = sample_node(directory)
        assert values_of(found)["aeron_archive_control_sessions"] == 1
        assert found.status is not None
        with open_cnc(Path(node.aeron_dir)) as file:
            ids = {
                each.key_int64(0) for each in file.counters() if each.type_id == CounterType.ARCHIVE_CONTROL_SESSIONS
            }
        assert found.status.archive_id in ids
        assert len(ids) == 2
    ports.close()


def test_a_node_is_read_alive_and_dead_and_its_absence_is_a_value(tmp_path: Path) -> None:
    ports = PortReservation()
    directory = tmp_path / "node"
    with container.launch_node(Counter(), directory=directory, host="127.0.0.1", port=ports.take_row(5)):
        end_s = time.monotonic() + 30
        committed = recorded = 0.0
        while not committed == recorded > 0:  # a node that is ready may have to commit its first message yet
            assert time.monotonic() < end_s, f"waited 30 s for the commit of {recorded} bytes, {committed} are"
            found = sample_node(directory)
            values = values_of(found)
            committed = values["aeron_cluster_commit_position_bytes"]
            recorded = values["aeron_cluster_recorded_position_bytes"]
        assert found.problem == ""
        assert found.status is not None
        assert {sample.labels[:3] for sample in found.samples[1:]} == {(str(directory), "0", "0")}
        for name in (
            *("cluster_up", "cluster_driver_up", "cluster_archive_up", "cluster_service_up 0", "cluster_ready"),
            *("cluster_leader", "cluster_role LEADER", "cluster_module_state ACTIVE", "cluster_election_state CLOSED"),
            *("archive_recording_sessions", "archive_control_sessions"),
        ):
            assert values[f"aeron_{name}"] == 1, name
        assert values["aeron_cluster_role FOLLOWER"] == 0
        for component in ("media-driver", "archive", "consensus-module", "service-0"):
            assert values[f"aeron_cluster_errors_total {component}"] == 0
        for component in ("media-driver-conductor", "archive", "consensus-module", "service-0"):
            assert 0 <= values[f"aeron_cluster_max_cycle_time_seconds {component}"] < 30, component
            if component != "media-driver-conductor":
                assert 0 <= values[f"aeron_cluster_mark_file_age_seconds {component}"] < 10, component
        assert values["aeron_cluster_control_toggle NEUTRAL"] == 1
        assert values["aeron_cluster_control_toggle SNAPSHOT"] == 0
        for name in ("sender_backlog", "receiver_gap", "subscriber_backlog"):
            assert 0 <= values[f"aeron_driver_{name}_bytes"] < 1024 * 1024, name
        served = {family.name for family in NodeCollector([directory]).collect() if family.samples}
    ports.close()
    # Those of a backup alone are not of a node.
    assert served == {name.removesuffix("_total") for name in NAMES if "_backup_" not in name}
    assert values["aeron_cluster_last_snapshot_position_bytes"] == 0
    values = values_of(sample_node(directory))
    assert (values["aeron_cluster_up"], values["aeron_cluster_ready"]) == (0, 0)
    assert "aeron_cluster_commit_position_bytes" not in values
    assert not [name for name in values if "mark_file_age" in name], "an orderly end has no age"
    absent = sample_node(tmp_path / "nowhere")
    assert values_of(absent) == {"aeron_cluster_up": 0}
    assert absent.problem == f"{tmp_path / 'nowhere'} does not exist"


def test_prometheus_reads_what_is_served(tmp_path: Path) -> None:
    with_exporter = Exporter([tmp_path / "one", tmp_path / "two"], port=0)
    try:
        url = f"http://localhost:{with_exporter.port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
        with pytest.raises(
            ContainerError, match=f"cannot be served on localhost:{with_exporter.port}: .*choose another port"
        ):
            Exporter([tmp_path], port=with_exporter.port)
    finally:
        with_exporter.close()
        with_exporter.close()
    assert set(families) == {metric.name.removesuffix("_total") for metric in METRICS}
    assert [(sample.labels["node"], sample.value) for sample in families["aeron_cluster_up"].samples] == [
        (str(tmp_path / "one"), 0),
        (str(tmp_path / "two"), 0),
    ]


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    """An exporter of a node whose name needs quoting."""
    made = Exporter([tmp_path / 'a "node"\\ \n'], port=0)
    yield made
    made.close()


def scrape(exporter: Exporter) -> dict[str, str]:
    """The labels of ``aeron_cluster_up``."""
    with urllib.request.urlopen(exporter.url, timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return next(family.samples[0].labels for family in families if family.name == "aeron_cluster_up")


def test_clients_that_stand_still_or_go_cost_a_few_threads_and_no_scrape(
    exporter: Exporter, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = threading.active_count()
    with ExitStack() as stack:
        for number in range(3 * REQUESTS_MAX):
            client = stack.enter_context(socket.create_connection(("localhost", exporter.port)))
            client.sendall(b"GET /metr" if number % 2 else b"")
            if number % 5 == 0:  # it resets the connection
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
        assert scrape(exporter) == {"node": str(tmp_path / 'a "node"\\ \n')}
        assert threading.active_count() <= before + REQUESTS_MAX
    assert capfd.readouterr() == ("", "")


def test_scrapes_at_the_same_time_share_a_look(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    others = 10
    looks: list[int] = []
    have_asked = threading.Event()
    moments = itertools.count(1)

    class Clock:
        """Time goes on with each look at it; it knows when all others have asked."""

        @staticmethod
        def monotonic() -> float:
            moment = next(moments)
            if moment == others + 2:  # one has asked and begun
                have_asked.set()
            return moment

    def look(paths: Sequence[Path]) -> list[Sample]:
        looks.append(len(paths))
        assert have_asked.wait(LIMIT_S)
        return [Sample(UP, (str(path),), 0) for path in paths]

    monkeypatch.setattr("container.operate.exporter.time", Clock)
    monkeypatch.setattr("container.operate.exporter.sample_nodes", look)
    with ThreadPoolExecutor(others + 1) as pool:
        assert list(pool.map(lambda _: len(scrape(exporter)), range(others + 1))) == [1] * (others + 1)
    assert len(looks) == 2
    scrape(exporter)
    assert len(looks) == 3, "a later scrape has a look of its own"


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"405"),
        (b"GET /metrics?name[]=%00 HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /metrics HTTP/1.0\r\nAccept: \xff\r\nAccept-Encoding: gzip\r\n\r\n", b"200"),
        (b"\0" * 100 + b"\n\n", b"HTML"),
    ],
)
def test_a_bad_request_is_answered_and_printed_nowhere(
    exporter: Exporter, capfd: pytest.CaptureFixture[str], request_text: bytes, status: bytes
) -> None:
    with socket.create_connection(("localhost", exporter.port), timeout=60) as client:
        client.sendall(request_text)
        answer = client.recv(100)
    assert status in answer.partition(b"\n")[0]
    assert capfd.readouterr() == ("", "")


def test_a_host_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match="cannot be served on no host:0: .*; choose another host"):
        Exporter([tmp_path], host="no host", port=0)


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_the_url_of_an_address_of_the_other_protocol_is_one(tmp_path: Path, host: str) -> None:
    if not has_ipv6():
        pytest.skip("no IPv6 here")
    exporter = Exporter([tmp_path], host=host, port=0)
    try:
        with urllib.request.urlopen(exporter.url, timeout=30) as answer:
            assert b"aeron_cluster_up" in answer.read()
    finally:
        exporter.close()


def test_a_registry_of_one_s_own_takes_them(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    registry.register(NodeCollector([tmp_path]))
    assert registry.get_sample_value("aeron_cluster_up", {"node": str(tmp_path)}) == 0


def test_opentelemetry_has_the_same_names(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    register_instruments(provider.get_meter("a test"), [tmp_path])
    data: Any = reader.get_metrics_data()
    (found,) = data.resource_metrics[0].scope_metrics[0].metrics
    assert found.name == "aeron_cluster_up"
    (point,) = found.data.data_points
    assert (dict(point.attributes), point.value) == ({"node": str(tmp_path)}, 0)
    provider.shutdown()


@pytest.mark.parametrize(
    "address", [-1, 65_536, "", ":1", "a:", "a:b", "a:-1", "::1", "::1:80", "[::1", "[]:1", "a:65536", "1" * 5_000]
)
def test_an_address_that_is_none_is_refused(tmp_path: Path, address: int | str) -> None:
    with (
        pytest.raises(ConfigurationError, match=r"metrics_port=.*: must be a port from 0 to 65535, or host:port"),
        serve_metrics(address, tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("address", "url"),
    [
        (0, "http://localhost:"),
        ("00", "http://localhost:"),
        ("127.0.0.1:0", "http://127.0.0.1:"),
        ("0.0.0.0:0", "http://0.0.0.0:"),
        pytest.param("[::1]:0", "http://[::1]:", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")),
    ],
)
def test_metrics_are_served_on_the_address_that_is_given(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, address: int | str, url: str
) -> None:
    with caplog.at_level("INFO", "container"), serve_metrics(address, tmp_path):
        found = caplog.records[0].getMessage().removeprefix("metrics are at ")
        assert found.startswith(url)
        with urllib.request.urlopen(found, timeout=30) as answer:
            assert b"aeron_cluster_up" in answer.read()


def test_a_wrong_address_in_a_config_file_is_an_error_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "node.toml"
    for value, said in (('"here"', "must be a port from 0"), ("true", "must be a port, or host:port as a text")):
        config.write_text(f'services = ["no_such:Module"]\ndirectory = "{tmp_path}"\nmetrics_port = {value}\n')
        assert main(["node", "--config", str(config)]) == 2
        assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [config]


def test_without_the_package_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(ConfigurationError, match=r"need the package prometheus-client: pip install .*\[operate\]"):
        Exporter([tmp_path])
