"""Reports of run folders, and figures that were really drawn."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from wmrl_envs.report import write_report


def report(folder: Path, *runs: Path) -> Path:
    path = folder / "report.html"
    write_report(list(runs), path)
    return path


def drawn(page: Page) -> list[str]:
    """Scroll through the page and return the figures that Plotly drew something in."""
    for figure in page.locator("figure.figure").all():
        figure.scroll_into_view_if_needed()
        expect(figure.locator(".main-svg").first).to_be_attached()
    script = """() => [...document.querySelectorAll("figure.figure")]
        .filter((one) => one.querySelector(".plot .trace, .plot .bars path, .plot .scatterlayer path"))
        .map((one) => one.dataset.figure)"""
    return list(page.evaluate(script))
