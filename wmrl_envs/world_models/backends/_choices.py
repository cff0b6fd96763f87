"""Probabilities of some answers to chats, from the probabilities of their tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.world_models.backends._packing import Tokens
from wmrl_envs.world_models.backends._runner import Rows, Runner

__all__ = ["Choices", "score"]


class Choices:
    """Some different answers as tokens, and what has to be asked of the model to compare them.

    The probability of an answer is the product of its tokens' probabilities. Where an answer's tokens begin another
    one, the shorter one keeps what is left: the probability that the reply begins with it and does not go on to be the
    longer one.

    Args:
        words: The answers.
        encode: Their tokens.

    Raises:
        ConfigurationError: If there are none, or one is empty or there twice.
    """

    def __init__(self, words: Sequence[str], encode: Callable[[str], Tokens]) -> None:
        self.tokens = [encode(word) for word in words]
        if not words or not all(self.tokens) or len(set(self.tokens)) < len(self.tokens):
            raise ConfigurationError(f"choices are different texts that are not empty; got {list(words)}")
        self.contexts: list[Tokens] = sorted({choice[:i] for choice in self.tokens for i in range(1, len(choice))})
        """What the model must read after the chat, one after the other, to be asked for all further tokens."""

    @property
    def longest(self) -> int:
        """Tokens of the longest context."""
        return max((len(context) for context in self.contexts), default=0)

    def next_tokens(self, context: Tokens) -> list[int]:
        """Return the tokens whose probabilities after a context are needed."""
        n = len(context)
        return sorted({choice[n] for choice in self.tokens if len(choice) > n and choice[:n] == context})

    def probabilities(self, log_probability: dict[tuple[Tokens, int], float]) -> NDArray[np.float64] | None:
        """Return the normalised probabilities of the answers.

        Args:
            log_probability: For each context (the empty one included) and next token its log-probability.

        Returns:
            float64 [answers] that sums to 1, or None where the model's numbers are not finite.
        """
        logs = np.array([self._log(choice, log_probability) for choice in self.tokens])
        if np.isnan(logs).any() or not np.isfinite(logs.max()):
            return None
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum(), dtype=np.float64)

    def _log(self, choice: Tokens, log_probability: dict[tuple[Tokens, int], float]) -> float:
        total = self._product(choice, log_probability)
        longer = [self._product(other, log_probability) for other in self.tokens if self._next_longer(choice, other)]
        left = 1.0 - sum(np.exp(log - total) for log in longer)
        return total + float(np.log(left)) if left > 0 else -np.inf

    def _product(self, choice: Tokens, log_probability: dict[tuple[Tokens, int], float]) -> float:
        return sum(log_probability[choice[:i], choice[i]] for i in range(len(choice)))

    def _next_longer(self, choice: Tokens, other: Tokens) -> bool:
        """Whether other begins with choice, and with no third one in between."""
        if len(other) <= len(choice) or other[: len(choice)] != choice:
            return False
        return not any(other[:i] in self.tokens for i in range(len(choice) + 1, len(other)))


def score(runner: Runner, prompts: Sequence[Tokens], choices: Choices) -> list[NDArray[np.float64] | None]:
    """Return the probabilities of some answers to each of some chats.

    Args:
        runner: Runs the model.
        prompts: The chats up to where the reply begins.
        choices: The answers.

    Returns:
        For each chat float64 [answers] that sums to 1, or None where the model's numbers are not finite.
    """
    answers: list[NDArray[np.float64] | None] = [None] * len(prompts)
    for members, rows in runner.read(prompts, grow=bool(choices.contexts)):
        for i, logs in zip(members, _log_probabilities(runner, rows, choices), strict=True):
            answers[i] = choices.probabilities(logs)
    return answers


def _log_probabilities(runner: Runner, rows: Rows, choices: Choices) -> list[dict[tuple[Tokens, int], float]]:
    """Return for each row the log-probabilities of all tokens that the answers are made of."""
    known: list[dict[tuple[Tokens, int], float]] = [{} for _ in rows.logits]
    for context in ((), *choices.contexts):
        further = rows
        if context:
            further = rows.copy()
            runner.extend(further, torch.tensor([context] * len(known), device=runner.device))
        logits = further.logits.cpu() if runner.device.type == "mps" else further.logits  # which has no float64
        tokens = choices.next_tokens(context)
        values = torch.log_softmax(logits.double(), dim=-1)[:, tokens].tolist()
        for row, logs in zip(known, values, strict=True):
            row.update({(context, token): log for token, log in zip(tokens, logs, strict=True)})
    return known
