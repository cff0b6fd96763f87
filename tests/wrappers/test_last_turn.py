"""What those who look on see of a turn: its submission with the predicted and the real outcome."""

import gymnasium as gym
import numpy as np
import pytest
from toy import FAILING, MODES, batched, fresh_run, reply, single

from wmrl_envs.wrappers import WorldModelWrapper


@pytest.mark.parametrize("feedback", ["real", "predicted"])
def test_both_outcomes_of_an_anchor_whatever_it_is_shown(task, feedback):
    env = single(task, correct=False, anchor_feedback=feedback)
    assert env.last_turn is None
    env.reset(seed=0, options={"anchor": True})
    env.step(reply(1.0, 0.7))
    submission, predicted, real = env.last_turn.of(0)
    assert "guess 0.7" in submission.code
    assert (predicted.reward, predicted.feedback, real.reward, real.feedback) == (0.7, "predicted", 1.0, "scored")
    env.step(FAILING)
    _, predicted, real = env.last_turn.of(0)
    assert predicted.reward == 0.6 and real is None
    assert env.last_turn.of(1) is None


@pytest.mark.parametrize("mode", MODES)
def test_of_a_batch_anchors_have_both_and_the_others_a_prediction(task, mode):
    env = batched(task, 6, mode=mode, group_size=2, correct=False, max_turns=2)
    anchors = np.array([True, True, False, False, True, True])
    env.reset(seed=0, options={"anchor": anchors})
    for turn in range(2):
        env.step(tuple(reply(0.1 * slot, 0.5 + 0.01 * slot + 0.1 * turn) for slot in range(6)))
        for slot in range(6):
            submission, predicted, real = env.last_turn.of(slot)
            assert predicted.reward == pytest.approx(0.5 + 0.01 * slot + 0.1 * turn)
            assert f"position = {0.1 * slot}" in submission.code
            assert (None if real is None else real.position) == (0.1 * slot if anchors[slot] else None)


def test_without_predictions_there_are_real_outcomes_alone(task):
    env = single(task, scheme="real")
    env.reset(seed=0)
    env.step(reply(0.5))
    _, predicted, real = env.last_turn.of(0)
    assert predicted is None and real.position == 0.5


def test_an_environment_without_a_grader_has_no_turns():
    env = WorldModelWrapper(gym.make("CartPole-v1"), lambda before, *_: [1.0] * len(before), run=fresh_run())
    env.reset(seed=0)
    env.step(0)
    assert env.last_turn is None
