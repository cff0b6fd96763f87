"""The numbers that a report opens with: cards for one run, a table for several."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from wmrl_envs.report.episodes import number
from wmrl_envs.report.folder import Run
from wmrl_envs.report.groups import Group
from wmrl_envs.report.scores import reported

__all__ = ["cards", "cost_ratio", "state_words", "table"]


def cost_ratio(run: Run) -> float | None:
    """Return what a run spent over what executing (or labelling) everything would have cost, where known."""
    if run.kind == "robot":
        read, played = labels(run)
        return None if read is None or not played else read / played
    return _ledger(run, "cost_ratio")


def labels(run: Run) -> tuple[float | None, float | None]:
    """Return labels read and rollouts played by a robot run."""
    return _count(run, "labels"), _count(run, "rollouts")


def _count(run: Run, name: str) -> float | None:
    found = number(run.summary.get(name))
    if found is None and name in run.rows and len(run.rows):
        known = run.rows[name].dropna()
        found = float(known.sum()) if len(known) else None
    return found


def _ledger(run: Run, name: str) -> float | None:
    """Return a number of the ledger: of the summary, or of the last step while there is none."""
    ledger = run.summary.get("ledger")
    found = number(ledger.get(name)) if isinstance(ledger, dict) else None
    if found is None and name in run.rows:
        known = run.rows[name].dropna()
        found = float(known.iloc[-1]) if len(known) else None
    return found


def state_words(run: Run) -> str:
    """Return how a run stands: finished, going on, or stopped and after which step."""
    planned = "" if run.steps is None else f" of {run.steps:,}"
    at = f"step {run.step:,}{planned}" if len(run.rows) else "no step done yet"
    if run.state == "finished":
        return f"finished after {run.step:,} steps" if len(run.rows) else "finished; its steps are unknown"
    written = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(run.modified))
    words = "still going" if run.state == "going" else "stopped before its end"
    return f"{words}: {at}, last written {written}"


def cards(run: Run) -> list[dict[str, str]]:
    """Return label, value and detail of each number that matters most; those unknown are left out."""
    found = [_score_card(run), *(_robot_cards(run) if run.kind == "robot" else _research_cards(run))]
    return [card for card in found if card is not None]


def _score_card(run: Run) -> dict[str, str] | None:
    (before, before_error), (after, after_error) = reported(run, "before"), reported(run, "after")
    label = "Success on fresh states" if run.kind == "robot" else "Reported score"
    if before is None and after is None:
        return _latest_card(run)
    errors = [f"± {error:.3f}" if error is not None else "" for error in (before_error, after_error)]
    value = f"{_score(before)} → {_score(after)}"
    if before is not None and after is not None:
        detail = f"{after - before:+.3f} by training; standard errors {errors[0]} and {errors[1]}"
        if not all(errors):
            detail = f"{after - before:+.3f} by training"
        return {"label": label, "value": value, "detail": detail, "tone": "good" if after > before else "bad"}
    return {"label": label, "value": value, "detail": "evaluated after training, which has not ended"}


def _latest_card(run: Run) -> dict[str, str] | None:
    if "real_reward" not in run.rows or not run.rows["real_reward"].notna().any():
        return None
    known = run.rows["real_reward"].dropna()
    return {
        "label": "Real reward so far",
        "value": f"{float(known.iloc[-5:].mean()):.3f}",
        "detail": "mean of the last steps with executed episodes; no evaluation was made",
    }


def _score(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"


def _research_cards(run: Run) -> list[dict[str, str] | None]:
    seconds, warmup, ratio = (_ledger(run, name) for name in ("execution_seconds", "warmup_seconds", "cost_ratio"))
    executions, predictions = _ledger(run, "executions"), _ledger(run, "predictions")
    cost = seconds is not None and {
        "label": "Real execution",
        "value": f"{seconds:,.1f} s",
        "detail": "CPU seconds" + ("" if not warmup else f", {warmup:,.1f} of them to warm the world model up"),
    }
    share = ratio is not None and {
        "label": "Cost ratio",
        "value": f"{ratio:.0%}",
        "detail": "of an estimate for executing everything",
    }
    counts = executions is not None and {
        "label": "Executed",
        "value": f"{executions:,.0f}",
        "detail": "programs" + ("" if not predictions else f"; {predictions:,.0f} outcomes were predicted"),
    }
    return [cost or None, share or None, counts or None]


def _robot_cards(run: Run) -> list[dict[str, str] | None]:
    (read, played), ratio = labels(run), cost_ratio(run)
    if read is None:
        return []
    card = {
        "label": "Labels read",
        "value": f"{read:,.0f}",
        "detail": f"of {'?' if played is None else f'{played:,.0f}'} rollouts played",
    }
    if ratio is None:
        return [card]
    share = {"label": "Cost ratio", "value": f"{ratio:.0%}", "detail": "labels over rollouts"}
    return [card, share]


def table(groups: Sequence[Group], kind: str) -> dict[str, Any]:
    """Return columns and rows of the table of groups, the best score after training first."""
    score, cost = ("success", "labels read") if kind == "robot" else ("score", "real CPU seconds")
    columns = ["runs that differ in", "runs", f"{score} before", f"{score} after", "gain", cost, "cost ratio"]
    rows = [(_mean(group, "after")[0], _row(group)) for group in groups]
    rows.sort(key=lambda row: -np.inf if row[0] is None else row[0], reverse=True)
    return {"columns": columns, "rows": [row for _, row in rows]}


def _row(group: Group) -> list[str]:
    (before, before_spread), (after, after_spread) = _mean(group, "before"), _mean(group, "after")
    both = [(reported(run, "before")[0], reported(run, "after")[0]) for run in group.runs]
    # Of runs that have both: the others' scores before would be taken for a gain.
    gain = _of_known([None if old is None or new is None else new - old for old, new in both])
    costs = [labels(run)[0] if run.kind == "robot" else _ledger(run, "execution_seconds") for run in group.runs]
    seconds, ratio = _of_known(costs), _of_known([cost_ratio(run) for run in group.runs])
    done = sum(run.state == "finished" for run in group.runs)
    return [
        group.name,
        f"{len(group.runs)}" + ("" if done == len(group.runs) else f" ({done} finished)"),
        _score(before) + before_spread,
        _score(after) + after_spread,
        "?" if gain is None else f"{gain:+.3f}",
        "?" if seconds is None else f"{seconds:,.1f}".removesuffix(".0"),
        "?" if ratio is None else f"{ratio:.0%}",
    ]


def _mean(group: Group, when: str) -> tuple[float | None, str]:
    """Return the mean of the runs' scores and ``" ± s.e."`` over the runs, empty for a single one."""
    scores = [score for run in group.runs for score, _ in [reported(run, when)] if score is not None]
    if len(scores) < 2:
        return (scores[0] if scores else None), ""
    return float(np.mean(scores)), f" ± {np.std(scores, ddof=1) / np.sqrt(len(scores)):.3f}"


def _of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
