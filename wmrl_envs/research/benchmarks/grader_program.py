"""The program that grades: a benchmark's own code beside the private answers, apart from the trainer.

It is run by path and lives as long as whoever started it. Where the kernel can hold it to that, it may write to its own
folder alone and has no network, since graders parse what strangers wrote.

Its first argument is a JSON object: ``kind``, ``roots`` (folders put before sys.path), ``code`` (the file with the
benchmark's code), ``function`` (its name in the file, or ``module:function``), ``answers`` and ``sample`` (paths),
``higher_is_better`` (what the trainer believes). It answers each line of its input, one JSON string with the path of a
submission, with one line:

- ``{"ready": true}`` once, before the first;
- ``{"score": number}``;
- ``{"invalid": reason}``: the submission cannot be graded; the reason quotes no answer;
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
import re
import runpy
import shutil
import signal
import sys
import tempfile
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_REASON = 300
"""Longest reason, in characters."""
_TOKEN = re.compile(r"[^\s,;:'\"()\[\]{}<>=`]+")
_GROUP = re.compile(r"\[[^\[\]]*\]|\{[^{}]*\}|\([^()]*\)")


class Broken(Exception):
    """The benchmark's own files cannot be used; the message names the file."""


class Invalid(Exception):
    """The submission cannot be graded; the message quotes no answer."""


class MleBench:
    """``grade(submission, answers) -> float``, rounded to five places as mle-bench does."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Import the function and read the answers."""
        self._code, self._answers = order["code"], _read_answers(Path(order["answers"]))
        module, _, name = order["function"].rpartition(":")
        with _blaming(self._code):
            loaded = importlib.import_module(module) if module else _module_at(Path(self._code))
        self._grade = getattr(loaded, name, None)
        if not callable(self._grade):
            raise Broken(f"{self._code} has no function {name!r}")
        self._guard = Guard(self._answers, order["sample"])

    def grade(self, path: Path) -> float:
        """Grade one submission."""
        submission = _read_submission(path)
        with self._guard.quoting(self._code, path):
            score = self._grade(submission, copy.deepcopy(self._answers))  # type: ignore[misc]
        return round(_number(score, self._code), 5)


class MleDojo:
    """A class with ``validate_submission(submission, answers)`` and ``evaluate(answers, submission)``."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Import the class, make its object, and read the answers."""
        self._code, self._answers = order["code"], _read_answers(Path(order["answers"]))
        with _blaming(self._code):
            module = _module_at(Path(self._code))
            metrics = getattr(module, order["function"], None)
            if not isinstance(metrics, type):
                raise Broken(f"{self._code} has no class {order['function']!r}")
            self._metric = metrics()
            higher = bool(self._metric.higher_is_better)
        if higher != order["higher_is_better"]:
            raise Broken(f"{self._code} says that higher_is_better is {higher}, the task's name says otherwise")
        self._guard = Guard(self._answers, order["sample"])

    def grade(self, path: Path) -> float:
        """Grade one submission."""
        submission, answers = _read_submission(path), copy.deepcopy(self._answers)
        with self._guard.quoting(self._code, path):
            verdict = self._metric.validate_submission(submission, answers)
            if isinstance(verdict, tuple) and verdict and verdict[0] is False:
                raise _Rejected(str(verdict[1]) if len(verdict) > 1 else "")
            score = self._metric.evaluate(answers, submission)
        return _number(score, self._code)


class DSBench:
    """A script that writes its result to a file; it pairs rows by place, so they are put in order by id first."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Compile the script, and find the ids by which rows can be put in order."""
        self._code, self._file = order["code"], Path(order["answers"])
        answers = _read_answers(self._file)
        with _blaming(self._code):
            compile(Path(self._code).read_bytes(), self._code, "exec")
        self._guard = Guard(answers, order["sample"])
        self._id, self._ids = _ids(self._file, Path(order["sample"]))

    def grade(self, path: Path) -> float:
        """Grade one submission."""
        folder = Path(tempfile.mkdtemp(dir=path.parent))
        try:
            (folder / "one").mkdir()
            ordered = self._in_order(path, folder / path.name)
            options = {"path": folder, "name": "one", "answer_file": self._file, "predict_file": ordered}
            before = sys.argv
            sys.argv = [self._code, *(text for name, value in options.items() for text in (f"--{name}", str(value)))]
            try:
                with self._guard.quoting(self._code, path), contextlib.suppress(SystemExit):
                    runpy.run_path(self._code, run_name="__main__")
            finally:
                sys.argv = before
            result = folder / "one" / "result.txt"
            if not result.is_file():
                raise Broken(f"{self._code} wrote no result.txt")
            return _number(result.read_text().strip(), self._code)
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


