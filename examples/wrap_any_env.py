"""Your own environment: a laboratory tells what a furnace's melt is worth, a simulation guesses (setting 6 wrongly)."""

import gymnasium as gym
import numpy as np
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env

from wmrl_envs.wrappers import CorrectionWrapper, WorldModelWrapper

LABORATORY = np.array([0.2, 0.3, 0.4, 0.9, 0.5, 0.3, 0.1, 0.2])
SIMULATION = np.array([0.1, 0.3, 0.5, 0.8, 0.5, 0.4, 1.0, 0.2])


class Furnace(gym.Env):
    """An ordinary environment, whose reward is the trusted one; one melt is an episode."""

    observation_space, action_space = gym.spaces.Box(0, 1, (1,)), gym.spaces.Discrete(8)

    def reset(self, *, seed=None, options=None):
        """Begin a melt."""
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action):
        """Melt at one of eight settings; the laboratory is a little noisy."""
        return np.ones(1, np.float32), LABORATORY[action] + 0.1 * self.np_random.normal(), True, False, {}


def guess(observations, actions, next_observations, infos):
    """Return the simulation's guess of each transition in the batch."""
    return SIMULATION[actions]


for part in (0.0, 0.1):  # of the melts that the laboratory judges: the anchor fraction
    envs = make_vec_env(lambda p=part: CorrectionWrapper(WorldModelWrapper(Furnace(), guess, run=f"{p}"), p), n_envs=8)
    agent = A2C("MlpPolicy", envs, ent_coef=0.01, seed=0).learn(4_000)
    worth, judged = LABORATORY[agent.predict(np.ones(1))[0]], envs.get_attr("ledger")[0].executions
    print(f"{judged} of 4000 melts judged by the laboratory: the agent's setting is worth {worth}")
