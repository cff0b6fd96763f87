"""The adapter of LeRobot's policies on real ones; not part of the default run: make test-lerobot."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wmrl_envs.errors import CheckpointError, ConfigurationError
from wmrl_envs.robotics.vla import TrainableVLAPolicy, VLAPolicy, resolve_policy

pytestmark = [pytest.mark.lerobot, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", autouse=True)
def _torchvision() -> Iterator[None]:
    """Import torchvision beside a torch that it was not built for, too.

    Its import looks for two compiled operators; LeRobot's policies use neither of them.
    """
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


@pytest.fixture(scope="module")
def act(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_lerobot import tiny_act

    return tiny_act(tmp_path_factory.mktemp("act"))


@pytest.fixture(scope="module")
def diffusion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_lerobot import tiny_diffusion

    return tiny_diffusion(tmp_path_factory.mktemp("diffusion"))


@pytest.fixture(scope="module")
def smolvla(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_lerobot import tiny_smolvla

    return tiny_smolvla(tmp_path_factory.mktemp("smolvla"), tmp_path_factory.mktemp("backbone"))


def observed(slots: int = 3, *, seed: int = 0) -> dict[str, Any]:
    """What a vector environment of some slots might observe."""
    draw = np.random.default_rng(seed)
    return {
        "image": draw.integers(0, 256, (slots, 32, 32, 3), dtype=np.uint8),
        "state": draw.normal(size=(slots, 4)).astype(np.float32),
        "instruction": tuple(["open the drawer", "close the window", "press the button"][:slots]),
    }


def rows(observations: dict[str, Any], *slots: int) -> dict[str, Any]:
    return {
        key: tuple(values[s] for s in slots) if key == "instruction" else values[list(slots)]
        for key, values in observations.items()
    }


def by_lerobot(folder: Path, observations: dict[str, Any], slot: int) -> Any:
    """[T, a]: what LeRobot's own code plans for one slot."""
    import torch
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    config = PreTrainedConfig.from_pretrained(folder)
    policy = get_policy_class(config.type).from_pretrained(folder)
    before, after = make_pre_post_processors(config, str(folder))
    frame = {
        "observation.images.top": torch.from_numpy(observations["image"][slot]).permute(2, 0, 1) / 255.0,
        "observation.state": torch.from_numpy(observations["state"][slot]),
        "task": observations["instruction"][slot],
    }
    return after(policy.predict_action_chunk(before(frame)))[0].numpy()


def test_plans_are_lerobots_own(act: Path) -> None:
    observations = observed()
    policy = resolve_policy(f"lerobot:{act}", chunk=6)
    assert isinstance(policy, VLAPolicy) and not isinstance(policy, TrainableVLAPolicy)
    actions = policy.act(observations, deterministic=True)
    assert actions.shape == (3, 6, 4) and actions.dtype == np.float32
    for slot in range(3):
        np.testing.assert_allclose(actions[slot], by_lerobot(act, observations, slot), rtol=1e-4, atol=1e-5)
    shorter = resolve_policy(f"lerobot:{act}", chunk=2)
    np.testing.assert_allclose(shorter.act(observations, deterministic=True), actions[:, :2], rtol=1e-4, atol=1e-5)


def test_every_slot_follows_its_own_plan(act: Path) -> None:
    policy, plans = resolve_policy(f"lerobot:{act}"), resolve_policy(f"lerobot:{act}", chunk=3)
    first, second, third, fourth = (observed(seed=seed) for seed in range(4))
    plan = plans.act(first, deterministic=True)
    np.testing.assert_allclose(policy.act(first, deterministic=True), plan[:, 0], atol=1e-5)
    # Slot 1 begins an episode: it plans anew from what it sees now, the others go on.
    policy.reset([1])
    actions = policy.act(second, deterministic=True)
    np.testing.assert_allclose(actions[[0, 2]], plan[[0, 2], 1], atol=1e-5)
    np.testing.assert_allclose(actions[1], plans.act(second, deterministic=True)[1, 0], atol=1e-5)
    policy.act(third, deterministic=True)
    actions = policy.act(fourth, deterministic=True)
    np.testing.assert_allclose(actions[[0, 2]], plans.act(fourth, deterministic=True)[[0, 2], 0], atol=1e-5)
    np.testing.assert_allclose(actions[1], plans.act(second, deterministic=True)[1, 2], atol=1e-5)
    policy.reset()
    np.testing.assert_allclose(policy.act(first, deterministic=True), plan[:, 0], atol=1e-5)


def test_a_policy_that_looks_back_remembers_for_each_slot(diffusion: Path) -> None:
    """Slots act as if each were alone, as LeRobot's select_action does for one environment."""
    together, first, second = (resolve_policy(f"lerobot:{diffusion}") for _ in range(3))
    found, kept, anew = [], [], []
    for step in range(4):
        observations = observed(2, seed=step)
        if step == 1:
            together.reset([1])
        found.append(together.act(observations, deterministic=True))
        kept.append(first.act(rows(observations, 0), deterministic=True)[0])
        if step >= 1:
            anew.append(second.act(rows(observations, 1), deterministic=True)[0])
    np.testing.assert_allclose([actions[0] for actions in found], kept, atol=1e-4)
    np.testing.assert_allclose([actions[1] for actions in found[1:]], anew, atol=1e-4)


