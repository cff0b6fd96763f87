"""Probabilities over some answers, read from the most probable first tokens of a reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["choice_probabilities"]

_BEFORE_THE_WORD = " \t\r\n\"'`*Ġ▁Ċ"
"""What may stand before a word without changing the answer; the last three are blanks as some tokenizers write them."""


def choice_probabilities(tokens: Mapping[str, float], choices: Sequence[str]) -> NDArray[np.float64] | None:
    r"""Return the probabilities of choices, among the choices, from the probabilities of first tokens.

    A token that begins exactly one choice counts for it. One that begins several (``m`` begins ``memory`` and ``mid``)
    is split between them in proportion to what counts for each alone, evenly where nothing does. A choice that no token
    begins is less probable than every token listed: it gets the least of them, or its even part of what the list leaves
    over if that is less.

    Args:
        tokens: Text of a token -> its probability as the first one of the reply; the most probable ones, not all.
        choices: k different texts. Blanks and quotes before a choice do not count, and case does not either unless
            choices differ by it alone.

    Returns:
        float64 [k], sums to 1; None if no token begins any choice.
    """
    shares = np.zeros(len(choices))
    shared: list[tuple[list[int], float]] = []
    for token, probability in tokens.items():
        fitting = _begun_by(token, choices)
        if len(fitting) == 1:
            shares[fitting[0]] += probability
        elif fitting:
            shared.append((fitting, probability))
    own = shares.copy()
    for fitting, probability in shared:
        weights = own[fitting] if own[fitting].sum() > 0 else np.ones(len(fitting))
        shares[fitting] += probability * weights / weights.sum()
    if shares.sum() <= 0:
        return None
    missing = shares == 0
    if missing.any():
        left = max(0.0, 1.0 - sum(tokens.values()))
        shares[missing] = min(min(tokens.values()), left / missing.sum())
    shares /= shares.sum()
    return shares


def _begun_by(token: str, choices: Sequence[str]) -> list[int]:
    """Return the choices that a reply with this first token may be."""
    begin = token.lstrip(_BEFORE_THE_WORD)
    if not begin:
        return []
    exact = [i for i, choice in enumerate(choices) if _may_become(begin, choice)]
    return exact or [i for i, choice in enumerate(choices) if _may_become(begin.casefold(), choice.casefold())]


def _may_become(begin: str, choice: str) -> bool:
    if choice.startswith(begin):
        return True
    beyond = begin[len(choice) :]
    return begin.startswith(choice) and not beyond[0].isalnum()
