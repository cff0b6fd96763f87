"""The page: one HTML file with everything in it, which is opened without network and loads nothing."""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.resources
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from wmrl_envs.errors import ConfigurationError, MissingExtraError
from wmrl_envs.files import check_file, replacing
from wmrl_envs.report.contents import Limits, contents
from wmrl_envs.report.folder import Run, find_runs, read_runs
from wmrl_envs.report.text import escaped_json

try:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]
except ImportError as error:
    raise MissingExtraError(
        f"a report needs jinja2, plotly and pygments ({error}): pip install 'wmrl-envs[report]'"
    ) from error

__all__ = ["MOST_BYTES", "policy", "render", "report_contents", "write_report"]

MOST_BYTES = 15_000_000
"""Bytes of the file."""
_SCRIPTS = ("dom.js", "plots.js", "figures.js", "code.js", "browser.js", "rollouts.js", "tables.js", "app.js")


def write_report(paths: Sequence[Path], out: Path, *, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Write the report of runs as one HTML file.

    Args:
        paths: Run folders, or folders that hold some.
        out: The file.
        most_bytes: Bytes that the file may have; what tells least is left out first, and the page says so.

    Returns:
        ``runs`` (how many), ``bytes`` and ``left_out``, sentences on what the page leaves out.

    Raises:
        ConfigurationError: If a path is no run folder, the file cannot be written, or nothing fits into the size.
    """
    check_file(out)
    runs = read_runs(find_runs(paths), episodes=Limits.episodes)
    shown, page = report_contents(runs, most_bytes=most_bytes)
    try:
        with replacing(out) as temporary:
            temporary.write_bytes(page)
    except OSError as problem:
        raise ConfigurationError(
            f"{out} cannot be written: {problem.strerror}; name a file in a folder that you may write to, by --out"
        ) from problem
    left_out = [note["text"] for note in shown["notes"] if note["kind"] == "left out"]
    return {"runs": len(runs), "bytes": len(page), "left_out": left_out}


def report_contents(runs: Sequence[Run], *, most_bytes: int = MOST_BYTES) -> tuple[dict[str, Any], bytes]:
    """Return what a page shows and the page itself, with less and less in it until it is small enough.

    Raises:
        ConfigurationError: If the least that can be shown is too large.
    """
    limits = Limits()
    while True:
        shown = contents(runs, limits)
        page = render(shown).encode("utf-8")
        if len(page) <= most_bytes:
            return shown, page
        less = _less(limits, shown)
        if less is None:
            raise ConfigurationError(
                f"the report of {len(runs)} runs takes {len(page) / 1e6:.1f} MB of {most_bytes / 1e6:.1f} MB even "
                "without episodes and videos; name fewer runs"
            )
        limits = less


def _less(limits: Limits, shown: dict[str, Any]) -> Limits | None:
    """Return limits with less of what takes most room for what it tells, or ``None`` where nothing is left to drop."""
    episodes = min(limits.episodes, len(shown["episodes"]))
    # Halving what is there, not what is allowed: limits above it would change nothing.
    if episodes > 150:
        return replace(limits, episodes=2 * episodes // 3)
    if shown["videos"] and limits.video_bytes > 100_000:
        sent = sum(len(video["src"] or "") for video in shown["videos"]) * 3 // 4
        return replace(limits, video_bytes=min(limits.video_bytes, sent) * 2 // 3)
    if episodes:
        return replace(limits, episodes=episodes // 2)
    if shown["videos"]:
        return replace(limits, videos=0)
    if limits.points > 80:
        return replace(limits, points=limits.points // 2)
    return replace(limits, runs=limits.runs // 2) if limits.runs else None


def render(shown: dict[str, Any], *, live: bool = False) -> str:
    """Return the HTML of a page.

    Args:
        shown: What `contents` returned.
        live: Whether the page asks the server that it comes from for what is new.
    """
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return template.from_string(_asset("page.html")).render(
        title=shown["title"],
        policy=policy(live),
        style=Markup(_asset("style.css")),
        script=Markup(_script()),
        plotly=_plotly()[0],
        data=Markup(escaped_json(shown)),
        live=live,
    )


@cache
def policy(live: bool) -> str:
    """Return the Content-Security-Policy: the page's own scripts alone, by their hashes, and no network.

    Plotly sets styles on what it draws, so that these are allowed; nothing that a style could load is.
    """
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in (_script(), _plotly()[1]))
    media, connect = ("data: 'self'", "'self'") if live else ("data:", "'none'")
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"media-src {media}; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


@cache
def _asset(name: str) -> str:
    return importlib.resources.files("wmrl_envs.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    """Return the page's script: its parts in one function, so that none of their names is global."""
    parts = "\n".join(_asset(name) for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


@cache
def _plotly() -> tuple[str, str]:
    """Return Plotly's script twice: packed, as base64 of gzip, and as it is."""
    script = get_plotlyjs()
    packed = gzip.compress(script.encode("utf-8"), compresslevel=9, mtime=0)
    return base64.b64encode(packed).decode("ascii"), script


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
