"""The batched twins of the AutoResearch environments: all episodes step together, with one ``grade`` call a step.

- ``ResearchVectorEnv`` - replies in text.
- ``ResearchDesignVectorEnv`` - choices in a finite space of solutions.

Both equal ``gymnasium.vector.SyncVectorEnv`` over their single twins in every autoreset mode, groups aside, which only
a batched environment can have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from gymnasium.vector import AutoresetMode

from wmrl_envs.research.base import check_render_mode
from wmrl_envs.research.batched import BatchedEnv, parse_autoreset_mode
from wmrl_envs.research.configuration import Isolation, TaskLike, build_core
from wmrl_envs.research.design import DesignInterface
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Grader
from wmrl_envs.research.limits import Limits
from wmrl_envs.research.text import TextInterface

__all__ = ["ResearchDesignVectorEnv", "ResearchVectorEnv"]


class ResearchVectorEnv(BatchedEnv):
    """``ResearchEnv`` in a batch, with groups: ``group_size`` neighbouring sub-environments attempt one task.

    Actions are a tuple of ``num_envs`` replies. Observations are ``ResearchEnv``'s, strings as tuples; see there for
    what they mean, for the rewards and for the info.

    Example:
        >>> import gymnasium as gym, wmrl_envs
        >>> envs = gym.make_vec("wmrl/Research-v0", num_envs=4, tasks="titanic", isolation="auto", group_size=2)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations["turn"]
        array([0, 0, 0, 0])
        >>> envs.close()
    """

    def __init__(
        self,
        num_envs: int = 1,
        tasks: TaskLike | Sequence[TaskLike] = "titanic",
        *,
        group_size: int = 1,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        sandbox: str | Grader = "process",
        isolation: Isolation = "strict",
        max_turns: int = 4,
        report: bool = False,
        limits: Limits | Mapping[str, object] | None = None,
        sandbox_kwargs: Mapping[str, object] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Build the environment; arguments that are not named here are ``ResearchEnv``'s.

        Args:
            num_envs: Sub-environments.
            group_size: Neighbouring sub-environments that share a task in every episode; divides ``num_envs``.
            autoreset_mode: When an ended episode begins anew: ``"NextStep"``, ``"SameStep"`` or ``"Disabled"``.
            tasks: See ``ResearchEnv``.
            sandbox: See ``ResearchEnv``.
            isolation: See ``ResearchEnv``.
            max_turns: See ``ResearchEnv``.
            report: See ``ResearchEnv``.
            limits: See ``ResearchEnv``.
            sandbox_kwargs: See ``ResearchEnv``.
            render_mode: See ``ResearchEnv``.

        Raises:
            ConfigurationError: If an argument cannot work.
            UnknownTaskError: If a task is neither bundled nor a folder.
            IsolationError: If this machine cannot isolate as asked.
        """
        mode, shown = parse_autoreset_mode(autoreset_mode), check_render_mode(render_mode)
        core, interface, owned = build_core(
            TextInterface,
            tasks=tasks,
            sandbox=sandbox,
            sandbox_kwargs=sandbox_kwargs,
            isolation=isolation,
            limits=limits,
            max_turns=max_turns,
            num_slots=num_envs,
            group_size=group_size,
        )
        super().__init__(core, interface, owns_grader=owned, report=report, autoreset_mode=mode, render_mode=shown)


class ResearchDesignVectorEnv(BatchedEnv):
    """``ResearchDesignEnv`` in a batch, with groups: ``group_size`` neighbouring sub-environments attempt one task.

    Actions are int64 [num_envs, d], observations float32 [num_envs, 23]; see ``ResearchDesignEnv`` for what they mean,
    for the rewards and for the info.

    Example:
        >>> import gymnasium as gym, wmrl_envs
        >>> envs = gym.make_vec("wmrl/ResearchDesign-v0", num_envs=8, tasks="titanic", group_size=4)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (8, 23)
        >>> envs.close()
    """

    def __init__(
        self,
        num_envs: int = 1,
        tasks: TaskLike | Sequence[TaskLike] = "titanic",
        *,
        group_size: int = 1,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        sandbox: str | Grader = "process",
        isolation: Isolation = "auto",
        max_turns: int = 4,
        report: bool = False,
        limits: Limits | Mapping[str, object] | None = None,
        blocks: Sequence[Sequence[int]] | str | None = None,
        sandbox_kwargs: Mapping[str, object] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Build the environment; ``blocks`` is ``ResearchDesignEnv``'s, all others are ``ResearchVectorEnv``'s.

        Raises:
            ConfigurationError: If an argument cannot work, or two tasks have different design spaces.
            TaskError: If a task has no design space.
            UnknownTaskError: If a task is neither bundled nor a folder.
            IsolationError: If this machine cannot isolate as asked.
        """
        mode, shown = parse_autoreset_mode(autoreset_mode), check_render_mode(render_mode)
        core, self._design, owned = build_core(
            partial(DesignInterface, blocks=blocks),
            tasks=tasks,
            sandbox=sandbox,
            sandbox_kwargs=sandbox_kwargs,
            isolation=isolation,
            limits=limits,
            max_turns=max_turns,
            num_slots=num_envs,
            group_size=group_size,
        )
        super().__init__(core, self._design, owns_grader=owned, report=report, autoreset_mode=mode, render_mode=shown)

    @property
    def design_space(self) -> DesignSpace:
        """The space of solutions that all tasks share, rendered as the first task's."""
        return self._design.design_space
