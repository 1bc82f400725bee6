"""Pictures of a report: lanes and charts over one axis, as SVG that follows the reader's light or dark scheme."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Literal, NamedTuple

type Style = Literal["first", "second", "faint", "snapshot", "finding", "damage", "gap", "area", "line", "range"]

WIDTHS = {"wide": 1080, "narrow": 352}
"""Width in CSS pixels of each drawing of a picture: a page shows the one that suits its width."""
LANE_COUNT_MAX = 32
"""How many lanes a picture has at most; its last line says how many there are beyond."""

LIGHT = {
    "page": "#ffffff",
    "text": "#1b1f24",
    "note": "#57606a",
    "rule": "#d5dae0",
    "shade": "#eceff3",
    "first": "#0b5cad",
    "second": "#a04a00",
    "pass": "#137333",
    "warn": "#7d5300",
    "fail": "#b3261e",
}
"""Colours of a page in the light scheme, by name. Those that carry text or a mark have 4.5:1 on ``page``."""
DARK = {
    "page": "#14181d",
    "text": "#e6e9ed",
    "note": "#a3adb8",
    "rule": "#3a424c",
    "shade": "#232a32",
    "first": "#6cb2ff",
    "second": "#f0a35e",
    "pass": "#6fcf8a",
    "warn": "#e3b341",
    "fail": "#ff8a80",
}
"""The same names in the dark scheme."""


def _colours(values: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in values.items())


COLOURS = f"""
:root {{ color-scheme: light dark; {_colours(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_colours(DARK)} }} }}
"""
PICTURE_STYLE = """
svg.picture { display: block; width: 100%; height: auto; background: var(--page) }
svg.picture text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: var(--text) }
svg.picture .title { font-weight: 600 }
svg.picture .note { fill: var(--note) }
svg.picture .title, svg.picture .note { paint-order: stroke; stroke: var(--page); stroke-width: 3px }
svg.picture .inside { fill: var(--page); font-size: 11px }
svg.picture .grid { stroke: var(--rule); stroke-width: 1 }
svg.picture .track { stroke: var(--rule); stroke-width: 2 }
svg.picture .first { fill: var(--first) }
svg.picture .second { fill: var(--second) }
svg.picture .faint { fill: var(--shade); stroke: var(--note); stroke-dasharray: 3 2 }
svg.picture .area { fill: var(--first); fill-opacity: .25; stroke: var(--first); stroke-width: 1.5 }
svg.picture .line { fill: none; stroke: var(--second); stroke-width: 1.5; stroke-dasharray: 4 2 }
svg.picture .range { stroke: var(--first); stroke-width: 1.5; fill: var(--first) }
svg.picture .snapshot { fill: var(--pass); stroke: var(--page); stroke-width: 2; paint-order: stroke }
svg.picture .finding, svg.picture .damage { fill: var(--page); stroke: var(--fail); stroke-width: 2 }
svg.picture .gap { fill: var(--shade); stroke: var(--note); stroke-dasharray: 3 2 }
svg.picture .bin { fill: none; pointer-events: all }
svg.picture .bin:hover { fill: var(--note); fill-opacity: .15 }
"""


class Axis(NamedTuple):
    """The axis from left to right: microseconds since 1970 in UTC, a log position, or a number with its unit."""

    kind: Literal["time", "log position", "number"]
    begin: float
    end: float
    name: str = ""
    """The axis's name with its unit; of a time axis, nothing: it has the date."""


class Bar(NamedTuple):
    """A stretch of a lane. ``label``, or what comes before its comma, is written inside where it fits; ``text`` appears
    under the pointer."""

    begin: float
    end: float
    label: str
    text: str
    style: Style = "first"


class Mark(NamedTuple):
    """A place in a lane."""

    at: float
    text: str
    style: Style


class Lane(NamedTuple):
    """A named row of bars and marks."""

    name: str
    bars: Sequence[Bar] = ()
    marks: Sequence[Mark] = ()


class Steps(NamedTuple):
    """Values that hold from a beginning to an end: the first of a chart as an area, another as a dashed line."""

    name: str
    points: Sequence[tuple[float, float, float]]


class Ranges(NamedTuple):
    """Medians and maxima at places: dots with a line up to the maximum."""

    points: Sequence[tuple[float, float, float]]


class Chart(NamedTuple):
    """Values over the axis; ``title`` has their unit."""

    title: str
    series: Sequence[Steps] | Ranges


class Span(NamedTuple):
    """A stretch of the axis that is shaded through all parts, such as a gap."""

    begin: float
    end: float
    label: str
    text: str


