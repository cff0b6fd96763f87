"""One training run: an agent on the wrapped environment, with everything it leaves in its run folder."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import platform
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import pandas as pd

import wmrl_envs  # noqa: F401  (registers the environments)
from wmrl_envs.checkpoint import latest_checkpoint, load_state, restore_random_state, save_checkpoint
from wmrl_envs.config import TrainConfig
from wmrl_envs.errors import CheckpointError, ConfigurationError, MissingExtraError
from wmrl_envs.evaluate import evaluate
from wmrl_envs.files import replacing, write_json, write_text
from wmrl_envs.research.grading import Submission

try:
    import torch
    from stable_baselines3.common.callbacks import BaseCallback, CallbackList
    from stable_baselines3.common.vec_env import VecMonitor

    from wmrl_envs.agents import CorrectionCallback, PriorPolicy, SB3VecEnv
    from wmrl_envs.recorder import Recorder
except ImportError as error:
    raise MissingExtraError(
        f"training needs torch and stable-baselines3 ({error}): pip install 'wmrl-envs[agents]'"
    ) from error

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

__all__ = ["Run", "agent_class", "build_agent", "build_env", "train"]

EVALUATION_SEED = 1_000_003
"""Added to the run's seed, so that evaluations before and after see the same episodes and training sees others."""


def build_env(config: TrainConfig, *, run: str) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Make the wrapped vector environment of a run.

    Args:
        config: The run's settings.
        run: Name under which wrapped environments of this process share one correction.
    """
    world_model_kwargs: dict[str, Any] = {}
    if config.world_model == "learned":
        world_model_kwargs = {
            "warmup": config.warmup,
            "warmup_source": config.warmup_source,
            "refit_every": config.refit_every,
            "seed": config.seed,
        }
    return gym.make_vec(
        "wmrl/ResearchDesignWMRL-v0",
        num_envs=config.num_envs,
        group_size=config.group_size,
        autoreset_mode=gym.vector.AutoresetMode.SAME_STEP,
        tasks=config.task,
        max_turns=config.turns,
        sandbox=config.sandbox,
        isolation=config.isolation,
        world_model=config.world_model,
        world_model_kwargs=world_model_kwargs,
        anchor_fraction=config.anchor_fraction,
        anchor_feedback=config.anchor_feedback,
        scheme=config.reward,
        ramp=config.ramp,
        seed=config.seed,
        run=run,
    )


def agent_class(name: str) -> type[BaseAlgorithm]:
    """Return an agent's class by its name or as ``module:Class``."""
    module, _, attribute = name.partition(":")
    if not attribute:
        module = "wmrl_envs.agents" if name == "grpo" else "stable_baselines3"
        attribute = name.upper()
    try:
        return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"agent {name!r} cannot be imported ({error}); write your own as 'module:Class'"
        ) from error


def build_agent(config: TrainConfig, env: Any, tensorboard: Path | None = None) -> BaseAlgorithm:
    """Make the agent of a run.

    Args:
        config: The run's settings; ``options`` go to the agent's constructor as they are.
        env: A stable-baselines3 ``VecEnv`` over ``build_env``'s.
        tensorboard: Folder of TensorBoard events, ``None`` for none.
    """
    settings: dict[str, Any] = {
        "learning_rate": config.learning_rate,
        "seed": config.seed,
        "device": "cpu",
        "tensorboard_log": None if tensorboard is None else str(tensorboard),
    }
    if config.agent in ("ppo", "a2c"):
        prior = [list(logits) for logits in env.get_attr("prior_logits")[0]]
        settings |= {"n_steps": config.turns, "policy_kwargs": {"prior_logits": prior}}
    if config.agent == "ppo":
        settings |= {"batch_size": config.steps_per_update}
    policy = PriorPolicy if ":" not in config.agent else "MlpPolicy"
    return agent_class(config.agent)(policy, env, **(settings | config.options))


