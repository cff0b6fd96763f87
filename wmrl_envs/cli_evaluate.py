"""``wmrl evaluate --agent``: a language model's scores, how its attempts ended, and what they took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from wmrl_envs.cli_console import console
from wmrl_envs.evaluate_predictions import PredictedBeside, predict_beside
from wmrl_envs.evaluate_text import TextEvaluation, evaluate_text
from wmrl_envs.files import write_json
from wmrl_envs.research.configuration import close_grader, resolve_tasks
from wmrl_envs.research.outcome import STATUSES
from wmrl_envs.research.sandbox import resolve_sandbox
from wmrl_envs.world_models.registry import resolve_world_model

__all__ = ["evaluate_language_model", "print_evaluation", "write_transcripts"]


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

    loaded = resolve_tasks(tasks)
    predictor = None if world_model is None else resolve_world_model(world_model)
    grader = resolve_sandbox(sandbox, isolation=isolation)
    try:  # tasks and sandbox are known to work before a model is loaded
        with (
            closing(LanguageModelAgent(agent, seed=seed, **agent_settings)) as player,
            counting(console, "turns", turns) as done,
        ):
            result = evaluate_text(
                player, loaded, episodes=episodes, turns=turns, seed=seed, sandbox=grader, progress=done
            )
        beside = None if predictor is None else predict_beside(result, loaded, predictor, grader)
    finally:
        close_grader(grader)
        if predictor is not None:
            close_grader(predictor)
    print_evaluation(result, agent, beside)
    if out is not None:
        settings = {name: str(value) if isinstance(value, Path) else value for name, value in agent_settings.items()}
        given = {"agent": agent, "tasks": list(tasks), "turns": turns, "seed": seed, "sandbox": sandbox, **settings}
        predicted = None if beside is None else {"world_model": world_model, **asdict(beside)}
        write_json(out, {"settings": given, "result": result.to_dict(), "predicted": predicted})
    if transcripts is not None:
        write_transcripts(result, transcripts)
    for name, place in (("numbers", out), ("transcripts", transcripts)):
        if place is not None:
            console.print(f"{name + ':':<12} {place}", markup=False, highlight=False, soft_wrap=True)


def print_evaluation(result: TextEvaluation, agent: str, beside: PredictedBeside | None = None) -> None:
    """Print scores, statuses by turn, what the episodes took, and what a world model said."""
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
    console.print(_turns_table(result, beside))
    cut = f" ({result.cut_replies} cut off at their greatest length)" if result.cut_replies else ""
    _line(
        f"tokens read {result.prompt_tokens:,}, written {result.completion_tokens:,} in {result.replies} replies{cut}"
    )
    _line(f"replies took {result.reply_seconds:,.1f} s, executions {result.execution_seconds:,.1f} CPU s")
    if beside is not None:
        left = f", {beside.unpredicted} without a prediction" if beside.unpredicted else ""
        _line(
            f"predicted: status right in {beside.status_accuracy:.0%} of {beside.attempts} attempts, reward off by "
            f"{beside.error:.3f} on average{left}"
        )


def _turns_table(result: TextEvaluation, beside: PredictedBeside | None) -> Table:
    """Return a table with a column per turn: the score had the episodes ended there, and how its attempts ended."""
    table = Table(
        "", *(f"turn {turn + 1}" for turn in range(len(result.scores))), title="By turn", title_justify="left"
    )
    table.add_row("score so far", *(f"{score:.3f}" for score in result.scores))
    table.add_row("valid submissions", *(f"{share:.0%}" for share in result.valid), end_section=True)
    for status in STATUSES:
        counts = [count.get(status, 0) for count in result.statuses]
        if any(counts):
            table.add_row(status.replace("_", " "), *(str(count) for count in counts))
    if beside is not None:
        table.add_section()
        for words, means in (("real reward", beside.real), ("predicted reward", beside.predicted)):
            table.add_row(words, *("unknown" if mean is None else f"{mean:.3f}" for mean in means))
    return table


def write_transcripts(result: TextEvaluation, folder: Path) -> None:
    """Write every episode as a JSON file of its own: its task, and each turn's reply, outcome and tokens."""
    for index, record in enumerate(result.records):
        write_json(folder / f"episode-{index:04d}.json", record.to_dict())


def _line(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
