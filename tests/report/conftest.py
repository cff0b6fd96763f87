"""A real browser, and a page of it that notes down whatever goes wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = next((path for name in NAMES if (path := shutil.which(name))), playwright.chromium.executable_path)
        if not os.path.exists(found):
            pytest.fail(
                "the report's tests need a real browser, and none of "
                f"{', '.join(NAMES)} is on the PATH: apt-get install chromium, or playwright install chromium"
            )
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield started
        started.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    opened: list[BrowserContext] = []

    def make(**settings: Any) -> BrowserContext:
        opened.append(browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | settings)))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def open_page(context: Callable[..., BrowserContext]) -> Callable[..., Page]:
    """Open a file without network; ``page.wrong`` lists console errors, exceptions and requests beyond the file."""

    def open_file(path: Path | str, **settings: Any) -> Page:
        own = context(**settings)
        if isinstance(path, Path):
            own.set_offline(True)
        page = own.new_page()
        wrong: list[str] = []
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda problem: wrong.append(str(problem)))
        page.on("requestfailed", lambda asked: wrong.append(f"{asked.failure}: {asked.url[:200]}"))
        address = path.as_uri() if isinstance(path, Path) else path
        allowed = ("data:", "blob:", address)
        page.on("request", lambda asked: None if asked.url.startswith(allowed) else wrong.append(asked.url[:200]))
        page.wrong = wrong  # type: ignore[attr-defined]
        page.goto(address)
        return page

    return open_file
