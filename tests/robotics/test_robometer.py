"""Robometer against transformers and its heads, computed directly; what it reads and what it refuses."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoImageProcessor, AutoTokenizer, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

from tiny_robometer import (
    BINS,
    CHAT_TEMPLATE,
    QWEN_TOKENS,
    ROBOMETER_TOKENS,
    as_shards,
    as_the_authors,
    save_processor,
    tiny_robometer,
    tokenizer,
)
from wmrl_envs.errors import CheckpointError, ConfigurationError
from wmrl_envs.robotics._robometer_inputs import PROMPT, fitted_size
from wmrl_envs.robotics.progress import ProgressModel, Video, resolve_progress_model, score_videos, trajectory_reward
from wmrl_envs.robotics.robometer import Robometer

torch.set_num_threads(1)

INSTRUCTIONS = ["open the drawer", "press the red button", "put the cube into the box", "öffne das Fenster"]


def video(frames: int, height: int, width: int, seed: int = 0) -> Video:
    return np.random.default_rng(seed).integers(0, 256, (frames, height, width, 3), dtype=np.uint8)


VIDEOS = [video(3, 16, 24, 0), video(8, 32, 32, 1), video(1, 24, 16, 2), video(5, 40, 16, 3)]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_robometer(tmp_path_factory.mktemp("published") / "Robometer")


@pytest.fixture(scope="module")
def model(published: Path) -> Robometer:
    return Robometer.load(published, device="cpu")


@pytest.fixture
def copy(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "copy"))


class ImageProcessor(Qwen3VLProcessor):
    """Qwen3-VL's own, without the part for videos, which needs torchvision."""

    def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
        return type(argument)


def reference(folder: Path, frames: Video, instruction: str, prompt: str = PROMPT) -> tuple[list[float], list[float]]:
    """Score one video with transformers' own model and processor and the heads' weights: no batch, no padding."""
    # The checkpoint's weights, in the type the model computes with.
    weights = {key: value.float() for key, value in load_file(folder / "model.safetensors").items()}
    qwen: Any = Qwen3VLForConditionalGeneration(
        Qwen3VLConfig(**json.loads((folder / "config.json").read_text())["vlm_config"])
    )
    own = {key.removeprefix("model."): value for key, value in weights.items() if key.startswith("model.")}
    own.setdefault("model.language_model.embed_tokens.weight", own["lm_head.weight"])
    backbone = qwen.eval()
    backbone.load_state_dict(own)
    words: Any = AutoTokenizer.from_pretrained(folder)
    for token in ("<|split_token|>", "<|reward_token|>", "<|pref_token|>", "<|sim_token|>", "<|prog_token|>"):
        words.add_tokens([token], special_tokens=True)
    processor = ImageProcessor(AutoImageProcessor.from_pretrained(folder), words, chat_template=words.chat_template)
    content: list[dict[str, Any]] = [{"type": "text", "text": prompt.format(task=instruction)}]
    for _ in frames:
        content.extend([{"type": "image"}, {"type": "text", "text": "<|prog_token|>"}])
    text = processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False, add_vision_id=True)
    inputs = processor(
        text=[text], images=[Image.fromarray(frame) for frame in frames], do_resize=False, return_tensors="pt"
    )
    with torch.no_grad():
        hidden = backbone(**inputs, output_hidden_states=True).hidden_states[-1][0]
    progress, success = [], []
    for position, token in enumerate(inputs["input_ids"][0].tolist()):
        if token == words.convert_tokens_to_ids("<|prog_token|>"):
            bins = head(weights, "progress_head", hidden[position]).double().softmax(0).tolist()
            progress.append(sum(weight * i / 9 for i, weight in enumerate(bins)))
            success.append(1 / (1 + math.exp(-head(weights, "success_head", hidden[position]).item())))
    return progress, success


