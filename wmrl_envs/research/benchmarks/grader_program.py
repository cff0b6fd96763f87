"""The program that grades: a benchmark's own code beside the private answers, apart from the trainer.

It is run by path and lives as long as whoever started it. Where the kernel can hold it to that, it may write to its own
folder alone and has no network, since graders parse what strangers wrote.

Its first argument is a JSON object: ``kind``, ``roots`` (folders to import from), ``code`` (the file with the
benchmark's code), ``function`` (its name in the file, or ``module:function``), ``answers`` and ``sample`` (paths),
``higher_is_better`` (what the trainer believes). It answers each line of its input, one JSON string with the path of a
submission, with one line:

- ``{"ready": true}`` once, before the first;
- ``{"score": number}``;
- ``{"invalid": reason}``: the submission cannot be graded; the reason tells nothing of the answers;
- ``{"broken": reason}``: the benchmark's files cannot be used.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import functools
import importlib
import importlib.util
import io
import json
import math
import os
import queue
import runpy
import shutil
import signal
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

SPARE_COLUMNS = 100
"""A submission may have twice the columns of the sample submission and these: with millions pandas takes hours."""


def _module_at(path: Path) -> types.ModuleType:
    """Import a file as a module of a package that is its folder, so that its relative imports work."""
    package = types.ModuleType("competition")
    package.__path__ = [str(path.parent)]
    sys.modules["competition"] = package
    spec = importlib.util.spec_from_file_location(f"competition.{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from wmrl_envs.research.benchmarks.other_answers import other_answers, told
else:
    _apart = _module_at(Path(__file__).resolve().with_name("other_answers.py"))
    other_answers, told = _apart.other_answers, _apart.told


class Broken(Exception):
    """The benchmark's own files cannot be used; the message names the file."""


class Invalid(Exception):
    """The submission cannot be graded; the message tells nothing of the answers."""


class Grader:
    """What is common to the benchmarks: the answers, and what is told of a submission that has no score."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Read the answers."""
        self.code, self.file = order["code"], Path(order["answers"])
        self.answers, self.header = _read_answers(self.file), _header(Path(order["sample"]))

    def score(self, path: Path, answers: Any) -> Any:
        """Return what the benchmark's code says of a submission, or raise what it raises."""
        raise NotImplementedError

    @functools.cached_property
    def others(self) -> list[Any]:
        """Two other sets of answers, to tell which words on a submission would be the same whatever they are."""
        return other_answers(self.answers, self.header[0] if self.header else None)

    def grade(self, path: Path) -> float:
        """Grade one submission."""
        _refuse_width(path, self.header)
        try:
            score = self.score(path, copy.deepcopy(self.answers))
        except (Broken, Invalid):
            raise
        except (Exception, SystemExit) as error:
            self._invalid(path, error)
        return _number(score, self.code)

    def _invalid(self, path: Path, error: BaseException) -> NoReturn:
        """Tell why: in the words of the benchmark's code where they are the same whatever the answers are."""
        verb, said = told(error)
        why = f"{Path(self.code).name} {verb}"
        try:
            same = bool(said) and all(self._told_on(path, other) == (verb, said) for other in self.others)
        except Exception:  # no other answers can be made of these: then nothing is told
            same = False
        raise Invalid(f"{why}: {said}" if same else why) from None

    def _told_on(self, path: Path, answers: Any) -> tuple[str, str] | None:
        try:
            self.score(path, copy.deepcopy(answers))
        except (Exception, SystemExit) as error:
            return told(error)
        return None


class MleBench(Grader):
    """``grade(submission, answers) -> float``, rounded to five places as mle-bench does."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Import the function."""
        super().__init__(order)
        module, _, name = order["function"].rpartition(":")
        with _blaming(self.code):
            loaded = importlib.import_module(module) if module else _module_at(Path(self.code))
        self._grade = getattr(loaded, name, None)
        if not callable(self._grade):
            raise Broken(f"{self.code} has no function {name!r}")

    def score(self, path: Path, answers: Any) -> Any:
        """Call the function."""
        return self._grade(_read_submission(path), answers)  # type: ignore[misc]

    def grade(self, path: Path) -> float:
        """Grade one submission."""
        return round(super().grade(path), 5)


