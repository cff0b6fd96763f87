"""Handwritten solutions of the titanic task, and what each of them really does, told from its text."""

import itertools

from wmrl_envs.research.grading import Submission
from wmrl_envs.research.leaderboard import Leaderboard
from wmrl_envs.research.outcome import Outcome, Status, ladder_reward
from wmrl_envs.research.task import TASKS_DIR, ResearchTask

TASK = ResearchTask.load(
    TASKS_DIR / "titanic", Leaderboard(train=[0.6, 0.7], report=[0.6, 0.7], greater_is_better=True)
)

COLUMNS = ['["age", "fare"]', '["age", "fare", "pclass"]', '["age", "Fare"]', '["sex", "fare"]']
GAPS = ["", ".fillna(0)", ".fillna(train.median(numeric_only=True))", ".dropna(axis=1)"]
MODELS = ["LogisticRegression", "GaussianNB", "KNeighborsClassifier", "DecisionTreeClassifier"]
SAVES = ['.to_csv("submission.csv", index=False)', ".describe()"]
TEMPLATE = """import pandas as pd
from sklearn.{module} import {model}

train, test = pd.read_csv("input/train.csv"), pd.read_csv("input/test.csv")
columns = {columns}
X, X_test = train[columns]{gaps}, test[columns]{gaps}
model = {model}().fit(X, train["survived"])
pd.DataFrame({{"id": test["id"], "survived": model.predict_proba(X_test)[:, {axis}]}}){save}
"""
_MODULES = dict(zip(MODELS, ["linear_model", "naive_bayes", "neighbors", "tree"], strict=True))


def codes() -> list[str]:
    """All 256 solutions; the probability's axis is a number that no feature shows."""
    return [
        TEMPLATE.format(module=_MODULES[model], model=model, columns=columns, gaps=gaps, axis=axis, save=save)
        for axis, columns, gaps, model, save in itertools.product((1, 0), COLUMNS, GAPS, MODELS, SAVES)
    ]


def outcome(code: str) -> Outcome:
    """What running a solution returns; positions are made up, everything else is what happens."""
    if '"Fare"' in code or '"sex"' in code:
        missing = "Fare" if '"Fare"' in code else "sex"
        feedback = f"KeyError: '{missing}'" if missing == "Fare" else "ValueError: could not convert string to float"
        return Outcome(
            status=Status.RUNTIME_ERROR,
            reward=ladder_reward(Status.RUNTIME_ERROR),
            feedback=feedback,
            error_type=feedback.split(":")[0],
            error_line=6,
            seconds=0.05,
        )
    if "fillna" not in code and "Tree" not in code:
        return Outcome(
            status=Status.RUNTIME_ERROR, reward=0.1, feedback="ValueError: Input X contains NaN", seconds=0.05
        )
    if "describe" in code:
        return Outcome(status=Status.NO_SUBMISSION, reward=0.2, feedback="no submission.csv was written", seconds=0.1)
    position = 0.0 if "[:, 0]" in code else 0.3 + 0.2 * ("pclass" in code) + 0.1 * MODELS.index(_model(code))
    reward = ladder_reward(Status.VALID, position)
    return Outcome(status=Status.VALID, reward=reward, position=position, score=0.7, feedback="scored", seconds=0.1)


def _model(code: str) -> str:
    return next(model for model in MODELS if f" = {model}()" in code)


def submissions(count: int | None = None, start: int = 0) -> list[Submission]:
    """Solutions spread over all 256."""
    every = codes()
    order = [every[(index * 101) % len(every)] for index in range(len(every))]
    return [Submission(TASK, code, seed) for seed, code in enumerate(order[start:][:count])]


def outcomes(batch: list[Submission]) -> list[Outcome]:
    return [outcome(submission.code) for submission in batch]
