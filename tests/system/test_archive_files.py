"""Java's archive and ours over one directory, in turn: each reads what the other has written, and goes on with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from container.aeron import AeronClient
from container.files.catalog import read_catalog
from container.testing.memory import transport_probe as seam
from container.testing.processes.local_archive import LocalArchive
from container.testing.processes.process import Process
from tests.limits import LIMIT_S
from tests.test_archive_command import record, record_open, replay

pytestmark = pytest.mark.usefixtures("jar")

MESSAGES = [bytes([number % 251]) * (1 + number * 37 % 1300) for number in range(4000)]
TERM_LENGTH = 1024 * 1024
CHECKSUM = "CRC-32C"


@pytest.fixture
def aeron_dir(tmp_path: Path) -> Iterator[Path]:
    """The directory of a media driver in C that ends with the test."""
    directory = tmp_path / "driver"
    command = [sys.executable, "-m", "container.testing.processes.client_driver", str(directory)]
    with Process("driver", command, directory=tmp_path) as process:
        process.start()
        assert process.read_line(LIMIT_S) == "ready"
        yield directory


def test_each_archive_reads_what_the_other_wrote_with_checksums_and_padding_and_goes_on(
    tmp_path: Path, aeron_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Upstream's checksums call private methods of Java's.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "--add-opens=java.base/java.util.zip=ALL-UNNAMED")
    properties = {
        "aeron.archive.segment.file.length": str(TERM_LENGTH),
        "aeron.archive.record.checksum": CHECKSUM,
        "aeron.archive.replay.checksum": CHECKSUM,
    }

    def check(archive: LocalArchive, client: AeronClient, recordings: list[int]) -> None:
        archive.start().await_ready()
        for each in recordings:
            assert replay(client, each) == MESSAGES, each

    def verify(archive: LocalArchive) -> None:
        return_code, output = archive.tool("verify", "-a", "-checksum", CHECKSUM)
        assert return_code == 0, output
        assert "ERR" not in output, output
        assert output.count("OK") == len(list(read_catalog(archive.archive_dir))), output

    recordings: list[int] = []
    with (
        AeronClient(str(aeron_dir), "test") as client,
        LocalArchive("native", tmp_path, aeron_dir, properties=properties) as ours,
    ):
        check(ours, client, [])
        recordings.append(record(client, MESSAGES))
        assert ours.stop() == 0
        verify(ours)
        [descriptor] = read_catalog(ours.archive_dir)
        assert descriptor.term_buffer_length == TERM_LENGTH
        assert descriptor.stop_position > 2 * TERM_LENGTH
        with ours.hand_over("java") as javas:
            check(javas, client, recordings)
            recordings.append(record(client, MESSAGES))
            writer = record_open(client, MESSAGES)
            recordings.append(writer.recording_id)
            position = seam.position(writer.publication)
            javas.kill()
            with javas.hand_over("native") as again:
                check(again, client, recordings)
                assert [each.stop_position for each in read_catalog(again.archive_dir)][-1] == position
                assert again.stop() == 0
                verify(again)
                check(again, client, [])
                writer = record_open(client, MESSAGES)
                recordings.append(writer.recording_id)
                position = seam.position(writer.publication)
                again.kill()
                with again.hand_over("java") as last:
                    check(last, client, recordings)
                    assert [each.stop_position for each in read_catalog(last.archive_dir)][-1] == position
    assert recordings == [0, 1, 2, 3]
