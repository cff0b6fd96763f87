"""The corrected reward as a plain TRL reward function, called by hand and by TRL's own trainer."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from program_model import SYSTEM, program_model, programs, reply_to
from trl import GRPOConfig, GRPOTrainer

from wmrl_envs.agents import CorrectedReward
from wmrl_envs.agents._group_correction import Draw, GroupCorrection
from wmrl_envs.agents._two_graders import GradedTwice
from wmrl_envs.errors import CheckpointError, ConfigurationError, UnknownTaskError
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import load_task
from wmrl_envs.world_models import LearnedWorldModel
from wmrl_envs.wrappers._correction_state import CorrectionState

SIZE = 6
SMALL = {"warmup": 24, "trees": 10}


def function(**settings):
    settings = {"sandbox": "replay", "num_generations": SIZE, "world_model_kwargs": SMALL, **settings}
    return CorrectedReward(**settings)


def batch(groups, task="titanic"):
    """Return prompts and completions: in each group every program once."""
    replies = [reply_to(program) for program in programs(task)]
    return ["a prompt"] * (groups * SIZE), replies * groups


def real(groups, task="titanic"):
    outcomes = ReplaySandbox().grade([Submission(load_task(task), program) for program in programs(task)])
    return [outcome.reward for outcome in outcomes] * groups


def centred(values):
    rows = np.reshape(values, (-1, SIZE))
    return rows - rows.mean(axis=1, keepdims=True)


def test_anchor_groups_get_real_rewards_and_the_others_predictions():
    reward = function(anchor_fraction=0.25)
    assert reward.__name__ == "corrected_reward" and reward.scheme == "debias"
    logged = {}
    values = np.reshape(reward(*batch(8), log_metric=logged.__setitem__), (8, SIZE))
    truth = np.reshape(real(8), (8, SIZE))
    executed = np.isclose(values, truth, atol=1e-12).all(axis=1)
    assert executed.sum() == 2
    assert len({tuple(row) for row in values[~executed].round(9).tolist()}) == 1  # one prediction for one program
    assert logged["wmrl/anchors"] == 2.0 and logged["wmrl/executions"] == 24 + 2 * SIZE
    assert logged["wmrl/predictions"] == 8 * SIZE and logged["wmrl/pairs"] == 2 * SIZE
    assert logged["wmrl/real_reward"] == pytest.approx(np.mean(truth)) and logged["wmrl/ungraded"] == 0.0
    assert logged["wmrl/valid_real"] == 0.5 and logged["wmrl/execution_seconds"] > 0.0


def test_conversations_are_read_as_texts_are():
    texts = batch(4)[1]
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    parts = [[{"role": "assistant", "content": [{"type": "text", "text": text}]}] for text in texts]
    thoughts = [f"<think>or ```python\nprint(1)\n```?</think>{text}" for text in texts]
    turns = [[*chat, {"role": "tool", "content": "x"}] for chat in chats]
    expected = function()(batch(4)[0], texts)
    for completions in (chats, parts, thoughts, turns):
        assert function()(batch(4)[0], completions) == expected
    empty = function(scheme="real")(["x"] * SIZE, ["no program"] * (SIZE - 1) + [[]])
    assert empty == [0.0] * SIZE


@pytest.mark.parametrize("alpha_and_n", [2, 1, 3])
def test_centred_rewards_have_the_expectation_of_the_real_ones_over_all_draws(alpha_and_n):
    groups, n = 4, alpha_and_n
    rng = np.random.default_rng(0)
    truth, predicted = rng.random(groups * SIZE), rng.random(groups * SIZE)
    total, draws = np.zeros((groups, SIZE)), list(combinations(range(groups), n))
    for chosen in draws:
        anchors = np.repeat(np.isin(np.arange(groups), chosen), SIZE)
        graded = GradedTwice(np.where(anchors, truth, np.nan), predicted, np.zeros(len(truth)), [None] * len(truth))
        state = CorrectionState(
            anchor_fraction=n / groups,
            scheme="rectified",
            ramp=0.0,
            scale="centre",
            spread_bins=None,
            fixed_lambda=0.4,
            calibration=None,
            seed=0,
        )
        draw = Draw(SIZE, anchors, np.full(len(truth), n / groups))
        total += centred(GroupCorrection(state).settle(graded, draw, None))
    np.testing.assert_allclose(total / len(draws), centred(truth), atol=1e-12)


def test_all_schemes_pay_what_they_say():
    prompts, completions = batch(4)
    assert function(scheme="real")(prompts, completions) == pytest.approx(real(4), abs=1e-12)
    alone = function(scheme="world-model")
    predictions = alone(prompts, completions)
    assert alone.ledger.executions == 24 and predictions[:SIZE] == predictions[SIZE : 2 * SIZE]
    mixed = np.reshape(function(scheme="mixed", anchor_fraction=0.5)(prompts, completions), (4, SIZE))
    for row in mixed.tolist():
        assert row == pytest.approx(predictions[:SIZE]) or row == pytest.approx(real(1))
    rectified = np.reshape(function(anchor_fraction=0.5, scale_rewards="none")(prompts, completions), (4, SIZE))
    np.testing.assert_allclose(
        np.sort(centred(rectified), axis=0),
        np.sort(centred([predictions[:SIZE]] * 2 + [2 * np.array(real(1)) - predictions[:SIZE]] * 2), axis=0),
        atol=1e-12,
    )


class Forgetful(LearnedWorldModel):
    """Cannot predict the first program."""

    def grade(self, submissions):
        predictions = super().grade(submissions)
        return [None if s.code == programs()[0] else p for s, p in zip(submissions, predictions, strict=True)]


@pytest.mark.parametrize("anchor_fraction", [0.0, 1.0])
def test_what_is_unknown_is_none(anchor_fraction):
    reward = function(world_model=Forgetful(**SMALL), world_model_kwargs=None, anchor_fraction=anchor_fraction)
    values = reward(*batch(2))
    assert [value is None for value in values] == [True, *[False] * (SIZE - 1)] * 2
    assert reward.metrics()["ungraded"] == pytest.approx(1 / SIZE)


def test_each_row_names_its_task():
    reward = function(tasks=["titanic", "arrests"], anchor_fraction=1.0, scheme="real")
    prompts, completions = batch(1)
    both = completions + batch(1, "arrests")[1]
    values = reward(prompts * 2, both, task=["titanic"] * SIZE + ["arrests"] * SIZE)
    assert values == pytest.approx(real(1) + real(1, "arrests"), abs=1e-12)
    with pytest.raises(ConfigurationError, match="needs a column 'task'"):
        reward(prompts, completions)
    with pytest.raises(UnknownTaskError, match="Did you mean 'arrests'"):
        reward(prompts, completions, task=["arests"] * SIZE)
    with pytest.raises(ConfigurationError, match="is num_generations=6 the trainer's"):
        reward(prompts, completions, task=["titanic", *["arrests"] * (SIZE - 1)])


def test_the_ramp_goes_by_the_trainers_progress():
    def first(step):
        reward = function(anchor_fraction=0.5, scale_rewards="none", ramp=0.5)
        return reward(*batch(4), trainer_state=SimpleNamespace(global_step=step, max_steps=100))

    def size(step):
        return np.abs(centred(first(step))).max()

    assert size(0) < size(25) < size(50) == size(100)


def test_its_state_goes_on_exactly(tmp_path):
    reward = function(anchor_fraction=0.25)
    reward(*batch(8))
    reward.save(tmp_path)
    json.loads((tmp_path / "wmrl_reward.json").read_text())
    again = function(anchor_fraction=0.25)
    again.load(tmp_path)
    assert again.metrics()["executions"] == reward.metrics()["executions"]
    for _ in range(4):
        assert reward(*batch(8)) == again(*batch(8))
    with pytest.raises(CheckpointError, match="scheme='debias'"):
        function(scheme="mixed").load(tmp_path)
    (tmp_path / "wmrl_reward.json").write_text("{}")
    with pytest.raises(CheckpointError, match="no state of a CorrectedReward"):
        again.load(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        again.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scheme": "rectified"}, "set scale_rewards='none' in GRPOConfig and here, or take scheme='debias'"),
        ({"scheme": "paper"}, "scheme='paper' does not survive"),
        ({"scheme": "anchors-only"}, "scheme='real' and a smaller generation batch"),
        ({"scheme": "debiased"}, "Did you mean 'debias'"),
        ({"scale_rewards": "batch"}, "scale_rewards must be 'group' or 'none'"),
        ({"num_generations": 1}, "num_generations must be a whole number of at least 2, got 1"),
        ({"num_generations": 2.5}, "num_generations must be a whole number of at least 2, got 2.5"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"anchor_fraction": 2.0}, "anchor_fraction"),
        ({"world_model": "lerned"}, "Did you mean 'learned'"),
        ({"sandbox": ReplaySandbox(), "sandbox_kwargs": {"workers": 2}}, "go with a sandbox given by name"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        function(**settings)


def test_groups_have_to_be_known_and_whole():
    with pytest.raises(ConfigurationError, match="pass num_generations= .* or add callback"):
        function(num_generations=None)(*batch(1))
    with pytest.raises(ConfigurationError, match="5 completions holds no whole groups of num_generations=6"):
        function()(["x"] * 5, ["y"] * 5)
    with pytest.raises(ConfigurationError, match="a list of messages"):
        function()(["x"] * SIZE, [3] * SIZE)
    assert function()([], []) == []


def trainer(model, folder, reward, **settings):
    task = load_task("titanic")
    rows = [[{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.prompt().strip()}]] * 8
    config = {
        "output_dir": str(folder),
        "max_steps": 4,
        "num_generations": SIZE,
        "per_device_train_batch_size": 4 * SIZE,
        "max_completion_length": 3,
        "learning_rate": 3e-3,
        "scale_rewards": "none",
        "logging_steps": 1,
        "save_steps": 2,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "activation_checkpointing": False,
        "disable_tqdm": True,
    }
    return GRPOTrainer(
        str(model),
        reward,
        GRPOConfig(**{**config, **settings}),
        Dataset.from_dict({"prompt": rows, "task": ["titanic"] * len(rows)}),
        callbacks=[reward.callback()],
    )


def test_trls_own_trainer_trains_on_it_and_resumes(tmp_path):
    model = program_model(tmp_path / "model")
    settings = {"anchor_fraction": 0.5, "scale_rewards": "none", "num_generations": None}
    settings |= {"sandbox": "process", "isolation": "auto"}
    whole = trainer(model, tmp_path / "run", function(**settings))
    whole.train()
    rows = [row for row in whole.state.log_history if "wmrl/executions" in row]
    assert [row["wmrl/executions"] for row in rows] == [24 + 2 * SIZE * step for step in (1, 2, 3, 4)]
    assert rows[0]["rewards/corrected_reward/mean"] == rows[0]["reward"]
    again = trainer(model, tmp_path / "run", function(**settings))
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    for first, second in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=0)
    for name in ("executions", "pairs", "lambda"):
        assert whole.reward_funcs[0].metrics()[name] == again.reward_funcs[0].metrics()[name]
    whole.reward_funcs[0].close()
    again.reward_funcs[0].close()
    Path(tmp_path / "run" / "checkpoint-4" / "wmrl_reward.json").unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        other = trainer(model, tmp_path / "run", function(**settings), max_steps=6)
        other.train(resume_from_checkpoint=True)
    with pytest.raises(ConfigurationError, match="give both the same"):
        trainer(model, tmp_path / "run", function(**settings), scale_rewards="group").train()


def test_every_resumed_training_goes_on_from_its_own_checkpoint(tmp_path):
    reward = function(scheme="real")
    callback, args = (
        reward.callback(),
        SimpleNamespace(num_generations=SIZE, scale_rewards="group", output_dir=tmp_path),
    )
    for step in (1, 2, 3):
        reward(*batch(1))
        callback.on_save(args, SimpleNamespace(global_step=step), None)
    for step in (1, 2):
        callback.on_train_begin(args, SimpleNamespace(global_step=step), None)
        assert reward.ledger.executions == step * SIZE
    reward.load(tmp_path / "checkpoint-3")  # by hand, for a trainer that resumes from elsewhere
    callback.on_train_begin(args, SimpleNamespace(global_step=9), None)
    assert reward.ledger.executions == 3 * SIZE
    with pytest.raises(CheckpointError, match="load\\(FOLDER\\) the checkpoint's state before training"):
        callback.on_train_begin(args, SimpleNamespace(global_step=9), None)
