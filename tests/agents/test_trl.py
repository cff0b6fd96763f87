"""GRPO of a real, tiny language model with TRL: real sandbox, real world model, whole episodes."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from peft import LoraConfig
from program_model import SYSTEM, program_model, programs, reply_to
from transformers import AutoTokenizer
from trl import GRPOConfig

from wmrl_envs.agents import ResearchGRPOTrainer
from wmrl_envs.agents.trl import STATE_FILE
from wmrl_envs.correction import standardise
from wmrl_envs.errors import CheckpointError, ConfigurationError, WMRLError
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import load_task
from wmrl_envs.trajectories import read_trajectories
from wmrl_envs.world_models import LearnedWorldModel

GROUP = 4
FEEDBACK = "The terminal showed:"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return program_model(tmp_path_factory.mktemp("program model"))


class Watched(ResearchGRPOTrainer):
    """Remembers what was played, and every batch that reaches the loss."""

    def __init__(self, *args, **kwargs):
        self.played, self.trained = [], []
        super().__init__(*args, **kwargs)

    def _play(self, prompts, trainer):
        played = super()._play(prompts, trainer)
        self.played.append({**played, "advantages": self._advantages})
        return played

    def _compute_loss(self, model, inputs):
        names = ("completion_ids", "completion_mask", "tool_mask", "advantages")
        self.trained.append({name: inputs[name].clone() for name in names})
        return super()._compute_loss(model, inputs)


@pytest.fixture
def make(model, tmp_path):
    trainers = []

    def make(*, kind=Watched, out="run", env_kwargs=None, processing_class=None, model=model, **settings):
        own = {
            name: settings.pop(name)
            for name in list(settings)
            if name
            in (
                "anchor_fraction scheme max_turns max_reply_tokens max_feedback_tokens system sandbox world_model "
                "peft_config tasks callbacks run_folder"
            ).split()
        }
        config = {
            "output_dir": str(tmp_path / out),
            "max_steps": 2,
            "num_generations": GROUP,
            "per_device_train_batch_size": 4 * GROUP,
            "max_completion_length": 200,
            "learning_rate": 3e-3,
            "lr_scheduler_type": "constant",
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": [],
            "use_cpu": True,
            "bf16": False,
            "activation_checkpointing": False,
            "disable_tqdm": True,
        }
        defaults = {"anchor_fraction": 0.5, "max_turns": 2, "max_reply_tokens": 3, "max_feedback_tokens": 64}
        defaults |= {"system": SYSTEM, "sandbox": "replay", "world_model": "learned", "tasks": "titanic"}
        given = {**defaults, **own}
        environment = {"isolation": "auto"}
        if given["world_model"] == "learned":
            environment["world_model_kwargs"] = {"warmup": 24, "trees": 10}
        trainer = kind(
            str(model) if processing_class is None else model,
            args=GRPOConfig(**{**config, **settings}),
            env_kwargs={**environment, **(env_kwargs or {})},
            processing_class=processing_class,
            **given,
        )
        trainers.append(trainer)
        return trainer

    yield make
    for trainer in trainers:
        trainer.close()


def weights(trainer):
    return {name: value.detach().clone() for name, value in trainer.model.named_parameters()}


def rewards_of(trainer, completions):
    """Return each episode's real reward, told from the programs in its tokens alone."""
    task, tokenizer = load_task("titanic"), trainer.processing_class
    tokens = tokenizer.convert_tokens_to_ids([reply_to(program) for program in programs()])
    outcomes = ReplaySandbox().grade([Submission(task, program) for program in programs()])
    worth = dict(zip(tokens, (outcome.reward for outcome in outcomes), strict=True))
    return [max([worth.get(token, 0.0) for token in completion], default=0.0) for completion in completions]


def test_two_optimiser_steps_through_a_real_sandbox_and_world_model(make):
    trainer = make(sandbox="process", save_strategy="steps", save_steps=1)
    before = weights(trainer)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "wmrl/executions" in row]
    assert [row["step"] for row in rows] == [1, 2]
    assert any((before[name] != value).any() for name, value in weights(trainer).items())
    for row in rows:
        assert row["wmrl/anchors"] == 2.0 and row["wmrl/replies"] == 2.0 and row["wmrl/ungraded"] == 0.0
        for name in ("predicted_reward", "calibrated_reward", "real_reward", "valid_predicted", "valid_real"):
            assert 0.0 <= row[f"wmrl/{name}"] <= 1.0
        assert sum(value for name, value in row.items() if name.startswith("wmrl/status/")) == pytest.approx(1.0)
    # The warm-up, and both turns of both anchor groups in each step.
    assert [row["wmrl/executions"] for row in rows] == [24 + 16, 24 + 32]
    assert [row["wmrl/predictions"] for row in rows] == [32, 64]
    assert rows[1]["wmrl/execution_seconds"] > rows[0]["wmrl/execution_seconds"] > 0.0
    assert rows[1]["wmrl/prediction_seconds"] > 0.0 and rows[1]["wmrl/cost_ratio"] > 0.0
    assert rows[1]["wmrl/pairs"] == 32 and rows[1]["wmrl/lambda"] == 1.0
    state = json.loads((Path(trainer.args.output_dir) / "checkpoint-2" / STATE_FILE).read_text())
    assert state["correction"]["world_model_wrapper"]["shared"]["ledger"]["counts"]["executions"] == 24 + 32


