"""Episodes of language-model agents, played side by side over all their turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wmrl_envs.agents._chat import ChatTokens

__all__ = ["Budget", "Rollout", "Sample", "Stage", "play"]

MIN_REPLY_TOKENS = 16
"""A reply that could not be longer than this is not asked for: no program is as short."""

Sample = Callable[[Sequence[Sequence[int]], int], tuple[list[list[int]], list[list[float]] | None]]
"""Samples one reply to each chat: (chats, longest reply) -> the replies' tokens, and their log-probabilities."""


class Stage(Protocol):
    """Where the episodes of this process take place."""

    turns: int

    def begin(self) -> list[str]:
        """Begin the episodes; return the task that each one's agent reads."""
        ...

    def step(self, replies: list[str]) -> list[str]:
        """Take a turn in every episode; return what each one's terminal shows."""
        ...

    def most(self, here: int) -> int:
        """Return the greatest of all processes' numbers."""
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a chat may become, in tokens."""

    completion: int
    """All replies of an episode and the feedback between them."""
    reply: int
    """One reply."""
    context: int | None
    """The prompt and all that follows; ``None`` where the model tells no limit."""

    def room(self, prompt: int, completion: int = 0) -> int:
        """Return how many tokens may still follow a prompt of so many tokens and so much of a completion."""
        limit = self.completion if self.context is None else min(self.completion, self.context - prompt)
        return limit - completion

    @property
    def least(self) -> int:
        """Room without which no reply is asked for."""
        return min(MIN_REPLY_TOKENS, self.reply)


@dataclass(slots=True)
class Rollout:
    """The tokens of one episode.

    An episode whose tokens are used up stays in its batch to the last turn with empty replies, which are malformed and
    change nothing: its score is that of its best turn.
    """

    prompt: list[int]
    completion: list[int] = field(default_factory=list)
    """Everything after the prompt: reply, feedback, reply, ..., reply."""
    mask: list[int] = field(default_factory=list)
    """1 for the agent's own tokens and 0 for the environment's, one for each of ``completion``."""
    logprobs: list[float] | None = None
    """Log-probabilities at which the tokens were sampled, 0 for the environment's; ``None`` where not known."""
    replies: int = 0
    """Turns in which the agent was asked."""
    speaking: bool = True
    """Whether there is room for another reply."""

    @property
    def chat(self) -> list[int]:
        """Everything so far."""
        return self.prompt + self.completion

    def say(self, reply: list[int], logprobs: list[float] | None) -> None:
        """Add a reply."""
        if logprobs is not None:
            self.logprobs = [*(self.logprobs or []), *logprobs]
        self.completion += reply
        self.mask += [1] * len(reply)
        self.replies += 1

    def hear(self, feedback: list[int]) -> None:
        """Add what stands between two replies."""
        if self.logprobs is not None:
            self.logprobs += [0.0] * len(feedback)
        self.completion += feedback
        self.mask += [0] * len(feedback)


def play(stage: Stage, chat: ChatTokens, sample: Sample, budget: Budget) -> list[Rollout]:
    """Play an episode in every slot of this process.

    Args:
        stage: The episodes.
        chat: Their words as tokens.
        sample: The policy.
        budget: How long chats may become. Every prompt leaves room for a reply.

    Returns:
        One rollout per slot, in order.
    """
    tasks = stage.begin()
    prompts = {task: chat.opening(task) for task in set(tasks)}
    rollouts = [Rollout(list(prompts[task])) for task in tasks]
    for turn in range(stage.turns):
        replies = _speak(stage, sample, rollouts, budget)
        shown = stage.step([chat.text(reply) for reply in replies])
        if turn + 1 < stage.turns:
            for rollout, reply, feedback in zip(rollouts, replies, shown, strict=True):
                _listen(rollout, chat.between(reply, feedback), budget)
    return rollouts


def _speak(stage: Stage, sample: Sample, rollouts: list[Rollout], budget: Budget) -> list[list[int]]:
    """Sample the replies of those that may speak; return every slot's, empty for the others."""
    replies: list[list[int]] = [[] for _ in rollouts]
    speaking = [index for index, rollout in enumerate(rollouts) if rollout.speaking]
    # Sampling takes all processes together, with as many chats each: what fills one up is read by nobody.
    asked = speaking + [0] * (stage.most(len(speaking)) - len(speaking))
    if not asked:
        return replies
    room = [budget.room(len(rollouts[index].prompt), len(rollouts[index].completion)) for index in asked]
    limit = max(1, min(budget.reply, max(room)))
    sampled, logprobs = sample([rollouts[index].chat for index in asked], limit)
    for row, index in enumerate(speaking):
        length = min(limit, room[row])
        replies[index] = sampled[row][:length]
        rollouts[index].say(replies[index], None if logprobs is None else logprobs[row][:length])
    return replies


def _listen(rollout: Rollout, feedback: list[int], budget: Budget) -> None:
    if not rollout.speaking:
        return
    room = budget.room(len(rollout.prompt), len(rollout.completion) + len(feedback))
    rollout.speaking = room >= budget.least
    if rollout.speaking:
        rollout.hear(feedback)
