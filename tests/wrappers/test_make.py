import hashlib
import json
import random
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode
from toy import fresh_run

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.research.env import ResearchDesignEnv
from wmrl_envs.research.outcome import Outcome, Status, ladder_reward
from wmrl_envs.research.vector_env import ResearchDesignVectorEnv
from wmrl_envs.wrappers import CorrectionWrapper, WorldModelWrapper, vector

ENV_ID = "wmrl/ResearchDesignWMRL-v0"


class HashedOutcomes:
    """Answers from a hash of task, code and seed; nothing is executed."""

    closed = 0

    def grade(self, submissions):
        return [self._answer(submission) for submission in submissions]

    def _answer(self, submission):
        rng = random.Random(hashlib.sha256(f"{submission.task.id} {submission.code}".encode()).digest())
        status = rng.choice([Status.RUNTIME_ERROR, Status.NO_SUBMISSION, Status.VALID, Status.VALID])
        position = rng.random() if status is Status.VALID else None
        reward = ladder_reward(status, position)
        return Outcome(status=status, reward=reward, position=position, report_reward=reward, seconds=0.1)

    def close(self):
        type(self).closed += 1


def settings(**kwargs):
    return {
        "tasks": "titanic",
        "sandbox": f"{__name__}:HashedOutcomes",
        "world_model_kwargs": {"warmup": 24, "warmup_source": "execution", "cache_dir": None},
        "run": fresh_run(),
        **kwargs,
    }


def test_the_single_environment_is_wrapped_in_order():
    env = gym.make(ENV_ID, **settings(anchor_fraction=0.3, max_turns=2, anchor_feedback="predicted"))
    layers = []
    layer = env
    while isinstance(layer, gym.Wrapper):
        layers.append(type(layer))
        layer = layer.env
    assert layers[-2:] == [CorrectionWrapper, WorldModelWrapper]
    assert type(env.unwrapped) is ResearchDesignEnv and env.unwrapped.max_turns == 2
    assert env.unwrapped.spec.id == ENV_ID
    _, info = env.reset(seed=0)
    assert info["wmrl"]["anchor_probability"] == 0.3
    *_, info = env.step(env.action_space.sample())
    assert {"predicted_reward", "calibrated_reward", "corrected_return", "lambda"} <= info["wmrl"].keys()


def test_the_vector_environment_is_wrapped_in_order():
    envs = gym.make_vec(ENV_ID, num_envs=8, group_size=4, autoreset_mode="SameStep", **settings(scheme="paper"))
    assert type(envs) is vector.CorrectionWrapper and type(envs.env) is vector.WorldModelWrapper
    assert type(envs.unwrapped) is ResearchDesignVectorEnv
    assert envs.unwrapped.group_size == 4 and envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert envs.spec.id == ENV_ID and envs.num_envs == 8
    envs.reset(seed=0)
    for _ in range(4):
        *_, infos = envs.step(envs.action_space.sample())
    assert {"weight", "corrected_return"} <= infos["final_info"]["wmrl"].keys()


@pytest.mark.parametrize("mode", AutoresetMode)
def test_the_vector_environment_equals_single_ones_with_every_episode_predicted(mode):
    """Without a draw of anchors nothing is shared but the model, so that the twins must agree to the last bit."""
    kwargs = settings(anchor_fraction=0.0)
    sync = gym.make_vec(ENV_ID, 3, "sync", {"autoreset_mode": mode}, **{**kwargs, "run": fresh_run()})
    ours = gym.make_vec(ENV_ID, 3, autoreset_mode=mode, **kwargs)
    assert data_equivalence(ours.reset(seed=3), sync.reset(seed=3), exact=True)
    ours.action_space.seed(0)
    for _ in range(9):
        actions = ours.action_space.sample()
        one, other = ours.step(actions), sync.step(actions)
        assert data_equivalence(one, other, exact=True)
        if mode is AutoresetMode.DISABLED and one[2].all():
            assert data_equivalence(ours.reset(), sync.reset(), exact=True)


