"""Executes a task's design space and keeps what came out: the table that a ``ReplaySandbox`` answers from.

While it runs, every executed solution is one line appended to a file beside the recording, so that it can be killed and
started again at any moment; at the end the lines are written whole into ``recording.jsonl.gz``:

- first line: ``{"format": 1, "task", "versions", "data", "limits", "members", "feedbacks": [...]}``;
- then, for each member of the design space, ascending, ``[index, key, [draw, ...]]`` with a draw for each seed that was
  run: ``[status, train score, report score, seconds, error type, error line, feedback]``, where the status is an index
  into ``STATUSES`` and the feedback one into ``feedbacks``.

Scores are raw values of the metric, so a recording outlives its leaderboard.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import platform
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wmrl_envs.errors import ConfigurationError, RecordingError, SandboxError
from wmrl_envs.files import LFS_START
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.execution import graded_run
from wmrl_envs.research.inventory import data_files
from wmrl_envs.research.outcome import STATUSES, Outcome, Status, ladder_reward
from wmrl_envs.research.scoring import Runner, valid_feedback

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = [
    "DRAWS",
    "RECORDING",
    "Draw",
    "Member",
    "code_key",
    "data_digest",
    "draw_of",
    "execute",
    "members_to_record",
    "outcome_of",
    "read_recording",
    "record",
    "versions",
    "write_recording",
    "write_whole",
]

RECORDING = "recording.jsonl.gz"
"""Name of the recording in a task folder."""
DRAWS = 3
"""How many seeds a solution is run under whose score depends on it."""
_FORMAT = 1
_ATTEMPTS = 3
_PATIENCE = 10.0
_STATUS_INDEX = {status: index for index, status in enumerate(STATUSES)}


class Draw(NamedTuple):
    """One real execution."""

    status: int
    """Index into ``STATUSES``."""
    train: float | None
    """Raw score on the training half; None unless valid."""
    report: float | None
    seconds: float
    """CPU seconds."""
    error_type: str | None
    error_line: int | None
    feedback: str
    """What the terminal showed, without the sentence about a valid submission."""


class Member(NamedTuple):
    """A member of a design space, and its executions."""

    number: int
    """Its index in the design space."""
    key: str
    draws: tuple[Draw, ...]


def code_key(code: str) -> str:
    """Return the key of a solution's text: 64 bits of its SHA-256, in hexadecimal."""
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def versions() -> dict[str, str]:
    """Return the versions that a solution's result can depend on."""
    from importlib.metadata import version

    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "pandas", "scipy", "scikit-learn")},
    }


def data_digest(task: ResearchTask) -> str:
    """Return a digest of the data that scores depend on: every public and private file."""
    digest = hashlib.sha256()
    folders = (task.public, task.folder / "private")
    for path in (path for folder in folders for path in data_files(folder)):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def execute(task: ResearchTask, sandbox: Runner, code: str, seed: int) -> Draw:
    """Run one solution for real and keep the raw scores of both halves.

    Raises:
        SandboxError: If the harness fails several times in a row.
    """
    # Generous wall time: on a busy machine, only the solution's own CPU seconds should decide.
    limits = dataclasses.replace(task.limits, wall_seconds=_PATIENCE * task.limits.wall_limit)
    scorer = task.scorer
    most = scorer.most_bytes(task)
    for attempt in range(_ATTEMPTS):
        try:
            result = sandbox.run(code, task.public, limits, seed, collect=scorer.files, most_bytes=most)
            outcome, grade = graded_run(task, result, sandbox)
            break
        except SandboxError:
            if attempt == _ATTEMPTS - 1:
                raise
    return draw_of(task, outcome, None if grade is None else grade.report_score)


def draw_of(task: ResearchTask, outcome: Outcome, report: float | None) -> Draw:
    """Return what a recording keeps of an outcome: all but what the leaderboard adds."""
    feedback = outcome.feedback
    if outcome.score is not None and outcome.position is not None:
        feedback = feedback.removesuffix(valid_feedback(task, outcome.score, outcome.position))
    return Draw(
        _STATUS_INDEX[outcome.status],
        outcome.score,
        report,
        round(outcome.seconds, 4),
        outcome.error_type,
        outcome.error_line,
        feedback,
    )


def outcome_of(task: ResearchTask, draw: Draw) -> Outcome:
    """Return the outcome that the execution returned, with positions on the task's present leaderboard."""
    status = STATUSES[draw.status]
    position = report = None
    feedback = draw.feedback
    if draw.train is not None and draw.report is not None:
        position = task.leaderboard.position(draw.train, "train")
        report = task.leaderboard.position(draw.report, "report")
        feedback += valid_feedback(task, draw.train, position)
    return Outcome(
        status=status,
        reward=ladder_reward(status, position),
        position=position,
        score=draw.train,
        feedback=feedback,
        error_type=draw.error_type,
        error_line=draw.error_line,
        seconds=draw.seconds,
        report_reward=ladder_reward(status, report),
    )


def members_to_record(space: DesignSpace, members: int | None, seed: int = 0) -> list[int]:
    """Return which members are executed, in a random order: all of them, or that many.

    Raises:
        ConfigurationError: If there are not that many.
    """
    if members is not None and not 1 <= members <= space.size:
        raise ConfigurationError(f"members must be from 1 to {space.size}, or None for all of them, got {members}")
    order = np.random.default_rng(seed).permutation(space.size)
    return [int(index) for index in order[:members]]


