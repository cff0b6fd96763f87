"""AutoResearch environments, one episode at a time.

- ``ResearchEnv`` - an agent that writes: replies in text, solutions in any Python.
- ``ResearchDesignEnv`` - any agent with an MLP: choices in a finite space of solutions.

Their batched twins are in ``wmrl_envs.research.vector_env``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded

from wmrl_envs.research.base import CoreSeam, Interface, check_render_mode
from wmrl_envs.research.configuration import Isolation, TaskLike, build_core
from wmrl_envs.research.core import ResearchCore
from wmrl_envs.research.design import DesignInterface
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Grader
from wmrl_envs.research.infos import single_info
from wmrl_envs.research.limits import Limits
from wmrl_envs.research.state import load_core_state, save_core_state
from wmrl_envs.research.text import TextInterface

__all__ = ["ResearchDesignEnv", "ResearchEnv"]

_SLOT = np.zeros(1, dtype=np.int64)


class _SingleEnv(CoreSeam, gym.Env[Any, Any]):
    """One episode over the batched core."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}  # type: ignore[misc]  # per class, as Gymnasium's own

    def __init__(
        self, core: ResearchCore, interface: Interface, *, owns_grader: bool, report: bool, render_mode: str | None
    ) -> None:
        self._core, self._interface, self._owns_grader = core, interface, owns_grader
        self._report = bool(report)
        self.render_mode = render_mode
        self.observation_space, self.action_space = interface.observation_space, interface.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Seeds the choice of tasks and the solutions' own seeds.
            options: ``{"task": id}`` sets the task.

        Raises:
            UnknownTaskError: If the id is none of this environment's tasks.
        """
        super().reset(seed=seed)
        self._core.generators[0] = self.np_random
        self._core.reset(_SLOT, options)
        return self._observation(), single_info(self._core, None, report=self._report)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a turn: grade the action's solution.

        Raises:
            ConfigurationError: If the action is outside the action space.
            GradingError: If the grader breaks its contract.
            gymnasium.error.ResetNeeded: If no episode is under way.
        """
        if not 0 <= self._core.turn[0] < self._core.max_turns:
            raise ResetNeeded(
                f"no episode is under way (episodes have {self._core.max_turns} turns): call reset() first"
            )
        codes = self._interface.decode([action], _SLOT)
        rewards, outcomes = self._core.step(_SLOT, codes)
        info = single_info(self._core, outcomes[0], report=self._report)
        return self._observation(), float(rewards[0]), bool(self._core.finished[0]), False, info

    def render(self) -> str | None:  # type: ignore[override]  # "ansi" gives a string
        """Return the last code and what the terminal showed (``render_mode="ansi"``)."""
        return self._screen(0) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Close the sandbox, if this environment made it."""
        self._close_grader()

    def state_dict(self) -> dict[str, Any]:
        """Return the episode under way as JSON-able data, random numbers included."""
        return {"core": save_core_state(self._core), "seed": self._np_random_seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state.

        Raises:
            CheckpointError: If it was saved with other arguments.
        """
        load_core_state(self._core, state["core"])
        self._np_random, self._np_random_seed = self._core.generators[0], state["seed"]

    def _observation(self) -> Any:
        return self._interface.pick(self._interface.observe(), 0)


