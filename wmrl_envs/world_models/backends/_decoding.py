"""Replies token by token, each with random numbers of its own."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from wmrl_envs.world_models.backends._constraint import Constraint
from wmrl_envs.world_models.backends._packing import Tokens
from wmrl_envs.world_models.backends._runner import Rows, Runner

__all__ = ["decode", "streams"]


def streams(prompts: Sequence[Tokens], samples: int, seed: int) -> Iterator[list[np.random.Generator]]:
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


def decode(
    runner: Runner,
    rows: Rows,
    *,
    limits: Sequence[int],
    ends: Collection[int],
    temperature: float,
    randoms: Sequence[np.random.Generator],
    constraint: Constraint | None,
) -> list[list[int]]:
    """Return each row's reply, the token that ends it included.

    Args:
        runner: Runs the model.
        rows: The chats, read up to where the reply begins; used up.
        limits: Longest reply of each row, in tokens, at least 1.
        ends: Tokens that end a reply.
        temperature: 0 takes the most probable token each time.
        randoms: One random generator per row.
        constraint: Which tokens may come next, if not all of them.
    """
    replies: list[list[int]] = [[] for _ in limits]
    active = list(range(len(limits)))
    while active:
        logits = rows.logits if constraint is None else constraint.apply(rows.logits)
        uniform = np.array([randoms[i].random() for i in active]) if temperature else None
        tokens = _pick(logits, temperature, uniform)
        for i, token in zip(active, tokens, strict=True):
            replies[i].append(token)
        if constraint is not None:
            constraint.advance(tokens)
        going = [row for row, i in enumerate(active) if replies[i][-1] not in ends and len(replies[i]) < limits[i]]
        if not going:
            break
        if len(going) < len(active):
            rows.select(torch.tensor(going, device=rows.mask.device))
            active = [active[row] for row in going]
            if constraint is not None:
                constraint.select(going)
        runner.extend(rows, torch.tensor([[replies[i][-1]] for i in active], device=rows.mask.device))
    return replies


def _pick(logits: torch.Tensor, temperature: float, uniform: NDArray[np.float64] | None) -> list[int]:
    """Return the most probable token of each row, or by inversion the one that a uniform number in [0, 1) falls on."""
    if uniform is None:
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
