"""One task in simulation: Meta-World's physics and success to the last digit, and back to any state."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from wmrl_envs.errors import ConfigurationError, UnknownTaskError
from wmrl_envs.robotics.instructions import META_WORLD_INSTRUCTIONS, MT10
from wmrl_envs.robotics.metaworld import CAMERAS, Simulator, resolve_tasks

SIZE = 32
# Some whose resets depend on where things stood before, whose goal is read off the scene, or whose rewards remember.
VARIED = (
    *("drawer-open", "box-close", "handle-pull", "door-lock", "peg-unplug-side"),
    *("basketball", "bin-picking", "pick-place", "sweep-into", "disassemble"),
)


def physics(simulator: Simulator) -> np.ndarray:
    return simulator.snapshot().physics


def meta_worlds_own(simulator: Simulator):
    """Return Meta-World's own environment, reset to the scene that a simulator has just begun with."""
    env = ALL_V3_ENVIRONMENTS[f"{simulator.task}-v3"]()
    env._set_task_called = env._freeze_rand_vec = True
    env._partially_observable = False
    env.__dict__.pop("sawyer_observation_space", None)
    env._last_rand_vec = simulator._env._last_rand_vec.copy()
    env.reset()
    return env


@pytest.mark.parametrize("task", VARIED)
def test_physics_and_success_are_meta_worlds_own(task):
    simulator = Simulator(task)
    simulator.begin(7)
    elsewhere = simulator.snapshot()
    simulator.begin(3)
    env = meta_worlds_own(simulator)
    assert np.array_equal(simulator._env.data.qpos, env.data.qpos)
    generator = np.random.default_rng(0)
    solved = False
    for step in range(120):
        action = simulator.expert_action()
        if step < 20:
            action = np.clip(action + generator.normal(0, 0.3, 4), -1, 1).astype(np.float32)
        if step % 17 == 5:  # another episode is played between
            here = simulator.snapshot()
            simulator.restore(elsewhere)
            simulator.step(action)
            elsewhere = simulator.snapshot()
            simulator.restore(here)
        simulator.step(action)
        _, _, _, _, info = env.step(action)
        solved = solved or bool(info["success"])
        assert simulator.success is solved, step
        assert np.array_equal(simulator._env.data.qpos, env.data.qpos), step
        assert np.array_equal(simulator._env.data.qvel, env.data.qvel), step


@pytest.mark.parametrize("task", ["button-press", "drawer-open", "window-open"])
def test_experts_solve_what_they_are_for(task):
    simulator = Simulator(task)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulator.begin(11)
        for _ in range(150):
            action = simulator.expert_action()
            assert (action.dtype, action.shape) == (np.float32, (4,)) and np.abs(action).max() <= 1
            simulator.step(action)
    assert simulator.success


def test_an_initial_state_is_its_number_alone():
    used, fresh = Simulator("box-close"), Simulator("box-close", draw_arm=False)
    used.begin(1)
    first = physics(used)
    for _ in range(10):
        used.step(np.array([1, -1, 1, 1], np.float32))
    used.begin(5)
    fresh.begin(5)
    assert np.array_equal(physics(used), physics(fresh))
    assert np.array_equal(used.proprioception(), fresh.proprioception())
    assert np.array_equal(used.expert_action(), fresh.expert_action())
    other = physics(used)
    used.begin(1)
    assert np.array_equal(physics(used), first) and not np.array_equal(first, other)


@pytest.mark.parametrize("task", ["drawer-open", "button-press", "door-open"])
def test_the_first_frame_shows_the_scene_as_it_is(task):
    simulator = Simulator(task)
    frames = []
    for number in (2, 3):
        simulator.begin(number)
        frames.append(simulator.render("workspace", SIZE))
        simulator.restore(simulator.snapshot())  # computes where everything is
        assert np.array_equal(simulator.render("workspace", SIZE), frames[-1])
    assert not np.array_equal(*frames)


def test_looking_and_asking_the_expert_change_nothing():
    looked, left = Simulator("pick-place"), Simulator("pick-place")
    for simulator in (looked, left):
        simulator.begin(4)
    action = np.array([0.3, 0.8, -0.6, -1], np.float32)
    for _ in range(15):
        looked.expert_action()
        looked.render("workspace", SIZE)
        looked.snapshot()
        looked.proprioception()
        looked.step(action)
        left.step(action)
    assert np.array_equal(physics(looked), physics(left))
    assert np.array_equal(looked.expert_action(), left.expert_action())


@pytest.mark.parametrize("task", ["basketball", "door-lock"])
def test_a_restored_episode_goes_on_as_if_never_left(task):
    alone, shared = Simulator(task), Simulator(task)
    generator = np.random.default_rng(1)
    actions = generator.uniform(-1, 1, (3, 30, 4)).astype(np.float32)

    def look(simulator: Simulator) -> list[np.ndarray]:
        return [
            *(physics(simulator), simulator.proprioception(), simulator.expert_action()),
            *(simulator.render("workspace", SIZE), np.array(simulator.success)),
        ]

    expected = []
    for episode in range(3):
        alone.begin(episode)
        seen = [look(alone)]
        for step in range(0, 30, 10):
            for action in actions[episode, step : step + 10]:
                alone.step(action)
            seen.append(look(alone))
        expected.append(seen)
    kept = []
    for episode in range(3):
        shared.begin(episode)
        kept.append(shared.snapshot())
    for episode in (2, 0, 1):
        shared.restore(kept[episode])
        assert all(map(np.array_equal, look(shared), expected[episode][0]))
    for number, step in enumerate(range(0, 30, 10), start=1):
        for episode in (1, 0, 2):
            shared.restore(kept[episode])
            for action in actions[episode, step : step + 10]:
                shared.step(action)
            kept[episode] = shared.snapshot()
            assert all(map(np.array_equal, look(shared), expected[episode][number]))