class _Rejected(Exception):
    """What a metric rejected by its returned value."""


class Guard:
    """Turns what a benchmark's code raises into a reason that quotes no answer.

    A submission that the benchmark rejects (``InvalidSubmissionError``) is told why, less the words that stand in the
    answers, but neither in the submission, nor among ids or the names of columns. Of any other exception only its kind
    is told, since its message may hold anything.
    """

    def __init__(self, answers: Any, sample: str) -> None:
        """Remember the answers."""
        self._answers, self._header = answers, _header(Path(sample))

    @functools.cached_property
    def _secret(self) -> set[str]:
        """The words of the answers, all columns but that of the ids; collected at the first rejection."""
        identifier = self._header[0] if self._header else None
        if isinstance(self._answers, list):
            names = {str(name) for row in self._answers if isinstance(row, dict) for name in row}
            rows = [row if isinstance(row, dict) else {"": row} for row in self._answers]
            values = [value for row in rows for name, value in row.items() if name != identifier]
        else:
            names = {str(name) for name in self._answers.columns}
            columns = [self._answers[name] for name in self._answers.columns if name != identifier]
            values = [value for column in columns for value in column.dropna().unique().tolist()]
        return {word for value in values for word in _words(value)} - names - set(self._header)

    @contextlib.contextmanager
    def quoting(self, code: str, path: Path) -> Any:
        """Raise `Invalid` in place of what the block raises."""
        try:
            yield
        except Exception as error:
            name = Path(code).name
            if not _rejection(error):
                raise Invalid(f"{name} raised {type(error).__name__} on it") from None
            raise Invalid(f"{name} rejected it: {self._clean(str(error), path)}") from None

    def _clean(self, message: str, path: Path) -> str:
        secret = self._secret - set(_words(path.read_text(encoding="utf-8", errors="replace")))
        groups = _GROUP.sub(lambda match: _without(match.group(), secret, 1, "[...]"), message)
        cleaned = _TOKEN.sub(lambda match: _without(match.group(), secret, 3, "..."), groups)
        cleaned = " ".join(cleaned.split())
        return cleaned if len(cleaned) <= MOST_REASON else cleaned[:MOST_REASON] + "..."


def _without(text: str, secret: set[str], shortest: int, instead: str) -> str:
    """Return the text, or something instead of it if it holds a secret word that is long enough to say anything."""
    found = _TOKEN.findall(text)
    return instead if any(len(word) >= shortest and _plain(word) in secret for word in found) else text


def _words(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [word for part in value.values() for word in _words(part)]
    if isinstance(value, list):
        return [word for part in value for word in _words(part)]
    return [_plain(word) for word in _TOKEN.findall(str(value))]


def _plain(word: str) -> str:
    """Return a word as it is compared: without the end of a sentence, numbers to six digits."""
    try:
        return f"{float(word):.6g}"
    except ValueError:
        return word.strip(".!?")


def _rejection(error: BaseException) -> bool:
    return isinstance(error, _Rejected) or any(
        kind.__name__ == "InvalidSubmissionError" for kind in type(error).__mro__
    )


@contextlib.contextmanager
def _blaming(code: str) -> Any:
    try:
        yield
    except Broken:
        raise
    except BaseException as error:  # a module may even exit
        raise Broken(f"{code} cannot be imported: {type(error).__name__}: {error}") from None


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


def _read_table(path: Path) -> Any:
    import pandas as pd

    try:
        return pd.read_csv(path, float_precision="round_trip")
    except pd.errors.EmptyDataError:
        return pd.DataFrame()


def _read_lines(path: Path) -> list[Any]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def _read_answers(path: Path) -> Any:
    try:
        answers = _read_lines(path) if path.suffix == ".jsonl" else _read_table(path)
    except Exception as error:
        raise Broken(f"the answers {path} cannot be read: {type(error).__name__}") from None
    if not len(answers):
        raise Broken(f"the answers {path} are empty")
    return answers


def _read_submission(path: Path) -> Any:
    try:
        return _read_lines(path) if path.suffix == ".jsonl" else _read_table(path)
    except Exception as error:
        form = "JSON lines" if path.suffix == ".jsonl" else "CSV"
        raise Invalid(f"it cannot be read as {form}: {type(error).__name__}") from None


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
    except (TypeError, ValueError):
        raise Broken(f"{code} returned {type(score).__name__} {str(score)[:50]!r}, which is no score") from None
    if not math.isfinite(number):
        raise Invalid(f"its score is {number}")
    return number


KINDS: dict[str, Callable[[dict[str, Any]], MleBench | MleDojo | DSBench]] = {
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
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(requests, lines), daemon=True).start()
    order = json.loads(sys.argv[1])
    _confine(Path.cwd())
    sys.path[:0] = order["roots"]
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
