"""From a TRL trainer's arguments to the environment that it trains in, refusing what cannot work before it runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

import wmrl_envs  # noqa: F401  (registers the environments)
from wmrl_envs.agents._rollouts import Budget
from wmrl_envs.correction import Scale
from wmrl_envs.errors import ConfigurationError

if TYPE_CHECKING:
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig

__all__ = ["Sizes", "check_args", "described", "make_env", "placeholder_prompts", "reply_tokens", "token_budget"]

_runs = itertools.count()

_SCALES: dict[str, Scale] = {"group": "standardise", "none": "centre"}
_OWN = {
    "num_envs": "args (generation_batch_size)",
    "group_size": "args (num_generations)",
    "autoreset_mode": "the trainer, which resets after each batch",
    "scale": "args (scale_rewards: 'group' standardises, 'none' centres)",
    "tasks": "tasks=",
    "world_model": "world_model=",
    "sandbox": "sandbox=",
    "anchor_fraction": "anchor_fraction=",
    "scheme": "scheme=",
    "max_turns": "max_turns=",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a checked configuration says about its batches."""

    rollouts: int
    """Episodes of one generation batch, over all processes."""
    group_size: int
    rounds: int
    """Generation batches of the whole run."""
    scale: Scale
    """How each stream is brought to its group's scale."""

    @property
    def groups(self) -> int:
        """Groups of one generation batch."""
        return self.rollouts // self.group_size


def check_args(args: GRPOConfig, scheme: str, anchor_fraction: float) -> Sizes:
    """Refuse a configuration that cannot train in a research environment.

    Raises:
        ConfigurationError: It names the value, what is valid, and the fix.
    """
    if args.max_steps < 1:
        raise ConfigurationError(
            f"max_steps must be at least 1, got {args.max_steps}: the environment draws tasks without end, so no "
            "number of epochs tells how long to train. Set GRPOConfig(max_steps=...)"
        )
    if args.eval_strategy != "no":
        raise ConfigurationError(
            f"eval_strategy must be 'no', got {str(args.eval_strategy)!r}: the trainer would evaluate by the world "
            "model. Evaluate what a checkpoint writes by executing it: wmrl evaluate --agent"
        )
    if args.scale_rewards not in _SCALES:
        raise ConfigurationError(
            f"scale_rewards must be 'group' (each group's rewards are standardised) or 'none' (centred), got "
            f"{args.scale_rewards!r}: a scale of the whole batch would shrink with every correction that an anchor "
            "brings"
        )
    size, group = args.generation_batch_size or 0, args.num_generations or 0
    if group < 2 or size < group or size % group:
        whole = max(group, 2)
        raise ConfigurationError(
            f"a generation batch of {size} rollouts does not hold whole groups of num_generations={group}: make it a "
            f"multiple, such as generation_batch_size={max(whole, size - size % whole)} (it is "
            "per_device_train_batch_size * processes * steps_per_generation), with at least 2 rollouts a group"
        )
    if scheme == "anchors-only":
        groups = max(1, round(anchor_fraction * size / group))
        raise ConfigurationError(
            f"scheme='anchors-only' generates the anchor groups alone: set generation_batch_size={groups * group} "
            f"({groups} of {size // group} groups) and scheme='real'"
        )
    passes = args.num_iterations * (args.steps_per_generation or 1)  # between two generations
    rounds = math.ceil(args.max_steps * args.gradient_accumulation_steps / passes)
    return Sizes(size, group, rounds, _SCALES[args.scale_rewards])


def described(args: GRPOConfig, sizes: Sizes, own: Mapping[str, Any], env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's settings as its folder tells them, JSON-able; an object by its class.

    Args:
        args: TRL's configuration.
        sizes: The run's batches.
        own: Arguments that the trainer takes itself, by the names of ``wmrl train``.
        env_kwargs: Further arguments of the environment.
    """
    sizes_told = {"steps": sizes.rounds, "groups": sizes.groups, "group_size": sizes.group_size}
    names = ("learning_rate", "max_steps", "max_completion_length", "num_iterations", "temperature", "seed")
    settings = {**own, **sizes_told, **{name: getattr(args, name) for name in names}, "env_kwargs": dict(env_kwargs)}
    told = {name: _told(value) for name, value in settings.items()}
    return told | {"task": ",".join(told["task"]) if isinstance(told["task"], list) else told["task"]}


def _told(value: Any) -> Any:
    """Return a setting as JSON has it."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(name): _told(inner) for name, inner in value.items()}
    if isinstance(value, Sequence):
        return [_told(inner) for inner in value]
    return str(value) if isinstance(value, Path) else str(getattr(value, "id", type(value).__name__))


def make_env(
    sizes: Sizes, env_kwargs: Mapping[str, Any], *, seed: int, **own: Any
) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Make the wrapped environment of a run: one sub-environment for each rollout of a generation batch.

    Args:
        sizes: The run's batches.
        env_kwargs: Further arguments of ``wmrl/ResearchWMRL-v0``.
        seed: Seeds the draws of the anchors.
        **own: Arguments that the trainer takes itself.

    Raises:
        ConfigurationError: If ``env_kwargs`` holds one that is told elsewhere, or an argument cannot work.
    """
    for name in env_kwargs:
        if name in _OWN:
            raise ConfigurationError(f"env_kwargs[{name!r}] is told by {_OWN[name]}; leave it out of env_kwargs")
    return gym.make_vec(
        "wmrl/ResearchWMRL-v0",
        num_envs=sizes.rollouts,
        group_size=sizes.group_size,
        autoreset_mode=AutoresetMode.DISABLED,
        scale=sizes.scale,
        **{"seed": seed, "run": f"trl-{next(_runs)}", **env_kwargs, **own},
    )


def placeholder_prompts(sizes: Sizes) -> Dataset:
    """Return the dataset that a run counts by: one row for each of its groups, which says nothing."""
    from datasets import Dataset

    return Dataset.from_dict({"prompt": [f"group {index}" for index in range(sizes.rounds * sizes.groups)]})


def reply_tokens(args: GRPOConfig, max_turns: int, max_reply_tokens: int | None) -> int:
    """Return the longest reply: an equal share of ``max_completion_length`` for each turn, where none is given.

    Raises:
        ConfigurationError: If it is out of range.
    """
    total = args.max_completion_length or 0
    if total < 1:
        raise ConfigurationError(
            f"max_completion_length must be at least 1, got {args.max_completion_length}: it is the room for all "
            "replies and the feedback of an episode, in tokens"
        )
    if max_reply_tokens is None:
        return max(1, total // max(1, max_turns))
    if not 1 <= max_reply_tokens <= total:
        raise ConfigurationError(
            f"max_reply_tokens must be from 1 to max_completion_length={total}, which holds all turns of an episode, "
            f"got {max_reply_tokens}"
        )
    return max_reply_tokens


def token_budget(args: GRPOConfig, model: Any, reply: int) -> Budget:
    """Return how long chats may become; a model that does not say what it reads sets no limit."""
    length = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if args.use_vllm and args.vllm_max_model_length is not None:
        length = args.vllm_max_model_length
    return Budget(args.max_completion_length or 0, reply, None if length is None else int(length))
