"""A report as one HTML file: text, tables and plots inside it, nothing to load from elsewhere."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from container.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1b1f24 }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.2rem }
table { border-collapse: collapse; margin: .6rem 0; font-size: .9rem }
th, td { border-bottom: 1px solid #d5dae0; padding: .25rem .7rem; text-align: left; vertical-align: top }
td.number { text-align: right; font-variant-numeric: tabular-nums }
img { max-width: 100% } code { font-size: .9em }
.pass { color: #137333 } .warn { color: #9a6700 } .fail { color: #c5221f; font-weight: 600 }
.note { color: #57606a }
"""
_STATES = ("pass", "warn", "fail")
ROW_LIMIT = 500
"""How many rows a table of a report shows; a note says how many there are beyond."""


class Report:
    """Collects the parts of a report in their order; :meth:`write` makes the file."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str, state: str = "") -> None:
        """A paragraph; ``state`` is pass, warn, fail, note or nothing, and colours it."""
        self._parts.append(f'<p class="{state}">{html.escape(text)}</p>')

    def table(self, names: Sequence[str], rows: Iterable[Sequence[object]], total: int | None = None) -> None:
        """A table; ``total`` is how many rows there would be, if these are not all."""
        listed = [tuple(row) for row in rows]
        shown = listed[:ROW_LIMIT]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in shown)
        self._parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>")
        missing = (len(listed) if total is None else total) - len(shown)
        if missing > 0:
            self.text(f"{missing:,} more rows are not shown", "note")

    def plots(self, count: int, *, height: float = 2.8) -> Plots:
        """Plots one above the other, to be drawn in a ``with`` block."""
        return Plots(self, count, height)

    def add_image(self, png: bytes, description: str) -> None:
        """A picture inside the file."""
        data = base64.b64encode(png).decode("ascii")
        self._parts.append(f'<img alt="{html.escape(description)}" src="data:image/png;base64,{data}">')

    def write(self, path: Path) -> Path:
        """Write the file, and the directories that it needs."""
        path.parent.mkdir(parents=True, exist_ok=True)
        title = html.escape(self._title)
        parts = "\n".join(self._parts)
        path.write_text(
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n{parts}\n</body></html>\n",
            encoding="utf-8",
        )
        return path


class Plots:
    """Axes of matplotlib that become one picture of a report when their block ends."""

    def __init__(self, report: Report, count: int, height: float) -> None:
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ConfigurationError(
                'reports need matplotlib: install the extra spark (pip install "aeron-cluster-container[spark]")'
            ) from error
        self._report = report
        # Not pyplot: that keeps figures, and looks for a screen.
        self._figure = Figure(figsize=(11, height * count), layout="constrained")
        self._axes: list[Axes] = list(self._figure.subplots(count, 1, squeeze=False)[:, 0])

    def __enter__(self) -> list[Axes]:
        return self._axes

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            buffer = io.BytesIO()
            self._figure.savefig(buffer, format="png", dpi=100)
            titles = ", ".join(axes.get_title() for axes in self._axes)
            self._report.add_image(buffer.getvalue(), titles)


def _cell(value: object) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    if isinstance(value, float):
        return f'<td class="number">{value:,.3f}</td>'
    text = html.escape(str(value))
    return f'<td class="{text}">{text}</td>' if text in _STATES else f"<td>{text}</td>"
