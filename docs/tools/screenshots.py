"""Take the pictures of a report that the documentation shows: python docs/tools/screenshots.py RUN [RUN ...].

It needs Chromium, Playwright and Pillow, and is run by hand after the page's looks changed. The picture for large
screens shows all runs, the others the first one alone; ``--whole`` takes whole pages, to look at.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from wmrl_envs.report import write_report

COLOURS = 256
"""Of the PNG's palette: a third of the bytes, and no difference to be seen."""


def main(runs: list[Path], out: Path, *, whole: bool) -> None:
    """Write report-NAME.png of each kind.

    Args:
        runs: Run folders.
        out: Folder of the pictures.
        whole: Whether to take the whole page, not its first screen.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        several, single = (Path(folder) / f"{name}.html" for name in ("several", "single"))
        write_report(runs, several)
        write_report(runs[:1], single)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = opened(browser, several, 1280, 1420)
        save(page.screenshot(full_page=whole), out / "report-desktop.png")
        page = opened(browser, single, 1280, 1420, scheme="dark")
        save(page.screenshot(full_page=whole), out / "report-dark.png")
        save(shown(page, page.locator("#trajectories")), out / "report-trajectories.png")
        page = opened(browser, single, 375, 780, scale=2)
        save(page.screenshot(full_page=whole), out / "report-phone.png")
        browser.close()


def opened(browser: Browser, path: Path, width: int, height: int, *, scheme: str = "light", scale: int = 1) -> Page:
    """Return a page scrolled through once, since figures wait until they come near, and back at its beginning."""
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        device_scale_factor=scale,
    )
    page.goto(path.as_uri())
    for _ in range(40):
        page.mouse.wheel(0, 600)
        page.wait_for_timeout(40)
    page.evaluate("window.scrollTo({ top: 0, behavior: 'instant' })")
    page.wait_for_timeout(600)
    return page


def shown(page: Page, part: Locator) -> bytes:
    """Return the picture of a part of a page, the bar above it left out."""
    page.add_style_tag(content=".top { position: static !important; }")
    return part.screenshot()


def save(picture: bytes, path: Path) -> None:
    """Write a PNG with few colours."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    whole = "--whole" in sys.argv
    folders = [Path(name) for name in sys.argv[1:] if not name.startswith("--")]
    main(folders, Path("build/report") if whole else Path(__file__).parents[1] / "images", whole=whole)
