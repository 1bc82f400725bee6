"""The code blocks of the READMEs and of docs/, and what a test does with each: see :data:`PLAN`."""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "examples/gallery/README.md",
    "SECURITY.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    document: str
    line: int
    heading: str
    language: str
    text: str

    @property
    def key(self) -> str:
        """Its key in :data:`PLAN`: document, heading, and its number among those of one language there."""
        return f"{self.document}: {self.heading}"


def all_blocks() -> dict[str, Block]:
    """All blocks by key; the second one of a heading and language has a number behind its key."""
    found: dict[str, Block] = {}
    for document in DOCUMENTS:
        for block in _blocks(document, (ROOT / document).read_text(encoding="utf-8")):
            key, number = f"{block.key} ({block.language or 'plain'})", 1
            while key in found:
                number += 1
                key = f"{block.key} ({block.language or 'plain'} {number})"
            found[key] = block
    return found


def _blocks(document: str, text: str) -> list[Block]:
    blocks: list[Block] = []
    lines: list[str] = []
    heading, opened, language = "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```") and not opened:
            opened, language, lines = number, line[3:].strip(), []
        elif line.startswith("```"):
            blocks.append(Block(document, opened, heading, language, "\n".join(lines) + "\n"))
            opened = 0
        elif opened:
            lines.append(line)
        elif match := re.match(r"#+ (.*)", line):
            heading = match[1]
    assert not opened, f"{document}:{opened}: this block has no end"
    return blocks


@dataclass(frozen=True)
class Runs:
    """It is executed.

    ``world`` is what it needs: ``memory``, nothing; ``cluster``, a real one with the README's service; ``service``, the
    same, in which it is that service; ``member``, what that one has recorded. ``prints`` is part of what it prints; an
    ``endless`` one is ended when it has printed that.
    """

    world: str
    prints: str = ""
    endless: bool = False
    replaced: dict[str, str] = field(default_factory=dict)
    """Texts that stand for what the reader has: hosts, sizes, paths."""


@dataclass(frozen=True)
class Checked:
    """It is compiled and type-checked, and cannot be executed here for this reason."""

    reason: str


@dataclass(frozen=True)
class Commands:
    """Every command in it exists, with these words and options."""


@dataclass(frozen=True)
class Elsewhere:
    """Another test reads and runs it."""

    test: str


@dataclass(frozen=True)
class NoCode:
    """Nothing that could run."""

    reason: str


type Plan = Runs | Checked | Commands | Elsewhere | NoCode

_HOSTS = {
    "client0": "localhost",
    "0=host0:9010,1=host1:9010,2=host2:9010": "{ingress}",
    "0=host0:9010": "{ingress}",
}
_MY_SERVICE = {"from my_service": "from readme_service"}
_OPERATIONS = (
    "tests/system/test_operations.py::test_a_backup_is_restored_into_a_fresh_directory_with_all_messages_and_the_state"
)
_RECOVERY = "tests/system/test_disaster_recovery.py::test_a_node_starts_from_a_backup_as_the_page_says"
_TUTORIAL = "tests/system/test_tutorial.py::"
_CHAPTERS = {"7": f"{_TUTORIAL}test_three_members_survive_a_killed_leader", "8": f"{_TUTORIAL}test_spark_reads_the_log"}
_AN_ARCHIVE = Checked("tests/system/test_archive_client.py has an archive and does the same")
_SPARK = "Spark takes 10 s to start: tests/spark has sessions that run what it calls"
_STORED = "it stores and reads files of two environments: tests/test_diff.py compares stored rows"
_THREE_MEMBERS = "it starts three Java nodes, and kills or cuts off one: tests/system/test_cluster_faults.py does that"

