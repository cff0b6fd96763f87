"""One run that fine-tunes a robot policy: demonstrations, imitation, a progress model, and corrected rewards."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch.utils.tensorboard import SummaryWriter

from wmrl_envs.checkpoint import checkpoints, load_newest, load_state, restoring, save_checkpoint
from wmrl_envs.config import located
from wmrl_envs.errors import CheckpointError, ConfigurationError, check_settings
from wmrl_envs.figures_robot import draw_robot_figures
from wmrl_envs.files import write_json
from wmrl_envs.robot_log import RobotLog
from wmrl_envs.robotics.dataset import load_rollouts
from wmrl_envs.robotics.demonstrations import Rollout, collect
from wmrl_envs.robotics.envs import MetaWorldVectorEnv
from wmrl_envs.robotics.evaluation import success_rates
from wmrl_envs.robotics.finetune import FinetuneConfig, RobotTrainer
from wmrl_envs.robotics.policy import SmallVLA, imitate
from wmrl_envs.robotics.progress import ProgressModel, resolve_progress_model, score_videos
from wmrl_envs.robotics.video import draw_progress, write_video
from wmrl_envs.robotics.video_model import VideoProgressModel, train_video_model
from wmrl_envs.run_files import MetricsFile, versions, write_calibration, writing_to
from wmrl_envs.tracking import Tracker, find_tracker
from wmrl_envs.train import held_already

__all__ = ["RobotRunConfig", "train_robot"]

_DEMONSTRATION_SEED, _MODEL_SEED, _GOAL_SEED = 1_000_003, 2_000_003, 3_000_017
"""Added to the run's seed, so that the parts of a run never see one another's initial states."""

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RobotRunConfig:
    """What a run is made of; written to its folder as config.json, and enough to repeat it."""

    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    """The policy gradient's part."""
    demonstrations: str = "2"
    """Expert rollouts of each task for imitation, or a dataset's folder as ``wmrl robot collect`` leaves it."""
    imitation_steps: int = 300
    """Optimiser steps of imitation."""
    policy: str = ""
    """Folder of a small policy to start from in place of imitation."""
    progress_model: str = ""
    """A progress model by its name; empty trains the small one from ``progress_demonstrations``."""
    progress_demonstrations: int = 40
    """Expert rollouts of each task for the progress model, and twice as many disturbed ones."""
    progress_steps: int = 600
    """Optimiser steps of the progress model."""
    goals: int = 50
    """Fresh initial states of each task on which the policy is evaluated, before and after."""
    videos: int = 2
    """Rollouts of each task after training that are kept as videos with their progress; 0 films none at all, and
    otherwise two rollouts of the steps 1, 2, 4, 8 and so on are filmed too."""
    checkpoint_every: int = 2
    """Steps between checkpoints."""

    def __post_init__(self) -> None:
        """Refuse counts that cannot work."""
        least = {"imitation_steps": 1, "progress_demonstrations": 1, "progress_steps": 1, "goals": 1, "videos": 0}
        for name, low in (least | {"checkpoint_every": 1}).items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ConfigurationError(f"{name} must be a whole number of at least {low}, got {value!r}")
        if self.demonstrations.lstrip("-").isdigit() and int(self.demonstrations) < 1:
            raise ConfigurationError(
                f"demonstrations must be at least 1 or a dataset's folder, got {self.demonstrations}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return all settings in one level, JSON-able."""
        own = {name: value for name, value in asdict(self).items() if name != "finetune"}
        return self.finetune.to_dict() | own

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> RobotRunConfig:
        """Return the settings that ``to_dict`` gave.

        Raises:
            ConfigurationError: If a name is no setting, or a value cannot work.
        """
        inner = [entry.name for entry in fields(FinetuneConfig)]
        own = [entry.name for entry in fields(cls) if entry.name != "finetune"]
        check_settings(settings, [*inner, *own])
        finetune = FinetuneConfig.from_dict({name: value for name, value in settings.items() if name in inner})
        return cls(finetune=finetune, **{name: value for name, value in settings.items() if name in own})

    def located(self) -> RobotRunConfig:
        """Return the configuration with the folders that it names absolute, so that it means the same anywhere."""
        return replace(
            self,
            demonstrations=self.demonstrations if self.demonstrations.isdigit() else located(self.demonstrations),
            policy=located(self.policy),
            progress_model=located(self.progress_model, ("video", "robometer")),
        )

    @property
    def scene(self) -> dict[str, Any]:
        """Arguments that all environments of the run share."""
        names = ("image_size", "draw_arm", "hold", "max_decisions")
        return {name: getattr(self.finetune, name) for name in names}


class _Saved:
    """Policy and optimiser as a checkpoint holds them: safetensors, no pickle."""

    def __init__(self, trainer: RobotTrainer) -> None:
        self._trainer = trainer

    def save(self, folder: Path) -> None:
        self._trainer.policy.save(folder)
        moments = self._trainer.optimizer.state_dict()["state"]
        tensors = {f"{number}.{name}": value for number, own in moments.items() for name, value in own.items()}
        save_file(tensors, folder / "optimizer.safetensors")

    def load(self, folder: Path) -> None:
        self._trainer.policy.load_state_dict(SmallVLA.load(folder).state_dict())
        try:
            tensors = load_file(folder / "optimizer.safetensors")
        except Exception as error:
            raise CheckpointError(f"the optimiser of the checkpoint {folder} cannot be read: {error}") from error
        state = self._trainer.optimizer.state_dict()
        state["state"] = {}
        for key, value in tensors.items():
            number, _, name = key.partition(".")
            state["state"].setdefault(int(number), {})[name] = value
        self._trainer.optimizer.load_state_dict(state)


def train_robot(
    config: RobotRunConfig,
    folder: Path,
    *,
    resume: bool = False,
    track: str | None = None,
    on_step: Callable[[Row], None] = lambda row: None,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> dict[str, Any]:
    """Fine-tune a policy, evaluate it before and after, and leave a run folder.

    The folder holds config.json, versions.json, imitation/, progress/, metrics.csv, trajectories.jsonl, TensorBoard
    events, checkpoints, the policy, videos, calibration.json, calibration_history.json, figures and summary.json.
    Every part that is there is not done again.

    Args:
        config: The settings.
        folder: The run folder. It must hold no run unless ``resume`` is set.
        resume: Go on from where the run stopped.
        track: ``wandb`` or ``trackio``, which then gets the rows, the settings and the figures too.
        on_step: Called with each step's row of metrics.
        on_phase: Called with a few words on what begins.

    Returns:
        The summary, as in summary.json: configuration, success by task before and after, labels read.

    Raises:
        CheckpointError: If the folder holds a run and is not to be resumed, or one with other settings.
        ConfigurationError: If a setting cannot work.
    """
    torch.set_num_threads(1)  # small networks get slower with more
    tracker_module = find_tracker(track)
    config = config.located()
    _claim(config, folder, resume)
    on_phase("imitating demonstrations")
    policy = _imitated(config, folder / "imitation")
    on_phase("preparing the progress model")
    model = _progress_model(config, folder / "progress")
    trainer = RobotTrainer(config.finetune, policy, model)
    log = RobotLog(folder, films=config.videos > 0, fps=trainer.env.metadata["render_fps"])
    tracker = Tracker(tracker_module, folder, config.to_dict())

    def stepped(row: Row) -> None:
        tracker.log(row)
        on_step(row)

    try:
        before = _evaluated(config, policy, folder / "before.json", on_phase, "before")
        _restore(trainer, log, folder / "checkpoints")
        log.start(trainer.step)
        on_phase("fine-tuning")
        with writing_to(folder):
            _learn(config, trainer, log, folder, stepped)
        policy.save(folder / "policy")
        after = _evaluated(config, policy, folder / "after.json", on_phase, "after")
        on_phase("recording videos")
        if config.videos:
            _record(config, trainer.policy, model, folder / "videos")
        summary = {
            "config": config.to_dict(),
            "steps": trainer.step,
            "before": before,
            "after": after,
            "rollouts": int(sum(row["rollouts"] for row in trainer.rows)),
            "labels": int(sum(row["labels"] for row in trainer.rows)),
        }
        write_calibration(folder, log.pairs, trainer.env.calibration()["knots"])
        write_json(folder / "summary.json", summary)
        on_phase("drawing the figures")
        draw_robot_figures(folder)
        tracker.finish(folder, summary)
        return summary
    finally:
        tracker.finish()
        trainer.close()


def _claim(config: RobotRunConfig, folder: Path, resume: bool) -> None:
    path = folder / "config.json"
    if path.exists() and not resume:
        raise held_already(folder)
    if path.exists():
        saved = RobotRunConfig.from_dict(json.loads(path.read_text(encoding="utf-8"))).located()
        steps = replace(saved, finetune=replace(saved.finetune, steps=config.finetune.steps))
        if steps != config:
            was, now = saved.to_dict(), config.to_dict()
            differing = ", ".join(f"{n} was {was[n]!r}, now {now[n]!r}" for n in was if was[n] != now[n])
            raise CheckpointError(f"{folder} was made with other settings: {differing}; only steps may change")
        done = int(next(iter(checkpoints(folder / "checkpoints")), Path("step-0")).name.removeprefix("step-"))
        if config.finetune.steps < done:
            raise ConfigurationError(
                f"{folder} has taken {done} steps, more than steps={config.finetune.steps}; resume it with at least "
                f"{done}"
            )
        if saved != config:
            for name in ("after.json", "summary.json"):
                (folder / name).unlink(missing_ok=True)
    elif resume:
        raise CheckpointError(f"{folder} holds no run to resume (no config.json)")
    write_json(path, config.to_dict())
    if not (folder / "versions.json").exists():
        write_json(folder / "versions.json", versions())


def _imitated(config: RobotRunConfig, place: Path) -> SmallVLA:
    """Return the policy that fine-tuning starts from, imitating where that is not done."""
    if config.policy:
        return SmallVLA.load(Path(config.policy))
    if not (place / "policy.json").exists():
        finetune = config.finetune
        if config.demonstrations.isdigit():
            seed = finetune.seed + _DEMONSTRATION_SEED
            rollouts = collect(finetune.task_names, int(config.demonstrations), seed=seed, **config.scene)
        else:
            rollouts = _of_tasks(load_rollouts(config.demonstrations), config)
        torch.manual_seed(finetune.seed)
        policy = SmallVLA(image_size=finetune.image_size)
        imitate(policy, rollouts, steps=config.imitation_steps, seed=finetune.seed)
        policy.save(place)
    return SmallVLA.load(place)


def _of_tasks(rollouts: list[Rollout], config: RobotRunConfig) -> list[Rollout]:
    names = [name.removesuffix("-v3") for name in config.finetune.task_names]
    found = [rollout for rollout in rollouts if rollout.task in names]
    missing = sorted(set(names) - {rollout.task for rollout in found})
    if missing:
        raise ConfigurationError(
            f"{config.demonstrations} holds no demonstration of {', '.join(missing)}; it has "
            f"{', '.join(sorted({rollout.task for rollout in rollouts}))}: collect them with wmrl robot collect"
        )
    return found


def _progress_model(config: RobotRunConfig, place: Path) -> ProgressModel | None:
    """Return the progress model, training the small one where that is not done; ``None`` where none is needed."""
    if config.finetune.reward in ("real", "anchors-only"):
        return None
    if config.progress_model:
        return resolve_progress_model(config.progress_model)
    if not (place / "progress.json").exists():
        count, seed = config.progress_demonstrations, config.finetune.seed + _MODEL_SEED
        rollouts = collect(config.finetune.task_names, count, perturbed=2 * count, seed=seed, **config.scene)
        train_video_model(rollouts, steps=config.progress_steps, seed=config.finetune.seed).save(place)
    return VideoProgressModel.load(place)


def _restore(trainer: RobotTrainer, log: RobotLog, folder: Path) -> None:
    """Take the run up at its newest checkpoint that can be read; without one it stands at its beginning."""
    if not checkpoints(folder):
        return

    def load(path: Path) -> dict[str, Any]:
        state = load_state(path)
        _Saved(trainer).load(path)
        return state

    state = load_newest(folder, load)
    with restoring(folder):
        trainer.load_state_dict(state["trainer"])
        log.load_state_dict(state["log"])


def _learn(
    config: RobotRunConfig, trainer: RobotTrainer, log: RobotLog, folder: Path, on_step: Callable[[Row], None]
) -> None:
    steps, metrics = config.finetune.steps, MetricsFile(folder)
    with SummaryWriter(str(folder / "tensorboard"), purge_step=trainer.step + 1) as events:
        while trainer.step < steps:
            log.before_step(trainer)
            row = trainer.train_step()
            for name, value in row.items():
                events.add_scalar(f"robot/{name}", value, trainer.step)
            log.after_step(trainer)
            metrics.write(trainer.rows)
            if trainer.step == steps or trainer.step % config.checkpoint_every == 0:
                state = {"trainer": trainer.state_dict(), "log": log.state_dict()}
                save_checkpoint(folder / "checkpoints", trainer.step, _Saved(trainer).save, state)
            on_step(row)


def _evaluated(
    config: RobotRunConfig, policy: SmallVLA, path: Path, on_phase: Callable[[str], None], when: str
) -> dict[str, Any]:
    """Return success by task on fresh initial states, the same before and after."""
    if not path.exists():
        on_phase(f"evaluating the policy {when} fine-tuning")
        goals = np.random.default_rng([config.finetune.seed, _GOAL_SEED]).integers(2**31, size=config.goals).tolist()
        env = MetaWorldVectorEnv(min(config.goals, 50), config.finetune.task_names, **config.scene)
        try:
            solved = success_rates(policy, env, goals)
        finally:
            env.close()
        rates = {task: float(found.mean()) for task, found in solved.items()}
        everything = np.concatenate(list(solved.values())).astype(float)
        error = float(everything.std(ddof=1) / math.sqrt(len(everything))) if len(everything) > 1 else None
        write_json(path, {"success": rates, "mean": float(everything.mean()), "standard_error": error})
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _record(config: RobotRunConfig, policy: SmallVLA, model: ProgressModel | None, folder: Path) -> None:
    """Write rollouts of the trained policy as videos, what the progress model says drawn beside."""
    env = MetaWorldVectorEnv(config.videos, config.finetune.task_names, render_mode="rgb_array", **config.scene)
    generator = np.random.default_rng([config.finetune.seed, _GOAL_SEED, 1])
    try:
        for task in env.scene.task_names:
            states = generator.integers(2**31, size=config.videos).tolist()
            observations, infos = env.reset(options={"task": task, "initial_state": states})
            seen, shown = [observations["image"]], [env.render()]
            for _ in range(config.finetune.max_decisions):
                observations, _, _, _, infos = env.step(policy.act(observations, deterministic=True))
                seen.append(observations["image"])
                shown.append(env.render())
            instruction = observations["instruction"][0]
            videos = list(np.stack(seen, axis=1))
            scores = [None] * len(videos) if model is None else score_videos(model, videos, [instruction] * len(videos))
            for number, found in enumerate(scores):
                frames = np.stack([pictures[number] for pictures in shown if pictures is not None])
                drawn = draw_progress(
                    frames,
                    None if found is None else found.progress,
                    success=None if found is None else found.success,
                    real=bool(infos["success"][number]),
                    title=instruction,
                )
                write_video(folder / f"{task}-{states[number]}.mp4", drawn, fps=env.metadata["render_fps"])
    finally:
        env.close()
