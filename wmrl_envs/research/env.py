"""AutoResearch environments, one episode at a time.

- ``ResearchEnv`` - an agent that writes: replies in text, solutions in any Python.
- ``ResearchDesignEnv`` - any agent with an MLP: choices in a finite space of solutions.

Their batched twins are in ``wmrl_envs.research.vector_env``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from wmrl_envs.research.base import check_render_mode
from wmrl_envs.research.configuration import Isolation, TaskLike, build_core
from wmrl_envs.research.design import DesignInterface
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Grader
from wmrl_envs.research.limits import Limits
from wmrl_envs.research.single import SingleEnv
from wmrl_envs.research.text import TextInterface

__all__ = ["ResearchDesignEnv", "ResearchEnv"]


class ResearchEnv(SingleEnv):
    """Machine-learning tasks for an agent that writes code.

    ## Description
    The agent reads a task and replies with a whole Python solution; the solution is executed in a sandbox; the agent
    reads what a terminal would show and tries again. After ``max_turns`` turns the episode is over, and its score is
    the best turn's reward on the paper's ladder (arXiv 2608.12564).

    ## Action space
    ``AnyText``: the agent's whole reply. Its code stands in a ```` ```python ```` fence. The solution reads
    ``input/train.csv``, ``input/test.csv`` and so on, and writes ``submission.csv``; a task that a command grades names
    its own files.

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
    | runs, but writes no valid submission | 0.2 |
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
        sandbox_kwargs: Mapping[str, object] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Build the environment.

        Args:
            tasks: Bundled tasks by name, task folders by path, or loaded tasks.
            sandbox: Executes solutions: ``"process"``, ``"replay"``, ``"package.module:attribute"`` or an object. One
                that is named is closed with the environment.
            isolation: ``"strict"`` fails where this machine cannot isolate other people's code, ``"auto"`` takes the
                strongest there is, ``"none"`` isolates nothing.
            max_turns: Turns of every episode.
            report: Whether to give ``info["report_score"]``; for evaluation, never for training.
            limits: Overrides the tasks' limits, such as ``{"seconds": 5}``.
            sandbox_kwargs: Arguments for a sandbox given by name, such as ``{"workers": 4}``.
            render_mode: ``None`` or ``"ansi"``.

        Raises:
            ConfigurationError: If an argument cannot work.
            UnknownTaskError: If a task is neither bundled nor a folder.
            IsolationError: If this machine cannot isolate as asked.
        """
        mode = check_render_mode(render_mode)
        core, interface, owned = build_core(
            TextInterface,
            tasks=tasks,
            sandbox=sandbox,
            sandbox_kwargs=sandbox_kwargs,
            isolation=isolation,
            limits=limits,
            max_turns=max_turns,
        )
        super().__init__(core, interface, owns_grader=owned, report=report, render_mode=mode)


class ResearchDesignEnv(SingleEnv):
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
    | 5-9 | kind of task, one-hot: tabular classification, tabular regression, ordinal, text, image; all 0 for code | |
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
        blocks: Sequence[Sequence[int]] | str | None = None,
        sandbox_kwargs: Mapping[str, object] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Build the environment; arguments that are not named here are ``ResearchEnv``'s.

        Args:
            tasks: See ``ResearchEnv``.
            sandbox: See ``ResearchEnv``.
            isolation: As in ``ResearchEnv``, but ``"auto"``: only the package's own templates are executed here.
            max_turns: See ``ResearchEnv``.
            report: See ``ResearchEnv``.
            limits: See ``ResearchEnv``.
            blocks: Groups choices into one larger choice each, such as ``[[0, 1, 2], [3, 4, 5]]`` (a partition of all
                of them), for policies that shall learn interactions; ``None`` leaves each choice by itself.
            sandbox_kwargs: See ``ResearchEnv``.
            render_mode: See ``ResearchEnv``.

        Raises:
            ConfigurationError: If an argument cannot work, or two tasks have different design spaces.
            TaskError: If a task has no design space.
            UnknownTaskError: If a task is neither bundled nor a folder.
            IsolationError: If this machine cannot isolate as asked.
        """
        mode = check_render_mode(render_mode)
        core, self._design, owned = build_core(
            partial(DesignInterface, blocks=blocks),
            tasks=tasks,
            sandbox=sandbox,
            sandbox_kwargs=sandbox_kwargs,
            isolation=isolation,
            limits=limits,
            max_turns=max_turns,
        )
        super().__init__(core, self._design, owns_grader=owned, report=report, render_mode=mode)

    @property
    def design_space(self) -> DesignSpace:
        """The space of solutions that all tasks share, rendered as the first task's."""
        return self._design.design_space
