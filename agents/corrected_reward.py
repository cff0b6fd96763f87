"""The correction for people with a trainer of their own: a reward function as TRL takes it.

- ``CorrectedReward`` - predicts what a completion is worth, executes a few groups, and returns corrected rewards.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wmrl_envs.agents._completions import code_of, group_count, tasks_of
from wmrl_envs.agents._group_correction import GroupCorrection, TrainerScale, choose_scheme
from wmrl_envs.agents._two_graders import TwoGraders
from wmrl_envs.errors import CheckpointError, ConfigurationError
from wmrl_envs.files import write_json
from wmrl_envs.research.configuration import Isolation, close_grader, resolve_tasks
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.sandbox import resolve_sandbox
from wmrl_envs.world_models import resolve_world_model
from wmrl_envs.wrappers._correction_state import CorrectionState

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from wmrl_envs.correction import Ledger
    from wmrl_envs.research.configuration import TaskLike
    from wmrl_envs.research.grading import Grader
    from wmrl_envs.world_models.protocol import WorldModel

__all__ = ["CorrectedReward"]

_TOTALS = (
    "executions",
    "failed_executions",
    "predictions",
    "execution_seconds",
    "prediction_seconds",
    "cost_ratio",
    "unreadable",
)


class CorrectedReward:
    """A TRL reward function over one-turn completions: ``f(prompts, completions, **columns) -> list[float | None]``.

    Each group of ``num_generations`` completions is predicted; about a tenth of the groups, drawn whole, are executed
    as well (anchors). What is returned depends on what the trainer does with it (arXiv 2608.12564, PPI++):

    * ``scale_rewards="none"`` (each group's rewards are centred only): ``rectified``. A group's rewards are lambda * f,
      and in anchor groups lambda * f + (r - lambda * f) / pi, so that the centred rewards have the expectation of the
      real ones whatever the world model's errors are. ``paper`` and ``denoise`` weigh their anchors.
    * ``scale_rewards="group"`` (TRL's default: each group is divided by its standard deviation): ``debias``. Anchor
      groups get their real rewards r, the others the calibrated prediction f. Rectification and weights do not survive
      the division, which brings every group to the same size: an anchor group counts once, not 1 / pi times, so that
      errors of the world model that are no function of its prediction stay in. Choose ``"none"`` where you can;
      ``ResearchGRPOTrainer`` has both.

    A completion of which nothing is known (a failed prediction or execution) gets ``None``, which TRL leaves out. TRL
    evaluates by the same function: that draws anchors and teaches the correction as training does.

    In a distributed run each process corrects its own groups: there must be whole ones.

    Example:
        >>> from trl import GRPOConfig, GRPOTrainer
        >>> reward = CorrectedReward("learned", "process", tasks="titanic", num_generations=8)  # doctest: +SKIP
        >>> trainer = GRPOTrainer(model, reward, args, dataset, callbacks=[reward.callback()])  # doctest: +SKIP
    """

    def __init__(
        self,
        world_model: str | WorldModel = "learned",
        sandbox: str | Grader = "process",
        anchor_fraction: float = 0.1,
        scheme: str | None = None,
        *,
        tasks: TaskLike | Sequence[TaskLike] = "titanic",
        num_generations: int | None = None,
        scale_rewards: TrainerScale = "group",
        ramp: float = 0.0,
        calibration: Mapping[str, Any] | str | None = None,
        isolation: Isolation = "strict",
        limits: Mapping[str, object] | None = None,
        world_model_kwargs: Mapping[str, Any] | None = None,
        sandbox_kwargs: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        """Make the function; nothing is executed yet.

        Args:
            world_model: Predicts the outcomes: a name, or an object.
            sandbox: Executes the anchors: a name, or an object.
            anchor_fraction: Share of groups that are executed.
            scheme: Reward scheme; ``None`` is ``"rectified"`` for ``scale_rewards="none"`` and else ``"debias"``.
            tasks: The tasks. With several, the dataset's column ``task`` names each row's by its id.
            num_generations: Completions per group, contiguous; ``None`` learns it from the trainer through
                ``callback``.
            scale_rewards: The trainer's setting of that name.
            ramp: Share of training over which the correction grows to full strength (``rectified`` only).
            calibration: See ``CorrectionWrapper``.
            isolation: Of a sandbox given by name: ``"strict"``, ``"auto"`` or ``"none"``.
            limits: Replaces limits of the tasks by name.
            world_model_kwargs: Arguments of a world model given by name.
            sandbox_kwargs: Arguments of a sandbox given by name.
            seed: Seeds the draws of the anchors (with the process's rank) and the executions.

        Raises:
            ConfigurationError: If an argument cannot work.
        """
        self.__name__ = "corrected_reward"
        self.scale_rewards, self.scheme = scale_rewards, choose_scheme(scheme, scale_rewards)
        for name, value, least in (("num_generations", num_generations, 2), ("seed", seed, 0)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ConfigurationError(f"{name} must be a whole number of at least {least}, got {value!r}")
        self.num_generations = num_generations
        self._rank, self._seed, self._calls = int(os.environ.get("RANK", "0")), seed, 0
        state = CorrectionState(
            anchor_fraction=anchor_fraction,
            scheme=self.scheme,
            ramp=ramp,
            scale="standardise" if scale_rewards == "group" else "centre",
            spread_bins=None,
            fixed_lambda=None,
            calibration=calibration,
            seed=seed + self._rank,
        )
        self._correction = GroupCorrection(state)
        self._tasks = {task.id: task for task in resolve_tasks(tasks, limits)}
        model = resolve_world_model(world_model, **(world_model_kwargs or {}))
        self._owned = isinstance(sandbox, str)
        if sandbox_kwargs and not self._owned:
            raise ConfigurationError(f"sandbox_kwargs {sorted(sandbox_kwargs)} go with a sandbox given by name")
        grader = resolve_sandbox(sandbox, isolation=isolation, **(sandbox_kwargs or {}))
        self._graders = TwoGraders(model, grader, tuple(self._tasks.values()))
        self._restored = False

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Any] | None = None,
        *,
        task: Sequence[str] | None = None,
        trainer_state: Any = None,
        log_metric: Any = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return one reward per completion, in order; ``None`` where nothing is known.

        Args:
            prompts: n prompts, as TRL gives them; not read.
            completions: n completions, texts or lists of messages, with the program in a fence.
            completion_ids: Not read.
            task: Task id of each row.
            trainer_state: Tells how far training has come, for ``ramp``.
            log_metric: ``f(name, value)`` takes numbers for the trainer's log.
            **columns: Not read.

        Raises:
            ConfigurationError: If the completions are no whole groups on one task each.
            UnknownTaskError: If a row's task is none of ``tasks``.
        """
        groups = group_count(len(completions), self.num_generations)
        if groups == 0:
            return []
        chosen = tasks_of(task, len(completions), len(completions) // groups, self._tasks)
        rng = np.random.default_rng([self._seed, self._rank, self._calls])
        seeds = rng.integers(2**32, size=len(completions)).tolist()
        submissions = [
            Submission(one, code_of(completion), seed, final=True)
            for one, completion, seed in zip(chosen, completions, seeds, strict=True)
        ]
        draw = self._correction.draw(groups, len(completions) // groups)
        graded = self._graders.grade(submissions, draw.anchors, predict=self._correction.predicting)
        rewards = self._correction.settle(graded, draw, _progress(trainer_state))
        self._calls += 1
        if log_metric is not None:
            for name, value in self.metrics().items():
                log_metric(f"wmrl/{name}", value)
        return [None if value != value else value for value in rewards.tolist()]

    @property
    def ledger(self) -> Ledger:
        """What was executed and predicted, and what it cost."""
        return self._graders.ledger

    def metrics(self) -> dict[str, float]:
        """Return numbers of the last call and totals of the run, for a log; what is unknown is not in it."""
        totals: dict[str, Any] = dict(self.ledger.summary())
        totals["unreadable"] = getattr(self._graders.world_model, "unreadable", None)
        spent = {name: float(totals[name]) for name in _TOTALS if totals[name] is not None}
        return self._correction.numbers | self._correction.totals() | spent

    def expect(self, num_generations: int, scale_rewards: str) -> None:
        """Take the trainer's settings, as ``callback`` reports them.

        Raises:
            ConfigurationError: If they are not those that the function was made for.
        """
        if scale_rewards != self.scale_rewards:
            raise ConfigurationError(
                f"the trainer has scale_rewards={scale_rewards!r}, and CorrectedReward was made for "
                f"{self.scale_rewards!r}: give both the same ('none' lets the rectified rewards through)"
            )
        if self.num_generations not in (None, num_generations):
            raise ConfigurationError(
                f"the trainer has num_generations={num_generations}, and CorrectedReward was made for "
                f"{self.num_generations}: give both the same"
            )
        self.num_generations = num_generations

    def callback(self) -> TrainerCallback:
        """Return a callback that saves the state with every checkpoint, restores it when training resumes, and
        checks the trainer's settings.
        """  # noqa: D205
        from wmrl_envs.agents._reward_callback import CorrectedRewardCallback

        return CorrectedRewardCallback(self)

    def save(self, folder: str | Path) -> None:
        """Write the state into a folder, such as a checkpoint's."""
        write_json(self._path(folder), self.state_dict())

    def load(self, folder: str | Path) -> None:
        """Go on from what ``save`` wrote.

        Raises:
            CheckpointError: If it cannot be read, or belongs to other settings.
        """
        path = self._path(folder)
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"the state of the reward function cannot be read from {path}: {error}. Resume with the run's own "
                "output_dir, or load(FOLDER) the checkpoint's state before training"
            ) from error
        self.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """Return correction, draws, ledger and world model as JSON-able data."""
        return {"calls": self._calls, "correction": self._correction.state_dict(), **self._graders.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned.

        Raises:
            CheckpointError: If it belongs to other settings.
        """
        try:
            self._correction.load_state_dict(state["correction"])
            self._graders.load_state_dict(state)
            self._calls = int(state["calls"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"this is no state of a CorrectedReward: {error!r}") from error
        self._restored = True

    def resume(self, checkpoint: Path | None) -> None:
        """Go on from a checkpoint as the trainer does, unless a state was loaded by hand since training last began.

        Args:
            checkpoint: Its folder; ``None`` where training begins anew.

        Raises:
            CheckpointError: As ``load``.
        """
        if checkpoint is not None and not self._restored:
            self.load(checkpoint)
        self._restored = False

    def close(self) -> None:
        """Close the sandbox, if it was given by name."""
        if self._owned:
            close_grader(self._graders.sandbox)

    def _path(self, folder: str | Path) -> Path:
        return Path(folder) / (f"wmrl_reward-{self._rank}.json" if self._rank else "wmrl_reward.json")


def _progress(trainer_state: Any) -> float | None:
    """Return how far training has come, in [0, 1]; ``None`` where the trainer does not tell."""
    step, steps = getattr(trainer_state, "global_step", None), getattr(trainer_state, "max_steps", None)
    return min(1.0, step / steps) if step is not None and steps else None