def head(weights: dict[str, torch.Tensor], name: str, hidden: torch.Tensor) -> torch.Tensor:
    x = weights[f"{name}.0.weight"] @ hidden + weights[f"{name}.0.bias"]
    x = (x - x.mean()) / torch.sqrt(x.var(unbiased=False) + 1e-5)
    x = x * weights[f"{name}.1.weight"] + weights[f"{name}.1.bias"]
    x = x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    return weights[f"{name}.4.weight"] @ x + weights[f"{name}.4.bias"]


def assert_scores(found: list[Any], wanted: list[tuple[list[float], list[float]]], tolerance: float = 1e-5) -> None:
    assert len(found) == len(wanted)
    for scores, (progress, success) in zip(found, wanted, strict=True):
        np.testing.assert_allclose(scores.progress, progress, rtol=0, atol=tolerance)
        np.testing.assert_allclose(scores.success, success, rtol=0, atol=tolerance)


@pytest.fixture(scope="module")
def wanted(published: Path) -> list[tuple[list[float], list[float]]]:
    scores = [reference(published, *pair) for pair in zip(VIDEOS, INSTRUCTIONS, strict=True)]
    # Scores that were all the same would agree with anything.
    assert all(np.ptp(np.concatenate([pair[k] for pair in scores])) > 0.1 for k in (0, 1))
    return scores


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_scores_are_those_of_transformers_and_the_heads(published: Path, wanted: Any, batch_size: int) -> None:
    found = score_videos(Robometer.load(published, device="cpu", batch_size=batch_size), VIDEOS, INSTRUCTIONS)
    assert_scores(found, wanted)
    for scores, frames in zip(found, VIDEOS, strict=True):
        assert scores is not None and scores.success is not None
        assert scores.progress.shape == scores.success.shape == (len(frames),)
        assert scores.progress.dtype == scores.success.dtype == np.float32


def test_the_order_of_the_videos_does_not_matter(model: Robometer, wanted: Any) -> None:
    assert_scores(model.score(VIDEOS[::-1], INSTRUCTIONS[::-1]), wanted[::-1])


@pytest.mark.parametrize("layout", [as_shards, as_the_authors, lambda folder: as_shards(as_the_authors(folder))])
def test_every_published_layout_loads(copy: Path, wanted: Any, layout: Callable[[Path], Path]) -> None:
    assert_scores(Robometer.load(layout(copy), device="cpu").score(VIDEOS, INSTRUCTIONS), wanted)


def test_an_output_embedding_of_its_own_is_not_taken_for_the_input(tmp_path: Path) -> None:
    folder = tiny_robometer(tmp_path / "untied", tied=False)
    assert_scores(
        Robometer.load(folder, device="cpu").score(VIDEOS[:1], INSTRUCTIONS[:1]),
        [reference(folder, VIDEOS[0], INSTRUCTIONS[0])],
    )
    weights = load_file(folder / "model.safetensors")
    del weights["model.model.language_model.embed_tokens.weight"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"1 missing: model\.model\.language_model\.embed_tokens\.weight"):
        Robometer.load(folder, device="cpu")


