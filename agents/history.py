"""The chat of one episode, and what of it a model reads within a budget of tokens.

The task is always there, and so is what the last attempt showed. What does not fit is left out oldest first, a reply
together with what the terminal showed for it, and a note stands in its place; the last feedback is clipped in its
middle where it is too long by itself. What a model thought aloud before its answer is never shown to it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypedDict

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.research.text import clip_text
from wmrl_envs.world_models.backends.protocol import Message

__all__ = ["Turn", "check_room", "conversation", "fit_conversation", "split_thinking"]

MIN_FEEDBACK_CHARS = 200
"""Feedback is never clipped to less, in characters."""

_FEEDBACK = (
    "Your program was run. The terminal showed:\n\n{feedback}\n\n"
    "Reply with the whole program again, mended or improved, in one ```python fence."
)
_CUT = "Your reply was cut off, since it had reached the greatest length: be briefer.\n\n"
_LEFT_OUT = "[To save room, your first {attempts} and what the terminal showed are left out here.]"
_NOTHING = "(nothing)"
_TAG = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_CLOSING = re.compile(r"</think(?:ing)?>", re.IGNORECASE)

Count = Callable[[Sequence[Message]], int]
"""The length of a chat in tokens."""


class Turn(TypedDict):
    """One attempt of an episode, JSON-able."""

    reply: str | None
    """The answer, without what was thought before it; None where it could not be had, or somebody else gave it."""
    thinking: str
    """What the model thought aloud before it answered."""
    feedback: str | None
    """What the terminal showed for the reply; None until it is seen, and where there was no reply."""
    failed: bool
    """Whether the model was asked and no reply could be had."""
    complete: bool
    """False where the reply was cut off at its greatest length."""
    prompt_tokens: int
    completion_tokens: int


def split_thinking(reply: str) -> tuple[str, str]:
    """Return what a reply thinks aloud, and what it answers.

    A block that is never closed was cut off before any answer. A closing tag alone counts as well: some chat templates
    open the block themselves. Tags after the first code fence belong to the answer's code, unless a closing one is
    the first tag of all.
    """
    thoughts: list[str] = []
    while (tag := _TAG.search(reply)) is not None:
        before, rest = reply[: tag.start()], reply[tag.end() :]
        if tag[1] and not thoughts:
            thought, reply = before, rest
        elif not tag[1] and "```" not in before:
            thought, *after = _CLOSING.split(rest, maxsplit=1)
            reply = before + "".join(after)
        else:
            break
        thoughts.append(thought.strip())
    return "\n".join(thoughts), reply.strip() if thoughts else reply


def conversation(system: str, task: str, turns: Sequence[Turn], left_out: int = 0) -> list[Message]:
    """Return a chat in which user and assistant alternate, as most chat templates demand.

    Args:
        system: System prompt; empty for none.
        task: What the agent reads as the task.
        turns: The attempts that are shown, oldest first.
        left_out: Number of attempts before these that are not.
    """
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    said = [task.strip()]
    if left_out:
        said.append(_LEFT_OUT.format(attempts="attempt" if left_out == 1 else f"{left_out} attempts"))
    for turn in turns:
        if turn["reply"] is not None:
            messages.append({"role": "user", "content": "\n\n".join(said)})
            messages.append({"role": "assistant", "content": turn["reply"].strip() or _NOTHING})
            said = []
        if turn["feedback"] is not None:
            shown = _FEEDBACK.format(feedback=turn["feedback"].strip() or _NOTHING)
            said.append(shown if turn["complete"] else _CUT + shown)
    messages.append({"role": "user", "content": "\n\n".join(said)})
    return messages


def fit_conversation(system: str, task: str, turns: Sequence[Turn], *, budget: int, count: Count) -> list[Message]:
    """Return as much of a chat as fits into a budget.

    Args:
        system: System prompt; empty for none.
        task: What the agent reads as the task.
        turns: All attempts of the episode with what was seen of them.
        budget: Greatest length, in tokens.
        count: Measures a chat.

    Raises:
        ConfigurationError: If task and a clipped feedback alone are longer.
    """
    turns = [turn for turn in turns if not turn["failed"]]
    for left_out in range(max(1, len(turns))):
        messages = conversation(system, task, turns[left_out:], left_out)
        if count(messages) <= budget:
            return messages
    if turns:
        last = turns[-1]
        for reply, left_out in ((last["reply"], len(turns) - 1), (None, len(turns))):
            clipped = _clip(system, task, {**last, "reply": reply}, left_out, budget=budget, count=count)
            if clipped is not None:
                return clipped
    raise ConfigurationError(
        f"the task and what the last attempt showed take more than the {budget} tokens that there are for them: raise "
        "context_tokens if the model reads more, or lower max_tokens"
    )


def _clip(system: str, task: str, turn: Turn, left_out: int, *, budget: int, count: Count) -> list[Message] | None:
    """Return the chat with as much of the last feedback as fits; None if its least does not."""

    def clipped(limit: int) -> list[Message]:
        feedback = None if turn["feedback"] is None else clip_text(turn["feedback"], limit)
        return conversation(system, task, [{**turn, "feedback": feedback}], left_out)

    low, high = MIN_FEEDBACK_CHARS, max(MIN_FEEDBACK_CHARS, len(turn["feedback"] or ""))
    if count(clipped(low)) > budget:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if count(clipped(middle)) <= budget:
            low = middle
        else:
            high = middle - 1
    return clipped(low)


def check_room(system: str, task: str, *, context_tokens: int, max_tokens: int, count: Count) -> None:
    """Refuse a task that leaves no room for what an attempt shows.

    Raises:
        ConfigurationError: It names the lengths and what to change.
    """
    shown: Turn = {
        "reply": None,
        "thinking": "",
        "feedback": "x y " * (MIN_FEEDBACK_CHARS // 4),
        "failed": False,
        "complete": True,
        "prompt_tokens": 0,
        "completion_tokens": 0,
    }
    needed, room = count(conversation(system, task, [shown], 1)), context_tokens - max_tokens
    if needed > room:
        raise ConfigurationError(
            f"the task takes {needed} tokens with the system prompt and a short feedback, but context_tokens="
            f"{context_tokens} leaves {room} beside replies of max_tokens={max_tokens}: raise context_tokens to at "
            f"least {needed + max_tokens} if the model reads as much, or lower max_tokens"
        )