def test_advantages_are_those_of_the_episodes_whatever_trl_does_with_the_batch(make):
    trainer = make(
        scheme="real",
        per_device_train_batch_size=GROUP + 2,
        steps_per_generation=4,
        gradient_accumulation_steps=2,
        num_iterations=2,
        max_steps=8,
    )
    trainer.train()
    assert len(trainer.played) == 2 and len(trainer.trained) == 16
    for round_, played in enumerate(trainer.played):
        rewards = rewards_of(trainer, played["completion_ids"])
        groups = np.repeat(np.arange(len(rewards) // GROUP), GROUP)
        np.testing.assert_allclose(played["advantages"], standardise(rewards, groups), atol=1e-12)
        expected = Counter(
            (tuple(ids), np.float32(advantage))
            for ids, advantage in zip(played["completion_ids"], played["advantages"], strict=True)
        )
        for pass_ in range(2):
            start = 8 * round_ + 4 * pass_
            seen = Counter()
            for batch in trainer.trained[start : start + 4]:
                for ids, mask, advantage in zip(
                    batch["completion_ids"], batch["completion_mask"], batch["advantages"], strict=True
                ):
                    seen[tuple(ids[mask.bool()].tolist()), np.float32(advantage)] += 1
            assert seen == expected
    assert len({advantage for _, advantage in expected}) > 4  # a mistake would have shown


def test_what_the_environment_says_is_masked_out_of_the_loss(make):
    trainer = make(max_steps=1)
    trainer.train()
    [played], decode = trainer.played, trainer.processing_class.decode
    known = {reply_to(program) for program in programs()}
    for ids, mask in zip(played["completion_ids"], played["env_mask"], strict=True):
        own = [token for token, is_own in zip(ids, mask, strict=True) if is_own]
        theirs = decode([token for token, is_own in zip(ids, mask, strict=True) if not is_own])
        assert FEEDBACK in theirs and theirs.endswith("<|im_start|>assistant\n")
        replies = decode(own).split("<|im_end|>")
        assert len(replies) >= 2 and FEEDBACK not in decode(own)
        assert sum(reply in known for reply in replies) >= 1
    [batch] = trainer.trained
    expected = sorted(map(sum, played["env_mask"]))
    assert sorted((batch["tool_mask"] * batch["completion_mask"]).sum(1).tolist()) == expected
    assert trainer.state.log_history[0]["completions/mean_length"] == np.mean(expected)


class Forgetful(LearnedWorldModel):
    """Cannot predict the first program."""

    def grade(self, submissions):
        predictions = super().grade(submissions)
        return [None if s.code == programs()[0] else p for s, p in zip(submissions, predictions, strict=True)]


def test_an_ungraded_rollout_has_no_advantage_and_no_token_in_the_loss(make):
    trainer = make(world_model=Forgetful(warmup=24, trees=10), anchor_fraction=0.0, max_turns=1, max_steps=1)
    trainer.train()
    [played] = trainer.played
    unknown = [trainer.processing_class.convert_tokens_to_ids(reply_to(programs()[0]))]
    lost = [ids[:1] == unknown for ids in played["completion_ids"]]
    assert 0 < sum(lost) < len(lost)
    for is_lost, mask, advantage, value in zip(
        lost, played["env_mask"], played["advantages"], played["corrected_return"], strict=True
    ):
        assert (sum(mask) == 0) == is_lost == (value is None)
        assert not is_lost or advantage == 0.0
    returns = [np.nan if value is None else value for value in played["corrected_return"]]
    expected = standardise(returns, np.repeat(np.arange(GROUP), GROUP))
    np.testing.assert_allclose(played["advantages"], expected, atol=1e-12)
    row = trainer.state.log_history[0]
    assert row["wmrl/ungraded"] == np.mean(lost) and row["wmrl/anchors"] == 0.0 and "wmrl/real_reward" not in row


def test_a_run_goes_on_from_a_checkpoint_exactly(make):
    whole = make(max_steps=4, save_strategy="steps", save_steps=2)
    whole.train()
    again = make(max_steps=4, out="again")
    again.train(resume_from_checkpoint=str(Path(whole.args.output_dir) / "checkpoint-2"))
    assert len(again.played) == 2
    for first, second in zip(whole.played[2:], again.played, strict=True):
        assert first["completion_ids"] == second["completion_ids"]
        assert first["advantages"] == second["advantages"]
    for name, value in weights(whole).items():
        torch.testing.assert_close(value, weights(again)[name], rtol=0, atol=0)
    timed = {"prediction_seconds", "seconds", "cached_seconds", "cost_ratio", "cached_cost_ratio"}
    one, other = ({**trainer.env.metrics()} for trainer in (whole, again))
    assert {name: one[name] for name in one if name not in timed} == {
        name: other[name] for name in other if name not in timed
    }


def test_a_run_folder_holds_the_episodes_and_goes_on_from_a_checkpoint(make, tmp_path):
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "max_reply_tokens": 3}
    whole = make(run_folder=tmp_path / "whole", **settings)
    whole.train()
    episodes, rows = read_trajectories(tmp_path / "whole"), pd.read_csv(tmp_path / "whole" / "metrics.csv")
    assert rows["step"].tolist() == [1, 2, 3, 4]
    assert rows["anchors"].tolist() == [0.5] * 4
    assert rows["executions"].tolist() == [24 + 16 * step for step in range(1, 5)]
    assert rows["predictions"].tolist() == [32 * step for step in range(1, 5)]
    assert rows.filter(like="status_").sum(axis=1).tolist() == pytest.approx([1.0] * 4)
    assert [episode["step"] for episode in episodes] == [step for step in range(1, 5) for _ in range(16)]
    assert [episode["anchor"] for episode in episodes] == ([True] * 8 + [False] * 8) * 4
    for episode in episodes:
        assert episode["task"] == "titanic" and len(episode["turns"]) == 2
        for turn in episode["turns"]:
            assert turn["code"].strip() in turn["reply"] if "code" in turn else turn["reply"] == ""
            assert ("real" in turn) == episode["anchor"]
        assert max(turn["predicted"]["reward"] for turn in episode["turns"]) == episode["predicted_reward"]
    assert sum("code" in turn for episode in episodes for turn in episode["turns"]) > 100
    means = {step: [e["predicted_reward"] for e in episodes if e["step"] == step] for step in rows["step"]}
    assert [np.mean(means[step]) for step in rows["step"]] == pytest.approx(rows["predicted_reward"].tolist())
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert (config["task"], config["reward"], config["group_size"], config["steps"]) == ("titanic", "rectified", 4, 4)
    assert json.loads((tmp_path / "whole" / "summary.json").read_text())["ledger"]["predictions"] == 128
    calibration = json.loads((tmp_path / "whole" / "calibration.json").read_text())
    assert calibration["step"] == [step for step in range(1, 5) for _ in range(8)]

    # A folder in the state in which a kill after the third step leaves it.
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    lines = (tmp_path / "killed" / "trajectories.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "killed" / "trajectories.jsonl").write_text("".join(lines[:50]) + lines[50][:100])
    with pytest.raises(CheckpointError, match="already holds a run"):
        make(out="other", run_folder=tmp_path / "killed", **settings).train()
    again = make(out="again", run_folder=tmp_path / "killed", **settings)
    again.train(resume_from_checkpoint=str(Path(whole.args.output_dir) / "checkpoint-2"))
    known = pd.read_csv(tmp_path / "killed" / "metrics.csv")
    clock = [name for name in rows if "seconds" in name or "ratio" in name]
    pd.testing.assert_frame_equal(known.drop(columns=clock), rows.drop(columns=clock))
    assert without_seconds(read_trajectories(tmp_path / "killed")) == without_seconds(episodes)


def without_seconds(episodes):
    for turn in (turn for episode in episodes for turn in episode["turns"]):
        turn["predicted"].pop("seconds")
        turn.get("real", {}).pop("seconds", None)
    return episodes


def test_a_checkpoint_of_another_trainer_is_refused(make, tmp_path):
    trainer = make(max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    path = Path(trainer.args.output_dir) / "checkpoint-1" / STATE_FILE
    state = json.loads(path.read_text())
    with pytest.raises(CheckpointError, match="scheme='rectified'"):
        make(scheme="paper", out="paper").train(resume_from_checkpoint=str(path.parent))
    path.write_text(json.dumps({"begun": state["begun"]}))
    with pytest.raises(CheckpointError, match="no state of a research environment"):
        make(out="damaged").train(resume_from_checkpoint=str(path.parent))
    path.unlink()
    with pytest.raises(CheckpointError, match="resume from a checkpoint of this trainer"):
        make(out="missing").train(resume_from_checkpoint=str(path.parent))


def test_lora_trains_an_adapter_alone(make):
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "up_proj"], init_lora_weights=False)
    trainer = make(peft_config=lora, learning_rate=1e-2)
    before = weights(trainer)
    trainer.train()
    changed = {name for name, value in weights(trainer).items() if (before[name] != value).any()}
    assert changed and all("lora" in name for name in changed)


@pytest.mark.parametrize(
    ("scheme", "executed", "predicted"),
    [("paper", 24 + 16, 32), ("mixed", 24 + 16, 32), ("world-model", 24, 32), ("real", 32, 0)],
)
def test_every_scheme_trains(make, scheme, executed, predicted):
    trainer = make(scheme=scheme, max_steps=1)
    trainer.train()
    row = trainer.state.log_history[0]
    assert (row["wmrl/executions"], row["wmrl/predictions"]) == (executed, predicted)
    assert any(trainer.played[0]["advantages"])
    assert ("wmrl/weight" in row) == (scheme == "paper")


def test_rewards_are_centred_where_the_configuration_says_so(make):
    trainer = make(scheme="real", scale_rewards="none", max_steps=1)
    trainer.train()
    rewards = np.reshape(rewards_of(trainer, trainer.played[0]["completion_ids"]), (-1, GROUP))
    expected = (rewards - rewards.mean(axis=1, keepdims=True)).ravel()
    np.testing.assert_allclose(trainer.played[0]["advantages"], expected, atol=1e-12)


def test_an_episode_without_tokens_left_ends_in_empty_replies(make):
    trainer = make(scheme="real", max_completion_length=8, max_reply_tokens=3, max_turns=3, max_steps=1)
    trainer.train()
    row, [played] = trainer.state.log_history[0], trainer.played
    assert row["wmrl/replies"] == 1.0 and row["wmrl/out_of_tokens"] == 1.0
    assert all(
        len(ids) <= 3 and all(mask) for ids, mask in zip(played["completion_ids"], played["env_mask"], strict=True)
    )
    assert row["wmrl/status/malformed"] >= 2 / 3
    rewards = rewards_of(trainer, played["completion_ids"])
    np.testing.assert_allclose(played["corrected_return"], rewards, atol=1e-12)


def test_learning_moves_the_policy_to_the_better_programs(make):
    trainer = make(
        num_generations=8,
        per_device_train_batch_size=32,
        max_turns=1,
        max_steps=10,
        learning_rate=5e-3,
        anchor_fraction=0.25,
    )
    trainer.train()
    means = [np.mean(rewards_of(trainer, played["completion_ids"])) for played in trainer.played]
    assert np.mean(means[-2:]) > np.mean(means[:2]) + 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_steps": -1}, "max_steps must be at least 1, got -1"),
        ({"scale_rewards": "batch"}, "scale_rewards must be 'group'"),
        ({"scheme": "anchors-only"}, "set generation_batch_size=8 .2 of 4 groups. and scheme='real'"),
        ({"scheme": "rectify"}, "scheme must be one of .*Did you mean 'rectified'"),
        ({"anchor_fraction": 1.5}, "anchor_fraction"),
        ({"max_reply_tokens": 201}, "from 1 to max_completion_length=200"),
        ({"max_feedback_tokens": 8}, "max_feedback_tokens must be at least 64, got 8"),
        ({"env_kwargs": {"max_turns": 3}}, "env_kwargs.'max_turns'. is told by max_turns="),
        ({"env_kwargs": {"group_size": 8}}, "is told by args .num_generations."),
        ({"env_kwargs": {"isolate": "auto"}}, "unknown argument 'isolate'.*Did you mean 'isolation'"),
        ({"tasks": "titanik"}, "Did you mean 'titanic'"),
        ({"max_turns": 0}, "max_turns must be a whole number of at least 1"),
        ({"system": "word " * 3000}, "task 'titanic' takes .* tokens, and the model reads 4096"),
    ],
)
def test_settings_that_cannot_work_are_refused(make, settings, message):
    with pytest.raises((ConfigurationError, WMRLError), match=message):
        make(**settings)


def test_a_generation_batch_of_broken_groups_is_refused(model, tmp_path):
    args = GRPOConfig(str(tmp_path), max_steps=1, num_generations=4, per_device_train_batch_size=8, use_cpu=True)
    args.generation_batch_size = 10
    with pytest.raises(ConfigurationError, match="10 rollouts .* num_generations=4: .* generation_batch_size=8"):
        ResearchGRPOTrainer(str(model), args=args)


def test_a_tokenizer_without_a_chat_template_is_refused(make, model):
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = None
    with pytest.raises(ConfigurationError, match="has no chat template"):
        make(processing_class=tokenizer)


def test_it_does_not_evaluate_by_the_world_model(make):
    with pytest.raises(ConfigurationError, match="wmrl evaluate"):
        make().evaluate()
