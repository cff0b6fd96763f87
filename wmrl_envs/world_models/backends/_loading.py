"""From a name to a model and its tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from wmrl_envs.errors import ConfigurationError, WorldModelError, did_you_mean

__all__ = ["complete_model", "default_device", "load", "quietly", "read_device", "read_dtype"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@contextmanager
def quietly() -> Iterator[None]:
    """Keep progress bars of transformers off, and leave its setting as it was."""
    settings: Any = transformers_logging
    shown = settings.is_progress_bar_enabled()
    settings.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            settings.enable_progress_bar()


def default_device() -> str:
    """Return the best device there is."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def read_device(name: str | None) -> torch.device:
    """Return the device of a name such as ``"cuda:1"``; the best there is for None.

    Raises:
        ConfigurationError: If there is no such device.
    """
    try:
        device = torch.device(name or default_device())
    except (RuntimeError, TypeError) as error:
        raise ConfigurationError(f"unknown device {name!r}; it is 'cpu', 'cuda', 'cuda:1' or 'mps'") from error
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device.type, False):
        raise ConfigurationError(f"device {name!r} is not there; the best that is is {default_device()!r}")
    return device


def read_dtype(name: str | None, device: torch.device) -> torch.dtype:
    """Return the type of a name; for None float32 on a CPU and bfloat16 elsewhere.

    Raises:
        ConfigurationError: If the name is unknown.
    """
    if name is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if name not in _DTYPES:
        raise ConfigurationError(
            f"unknown dtype {name!r}; it is one of {sorted(_DTYPES)}.{did_you_mean(name, _DTYPES)}"
        )
    return _DTYPES[name]


def load(path: str, revision: str | None, device: torch.device, dtype: torch.dtype) -> tuple[str, Any, Any]:
    """Return a short name, the model on its device in evaluation mode, and the tokenizer.

    Args:
        path: A folder as `save_pretrained` writes it, a GGUF file, or a hub's name.
        revision: Branch, tag or commit of a hub's name.
        device: Where the model goes.
        dtype: Type of its weights.

    Raises:
        ConfigurationError: If there is nothing of that name.
        WorldModelError: If what is there cannot be loaded.
    """
    place = place_of(path, revision)
    arguments: dict[str, Any] = {"local_files_only": True} if isinstance(place, Path) else {"revision": revision}
    try:
        with quietly():
            tokenizer = AutoTokenizer.from_pretrained(place, **arguments)
            model = complete_model(place, dtype=dtype, **arguments)
            model = model.to(device).eval().requires_grad_(False)
    except (ImportError, WorldModelError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        raise WorldModelError(
            f"cannot load the language model {path!r}: {reason} A folder needs config.json, *.safetensors and the "
            "tokenizer's files; a hub's name needs the network, or a copy in the hub's cache with HF_HUB_OFFLINE=1"
        ) from error
    return Path(path).expanduser().absolute().name if isinstance(place, Path) else path, model, tokenizer


def complete_model(place: Path | str, **arguments: Any) -> Any:
    """Return the model of a folder or a hub's name, all of whose weights were there.

    Raises:
        WorldModelError: If weights are missing, which transformers would draw at random.
    """
    auto: Any = AutoModelForCausalLM
    model, report = auto.from_pretrained(place, output_loading_info=True, **arguments)
    missing = sorted(report["missing_keys"])
    if missing:
        raise WorldModelError(f"{len(missing)} weights are missing in {place}: {', '.join(missing[:5])}, ...")
    return model


def place_of(path: str, revision: str | None) -> Path | str:
    """Return the folder of a language model, or the hub's name that it was called by.

    Args:
        path: A folder, a GGUF file (it is converted), or a hub's name.
        revision: Branch, tag or commit of a hub's name.

    Raises:
        ConfigurationError: If there is nothing of that name.
    """
    folder = Path(path).expanduser()
    if not folder.exists():
        if not _HUB_NAME.fullmatch(path) or path.endswith(".gguf"):
            raise ConfigurationError(
                f"there is no language model at {path!r}: it is a folder with config.json, a .gguf file, or a hub's "
                "name such as 'Qwen/Qwen3-4B'"
            )
        return path
    if revision is not None:
        raise ConfigurationError(f"revision={revision!r} is for a hub's name; {path!r} is on this machine")
    if folder.is_dir():
        return folder
    if folder.suffix != ".gguf":
        raise ConfigurationError(f"{path!r} is a file, but no .gguf file; pass the folder with config.json")
    from wmrl_envs.world_models.backends.gguf import converted

    return converted(folder)
