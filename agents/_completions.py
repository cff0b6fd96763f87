"""A trainer's batch of completions as programs, groups and tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wmrl_envs.agents.history import split_thinking
from wmrl_envs.errors import ConfigurationError, UnknownTaskError, did_you_mean
from wmrl_envs.research.reply import extract_code
from wmrl_envs.research.task import ResearchTask
from wmrl_envs.research.text import MAX_REPLY_CHARS

__all__ = ["code_of", "group_count", "tasks_of"]


def code_of(completion: Any) -> str | None:
    """Return the program in a completion, ``None`` where there is none.

    Args:
        completion: A text, or a list of messages of which the assistant's last is read; its content is a text, or a
            list of parts of which those with a text count.

    Raises:
        ConfigurationError: If it is neither.
    """
    text = split_thinking(_text(completion))[1]
    # Far beyond what is run: not worth searching, and malformed whatever it holds.
    return text if len(text) > MAX_REPLY_CHARS else extract_code(text)


def _text(completion: Any) -> str:
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Sequence) and all(isinstance(message, Mapping) for message in completion):
        said = [message.get("content") for message in completion if message.get("role") == "assistant"]
        content = said[-1] if said else None
        if isinstance(content, str) or content is None:
            return content or ""
        if isinstance(content, Sequence):
            return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    raise ConfigurationError(
        f"a completion is a text or a list of messages with role and content, got {type(completion).__name__}"
    )


def group_count(completions: int, num_generations: int | None) -> int:
    """Return the number of groups in a batch.

    Raises:
        ConfigurationError: If the group's size is unknown, or the batch holds no whole groups.
    """
    if num_generations is None:
        raise ConfigurationError(
            "the size of a group is unknown: pass num_generations= as in the trainer's configuration, or add "
            "callback() to the trainer's callbacks, which tells it"
        )
    if completions % num_generations:
        raise ConfigurationError(
            f"a batch of {completions} completions holds no whole groups of num_generations={num_generations}; give "
            "every process whole groups (per_device_train_batch_size * steps_per_generation a multiple of "
            "num_generations)"
        )
    return completions // num_generations


def tasks_of(
    ids: Sequence[str] | None, completions: int, size: int, tasks: Mapping[str, ResearchTask]
) -> list[ResearchTask]:
    """Return the task of each completion.

    Args:
        ids: Task id of each row; ``None`` where there is only one task.
        completions: Their number.
        size: Completions per group.
        tasks: By id.

    Raises:
        ConfigurationError: If no column says which of several tasks is meant, or a group has several.
        UnknownTaskError: If an id is not among the tasks.
    """
    if ids is None:
        if len(tasks) > 1:
            raise ConfigurationError(
                f"there are {len(tasks)} tasks ({', '.join(tasks)}), so the dataset needs a column 'task' that names "
                "each row's"
            )
        return list(tasks.values()) * completions
    for start in range(0, completions, size):
        if len(set(ids[start : start + size])) > 1:
            raise ConfigurationError(
                f"completions {start} to {start + size - 1} are on the tasks {sorted(set(ids[start : start + size]))}, "
                f"but a group is on one: is num_generations={size} the trainer's?"
            )
    for name in set(ids):
        if name not in tasks:
            raise UnknownTaskError(
                f"a row's task is {name!r}, none of the reward function's: {', '.join(tasks)}. Pass it in tasks=."
                f"{did_you_mean(str(name), tasks)}"
            )
    return [tasks[name] for name in ids]
