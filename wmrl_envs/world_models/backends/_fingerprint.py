"""What decides a model's answers, as a digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["fingerprint"]

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PASSING = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "_attn_implementation")


def fingerprint(model: Any, tokenizer: Any, options: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits over weights, configuration, tokenizer, chat template and options.

    Every bit of every weight counts: tensors are summed as integers, which is exact in any order and takes a fraction
    of the time of reading the file; some elements enter in their places. Where the files lie does not matter.

    Args:
        model: A loaded transformers model.
        tokenizer: Its tokenizer.
        options: Further settings that decide the answers.
    """
    config = {key: value for key, value in model.config.to_dict().items() if key not in _PASSING}
    digest = hashlib.sha256(json.dumps([config, options], sort_keys=True, default=str).encode())
    digest.update(_tokenizer(tokenizer))
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        digest.update(f"{name} {tuple(tensor.shape)} {_bits(tensor)}".encode())
    return digest.hexdigest()[:16]


def _tokenizer(tokenizer: Any) -> bytes:
    fast = getattr(tokenizer, "backend_tokenizer", None)
    words = fast.to_str() if fast is not None else json.dumps(sorted(tokenizer.get_vocab().items()))
    special = {key: str(value) for key, value in tokenizer.special_tokens_map.items()}
    return json.dumps([words, tokenizer.chat_template, special], sort_keys=True).encode()


def _bits(tensor: torch.Tensor) -> list[int]:
    flat = tensor.detach().contiguous().flatten().view(_INTEGERS[tensor.element_size()])
    if flat.numel() == 0:
        return []
    places = torch.linspace(0, flat.numel() - 1, 16, device="cpu", dtype=torch.float64).long().to(flat.device)
    return [int(flat.sum(dtype=torch.int64)), *flat[places].tolist()]
