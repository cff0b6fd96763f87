"""Predicted rewards in place of executed ones, and what happens when one of the two is missing."""

import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy import FAILING, MODES, Executor, Guesser, batched, fresh_run, replies, reply, single

from wmrl_envs.errors import ConfigurationError, GradingError, WorldModelError
from wmrl_envs.research.env import ResearchEnv
from wmrl_envs.research.outcome import Outcome, Prediction, Status
from wmrl_envs.wrappers import WorldModelWrapper, vector

HIDDEN, SHOWN = {"anchor": False}, {"anchor": True}


def test_predictions_replace_execution_and_feedback(task):
    env = single(task, correct=False, max_turns=2)
    env.reset(seed=0, options=HIDDEN)
    observation, reward, terminated, _, info = env.step(reply(1.0, 0.7))
    assert observation["feedback"] == "predicted" and reward == 0.7 and not terminated
    assert info["wmrl"] == {
        "group": info["wmrl"]["group"],
        "anchor": False,
        "ungraded": False,
        "predicted_reward": 0.7,
        "outcome": info["wmrl"]["outcome"],
    }
    assert isinstance(info["wmrl"]["outcome"], Prediction)
    _, reward, terminated, _, info = env.step(reply(1.0, 0.6))
    assert reward == 0.0 and terminated
    assert info["wmrl"]["predicted_reward"] == 0.7  # the episode's at its last step, the best turn
    assert env.unwrapped.grader.executed == 0


@pytest.mark.parametrize("feedback", ["real", "predicted"])
def test_anchor_has_both_streams(task, feedback):
    env = single(task, correct=False, max_turns=2, anchor_feedback=feedback)
    env.reset(seed=0, options=SHOWN)
    observation, reward, _, _, info = env.step(reply(1.0, 0.7))
    assert info["wmrl"]["real_reward"] == 1.0 and info["wmrl"]["predicted_reward"] == 0.7
    assert observation["feedback"] == ("scored" if feedback == "real" else "predicted")
    assert reward == (1.0 if feedback == "real" else 0.7)
    _, _, _, _, info = env.step(reply(0.2, 0.9))
    assert info["wmrl"]["real_reward"] == 1.0 and info["wmrl"]["predicted_reward"] == 0.9
    assert env.ledger.executions == 2 and env.ledger.predictions == 2
    assert env.ledger.execution_seconds == 0.5 and env.ledger.prediction_seconds == pytest.approx(0.002)


def test_executions_are_shown_to_the_world_model_once_the_episode_ends(task):
    model = Guesser()
    env = single(task, world_model=model, correct=False, max_turns=2)
    env.reset(seed=0, options=SHOWN)
    env.step(reply(1.0))
    assert model.observed == []
    env.step(FAILING)
    ((submissions, outcomes),) = model.observed
    assert [submission.code.split()[2] for submission in submissions] == ["1.0", "True"]
    assert outcomes[0].reward == 1.0 and outcomes[1] is None
    env.reset(options=HIDDEN)
    env.step(reply(1.0))
    env.reset()
    assert len(model.observed) == 1


def test_executions_of_an_abandoned_episode_are_shown_too(task):
    model = Guesser()
    env = single(task, world_model=model, correct=False)
    env.reset(options=SHOWN)
    env.step(reply(1.0))
    env.reset(options=HIDDEN)
    assert len(model.observed) == 1


def test_warm_up_is_charged_once(task):
    class Warm(Guesser):
        prepared = 0

        def prepare(self, tasks, grader):
            self.prepared += 1
            if self.prepared > 1:
                return []
            from wmrl_envs.research.grading import Submission

            submissions = [Submission(tasks[0], f"position = {k / 10}") for k in range(9)]
            return list(zip(submissions, grader.grade(submissions), strict=True))

    env = single(task, world_model=Warm(), correct=False)
    env.reset()
    env.reset()
    assert env.ledger.warmup_executions == env.ledger.executions == 9
    assert env.ledger.warmup_seconds == 9 * 0.25


