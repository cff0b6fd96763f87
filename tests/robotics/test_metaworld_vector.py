"""The batch equals single environments in every autoreset mode, and episodes that share a simulator do not touch."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from wmrl_envs.errors import ConfigurationError, RenderModeError, UnknownTaskError
from wmrl_envs.robotics.demonstrations import expert_decision
from wmrl_envs.robotics.envs import MetaWorldEnv, MetaWorldVectorEnv

ID = "wmrl/MetaWorld-v0"
SMALL: dict[str, Any] = {"image_size": 16, "hold": 5, "max_decisions": 3, "draw_arm": False}
QUICK: dict[str, Any] = SMALL | {"tasks": ["drawer-close", "reach"], "hold": 10, "max_decisions": 5}
"""Tasks that the expert solves within some of the decisions."""


def same(one: Any, other: Any) -> None:
    __tracebackhide__ = True
    assert type(one) is type(other)
    assert data_equivalence(one, other, exact=True), (one, other)


def pair(mode: AutoresetMode, count: int, **settings: Any) -> tuple[MetaWorldVectorEnv, SyncVectorEnv]:
    ours = MetaWorldVectorEnv(count, autoreset_mode=mode, **settings)
    return ours, SyncVectorEnv([lambda: MetaWorldEnv(**settings)] * count, autoreset_mode=mode)


def expert_actions(envs: MetaWorldVectorEnv, generator: np.random.Generator) -> np.ndarray:
    """Return what the expert would do in some sub-environments, and noise in the others."""
    actions = generator.uniform(-1, 1, envs.action_space.shape).astype(np.float32)
    for slot in range(envs.num_envs):
        if slot != 1 and not envs.scene.over[slot]:
            scene = envs.scene
            actions[slot] = expert_decision(scene.simulator(slot), scene.hold, scene.chunk).reshape(actions[slot].shape)
    return actions


@pytest.mark.parametrize("terminate", [False, True])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_batch_equals_single_environments(mode, terminate):
    settings = QUICK | ({"tasks": "reach", "second_camera": "topview"} if terminate else {})
    ours, theirs = pair(mode, 2, **settings, terminate_on_success=terminate)
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    for name in ("observation_space", "single_observation_space", "action_space", "single_action_space"):
        assert getattr(ours, name) == getattr(theirs, name)
    generator = np.random.default_rng(0)
    same(ours.reset(seed=5), theirs.reset(seed=5))
    endings, successes = 0, 0
    for _ in range(12):
        actions = expert_actions(ours, generator)
        outcome, expected = ours.step(actions), theirs.step(actions)
        same(outcome, expected)
        assert ours.observation_space.contains(outcome[0])
        over = outcome[2] | outcome[3]
        endings, successes = endings + int(over.sum()), successes + int(outcome[1].sum())
        if mode is AutoresetMode.DISABLED and over.any():
            same(ours.reset(options={"reset_mask": over}), theirs.reset(options={"reset_mask": over.copy()}))
    assert endings >= 4 and successes >= 1
    same(ours.reset(seed=[9, None]), theirs.reset(seed=[9, None]))
    same(ours.reset(), theirs.reset())


def test_made_by_gymnasium_with_chunks():
    settings = SMALL | {"chunk": 2}
    ours = gym.make_vec(ID, num_envs=2, **settings)
    theirs = SyncVectorEnv([lambda: MetaWorldEnv(**settings)] * 2)
    same(ours.reset(seed=1), theirs.reset(seed=1))
    theirs.action_space.seed(0)
    for _ in range(3):
        actions = theirs.action_space.sample()
        same(ours.step(actions), theirs.step(tuple(actions)))


def test_options_reach_every_sub_environment_and_are_left_as_they_are():
    ours = MetaWorldVectorEnv(2, ["reach", "drawer-close"], **SMALL)
    options = {"task": ["drawer-close", "reach"], "initial_state": np.array([4, 8])}
    kept = copy.deepcopy(options)
    observations, infos = ours.reset(seed=0, options=options)
    same(options, kept)
    assert infos["task"].tolist() == kept["task"] and infos["initial_state"].tolist() == [4, 8]
    for slot in range(2):
        single = MetaWorldEnv(kept["task"][slot], **SMALL)
        expected, _ = single.reset(options={"initial_state": int(kept["initial_state"][slot])})
        same({key: values[slot] for key, values in observations.items()}, expected)
    _, infos = ours.reset(options={"task": "reach", "initial_state": 3})
    assert infos["task"].tolist() == ["reach"] * 2 and infos["initial_state"].tolist() == [3, 3]


def test_a_mask_resets_its_sub_environments_alone():
    settings = SMALL | {"max_decisions": 4}
    ours, theirs = pair(AutoresetMode.DISABLED, 3, tasks="reach", **settings)
    same(ours.reset(seed=0), theirs.reset(seed=0))
    actions = np.random.default_rng(0).uniform(-1, 1, (8, 3, 4)).astype(np.float32)
    same(ours.step(actions[0]), theirs.step(actions[0]))
    mask = np.array([False, True, False])
    options = {"reset_mask": mask}
    outcome = ours.reset(options=options)
    same(outcome, theirs.reset(options={"reset_mask": mask.copy()}))
    assert options["reset_mask"] is mask and mask.tolist() == [False, True, False]
    assert outcome[1]["_task"].tolist() == mask.tolist()
    for step in range(1, 4):
        same(ours.step(actions[step]), theirs.step(actions[step]))
    over = np.array([True, False, True])
    with pytest.raises(ResetNeeded, match=r"sub-environments \[0, 2\] are over: reset them"):
        ours.step(actions[4])
    same(ours.reset(options={"reset_mask": over}), theirs.reset(options={"reset_mask": over.copy()}))
    same(ours.step(actions[5]), theirs.step(actions[5]))


def test_groups_begin_alike_and_go_their_own_ways():
    tasks = ["basketball", "drawer-open"]
    envs = MetaWorldVectorEnv(6, tasks, group_size=3, autoreset_mode="SameStep", **SMALL)
    observations, infos = envs.reset(seed=[0, 1, 2, 3, 4, 5])
    actions = np.random.default_rng(0).uniform(-1, 1, (7, 6, 4)).astype(np.float32)
    single = MetaWorldEnv(tasks, **SMALL)
    begun: set[tuple[str, int]] = set()
    for episode in range(2):
        for leader in (0, 3):
            members = slice(leader, leader + 3)
            for key in ("image", "state"):
                assert (observations[key][members] == observations[key][leader]).all()
            assert len(set(infos["task"][members])) == len(set(infos["initial_state"][members])) == 1
            begun.add((infos["task"][leader], int(infos["initial_state"][leader])))
        episodes = [
            single_episode(single, infos["task"][slot], infos["initial_state"][slot], actions[3 * episode :, slot])
            for slot in range(6)
        ]
        same({key: values[2] for key, values in observations.items()}, episodes[2][0][0])
        for step in range(3):
            observations, rewards, _, truncated, infos = envs.step(actions[3 * episode + step])
            last = step == 2
            assert truncated.tolist() == [last] * 6
            for slot in range(6):
                seen = {key: values[slot] for key, values in observations.items()}
                same(infos["final_obs"][slot] if last else seen, episodes[slot][step + 1][0])
                assert rewards[slot] == episodes[slot][step + 1][1]
                told = infos["final_info"] if last else infos
                assert told["initial_state"][slot] == episodes[slot][0][1]["initial_state"]
    assert len(begun) == 4
    followers = MetaWorldVectorEnv(6, tasks, group_size=3, **SMALL).reset(seed=[0, 9, 9, 3, 9, 9])
    same(followers, envs.reset(seed=[0, 1, 2, 3, 4, 5]))  # a group is drawn by its first member


def single_episode(env: MetaWorldEnv, task: str, initial_state: int, actions: np.ndarray) -> list[Any]:
    outcomes: list[Any] = [env.reset(options={"task": task, "initial_state": initial_state})]
    return outcomes + [env.step(action) for action in actions[:3]]


def test_groups_are_reset_whole():
    envs = MetaWorldVectorEnv(4, ["reach", "drawer-close"], group_size=2, autoreset_mode="Disabled", **SMALL)
    before, _ = envs.reset(seed=0)
    observations, infos = envs.reset(options={"reset_mask": np.array([False, False, True, True])})
    assert infos["_initial_state"].tolist() == [False, False, True, True]
    assert infos["initial_state"][2] == infos["initial_state"][3]
    assert (observations["image"][:2] == before["image"][:2]).all()
    _, infos = envs.reset(options={"task": ["reach", "reach", "drawer-close", "drawer-close"]})
    assert infos["task"].tolist() == ["reach", "reach", "drawer-close", "drawer-close"]


def test_what_was_returned_stays_as_it_was():
    envs = MetaWorldVectorEnv(2, autoreset_mode="SameStep", **SMALL)
    seen = [envs.reset(seed=0)]
    generator = np.random.default_rng(0)
    kept = copy.deepcopy(seen)
    for _ in range(4):
        seen.append(envs.step(generator.uniform(-1, 1, (2, 4))))
        kept.append(copy.deepcopy(seen[-1]))
    same(seen, kept)
    first = copy.deepcopy(envs.reset(seed=0)[0])
    envs.reset(seed=0)[0]["image"][:] = 7
    same(envs.reset(seed=0, options={"reset_mask": np.array([True, False])})[0], first)


def test_looking_at_every_sub_environment_changes_nothing():
    looked = MetaWorldVectorEnv(3, "reach", render_mode="rgb_array", render_size=32, **SMALL)
    left = MetaWorldVectorEnv(3, "reach", **SMALL)
    same(looked.reset(seed=0), left.reset(seed=0))
    assert left.render() is None
    generator = np.random.default_rng(0)
    for _ in range(2):
        frames = looked.render()
        assert len(frames) == 3 and len({frame.tobytes() for frame in frames}) == 3
        assert all((frame.shape, frame.dtype) == ((32, 32, 3), np.uint8) for frame in frames)
        actions = generator.uniform(-1, 1, (3, 4)).astype(np.float32)
        same(looked.step(actions), left.step(actions))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda actions: actions[:2], "expected 3 actions, one per sub-environment, got 2"),
        (lambda actions: 0.5, "expected 3 actions.*got 0.5"),
        (lambda actions: actions[:, :3], r"\(4,\) finite numbers.*got \(3,\)"),
        (lambda actions: np.where(np.arange(3)[:, None] == 2, np.nan, actions), "not finite"),
    ],
)
def test_a_wrong_action_moves_nobody(spoil, words):
    envs, left = MetaWorldVectorEnv(3, **SMALL), MetaWorldVectorEnv(3, **SMALL)
    actions = np.random.default_rng(0).uniform(-1, 1, (3, 4)).astype(np.float32)
    for env in (envs, left):
        env.reset(seed=0)
    with pytest.raises(ConfigurationError, match=words):
        envs.step(spoil(actions))
    same(envs.step(actions), left.step(actions))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"num_envs": 0}, ConfigurationError, "num_envs must be a multiple of group_size.*got 0 and 1"),
        ({"num_envs": 5, "group_size": 2}, ConfigurationError, "got 5 and 2"),
        ({"num_envs": 2, "group_size": 0}, ConfigurationError, "got 2 and 0"),
        ({"num_envs": 2, "group_size": 2, "terminate_on_success": True}, ConfigurationError, "at different times"),
        ({"autoreset_mode": "Next"}, ConfigurationError, "Next"),
        ({"tasks": "reech"}, UnknownTaskError, "Did you mean 'reach'"),
        ({"camera": "corner9"}, ConfigurationError, "got 'corner9'"),
        ({"render_mode": "human"}, RenderModeError, "got 'human'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        MetaWorldVectorEnv(**arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seed": [1, 2]}, "expected one seed or 4 of them, got a list of 2"),
        ({"options": {"task": "window-open"}}, "got 'window-open'"),
        ({"options": {"task": ["reach", "drawer-close", "reach", "reach"]}}, "alike within each group of 2"),
        ({"options": {"initial_state": [1, 1, 2]}}, "one value or 4"),
        ({"options": {"initial_state": [1, 1, -2, -2]}}, "got -2"),
        ({"options": {"initial_state": 1.5}}, "initial_state.*1.5"),
        ({"options": {"task": None}}, "task.*None"),
        ({"options": {"reset_mask": np.array([True, False, True, True])}}, "alike within each group of 2"),
        ({"options": {"reset_mask": np.zeros(4, bool)}}, "True somewhere"),
        ({"options": {"reset_mask": [True] * 4}}, "must be a bool array"),
    ],
)
def test_wrong_seeds_and_options_are_refused_before_anything_begins(arguments, words):
    envs = MetaWorldVectorEnv(4, ["reach", "drawer-close"], group_size=2, **SMALL)
    begun = envs.reset(seed=0)
    with pytest.raises(ConfigurationError, match=words):
        envs.reset(**arguments)
    mask = np.array([True, True, False, False])
    after, _ = envs.reset(options={"reset_mask": mask, "task": "reach", "initial_state": 0})
    assert (after["image"][2:] == begun[0]["image"][2:]).all()


def test_steps_need_a_reset_first():
    envs = MetaWorldVectorEnv(2, **SMALL)
    with pytest.raises(ResetNeeded, match="call reset"):
        envs.step(envs.action_space.sample())
    envs.close()
    envs.close()
