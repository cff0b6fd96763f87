"""What policies have in common, and models that write their actions as tokens, on tiny random ones."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_vlms
from wmrl_envs.errors import CheckpointError, ConfigurationError, MissingExtraError
from wmrl_envs.robotics.action_bins import ActionBins, ActionStatistics
from wmrl_envs.robotics.action_tokens import ActionTokenPolicy
from wmrl_envs.robotics.vla import TrainableVLAPolicy, VLAPolicy, check_actions, check_observations, resolve_policy

torch.set_num_threads(1)


class Still:
    """A policy that never moves."""

    def __init__(self, size: int = 4) -> None:
        self.size = size

    def act(self, observations: Any, *, deterministic: bool = False, generator: Any = None) -> Any:
        return np.zeros((check_observations(observations), self.size), dtype=np.float32)

    def reset(self, slots: Any = None) -> None:
        pass


STILL = Still()


@pytest.fixture(scope="module")
def idefics3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vlms.tiny_idefics3(tmp_path_factory.mktemp("idefics3"))


@pytest.fixture(scope="module", params=["idefics3", "paligemma"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    make = getattr(tiny_vlms, f"tiny_{request.param}")
    found: Path = make(tmp_path_factory.mktemp(request.param))
    return found


def observed(slots: int = 3, *, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {
        "image": draw.integers(0, 256, (slots, 48, 48, 3), dtype=np.uint8),
        "state": draw.normal(size=(slots, 4)).astype(np.float32),
        "instruction": tuple(["open the drawer", "go", "press the button behind the wall"][:slots]),
    }


def row(observations: dict[str, Any], slot: int) -> dict[str, Any]:
    return {key: values[slot : slot + 1] for key, values in observations.items()}


def tokens_of(policy: ActionTokenPolicy, actions: Any) -> torch.Tensor:
    """[n, length] the tokens of actions, with vocabulary and order as OpenVLA has them."""
    bins = policy.bins.encode(policy.statistics.normalise(actions)).reshape(len(actions), -1)
    return torch.as_tensor(tiny_vlms.WORDS - 1 - bins)


def stepwise(policy: ActionTokenPolicy, inputs: Any, tokens: torch.Tensor) -> torch.Tensor:
    """[n] log-probability of tokens as transformers' own generation comes by it, token for token from its cache."""
    start = inputs["input_ids"].shape[1]

    def forced(written: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        step = written.shape[1] - start
        return torch.full_like(scores, -1e9).scatter(1, tokens[:, step : step + 1], 0.0)

    out = policy.model.generate(**inputs, logits_processor=[forced], output_logits=True, return_dict_in_generate=True)
    first = tiny_vlms.WORDS - policy.bins.count
    among = torch.stack(out.logits, dim=1)[..., first : tiny_vlms.WORDS].log_softmax(-1)
    return among.gather(-1, tokens[..., None] - first).sum(dim=(1, 2))


def test_policies_are_resolved_by_name_or_pass_through() -> None:
    assert isinstance(STILL, VLAPolicy) and not isinstance(STILL, TrainableVLAPolicy)
    assert resolve_policy(STILL) is STILL
    assert resolve_policy(f"{__name__}:STILL") is STILL
    made = resolve_policy(f"{__name__}:Still", size=7)
    assert made.act(observed()).shape == (3, 7)
    with pytest.raises(ConfigurationError, match=r"unknown policy 'smal'.*small:FOLDER"):
        resolve_policy("smal")
    with pytest.raises(
        ConfigurationError, match=r"cannot import the policy action-token:x.*Did you mean 'action-tokens'"
    ):
        resolve_policy("action-token:x")
    with pytest.raises(ConfigurationError, match=r"arguments \['size'\] came with a policy that is an object"):
        resolve_policy(STILL, size=3)
    with pytest.raises(ConfigurationError, match=r"dict is no policy; it needs the methods act and reset"):
        resolve_policy({})  # type: ignore[arg-type]


def test_the_small_policy_is_one_of_them(tmp_path: Path) -> None:
    from wmrl_envs.robotics.policy import SmallVLA

    SmallVLA().save(tmp_path)
    policy = resolve_policy(f"small:{tmp_path}")
    assert isinstance(policy, TrainableVLAPolicy)


def test_without_lerobot_its_name_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "wmrl_envs.robotics.lerobot", raising=False)
    monkeypatch.setitem(sys.modules, "lerobot", None)
    with pytest.raises(MissingExtraError, match=r"pip install wmrl-envs lerobot"):
        resolve_policy(f"lerobot:{tmp_path}")


