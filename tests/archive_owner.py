"""An archive over memory with a conductor of a few lines, for tests of what surrounds one: start, duty cycle, end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from container.archive.server.archive_conductor import Conductor
from container.archive.server.archive_context import ArchiveContext
from container.archive.server.native_archive import Archive
from container.files.error_log import read_error_log
from container.settings.archive_table import ArchiveSettings
from container.storage.file_storage import FileStorage
from container.storage.storage_seam import Storage
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import ManualClock, SteppingIdleStrategy
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from tests.mark_file_world import MS, NOW_MS, World

ARCHIVE_ID = 42
CHANNELS: dict[str, Any] = {
    "control_channel": "aeron:udp?endpoint=localhost:8010",
    "replication_channel": "aeron:udp?endpoint=localhost:0",
}


class ScriptedConductor(Conductor):
    """Stands for the archive's conductor: notes what is called, and does what a test wants."""

    def __init__(self, context: ArchiveContext, settings: ArchiveSettings) -> None:
        self.context, self.settings = context, settings
        self.calls: list[str] = []
        self.actions: dict[str, Callable[[], object]] = {}
        self.subscription: Any = None

    def start(self) -> None:
        self._act("start")
        self.subscription = seam.add_subscription(
            self.context.client, self.settings.local_control_channel, self.settings.local_control_stream_id
        )

    def do_work(self) -> int:
        if "do_work" not in self.calls:
            self.calls.append("do_work")
        result = self.actions.get("do_work", lambda: 0)()
        return result if isinstance(result, int) else 0

    def close(self) -> None:
        self._act("close")
        if self.subscription is not None:
            self.subscription.close()

    def _act(self, name: str) -> None:
        self.calls.append(name)
        self.actions.get(name, lambda: None)()


class Owner:
    """The surroundings of an archive: driver, clock, directory; each start makes a client, as a new process would."""

    def __init__(self, directory: str, storage: Storage | None = None, *, auto_advance_ns: int = 0) -> None:
        self.directory = directory
        self.clock = ManualClock(epoch_ms=NOW_MS, auto_advance_ns=auto_advance_ns)
        self.driver = MemoryDriver(self.clock)
        self.storage = storage
        self.client: MemoryClient
        self.conductors: list[ScriptedConductor] = []
        self.errors: list[BaseException] = []
        self.step: Callable[[], object] = lambda: self.clock.advance(10 * MS)
        """The work done while the archive waits."""
        self.prepare: Callable[[ScriptedConductor], object] = lambda _conductor: None
        """Called with each conductor that is made."""

    @property
    def conductor(self) -> ScriptedConductor:
        return self.conductors[-1]

    @property
    def world(self) -> World:
        return World(self.storage or FileStorage(), self.directory, self.clock)

    def context(self, **settings: Any) -> ArchiveContext:
        self.client = self.driver.connect("archive")
        arguments: dict[str, Any] = {
            "client": self.client,
            "storage": self.storage,
            "archive_dir": self.directory,
            "archive_id": ARCHIVE_ID,
            "error_handler": self.errors.append,
            "idle_strategy": lambda: SteppingIdleStrategy(self.step),
            "environ": {},
        }
        return OwnersContext(self, **arguments | CHANNELS | settings)

    def launch(self, **settings: Any) -> Archive:
        return Archive.launch(self.context(**{"use_agent_invoker": True} | settings))

    def work(self, archive: Archive, milliseconds: int = 3) -> int:
        done = 0
        for _ in range(milliseconds):
            self.clock.advance(MS)
            done += archive.invoke()
        return done

    def header(self) -> tuple[Any, ...]:
        return self.world.header()

    def recorded(self) -> list[str]:
        """The texts in the mark file's error log."""
        return [record.text for record in read_error_log(self.world.content()[8192:])]


class OwnersContext(ArchiveContext):
    """A context whose archive has a scripted conductor."""

    def __init__(self, owner: Owner, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._owner = owner

    def _new_conductor(self, settings: ArchiveSettings) -> Any:
        conductor = ScriptedConductor(self, settings)
        self._owner.conductors.append(conductor)
        self._owner.prepare(conductor)
        return conductor
