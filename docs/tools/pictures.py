"""Draws the diagrams of the page on the method; the pairs in them are recorded real executions.

Run by ``python docs/tools/pictures.py [FOLDER]``; without a folder it replaces those in docs/images.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from drawing import Drawing
from numpy.typing import NDArray

from wmrl_envs.correction import OnlineDebiaser, rectified_advantages, standardise
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import load_task
from wmrl_envs.world_models import LearnedWorldModel

IMAGES = Path(__file__).resolve().parents[1] / "images"
TASK, WARMUP, PAIRS, GROUP, SHARE = "titanic", 60, 512, 8, 0.1
FloatArray = NDArray[np.float64]


class Pairs(NamedTuple):
    """Solutions of the design space's prior, predicted and really executed."""

    predicted: FloatArray
    real: FloatArray
    calibrated: FloatArray
    knots: tuple[FloatArray, FloatArray]
    choices: list[dict[str, str]]


def recorded_pairs() -> Pairs:
    """Predict recorded solutions by a world model fitted on others, and calibrate the predictions."""
    task, replay = load_task(TASK), ReplaySandbox()
    space = DesignSpace.of(task)
    model = LearnedWorldModel(warmup=WARMUP, seed=0)
    model.prepare([task], replay)
    drawn = space.sample(PAIRS, np.random.default_rng(1))
    submissions = [Submission(task, space.render(choices), seed=seed) for seed, choices in enumerate(drawn)]
    predicted, real = (np.array([o.reward for o in g.grade(submissions) if o]) for g in (model, replay))
    debias = OnlineDebiaser(window=PAIRS)
    debias.update(predicted, real)
    return Pairs(predicted, real, debias(predicted), debias.knots, [space.describe(choices) for choices in drawn])


def loop() -> Drawing:
    """Draw what happens in a step of training."""
    d = Drawing(
        860,
        280,
        "One step of training",
        "The policy writes groups of solutions. The world model predicts the reward of all of them. A tenth of the "
        "groups, the anchors, are executed in the sandbox as well. The correction calibrates the predictions by the "
        "pairs, fuses both streams into advantages, and the policy is updated. The world model learns from what was "
        "executed.",
    )
    d.box(10, 10, 130, 80, ["Policy", "generates"])
    d.box(185, 10, 165, 80, ["m groups of G", "one task, G solutions"])
    d.box(410, 10, 170, 80, ["World model", "predicts all: r̂"], "model")
    d.box(410, 160, 170, 80, ["Sandbox", "executes anchors: r"], "real")
    d.box(650, 10, 200, 230, ["Correction", "", "calibrate: f(r̂)", "weigh: λ", "rectify: A"])
    d.line([(140, 50), (183, 50)], arrow=True)
    d.line([(350, 50), (408, 50)], arrow=True)
    d.line([(580, 50), (648, 50)], arrow=True)
    d.line([(268, 90), (268, 200), (408, 200)], arrow=True)
    d.line([(580, 200), (648, 200)], arrow=True)
    d.line([(495, 160), (495, 92)], "real", dashed=True, arrow=True)
    d.line([(750, 240), (750, 270), (75, 270), (75, 92)], arrow=True)
    d.text(380, 40, "all", "dim", size=12.5)
    d.text(338, 190, "a tenth, drawn", "dim", size=12.5)
    d.text(338, 218, "as whole groups", "dim", size=12.5)
    d.text(505, 130, "learns", "real", at="start", size=12.5)
    d.text(412, 263, "advantages", "dim", size=12.5)
    return d


def debiasing(pairs: Pairs) -> Drawing:
    """Draw the pairs and the map that is fitted to them."""
    d = Drawing(
        560,
        420,
        "Online debiasing",
        "Real against predicted rewards of recorded solutions, with a monotone staircase fitted through them. Where "
        "the staircase lies under the diagonal the world model promises too much.",
    )
    axes = d.axes((60, 40, 540, 360), (0, 1), (0, 1), ("predicted reward r̂", "real reward r"))
    axes.ticks(x=(0, 0.25, 0.5, 0.75, 1), y=(0, 0.25, 0.5, 0.75, 1))
    for x, y in axes.points(pairs.predicted.tolist(), pairs.real.tolist()):
        d.dot(x, y, "real")
    d.line(axes.points([0, 1], [0, 1]), "dim", dashed=True)
    xs, ys = pairs.knots
    xs, ys = np.concatenate([[0.0], xs, [1.0]]), np.concatenate([ys[:1], ys, ys[-1:]])  # flat outside the knots
    d.line(axes.points(xs.tolist(), ys.tolist()), "model", width=3)
    d.text(axes.x(0.2) - 6, axes.y(0.24), "as predicted", "dim", at="end", size=12.5)
    d.text(axes.x(0.99), axes.y(float(ys[-1])) - 12, "f, fitted", "model", at="end", bold=True)
    return d


