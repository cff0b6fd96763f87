"""GRPO of a language model on predicted rewards of real machine-learning tasks, a tenth of the groups really executed.

Without a model it makes a toy, in which each of some programs is one token, so that a minute on a CPU is enough to see
it learn. With one it trains that, here the adapter of a model of four billion weights, whose rewards come from a
language model on a server:

    python examples/research_llm_trl.py
    python examples/research_llm_trl.py --model Qwen/Qwen3-4B --lora 32 --groups 16 --turns 4 --completion-tokens 8192 \
        --world-model "openai:http://localhost:8000/v1#Qwen/Qwen3-8B"

A YAML file of the same arguments is given by --config; what stands on the command line goes before it. The settings of
the paper are examples/configs/paper_4b.yaml and paper_9b.yaml.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from peft import LoraConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig

from wmrl_envs.agents import ResearchGRPOTrainer
from wmrl_envs.agents.history import conversation
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.task import load_task

SYSTEM = "Solve the task."  # the toy's; a real model gets the package's system prompt
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Args:
    """What can be set on the command line."""

    model: str = ""
    """Folder or hub name of a chat model; empty makes the toy."""
    task: str = "titanic"
    """A bundled task (wmrl tasks list), or the path of a task folder; several separated by commas."""
    world_model: str = "learned"
    """learned, transformers:PATH, vllm:PATH or openai:URL#MODEL."""
    sandbox: str = "process"
    """process executes solutions; replay answers from shipped recordings of real executions."""
    scheme: str = "rectified"
    """Reward scheme: rectified, paper, debias, denoise, mixed, world-model or real."""
    anchor_fraction: float = 0.1
    """Share of the groups that is executed."""
    steps: int = 20
    """Updates of the policy."""
    groups: int = 8
    """Groups per update."""
    group_size: int = 8
    """Episodes that are compared with each other."""
    turns: int = 2
    """Attempts per episode; in later ones the agent reads how the last attempt ended."""
    completion_tokens: int = 1024
    """Room for all replies and the feedback of an episode."""
    device_batch: int = 16
    """Episodes per forward and backward pass."""
    lora: int = 0
    """Rank of an adapter to train; 0 trains all weights."""
    learning_rate: float = 0.0
    """Adam's step size; 0 takes 0.003 for the toy, 1e-5 for an adapter and 1e-6 for all weights."""
    warmup: int = 60
    """Solutions that are executed beforehand, for the learned world model."""
    isolation: str = "auto"
    """strict, auto or none: how the sandbox isolates what a model writes."""
    vllm: str = ""
    """URL of a TRL server (trl vllm-serve) that samples the replies; empty samples in the trainer."""
    out: str = ""
    """Folder of checkpoints and of what wmrl report shows; empty keeps none."""
    resume: str = ""
    """Checkpoint to go on from, such as OUT/checkpoint-10."""
    seed: int = 0
    """Seeds everything."""


def parse_args() -> Args:
    """Read the arguments from a configuration, if one is named, and from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, help="YAML file of arguments")
    for field in fields(Args):
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, type=type(field.default), default=field.default, help=f"({field.default})")
    config = parser.parse_known_args()[0].config
    if config is not None:
        settings = yaml.safe_load(config.read_text(encoding="utf-8"))
        known = [field.name for field in fields(Args)]
        for name in settings:
            if name not in known:
                parser.error(f"{config} sets {name!r}, which is none of {', '.join(known)}")
        parser.set_defaults(**settings)
    given = vars(parser.parse_args())
    del given["config"]
    return Args(**given)


def some_programs(task: str, count: int, seed: int) -> list[str]:
    """Draw different solutions from the prior of a task's design space; many of them fail."""
    space = DesignSpace.of(load_task(task))
    drawn = space.sample(8 * count, np.random.default_rng(seed))
    return list(dict.fromkeys(space.render(choices) for choices in drawn))[:count]


