"""The word ``top``: nodes of this machine on a full screen, refreshed, with keys for a snapshot and for suspending."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from container.errors import ContainerError
from container.operate.node_metrics import NodeSample, sample_node
from container.operate.node_rows import COLUMNS, NodeRow, commit_position, details, rows

ACTION_LIMIT_S = 30.0
"""How long an action may take until it counts as not done."""
_LEFT = ("NODE", "MEMBER", "ROLE", "STATE")


class Confirmation(ModalScreen[bool]):
    """Asks whether to do something to a cluster."""

    DEFAULT_CSS = """
    Confirmation { align: center middle; }
    Confirmation Static { width: 60; height: auto; padding: 1 2; border: thick $warning; background: $surface; }
    """
    BINDINGS: ClassVar[list[Any]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Show the question."""
        yield Static(f"{self._question}\n\n[b]y[/b] yes   [b]n[/b] no")

    def action_answer(self, answer: bool) -> None:
        """End with the answer."""
        self.dismiss(answer)


class Looked(Message):
    """All nodes were read; and for each how many timers its latest snapshot has, where that is known."""

    def __init__(self, found: list[NodeSample], timer_counts: dict[Path, int | None]) -> None:
        super().__init__()
        self.found = found
        self.timer_counts = timer_counts


class Acted(Message):
    """An action has ended, as a text says."""

    def __init__(self, text: str, is_done: bool) -> None:
        super().__init__()
        self.text = text
        self.is_done = is_done


