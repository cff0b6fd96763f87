"""What ties a stable-baselines3 agent's training to the correction underneath: progress down, numbers up."""

from __future__ import annotations

from stable_baselines3.common.callbacks import BaseCallback

__all__ = ["CorrectionCallback"]


class CorrectionCallback(BaseCallback):
    """Tells the ``CorrectionWrapper`` how far training has come, and logs the ledger and the fusion's state.

    Works with every stable-baselines3 agent. Without it the correction runs at full strength from the start (alpha =
    1), as it does for any agent that cannot tell its progress.

    Example:
        >>> import gymnasium as gym, wmrl_envs
        >>> from wmrl_envs.agents import GRPO, CorrectionCallback
        >>> env = gym.make_vec("wmrl/ResearchDesignWMRL-v0", num_envs=32, group_size=8, max_turns=1, sandbox="replay")
        >>> _ = GRPO("PriorPolicy", env).learn(64, callback=CorrectionCallback())
        >>> env.close()
    """

    def _on_rollout_start(self) -> None:
        self.training_env.env_method("set_progress", 1.0 - self.model._current_progress_remaining)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        for name, value in self.training_env.env_method("metrics")[0].items():
            if value is not None:
                self.logger.record(f"wmrl/{name}", value)
