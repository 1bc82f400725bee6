"""Pictures of reports: structure, bounds, escapes, contrast, round ticks, and a browser's layout where there is one."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from container.pipeline.pictures import (
    COLOURS,
    DARK,
    LANE_COUNT_MAX,
    LIGHT,
    PICTURE_STYLE,
    WIDTHS,
    Axis,
    Bar,
    Chart,
    Lane,
    Mark,
    Picture,
    Ranges,
    Span,
    Steps,
    axis_ticks,
    compact,
    draw,
    duration_text,
    span_text,
    standalone,
)
from container.pipeline.report import Report
from tests.limits import LIMIT_S

SVG = "{http://www.w3.org/2000/svg}"
SECOND = 1_000_000
DAY = 86_400 * SECOND
BEGIN = 1_700_000_000 * SECOND
HOSTILE = "<script>alert(1)</script> & \"'\x00\x1b]]>\udcff"


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_can_be_told_from_the_page(scheme: dict[str, str]) -> None:
    shown = {name: contrast(scheme[name], scheme["page"]) for name in scheme if name not in ("page", "rule", "shade")}
    assert min(shown.values()) >= 4.5, shown
    assert contrast(scheme["note"], scheme["shade"]) >= 4.5
    used = set(re.findall(r"var\(--(\w+)\)", PICTURE_STYLE))
    assert used <= set(LIGHT) == set(DARK)


def sample(name: str = "Member 0", *, count: int = 3) -> Picture:
    """A picture with all that there is."""
    end = BEGIN + 100 * SECOND
    step = (end - BEGIN) / count
    places = [BEGIN + index * step for index in range(count)]
    bars = [Bar(at, at + step, f"term {n}", f"{name} in term {n}") for n, at in enumerate(places)]
    marks = [Mark(at, name, style) for at in places for style in ("snapshot", "finding", "damage")]
    steps = [(at, at + step, float(n)) for n, at in enumerate(places)]
    return Picture(
        f"Timeline of {name}",
        f"What {name} did",
        Axis("time", BEGIN, end),
        [Lane(name, bars, marks), Lane("Silent")],
        [
            Chart("Messages per second", [Steps("from clients", steps), Steps("from services", steps)]),
            Chart("Timer lateness (ms)", Ranges([(at, 0.0, 5000.0) for at in places])),
        ],
        [("first", "leads"), ("gap", "no message"), ("snapshot", "snapshot"), ("finding", "a finding")],
        [Span(BEGIN + 10 * SECOND, BEGIN + 30 * SECOND, "20 s", f"no message for 20 s: {name}")],
        [Span(at, at + step, "", name) for at in places],
    )


def parsed(picture: Picture, width: int) -> ElementTree.Element:
    return ElementTree.fromstring(draw(picture, width))


def texts(svg: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in svg.iter(f"{SVG}text")]


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_picture_has_its_lanes_charts_and_words_inside_its_box(width: int) -> None:
    svg = parsed(sample(), width)
    title, desc = (svg.find(f"{SVG}{name}") for name in ("title", "desc"))
    assert title is not None
    assert desc is not None
    assert (title.text, desc.text) == ("Timeline of Member 0", "What Member 0 did")
    assert svg.attrib["aria-labelledby"] == f"{title.attrib['id']} {desc.attrib['id']}"
    for text in ("Member 0", "Silent", "Messages per second", "from services", "Timer lateness (ms)", "20 s", "term 1"):
        assert text in texts(svg)
    assert "UTC, 2023-11-14" in texts(svg)
    _, _, box_width, box_height = map(float, svg.attrib["viewBox"].split())
    for element in svg.iter():
        if "x" in element.attrib:
            right = float(element.attrib["x"]) + float(element.attrib.get("width", 0))
            bottom = float(element.attrib["y"]) + float(element.attrib.get("height", 0))
            assert 0 <= float(element.attrib["x"]) <= right <= box_width, element.attrib
            assert 0 <= float(element.attrib["y"]) <= bottom <= box_height, element.attrib
    assert len(list(svg.iter(f"{SVG}rect"))) == 3 + 1 + 3  # bars, a gap, bins


def test_texts_of_any_origin_stay_texts(tmp_path: Path) -> None:
    svg = parsed(sample(HOSTILE), WIDTHS["wide"])
    assert not list(svg.iter(f"{SVG}script"))
    seen = "<script>alert(1)</script> & \"'??]]>?"
    assert seen in texts(svg)
    assert {title.text for title in svg.iter(f"{SVG}title")} >= {seen, f"{seen} in term 1"}
    page = Report(HOSTILE)
    page.heading(HOSTILE)
    page.text(HOSTILE, "fail")
    page.table((HOSTILE, "number"), [(HOSTILE, 3)])
    page.details(HOSTILE, (HOSTILE,), [(HOSTILE,)])
    page.picture(sample(HOSTILE))
    assert "<script" not in page.write(tmp_path / "page.html").read_text(encoding="utf-8")


def test_any_number_of_bars_and_marks_gives_a_small_picture() -> None:
    picture = sample(count=20_000)._replace(bins=())
    lanes = [*picture.lanes, *(Lane(f"Member {number}") for number in range(100))]
    charts = [Chart(chart.title, chart.series) for chart in sample(count=120).charts]
    text = draw(picture._replace(lanes=lanes, charts=charts), WIDTHS["wide"])
    assert len(text) < 300_000
    svg = ElementTree.fromstring(text)
    assert f"{len(lanes) - LANE_COUNT_MAX} more lanes are not shown" in texts(svg)
    assert any("from “Member 0 in term 0” to “" in (title.text or "") for title in svg.iter(f"{SVG}title"))


@pytest.mark.parametrize("end", [BEGIN, BEGIN + 1])
def test_an_axis_without_length_is_drawn(end: int) -> None:
    for width in WIDTHS.values():
        picture = sample()._replace(axis=Axis("time", BEGIN, end))
        assert "Messages per second" in texts(parsed(picture, width))


def test_the_picture_of_the_documents_is_as_one_is_drawn_today() -> None:
    text = (Path(__file__).parents[1] / "docs" / "timeline.svg").read_text(encoding="utf-8")
    assert COLOURS + PICTURE_STYLE in text, "copy timeline.svg of a run of the pipeline demo to docs/"
    assert {"Member 2", "term 1", "Round trip (ms)"} <= set(texts(ElementTree.fromstring(text)))


def test_a_file_of_its_own_has_the_style_of_both_schemes() -> None:
    text = standalone(sample())
    assert COLOURS in text
    assert ElementTree.fromstring(text).find(f"{SVG}style") is not None


@pytest.mark.parametrize(
    ("axis", "first", "step_count"),
    [
        (Axis("time", BEGIN, BEGIN + SECOND), "22:13:20.000", 11),
        (Axis("time", BEGIN, BEGIN + 100 * SECOND), "22:13:20", 11),
        (Axis("time", BEGIN + 1, BEGIN + 3600 * SECOND), "22:15", 12),
        (Axis("time", BEGIN, BEGIN + DAY), "11-15 00:00", 8),
        (Axis("time", BEGIN, BEGIN + 10 * DAY), "2023-11-15", 10),
        (Axis("time", -62_135_596_800 * SECOND, 253_402_300_799 * SECOND), "1000", 12),
        (Axis("time", BEGIN, BEGIN + 400 * DAY), "2024-01", 12),
        (Axis("log position", 0, 644_768), "0", 7),
        (Axis("log position", 2**62, 2**62 + 10), "4.612e+06T", 11),
        (Axis("number", 0, 5.12), "0", 11),
    ],
)
def test_ticks_are_few_and_round(axis: Axis, first: str, step_count: int) -> None:
    ticks = axis_ticks(axis, 12)
    assert len(ticks) <= max(step_count, 12)
    assert ticks[0][1] == first
    assert all(axis.begin <= value <= axis.end for value, _ in ticks)


def test_numbers_and_times_are_short() -> None:
    assert [compact(value) for value in (0, 950, 1200, 3e6, 0.5)] == ["0", "950", "1.2k", "3M", "0.5"]
    lengths = (2_500, 999_000, 4_600_000, 150 * SECOND, 3 * 3600 * SECOND, 12 * DAY)
    assert [duration_text(value) for value in lengths] == ["2.5 ms", "999 ms", "4.6 s", "2.5 min", "3 h", "12 d"]
    assert span_text(BEGIN, BEGIN + 1500) == "2023-11-14 22:13:20.000 to 22:13:20.001 UTC"
    assert span_text(BEGIN, BEGIN + DAY) == "2023-11-14 22:13:20.000 to 2023-11-15 22:13:20.000 UTC"


def test_a_row_with_a_sentence_is_a_paragraph_on_a_narrow_page(tmp_path: Path) -> None:
    page = Report("Tables")
    sentence = "Members 0 and 1 differ from log position 1,024 on: look at this one."
    page.table(("state", "log position", "what"), [("fail", 1024, sentence), ("pass", None, "short")])
    page.table(("member", "position"), [("0", 7)])
    text = page.write(tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.count('<table class="long">') == 1
    assert (
        f'<td class="fail">fail</td><td class="number" data-name="log position">1,024</td><td class="long">{sentence}'
        in text
    )
    assert '<tr><td>0</td><td class="number">7</td></tr>' in text, "a table of numbers scrolls"
    narrow = text.partition("@media (max-width: 50rem) {")[2]
    assert re.search(r"table\.long, \.long tbody, \.long tr \{ display: block \}", narrow)
    assert re.search(r"\.long td\.long \{ display: block; min-width: 0;", narrow), "as wide as the page, and no wider"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium, which lays the page out, is not installed")
def test_no_sentence_is_cut_on_a_narrow_page(tmp_path: Path) -> None:
    page = Report("Tables")
    page.table(("state", "member", "log position", "what"), [("fail", 0, 10**12, "A sentence that is long. " * 9)])
    path = page.write(tmp_path / "page.html")
    text = html.escape(path.read_text(encoding="utf-8"))
    path.write_text(
        f"""<iframe style="width: 400px; height: 900px; border: 0" srcdoc="{text}"></iframe><script>
    addEventListener("load", () => {{
        const cells = [...document.querySelector("iframe").contentDocument.querySelectorAll("td")]
        const ends = cells.map(one => one.getBoundingClientRect().right)
        document.body.setAttribute("data-probe", Math.max(...ends) <= 400)
    }})
    </script>""",
        encoding="utf-8",
    )
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--hide-scrollbars", "--window-size=1500,900", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert 'data-probe="true"' in done.stdout, done.stderr


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium, which lays the page out, is not installed")
@pytest.mark.parametrize(("width", "shown"), [(400, "narrow"), (1400, "wide")])
def test_a_page_is_no_wider_than_its_window(width: int, shown: str, tmp_path: Path) -> None:
    page = Report("A title that has many words and a path: " + "/var/lib/member" * 8)
    page.text("/a/path/without/a/blank" * 20, "warn")
    page.picture(sample("/var/lib/cluster/of/somebody/member-0" * 4, count=120))
    page.table(["time (UTC)", *(f"column_{n}" for n in range(20))], [["12:00:00.000"] * 21, ["a long text " * 9] * 21])
    path = page.write(tmp_path / "page.html")
    text = html.escape(path.read_text(encoding="utf-8"))
    # A frame, because a window cannot be made as narrow as a telephone's.
    path.write_text(
        f"""<iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{text}"></iframe><script>
    addEventListener("load", () => {{
        const page = document.querySelector("iframe").contentDocument
        const seen = [...page.querySelectorAll("figure")].filter(one => one.offsetHeight > 0).map(one => one.className)
        const line = page.querySelector("td").getClientRects()[0].height
        document.body.setAttribute("data-probe", [page.documentElement.scrollWidth, seen, line < 40])
    }})
    </script>""",
        encoding="utf-8",
    )
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--hide-scrollbars", "--window-size=1500,900", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    found = re.search(r'data-probe="([^"]*)"', done.stdout)
    assert found is not None, done.stderr
    assert found[1] == f"{width},{shown},true"
