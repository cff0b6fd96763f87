"""One training run: an agent on the wrapped environment, with everything it leaves in its run folder."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmrl_envs.calibration_history import CalibrationHistory
from wmrl_envs.checkpoint import (
    checkpoints,
    load_agent,
    load_newest,
    load_state,
    restore_random_state,
    restoring,
    save_checkpoint,
)
from wmrl_envs.config import TrainConfig
from wmrl_envs.errors import CheckpointError, ConfigurationError, MissingExtraError
from wmrl_envs.evaluate import evaluate
from wmrl_envs.files import write_json, write_text
from wmrl_envs.research.grading import Submission
from wmrl_envs.run_files import MetricsFile, versions, write_calibration, writing_to
from wmrl_envs.tracking import Tracker, find_tracker
from wmrl_envs.trajectories import TrajectoryLog

try:
    import torch
    from stable_baselines3.common.callbacks import BaseCallback, CallbackList
    from stable_baselines3.common.vec_env import VecMonitor

    from wmrl_envs.agents import CorrectionCallback, SB3VecEnv
    from wmrl_envs.building import build_agent, build_env
    from wmrl_envs.figures import draw_figures
    from wmrl_envs.recorder import Recorder, TrainingEnded
    from wmrl_envs.trajectory_recorder import TrajectoryRecorder
except ImportError as error:
    raise MissingExtraError(
        f"training needs torch, stable-baselines3, tensorboard and matplotlib ({error}): "
        "pip install 'wmrl-envs[agents]'"
    ) from error

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

__all__ = ["Run", "held_already", "train"]

EVALUATION_SEED = 1_000_003
"""Added to the run's seed, so that evaluations before and after see the same episodes and training sees others."""

Row = dict[str, Any]
_runs = itertools.count()