BAD = [
    ({"image": None}, r"'image' is NoneType; it is a uint8 array \[slots, height, width, 3\]"),
    ({"image": np.zeros((3, 8, 8, 3), np.float32)}, r"'image' is float32 \[3, 8, 8, 3\]; it is a uint8"),
    ({"image": np.zeros((3, 3, 8, 8), np.uint8)}, r"'image' is uint8 \[3, 3, 8, 8\]"),
    ({"image": np.zeros((8, 8, 3), np.uint8)}, r"image\[None\]"),
    ({"image": np.zeros((0, 8, 8, 3), np.uint8)}, r"\[0, 8, 8, 3\]"),
    ({"image2": np.zeros((2, 8, 8, 3), np.uint8)}, r"2 images of 'image2' came with 3 of 'image'"),
    ({"instruction": ("go", "", "go")}, r"the instruction of slot 1 is ''"),
    ({"instruction": ("go", "go", 3)}, r"the instruction of slot 2 is 3"),
    ({"instruction": ("go",)}, r"1 instructions came with 3 images"),
    ({"instruction": "go"}, r"'instruction' is 'go'; it is a tuple"),
    ({"state": np.zeros(3)}, r"'state' is float64 \[3\]; with 3 images it is a float array \[3, numbers\]"),
    ({"state": np.array([[0.0], [np.nan], [0.0]])}, r"the states of slots \[1\] are not finite"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_observations_that_no_policy_can_act_on_are_refused(change: dict[str, Any], message: str) -> None:
    assert check_observations(observed()) == 3
    with pytest.raises(ConfigurationError, match=message):
        check_observations({**observed(), **change})


@pytest.mark.parametrize("key", ["image", "instruction"])
def test_observations_without_image_or_instruction_are_refused(key: str) -> None:
    observations = observed()
    del observations[key]
    with pytest.raises(ConfigurationError, match=rf"the observation has no '{key}'"):
        check_observations(observations)


def test_actions_of_another_shape_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"actions have shape \[2, 3\]; this policy's have \[2, 4\] here"):
        check_actions(np.zeros((2, 3)), (2, 4))
    with pytest.raises(ConfigurationError, match=r"actions of slots \[1\] are not finite"):
        check_actions([[0.0], [np.inf]], (2, 1))


@given(st.integers(2, 600))
def test_every_bin_stands_for_a_number_in_it(count: int) -> None:
    bins = ActionBins(count)
    every = np.arange(count)
    np.testing.assert_array_equal(bins.encode(bins.decode(every)), every)
    np.testing.assert_array_equal(bins.encode(bins.decode(every).astype(np.float32)), every)


def test_bins_are_openvlas() -> None:
    """OpenVLA: numpy.digitize over 256 edges, counted from 1; the token is the vocabulary's size less that."""
    numbers = np.concatenate([np.random.default_rng(0).uniform(-1, 0.999, 10_000), [-1.0, 1.0]])
    expected = np.digitize(numbers, np.linspace(-1.0, 1.0, 256)) - 1
    np.testing.assert_array_equal(ActionBins(256).encode(numbers), expected)
    np.testing.assert_array_equal(ActionBins(256).encode(np.array([-7.0, 7.0])), [0, 255])
    centre = np.abs(ActionBins(256).decode(expected) - numbers)
    assert centre.max() <= 1 / 255 + 1e-12
    with pytest.raises(ConfigurationError, match=r"at least 2"):
        ActionBins(1)


ranges = st.tuples(st.floats(-10, 10), st.floats(1e-2, 20))


@given(st.lists(st.tuples(ranges, st.booleans(), st.integers(0, 255)), min_size=1, max_size=8))
@settings(max_examples=200)
def test_actions_tell_which_bins_they_were(dimensions: list[Any]) -> None:
    """Through float32, whatever the data set's range."""
    low = np.array([begin for (begin, _), _, _ in dimensions])
    high = np.array([begin + width for (begin, width), _, _ in dimensions])
    statistics = ActionStatistics(low, high, np.array([mask for _, mask, _ in dimensions]))
    drawn = np.array([number for _, _, number in dimensions])
    bins = ActionBins(256)
    actions = statistics.unnormalise(bins.decode(drawn)).astype(np.float32)
    np.testing.assert_array_equal(bins.encode(statistics.normalise(actions)), drawn)


def test_statistics_scale_what_their_mask_says(tmp_path: Path) -> None:
    (tmp_path / "dataset_statistics.json").write_text(json.dumps(tiny_vlms.STATISTICS))
    statistics = ActionStatistics.load(tmp_path)
    assert (statistics.size, statistics.dataset) == (4, "meta_world")
    np.testing.assert_allclose(statistics.unnormalise(np.array([1.0, 0.0, -1.0, 0.5])), [0.5, 0.0, 0.0, 0.5])
    np.testing.assert_allclose(statistics.normalise(np.array([0.0, 2.0, 0.01, 0.5])), [0.0, 2.0, 0.0, 0.5], atol=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"dataset_statistics\.json is missing.*q01"),
        ("{", r"is no JSON"),
        ("{}", r"holds no statistics"),
        ('{"a": {"action": {"q01": [0]}}}', r"does not read as .*KeyError\('q99'\)"),
        ('{"a": {"action": {"q01": [0, 1], "q99": [1]}}}', r"have 2 q01, 1 q99 and 2 mask"),
        ('{"a": {"action": {"q01": [0, 2], "q99": [1, 1]}}}', r"have no range in the dimensions \[1\]"),
        ('{"a": {}, "b": {}}', r"has statistics of \['a', 'b'\]; say which with dataset="),
    ],
)
def test_statistics_that_tell_no_range_are_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "dataset_statistics.json").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        ActionStatistics.load(tmp_path)


