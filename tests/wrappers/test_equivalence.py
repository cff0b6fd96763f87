"""The batched wrappers equal the single ones."""

import json

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from toy import MODES, Guesser, batched, fresh_run, last_infos, replies, side_by_side, single

from wmrl_envs.correction import SCHEMES

PREDICTING = [name for name, scheme in SCHEMES.items() if scheme.anchor_fraction != 1.0]
IN_STEP = [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED]


def assert_same(ours, theirs, exact=True):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert data_equivalence(one, other, exact=exact), f"{one}\n{other}"


def run_both(ours, theirs, mode, steps, exact):
    n = ours.num_envs
    assert_same(ours.reset(seed=5), theirs.reset(seed=5), exact)
    for actions in replies(n, steps):
        step = ours.step(actions)
        assert_same(step, theirs.step(actions), exact)
        if mode is AutoresetMode.DISABLED and step[2].any():
            assert_same(ours.reset(), theirs.reset(), exact)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_slot_while_learning(task, scheme, mode):
    """A batch of one learns and pays what the single wrapper does, to the last bit."""
    settings = {"scheme": scheme, "anchor_fraction": 0.4, "calibration": {"min_pairs": 6}, "seed": 3}
    run_both(
        batched(task, 1, mode=mode, **settings), side_by_side(task, 1, mode=mode, **settings), mode, 150, exact=True
    )


@pytest.mark.parametrize("mode", IN_STEP)
@pytest.mark.parametrize("scheme", ["rectified", "debias"])
@pytest.mark.parametrize("fraction", [0.0, 0.24, 1.0])
def test_slots_that_share_a_correction_while_learning(task, scheme, mode, fraction):
    """Single wrappers that share a run learn the same from a round of episodes as the batched one does at once.

    Below 1 / fraction slots every episode is drawn on its own by both. Sums may differ in the last bits, since what the
    batch adds at once comes one by one. (The paper's weight is left out: its factor is fixed for ever at the update
    that reaches 32 observations, and those updates are larger in a batch.)
    """
    settings = {"scheme": scheme, "anchor_fraction": fraction, "calibration": {"min_pairs": 6}, "max_rescues": 4}
    ours, theirs = (make(task, 4, mode=mode, **settings) for make in (batched, side_by_side))
    run_both(ours, theirs, mode, 260, exact=False)
    if fraction:
        assert ours.correction.debiaser.num_pairs > 30
        assert ours.correction.scalar.lambda_ != 1.0 and ours.correction.scalar.mean > 0.5


@pytest.mark.parametrize("scheme", ["rectified", "paper"])
def test_slots_that_share_a_correction_under_same_step_autoreset(task, scheme):
    """Under same-step autoreset single wrappers begin the next episode before their neighbours have ended theirs.

    So both start from one learned state, and are compared over the episodes that it was frozen for.
    """
    settings = {"scheme": scheme, "anchor_fraction": 0.24, "calibration": {"min_pairs": 6}, "max_rescues": 4}
    teacher = batched(task, 4, **settings)
    teacher.reset(seed=0)
    for actions in replies(4, 220):
        teacher.step(actions)
    learned = json.loads(json.dumps(teacher.correction.state_dict()))
    for seed in range(8):
        mode = AutoresetMode.SAME_STEP
        ours, theirs = (make(task, 4, mode=mode, **settings) for make in (batched, side_by_side))
        for correction in (ours.correction, theirs.envs[0].correction):
            correction.load_state_dict(learned)
            correction.draw(seed)  # another place in the stream of draws
        assert_same(ours.reset(seed=seed), theirs.reset(seed=seed))
        for actions in replies(4, 3, seed):
            assert_same(ours.step(actions), theirs.step(actions))
        (actions,) = replies(4, 1, seed + 100)
        one, other = ours.step(actions), theirs.step(actions)
        assert_same(one[:4], other[:4])
        assert_same([last_infos(one[4], mode)], [last_infos(other[4], mode)])
        shared = {"group", "anchor", "ungraded", "anchor_probability"}
        assert_same(
            *[[{key: infos["wmrl"][key] for key in shared} for infos in (one[4], other[4])][i : i + 1] for i in (0, 1)]
        )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fraction", [0.0, 0.15, 1.0])
def test_slots_out_of_step(task, mode, fraction):
    """Partial resets put the episodes out of step; an uncalibrated mixture shows draws and streams alone."""
    settings = {"scheme": "mixed", "anchor_fraction": fraction, "max_rescues": 0, "max_turns": 3}
    ours, theirs = (make(task, 5, mode=mode, **settings) for make in (batched, side_by_side))
    assert_same(ours.reset(seed=1), theirs.reset(seed=1))
    rng, done = np.random.default_rng(0), np.zeros(5, np.bool_)
    for index, actions in enumerate(replies(5, 60, failures=False)):
        if index in (1, 4, 5, 11) or (mode is AutoresetMode.DISABLED and done.any()):
            mask = done | (rng.random(5) < 0.4)
            mask[index % 5] = True
            options = {"reset_mask": mask}
            assert_same(ours.reset(options=options), theirs.reset(options=dict(options)))
            assert list(options) == ["reset_mask"]
        step = ours.step(actions)
        assert_same(step, theirs.step(actions))
        done = step[2]


@pytest.mark.parametrize("scheme", PREDICTING)
def test_world_model_alone_equals_its_single_twin(task, scheme):
    """Without a correction the batch shows what the single wrappers show, forced anchors included."""
    ours, theirs = (make(task, 4, mode=MODES[0], correct=False, max_rescues=0) for make in (batched, side_by_side))
    assert_same(ours.reset(seed=2, options={"anchor": True}), theirs.reset(seed=2, options={"anchor": True}))
    for actions in replies(4, 12):
        assert_same(ours.step(actions), theirs.step(actions))


def test_one_call_per_step(task):
    """However many slots there are, a step asks the world model once and the sandbox at most once."""
    model = Guesser()
    envs = batched(task, 20, world_model=model, anchor_fraction=0.1, run=fresh_run())
    envs.reset(seed=0)
    executor = envs.unwrapped.grader
    for step, actions in enumerate(replies(20, 4, failures=False), 1):
        envs.step(actions)
        assert len(model.batches) == step and len(model.batches[-1]) == 20
        assert len(executor.batches) == step and len(executor.batches[-1]) == 2
    assert len(model.observed) == 1 and len(model.observed[0][0]) == 8
    one = single(task, world_model=Guesser())
    one.reset(seed=0, options={"anchor": True})
    one.step(replies(1, 1)[0][0])
    assert len(one.unwrapped.grader.batches) == 1
