"""Reward schemes for robots against each other: one multi-task policy, paired seeds, goals that nobody trained on.

Every stage leaves its results as JSON in the comparison's folder and is not repeated, so that a comparison that was
killed goes on where it stood.

1. Two progress models, a good and a weak one, are trained from demonstrations and never touched again.
2. On tuning seeds each arm's learning rate is chosen from one grid.
3. On the other seeds every arm fine-tunes the same imitating policy, from the same initial states.
"""

from __future__ import annotations

import json
import multiprocessing
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

from wmrl_envs.errors import CheckpointError, ConfigurationError
from wmrl_envs.files import write_json
from wmrl_envs.robotics.demonstrations import Rollout, collect
from wmrl_envs.robotics.envs import MetaWorldVectorEnv
from wmrl_envs.robotics.evaluation import success_rates
from wmrl_envs.robotics.finetune import FinetuneConfig, RobotTrainer
from wmrl_envs.robotics.policy import SmallVLA, imitate
from wmrl_envs.robotics.progress import Progress, spaced_frames, trajectory_reward
from wmrl_envs.robotics.video_model import VideoProgressModel, train_video_model

__all__ = ["ARMS", "ComparisonConfig", "compare_rewards", "progress_quality"]

_MODEL_SEED, _HELD_OUT_SEED, _TUNING_SEED, _GOAL_SEED = 9_000, 9_001, 10_000, 777
"""Streams of random numbers that never meet: the seeds of runs count from 0."""


@dataclass(frozen=True)
class Arm:
    """One way to make rewards."""

    title: str
    """In words, for tables."""
    settings: dict[str, Any]
    """Of ``FinetuneConfig``."""
    models: tuple[str, ...] = ("good", "weak")
    """Progress models that it is run with; empty where it needs none."""


_GRPO: dict[str, Any] = {"scale": "standardise"}
_PAPER: dict[str, Any] = {"reward_kind": "shaped", "learn": False, **_GRPO}
ARMS = {
    "anchors": Arm("real success on the anchors alone", {"reward": "anchors-only", **_GRPO}, ()),
    "progress": Arm("progress alone", {"reward": "world-model", **_PAPER}),
    "paper": Arm("progress + anchors, the paper's corrections", {"reward": "paper", **_PAPER}),
    "ours": Arm("success predicted by a model that learns from the anchors", {"reward": "mixed", "scale": "centre"}),
    "real": Arm("real success everywhere", {"reward": "real", **_GRPO}, ()),
}
"""The arms by name."""


@dataclass(frozen=True, kw_only=True)
class ComparisonConfig:
    """What a comparison is made of."""

    tasks: str = "button-press,drawer-open,window-open"
    """Meta-World tasks, separated by commas; one policy does all of them."""
    seeds: int = 8
    """Paired seeds: one imitating policy each."""
    tuning_seeds: int = 2
    """Other seeds, on which learning rates are chosen."""
    learning_rates: tuple[float, ...] = (3e-5, 1e-4, 3e-4)
    """The grid, the same for all arms."""
    demonstrations: int = 2
    """Expert rollouts of each task for imitation."""
    imitation_steps: int = 300
    """Optimiser steps of imitation."""
    steps: int = 20
    """Steps of fine-tuning; each one 80 rollouts, 8 of them labelled."""
    max_decisions: int = 12
    """Decisions per rollout."""
    goals: int = 100
    """Fresh initial states of each task on which policies are evaluated; a third of them while tuning."""
    model_demonstrations: int = 40
    """Expert rollouts of each task for the good progress model, and twice as many disturbed ones; the weak one sees an
    eighth of the experts, and no failure."""
    model_steps: int = 600
    """Optimiser steps of the good progress model; the weak one has a third."""
    workers: int = 2
    """Processes."""

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> ComparisonConfig:
        """Return the settings that were written as JSON."""
        known = {entry.name for entry in fields(cls)}
        read: dict[str, Any] = {name: value for name, value in settings.items() if name in known}
        return cls(**read | {"learning_rates": tuple(read["learning_rates"])})

    @property
    def task_names(self) -> list[str]:
        """The tasks as a list."""
        return [name.strip() for name in self.tasks.split(",")]

    @property
    def scene(self) -> dict[str, Any]:
        """Arguments of every environment."""
        return {"draw_arm": False, "max_decisions": self.max_decisions}


@dataclass(frozen=True)
class Job:
    """One run: an arm on one seed."""

    arm: str
    """``"sft"`` evaluates the imitating policy."""
    model: str
    """``"good"``, ``"weak"`` or, without one, ``"none"``."""
    seed: int
    learning_rate: float
    goals: int

    @property
    def file(self) -> str:
        """Name of its result."""
        return f"{self.arm}-{self.model}-{self.seed}-{self.learning_rate:g}.json"


