"""The command ``wmrl``."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperGroup

from wmrl_envs.cli_compare_robot import compare_robot_command
from wmrl_envs.cli_console import console, error, errors, show_errors_plainly
from wmrl_envs.cli_progress import progress_app
from wmrl_envs.cli_report import report_command, watch_command
from wmrl_envs.cli_robot import robot_app
from wmrl_envs.cli_tasks import tasks_app
from wmrl_envs.cli_train_robot import train_robot_command
from wmrl_envs.cli_world_model import world_model_app
from wmrl_envs.config import TrainConfig
from wmrl_envs.errors import CheckpointError, ConfigurationError, WMRLError

__all__ = ["app", "main"]


class _Commands(TyperGroup):
    """Prints an error of ours as one sentence, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except WMRLError as problem:
            error(problem)
            raise typer.Exit(1) from problem


app = typer.Typer(
    cls=_Commands,
    help="Reinforcement learning on a world model's predicted rewards, corrected by a thin stream of real executions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(tasks_app, name="tasks")
app.add_typer(world_model_app, name="world-model")
app.add_typer(robot_app, name="robot")
app.add_typer(progress_app, name="progress")

DEFAULTS = {field.name: field.default for field in fields(TrainConfig)}
RESUMABLE = ("steps", "budget_seconds")
"""Settings that may change when a run is taken up again."""


def main() -> None:
    """Run the command."""
    app()


@app.callback()
def _begin() -> None:
    show_errors_plainly()
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # module:Class of one's own is looked for here as well


def _option(name: str, words: str) -> Any:
    """Return a typer option whose default is the configuration's."""
    return typer.Option(default=DEFAULTS[name], help=words)


train_app = typer.Typer()
app.add_typer(train_app, name="train")


@train_app.callback(invoke_without_command=True)
def train(
    context: typer.Context,
    task: str = _option("task", "Bundled task or path of a task folder; several of one kind separated by commas."),
    reward: str = _option("reward", "rectified, paper, debias, denoise, mixed, world-model, real or anchors-only."),
    agent: str = _option("agent", "grpo, ppo, a2c, or your own as module:Class."),
    steps: int = _option("steps", "Optimiser steps."),
    budget_seconds: float | None = _option(
        "budget_seconds", "Stop once real executions have used this many CPU seconds."
    ),
    groups: int = _option("groups", "Groups of rollouts per step."),
    group_size: int = _option("group_size", "Rollouts per group."),
    actions: str = _option(
        "actions", "What the policy decides: the joint solution, two halves, or each of the choices."
    ),
    turns: int = _option("turns", "Attempts per episode; the correction is exact with one."),
    anchor_fraction: float = _option("anchor_fraction", "Share of groups that is really executed."),
    anchor_feedback: str = _option("anchor_feedback", "What executed episodes show the agent: real or predicted."),
    world_model: str = _option("world_model", "learned, a language model such as openai:URL#MODEL, or module:Class."),
    warmup: int = _option("warmup", "Solutions executed to fit the learned world model."),
    warmup_source: str = _option("warmup_source", "execution, or recordings where a task comes with them."),
    refit_every: int = _option("refit_every", "Steps between its refits; 0 freezes it."),
    sandbox: str = _option("sandbox", "process executes; replay answers from shipped recordings."),
    isolation: str = _option("isolation", "strict, auto or none."),
    learning_rate: float | None = _option(
        "learning_rate", "Step size of the agent's optimiser; what suits it if unset."
    ),
    ramp: float = _option("ramp", "Share of training over which the correction grows to full strength."),
    seed: int = _option("seed", "Seed of everything."),
    evaluation_rollouts: int = _option("evaluation_rollouts", "Executed episodes before and after; 0 for none."),
    checkpoint_every: int = _option("checkpoint_every", "Steps between checkpoints."),
    option: Annotated[list[str], typer.Option(help="Further argument of the agent as name=value; repeatable.")] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/TASK-REWARD-SEED-TIME by default.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder; only steps and budget may change.")
    ] = None,
    track: Annotated[
        str | None, typer.Option(help="wandb or trackio, to which the run is sent beside its folder.")
    ] = None,
) -> None:
    """Train an agent and leave a run folder with metrics, checkpoints, the best solution and figures.

    For a robot policy: wmrl train robot.
    """
    if context.invoked_subcommand is not None:
        _refuse_before(context)
        return
    settings = {name: value for name, value in context.params.items() if name in DEFAULTS}
    settings["options"] = dict(_name_value(text) for text in option)
    given = {name for name in context.params if _is_given(context, name)}
    if resume is not None:
        settings = _resumed(resume, {name: value for name, value in context.params.items() if name in given})
    config = TrainConfig.from_dict(settings)
    folder = resume or out or _new_folder(config)

    from wmrl_envs.progress import TrainingProgress
    from wmrl_envs.train import train as run

    console.print(
        f"run folder: {folder}; to look on: wmrl watch {folder}", markup=False, highlight=False, soft_wrap=True
    )
    before = signal.signal(signal.SIGTERM, _terminate)
    with TrainingProgress(console, config) as progress:
        try:
            summary = run(
                config,
                folder,
                resume=resume is not None,
                track=track,
                on_step=progress.update,
                on_phase=progress.phase,
            )
        except KeyboardInterrupt as interrupt:
            ended = 128 + (signal.SIGTERM if isinstance(interrupt, _Terminated) else signal.SIGINT)
            after = f" after step {progress.step} of {config.steps}" if progress.step else ""
            hint = f"; go on with: wmrl train --resume {folder}" if (folder / "config.json").exists() else ""
            errors.print(f"stopped{after}{hint}", highlight=False, soft_wrap=True)
            raise typer.Exit(ended) from None
        finally:
            signal.signal(signal.SIGTERM, before)
    _print_summary(summary, folder)


