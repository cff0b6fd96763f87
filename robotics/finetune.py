"""Fine-tuning a robot policy on corrected rewards: groups of rollouts from one initial state, and clipped updates.

- ``FinetuneConfig`` - the settings.
- ``Rollouts`` - a step's rollouts, for those who look on.
- ``RobotTrainer`` - plays groups and improves the policy, step by step, from wherever it stands.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wmrl_envs.correction import SCHEMES, Scale, stream_advantages
from wmrl_envs.errors import ConfigurationError, check_settings, did_you_mean
from wmrl_envs.robotics.envs import MetaWorldVectorEnv
from wmrl_envs.robotics.policy import SmallVLA
from wmrl_envs.robotics.progress import ProgressModel, RewardKind, Video
from wmrl_envs.robotics.reward import ProgressReward
from wmrl_envs.trajectories import choose_episodes
from wmrl_envs.wrappers.vector import CorrectionWrapper, WorldModelWrapper

__all__ = ["FinetuneConfig", "RobotTrainer", "Rollouts"]

_runs = itertools.count()


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """What a fine-tuning run is made of."""

    tasks: str = "button-press,drawer-open,window-open"
    """Meta-World tasks, separated by commas."""
    reward: str = "mixed"
    """Reward scheme: rectified, paper, debias, denoise, mixed, world-model, real or anchors-only. With few labels a
    step rectification's variance costs more than the bias that it removes; a model that learns has less of it."""
    reward_kind: RewardKind = "success"
    """What becomes of the progress model's scores: shaped (the paper's), final, max or success."""
    learn: bool = True
    """Whether labels also correct the progress model's own later predictions."""
    steps: int = 20
    """Optimiser steps; each one takes ``groups * group_size`` rollouts."""
    groups: int = 10
    """Groups per step."""
    group_size: int = 8
    """Rollouts from one initial state."""
    anchor_fraction: float = 0.1
    """Share of groups whose real success is read."""
    scale: Scale = "centre"
    """How rewards become advantages within a group: ``standardise``, or ``centre``, which lets a group count for little
    whose rollouts are predicted alike."""
    ramp: float = 0.3
    """Share of training over which the correction grows to full strength (alpha); 0 has it from the start."""
    min_pairs: int = 24
    """Labels before the calibration is fitted."""
    learning_rate: float = 3e-4
    """Of Adam, on the action head; the encoders stay as imitation left them."""
    epochs: int = 4
    """Passes over a step's decisions."""
    minibatches: int = 4
    """Parts of a pass."""
    clip: float = 0.2
    """Furthest that a decision's probability ratio counts, in [0, 1]."""
    max_decisions: int = 15
    """Decisions per rollout."""
    hold: int = 10
    """Simulator steps for which an action is held."""
    image_size: int = 64
    """Pixels."""
    draw_arm: bool = True
    """Whether images show the arm above the wrist."""
    seed: int = 0
    """Seeds initial states, action noise and anchor draws."""

    def __post_init__(self) -> None:
        """Check what no part below checks."""
        if self.reward not in SCHEMES:
            raise ConfigurationError(
                f"reward must be one of {', '.join(SCHEMES)}, got {self.reward!r}.{did_you_mean(self.reward, SCHEMES)}"
            )
        for name in ("steps", "groups", "group_size", "epochs", "minibatches"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigurationError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.group_size < 2:
            raise ConfigurationError(
                "group_size must be at least 2: a rollout is judged against the others of its group"
            )
        if not 0.0 < self.learning_rate < math.inf or not 0.0 < self.clip <= 1.0:
            raise ConfigurationError(
                "learning_rate must be positive and finite and clip in (0, 1], got "
                f"{self.learning_rate!r} and {self.clip!r}"
            )

    @property
    def task_names(self) -> list[str]:
        """The tasks as a list."""
        return [name.strip() for name in self.tasks.split(",")]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, JSON-able."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> FinetuneConfig:
        """Return the settings that ``to_dict`` gave.

        Raises:
            ConfigurationError: If a name is no setting, or a value cannot work.
        """
        check_settings(settings, [entry.name for entry in fields(cls)])
        return cls(**settings)


@dataclass(frozen=True, eq=False)
class Rollouts:
    """The n rollouts of a step, for those who look on."""

    tasks: list[str]
    """n names."""
    instructions: list[str]
    """n sentences that the policy was given."""
    streams: Mapping[str, NDArray[Any]]
    """``info["wmrl"]`` at their end, [n] arrays with their masks."""
    filmed: Mapping[int, Video]
    """By rollout, the images that the policy saw, uint8 [T + 1, H, W, 3]."""


@dataclass(frozen=True, eq=False)
class Played:
    """n rollouts of T decisions, as an update needs them."""

    features: Tensor
    """[T, n, d] what the action head saw."""
    actions: Tensor
    """[T, n, *action]"""
    log_density: Tensor
    """[T, n] of the actions under the policy that took them."""
    advantages: NDArray[np.float64]
    """[n] of each rollout, by the reward scheme."""
    graded: NDArray[np.bool_]
    """[n] whether it takes part."""


class RobotTrainer:
    """Improves a policy on the rewards of one scheme.

    Every step's initial states and noise derive from the seed and the step's number, so that arms of a comparison that
    share a seed see the same ones, and a resumed run goes on as the unbroken one would have.

    Attributes:
        policy: Is trained in place.
        env: The wrapped environment; ``None`` before the first step.
        step: Steps done.
        rows: Metrics, one row a step.
        film: How many rollouts of the coming steps are filmed, anchors first; none unless set.
        rollouts: Those of the last step.
    """

    def __init__(self, config: FinetuneConfig, policy: SmallVLA, progress_model: str | ProgressModel | None) -> None:
        """Build the environment around the progress model.

        Args:
            config: The settings.
            policy: Where training starts, as imitation left it.
            progress_model: A progress model or its name; ``None`` suits the schemes that need none.

        Raises:
            ConfigurationError: If the scheme needs a progress model and there is none.
        """
        self.config, self.policy = config, policy
        scheme = SCHEMES[config.reward]
        if progress_model is None and scheme.anchor_fraction != 1.0:
            raise ConfigurationError(
                f"reward {config.reward!r} needs a progress model: name one (wmrl progress train makes one), or take "
                "'real' or 'anchors-only'"
            )
        self.env = self._build(progress_model)
        self._optimizer = torch.optim.Adam(policy.head.parameters(), config.learning_rate)
        self.step = 0
        self.rows: list[dict[str, float]] = []
        self.film = 0
        self.rollouts: Rollouts | None = None

    @property
    def groups(self) -> int:
        """Groups played per step; with ``anchors-only`` as many as the others have anchors."""
        config = self.config
        if config.reward != "anchors-only":
            return config.groups
        return max(1, round(config.anchor_fraction * config.groups))

    def train_step(self) -> dict[str, float]:
        """Play one step's groups, update the policy, and return the step's metrics."""
        config = self.config
        self.env.set_progress(self.step / config.steps)
        generator = np.random.default_rng([config.seed, self.step])
        played, streams = self._play(generator)
        loss = self._update(played, generator)
        self.step += 1
        row = {"step": float(self.step), "loss": loss, **self._numbers(streams, played.graded)}
        self.rows.append(row)
        return row

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the policy's weights and the optimiser, JSON-able."""
        return {"step": self.step, "rows": self.rows, "correction": self.env.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned; weights and optimiser are loaded by themselves."""
        self.step, self.rows = int(state["step"]), list(state["rows"])
        self.env.load_state_dict(state["correction"])

    @property
    def optimizer(self) -> torch.optim.Adam:
        """The action head's optimiser."""
        return self._optimizer

    def close(self) -> None:
        """Free the renderers."""
        self.env.close()

    def _build(self, progress_model: str | ProgressModel | None) -> Any:
        config, run = self.config, f"robot-{next(_runs)}"
        env: Any = MetaWorldVectorEnv(
            self.groups * config.group_size,
            config.task_names,
            group_size=config.group_size,
            image_size=config.image_size,
            draw_arm=config.draw_arm,
            hold=config.hold,
            max_decisions=config.max_decisions,
        )
        reward = _unused if progress_model is None else self._reward(progress_model)
        env = WorldModelWrapper(env, reward, per="episode", withhold=("success",), run=run)
        return CorrectionWrapper(
            env,
            anchor_fraction=config.anchor_fraction,
            scheme=config.reward,
            ramp=config.ramp,
            scale=config.scale,
            calibration={"min_pairs": config.min_pairs},
            seed=config.seed,
            run=run,
        )

    def _reward(self, progress_model: str | ProgressModel) -> ProgressReward:
        return ProgressReward(progress_model, kind=self.config.reward_kind, learn=self.config.learn)

    def _initial_states(self, generator: np.random.Generator) -> dict[str, list[Any]]:
        """Draw a step's groups: tasks by turns from a random start, initial states at random."""
        config = self.config
        names = config.task_names
        order = (int(generator.integers(len(names))) + np.arange(config.groups)) % len(names)
        states = generator.integers(2**31, size=config.groups)
        kept = generator.permutation(config.groups)[: self.groups] if self.groups < config.groups else slice(None)
        repeat = config.group_size
        return {
            "task": [names[index] for index in np.repeat(order[kept], repeat)],
            "initial_state": [int(state) for state in np.repeat(states[kept], repeat)],
        }

    def _play(self, generator: np.random.Generator) -> tuple[Played, Mapping[str, NDArray[Any]]]:
        policy = self.policy
        chosen = self._initial_states(generator)
        tasks = chosen["task"]
        observations, infos = self.env.reset(options=chosen)
        members = choose_episodes(infos["wmrl"]["anchor"].tolist(), self._groups_of(len(tasks)), self.film)
        images = [observations["image"][members]]
        features, actions, densities = [], [], []
        for _ in range(self.config.max_decisions):
            with torch.no_grad():
                seen = policy.features(observations)
                taken = policy.sample(policy.mean(seen).numpy(), generator)
                features.append(seen)
                actions.append(torch.as_tensor(taken))
                densities.append(policy.log_density(seen, actions[-1]))
            observations, _, _, _, infos = self.env.step(taken)
            images.append(observations["image"][members])
        streams: Mapping[str, NDArray[Any]] = infos["wmrl"]
        filmed = dict(zip(members, np.stack(images, axis=1), strict=True))
        self.rollouts = Rollouts(tasks, list(observations["instruction"]), streams, filmed)
        advantages, graded = stream_advantages(streams, scale=self.env.scale)
        played = Played(torch.stack(features), torch.stack(actions), torch.stack(densities), advantages, graded)
        return played, streams

    def _groups_of(self, rollouts: int) -> list[int]:
        return [slot // self.config.group_size for slot in range(rollouts)]

    def _update(self, played: Played, generator: np.random.Generator) -> float:
        """Take clipped policy-gradient steps; return the mean loss."""
        config, decisions = self.config, len(played.log_density)
        members = torch.as_tensor(np.flatnonzero(played.graded))
        if not len(members):
            return 0.0
        features = played.features[:, members].flatten(0, 1)
        actions, old = played.actions[:, members].flatten(0, 1), played.log_density[:, members].flatten()
        advantages = torch.as_tensor(played.advantages, dtype=torch.float32)[members].repeat(decisions)
        losses = []
        for _ in range(config.epochs):
            for part in np.array_split(generator.permutation(len(old)), config.minibatches):
                loss = clipped_loss(
                    self.policy.log_density(features[part], actions[part]) - old[part], advantages[part], config.clip
                )
                self._optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimizer.step()
                losses.append(loss.item())
        return float(np.mean(losses))

    def _numbers(self, streams: Mapping[str, NDArray[Any]], graded: NDArray[np.bool_]) -> dict[str, float]:
        row = {"rollouts": float(len(graded)), "ungraded": float((~graded).mean())}
        for name in ("real_reward", "predicted_reward", "calibrated_reward"):
            if name in streams and streams[f"_{name}"].any():
                row[name] = float(streams[name][streams[f"_{name}"]].mean())
        row["labels"] = float(streams["_real_reward"].sum()) if "_real_reward" in streams else 0.0
        return row | {name: float(value) for name, value in self.env.metrics().items() if value is not None}


def clipped_loss(log_ratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Return PPO's clipped surrogate loss (arXiv 1707.06347, eq. 7), a scalar, from [n] log-ratios and advantages."""
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1.0 - clip, 1.0 + clip) * advantages).mean()


def _unused(*episodes: Sequence[Any]) -> list[float]:
    raise ConfigurationError("this scheme reads real rewards alone")