def forward_and_up(simulator: Simulator, camera: str) -> tuple[np.ndarray, np.ndarray]:
    """Return where a camera looks, and what is up to a person who looks at its frames."""
    if camera == "workspace":
        azimuth, elevation = np.radians([215.0, -32.0])
        forward = [np.cos(azimuth) * np.cos(elevation), np.sin(azimuth) * np.cos(elevation), np.sin(elevation)]
        return np.array(forward), np.array([0.0, 0.0, 1.0])
    axes = simulator._env.data.camera(camera).xmat.reshape(3, 3)
    from_above = camera in ("topview", "gripperPOV")  # what is farther from the robot is up
    return -axes[:, 2], np.array([0.0, 1.0, 0.0] if from_above else [0.0, 0.0, 1.0])


@pytest.mark.parametrize("camera", CAMERAS)
def test_every_camera_is_upright_and_not_mirrored(camera):
    simulator = Simulator("drawer-open", draw_arm=False)
    simulator.begin(0)
    site, size = simulator._env.model.site("goal"), 96
    start = np.array([0.0, 0.68, 0.03] if camera == "gripperPOV" else [-0.1, 0.68, 0.16])
    simulator._env.model.geom_group[:] = 5  # not drawn: nothing stands before the dot
    site.size[:] = 0.015
    site.rgba[:] = (1, 0, 1, 1)
    forward, up = forward_and_up(simulator, camera)

    def place(position: np.ndarray) -> np.ndarray:
        """Return the row and column at which a dot at a position of the world is seen."""
        frames = []
        for where in (position, [0.0, 0.0, -5.0]):
            site.pos[:] = where
            simulator.restore(simulator.snapshot())
            frames.append(simulator.render(camera, size).astype(int))
        changed = np.abs(frames[0] - frames[1]).max(axis=2) > 20
        assert changed.any(), "the dot is not seen"
        return np.argwhere(changed).mean(axis=0)

    row, column = place(start)
    higher = place(start + 0.05 * up)
    right = np.cross(forward, up)
    farther_right = place(start + 0.05 * right / np.linalg.norm(right))
    assert higher[0] < row - 1 and abs(higher[1] - column) < row - higher[0]
    assert farther_right[1] > column + 1 and abs(farther_right[0] - row) < farther_right[1] - column


@pytest.mark.parametrize("camera", CAMERAS)
def test_frames_are_bytes_in_rows_and_show_something(camera):
    simulator = Simulator("window-open")
    simulator.begin(0)
    frame = simulator.render(camera, SIZE)
    assert (frame.shape, frame.dtype, frame.flags.c_contiguous) == ((SIZE, SIZE, 3), np.uint8, True)
    assert frame.std() > 10 and frame.max() > 100


def test_the_hand_goes_up_in_the_picture_when_it_goes_up():
    simulator = Simulator("reach", draw_arm=False)
    simulator.begin(0)
    rows = []
    for height in (-1, 1):
        for _ in range(30):
            simulator.step(np.array([0, 0, height, 0], np.float32))
        present = simulator.render("corner2", 96).astype(int)
        hand = simulator._env.model.body("hand").id
        shapes = np.isin(simulator._env.model.geom_bodyid, [hand, *children(simulator._env.model, hand)])
        groups = simulator._env.model.geom_group.copy()
        simulator._env.model.geom_group[shapes] = 5
        absent = simulator.render("corner2", 96).astype(int)
        simulator._env.model.geom_group[:] = groups
        rows.append(np.argwhere(np.abs(present - absent).max(axis=2) > 30)[:, 0].mean())
    assert rows[1] < rows[0] - 3


def children(model, body: int) -> list[int]:
    found: list[int] = []
    for other in range(model.nbody):
        if model.body_parentid[other] in (body, *found) and other != body:
            found.append(other)
    return found


def test_the_arm_is_drawn_or_not_and_moves_alike():
    whole, hand = Simulator("drawer-open"), Simulator("drawer-open", draw_arm=False)
    for simulator in (whole, hand):
        simulator.begin(0)
        for _ in range(5):
            simulator.step(np.array([0.5, 0.5, -0.5, 1], np.float32))
    assert np.array_equal(physics(whole), physics(hand))
    assert not np.array_equal(whole.render("workspace", SIZE), hand.render("workspace", SIZE))


def test_frames_go_on_after_closing():
    simulator = Simulator("drawer-open")
    simulator.begin(0)
    before = simulator.render("workspace", SIZE)
    simulator.close()
    simulator.close()
    assert np.array_equal(simulator.render("workspace", SIZE), before)


def test_tasks_are_resolved_by_name():
    assert resolve_tasks("MT10") == MT10 and len(MT10) == 10
    assert resolve_tasks(["drawer-open-v3", "reach"]) == ("drawer-open", "reach")
    assert resolve_tasks(tuple(META_WORLD_INSTRUCTIONS)) == tuple(META_WORLD_INSTRUCTIONS)
    with pytest.raises(UnknownTaskError, match="'draw-open' is no Meta-World task. Did you mean 'drawer-open'"):
        resolve_tasks("draw-open")
    for wrong in ([], ["reach", "reach-v3"], ["MT10", "reach"]):
        with pytest.raises(ConfigurationError, match="at least one task and none twice"):
            resolve_tasks(wrong)
    with pytest.raises(UnknownTaskError, match="3 is no Meta-World task"):
        resolve_tasks([3])
