"""The documentation site: it is built without a warning, and a browser clicks through it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from container.testing import wait_until
from tests.documents import ROOT

LIMIT_S = 60
PAGES = [
    *("docs/index", "README", "docs/architecture", "docs/client", "docs/pipeline", "docs/settings"),
    *("docs/tutorial/1-service", "docs/reference/client"),
]
PHONE, DESK = 400, 1400
LEGIBLE = 700
"""The width from which the letters of the pictures can be read; a narrower window scrolls them."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    command += ["--doctree-dir", str(place / "doctrees"), "-c", "docs/site", ".", str(place / "html")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return place / "html"


def test_each_page_is_on_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT).with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert not {page for page in pages if not (site / page).with_suffix(".html").exists()}
    assert "docs/index.html" in (site / "index.html").read_text(encoding="utf-8")


class _Text(HTMLParser):
    text = ""

    def handle_data(self, data: str) -> None:
        self.text += data


def text_of(page: Path) -> str:
    reader = _Text()
    reader.feed(page.read_text(encoding="utf-8"))
    return " ".join(reader.text.split())


def test_the_reference_has_types_of_compiled_functions(site: Path) -> None:
    assert "offer(*buffers: Buffer) → int" in text_of(site / "docs/reference/client.html")


def test_each_signature_of_the_reference_is_one_that_can_be_written(site: Path) -> None:
    """One with a default that is not Python is shown as it is, with the marks of shortened names."""
    for page in (site / "docs/reference").glob("*.html"):
        assert not re.findall(r"~[\w.]+|= ?<\w+", text_of(page)), page.name


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from selenium import webdriver

    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no chromium and chromedriver on this machine (apt install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    started = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        yield started
    finally:
        started.quit()


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_the_window(site: Path, browser, page: str, width: int) -> None:  # type: ignore[no-untyped-def]
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE},
    )
    browser.get((site / f"{page}.html").as_uri())
    assert browser.find_element("css selector", "h1").is_displayed()
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    pictures = browser.find_elements("css selector", "article p > img")
    assert all(picture.size["width"] >= LEGIBLE for picture in pictures), "a picture's letters are too small"
    if place := os.environ.get("SITE_SCREENSHOTS"):
        Path(place).mkdir(parents=True, exist_ok=True)
        for theme in ("light", "dark"):
            browser.execute_script("document.body.dataset.theme = arguments[0]", theme)
            browser.save_screenshot(str(Path(place, f"{page.replace('/', '-')}-{width}-{theme}.png")))


def test_a_reader_clicks_through_the_site(site: Path, browser) -> None:  # type: ignore[no-untyped-def]
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": DESK, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    browser.get((site / "index.html").as_uri())
    wait_until(lambda: browser.current_url.endswith("docs/index.html"), LIMIT_S, "the redirect to the first page")
    browser.find_element("css selector", ".sidebar-tree").find_element("link text", "Glossary").click()
    wait_until(lambda: browser.current_url.endswith("docs/glossary.html"), LIMIT_S, "the glossary")

    browser.find_element("css selector", ".sidebar-search").send_keys("on_timer_event\n")
    wait_until(lambda: browser.find_elements("css selector", "ul.search li a"), LIMIT_S, "results of a search")
    found = [link.get_attribute("href") for link in browser.find_elements("css selector", "ul.search li a")]
    assert any("docs/reference/service.html" in str(link) for link in found), found

    before = browser.execute_script("return document.body.dataset.theme")
    browser.find_element("css selector", ".content-icon-container .theme-toggle").click()
    theme = browser.execute_script("return document.body.dataset.theme")
    assert theme != before
    scheme = browser.execute_script("return getComputedStyle(document.documentElement).colorScheme")
    assert scheme == theme, "pictures follow the theme"
