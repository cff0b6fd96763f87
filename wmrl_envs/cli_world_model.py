"""``wmrl world-model``: measure world models against recorded real executions, and fine-tune one on them."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from wmrl_envs.cli_console import console
from wmrl_envs.cli_world_model_fit import fit
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.files import check_folder
from wmrl_envs.redaction import without_keys

__all__ = ["world_model_app"]

world_model_app = typer.Typer(help="Measure world models, and fine-tune one, on real executions.", no_args_is_help=True)
world_model_app.command()(fit)


@world_model_app.command()
def evaluate(
    models: Annotated[
        list[str],
        typer.Argument(
            help="base-rate, learned, transformers:PATH, vllm:PATH, openai:URL#MODEL, or module:Class; several are "
            "measured on the same solutions.",
            metavar="MODEL...",
        ),
    ],
    task: Annotated[
        list[str], typer.Option(help="Bundled task or path of a recorded task folder; repeatable, or with commas.")
    ] = ["titanic"],  # noqa: B006
    solutions: Annotated[
        int, typer.Option(help="Solutions of each task to predict; at most half of the record.")
    ] = 300,
    executions: Annotated[
        str, typer.Option(help="Numbers of other executed solutions of each task to learn from, comma-separated.")
    ] = "0,30,180",
    draw: Annotated[str, typer.Option(help="How solutions are drawn: prior, as a new policy would, or uniform.")] = (
        "prior"
    ),
    train_tasks: Annotated[
        str, typer.Option(help="Other tasks, comma-separated, whose executions the base rate is taken from.")
    ] = "",
    kwargs: Annotated[
        list[str],
        typer.Option(
            help="Argument of the world models as name=value; of a single one as MODEL:name=value, where MODEL is what "
            "it is called, its kind (such as transformers) or its place (1 for the first). Repeatable."
        ),
    ] = [],  # noqa: B006
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the table, figure and numbers; runs/world-model-TIME by default.")
    ] = None,
) -> None:
    """Hold predictions against recorded executions: validity, reward, ranking, calibration, optimism, cost."""
    arguments = _arguments_by_model(models, kwargs)
    names = _names(models, arguments)
    tasks, others, counts = _parts(",".join(task)), _parts(train_tasks), _numbers(executions)
    folder = out or Path("runs") / f"world-model-{time.strftime('%Y%m%d-%H%M%S')}"
    check_folder(folder)
    options = {"--task": ",".join(tasks), "--solutions": solutions, "--executions": executions, "--draw": draw}
    options |= {"--seed": seed} | ({"--train-tasks": train_tasks} if train_tasks else {})
    given = [part for name, value in options.items() for part in (name, str(value))]
    given += [part for text in kwargs for part in ("--kwargs", _shown(text))]
    command = shlex.join(["wmrl", "world-model", "evaluate", *models, *given])

    from wmrl_envs.progress import counting
    from wmrl_envs.world_model_report import console_table, write_evaluation
    from wmrl_envs.world_models.evaluation import evaluate_world_model

    evaluations, files = [], list[Path]()
    for model, name, own in zip(models, names, arguments, strict=True):
        with counting(console, f"predicting: {name}", 1) as done:
            evaluation = evaluate_world_model(
                model,
                tasks,
                solutions=solutions,
                executions=counts,
                draw=draw,
                seed=seed,
                train_tasks=others,
                model_kwargs=own,
                progress=done,
            )
        evaluations.append(replace(evaluation, world_model=name))
        # After each one: what took hours is not lost with the next.
        files = write_evaluation(evaluations, folder, command, figure=len(evaluations) == len(models))
    console.print(console_table(evaluations))
    console.print(f"written: {', '.join(map(str, files))}", markup=False, highlight=False, soft_wrap=True)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str) -> list[int]:
    parts = _parts(text)
    if not parts or not all(part.isdecimal() for part in parts):
        raise ConfigurationError(
            f"executions must be whole numbers with commas between, such as 0,30,180; got {text!r}"
        )
    return [int(part) for part in parts]


def _arguments_by_model(models: Sequence[str], given: Sequence[str]) -> list[dict[str, Any]]:
    """Return the constructor arguments of each model."""
    arguments: list[dict[str, Any]] = [{} for _ in models]
    for text in given:
        key, separator, value = text.partition("=")
        owner, _, name = key.rpartition(":")
        if not separator or not name.isidentifier():
            raise ConfigurationError(
                f"kwargs must read name=value, such as trees=40, or MODEL:name=value; got {text!r}"
            )
        owned = [place for place, model in enumerate(models) if owner in ("", model, model.partition(":")[0])]
        if owner.isdecimal() and 1 <= int(owner) <= len(models):
            owned = [int(owner) - 1]
        if not owned:
            raise ConfigurationError(
                f"kwargs {text!r} belong to none of the world models; the part before {name!r} is one of "
                f"{', '.join(models)}, the kind of one, or a place from 1 to {len(models)}"
            )
        for place in owned:
            arguments[place][name] = _value(value)
    return arguments


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _shown(text: str) -> str:
    """Return an argument as it may stand in a file: without keys to a server."""
    key, separator, value = text.partition("=")
    given = {key.rpartition(":")[2]: _value(value)}
    shown = next(iter(without_keys(given).values()))
    return (
        text if shown in given.values() else key + separator + (shown if isinstance(shown, str) else json.dumps(shown))
    )


def _names(models: Sequence[str], arguments: Sequence[dict[str, Any]]) -> list[str]:
    """Return what models are called in tables: kind and end of the path where that tells them apart, and what was set.

    Raises:
        ConfigurationError: If two are the same.
    """
    own = [", ".join(f"{name}={value}" for name, value in without_keys(given).items()) for given in arguments]
    full = [f"{model} ({given})" if given else model for model, given in zip(models, own, strict=True)]
    short = [name.replace(model, _short(model), 1) for model, name in zip(models, full, strict=True)]
    twice = sorted({name for name in full if full.count(name) > 1})
    if twice:
        raise ConfigurationError(f"{', '.join(twice)} is named more than once with the same arguments")
    return full if len(set(short)) < len(short) else short


def _short(model: str) -> str:
    kind, separator, place = model.partition(":")
    if not separator or "/" not in place:
        return model
    *_, folder, last = Path(place).parts
    return f"{kind}:{folder}/{last}" if last == "model" else f"{kind}:{last}"  # every fitted one is called model
