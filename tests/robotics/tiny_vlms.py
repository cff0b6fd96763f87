"""Tiny random vision-language models of real architectures, saved as a hub would serve them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["WORDS", "STATISTICS", "tiny_idefics3", "tiny_paligemma"]

WORDS = 400
"""Tokens before any special one is added."""
STATISTICS: dict[str, Any] = {
    "meta_world": {
        "action": {
            "q01": [-0.5, -1.0, 0.0, -1.0],
            "q99": [0.5, 1.0, 0.02, 1.0],
            "mask": [True, True, True, False],
        },
        "num_transitions": 640,
    }
}
_CHAT = (
    "{% for message in messages %}{{ message['role'] }}: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE{% else %}{{ part['text'] }}{% endif %}{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def tiny_idefics3(folder: Path) -> Path:
    """Save an Idefics3 of two layers (SmolVLM's architecture)."""
    import torch
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration, Idefics3Processor
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    tokenizer = _tokenizer(["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"])
    size = {"longest_edge": 32}
    images = Idefics3ImageProcessorPil(size=size, max_image_size=size, do_image_splitting=False)
    processor = Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=_CHAT.replace("IMAGE", "<image>"))
    torch.manual_seed(0)
    config = Idefics3Config(
        vision_config=_vision(),
        text_config=_text("llama", len(tokenizer)),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
    )
    return _saved(folder, Idefics3ForConditionalGeneration(config), processor)


def tiny_paligemma(folder: Path) -> Path:
    """Save a PaliGemma of two layers; it has no chat template, and its prompt attends in both directions."""
    import torch
    from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration, PaliGemmaProcessor
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    tokenizer = _tokenizer(["<image>"])
    images = SiglipImageProcessorPil(size={"height": 32, "width": 32})
    images.image_seq_length = 16
    processor = PaliGemmaProcessor(images, tokenizer)
    torch.manual_seed(0)
    config = PaliGemmaConfig(
        vision_config={**_vision(), "projection_dim": 32, "model_type": "siglip_vision_model"},
        text_config={**_text("gemma", len(processor.tokenizer)), "head_dim": 8},
        image_token_index=processor.tokenizer.convert_tokens_to_ids("<image>"),
        projection_dim=32,
        hidden_size=32,
    )
    return _saved(folder, PaliGemmaForConditionalGeneration(config), processor, scale=3.0)


def _tokenizer(special: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([f"token {number}" for number in range(1000)], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", bos_token="<s>")
    fast.add_special_tokens({"additional_special_tokens": special})
    return fast


def _text(kind: str, vocabulary: int) -> dict[str, Any]:
    return {
        "model_type": kind,
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    }


def _vision() -> dict[str, Any]:
    return {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
    }


def _saved(folder: Path, model: Any, processor: Any, *, scale: float = 20.0) -> Path:
    import torch

    # Random weights say nearly the same of every token; larger ones prefer some, as trained ones do.
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(scale)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    (folder / "dataset_statistics.json").write_text(json.dumps(STATISTICS))
    return folder
