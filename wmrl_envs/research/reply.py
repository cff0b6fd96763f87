"""The code in an agent's reply.

Fences are read as in CommonMark, with what language models really write allowed besides: any indentation, a Python
fence that opens at the end of a sentence, and a fence that is never closed. Which code counts, in this order:

1. the last Python fence that is not blank (an answer comes after its drafts);
2. the last fence without a language that compiles, or else the last one that is not blank;
3. the whole reply, where it has no fence at all, compiles, and does something (a lone word compiles as well).

Fences of other languages (a shell command, some output) are never code.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass

from wmrl_envs.research.grading import MAX_CODE_CHARS

__all__ = ["extract_code"]

# Anchored, without nested repeats, and applied line by line: linear in the length of the reply.
_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})(?P<info>.*)", re.DOTALL)
_PYTHON = re.compile(r"\s*\{?\s*\.?(?:i?python|py)[0-9.]*(?![\w+-])", re.IGNORECASE)
_MARKDOWN = re.compile(r"\s*(?:markdown|md)\s*", re.IGNORECASE)

_LONGEST_INFO = 100
"""Longest text after a fence, in characters, that is still looked at as a language."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A fenced block: the text after the opening fence, its indentation, and the lines up to the closing one."""

    info: str
    indent: int
    lines: list[str]

    @property
    def text(self) -> str:
        """The lines, less the fence's indentation where the code shares it (its first line tells)."""
        first = next((line for line in self.lines if line.strip()), "")
        width = min(self.indent, _leading(first))
        return "\n".join(line[min(width, _leading(line)) :] for line in self.lines)


def _leading(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def extract_code(reply: str) -> str | None:
    """Return the code of a reply, or None where it holds none.

    Args:
        reply: The whole reply; any line ends.

    Returns:
        The lines between the fences, joined by line feeds, without a final one.
    """
    lines = reply.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    blocks = _blocks(lines)
    if not blocks:
        text = "\n".join(lines)
        return text.strip("\n") if _does_something(text) else None
    # Some models wrap the whole reply in one Markdown fence: look inside, once.
    blocks = [inner for block in blocks for inner in (_inside(block) or [block])]
    written = [block for block in blocks if any(line.strip() for line in block.lines)]
    python = [block for block in written if _PYTHON.match(block.info)]
    if python:
        return python[-1].text
    bare = [block for block in written if not block.info.strip()]
    for block in reversed(bare):
        if _compiled(block.text) is not None:
            return block.text
    return bare[-1].text if bare else None


def _inside(block: _Block) -> list[_Block]:
    return _blocks(block.lines) if _MARKDOWN.fullmatch(block.info) else []


def _blocks(lines: list[str]) -> list[_Block]:
    blocks: list[_Block] = []
    fence = ""  # the open block's fence, or empty between blocks
    for line in lines:
        match = _FENCE.match(line)
        if match and _closes(match, fence):
            fence = ""
        elif match and _opens(match, fence):
            fence = match["fence"]
            blocks.append(_Block(match["info"], len(match["indent"]), []))
        elif fence:
            blocks[-1].lines.append(line)
        elif (info := _late_opening(line)) is not None:
            fence = "```"
            blocks.append(_Block(info, 0, []))
    return blocks


def _closes(match: re.Match[str], fence: str) -> bool:
    return bool(fence) and match["fence"].startswith(fence) and not match["info"].strip()


def _opens(match: re.Match[str], fence: str) -> bool:
    if fence:
        # A fence that names Python cannot close a block: the block before it was left open.
        return match["fence"].startswith(fence) and _PYTHON.match(match["info"]) is not None
    # As in CommonMark: backticks after backticks are code within a sentence.
    return match["fence"][0] == "~" or "`" not in match["info"]


def _late_opening(line: str) -> str | None:
    """Return the language of a Python fence that opens at the end of a line of prose, or None."""
    _, mark, info = line.rpartition("```")
    return info if mark and len(info) <= _LONGEST_INFO and _PYTHON.fullmatch(info.rstrip()) else None


def _compiled(text: str) -> ast.Module | None:
    """Return the syntax tree of a text that compiles, or None."""
    if len(text) > MAX_CODE_CHARS or "\0" in text:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
            compile(tree, "reply.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return None
    return tree


def _does_something(text: str) -> bool:
    tree = _compiled(text)
    if tree is None:
        return False
    # Names, constants and operators alone are words, numbers and punctuation; a call or any other statement is code.
    return any(
        not isinstance(statement, ast.Expr) or any(isinstance(node, ast.Call) for node in ast.walk(statement))
        for statement in tree.body
    )