def compare_rewards(
    config: ComparisonConfig, folder: Path, *, on_phase: Callable[[str], None] = lambda phase: None
) -> dict[str, Any]:
    """Run what is not done yet and return all results.

    Args:
        config: The settings; a folder keeps to those that it was begun with, ``workers`` aside.
        folder: Where results are kept.
        on_phase: Called with a few words on what begins or has ended.

    Returns:
        ``config``, ``quality`` of the progress models, ``tuning`` and ``learning_rates`` by arm, and ``runs``: one
        dictionary per run with ``arm``, ``model``, ``seed``, ``success`` by task and ``labels``.

    Raises:
        CheckpointError: If the folder belongs to other settings.
        ConfigurationError: If a number cannot work.
    """
    _check(config)
    _claim(config, folder)
    on_phase("progress models")
    quality = _progress_models(config, folder)
    rates = sorted(config.learning_rates)
    tuning = [
        Job(arm, ARMS[arm].models[0] if ARMS[arm].models else "none", _TUNING_SEED + seed, rate, _fewer(config.goals))
        for seed in range(config.tuning_seeds)
        for arm in ARMS
        for rate in rates
    ]
    tuned = _run(config, folder / "tuning", tuning, on_phase)
    chosen = {arm: _best_rate(tuned, arm, rates) for arm in ARMS}
    jobs = [job for seed in range(config.seeds) for job in _jobs(seed, chosen, config.goals)]
    jobs.sort(key=lambda job: job.model == "weak")  # what is done first can be reported first
    runs = _run(config, folder / "runs", jobs, on_phase)
    results = {
        "config": asdict(config),
        "quality": quality,
        "tuning": tuned,
        "learning_rates": chosen,
        "runs": runs,
    }
    write_json(folder / "results.json", results)
    return results


def progress_quality(model: VideoProgressModel, held_out: Sequence[Rollout]) -> dict[str, float | None]:
    """Return how good a progress model is on demonstrations that it was not trained on.

    Returns:
        ``rank_correlation`` of progress with time until success, mean over expert rollouts; and by task on average how
        often a success is ranked above a failure, by the ``shaped`` reward of arXiv 2608.12564 and by ``success``;
        ``None`` where there are no such rollouts.
    """
    scores = model.score([rollout.frames for rollout in held_out], [rollout.instruction for rollout in held_out])
    found = [score for score in scores if score is not None]
    quality = {"rank_correlation": _mean_or_none(list(_rank_correlations(held_out, found)))}
    for kind in ("shaped", "success"):
        rewards = np.array([trajectory_reward(_thinned(score), kind) for score in found])
        quality[f"{kind}_auc"] = _mean_or_none(list(_ranked_right(held_out, rewards)))
    return quality


