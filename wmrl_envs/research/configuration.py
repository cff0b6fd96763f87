"""From the JSON-able arguments of ``gym.make`` to tasks and a sandbox."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.research.core import ResearchCore, check_sizes
from wmrl_envs.research.grading import Grader
from wmrl_envs.research.limits import Limits
from wmrl_envs.research.sandbox import resolve_sandbox
from wmrl_envs.research.task import ResearchTask, load_task

__all__ = ["Isolation", "TaskLike", "build_core", "close_grader", "resolve_tasks"]

TaskLike = str | Path | ResearchTask
"""A bundled task's name, the path of a task folder, or a loaded task."""
Isolation = Literal["auto", "strict", "none"]


InterfaceT = TypeVar("InterfaceT")


def build_core(
    interface: Callable[[ResearchCore], InterfaceT],
    *,
    tasks: TaskLike | Sequence[TaskLike],
    sandbox: str | Grader,
    sandbox_kwargs: Mapping[str, object] | None,
    isolation: Isolation,
    limits: Limits | Mapping[str, object] | None,
    max_turns: int,
    num_slots: int = 1,
    group_size: int = 1,
) -> tuple[ResearchCore, InterfaceT, bool]:
    """Build the core of an environment, and its interface.

    Returns:
        The core, its interface, and whether its grader was made here and so is closed with the environment.

    Raises:
        ConfigurationError: If an argument cannot work.
        UnknownTaskError: If a task is neither bundled nor a folder.
        IsolationError: If the sandbox cannot isolate as asked.
    """
    loaded = resolve_tasks(tasks, limits)
    check_sizes(max_turns, num_slots, group_size)  # before a sandbox is started
    owned = isinstance(sandbox, str)
    if sandbox_kwargs and not owned:
        raise ConfigurationError(
            f"sandbox_kwargs={dict(sandbox_kwargs)} goes with a sandbox given by name, but sandbox is a "
            f"{type(sandbox).__name__} already; give it these arguments when making it"
        )
    if sandbox_kwargs and "isolation" in sandbox_kwargs:
        raise ConfigurationError(
            f"sandbox_kwargs['isolation']={sandbox_kwargs['isolation']!r} is an argument of the environment; pass it "
            "as isolation="
        )
    grader = resolve_sandbox(sandbox, isolation=isolation, **(sandbox_kwargs or {}))
    try:
        core = ResearchCore(loaded, grader, max_turns=max_turns, num_slots=num_slots, group_size=group_size)
        return core, interface(core), owned
    except BaseException:
        if owned:
            close_grader(grader)
        raise


def close_grader(grader: Grader) -> None:
    """Close a grader that has something to close."""
    close = getattr(grader, "close", None)
    if close is not None:
        close()


def resolve_tasks(
    tasks: TaskLike | Sequence[TaskLike], limits: Limits | Mapping[str, object] | None = None
) -> tuple[ResearchTask, ...]:
    """Load tasks and apply limits to them.

    Args:
        tasks: One task or several.
        limits: Replaces each task's limits, or overrides some of them by name.

    Raises:
        ConfigurationError: If there are none, or two have one id.
    """
    listed = [tasks] if isinstance(tasks, str | Path | ResearchTask) else list(tasks)
    if not listed:
        raise ConfigurationError("tasks is empty; name at least one, such as tasks='titanic'")
    loaded = [task if isinstance(task, ResearchTask) else load_task(task) for task in listed]
    ids = [task.id for task in loaded]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise ConfigurationError(f"tasks names {', '.join(map(repr, twice))} more than once; list each task once")
    if limits is None:
        return tuple(loaded)
    return tuple(
        dataclasses.replace(task, limits=limits if isinstance(limits, Limits) else task.limits.override(limits))
        for task in loaded
    )
