"""The code blocks of the documentation: finding them, and running a page's from top to bottom.

Every ``python`` block runs, those of one page in order and in one namespace. A ``sh`` block is read only, unless
``<!-- run -->`` stands above it. A comment ``<!-- not run: REASON -->`` above a python block excuses it. Run as a
program, this file runs the blocks that its standard input holds.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["PAGES", "ROOT", "Block", "blocks", "command_lines", "inline_commands", "run_page"]

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted((ROOT / "docs").rglob("*.md"))]
"""Every page with blocks that have to work."""
_BLOCK = re.compile(
    r"^(?P<indent> *)(?:<!-- (?P<mark>run|not run: [^>]+) -->\n+ *)?(?P<fence>```+)(?P<language>\w*)[^\n]*\n"
    r"(?P<text>.*?)^ *(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
_SHELL = ("sh", "bash", "console")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str
    """The page's path."""
    line: int
    """Line of the page on which its text begins."""
    language: str
    text: str
    mark: str
    """``run``, ``not run: REASON``, or nothing."""

    @property
    def runs(self) -> bool:
        """Whether the block is run, and not only read."""
        return not self.mark if self.language == "python" else self.language in _SHELL and self.mark == "run"


def blocks(page: Path) -> list[Block]:
    """Return a page's fenced blocks in order."""
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        indent = len(match["indent"])
        body = "".join(line[indent:] if line.strip() else line for line in match["text"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start("text")) + 1
        found.append(Block(str(page), line, match["language"], body, match["mark"] or ""))
    return found


def command_lines(block: Block) -> Iterator[list[str]]:
    """Yield the commands of a shell block, each as its words; what a comment says is none of them."""
    if block.language not in _SHELL:
        return
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        while words:
            end = next((index for index, word in enumerate(words) if word in ("&&", "|", "&", ">")), len(words))
            yield words[:end]
            words = words[end + 1 :]


def inline_commands(page: Path) -> list[list[str]]:
    """Return the commands that stand within a page's sentences and tables, each as its words."""
    prose = _BLOCK.sub("", page.read_text())
    found = re.findall(r"(?<!`)`((?:wmrl|make|python (?:benchmarks|examples)/)\b[^`]*)`", prose)
    return [shlex.split(command.replace("\\|", "|"), comments=True) for command in found]


def run_page(page: Path, folder: Path, stand_ins: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a page's blocks as a user would who follows it in an empty folder.

    Args:
        page: The page.
        folder: An empty folder.
        stand_ins: Texts to replace, such as the name of a large model by a small one's; each must occur.
    """
    wanted = [asdict(block) for block in blocks(page) if block.runs]
    for old, new in stand_ins.items():
        assert any(old in block["text"] for block in wanted), f"{page.name} no longer says {old!r}"
        wanted = [{**block, "text": block["text"].replace(old, new)} for block in wanted]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(folder / ".cache"),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
    }
    return subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(wanted),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _run(wanted: Iterable[Mapping[str, Any]]) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    sys.path[0] = ""  # modules are looked for where the page is followed, as in a session of Python
    for block in wanted:
        if block["language"] == "python":
            padding = "\n" * (block["line"] - 1)  # so that an error names the page's line
            exec(compile(padding + block["text"], block["page"], "exec"), namespace)
        else:
            subprocess.run(["bash", "-euo", "pipefail", "-c", block["text"]], check=True)


if __name__ == "__main__":
    _run(json.load(sys.stdin))
