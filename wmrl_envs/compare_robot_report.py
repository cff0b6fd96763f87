"""The page and the figure of ``wmrl compare robot``, from its results alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from wmrl_envs.files import replacing
from wmrl_envs.robotics.comparison import ARMS

__all__ = ["draw_robot_comparison", "interval", "robot_report"]

FloatArray = NDArray[np.float64]
_RESAMPLES = 10_000
_MODELS = ("good", "weak")
_COLOURS = {"anchors": "#777777", "progress": "#e08214", "paper": "#8073ac", "ours": "#2166ac", "real": "#222222"}
_GAIN = 0.10
"""What fine-tuning is to add to imitation, in success."""


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of a mean over seeds, from 10,000 seeded resamples."""
    values = np.asarray(differences, np.float64)
    drawn = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.percentile(values[drawn].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def robot_report(results: Mapping[str, Any], command: str, figure: str) -> str:
    """Return the page as Markdown; every number and verdict in it is computed from the results.

    Args:
        results: What ``compare_rewards`` returned; runs may be missing, and the page says so.
        command: The command that made them.
        figure: Name of the figure's file beside the page.
    """
    config = results["config"]
    runs = {model: _by_arm(results["runs"], model) for model in _MODELS}
    parts = [
        "# Reward schemes for robots",
        _introduction(config, results["quality"]),
        f"![Success of every reward scheme, by progress model]({figure})",
        *(_model_part(model, runs[model], config) for model in _MODELS),
        _verdicts(runs),
        _tasks_table(results),
        _tuning_table(results),
        f"Made by `{command}`, which goes on where it was stopped.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def draw_robot_comparison(results: Mapping[str, Any], path: Path) -> None:
    """Draw a dot per seed and the mean with its interval, one panel per progress model."""
    figure = Figure(figsize=(8.5, 3.8), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, model in zip(panels, _MODELS, strict=True):
        runs = _by_arm(results["runs"], model)
        start = float(np.mean(list(runs["sft"].values()))) if runs.get("sft") else None
        names = [name for name in ARMS if runs.get(name)]
        for place, name in enumerate(names):
            values = list(runs[name].values())
            low, high = interval(values)
            panel.plot([place] * len(values), values, "o", color=_COLOURS[name], alpha=0.35, markersize=5)
            panel.errorbar(
                place,
                np.mean(values),
                yerr=[[np.mean(values) - low], [high - np.mean(values)]],
                fmt="D",
                color=_COLOURS[name],
                capsize=4,
                markersize=6,
            )
        if start is not None:
            panel.axhline(start, color="#999999", linestyle="--", linewidth=1)
            panel.annotate(
                "imitation", (len(names) - 0.55, start), ha="right", va="bottom", fontsize=8, color="#666666"
            )
        panel.set_xticks(range(len(names)), [_SHORT[name] for name in names], fontsize=8)
        panel.set_xlim(-0.6, len(names) - 0.4)
        panel.set_title(f"{model} progress model", fontsize=10)
        panel.grid(axis="y", alpha=0.25)
    panels[0].set_ylabel("success on fresh initial states")
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)


_SHORT = {
    "anchors": "anchors\nalone",
    "progress": "progress\nalone",
    "paper": "paper's\ncorrections",
    "ours": "ours",
    "real": "real\neverywhere",
}

_INTRODUCTION = """\
One small vision-language-action policy for {tasks} (Meta-World, from pixels) imitates {demonstrations} demonstrations
of each task, and is then fine-tuned by GRPO for {steps} steps of ten groups of eight rollouts ({rollouts} in all), in
each arm from the same weights and the same initial states. Success is measured without noise on {goals} fresh initial
states of each task, that of imitation too. Arms that read labels read {labels} of them, one group a step; `real
success everywhere` reads all. Learning rates were chosen from one grid on other seeds and other initial states, with
the good progress model.

Both progress models were trained from demonstrations before any of this. On held-out demonstrations the good one has
a rank correlation with the time to success of {good[rank_correlation]:.2f}, and by the paper's reward it ranks a
success above a failure {good[shaped_auc]:.0%} of the time; the weak one (an eighth of the demonstrations, no
failures, a third of the steps) {weak[rank_correlation]:.2f} and {weak[shaped_auc]:.0%}.

*Ours* takes the model's probability of success as the reward, lets the model go on learning from the labels of the
anchors, trains anchor groups on those labels, and centres rewards within a group without dividing by their standard
deviation. The other arms take the paper's shaped reward and GRPO's standardised advantages."""

Runs = dict[str, dict[int, float]]
"""Arm -> seed -> mean success over tasks."""


def _by_arm(runs: Iterable[Mapping[str, Any]], model: str) -> Runs:
    found: Runs = {}
    for run in runs:
        if run["model"] in (model, "none"):
            found.setdefault(run["arm"], {})[run["seed"]] = run["mean_success"]
    return found


def _differences(of: Mapping[int, float], minus: Mapping[int, float]) -> list[float]:
    """Return the paired differences over the seeds that both have."""
    return [of[seed] - minus[seed] for seed in sorted(of.keys() & minus.keys())]


def _introduction(config: Mapping[str, Any], quality: Mapping[str, Mapping[str, float]]) -> str:
    rollouts = 80 * config["steps"]
    return _INTRODUCTION.format(
        tasks=config["tasks"].replace(",", ", "),
        demonstrations=config["demonstrations"],
        steps=config["steps"],
        rollouts=f"{rollouts:,}",
        labels=rollouts // 10,
        goals=config["goals"],
        good=quality["good"],
        weak=quality["weak"],
    )


def _model_part(model: str, runs: Runs, config: Mapping[str, Any]) -> str:
    rows = [
        f"## With the {model} progress model",
        "| rewards | success | over imitation | ours over it | seeds |",
        "|---|---|---|---|---|",
    ]
    for name in ("sft", *ARMS):
        own = runs.get(name, {})
        if not own:
            continue
        title = "imitation alone" if name == "sft" else ARMS[name].title
        values = list(own.values())
        gain = "" if name == "sft" else _signed(_differences(own, runs.get("sft", {})))
        rest = "" if name == "ours" else _signed(_differences(runs.get("ours", {}), own))
        title = f"**{title}**" if name == "ours" else title
        rows.append(f"| {title} | {_mean(values)} | {gain} | {rest} | {len(values)} |")
    note = "Differences are paired by seed, in points of success, with 95 % bootstrap intervals over seeds."
    missing = [name for name in ARMS if len(runs.get(name, {})) < config["seeds"]]
    if missing:
        note += f" Not all of the {config['seeds']} seeds are done for {', '.join(missing)}."
    return "\n".join([rows[0], "", *rows[1:], "", note])


def _mean(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{np.mean(values):.3f}"
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def _signed(differences: Sequence[float]) -> str:
    if not differences:
        return ""
    mean = f"{100 * np.mean(differences):+.1f}"
    if len(differences) < 2:
        return mean
    low, high = interval(differences)
    return f"{mean} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _verdicts(runs: Mapping[str, Runs]) -> str:
    lines = ["## What holds", ""]
    for model in _MODELS:
        ours = runs[model].get("ours", {})
        gain = _differences(ours, runs[model].get("sft", {}))
        if len(gain) < 2:
            continue
        holds = "holds" if np.mean(gain) >= _GAIN else "fails"
        lines.append(
            f"- {model} model, ours at least {100 * _GAIN:.0f} points over imitation: {holds}, {_signed(gain)}."
        )
        for rival in ("anchors", "paper", "progress"):
            lead = _differences(ours, runs[model].get(rival, {}))
            if len(lead) < 2:
                continue
            clear = "holds" if interval(lead)[0] > 0.0 else "fails"
            labels = "no labels" if rival == "progress" else "as many labels"
            lines.append(
                f"- {model} model, ours above {ARMS[rival].title} ({labels}), interval clear of zero: {clear}, "
                f"{_signed(lead)}."
            )
    return "\n".join(lines) if len(lines) > 2 else ""


def _tasks_table(results: Mapping[str, Any]) -> str:
    tasks = [name.strip() for name in results["config"]["tasks"].split(",")]
    rows = ["## By task, with the good progress model", "", "| rewards | " + " | ".join(tasks) + " |"]
    rows.append("|---|" + "---|" * len(tasks))
    for name in ("sft", *ARMS):
        own = [run["success"] for run in results["runs"] if run["arm"] == name and run["model"] in ("good", "none")]
        if own:
            title = "imitation alone" if name == "sft" else ARMS[name].title
            rows.append(f"| {title} | " + " | ".join(_mean([found[task] for found in own]) for task in tasks) + " |")
    return "\n".join(rows)


def _tuning_table(results: Mapping[str, Any]) -> str:
    rates = sorted({run["learning_rate"] for run in results["tuning"]})
    rows = [
        "## Learning rates",
        "",
        "Mean success on the tuning seeds; the chosen one is bold.",
        "",
        "| rewards | " + " | ".join(f"{rate:g}" for rate in rates) + " |",
        "|---|" + "---|" * len(rates),
    ]
    for name, arm in ARMS.items():
        cells = []
        for rate in rates:
            found = [
                run["mean_success"] for run in results["tuning"] if run["arm"] == name and run["learning_rate"] == rate
            ]
            cell = f"{np.mean(found):.3f}" if found else ""
            cells.append(f"**{cell}**" if results["learning_rates"].get(name) == rate else cell)
        rows.append(f"| {arm.title} | " + " | ".join(cells) + " |")
    return "\n".join(rows)
