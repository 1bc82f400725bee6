"""The picture of the rooms, docs/rooms.svg: who uses whom, drawn from the table in layers.py."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import pairwise
from pathlib import Path

from tests.layers import ROOMS

PLACE = Path(__file__).resolve().parent.parent / "docs" / "rooms.svg"

_BOX_HEIGHT, _ROW, _GAP, _MARGIN = 28, 76, 22, 16
_CHARACTER = 7.4
_LANE = 10
_SWEEPS = 24
_STYLE = """
  text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #1f2328 }
  rect { fill: #eef3f9; stroke: #57606a }
  .test rect { fill: #f6efe2 }
  path { fill: none; stroke: #8c959f }
  marker path { fill: #8c959f; stroke: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    rect { fill: #1c2733; stroke: #8b949e }
    .test rect { fill: #33291a }
    path { stroke: #6e7681 }
    marker path { fill: #6e7681 }
  }
"""


def reduced(uses: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The arrows without those to where another arrow leads as well, by a longer way."""
    reach: dict[str, set[str]] = {}
    for room in uses:  # from the lowest to the highest
        reach[room] = set(uses[room]).union(*(reach[other] for other in uses[room]))
    return {
        room: {one for one in used if not any(one in reach[other] for other in used)} for room, used in uses.items()
    }


def rows_of(uses: Mapping[str, set[str]]) -> dict[str, int]:
    """The row of each room, 0 for the lowest: one above the highest that it uses."""
    rows: dict[str, int] = {}
    for room, used in uses.items():
        rows[room] = 1 + max((rows[other] for other in used), default=-1)
    return rows


def _grid(uses: Mapping[str, set[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """The rows with their rooms, and with a place in each row that an arrow crosses; the ways of the arrows."""
    rows = rows_of(uses)
    grid: list[list[str]] = [[] for _ in range(1 + max(rows.values()))]
    for room, row in rows.items():
        grid[row].append(room)
    ways: list[list[str]] = []
    for room, used in uses.items():
        for other in sorted(used):
            way = [room]
            for row in range(rows[room] - 1, rows[other], -1):
                lane = f"{room}>{other}>{row}"
                grid[row].append(lane)
                way.append(lane)
            ways.append([*way, other])
    return grid, ways


def _width(place: str) -> float:
    return _LANE if ">" in place else 22 + _CHARACTER * len(place)


def _arrange(grid: list[list[str]], ways: list[list[str]]) -> dict[str, float]:
    """The middle of each place: rows are sorted again and again by where their neighbours stand, then spread."""
    neighbours: dict[str, list[str]] = {place: [] for row in grid for place in row}
    for way in ways:
        for upper, lower in pairwise(way):
            neighbours[upper].append(lower)
            neighbours[lower].append(upper)
    middles: dict[str, float] = {}

    def spread(row: list[str], wanted: Mapping[str, float]) -> None:
        # Half of two ways: each as far left as it wants and its left neighbour lets it, and the same to the right.
        left, right, edge = {}, {}, float("-inf")
        for place in row:
            left[place] = max(wanted[place], edge + _GAP + _width(place) / 2)
            edge = left[place] + _width(place) / 2
        edge = float("inf")
        for place in reversed(row):
            right[place] = min(wanted[place], edge - _GAP - _width(place) / 2)
            edge = right[place] - _width(place) / 2
            middles[place] = (left[place] + right[place]) / 2

    for row in grid:
        edge = float(_MARGIN)
        for place in row:
            middles[place] = edge + _width(place) / 2
            edge += _width(place) + _GAP
    for sweep in range(_SWEEPS):
        for row in grid if sweep % 2 else reversed(grid):
            wanted = {
                place: sum(middles[other] for other in neighbours[place]) / len(neighbours[place])
                if neighbours[place]
                else middles[place]
                for place in row
            }
            row.sort(key=lambda place: (wanted[place], place))
            spread(row, wanted)
    leftmost = min(middle - _width(place) / 2 for place, middle in middles.items())
    return {place: middle + _MARGIN - leftmost for place, middle in middles.items()}


def picture() -> str:
    """The picture, as SVG for light and dark pages."""
    uses = reduced({name: set(room.uses.split()) for name, room in ROOMS.items()})
    grid, ways = _grid(uses)
    middles = _arrange(grid, ways)
    top = {place: _MARGIN + (len(grid) - 1 - row) * _ROW for row, places in enumerate(grid) for place in places}
    width = max(middles[place] + _width(place) / 2 for place in middles) + _MARGIN
    height = (len(grid) - 1) * _ROW + _BOX_HEIGHT + 2 * _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" '
        'aria-labelledby="title desc">',
        '<title id="title">The rooms of the package</title>',
        '<desc id="desc">A room uses those that its arrows lead to, and what these lead to.</desc>',
        f"<style>{_STYLE}</style>",
        '<marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8Z"/></marker>',
    ]
    for way in ways:
        points = [(middles[place], top[place]) for place in way]
        path = f"M{points[0][0]:.1f} {points[0][1] + _BOX_HEIGHT}"
        for (x, y), (next_x, next_y) in pairwise(points):
            begin = y + _BOX_HEIGHT
            bend = (next_y - begin) / 2
            path += f" C{x:.1f} {begin + bend:.1f} {next_x:.1f} {next_y - bend:.1f} {next_x:.1f} {next_y}"
            if (next_x, next_y) != points[-1]:
                path += f" V{next_y + _BOX_HEIGHT}"
        lines.append(f'<path d="{path}" marker-end="url(#end)"/>')
    for room in ROOMS:
        x, y, box = middles[room], top[room], _width(room)
        kind = ' class="test"' if ROOMS[room].purpose.startswith("for tests") else ""
        lines.append(
            f'<g{kind}><rect x="{x - box / 2:.1f}" y="{y}" width="{box:.1f}" height="{_BOX_HEIGHT}" rx="5"/>'
            f'<text x="{x:.1f}" y="{y + 18.5}">{escape(room)}</text></g>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PLACE.write_text(picture(), encoding="utf-8")
