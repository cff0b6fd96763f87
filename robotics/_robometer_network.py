"""Robometer's network: a Qwen3-VL that reads frames, and the heads that judge what it made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForImageTextToText

from wmrl_envs.errors import CheckpointError, ProgressModelError

__all__ = ["RobometerNetwork", "compute_tables"]


class RobometerNetwork(nn.Module):
    """The backbone with its heads, named as in the checkpoint (arXiv 2603.02115).

    ``preference_head`` and ``frame_pool_attn`` are there because the checkpoint has them: nothing here reads them.

    Args:
        backbone: Settings of a Qwen3-VL.
        bins: Number of progress bins.
    """

    def __init__(self, backbone: Mapping[str, Any], bins: int) -> None:
        super().__init__()
        try:
            config = AutoConfig.for_model(**backbone)
            auto: Any = AutoModelForImageTextToText
            self.model = auto.from_config(config)
        except Exception as error:
            raise CheckpointError(
                f"transformers {transformers.__version__} cannot build the backbone that config.json describes: {error}"
            ) from error
        self.config: Any = config
        # Logits of 150,000 words per token are the largest tensor of a forward pass, and no head reads them.
        self.model.lm_head = None
        hidden = config.text_config.hidden_size
        self.progress_head = _head(hidden, bins)
        self.preference_head = _head(hidden, 1)
        self.success_head = _head(hidden, 1)
        self.frame_pool_attn = nn.Linear(hidden, 1, bias=False)

    def forward(self, inputs: Mapping[str, Tensor], progress_token: int) -> tuple[Tensor, Tensor]:
        """Judge every frame of a batch.

        Args:
            inputs: What the backbone takes: ``input_ids`` int64 [n, length], ``pixel_values`` and more.
            progress_token: Number of the token that follows every frame.

        Returns:
            Progress and success probability, float32 [m] in [0, 1], of the m frames of the n clips, clip after clip.
        """
        hidden = self.model.model(**inputs, use_cache=False).last_hidden_state
        hidden = hidden[inputs["input_ids"] == progress_token]
        weights = torch.softmax(self.progress_head(hidden).float(), dim=-1)
        centres = torch.linspace(0.0, 1.0, weights.shape[-1], device=weights.device)
        # A sum of softmax weights may be a rounding above 1.
        progress = (weights @ centres).clamp(0.0, 1.0)
        return progress, torch.sigmoid(self.success_head(hidden).float()).squeeze(-1)


def compute_tables(network: nn.Module, device: torch.device) -> None:
    """Make anew what a checkpoint leaves out: the frequencies of rotary positions, float32, from the settings.

    Raises:
        ProgressModelError: If something is still on the meta device after that.
    """
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if any(buffer.is_meta for buffer in child.buffers(recurse=False)):
                setattr(parent, name, type(child)(config=child.config).to(device))
    empty = [name for name, value in (*network.named_parameters(), *network.named_buffers()) if value.is_meta]
    if empty:
        raise ProgressModelError(
            f"transformers {transformers.__version__} keeps {', '.join(empty[:5])} in its Qwen3-VL, which the "
            "checkpoint does not hold; take a version that this package was tested with"
        )


def _head(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, inputs // 2),
        nn.LayerNorm(inputs // 2),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(inputs // 2, outputs),
    )
