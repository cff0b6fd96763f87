"""All reward schemes side by side on recorded executions, over many seeds.

Each run is a training run like any other, on the replay sandbox; its curve is stored in a file of its own, so a
comparison that was stopped goes on where it was. The step size of each arm is chosen on seeds that the comparison does
not use.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.config import TrainConfig
from wmrl_envs.errors import ConfigurationError, did_you_mean
from wmrl_envs.files import write_json

__all__ = ["ARMS", "Arm", "Comparison", "Job", "run_job", "run_jobs"]

TUNING_SEED = 10_000
"""First of the seeds on which step sizes are chosen; the comparison's own begin at 0."""


@dataclass(frozen=True)
class Arm:
    """One row of the comparison."""

    name: str
    reward: str
    """Reward scheme."""
    refit_every: int = 0
    """Steps between refits of the world model on what was executed; 0 keeps it as the warm-up left it."""
    length: float = 1.0
    """Steps relative to the comparison's; the rival that executes little is given more, up to equal cost."""

    @property
    def world_model(self) -> str:
        """How the world model is used, in a word for the table."""
        if self.reward in ("real", "anchors-only"):
            return "none"
        return "learning" if self.refit_every else "frozen"


ARMS: tuple[Arm, ...] = (
    Arm("real", "real"),
    Arm("anchors-only", "anchors-only", length=2.5),
    Arm("world-model", "world-model"),
    *(
        Arm(f"{scheme}-{kind}", scheme, refit)
        for scheme in ("mixed", "denoise", "debias", "paper", "rectified")
        for kind, refit in (("frozen", 0), ("learning", 5))
    ),
)
"""Real execution, its cheap version, the raw world model, and each scheme with the world model frozen and learning."""


@dataclass(frozen=True)
class Comparison:
    """What is compared."""

    tasks: tuple[str, ...] = ("titanic", "weather", "anes96")
    arms: tuple[str, ...] = tuple(arm.name for arm in ARMS)
    seeds: int = 24
    tuning_seeds: int = 2
    learning_rates: tuple[float, ...] = (0.06, 0.12, 0.25, 0.5)
    base: TrainConfig = TrainConfig(sandbox="replay", warmup_source="recordings", evaluation_rollouts=0)
    """Settings that all runs share."""

    def __post_init__(self) -> None:
        """Refuse unknown arms and too few seeds for a standard error."""
        known = [arm.name for arm in ARMS]
        for name in self.arms:
            if name not in known:
                raise ConfigurationError(f"unknown arm {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}")
        if self.seeds < 2 or self.tuning_seeds < 1:
            raise ConfigurationError(
                f"a standard error needs at least 2 seeds and 1 to tune on, got {self.seeds} and {self.tuning_seeds}"
            )

    @property
    def chosen(self) -> tuple[Arm, ...]:
        """The arms themselves."""
        return tuple(arm for arm in ARMS if arm.name in self.arms)

    def tuning_jobs(self) -> list[Job]:
        """Return the runs that choose each arm's step size."""
        seeds = range(TUNING_SEED, TUNING_SEED + self.tuning_seeds)
        return [
            self._job(arm, task, seed, rate)
            for seed in seeds
            for task in self.tasks
            for arm in self.chosen
            for rate in self.learning_rates
        ]

    def final_jobs(self, rates: dict[str, Iterable[float]]) -> list[Job]:
        """Return the runs that are reported, given each arm's step sizes."""
        return [
            self._job(arm, task, seed, rate)
            for seed in range(self.seeds)
            for task in self.tasks
            for arm in self.chosen
            for rate in sorted(set(rates[arm.name]))
        ]

    def _job(self, arm: Arm, task: str, seed: int, rate: float) -> Job:
        config = replace(
            self.base,
            task=task,
            reward=arm.reward,
            refit_every=arm.refit_every,
            steps=round(self.base.steps * arm.length),
            learning_rate=rate,
            seed=seed,
        )
        return Job(arm.name, config)


@dataclass(frozen=True)
class Job:
    """One training run of the comparison."""

    arm: str
    config: TrainConfig

    @property
    def rate(self) -> float:
        """The step size, which a comparison always sets."""
        assert self.config.learning_rate is not None
        return self.config.learning_rate

    def path(self, folder: Path) -> Path:
        """Return the file that holds, or will hold, the run's curve."""
        runs = folder / self.config.actions / self.config.task / self.arm
        return runs / f"rate-{self.rate:g}" / f"seed-{self.config.seed}.json"


