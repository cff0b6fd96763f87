"""A small random Robometer, saved key for key as the published ones are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file, save_model
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from transformers import AutoModelForImageTextToText, PreTrainedTokenizerFast, Qwen3VLConfig
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

__all__ = [
    "BINS",
    "CHAT_TEMPLATE",
    "QWEN_TOKENS",
    "ROBOMETER_TOKENS",
    "as_shards",
    "as_the_authors",
    "save_processor",
    "tiny_robometer",
    "tokenizer",
]

BINS = 10
PATCH = 4
# As Qwen3-VL's: pictures are numbered where add_vision_id asks for it.
CHAT_TEMPLATE = """\
{%- set pictures = namespace(count=0) -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% for part in message.content -%}
{%- if part.type == 'image' -%}
{%- set pictures.count = pictures.count + 1 -%}
{%- if add_vision_id %}Picture {{ pictures.count }}: {% endif -%}
<|vision_start|><|image_pad|><|vision_end|>
{%- else -%}{{ part.text }}{%- endif -%}
{%- endfor -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""
QWEN_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
ROBOMETER_TOKENS = ("<|split_token|>", "<|reward_token|>", "<|pref_token|>", "<|sim_token|>", "<|prog_token|>")


class _Published(nn.Module):
    """The modules of the published checkpoint under their names."""

    def __init__(self, config: Qwen3VLConfig, hidden: int) -> None:
        super().__init__()
        auto: Any = AutoModelForImageTextToText
        self.model = auto.from_config(config)
        self.progress_head = _head(hidden, BINS)
        self.preference_head = _head(hidden, 1)
        self.success_head = _head(hidden, 1)
        self.frame_pool_attn = nn.Linear(hidden, 1, bias=False)


def _head(hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(hidden, hidden // 2),
        nn.LayerNorm(hidden // 2),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(hidden // 2, outputs),
    )


def tokenizer() -> Any:
    """Return a tokenizer of bytes with Qwen's special tokens, without Robometer's."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    plain.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in QWEN_TOKENS])
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=plain, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHAT_TEMPLATE)


def save_processor(folder: Path) -> None:
    """Write the tokenizer's and the image processor's files, as beside Qwen3-VL."""
    tokenizer().save_pretrained(folder)
    half = [0.5, 0.5, 0.5]
    size = {"shortest_edge": 4 * (2 * PATCH) ** 2, "longest_edge": 512**2}
    Qwen2VLImageProcessorPil(
        patch_size=PATCH, temporal_patch_size=2, merge_size=2, image_mean=half, image_std=half, size=size
    ).save_pretrained(folder)


def backbone_config(tied: bool) -> Qwen3VLConfig:
    """Return the settings of the small backbone."""
    words = tokenizer()
    return Qwen3VLConfig(
        text_config={
            "vocab_size": len(words) + len(ROBOMETER_TOKENS),
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e6,
                "mrope_section": [2, 1, 1],
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": tied,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_heads": 2,
            "patch_size": PATCH,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": 32,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
        image_token_id=words.convert_tokens_to_ids("<|image_pad|>"),
        video_token_id=words.convert_tokens_to_ids("<|video_pad|>"),
        vision_start_token_id=words.convert_tokens_to_ids("<|vision_start|>"),
        vision_end_token_id=words.convert_tokens_to_ids("<|vision_end|>"),
        tie_word_embeddings=tied,
    )


def tiny_robometer(folder: Path, *, tied: bool = True, seed: int = 0) -> Path:
    """Save a random checkpoint in LeRobot's layout, with the processor's files beside it.

    Args:
        folder: Where to.
        tied: Whether the output embedding is the input embedding, as in Qwen3-VL-4B.
        seed: Of the weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = backbone_config(tied)
    torch.manual_seed(seed)
    network = _Published(config, 32)
    # transformers starts with weights so small that every frame would get the same score.
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.ndim > 1:
                nn.init.normal_(weight, std=1.5 if "head" in name else 0.25)
            elif name.endswith("bias"):
                nn.init.normal_(weight, std=0.1)
    # As LeRobot saves: of two names of one tensor the file has one.
    save_model(network, str(folder / "model.safetensors"))
    settings: dict[str, Any] = {
        "type": "robometer",
        "max_frames": 8,
        "use_multi_image": True,
        "use_per_frame_progress_token": True,
        "frame_pooling": "mean",
        "progress_loss_type": "discrete",
        "progress_discrete_bins": BINS,
        "vlm_config": config.to_dict(),
    }
    (folder / "config.json").write_text(json.dumps(settings))
    save_processor(folder)
    return folder


def as_the_authors(folder: Path) -> Path:
    """Turn a checkpoint into the authors' layout: Qwen3-VL's config.json, no output embedding, the tokens there."""
    weights = load_file(folder / "model.safetensors")
    output = weights.pop("model.lm_head.weight")
    weights.setdefault("model.model.language_model.embed_tokens.weight", output)
    renamed = {key.replace("model.model.", "model."): value.clone() for key, value in weights.items()}
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})
    settings = json.loads((folder / "config.json").read_text())["vlm_config"]
    settings["architectures"] = ["RBM"]
    # The size before Robometer's tokens were added.
    settings["text_config"]["vocab_size"] -= len(ROBOMETER_TOKENS)
    (folder / "config.json").write_text(json.dumps(settings))
    words = tokenizer()
    words.add_tokens(list(ROBOMETER_TOKENS), special_tokens=True)
    words.save_pretrained(folder)
    return folder


def as_shards(folder: Path) -> Path:
    """Split the weights over three files with an index."""
    weights = load_file(folder / "model.safetensors")
    names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    where = {key: names[i % 3] for i, key in enumerate(weights)}
    for name in names:
        save_file({key: weights[key] for key in weights if where[key] == name}, folder / name, {"format": "pt"})
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder
