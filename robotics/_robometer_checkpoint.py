"""Robometer's checkpoint on disk: which tensors a folder holds, and the way from there into a network.

Two layouts are published, with the same tensors. LeRobot's has the settings of the backbone under ``vlm_config`` in
config.json and its weights under ``model.model.``; the authors' own has a plain Qwen3-VL config.json and the weights
under ``model.``. Weights are read from ``model.safetensors``, else from the shards that
``model.safetensors.index.json`` names.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from wmrl_envs.errors import CheckpointError

__all__ = ["StoredTensor", "check_layout", "load_weights", "read_backbone", "read_json", "stored_tensors"]

EMBEDDING = "model.model.language_model.embed_tokens.weight"
LM_HEAD = "model.lm_head.weight"

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_FLOATS = ("F64", "F32", "F16", "BF16")
# What this loader computes; a checkpoint that was trained to be read otherwise would give numbers without meaning.
_READ_AS = {"use_multi_image": True, "use_per_frame_progress_token": True, "progress_loss_type": "discrete"}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies."""

    file: Path
    key: str
    """Its name in the file."""
    shape: tuple[int, ...]


def read_backbone(folder: Path) -> tuple[dict[str, Any], int]:
    """Return the settings of the Qwen3-VL backbone and the number of progress bins.

    Raises:
        CheckpointError: If config.json is missing, damaged, or that of another model.
    """
    settings = read_json(folder / "config.json")
    for name, value in _READ_AS.items():
        if settings.get(name, value) != value:
            raise CheckpointError(
                f"{folder / 'config.json'} has {name}={settings[name]!r}; this loader reads checkpoints with "
                f"{value!r}, like Robometer-4B's"
            )
    backbone = settings.get("vlm_config") or settings
    kind = backbone.get("model_type") if isinstance(backbone, dict) else None
    if kind != "qwen3_vl" or not isinstance(backbone.get("text_config"), dict):
        raise CheckpointError(
            f"{folder / 'config.json'} describes a backbone of type {kind!r}; Robometer's is 'qwen3_vl', itself or "
            "under 'vlm_config', with its 'text_config'"
        )
    bins = settings.get("progress_discrete_bins", 10)
    if not isinstance(bins, int) or bins < 2:
        raise CheckpointError(f"{folder / 'config.json'} has progress_discrete_bins={bins!r}; it is 2 or more")
    return dict(backbone), bins


def stored_tensors(folder: Path, *, tied: bool) -> dict[str, StoredTensor]:
    """Return every tensor of a checkpoint under the name it has in LeRobot's layout.

    Args:
        folder: The checkpoint.
        tied: Whether the output embedding is the input embedding. A tensor that two names share is saved once, and
            under the name of the output embedding, since that comes first in the alphabet.

    Raises:
        CheckpointError: If a file is missing, damaged, a Git-LFS pointer, or holds quantized weights.
    """
    found: dict[str, StoredTensor] = {}
    for file in _weight_files(folder):
        for key, shape in _read_header(file).items():
            found[_in_lerobots_layout(key)] = StoredTensor(file, key, shape)
    if tied and EMBEDDING not in found and LM_HEAD in found:
        found[EMBEDDING] = found[LM_HEAD]
    # Only logits of words would need it, and no head reads those.
    found.pop(LM_HEAD, None)
    return found


def check_layout(folder: Path, found: Mapping[str, StoredTensor], wanted: Mapping[str, torch.Tensor]) -> None:
    """Compare a checkpoint with a network, key for key and shape for shape.

    Raises:
        CheckpointError: It names the keys that are missing, unexpected or of another shape.
    """
    problems = [
        _listed("missing", (key for key in wanted if key not in found)),
        _listed("unexpected", (stored.key for key, stored in found.items() if key not in wanted)),
        _listed(
            "of another shape",
            (
                f"{stored.key} {list(stored.shape)} where {list(wanted[key].shape)} is needed"
                for key, stored in found.items()
                if key in wanted and stored.shape != tuple(wanted[key].shape)
            ),
        ),
    ]
    if any(problems):
        raise CheckpointError(
            f"{folder} is no checkpoint in Robometer-4B's layout: {'; '.join(filter(None, problems))}"
        )


def load_weights(
    network: nn.Module, found: Mapping[str, StoredTensor], device: torch.device, dtype: torch.dtype
) -> None:
    """Give a network on the meta device its weights, which are held once: read, converted and moved one by one.

    Raises:
        CheckpointError: If a file changed or vanished since it was looked at.
    """
    by_file: dict[Path, dict[str, str]] = defaultdict(dict)
    for name, stored in found.items():
        by_file[stored.file][name] = stored.key
    for file, keys in by_file.items():
        try:
            with safe_open(file, framework="pt") as opened:
                weights = {name: opened.get_tensor(key).to(device, dtype, copy=True) for name, key in keys.items()}
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"cannot read {file}: {error}") from error
        network.load_state_dict(weights, strict=False, assign=True)


def _in_lerobots_layout(key: str) -> str:
    return f"model.{key}" if key.startswith(("model.language_model.", "model.visual.")) else key


def _weight_files(folder: Path) -> list[Path]:
    if (folder / _SINGLE).exists():
        return [folder / _SINGLE]
    if not (folder / _INDEX).exists():
        raise CheckpointError(f"{folder} has neither {_SINGLE} nor {_INDEX}; fetch the whole checkpoint")
    names = read_json(folder / _INDEX).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise CheckpointError(f"{folder / _INDEX} has no weight_map, which says where each tensor lies")
    files = sorted({folder / str(name) for name in names.values()})
    absent = [file.name for file in files if not file.exists()]
    if absent:
        raise CheckpointError(f"{folder} lacks {_few(absent)}, which {_INDEX} names; fetch the whole checkpoint")
    return files


def _read_header(file: Path) -> dict[str, tuple[int, ...]]:
    _refuse_pointer(file)
    try:
        with safe_open(file, framework="pt") as opened:
            slices = {key: opened.get_slice(key) for key in opened.keys()}
            types = {key: str(found.get_dtype()) for key, found in slices.items()}
            shapes = {key: tuple(found.get_shape()) for key, found in slices.items()}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} is no whole safetensors file ({error}); fetch it again") from error
    other = [f"{key} ({kind})" for key, kind in types.items() if kind not in _FLOATS]
    if other:
        raise CheckpointError(
            f"{file} holds {_few(other)}; this loader reads weights of type {', '.join(_FLOATS)}, not quantized ones"
        )
    return shapes


def read_json(file: Path) -> dict[str, Any]:
    _refuse_pointer(file)
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {file}: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{file} holds a {type(value).__name__}, not settings by name")
    return value


def _refuse_pointer(file: Path) -> None:
    try:
        with file.open("rb") as opened:
            start = opened.read(32)
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error}") from error
    if start.startswith(b"version https://git-lfs"):
        raise CheckpointError(f"{file} is a Git-LFS pointer, not the file itself; fetch it with `git lfs pull`")


def _listed(problem: str, names: Iterable[str]) -> str:
    found = list(names)
    return f"{len(found)} {problem}: {_few(found)}" if found else ""


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