class Run:
    """A training run that can be stopped at any moment and taken up again.

    Attributes:
        config: The settings.
        folder: Where everything goes; ``None`` keeps the run in memory (comparisons).
        env: The wrapped vector environment.
        agent: The agent.
        recorder: The numbers so far.
        trajectories: The episodes so far.
        history: The calibration so far.
        tracker: Gets each row; no tracker unless set.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: Path | None = None,
        *,
        evaluate: Callable[[Any], dict[str, float]] | None = None,
        evaluate_every: int = 0,
        on_step: Callable[[Row], None] | None = None,
    ) -> None:
        """Build the environment and the agent; nothing is executed yet.

        Args:
            config: The settings.
            folder: Run folder, made if missing; ``None`` writes nothing.
            evaluate: Numbers to add to the row of each ``evaluate_every``-th step, from the agent.
            evaluate_every: Steps between these evaluations; 0 has none.
            on_step: Called with each completed row.
        """
        self.config, self.folder, self._on_step = config, folder, on_step
        self.env: Any = build_env(config, run=f"train-{next(_runs)}")
        try:
            self.vec_env = VecMonitor(SB3VecEnv(self.env))
            self.agent = build_agent(config, self.vec_env, None if folder is None else folder / "tensorboard")
        except BaseException:
            self.env.close()
            raise
        self.recorder = Recorder(after_step=self._after_step, evaluate=evaluate, evaluate_every=evaluate_every)
        self.trajectories = TrajectoryRecorder(lambda: self.recorder.step + 1)
        self.history = CalibrationHistory()
        self.tracker = Tracker(None, Path(), {})
        self._metrics = MetricsFile(folder or Path())

    @property
    def finished(self) -> bool:
        """Whether the configured steps or budget are used up."""
        rows, budget = self.recorder.rows, self.config.budget_seconds
        spent = budget is not None and bool(rows) and rows[-1]["execution_seconds"] >= budget
        return spent or len(rows) >= self.config.steps

    def learn(self) -> None:
        """Train up to the configured steps or budget, from wherever the run stands."""
        if self.finished:
            return
        self.recorder.start_clock()
        # An agent of one's own may take more environment steps per update than one episode.
        update = getattr(self.agent, "n_steps", self.config.turns) * self.vec_env.num_envs
        if self.recorder.step == 0:
            self.env.set_progress(0.0)  # the first episodes begin before any callback is asked
        # The trajectories' rollouts end before the recorder counts the step.
        watching = [] if self.folder is None else [self.trajectories]
        callbacks: list[BaseCallback] = [CorrectionCallback(), *watching, self.recorder]
        try:
            self.agent.learn(
                (self.config.steps - self.recorder.step) * update,
                callback=CallbackList(callbacks),
                log_interval=None if self.folder is None else 1,  # type: ignore[arg-type]  # None logs nothing
                tb_log_name=self.config.agent.rpartition(":")[2],
                reset_num_timesteps=self.recorder.step == 0,
            )
        except TrainingEnded:
            pass

    def _after_step(self, recorder: Recorder) -> bool:
        if self.folder is not None:
            self._write(self.folder)
            if self.finished or recorder.step % self.config.checkpoint_every == 0:
                self.checkpoint()
        self.tracker.log(recorder.rows[-1])
        if self._on_step is not None:
            self._on_step(recorder.rows[-1])
        return not self.finished

    def _write(self, folder: Path) -> None:
        self._metrics.write(self.recorder.rows)
        TrajectoryLog(folder).append(self.trajectories.take())
        knots = self.env.calibration()["knots"]
        self.history.note(self.recorder.step, knots["predicted"], knots["real"])
        self.history.write(folder)

    def checkpoint(self) -> Path:
        """Write the whole state of the run to its folder, and return the checkpoint's."""
        assert self.folder is not None
        state = {
            "config": self.config.to_dict(),
            "env": self.env.unwrapped.state_dict(),
            "correction": self.env.state_dict(),
            "recorder": self.recorder.state_dict(),
            "trajectories": self.trajectories.state_dict(),
            "history": self.history.state_dict(),
        }
        agent = self.agent
        return save_checkpoint(
            self.folder / "checkpoints", self.recorder.step, lambda place: agent.save(place / "agent.zip"), state
        )

    def restore(self) -> bool:
        """Take the run up at its newest checkpoint that can be read; a broken one costs a warning.

        Returns:
            Whether there was one; without one the run stands at its beginning.

        Raises:
            CheckpointError: If none can be read, or it belongs to other settings than steps and budget allow for.
            ConfigurationError: If it has taken more steps than are configured.
        """
        assert self.folder is not None
        folder = self.folder / "checkpoints"
        if not checkpoints(folder):
            return False
        agent, state = load_newest(folder, self._load)
        with restoring(folder):
            saved, wanted = TrainConfig.from_dict(state["config"]).located(), self.config
        if replace(saved, steps=wanted.steps, budget_seconds=wanted.budget_seconds) != wanted:
            raise CheckpointError(
                f"{self.folder} was made with other settings: {_difference(saved, wanted)}; start a run of its own "
                "for these"
            )
        if wanted.steps < state["step"]:
            raise ConfigurationError(
                f"{self.folder} has taken {state['step']} steps, more than steps={wanted.steps}; resume it with at "
                f"least {state['step']}"
            )
        self.agent = agent
        with restoring(folder):
            self.env.unwrapped.load_state_dict(state["env"])
            self.env.load_state_dict(state["correction"])
            self.recorder.load_state_dict(state["recorder"])
            self.trajectories.load_state_dict(state["trajectories"])
            self.history.load_state_dict(state["history"])
            restore_random_state(state["random"])
        return True

    def _load(self, path: Path) -> tuple[BaseAlgorithm, dict[str, Any]]:
        state = load_state(path)
        return load_agent(path, type(self.agent), self.vec_env), state

    def close(self) -> None:
        """Close the environment with its sandbox."""
        self.vec_env.close()


def train(
    config: TrainConfig,
    folder: Path,
    *,
    resume: bool = False,
    track: str | None = None,
    on_step: Callable[[Row], None] | None = None,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> dict[str, Any]:
    """Train an agent, evaluate it before and after, and leave a run folder.

    The folder holds config.json, versions.json, metrics.csv, trajectories.jsonl, TensorBoard events, checkpoints, the
    best solutions, calibration.json, calibration_history.json, figures and summary.json.

    Args:
        config: The settings.
        folder: The run folder. It must hold no run unless ``resume`` is set.
        resume: Go on from the newest checkpoint, or from the beginning if the run stopped before its first one.
        track: ``wandb`` or ``trackio``, which then gets the rows, the settings and the figures too.
        on_step: Called with each step's row of metrics.
        on_phase: Called with a few words on what begins.

    Returns:
        The summary, as in summary.json: configuration, evaluations before and after, ledger, best solutions.

    Raises:
        CheckpointError: If there is nothing to resume, the folder already holds a run, or it cannot be written to.
    """
    torch.set_num_threads(1)  # the networks are tiny: more threads than free cores slow them by an order of magnitude
    tracker_module = find_tracker(track)
    if not resume and (folder / "config.json").exists():
        raise held_already(folder)
    config = config.located()
    run = Run(config, folder, on_step=on_step)
    try:
        restored = resume and run.restore()
        with writing_to(folder):
            TrajectoryLog(folder).drop_after(run.recorder.step)
            run.history.write(folder)
            write_json(folder / "config.json", config.to_dict())
            if not restored:
                write_json(folder / "versions.json", versions())
            run.tracker = Tracker(tracker_module, folder, config.to_dict())
            summary = _train(run, folder, on_phase)
        run.tracker.finish(folder, summary)
        return summary
    finally:
        run.tracker.finish()
        run.close()


def _train(run: Run, folder: Path, on_phase: Callable[[str], None]) -> dict[str, Any]:
    """Take a run from where it stands to its end; return the summary."""
    if not (folder / "before.json").exists():
        on_phase("evaluating the untrained agent")
        write_json(folder / "before.json", _evaluation(run))
    on_phase("training")
    run.learn()
    on_phase("evaluating the trained agent")
    after = _evaluation(run)
    summary = {
        "config": run.config.to_dict(),
        "steps": run.recorder.step,
        "before": json.loads((folder / "before.json").read_text(encoding="utf-8")),
        "after": after,
        "best_solutions": _best_solutions(run, folder, after),
        "ledger": run.env.ledger.summary(),
    }
    write_calibration(folder, run.recorder.pairs, run.env.calibration()["knots"])
    write_json(folder / "summary.json", summary)
    on_phase("drawing the figures")
    draw_figures(folder)
    return summary


def held_already(folder: Path) -> CheckpointError:
    """Return the error of a new run whose folder holds one, with the ways on."""
    if checkpoints(folder / "checkpoints"):
        return CheckpointError(
            f"{folder} already holds a run; go on with it by --resume, or name another folder by --out"
        )
    return CheckpointError(
        f"{folder} already holds a run, which stopped before its first checkpoint: begin it again by --resume, or for "
        "other settings delete the folder or name another by --out"
    )


def _evaluation(run: Run) -> dict[str, Any] | None:
    config = run.config
    if config.evaluation_rollouts == 0:
        return None
    seed = config.seed + EVALUATION_SEED
    grader = run.env.unwrapped.grader
    return asdict(evaluate(run.agent, config, episodes=config.evaluation_rollouts, seed=seed, sandbox=grader))


def _best_solutions(run: Run, folder: Path, after: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Execute each task's solution of the highest training-half reward once more, and write it down with its scores."""
    solutions = []
    base = run.env.unwrapped
    for task in base.tasks:
        found = [best[task.id] for best in (run.recorder.best, after["best"] if after else {}) if task.id in best]
        if not found:
            continue
        code = max(found, key=lambda best: float(best["reward"]))["code"]
        path = folder / ("best_solution.py" if len(base.tasks) == 1 else f"best_solution_{task.id}.py")
        write_text(path, code)
        outcome = base.grader.grade([Submission(task, code, seed=run.config.seed)])[0]
        scores = ("status", "reward", "score", "report_reward")
        executed = {name: None if outcome is None else getattr(outcome, name) for name in scores}
        solutions.append({"task": task.id, "file": path.name, **executed})
    return solutions


def _difference(saved: TrainConfig, wanted: TrainConfig) -> str:
    before, after = saved.to_dict(), wanted.to_dict()
    return ", ".join(
        f"{name} was {before[name]!r}, now {after[name]!r}" for name in before if before[name] != after[name]
    )