def record(
    task: ResearchTask,
    sandbox: Runner,
    members: int | None = None,
    path: Path | str | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Execute members of a task's design space, each under one seed or ``DRAWS`` of them, and write the recording.

    Nothing is executed twice: a recording that was broken off is taken up where it stopped, and one that exists is
    extended, as long as code, data and library versions are the same. A member whose score depends on the seed is run
    again if its first run is valid: a failure repeats.

    Args:
        task: The task; its leaderboard plays no part in what is recorded.
        sandbox: Runs the solutions, ``sandbox.workers`` at a time.
        members: How many members, drawn at random; None means all of them.
        path: Where the recording goes; None means into the task folder.
        progress: Called with the numbers of members done and to do.

    Returns:
        The path of the recording.

    Raises:
        ConfigurationError: If there are not that many members.
        SandboxError: If solutions cannot be run.
    """
    space = DesignSpace.of(task)
    target = Path(path) if path is not None else task.folder / RECORDING
    wanted = members_to_record(space, members)
    header = {"format": _FORMAT, "task": task.id, "versions": versions(), "data": data_digest(task)}
    journal = _Journal(target.with_name(target.name + ".partial"), header)
    known = [*_recorded_before(target, header), *journal.members()]
    done = {member.number: member for member in known if member.key == code_key(space.solution(member.number))}
    waiting = [index for index in wanted if index not in done]
    finished = len(wanted) - len(waiting)
    with ThreadPoolExecutor(sandbox.workers) as pool:
        futures = [pool.submit(_execute_member, task, sandbox, space, index) for index in waiting]
        try:
            for future in as_completed(futures):
                member = future.result()
                journal.append(member)
                done[member.number] = member
                finished += 1
                if progress is not None:
                    progress(finished, len(wanted))
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    limits = {"seconds": task.limits.seconds, "memory_mb": task.limits.memory_mb}
    write_recording(target, {**header, "limits": limits}, [done[index] for index in sorted(done)])
    journal.path.unlink()
    return target


def _recorded_before(path: Path, header: dict[str, Any]) -> list[Member]:
    try:
        found, members = read_recording(path)
    except RecordingError:
        return []
    return members if all(found.get(name) == value for name, value in header.items()) else []


def _execute_member(task: ResearchTask, sandbox: Runner, space: DesignSpace, index: int) -> Member:
    code = space.solution(index)
    # Seeds differ between members: luck that all solutions share would be no noise.
    draws = [execute(task, sandbox, code, seed=DRAWS * index)]
    if space.seeded(index) and STATUSES[draws[0].status] is Status.VALID:
        draws += [execute(task, sandbox, code, seed=DRAWS * index + k) for k in range(1, DRAWS)]
    return Member(index, code_key(code), tuple(draws))


class _Journal:
    """The lines that a recording in progress has so far; a torn last line is dropped."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self._header = json.dumps(header, sort_keys=True)
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
        kept = lines[1:-1] if lines and lines[0] == self._header else []
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "\n".join([self._header, *kept, ""]).encode())
        self._lock = threading.Lock()

    def members(self) -> Iterator[Member]:
        for line in self.path.read_text(encoding="utf-8").split("\n")[1:-1]:
            index, key, draws = json.loads(line)
            yield Member(index, key, tuple(Draw._make(draw) for draw in draws))

    def append(self, member: Member) -> None:
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(_line(member) + "\n")


def _line(member: Sequence[Any]) -> str:
    return json.dumps(member, separators=(",", ":"))


def write_recording(path: Path, header: dict[str, Any], members: Sequence[Member]) -> None:
    """Write a recording whole: texts that repeat once, members ascending, the same bytes for the same content."""
    feedbacks = sorted({draw.feedback for member in members for draw in member.draws})
    number = {feedback: index for index, feedback in enumerate(feedbacks)}
    lines = [json.dumps({**header, "members": len(members), "feedbacks": feedbacks}, sort_keys=True)]
    for member in members:
        draws = [[*draw[:-1], number[draw.feedback]] for draw in member.draws]
        lines.append(_line([member.number, member.key, draws]))
    write_whole(path, gzip.compress("\n".join([*lines, ""]).encode(), compresslevel=9, mtime=0))


def read_recording(path: Path) -> tuple[dict[str, Any], list[Member]]:
    """Read a recording.

    Returns:
        Its header, and its members, ascending.

    Raises:
        RecordingError: If the file is missing, damaged, or of another format.
    """
    try:
        raw = path.read_bytes()
        if raw.startswith(LFS_START.encode()):
            raise RecordingError(f"{path} is a Git-LFS pointer, not the recording itself; fetch it with `git lfs pull`")
        first, *rest = gzip.decompress(raw).decode("utf-8").split("\n")
        header = json.loads(first)
        if header["format"] != _FORMAT:
            raise RecordingError(f"{path}: format {header['format']!r} is unknown; this version reads {_FORMAT}")
        feedbacks = header["feedbacks"]
        members = [
            Member(index, key, tuple(Draw._make([*draw[:-1], feedbacks[draw[-1]]]) for draw in draws))
            for index, key, draws in (json.loads(line) for line in rest if line)
        ]
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError) as error:
        raise RecordingError(f"cannot read the recording {path}: {error}") from error
    if len(members) != header.get("members") or not all(member.draws for member in members):
        raise RecordingError(f"the recording {path} is damaged: it announces {header.get('members')} solutions")
    return header, members


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place and move it there, so that nobody ever reads half of it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(content)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
