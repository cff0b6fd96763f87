"""What an evaluation of world models shows: the table, on the console and as a page, and the files behind it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from wmrl_envs.files import replacing, write_json, write_text
from wmrl_envs.research.outcome import STATUSES
from wmrl_envs.world_models.evaluation_result import EvaluationRow, MeanMetric, WorldModelEvaluation
from wmrl_envs.world_models.scoring import TOP_OF, confusion_matrix

__all__ = ["Difference", "console_table", "differences", "markdown_report", "write_evaluation"]

_COLUMNS = {
    "status_accuracy": "status accuracy ↑",
    "validity_auc": "validity AUC ↑",
    "reward_error": "reward error ↓",
    "reward_rmse": "reward RMSE ↓",
    "rank": "rank within a task ↑",
    "rank_valid": "rank among valid ↑",
    "validity_calibration": "calibration error of validity ↓",
    "confidence_calibration": "calibration error of confidence ↓",
    "optimism": "optimism of the top choice",
}
"""Metrics in the table, with the direction that is better."""
_COMPARED = {
    "validity_auc": "validity AUC ↑",
    "validity_brier": "Brier score of validity ↓",
    "reward_error": "reward error ↓",
    "rank": "rank within a task ↑",
}
_SHORT = {
    "status_accuracy": "status\nacc. ↑",
    "validity_auc": "valid.\nAUC ↑",
    "reward_error": "reward\nerr. ↓",
    "rank": "rank ↑",
    "rank_valid": "valid\nrank ↑",
    "validity_calibration": "valid.\nECE ↓",
    "optimism": "opti-\nmism",
}
"""What a terminal of 80 columns has room for."""
_BY_TASK = {"validity_auc": "validity AUC", "reward_error": "reward error", "rank": "rank correlation"}
_BASELINE = "base-rate"
_WIDTH = 120

_LEGEND = f"""\
Means over tasks{{errors}}; a metric that is undefined is "-", and a prediction that could not be read is counted and in
no other number. *Executions*: executed solutions of each task that the world model was given first. *Status accuracy*:
share of solutions whose status is predicted. *Validity AUC*: whether valid submissions get the higher probability of
being valid (0.5: no better than chance). *Reward error*, *RMSE*: distance of the expected from the real reward. *Rank*:
Spearman's correlation of expected and real reward; *pooled* over the solutions of all tasks, *within a task*, and
*among* the really *valid* solutions of a task. *Calibration error*: expected calibration error over ten bins, of the
probability of a valid submission and of the confidence in the predicted status. *Optimism*: how much the solution with
the highest prediction among {TOP_OF} is over-rated, over all such sets of {TOP_OF}.{{cached}}"""
_CACHED = (
    " *Seconds* with a star: some answers came from the world model's cache on disk and took none; without it they are "
    "told by `--kwargs MODEL:cache=false`."
)


class Difference(NamedTuple):
    """A world model minus the baseline in one metric, paired by task."""

    world_model: str
    baseline: str
    metric: str
    mean: float
    error: float
    """Standard error over tasks."""
    tasks: int
    """On how many tasks both are defined."""


def _named_rows(evaluations: Sequence[WorldModelEvaluation]) -> Iterator[tuple[str, bool, EvaluationRow]]:
    for evaluation in evaluations:
        for row in evaluation.rows:
            yield evaluation.world_model, bool(evaluation.settings["learns"]), row


def _headings() -> list[str]:
    own = list(_COLUMNS.values())
    return ["world model", "executions", *own[:4], "rank, pooled ↑", *own[4:], "seconds per prediction", "unreadable"]


def _cells(name: str, learns: bool, row: EvaluationRow) -> list[str]:
    own = [_estimate(row.means[metric]) if row.means else "-" for metric in _COLUMNS]
    pooled = _number(row.pooled()["rank"]) if row.results else "-"
    return [name, _executions(learns, row), *own[:4], pooled, *own[4:], _seconds(row), _unread(row)]


def _executions(learns: bool, row: EvaluationRow) -> str:
    return f"{row.executions}" if learns else "none"


def _seconds(row: EvaluationRow) -> str:
    cached = "*" if row.counters.get("cache_hits") else ""
    return "-" if row.seconds is None else f"{row.seconds:.2g}{cached}"


def _unread(row: EvaluationRow) -> str:
    return f"{row.unreadable / row.solutions:.0%}" if row.solutions else "-"


def _estimate(mean: MeanMetric, sign: str = " ± ") -> str:
    if mean.value is None:
        return "-"
    return _number(mean.value) + ("" if mean.error is None else f"{sign}{mean.error:.3f}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _errors(evaluations: Sequence[WorldModelEvaluation]) -> str:
    several = len(evaluations[0].settings["tasks"]) > 1
    return f" ± standard error over {'tasks' if several else 'solutions (bootstrap)'}"


def console_table(evaluations: Sequence[WorldModelEvaluation]) -> Table:
    """Return the main metrics of every world model and number of executions, for a terminal."""
    title = f"Against recorded executions: mean{_errors(evaluations)}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("world model", overflow="fold", min_width=12)
    unread = any(row.unreadable for _, _, row in _named_rows(evaluations))
    for heading in ("exe-\ncut.", *_SHORT.values(), "sec.\neach", *(["un-\nread"] if unread else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, learns, row in _named_rows(evaluations):
        cells = [_estimate(row.means[metric], "\n±") if row.means else "-" for metric in _SHORT]
        last = [_seconds(row), *([_unread(row)] if unread else [])]
        table.add_row(escape(name), _executions(learns, row), *cells, *last)
    return table


def differences(evaluations: Sequence[WorldModelEvaluation]) -> list[Difference]:
    """Compare each world model with the base rate, or with the first one where that is not among them.

    Each with the most executions that it was given, on the same solutions; empty for fewer than two tasks.
    """
    baseline = next((e for e in evaluations if e.settings["world_model"] == _BASELINE), evaluations[0])
    found: list[Difference] = []
    for evaluation in evaluations:
        if evaluation is baseline:
            continue
        pairs = list(zip(evaluation.rows[-1].results, baseline.rows[-1].results, strict=True))
        for metric in _COMPARED:
            both = [(own.metrics()[metric], base.metrics()[metric]) for own, base in pairs]
            gaps = np.array([own - base for own, base in both if own is not None and base is not None])
            if len(gaps) > 1:
                error = float(gaps.std(ddof=1) / np.sqrt(len(gaps)))
                names = (evaluation.world_model, baseline.world_model, metric)
                found.append(Difference(*names, float(gaps.mean()), error, len(gaps)))
    return found


def markdown_report(evaluations: Sequence[WorldModelEvaluation], command: str, figure: str | None) -> str:
    """Return the page: table, differences, tasks, confusion matrices, and how to repeat it.

    Args:
        evaluations: One for each world model, on the same tasks.
        command: The command line that made them.
        figure: Name of the figure beside the page; None for none.
    """
    parts = ["# World models against recorded executions", _method(evaluations), f"```\n{command}\n```"]
    parts.append(_markdown(_headings(), [_cells(*named) for named in _named_rows(evaluations)]))
    failed = [(name, row) for name, _, row in _named_rows(evaluations) if row.failure is not None]
    parts += [fill(f"{name}, {row.executions} executions: {row.failure}", _WIDTH) for name, row in failed]
    cached = any(row.counters.get("cache_hits") for _, _, row in _named_rows(evaluations))
    parts.append(fill(_LEGEND.format(errors=_errors(evaluations), cached=_CACHED if cached else ""), _WIDTH))
    if figure is not None:
        parts.append(f"![Reliability, predicted against real reward, and metrics by executions]({figure})")
    parts += _difference_section(differences(evaluations))
    parts += _task_section(evaluations)
    parts += ["## Statuses", "Rows: really executed; columns: predicted. Solutions of all tasks."]
    for evaluation in evaluations:
        seen = f", {evaluation.rows[-1].executions} executions" if evaluation.settings["learns"] else ""
        parts += [f"{evaluation.world_model}{seen}:", _confusion(evaluation.rows[-1])]
    return "\n\n".join(parts) + "\n"


def _method(evaluations: Sequence[WorldModelEvaluation]) -> str:
    settings = evaluations[0].settings
    draw = {"prior": "from the prior of the design space", "uniform": "uniformly from the design space"}
    held_out = f" The base rate was taken from other tasks: {', '.join(settings['train_tasks'])}."
    used = {name: found for evaluation in evaluations for name, found in evaluation.settings["versions"].items()}
    text = (
        f"Recorded solutions drawn {draw[settings['draw']]}, at most {settings['solutions']} of each task "
        f"({', '.join(settings['tasks'])}), none of which the world model had seen; seed {settings['seed']}."
        f"{held_out if settings['train_tasks'] else ''} Versions: "
        f"{', '.join(f'{name} {found}' for name, found in used.items())}."
    )
    return fill(text, _WIDTH)


def _difference_section(found: Sequence[Difference]) -> list[str]:
    if not found:
        return []
    names = list(dict.fromkeys(difference.world_model for difference in found))
    cells = {(d.world_model, d.metric): f"{d.mean:+.3f} ± {d.error:.3f} ({d.tasks})" for d in found}
    rows = [[name, *(cells.get((name, metric), "-") for metric in _COMPARED)] for name in names]
    return [
        f"## Minus {found[0].baseline}",
        "With the most executions of each, on the same solutions: mean difference ± standard error over so many tasks.",
        _markdown(["world model", *_COMPARED.values()], rows),
    ]


def _task_section(evaluations: Sequence[WorldModelEvaluation]) -> list[str]:
    tasks = evaluations[0].settings["tasks"]
    if len(tasks) < 2:
        return []
    rows = []
    for name, learns, row in _named_rows(evaluations):
        by_task = [" / ".join(_number(result.metrics()[metric]) for metric in _BY_TASK) for result in row.results]
        rows.append([name, _executions(learns, row), *(by_task or ["-"] * len(tasks))])
    return ["## Tasks", f"{' / '.join(_BY_TASK.values())}.", _markdown(["world model", "executions", *tasks], rows)]


def _confusion(row: EvaluationRow) -> str:
    pairs = row.pairs
    counts = confusion_matrix(pairs.real_status, pairs.predicted_status)
    shown = np.flatnonzero(counts.sum(axis=0) + counts.sum(axis=1))
    names = [str(STATUSES[index]).replace("_", " ") for index in shown]
    table = counts[np.ix_(shown, shown)]
    return _markdown(["", *names], [[name, *map(str, line)] for name, line in zip(names, table, strict=True)])


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def write_evaluation(
    evaluations: Sequence[WorldModelEvaluation], folder: Path, command: str, *, figure: bool = True
) -> list[Path]:
    """Write evaluation.json (every number), predictions.csv, evaluation.png and evaluation.md.

    Args:
        evaluations: One for each world model, on the same tasks.
        folder: Where the files go, in place of those there.
        command: The command line that made them.
        figure: Whether to draw the figure, which takes a second.

    Returns:
        The files; the figure is left out where matplotlib is not installed.
    """
    numbers = {
        "command": command,
        "evaluations": [evaluation.as_dict() for evaluation in evaluations],
        "differences": [difference._asdict() for difference in differences(evaluations)],
    }
    page, json_file, table, picture = (
        folder / name for name in ("evaluation.md", "evaluation.json", "predictions.csv", "evaluation.png")
    )
    write_json(json_file, numbers)
    _write_predictions(evaluations, table)
    drawn = figure and _draw(evaluations, picture)
    write_text(page, markdown_report(evaluations, command, picture.name if drawn else None))
    return [page, json_file, table, *([picture] if drawn else [])]


def _draw(evaluations: Sequence[WorldModelEvaluation], path: Path) -> bool:
    try:
        from wmrl_envs.world_model_figure import draw_evaluation
    except ModuleNotFoundError:
        return False
    draw_evaluation(evaluations, path)
    return True


def _write_predictions(evaluations: Sequence[WorldModelEvaluation], path: Path) -> None:
    """Write a line for each prediction; one that could not be read has empty columns."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            "world_model executions task member real_reward real_status predicted_reward predicted_status "
            "valid_probability confidence seconds".split()
        )
        for name, _, row in _named_rows(evaluations):
            for result in row.results:
                for member, values in result.predictions():
                    writer.writerow([name, row.executions, result.task, member, *values])
