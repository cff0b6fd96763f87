"""The page in a real browser, opened from disk without network."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from report_pages import drawn, report
from report_runs import research_run, robot_run

Opener = Callable[..., Page]


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("single")
    return report(folder, research_run(folder / "titanic-rectified-0"))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    runs = [research_run(folder / f"ours-{seed}", seed=seed) for seed in range(2)]
    runs += [research_run(folder / "plain", reward="world-model"), robot_run(folder / "arm")]
    return report(folder, *runs)


def test_figures_of_one_run_are_drawn(single: Path, open_page: Opener) -> None:
    page = open_page(single)
    wanted = ["curves", "calibration", "residuals", "statuses", "weights", "cost"]
    assert drawn(page) == [f"research-{name}" for name in wanted]
    expect(page.locator("h1")).to_have_text("titanic-rectified-0")
    cards = page.locator(".card")
    expect(cards.nth(0)).to_contain_text("0.420 → 0.800")
    expect(cards.nth(1)).to_contain_text("32.0 s")
    expect(cards.nth(2)).to_contain_text("27%")
    assert page.wrong == []  # type: ignore[attr-defined]


def test_several_runs_and_both_kinds(mixed: Path, open_page: Opener) -> None:
    page = open_page(mixed)
    found = drawn(page)
    assert {"research-curves", "research-tradeoff", "robot-curves", "robot-tasks", "robot-cost"} <= set(found)
    expect(page.locator("#research table.groups tbody tr")).to_have_count(2)
    expect(page.locator("#research table.groups")).to_contain_text("rectified")
    expect(page.locator("#robot .cards")).to_contain_text("0.400 → 0.700")
    apart = page.locator("#research-setup .settings").first.locator("tr.apart th")
    expect(apart).to_have_text(["reward", "seed"])
    page.locator("#research .picker select").select_option(label="ours-1 (rectified)")
    expect(page.locator("#research .picker select")).to_have_value("1")
    assert page.wrong == []  # type: ignore[attr-defined]


def test_choices_change_a_figure(mixed: Path, open_page: Opener) -> None:
    page = open_page(mixed)
    drawn(page)
    curves = page.locator("[data-figure='research-curves']")
    title = curves.locator(".xtitle")
    expect(title).to_have_text("step")
    curves.get_by_label("CPU seconds executed").check()
    expect(title).to_contain_text("CPU seconds really executed")
    curves.locator("summary").click()
    expect(curves.locator("table tbody tr").first).to_be_visible()


def test_slider_moves_the_calibration_map_by_keyboard(single: Path, open_page: Opener) -> None:
    page = open_page(single)
    drawn(page)
    figure = page.locator("[data-figure='research-calibration']")
    lines = figure.locator(".scatterlayer .trace")
    expect(lines).to_have_count(5)  # the diagonal, the pairs and three maps
    slider = figure.locator("input[type=range]")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(figure.locator("output")).to_have_text("6")
    assert slider.get_attribute("aria-valuetext") == "step 6"
    expect(lines).to_have_count(4)
    page.keyboard.press("Home")
    expect(lines).to_have_count(3)


def test_a_browser_that_cannot_unpack_shows_numbers(single: Path, context: Callable[..., BrowserContext]) -> None:
    own = context()
    own.add_init_script("delete window.DecompressionStream")
    page = own.new_page()
    page.goto(single.as_uri())
    figure = page.locator("figure.figure").first
    expect(figure.locator(".plot")).to_contain_text("This browser cannot draw the figure")
    figure.locator("summary").click()
    expect(figure.locator("tbody tr").first).to_be_visible()
    expect(page.locator("#trajectories .row").first).to_be_visible()


def test_filters(single: Path, open_page: Opener) -> None:
    page = open_page(single)
    browser = page.locator("#trajectories")
    count, rows = browser.locator(".count"), browser.locator(".row")
    expect(count).to_have_text("48 episodes")
    assert count.get_attribute("aria-live") == "polite"
    browser.get_by_label("Episodes", exact=True).first.select_option("anchor")
    expect(count).to_have_text("12 of 48 episodes")
    browser.get_by_label("Status").select_option("runtime_error")
    expect(count).to_have_text("6 of 48 episodes")
    browser.get_by_label("From step").fill("5")
    browser.get_by_label("To step").fill("8")
    expect(rows).to_have_count(2)
    browser.get_by_label("Text").fill("NO COLUMN 24")
    expect(count).to_have_text("1 of 48 episodes")
    detail = browser.locator(".detail")
    expect(detail).to_contain_text("titanic · step 6")
    expect(detail.locator(".verdict")).to_have_text("The status was predicted wrongly.")
    expect(detail.locator(".outcome.predicted .status")).to_have_text("valid")
    expect(detail.locator(".outcome.real .status")).to_have_text("runtime error")
    expect(detail.locator(".line.wrong")).to_have_attribute("data-line", "5")
    expect(detail.locator(".code .t-k").first).to_have_text("import")
    browser.get_by_label("Text").fill("nothing of the kind")
    expect(detail).to_have_text("No episode passes these filters.")


def test_keyboard_alone(single: Path, open_page: Opener) -> None:
    page = open_page(single)
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    row = page.locator(".row").first
    row.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    chosen = page.locator(".row[aria-current]")
    expect(chosen).to_be_focused()
    expect(chosen).to_contain_text("step 1")
    expect(page.locator(".detail h3")).to_have_text("titanic · step 1")
    page.keyboard.press("End")
    expect(page.locator(".detail h3")).to_have_text("titanic · step 12")


def test_named_for_screen_readers(mixed: Path, open_page: Opener) -> None:
    page = open_page(mixed)
    drawn(page)
    script = """() => {
        const named = (one) => one.getAttribute("aria-label") || (one.labels && one.labels.length)
            || one.textContent.trim() || document.getElementById(one.getAttribute("aria-labelledby"));
        const levels = [...document.querySelectorAll("main h1, main h2, main h3, main h4, main h5")]
            .filter((one) => one.checkVisibility()).map((one) => Number(one.tagName[1]));
        return {
            lang: document.documentElement.lang,
            landmarks: ["header", "nav", "main", "footer"].filter((tag) => document.querySelector(tag)),
            unnamed: [...document.querySelectorAll("button, input, select, section, figure, nav, video, [role=img]")]
                .filter((one) => !named(one) && !one.closest(".modebar")).map((one) => one.outerHTML.slice(0, 120)),
            held: [...document.querySelectorAll("[role=img]")]
                .filter((one) => one.querySelector("a[href], button, input, select, [tabindex]"))
                .map((one) => one.outerHTML.slice(0, 120)),
            alike: [...document.querySelectorAll("section:not([role]), [role=region]")]
                .filter((one) => one.checkVisibility())
                .map((one) => one.getAttribute("aria-label")
                    || document.getElementById(one.getAttribute("aria-labelledby"))?.textContent)
                .filter((name, at, all) => name && all.indexOf(name) !== at),
            jumps: levels.filter((level, at) => at && level > levels[at - 1] + 1),
            first: levels[0],
            repeated: [...document.querySelectorAll("main [id]")].filter((one) => !one.closest("svg"))
                .map((one) => one.id).filter((id, at, all) => all.indexOf(id) !== at),
        };
    }"""
    found = page.evaluate(script)
    assert found["lang"] == "en" and found["first"] == 1
    assert found["landmarks"] == ["header", "nav", "main", "footer"]
    assert found["unnamed"] == []
    assert found["held"] == []
    assert found["alike"] == []
    assert found["jumps"] == []
    assert found["repeated"] == []


CONTRAST = """() => {
    const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
    const colour = (text) => {
        const found = parse(text);
        const scale = text.startsWith("color(") ? 255 : 1;
        return [...found.slice(0, 3).map((part) => part * scale), found[3] ?? 1];
    };
    const over = (top, under) => [0, 1, 2].map((at) => top[3] * top[at] + (1 - top[3]) * under[at]).concat(1);
    const back = (one) => {
        const layers = [];
        for (let at = one; at; at = at.parentElement) layers.unshift(colour(getComputedStyle(at).backgroundColor));
        return layers.reduce((under, top) => over(top, under), [255, 255, 255, 1]);
    };
    const light = (rgb) => {
        const [r, g, b] = rgb.slice(0, 3).map((part) => part / 255)
            .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const worst = {};
    for (const one of document.querySelectorAll("body *")) {
        const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!own || !one.checkVisibility() || one.closest("svg, script, style, .modebar, option")) continue;
        const under = back(one);
        const [a, b] = [light(over(colour(getComputedStyle(one).color), under)), light(under)];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) worst[`${one.tagName}.${one.className}: ${one.textContent.slice(0, 30)}`] = ratio;
    }
    return worst;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(mixed: Path, open_page: Opener, scheme: str) -> None:
    page = open_page(mixed, color_scheme=scheme)
    page.locator(".row").nth(1).click()
    assert page.evaluate(CONTRAST) == {}