class Picture(NamedTuple):
    """Lanes above charts, over one axis."""

    title: str
    description: str
    """The text for a person who cannot see the picture."""
    axis: Axis
    lanes: Sequence[Lane] = ()
    charts: Sequence[Chart] = ()
    legend: Sequence[tuple[Style, str]] = ()
    gaps: Sequence[Span] = ()
    bins: Sequence[Span] = ()
    """Stretches of the charts whose ``text`` appears under the pointer."""


_LEFT, _RIGHT = 52, 22
_LANE, _CHART, _LINE = 38, 92, 18
_BAR_TOP, _BAR = 19, 14
_MARGIN = 12
_CHARACTER = 6.9
"""Pixels that a character of a label takes: a little more than most fonts need."""
_numbers = count(1)


def draw(picture: Picture, width: int, *, style: str = "") -> str:
    """Draw a picture as an SVG element of a width in pixels; ``style`` goes into it where no page has it."""
    return _Drawing(picture, width).svg(style)


def standalone(picture: Picture) -> str:
    """Draw a picture as a file of its own, which follows the reader's scheme as a page does."""
    return draw(picture, WIDTHS["wide"], style=COLOURS + PICTURE_STYLE) + "\n"


class _Drawing:
    """The elements of one SVG, from the top to the bottom."""

    def __init__(self, picture: Picture, width: int) -> None:
        self._picture = picture
        self._width = width
        self._axis = picture.axis
        self._y = 0.0
        self._parts: list[str] = []

    def svg(self, style: str) -> str:
        picture, number = self._picture, next(_numbers)
        self._legend(picture.legend)
        self._y += 4
        top, place = self._y, len(self._parts)
        self._y += _LINE if picture.gaps else 0
        lanes = picture.lanes[:LANE_COUNT_MAX]
        for lane in lanes:
            self._lane(lane)
        charts_top = self._y
        for chart in picture.charts:
            self._chart(chart)
        for each in picture.bins if picture.charts else ():
            left, right = self._x(each.begin), self._x(each.end)
            box = f'x="{left:.1f}" y="{charts_top:.0f}" width="{right - left:.1f}" height="{self._y - charts_top:.0f}"'
            self._parts.append(f'<rect class="bin" {box}>{_title(each.text)}</rect>')
        behind, self._parts = self._parts[place:], self._parts[:place]
        self._gaps(top)
        self._parts += behind
        self._ticks()
        if len(picture.lanes) > len(lanes):
            self._text(0, f"{len(picture.lanes) - len(lanes):,} more lanes are not shown", "note")
        margin = _MARGIN if style else 0  # a page has one of its own
        box = f"{-margin} {-margin} {self._width + 2 * margin} {math.ceil(self._y) + 2 * margin}"
        names = f"picture-{number}-title picture-{number}-text"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="img" aria-labelledby="{names}" '
            f'viewBox="{box}">'
            f'<title id="picture-{number}-title">{_escaped(picture.title)}</title>'
            f'<desc id="picture-{number}-text">{_escaped(picture.description)}</desc>'
            + (f"<style>{style}</style>" if style else "")
            + "\n".join(self._parts)
            + "</svg>"
        )

    def _x(self, value: float) -> float:
        begin, end = self._axis.begin, self._axis.end
        share = (min(max(value, begin), end) - begin) / (end - begin) if end > begin else 0.5
        return _LEFT + share * (self._width - _LEFT - _RIGHT)

    def _text(self, x: float, text: str, kind: str, *, anchor: str = "start", y: float | None = None) -> None:
        place = self._y if y is None else y
        if y is None:
            self._y += _LINE
            place += 13
        at = f'x="{x:.1f}" y="{place:.1f}" text-anchor="{anchor}"'
        self._parts.append(f'<text class="{kind}" {at}>{_escaped(text)}</text>')

    def _legend(self, items: Iterable[tuple[Style, str]], x: float = 0.0) -> None:
        """Symbols with their names, one after the other, over as many lines as they need."""
        begin = self._y
        for style, label in items:
            needed = 22 + _CHARACTER * len(label)
            if x and x + needed > self._width:
                x, self._y = 0.0, self._y + _LINE
            self._symbol(style, x + 7, self._y + 9)
            self._text(x + 20, label, "note", y=self._y + 13)
            x += needed + 12
        self._y += _LINE if x or self._y > begin else 0

    def _symbol(self, style: str, x: float, y: float, text: str = "") -> None:
        inner = _title(text)
        if style == "snapshot":
            shape = f'd="M{x:.1f} {y - 7:.1f}l6 7-6 7-6-7z"'
        elif style in ("finding", "damage"):
            shape = f'd="M{x - 8:.1f} {y:.1f}a8 8 0 1 1 16 0a8 8 0 1 1-16 0m4-4l8 8m0-8l-8 8"'
        elif style == "line":
            shape = f'd="M{x - 7:.1f} {y:.1f}h14"'
        elif style == "range":
            shape = f'd="M{x:.1f} {y + 3:.1f}v-10m-3 0h6M{x - 2:.1f} {y + 1:.1f}h4v4h-4z"'
        else:
            shape = f'd="M{x - 6.5:.1f} {y - 5.5:.1f}h13v11h-13z"'
        self._parts.append(f'<path class="{style}" {shape}>{inner}</path>')

    def _gaps(self, top: float) -> None:
        free, begin = 0.0, top + _LINE
        for gap in self._picture.gaps:
            left, right = self._x(gap.begin), self._x(gap.end)
            box = f'x="{left:.1f}" y="{begin:.0f}" width="{max(1.0, right - left):.1f}" height="{self._y - begin:.0f}"'
            self._parts.append(f'<rect class="gap" {box}>{_title(gap.text)}</rect>')
            half = _CHARACTER * len(gap.label) / 2
            middle = min(max((left + right) / 2, half), self._width - half)
            if middle - half >= free:
                self._text(middle, gap.label, "note", anchor="middle", y=top + 13)
                free = middle + half + 6

    def _lane(self, lane: Lane) -> None:
        begin = self._y
        self._text(0, _shortened(lane.name, int(self._width / _CHARACTER)), "title", y=begin + 14)
        y = begin + _BAR_TOP
        right = self._width - _RIGHT
        self._parts.append(f'<path class="track" d="M{_LEFT} {y + _BAR / 2:.0f}H{right}"/>')
        for bar in self._thinned_bars(lane.bars):
            left, end = self._x(bar.begin), self._x(bar.end)
            wide = max(1.5, end - left - (1 if end - left > 4 else 0))
            box = f'x="{left:.1f}" y="{y:.0f}" width="{wide:.1f}" height="{_BAR}"'
            self._parts.append(f'<rect class="{bar.style}" {box}>{_title(bar.text)}</rect>')
            for label in (bar.label, bar.label.partition(",")[0]):
                if label and wide > _CHARACTER * len(label) + 4:
                    self._text(left + 5, label, "inside", y=y + 11)
                    break
        for mark in self._thinned_marks(lane.marks):
            self._symbol(mark.style, self._x(mark.at), y + _BAR / 2, mark.text)
        self._y = begin + _LANE

    def _thinned_bars(self, bars: Iterable[Bar]) -> Iterable[Bar]:
        """Bars of one style that lie within three pixels become one."""
        last: list[Bar] = []
        for bar in sorted(bars, key=lambda bar: bar.begin):
            if last and (last[0].style != bar.style or self._x(bar.end) - self._x(last[0].begin) > 3):
                yield _joined_bar(last)
                last = []
            last.append(bar)
        if last:
            yield _joined_bar(last)

    def _thinned_marks(self, marks: Iterable[Mark]) -> Iterable[Mark]:
        """Marks of one style that would cover each other become one."""
        by_style: dict[str, list[Mark]] = {}
        for mark in sorted(marks, key=lambda mark: mark.at):
            last = by_style.setdefault(mark.style, [])
            if last and self._x(mark.at) - self._x(last[0].at) > 5:
                yield _joined_mark(last)
                last.clear()
            last.append(mark)
        for last in by_style.values():
            yield _joined_mark(last)

    def _chart(self, chart: Chart) -> None:
        self._y += 10
        title = _shortened(chart.title, int(self._width / _CHARACTER))
        self._text(0, title, "title", y=self._y + 13)
        self._legend(_names(chart.series), _CHARACTER * len(title) + 24)
        top, bottom = self._y + 8, self._y + _CHART - 6
        scale = _Scale(chart.series, top, bottom)
        for tick, label in scale.ticks:
            self._parts.append(f'<path class="grid" d="M{_LEFT} {scale.y(tick):.1f}H{self._width - _RIGHT}"/>')
            self._text(_LEFT - 6, label, "note", anchor="end", y=scale.y(tick) + 4)
        if isinstance(chart.series, Ranges):
            shapes = [
                f"M{self._x(at):.1f} {scale.y(low):.1f}V{scale.y(high):.1f}m-2 0h4"
                f"M{self._x(at) - 2:.1f} {scale.y(low) - 2:.1f}h4v4h-4z"
                for at, low, high in chart.series.points
            ]
            self._parts.append(f'<path class="range" d="{"".join(shapes)}"/>')
        else:
            for index, one in enumerate(chart.series):
                self._steps(one, scale, bottom, is_area=index == 0)
        self._y += _CHART

    def _steps(self, steps: Steps, scale: _Scale, bottom: float, *, is_area: bool) -> None:
        """One path; where nothing is known between two points it falls to the bottom."""
        shape: list[str] = []
        last = None
        for begin, end, value in steps.points:
            left, right, y = self._x(begin), self._x(end), scale.y(value)
            if begin != last:
                shape.append(f"V{bottom:.1f}M{left:.1f} {bottom:.1f}" if shape else f"M{left:.1f} {bottom:.1f}")
            shape.append(f"H{left:.1f}V{y:.1f}H{right:.1f}")
            last = end
        if shape:
            shape.append(f"V{bottom:.1f}")
        self._parts.append(f'<path class="{"area" if is_area else "line"}" d="{"".join(shape)}"/>')

    def _ticks(self) -> None:
        """The axis at the bottom: few round values, and its name."""
        axis, right = self._axis, self._width - _RIGHT
        self._parts.append(f'<path class="grid" d="M{_LEFT} {self._y:.0f}H{right}"/>')
        free = 0.0
        for value, label in axis_ticks(axis, (right - _LEFT) // (75 if axis.kind == "time" else 50)):
            x, half = self._x(value), _CHARACTER * len(label) / 2
            middle = min(x, self._width - half)
            self._parts.append(f'<path class="grid" d="M{x:.1f} {self._y:.0f}v5"/>')
            if middle - half >= free:
                self._text(middle, label, "note", anchor="middle", y=self._y + 17)
                free = middle + half + 8
        self._y += 21
        name = f"UTC{_date(axis)}" if axis.kind == "time" else axis.name
        self._text((_LEFT + right) / 2, name, "note", anchor="middle")


class _Scale:
    """The vertical axis of a chart: from zero in even steps, or in powers of ten where the maximum is far away."""

    def __init__(self, series: Sequence[Steps] | Ranges, top: float, bottom: float) -> None:
        self._top, self._bottom = top, bottom
        if isinstance(series, Ranges):
            values = [value for point in series.points for value in point[1:]]
        else:
            values = [point[2] for one in series for point in one.points]
        highest = max(values, default=0.0)
        lowest = min((value for value in values if value > 0), default=1.0)
        self._is_log = isinstance(series, Ranges) and highest > 100 * lowest
        if self._is_log:
            first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
            step = -(-(last - first) // 4)
            last = first + step * -(-(last - first) // step)
            ticks = [10.0**power for power in range(first, last + 1, step)]
            self.ticks = [(tick, ("≤ " if tick == ticks[0] else "") + compact(tick)) for tick in ticks]
        else:
            step_size = _nice(max(highest, 0.0) / 3) or 1.0
            steps = max(1, math.ceil(round(highest / step_size, 9)))
            self.ticks = [(index * step_size, compact(index * step_size)) for index in range(steps + 1)]
        self._begin, self._end = self.ticks[0][0], self.ticks[-1][0]

    def y(self, value: float) -> float:
        """The place of a value, of which less than the axis has is at its bottom."""
        value = min(max(value, self._begin), self._end)
        if self._is_log:
            share = math.log(value / self._begin) / math.log(self._end / self._begin)
        else:
            share = (value - self._begin) / (self._end - self._begin)
        return self._bottom - share * (self._bottom - self._top)


def _names(series: Sequence[Steps] | Ranges) -> list[tuple[Style, str]]:
    if isinstance(series, Ranges):
        return [("range", "median, line to the maximum")]
    if len(series) < 2:
        return []
    return [("area" if index == 0 else "line", one.name) for index, one in enumerate(series)]


def _joined_bar(bars: Sequence[Bar]) -> Bar:
    if len(bars) == 1:
        return bars[0]
    text = f"{len(bars):,} from “{bars[0].text}” to “{bars[-1].text}”"
    return bars[0]._replace(end=max(bar.end for bar in bars), label="", text=text)


def _joined_mark(marks: Sequence[Mark]) -> Mark:
    if len(marks) == 1:
        return marks[0]
    return marks[0]._replace(text=f"{len(marks):,} from “{marks[0].text}” to “{marks[-1].text}”")


def _title(text: str) -> str:
    return f"<title>{_escaped(text)}</title>" if text else ""


def _escaped(text: str) -> str:
    """A text of any origin inside SVG: what XML has no place for becomes a question mark."""
    return html.escape("".join(one if one.isprintable() or one == "\n" else "?" for one in text))


def _shortened(text: str, limit: int) -> str:
    """The text, or its end behind an ellipsis: of paths the end says more."""
    return text if len(text) <= limit else "…" + text[1 - limit :]


# Round numbers, and how they are written


def _nice(step: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below a step."""
    if step <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))


def compact(value: float) -> str:
    """Write a number in a few characters: 950, 1.2k, 3M."""
    for limit, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.4g}{sign}"
    return f"{value:.4g}"


_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_MONTHS = (1, 2, 3, 6, *(12 * years for years in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Steps of a time axis in microseconds; beyond, in years.
TIME_STEPS = (
    *(factor * power for power in (1_000, 10_000, 100_000) for factor in (1, 2, 5)),
    *(factor * _SECOND for factor in (1, 2, 5, 10, 15, 30)),
    *(factor * 60 * _SECOND for factor in (1, 2, 5, 10, 15, 30)),
    *(factor * 3600 * _SECOND for factor in (1, 2, 3, 6, 12)),
    *(factor * _DAY for factor in (1, 2, 7, 14, 30, 91, 365, 3650, 36500)),
)
"""Round lengths of time in microseconds."""


def as_datetime(micros: float) -> datetime:
    """Microseconds since 1970 as a time in UTC, of the years that Python has."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return (datetime.max if micros > 0 else datetime.min).replace(tzinfo=UTC)


def time_text(micros: float) -> str:
    """Write microseconds since 1970 as a date and a time in UTC, to milliseconds."""
    return as_datetime(micros).isoformat(" ", "milliseconds").removesuffix("+00:00")


def span_text(begin: float, end: float) -> str:
    """Write the beginning and the end of a stretch of time in UTC, the date once if they share it."""
    first, last = time_text(begin), time_text(end)
    return f"{first} to {last[11:] if last[:11] == first[:11] else last} UTC"


def duration_text(micros: float) -> str:
    """Write a length of time with the unit that suits it: 250 ms, 4.6 s, 12 min, 3.5 h, 12 d."""
    for limit, unit in ((_DAY * 2, "d"), (3600 * _SECOND * 2, "h"), (60 * _SECOND * 2, "min"), (_SECOND, "s")):
        if micros >= limit:
            return f"{micros / (limit if unit == 's' else limit / 2):.3g} {unit}"
    return f"{micros / 1000:.3g} ms"


def axis_ticks(axis: Axis, limit: float) -> list[tuple[float, str]]:
    """Round places of an axis, with their labels: no more than about ``limit``."""
    least = (axis.end - axis.begin) / max(limit, 2)
    if axis.kind == "time" and least > 7 * _DAY:
        return _calendar_ticks(axis, least)
    if axis.kind == "time":
        step = next((one for one in TIME_STEPS if one >= least), TIME_STEPS[-1])
        return [(value, _time_label(axis, value, step)) for value in _multiples(axis, step)]
    step_size = _nice(least) or 1.0
    if axis.kind == "log position":
        step_size = max(1.0, step_size)
    return [(value, compact(value)) for value in _multiples(axis, step_size)]


def _calendar_ticks(axis: Axis, least: float) -> list[tuple[float, str]]:
    """The first days of months, of years, or of more years."""
    step = next(months for months in _MONTHS if months * 30.4 * _DAY >= least)
    begin, end = as_datetime(axis.begin), as_datetime(axis.end)
    first, last = (12 * one.year + one.month - 1 for one in (begin, end))
    ticks = []
    for index in range(-(-first // step) * step, last + 1, step):
        day = date(max(index // 12, 1), index % 12 + 1, 1)
        micros = float((day - _EPOCH.date()).days * _DAY)
        if micros >= axis.begin:
            ticks.append((micros, day.isoformat()[: 7 if step % 12 else 4]))
    return ticks


def _multiples(axis: Axis, step: float) -> list[float]:
    first, last = math.ceil(axis.begin / step), math.floor(axis.end / step)
    return [index * step for index in range(first, last + 1)]


def _time_label(axis: Axis, micros: float, step: float) -> str:
    day, time = time_text(micros).split(" ")
    if step >= _DAY:
        return day
    time = time if step < _SECOND else time[:8] if step < 60 * _SECOND else time[:5]
    return time if _date(axis) else f"{day[5:]} {time}"


def _date(axis: Axis) -> str:
    """The date that all of an axis has, behind a comma."""
    first, last = (as_datetime(value).date() for value in (axis.begin, axis.end))
    return f", {first.isoformat()}" if first == last else ""
