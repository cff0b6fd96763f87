"""From clips and instructions to what Robometer's network takes: the prompt, the tokens and the pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor
from transformers import AutoImageProcessor, AutoTokenizer

from wmrl_envs.errors import CheckpointError, ConfigurationError, ProgressModelError
from wmrl_envs.robotics._robometer_checkpoint import read_json
from wmrl_envs.robotics.progress import Video

__all__ = ["PROMPT_FILE", "InputProcessor", "read_prompt"]

PROMPT_FILE = "robometer_prompt.txt"
PROMPT = (
    "A robot was told to: {task}. These frames show what it did, in order. Say for each frame how much of that task is "
    "done, as a number from 0 (not begun) to 1 (finished); if the robot does something else, say 0."
)
# Their order is part of the checkpoint: the rows of the embedding follow it.
TOKENS = ("<|split_token|>", "<|reward_token|>", "<|pref_token|>", "<|sim_token|>", "<|prog_token|>")
PROGRESS_TOKEN = TOKENS[-1]
IMAGE_TOKEN = "<|image_pad|>"

_PLACE = "{task}"
# Image tokens a frame may take, each a square of patch_size * merge_size pixels.
_FEWEST, _MOST = 4, 16_384


def read_prompt(folder: Path, prompt: str | None) -> str:
    """Return the prompt: the one given, else the checkpoint's ``robometer_prompt.txt``, else this package's.

    Raises:
        ConfigurationError: If the prompt has no place for the instruction.
        CheckpointError: If the file cannot be read.
    """
    place = folder / PROMPT_FILE
    if prompt is not None:
        origin = "prompt"
    elif place.exists():
        origin = str(place)
        try:
            prompt = place.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot read {place}: {error}") from error
    else:
        return PROMPT
    if _PLACE not in prompt:
        raise ConfigurationError(f"{origin} has no {_PLACE}, where the instruction goes: {prompt!r}")
    return prompt


class InputProcessor:
    """Turns clips and their instructions into a batch, padded on the right.

    Args:
        folder: Where the tokenizer's and the image processor's files are.
        prompt: What to ask, with ``{task}`` where the instruction goes.
        config: Settings of the network's backbone, which these must fit.

    Raises:
        CheckpointError: If the files are missing, damaged, or another model's.
    """

    def __init__(self, folder: Path, prompt: str, config: Any) -> None:
        self.tokenizer, self.images = _load(folder)
        self.prompt = prompt
        self._add_tokens(folder)
        self.progress_token: int = self.tokenizer.convert_tokens_to_ids(PROGRESS_TOKEN)
        self.image_token: int = self.tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)
        self._check(folder, config)
        self._check_text(prompt, "the prompt")

    def check(self, instructions: Sequence[str]) -> None:
        """Refuse instructions that would pass for frames.

        Raises:
            ConfigurationError: If an instruction has a token of the tokenizer's own in it.
        """
        for index, instruction in enumerate(instructions):
            self._check_text(instruction, f"instruction {index}")

    def __call__(self, clips: Sequence[Video], instructions: Sequence[str]) -> dict[str, Tensor]:
        """Return a batch.

        Args:
            clips: n arrays uint8 [T, H, W, 3]; T, H and W may differ.
            instructions: n sentences, checked.

        Returns:
            ``input_ids``, ``attention_mask`` and ``mm_token_type_ids`` int64 [n, length]; ``pixel_values`` float32
            [patches, values], ``image_grid_thw`` int64 [images, 3] over the frames of all clips.

        Raises:
            ProgressModelError: If the chat template loses frames.
        """
        frames = [self._fitted(frame) for clip in clips for frame in clip]
        pixels = self.images(images=frames, do_resize=False, return_tensors="pt")
        lengths = iter((pixels["image_grid_thw"].prod(-1) // self.images.merge_size**2).tolist())
        texts = [
            self._text(instruction, [next(lengths) for _ in clip])
            for clip, instruction in zip(clips, instructions, strict=True)
        ]
        tokens = self.tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
        ids = tokens["input_ids"]
        if (ids == self.progress_token).sum(-1).tolist() != [len(clip) for clip in clips]:
            raise ProgressModelError("the chat template of the tokenizer does not write every frame and its token")
        return {
            "input_ids": ids,
            "attention_mask": tokens["attention_mask"],
            "mm_token_type_ids": (ids == self.image_token).long(),
            "pixel_values": pixels["pixel_values"],
            "image_grid_thw": pixels["image_grid_thw"],
        }

    def _text(self, instruction: str, lengths: list[int]) -> str:
        content: list[dict[str, str]] = [{"type": "text", "text": self.prompt.replace(_PLACE, instruction)}]
        for _ in lengths:
            content += [{"type": "image"}, {"type": "text", "text": PROGRESS_TOKEN}]
        # The model was trained on numbered pictures ("Picture 1: "), which add_vision_id writes.
        text: str = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=False, add_vision_id=True
        )
        head, *tails = text.split(IMAGE_TOKEN)
        if len(tails) != len(lengths):
            raise ProgressModelError("the chat template of the tokenizer does not write every frame and its token")
        return head + "".join(IMAGE_TOKEN * length + tail for length, tail in zip(lengths, tails, strict=True))

    def _fitted(self, frame: Any) -> Image.Image:
        image = Image.fromarray(np.ascontiguousarray(frame))
        size = fitted_size(image.height, image.width, self.images.patch_size * self.images.merge_size)
        # Pillow takes (width, height).
        return image if size == (image.height, image.width) else image.resize(size[::-1], Image.Resampling.BICUBIC)

    def _check_text(self, text: str, what: str) -> None:
        found = [token for token in self.tokenizer.get_added_vocab() if token in text]
        if found:
            raise ConfigurationError(
                f"{what} has {found[0]!r} in it, a token with which the model tells frames apart; say it in plain "
                f"words: {text!r}"
            )

    def _add_tokens(self, folder: Path) -> None:
        known = self.tokenizer.get_vocab()
        there = [token for token in TOKENS if token in known]
        if not there:
            self.tokenizer.add_tokens(list(TOKENS), special_tokens=True)
        ids = self.tokenizer.convert_tokens_to_ids(list(TOKENS))
        if there not in ([], list(TOKENS)) or ids != list(range(ids[0], ids[0] + len(TOKENS))):
            raise CheckpointError(
                f"the tokenizer in {folder} has {dict(zip(TOKENS, ids, strict=True))}; Robometer's tokens come one "
                f"after the other, in this order: {', '.join(TOKENS)}"
            )

    def _check(self, folder: Path, config: Any) -> None:
        vision = config.vision_config
        for what, found, wanted in (
            ("number of tokens", len(self.tokenizer), config.text_config.vocab_size),
            (f"{IMAGE_TOKEN} as token", self.image_token, config.image_token_id),
            ("patch_size", self.images.patch_size, vision.patch_size),
            ("merge_size", self.images.merge_size, vision.spatial_merge_size),
            ("temporal_patch_size", self.images.temporal_patch_size, vision.temporal_patch_size),
        ):
            if found != wanted:
                raise CheckpointError(
                    f"the tokenizer and image processor in {folder} do not belong to the checkpoint: {what} {found!r}, "
                    f"where the weights have {wanted!r}"
                )


def fitted_size(height: int, width: int, unit: int) -> tuple[int, int]:
    """Return the height and width that a frame is brought to: whole image tokens of ``unit`` pixels a side.

    Frames whose sides are multiples of it, 32 pixels in Robometer-4B, stay as they are; others are rounded to the
    nearest. A frame has at least 4 such tokens and at most 16,384, as in qwen_vl_utils, through which the published
    model was fed.
    """
    rows, columns = max(1, round(height / unit)), max(1, round(width / unit))
    if rows * columns > _MOST:
        scale = math.sqrt(_MOST / (height * width))
        rows, columns = max(1, math.floor(height * scale)), max(1, math.floor(width * scale))
    elif rows * columns < _FEWEST:
        scale = math.sqrt(_FEWEST / (height * width))
        rows, columns = math.ceil(height * scale), math.ceil(width * scale)
    return rows * unit, columns * unit


def _load(folder: Path) -> tuple[Any, Any]:
    tokenizers: Any = AutoTokenizer
    processors: Any = AutoImageProcessor
    try:
        tokenizer = tokenizers.from_pretrained(folder, local_files_only=True)
        images = processors.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{folder} has no tokenizer and image processor that can be loaded ({reason}); put those of "
            "Qwen/Qwen3-VL-4B-Instruct beside the checkpoint (tokenizer.json, tokenizer_config.json, "
            "chat_template.json, preprocessor_config.json), or name their folder with processor="
        ) from error
    if tokenizer.chat_template is None and (folder / "chat_template.json").exists():
        tokenizer.chat_template = read_json(folder / "chat_template.json").get("chat_template")
    if tokenizer.chat_template is None:
        raise CheckpointError(f"the tokenizer in {folder} has no chat template; put chat_template.json beside it")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer, images
