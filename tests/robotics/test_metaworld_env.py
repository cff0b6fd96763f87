"""Meta-World as an environment: it keeps Gymnasium's contract, and repeats exactly."""

from __future__ import annotations

import copy
import gc
import hashlib
import os
import pickle
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import wmrl_envs  # noqa: F401 - registers the environments
from wmrl_envs.errors import ConfigurationError, RenderModeError, UnknownTaskError
from wmrl_envs.robotics.envs import MetaWorldEnv
from wmrl_envs.robotics.instruction_encoding import InstructionEncoding

ID = "wmrl/MetaWorld-v0"
SMALL = {"image_size": 32, "hold": 5, "max_decisions": 3}


def play(env, seed: int | None = 0, options=None, decisions: int = 3) -> list:
    """Return everything that an episode of pseudo-random actions shows."""
    seen = [env.reset(seed=seed, options=options)]
    generator = np.random.default_rng(0)
    for _ in range(decisions):
        seen.append(env.step(generator.uniform(-1, 1, env.action_space.shape).astype(np.float32)))
    return seen


def images(seen: list) -> list[np.ndarray]:
    return [outcome[0]["image"] for outcome in seen]


def digest(seen: list) -> str:
    """Return a fingerprint of an episode: images and states to the last bit, rewards and infos."""
    parts = []
    for observation, *rest in seen:
        parts += [observation["image"].tobytes(), observation["state"].tobytes(), observation["instruction"].encode()]
        parts.append(repr(rest).encode())
    return hashlib.sha256(b"|".join(parts)).hexdigest()


@pytest.mark.parametrize(
    "settings",
    [
        {"render_mode": "rgb_array", "render_size": 48},
        {"chunk": 2, "second_camera": "gripperPOV", "tasks": ["reach", "drawer-open"], "terminate_on_success": True},
    ],
)
def test_both_checkers_pass_without_a_warning(settings):
    from gymnasium.utils.env_checker import check_env
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(ID, **SMALL | {"image_size": 36} | settings).unwrapped)
        check_for_sb3(InstructionEncoding(MetaWorldEnv(**SMALL | {"image_size": 36} | settings)))


def test_stable_baselines_trains_on_it():
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    env = InstructionEncoding(gym.make(ID, **SMALL | {"image_size": 36}))
    agent = PPO("MultiInputPolicy", env, n_steps=8, batch_size=8, n_epochs=1, seed=0, device="cpu").learn(8)
    assert env.action_space.contains(agent.predict(env.reset(seed=0)[0])[0])


def test_observations_and_infos_are_what_they_say():
    env = gym.make(ID, tasks="drawer-open", second_camera="topview", **SMALL)
    seen = play(env)
    assert seen[0][0]["instruction"] == "open the drawer"
    for observation, *_, info in seen:
        assert env.observation_space.contains(observation)
        for key in ("image", "image2"):
            frame = observation[key]
            assert (frame.dtype, frame.shape, frame.flags.c_contiguous) == (np.uint8, (32, 32, 3), True)
            assert frame.std() > 10 and frame.max() > 100
        assert not np.array_equal(observation["image"], observation["image2"])
        assert list(info) == ["success", "task", "initial_state"]
        assert (type(info["success"]), info["task"], type(info["initial_state"])) == (bool, "drawer-open", int)
    assert not np.array_equal(images(seen)[0], images(seen)[-1])


def test_tasks_that_render_by_turns_give_the_frames_that_they_give_alone():
    def drawer():
        return MetaWorldEnv("drawer-open", **SMALL)

    def window():
        return MetaWorldEnv("window-open", **SMALL | {"image_size": 40})

    alone = []
    for make in (drawer, window):
        env = make()
        alone.append(play(env))
        env.close()
    bystander, one, other = MetaWorldEnv("reach", **SMALL), drawer(), window()
    bystander.reset(seed=0)
    generator = np.random.default_rng(0)
    turns = [[one.reset(seed=0)], [other.reset(seed=0)]]
    for decision in range(3):
        action = generator.uniform(-1, 1, 4).astype(np.float32)
        for env, seen in zip((one, other), turns, strict=True):
            seen.append(env.step(action))
        if decision == 0:
            bystander.close()
            del bystander
            gc.collect()
    assert data_equivalence(turns[0], alone[0], exact=True) and data_equivalence(turns[1], alone[1], exact=True)
    both = MetaWorldEnv(["drawer-open", "window-open"], **SMALL)
    for task in ("drawer-open", "window-open", "drawer-open"):
        shown = images(play(both, options={"task": task, "initial_state": 5}))
        expected = images(play(MetaWorldEnv(task, **SMALL), options={"initial_state": 5}))
        assert all(map(np.array_equal, shown, expected))


def test_what_was_observed_stays_as_it_was():
    env = gym.make(ID, **SMALL)
    seen = play(env)
    kept = copy.deepcopy(seen)
    env.reset(seed=5)
    play(env, seed=9)
    assert data_equivalence(seen, kept, exact=True)
    observation, _ = env.reset(seed=0)
    for values in observation.values():
        if isinstance(values, np.ndarray):
            values[:] = 77
    assert data_equivalence(play(env), kept, exact=True)


def test_reset_with_a_seed_repeats_whatever_went_before():
    env = gym.make(ID, tasks=["drawer-open", "reach", "window-open"], **SMALL)
    first = play(env, seed=42)
    play(env, seed=1)
    unseeded = env.reset()
    assert data_equivalence(play(env, seed=42), first, exact=True)
    assert data_equivalence(
        play(gym.make(ID, tasks=["drawer-open", "reach", "window-open"], **SMALL), seed=42), first, exact=True
    )
    assert unseeded[1]["initial_state"] != first[0][1]["initial_state"]
    env.reset(seed=1)
    assert data_equivalence(env.reset(), unseeded, exact=True)  # goes on from the seed
    assert {env.reset(seed=seed)[1]["task"] for seed in range(12)} == {"drawer-open", "reach", "window-open"}


@pytest.mark.parametrize("backend", ["egl", "osmesa"])
def test_reset_repeats_across_processes(backend):
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import test_metaworld_env as tests
env = tests.gym.make(tests.ID, tasks=["reach", "drawer-open"], render_mode="rgb_array", **tests.SMALL)
if sys.argv[2] == "used":
    tests.play(env, seed=7)
    env.render()
print(tests.digest(tests.play(env, seed=3)), env.render().std() > 10)
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYOPENGL_PLATFORM"}
    printed = []
    for state in ("used", "fresh"):
        done = subprocess.run(
            [sys.executable, "-c", code, os.path.dirname(__file__), state],
            env=environment | {"MUJOCO_GL": backend},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert (done.returncode, done.stderr) == (0, "")  # nor does it complain at its end, though nothing was closed
        printed.append(done.stdout.split())
    assert printed[0] == printed[1] and printed[0][1] == "True"
    if os.environ.get("MUJOCO_GL") == backend:
        env = gym.make(ID, tasks=["reach", "drawer-open"], render_mode="rgb_array", **SMALL)
        assert digest(play(env, seed=3)) == printed[0][0]


def test_an_initial_state_is_a_scene_and_options_are_left_as_they_are():
    env = gym.make(ID, tasks=["drawer-open", "reach"], **SMALL)
    options = {"task": "drawer-open-v3", "initial_state": np.int64(12)}
    first = play(env, seed=0, options=options)
    assert options == {"task": "drawer-open-v3", "initial_state": 12}
    again = play(env, seed=99, options={"task": "drawer-open", "initial_state": 12})
    assert data_equivalence(first, again, exact=True)
    assert first[0][1] == {"success": False, "task": "drawer-open", "initial_state": 12}
    other = play(env, seed=0, options={"task": "drawer-open", "initial_state": 13})
    assert not np.array_equal(images(first)[0], images(other)[0])
    drawn = env.reset(seed=0, options={"task": "reach"})[1]
    assert drawn["task"] == "reach" and env.reset(seed=0, options={})[1]["initial_state"] == drawn["initial_state"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "drawer-opn"}, "one of drawer-open, reach, got 'drawer-opn'. Did you mean 'drawer-open'"),
        ({"task": "window-open"}, "got 'window-open'"),
        ({"task": None}, "got None"),
        ({"initial_state": -1}, "initial_state.* got -1"),
        ({"initial_state": 2**31}, "got 2147483648"),
        ({"initial_state": 1.0}, "got 1.0"),
        ({"initial_state": True}, "got True"),
        ({"initial_state": None}, "got None"),
    ],
)
def test_wrong_options_are_refused(options, words):
    env = MetaWorldEnv(["drawer-open", "reach"], **SMALL)
    with pytest.raises(ConfigurationError, match=words):
        env.reset(seed=0, options=options)


def test_episodes_are_truncated_at_the_horizon_and_then_need_a_reset():
    env = MetaWorldEnv(**SMALL)
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(env.action_space.sample())
    for _ in range(2):
        endings = [outcome[2:4] for outcome in play(env)[1:]]
        assert endings == [(False, False), (False, False), (False, True)]
        for _ in range(2):
            with pytest.raises(ResetNeeded, match="call reset"):
                env.step(np.zeros(4, np.float32))


def test_long_episodes_outlast_meta_worlds_own_horizon():
    env = MetaWorldEnv(image_size=16, hold=100, max_decisions=6, draw_arm=False)
    assert play(env, decisions=6)[-1][3] is True


def solve(env, decisions: int) -> list:
    outcomes = [env.reset(seed=0, options={"initial_state": 0})]
    while len(outcomes) <= decisions and not (len(outcomes) > 1 and (outcomes[-1][2] or outcomes[-1][3])):
        simulator = env.scene.simulator(0)
        action = simulator.expert_action() if len(outcomes) < 16 else -np.ones(4, np.float32)
        outcomes.append(env.step(action))
    return outcomes


def test_success_is_rewarded_once_and_kept():
    settings = {"tasks": "drawer-close", "image_size": 16, "hold": 5, "max_decisions": 24, "draw_arm": False}
    outcomes = solve(MetaWorldEnv(**settings), 24)[1:]
    rewards = [reward for _, reward, *_ in outcomes]
    assert sum(rewards) == 1.0 and len(outcomes) == 24
    first = rewards.index(1.0)
    assert [info["success"] for *_, info in outcomes] == [step >= first for step in range(24)]
    assert not any(terminated for _, _, terminated, *_ in outcomes) and outcomes[-1][3] is True
    assert all(type(reward) is float for reward in rewards)

    ended = solve(MetaWorldEnv(terminate_on_success=True, **settings), 24)[1:]
    assert len(ended) == first + 1 and ended[-1][1:4] == (1.0, True, False) and ended[-1][4]["success"]
    last = solve(MetaWorldEnv(terminate_on_success=True, **settings | {"max_decisions": first + 1}), 24)[-1]
    assert last[1:4] == (1.0, True, False)  # success at the horizon is an end of its own


def test_a_success_between_decisions_counts():
    settings = {"tasks": "reach", "image_size": 16, "draw_arm": False}
    fine = MetaWorldEnv(hold=1, max_decisions=40, **settings)
    fine.reset(seed=0, options={"initial_state": 3})
    actions, solved = [], []
    for _ in range(40):
        expert = fine.scene.simulator(0).expert_action()
        actions.append(expert if len(actions) < 30 else np.array([0, 0, 1, 0], np.float32))
        solved.append(fine.step(actions[-1])[1])
    chunked = MetaWorldEnv(hold=1, chunk=40, max_decisions=1, **settings)
    chunked.reset(seed=0, options={"initial_state": 3})
    _, reward, _, truncated, info = chunked.step(np.stack(actions))
    assert (reward, truncated, info["success"]) == (float(sum(solved)), True, bool(sum(solved)))


def test_a_chunk_is_its_actions_one_after_the_other():
    held = MetaWorldEnv(**SMALL | {"max_decisions": 6})
    chunked = MetaWorldEnv(**SMALL | {"chunk": 3, "max_decisions": 2})
    held.reset(seed=0)
    chunked.reset(seed=0)
    assert chunked.action_space.shape == (3, 4)
    assert chunked.metadata["render_fps"] == pytest.approx(held.metadata["render_fps"] / 3) == pytest.approx(80 / 15)
    actions = np.random.default_rng(0).uniform(-1.5, 1.5, (2, 3, 4))
    for chunk in actions:
        for action in chunk:
            singly = held.step(action)
        together = chunked.step(chunk)
        assert data_equivalence(singly, together, exact=True)


def test_actions_are_held_and_clipped():
    held = MetaWorldEnv(**SMALL | {"hold": 6, "max_decisions": 1})
    single = MetaWorldEnv(**SMALL | {"hold": 1, "max_decisions": 6})
    held.reset(seed=0)
    single.reset(seed=0)
    for _ in range(6):
        stepwise = single.step([1.0, -1.0, 0.5, 1.0])
    assert data_equivalence(held.step(np.array([9.0, -7.0, 0.5, 1.0])), stepwise, exact=True)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (np.zeros(3), r"\(4,\) finite numbers in \[-1, 1\], got \(3,\)"),
        (np.zeros((1, 4)), r"got \(1, 4\)"),
        (np.array([0, np.nan, 0, 0]), "not finite"),
        (np.array([0, np.inf, 0, 0]), "not finite"),
        ("left", "got 'left'"),
        (None, "not finite|got"),
        ([[0], [0, 1]], "got"),
    ],
)
def test_wrong_actions_are_refused_and_nothing_moves(action, words):
    env = MetaWorldEnv(**SMALL)
    expected = play(env)[1]
    env.reset(seed=0)
    with pytest.raises(ConfigurationError, match=words):
        env.step(action)
    outcome = env.step(np.random.default_rng(0).uniform(-1, 1, 4).astype(np.float32))
    assert data_equivalence(outcome, expected, exact=True)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"tasks": "drawer-opem"}, UnknownTaskError, "'drawer-opem' is no Meta-World task. Did you mean 'drawer-open'"),
        ({"tasks": []}, ConfigurationError, "at least one task"),
        ({"camera": "corner5"}, ConfigurationError, "camera must be one of workspace.*got 'corner5'. Did you mean"),
        ({"second_camera": "wrist"}, ConfigurationError, "got 'wrist'"),
        ({"image_size": 8}, ConfigurationError, "image_size must be a whole number of at least 16, got 8"),
        ({"image_size": 64.0}, ConfigurationError, "got 64.0"),
        ({"image_size": "64"}, ConfigurationError, "got '64'"),
        ({"image_size": (64, 64)}, ConfigurationError, r"got \(64, 64\)"),
        ({"image_size": float("nan")}, ConfigurationError, "got nan"),
        ({"hold": 0}, ConfigurationError, "hold must be a whole number of at least 1, got 0"),
        ({"hold": None}, ConfigurationError, "got None"),
        ({"chunk": True}, ConfigurationError, "chunk .* got True"),
        ({"max_decisions": -1}, ConfigurationError, "max_decisions .* got -1"),
        ({"render_size": 15}, ConfigurationError, "render_size .* got 15"),
        ({"render_mode": "human"}, RenderModeError, "None or 'rgb_array', got 'human'"),
        ({"draw_arm": "no"}, ConfigurationError, "draw_arm must be True or False, got 'no'"),
        ({"terminate_on_success": 1}, ConfigurationError, "terminate_on_success must be True or False, got 1"),
    ],
)
def test_wrong_arguments_are_refused(settings, error, words):
    with pytest.raises(error, match=words):
        MetaWorldEnv(**settings)