class TestFailures:
    def test_lost_prediction_is_rescued_by_executing_the_episode(self, task):
        """The turns before the loss are executed too: the best of them counts."""
        envs = batched(task, 3, correct=False, max_turns=3, max_rescues=1)
        executor = envs.unwrapped.grader
        envs.reset(seed=0)
        envs.step((reply(0.9, 0.6), reply(0.1, 0.6), reply(0.1, 0.6)))
        assert executor.executed == 0
        _, _, _, _, infos = envs.step((reply(0.2, "none"), reply(0.2, "none"), reply(0.2, 0.6)))
        assert executor.executed == 2  # the first slot's two turns; there is room for one rescue
        assert infos["wmrl"]["ungraded"].tolist() == [False, True, False]
        assert infos["wmrl"]["_outcome"].tolist() == [True, False, True]
        _, _, done, _, infos = envs.step((reply(0.0, 0.6), reply(0.2, 0.6), reply(0.2, 0.6)))
        assert done.all() and executor.executed == 3
        wmrl = infos["wmrl"]
        assert wmrl["_real_reward"].tolist() == [True, False, False] and wmrl["real_reward"][0] == 0.95
        assert wmrl["_predicted_reward"].tolist() == [False, False, True]
        assert wmrl["ungraded"].tolist() == [False, True, False]

    def test_rescue_does_not_reach_into_an_earlier_episode(self, task):
        envs = batched(task, 2, correct=False, max_turns=4, mode=AutoresetMode.DISABLED)
        envs.reset(seed=0)
        envs.step((reply(0.9, 0.6), reply(0.9, 0.6)))
        envs.reset(options={"reset_mask": np.array([True, False])})
        envs.step((reply(0.3, 0.6), reply(0.9, 0.6)))
        envs.step((reply(0.2, "none"), reply(0.2, 0.6)))
        batch = envs.unwrapped.grader.batches[-1]
        assert [submission.code.split()[2] for submission in batch] == ["0.2", "0.3"]

    def test_execution_that_fails_leaves_the_anchor_ungraded(self, task):
        env = single(task, correct=False, max_turns=2)
        env.reset(options=SHOWN)
        observation, reward, _, _, info = env.step(FAILING)
        assert reward == 0.0 and info["wmrl"]["ungraded"]
        assert "real_reward" not in info["wmrl"] and "outcome" not in info["wmrl"]
        assert info["wmrl"]["predicted_reward"] == 0.6
        *_, info = env.step(reply(1.0))
        assert info["wmrl"]["ungraded"] and "real_reward" not in info["wmrl"]
        _, info = env.reset()
        assert not info["wmrl"]["ungraded"]

    def test_no_rescues(self, task):
        env = single(task, correct=False, max_rescues=0)
        env.reset()
        *_, info = env.step(reply(0.5, "none"))
        assert info["wmrl"]["ungraded"] and env.unwrapped.grader.executed == 0

    def test_too_few_predictions(self, task):
        class Short(Guesser):
            def grade(self, submissions):
                return super().grade(submissions)[1:]

        envs = batched(task, 4, world_model=Short())
        envs.reset()
        with pytest.raises(GradingError, match=r"Short\.grade returned 3 predictions for 4"):
            envs.step(replies(4, 1)[0])

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_prediction_that_is_no_number_counts_as_none(self, task, value):
        class Odd(Guesser):
            def grade(self, submissions):
                predictions = super().grade(submissions)
                object.__setattr__(predictions[1], "reward", value)
                return predictions

        envs = batched(task, 3, world_model=Odd(), max_rescues=0, anchor_fraction=0.0)
        envs.reset()
        with pytest.warns(RuntimeWarning, match=f"Odd predicted the reward {value} for member 1") as caught:
            *_, infos = envs.step(replies(3, 1, failures=False)[0])
            *_, infos = envs.step(replies(3, 1, failures=False)[0])
        assert len(caught) == 1
        assert infos["wmrl"]["ungraded"].tolist() == [False, True, False]

    def test_world_model_that_raises(self, task):
        class Broken(Guesser):
            def grade(self, submissions):
                raise KeyError("weights")

        env = single(task, world_model=Broken())
        env.reset()
        with pytest.raises(WorldModelError, match="Broken failed in grade: KeyError") as caught:
            env.step(reply(1.0))
        assert isinstance(caught.value.__cause__, KeyError)

    def test_own_errors_of_a_world_model_pass(self, task):
        class Away(Guesser):
            def grade(self, submissions):
                raise WorldModelError("the server is away")

        env = single(task, world_model=Away())
        env.reset()
        with pytest.raises(WorldModelError, match="^the server is away$"):
            env.step(reply(1.0))

    @pytest.mark.parametrize("answer", [None, 0.5, ["yes"]])
    def test_answers_that_are_no_predictions(self, task, answer):
        class Wrong(Guesser):
            def grade(self, submissions):
                return answer

        env = single(task, world_model=Wrong())
        env.reset()
        with pytest.raises(WorldModelError, match=r"Wrong\.grade returned (NoneType|float|str)"):
            env.step(reply(1.0))

    def test_sandbox_that_answers_too_few(self, task):
        class Short(Executor):
            def grade(self, submissions):
                return []

        env = single(task, executor=Short())
        env.reset(options=SHOWN)
        with pytest.raises(GradingError, match="Short"):
            env.step(reply(1.0))