PLAN: dict[str, Plan] = {
    "CONTRIBUTING.md: A complete change (plain)": NoCode("a message of a commit"),
    "CONTRIBUTING.md: A release (sh)": Elsewhere(
        "tests/system/test_wheel.py::test_a_service_runs_from_the_wheel_alone_and_java_s_client_is_served"
    ),
    "README.md: aeron-cluster-container (sh)": Commands(),
    "examples/gallery/README.md: Gallery: services to start from (sh)": Commands(),
    "README.md: A service (python)": Runs("service"),
    "README.md: A service (python 2)": Runs("memory", replaced=_MY_SERVICE),
    "README.md: Install (sh)": Commands(),
    "README.md: Install (sh 2)": Commands(),
    "docs/getting-started.md: Install (sh)": Commands(),
    "docs/getting-started.md: Test it (python)": Runs("memory", replaced=_MY_SERVICE),
    "docs/getting-started.md: Run a cluster without Java (sh)": Commands(),
    "docs/getting-started.md: Run a cluster without Java (plain)": NoCode("a line that a reload prints"),
    "docs/getting-started.md: Run beside an existing node (sh)": Commands(),
    "docs/getting-started.md: A client (python)": Runs("cluster", prints="one="),
    "docs/getting-started.md: A client (python 2)": Runs("cluster", prints="b'2="),
    "docs/getting-started.md: Operate a node (sh)": Commands(),
    "docs/getting-started.md: Read the log as tables (sh)": Commands(),
    "docs/getting-started.md: Read the log as tables (python)": Checked(_SPARK),
    "docs/archive.md: An archive without Java (sh)": Commands(),
    "docs/archive.md: In a program (python)": Checked("tests/test_archive_command.py launches one beside a driver"),
    "docs/archive.md: A client (python)": Checked(
        "tests/system/test_archive_client.py has an archive and does the same"
    ),
    "docs/archive.md: A client (python 2)": Checked(
        "tests/system/test_archive_client.py has an archive and does the same"
    ),
    "docs/archive.md: A client (python 3)": Checked(
        "tests/system/test_archive_client.py has an archive and does the same"
    ),
    "docs/consensus-module.md: A consensus module without Java (sh)": Commands(),
    "docs/consensus-module.md: A whole cluster in one process (sh)": Commands(),
    "docs/consensus-module.md: A whole cluster in one process (python)": Runs(
        "memory", prints="0=localhost:9010", endless=True, replaced=_MY_SERVICE | {'"data"': "None"}
    ),
    "docs/consensus-module.md: A whole cluster in one process (toml)": Elsewhere(
        "tests/test_cluster_node.py::test_the_configuration_file_of_the_document_is_taken"
    ),
    "docs/consensus-module.md: In a program (python)": Checked(
        "tests/test_consensus_module.py launches one beside a driver and an archive"
    ),
    "docs/logs.md: Logs of a member, as text and JSON (sh)": Commands(),
    "docs/metrics.md: Metrics of nodes for Prometheus and OpenTelemetry (sh)": Commands(),
    "docs/operator-tools.md: Operator tools (sh)": Commands(),
    "docs/operator-tools.md: A live view (sh)": Commands(),
    "docs/client.md: Blocking (python)": Runs("cluster", prints="b'error", endless=True, replaced=_HOSTS),
    "docs/client.md: Where the cluster is (python)": Runs("memory"),
    "docs/client.md: Requests (python)": Runs("cluster"),
    "docs/client.md: asyncio (python)": Runs("cluster", prints="b'error", endless=True, replaced=_HOSTS),
    "docs/client.md: Reconnecting clients (python)": Runs("cluster", replaced=_HOSTS),
    "docs/client.md: Metrics (python)": Runs("cluster"),
    "docs/client.md: Errors (python)": Runs("cluster", prints="b'four="),
    "docs/client.md: Pool (python)": Runs("cluster", prints="b'error", endless=True, replaced={**_HOSTS, "5000": "8"}),
    "docs/client.md: Pool (python 2)": Runs("cluster", prints="b'error", endless=True, replaced={"5000": "8"}),
    "docs/client.md: Command (sh)": Commands(),
    "docs/cython.md: Services in Cython (cython)": Elsewhere(
        "tests/test_cython_service.py::test_the_service_of_the_document_works"
    ),
    "docs/cython.md: Services in Cython (sh)": Commands(),
    "docs/design/client-resilience.md: Reconnecting clients: each waiting message is sent or fails (plain)": NoCode(
        "a diagram"
    ),
    "docs/design/pipeline.md: The pipeline: decisions (plain)": NoCode("a diagram"),
    "docs/design/recordings.md: Recordings: from an archive's files to Arrow columns (plain)": NoCode("a diagram"),
    "docs/design/storage.md: Storage: one seam, real files and a simulated disk (python)": Runs("memory"),
    "docs/performance.md: How it is measured (sh)": Commands(),
    "docs/performance-data.md: Performance of recordings and Spark (sh)": Commands(),
    "docs/pipeline.md: The pipeline: from recordings to tables (sh)": Commands(),
    "docs/pipeline.md: Spark, batch (python)": Checked(_SPARK),
    "docs/pipeline.md: Spark, stream (python)": Checked(_SPARK),
    "docs/pipeline.md: Windows by event time (python)": Checked(_SPARK),
    "docs/pipeline.md: Tables and SQL (sql)": Elsewhere(
        "tests/spark/test_versions.py::test_windows_by_event_time_in_sql"
    ),
    "docs/pipeline.md: Spark Connect (sh)": Commands(),
    "docs/pipeline.md: Payloads as columns (python)": Runs("memory"),
    "docs/pipeline.md: Ingest into Parquet (sh)": Commands(),
    "docs/pipeline.md: Ingest into Parquet (python)": Checked(_SPARK),
    "docs/pipeline.md: Ingest into Parquet (python 2)": Checked(_SPARK),
    "docs/pipeline.md: Ingest into Delta Lake and Iceberg (sh)": Commands(),
    "docs/pipeline.md: Ingest into Delta Lake and Iceberg (python)": Checked(_SPARK),
    "docs/pipeline.md: Audit (sh)": Commands(),
    "docs/pipeline.md: Audit (python)": Checked(_SPARK),
    "docs/pipeline.md: Analytics (sh)": Commands(),
    "docs/pipeline.md: Other hosts and object stores (sh)": Commands(),
    "docs/pipeline.md: Other hosts and object stores (python)": Checked(_SPARK),
    "docs/pipeline.md: Ship a member to an object store (sh)": Commands(),
    "docs/pipeline.md: Without Spark (python)": Runs("member", replaced={"/var/lib/member-0": "{member}"}),
    "docs/pipeline.md: Without Spark (python 2)": Runs(
        "member", prints="messages", replaced={"/var/lib/member-0": "{member}"}
    ),
    "docs/pipeline.md: Without Spark (python 3)": Checked(
        "it needs messages in SBE: tests/test_sbe_decoder.py has them"
    ),
    "docs/replay.md: A member's log on your own machine (sh)": Commands(),
    "docs/replay.md: Without Spark (python)": Runs(
        "member",
        prints="log_position",
        replaced={
            '"member-0"': '"{member}"',
            "ledger:LedgerService": "readme_service:Counter",
            "ledger:NewLedgerService": "readme_service:Counter",
        },
    ),
    "docs/replay.md: On Spark (python)": Checked(_SPARK),
    "docs/replay.md: On Spark (python 2)": Checked(_SPARK),
    "docs/replay.md: On Spark (sh)": Commands(),
    "docs/replay.md: On Spark (python 3)": Checked(_STORED),
    "docs/replay.md: On Spark (python 4)": Checked(_STORED),
    "docs/replay.md: On Spark (python 5)": Checked(_SPARK),
    "docs/security.md: Ask clients for a secret (toml)": Elsewhere(
        "tests/test_security.py::test_the_guard_of_the_document_lets_in_who_knows_the_secret_and_the_node_s_own"
    ),
    "docs/security.md: Authorise requests (toml)": Elsewhere(
        "tests/test_security.py::test_operators_of_the_document_may_ask_for_a_snapshot_and_others_may_not"
    ),
    "docs/settings.md: Settings (toml)": Elsewhere(
        "tests/system/test_documents.py::test_the_configuration_file_is_taken"
    ),
    "docs/service.md: Writing a service (python)": Runs("memory"),
    "docs/service.md: Carry out a repeated request once (python)": Runs("memory"),
    "docs/service.md: Carry out a repeated request once (python 2)": Elsewhere(
        "tests/system/test_documents.py::test_the_client_of_the_recipe_finds_its_next_number"
    ),
    "docs/service.md: Run it (sh)": Commands(),
    "docs/testing.md: Testing a service (python)": Runs("memory", replaced=_MY_SERVICE),
    "docs/testing.md: A simulated cluster (python)": Runs(
        "memory",
        prints="at log position 352 differs from that of member 0. Books.accounts.0: 84 in member 0, 85 in member 2.",
    ),
    "docs/testing.md: A simulated cluster (python 2)": Runs("memory", replaced=_MY_SERVICE),
    "docs/testing.md: A simulated cluster (plain)": NoCode("what a run prints"),
    "docs/own-tests.md: Simulated clusters (sh)": Commands(),
    "docs/own-tests.md: Simulated archives (sh)": Commands(),
    "docs/own-tests.md: Simulated nodes (sh)": Commands(),
    "docs/own-tests.md: Simulated clusters of nodes (sh)": Commands(),
    "docs/own-tests.md: Simulated elections (sh)": Commands(),
    "docs/testing.md: A cluster of whole nodes (python)": Runs("memory"),
    "docs/testing.md: A service in memory (python)": Runs("memory", replaced=_MY_SERVICE),
    "docs/testing.md: A service in memory (python 2)": Runs("memory"),
    "docs/testing.md: Find what would diverge (sh)": Commands(),
    "docs/testing.md: Find what would diverge (python)": Runs("memory", replaced=_MY_SERVICE),
    "docs/testing.md: Find what would diverge (python 2)": Checked("tests/test_checks.py does that with its own life"),
    "docs/testing.md: In pytest (python)": Runs("memory", replaced=_MY_SERVICE),
    "docs/testing.md: In pytest (plain)": NoCode("what a run prints"),
    "docs/testing.md: With Hypothesis (python)": Runs("memory", replaced=_MY_SERVICE),
    "docs/testing.md: With Hypothesis (plain)": NoCode("what a run prints"),
    "docs/testing.md: Find what would diverge (python 3)": Checked("tests/test_check_environments.py does the same"),
    "docs/testing-clusters.md: A cluster (python)": Checked(_THREE_MEMBERS),
    "docs/testing-clusters.md: An archive (python)": Checked("tests/system/test_local_archive.py does the same"),
    "docs/testing-clusters.md: Java's parts and this package's (python)": Checked(
        "tests/system/test_local_archive.py has members of each kind, and one that becomes another"
    ),
    "docs/testing-clusters.md: A whole node in one process (python)": Checked(
        "tests/system/test_native_node.py does the same"
    ),
    "docs/testing-clusters.md: Cutting members off (python)": Checked(_THREE_MEMBERS),
    "docs/own-tests.md: The soak (sh)": Commands(),
    "docs/deployment.md: Step by step (plain)": NoCode("a user and directories, for root"),
    "docs/deployment.md: Step by step (plain 2)": NoCode("a unit, for root"),
    "docs/deployment.md: Step by step (toml)": Elsewhere(
        "tests/test_node_members.py::test_the_page_s_files_are_what_a_node_takes"
    ),
    "docs/deployment.md: Step by step (sh)": Commands(),
    "docs/deployment.md: Ports (plain)": NoCode("rules of a firewall, for root"),
    "docs/deployment.md: Ports (toml)": Elsewhere(
        "tests/test_node_members.py::test_the_page_s_files_are_what_a_node_takes"
    ),
    "docs/deployment.md: Threads (toml)": Elsewhere(
        "tests/test_service_process.py::test_a_service_that_holds_the_gil_keeps_no_part_of_its_node"
    ),
    "docs/deployment.md: A member that hangs, or lost its disk (plain)": NoCode("a unit, for root"),
    "docs/deployment.md: A member that hangs, or lost its disk (sh)": Commands(),
    "docs/deployment.md: A member that hangs, or lost its disk (plain 2)": NoCode("a unit and its files, for root"),
    "docs/deployment.md: Rolling upgrade (sh)": Commands(),
    "docs/deployment.md: Rolling upgrade (plain)": NoCode("a unit and a package, for root"),
    "docs/deployment.md: Change the members (sh)": Commands(),
    "docs/deployment.md: Change the members (plain)": NoCode("a copy of directories"),
    "docs/deployment.md: From Java's members, and back (plain)": NoCode("test_migration.py does it"),
    "docs/deployment.md: From Java's members, and back (sh)": Commands(),
    "docs/deployment.md: From Java's members, and back (plain 2)": NoCode("test_migration.py does it"),
    "docs/deployment.md: From Java's members, and back (plain 3)": NoCode("test_migration.py does it"),
    "docs/deployment.md: On one machine (sh)": Commands(),
    "docs/deployment.md: On one machine (python)": Elsewhere(
        "tests/system/test_launched_cluster.py::test_a_killed_leader_has_a_successor_and_nothing_is_lost"
    ),
    "docs/own-tests.md: Linearizable histories (sh)": Commands(),
    "docs/own-tests.md: Linearizable histories (plain)": NoCode("what the command prints"),
    "docs/operations.md: Back up (sh)": Elsewhere(_OPERATIONS),
    "docs/operations.md: Restore (sh)": Elsewhere(_OPERATIONS),
    "docs/operations.md: Disaster recovery (toml)": Elsewhere(_RECOVERY),
    "docs/operations.md: Disaster recovery (sh)": Elsewhere(_RECOVERY),
    "docs/operations.md: Disaster recovery (sh 2)": Elsewhere(_RECOVERY),
    "docs/operations.md: Disaster recovery (sh 3)": Elsewhere(_RECOVERY),
    "docs/operations.md: Rolling restart and upgrade (sh)": Elsewhere(
        "tests/system/test_operations.py::test_a_member_alone_is_restarted_with_its_state"
    ),
    "docs/operations.md: Rolling restart and upgrade (sh 2)": Elsewhere(
        "tests/system/test_operations.py::test_three_members_are_restarted_one_after_the_other_followers_first"
    ),
    "docs/operations.md: Keep the disk small (toml)": Elsewhere(
        "tests/test_deletions.py::test_the_page_s_setting_is_one_of_a_consensus_module"
    ),
    "docs/operations.md: Keep the disk small (sh)": Commands(),
    "docs/operations.md: Disk full (sh)": Elsewhere(
        "tests/system/test_operations.py::test_a_member_whose_disk_was_full_goes_on_when_there_is_space"
    ),
    "docs/operations.md: Move a member (sh)": Elsewhere(
        "tests/system/test_operations.py::test_a_member_is_moved_to_another_place_and_port"
    ),
    "docs/own-tests.md: Random histories (sh)": Commands(),
    "docs/own-tests.md: The fuzzer (sh)": Commands(),
    "docs/own-tests.md: Mutation testing (sh)": Commands(),
    "docs/upgrading.md: The state's form (python)": Runs("memory"),
    "docs/upgrading.md: Try it before (python)": Runs("memory"),
    "docs/upgrading.md: Try it before (python 2)": Runs("memory"),
    **{
        key: Elsewhere(_CHAPTERS.get(chapter[1], f"{_TUTORIAL}test_the_chapters_work_in_order"))
        for key in all_blocks()
        if (chapter := re.match(r"docs/tutorial/(\d)-", key))
    },
}
"""The plan for each block. A new one without an entry fails the test, and so does an entry without a block."""

