"""The models that tabular solutions choose from: one list for classes, one for numbers, in the same order."""

from __future__ import annotations

from wmrl_envs.research.designs.common import Choice, Fragment, Option

__all__ = ["MODELS", "NAN_TOLERANT", "SEEDED", "TOO_SLOW", "classifiers", "regressors"]

MODELS = Choice(
    "model",
    (
        Option("linear, weak penalty"),
        Option("linear, strong penalty"),
        Option("nearest 5"),
        Option("nearest 40"),
        Option("tree, depth 4"),
        Option("random forest"),
        Option("random forest, 20,000 trees", 0.5, bug=True),
        Option("extra trees"),
        Option("boosting, gentle"),
        Option("boosting, eager"),
        Option("support vectors"),
        Option("naive Bayes / Poisson"),
    ),
)
TOO_SLOW = 6
"""The model that no time limit of the bundled tasks allows: told from its neighbour by a number alone."""
NAN_TOLERANT = frozenset({4, 5, 6, 7, 8, 9})
"""Models that split on missing values instead of refusing them."""
SEEDED = frozenset({4, 5, 6, 7})
"""Models that draw random numbers (a single tree draws the order in which it tries tied splits)."""


def _model(call: str, *imports: str, lead: tuple[str, ...] = ()) -> Fragment:
    return Fragment((*lead, f"model = {call}"), imports)


def classifiers(trees: int) -> tuple[Fragment, ...]:
    """Return the models for classes, in the order of ``MODELS``; forests have ``trees`` trees."""
    return (
        _model("LogisticRegression(C=10, max_iter=300)", "sklearn.linear_model:LogisticRegression"),
        _model("LogisticRegression(C=0.02, max_iter=300)", "sklearn.linear_model:LogisticRegression"),
        _model("KNeighborsClassifier(n_neighbors=5)", "sklearn.neighbors:KNeighborsClassifier"),
        _model('KNeighborsClassifier(n_neighbors=40, weights="distance")', "sklearn.neighbors:KNeighborsClassifier"),
        _model("DecisionTreeClassifier(max_depth=4)", "sklearn.tree:DecisionTreeClassifier"),
        _model(f"RandomForestClassifier(n_estimators={trees})", "sklearn.ensemble:RandomForestClassifier"),
        _model("RandomForestClassifier(n_estimators=20000)", "sklearn.ensemble:RandomForestClassifier"),
        _model(
            f"ExtraTreesClassifier(n_estimators={trees}, min_samples_leaf=3)", "sklearn.ensemble:ExtraTreesClassifier"
        ),
        _model(
            "HistGradientBoostingClassifier(learning_rate=0.1, max_iter=45, max_leaf_nodes=8)",
            "sklearn.ensemble:HistGradientBoostingClassifier",
        ),
        _model(
            "HistGradientBoostingClassifier(learning_rate=0.4, max_iter=20)",
            "sklearn.ensemble:HistGradientBoostingClassifier",
        ),
        _model(
            "CalibratedClassifierCV(SVC(), cv=3, ensemble=False)",
            "sklearn.calibration:CalibratedClassifierCV",
            "sklearn.svm:SVC",
        ),
        _model("GaussianNB()", "sklearn.naive_bayes:GaussianNB"),
    )


def regressors(trees: int) -> tuple[Fragment, ...]:
    """Return the models for numbers, in the order of ``MODELS``; forests have ``trees`` trees."""
    return (
        _model("Ridge(alpha=0.1)", "sklearn.linear_model:Ridge"),
        _model("Ridge(alpha=300)", "sklearn.linear_model:Ridge"),
        _model("KNeighborsRegressor(n_neighbors=5)", "sklearn.neighbors:KNeighborsRegressor"),
        _model('KNeighborsRegressor(n_neighbors=40, weights="distance")', "sklearn.neighbors:KNeighborsRegressor"),
        _model("DecisionTreeRegressor(max_depth=4)", "sklearn.tree:DecisionTreeRegressor"),
        _model(f"RandomForestRegressor(n_estimators={trees})", "sklearn.ensemble:RandomForestRegressor"),
        _model("RandomForestRegressor(n_estimators=20000)", "sklearn.ensemble:RandomForestRegressor"),
        _model(
            f"ExtraTreesRegressor(n_estimators={trees}, min_samples_leaf=3)", "sklearn.ensemble:ExtraTreesRegressor"
        ),
        _model(
            "HistGradientBoostingRegressor(learning_rate=0.1, max_iter=80, max_leaf_nodes=8)",
            "sklearn.ensemble:HistGradientBoostingRegressor",
        ),
        _model(
            "HistGradientBoostingRegressor(learning_rate=0.4, max_iter=60)",
            "sklearn.ensemble:HistGradientBoostingRegressor",
        ),
        _model("SVR()", "sklearn.svm:SVR"),
        _model("PoissonRegressor(max_iter=300)", "sklearn.linear_model:PoissonRegressor"),
    )