def test_plain_outcomes_are_predictions_too(task):
    """A table of recorded outcomes is a world model; an outcome's seconds are not what the prediction took."""
    model = Executor()
    env = single(task, world_model=model, correct=False)
    env.reset()
    *_, info = env.step(reply(0.4))
    assert isinstance(info["wmrl"]["outcome"], Outcome) and info["wmrl"]["predicted_reward"] == 0.7
    assert "real_reward" not in info["wmrl"]
    assert env.ledger.prediction_seconds < 0.25


class TestConstruction:
    def test_settings_that_do_not_fit(self, task):
        for settings, match in [
            ({"anchor_feedback": "both"}, "anchor_feedback must be one of"),
            ({"per": "epsiode"}, "Did you mean 'episode'"),
            ({"per": "episode"}, "environments without a grader"),
            ({"withhold": ("success",)}, "environments without a grader"),
            ({"max_rescues": -1}, "max_rescues must be"),
        ]:
            with pytest.raises(ConfigurationError, match=match):
                WorldModelWrapper(ResearchEnv(task, sandbox=Executor()), Guesser(), run=fresh_run(), **settings)
        with pytest.raises(ConfigurationError, match="Leave it out"):
            WorldModelWrapper(gym.make("CartPole-v1"), len, anchor_feedback="predicted")

    def test_unknown_name(self, task):
        with pytest.raises(ConfigurationError, match="'learnt'.*Did you mean 'learned'"):
            WorldModelWrapper(ResearchEnv(task, sandbox=Executor()), "learnt")

    def test_wrapped_twice(self, task):
        env = single(task, correct=False)
        with pytest.raises(ConfigurationError, match="already"):
            WorldModelWrapper(env, Guesser())

    def test_sync_vector_env_has_no_grader(self, task):
        envs = SyncVectorEnv([lambda: ResearchEnv(task, sandbox=Executor())] * 2)
        with pytest.raises(ConfigurationError, match="vector_entry_point"):
            vector.WorldModelWrapper(envs, Guesser())

    def test_anchor_option(self, task):
        env = single(task, correct=False)
        with pytest.raises(ConfigurationError, match="must be True or False, got 1"):
            env.reset(options={"anchor": 1})
        envs = batched(task, 4, correct=False, group_size=2)
        with pytest.raises(ConfigurationError, match="equal within each group of 2"):
            envs.reset(options={"anchor": np.array([True, False, True, True])})
        with pytest.raises(ConfigurationError, match="4 bools"):
            envs.reset(options={"anchor": [True]})


@pytest.mark.parametrize("mode", MODES)
def test_infos_follow_gymnasium(task, mode):
    """Every array has its mask, none holds NaN, and what is masked out reads 0 or None."""
    envs = batched(task, 6, mode=mode, anchor_fraction=0.3, max_turns=2)
    infos = envs.reset(seed=0)[1]
    seen = set()
    for actions in [None, *replies(6, 24)]:
        if actions is not None:
            _, rewards, done, _, infos = envs.step(actions)
            assert np.isfinite(rewards).all() and rewards.dtype == np.float64
            if mode is AutoresetMode.DISABLED and done.all():
                envs.reset()
        for info in (infos, infos.get("final_info", infos)):
            wmrl = info["wmrl"]
            for key in [key for key in wmrl if not key.startswith("_")]:
                seen.add(key)
                values, mask = wmrl[key], wmrl["_" + key]
                assert values.shape == mask.shape == (6,) and mask.dtype == np.bool_ and mask.any()
                blank = [None] if values.dtype == object else [0]
                assert all(value in blank for value in values[~mask])
                assert values.dtype == object or np.isfinite(values).all()
    assert seen == {
        "group", "anchor", "ungraded", "anchor_probability", "lambda", "alpha", "real_reward", "predicted_reward",
        "calibrated_reward", "corrected_return", "outcome",
    }  # fmt: skip


def test_json_of_the_spec(task):
    """By name everything is JSON-able; an object travels by reference and is never copied."""
    model = Guesser()
    wrapped = single(task, world_model=model, correct=False)
    assert wrapped._saved_kwargs["world_model"].value is model
    cart = WorldModelWrapper(gym.make("CartPole-v1"), f"{__name__}:flat", withhold=["x"], run=fresh_run())
    spec = cart.spec
    again = gym.make(gym.envs.registration.EnvSpec.from_json(spec.to_json()))
    assert json.loads(spec.to_json())["additional_wrappers"][-1]["kwargs"]["withhold"] == ["x"]
    assert isinstance(again, WorldModelWrapper)


def flat(observations, actions, next_observations, infos):
    return [0.5] * len(infos)


def test_status_of_outcome_is_shown(task):
    envs = batched(task, 2, correct=False)
    envs.reset()
    *_, infos = envs.step((reply(1.0, 0.9), "nothing # guess 0.2"))
    assert [outcome.status for outcome in infos["wmrl"]["outcome"][:1]] == [Status.VALID]
