"""Group-relative policy optimisation as a stable-baselines3 algorithm that understands corrected rewards."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule
from stable_baselines3.common.vec_env import VecEnv

from wmrl_envs.agents.policies import PriorPolicy, design_prior
from wmrl_envs.agents.sb3 import SB3VecEnv
from wmrl_envs.correction import group_advantages, stream_advantages
from wmrl_envs.errors import ConfigurationError

__all__ = ["GRPO"]

SelfGRPO = TypeVar("SelfGRPO", bound="GRPO")


class GRPO(OnPolicyAlgorithm):
    """Group-relative policy optimisation (Shao et al. 2024, arXiv 2402.03300) with the clipped objective of PPO.

    A rollout's advantage is its reward relative to the other rollouts of its group, the same for each of its turns;
    there is no value function. On an environment under a ``CorrectionWrapper`` the advantages come from the real and
    the calibrated stream in ``info["wmrl"]`` of a rollout's last step, as the reward scheme says, and the step rewards
    are ignored: they are corrected already, and a corrected reward is never standardised again. Elsewhere a rollout's
    undiscounted return is its reward, and ``group_size`` neighbouring sub-environments are a group.

    A rollout without a reward (a failed prediction or execution) takes no part in its group and none in the loss.

    Example:
        >>> import gymnasium as gym, wmrl_envs
        >>> from wmrl_envs.agents import GRPO
        >>> env = gym.make_vec("wmrl/ResearchDesignWMRL-v0", num_envs=32, group_size=8, max_turns=1, sandbox="replay")
        >>> GRPO("PriorPolicy", env).learn(64).num_timesteps
        64
        >>> env.close()
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"MlpPolicy": ActorCriticPolicy, "PriorPolicy": PriorPolicy}

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: VectorEnv[Any, Any, Any] | VecEnv | str,
        learning_rate: float | Schedule = 0.03,
        *,
        n_steps: int | None = None,
        group_size: int | None = None,
        n_epochs: int = 1,
        minibatches: int = 1,
        clip_range: float = 0.2,
        ent_coef: float = 0.0,
        max_grad_norm: float | None = None,
        standardise: bool = True,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
    ) -> None:
        """Set the algorithm up.

        Args:
            policy: ``"PriorPolicy"`` starts from the environment's prior over actions where it has one and else is
                ``"MlpPolicy"``; or a policy class.
            env: A Gymnasium vector environment (adapted by ``SB3VecEnv``), or any stable-baselines3 ``VecEnv``.
            learning_rate: Adam's step size, or a function of the progress that remains (1 to 0).
            n_steps: Steps of each sub-environment per update, a multiple of the episode's length; ``None`` takes one
                episode, whose length the environment must then tell (``max_turns`` or its spec's
                ``max_episode_steps``).
            group_size: Sub-environments per group where the environment's infos name no groups; ``None`` takes the
                environment's ``group_size``.
            n_epochs: Passes over the rollouts per update.
            minibatches: Parts into which each pass is cut; one optimiser step each.
            clip_range: Largest relative change of an action's probability that is still rewarded, as in PPO.
            ent_coef: Weight of the entropy bonus.
            max_grad_norm: Clip the gradient's norm at this value; ``None`` leaves it, since clipping shrinks just those
                steps in which anchors speak and so brings the world model's bias back.
            standardise: Divide a group's rewards by their standard deviation where the infos hold no streams.
            stats_window_size: Episodes over which logged means run.
            tensorboard_log: Folder of TensorBoard events; ``None`` writes none.
            policy_kwargs: Further arguments of the policy.
            verbose: 0 prints nothing, 1 information, 2 debugging messages.
            seed: Seeds the policy's initialisation, its sampling and the environment.
            device: Torch device.
            _init_setup_model: Build the networks now (stable-baselines3 loads a model without).

        Raises:
            ConfigurationError: If ``n_steps`` cannot be told, or a count is below 1.
        """
        for name, value in (("n_epochs", n_epochs), ("minibatches", minibatches)):
            if value < 1:
                raise ConfigurationError(f"{name} must be at least 1, got {value}")
        self.n_epochs = n_epochs
        self.minibatches = minibatches
        self.clip_range = clip_range
        self.group_size = group_size
        self.standardise = standardise
        self._steps: list[tuple[NDArray[np.bool_], list[dict[str, Any]]]] = []
        super().__init__(
            policy,
            env,  # type: ignore[arg-type]  # adapted by _wrap_env
            learning_rate=learning_rate,
            n_steps=n_steps or 0,
            gamma=1.0,
            gae_lambda=1.0,
            ent_coef=ent_coef,
            vf_coef=0.0,
            max_grad_norm=float("inf") if max_grad_norm is None else max_grad_norm,
            use_sde=False,
            sde_sample_freq=-1,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=False,
        )
        if _init_setup_model:
            self._setup_model()

    @staticmethod
    def _wrap_env(env: Any, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        """Adapt an environment wherever one comes in: at construction, in ``load`` and in ``set_env``."""
        env = SB3VecEnv(env) if isinstance(env, VectorEnv) else env
        return OnPolicyAlgorithm._wrap_env(env, verbose, monitor_wrapper)

    def _setup_model(self) -> None:
        if self.n_steps < 1:
            self.n_steps = self._episode_length()
        if issubclass(self.policy_class, PriorPolicy) and self.env is not None:
            self.policy_kwargs.setdefault("prior_logits", design_prior(self.env))
        super()._setup_model()

    def _episode_length(self) -> int:
        for name in ("max_turns", "spec"):
            if self.env is not None and self.env.has_attr(name):
                value = self.env.get_attr(name)[0]
                length = getattr(value, "max_episode_steps", value)
                if isinstance(length, int):
                    return length
        raise ConfigurationError(
            "n_steps is None and the environment tells no fixed episode length (max_turns, or its spec's "
            "max_episode_steps); pass n_steps, a multiple of the episode's length"
        )

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_steps"]

    def _update_info_buffer(self, infos: list[dict[str, Any]], dones: NDArray[np.bool_] | None = None) -> None:
        """Keep each step's infos for the advantages; stable-baselines3 calls this once per step."""
        super()._update_info_buffer(infos, dones)
        assert dones is not None
        self._steps.append((dones, infos))

    def collect_rollouts(self, env: VecEnv, *args: Any, **kwargs: Any) -> bool:
        """Collect whole episodes as stable-baselines3 does, then put group-relative advantages into the buffer."""
        self._steps = []
        proceed = super().collect_rollouts(env, *args, **kwargs)
        if proceed:
            self.rollout_buffer.advantages = self._advantages()
        self._steps = []
        return proceed

    def _advantages(self) -> NDArray[np.float32]:
        """Return the advantage of each step, float32 of shape (n_steps, n_envs); NaN where a rollout has no reward."""
        advantages = np.full((len(self._steps), self.n_envs), np.nan, dtype=np.float32)
        start = 0
        for end, (dones, infos) in enumerate(self._steps, start=1):
            if not dones.any():
                continue
            if not dones.all():
                raise ConfigurationError(
                    f"{int(dones.sum())} of {self.n_envs} rollouts ended at step {end} of {self.n_steps}; GRPO "
                    "compares whole rollouts of one length: use an environment with a fixed horizon"
                )
            advantages[start:end] = self._episode_advantages(infos, slice(start, end))
            start = end
        if start != len(self._steps):
            raise ConfigurationError(
                f"an update of n_steps={self.n_steps} cuts an episode after {len(self._steps) - start} steps; make "
                "n_steps a multiple of the episode's length"
            )
        return advantages

    def _episode_advantages(self, infos: list[dict[str, Any]], steps: slice) -> NDArray[np.float64]:
        if all("wmrl" in info and "anchor" in info["wmrl"] for info in infos):
            streams = _streams([info["wmrl"] for info in infos])
            if np.unique(streams["group"]).size == self.n_envs:
                raise ConfigurationError(
                    "every group has a single rollout, so that nothing can be compared; make the environment with "
                    "group_size of at least 2, which divides num_envs"
                )
            advantages, counted = stream_advantages(streams)
            return np.where(counted, advantages, np.nan)
        returns = self.rollout_buffer.rewards[steps].sum(axis=0, dtype=np.float64)
        ungraded = np.array([bool(info.get("wmrl", {}).get("ungraded", False)) for info in infos])
        groups = np.arange(self.n_envs) // self._group_size()
        advantages = group_advantages(np.where(ungraded, np.nan, returns), groups, standardised=self.standardise)
        return np.where(ungraded, np.nan, advantages)

    def _group_size(self) -> int:
        size = self.group_size
        if size is None and self.env is not None and self.env.has_attr("group_size"):
            size = int(self.env.get_attr("group_size")[0])
        if size is None or size < 2 or self.n_envs % size:
            raise ConfigurationError(
                f"GRPO needs groups of at least 2 rollouts that divide the {self.n_envs} sub-environments, got "
                f"group_size={size}; pass group_size to GRPO or to the environment"
            )
        return size

    def train(self) -> None:
        """Update the policy on the collected rollouts."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        size = -(-self.rollout_buffer.buffer_size * self.n_envs // self.minibatches)
        losses: list[float] = []
        entropies: list[float] = []
        divergences: list[float] = []
        for _ in range(self.n_epochs):
            for batch in self.rollout_buffer.get(size):
                graded = ~torch.isnan(batch.advantages)
                if not graded.any():
                    continue
                _, log_prob, entropy = self.policy.evaluate_actions(batch.observations, self._actions(batch.actions))
                advantages = batch.advantages[graded]
                log_ratio = (log_prob - batch.old_log_prob)[graded]
                ratio = log_ratio.exp()
                clipped = ratio.clamp(1 - self.clip_range, 1 + self.clip_range)
                policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
                mean_entropy = -log_prob[graded].mean() if entropy is None else entropy[graded].mean()
                loss = policy_loss - self.ent_coef * mean_entropy
                self.policy.optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
                self.policy.optimizer.step()
                losses.append(policy_loss.item())
                entropies.append(mean_entropy.item())
                divergences.append((ratio - 1 - log_ratio).mean().item())
        self._log_update(losses, entropies, divergences)

    def _actions(self, actions: torch.Tensor) -> torch.Tensor:
        return actions.long().flatten() if isinstance(self.action_space, spaces.Discrete) else actions

    def _log_update(self, losses: list[float], entropies: list[float], divergences: list[float]) -> None:
        if losses:
            self.logger.record("train/policy_loss", float(np.mean(losses)))
            self.logger.record("train/entropy", float(np.mean(entropies)))
            self.logger.record("train/approx_kl", float(np.mean(divergences)))
        self.logger.record("train/ungraded", float(np.isnan(self.rollout_buffer.advantages).mean()))

    def learn(
        self: SelfGRPO,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str = "GRPO",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfGRPO:
        """Train for ``total_timesteps`` steps, counted over all sub-environments; see stable-baselines3."""
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)


def _streams(infos: list[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    """Return the rollouts' streams as arrays with a mask under ``_key``, as a vector environment's infos hold them."""
    streams: dict[str, NDArray[Any]] = {}
    for key in (
        "group",
        "anchor",
        "ungraded",
        "anchor_probability",
        "lambda",
        "alpha",
        "weight",
        "real_reward",
        "calibrated_reward",
    ):
        present = [key in info for info in infos]
        if any(present):
            streams[key] = np.array([info.get(key, 0) for info in infos])
            streams[f"_{key}"] = np.array(present)
    return streams