def test_actions_are_what_the_tokens_stand_for(checkpoint: Path) -> None:
    policy, observations = ActionTokenPolicy.load(checkpoint), observed()
    assert isinstance(policy, TrainableVLAPolicy)
    actions = policy.act(observations, generator=np.random.default_rng(0))
    assert actions.shape == (3, 4) and actions.dtype == np.float32
    unscaled = policy.statistics.normalise(actions)
    np.testing.assert_allclose(policy.bins.decode(policy.bins.encode(unscaled)), unscaled, atol=1e-5)
    np.testing.assert_array_equal(policy.act(observations, generator=np.random.default_rng(0)), actions)
    assert not np.array_equal(policy.act(observations, generator=np.random.default_rng(1)), actions)
    likeliest = policy.act(observations, deterministic=True)
    np.testing.assert_array_equal(policy.act(observations, deterministic=True), likeliest)
    policy.reset([0])
    with pytest.raises(ConfigurationError, match=r"sampled actions need generator"):
        policy.act(observations)


def test_log_prob_is_that_of_generation(checkpoint: Path) -> None:
    policy, observations = ActionTokenPolicy.load(checkpoint), observed()
    actions = policy.act(observations, generator=np.random.default_rng(0))
    found = policy.log_prob(observations, actions)
    assert found.shape == (3,) and found.dtype == torch.float32
    texts = [policy._text(instruction, 1) for instruction in observations["instruction"]]
    images = [[image] for image in observations["image"]]
    inputs = policy.processor(text=texts, images=images, padding=True, padding_side="left", return_tensors="pt")
    inputs.pop("labels", None)
    expected = stepwise(policy, inputs, tokens_of(policy, actions))
    torch.testing.assert_close(found.detach(), expected, rtol=0, atol=1e-4)
    # A slot's probability does not depend on what stands beside it in the batch.
    alone = [policy.log_prob(row(observations, slot), actions[slot : slot + 1]).item() for slot in range(3)]
    np.testing.assert_allclose(found.detach(), alone, atol=1e-4)


