"""``wmrl world-model fit``: fine-tune a language model on recorded executions."""

from __future__ import annotations

import json
import shlex
import signal
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from wmrl_envs.cli_console import console, errors
from wmrl_envs.errors import CheckpointError, ConfigurationError
from wmrl_envs.world_models.finetuning_config import FinetuneConfig

__all__ = ["fit"]

DEFAULTS = {field.name: field.default for field in fields(FinetuneConfig)}


def _option(name: str, words: str) -> Any:
    """Return a typer option whose default is the configuration's."""
    return typer.Option(default=DEFAULTS[name], help=words)


def fit(
    context: typer.Context,
    base: Annotated[
        str | None, typer.Argument(help="Model to start from: a folder or .gguf file of a chat model.")
    ] = None,
    task: Annotated[
        str, typer.Option(help="Recorded tasks to learn from, comma-separated: bundled, or paths of task folders.")
    ] = "",
    held_out: Annotated[
        str, typer.Option(help="Recorded tasks that only tell what was learned, comma-separated.")
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Folder of the run; the model lands in its folder model/.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder, with its own settings.")
    ] = None,
    examples_per_task: int = _option("examples_per_task", "Executed solutions of each task, at most."),
    held_out_examples: int = _option("held_out_examples", "Executed solutions of each held-out task."),
    draw: str = _option("draw", "How solutions are drawn: prior, as a new policy would, or uniform."),
    answer: str = _option("answer", "What is taught: word (the verdict), json (the whole answer), or both."),
    templates: str = _option("templates", "Prompt templates by name or folder; the world model needs the same."),
    lora_rank: int = typer.Option(
        DEFAULTS["lora_rank"], help="Rank of the low-rank updates; 0 trains all weights, with a tenth of the step size."
    ),
    last_layers: int | None = _option("last_layers", "Train only so many layers, those nearest the output."),
    learning_rate: float = _option("learning_rate", "Peak step size."),
    epochs: float = _option("epochs", "Passes through the examples."),
    max_steps: int | None = _option("max_steps", "Optimiser steps, in place of epochs."),
    batch_size: int = _option("batch_size", "Examples per optimiser step."),
    micro_batch_size: int = _option("micro_batch_size", "Examples at once, a divisor of the batch size."),
    max_length: int = _option("max_length", "Longest example in tokens; longer ones are left out."),
    dtype: str = _option("dtype", "float32 or bfloat16."),
    gradient_checkpointing: bool = _option("gradient_checkpointing", "Less memory for a third more time."),
    checkpoint_every: int = _option("checkpoint_every", "Optimiser steps between checkpoints."),
    seed: int = _option("seed", "Seed of everything."),
) -> None:
    """Fine-tune a language model to predict executions, so that transformers:FOLDER/model is a world model."""
    from wmrl_envs.progress import counting
    from wmrl_envs.world_models.finetuning import finetune

    if resume is not None:
        config, folder = _resumed(context, resume), resume
    else:
        settings = {name: value for name, value in context.params.items() if name in DEFAULTS}
        settings |= {"base": _given(base, "BASE"), "tasks": _parts(task), "held_out": _parts(held_out)}
        config, folder = FinetuneConfig(**settings | {"lora_rank": lora_rank or None}), _given(out, "--out")
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with counting(console, f"fine-tuning {Path(config.base).name}", 1) as done:
            summary = finetune(config, folder, resume=resume is not None, progress=done)
    except KeyboardInterrupt as interrupt:
        hint = f"; go on with: wmrl world-model fit --resume {shlex.quote(str(folder))}"
        errors.print(f"stopped{hint}", markup=False, highlight=False, soft_wrap=True)
        number = interrupt.args[0] if interrupt.args else signal.SIGINT
        raise typer.Exit(128 + number) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    _print_summary(summary, config)


def _interrupt(number: int, frame: Any) -> None:
    """Let SIGTERM end a run as an interrupt at the terminal does."""
    raise KeyboardInterrupt(number)


def _given(value: Any, name: str) -> Any:
    if value is None:
        raise ConfigurationError(f"{name} is missing; name it, or go on with a run by --resume FOLDER")
    return value


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _resumed(context: typer.Context, folder: Path) -> FinetuneConfig:
    """Return a run's own settings."""
    sources = {name: context.get_parameter_source(name) for name in context.params if name != "resume"}
    changed = sorted(name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE")
    if changed:
        raise ConfigurationError(
            f"--resume goes on with the run's own settings; leave out {', '.join(changed)}, or start a run of its own"
        )
    path = folder / "config.json"
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        return FinetuneConfig.from_dict({name: value for name, value in saved.items() if name in DEFAULTS})
    except OSError as problem:
        raise CheckpointError(f"{folder} holds no run (no readable config.json: {problem.strerror})") from problem
    except (ValueError, TypeError, AttributeError) as problem:
        raise CheckpointError(f"{path} is damaged: {problem}") from problem


def _print_summary(summary: dict[str, Any], config: FinetuneConfig) -> None:
    before, after = summary["held_out_loss_before"], summary["held_out_loss_after"]
    if before:
        table = Table(title="Loss on held-out tasks (nats per token of the answer)", title_justify="left")
        for heading in ("task", "before", "after"):
            table.add_column(heading, justify="left" if heading == "task" else "right")
        for name, loss in before.items():
            table.add_row(name, f"{loss:.3f}", f"{after[name]:.3f}" if name in after else "-")
        console.print(table)
    examples = sum(summary["examples"].values())
    console.print(f"{examples} examples, {summary['steps']} steps, {summary['seconds']:.0f} s", highlight=False)
    console.print(f"model: {summary['model']}", markup=False, highlight=False, soft_wrap=True)
    if config.held_out:  # on the tasks that it was trained on, a measurement would tell what it remembers
        measure = ["wmrl", "world-model", "evaluate", "base-rate", f"transformers:{summary['model']}"]
        measure += ["--task", ",".join(config.held_out), "--train-tasks", ",".join(config.tasks), "--executions", "0"]
        measure += ["--kwargs", f"transformers:templates={config.templates}"]
        console.print(f"measure it: {shlex.join(measure)}", markup=False, highlight=False, soft_wrap=True)
