"""Our datasets in LeRobot's own classes and tools; not part of the default run: make test-lerobot."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthetic_rollouts import mixed_rollouts, synthetic_rollout
from wmrl_envs.errors import DatasetError
from wmrl_envs.robotics.dataset import load_rollouts, save_rollouts
from wmrl_envs.robotics.demonstrations import Rollout

pytestmark = [pytest.mark.lerobot, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", autouse=True)
def _torchvision() -> Iterator[None]:
    """Import torchvision beside a torch that it was not built for, too; nothing compiled of it is used here."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    yield


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_rollouts(mixed_rollouts(), tmp_path / "demos", fps=8)
    return tmp_path / "demos"


def opened(folder: Path, **arguments: Any) -> Any:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    return LeRobotDataset("wmrl/demos", root=folder, **arguments)


def assert_same(found: list[Rollout], expected: list[Rollout]) -> None:
    for one, other in zip(found, expected, strict=True):
        for field in fields(Rollout):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), field.name)


def test_every_row(saved: Path) -> None:
    dataset = opened(saved)
    rows = iter(range(len(dataset)))
    assert (dataset.num_episodes, dataset.fps, len(dataset)) == (4, 8, 18)
    for number, rollout in enumerate(mixed_rollouts()):
        for decision, action in enumerate(rollout.actions):
            item = dataset[next(rows)]
            image = item["observation.images.workspace"]
            assert image.shape == (3, 24, 32)
            pixels = (image.numpy() * 255).round().astype(np.uint8).transpose(1, 2, 0)
            np.testing.assert_array_equal(pixels, rollout.frames[decision])
            np.testing.assert_array_equal(item["observation.state"].numpy(), rollout.states[decision])
            np.testing.assert_array_equal(item["action"].numpy(), action)
            assert item["task"] == rollout.instruction
            assert item["episode_index"].item() == number and item["frame_index"].item() == decision
            assert item["next.success"].item() == rollout.solved[decision + 1]
            assert item["next.done"].item() == (decision == len(rollout.actions) - 1)


def test_chunks_of_future_actions_stay_within_the_episode(saved: Path) -> None:
    item = opened(saved, delta_timestamps={"action": [step / 8 for step in range(4)]})[3]
    assert item["action_is_pad"].tolist() == [False, False, True, True]
    np.testing.assert_array_equal(item["action"][:2].numpy(), mixed_rollouts()[0].actions[3:])


def test_some_episodes_alone(saved: Path) -> None:
    dataset = opened(saved, episodes=[1, 2])
    assert len(dataset) == 10
    np.testing.assert_array_equal(dataset[1]["action"].numpy(), mixed_rollouts()[2].actions[0])


def test_batches_come_from_a_loader(saved: Path) -> None:
    import torch

    batch = next(iter(torch.utils.data.DataLoader(opened(saved), batch_size=18)))
    assert batch["observation.images.workspace"].shape == (18, 3, 24, 32)
    assert batch["action"].shape == (18, 4)


def test_fractional_rate_and_chunks(tmp_path: Path) -> None:
    rollout = synthetic_rollout(action=(2, 4))
    save_rollouts([rollout], tmp_path / "demos", fps=80 / 15)
    item = opened(tmp_path / "demos", delta_timestamps={"action": [0.0, 15 / 80]})[1]
    np.testing.assert_array_equal(item["action"].numpy(), rollout.actions[1:3].reshape(2, 8))


def test_policy_is_built_from_the_dataset(saved: Path) -> None:
    """Features and statistics are what LeRobot's training takes them for."""
    import torch
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.factory import make_policy, make_pre_post_processors

    dataset = opened(saved, delta_timestamps={"action": [step / 8 for step in range(4)]})
    config = ACTConfig(
        chunk_size=4,
        n_action_steps=4,
        pretrained_backbone_weights=None,
        device="cpu",
        dim_model=32,
        n_heads=2,
        dim_feedforward=32,
        n_encoder_layers=1,
        n_vae_encoder_layers=1,
    )
    policy = make_policy(config, ds_meta=dataset.meta)
    assert set(config.input_features) == {"observation.images.workspace", "observation.state"}
    assert set(config.output_features) == {"action"}
    before, _ = make_pre_post_processors(config, dataset_stats=dataset.meta.stats)
    loss, _ = policy.forward(before(next(iter(torch.utils.data.DataLoader(dataset, batch_size=8)))))
    assert loss.isfinite()


def test_merged_datasets_load_again(tmp_path: Path) -> None:
    from lerobot.datasets.aggregate import aggregate_datasets

    first, second = mixed_rollouts(), [synthetic_rollout(4, seed=9), synthetic_rollout(2, seed=8, solved_at=None)]
    save_rollouts(first, tmp_path / "first", fps=8)
    save_rollouts(second, tmp_path / "second", fps=8)
    roots = [tmp_path / "first", tmp_path / "second"]
    aggregate_datasets(["wmrl/a", "wmrl/b"], "wmrl/both", roots=roots, aggr_root=tmp_path / "both")
    assert_same(load_rollouts(tmp_path / "both"), first + second)
    assert len(opened(tmp_path / "both")) == 24


def test_datasets_of_others_are_refused_by_name(tmp_path: Path) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    features = {
        "observation.images.top": {"dtype": "image", "shape": (24, 32, 3), "names": ["height", "width", "channels"]},
        "observation.state": {"dtype": "float32", "shape": (4,), "names": None},
        "action": {"dtype": "float32", "shape": (4,), "names": None},
    }
    foreign = LeRobotDataset.create(
        "someone/else", fps=8, features=features, root=tmp_path / "foreign", use_videos=False
    )
    rollout = synthetic_rollout()
    for frame, state, action in zip(rollout.frames, rollout.states, rollout.actions, strict=False):
        foreign.add_frame(
            {"observation.images.top": frame, "observation.state": state, "action": action, "task": "open the drawer"}
        )
    foreign.save_episode()
    foreign.finalize()
    with pytest.raises(DatasetError, match=r"has no column rollout/task.*not written by save_rollouts"):
        load_rollouts(tmp_path / "foreign")
