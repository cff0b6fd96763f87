"""``wmrl evaluate --agent``: a language model's scores, how its attempts ended, and what they took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from wmrl_envs.cli_console import console
from wmrl_envs.evaluate_predictions import PredictedBeside, predict_beside
from wmrl_envs.evaluate_text import TextEvaluation, evaluate_text
from wmrl_envs.files import check_file, check_folder, write_json
from wmrl_envs.redaction import without_keys
from wmrl_envs.research.configuration import resolve_tasks
from wmrl_envs.research.outcome import STATUSES
from wmrl_envs.research.sandbox import resolve_sandbox
from wmrl_envs.world_models.registry import resolve_world_model

__all__ = ["evaluate_language_model", "print_evaluation", "print_predictions", "write_transcripts"]


def evaluate_language_model(
    agent: str,
    *,
    tasks: Sequence[str],
    episodes: int,
    turns: int,
    seed: int,
    sandbox: str,
    isolation: str,
    agent_settings: Mapping[str, Any],
    world_model: str | None,
    out: Path | None,
    transcripts: Path | None,
) -> None:
    """Evaluate a language model, print the result, and write what is asked for.

    Args:
        agent: The model's name, such as ``"openai:URL#MODEL"``.
        tasks: Bundled tasks or paths of task folders.
        episodes: Episodes to play, side by side.
        turns: Attempts per episode.
        seed: Seeds the episodes and the agent's sampling.
        sandbox: Executes the code, by name.
        isolation: ``"strict"``, ``"auto"`` or ``"none"``.
        agent_settings: Further arguments of `wmrl_envs.agents.language_model.LanguageModelAgent`.
        world_model: A world model by name, whose predictions of the same attempts are printed; ``None`` for none.
        out: JSON file for the numbers.
        transcripts: Folder for one JSON file per episode.
    """
    from wmrl_envs.agents.language_model import LanguageModelAgent
    from wmrl_envs.progress import counting

    if out is not None:
        check_file(out)
    if transcripts is not None:
        check_folder(transcripts)
    loaded = resolve_tasks(tasks)
    # Tasks, world model and sandbox are known to work before a language model is loaded.
    with ExitStack() as stack:
        predictor = None if world_model is None else resolve_world_model(world_model)
        stack.callback(_close, predictor)
        grader = resolve_sandbox(sandbox, isolation=isolation)
        stack.callback(_close, grader)
        with (
            LanguageModelAgent(agent, seed=seed, **agent_settings) as player,
            counting(console, "turns", turns) as done,
        ):
            result = evaluate_text(
                player, loaded, episodes=episodes, turns=turns, seed=seed, sandbox=grader, progress=done
            )
        print_evaluation(result, agent)
        if transcripts is not None:
            write_transcripts(result, transcripts)
            _line(f"transcripts: {transcripts}")
        settings = {"agent": agent, "tasks": list(tasks), "episodes": episodes, "turns": turns, "seed": seed}
        settings |= {"sandbox": sandbox, "isolation": isolation, "world_model": world_model}
        written = {"settings": settings | _writable(agent_settings), "result": result.to_dict()}
        if out is not None:
            write_json(out, written)
            _line(f"numbers: {out}")
        # Last, so that a world model that fails costs nothing of the above.
        if predictor is not None:
            beside = predict_beside(result, loaded, predictor, grader)
            print_predictions(beside)
            if out is not None:
                write_json(out, {**written, "predicted": asdict(beside)})


def print_evaluation(result: TextEvaluation, agent: str) -> None:
    """Print scores, statuses by turn, and what the episodes took."""
    error_bar = "" if result.standard_error is None else f" ± {result.standard_error:.3f}"
    tasks = ", ".join(result.task_scores)
    _line(f"reported score {result.score:.3f}{error_bar} over {result.episodes} episodes of {agent} on {tasks}")
    if len(result.task_scores) > 1:
        _line("by task: " + ", ".join(f"{name} {score:.3f}" for name, score in result.task_scores.items()))
    if result.left_out:
        _line(
            f"left out: {result.left_out} episodes in which a reply could not be had or an attempt could not be "
            "executed, which says nothing about the agent"
        )
    console.print(_turns_table(result))
    cut = f" ({result.cut_replies} cut off at their greatest length)" if result.cut_replies else ""
    _line(
        f"tokens read {result.prompt_tokens:,}, written {result.completion_tokens:,} in {result.replies} replies{cut}"
    )
    _line(f"replies took {result.reply_seconds:,.1f} s, executions {result.execution_seconds:,.2f} CPU s")


def print_predictions(beside: PredictedBeside) -> None:
    """Print what a world model said of the attempts, beside what execution said."""
    table = Table("", *_headings(len(beside.real)), title="Predicted beside real", title_justify="left")
    for words, means in (("real reward", beside.real), ("predicted reward", beside.predicted)):
        table.add_row(words, *("unknown" if mean is None else f"{mean:.3f}" for mean in means))
    console.print(table)
    left = f", {beside.unpredicted} without a prediction" if beside.unpredicted else ""
    _line(
        f"predicted: status right in {beside.status_accuracy:.0%} of {beside.attempts} attempts, reward off by "
        f"{beside.error:.3f} on average{left}"
    )


def _turns_table(result: TextEvaluation) -> Table:
    """Return a table with a column per turn: the score had the episodes ended there, and how its attempts ended."""
    table = Table("", *_headings(len(result.scores)), title="By turn", title_justify="left")
    table.add_row("score so far", *(f"{score:.3f}" for score in result.scores))
    table.add_row("valid submissions", *(f"{share:.0%}" for share in result.valid), end_section=True)
    for status in STATUSES:
        counts = [count.get(status, 0) for count in result.statuses]
        if any(counts):
            table.add_row(status.replace("_", " "), *(str(count) for count in counts))
    return table


def _writable(agent_settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return an agent's settings as JSON-able data, without keys to a server."""
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in agent_settings.items()}
    return dict(without_keys(settings))


def _headings(turns: int) -> list[str]:
    return [f"turn {turn + 1}" for turn in range(turns)]


def write_transcripts(result: TextEvaluation, folder: Path) -> None:
    """Write every episode as a JSON file of its own: its task, and each turn's reply, outcome and tokens."""
    for index, record in enumerate(result.records):
        write_json(folder / f"episode-{index:04d}.json", record.to_dict())


def _close(component: object) -> None:
    close = getattr(component, "close", None)
    if close is not None:
        close()


def _line(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
