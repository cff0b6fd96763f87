"""MLE-Dojo's competitions, as its ``prepare`` scripts leave them.

```
DIR/<id>/data/public/     description.txt, sample_submission.csv and the data; a solution finds them in ./input
DIR/<id>/data/private/    test_answer.csv, private_leaderboard.csv and public_leaderboard.csv (one of the two suffices)
metric.py                 DIR/<id>/utils/metric.py, or else that of the installed package ``mledojo``
```

The direction is what the class in ``metric.py`` states: the default of its argument ``higher_is_better``, or what it
hands to its base class. It is read from the source, and the grading process checks that the object says the same. A
class that states it in another way needs ``?direction=higher`` or ``?direction=lower`` at the end of the task's name.

A score's place on a board of N is the first whose score it reaches or beats, N + 1 if there is none; its position is
(N - place + 1) / N, and the mean over the boards there are.
"""

from __future__ import annotations

import ast
from pathlib import Path

from wmrl_envs.errors import TaskError
from wmrl_envs.research.benchmarks.boards import MeanOfBoards, read_scores
from wmrl_envs.research.benchmarks.place import (
    Place,
    package_folder,
    read_text,
    refuse_pointer,
    unknown_competition,
)
from wmrl_envs.research.benchmarks.process import GradingOrder
from wmrl_envs.research.benchmarks.scorer import BenchmarkScorer
from wmrl_envs.research.leaderboard import Leaderboard
from wmrl_envs.research.metrics import external_metric
from wmrl_envs.research.task import ResearchTask

__all__ = ["BOARDS", "INSTALL", "competitions", "is_benchmark", "load_task"]

INSTALL = "pip install git+https://github.com/MLE-Dojo/MLE-Dojo"
BOARDS = ("private_leaderboard.csv", "public_leaderboard.csv")


def is_benchmark(folder: Path) -> bool:
    """Return whether a folder holds prepared competitions of MLE-Dojo."""
    return any(folder.glob("*/data/public"))


def competitions(folder: Path) -> list[str]:
    """Return the ids of the prepared competitions in a folder, sorted."""
    return sorted(path.parent.parent.name for path in folder.glob("*/data/public") if path.is_dir())


def load_task(text: str) -> ResearchTask:
    """Open a competition: ``DIR/ID``, with options as `Place` reads them.

    Raises:
        UnknownTaskError: If it is not prepared there.
        TaskError: If one of its files is missing, a Git-LFS pointer, or cannot be used; the message names it.
    """
    place = Place.parse(text)
    data = place.folder / place.id / "data"
    if not (data / "public").is_dir():
        raise unknown_competition("MLE-Dojo", place, competitions, f"{place.id}/data/public/")
    package = package_folder("mledojo")
    code = _metric_file(place, package)
    name, stated = _metric_class(code)
    greater = stated if place.greater_is_better is None else place.greater_is_better
    if greater is None:
        raise TaskError(
            f"{code} does not say by a constant whether higher is better; say it by the end of the task's name: "
            f"?direction=higher or ?direction=lower"
        )
    answers, sample = data / "private" / "test_answer.csv", data / "public" / "sample_submission.csv"
    refuse_pointer(answers, "the answers")
    return ResearchTask(
        id=place.id,
        title=place.id.replace("-", " "),
        kind="competition",
        metric=external_metric(name, greater),
        description=read_text(data / "public" / "description.txt", "the description"),
        folder=data.resolve(),
        limits=place.limits,
        leaderboard=MeanOfBoards(_boards(data / "private", greater)),
        scorer=BenchmarkScorer.of(
            GradingOrder(
                kind="mle-dojo",
                code=str(code),
                function=name,
                answers=str(answers),
                sample=str(sample),
                roots=(str(package.parent),) if package is not None else (),
                higher_is_better=greater,
            ),
            data / "public",
        ),
        source=f"MLE-Dojo, {place.id}",
    )


def _metric_file(place: Place, package: Path | None) -> Path:
    places = [place.folder / place.id / "utils" / "metric.py"]
    if package is not None:
        places.append(package / "competitions" / place.id / "utils" / "metric.py")
    for path in places:
        if path.is_file():
            refuse_pointer(path, "the metric")
            return path
    install = "" if package is not None else f"; the package that holds it comes by `{INSTALL}`"
    raise TaskError(f"metric.py is missing: it is at none of {', '.join(map(str, places))}{install}")


def _metric_class(path: Path) -> tuple[str, bool | None]:
    """Return the name of the metric's class, as MLE-Dojo chooses it, and the direction that its source states."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TaskError(f"{path} is no Python: {error}") from error
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.endswith("Metrics")]
    classes = [node for node in classes if node.name != "CompetitionMetrics"]  # the base class
    if not classes:
        raise TaskError(f"{path} has no class whose name ends in 'Metrics'")
    chosen = min(classes, key=lambda node: node.name)
    return chosen.name, _stated_direction(chosen)


def _stated_direction(metrics: ast.ClassDef) -> bool | None:
    constructor = next((n for n in metrics.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if constructor is None:
        return None
    arguments = constructor.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    named = [*zip(positional, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    stated = [value for argument, value in named if argument.arg == "higher_is_better"]
    if not stated:
        calls = [node for node in ast.walk(constructor) if isinstance(node, ast.Call) and _is_base(node.func)]
        stated = [value for call in calls for value in (*call.args, *(k.value for k in call.keywords))]
    value = stated[0] if len(stated) == 1 else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, bool) else None


def _is_base(function: ast.expr) -> bool:
    """Return whether a call is that of the base class's constructor."""
    return isinstance(function, ast.Attribute) and function.attr == "__init__"


def _boards(private: Path, greater: bool) -> list[Leaderboard]:
    found = [private / name for name in BOARDS if (private / name).is_file()]
    if not found:
        raise TaskError(f"{private} holds no leaderboard, neither {BOARDS[0]} nor {BOARDS[1]}")
    scores = [read_scores(path) for path in found]
    return [Leaderboard(board, board, greater) for board in scores]