def _mean_or_none(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _rank_correlations(rollouts: Sequence[Rollout], scores: Sequence[Progress]) -> Iterator[float]:
    for rollout, score in zip(rollouts, scores, strict=True):
        if rollout.kind == "expert" and rollout.success:
            end = int(np.argmax(rollout.solved)) + 1
            yield float(spearmanr(score.progress[:end], np.arange(end)).statistic)


def _ranked_right(rollouts: Sequence[Rollout], rewards: NDArray[np.float64]) -> Iterator[float]:
    """Yield by task the share of pairs of a success and a failure that rewards rank right, ties counting half."""
    solved = np.array([rollout.success for rollout in rollouts])
    tasks = np.array([rollout.task for rollout in rollouts])
    for task in dict.fromkeys(tasks.tolist()):
        good, bad = rewards[solved & (tasks == task)], rewards[~solved & (tasks == task)]
        if len(good) and len(bad):
            margin = good[:, None] - bad[None]
            yield float((margin > 0).mean() + 0.5 * (margin == 0).mean())


def _thinned(score: Progress) -> Progress:
    shown = spaced_frames(len(score.progress), 8)
    return Progress(score.progress[shown], None if score.success is None else score.success[shown])


def _fewer(goals: int) -> int:
    return max(1, goals // 3)


def _jobs(seed: int, rates: dict[str, float], goals: int) -> list[Job]:
    jobs = [Job("sft", "none", seed, 0.0, goals)]
    for name, arm in ARMS.items():
        jobs += [Job(name, model, seed, rates[name], goals) for model in arm.models or ("none",)]
    return jobs


def _best_rate(tuned: Sequence[dict[str, Any]], arm: str, rates: Sequence[float]) -> float:
    """Return the learning rate of the highest success on the tuning seeds; the smaller one where two are equal."""
    means = [
        np.mean([run["mean_success"] for run in tuned if run["arm"] == arm and run["learning_rate"] == rate])
        for rate in rates
    ]
    return float(rates[int(np.argmax(means))])


def _run(
    config: ComparisonConfig, folder: Path, jobs: Sequence[Job], on_phase: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Run the jobs that have no result yet, and return the results of all in their order."""
    missing = [job for job in jobs if not (folder / job.file).exists()]
    if missing:
        context = multiprocessing.get_context("spawn")  # a forked OpenGL context draws nothing
        with ProcessPoolExecutor(config.workers, mp_context=context) as pool:
            waiting = {pool.submit(_work, config, folder, job): job for job in missing}
            for done, future in enumerate(as_completed(waiting), 1):
                result = future.result()
                on_phase(
                    f"{folder.name} {done}/{len(missing)}: {result['arm']} ({result['model']}) seed {result['seed']}, "
                    f"rate {result['learning_rate']:g}: {result['mean_success']:.3f}"
                )
    return [json.loads((folder / job.file).read_text(encoding="utf-8")) for job in jobs]


def _work(config: ComparisonConfig, folder: Path, job: Job) -> dict[str, Any]:
    """Do one job in a worker process, and write its result."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Constant")  # the experts' own, at every start
    root = folder.parent
    policy = _imitating_policy(config, root / "imitation" / str(job.seed), job.seed)
    labels, rows = 0.0, []
    if job.arm != "sft":
        arm = ARMS[job.arm]
        settings = FinetuneConfig(
            tasks=config.tasks,
            steps=config.steps,
            learning_rate=job.learning_rate,
            seed=job.seed,
            **config.scene,
            **arm.settings,
        )
        model = VideoProgressModel.load(root / "progress" / job.model) if arm.models else None
        trainer = RobotTrainer(settings, policy, model)
        try:
            rows = [trainer.train_step() for _ in range(config.steps)]
        finally:
            trainer.close()
        labels = sum(row["labels"] for row in rows)
    result = {**asdict(job), **_evaluation(config, policy, job), "labels": labels, "rows": rows}
    write_json(folder / job.file, result)
    return result


def _evaluation(config: ComparisonConfig, policy: SmallVLA, job: Job) -> dict[str, Any]:
    goals = np.random.default_rng([_GOAL_SEED, job.seed]).integers(2**31, size=job.goals).tolist()
    env = MetaWorldVectorEnv(min(job.goals, 50), config.task_names, **config.scene)
    try:
        solved = success_rates(policy, env, goals)
    finally:
        env.close()
    rates = {task: float(found.mean()) for task, found in solved.items()}
    return {"success": rates, "mean_success": float(np.mean(list(rates.values())))}


def _imitating_policy(config: ComparisonConfig, folder: Path, seed: int) -> SmallVLA:
    """Return where all arms of a seed start; whichever comes first makes it."""
    if not (folder / "policy.json").exists():
        torch.manual_seed(seed)
        policy = SmallVLA()
        rollouts = collect(config.task_names, config.demonstrations, seed=seed, **config.scene)
        imitate(policy, rollouts, steps=config.imitation_steps, seed=seed)
        policy.save(folder)
    return SmallVLA.load(folder)


def _progress_models(config: ComparisonConfig, folder: Path) -> dict[str, dict[str, float | None]]:
    """Train both progress models, where that is not done, and return how good they are."""
    done = folder / "progress" / "quality.json"
    if not done.exists():
        torch.set_num_threads(1)
        experts = config.model_demonstrations
        rollouts = collect(config.task_names, experts, perturbed=2 * experts, seed=_MODEL_SEED, **config.scene)
        held_out = collect(config.task_names, 15, perturbed=30, seed=_HELD_OUT_SEED, **config.scene)
        good = train_video_model(rollouts, steps=config.model_steps)
        few = [r for task in config.task_names for r in _experts(rollouts, task)[: max(1, experts // 8)]]
        weak = train_video_model(few, steps=max(1, config.model_steps // 3), preference=False)
        quality = {}
        for name, model in (("good", good), ("weak", weak)):
            model.save(folder / "progress" / name)
            quality[name] = progress_quality(model, held_out)
        write_json(done, quality)
    found: dict[str, dict[str, float | None]] = json.loads(done.read_text(encoding="utf-8"))
    return found


def _experts(rollouts: Sequence[Rollout], task: str) -> list[Rollout]:
    return [rollout for rollout in rollouts if rollout.task == task and rollout.kind == "expert"]


def _claim(config: ComparisonConfig, folder: Path) -> None:
    path = folder / "config.json"
    if path.exists():
        begun = ComparisonConfig.from_dict(json.loads(path.read_text(encoding="utf-8")))
        before, now = asdict(begun) | {"workers": 0}, asdict(config) | {"workers": 0}
        # More seeds go on; every other setting would mix two comparisons.
        differing = [name for name in before if before[name] != now[name] and name != "seeds"]
        if differing:
            raise CheckpointError(
                f"{folder} holds a comparison with other settings: "
                + ", ".join(f"{name} was {before[name]!r}, now {now[name]!r}" for name in differing)
                + "; name another folder"
            )
    write_json(path, asdict(config))


def _check(config: ComparisonConfig) -> None:
    for name in ("seeds", "tuning_seeds", "steps", "goals", "model_demonstrations", "workers", "demonstrations"):
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigurationError(f"{name} must be a whole number of at least 1, got {value!r}")
    if not config.learning_rates or min(config.learning_rates) <= 0.0:
        raise ConfigurationError(f"learning_rates must be numbers above 0, got {config.learning_rates!r}")
