"""What a model or a log may say stays text, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from report_pages import drawn, report
from report_runs import episode, outcome, research_run

Opener = Callable[..., Page]

ATTACKS = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 2</script>",
    "<!--<script>",
    "<img src=x onerror='window.hacked = 3'>",
    "<svg onload='window.hacked = 4'>",
    "[a link](javascript:window.hacked=5)",
    "<a href='javascript:window.hacked=6'>b</a>",
    "\u2028window.hacked = 7\u2029",
    "{{ 7 * 7 }} {% raw %} ${window.hacked = 8}",
    "\x1b[31mred\x1b[0m \x1b]8;;http://example.org\x07link\x1b]8;;\x07 \x00\x07\x9b",
    "\ud800 \u202egnp.exe",
    "%{x}<b>bold</b><extra></extra>",
    "'\"><iframe srcdoc='<script>parent.hacked = 9</script>'></iframe>",
]


def hostile_run(folder: Path) -> Path:
    """Write a run in which each text that a model or a log could set is an attack."""
    texts = [*ATTACKS, "A" * 1_000_000, "B\n" * 200_000]
    episodes: list[dict[str, Any]] = []
    for number, text in enumerate(texts):
        found = episode(1 + number, number, anchor=True, task=text[:200])
        for name in ("predicted", "real"):
            found["turns"][0][name] = outcome(text[:300], 0.1, text, error_type=text[:300], error_line=2)
        found["turns"][0] |= {"code": f"x = 1\n{text}", "reply": text}
        episodes.append(found | {"instruction": text, "video": "../../../etc/passwd"})
    research_run(folder, episodes=episodes, task=ATTACKS[0] + ATTACKS[3])
    versions = {text: text for text in ATTACKS[:6]}
    (folder / "versions.json").write_text(json.dumps(versions), encoding="utf-8")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary["best_solutions"] = [{"task": text, "status": text, "file": "best_solution.py"} for text in ATTACKS]
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    (folder / "best_solution.py").write_bytes("\n".join(ATTACKS).encode("utf-8", "surrogatepass"))
    return folder


def test_hostile_text_stays_text(tmp_path: Path, open_page: Opener) -> None:
    name = "<img src=x onerror=window.hacked=10>"
    other = "a<b>bold</b> [x](javascript:1)"
    path = report(tmp_path, hostile_run(tmp_path / name), research_run(tmp_path / other, warmup=60))
    page = open_page(path)
    drawn(page)
    for row in range(page.locator(".row").count()):
        page.locator(".row").nth(row).click()
        for details in page.locator(".detail details").all():
            details.locator("summary").click()
    for summary in page.locator("main summary").all():
        summary.click()
    assert page.evaluate("() => window.hacked") is None
    assert (
        page.evaluate(
            "() => document.querySelectorAll('main script, main img, main iframe, main a[href^=java]').length"
        )
        == 0
    )
    assert page.evaluate("() => document.querySelectorAll('main .plot a').length") == 0
    browser = page.locator("#trajectories")
    browser.get_by_label("Text").fill("<script>window.hacked = 1")
    expect(browser.locator(".outcome.real pre")).to_have_text(ATTACKS[0])
    expect(browser.locator("pre.code")).to_contain_text(ATTACKS[0])
    browser.get_by_label("Text").fill("more characters of this line")
    expect(browser.locator(".outcome.real pre")).to_contain_text("left out")
    browser.get_by_label("Text").fill("red link")
    expect(browser.locator(".outcome.real pre")).to_have_text("red link ␀␇⟨U+009B⟩")
    assert path.stat().st_size < 4_000_000
    assert page.wrong == []  # type: ignore[attr-defined]


INJECTIONS = """() => {
    const script = document.createElement("script");
    script.textContent = "window.hacked = 1";
    const box = document.createElement("div");
    box.innerHTML = "<img src=x onerror='window.hacked = 2'>";
    document.body.append(script, box);
}"""


def test_the_policy_forbids_what_the_page_does_not_hold(tmp_path: Path, open_page: Opener) -> None:
    page = open_page(report(tmp_path, research_run(tmp_path / "run")))
    page.evaluate(INJECTIONS)
    page.wait_for_timeout(200)
    assert page.evaluate("() => window.hacked") is None
    assert page.evaluate("() => fetch('https://example.org').then(() => 'sent', () => 'refused')") == "refused"