class MleDojo(Grader):
    """A class with ``validate_submission(submission, answers)`` and ``evaluate(answers, submission)``."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Import the class, and make its object."""
        super().__init__(order)
        with _blaming(self.code):
            metrics = getattr(_module_at(Path(self.code)), order["function"], None)
            if not isinstance(metrics, type):
                raise Broken(f"{self.code} has no class {order['function']!r}")
            self._metric = metrics()
            higher = bool(self._metric.higher_is_better)
        if higher != order["higher_is_better"]:
            raise Broken(f"{self.code} says that higher_is_better is {higher}, the task's name says otherwise")

    def score(self, path: Path, answers: Any) -> Any:
        """Call both methods."""
        submission = _read_submission(path)
        verdict = self._metric.validate_submission(submission, answers)
        if isinstance(verdict, tuple) and verdict and verdict[0] is False:
            raise InvalidSubmissionError(verdict[1] if len(verdict) > 1 else "")
        return self._metric.evaluate(answers, submission)


class DSBench(Grader):
    """A script that writes its result to a file; it pairs rows by place, so they are put in order by id first."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Compile the script, and find the ids by which rows can be put in order."""
        super().__init__(order)
        self._table, self.answers = self.answers, self.file  # the script reads them itself
        with _blaming(self.code):
            compile(Path(self.code).read_bytes(), self.code, "exec")
        self._id, self._ids = _ids(self.file, Path(order["sample"]))

    @functools.cached_property
    def others(self) -> list[Any]:
        """As `Grader.others`, in files."""
        paths = [Path.cwd() / name for name in ("least.csv", "greatest.csv")]
        for path, table in zip(paths, other_answers(self._table, self.header[0] if self.header else None), strict=True):
            table.to_csv(path, index=False)
        return paths

    def score(self, path: Path, answers: Any) -> Any:
        """Run the script."""
        folder = Path(tempfile.mkdtemp(dir=path.parent))
        try:
            (folder / "one").mkdir()
            ordered = self._in_order(path, folder / path.name)
            options = {"path": folder, "name": "one", "answer_file": answers, "predict_file": ordered}
            before = sys.argv
            sys.argv = [self.code, *(text for name, value in options.items() for text in (f"--{name}", str(value)))]
            try:
                with contextlib.suppress(SystemExit):
                    runpy.run_path(self.code, run_name="__main__")
            finally:
                sys.argv = before
            result = folder / "one" / "result.txt"
            if not result.is_file():
                raise Broken(f"{self.code} wrote no result.txt")
            return result.read_text().strip()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _in_order(self, path: Path, target: Path) -> Path:
        if self._id is None:
            return path
        header, rows = _rows(path)
        if self._id not in header:
            raise Invalid(f"it has no column {self._id!r}")
        place = header.index(self._id)
        by_id = {row[place]: row for row in rows if len(row) > place}
        if len(by_id) != len(rows) or set(by_id) != set(self._ids):
            raise Invalid(f"column {self._id!r} must hold each id of the sample submission, exactly once")
        with target.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *(by_id[name] for name in self._ids)])
        return target


class InvalidSubmissionError(Exception):
    """What a metric rejected by its returned value."""


@contextlib.contextmanager
def _blaming(code: str) -> Iterator[None]:
    try:
        yield
    except Broken:
        raise
    except BaseException as error:  # a module may even exit
        package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        install = f"; install {package} for {sys.executable}" if package else ""
        raise Broken(f"{code} cannot be imported: {type(error).__name__}: {error}{install}") from None