def test_frames_of_odd_sizes_are_brought_to_whole_tokens(published: Path, model: Robometer) -> None:
    odd = video(2, 21, 30)
    resized = np.stack([np.asarray(Image.fromarray(frame).resize((32, 24), Image.Resampling.BICUBIC)) for frame in odd])
    assert_scores(model.score([odd], ["go"]), [reference(published, resized, "go")])


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((128, 128), (128, 128)),
        ((480, 640), (480, 640)),
        ((84, 84), (96, 96)),
        ((100, 250), (96, 256)),
        ((32, 32), (64, 64)),
        ((10, 500), (32, 512)),
        ((8, 8), (64, 64)),
        ((8192, 4096), (5792, 2880)),
    ],
)
def test_sizes_are_those_of_qwen(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert fitted_size(*size, 32) == expected


def test_a_long_video_is_read_at_spaced_frames_and_scored_at_all(published: Path) -> None:
    model = Robometer.load(published, device="cpu", max_frames=4)
    long = video(10, 16, 16)
    [scores] = model.score([long], ["go"])
    [read] = model.score([long[[0, 3, 6, 9]]], ["go"])
    assert scores is not None and read is not None and scores.success is not None and read.success is not None
    for all_frames, those in ((scores.progress, read.progress), (scores.success, read.success)):
        assert all_frames.shape == (10,)
        np.testing.assert_allclose(all_frames[[0, 3, 6, 9]], those, atol=1e-6)
        np.testing.assert_allclose(
            all_frames[[1, 2]], those[0] + (those[1] - those[0]) * np.array([1, 2]) / 3, atol=1e-6
        )


def test_a_frame_that_is_read_does_not_depend_on_later_ones(model: Robometer) -> None:
    whole, start = model.score([VIDEOS[1], VIDEOS[1][:3]], ["go", "go"])
    assert whole is not None and start is not None
    np.testing.assert_allclose(whole.progress[:3], start.progress, atol=1e-5)


def test_the_instruction_and_every_frame_count(model: Robometer) -> None:
    other = VIDEOS[0].copy()
    other[0] = 255 - other[0]
    first, asked, changed = model.score([VIDEOS[0], VIDEOS[0], other], ["open it", "close it", "open it"])
    assert first is not None and asked is not None and changed is not None
    assert np.abs(first.progress - asked.progress).max() > 1e-3
    assert np.abs(first.progress - changed.progress).min() > 1e-5


def test_scores_are_the_same_every_time(published: Path, model: Robometer) -> None:
    before = torch.get_rng_state()
    again = Robometer.load(published, device="cpu")
    for scores in (model.score(VIDEOS, INSTRUCTIONS), again.score(VIDEOS, INSTRUCTIONS)):
        for found, first in zip(scores, model.score(VIDEOS, INSTRUCTIONS), strict=True):
            assert found is not None and first is not None and found.success is not None and first.success is not None
            np.testing.assert_array_equal(found.progress, first.progress)
            np.testing.assert_array_equal(found.success, first.success)
    assert torch.equal(torch.get_rng_state(), before)


def test_half_precision_is_near(published: Path, wanted: Any) -> None:
    model = Robometer.load(published, device="cpu", dtype="bfloat16")
    assert {weight.dtype for weight in model._network.parameters()} == {torch.bfloat16}
    # Rotary positions need their digits whatever the weights have.
    assert {table.dtype for table in model._network.buffers()} == {torch.float32}
    assert_scores(model.score(VIDEOS, INSTRUCTIONS), wanted, tolerance=0.1)


def test_weights_saved_in_half_precision_load_as_float32_on_a_cpu(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    save_file({key: value.bfloat16() for key, value in weights.items()}, copy / "model.safetensors")
    model = Robometer.load(copy, device="cpu")
    assert {weight.dtype for weight in model._network.parameters()} == {torch.float32}
    assert not any(weight.requires_grad or weight.is_meta for weight in model._network.parameters())
    assert_scores(model.score(VIDEOS[:1], ["go"]), [reference(copy, VIDEOS[0], "go")])


def test_it_is_a_progress_model_by_name(published: Path, wanted: Any) -> None:
    model = resolve_progress_model(f"robometer:{published}", device="cpu", batch_size=2, max_frames=4)
    assert isinstance(model, Robometer) and isinstance(model, ProgressModel)
    assert (model.batch_size, model.max_frames) == (2, 4)
    [scores] = score_videos(model, VIDEOS[:1], INSTRUCTIONS[:1])
    assert scores is not None
    assert_scores([scores], wanted[:1])
    assert 0.0 <= trajectory_reward(scores, "success") <= 1.0
    assert model.score([], []) == []


def test_the_prompt_is_the_argument_else_the_file_else_our_own(copy: Path) -> None:
    written, given = "The task is '{task}'. Predict {progress}.", "How far is: {task}?"
    (copy / "robometer_prompt.txt").write_text(f"{written}\n")
    escaped = written.replace("{progress}", "{{progress}}")
    assert_scores(
        Robometer.load(copy, device="cpu").score(VIDEOS[:1], ["go"]), [reference(copy, VIDEOS[0], "go", escaped)]
    )
    assert_scores(
        Robometer.load(copy, device="cpu", prompt=given).score(VIDEOS[:1], ["go"]),
        [reference(copy, VIDEOS[0], "go", given)],
    )
    (copy / "robometer_prompt.txt").write_text("How far is it?")
    with pytest.raises(ConfigurationError, match=r"robometer_prompt\.txt has no \{task\}"):
        Robometer.load(copy, device="cpu")
    with pytest.raises(ConfigurationError, match=r"prompt has no \{task\}"):
        Robometer.load(copy, device="cpu", prompt="How far is it?")


def test_a_batch_is_padded_on_the_right(model: Robometer) -> None:
    batch = model._inputs(VIDEOS[:2], INSTRUCTIONS[:2])
    alone = model._inputs(VIDEOS[:1], INSTRUCTIONS[:1])["input_ids"][0]
    assert len(alone) < batch["input_ids"].shape[1]
    assert torch.equal(batch["input_ids"][0, : len(alone)], alone)
    assert set(batch["input_ids"][0, len(alone) :].tolist()) == {model._inputs.tokenizer.pad_token_id}
    assert batch["attention_mask"].sum(-1).tolist() == [len(alone), batch["input_ids"].shape[1]]
    # Each frame takes a quarter as many tokens as it has patches, and every patch is there.
    patches = batch["image_grid_thw"].prod(-1)
    assert patches.tolist() == [24] * 3 + [64] * 8
    assert len(batch["pixel_values"]) == patches.sum() == 4 * batch["mm_token_type_ids"].sum()


@pytest.mark.parametrize("token", ["<|prog_token|>", "<|image_pad|>", "<|im_end|>"])
def test_an_instruction_cannot_pass_for_a_frame(model: Robometer, published: Path, token: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"instruction 1 has '{token}' in it")):
        model.score([VIDEOS[1], VIDEOS[0]], ["go", f"open {token} it"])
    with pytest.raises(ConfigurationError, match="the prompt has"):
        Robometer.load(published, device="cpu", prompt=f"{{task}}{token}")


def test_the_processor_may_lie_elsewhere(copy: Path, tmp_path: Path, wanted: Any) -> None:
    elsewhere = tmp_path / "Qwen3-VL"
    save_processor(elsewhere)
    # As Qwen3-VL has it: the chat template in a file of its own that tokenizers do not read.
    (elsewhere / "chat_template.jinja").unlink()
    (elsewhere / "chat_template.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
    for file in ("tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", "chat_template.jinja"):
        (copy / file).unlink()
    with pytest.raises(CheckpointError, match=r"(?s)no tokenizer and image processor.*processor="):
        Robometer.load(copy, device="cpu")
    assert_scores(Robometer.load(copy, device="cpu", processor=elsewhere).score(VIDEOS, INSTRUCTIONS), wanted)
    (elsewhere / "chat_template.json").unlink()
    with pytest.raises(CheckpointError, match="no chat template"):
        Robometer.load(copy, device="cpu", processor=elsewhere)


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


def test_wrong_keys_and_shapes_are_named(copy: Path) -> None:
    def change(weights: dict[str, torch.Tensor]) -> None:
        del weights["progress_head.4.bias"], weights["model.model.visual.pos_embed.weight"]
        weights["similarity_head.0.weight"] = torch.zeros(2)
        weights["success_head.4.weight"] = torch.zeros(3, 16)
        weights["model.model.language_model.norm.weight"] = torch.zeros(31)

    change_weights(copy, change)
    with pytest.raises(CheckpointError) as error:
        Robometer.load(copy, device="cpu")
    said = str(error.value)
    assert "2 missing: model.model.visual.pos_embed.weight, progress_head.4.bias" in said
    assert "1 unexpected: similarity_head.0.weight" in said
    assert "2 of another shape" in said
    assert "success_head.4.weight [3, 16] where [1, 16] is needed" in said
    assert "model.model.language_model.norm.weight [31] where [32] is needed" in said


def test_a_plain_qwen_is_no_robometer(copy: Path) -> None:
    def change(weights: dict[str, torch.Tensor]) -> None:
        for key in [key for key in weights if not key.startswith("model.")]:
            del weights[key]

    change_weights(as_the_authors(copy), change)
    with pytest.raises(CheckpointError, match=r"19 missing: progress_head\.0\.weight.* and 14 more"):
        Robometer.load(copy, device="cpu")


@pytest.mark.parametrize("name", ["progress_head", "preference_head", "success_head", "frame_pool_attn"])
def test_every_head_is_in_the_checkpoint(published: Path, model: Robometer, name: str) -> None:
    saved = {key: value for key, value in load_file(published / "model.safetensors").items() if key.startswith(name)}
    own = {key: value for key, value in model._network.state_dict().items() if key.startswith(name)}
    assert saved.keys() == own.keys() and saved
    assert all(torch.equal(saved[key], own[key]) for key in saved)


def test_damaged_files_are_refused(copy: Path) -> None:
    file = copy / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is no whole safetensors file"):
        Robometer.load(copy, device="cpu")
    file.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is no whole safetensors file"):
        Robometer.load(copy, device="cpu")
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 8875719424\n")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is a Git-LFS pointer.*git lfs pull"):
        Robometer.load(copy, device="cpu")
    file.unlink()
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor model\.safetensors\.index\.json"):
        Robometer.load(copy, device="cpu")


def test_shards_are_all_needed(copy: Path) -> None:
    folder = as_shards(copy)
    index = folder / "model.safetensors.index.json"
    second = folder / "model-00002-of-00003.safetensors"
    whole = second.read_bytes()
    second.write_bytes(whole[:-8])
    with pytest.raises(CheckpointError, match=r"model-00002-of-00003\.safetensors is no whole safetensors file"):
        Robometer.load(folder, device="cpu")
    second.unlink()
    with pytest.raises(CheckpointError, match=r"lacks model-00002-of-00003\.safetensors"):
        Robometer.load(folder, device="cpu")
    kept = {key: name for key, name in json.loads(index.read_text())["weight_map"].items() if "00002" not in name}
    index.write_text(json.dumps({"weight_map": kept}))
    with pytest.raises(CheckpointError, match=r"\d+ missing: model\."):
        Robometer.load(folder, device="cpu")
    index.write_text("{}")
    with pytest.raises(CheckpointError, match="no weight_map"):
        Robometer.load(folder, device="cpu")


def test_quantized_weights_are_refused(copy: Path) -> None:
    change_weights(copy, lambda weights: weights.update({"success_head.0.weight": torch.zeros(256, dtype=torch.uint8)}))
    with pytest.raises(CheckpointError, match=r"success_head\.0\.weight \(U8\).*not quantized"):
        Robometer.load(copy, device="cpu")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"vlm_config": {"model_type": "qwen2_5_vl", "text_config": {}}}, "type 'qwen2_5_vl'"),
        ({"vlm_config": {}}, "type None"),
        ({"vlm_config": {"model_type": "qwen3_vl"}}, "text_config"),
        ({"use_per_frame_progress_token": False}, "use_per_frame_progress_token=False"),
        ({"progress_loss_type": "l2"}, "progress_loss_type='l2'"),
        ({"progress_discrete_bins": 5}, r"progress_head\.4\.weight \[10, 16\] where \[5, 16\] is needed"),
        ({"progress_discrete_bins": "ten"}, "progress_discrete_bins='ten'"),
    ],
)
def test_another_models_settings_are_refused(copy: Path, settings: dict[str, Any], said: str) -> None:
    file = copy / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    with pytest.raises(CheckpointError, match=said):
        Robometer.load(copy, device="cpu")


