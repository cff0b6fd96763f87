"""Probabilities over some answers, read from the most probable first tokens of a reply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["choice_probabilities"]

_BEFORE_THE_WORD = " \t\r\n\"'`*Ġ▁Ċ"
"""What may stand before a word without changing the answer; the last three are blanks as some tokenizers write them."""

_TELLING = 3
"""Letters from which the beginning of a word tells the word."""


def choice_probabilities(tokens: Mapping[str, float], choices: Sequence[str]) -> NDArray[np.float64] | None:
    """Return the probabilities of choices, among the choices, from the probabilities of first tokens.

    A choice counts by the longest token listed that begins it, since that is what a model writes it with. One or two
    letters of a longer word are no such token: ``f`` begins ``fair`` too, and nearly always goes on otherwise. They
    count where nothing else does. Spellings (``Fair``, blank ``fair``) are counted together. A token that several
    choices count by (``run`` for ``run on`` and ``run out``) is divided evenly between them. A choice that no token
    begins is less probable than every token listed: it gets the least of them, or its even part of what the list leaves
    over if that is less.

    Args:
        tokens: Text of a token -> its probability as the first one of the reply; the most probable ones, not all.
        choices: k different texts. Blanks and quotes before a choice do not count, and case does not either unless
            choices differ by it alone.

    Returns:
        float64 [k], sums to 1; None if no token begins any choice.
    """
    case_counts = len({choice.casefold() for choice in choices}) < len(choices)
    for telling in (_TELLING, 1):
        counted = [_beginnings(choice, tokens, telling, case_counts=case_counts) for choice in choices]
        sharing = Counter(token for beginnings in counted for token in beginnings)
        shares = np.array([sum(tokens[token] / sharing[token] for token in beginnings) for beginnings in counted])
        if shares.sum() > 0:
            break
    else:
        return None
    missing = np.array([not beginnings for beginnings in counted])
    if missing.any():
        left = max(0.0, 1.0 - sum(tokens.values()))
        shares[missing] = min(min(tokens.values()), left / missing.sum())
    shares /= shares.sum()
    return shares


def _beginnings(choice: str, tokens: Mapping[str, float], telling: int, *, case_counts: bool) -> list[str]:
    """Return the longest token of each spelling that begins a choice, by some letters or as a whole."""
    longest: dict[tuple[str, bool, bool], tuple[int, str]] = {}
    for token in tokens:
        word = token.lstrip(_BEFORE_THE_WORD)
        fits = _may_become(word, choice) if case_counts else _may_become(word.casefold(), choice.casefold())
        if word and fits and len(word) >= min(telling, len(choice)):
            spelling = (token[: len(token) - len(word)], word[0].isupper(), word[1:].isupper())
            longest[spelling] = max(longest.get(spelling, (0, "")), (len(word), token))
    return [token for _, token in longest.values()]


def _may_become(begin: str, choice: str) -> bool:
    if choice.startswith(begin):
        return True
    return begin.startswith(choice) and not begin[len(choice)].isalnum()