class TopApp(App[None]):
    """The view of some nodes.

    Args:
        paths: their directories.
        interval_s: seconds between two looks.
    """

    TITLE = "aeron-cluster top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #title { height: 1; background: $primary; color: $text; text-style: bold; padding: 0 1; }
    #nodes { height: auto; max-height: 60%; }
    #about { height: 1fr; padding: 1 1 0 1; }
    """
    BINDINGS: ClassVar[list[Any]] = [
        Binding("q", "quit", "Quit"),
        Binding("s", "ask('snapshot')", "Snapshot"),
        Binding("u", "ask('suspend')", "Suspend"),
        Binding("r", "ask('resume')", "Resume"),
    ]

    def __init__(self, paths: Sequence[Path], interval_s: float) -> None:
        super().__init__()
        self.paths = list(paths)
        self._interval_s = interval_s
        self._found: list[NodeSample] = []
        self._committed: dict[Path, float] = {}
        self._seen_s = 0.0
        self._is_looking = False
        self._counts: dict[Path, int | None] = {}
        self._timer_counts: dict[tuple[Path, int], int | None] = {}

    def compose(self) -> ComposeResult:
        """Title, table of nodes, what is known of the chosen one, keys."""
        yield Static(id="title")
        yield DataTable(id="nodes", cursor_type="row", zebra_stripes=True, cell_padding=0)
        with VerticalScroll(id="about"):
            yield Static(id="details", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Look at once, then after each interval."""
        self.theme = "textual-dark"
        table = self.query_one(DataTable)
        for name in COLUMNS:
            table.add_column(Text(f"{name} ", justify="left" if name in _LEFT else "right"), key=name)
        table.focus()
        self.look()
        self.set_interval(self._interval_s, self.look)

    def look(self) -> None:
        """Read all nodes, on a thread of its own: a disk that is slow must not keep keys from being heard.

        One look at a time: what takes longer than the interval does not pile up.
        """
        if not self._is_looking:
            self._is_looking = True
            self._read()

    @work(thread=True, group="look")
    def _read(self) -> None:
        try:
            found = [sample_node(path) for path in self.paths]
            counts = {each.path: self._timers_in_snapshot(each) for each in found}
        finally:
            self._is_looking = False
        self._report(Looked(found, counts))

    def _report(self, message: Message) -> None:
        """Give what a thread has found to the view, without waiting for it: it may be ending."""
        with suppress(RuntimeError):  # the event loop is closed
            self.post_message(message)

    def on_looked(self, message: Looked) -> None:
        """Show what was read, unless the view is ending."""
        if not self.is_running:
            return
        found = message.found
        now_s = time.monotonic()
        shown = rows(found, self._committed, now_s - self._seen_s)
        self._committed = {each.path: at for each in found if (at := commit_position(each)) is not None}
        self._seen_s, self._found = now_s, found
        self._counts = message.timer_counts
        table = self.query_one(DataTable)
        chosen = table.cursor_row
        table.clear()
        for row in shown:
            table.add_row(*_cells(row))
        if 0 <= chosen < len(shown):
            table.move_cursor(row=chosen)
        up_count = sum(each.status is not None and each.status.node == "running" for each in found)
        moment = time.strftime("%H:%M:%S")
        self.query_one("#title", Static).update(
            f"aeron-cluster top   {up_count} of {len(found)} nodes run   bytes of log   {moment}"
        )
        self._show_details()

    def on_data_table_row_highlighted(self, _event: DataTable.RowHighlighted) -> None:
        """Another node was chosen."""
        if self.is_running:
            self._show_details()

    def _show_details(self) -> None:
        chosen = self.chosen()
        if chosen is not None:
            lines = details(chosen, self._counts.get(chosen.path))
            self.query_one("#details", Static).update("\n".join(lines))

    def chosen(self) -> NodeSample | None:
        """Return what was read of the chosen node; None before the first look."""
        row = self.query_one(DataTable).cursor_row
        return self._found[row] if 0 <= row < len(self._found) else None

    def _timers_in_snapshot(self, found: NodeSample) -> int | None:
        """How many timers the latest snapshot has, which is read once: nothing counts those that are there now."""
        status = found.status
        if status is None or status.last_snapshot is None:
            return None
        key = found.path, status.last_snapshot.recording_id
        if key not in self._timer_counts:
            from container.operate.node_snapshots import describe_consensus_module

            try:
                facts: Any = describe_consensus_module(found.path).facts
                self._timer_counts[key] = len(facts.timers)
            except (ContainerError, OSError, MemoryError):
                self._timer_counts[key] = None
        return self._timer_counts[key]

    # Actions

    def action_ask(self, word: str) -> None:
        """Ask whether to let the cluster of the chosen node do what a word says, and let it."""
        chosen = self.chosen()
        if chosen is None or chosen.status is None:
            self.notify("nothing is known of this node", severity="warning")
            return
        leader = self._leader_of(chosen)
        if leader is None:
            self.notify("no node that is shown leads this cluster", severity="warning")
            return
        question = {
            "snapshot": "Let cluster {} take a snapshot?",
            "suspend": "Suspend cluster {}? It takes no messages until it is resumed.",
            "resume": "Resume cluster {}?",
        }[word].format(chosen.status.cluster_id)

        def answered(is_wanted: bool | None) -> None:
            if is_wanted:
                self.notify(f"{word}: requested")
                self.act(leader, word)

        self.push_screen(Confirmation(question), answered)

    def _leader_of(self, chosen: NodeSample) -> Path | None:
        for each in self._found:
            status = each.status
            if (
                status is not None
                and chosen.status is not None
                and status.cluster_id == chosen.status.cluster_id
                and status.node == "running"
                and status.role == "LEADER"
            ):
                return each.path
        return None

    @work(thread=True, group="act")
    def act(self, path: Path, word: str) -> None:
        """Let a cluster do what a word says, on a thread of its own, and show what became of it."""
        from container.operate.control import act

        try:
            result: Any = act(path, word, ACTION_LIMIT_S).facts
            is_done, text = result.is_done, f"{word}: done" if result.is_done else f"{word}: {result.reason}"
        except (ContainerError, OSError, MemoryError) as error:
            is_done, text = False, f"{word}: {error}"
        self._report(Acted(text, is_done))

    def on_acted(self, message: Acted) -> None:
        """Show what became of an action, and look at once, unless the view is ending."""
        if self.is_running:
            self.notify(message.text, severity="information" if message.is_done else "error", timeout=10)
            self.look()


def _cells(row: NodeRow) -> list[Text]:
    style = "" if row.state in ("ACTIVE", "SNAPSHOT") else "bold yellow"
    if row.state in ("dead", "stopped", "unknown"):
        style = "bold red"
    elif row.role == "LEADER" and not style:
        style = "bold green"
    return [
        Text(f"{value} ", style=style, justify="left" if name in _LEFT else "right")
        for name, value in zip(COLUMNS, row, strict=True)
    ]


def run_top(paths: Sequence[Path], interval_s: float) -> None:
    """Show nodes until the user quits."""
    TopApp(paths, interval_s).run()