def run_job(job: Job, folder: Path) -> None:
    """Train one run and write its curve; a run whose file exists is left alone.

    The file holds the configuration and, per step from 0 (the untrained agent) on: ``report``, the expected report-half
    reward of the policy over the recorded outcomes; ``seconds``, the CPU seconds of real execution so far, warm-up
    included and every execution charged; ``cached_seconds``, the same if repeating a solution were free;
    ``prediction_seconds``, what the world model took; ``executions``.

    Raises:
        ConfigurationError: If the file holds a run of other settings.
    """
    path = job.path(folder)
    if path.exists():
        saved = json.loads(path.read_text(encoding="utf-8"))["config"]
        if saved != json.loads(json.dumps(job.config.to_dict())):
            raise ConfigurationError(f"{path} holds a run of other settings; remove it, or compare in another folder")
        return
    import torch

    from wmrl_envs.train import Run

    torch.set_num_threads(1)
    torch.manual_seed(job.config.seed)
    expected = ExpectedReport(job.config)
    run = Run(job.config, evaluate=lambda agent: {"report": expected(agent)}, evaluate_every=1)
    try:
        first = expected(run.agent)
        run.learn()
    finally:
        run.close()
    rows = run.recorder.rows
    curve = {
        "report": [first, *(row["report"] for row in rows)],
        "seconds": [0.0, *(row["execution_seconds"] for row in rows)],
        "cached_seconds": [0.0, *(row["execution_seconds"] - row["repeated_seconds"] for row in rows)],
        "prediction_seconds": [0.0, *(row["prediction_seconds"] for row in rows)],
        "executions": [0, *(row["executions"] for row in rows)],
        "real": [row.get("real_reward") for row in rows],
        "predicted": [row.get("predicted_reward") for row in rows],
        "lambda": [row.get("lambda") for row in rows],
    }
    write_json(path, {"arm": job.arm, "config": job.config.to_dict(), "curve": curve})


class ExpectedReport:
    """The exact reported score of a policy over a fully recorded design space, for episodes of one turn."""

    def __init__(self, config: TrainConfig) -> None:
        """Load the recorded report-half rewards.

        Args:
            config: A run on the replay sandbox with one turn.

        Raises:
            ConfigurationError: If episodes have several turns: their score is a best of many, no expectation over
                members.
        """
        import gymnasium as gym

        import wmrl_envs  # noqa: F401  (registers the environments)

        if config.turns != 1:
            raise ConfigurationError(f"the exact reported score needs episodes of one turn, got turns={config.turns}")
        env: Any = gym.make(
            "wmrl/ResearchDesign-v0", tasks=config.task, blocks=config.actions, sandbox="replay", max_turns=1
        ).unwrapped
        self._observation, _ = env.reset(seed=0)
        space = env.design_space
        self._members: NDArray[np.int64] = np.array([space.choices(index) for index in range(space.size)])
        self._rewards: NDArray[np.float64] = env.grader.expected_report(env.tasks[0])
        env.close()

    def __call__(self, agent: Any) -> float:
        """Return the expectation under the agent's action probabilities at the start of an episode."""
        return float(self.probabilities(agent) @ self._rewards)

    def probabilities(self, agent: Any) -> NDArray[np.float64]:
        """Return the agent's probability of each member of the design space, float64 [size]; they sum to 1."""
        import torch

        with torch.no_grad():
            parts = agent.policy.get_distribution(agent.policy.obs_to_tensor(self._observation)[0]).distribution
        probabilities = np.ones(len(self._members))
        for column, part in enumerate(parts):
            probabilities *= part.probs[0].double().numpy()[self._members[:, column]]
        normalised: NDArray[np.float64] = probabilities / probabilities.sum()
        return normalised


def run_jobs(
    jobs: Sequence[Job], folder: Path, *, workers: int | None = None, done: Callable[[int, int], None] | None = None
) -> None:
    """Run the jobs that are not on disk yet, in parallel processes.

    Args:
        jobs: The runs.
        folder: Where their curves are.
        workers: Processes; ``None`` takes one per core.
        done: Called with (finished, total) after each.
    """
    missing = [job for job in jobs if not job.path(folder).exists()]
    finished = len(jobs) - len(missing)
    if done is not None:
        done(finished, len(jobs))
    if not missing:
        return
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers or os.cpu_count()) as pool:
        for _ in pool.imap_unordered(_Runner(folder), missing):
            finished += 1
            if done is not None:
                done(finished, len(jobs))


@dataclass(frozen=True)
class _Runner:
    folder: Path

    def __call__(self, job: Job) -> None:
        run_job(job, self.folder)
