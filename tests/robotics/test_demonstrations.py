"""Demonstrations in the real simulator: experts that succeed, disturbed ones that mostly fail, labels and progress."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import wmrl_envs  # noqa: F401  registers the environments
from wmrl_envs.errors import ConfigurationError, UnknownTaskError
from wmrl_envs.robotics.demonstrations import Rollout, collect, expert_decision
from wmrl_envs.robotics.metaworld import Simulator, Snapshot

TASKS = ("drawer-open", "window-open")
SETTINGS: dict[str, Any] = {"image_size": 32, "draw_arm": False}

pytestmark = pytest.mark.filterwarnings(r"ignore:Constant\(s\) may be too high")


@pytest.fixture(scope="module")
def rollouts() -> list[Rollout]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return collect(TASKS, 2, perturbed=6, seed=1, **SETTINGS)


def experts(rollouts: list[Rollout]) -> list[Rollout]:
    return [rollout for rollout in rollouts if rollout.kind == "expert"]


def assert_equal(one: Rollout, other: Rollout) -> None:
    for field in fields(Rollout):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), field.name)


def test_task_by_task_experts_first(rollouts: list[Rollout]) -> None:
    expected = [(task, kind) for task in TASKS for kind in ["expert"] * 2 + ["perturbed"] * 6]
    assert [(rollout.task, rollout.kind) for rollout in rollouts] == expected
    assert {rollout.instruction for rollout in rollouts} == {"open the drawer", "open the window"}
    assert len({rollout.initial_state for rollout in rollouts}) == len(rollouts)


def test_arrays(rollouts: list[Rollout]) -> None:
    for rollout in rollouts:
        assert (rollout.frames.shape, rollout.frames.dtype) == ((16, 32, 32, 3), np.uint8)
        assert (rollout.states.shape, rollout.states.dtype) == ((16, 4), np.float32)
        assert (rollout.actions.shape, rollout.actions.dtype) == ((15, 4), np.float32)
        assert (rollout.solved.shape, rollout.solved.dtype) == ((16,), np.bool_)
        assert np.abs(rollout.actions).max() <= 1.0
        assert rollout.frames.std() > 10.0
        assert not rollout.solved[0] and (rollout.solved[:-1] <= rollout.solved[1:]).all()


def test_experts_succeed_and_disturbed_ones_mostly_fail(rollouts: list[Rollout]) -> None:
    assert all(rollout.success for rollout in experts(rollouts))
    disturbed = [rollout.success for rollout in rollouts if rollout.kind == "perturbed"]
    assert np.mean(disturbed) < 0.5, disturbed


def test_progress_is_the_share_of_the_time_to_success(rollouts: list[Rollout]) -> None:
    for rollout in rollouts:
        progress = rollout.progress
        assert (progress is None) == (not rollout.success)
        if progress is None:
            continue
        first = int(np.argmax(rollout.solved))
        assert (progress.shape, progress.dtype) == ((16,), np.float32)
        np.testing.assert_allclose(progress[: first + 1], np.linspace(0.0, 1.0, first + 1), rtol=1e-6)
        assert (progress[first:] == 1.0).all()


def test_progress_of_the_first_decision_that_solves() -> None:
    frames = np.zeros((3, 2, 2, 3), np.uint8)
    states, actions = np.zeros((3, 4), np.float32), np.zeros((2, 4), np.float32)
    rollout = Rollout("t", "do it", 0, "policy", frames, states, actions, np.array([False, True, True]))
    assert rollout.progress is not None and rollout.progress.tolist() == [0.0, 1.0, 1.0]
    assert replace(rollout, solved=np.zeros(3, np.bool_)).progress is None


def test_seed_repeats(rollouts: list[Rollout]) -> None:
    shown: list[Rollout] = []
    again = collect("drawer-open", 1, perturbed=1, seed=5, on_rollout=shown.append, **SETTINGS)
    assert shown == again
    for one, other in zip(again, collect("drawer-open", 1, perturbed=1, seed=5, **SETTINGS), strict=True):
        assert_equal(one, other)
    other = collect("drawer-open", 1, seed=6, **SETTINGS)[0]
    assert other.initial_state != again[0].initial_state
    assert (other.frames != again[0].frames).any()


def test_environment_replays_an_expert(rollouts: list[Rollout]) -> None:
    """Its initial state and its labels are all that an expert's rollout consists of."""
    rollout = experts(rollouts)[-1]
    env = gym.make("wmrl/MetaWorld-v0", tasks=list(TASKS), **SETTINGS)
    observation, info = env.reset(options={"task": rollout.task, "initial_state": rollout.initial_state})
    for decision, action in enumerate([*rollout.actions, None]):
        np.testing.assert_array_equal(observation["image"], rollout.frames[decision])
        np.testing.assert_array_equal(observation["state"], rollout.states[decision])
        assert info["success"] == rollout.solved[decision]
        if action is not None:
            observation, _, _, _, info = env.step(action)
    env.close()


