"""A ``submission.csv`` against the private answers of its task.

A submission has exactly the columns of ``sample_submission.csv`` and exactly one row for each id of the test set, both
in any order. Ids are text: ``007`` is not ``7``, and nothing is stripped. A further column makes it invalid, so that a
forgotten ``index=False`` is noticed. What the target columns must hold depends on the metric
(`wmrl_envs.research.metrics.Needs`). Reasons name what was submitted, never an answer.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from wmrl_envs.errors import SandboxError
from wmrl_envs.research.reply import extract_code
from wmrl_envs.research.scoring import Grade, InvalidSubmission, Left, Runner, Scored, grade_left
from wmrl_envs.research.table import TableError, read_table, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from wmrl_envs.research.answers import Answers
    from wmrl_envs.research.task import ResearchTask

__all__ = [
    "AnswersScorer",
    "extract_code",
    "grade_submission_file",
    "max_submission_bytes",
    "read_submission_file",
    "score_submission",
]


@dataclass(frozen=True)
class AnswersScorer:
    """Scores ``submission.csv`` against ``private/answers.csv`` by one of our metrics."""

    files: ClassVar[tuple[str, ...]] = ("submission.csv",)

    def most_bytes(self, task: ResearchTask) -> int:
        """Return `max_submission_bytes`."""
        return max_submission_bytes(task)

    def instructions(self, task: ResearchTask) -> str:
        """Return what a submission looks like and what scores it."""
        columns = ", ".join((task.id_column, *task.target_columns))
        return (
            "it must write its predictions to ./submission.csv, with the columns of input/sample_submission.csv "
            f"({columns}) and one row for each id of input/test.csv. "
            f"Score: {task.metric.name} on hidden answers, {task.metric.direction} is better."
        )

    def score(self, task: ResearchTask, left: Mapping[str, bytes], runner: Runner | None) -> Scored | InvalidSubmission:
        """Return `score_submission` of the file."""
        return score_submission(task, left["submission.csv"])


_AUTHORS_DOING = frozenset({errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENOTDIR})
"""What opening a link, a file without permissions, a socket, or a file in place of the folder gives."""


def max_submission_bytes(task: ResearchTask) -> int:
    """Return the largest submission that is read, in bytes.

    A mebibyte, and 100 bytes for each value that the task asks for: several times what float64 written in full takes.
    """
    return 2**20 + 100 * len(task.answers()) * (1 + len(task.target_columns))


def read_submission_file(
    path: Path | str, limit: int, name: str = "submission.csv"
) -> bytes | None | InvalidSubmission:
    """Read a file that other people's code wrote, without following where it points.

    A symbolic link could name a file that only the reader may read, such as the answers; a pipe would block it.

    Args:
        path: Where the submission should lie.
        limit: Most bytes that are read.
        name: What the file is called in the reason why it is no submission.

    Returns:
        The bytes, None if there is nothing at the path, or why it is no submission.

    Raises:
        SandboxError: If reading fails for a reason that is not the file's author's.
    """
    irregular = InvalidSubmission(f"{name} is no regular file that can be read")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _AUTHORS_DOING:
            return irregular
        raise SandboxError(f"cannot read the submission {path}: {error}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return irregular
        if status.st_size > limit:
            return _too_large(name, status.st_size, limit)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(limit + 1)
    finally:
        os.close(descriptor)
    return content if len(content) <= limit else _too_large(name, len(content), limit)


def score_submission(task: ResearchTask, content: bytes) -> Scored | InvalidSubmission:
    """Score the content of a ``submission.csv`` on both halves of the answers.

    Raises:
        TaskError: If the task's own answers cannot be used.
    """
    answers = task.answers()
    limit = max_submission_bytes(task)
    if len(content) > limit:
        return _too_large("submission.csv", len(content), limit)
    try:
        table = read_table(content)
        _check_columns(table, task)
        order = _order(table[task.id_column], answers)
        submitted = answers.read_submitted(table)
    except TableError as error:
        return InvalidSubmission(f"submission.csv cannot be read: {error}")
    except ValueError as error:
        return InvalidSubmission(f"submission.csv is invalid: {error}")
    if order is not None:
        submitted = submitted[order]
    train, report = answers.score(submitted, "train"), answers.score(submitted, "report")
    if not (np.isfinite(train) and np.isfinite(report)):
        return InvalidSubmission(f"submission.csv is invalid: its numbers are too large to compute {task.metric.name}")
    return Scored(train, report)


def grade_submission_file(task: ResearchTask, source: bytes | Path | str | None) -> Grade:
    """Grade a submission: score it, and place the scores on the task's leaderboard.

    Args:
        task: The task it should answer.
        source: The content of ``submission.csv``, the path where it should lie, or None where there is none.

    Raises:
        TaskError: If the task's own answers cannot be used.
    """
    found = read_submission_file(source, max_submission_bytes(task)) if isinstance(source, (Path, str)) else source
    left: Left = {} if found is None else {"submission.csv": found}
    return grade_left(task, left)


def _too_large(name: str, size: int, limit: int) -> InvalidSubmission:
    return InvalidSubmission(f"{name} is too large: {size} bytes, at most {limit} are read")


def _check_columns(table: Mapping[str, Sequence[str]], task: ResearchTask) -> None:
    expected = (task.id_column, *task.target_columns)
    if set(table) != set(expected):
        found = ", ".join(shown(name) for name in list(table)[:5]) + (
            f", and {len(table) - 5} more" if len(table) > 5 else ""
        )
        raise ValueError(f"its columns are {found}; expected exactly {', '.join(map(repr, expected))}")


def _order(ids: Sequence[str], answers: Answers) -> NDArray[np.intp] | None:
    """Return the submission's row of each answer, or None where both are in the same order already.

    Raises:
        ValueError: If the ids are not those of the answers, each once.
    """
    if ids == answers.ids:
        return None
    place = answers.index.get
    places = [place(identifier, -1) for identifier in ids]
    if len(places) == len(answers) and len(set(places)) == len(places) and -1 not in places:
        order = np.empty(len(places), dtype=np.intp)
        order[places] = np.arange(len(places))
        return order
    raise ValueError(_id_problems(ids, answers))


def _id_problems(ids: Sequence[str], answers: Answers) -> str:
    counts = Counter(ids)
    groups: tuple[tuple[str, list[str]], ...] = (
        ("missing", [identifier for identifier in answers.ids if identifier not in counts]),
        ("unknown", [identifier for identifier in counts if identifier not in answers.index]),
        ("repeated", [identifier for identifier, count in counts.items() if count > 1]),
    )
    found = [f"{len(members)} {word} (such as {shown(members[0])})" for word, members in groups if members]
    return f"each id of the test set must appear once, compared as text; ids {', '.join(found)}"
