"""A report as one HTML file: text, tables and pictures inside it, nothing to load from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from container.pipeline.pictures import COLOURS, PICTURE_STYLE, WIDTHS, Picture, draw

_STYLE = (
    COLOURS
    + """
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem;
       color: var(--text); background: var(--page); overflow-wrap: anywhere }
h1 { font-size: 1.6rem; line-height: 1.25 } h2 { font-size: 1.2rem; margin-top: 2.2rem }
p { margin: .4rem 0; max-width: 50rem }
.table { overflow-x: auto; margin: .6rem 0 }
table { border-collapse: collapse; font-size: .9rem; overflow-wrap: normal }
th, td { border-bottom: 1px solid var(--rule); padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top }
th { vertical-align: bottom } th:first-child { white-space: nowrap }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums }
td { white-space: nowrap }
td.long { white-space: normal; min-width: 12rem; overflow-wrap: anywhere }
figure { margin: .8rem 0 } figure.narrow { display: none; max-width: 30rem }
summary { cursor: pointer; margin: .6rem 0 }
.pass { color: var(--pass) } .warn { color: var(--warn) } .fail { color: var(--fail); font-weight: 600 }
.note { color: var(--note) }
@media (max-width: 50rem) { figure.wide { display: none } figure.narrow { display: block } body { margin-top: 1rem }
  table.long, .long tbody, .long tr { display: block } .long thead { display: none }
  .long tr { border-bottom: 1px solid var(--rule); padding: .25rem 0 }
  .long td { display: inline-block; border: 0; padding: 0 .8rem 0 0 } .long td:empty { display: none }
  .long td[data-name]::before { content: attr(data-name) " "; color: var(--note) }
  .long td.long { display: block; min-width: 0; padding: 0 } }
"""
    + PICTURE_STYLE
)
_STATES = ("pass", "warn", "fail")
_SHORT = 26  # characters of a cell that stays on one line
ROW_LIMIT = 200
"""How many rows a table of a report shows; a note says how many there are beyond."""


class Report:
    """Collects the parts of a report in their order; :meth:`write` makes the file."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []

    def __repr__(self) -> str:
        return f"<Report {self._title!r} with {len(self._parts)} parts>"

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
        self._parts.append(_table(names, shown))
        missing = (len(listed) if total is None else total) - len(shown)
        if missing > 0:
            self.text(f"{missing:,} more rows are not shown", "note")

    def details(self, summary: str, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table that opens when its summary is clicked: for what a picture shows already."""
        table = _table(names, [tuple(row) for row in rows])
        self._parts.append(f"<details><summary>{html.escape(summary)}</summary>{table}</details>")

    def picture(self, picture: Picture) -> None:
        """A picture, drawn for wide and for narrow pages."""
        for name, width in WIDTHS.items():
            self._parts.append(f'<figure class="{name}">{draw(picture, width)}</figure>')

    def write(self, path: Path) -> Path:
        """Write the file, and the directories that it needs."""
        path.parent.mkdir(parents=True, exist_ok=True)
        title = html.escape(self._title)
        parts = "\n".join(self._parts)
        path.write_text(
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
            f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n{parts}\n</body></html>\n",
            encoding="utf-8",
            errors="replace",  # paths of members may have bytes that are not text
        )
        return path


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table that scrolls within itself where the page is narrower.

    One with sentences does not: there each row is a paragraph, with the names of its columns, so that none is cut.
    """
    numbers = [any(isinstance(row[index], int | float) for row in rows) for index in range(len(names))]
    head = "".join(map(_head, names, numbers))
    is_long = any(_is_long(value) for row in rows for value in row)
    shown = names if is_long else [""] * len(names)
    body = "\n".join(f"<tr>{''.join(map(_cell, row, shown))}</tr>" for row in rows)
    kind = ' class="long"' if is_long else ""
    return f'<div class="table"><table{kind}><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _head(name: str, is_number: bool) -> str:
    """The name of a column, which may break behind each underscore."""
    kind = ' class="number"' if is_number else ""
    return f'<th scope="col"{kind}>{html.escape(name).replace("_", "_<wbr>")}</th>'


def _is_long(value: object) -> bool:
    return not isinstance(value, int | float | datetime) and len(str(value)) > _SHORT


def _cell(value: object, name: str) -> str:
    """A cell; ``name`` of its column is shown in front of it where the row is a paragraph, unless it is a sentence."""
    named = f' data-name="{html.escape(name)}"' if name else ""
    if value is None:
        return "<td></td>"
    if isinstance(value, bool):
        return f"<td{named}>{'yes' if value else 'no'}</td>"
    if isinstance(value, int):
        return f'<td class="number"{named}>{value:,}</td>'
    if isinstance(value, float):
        return f'<td class="number"{named}>{value:,.3f}</td>'
    if isinstance(value, datetime):
        value = value.isoformat(" ", "milliseconds" if value.microsecond else "seconds").removesuffix("+00:00")
    text = str(value)
    if text in _STATES or len(text) > _SHORT:
        return f'<td class="{text if text in _STATES else "long"}">{html.escape(text)}</td>'
    return f"<td{named}>{html.escape(text)}</td>"
