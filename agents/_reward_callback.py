"""Ties a ``CorrectedReward`` to the checkpoints of the trainer that calls it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

if TYPE_CHECKING:
    from wmrl_envs.agents.corrected_reward import CorrectedReward

__all__ = ["CorrectedRewardCallback"]


class CorrectedRewardCallback(TrainerCallback):
    """Saves a reward function's state with every checkpoint and restores it when training resumes."""

    def __init__(self, reward: CorrectedReward) -> None:
        """Take the function."""
        self._reward = reward

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check the trainer's settings; where it resumes, load the state that was saved with its checkpoint."""
        self._reward.expect(args.num_generations, args.scale_rewards)
        self._reward.resume(_checkpoint(args, state) if state.global_step else None)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save the state beside the trainer's."""
        self._reward.save(_checkpoint(args, state))


def _checkpoint(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"
