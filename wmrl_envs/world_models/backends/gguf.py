"""GGUF files as folders that `from_pretrained` loads quickly, converted once."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from wmrl_envs.errors import WorldModelError
from wmrl_envs.world_models.backends._loading import complete_model, quietly
from wmrl_envs.world_models.warmup import default_cache_dir

__all__ = ["converted"]

_BLOCKS, _BLOCK = 64, 2**18
_ABANDONED = 24 * 3600.0
"""Seconds after which a conversion that was killed on its way is cleaned up."""


def converted(file: Path, cache_dir: Path | None = None) -> Path:
    """Return a folder with a GGUF file's model and tokenizer, converting it where that has not happened yet.

    Weights are stored as float32, which holds every kind of quantised weight exactly: four bytes a parameter. Processes
    that convert the same file at the same time do not disturb each other; the first to finish wins.

    Args:
        file: The GGUF file.
        cache_dir: Where the folder is kept; by default `wmrl_envs.world_models.warmup.default_cache_dir`.

    Raises:
        WorldModelError: If the file is no model that transformers reads, or the cache cannot be written.
    """
    models = (cache_dir or default_cache_dir()) / "models"
    folder = models / f"{file.stem}-{_content(file)[:16]}"
    if (folder / "config.json").is_file():
        return folder
    try:
        models.mkdir(parents=True, exist_ok=True)
        _clean_up(models)
        temporary = Path(tempfile.mkdtemp(dir=models, prefix=".converting-"))
    except OSError as error:
        raise WorldModelError(
            f"cannot keep the converted {file.name} in {models}: {error}; set XDG_CACHE_HOME to a folder that can be "
            "written"
        ) from error
    try:
        _convert(file, temporary)
        _move(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _content(file: Path) -> str:
    """Digest of the size, the head with the metadata, and blocks all over the file: gigabytes need not be read."""
    size = file.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with file.open("rb") as stream:
        for block in range(_BLOCKS):
            stream.seek(block * max(size - _BLOCK, 0) // (_BLOCKS - 1))
            digest.update(stream.read(_BLOCK))
    return digest.hexdigest()


def _convert(file: Path, folder: Path) -> None:
    arguments: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    try:
        with quietly():
            model = complete_model(file.parent, dtype=torch.float32, **arguments)
            tokenizer = AutoTokenizer.from_pretrained(file.parent, **arguments)
            # The loaded weights are plain ones; while the model says that they are quantised it refuses to be saved.
            model.hf_quantizer = None
            model.is_quantized = False
            model.config.__dict__.pop("quantization_config", None)
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except ImportError:
        raise
    except Exception as error:
        raise WorldModelError(f"{file} is no GGUF model that transformers can read: {error}") from error


def _move(temporary: Path, folder: Path) -> None:
    temporary.chmod(0o755)
    try:
        temporary.rename(folder)
    except OSError:
        if not (folder / "config.json").is_file():
            raise


def _clean_up(models: Path) -> None:
    for left in models.glob(".converting-*"):
        if time.time() - left.stat().st_mtime > _ABANDONED:
            shutil.rmtree(left, ignore_errors=True)
