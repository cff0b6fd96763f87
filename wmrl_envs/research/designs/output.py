"""How solutions fit, predict and write their answers, for each kind of goal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wmrl_envs.research.designs.common import Choice, Fragment, Option
from wmrl_envs.research.designs.goal import Goal, GoalKind

__all__ = ["LABELS", "OUTPUTS", "RESAMPLED", "Output"]


@dataclass(frozen=True, slots=True)
class Output:
    """The last choice of a solution, for one kind of goal."""

    choice: Choice
    regression: tuple[bool, ...]
    """Whether the model predicts a number, by option."""
    render: Callable[[Goal, int], list[Fragment]]
    """Returns the fragments of an option; resampled rows are taken by number, so ``X`` and ``y`` must be arrays."""


def _fit_and(*lines: str) -> Fragment:
    return Fragment(("model.fit(X, y)", *lines))


def _bagged(predict: str) -> Fragment:
    return Fragment(
        (
            "draws = []",
            "for _ in range(5):",
            "    rows = np.random.choice(X.shape[0], size=X.shape[0])",
            "    model.fit(X[rows], y[rows])",
            f"    draws.append({predict})",
            "prediction = np.mean(draws, axis=0)",
        )
    )


def _table(goal: Goal, value: str = "prediction") -> str:
    return f'submission = pd.DataFrame({{"{goal.identifier}": test["{goal.identifier}"], "{goal.column}": {value}}})'


RESAMPLED = 1
"""The option that refits the model on resampled rows, for every kind of goal."""

_SAVE = 'submission.to_csv("submission.csv", index=False)'
_SHOW = "print(submission.describe())"


def _ranking(goal: Goal, pick: int) -> list[Fragment]:
    right, hard = "model.predict_proba(X_test)[:, 1]", "model.predict(X_test)"
    fits = {1: _bagged(right), 2: _fit_and(f"prediction = {hard}")}
    fits[3] = _fit_and("prediction = model.predict_proba(X_test)[:, 0]")
    fit = fits.get(pick, _fit_and(f"prediction = {right}"))
    return [fit, Fragment((_table(goal), _SHOW if pick == 4 else _SAVE))]


def _probabilities(goal: Goal, pick: int) -> list[Fragment]:
    right = "model.predict_proba(X_test)"
    if pick == 1:
        fit = _bagged(right)
    elif pick == 2:
        fit = _fit_and("prediction = (model.predict(X_test)[:, None] == model.classes_).astype(float)")
    else:
        fit = _fit_and(f"prediction = {right}")
    columns = "y.unique()" if pick == 3 else "model.classes_"
    lines = [f"submission = pd.DataFrame(prediction, columns={columns})"]
    if pick != 4:
        lines.append(f'submission.insert(0, "{goal.identifier}", test["{goal.identifier}"])')
    return [fit, Fragment((*lines, _SAVE))]


def _ordinal(goal: Goal, pick: int) -> list[Fragment]:
    if pick == 1:
        fit = _bagged("model.predict(X_test)")
    elif pick == 3:
        fit = _fit_and("prediction = model.classes_[model.predict_proba(X_test).argmax(axis=0)]")
    else:
        fit = _fit_and("prediction = model.predict(X_test)")
    value = "prediction" if pick in {2, 3} else "np.rint(prediction).clip(y.min(), y.max())"
    return [fit, Fragment((_table(goal, value), _SHOW if pick == 4 else _SAVE))]


def _number(goal: Goal, pick: int) -> list[Fragment]:
    fit = _bagged("model.predict(X_test)") if pick == 1 else _fit_and("prediction = model.predict(X_test)")
    value = "np.expm1(prediction)" if pick == 2 else "prediction"
    logarithm = [Fragment(("y = np.log1p(y)",))] if pick in {2, 3} else []
    return [*logarithm, fit, Fragment((_table(goal, value), _SHOW if pick == 4 else _SAVE))]


def _label(goal: Goal, pick: int) -> list[Fragment]:
    classes = "model.classes_[{}.argmax(axis={})]"
    if pick == 1:
        fits = [_bagged("model.predict_proba(X_test)"), Fragment((f"prediction = {classes.format('prediction', 1)}",))]
    elif pick == 2:
        fits = [_fit_and("prediction = model.predict_proba(X_test).max(axis=1)")]
    elif pick == 3:
        fits = [_fit_and(f"prediction = {classes.format('model.predict_proba(X_test)', 0)}")]
    else:
        fits = [_fit_and("prediction = model.predict(X_test)")]
    return [*fits, Fragment((_table(goal), _SHOW if pick == 4 else _SAVE))]


LABELS = ("plain", "mean of 5 resamples", "another form", "wrong form", "not submitted")
"""What the options are called for every kind of goal, so that tasks with different metrics can share a policy."""

_PRIORS = (0.38, 0.26, 0.16, 0.10, 0.10)


def _output(render: Callable[[Goal, int], list[Fragment]], bugs: set[int], regression: tuple[bool, ...]) -> Output:
    options = tuple(
        Option(label, prior, bug=i in bugs) for i, (label, prior) in enumerate(zip(LABELS, _PRIORS, strict=True))
    )
    return Output(Choice("output", options), regression, render)


_NEVER, _ALWAYS = (False,) * 5, (True,) * 5

OUTPUTS: dict[GoalKind, Output] = {
    "ranking": _output(_ranking, {2, 3, 4}, _NEVER),
    "probabilities": _output(_probabilities, {2, 3, 4}, _NEVER),
    "ordinal": _output(_ordinal, {3, 4}, (True, True, False, False, True)),
    "number": _output(_number, {3, 4}, _ALWAYS),
    "label": _output(_label, {2, 3, 4}, _NEVER),
}
"""How answers are fitted and written, by kind of goal.

| option | ranking | probabilities | ordinal | number | label |
|---|---|---|---|---|---|
| another form | hard label | hard labels | class instead of number | through a logarithm | probability |
| wrong form | the other class | classes out of order | argmax over rows | left as a logarithm | argmax over rows |
| not submitted | not saved | without ids | not saved | not saved | not saved |
"""
