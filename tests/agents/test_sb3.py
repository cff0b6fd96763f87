"""SB3VecEnv: a Gymnasium vector environment as stable-baselines3 sees it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from wmrl_envs.agents import SB3VecEnv
from wmrl_envs.agents.sb3 import info_list
from wmrl_envs.errors import ConfigurationError


class Countdown(gym.Env[np.ndarray, int]):
    """Ends after ``length`` steps; the observation counts them, so each transition can be told from every other."""

    observation_space = spaces.Box(0.0, 100.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 3, truncate: bool = False) -> None:
        self.length, self.truncate, self.episode, self.time = length, truncate, 0, 0
        self.render_mode = None

    def _observation(self) -> np.ndarray:
        return np.array([self.episode, self.time], dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self._observation(), {"start": self.episode}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        done = self.time >= self.length
        return (
            self._observation(),
            1.0 + action,
            done and not self.truncate,
            done and self.truncate,
            {"time": self.time},
        )


def adapted(mode: AutoresetMode, lengths: tuple[int, ...] = (3, 3), truncate: bool = False) -> SB3VecEnv:
    return SB3VecEnv(SyncVectorEnv([lambda n=n: Countdown(n, truncate) for n in lengths], autoreset_mode=mode))


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("truncate", [False, True])
def test_equals_dummy_vec_env(mode: AutoresetMode, truncate: bool) -> None:
    ours, theirs = adapted(mode, truncate=truncate), DummyVecEnv([lambda: Countdown(3, truncate)] * 2)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    rng = np.random.default_rng(0)
    for _ in range(10):
        actions = rng.integers(2, size=2)
        observations, rewards, dones, infos = ours.step(actions)
        expected = theirs.step(actions)
        np.testing.assert_array_equal(observations, expected[0])
        np.testing.assert_array_equal(rewards, expected[1])
        assert rewards.dtype == np.float32
        np.testing.assert_array_equal(dones, expected[2])
        for info, other in zip(infos, expected[3], strict=True):
            np.testing.assert_array_equal(
                info.pop("terminal_observation", None), other.pop("terminal_observation", None)
            )
            info.setdefault("TimeLimit.truncated", False)
            assert info == other
    assert ours.reset_infos == theirs.reset_infos


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_sub_environments_may_end_apart(mode: AutoresetMode) -> None:
    ours, theirs = adapted(mode, (2, 3)), DummyVecEnv([lambda: Countdown(2), lambda: Countdown(3)])
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    for _ in range(8):
        result, expected = ours.step(np.zeros(2, int)), theirs.step(np.zeros(2, int))
        for mine, other in zip(result[:3], expected[:3], strict=True):
            np.testing.assert_array_equal(mine, other)


def test_next_step_refuses_what_it_cannot_adapt() -> None:
    env = adapted(AutoresetMode.NEXT_STEP, (2, 3))
    env.reset()
    env.step(np.zeros(2, int))
    with pytest.raises(ConfigurationError, match="SAME_STEP"):
        env.step(np.zeros(2, int))


@pytest.mark.parametrize("algorithm", [PPO, A2C])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_stable_baselines3_trains(algorithm: Any, mode: AutoresetMode) -> None:
    env = VecMonitor(adapted(mode))
    model = algorithm("MlpPolicy", env, n_steps=6, device="cpu", seed=0).learn(24)
    assert model.num_timesteps == 24
    assert [episode["l"] for episode in model.ep_info_buffer] == [3] * 8


def test_reaches_the_environment_through_wrappers() -> None:
    env = SB3VecEnv(gym.wrappers.vector.RecordEpisodeStatistics(SyncVectorEnv([Countdown] * 2)))
    assert env.env_is_wrapped(gym.wrappers.vector.RecordEpisodeStatistics) == [True, True]
    assert env.get_attr("num_envs", indices=0) == [2]
    env.set_attr("note", "here")
    assert env.get_attr("note") == ["here", "here"]
    with pytest.raises(AttributeError, match="nothing_such"):
        env.get_attr("nothing_such")
    with pytest.raises(ConfigurationError, match="once"):
        env.set_attr("note", "there", indices=[0])


def test_refuses_a_single_environment() -> None:
    with pytest.raises(ConfigurationError, match="make_vec"):
        SB3VecEnv(Countdown())  # type: ignore[arg-type]


def test_seed_and_options_reach_the_reset() -> None:
    env = adapted(AutoresetMode.SAME_STEP)
    env.seed(7)
    env.set_options({"colour": "red"})
    env.reset()
    assert [sub.np_random_seed for sub in env.env.envs] == [7, 8]
    env.set_options([{"colour": "red"}, {"colour": "blue"}])
    with pytest.raises(ConfigurationError, match="one dict of options"):
        env.reset()


def test_info_list_leaves_absent_entries_out() -> None:
    infos = {
        "a": np.array([1.5, 0.0]),
        "_a": np.array([True, False]),
        "nested": {"b": np.array([0, 3]), "_b": np.array([False, True])},
        "_nested": np.array([True, True]),
    }
    assert info_list(infos, 2) == [{"a": 1.5, "nested": {}}, {"nested": {"b": 3}}]