def toy_model(folder: Path, task: str, programs: Sequence[str], *, epochs: int = 40, seed: int = 0) -> Path:
    """Save a tiny Llama that answers a task with any of some programs, in each of which it sees one token."""
    prompt = load_task(task).prompt().strip()
    replies = [f"```python\n{program}\n```" for program in programs]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    spoken = "system user assistant Your program was run. The terminal showed: Traceback File line Error"
    tokenizer.train_from_iterator([prompt, SYSTEM, *[spoken] * 9], trainer)
    tokenizer.add_tokens([prompt, *replies])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHAT_TEMPLATE
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(fast),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=4096,
            bos_token_id=None,
            eos_token_id=fast.eos_token_id,
            pad_token_id=fast.pad_token_id,
        )
    )
    chat = fast.apply_chat_template(conversation(SYSTEM, prompt, []), tokenize=False, add_generation_prompt=True)
    opening, ends = fast(chat)["input_ids"], [fast.eos_token_id]
    answers = fast.convert_tokens_to_ids(replies)
    between = fast("\n<|im_start|>user\nIt ran.<|im_end|>\n<|im_start|>assistant\n")["input_ids"]
    seconds = answers[2:] + answers[:2]
    ids = torch.tensor([[*opening, a, *ends, *between, b, *ends] for a, b in zip(answers, seconds, strict=True)])
    labels = torch.full_like(ids, -100)
    for start in (len(opening), ids.shape[1] - 2):
        labels[:, start : start + 2] = ids[:, start : start + 2]
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(epochs):
        optimiser.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimiser.step()
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def configuration(args: Args, out: str) -> GRPOConfig:
    """Return TRL's configuration: one update per generation batch."""
    rollouts, gpu = args.groups * args.group_size, torch.cuda.is_available()
    at_once = args.device_batch * int(os.environ.get("WORLD_SIZE", "1"))  # over the processes of accelerate launch
    served: dict[str, Any] = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": args.vllm}
    return GRPOConfig(
        output_dir=out,
        max_steps=args.steps,
        num_generations=args.group_size,
        per_device_train_batch_size=min(args.device_batch, rollouts),
        gradient_accumulation_steps=max(1, rollouts // at_once),
        max_completion_length=args.completion_tokens,
        learning_rate=args.learning_rate or (3e-3 if not args.model else 1e-5 if args.lora else 1e-6),
        lr_scheduler_type="constant",
        logging_steps=1,
        save_strategy="steps" if args.out else "no",
        save_steps=min(10, args.steps),
        report_to="none",
        disable_tqdm=True,
        use_cpu=not gpu,
        bf16=gpu,
        activation_checkpointing=gpu,
        seed=args.seed,
        **(served if args.vllm else {}),
    )


def main() -> None:
    """Train, and print what the executed episodes were worth at the beginning and at the end."""
    args = parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = args.model or toy_model(Path(folder, "toy"), args.task, some_programs(args.task, 24, args.seed))
        trainer = ResearchGRPOTrainer(
            str(model),
            args.task.split(","),
            args=configuration(args, args.out or str(Path(folder, "run"))),
            world_model=args.world_model,
            sandbox=args.sandbox,
            anchor_fraction=args.anchor_fraction,
            scheme=args.scheme,
            max_turns=args.turns,
            max_reply_tokens=None if args.model else 3,
            system=None if args.model else SYSTEM,
            run_folder=args.out or None,
            peft_config=LoraConfig(r=args.lora, target_modules="all-linear") if args.lora else None,
            env_kwargs={
                "isolation": args.isolation,
                "ramp": 0.3,
                "world_model_kwargs": {"warmup": args.warmup} if args.world_model == "learned" else {},
            },
        )
        trainer.train(resume_from_checkpoint=args.resume or None)
        report(trainer)
        trainer.close()


def report(trainer: ResearchGRPOTrainer) -> None:
    """Print the run's numbers."""
    rows = [row for row in trainer.state.log_history if "wmrl/executions" in row]
    third = max(1, len(rows) // 3)
    for name in ("predicted", "real"):
        first, last = (
            np.mean([row[f"wmrl/{name}_reward"] for row in part if f"wmrl/{name}_reward" in row] or [np.nan])
            for part in (rows[:third], rows[-third:])
        )
        print(f"{name} reward per episode, first and last third of the steps: {first:.3f} {last:.3f}")
    ledger = trainer.env.ledger
    print(f"{ledger.predictions} attempts predicted in {ledger.prediction_seconds:.1f} s")
    print(f"{ledger.executions} attempts executed in {ledger.execution_seconds:.1f} CPU seconds, the warm-up included")


if __name__ == "__main__":
    main()