train_app.command("robot")(train_robot_command)


def _refuse_before(context: typer.Context) -> None:
    """Refuse options in front of a subcommand, which would go unread."""
    early = [f"--{name.replace('_', '-')}" for name in context.params if _is_given(context, name)]
    if early:
        raise ConfigurationError(
            f"{', '.join(early)} stands in front of {context.invoked_subcommand!r}, whose options come behind it; in "
            "front they concern the command without it"
        )


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a run as an interrupt at the terminal does."""


def _terminate(number: int, frame: Any) -> None:
    raise _Terminated


def _name_value(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise ConfigurationError(f"option must read name=value, such as ent_coef=0.01, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _new_folder(config: TrainConfig) -> Path:
    tasks = "+".join(Path(task).name for task in config.tasks)
    name = f"{tasks}-{config.reward}-{config.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    return Path("runs") / name


def _resumed(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Return a run's settings with those that may change replaced by the given ones."""
    saved = _saved_settings(folder)
    for name in given.keys() - {"resume", "track", *RESUMABLE}:
        if name not in saved or given[name] != saved[name]:
            was = f"which was {saved[name]!r}" if name in saved else "which has no meaning there"
            raise ConfigurationError(
                f"--resume goes on with the run's own settings; only {' and '.join(RESUMABLE)} may change, not {name}, "
                f"{was}. Start a run of its own for other settings"
            )
    return saved | {name: given[name] for name in RESUMABLE if name in given}


def _saved_settings(folder: Path) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except OSError as problem:
        raise CheckpointError(f"{folder} holds no run (no readable config.json: {problem.strerror})") from problem
    except ValueError as problem:
        raise CheckpointError(f"{folder / 'config.json'} is damaged: {problem}") from problem
    return settings


def _print_summary(summary: dict[str, Any], folder: Path) -> None:
    table = Table(title="Reported score (answers that training never saw; really executed)", title_justify="left")
    for heading in ("", "score", "± s.e.", "valid submissions", "episodes"):
        table.add_column(heading, justify="right" if heading else "left")
    for when in ("before", "after"):
        evaluation = summary[when]
        if evaluation is not None:
            error_bar = evaluation["standard_error"]
            table.add_row(
                f"{when} training",
                f"{evaluation['score']:.3f}",
                "" if error_bar is None else f"{error_bar:.3f}",
                f"{evaluation['valid']:.0%}",
                str(evaluation["episodes"]),
            )
    several = len(summary["best_solutions"]) > 1
    for best in summary["best_solutions"]:
        score = "unknown" if best["report_reward"] is None else f"{best['report_reward']:.3f}"
        table.add_row(f"best solution found{' for ' + best['task'] if several else ''}", score, "", best["status"], "1")
    console.print(table)
    console.print(_ledger_table(summary["ledger"]))
    for name, places in (
        ("figures", [folder / "figures" / "overview.png"]),
        ("best solution", [folder / best["file"] for best in summary["best_solutions"]]),
        ("everything", [folder]),
    ):
        for place in places:
            console.print(f"{name + ':':<15} {place}", highlight=False, soft_wrap=True)
    console.print(f"look at it:     wmrl report {folder}", highlight=False, soft_wrap=True)