def test_render_shows_the_episode_in_its_own_size():
    env = MetaWorldEnv(render_mode="rgb_array", render_size=96, **SMALL)
    with pytest.raises(ResetNeeded, match="nothing to render"):
        env.render()
    env.reset(seed=0)
    first = env.render()
    assert (first.shape, first.dtype, first.flags.c_contiguous) == ((96, 96, 3), np.uint8, True)
    kept = first.copy()
    env.step(np.ones(4))
    assert np.array_equal(first, kept) and not np.array_equal(env.render(), kept)
    assert np.array_equal(env.render(), env.render())
    assert MetaWorldEnv(**SMALL).render() is None
    assert env.metadata["render_fps"] == 16.0 and MetaWorldEnv.metadata == {"render_modes": ["rgb_array"]}


def test_rendering_changes_nothing():
    silent, shown = MetaWorldEnv(**SMALL), MetaWorldEnv(render_mode="rgb_array", render_size=48, **SMALL)
    expected, outcomes = play(silent), [shown.reset(seed=0)]
    generator = np.random.default_rng(0)
    for _ in range(3):
        shown.render()
        outcomes.append(shown.step(generator.uniform(-1, 1, 4).astype(np.float32)))
    assert data_equivalence(outcomes, expected, exact=True)


def test_frames_are_collected_by_gymnasiums_wrapper():
    env = gym.wrappers.RenderCollection(gym.make(ID, render_mode="rgb_array", render_size=48, **SMALL))
    play(env)
    frames = env.render()
    assert len(frames) == 4 and len({frame.tobytes() for frame in frames}) == 4


def test_videos_are_recorded_by_gymnasiums_wrapper(tmp_path):
    env = gym.make(ID, render_mode="rgb_array", render_size=48, **SMALL)
    env = gym.wrappers.RecordVideo(
        env, str(tmp_path / "videos"), episode_trigger=lambda episode: True, disable_logger=True
    )
    play(env)
    env.close()
    assert [path.suffix for path in (tmp_path / "videos").iterdir()] == [".mp4"]


def test_closing_is_harmless_and_repeatable():
    env = gym.make(ID, **SMALL)
    env.close()
    first = play(env)
    env.close()
    env.close()
    assert data_equivalence(play(env), first, exact=True)


def test_a_spec_is_kept_copied_and_written():
    env = gym.make(ID, tasks=["reach", "drawer-open"], **SMALL)
    expected = play(env)
    written = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
    for spec in (copy.deepcopy(env.spec), pickle.loads(pickle.dumps(env.spec)), written):
        assert data_equivalence(play(gym.make(spec)), expected, exact=True)


def used() -> tuple[int, int]:
    """Return this process's memory in bytes and its open files."""
    gc.collect()
    process = psutil.Process()
    return process.memory_info().rss, process.num_fds()


def test_memory_and_files_stay_flat_over_resets():
    env = MetaWorldEnv(["reach", "drawer-open"], image_size=32, draw_arm=False)
    for seed in range(20):
        env.reset(seed=seed)
    before = used()
    for seed in range(200):
        env.reset(seed=seed)
    after = used()
    assert after[0] - before[0] < 10e6 and after[1] == before[1]


def test_memory_and_files_stay_flat_over_environments():
    def make_and_close() -> tuple[int, int]:
        env = MetaWorldEnv("reach", image_size=32, draw_arm=False)
        env.reset(seed=0)
        env.close()
        return used()

    before = [make_and_close() for _ in range(4)][2:]
    after = [make_and_close() for _ in range(10)][7:]
    assert min(memory for memory, _ in after) - min(memory for memory, _ in before) < 10e6
    assert max(files for _, files in after) == max(files for _, files in before)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_processes_beside_this_one_render_as_it_does(start):
    makers = [make_small] * 2
    inside = SyncVectorEnv(makers)
    beside = AsyncVectorEnv(makers, context=start, shared_memory=False)  # Gymnasium reads texts from it only once
    try:
        assert data_equivalence(inside.reset(seed=1), beside.reset(seed=1), exact=True)
        inside.action_space.seed(0)
        for _ in range(4):
            actions = inside.action_space.sample()
            assert data_equivalence(inside.step(actions), beside.step(actions), exact=True)
    finally:
        beside.close(terminate=True)


def make_small() -> gym.Env:
    return MetaWorldEnv("drawer-open", **SMALL)
