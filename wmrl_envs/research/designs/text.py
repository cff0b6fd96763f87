"""Solutions for short texts: how they are cleaned and turned into counts, which model, how answers are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wmrl_envs.errors import TaskError
from wmrl_envs.research.designs.common import Choice, Fragment, Option, source
from wmrl_envs.research.designs.goal import Goal
from wmrl_envs.research.designs.output import OUTPUTS, RESAMPLED

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["TextFamily"]

_CLEANING = Choice(
    "cleaning", (Option("none"), Option("lower case"), Option("marked ends"), Option("wrong column", 0.4, bug=True))
)
_CLEANING_BUG = 3
_UNITS = Choice(
    "units",
    (
        Option("letters, 1 to 2"),
        Option("letters, 1 to 3"),
        Option("letters within words, 2 to 4"),
        Option("words", 0.4),
        Option("last letters"),
        Option("lengths and vowels", 0.6),
    ),
)
_WEIGHTS = Choice("weights", (Option("counts"), Option("presence"), Option("tf-idf")))
_PRUNING = Choice(
    "pruning", (Option("none"), Option("units of 3 texts or more"), Option("units of too many texts", 0.3, bug=True))
)
_MODEL = Choice(
    "model",
    (
        Option("logistic, weak penalty"),
        Option("logistic, strong penalty"),
        Option("multinomial Bayes"),
        Option("Bernoulli Bayes"),
        Option("nearest 15"),
        Option("random forest"),
        Option("random forest, 20,000 trees", 0.4, bug=True),
        Option("linear support vectors", 0.5, bug=True),
    ),
)
_SEEDED = frozenset({5, 6, 7})

_MODELS: tuple[tuple[str, str], ...] = (
    ("LogisticRegression(C=10, max_iter=300)", "sklearn.linear_model:LogisticRegression"),
    ("LogisticRegression(C=0.1, max_iter=300)", "sklearn.linear_model:LogisticRegression"),
    ("MultinomialNB()", "sklearn.naive_bayes:MultinomialNB"),
    ("BernoulliNB()", "sklearn.naive_bayes:BernoulliNB"),
    ("KNeighborsClassifier(n_neighbors=15)", "sklearn.neighbors:KNeighborsClassifier"),
    ("RandomForestClassifier(n_estimators=20, max_depth=20)", "sklearn.ensemble:RandomForestClassifier"),
    ("RandomForestClassifier(n_estimators=20000, max_depth=20)", "sklearn.ensemble:RandomForestClassifier"),
    ("LinearSVC()", "sklearn.svm:LinearSVC"),
)

_ANALYSERS = (
    'analyzer="char", ngram_range=(1, 2)',
    'analyzer="char", ngram_range=(1, 3)',
    'analyzer="char_wb", ngram_range=(2, 4)',
    'analyzer="word"',
)

_ENDINGS = (
    "def endings(texts):",
    '    return [{f"last_{n}": text[-n:] for n in (1, 2, 3)} | {"first": text[:1]} for text in texts]',
)
_SHAPE = (
    "def shape(texts):",
    "    texts = [text.lower() for text in texts]",
    '    vowels = [sum(text.count(vowel) for vowel in "aeiouy") for text in texts]',
    '    return [{"length": len(text), "vowels": n, "end": text[-1:]} for text, n in zip(texts, vowels)]',
)


class TextFamily:
    """The solutions for one task about a column of short texts.

    Args:
        goal: What the metric asks for and how a submission looks.
        column: The column of texts.
        rows: Number of training rows.
    """

    def __init__(self, goal: Goal, column: str, rows: int) -> None:
        self.goal, self.column, self.rows = goal, column, rows
        self._output = OUTPUTS[goal.kind]
        self.choices: tuple[Choice, ...] = (_CLEANING, _UNITS, _WEIGHTS, _PRUNING, _MODEL, self._output.choice)

    @classmethod
    def of(cls, task: ResearchTask) -> TextFamily:
        """Return the family for a task.

        Raises:
            TaskError: If the task has no text column, or asks for something else than classes.
        """
        goal, design = Goal.of(task), task.design or {}
        strings = [column.name for column in task.inventory.features if column.dtype == "string"]
        column = (list(design.get("text", ())) or strings or [""])[0]
        if column not in strings or goal.kind not in {"ranking", "probabilities", "label"}:
            raise TaskError(
                f"task {task.id!r}: the text family needs a text column and a metric of classes; the design names "
                f"{column!r}, the text columns are {', '.join(strings) or 'none'}, the metric is {task.metric.name}"
            )
        return cls(goal, column, task.inventory.train_rows)

    def render(self, picks: Sequence[int]) -> str:
        """Return the source of one solution."""
        clean, unit, weight, prune, model, output = (int(pick) for pick in picks)
        call, needs = _MODELS[model]
        return source(
            [
                self._read(clean),
                self._vectorize(unit, weight, prune),
                Fragment((f"model = {call}",), (needs,)),
                Fragment(("y = np.asarray(y)",)) if output == RESAMPLED else Fragment(),
                *self._output.render(self.goal, output),
            ]
        )

    def flawed(self, picks: Sequence[int]) -> bool:
        """Return whether pruning would leave no words: most texts of one word are unlike any other."""
        return int(picks[1]) == 3 and int(picks[3]) != 0

    def random(self, picks: Sequence[int]) -> bool:
        """Return whether the score depends on the seed."""
        return int(picks[4]) in _SEEDED or int(picks[5]) == RESAMPLED

    def _read(self, clean: int) -> Fragment:
        goal = self.goal
        name = self.column.title() if self.column.title() != self.column else self.column.swapcase()
        column = name if clean == _CLEANING_BUG else self.column
        lines = [
            goal.read("train", "keep_default_na=False"),
            goal.read("test", "keep_default_na=False"),
            f"y = {goal.target}",
            f'texts, texts_test = train["{column}"], test["{column}"]',
        ]
        if clean == 1:
            lines.append("texts, texts_test = texts.str.lower(), texts_test.str.lower()")
        elif clean == 2:
            lines.append('texts, texts_test = "^" + texts + "$", "^" + texts_test + "$"')
        return Fragment(tuple(lines), ("numpy as np", "pandas as pd"))

    def _vectorize(self, unit: int, weight: int, prune: int) -> Fragment:
        least = {0: "", 1: ", min_df=3", 2: f", min_df={max(self.rows, 20)}"}[prune]
        if unit < 4:
            name = "TfidfVectorizer" if weight == 2 else "CountVectorizer"
            binary = ", binary=True" if weight == 1 else ""
            lines: tuple[str, ...] = (f"vectorizer = {name}({_ANALYSERS[unit]}{binary}{least})",)
            imports = [f"sklearn.feature_extraction.text:{name}"]
            takes = ("texts", "texts_test")
        else:
            function, define = ("endings", _ENDINGS) if unit == 4 else ("shape", _SHAPE)
            lines = (*define, "", "vectorizer = DictVectorizer()")
            imports = ["sklearn.feature_extraction:DictVectorizer"]
            takes = (f"{function}(texts)", f"{function}(texts_test)")
        lines += (f"X = vectorizer.fit_transform({takes[0]})", f"X_test = vectorizer.transform({takes[1]})")
        if unit >= 4:
            lines += self._dictionary(weight, prune, imports)
        return Fragment(lines, tuple(imports))

    def _dictionary(self, weight: int, prune: int, imports: list[str]) -> tuple[str, ...]:
        lines: tuple[str, ...] = ()
        if prune:
            least = 3 if prune == 1 else max(self.rows, 20)
            lines += (
                f"often = np.asarray((X != 0).sum(axis=0)).ravel() >= {least + (prune == 2)}",
                "X, X_test = X[:, often], X_test[:, often]",
            )
        if weight == 1:
            lines += ("X, X_test = (X != 0).astype(float), (X_test != 0).astype(float)",)
        elif weight == 2:
            imports.append("sklearn.feature_extraction.text:TfidfTransformer")
            lines += ("scaler = TfidfTransformer().fit(X)", "X, X_test = scaler.transform(X), scaler.transform(X_test)")
        return lines
