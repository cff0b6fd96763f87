"""A tiny language model that writes whole programs.

Each program is one token of its vocabulary, and so is the task: there is something to learn from rewards in a second.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from wmrl_envs.agents.history import conversation
from wmrl_envs.research.outcome import STATUSES, Status
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import load_task

__all__ = ["SYSTEM", "programs", "program_model", "reply_to"]

SYSTEM = "Solve the task."

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@lru_cache
def programs(task: str = "titanic") -> tuple[str, ...]:
    """Return six recorded solutions that always end alike: an error, two without a submission, and three valid ones,
    the best last."""
    table = ReplaySandbox().table(load_task(task))
    certain = np.nan_to_num(table.spreads, nan=1.0) < 1e-9
    chosen = []
    for status, count in ((Status.RUNTIME_ERROR, 1), (Status.NO_SUBMISSION, 2), (Status.VALID, 3)):
        found = np.flatnonzero(certain & (table.probabilities[:, STATUSES.index(status)] == 1.0))
        found = found[np.argsort(table.rewards[found], kind="stable")]
        chosen += found[np.linspace(0, len(found) - 1, count).astype(int)].tolist()
    return tuple(table.space.solution(index) for index in chosen)


def reply_to(program: str) -> str:
    """Return a reply that holds a program."""
    return f"```python\n{program}\n```"


def program_model(folder: Path, task: str = "titanic", *, steps: int = 40, seed: int = 0) -> Path:
    """Save a small Llama that was taught to answer the task with any of ``programs``, in every turn."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    text = load_task(task).prompt().strip()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [text, SYSTEM, "user assistant Your program was run. The terminal showed: ValueError KeyError Traceback"] * 3,
        trainers.BpeTrainer(
            vocab_size=600,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens([text, *(reply_to(program) for program in programs(task))])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=_TEMPLATE
    )
    answers = fast.convert_tokens_to_ids([reply_to(program) for program in programs(task)])
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(fast),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=2048,
            bos_token_id=None,
            eos_token_id=fast.eos_token_id,
            pad_token_id=fast.pad_token_id,
        )
    )
    chat = fast.apply_chat_template(conversation(SYSTEM, text, []), tokenize=False, add_generation_prompt=True)
    user = "\n<|im_start|>user\nYour program was run.<|im_end|>\n<|im_start|>assistant\n"
    opening, between = fast(chat)["input_ids"], fast(user)["input_ids"]
    ends = [fast.eos_token_id]
    rows = [
        [*opening, first, *ends, *between, second, *ends]
        for first, second in zip(answers, answers[2:] + answers[:2], strict=True)
    ]
    ids = torch.tensor(rows)
    labels = torch.full_like(ids, -100)
    for start in (len(opening), ids.shape[1] - 2):
        labels[:, start : start + 2] = ids[:, start : start + 2]
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimiser.step()
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