def kinds(pairs: Pairs) -> Drawing:
    """Draw what is left of the bias after calibration, by kind of solution."""
    d = Drawing(
        760,
        360,
        "What no calibration can remove",
        "Mean calibrated minus real reward by kind of solution. Over all solutions it is zero, but kinds that fail in "
        "ways that the world model has not seen are over-rated by three tenths, and others are under-rated.",
    )
    error = pairs.calibrated - pairs.real
    rows = [("all solutions", error)]
    for key, value in (
        ("features", "engineered, misspelt column"),
        ("features", "engineered, bins that end early"),
        ("model", "random forest, 20,000 trees"),
        ("encoding", "strings left"),
        ("features", "as given"),
        ("output", "mean of 5 resamples"),
    ):
        rows.append((f"{key}: {value}", error[[choice[key] == value for choice in pairs.choices]]))
    axes = d.axes(
        (330, 40, 740, 300), (-0.3, 0.45), (0, 1), ("calibrated minus real reward, mean and 95 % interval", "")
    )
    axes.ticks(x=(-0.2, 0, 0.2, 0.4), form=lambda value: f"{value:+g}" if value else "0")
    d.line([(axes.x(0), 40), (axes.x(0), 300)], dashed=True)
    for index, (name, values) in enumerate(rows):
        y = 62 + 36 * index
        mean, half = float(values.mean()), 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5
        colour = "dim" if index == 0 else "wrong" if mean > 0 else "model"
        d.text(318, y + 5, f"{name} ({len(values)})", at="end", size=12.5)
        d.line([(axes.x(mean - half), y), (axes.x(mean + half), y)], colour, width=3)
        d.dot(axes.x(mean), y, colour, radius=6, opacity=1)
    return d


def trust(pairs: Pairs) -> Drawing:
    """Draw the variance of the rectified advantage against lambda."""
    groups = np.repeat(np.arange(PAIRS // GROUP), GROUP)
    f, r = standardise(pairs.calibrated, groups), standardise(pairs.real, groups)
    lambdas = np.linspace(0, 1.5, 61)
    # Over the draw of the anchors (alpha = 1) a rollout's advantage varies by (1 / pi - 1) (z(r) - lambda z(f))^2.
    variances = np.array([(1 / SHARE - 1) * np.mean((r - value * f) ** 2) for value in lambdas])
    best = float((r @ f) / (f @ f))
    d = Drawing(
        560,
        380,
        "How far to trust the world model",
        "The variance of the rectified advantage against lambda is a parabola: high without the world model, higher "
        "still where it is trusted too far, and least between.",
    )
    axes = d.axes(
        (60, 40, 540, 320),
        (0, 1.5),
        (0, float(variances.max()) * 1.05),
        ("λ, the trust in the world model", "variance of A over the draw of the anchors"),
    )
    axes.ticks(x=(0, 0.5, 1, 1.5), y=(0, 5, 10))
    d.line(axes.points(lambdas.tolist(), variances.tolist()), "model", width=3)
    marks = (
        (0.0, "anchors alone", "start", 12, -4),
        (best, f"least at λ = {best:.2f}", "middle", 0, 26),
        (1.0, "as if the model were right", "start", 12, 14),
    )
    for value, words, at, right, down in marks:
        x, y = axes.x(value), axes.y(float(np.interp(value, lambdas, variances)))
        d.dot(x, y, "real" if value == best else "ink", radius=6, opacity=1)
        d.text(x + right, y + down, words, at=at, size=12.5)
    return d


def advantage(pairs: Pairs) -> Drawing:
    """Draw one group's advantages with and without its execution, and their mean over the draw."""
    groups = np.repeat(np.arange(PAIRS // GROUP), GROUP)
    spread = [(pairs.real[groups == g].std(), g) for g in range(PAIRS // GROUP)]
    members = groups == max(spread)[1]
    f, r = pairs.calibrated[members], pairs.real[members]
    trusted = 0.5
    one = np.zeros(GROUP, int)

    def rectified(anchor: bool) -> FloatArray:
        return rectified_advantages(r, f, one, np.full(GROUP, anchor), trusted, 1.0, SHARE)

    mean = SHARE * rectified(True) + (1 - SHARE) * rectified(False)
    assert np.allclose(mean, standardise(r, one))
    d = Drawing(
        860,
        330,
        "The rectified advantage of one group",
        "Eight bars a panel. Not drawn: half of the standardised prediction. Drawn, one time in ten: that, and ten "
        "times what was missing. The mean over the draw is the standardised real reward.",
    )
    panels: list[tuple[str, str, FloatArray, str, float]] = [
        ("not drawn (9 of 10 times)", "λ z(f)", rectified(False), "model", 2.2),
        ("drawn (1 of 10 times)", "λ z(f) + (z(r) − λ z(f)) / π", rectified(True), "real", 22),
        ("mean over the draw", "= z(r), exactly", mean, "ink", 2.2),
    ]
    for index, (name, formula, values, colour, limit) in enumerate(panels):
        left = 50 + 285 * index
        axes = d.axes((left, 70, left + 230, 280), (0, GROUP), (-limit, limit), ("the group's eight solutions", ""))
        axes.ticks(y=(-limit / 2.2 * 2, 0, limit / 2.2 * 2))
        d.text(left + 115, 26, name, bold=True)
        d.text(left + 115, 50, formula, colour, size=13)
        d.line([(left, axes.y(0)), (left + 230, axes.y(0))])
        for place, value in enumerate(values):
            d.rectangle(axes.x(place + 0.2), axes.y(0), 17, axes.y(float(value)) - axes.y(0), colour, opacity=0.8)
    return d


def main() -> None:
    """Draw all of them."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(exist_ok=True)
    pairs = recorded_pairs()
    drawings: dict[str, Any] = {
        "loop": loop(),
        "debiasing": debiasing(pairs),
        "kinds": kinds(pairs),
        "trust": trust(pairs),
        "advantage": advantage(pairs),
    }
    for name, drawing in drawings.items():
        drawing.save(folder / f"{name}.svg")


if __name__ == "__main__":
    main()