class Run:
    """A training run that can be stopped at any moment and taken up again.

    Attributes:
        config: The settings.
        folder: Where everything goes; ``None`` keeps the run in memory (comparisons).
        env: The wrapped vector environment.
        agent: The agent.
        recorder: The numbers so far.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: Path | None = None,
        *,
        evaluate: Callable[[Any], dict[str, float]] | None = None,
        evaluate_every: int = 0,
        on_step: Callable[[dict[str, Any]], None] | None = None,
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
        self.env = build_env(config, run=f"{folder or id(self)}")
        self.vec_env = VecMonitor(SB3VecEnv(self.env))
        self.agent = build_agent(config, self.vec_env, None if folder is None else folder / "tensorboard")
        self.recorder = Recorder(after_step=self._after_step, evaluate=evaluate, evaluate_every=evaluate_every)

    def learn(self) -> None:
        """Train up to the configured steps or budget, from wherever the run stands."""
        remaining = (self.config.steps - self.recorder.step) * self.config.steps_per_update
        if remaining > 0:
            callbacks: list[BaseCallback] = [CorrectionCallback(), self.recorder]
            self.agent.learn(
                remaining,
                callback=CallbackList(callbacks),
                log_interval=None if self.folder is None else 1,
                tb_log_name=self.config.agent,
                reset_num_timesteps=self.recorder.step == 0,
            )

    def _after_step(self, recorder: Recorder) -> bool:
        row = recorder.rows[-1]
        spent = self.config.budget_seconds is not None and row["execution_seconds"] >= self.config.budget_seconds
        if self.folder is not None:
            write_metrics(self.folder / "metrics.csv", recorder.rows)
            if spent or recorder.step % self.config.checkpoint_every == 0 or recorder.step == self.config.steps:
                self.checkpoint()
        if self._on_step is not None:
            self._on_step(row)
        return not spent

    def checkpoint(self) -> None:
        """Write the whole state of the run to its folder."""
        assert self.folder is not None
        state = {
            "config": self.config.to_dict(),
            "env": self.env.unwrapped.state_dict(),  # type: ignore[attr-defined]
            "correction": self.env.state_dict(),  # type: ignore[attr-defined]
            "recorder": self.recorder.state_dict(),
        }
        save_checkpoint(self.folder / "checkpoints", self.recorder.step, self.agent, state)

    def restore(self) -> None:
        """Take the run up at its newest checkpoint.

        Raises:
            CheckpointError: If there is none, or it belongs to other settings than steps and budget allow for.
        """
        assert self.folder is not None
        path = latest_checkpoint(self.folder / "checkpoints")
        state = load_state(path)
        saved, wanted = TrainConfig.from_dict(state["config"]), self.config
        if replace(saved, steps=wanted.steps, budget_seconds=wanted.budget_seconds) != wanted:
            raise CheckpointError(
                f"{path} was made with other settings: {_difference(saved, wanted)}; start a run of its own for these"
            )
        self.env.reset(seed=self.config.seed)
        self.env.unwrapped.load_state_dict(state["env"])  # type: ignore[attr-defined]
        self.env.load_state_dict(state["correction"])  # type: ignore[attr-defined]
        self.recorder.load_state_dict(state["recorder"])
        self.agent = type(self.agent).load(path / "agent.zip", env=self.vec_env, device="cpu", force_reset=False)
        restore_random_state(state["random"])

    def close(self) -> None:
        """Close the environment with its sandbox."""
        self.vec_env.close()


def train(
    config: TrainConfig, folder: Path, *, resume: bool = False, on_step: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Train an agent, evaluate it before and after, and leave a run folder.

    The folder holds config.json, versions.json, metrics.csv, TensorBoard events, checkpoints, best_solution.py,
    calibration.json, figures and summary.json.

    Args:
        config: The settings.
        folder: The run folder. It must hold no run unless ``resume`` is set.
        resume: Go on from the newest checkpoint.
        on_step: Called with each step's row of metrics.

    Returns:
        The summary, as in summary.json: configuration, evaluations before and after, ledger, best solution.

    Raises:
        CheckpointError: If there is nothing to resume, or the folder already holds a run.
    """
    from wmrl_envs.figures import draw_figures

    torch.set_num_threads(1)  # the networks are tiny: more threads than free cores slow them by an order of magnitude
    if not resume and (folder / "config.json").exists():
        raise CheckpointError(
            f"{folder} already holds a run; go on with it by --resume, or name another folder by --out"
        )
    run = Run(config, folder, on_step=on_step)
    try:
        if resume:
            run.restore()
        else:
            write_json(folder / "config.json", config.to_dict())
            write_json(folder / "versions.json", versions())
            write_json(folder / "before.json", _evaluation(run))
        run.learn()
        after = _evaluation(run)
        summary = {
            "config": config.to_dict(),
            "steps": run.recorder.step,
            "before": json.loads((folder / "before.json").read_text(encoding="utf-8")),
            "after": after,
            "best_solution": _best_solution(run, after),
            "ledger": run.env.ledger.summary(),  # type: ignore[attr-defined]
        }
        write_json(folder / "calibration.json", run.env.calibration())  # type: ignore[attr-defined]
        write_json(folder / "summary.json", summary)
        draw_figures(folder)
        return summary
    finally:
        run.close()


def _evaluation(run: Run) -> dict[str, Any] | None:
    config = run.config
    if config.evaluation_rollouts == 0:
        return None
    seed = config.seed + EVALUATION_SEED
    return asdict(evaluate(run.agent, config, episodes=config.evaluation_rollouts, seed=seed))


def _best_solution(run: Run, after: dict[str, Any] | None) -> dict[str, Any] | None:
    """Execute the solution with the highest training-half reward once more, write it down, and return its scores."""
    found = [] if run.recorder.best is None else [(run.recorder.best["reward"], run.recorder.best["code"])]
    if after is not None:
        found.append((after["best_reward"], after["best_code"]))
    if not found or run.folder is None:
        return None
    code = max(found)[1]
    environment = run.env.unwrapped
    submission = Submission(environment.tasks[0], code, seed=run.config.seed)  # type: ignore[attr-defined]
    outcome = environment.grader.grade([submission])[0]  # type: ignore[attr-defined]
    write_text(run.folder / "best_solution.py", code)
    if outcome is None:
        return None
    return {
        "status": outcome.status,
        "reward": outcome.reward,
        "score": outcome.score,
        "report_reward": outcome.report_reward,
    }


def write_metrics(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows as CSV, whole; a column is empty where a row lacks it."""
    with replacing(path) as temporary:
        pd.DataFrame(rows).to_csv(temporary, index=False)


def versions() -> dict[str, str]:
    """Return the versions of everything that can change a result."""
    packages = ("wmrl-envs", "gymnasium", "numpy", "pandas", "scikit-learn", "scipy", "stable-baselines3", "torch")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages}


def _difference(saved: TrainConfig, wanted: TrainConfig) -> str:
    before, after = saved.to_dict(), wanted.to_dict()
    return ", ".join(
        f"{name} was {before[name]!r}, now {after[name]!r}" for name in before if before[name] != after[name]
    )
