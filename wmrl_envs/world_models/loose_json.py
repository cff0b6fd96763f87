"""The objects in a text that should have been JSON.

Strict JSON is read by the standard library. What it refuses is read token by token, in one pass and without recursion:
single quotes, keys without quotes, trailing commas, raw line ends, quotes within strings, and objects that end early.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["FoundObject", "loose_objects", "objects"]

_DECODER = json.JSONDecoder(strict=False)
_CANDIDATE = re.compile(r"\{(?=\s{0,1000}[\"'\w}])")
_TOKEN = re.compile(
    r"""(?P<space>\s++)
    |(?P<mark>[{}\[\],:])
    |"(?P<double>(?:[^"\\]|\\.)*+)"?
    |(?P<bare>[^\s{}\[\],:"]++)""",
    re.VERBOSE | re.DOTALL,
)
_SINGLE = re.compile(r"'((?:[^'\\]|\\.)*+)'?", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_WORDS: dict[str, Any] = {"null": None, "none": None, "true": True, "false": False, "nan": None, "infinity": None}
_DEPTH = 32
"""Objects within objects that are kept apart; outer ones beyond are forgotten."""
_WORK = 8
"""Times the length of a text that strict reading may look at its characters."""


class FoundObject(NamedTuple):
    """One object found in a text."""

    fields: dict[str, Any]
    start: int
    end: int
    closed: bool
    """False where the text ended before the object did."""


def objects(text: str) -> list[FoundObject]:
    """Return the objects in a text that are JSON, and those after the last of them that should have been.

    In the order in which they end: an object comes after those directly within it. Never raises, and takes time in
    proportion to the text.
    """
    found = list(_strict(text))
    end = found[-1].end if found else 0
    after = [item._replace(start=item.start + end, end=item.end + end) for item in loose_objects(text[end:])]
    return found + after


def _strict(text: str) -> Iterator[FoundObject]:
    work = _WORK * len(text) + 10_000
    match = _CANDIDATE.search(text)
    while match and work > 0:
        start = match.start()
        try:
            value, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            work -= error.pos - start + 50
            end = start + 1
        except (ValueError, RecursionError):  # a number of thousands of digits; objects in objects without end
            work -= 10_000
            end = start + 1
        else:
            yield from _within(value, start, end)
        match = _CANDIDATE.search(text, end)


def _within(value: dict[str, Any], start: int, end: int) -> Iterator[FoundObject]:
    """Yield an object, after those directly within it: an answer may be wrapped."""
    for inner in value.values():
        if isinstance(inner, dict):
            yield FoundObject(inner, start, end, True)
    yield FoundObject(value, start, end, True)


class _Open:
    """An object that is being read."""

    __slots__ = ("fields", "key", "start", "value")

    def __init__(self, start: int) -> None:
        self.fields: dict[str, Any] = {}
        self.start = start
        self.key: str | None = None
        self.value = False
        """Whether the value of the key comes next."""

    def take(self, token: Any) -> None:
        """Read a string, number or word: a key, or the value of one; what follows a value until the comma is lost."""
        if self.value and self.key is not None:
            self.fields[self.key] = token
            self.key, self.value = None, False
        elif isinstance(token, str) and self.key is None:
            self.key = token

    def mark(self, mark: str) -> None:
        if mark == ":":
            self.value = self.key is not None
        elif mark == ",":
            self.key, self.value = None, False


def loose_objects(text: str) -> list[FoundObject]:
    """Return the objects in a text that should have been JSON; those that the text leaves unfinished come last.

    An object comes after those within it, an unfinished one before. Never raises, and takes time in proportion to the
    text.
    """
    found: list[FoundObject] = []
    stack: list[_Open] = []
    match = _CANDIDATE.search(text)
    place = match.start() if match else len(text)
    structural = True
    while place < len(text):
        # An apostrophe opens a string only where a value or key may begin: prose has them as well.
        single = _SINGLE.match(text, place) if structural else None
        token = single or _TOKEN.match(text, place)
        if token is None:
            break
        end = token.end()
        kind = "single" if single else token.lastgroup
        if kind == "mark":
            _punctuate(token[0], place, end, stack, found)
            structural = True
        elif kind != "space":
            if stack:
                stack[-1].take(
                    _word(token[0]) if kind == "bare" else _unescaped(token[1] if single else token["double"])
                )
            structural = False
        place = end
        if not stack:  # between objects: prose
            match = _CANDIDATE.search(text, place)
            place = match.start() if match else len(text)
    found += [FoundObject(item.fields, item.start, len(text), False) for item in stack]
    return found


def _punctuate(mark: str, place: int, end: int, stack: list[_Open], found: list[FoundObject]) -> None:
    if mark == "{":
        if stack:  # the value is an object, whatever that holds
            stack[-1].key, stack[-1].value = None, False
        if len(stack) == _DEPTH:
            del stack[0]
        stack.append(_Open(place))
    elif mark == "}" and stack:
        item = stack.pop()
        found.append(FoundObject(item.fields, item.start, end, True))
    elif stack:
        stack[-1].mark(mark)


def _word(word: str) -> Any:
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    try:
        return int(word) if word.isdecimal() and len(word) < 20 else float(word)
    except ValueError:
        return word


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(character, text)
