"""Recorded executions as the examples that a language model is fine-tuned on: a chat, and the reply it should get."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from wmrl_envs.errors import ConfigurationError, did_you_mean
from wmrl_envs.research.grading import Submission
from wmrl_envs.world_models.prompting import PromptTemplates
from wmrl_envs.world_models.recorded import DRAWS, drawn_members
from wmrl_envs.world_models.verdicts import verdict_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from wmrl_envs.research.outcome import Outcome
    from wmrl_envs.research.sandbox.replay import ReplaySandbox
    from wmrl_envs.research.task import ResearchTask
    from wmrl_envs.world_models.backends._chat import ChatTokenizer

__all__ = ["ANSWERS", "Example", "draw_pairs", "tokenized"]

ANSWERS: dict[str, tuple[Literal["word", "json"], ...]] = {
    "word": ("word",),
    "json": ("json",),
    "both": ("word", "json"),
}
"""What a model is taught to answer: the verdict in one word, the JSON object, or either as it is asked."""

Example: TypeAlias = dict[str, list[int]]
"""``input_ids``: the chat, the reply and the end of its turn; ``completion_mask``: 1 where the loss counts."""


def draw_pairs(
    task: ResearchTask, recordings: ReplaySandbox, *, count: int, draw: str, seed: int
) -> list[tuple[Submission, Outcome]]:
    """Draw distinct recorded solutions of a task, each with one of its executions.

    The further a draw goes, the less the prior matters: where all recorded solutions are taken it does not at all.

    Args:
        task: A task with recorded executions.
        recordings: Where they are.
        count: Solutions to draw; fewer come back where fewer are recorded.
        draw: ``"prior"`` or ``"uniform"``.
        seed: Seed of the draw, together with the task's id.

    Returns:
        Solutions and outcomes; those that are told without a model (code that does not compile) are left out.

    Raises:
        ConfigurationError: If the draw is unknown.
        RecordingError: If the task has no recording that can be used; the message says how to record it.
    """
    if draw not in DRAWS:
        raise ConfigurationError(
            f"unknown draw {draw!r} of solutions; it is {' or '.join(map(repr, DRAWS))}.{did_you_mean(draw, DRAWS)}"
        )
    table = recordings.table(task)
    rng = np.random.default_rng([seed, zlib.crc32(task.id.encode())])
    members = drawn_members(table, draw, rng)
    # The seed of a submission chooses among the executions of a solution.
    submissions = [
        Submission(task, table.space.solution(int(member)), int(seed_of))
        for member, seed_of in zip(members, rng.integers(2**31, size=len(members)), strict=True)
    ]
    pairs = zip(submissions, recordings.grade(submissions), strict=True)
    known = [(item, outcome) for item, outcome in pairs if outcome is not None and verdict_of(outcome) is not None]
    return known[:count]


def tokenized(
    pairs: Sequence[tuple[Submission, Outcome]],
    chats: ChatTokenizer,
    templates: PromptTemplates,
    *,
    answer: str,
    max_length: int,
) -> tuple[list[Example], int]:
    """Write executed solutions as token sequences.

    A sequence is what the backend scores: the chat up to where the reply begins, as it reads it, then the reply. The
    reply does not come from the chat template's rendering of a whole chat, which for some models (those that think)
    differs from what follows a generation prompt.

    Args:
        pairs: n executed solutions.
        chats: Encodes chats as the backend does.
        templates: Prompt templates.
        answer: A key of ``ANSWERS``.
        max_length: Longest sequence, in tokens; a longer one is left out, since a cut program teaches what is wrong.

    Returns:
        The examples, n for each kind of answer without those that are too long; and how many were.
    """
    end = _end_of_turn(chats.tokenizer)
    examples = []
    for submission, outcome in pairs:
        for kind in ANSWERS[answer]:
            prompt = chats.encode(templates.conversation(submission, answer=kind))
            reply = (*chats.words(templates.answer(outcome, kind)), *end)
            mask = [0] * len(prompt) + [1] * len(reply)
            examples.append({"input_ids": [*prompt, *reply], "completion_mask": mask})
    kept = [example for example in examples if len(example["input_ids"]) <= max_length]
    return kept, len(examples) - len(kept)


def _end_of_turn(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the token with which the chat template ends a reply, so that a model learns to stop; else the last one."""
    reply = "valid"
    chat = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": reply}]
    if tokenizer.chat_template:
        _, _, after = str(tokenizer.apply_chat_template(chat, tokenize=False)).rpartition(reply)
        ids = tokenizer(after.strip(), add_special_tokens=False)["input_ids"]
        if ids:
            return [int(ids[0])]
    end = tokenizer.eos_token_id
    return [] if end is None else [int(end)]
