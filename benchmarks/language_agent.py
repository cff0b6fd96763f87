"""A small language model that improves on mostly predicted rewards, and the same run on real execution.

Per seed a Llama of about a million parameters is trained from scratch: first supervised, on solutions drawn from the
prior of the task's design space, bugs included; then by GRPO through ``ResearchGRPOTrainer`` (TRL), once for each
reward scheme from the same weights. It is no pretrained model: it writes programs for this one task and nothing else,
so that a whole run takes minutes on one core. What it writes is free text all the same; a program that is none of the
recorded ones is really executed.

- Score and validity: of replies sampled at temperature 1, all executed, before, during and after training. The
  reported score is the real reward on the half of the answers that training never sees.
- Cost: CPU seconds of real execution, the world model's warm-up included and every repeat charged, and wall seconds
  of prediction, by the run's ledger. Evaluations are not charged. A recorded program is looked up, and costs the CPU
  seconds that it took when it was recorded. Generation and optimisation are the same in all arms and are told apart.

    python benchmarks/language_agent.py [--seeds 3] [--steps 50] [--out docs]

Each finished run is kept in --runs and not repeated. ``--quick`` runs everything at a size that shows nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from wmrl_envs.agents.history import conversation
from wmrl_envs.compare_report import Estimate
from wmrl_envs.files import replacing, write_json, write_text
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.reply import extract_code
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import ResearchTask, load_task

FloatArray = NDArray[np.float64]
Runs = dict[str, list[dict[str, Any]]]
"""By arm, the written results of its seeds."""
ARMS = {
    "rectified": ("WMRL: a tenth executed, rectified", "#2166ac"),
    "real": ("real execution everywhere", "#222222"),
    "world-model": ("world model alone", "#e08214"),
}
"""Reward scheme: what it trains on in words, and its colour."""
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Settings:
    """What a run is made of; written beside its results, and enough to repeat it."""

    task: str = "titanic"
    hidden: int = 128
    layers: int = 4
    vocabulary: int = 3072
    examples: int = 3000
    """Solutions of the prior that the tokenizer and the model are trained on."""
    warmup_steps: int = 500
    """Steps of supervised training."""
    warmup_batch: int = 16
    warmup_rate: float = 4e-3
    """Step size of the embeddings and norms; the matrices have Muon's."""
    steps: int = 50
    groups: int = 16
    group_size: int = 8
    learning_rate: float = 5e-4
    anchor_fraction: float = 0.1
    executions: int = 180
    """Solutions that the learned world model is first fitted on."""
    evaluated: int = 256
    """Replies that are executed in each evaluation."""
    evaluate_every: int = 5

    @property
    def batch(self) -> int:
        """Replies in one pass of the optimiser: as many whole groups as divide a step's evenly, at most 32 replies."""
        fitting = (count for count in range(1, self.groups + 1) if self.groups % count == 0)
        return self.group_size * max((count for count in fitting if count * self.group_size <= 32), default=1)


QUICK = Settings(
    hidden=64,
    layers=1,
    examples=6,
    warmup_steps=80,
    warmup_batch=8,
    warmup_rate=2e-2,
    steps=2,
    groups=4,
    group_size=2,
    anchor_fraction=0.5,
    executions=24,
    evaluated=16,
    evaluate_every=1,
)


