"""Agents that take no text train on environments with instructions, through a vector that means the same everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import wmrl_envs  # noqa: F401  # registers the environments
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.robotics.instruction_encoding import (
    InstructionEncoding,
    VectorInstructionEncoding,
    encode_instruction,
)
from wmrl_envs.robotics.instructions import META_WORLD_INSTRUCTIONS

SENTENCES = ("open the drawer", "close the drawer", "press the button")


class Slider(gym.Env[dict[str, Any], Any]):
    """A dot to be slid to the left or the right, as the instruction says."""

    metadata = {"render_modes": []}

    def __init__(self, sentences: tuple[str, ...] = SENTENCES, last: int = 5) -> None:
        self.sentences, self.last = sentences, last
        self.observation_space = gym.spaces.Dict(
            image=gym.spaces.Box(0, 255, (36, 36, 3), np.uint8),
            instruction=gym.spaces.Text(max_length=80),
            state=gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
        )
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.instruction = str(self.np_random.choice(self.sentences))
        self.place, self.steps = 0.0, 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.place = float(np.clip(self.place + 0.3 * action[0], -1, 1))
        self.steps += 1
        return self.observe(), float(self.place > 0.8), False, self.steps >= self.last, {}

    def observe(self) -> dict[str, Any]:
        image = np.zeros((36, 36, 3), np.uint8)
        image[:, int(17 + 15 * self.place)] = 255
        state = np.array([self.place, self.steps / self.last], np.float32)
        return {"image": image, "instruction": self.instruction, "state": state}


def test_hashed_vectors_have_length_one_and_differ() -> None:
    vectors = np.stack([encode_instruction(sentence) for sentence in META_WORLD_INSTRUCTIONS.values()])
    assert (vectors.shape[1], vectors.dtype) == (64, np.float32)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    likeness = vectors @ vectors.T - 2 * np.eye(len(vectors))
    different = [a != b for a in META_WORLD_INSTRUCTIONS.values() for b in META_WORLD_INSTRUCTIONS.values()]
    assert likeness.ravel()[different].max() < 0.95


def test_the_order_of_words_counts_and_their_spelling_does_not() -> None:
    assert not np.array_equal(encode_instruction("cup on plate"), encode_instruction("plate on cup"))
    assert np.array_equal(encode_instruction("Open the drawer."), encode_instruction("open  the drawer"))
    near, far = encode_instruction("open the door"), encode_instruction("hammer in a nail")
    assert encode_instruction("open the drawer") @ near > encode_instruction("open the drawer") @ far


def test_vector_is_the_same_in_another_process() -> None:
    script = (
        "import json; from wmrl_envs.robotics.instruction_encoding import encode_instruction as encode\n"
        "print(json.dumps(encode('open the drawer', 16).tolist()))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == encode_instruction("open the drawer", 16).tolist()


def test_vector_is_the_same_as_ever() -> None:
    # Written down once: policies that were trained on it depend on it.
    expected = np.array([-1, 1, 0, 0, 0, 0, 0, -1]) / 3**0.5
    assert encode_instruction("open the drawer", 8) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("settings", [{}, {"size": 16}, {"instructions": list(SENTENCES)}])
def test_environment_passes_both_checkers(settings: dict[str, Any]) -> None:
    from gymnasium.utils.env_checker import check_env
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    env = InstructionEncoding(Slider(), **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")
        check_env(env, skip_render_check=True)
        check_for_sb3(env)
    observation, _ = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    assert env.observation_space["instruction"].shape == (settings.get("size", 3 if settings else 64),)


def test_the_other_keys_stay_as_they_are() -> None:
    plain, encoded = Slider(), InstructionEncoding(Slider(), instructions=SENTENCES)
    for seed in range(6):
        told, _ = plain.reset(seed=seed)
        seen, _ = encoded.reset(seed=seed)
        assert seen["instruction"].tolist() == [float(sentence == told["instruction"]) for sentence in SENTENCES]
        assert all(np.array_equal(seen[key], told[key]) for key in ("image", "state"))


def test_ppo_trains_on_it() -> None:
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    env = InstructionEncoding(Slider(), size=8)
    agent = PPO("MultiInputPolicy", env, n_steps=32, batch_size=16, n_epochs=1, seed=0, device="cpu")
    agent.learn(64)
    action, _ = agent.predict(env.reset(seed=0)[0])
    assert env.action_space.contains(action)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("settings", [{}, {"instructions": list(SENTENCES)}])
def test_twin_equals_the_single_wrapper(mode: AutoresetMode, settings: dict[str, Any]) -> None:
    inside = SyncVectorEnv([lambda: InstructionEncoding(Slider(last=3), **settings)] * 2, autoreset_mode=mode)
    outside = VectorInstructionEncoding(SyncVectorEnv([lambda: Slider(last=3)] * 2, autoreset_mode=mode), **settings)
    assert outside.observation_space == inside.observation_space
    assert outside.single_observation_space == inside.single_observation_space
    same(inside.reset(seed=5), outside.reset(seed=5))
    inside.action_space.seed(0)
    for step in range(7):
        actions = inside.action_space.sample()
        one, other = inside.step(actions), outside.step(actions)
        same(one, other)
        assert outside.observation_space.contains(other[0])
        if mode is AutoresetMode.DISABLED and one[3].any():
            options = {"reset_mask": one[3]}
            same(inside.reset(seed=step, options=dict(options)), outside.reset(seed=step, options=dict(options)))


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = list(one.values()), list(other.values())
    if isinstance(one, (list, tuple)) or (isinstance(one, np.ndarray) and one.dtype == object):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            same(left, right)
    else:
        assert np.array_equal(one, other)


def test_constructor_arguments_are_recorded_and_jsonable() -> None:
    gym.register("tests/Slider-v0", entry_point=f"{__name__}:Slider")
    try:
        env = InstructionEncoding(gym.make("tests/Slider-v0"), instructions=list(SENTENCES))
        assert env.spec is not None
        again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
        assert again.observation_space == env.observation_space
    finally:
        gym.registry.pop("tests/Slider-v0")


class Speechless(Slider):
    def observe(self) -> dict[str, Any]:
        return super().observe() | {"instruction": "..."}


def test_unknown_and_missing_instructions_are_errors() -> None:
    env = InstructionEncoding(Slider(("open the drawr",)), instructions=SENTENCES)
    with pytest.raises(
        ConfigurationError, match="unknown instruction 'open the drawr'.* Did you mean 'open the drawer'"
    ):
        env.reset(seed=0)
    with pytest.raises(ConfigurationError, match=r"instruction '\.\.\.' has no word"):
        InstructionEncoding(Speechless()).reset(seed=0)
    with pytest.raises(ConfigurationError, match="an instruction is a sentence, got None"):
        encode_instruction(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"size": 0}, "size must be a whole number of at least 1, got 0"),
        ({"size": 2.0}, "got 2.0"),
        ({"size": True}, "got True"),
        ({"size": 4, "instructions": list(SENTENCES)}, "not both"),
        ({"instructions": []}, r"a list of sentences, got \[\]"),
        ({"instructions": "open the drawer"}, "got 'open the drawer'"),
        ({"instructions": ["open", ""]}, r"got \['open', ''\]"),
        ({"instructions": ["open", "shut", "open"]}, "'open' stands twice"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    for wrapper, env in ((InstructionEncoding, Slider()), (VectorInstructionEncoding, SyncVectorEnv([Slider]))):
        with pytest.raises(ConfigurationError, match=words):
            wrapper(env, **settings)  # type: ignore[operator]


def test_environment_without_instruction_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs a Dict observation with a Text under 'instruction', got Box"):
        InstructionEncoding(gym.make("CartPole-v1"))
    with pytest.raises(ConfigurationError, match="needs a Dict observation"):
        VectorInstructionEncoding(gym.make_vec("CartPole-v1", num_envs=2))


TASKS = ["drawer-open", "window-open"]
TOLD = [META_WORLD_INSTRUCTIONS[task] for task in TASKS]


def test_metaworld_passes_the_checker_and_trains_ppo() -> None:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_checker import check_env

    torch.set_num_threads(1)
    env = InstructionEncoding(gym.make("wmrl/MetaWorld-v0", tasks=TASKS, max_decisions=4), instructions=TOLD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env)
    agent = PPO("MultiInputPolicy", env, n_steps=16, batch_size=16, n_epochs=1, seed=0, device="cpu").learn(32)
    observation, info = env.reset(seed=0)
    assert observation["instruction"].tolist() == [float(info["task"] == task) for task in TASKS]
    assert env.action_space.contains(agent.predict(observation)[0])
    env.close()


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_metaworld_in_a_batch(mode: str) -> None:
    settings = {"tasks": TASKS, "max_decisions": 2, "num_envs": 3, "autoreset_mode": mode}
    plain = gym.make_vec("wmrl/MetaWorld-v0", vectorization_mode="vector_entry_point", **settings)
    envs = VectorInstructionEncoding(plain, instructions=TOLD)
    observations, infos = envs.reset(seed=0)
    for _ in range(4):
        assert envs.observation_space.contains(observations)
        expected = [[float(name == task) for task in TASKS] for name in infos["task"]]
        assert observations["instruction"].tolist() == expected
        observations, _, _, truncated, infos = envs.step(np.zeros((3, 4), np.float32))
        if mode == "SameStep" and truncated.any():
            assert all(envs.single_observation_space.contains(last) for last in infos["final_obs"])
    envs.close()