def test_labels_of_disturbed_rollouts_are_the_experts_own(rollouts: list[Rollout]) -> None:
    rollout = next(rollout for rollout in rollouts if rollout.kind == "perturbed")
    simulator = Simulator(rollout.task)
    simulator.begin(rollout.initial_state)
    label = expert_decision(simulator, hold=10, chunk=1)[0]
    np.testing.assert_array_equal(label, rollout.actions[0])
    for _ in range(10):
        simulator.step(label)
    assert np.abs(simulator.proprioception() - rollout.states[1]).max() > 1e-3, (
        "the label was done, not a disturbed one"
    )


def assert_same_state(one: Snapshot, other: Snapshot) -> None:
    np.testing.assert_array_equal(one.physics, other.physics)
    for field, same in zip(one.model, other.model, strict=True):
        np.testing.assert_array_equal(field, same)
    assert one.attributes.keys() == other.attributes.keys()
    for name, value in one.attributes.items():
        if name != "_ezpickle_args":  # constant, and no array
            np.testing.assert_array_equal(value, other.attributes[name], name)


@pytest.mark.parametrize("task", ["drawer-open", "button-press-topdown", "pick-place"])
def test_asking_the_expert_moves_nothing(task: str) -> None:
    asked, unasked = Simulator(task), Simulator(task)
    for simulator in (asked, unasked):
        simulator.begin(7)
    for _ in range(3):
        before = asked.snapshot()
        actions = expert_decision(asked, hold=4, chunk=2)
        assert (actions.shape, actions.dtype) == ((2, 4), np.float32)
        assert_same_state(before, asked.snapshot())
        np.testing.assert_array_equal(expert_decision(asked, hold=4, chunk=2), actions)
        for action in actions:
            for simulator in (asked, unasked):
                simulator.step(action)
        np.testing.assert_array_equal(asked.snapshot().physics, unasked.snapshot().physics)
        assert asked.success == unasked.success


def test_chunks_and_an_ending_at_success() -> None:
    settings = SETTINGS | {"chunk": 2, "hold": 5, "terminate_on_success": True}
    rollout = collect("drawer-open", 1, seed=0, **settings)[0]
    decisions = len(rollout.actions)
    assert rollout.actions.shape == (decisions, 2, 4) and decisions < 15
    assert len(rollout.frames) == len(rollout.states) == decisions + 1
    assert np.flatnonzero(rollout.solved).tolist() == [decisions]


@pytest.mark.parametrize("counts", [(0, 0), (-1, 2), (2, -1)])
def test_counts_are_checked(counts: tuple[int, int]) -> None:
    with pytest.raises(ConfigurationError, match="count rollouts"):
        collect("drawer-open", counts[0], perturbed=counts[1])


def test_unknown_task_is_named() -> None:
    with pytest.raises(UnknownTaskError, match=r"'drawer-opn' is no Meta-World task. Did you mean 'drawer-open'"):
        collect("drawer-opn", 1)


def test_expert_that_cannot_succeed_is_named() -> None:
    with pytest.raises(ConfigurationError, match="expert of 'drawer-open' failed six times within 2 decisions"):
        collect("drawer-open", 1, max_decisions=2, hold=2, **SETTINGS)
