"""The settings of a training run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from wmrl_envs.correction import SCHEMES
from wmrl_envs.errors import ConfigurationError, check_settings, did_you_mean
from wmrl_envs.research.design_space import PARTITIONS
from wmrl_envs.research.task import BENCHMARKS, bundled_tasks

__all__ = ["AGENTS", "LEARNING_RATES", "TrainConfig", "located"]

AGENTS = ("grpo", "ppo", "a2c")
LEARNING_RATES = {"grpo": 0.12, "ppo": 0.05, "a2c": 0.1}
"""Step sizes that suit the policy of one logit per solution; the comparison in docs/ chose GRPO's."""

MODEL_FOLDERS = ("transformers", "vllm")
"""Language models of these kinds are named by a folder."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """What a run is made of; written to its folder as config.json, and enough to repeat it."""

    task: str = "titanic"
    """Bundled task, or the path of a task folder; several of one kind separated by commas."""
    reward: str = "rectified"
    """Reward scheme: rectified, paper, debias, denoise, mixed, world-model, real or anchors-only."""
    agent: str = "grpo"
    """grpo, ppo, a2c, or one's own class as ``module:Class``."""
    steps: int = 60
    """Optimiser steps; each one takes ``groups * group_size`` episodes."""
    budget_seconds: float | None = None
    """Stop after the step in which real executions have used this many seconds; ``None`` has no such limit."""
    groups: int = 16
    """Groups per step (tasks attempted)."""
    group_size: int = 8
    """Rollouts per group."""
    actions: str = "joint"
    """What the policy decides: each of the ``choices`` by itself, two ``halves`` (the data's preparation; model and
    output), or the whole solution as one ``joint`` choice, whose members share nothing a policy could generalise by."""
    turns: int = 1
    """Attempts per episode. With one the correction is exact; with more, real and predicted feedback lead apart."""
    anchor_fraction: float = 0.1
    """Share of groups that is really executed."""
    anchor_feedback: str = "real"
    """Feedback that an anchor episode shows the agent: ``real`` or ``predicted``."""
    world_model: str = "learned"
    """``learned``, or any world model by its name."""
    warmup: int = 180
    """Solutions executed before training to fit the learned world model, charged to the ledger."""
    warmup_source: str = "execution"
    """``execution`` runs them; ``recordings`` takes shipped outcomes where there are any, and charges the same."""
    refit_every: int = 5
    """Steps between refits of the learned world model on what was executed; 0 freezes it after the warm-up."""
    sandbox: str = "process"
    """``process`` executes, ``replay`` answers from shipped recordings."""
    isolation: str = "auto"
    """``strict``, ``auto`` or ``none``."""
    learning_rate: float | None = None
    """Step size of the agent's optimiser; ``None`` takes ``LEARNING_RATES``, or the default of an agent of your own."""
    ramp: float = 0.3
    """Share of training over which the correction grows to full strength (alpha); 0 has it from the start."""
    seed: int = 0
    """Seeds the agent, the environment, the anchor draws and the warm-up."""
    evaluation_rollouts: int = 64
    """Episodes that are really executed before and after training for the reported score; 0 evaluates nothing."""
    checkpoint_every: int = 5
    """Steps between checkpoints."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further keyword arguments of the agent."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, before anything is executed."""
        if self.reward not in SCHEMES:
            raise ConfigurationError(
                f"reward {self.reward!r} is unknown; the schemes are {', '.join(SCHEMES)}."
                + did_you_mean(str(self.reward), SCHEMES)
            )
        if ":" not in self.agent and self.agent not in AGENTS:
            raise ConfigurationError(
                f"agent {self.agent!r} is unknown; the agents are {', '.join(AGENTS)}, or your own as 'module:Class'."
                + did_you_mean(self.agent, AGENTS)
            )
        if not all(self.tasks):
            raise ConfigurationError(f"task must name one task, or several separated by commas, got {self.task!r}")
        for name in ("steps", "groups", "group_size", "turns", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("warmup", "refit_every", "seed", "evaluation_rollouts"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.agent == "grpo" and self.group_size < 2:
            raise ConfigurationError(
                f"grpo compares the rollouts of a group, so group_size must be at least 2, got {self.group_size}"
            )
        if self.budget_seconds is not None and not 0 < self.budget_seconds < math.inf:
            raise ConfigurationError(f"budget_seconds must be positive and finite, got {self.budget_seconds}")
        if self.actions not in PARTITIONS:
            raise ConfigurationError(
                f"actions {self.actions!r} is unknown; a policy decides {', '.join(PARTITIONS)}."
                + did_you_mean(self.actions, PARTITIONS)
            )
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise ConfigurationError(f"learning_rate must be positive and finite, got {self.learning_rate}")
        if not 0.0 <= self.anchor_fraction <= 1.0:
            raise ConfigurationError(f"anchor_fraction must be in [0, 1], got {self.anchor_fraction}")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainConfig:
        """Read a configuration back; unknown names are an error that lists the known ones."""
        check_settings(values, [f.name for f in fields(cls)])
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as JSON-able values."""
        return asdict(self)

    def located(self) -> TrainConfig:
        """Return the configuration with the folders that it names absolute, so that it means the same anywhere."""
        tasks = [name if name in bundled_tasks() else located(name, tuple(BENCHMARKS)) for name in self.tasks]
        return replace(self, task=",".join(tasks), world_model=located(self.world_model, MODEL_FOLDERS))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks by name or path."""
        return tuple(name.strip() for name in self.task.split(","))

    @property
    def executed_groups(self) -> int:
        """Groups generated per step: all of them, but only the anchors' number under ``anchors-only``."""
        return max(1, round(self.anchor_fraction * self.groups)) if self.reward == "anchors-only" else self.groups

    @property
    def num_envs(self) -> int:
        """Rollouts side by side."""
        return self.executed_groups * self.group_size

    @property
    def steps_per_update(self) -> int:
        """Environment steps, over all sub-environments, between two optimiser steps."""
        return self.num_envs * self.turns


def located(name: str, prefixes: Sequence[str] = ()) -> str:
    """Return the name of a folder, perhaps behind one of some prefixes and a colon, absolute; others as they are."""
    prefix, colon, place = name.partition(":")
    lead, place = (prefix + colon, place) if colon and prefix in prefixes else ("", name)
    folder, mark, options = place.partition("?") if lead and prefix in BENCHMARKS else (place, "", "")
    try:
        known = bool(folder) and (Path(folder).is_dir() or bool(lead and prefix in BENCHMARKS))
        return lead + str(Path(folder).expanduser().absolute()) + mark + options if known else name
    except (OSError, ValueError, RuntimeError):  # no path at all: too long, with a NUL, or the home of nobody
        return name
