"""Text of models and logs, made safe to show: no control sequences, no endless lines, no way out of a script tag."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["clean_text", "escaped_json", "for_plotly", "short_text"]

MOST_LINE, MOST_TEXT = 2_000, 12_000
"""Characters kept of one line and of one text."""

_ANSI = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, cursor
    r"|\x9b[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)"  # titles and links, only where they end: the rest is no text to lose
    r"|\x1b[@-OQ-WYZ\\]"
)
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_SCRIPT = re.compile("[<>&\u2028\u2029]")


def clean_text(text: str, most: int = MOST_TEXT) -> str:
    """Return a text as a reader may see it.

    Colours of terminals are dropped; other control characters, and those that turn the direction of writing, are shown
    by a symbol or their number, so that nothing hides. Long lines and texts are cut, with a note of what was left out.

    Args:
        text: Anything, lone surrogates included.
        most: Characters to keep; the first two thirds and the last third of them where there are more.
    """
    # What is cut away need not be cleaned: a log of gigabytes costs no more than its ends.
    text = _cut(text, 4 * most)
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    text = _SURROGATES.sub("\ufffd", _UNSEEN.sub(_symbol, text))
    return _cut("\n".join(_cut_line(line) for line in text.split("\n")), most)


def short_text(value: object, most: int = 120) -> str:
    """Return one line for a name, a setting or a label."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = " ".join(clean_text(text, 4 * most).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def for_plotly(text: str) -> str:
    """Return a text for Plotly's labels, which read a few tags of HTML, links among them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def escaped_json(value: Any) -> str:
    """Return JSON that cannot end the script tag it stands in, nor begin a comment there.

    Raises:
        ValueError: If a number is NaN or infinite, which JSON has not.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _SCRIPT.sub(lambda found: _ESCAPES[found[0]], text)


def _symbol(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x20:
        return chr(0x2400 + number)
    return "␡" if number == 0x7F else f"⟨U+{number:04X}⟩"


def _cut_line(line: str) -> str:
    if len(line) <= MOST_LINE:
        return line
    return f"{line[:MOST_LINE]} … [{len(line) - MOST_LINE:,} more characters of this line left out]"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head, tail = text[: 2 * most // 3], text[-(most // 3) :]
    return f"{head}\n… [{len(text) - len(head) - len(tail):,} characters left out] …\n{tail}"
