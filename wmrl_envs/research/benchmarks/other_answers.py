"""Other answers than those of a competition, to find out which words on a submission tell of the answers.

A benchmark's code says in an exception why it cannot score a submission, and may quote anything in it. It is asked
again with other answers: what it says then as well tells nothing of the right ones.

This module imports nothing of the package: the program that grades loads it by path.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["other_answers", "told"]

MOST_WORDS = 300
"""Longest reason, in characters."""


def other_answers(answers: Any, identifier: str | None) -> list[Any]:
    """Return two other sets of answers: each value is the least one of its column, or the greatest, or that next to it.

    None is what it was, so words of an error that are the same on both quote no answer, nor compare one with anything.

    Args:
        answers: A table, or the objects of JSON lines.
        identifier: The column of ids; they stay if each is there once, being those of the test set.
    """
    return [_with_ends(answers, identifier, end) for end in (0, -1)]


def told(error: BaseException) -> tuple[str, str]:
    """Return what a benchmark's code did to a submission, and in which words."""
    names = [kind.__name__ for kind in type(error).__mro__]
    verb = "rejected it" if "InvalidSubmissionError" in names else f"raised {names[0]} on it"
    try:
        said = "" if isinstance(error, OSError) else " ".join(str(error).split())  # those name paths of this machine
    except Exception:
        said = ""
    return verb, said if len(said) <= MOST_WORDS else said[:MOST_WORDS] + "..."


def _with_ends(answers: Any, identifier: str | None, end: int) -> Any:
    if isinstance(answers, list):
        return _lines_with_ends(answers, identifier, end)
    import pandas as pd

    changed = answers.copy()
    for name in answers.columns:
        codes, values = pd.factorize(answers[name], sort=True)
        if len(values) and not (name == identifier and answers[name].is_unique):
            most, next_to_it = _two(list(values), end)
            place = range(len(values))[end]
            changed[name] = [next_to_it if code == place else most for code in codes]
    return changed


def _lines_with_ends(rows: list[Any], identifier: str | None, end: int) -> list[Any]:
    if not all(isinstance(row, dict) for row in rows):
        return [row[""] for row in _lines_with_ends([{"": row} for row in rows], None, end)]
    changed = [dict(row) for row in rows]
    for name in {name for row in rows for name in row}:
        values = [row[name] for row in rows if name in row]
        try:
            distinct = sorted(set(values))
        except TypeError:  # lists, or texts beside numbers
            distinct = [json.loads(text) for text in sorted({json.dumps(value) for value in values})]
        if not (name == identifier and len(distinct) == len(rows)):
            most, next_to_it = _two(distinct, end)
            for row in changed:
                if name in row:
                    row[name] = next_to_it if row[name] == most else most
    return changed


def _two(values: list[Any], end: int) -> tuple[Any, Any]:
    """Return the value at an end of sorted ones, and the one before it."""
    most = values[end]
    return most, (values[1 if end == 0 else -2] if len(values) > 1 else _another(most))


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    try:
        return value + 1
    except TypeError:
        return f"not {value}"
