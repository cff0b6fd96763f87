"""From demonstrations to a fine-tuned policy, on pixels, at the smallest sizes that show something."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from wmrl_envs.robotics.comparison import progress_quality
from wmrl_envs.robotics.demonstrations import collect
from wmrl_envs.robotics.envs import MetaWorldVectorEnv
from wmrl_envs.robotics.evaluation import success_rates
from wmrl_envs.robotics.finetune import FinetuneConfig, RobotTrainer
from wmrl_envs.robotics.policy import SmallVLA, imitate
from wmrl_envs.robotics.video_model import VideoProgressModel, train_video_model

TASKS = ["button-press", "drawer-open", "window-open"]
SCENE: dict[str, Any] = {"draw_arm": False, "max_decisions": 12}


@pytest.fixture(scope="module")
def policy() -> SmallVLA:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy = SmallVLA()
    imitate(policy, collect(TASKS, 3, seed=0, **SCENE), steps=300)
    return policy


@pytest.fixture(scope="module")
def progress_model() -> VideoProgressModel:
    torch.set_num_threads(1)
    return train_video_model(collect(TASKS, 20, perturbed=40, seed=1, **SCENE), steps=300)


def success(policy: SmallVLA) -> float:
    env = MetaWorldVectorEnv(10, TASKS, **SCENE)
    solved = success_rates(policy, env, range(10))
    env.close()
    return float(np.mean(list(solved.values())))


def test_imitation_is_clearly_above_random(policy: SmallVLA) -> None:
    torch.manual_seed(1)
    assert success(policy) > success(SmallVLA()) + 0.25


def test_progress_is_seen_and_success_told_from_failure(progress_model: VideoProgressModel) -> None:
    quality = progress_quality(progress_model, collect(TASKS, 8, perturbed=16, seed=2, **SCENE))
    assert quality["rank_correlation"] is not None and quality["rank_correlation"] >= 0.9
    assert quality["success_auc"] is not None and quality["success_auc"] >= 0.85


@pytest.mark.parametrize("reward", ["mixed", "rectified"])
def test_a_policy_is_fine_tuned_on_pixels(policy: SmallVLA, progress_model: VideoProgressModel, reward: str) -> None:
    config = FinetuneConfig(tasks=",".join(TASKS), reward=reward, steps=3, groups=4, anchor_fraction=0.25, **SCENE)
    trained = SmallVLA()
    trained.load_state_dict(policy.state_dict())
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    trainer = RobotTrainer(config, trained, progress_model)
    rows = [trainer.train_step() for _ in range(3)]
    trainer.close()
    assert [(row["rollouts"], row["labels"], row["ungraded"]) for row in rows] == [(32.0, 8.0, 0.0)] * 3
    assert all(0.0 <= row["predicted_reward"] <= 1.0 for row in rows)
    changed = {name for name, value in trained.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if name.startswith("head")}
