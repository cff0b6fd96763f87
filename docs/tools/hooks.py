"""What the site is built from besides the pages in docs/, and how links between all of them are followed.

- Pages made from other files of the repository: changelog, how to contribute, benchmark scripts, examples.
- The command line's reference, read from the commands themselves.
- The three folders that are installed under ``wmrl_envs``, linked to where the API reference looks for them.

A link to a file of the repository, as GitHub follows it, leads to that file's page on the site.
"""

from __future__ import annotations

import html
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
NAMED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmark_scripts.md",
    "examples/README.md": "examples.md",
}
"""Files of the repository and the pages that they become; whatever else is linked to becomes one under files/."""
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)(#[^)\s]*)?(?=[)\s])")
_FENCED = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)
_DIAGRAM = re.compile(r'<img alt="([^"]*)" src="(?:\.\./)*(images/[^"]+\.svg)"[^>]*>')


def on_startup(**kwargs: Any) -> None:
    """Link every package folder under the name that it is imported by, before the reference's plugin looks for it."""
    package = ROOT / "build/api/wmrl_envs"
    package.mkdir(parents=True, exist_ok=True)
    folders = [ROOT / name for name in ("wrappers", "agents", "robotics")]
    wanted = {path.name: path for path in (*(ROOT / "wmrl_envs").iterdir(), *folders) if path.name != "__pycache__"}
    for old in package.iterdir():
        if old.name not in wanted or old.resolve() != wanted[old.name]:
            old.unlink()
    for name, path in wanted.items():
        if not (package / name).exists():
            (package / name).symlink_to(path)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from files outside docs/."""
    _pages.cache_clear()  # `mkdocs serve` builds several times
    for source, place in _pages().items():
        files.append(File.generated(config, place, content=_content(source)))
    files.append(File.generated(config, "command_line.md", content=_command_line()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages."""
    pages = _pages()
    here = page.file.src_uri
    source = next((name for name, place in pages.items() if place == here), f"docs/{here}")

    def follow(match: re.Match[str]) -> str:
        target = _target(source, match[1])
        place = pages.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if place is None:
            return match[0]  # the build says that there is no such page
        return posixpath.relpath(place, posixpath.dirname(here) or ".") + (match[2] or "")

    return "".join(part if fenced else _LINK.sub(follow, part) for fenced, part in _parts(markdown))


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put diagrams into the page itself, so that they follow its colours and their words can be read and found."""

    def inline(match: re.Match[str]) -> str:
        return (ROOT / "docs" / match[2]).read_text()

    return _DIAGRAM.sub(inline, content)


@cache
def _pages() -> dict[str, str]:
    """Return the place on the site of every file outside docs/ that has one: what is linked to, and the examples."""
    pages = dict(NAMED)
    waiting = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    waiting += [*NAMED, *(path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.py"))]
    while waiting:
        source = waiting.pop()
        if not source.startswith("docs/") and source not in pages:
            pages[source] = f"files/{source}" + ("" if source.endswith(".md") else ".md")
        if source.endswith(".md"):
            links = (_target(source, match[1]) for match in _LINK.finditer(_prose((ROOT / source).read_text())))
            waiting += [link for link in links if not link.startswith("docs/") and link not in pages and _text(link)]
    return pages


def _target(source: str, link: str) -> str:
    """Return the path in the repository that a link of a file leads to; a folder's is its README.md."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    return f"{target}/README.md" if (ROOT / target).is_dir() else target


def _text(source: str) -> bool:
    path = ROOT / source
    return path.is_file() and path.suffix not in (".png", ".svg", ".gz", ".npz") and not source.startswith("..")


def _content(source: str) -> str:
    text = (ROOT / source).read_text()
    if source.endswith(".md"):
        return text
    language = {".py": "python", ".cff": "yaml", "": "text"}.get(Path(source).suffix, Path(source).suffix[1:])
    return f"# {source}\n\n````{language}\n{text.rstrip()}\n````\n"


def _command_line() -> str:
    """Return the reference of the command ``wmrl``, as Typer writes it from the commands themselves."""
    written = [sys.executable, "-m", "typer", "wmrl_envs.cli", "utils", "docs", "--name", "wmrl"]
    text = html.unescape(subprocess.run(written, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
    text = re.sub(r"^\* `--help`: .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\*\*Options\*\*:\n\n(?!\*)", "", text, flags=re.MULTILINE)  # there was none but --help
    return text.replace("# `wmrl`", "# Command line", 1)


def _prose(markdown: str) -> str:
    return "".join(part for fenced, part in _parts(markdown) if not fenced)


def _parts(markdown: str) -> Iterator[tuple[bool, str]]:
    """Yield the text's parts in order, each with whether it is a fenced block."""
    end = 0
    for block in _FENCED.finditer(markdown):
        yield False, markdown[end : block.start()]
        yield True, block[0]
        end = block.end()
    yield False, markdown[end:]