def test_dark_follows_the_system_and_switches(single: Path, open_page: Opener) -> None:
    page = open_page(single, color_scheme="dark")
    drawn(page)
    ground = "() => getComputedStyle(document.body).backgroundColor"
    ink = "() => getComputedStyle(document.querySelector('.xtitle')).fill"
    dark, dark_ink = page.evaluate(ground), page.evaluate(ink)
    button = page.locator("#theme")
    expect(button).to_have_accessible_name("Switch to the light theme")
    button.click()
    assert page.evaluate(ground) != dark
    page.wait_for_function(f"({ink})() !== {json.dumps(dark_ink)}")
    expect(button).to_have_text("Dark")


def test_a_phone_scrolls_down_alone(mixed: Path, open_page: Opener) -> None:
    page = open_page(mixed, viewport={"width": 375, "height": 740}, has_touch=True, is_mobile=True)
    drawn(page)
    assert page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]") == [375, 375]
    wide = """() => [...document.querySelectorAll("main *")].filter((one) => !one.closest(".scroll, pre, svg, .plot")
        && one.checkVisibility() && one.getBoundingClientRect().right > 376)
        .map((one) => one.outerHTML.slice(0, 100))"""
    assert page.evaluate(wide) == []


def test_a_video_plays_and_the_curve_moves_with_it(mixed: Path, open_page: Opener) -> None:
    page = open_page(mixed)
    rollouts = page.locator("#rollouts")
    rollouts.scroll_into_view_if_needed()
    expect(rollouts.locator("video")).to_have_count(2)
    found = rollouts.locator("li", has_text="step 3: open the drawer")
    video, cursor = found.locator("video"), found.locator(".progress .cursor")
    start = float(cursor.get_attribute("x1") or 0)
    video.evaluate("(one) => one.play()")
    page.wait_for_function("() => [...document.querySelectorAll('video')].some((one) => one.currentTime > 0.3)")
    page.wait_for_function(
        "(start) => [...document.querySelectorAll('.cursor')].some((one) => one.getAttribute('x1') > start + 20)",
        arg=start,
    )
    assert video.evaluate("(one) => [one.videoWidth, Math.round(one.duration)]") == [64, 2]
    assert page.wrong == []  # type: ignore[attr-defined]


def test_a_run_that_goes_on_and_one_that_did_not_begin(tmp_path: Path, open_page: Opener) -> None:
    going = research_run(tmp_path / "going", finished=False)
    empty = research_run(tmp_path / "empty", finished=False)
    for name in ("metrics.csv", "trajectories.jsonl", "before.json", "calibration_history.json", "versions.json"):
        (empty / name).unlink()
    os.utime(empty / "config.json", (time.time() - 4000, time.time() - 4000))
    page = open_page(report(tmp_path, going, empty))
    notes = page.locator(".notes")
    expect(notes).to_contain_text("going: still going: step 12 of 12")
    expect(notes).to_contain_text("empty: stopped before its end: no step done yet")
    assert page.wrong == []  # type: ignore[attr-defined]
