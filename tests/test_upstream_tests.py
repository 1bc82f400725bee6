"""The table of upstream's cluster tests: all of them are in it, each has an answer, and what it names is there."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.conformance_table import TESTS, names_of_tests
from tests.soak.faults import FAULTS

DOCUMENT = TESTS.parent / "docs" / "upstream-tests.md"
COUNTS = {
    "ClusterTest": 85,
    "MultiClusteredServicesTest": 2,
    "ServiceIpcIngressMessageTest": 7,
    "ClusterNetworkPartitionTest": 6,
    "ElectionTest": 26,
    "AppointedLeaderTest": 2,
    "MultiNodeTest": 5,
    "StalledLeaderLogReplicationClusterTest": 1,
    "FailedFirstElectionClusterTest": 1,
    "RacingCatchupClusterTest": 1,
    "RecoverAfterFailedCatchupClusterTest": 1,
    "RecordingReplicationTest": 5,
    "InitiateShutdownThenImmediatelyCloseLeaderTest": 1,
    "ClusterNetworkTopologyTest": 5,
    "NameResolutionClusterNodeTest": 1,
    "ConsensusModuleAgentTest": 16,
    "SessionManagerTest": 2,
    "IngressAdapterTest": 1,
    "PendingServiceMessageTrackerTest": 7,
    "PriorityHeapTimerServiceTest": 25,
    "RecordingLogTest": 37,
    "RecordingLogValidatorTest": 1,
    "NodeStateFileTest": 7,
    "ConsensusModuleSnapshotTakerTest": 6,
    "ConsensusModuleContextTest": 54,
    "ConsensusModuleConfigurationTest": 2,
    "ConsensusModuleContextCloseTests": 3,
    "ClusterNodeTest": 5,
    "ClusterNodeRestartTest": 10,
    "ClusterTimerTest": 3,
    "ClusterWithNoServicesTest": 4,
    "AuthenticationTest": 5,
    "ClusterMemberTest": 32,
    "SessionEventCodecCompatibilityTest": 1,
    "SingleNodeTest": 6,
    "ClusterSessionReliabilityTest": 5,
    "ClusterUncommittedStateTest": 5,
    "StartFromTruncatedRecordingLogTest": 1,
    "MultiModuleSharedDriverTest": 2,
    "ClusterBackupTest": 20,
    "ClusterBackupAgentTest": 3,
    "SnapshotReplicationTest": 3,
    "LogSourceValidatorTest": 3,
    "ClusterBackupContextTest": 6,
    "StandbySnapshotReplicatorTest": 8,
}


@cache
def table() -> dict[str, dict[str, str]]:
    """What stands for each test, by upstream's class and the test's name."""
    rows: dict[str, dict[str, str]] = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            rows[line.removeprefix("## ")] = {}
        elif found := re.fullmatch(r"\| (\w+) \| (.+) \|", line):
            rows[list(rows)[-1]][found[1]] = found[2]
    return rows


@pytest.mark.parametrize("name", COUNTS)
def test_every_test_of_upstream_has_an_answer(name: str) -> None:
    assert list(table()) == list(COUNTS)
    assert len(table()[name]) == COUNTS[name]


@pytest.mark.parametrize("name", COUNTS)
def test_what_stands_for_a_test_is_there(name: str) -> None:
    unknown = []
    for test, answer in table()[name].items():
        quoted = re.findall(r"(fault )?`([^`]+)`", answer)
        unknown += [
            f"{test}: {each}" for is_fault, each in quoted if each not in (FAULTS if is_fault else names_of_tests())
        ]
    assert unknown == []


def test_an_answer_that_refers_to_the_one_above_has_one() -> None:
    for rows in table().values():
        answers = list(rows.values())
        assert not answers[0].startswith("as above")
        assert all(answer.strip() for answer in answers)