def test_probabilities_of_all_actions_add_up_and_are_the_frequencies_of_draws(checkpoint: Path) -> None:
    statistics = ActionStatistics(np.array([0.0, -2.0]), np.array([1.0, 2.0]), np.array([True, True]))
    loaded = ActionTokenPolicy.load(checkpoint)
    policy = ActionTokenPolicy(loaded.model, loaded.processor, statistics, bins=3, temperature=2.0)
    one = row(observed(), 0)
    bins = np.array(list(itertools.product(range(3), repeat=2)))
    actions = statistics.unnormalise(policy.bins.decode(bins)).astype(np.float32)

    def repeated(times: int) -> dict[str, Any]:
        return {key: np.repeat(values, times, axis=0) for key, values in one.items()}

    with torch.no_grad():
        expected = policy.log_prob(repeated(9), actions).exp().numpy()
    assert expected.sum() == pytest.approx(1.0, abs=1e-5)
    assert expected.max() - expected.min() > 0.02
    draws = policy.act(repeated(1000), generator=np.random.default_rng(7))
    drawn = policy.bins.encode(statistics.normalise(draws)) @ np.array([3, 1])
    frequencies = np.bincount(drawn, minlength=9) / 1000
    error = np.sqrt(expected * (1 - expected) / 1000)
    assert (np.abs(frequencies - expected) < 4 * error + 1e-3).all(), (frequencies, expected)
    table = expected.reshape(3, 3)
    first = table.sum(axis=1).argmax()
    likeliest = policy.bins.encode(statistics.normalise(policy.act(one, deterministic=True)))
    np.testing.assert_array_equal(likeliest, [[first, table[first].argmax()]])


def test_a_gradient_step_makes_rewarded_actions_likelier(idefics3: Path) -> None:
    policy, observations = ActionTokenPolicy.load(idefics3), observed()
    actions = policy.act(observations, generator=np.random.default_rng(0))
    advantage = torch.tensor([1.0, -1.0, 0.0])
    optimiser = torch.optim.SGD(policy.parameters(), lr=1e-3)
    before = policy.log_prob(observations, actions)
    (-(advantage * before).sum()).backward()
    gradients = [parameter.grad for parameter in policy.parameters()]
    assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in gradients)
    optimiser.step()
    after = policy.log_prob(observations, torch.from_numpy(actions))
    assert after[0] > before[0] and after[1] < before[1]


def test_images_and_instruction_count_and_the_state_does_not(idefics3: Path) -> None:
    policy, observations = ActionTokenPolicy.load(idefics3), observed()
    actions = policy.act(observations, deterministic=True)

    def changed(**entries: Any) -> Any:
        with torch.no_grad():
            return policy.log_prob({**observations, **entries}, actions).numpy()

    same = changed()
    np.testing.assert_allclose(changed(state=np.zeros((3, 4), np.float32)), same)
    np.testing.assert_allclose(changed(instruction=("Open the DRAWER ", "go", observations["instruction"][2])), same)
    assert (changed(instruction=("close it",) * 3) != same).all()
    assert (changed(image=255 - observations["image"]) != same).all()
    assert (changed(image2=observations["image"]) != same).all()