def test_a_seed_repeats_through_all_wrappers_and_options_arrive_unchanged():
    env = gym.make(ENV_ID, **settings(tasks=["titanic", "weather"]))
    bare = gym.make("wmrl/ResearchDesign-v0", tasks=["titanic", "weather"], sandbox=HashedOutcomes())
    expected, _ = bare.reset(seed=42)
    options = {"anchor": False, "mine": [1]}
    for _ in range(3):
        np.testing.assert_array_equal(env.reset(seed=42, options=options)[0], expected)
    assert options == {"anchor": False, "mine": [1]}
    assert env.reset(options={"task": "weather"})[1]["task"] == "weather"


def test_the_spec_makes_the_same_environment_again():
    env = gym.make(ENV_ID, **settings(anchor_fraction=0.2))
    text = env.spec.to_json()
    spec = EnvSpec.from_json(text)
    assert json.loads(spec.to_json()) == json.loads(text)
    for again in (gym.make(spec), gym.make(env.spec), env.spec.make()):
        assert type(again.unwrapped) is ResearchDesignEnv
        assert again.reset(seed=0)[1]["wmrl"]["anchor_probability"] == 0.2
        assert str(again) == str(env)
    envs = gym.make_vec(ENV_ID, num_envs=4, group_size=2, **settings(anchor_fraction=0.2))
    again = gym.make_vec(EnvSpec.from_json(envs.spec.to_json()))
    assert (again.num_envs, again.unwrapped.group_size, type(again)) == (4, 2, vector.CorrectionWrapper)


def test_unknown_arguments_are_named():
    with pytest.raises(ConfigurationError, match="unknown argument 'anchor_fration'.*Did you mean 'anchor_fraction'"):
        gym.make(ENV_ID, **settings(anchor_fration=0.1))
    with pytest.raises(ConfigurationError, match="unknown argument 'group_size'"):
        gym.make(ENV_ID, **settings(group_size=4))
    with pytest.raises(ConfigurationError, match="group_size=3 does not divide num_envs=8"):
        gym.make_vec(ENV_ID, num_envs=8, **settings(group_size=3))


@pytest.mark.parametrize("fraction", [-0.1, 2])
def test_a_refused_argument_leaves_no_sandbox_behind(fraction):
    closed = HashedOutcomes.closed
    with pytest.raises(ConfigurationError, match="anchor_fraction"):
        gym.make(ENV_ID, **settings(anchor_fraction=fraction))
    with pytest.raises(ConfigurationError, match="anchor_fraction"):
        gym.make_vec(ENV_ID, num_envs=2, **settings(anchor_fraction=fraction))
    assert HashedOutcomes.closed == closed + 2


def test_checks_of_gymnasium_and_stable_baselines3():
    from stable_baselines3.common.env_checker import check_env as check_env_sb3

    env = gym.make(ENV_ID, **settings())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
        check_env_sb3(env)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env)
    assert len(caught) == 1 and "different from the unwrapped version" in str(caught[0].message)


def test_made_from_anywhere_by_module_and_id(tmp_path):
    code = f"""
import gymnasium as gym
env = gym.make("wmrl_envs:{ENV_ID}", world_model_kwargs={{"warmup": 24}})
observation, info = env.reset(seed=0)
print(info["task"], env.step(env.action_space.sample())[4]["turn"])
env.close()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["titanic", "1"]


def test_the_text_environment_comes_wrapped_as_well():
    reply = "```python\nprint(1)\n```"
    env = gym.make("wmrl/ResearchWMRL-v0", **settings(anchor_fraction=1.0, max_turns=1, isolation="auto"))
    observation, _ = env.reset(seed=0)
    assert "titanic" in observation["task"].lower() and env.unwrapped.spec.id == "wmrl/ResearchWMRL-v0"
    _, reward, *_, info = env.step(reply)
    assert reward == info["wmrl"]["real_reward"]
    envs = gym.make_vec(
        "wmrl/ResearchWMRL-v0", num_envs=4, group_size=2, **settings(anchor_fraction=0.5, max_turns=1, isolation="auto")
    )
    envs.reset(seed=0)
    *_, infos = envs.step((reply,) * 4)
    assert infos["wmrl"]["anchor"].sum() == 2 and "calibrated_reward" in infos["wmrl"]
