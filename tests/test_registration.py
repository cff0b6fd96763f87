import json
import subprocess
import sys

import gymnasium as gym
import pytest

import wmrl_envs
from wmrl_envs.registration import ENVIRONMENTS, register_environments


def run(code: str, cwd) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_every_id_is_registered_for_single_and_vector(env_id):
    spec = gym.spec(env_id)
    assert isinstance(spec.entry_point, str) and isinstance(spec.vector_entry_point, str)
    assert json.loads(spec.to_json())["id"] == env_id


def test_registering_twice_changes_nothing(recwarn):
    register_environments()
    assert not list(recwarn)


def test_importing_is_light(tmp_path):
    heavy = "torch stable_baselines3 pandas sklearn scipy docker ray transformers vllm mujoco cv2 matplotlib".split()
    loaded = run(f"import wmrl_envs, sys; print([name for name in {heavy} if name in sys.modules])", tmp_path)
    assert loaded.strip() == "[]"


def test_public_names_are_there():
    for name in wmrl_envs.__all__:
        assert getattr(wmrl_envs, name) is not None
    assert set(wmrl_envs.__all__) <= set(dir(wmrl_envs))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        wmrl_envs.nothing  # noqa: B018


@pytest.mark.parametrize("env_id", ["wmrl/Research-v0", "wmrl/ResearchDesign-v0"])
def test_made_from_anywhere_by_module_and_id(env_id, tmp_path):
    code = f"""
import gymnasium as gym
env = gym.make("wmrl_envs:{env_id}", sandbox="process", isolation="auto")
observation, info = env.reset(seed=0)
assert env.observation_space.contains(observation)
print(info["task"])
env.close()
"""
    assert run(code, tmp_path).strip() == "titanic"


@pytest.mark.parametrize("env_id", ["wmrl/Research-v0", "wmrl/ResearchDesign-v0"])
def test_checks_pass_with_live_executions(env_id, recwarn):
    from gymnasium.utils.env_checker import check_env

    check_env(gym.make(env_id, isolation="auto", sandbox_kwargs={"workers": 1}).unwrapped)
    ours = [warning for warning in recwarn if "isolat" not in str(warning.message)]  # a machine may lack some of it
    assert [str(warning.message) for warning in ours] == []