def warm_up(seed: int, settings: Settings, folder: Path) -> None:
    """Train the tokenizer and the model of one seed on solutions of the prior, and save both with what it took."""
    import torch

    _set_up_libraries()
    rng = np.random.default_rng(seed)
    task = load_task(settings.task)
    space = DesignSpace.of(task)
    replies = [f"```python\n{space.render(choices)}```" for choices in space.sample(settings.examples, rng)]
    tokenizer = train_tokenizer([*replies, *[task.prompt().strip()] * len(replies)], settings.vocabulary)
    prompt = prompt_ids(tokenizer, task)
    rows = [[*tokenizer(reply)["input_ids"], tokenizer.eos_token_id] for reply in replies]
    torch.manual_seed(seed)
    model = new_model(tokenizer, settings)
    start, cpu = time.perf_counter(), time.process_time()
    losses = fine_tune(model, prompt, rows, tokenizer.pad_token_id, settings, rng)
    told = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocabulary": len(tokenizer),
        "prompt_tokens": len(prompt),
        "reply_tokens": float(np.mean([len(row) for row in rows])),
        "longest_reply": max(len(row) for row in rows),
        "distinct_examples": len(set(replies)),
        "first_loss": losses[0],
        "last_loss": float(np.mean(losses[-50:])),
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
    }
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_json(folder / "warmup.json", {"settings": _plain(settings), "seed": seed, **told})


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> Any:
    """Return a byte-level BPE tokenizer whose tokens may span a line, so that task and programs are short in tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[^\n]*\n"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHAT_TEMPLATE
    )


def prompt_ids(tokenizer: Any, task: ResearchTask) -> list[int]:
    """Return the chat up to the reply, as the trainer makes it of what the environment shows."""
    chat = conversation("", task.prompt(), [])
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def new_model(tokenizer: Any, settings: Settings) -> Any:
    """Return an untrained Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=settings.hidden,
            intermediate_size=2 * settings.hidden,
            num_hidden_layers=settings.layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=8192,
            tie_word_embeddings=True,
            # The customary 0.02 is for models some ten times as wide.
            initializer_range=0.05,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def fine_tune(
    model: Any, prompt: list[int], rows: list[list[int]], pad: int, settings: Settings, rng: np.random.Generator
) -> list[float]:
    """Train on the replies alone; return the loss of each step, in nats per token.

    The prompt is the same in every row, so each step reads it once and all replies attend to that one reading.
    """
    import torch
    from torch.nn.functional import cross_entropy

    # Programs take up again what they import, and a small model learns to look back by Muon in a third of Adam's steps.
    matrices = [value for name, value in model.named_parameters() if value.ndim == 2 and "embed" not in name]
    others = [value for name, value in model.named_parameters() if value.ndim != 2 or "embed" in name]
    optimisers: list[Any] = [
        torch.optim.Muon(matrices, lr=0.02, weight_decay=0.0),
        torch.optim.AdamW(others, lr=settings.warmup_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    schedules: list[Any] = [
        torch.optim.lr_scheduler.LambdaLR(each, partial(_trapezoid, settings)) for each in optimisers
    ]
    losses = []
    for _ in range(settings.warmup_steps):
        drawn = [rows[index] for index in rng.integers(0, len(rows), settings.warmup_batch)]
        longest = max(map(len, drawn))
        replies = torch.tensor([row + [pad] * (longest - len(row)) for row in drawn])
        read = model(input_ids=torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
        read.past_key_values.batch_repeat_interleave(len(drawn))
        rest = model(input_ids=replies[:, :-1], cache=read.past_key_values).logits
        logits = torch.cat([read.logits.expand(len(drawn), -1, -1), rest], dim=1)
        loss = cross_entropy(logits.flatten(0, 1), replies.flatten(), ignore_index=pad)
        model.zero_grad()
        loss.backward()
        for each in (*optimisers, *schedules):
            each.step()
        losses.append(loss.item())
    return losses


def _trapezoid(settings: Settings, step: int) -> float:
    """Return the share of the step size at a step: a short rise, a plateau, a fall to 0."""
    return min(1.0, (step + 1) / 20, (settings.warmup_steps - step) / (0.4 * settings.warmup_steps))


class Judge:
    """Executes what a model writes and scores it on the report half."""

    def __init__(self, settings: Settings, sandbox: ReplaySandbox, max_tokens: int) -> None:
        """Make the environment.

        Args:
            settings: Task, and the number of replies.
            sandbox: Executes them.
            max_tokens: Longest reply.
        """
        self._task, self._max_tokens = load_task(settings.task), max_tokens
        self._known = {code.rstrip("\n") for code in sandbox.recorded(self._task)}
        self._env = gym.make_vec(
            "wmrl/Research-v0",
            num_envs=settings.evaluated,
            vectorization_mode="vector_entry_point",
            tasks=settings.task,
            sandbox=sandbox,
            max_turns=1,
            report=True,
            autoreset_mode="Disabled",
        )

    def __call__(self, model: Any, tokenizer: Any, seed: int) -> dict[str, Any]:
        """Sample and execute replies; the global random generators are left as they were."""
        import torch

        start, cpu = time.perf_counter(), time.process_time()
        prompt = torch.tensor([prompt_ids(tokenizer, self._task)] * self._env.num_envs)
        training = model.training
        model.eval()
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            tokens = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                max_new_tokens=self._max_tokens,
            )[:, prompt.shape[1] :]
        model.train(training)
        seconds = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
        replies = tokenizer.batch_decode(tokens, skip_special_tokens=True)
        self._env.reset(seed=seed)
        *_, infos = self._env.step(tuple(replies))
        codes = [extract_code(reply) for reply in replies]
        statuses = Counter(str(outcome.status) for outcome in infos["wmrl"]["outcome"] if outcome is not None)
        graded = ~infos["wmrl"]["ungraded"]
        return {
            "score": float(infos["report_score"][graded].mean()),
            "valid": statuses["valid"] / sum(statuses.values()),
            "recorded": float(np.mean([code is not None and code.rstrip("\n") in self._known for code in codes])),
            "distinct": len(set(codes)),
            "statuses": dict(statuses),
            "tokens": int((tokens != tokenizer.pad_token_id).sum()),
            **seconds,
        }

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def train(job: tuple[int, str], settings: Settings, folder: Path) -> None:
    """Train one arm of one seed from the seed's warmed-up model, and write its curve."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
    from trl.trainer.grpo_config import GRPOConfig

    from wmrl_envs.agents import ResearchGRPOTrainer

    seed, scheme = job
    _set_up_libraries()
    torch.manual_seed(seed)
    source = model_folder(folder, seed)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    told = json.loads((source / "warmup.json").read_text(encoding="utf-8"))
    longest = int(told["longest_reply"]) + 16
    rollouts = settings.groups * settings.group_size
    points: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch, ReplaySandbox(fallback="process") as sandbox:
        trainer = ResearchGRPOTrainer(
            model,
            settings.task,
            args=GRPOConfig(
                scratch,
                max_steps=settings.steps,
                # Some groups at a time, for the memory's sake; an optimiser step takes them all.
                per_device_train_batch_size=settings.batch,
                gradient_accumulation_steps=rollouts // settings.batch,
                generation_batch_size=rollouts,
                num_generations=settings.group_size,
                max_completion_length=longest,
                learning_rate=settings.learning_rate,
                lr_scheduler_type="constant",
                # Clipping would shrink just those steps in which anchors speak, and bring the world model's bias back.
                max_grad_norm=0.0,
                temperature=1.0,
                beta=0.0,
                seed=seed,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                bf16=False,
                activation_checkpointing=False,
                disable_tqdm=True,
            ),
            sandbox=sandbox,
            world_model="learned",
            scheme=scheme,
            anchor_fraction=settings.anchor_fraction,
            max_turns=1,
            system="",
            env_kwargs={
                "world_model_kwargs": {
                    "warmup": settings.executions,
                    "warmup_source": "recordings",
                    "refit_every": 5,
                    "seed": seed,
                }
            },
            processing_class=tokenizer,
        )
        with closing(trainer), closing(Judge(settings, sandbox, longest)) as judge:

            def note(step: int) -> None:
                points.append({"step": step, **judge(trainer.model, tokenizer, seed), **trainer.env.ledger.summary()})

            trainer.remove_callback(PrinterCallback)
            trainer.add_callback(_noting(note, settings))
            start, cpu = time.perf_counter(), time.process_time()
            trainer.train()
            seconds = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
            rows = [row for row in trainer.state.log_history if "wmrl/anchors" in row]
    write_json(
        result_path(folder, seed, scheme),
        {"settings": _plain(settings), "seed": seed, "scheme": scheme, "points": points, "log": rows, **seconds},
    )


def _noting(note: Callable[[int], None], settings: Settings) -> Any:
    """Return a callback of the trainer that notes the untrained model and then every few steps, the last one always."""
    from transformers import TrainerCallback

    class Noting(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            note(0)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % settings.evaluate_every == 0 or state.global_step == settings.steps:
                note(state.global_step)

    return Noting()


def seeds_of(arguments: argparse.Namespace) -> range:
    """Return the reported seeds; the step size was chosen on seed 0, which is none of them."""
    return range(1, arguments.seeds + 1)


def model_folder(folder: Path, seed: int) -> Path:
    """Return where a seed's warmed-up model is."""
    return folder / f"seed-{seed}" / "model"


def result_path(folder: Path, seed: int, scheme: str) -> Path:
    """Return the file of one arm of one seed."""
    return folder / f"seed-{seed}" / f"{scheme}.json"


def run_all(arguments: argparse.Namespace, settings: Settings, folder: Path) -> None:
    """Make what is not on disk yet, first the models and then the runs, in parallel where there are several workers."""
    seeds = seeds_of(arguments)
    models = [seed for seed in seeds if not _done(model_folder(folder, seed) / "warmup.json", settings)]
    _each(partial(warm_up_at, settings=settings, folder=folder), models, arguments.workers, "models")
    jobs = [(seed, arm) for seed in seeds for arm in arguments.arms]
    jobs = [job for job in jobs if not _done(result_path(folder, *job), settings)]
    _each(partial(train, settings=settings, folder=folder), jobs, arguments.workers, "runs")


def warm_up_at(seed: int, settings: Settings, folder: Path) -> None:
    """Warm one seed's model up where it belongs."""
    warm_up(seed, settings, model_folder(folder, seed))


def _each(work: Callable[[Any], None], jobs: Sequence[Any], workers: int, name: str) -> None:
    started = time.perf_counter()
    if workers == 1 or len(jobs) < 2:
        for job in jobs:
            work(job)
        return
    with multiprocessing.get_context("spawn").Pool(min(workers, len(jobs))) as pool:
        for done, _ in enumerate(pool.imap_unordered(work, jobs), start=1):
            print(f"{done} of {len(jobs)} {name} after {time.perf_counter() - started:.0f} s", flush=True)


def _done(path: Path, settings: Settings) -> bool:
    if not path.exists():
        return False
    if json.loads(path.read_text(encoding="utf-8"))["settings"] != _plain(settings):
        raise SystemExit(f"{path} holds a run of other settings: remove it, or name another folder by --runs")
    return True


def _plain(settings: Settings) -> dict[str, Any]:
    return dict(json.loads(json.dumps(asdict(settings))))


def _set_up_libraries() -> None:
    """Take one thread, as matrices are small and runs stand side by side, and keep the libraries quiet."""
    import torch
    from transformers.utils import logging

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.disable_progress_bar()


def load_runs(arguments: argparse.Namespace, folder: Path) -> Runs:
    """Read the results of all runs."""
    return {
        arm: [json.loads(result_path(folder, seed, arm).read_text(encoding="utf-8")) for seed in seeds_of(arguments)]
        for arm in arguments.arms
    }


def curve(runs: Sequence[dict[str, Any]], name: str) -> FloatArray:
    """Return one number of every evaluation, float64 [seeds, evaluations]."""
    return np.array([[point[name] for point in run["points"]] for run in runs], dtype=np.float64)


def cost(runs: Sequence[dict[str, Any]]) -> FloatArray:
    """Return the seconds of execution and prediction so far, float64 [seeds, evaluations]."""
    return curve(runs, "execution_seconds") + curve(runs, "prediction_seconds")


def at_cost(runs: Sequence[dict[str, Any]], name: str, seconds: FloatArray) -> FloatArray:
    """Return a number when so many seconds were spent, float64 [seeds]; straight lines join the evaluations."""
    spent, values = cost(runs), curve(runs, name)
    return np.array([np.interp(limit, x, y) for limit, x, y in zip(seconds, spent, values, strict=True)])


def score_table(runs: Runs) -> list[list[str]]:
    """Return validity and reported score before and after, headings first."""
    rows = [["trained on", "valid before", "valid after", "score before", "score after", "gain"]]
    for arm, found in runs.items():
        valid, score = curve(found, "valid"), curve(found, "score")
        ends = [Estimate.of(values[:, place]) for values in (valid, score) for place in (0, -1)]
        rows.append([ARMS[arm][0], *map(str, ends), Estimate.of(score[:, -1] - score[:, 0]).signed])
    if {"rectified", "real"} <= runs.keys():
        spent = cost(runs["rectified"])[:, -1]
        valid, score = (at_cost(runs["real"], name, spent) for name in ("valid", "score"))
        before = [Estimate.of(curve(runs["real"], name)[:, 0]) for name in ("valid", "score")]
        gain = Estimate.of(score - curve(runs["real"], "score")[:, 0]).signed
        words = "real execution, stopped at the cost of WMRL"
        rows.append([words, str(before[0]), str(Estimate.of(valid)), str(before[1]), str(Estimate.of(score)), gain])
    return rows


def cost_table(runs: Runs) -> list[list[str]]:
    """Return what each arm executed and predicted and what that took, means over seeds, headings first."""
    rows = [["trained on", "executions", "of them repeats", "execution (s)", "prediction (s)", "cost", "repeats free"]]
    full, cached = 0.0, 0.0
    if "real" in runs:
        full, cached = cost(runs["real"])[:, -1].mean(), curve(runs["real"], "cached_seconds")[:, -1].mean()
    for arm, found in runs.items():
        executions, repeats = (curve(found, name)[:, -1].mean() for name in ("executions", "repeated_executions"))
        executed, repeated, predicted = (
            curve(found, f"{name}_seconds")[:, -1].mean() for name in ("execution", "repeated", "prediction")
        )
        shares = [_share(executed + predicted, full), _share(executed + predicted - repeated, cached)]
        cells = [f"{executions:.0f}", f"{repeats:.0f}", f"{executed:.0f}", f"{predicted:.1f}", *shares]
        rows.append([ARMS[arm][0], *cells])
    return rows


def _share(part: float, whole: float) -> str:
    """Return a percentage; where real execution did not run, or executed nothing, there is none."""
    return f"{part / whole:.1%}" if whole > 0.0 else "-"


def findings(runs: Runs) -> list[str]:
    """Return one sentence per arm."""
    sentences = []
    for arm, found in runs.items():
        valid, score = curve(found, "valid"), curve(found, "score")
        sentences.append(
            f"{ARMS[arm][0]}: valid submissions go from {valid[:, 0].mean():.0%} to {valid[:, -1].mean():.0%}, the "
            f"reported score from {Estimate.of(score[:, 0])} to {Estimate.of(score[:, -1])}, for "
            f"{cost(found)[:, -1].mean():.0f} seconds of execution and prediction."
        )
    if {"rectified", "real"} <= runs.keys():
        ours, real = (curve(runs[arm], "score") for arm in ("rectified", "real"))
        spent = cost(runs["rectified"])[:, -1]
        share = _share(spent.mean(), cost(runs["real"])[:, -1].mean())
        sentences.append(
            f"After as many steps WMRL differs from real execution by {Estimate.of(ours[:, -1] - real[:, -1]).signed} "
            f"in the reported score, at {share} of its cost; at equal cost by "
            f"{Estimate.of(ours[:, -1] - at_cost(runs['real'], 'score', spent)).signed}."
        )
    return sentences


def warmup_facts(arguments: argparse.Namespace, runs: Runs, folder: Path) -> str:
    """Return what the supervised warm-up came to, in a paragraph."""
    told = [
        json.loads((model_folder(folder, seed) / "warmup.json").read_text(encoding="utf-8"))
        for seed in seeds_of(arguments)
    ]
    mean = {name: float(np.mean([row[name] for row in told])) for name in told[0] if name not in ("settings", "seed")}
    first = [run["points"][0] for run in next(iter(runs.values()))]
    recorded = float(np.mean([point["recorded"] for point in first]))
    speed = float(np.mean([point["tokens"] / point["cpu_seconds"] for point in first]))
    return (
        f"The model is a Llama of {mean['parameters']:,.0f} parameters, trained from scratch for each seed: no "
        f"pretrained model, and none that could do anything else. Its byte-level vocabulary ({mean['vocabulary']:.0f} "
        f"tokens, which may span a line) is trained on the task and on solutions of the design space: the task takes "
        f"{mean['prompt_tokens']:.0f} tokens and a reply {mean['reply_tokens']:.0f}. The warm-up, on "
        f"{mean['distinct_examples']:.0f} distinct solutions of the prior, takes {mean['cpu_seconds']:.0f} CPU seconds "
        f"and brings the loss on the replies from {mean['first_loss']:.2f} to {mean['last_loss']:.3f} nats a token. Of "
        f"what the warmed-up model then writes, {recorded:.0%} is word for word a program of the design space, and "
        f"the rest its own. It writes {speed:,.0f} tokens per CPU second."
    )


def markdown(arguments: argparse.Namespace, settings: Settings, runs: Runs, folder: Path) -> str:
    """Return the page."""
    points = "\n".join(f"- {sentence[0].upper()}{sentence[1:]}" for sentence in findings(runs))
    own = Estimate.of(np.array([run["cpu_seconds"] for found in runs.values() for run in found]))
    command = (
        f"python benchmarks/language_agent.py --task {settings.task} --seeds {arguments.seeds} "
        f"--arms {' '.join(arguments.arms)} --steps {settings.steps} --learning-rate {settings.learning_rate:g} "
        f"--groups {settings.groups} --group-size {settings.group_size} --evaluated {settings.evaluated} --out docs"
    )
    return f"""# A language model improved by WMRL

![Validity and reported score over training and over cost](language_agent.png)

{settings.steps} steps of GRPO (`ResearchGRPOTrainer`, TRL) on the task `{settings.task}`, {settings.groups} groups of
{settings.group_size} replies a step, one turn, step size {settings.learning_rate:g}. The world model is the learned
one: fitted on {settings.executions} executions, refitted on what is executed later. {arguments.seeds} seeds, ± is the
standard error over them; the step size was chosen on another seed. The arms of a seed start from the same weights.

{points}

## Before and after

Shares of {settings.evaluated} replies sampled at temperature 1 and executed. The score is the mean real reward on the
half of the answers that training never sees. Where real execution is stopped early, straight lines join its
evaluations.

{_markdown_table(score_table(runs))}

## Cost

Means over seeds. Executions are charged in CPU seconds, the {settings.executions} of the world model's warm-up
included, each repeat as well. `cost` is execution and prediction together against real execution everywhere; `repeats
free` is the same where executing a program again costs nothing in both. Recorded programs are looked up, at the seconds
that they took when they were recorded; whatever else the model writes is executed. Predictions are charged in wall
seconds. What is the same in all arms is not in it: generation, optimisation and the evaluations, {own.mean:.0f} ±
{own.error:.0f} CPU seconds a run.

{_markdown_table(cost_table(runs))}

## The model

{warmup_facts(arguments, runs, folder)}

Made by `{command}`.
"""


def _markdown_table(rows: list[list[str]]) -> str:
    heading, *body = (f"| {' | '.join(cells)} |" for cells in rows)
    return "\n".join([heading, "|---" + "|--:" * (len(rows[0]) - 1) + "|", *body])


def draw(runs: Runs, path: Path) -> None:
    """Draw validity and score over steps, and score over cost; bands are one standard error."""
    figure = Figure(figsize=(14, 4.2), layout="constrained")
    validity, score, price = figure.subplots(1, 3)
    for arm, found in runs.items():
        words, colour = ARMS[arm]
        steps, spent = curve(found, "step")[0], cost(found).mean(axis=0)
        for axes, name, x in ((validity, "valid", steps), (score, "score", steps), (price, "score", spent)):
            values = curve(found, name)
            mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
            axes.plot(x, mean, "o-", markersize=3, color=colour, label=words if axes is validity else None)
            axes.fill_between(x, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
    validity.set(title="Valid submissions", xlabel="step", ylabel="share of sampled replies", ylim=(0, 1.02))
    score.set(title="Reported score", xlabel="step", ylabel="mean real reward, report half")
    price.set(title="Reported score against cost", xlabel="seconds of execution and prediction", xlim=(0, None))
    figure.legend(loc="outside upper center", ncols=len(runs), frameon=False)
    for axes in (validity, score, price):
        axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)


def parse() -> tuple[argparse.Namespace, Settings]:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", help="a fully recorded task")
    parser.add_argument("--seeds", type=int, default=3, help="at least 2")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--groups", type=int)
    parser.add_argument("--group-size", type=int)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--evaluated", type=int, help="replies executed in each evaluation")
    parser.add_argument("--quick", action="store_true", help="a size that takes seconds and shows nothing")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=Path, default=Path("runs/language_agent"), help="keeps models and finished runs")
    parser.add_argument("--out", type=Path, help="folder that language_agent.md and language_agent.png are written to")
    arguments = parser.parse_args()
    if arguments.seeds < 2:
        parser.error(f"--seeds must be at least 2 for a standard error, got {arguments.seeds}")
    names = ("task", "steps", "groups", "group_size", "learning_rate", "evaluated")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    return arguments, replace(QUICK if arguments.quick else Settings(), **given)


def main() -> None:
    arguments, settings = parse()
    folder = arguments.runs / Path(settings.task).name
    run_all(arguments, settings, folder)
    runs = load_runs(arguments, folder)
    for rows in (score_table(runs), cost_table(runs)):
        print()
        for cells in rows:
            print("  ".join(cell.ljust(44) if not place else cell.rjust(15) for place, cell in enumerate(cells)))
    print("\n" + "\n".join(findings(runs)) + "\n\n" + warmup_facts(arguments, runs, folder))
    if arguments.out is not None:
        write_text(arguments.out / "language_agent.md", markdown(arguments, settings, runs, folder))
        draw(runs, arguments.out / "language_agent.png")


if __name__ == "__main__":
    main()