def test_chunks_and_settings_of_generation_in_the_checkpoint(idefics3: Path, tmp_path: Path) -> None:
    """A penalty or an end token in it must not bend what is drawn."""
    folder = shutil.copytree(idefics3, tmp_path / "penalised")
    bent = {"repetition_penalty": 9.0, "eos_token_id": list(range(300, 400)), "temperature": 0.01, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(bent))
    plain, penalised = (ActionTokenPolicy.load(path, chunk=5) for path in (idefics3, folder))
    actions = plain.act(observed(), generator=np.random.default_rng(0))
    assert actions.shape == (3, 5, 4)
    np.testing.assert_array_equal(penalised.act(observed(), generator=np.random.default_rng(0)), actions)
    assert plain.log_prob(observed(), actions).shape == (3,)


def test_a_saved_policy_acts_alike(idefics3: Path, tmp_path: Path) -> None:
    policy = ActionTokenPolicy.load(idefics3)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.01)
    policy.save(tmp_path)
    again = resolve_policy(f"action-tokens:{tmp_path}")
    expected = policy.act(observed(), deterministic=True)
    np.testing.assert_array_equal(again.act(observed(), deterministic=True), expected)
    other = ActionTokenPolicy.load(idefics3)
    other.load_state_dict(policy.state_dict())
    np.testing.assert_array_equal(other.act(observed(), deterministic=True), expected)


def test_it_acts_on_meta_world(idefics3: Path) -> None:
    from wmrl_envs.robotics.envs import MetaWorldVectorEnv

    envs = MetaWorldVectorEnv(2, ["drawer-open", "window-close"], max_decisions=2)
    policy = ActionTokenPolicy.load(idefics3)
    observations, _ = envs.reset(seed=0)
    for _ in range(2):
        actions = policy.act(observations, deterministic=True)
        assert envs.action_space.contains(actions)
        observations, _, _, truncated, _ = envs.step(actions)
    assert truncated.all()
    envs.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chunk": 0}, r"chunk must be at least 1 or None, got 0"),
        ({"temperature": 0.0}, r"temperature must be above 0, got 0"),
        ({"prompt": "Do it."}, r"has no \{instruction\}"),
        ({"bins": 500}, r"500 bins do not fit into a vocabulary of 400"),
        ({"vocabulary": 9999}, r"do not fit into a vocabulary of 9999; the model has 407"),
        ({"vocabulary": 407}, r"151 to 406, hold special ones .*'</s>'.*vocabulary="),
        ({"dataset": "metaworld"}, r"no statistics of 'metaworld'.*Did you mean 'meta_world'"),
    ],
)
def test_settings_that_cannot_work_are_refused(idefics3: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        resolve_policy(f"action-tokens:{idefics3}", **arguments)


def test_folders_that_hold_no_policy_are_refused(idefics3: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no folder .*nowhere"):
        resolve_policy(f"action-tokens:{tmp_path / 'nowhere'}")
    bare = shutil.copytree(idefics3, tmp_path / "bare")
    (bare / "dataset_statistics.json").unlink()
    with pytest.raises(ConfigurationError, match=r"dataset_statistics\.json is missing"):
        resolve_policy(f"action-tokens:{bare}")
    for name in ("config.json", "model.safetensors"):
        damaged = shutil.copytree(idefics3, tmp_path / name)
        (damaged / name).write_text("{")
        with pytest.raises(CheckpointError, match=r"transformers cannot load"):
            resolve_policy(f"action-tokens:{damaged}")


def test_actions_that_are_not_the_policys_have_no_log_prob(idefics3: Path, tmp_path: Path) -> None:
    policy = ActionTokenPolicy.load(idefics3)
    with pytest.raises(ConfigurationError, match=r"actions have shape \[3, 7\]; this policy's have \[3, 4\] here"):
        policy.log_prob(observed(), np.zeros((3, 7), np.float32))
    still = ActionStatistics(np.array([0.0, 1.0]), np.array([0.0, 2.0]), np.array([True, True]), "still")
    constant = ActionTokenPolicy(policy.model, policy.processor, still)
    actions = constant.act(observed(), deterministic=True)
    assert (actions[:, 0] == 0.0).all()
    with pytest.raises(ConfigurationError, match=r"the dimensions \[0\] of 'still' are constant"):
        constant.log_prob(observed(), actions)
