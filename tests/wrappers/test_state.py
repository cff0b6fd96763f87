"""Saving in the middle of an episode and going on elsewhere, exactly."""

import json

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from test_labels import Reach, closer, progress
from toy import MODES, Guesser, batched, fresh_run, replies, reply, single

from wmrl_envs.correction import SCHEMES
from wmrl_envs.wrappers import CorrectionWrapper, WorldModelWrapper, vector


class Learner(Guesser):
    """Adds what it has learned to each guess, so that a state that was not restored shows."""

    def __init__(self):
        super().__init__()
        self.learned = 0.0

    def grade(self, submissions):
        predictions = super().grade(submissions)
        for prediction in predictions:
            if prediction is not None:
                object.__setattr__(prediction, "reward", min(prediction.reward + self.learned, 1.0))
        return predictions

    def observe(self, submissions, outcomes):
        self.learned += sum(outcome.reward for outcome in outcomes if outcome) / 1000

    def state_dict(self):
        return {"learned": self.learned}

    def load_state_dict(self, state):
        self.learned = state["learned"]


def through_json(env):
    return json.loads(json.dumps({"wrappers": env.state_dict(), "env": env.unwrapped.state_dict()}, allow_nan=False))


def load(env, state):
    env.unwrapped.load_state_dict(state["env"])
    env.load_state_dict(state["wrappers"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scheme, group_size", [*((scheme, 1) for scheme in SCHEMES), ("rectified", 3), ("paper", 3)])
def test_going_on_within_an_episode(task, scheme, mode, group_size):
    """The rest is the same to the last bit, wherever in an episode the run was cut."""
    settings = {
        "mode": mode, "scheme": scheme, "group_size": group_size, "anchor_fraction": 0.4, "max_turns": 3, "ramp": 0.3,
        "calibration": {"min_pairs": 6}, "spread_bins": 2,
    }  # fmt: skip
    actions = replies(6, 26)
    for cut in (17, 19):
        whole = batched(task, 6, world_model=Learner(), **settings)
        whole.set_progress(0.1)
        whole.reset(seed=0)
        for index, action in enumerate(actions):
            if index == cut:
                saved = through_json(whole)
                resumed = batched(task, 6, world_model=Learner(), **settings)
                load(resumed, saved)
                assert through_json(resumed) == saved
            step = whole.step(action)
            if index >= cut:
                for one, other in zip(step, resumed.step(action), strict=True):
                    assert data_equivalence(one, other, exact=True)
            if mode is AutoresetMode.DISABLED and step[2].all():
                whole.reset()
                if index >= cut:
                    resumed.reset()
        assert through_json(resumed) == through_json(whole)


def test_going_on_in_a_single_environment(task):
    settings = {"anchor_fraction": 0.5, "calibration": {"min_pairs": 4}, "max_turns": 4}
    env = single(task, world_model=Learner(), **settings)
    actions = [row[0] for row in replies(1, 60)]
    env.reset(seed=1)
    for action in actions[:30]:
        if env.step(action)[2]:
            env.reset()
    saved = through_json(env)
    other = single(task, world_model=Learner(), **settings)
    load(other, saved)
    for action in actions[30:]:
        step = env.step(action)
        assert data_equivalence(list(step), list(other.step(action)), exact=True)
        if step[2]:
            assert data_equivalence(list(env.reset()), list(other.reset()), exact=True)
    assert through_json(env) == through_json(other)


def test_rescue_after_going_on(task):
    """The turns before the cut are still known, and are executed when a prediction fails after it."""
    env = single(task)
    env.reset(options={"anchor": False})
    env.step(reply(0.9, 0.6))
    saved, other = through_json(env), single(task)
    load(other, saved)
    other.step(reply(0.0, "none"))
    assert [submission.code.split()[2] for submission in other.unwrapped.grader.batches[0]] == ["0.0", "0.9"]


@pytest.mark.parametrize("mode", MODES)
def test_going_on_where_labels_are_replaced(mode):
    """Sums of per-step predictions go on; the environment, which saves no state, is brought back by hand."""

    def make():
        run = fresh_run()
        envs = vector.WorldModelWrapper(
            SyncVectorEnv([Reach] * 3, autoreset_mode=mode), closer, withhold=["success"], run=run
        )
        return vector.CorrectionWrapper(envs, anchor_fraction=0.5, run=run)

    whole, resumed = make(), make()
    whole.action_space.seed(0)
    actions = [whole.action_space.sample() for _ in range(12)]
    whole.reset(seed=0)
    resumed.reset(seed=0)
    for index, action in enumerate(actions):
        if index == 2:
            resumed.load_state_dict(json.loads(json.dumps(whole.state_dict(), allow_nan=False)))
        step, other = whole.step(action), resumed.step(action)
        if index >= 2:
            assert data_equivalence(list(step)[1:4], list(other)[1:4], exact=True)
            assert data_equivalence(step[4]["wmrl"], other[4]["wmrl"], exact=True)
        if mode is AutoresetMode.DISABLED and step[3].all():
            whole.reset()
            resumed.reset()


def test_episode_cut_off_before_it_could_be_judged():
    env, other = (
        CorrectionWrapper(
            WorldModelWrapper(Reach(), progress, per="episode", max_rescues=0, withhold=["success"], run=run), run=run
        )
        for run in (fresh_run(), fresh_run())
    )
    env.reset(seed=0)
    env.step(np.zeros(1))
    other.reset(seed=0)
    other.step(np.zeros(1))
    other.load_state_dict(json.loads(json.dumps(env.state_dict())))
    for _ in range(3):
        *_, info = other.step(np.zeros(1))
    assert info["wmrl"]["ungraded"] and "predicted_reward" not in info["wmrl"]
    other.reset()
    for _ in range(4):
        *_, info = other.step(np.zeros(1))
    assert not info["wmrl"]["ungraded"]
