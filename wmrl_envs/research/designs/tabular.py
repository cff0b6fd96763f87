"""Solutions for tables: how values are cleaned, encoded and scaled, which features and model, how answers are written.

One family serves AUC, log-loss, ordinal and regression tasks; the task's metric decides what a model predicts. Every
solution draws from numpy's global generator where it draws at all, which the sandbox seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wmrl_envs.research.designs.common import Choice, Fragment, Option, assignment, literal, source
from wmrl_envs.research.designs.goal import Goal
from wmrl_envs.research.designs.output import OUTPUTS, RESAMPLED
from wmrl_envs.research.designs.recipes import Recipe
from wmrl_envs.research.designs.tabular_models import MODELS, NAN_TOLERANT, SEEDED, classifiers, regressors

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["TabularFamily"]

_GAPS = Choice(
    "cleaning", (Option("none", 0.12), Option("fill, or clip tails", 0.46), Option("flag, or log of skewed", 0.42))
)
_TAILS = Choice("cleaning", tuple(Option(option.label) for option in _GAPS.options))
_ENCODING = Choice(
    "encoding",
    (
        Option("strings left", 0.06, bug=True),
        Option("ordinal", 0.47),
        Option("one-hot", 0.47),
    ),
)
_SCALING = Choice("scaling", (Option("none"), Option("standard")))
_FEATURES = Choice(
    "features",
    (
        Option("as given", 0.40),
        Option("engineered", 0.24),
        Option("engineered, with products", 0.18),
        Option("engineered, bins that end early", 0.09, bug=True),
        Option("engineered, misspelt column", 0.09, bug=True),
    ),
)


class TabularFamily:
    """The tabular solutions for one task.

    Args:
        goal: What the metric asks for and how a submission looks.
        recipe: The task's columns and engineered features.
        gaps: Whether values are missing in the columns the recipe names; without gaps cleaning is about outliers.
        rows: Number of training rows: the forests of larger tables have fewer trees.
    """

    def __init__(self, goal: Goal, recipe: Recipe, gaps: bool, rows: int) -> None:
        self.goal, self.recipe, self.gaps = goal, recipe, gaps
        self.choices: tuple[Choice, ...] = (
            _GAPS if gaps else _TAILS,
            _ENCODING,
            _SCALING,
            _FEATURES,
            MODELS,
            OUTPUTS[goal.kind].choice,
        )
        self._output = OUTPUTS[goal.kind]
        trees = 10 * min(8, max(3, 12000 // max(rows, 1)))
        self._classifiers, self._regressors = classifiers(trees), regressors(trees)
        self._parts = [
            [self._cleaning(pick) for pick in range(3)],
            [self._encoding(pick) for pick in range(3)],
            [self._scaling(pick) for pick in range(2)],
            [self._features(pick) for pick in range(5)],
        ]
        self._reading = self._read()

    @classmethod
    def of(cls, task: ResearchTask) -> TabularFamily:
        """Return the family for a task.

        Raises:
            TaskError: If the task is not about one label or number of a table.
        """
        recipe, inventory = Recipe.of(task), task.inventory
        used = {*recipe.numeric, *recipe.categorical}
        gaps = any(column.n_missing for column in inventory.columns if column.name in used)
        return cls(Goal.of(task), recipe, gaps, inventory.train_rows)

    def render(self, picks: Sequence[int]) -> str:
        """Return the source of one solution."""
        clean, encode, scale, features, model, output = (int(pick) for pick in picks)
        models = self._regressors if self._output.regression[output] else self._classifiers
        return source(
            [
                self._reading,
                self._parts[0][clean],
                self._parts[3][features],
                self._parts[1][encode],
                self._parts[2][scale],
                models[model],
                _ARRAYS if output == RESAMPLED else Fragment(),
                *self._output.render(self.goal, output),
            ]
        )

    def flawed(self, picks: Sequence[int]) -> bool:
        """Return whether gaps reach something that cannot take them."""
        clean, _, _, features, model, _ = (int(pick) for pick in picks)
        return self.gaps and clean == 0 and (features != 0 or model not in NAN_TOLERANT)

    def random(self, picks: Sequence[int]) -> bool:
        """Return whether the score depends on the seed: by the model, or by resampled rows."""
        return int(picks[4]) in SEEDED or int(picks[5]) == RESAMPLED

    def _read(self) -> Fragment:
        recipe = self.recipe
        lines = [
            self.goal.read("train"),
            self.goal.read("test"),
            f"y = {self.goal.target}",
            f'X = train.drop(columns=["{self.goal.identifier}", "{self.goal.label}"])',
            f'X_test = test.drop(columns=["{self.goal.identifier}"])',
            *assignment("numeric", recipe.numeric),
        ]
        if recipe.categorical:
            lines += assignment("categorical", recipe.categorical)
        return Fragment(tuple(lines), ("numpy as np", "pandas as pd"))

    def _cleaning(self, pick: int) -> Fragment:
        if pick == 0:
            return Fragment()
        return Fragment(_GAP_LINES[pick] if self.gaps else _TAIL_LINES[pick])

    def _features(self, pick: int) -> Fragment:
        if pick == 0:
            return Fragment()
        recipe = self.recipe
        edges = recipe.narrow if pick == 3 else recipe.edges
        lines = [f"    {line}" for line in recipe.lines]
        if pick == 4:
            lines = [line.replace(f'"{recipe.misspelt[0]}"', f'"{recipe.misspelt[1]}"') for line in lines]
        band = f"{recipe.band}_band"
        lines.append(
            f'    frame["{band}"] = pd.cut(frame["{recipe.band}"], {literal(edges)}, labels=False).astype(int)'
        )
        added = [f"numeric += {literal([*recipe.new_numeric, band])}"]
        if recipe.new_categorical:
            added.append(f"categorical += {literal(recipe.new_categorical)}")
        if pick == 2:
            added += _PRODUCTS
        imports = ("itertools:combinations",) if pick == 2 else ()
        return Fragment(("# Derived features", "for frame in (X, X_test):", *lines, *added), imports)

    def _encoding(self, pick: int) -> Fragment:
        if pick == 0:
            return Fragment(("X, X_test = X[numeric + categorical], X_test[numeric + categorical]",))
        if pick == 1:
            create = 'encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)'
            name = "OrdinalEncoder"
        else:
            create = 'encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)'
            name = "OneHotEncoder"
        return Fragment(
            (
                "# Text columns as numbers",
                create,
                "encoded = encoder.fit_transform(X[categorical])",
                "encoded_test = encoder.transform(X_test[categorical])",
                "X = np.hstack([X[numeric].to_numpy(float), encoded])",
                "X_test = np.hstack([X_test[numeric].to_numpy(float), encoded_test])",
            ),
            (f"sklearn.preprocessing:{name}",),
        )

    def _scaling(self, pick: int) -> Fragment:
        if pick == 0:
            return Fragment()
        lines = ("scaler = StandardScaler().fit(X)", "X, X_test = scaler.transform(X), scaler.transform(X_test)")
        return Fragment(lines, ("sklearn.preprocessing:StandardScaler",))


_ARRAYS = Fragment(("X, X_test, y = np.asarray(X), np.asarray(X_test), np.asarray(y)",))
_PRODUCTS = (
    "# Products of the first columns",
    "for first, second in combinations(numeric[:4], 2):",
    '    name = first + "_" + second',
    "    X[name], X_test[name] = X[first] * X[second], X_test[first] * X_test[second]",
    "    numeric.append(name)",
)
_GAP_LINES = {
    1: (
        "# Missing values: the middle or the most common one",
        "for column in numeric:",
        "    middle = X[column].median()",
        "    X[column], X_test[column] = X[column].fillna(middle), X_test[column].fillna(middle)",
        "for column in categorical:",
        "    common = X[column].mode()[0]",
        "    X[column], X_test[column] = X[column].fillna(common), X_test[column].fillna(common)",
    ),
    2: (
        "# Missing values: flagged, and filled with a value of their own",
        "for column in list(numeric):",
        "    if X[column].isna().any():",
        '        X[column + "_missing"] = X[column].isna().astype(int)',
        '        X_test[column + "_missing"] = X_test[column].isna().astype(int)',
        '        numeric.append(column + "_missing")',
        "    X[column], X_test[column] = X[column].fillna(-1), X_test[column].fillna(-1)",
        "for column in categorical:",
        '    X[column], X_test[column] = X[column].fillna("missing"), X_test[column].fillna("missing")',
    ),
}
_TAIL_LINES = {
    1: (
        "# Outliers: clipped to what 98 % of the training rows span",
        "low, high = X[numeric].quantile(0.01), X[numeric].quantile(0.99)",
        "X[numeric] = X[numeric].clip(low, high, axis=1)",
        "X_test[numeric] = X_test[numeric].clip(low, high, axis=1)",
    ),
    2: (
        "# Skewed columns: on a logarithmic scale",
        "for column in numeric:",
        "    if X[column].min() >= 0 and X[column].skew() > 1:",
        "        X[column], X_test[column] = np.log1p(X[column]), np.log1p(X_test[column])",
    ),
}
