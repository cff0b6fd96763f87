"""Your own environment: one agent trained on a cheap, biased reward, one on the same corrected by few trusted ones."""

from argparse import ArgumentParser
from dataclasses import dataclass

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

from wmrl_envs.wrappers import CorrectionWrapper, WorldModelWrapper


@dataclass
class Args:
    steps: int = 8_000
    anchors: float = 0.1  # share of the days whose growth is really measured
    seed: int = 0


class Greenhouse(gym.Env):  # an ordinary environment: heat as the day's cold needs it, and measure the growth
    observation_space, action_space = gym.spaces.Box(0, 1, (1,)), gym.spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cold = self.np_random.random(1, "f")
        return self.cold, {}

    def step(self, heat):
        return self.cold, 1 - abs(self.cold[0] - heat / 4), True, False, {}


parser = ArgumentParser(description=__doc__)
for name, value in vars(Args()).items():
    parser.add_argument(f"--{name}", type=type(value), default=value, help=f"({value})")
args = parser.parse_args()
for name, share in ("raw", 0), ("corrected", args.anchors):  # full heat fools it: its thermometer hangs by the heater
    env = WorldModelWrapper(Greenhouse(), lambda cold, heat, *_: 1 - abs(cold[:, 0] - heat / 4) + (heat == 4), run=name)
    agent = PPO("MlpPolicy", CorrectionWrapper(env, share, run=name), n_steps=256, seed=args.seed).learn(args.steps)
    print(f"{name}: true growth {evaluate_policy(agent, Greenhouse(), 500, warn=False)[0]:.3f}")