def test_one_observation_may_be_remembered_too(tmp_path: Path) -> None:
    """A diffusion policy reads even its only observation from its queue."""
    from tiny_lerobot import tiny_diffusion

    policy = resolve_policy(f"lerobot:{tiny_diffusion(tmp_path, n_obs_steps=1)}")
    assert policy.act(observed(), deterministic=True).shape == (3, 4)


def test_averaged_plans_are_averaged_for_each_slot(tmp_path: Path) -> None:
    from tiny_lerobot import tiny_act

    folder = tiny_act(tmp_path, temporal_ensemble_coeff=0.01, n_action_steps=1)
    together, alone = resolve_policy(f"lerobot:{folder}"), resolve_policy(f"lerobot:{folder}")
    first, second = observed(2, seed=0), observed(2, seed=1)
    together.act(first, deterministic=True)
    together.reset([1])
    fresh = resolve_policy(f"lerobot:{folder}").act(second, deterministic=True)
    actions = together.act(second, deterministic=True)
    np.testing.assert_allclose(actions[1], fresh[1], atol=1e-5)
    alone.act(rows(first, 0), deterministic=True)
    np.testing.assert_allclose(actions[0], alone.act(rows(second, 0), deterministic=True)[0], atol=1e-5)
    assert not np.allclose(actions[0], fresh[0], atol=1e-5)


def test_smolvla_hears_the_instruction_and_draws_from_the_generator(smolvla: Path) -> None:
    import torch

    policy = resolve_policy(f"lerobot:{smolvla}", chunk=5)
    observations = observed()
    before = torch.get_rng_state()
    actions = policy.act(observations, generator=np.random.default_rng(1))
    assert actions.shape == (3, 5, 4)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(policy.act(observations, generator=np.random.default_rng(1)), actions)
    assert not np.allclose(policy.act(observations, generator=np.random.default_rng(2)), actions)
    fixed = policy.act(observations, deterministic=True)
    np.testing.assert_array_equal(policy.act(observations, deterministic=True), fixed)
    told = {**observations, "instruction": ("go away",) * 3}
    assert not np.allclose(policy.act(told, deterministic=True), fixed)
    blind = {**observations, "image": np.zeros_like(observations["image"])}
    assert not np.allclose(policy.act(blind, deterministic=True), fixed)


def test_cameras_are_paired_by_name_by_order_or_as_told(act: Path) -> None:
    observations = observed()
    second = {**observations, "image2": observations["image"], "image": np.zeros_like(observations["image"])}
    plain = resolve_policy(f"lerobot:{act}").act(observations, deterministic=True)
    told = resolve_policy(f"lerobot:{act}", cameras={"image2": "observation.images.top"}).act(
        second, deterministic=True
    )
    np.testing.assert_array_equal(told, plain)
    with pytest.raises(ConfigurationError, match=r"no camera 'observation.images.tip'.*Did you mean"):
        resolve_policy(f"lerobot:{act}", cameras={"image": "observation.images.tip"})
    with pytest.raises(ConfigurationError, match=r"no camera 'image3', only"):
        resolve_policy(f"lerobot:{act}", cameras={"image3": "observation.images.top"})
    with pytest.raises(ConfigurationError, match=r"looks at 'image2'.*only \['image', 'instruction', 'state'\]"):
        resolve_policy(f"lerobot:{act}", cameras={"image2": "observation.images.top"}).act(
            observations, deterministic=True
        )


def test_what_a_policy_cannot_do_is_refused(act: Path, diffusion: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"chunk must be from 1 to 6.*got 7"):
        resolve_policy(f"lerobot:{act}", chunk=7)
    with pytest.raises(ConfigurationError, match=r"remembers observations.*chunk=None"):
        resolve_policy(f"lerobot:{diffusion}", chunk=2)
    policy = resolve_policy(f"lerobot:{act}")
    with pytest.raises(ConfigurationError, match=r"sampled actions need generator"):
        policy.act(observed())
    with pytest.raises(ConfigurationError, match=r"'state' of 4 numbers, got 3"):
        policy.act({**observed(), "state": np.zeros((3, 3), np.float32)}, deterministic=True)
    with pytest.raises(ConfigurationError, match=r"'state' of 4 numbers, got None"):
        policy.act({key: value for key, value in observed().items() if key != "state"}, deterministic=True)
    with pytest.raises(ConfigurationError, match=r"'image' is float32.*uint8"):
        policy.act({**observed(), "image": np.zeros((3, 32, 32, 3), np.float32)})


def test_a_folder_that_is_no_checkpoint_is_refused(act: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no .*config\.json"):
        resolve_policy(f"lerobot:{tmp_path / 'nowhere'}")
    old = shutil.copytree(act, tmp_path / "old")
    (old / "policy_preprocessor.json").unlink()
    with pytest.raises(CheckpointError, match=r"policy_preprocessor\.json.*migrate_policy_normalization"):
        resolve_policy(f"lerobot:{old}")
    for name, text in (("model.safetensors", "no tensors"), ("config.json", '{"type": "unheard of"}')):
        damaged = shutil.copytree(act, tmp_path / name)
        (damaged / name).write_text(text)
        with pytest.raises(CheckpointError, match=r"LeRobot cannot load"):
            resolve_policy(f"lerobot:{damaged}")