def test_an_impossible_backbone_is_refused(copy: Path) -> None:
    file = copy / "config.json"
    settings = json.loads(file.read_text())
    settings["vlm_config"]["text_config"]["hidden_act"] = "sine"
    file.write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match="cannot build the backbone that config.json describes"):
        Robometer.load(copy, device="cpu")


@pytest.mark.parametrize("text", ["{", "[]", "version https://git-lfs.github.com/spec/v1\n"])
def test_a_damaged_config_is_refused(copy: Path, text: str) -> None:
    (copy / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        Robometer.load(copy, device="cpu")


def test_tokens_in_another_order_are_refused(copy: Path) -> None:
    words = tokenizer()
    words.add_tokens(list(reversed(ROBOMETER_TOKENS)), special_tokens=True)
    words.save_pretrained(copy)
    with pytest.raises(CheckpointError, match=r"in this order: <\|split_token\|>"):
        Robometer.load(copy, device="cpu")


def test_some_of_the_tokens_are_not_enough(copy: Path) -> None:
    words = tokenizer()
    words.add_tokens(list(ROBOMETER_TOKENS[:3]), special_tokens=True)
    words.save_pretrained(copy)
    with pytest.raises(CheckpointError, match=r"'<\|prog_token\|>': None"):
        Robometer.load(copy, device="cpu")


def test_another_models_tokenizer_is_refused(copy: Path) -> None:
    words = tokenizer()
    words.add_tokens(["<|extra|>"], special_tokens=True)
    words.save_pretrained(copy)
    size = 256 + len(QWEN_TOKENS) + len(ROBOMETER_TOKENS)
    with pytest.raises(CheckpointError, match=f"number of tokens {size + 1}, where the weights have {size}"):
        Robometer.load(copy, device="cpu")


def test_another_models_image_processor_is_refused(copy: Path) -> None:
    file = copy / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"patch_size": 14}))
    with pytest.raises(CheckpointError, match="patch_size 14, where the weights have 4"):
        Robometer.load(copy, device="cpu")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"batch_size": True}, "batch_size must be a whole number"),
        ({"max_frames": 1}, "max_frames must be a whole number of at least 2, got 1"),
        ({"max_frames": 8.0}, "max_frames must be a whole number"),
        ({"dtype": "float8"}, "unknown dtype 'float8'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
    ],
)
def test_arguments_that_cannot_work(published: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Robometer.load(published, **arguments)


def test_a_folder_that_is_not_there(tmp_path: Path, published: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no folder"):
        resolve_progress_model(f"robometer:{tmp_path / 'nowhere'}")
    with pytest.raises(CheckpointError, match="there is no folder"):
        Robometer.load(published, processor=tmp_path / "nowhere")


def test_what_is_no_video_is_refused(model: Robometer) -> None:
    with pytest.raises(ConfigurationError, match="video 0 is float64"):
        model.score([np.zeros((2, 8, 8, 3))], ["go"])
    with pytest.raises(ConfigurationError, match="1 videos came with 2 instructions"):
        model.score(VIDEOS[:1], ["go", "go"])


def test_bins_span_zero_to_one(copy: Path) -> None:
    """A head that is sure of one bin says where that bin lies."""
    for chosen in (0, 4, BINS - 1):

        def change(weights: dict[str, torch.Tensor], chosen: int = chosen) -> None:
            weights["progress_head.4.weight"].zero_()
            weights["progress_head.4.bias"].zero_()[chosen] = 200.0

        change_weights(copy, change)
        [scores] = Robometer.load(copy, device="cpu").score(VIDEOS[:1], ["go"])
        assert scores is not None
        np.testing.assert_allclose(scores.progress, chosen / (BINS - 1), atol=1e-6)


def test_the_module_is_light_until_a_model_is_loaded() -> None:
    code = (
        "import sys, wmrl_envs.robotics.robometer; "
        "sys.exit(bool({'torch', 'transformers', 'safetensors', 'PIL'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