def _read_table(path: Path) -> Any:
    import pandas as pd

    # What mle-bench asks for, and what newer versions do by themselves.
    exact: dict[str, Any] = (
        {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
    )
    try:
        return pd.read_csv(path, **exact)
    except pd.errors.EmptyDataError:
        return pd.DataFrame()


def _read_lines(path: Path) -> list[Any]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def _read_answers(path: Path) -> Any:
    try:
        answers = _read_lines(path) if path.suffix == ".jsonl" else _read_table(path)
    except Exception as error:
        form = "JSON lines" if path.suffix == ".jsonl" else "CSV"
        raise Broken(f"the answers {path} cannot be read as {form}: {type(error).__name__}") from None
    if not len(answers):
        raise Broken(f"the answers {path} are empty")
    return answers


def _read_submission(path: Path) -> Any:
    try:
        return _read_table(path)
    except Exception as error:
        raise Invalid(f"it cannot be read as CSV: {type(error).__name__}") from None


def _refuse_width(path: Path, header: list[str]) -> None:
    """Refuse a header or first row of a width that no submission has: pandas takes it for columns, or for an index."""
    most = 2 * len(header) + SPARE_COLUMNS if header else 100 * SPARE_COLUMNS
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            rows = csv.reader(file)
            width = max(len(next(rows, [])), len(next(rows, [])))
    except csv.Error as error:
        raise Invalid(f"it cannot be read as CSV: {error}") from None
    if width > most:
        raise Invalid(f"it has {width} columns, more than {most}")


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        rows = [row for row in csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise Invalid(f"it cannot be read as CSV: {type(error).__name__}") from None
    if not rows:
        raise Invalid("it is empty")
    return rows[0], rows[1:]


def _header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return next(csv.reader(file), []) if path.suffix == ".csv" else []
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def _ids(answers: Path, sample: Path) -> tuple[str | None, list[str]]:
    """Return the id column and the answers' ids in order; no column where they are not those of the sample."""
    header = _header(sample)
    try:
        names, rows = _rows(answers)
        if not header or header[0] not in names:
            return None, []
        place = names.index(header[0])
        ids = [row[place] for row in rows]
        wanted = [row[0] for row in _rows(sample)[1]]
    except (Invalid, IndexError, OSError):
        return None, []
    same = len(set(ids)) == len(ids) and sorted(ids) == sorted(wanted)
    return (header[0], ids) if same else (None, [])


def _number(score: Any, code: str) -> float:
    try:
        number = float(score)
    except OverflowError:
        raise Invalid("its score is too large for a number") from None
    except (TypeError, ValueError):
        raise Broken(f"{code} returned {type(score).__name__} {str(score)[:50]!r}, which is no score") from None
    if not math.isfinite(number):
        raise Invalid(f"its score is {number}")
    return number


KINDS: dict[str, Callable[[dict[str, Any]], Grader]] = {
    "mle-bench": MleBench,
    "mle-dojo": MleDojo,
    "dsbench": DSBench,
}


def main() -> None:
    """Answer requests until the input ends."""
    requests, replies = os.dup(0), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # a benchmark may print; that is no answer

    def reply(message: dict[str, Any]) -> None:
        if os.getpid() != itself:  # a grader forked, and its child came back: who asked awaits one answer
            os._exit(0)
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(requests, lines), daemon=True).start()
    csv.field_size_limit(sys.maxsize)  # the masks of an image are long
    order, itself = json.loads(sys.argv[1]), os.getpid()
    _confine(Path.cwd())
    # Before site-packages only where it is not there already: a backport in it must not hide a standard module.
    sys.path[:0] = [root for root in order["roots"] if root not in sys.path]
    try:
        grader = KINDS[order["kind"]](order)
    except Broken as error:
        reply({"broken": str(error)})
        return
    reply({"ready": True})
    while True:
        path = Path(json.loads(lines.get()))
        try:
            reply({"score": grader.grade(path)})
        except Invalid as error:
            reply({"invalid": str(error)})
        except Broken as error:
            reply({"broken": str(error)})


def _confine(folder: Path) -> None:
    """Take away writing elsewhere and the network, where this machine can."""
    try:
        confine = _module_at(Path(__file__).resolve().parents[1] / "sandbox" / "confine.py")
        writable = [(str(folder), "workshop"), ("/dev/shm", "scratch"), (os.devnull, "device")]
        confine.restrict_files([("/", "program"), *writable])
    except (ImportError, OSError):
        pass


def _listen(requests: int, lines: queue.Queue[str]) -> None:
    """Hand requests over; end the program with whoever started it, even while a grader runs."""
    with os.fdopen(requests, encoding="utf-8") as file:
        for line in file:
            lines.put(line)
    shutil.rmtree(Path.cwd(), ignore_errors=True)  # whoever started it may have died without doing so
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)  # with what a grader has started
    os._exit(0)


if __name__ == "__main__":
    main()