class ResearchEnv(_SingleEnv):
    """Machine-learning tasks for an agent that writes code.

    ## Description
    The agent reads a task and replies with a whole Python solution; the solution is executed in a sandbox; the agent
    reads what a terminal would show and tries again. After ``max_turns`` turns the episode is over, and its score is
    the best turn's reward on the paper's ladder (arXiv 2608.12564).

    ## Action space
    ``AnyText``: the agent's whole reply. Its code stands in a ```` ```python ```` fence. The solution reads
    ``input/train.csv``, ``input/test.csv`` and so on, and writes ``submission.csv``.

    ## Observation space
    ``Dict``:

    | Key | Space | Meaning |
    |---|---|---|
    | ``task`` | ``AnyText`` | the task in words: the goal, the data, the metric, what to write |
    | ``feedback`` | ``AnyText`` | what a terminal showed for the last turn; empty at first |
    | ``turn`` | ``Discrete(max_turns + 1)`` | turns taken |

    ## Rewards
    The improvement of the best ladder reward of the episode, so that the return is the episode's score:

    | Attempt | Ladder reward |
    |---|---|
    | no code, or a syntax error | 0.0 |
    | ends in an error or at a limit | 0.1 |
    | runs, but writes no valid ``submission.csv`` | 0.2 |
    | valid submission | 0.5 + 0.5 * leaderboard position |

    It comes from one half of the private answers; with ``report=True`` the other half's is in ``info["report_score"]``.
    A turn that the harness could not grade gives 0 and sets ``info["wmrl"]["ungraded"]`` for the rest of the episode.

    ## Starting state
    One of the tasks, uniformly, or ``reset(options={"task": id})``.

    ## Episode end
    Terminated after ``max_turns`` turns, never truncated.

    ## Info
    ``task`` (id), ``turn``, ``report_score``, and in ``wmrl``: ``group`` (id), ``ungraded``, ``outcome`` (of the turn)
    and ``real_reward`` (its ladder reward). What is unknown has no key.

    ## Arguments
    See ``__init__``. ``gym.make_vec("wmrl/Research-v0", ...)`` makes the batched twin, ``ResearchVectorEnv``.

    Example:
        >>> import gymnasium as gym, wmrl_envs
        >>> env = gym.make("wmrl/Research-v0", tasks="titanic", isolation="auto")
        >>> observation, info = env.reset(seed=0)
        >>> info["task"], observation["turn"]
        ('titanic', 0)
        >>> env.close()
    """

    def __init__(
        self,
        tasks: TaskLike | Sequence[TaskLike] = "titanic",
        *,
        sandbox: str | Grader = "process",
        isolation: Isolation = "strict",
        max_turns: int = 4,
        report: bool = False,
        limits: Limits | Mapping[str, object] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Build the environment.

        Args:
            tasks: Bundled tasks by name, task folders by path, or loaded tasks.
            sandbox: Executes solutions: ``"process"``, ``"replay"``, ``"package.module:attribute"`` or an object.
            isolation: ``"strict"`` fails where this machine cannot isolate other people's code, ``"auto"`` takes the
                strongest there is, ``"none"`` isolates nothing.
            max_turns: Turns of every episode.
            report: Whether to give ``info["report_score"]``; for evaluation, never for training.
            limits: Overrides the tasks' limits, such as ``{"seconds": 5}``.
            render_mode: ``None`` or ``"ansi"``.

        Raises:
            ConfigurationError: If an argument cannot work.
            UnknownTaskError: If a task is neither bundled nor a folder.
            IsolationError: If this machine cannot isolate as asked.
        """
        mode = check_render_mode(render_mode)
        core, interface, owned = build_core(
            TextInterface, tasks=tasks, sandbox=sandbox, isolation=isolation, limits=limits, max_turns=max_turns
        )
        super().__init__(core, interface, owns_grader=owned, report=report, render_mode=mode)


class ResearchDesignEnv(_SingleEnv):
    """The same tasks as a choice among some thousand solutions, for any agent with an MLP.

    ## Description
    Every action is one solution of a finite design space (imputation, encoding, model family, ...), rendered to
    readable Python and executed as any other. Choices interact, and some of them really fail.

    ## Action space
    ``MultiDiscrete(env.unwrapped.design_space.nvec)``: one option per decision, named by ``design_space.names`` and
    ``design_space.options``. All tasks of one environment share the space.

    ## Observation space
    ``Box(0, 1, float32)``:

    | Index | Meaning | Scale |
    |---|---|---|
    | 0 | rows of the training data | log10 / 7 |
    | 1 | feature columns | log10 / 4 |
    | 2 | share of numeric feature columns | |
    | 3 | share of other feature columns | |
    | 4 | share of missing cells | |
    | 5-9 | kind of task, one-hot: tabular classification, tabular regression, ordinal, text, image | |
    | 10 | turns taken | / ``max_turns`` |
    | 11-19 | last outcome's status, one-hot in the order of ``STATUSES`` | |
    | 20 | no last outcome: the first turn, or the last could not be graded | |
    | 21 | ladder reward of the last graded turn | |
    | 22 | best ladder reward of the episode | |

    ## Rewards, starting state, episode end, info
    As in ``ResearchEnv``.

    ## Arguments
    See ``__init__``. ``gym.make_vec("wmrl/ResearchDesign-v0", ...)`` makes the batched twin,
    ``ResearchDesignVectorEnv``.

    Example:
        >>> import gymnasium as gym, wmrl_envs
        >>> env = gym.make("wmrl/ResearchDesign-v0", tasks="titanic")
        >>> observation, info = env.reset(seed=0)
        >>> observation.shape
        (23,)
        >>> env.close()
    """

    def __init__(
        self,
        tasks: TaskLike | Sequence[TaskLike] = "titanic",
        *,
        sandbox: str | Grader = "process",
        isolation: Isolation = "auto",
        max_turns: int = 4,
        report: bool = False,
        limits: Limits | Mapping[str, object] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Build the environment; the arguments are ``ResearchEnv``'s.

        Only the package's own templates are executed here, so ``isolation`` is ``"auto"`` by default.

        Raises:
            ConfigurationError: If an argument cannot work, a task has no design space, or two have different ones.
            UnknownTaskError: If a task is neither bundled nor a folder.
            IsolationError: If this machine cannot isolate as asked.
        """
        mode = check_render_mode(render_mode)
        core, self._design, owned = build_core(
            DesignInterface, tasks=tasks, sandbox=sandbox, isolation=isolation, limits=limits, max_turns=max_turns
        )
        super().__init__(core, self._design, owns_grader=owned, report=report, render_mode=mode)

    @property
    def design_space(self) -> DesignSpace:
        """The space of solutions that all tasks share, rendered as the first task's."""
        return self._design.design_space