def _ledger_table(ledger: dict[str, Any]) -> Table:
    """Return what training executed and predicted, and what it cost."""
    table = Table(title="Ledger of training", title_justify="left")
    for heading in ("", "count", "seconds"):
        table.add_column(heading, justify="right" if heading else "left")
    for words, count, seconds in (
        ("executed", "executions", "execution_seconds"),
        ("  of these to warm up the world model", "warmup_executions", "warmup_seconds"),
        ("  of these repeats, free with a cache", "repeated_executions", "repeated_seconds"),
        ("predicted", "predictions", "prediction_seconds"),
        ("executing everything (estimate)", None, "full_seconds"),
    ):
        number = "" if count is None else f"{ledger[count]:,}"
        cost = "unknown" if ledger[seconds] is None else f"{ledger[seconds]:,.1f}"
        table.add_row(words, number, cost)
    if ledger["cost_ratio"] is not None:
        table.add_row("cost against executing everything", "", f"{ledger['cost_ratio']:.0%}")
    return table


@app.command()
def evaluate(
    context: typer.Context,
    run: Annotated[Path | None, typer.Argument(help="Run folder; its newest checkpoint is evaluated.")] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            help="In place of a run: a language model that writes code, as openai:URL#MODEL, transformers:PATH or "
            "vllm:PATH."
        ),
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(help="Episodes, each really executed; 256 of a run, 8 of a language model.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the episodes and of the agent's sampling.")] = 0,
    sandbox: Annotated[
        str | None, typer.Option(help="process or replay; the run's own, or process, by default.")
    ] = None,
    task: Annotated[
        str, typer.Option(help="--agent: bundled tasks or paths of task folders, comma-separated.")
    ] = "titanic",
    turns: Annotated[int, typer.Option(help="--agent: attempts per episode.")] = 4,
    isolation: Annotated[str, typer.Option(help="--agent: strict, auto or none.")] = "strict",
    temperature: Annotated[float, typer.Option(help="--agent: of the sampling; 0 takes the most probable.")] = 0.7,
    max_tokens: Annotated[int, typer.Option(help="--agent: longest reply, in tokens.")] = 1024,
    context_tokens: Annotated[int, typer.Option(help="--agent: longest chat with its reply, in tokens.")] = 8192,
    system: Annotated[Path | None, typer.Option(help="--agent: file that holds the system prompt.")] = None,
    option: Annotated[
        list[str], typer.Option(help="--agent: argument of the model's backend as name=value; repeatable.")
    ] = [],  # noqa: B006
    world_model: Annotated[
        str | None, typer.Option(help="--agent: world model by name, whose predictions are printed beside.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="--agent: JSON file for the numbers.")] = None,
    transcripts: Annotated[Path | None, typer.Option(help="--agent: folder for one JSON file per episode.")] = None,
) -> None:
    """Execute an agent's solutions and print its reported score and how they ended.

    The agent is that of a training run (wmrl evaluate RUN), or a language model (wmrl evaluate --agent NAME).
    """
    if (run is None) == (agent is None):
        raise ConfigurationError(
            "wmrl evaluate takes a run folder or a language model, and got "
            + ("both" if run is not None else "neither")
            + ": wmrl evaluate RUN, or wmrl evaluate --agent openai:URL#MODEL"
        )
    if agent is not None:
        from wmrl_envs.cli_evaluate import evaluate_language_model

        evaluate_language_model(
            agent,
            tasks=[name.strip() for name in task.split(",")],
            episodes=8 if episodes is None else episodes,
            turns=turns,
            seed=seed,
            sandbox=sandbox or "process",
            isolation=isolation,
            agent_settings={
                "temperature": temperature,
                "max_tokens": max_tokens,
                "context_tokens": context_tokens,
                "system": system,
                "model_kwargs": dict(_name_value(text) for text in option),
            },
            world_model=world_model,
            out=out,
            transcripts=transcripts,
        )
        return
    assert run is not None
    mine = ("agent", "run", "episodes", "seed", "sandbox")
    other = [name for name in context.params if name not in mine and _is_given(context, name)]
    if other:
        raise ConfigurationError(
            f"{', '.join('--' + name.replace('_', '-') for name in other)} goes with --agent; a run is evaluated with "
            "its own settings"
        )
    _evaluate_run(run, 256 if episodes is None else episodes, seed, sandbox)


def _evaluate_run(run: Path, episodes: int, seed: int, sandbox: str | None) -> None:
    config = TrainConfig.from_dict(_saved_settings(run))

    from wmrl_envs.building import agent_class
    from wmrl_envs.checkpoint import load_agent, load_newest
    from wmrl_envs.evaluate import evaluate as score

    kind = agent_class(config.agent)
    agent = load_newest(run / "checkpoints", lambda path: load_agent(path, kind))
    result = score(agent, replace(config, sandbox=sandbox or config.sandbox), episodes=episodes, seed=seed)
    error_bar = "" if result.standard_error is None else f" ± {result.standard_error:.3f}"
    console.print(
        f"reported score {result.score:.3f}{error_bar} over {result.episodes} episodes on {config.task}",
        highlight=False,
    )
    table = Table("outcome", "turns", "share")
    total = sum(result.statuses.values())
    for status, count in sorted(result.statuses.items(), key=lambda item: -item[1]):
        table.add_row(status.replace("_", " "), str(count), f"{count / total:.0%}")
    console.print(table)


app.command("report")(report_command)
app.command("watch")(watch_command)


@app.command()
def doctor() -> None:
    """Say what this machine can isolate and run, and what to install for the rest."""
    from wmrl_envs.doctor import examine, print_report

    findings = examine()
    print_report(findings, console)
    if any(finding.fatal for finding in findings):
        raise typer.Exit(1)


compare_app = typer.Typer()
app.add_typer(compare_app, name="compare")


@compare_app.callback(invoke_without_command=True)
def compare(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Where the page and the figure are written.")] = Path("docs"),
    runs: Annotated[Path, typer.Option(help="Where the runs' curves are kept; finished ones are not repeated.")] = Path(
        "runs/compare"
    ),
    tasks: Annotated[str, typer.Option(help="Fully recorded tasks, comma-separated.")] = "titanic,weather,anes96",
    arms: Annotated[str, typer.Option(help="Arms, comma-separated; all by default.")] = "",
    actions: Annotated[str, typer.Option(help="The policy: joint, halves or choices (see wmrl train).")] = "joint",
    seeds: Annotated[int, typer.Option(help="Seeds that are reported.")] = 24,
    tuning_seeds: Annotated[int, typer.Option(help="Other seeds, on which step sizes are chosen.")] = 2,
    workers: Annotated[int | None, typer.Option(help="Processes; one per core by default.")] = None,
) -> None:
    """Compare all reward schemes on recorded executions; resumable. On a robot policy: wmrl compare robot."""
    if context.invoked_subcommand is not None:
        _refuse_before(context)
        return
    from wmrl_envs.compare import Comparison, run_jobs
    from wmrl_envs.compare_report import choose_rates, draw_comparison, load_curves, markdown_report
    from wmrl_envs.files import write_text
    from wmrl_envs.progress import counting

    comparison = Comparison(
        tasks=tuple(tasks.split(",")),
        arms=tuple(arms.split(",")) if arms else Comparison.arms,
        seeds=seeds,
        tuning_seeds=tuning_seeds,
        base=replace(Comparison.base, actions=actions),
    )
    name = "comparison" if actions == "joint" else f"comparison-{actions}"
    tuning = comparison.tuning_jobs()
    with counting(console, "choosing step sizes", len(tuning)) as done:
        run_jobs(tuning, runs, workers=workers, done=done)
    rates = choose_rates(comparison, load_curves(tuning, runs))
    final = comparison.final_jobs({arm: purposes.values() for arm, purposes in rates.items()})
    with counting(console, "comparing", len(final)) as done:
        run_jobs(final, runs, workers=workers, done=done)
    curves = load_curves(final, runs)
    command = f"wmrl compare --tasks {tasks} --actions {actions} --seeds {seeds} --tuning-seeds {tuning_seeds}"
    page = markdown_report(comparison, curves, rates, command + (f" --arms {arms}" if arms else ""), f"{name}.png")
    write_text(out / f"{name}.md", page)
    draw_comparison(comparison, curves, rates, out / f"{name}.png")
    console.print(page, markup=False, highlight=False, soft_wrap=True)
    console.print(f"written: {out / name}.md, {out / name}.png", highlight=False, soft_wrap=True)


compare_app.command("robot")(compare_robot_command)
