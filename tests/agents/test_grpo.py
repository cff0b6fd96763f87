"""GRPO on groups of rollouts, with and without corrected streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.callbacks import BaseCallback

from wmrl_envs.agents import GRPO
from wmrl_envs.errors import ConfigurationError

VALUES = np.array([0.1, 0.9, 0.3, 0.2])
WRONG = np.array([0.1, 0.2, 0.9, 0.3])


class Bandit(VectorEnv[Any, Any, Any]):
    """A four-armed bandit of ``turns`` pulls.

    With ``streams`` its infos speak of real and predicted rewards as wrappers do.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self, num_envs: int = 16, group_size: int = 4, turns: int = 1, streams: bool = False, ungraded: bool = False
    ) -> None:
        self.num_envs, self.group_size, self.max_turns = num_envs, group_size, turns
        self.streams, self.ungraded, self.turn = streams, ungraded, 0
        self.single_observation_space, self.single_action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(4)
        self.observation_space, self.action_space = (
            spaces.Box(0, 1, (num_envs, 1)),
            spaces.MultiDiscrete([4] * num_envs),
        )
        self.render_mode = None

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.turn = 0
        return np.zeros((self.num_envs, 1), np.float32), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        self.turn += 1
        done = self.turn == self.max_turns
        observation = np.zeros((self.num_envs, 1), np.float32)
        dones = np.full(self.num_envs, done)
        rewards = VALUES[actions] if not self.streams else np.full(self.num_envs, -1.0)
        ungraded = np.zeros(self.num_envs, bool)
        if self.ungraded:
            ungraded[::2] = True
        infos: dict[str, Any] = {"group": np.arange(self.num_envs) // self.group_size, "ungraded": ungraded}
        if self.streams:
            anchor = infos["group"] == 0
            infos |= {
                "anchor": anchor,
                "anchor_probability": np.full(self.num_envs, self.group_size / self.num_envs),
                "lambda": np.full(self.num_envs, 0.5),
                "alpha": np.ones(self.num_envs),
                "calibrated_reward": WRONG[actions],
                "real_reward": VALUES[actions],
                "_real_reward": anchor,
            }
        mask = np.ones(self.num_envs, bool)
        wmrl = {"wmrl": infos, "_wmrl": mask}
        if not done:
            return observation, rewards, dones, ~mask, wmrl
        self.turn = 0
        final = {
            "final_obs": np.array(list(observation), dtype=object),
            "_final_obs": mask,
            "final_info": wmrl,
            "_final_info": mask,
        }
        return observation, rewards, dones, ~mask, final


def probabilities(model: GRPO) -> np.ndarray:
    observation, _ = model.policy.obs_to_tensor(np.zeros((1, 1), np.float32))
    return model.policy.get_distribution(observation).distribution.probs.detach().numpy()[0]


@pytest.mark.parametrize("turns", [1, 3])
def test_learns_from_returns(turns: int) -> None:
    model = GRPO("MlpPolicy", Bandit(turns=turns), 0.05, seed=0).learn(16 * turns * 60)
    assert model.n_steps == turns
    assert probabilities(model)[1] > 0.9


def test_rectification_overrules_a_wrong_world_model() -> None:
    """The world model rates arm 2 highest.

    One group in four is executed and says arm 1. Step rewards are meaningless.
    """
    model = GRPO("MlpPolicy", Bandit(num_envs=64, group_size=16, streams=True), 0.03, seed=0).learn(64 * 150)
    assert probabilities(model).argmax() == 1


def test_ungraded_rollouts_take_no_part() -> None:
    seen: list[np.ndarray] = []

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if self.model.rollout_buffer.full:
                seen.append(self.model.rollout_buffer.advantages.reshape(-1).copy())

    model = GRPO("MlpPolicy", Bandit(ungraded=True), 0.05, seed=0, group_size=4).learn(16 * 40, callback=Look())
    assert all(np.isnan(advantages).sum() == 8 for advantages in seen)
    assert probabilities(model)[1] > 0.5


def test_an_update_without_any_reward_changes_nothing() -> None:
    class Dark(Bandit):
        def step(self, actions: np.ndarray) -> Any:
            result = super().step(actions)
            result[-1]["final_info"]["wmrl"]["ungraded"][:] = True
            return result

    model = GRPO("MlpPolicy", Dark(), 0.05, seed=0)
    before = probabilities(model)
    model.learn(16 * 3)
    np.testing.assert_array_equal(probabilities(model), before)


def test_save_and_load_go_on_alike(tmp_path: Path) -> None:
    import torch

    model = GRPO("MlpPolicy", Bandit(), 0.05, seed=0, minibatches=1, n_epochs=2).learn(16 * 5)
    model.save(tmp_path / "agent.zip")
    torch.manual_seed(1)
    model.learn(16 * 5, reset_num_timesteps=False)
    again = GRPO.load(tmp_path / "agent.zip", env=Bandit(), force_reset=False)
    torch.manual_seed(1)
    again.learn(16 * 5, reset_num_timesteps=False)
    assert again.num_timesteps == model.num_timesteps == 160
    np.testing.assert_array_equal(probabilities(model), probabilities(again))
    action, _ = again.predict(np.zeros((1,), np.float32), deterministic=True)
    assert action == probabilities(again).argmax()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n_epochs": 0}, "n_epochs must be at least 1, got 0"),
        ({"minibatches": 0}, "minibatches must be at least 1, got 0"),
    ],
)
def test_refuses_bad_counts(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        GRPO("MlpPolicy", Bandit(), **kwargs)


def test_refuses_groups_that_do_not_divide() -> None:
    with pytest.raises(ConfigurationError, match="group_size=5"):
        GRPO("MlpPolicy", Bandit(), group_size=5).learn(16)


def test_refuses_groups_of_one() -> None:
    with pytest.raises(ConfigurationError, match="every group has a single rollout"):
        GRPO("MlpPolicy", Bandit(group_size=1, streams=True)).learn(16)


def test_refuses_to_cut_episodes() -> None:
    with pytest.raises(ConfigurationError, match="multiple of the episode's length"):
        GRPO("MlpPolicy", Bandit(turns=3), n_steps=4).learn(64)


def test_prior_policy_starts_from_the_prior() -> None:
    prior = np.log([0.7, 0.1, 0.1, 0.1])
    model = GRPO("PriorPolicy", Bandit(), policy_kwargs={"prior_logits": [prior.tolist()]}, seed=0)
    np.testing.assert_allclose(probabilities(model), np.exp(prior), atol=1e-6)
    with pytest.raises(ConfigurationError, match="prior_logits"):
        GRPO("PriorPolicy", Bandit(), policy_kwargs={"prior_logits": [[0.0, 1.0]]})
