"""DSBench's data-modelling tasks, as its archive unpacks beside its scripts.

```
DIR/data.json                             one JSON object a line, with the names of the tasks
DIR/data/task/<id>.txt                    the description
DIR/data/data_resplit/<id>/               train.csv, test.csv, sample_submission.csv; a solution finds them in ./input
DIR/data/answers/<id>/test_answer.csv     the answers
DIR/evaluation/<id>_eval.py               the script that scores
DIR/save_performance/{baseline,GT}/<id>/result.txt   the baseline's and the best known result (or in the .zip)
```

DIR may also be the clone around it, or the folder ``data`` in it. A score p has position max(0, (p - b) / (g - b)), cut
at 1 for the reward, b being the baseline's and g the best known result; which of the two is greater is the direction,
as in DSBench.

DSBench's scripts pair the rows of a submission with the answers by their places. Here a submission is put in the order
of the answers by its ids first, and must hold each id of the sample submission once, wherever the sample submission
and the answers have the same ids in a column of one name.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

from wmrl_envs.errors import TaskError
from wmrl_envs.research.benchmarks.place import Place, read_text, refuse_pointer, unknown_competition
from wmrl_envs.research.benchmarks.process import GradingOrder
from wmrl_envs.research.benchmarks.scorer import BenchmarkScorer
from wmrl_envs.research.leaderboard import ScoreScale
from wmrl_envs.research.metrics import external_metric
from wmrl_envs.research.task import ResearchTask

__all__ = ["DSBenchTask", "competitions", "is_benchmark", "load_task"]

_RESULTS = "save_performance"


@dataclass(frozen=True, eq=False, kw_only=True)
class DSBenchTask(ResearchTask):
    """A task of DSBench: its folder is the public one, the answers lie elsewhere."""

    @property
    def public(self) -> Path:
        """The folder that a solution finds as ``./input``."""
        return self.folder


def _data(folder: Path) -> tuple[Path, Path]:
    """Return the folders that hold the scripts and the data."""
    if (folder / "data_resplit").is_dir():
        return folder.parent, folder
    root = folder / "data_modeling" if (folder / "data_modeling").is_dir() else folder
    return root, root / "data"


def is_benchmark(folder: Path) -> bool:
    """Return whether a folder holds DSBench's data-modelling tasks."""
    return (_data(folder)[1] / "data_resplit").is_dir()


def competitions(folder: Path) -> list[str]:
    """Return the ids of the tasks whose data is there: in the order of ``data.json`` if there is one, else sorted."""
    root, data = _data(folder)
    there = sorted(path.name for path in (data / "data_resplit").glob("*") if path.is_dir())
    listed = [name for name in _names(root / "data.json") if name in there]
    return [*listed, *(name for name in there if name not in listed)]


def _names(path: Path) -> list[str]:
    if not path.is_file():
        return []
    try:
        lines = [json.loads(line) for line in read_text(path, "the list of tasks").splitlines() if line.strip()]
        return [str(line["name"]) for line in lines]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TaskError(f"{path} must hold one JSON object with a name in each line: {error}") from error


def load_task(text: str) -> ResearchTask:
    """Open a task: ``DIR/ID``, with options as `Place` reads them (``direction`` is not one here).

    Raises:
        UnknownTaskError: If it is not there.
        TaskError: If one of its files is missing, a Git-LFS pointer, or cannot be used; the message names it.
    """
    place = Place.parse(text)
    root, data = _data(place.folder)
    public = data / "data_resplit" / place.id
    if not public.is_dir():
        raise unknown_competition("DSBench", place, competitions, f"data/data_resplit/{place.id}/")
    baseline, best = (_result(root, which, place.id) for which in ("baseline", "GT"))
    try:
        scale = ScoreScale(baseline, best)
    except TaskError as error:
        raise TaskError(f"the results of the baseline and GT in {root / _RESULTS} cannot be used: {error}") from error
    greater = best > baseline
    if place.greater_is_better not in (None, greater):
        raise TaskError(
            f"the best known result of {place.id} is {best:g}, the baseline's {baseline:g}: that states the direction"
        )
    code, answers = root / "evaluation" / f"{place.id}_eval.py", data / "answers" / place.id / "test_answer.csv"
    refuse_pointer(code, "the script that scores")
    refuse_pointer(answers, "the answers")
    return DSBenchTask(
        id=place.id,
        title=place.id.replace("-", " "),
        kind="competition",
        metric=external_metric(f"{place.id}'s own metric", greater),
        description=read_text(data / "task" / f"{place.id}.txt", "the description"),
        folder=public.resolve(),
        limits=place.limits,
        leaderboard=scale,
        scorer=BenchmarkScorer.of(
            GradingOrder(
                kind="dsbench",
                code=str(code),
                answers=str(answers),
                sample=str(public / "sample_submission.csv"),
                higher_is_better=greater,
            ),
            public,
        ),
        source=f"DSBench, {place.id}",
    )


def _result(root: Path, which: str, name: str) -> float:
    path, archive = root / _RESULTS / which / name / "result.txt", root / f"{_RESULTS}.zip"
    try:
        if path.is_file() or not archive.is_file():
            text = read_text(path, f"{which}'s result")
        else:
            refuse_pointer(archive, "the archive of results")
            with zipfile.ZipFile(archive) as opened:
                text = opened.read(f"{_RESULTS}/{which}/{name}/result.txt").decode()
    except (OSError, RuntimeError, UnicodeDecodeError, zipfile.BadZipFile, KeyError) as error:
        raise TaskError(f"cannot read {which}'s result {path}, nor in {archive}: {error}") from error
    try:
        return float(text.strip())
    except ValueError:
        raise TaskError(f"{path} must hold one number, got {text.strip()[:50]!r}") from None
