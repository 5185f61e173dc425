"""The page in a real browser: it draws, answers clicks, fits a phone and follows the theme.

Runs wherever there is a Chromium (`apt-get install chromium`, or its path in $CHROMIUM).
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from kheads.lab.report import page, run_page, sweep_page
from kheads.lab.report.results import Results, read_run
from report_results import figures_of
from synthetic_results import write_run

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
TIMEOUT = 180_000  # milliseconds; only a page that hangs meets it
PHONE: ViewportSize = {"width": 390, "height": 844}
DESK: ViewportSize = {"width": 1200, "height": 900}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser: install Debian's chromium, or set $CHROMIUM")

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        # Chromium's sandbox needs rights that root in a container does not have; the page is our own.
        started = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"], timeout=TIMEOUT
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def built(sweep: Results, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of a sweep and a page of a run."""
    folder = tmp_path_factory.mktemp("pages")
    one = write_run(folder / "pruned")
    pages = {"sweep": sweep_page.sweep_page(sweep), "run": run_page.run_page(*read_run(one), one)}
    for name, described in pages.items():
        page.write(described, folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.fixture(scope="module")
def visit(browser: Browser, built: dict[str, Path]) -> Iterator[Open]:
    """Opens a page, once for each size, and waits until it is drawn.

    Any message of the console, and any request to elsewhere, is an error in the end.
    """
    complaints: list[str] = []
    opened: dict[tuple[str, bool], Page] = {}

    def go(name: str, phone: bool = False) -> Page:
        if (name, phone) not in opened:
            shown = browser.new_page(viewport=PHONE if phone else DESK, color_scheme="dark", has_touch=phone)
            shown.set_default_timeout(TIMEOUT)
            shown.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
            shown.on("pageerror", lambda error: complaints.append(str(error)))
            shown.on("request", lambda sent: complaints.append(sent.url) if sent.url.startswith("http") else None)
            shown.goto(built[name].as_uri())
            shown.wait_for_selector("html[data-drawn]")
            opened[name, phone] = shown
        return opened[name, phone]

    yield go
    assert not complaints


def drawn(shown: Page) -> dict[str, int]:
    """How many marks (lines, points, cells) each figure has."""
    marks = ".scatterlayer .trace path, .heatmaplayer image"
    return shown.evaluate(
        "marks => Object.fromEntries([...document.querySelectorAll('figure')].map("
        "figure => [figure.id, Math.min(...[...figure.querySelectorAll('.plot')].map("
        "plot => plot.querySelectorAll(marks).length))]))",
        marks,
    )


def test_every_figure_is_drawn(visit: Open, sweep: Results) -> None:
    found = drawn(visit("sweep"))
    assert set(found) == {f"figure-{figure.key}" for figure in figures_of(sweep)} and all(found.values())
    found = drawn(visit("run"))
    assert set(found) == {"figure-heads", "figure-dynamics", "figure-loss", "figure-latency"} and all(found.values())


def test_what_was_found_stands_above_the_quality_figure_and_the_claims_below_all(visit: Open) -> None:
    shown = visit("sweep")
    tops = [shown.locator(place).first.bounding_box() for place in (".found", "#figure-quality", "#claims-list")]
    found, quality, claims = (box["y"] if box else -1.0 for box in tops)
    last = shown.locator("figure").last.bounding_box()
    assert last and 0 < found < quality < last["y"] < claims


def test_claims_without_data_unfold_at_a_click(visit: Open) -> None:
    folded = visit("sweep").locator("details")
    claim = folded.get_by_text("Cross-attention heads")
    assert not claim.is_visible()
    folded.locator("summary").click()
    expect(claim).to_be_visible()
    folded.locator("summary").click()
    expect(claim).not_to_be_visible()


def test_a_table_that_is_too_wide_for_a_phone_shows_that_it_scrolls(visit: Open) -> None:
    """A shadow at the edge, and the names of the rows stay."""
    table = visit("sweep", phone=True).locator("#table-quality .wide")
    assert table.evaluate("table => table.scrollWidth > table.clientWidth")
    assert "scroll" in table.evaluate("table => getComputedStyle(table).backgroundAttachment")
    row = table.locator("tbody th").first
    before = row.bounding_box()
    table.evaluate("table => { table.scrollLeft = 150 }")
    assert row.bounding_box() == before
    table.evaluate("table => { table.scrollLeft = 0 }")


def test_a_click_in_the_legend_takes_a_method_out_of_all_panels_and_back(visit: Open) -> None:
    shown = visit("sweep")
    figure = shown.locator("#figure-quality")
    names = (
        "figure => [...figure.querySelectorAll('.plot')].map("
        "plot => plot._fullData.filter(trace => trace.visible).map(trace => trace.name))"
    )
    before = figure.evaluate(names)
    assert len(before) == 1 and all("STE" in panel for panel in before)
    key = figure.get_by_role("button", name="STE", exact=True)
    key.click()
    assert key.get_attribute("aria-pressed") == "false"
    assert figure.evaluate(names) == [[name for name in panel if name != "STE"] for panel in before]
    assert all("STE" in panel for panel in shown.locator("#figure-tradeoff").evaluate(names))
    key.click()
    assert figure.evaluate(names) == before


def test_pointing_at_a_point_shows_its_value(visit: Open) -> None:
    shown = visit("sweep")
    plot = shown.locator("#figure-quality .plot").first
    plot.scroll_into_view_if_needed()
    box = plot.locator(".scatterlayer .trace .points path").first.bounding_box()
    assert box
    shown.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    shown.wait_for_selector(".hoverlayer .hovertext")
    assert "Joint DSP" in (plot.locator(".hoverlayer").text_content() or "")


@pytest.mark.parametrize("name", ["sweep", "run"])
def test_a_phone_shows_the_page_without_scrolling_sideways(visit: Open, name: str) -> None:
    shown = visit(name, phone=True)
    assert shown.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    edges = shown.evaluate("[...document.querySelectorAll('.main-svg')].map(svg => svg.getBoundingClientRect().right)")
    assert edges and max(edges) <= PHONE["width"]
    assert all(drawn(shown).values())


def test_figures_follow_the_theme_also_when_it_changes(visit: Open) -> None:
    shown = visit("run")
    label, body = shown.locator("#figure-dynamics .xtick text").first, shown.locator("body")
    dark = label.evaluate("label => getComputedStyle(label).fill")
    back = body.evaluate("body => getComputedStyle(body).backgroundColor")
    shown.emulate_media(color_scheme="light")
    expect(label).not_to_have_css("fill", dark, timeout=TIMEOUT)
    expect(body).not_to_have_css("background-color", back)
    shown.emulate_media(color_scheme="dark")
    expect(label).to_have_css("fill", dark, timeout=TIMEOUT)


def test_on_paper_every_figure_is_a_still_drawing(visit: Open) -> None:
    shown = visit("run")
    shown.emulate_media(media="print")
    stills = shown.locator("figure .still")
    assert stills.count() == 4 and all(still.is_visible() for still in stills.all())
    assert not shown.locator(".plot").first.is_visible()
    assert shown.evaluate("[...document.querySelectorAll('.still')].every(still => still.naturalWidth > 0)")
    shown.emulate_media(media="screen")


def test_figures_can_be_downloaded_from_the_page(visit: Open) -> None:
    shown = visit("run")
    with shown.expect_download() as waiting:
        shown.locator("#figure-heads a", has_text="SVG").click()
    assert waiting.value.suggested_filename == "heads.svg"
    assert waiting.value.path().read_text().lstrip().startswith("<?xml")
