"""Solutions for small images: how pixels are cleaned and summarised, which model, how answers are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wmrl_envs.errors import TaskError
from wmrl_envs.research.designs.common import Choice, Fragment, Option, source
from wmrl_envs.research.designs.goal import Goal
from wmrl_envs.research.designs.output import OUTPUTS, RESAMPLED

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["ImageFamily"]

_CLEANING = Choice(
    "cleaning", (Option("none"), Option("black and white"), Option("centred"), Option("wrong array", 0.4, bug=True))
)
_FEATURES = Choice(
    "features",
    (
        Option("pixels"),
        Option("blocks of 2 by 2"),
        Option("blocks of 4 by 4"),
        Option("edges by direction"),
        Option("row and column sums", 0.6),
        Option("images as they are", 0.3, bug=True),
    ),
)
_REDUCTION = Choice(
    "reduction",
    (Option("none"), Option("standard scaling"), Option("30 components"), Option("too many components", 0.3, bug=True)),
)
_MODEL = Choice(
    "model",
    (
        Option("logistic, weak penalty"),
        Option("logistic, strong penalty"),
        Option("nearest 3"),
        Option("nearest 30"),
        Option("linear discriminant"),
        Option("naive Bayes"),
        Option("random forest"),
        Option("random forest, 20,000 trees", 0.4, bug=True),
        Option("support vectors"),
        Option("nearest centroid"),
    ),
)
_SEEDED = frozenset({6, 7})

_MODELS: tuple[tuple[str, str], ...] = (
    ("LogisticRegression(C=1, max_iter=60)", "sklearn.linear_model:LogisticRegression"),
    ("LogisticRegression(C=0.001, max_iter=60)", "sklearn.linear_model:LogisticRegression"),
    ("KNeighborsClassifier(n_neighbors=3)", "sklearn.neighbors:KNeighborsClassifier"),
    ("KNeighborsClassifier(n_neighbors=30)", "sklearn.neighbors:KNeighborsClassifier"),
    ("LinearDiscriminantAnalysis()", "sklearn.discriminant_analysis:LinearDiscriminantAnalysis"),
    ("GaussianNB()", "sklearn.naive_bayes:GaussianNB"),
    ("RandomForestClassifier(n_estimators=60)", "sklearn.ensemble:RandomForestClassifier"),
    ("RandomForestClassifier(n_estimators=20000)", "sklearn.ensemble:RandomForestClassifier"),
    ("SVC()", "sklearn.svm:SVC"),
    ("NearestCentroid()", "sklearn.neighbors:NearestCentroid"),
)

_CLEAN: dict[int, tuple[str, ...]] = {
    0: (),
    1: ("X, X_test = (X > 0.5).astype(float), (X_test > 0.5).astype(float)",),
    2: (
        "def centre(images):",
        "    grid = np.arange(images.shape[1])",
        "    weight = images.sum(axis=(1, 2)) + 1e-9",
        "    down = grid.mean() - (images.sum(axis=2) @ grid) / weight",
        "    right = grid.mean() - (images.sum(axis=1) @ grid) / weight",
        "    moves = zip(images, np.rint(down).astype(int), np.rint(right).astype(int))",
        "    return np.stack([np.roll(image, (d, r), axis=(0, 1)) for image, d, r in moves])",
        "",
        "X, X_test = centre(X), centre(X_test)",
    ),
    3: (),
}

_BLOCKS = (
    "def blocks(images):",
    "    n, rows, columns = images.shape",
    "    return images.reshape(n, rows // {0}, {0}, columns // {0}, {0}).mean(axis=(2, 4)).reshape(n, -1)",
    "",
    "X, X_test = blocks(X), blocks(X_test)",
)
_EDGES = (
    "def edges(images):",
    "    down, right = np.gradient(images, axis=(1, 2))",
    "    strength, angle = np.hypot(down, right), np.arctan2(down, right) % np.pi",
    "    parts = [strength * (angle // (np.pi / 4) == k) for k in range(4)]",
    "    n, rows, columns = images.shape",
    "    grid = [p.reshape(n, rows // {0}, {0}, columns // {0}, {0}).mean(axis=(2, 4)).reshape(n, -1) for p in parts]",
    "    return np.hstack(grid)",
    "",
    "X, X_test = edges(X), edges(X_test)",
)
_SUMS = (
    "X = np.hstack([X.sum(axis=1), X.sum(axis=2)])",
    "X_test = np.hstack([X_test.sum(axis=1), X_test.sum(axis=2)])",
)


class ImageFamily:
    """The solutions for one task about grey images that lie in ``.npz`` files.

    Args:
        goal: What the metric asks for and how a submission looks.
        files: Names of the files with training and test images, and of the array in them.
        block: Side of the larger blocks that pixels are averaged over.
        pixels: Pixels of one image.
    """

    def __init__(self, goal: Goal, files: tuple[str, str, str], block: int, pixels: int) -> None:
        self.goal, self.files, self.block, self.pixels = goal, files, block, pixels
        self._output = OUTPUTS[goal.kind]
        self.choices: tuple[Choice, ...] = (_CLEANING, _FEATURES, _REDUCTION, _MODEL, self._output.choice)

    @classmethod
    def of(cls, task: ResearchTask) -> ImageFamily:
        """Return the family for a task.

        Raises:
            TaskError: If the design does not say where the images are, or the metric is not about classes.
        """
        goal = Goal.of(task)
        images: dict[str, Any] = dict((task.design or {}).get("images", {}))
        missing = [name for name in ("train", "test", "array", "shape") if name not in images]
        if missing or goal.kind not in {"ranking", "probabilities", "label"}:
            raise TaskError(
                f"task {task.id!r}: the image family needs a metric of classes (got {task.metric.name}) and, in its "
                f'design, "images" with train, test, array and shape (lacks {", ".join(missing) or "none"})'
            )
        rows, columns = (int(side) for side in images["shape"])
        block = next((side for side in (4, 3, 2, 1) if rows % side == 0 and columns % side == 0), 1)
        files = (str(images["train"]), str(images["test"]), str(images["array"]))
        return cls(goal, files, block, rows * columns)

    def render(self, picks: Sequence[int]) -> str:
        """Return the source of one solution."""
        clean, features, reduce, model, output = (int(pick) for pick in picks)
        call, needs = _MODELS[model]
        return source(
            [
                self._read(clean),
                Fragment(_CLEAN[clean]),
                self._features(features),
                self._reduction(reduce),
                Fragment((f"model = {call}",), (needs,)),
                Fragment(("y = np.asarray(y)",)) if output == RESAMPLED else Fragment(),
                *self._output.render(self.goal, output),
            ]
        )

    def flawed(self, picks: Sequence[int]) -> bool:
        """Return whether the model gives no probabilities where they are averaged."""
        return int(picks[3]) in {8, 9} and int(picks[4]) == RESAMPLED

    def random(self, picks: Sequence[int]) -> bool:
        """Return whether the score depends on the seed."""
        return int(picks[3]) in _SEEDED or int(picks[4]) == RESAMPLED

    def _read(self, clean: int) -> Fragment:
        train, test, array = self.files
        name = f"{array}_raw" if clean == 3 else array
        lines = (
            self.goal.read("train"),
            self.goal.read("test"),
            f"y = {self.goal.target}",
            f'X = np.load("input/{train}")["{name}"] / 255',
            f'X_test = np.load("input/{test}")["{name}"] / 255',
        )
        return Fragment(lines, ("numpy as np", "pandas as pd"))

    def _features(self, pick: int) -> Fragment:
        small = min(2, self.block)
        lines: dict[int, tuple[str, ...]] = {
            0: ("X, X_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)",),
            1: tuple(line.replace("{0}", str(small)) for line in _BLOCKS),
            2: tuple(line.replace("{0}", str(self.block)) for line in _BLOCKS),
            3: tuple(line.replace("{0}", str(self.block)) for line in _EDGES),
            4: _SUMS,
            5: (),
        }
        return Fragment(lines[pick])

    def _reduction(self, pick: int) -> Fragment:
        if pick == 0:
            return Fragment()
        if pick == 1:
            lines = ("scaler = StandardScaler().fit(X)", "X, X_test = scaler.transform(X), scaler.transform(X_test)")
            return Fragment(lines, ("sklearn.preprocessing:StandardScaler",))
        # More components than numbers in an image: told from the sound option by the number alone.
        count = 30 if pick == 2 else self.pixels + 16
        lines = (f"reduction = PCA({count}).fit(X)", "X, X_test = reduction.transform(X), reduction.transform(X_test)")
        return Fragment(lines, ("sklearn.decomposition:PCA",))
