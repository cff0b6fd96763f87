"""Policies that start from what is known before training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv

from wmrl_envs.errors import ConfigurationError

__all__ = ["PriorPolicy", "design_prior"]


def design_prior(env: VecEnv) -> list[list[float]] | None:
    """Return an environment's documented prior over actions, as logits by choice; ``None`` where it has none."""
    if not env.has_attr("design_space"):
        return None
    return [[float(logit) for logit in logits] for logits in env.get_attr("design_space")[0].prior_logits]


class PriorPolicy(ActorCriticPolicy):
    """An actor whose initial action probabilities are a given prior.

    A language model knows before any training that a solution should write a submission; a network of random weights
    does not. The prior's logits are the bias of the action layer, so training can move away from it freely.
    """

    def __init__(self, *args: Any, prior_logits: Sequence[Sequence[float]] | None = None, **kwargs: Any) -> None:
        """Build the policy.

        Args:
            args: Positional arguments of ``ActorCriticPolicy``.
            prior_logits: One sequence of logits per choice of a ``MultiDiscrete`` action (one in all for ``Discrete``);
                ``None`` starts as ``ActorCriticPolicy`` does.
            kwargs: Keyword arguments of ``ActorCriticPolicy``. Without a ``net_arch`` the logits are linear in the
                observation.

        Raises:
            ConfigurationError: If the prior does not fit the action space.
        """
        self.prior_logits = None if prior_logits is None else [list(logits) for logits in prior_logits]
        kwargs.setdefault("net_arch", [])
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        if self.prior_logits is None:
            return
        space = self.action_space
        sizes = space.nvec.tolist() if isinstance(space, spaces.MultiDiscrete) else [int(getattr(space, "n", 0))]
        if [len(logits) for logits in self.prior_logits] != sizes:
            raise ConfigurationError(
                f"prior_logits holds {[len(p) for p in self.prior_logits]} logits, the action space {space} "
                f"has {sizes} options"
            )
        assert isinstance(self.action_net, torch.nn.Linear)
        with torch.no_grad():
            self.action_net.bias.copy_(torch.tensor([value for logits in self.prior_logits for value in logits]))

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "prior_logits": self.prior_logits, "net_arch": self.net_arch}
