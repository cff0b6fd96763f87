"""The text interface of the AutoResearch environments: replies in, the task and a terminal's words out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.research.core import ResearchCore
from wmrl_envs.research.reply import extract_code
from wmrl_envs.research.spaces import AnyText

__all__ = ["MAX_FEEDBACK_CHARS", "MAX_REPLY_CHARS", "MAX_TASK_CHARS", "TextInterface", "clip_text"]

MAX_REPLY_CHARS = 1_000_000
"""Longest reply that is searched for code; a longer one is graded as it is, which is malformed."""
MAX_TASK_CHARS = 100_000
MAX_FEEDBACK_CHARS = 20_000


def clip_text(text: str, limit: int) -> str:
    """Return the text, its middle replaced by a note if it is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text) - limit} characters or more left out ...]\n"
    keep = limit - len(note)
    return text[: keep - keep // 2] + note + text[len(text) - keep // 2 :]


class TextInterface:
    """Observations and actions as text.

    Attributes:
        observation_space: ``Dict(task, feedback: AnyText, turn: Discrete(max_turns + 1))`` of one episode.
        action_space: ``AnyText``: the agent's whole reply, its code in a fence.
    """

    def __init__(self, core: ResearchCore) -> None:
        """Prepare the tasks' texts."""
        self._core = core
        self._tasks = [clip_text(task.prompt(), MAX_TASK_CHARS) for task in core.tasks]
        self.action_space: spaces.Space[Any] = AnyText(MAX_REPLY_CHARS)
        self.observation_space: spaces.Space[Any] = spaces.Dict(
            task=AnyText(MAX_TASK_CHARS), feedback=AnyText(MAX_FEEDBACK_CHARS), turn=spaces.Discrete(core.max_turns + 1)
        )

    def decode(self, actions: Sequence[object], slots: NDArray[np.int64]) -> list[str | None]:
        """Return the code in each slot's reply, ``None`` where there is none.

        Args:
            actions: A reply for every slot, also for those that are not asked for.
            slots: int64 [m], the slots that take a turn.

        Raises:
            ConfigurationError: If the replies are not one string a slot.
        """
        if isinstance(actions, str) or len(actions) != self._core.num_slots:
            raise ConfigurationError(
                f"expected {self._core.num_slots} replies, one string per sub-environment, got "
                f"{'one string' if isinstance(actions, str) else len(actions)}"
            )
        return [self._code(actions[slot]) for slot in slots.tolist()]

    def observe(self) -> dict[str, Any]:
        """Return the observations of all slots: tuples of strings, and int64 turns."""
        core = self._core
        return {
            "task": tuple(self._tasks[index] for index in core.task_index.tolist()),
            "feedback": tuple(clip_text(text, MAX_FEEDBACK_CHARS) for text in core.feedback),
            "turn": core.turn.clip(0),
        }

    def pick(self, observations: dict[str, Any], slot: int) -> dict[str, Any]:
        """Return one slot's observation out of those of all slots."""
        return {key: values[slot] for key, values in observations.items()}

    @staticmethod
    def _code(reply: object) -> str | None:
        if not isinstance(reply, str):
            raise ConfigurationError(
                f"an action of the text environment is a string, the agent's whole reply, got {type(reply).__name__}"
            )
        # Far beyond what is run: not worth searching, and malformed whatever it holds.
        return reply if len(reply) > MAX_REPLY_CHARS else extract_code(reply)