READER: dict[str, str] = {
    "AeronArchive": "from container.archive import AeronArchive",
    "AeronCluster": "from container.client import AeronCluster",
    "AsyncSessionPool": "from container.client import AsyncSessionPool",
    "LocalCluster": "from container.testing.processes.local_cluster import LocalCluster",
    "ConnectionListener": "from container.client import ConnectionListener",
    "ReconnectPolicy": "from container.client import ReconnectPolicy",
    "SessionPool": "from container.client import SessionPool",
    "AsyncAeronCluster": "from container.client import AsyncAeronCluster",
    "AsyncReconnectingClient": "from container.client import AsyncReconnectingClient",
    "diff": "from container.pipeline.replay import diff",
    "key_of": (
        "def key_of(payload: bytes) -> bytes | None:\n"
        "    name, is_total, _ = payload.partition(b'=')\n"
        "    return name if is_total else None\n"
    ),
    "member": 'from container.spark.options import SourceOptions\nmember = SourceOptions(("member-0",))',
    "services": "from container.testing.cluster import Service\nservices = [Service(['python', 'my_service.py'])]",
    "Printing": (
        "from typing import Any\n"
        "from container.client import EgressListener\n"
        "class Printing(EgressListener):\n"
        "    def on_message(self, cluster_session_id: int, timestamp: int, buffer: Any, header: object) -> None:\n"
        "        print(bytes(buffer))\n"
    ),
    "settings": (
        "from typing import Any\n"
        "settings: dict[str, Any] = {\n"
        "    'ingress_channel': 'aeron:udp',\n"
        "    'ingress_endpoints': '{ingress}',\n"
        "    'egress_channel': 'aeron:udp?endpoint=localhost:0',\n"
        "}\n"
    ),
    "spark": "from container.spark import open_session\nspark = open_session()",
}
"""Names that a reader has from the text around a block. Blocks may use no other name that they do not define."""


def with_what_the_reader_has(block: Block) -> str:
    """The block behind the definitions of the names that it uses and does not define."""
    tree = ast.parse(block.text)
    used, defined = set[str](), set(dir(builtins)) | {"__name__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            defined.add(node.name)
    missing = sorted(used - defined)
    unknown = [name for name in missing if name not in READER]
    assert not unknown, f"{block.document}:{block.line}: no reader knows {', '.join(unknown)}"
    return "\n".join([*(READER[name] for name in missing), block.text])
