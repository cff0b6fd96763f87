"""Replies token by token, each with random numbers of its own."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from wmrl_envs.world_models.backends._constraint import Constraint, Index
from wmrl_envs.world_models.backends._packing import Tokens
from wmrl_envs.world_models.backends._runner import Rows, Runner

__all__ = ["Sampling", "sample"]


@dataclass(frozen=True)
class Sampling:
    """How replies are drawn."""

    samples: int
    """Replies to each chat."""
    max_tokens: int
    """Longest reply."""
    context: int
    """Longest chat and reply together."""
    ends: frozenset[int]
    """Tokens that end a reply."""
    temperature: float
    """0 takes the most probable token each time."""
    seed: int
    index: Index | None
    """The compiled schema that replies fit."""


def sample(runner: Runner, prompts: Sequence[Tokens], sampling: Sampling) -> list[list[list[int]]]:
    """Return the tokens of the replies to each of some chats, the one that ends a reply included.

    Args:
        runner: Runs the model.
        prompts: The chats up to where the reply begins, each shorter than the context.
        sampling: How replies are drawn.
    """
    copies = sampling.samples
    randoms = list(_streams(prompts, copies, sampling.seed))
    replies: list[list[list[int]]] = [[] for _ in prompts]
    for members, rows in runner.read(prompts, grow=True, copies=copies, room=sampling.max_tokens):
        if copies > 1:
            rows.select(torch.arange(len(members), device=runner.device).repeat_interleave(copies))
        limits = [min(sampling.max_tokens, sampling.context - len(prompts[i])) for i in members for _ in range(copies)]
        flat = _decode(runner, rows, sampling, limits, [random for i in members for random in randoms[i]])
        for place, i in enumerate(members):
            replies[i] = flat[place * copies : (place + 1) * copies]
    return replies


def _streams(prompts: Sequence[Tokens], samples: int, seed: int) -> Iterator[list[np.random.Generator]]:
    """Yield for each prompt a random generator per sample.

    A reply's random numbers depend on the seed, on the prompt and on how many replies to the same prompt came before
    it: not on what else is in the batch, nor on the order in which the batch runs.
    """
    seen: Counter[Tokens] = Counter()
    for prompt in prompts:
        key = zlib.crc32(np.asarray(prompt, dtype=np.int64).tobytes())
        first = seen[prompt] * samples
        seen[prompt] += 1
        yield [np.random.default_rng([seed % 2**64, key, first + i]) for i in range(samples)]


def _decode(
    runner: Runner, rows: Rows, sampling: Sampling, limits: Sequence[int], randoms: Sequence[np.random.Generator]
) -> list[list[int]]:
    """Return each row's reply; rows are used up, and leave the batch when their reply ends."""
    constraint = None if sampling.index is None else Constraint(sampling.index, len(limits))
    replies: list[list[int]] = [[] for _ in limits]
    active = list(range(len(limits)))
    while True:
        logits = rows.logits if constraint is None else constraint.apply(rows.logits)
        uniform = np.array([randoms[i].random() for i in active])
        tokens = _pick(logits, sampling.temperature, uniform)
        for i, token in zip(active, tokens, strict=True):
            replies[i].append(token)
        going = [
            row
            for row, (i, token) in enumerate(zip(active, tokens, strict=True))
            if token not in sampling.ends and len(replies[i]) < limits[i]
        ]
        if not going:
            return replies
        if constraint is not None:
            constraint.advance(tokens)
        if len(going) < len(active):
            rows.select(torch.tensor(going, device=runner.device))
            active = [active[row] for row in going]
            if constraint is not None:
                constraint.select(going)
        runner.extend(rows, torch.tensor([[replies[i][-1]] for i in active], device=runner.device))


def _pick(logits: torch.Tensor, temperature: float, uniform: NDArray[np.float64]) -> list[int]:
    """Return the most probable token of each row, or by inversion the one that a uniform number in [0, 1) falls on."""
    if not temperature:
        greedy: list[int] = logits.argmax(dim=-1).tolist()
        return greedy
    if logits.device.type == "mps":  # has no float64
        logits = logits.cpu()
    logits = logits.double()
    logits = logits - logits.max(dim=-1, keepdim=True).values
    cumulative = (logits / temperature).exp().cumsum(dim=-1)
    drawn = torch.from_numpy(uniform).to(logits.device)[:, None] * cumulative[:, -1:]
    picked: list[int] = torch.searchsorted(cumulative, drawn, right=True).flatten().tolist()
    return [min(token, logits.shape[1] - 1) for token in picked]
