"""Take the pictures of a report that the documentation shows: python docs/screenshots.py RUN [RUN ...].

It needs Chromium, Playwright and Pillow, and is run by hand after the page's looks changed.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from wmrl_envs.report import write_report

SHOTS = {
    "desktop": {"width": 1280, "height": 1500, "scheme": "light"},
    "phone": {"width": 375, "height": 812, "scheme": "light"},
    "dark": {"width": 1280, "height": 1500, "scheme": "dark"},
}
COLOURS = 192
"""Of the PNG's palette: a third of the bytes, and no difference to be seen."""


def shoot(runs: list[Path], out: Path, *, whole: bool = False) -> None:
    """Write report-NAME.png of each size.

    Args:
        runs: Run folders.
        out: Folder of the pictures.
        whole: Whether to take the whole page, not its first screen.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = Path(folder) / "report.html"
        write_report(runs, report)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, shot in SHOTS.items():
            size = {"width": shot["width"], "height": shot["height"]}
            page = browser.new_page(viewport=size, color_scheme=shot["scheme"], device_scale_factor=1)
            page.goto(report.as_uri())
            _draw_all(page)
            picture = Image.open(io.BytesIO(page.screenshot(full_page=whole))).convert("RGB")
            picture.quantize(COLOURS).save(out / f"report-{name}.png", optimize=True)
        browser.close()


def _draw_all(page: Page) -> None:
    """Scroll through the page, since figures wait until they come near, and back to its beginning."""
    for _ in range(60):
        page.mouse.wheel(0, 600)
        page.wait_for_timeout(40)
    page.evaluate("window.scrollTo(0, 0)")
    page.wait_for_timeout(600)


if __name__ == "__main__":
    whole = "--whole" in sys.argv
    folders = [Path(name) for name in sys.argv[1:] if not name.startswith("--")]
    shoot(folders, Path("/tmp/shots") if whole else Path("docs/images"), whole=whole)
