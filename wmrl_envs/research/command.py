"""Tasks that a command of their author grades: a training script with a validation loss, a suite of tests.

In task.json: ``"grader": "command"``, and

- ``command``: the program and its arguments, such as ``["python", "private/grade.py"]``;
- ``files``: what a solution may leave for it, paths in its working folder; it must leave the first one;
- ``greater_is_better``, and ``scale`` (``{"zero": SCORE, "one": SCORE}``) unless the folder has a leaderboard.json;
- ``grader_limits``: what the command may use, as ``limits`` says it for a solution.

When a solution has ended, and every process of it with it, the command runs in a sandbox of its own. Its working folder
holds ``submission/`` (the files that the solution left, and nothing else of it), ``private/`` (a copy of the task's
folder of that name) and ``input/`` (the public data). The last line that it prints is one JSON object::

    {"score": 0.83, "report_score": 0.81, "feedback": "12 of 14 tests pass"}

``score`` gives the training reward and ``report_score`` the reported one; without it both are ``score``. A submission
that cannot be scored is ``{"invalid": "why"}``. Whatever a solution prints goes nowhere near it. A command that fails
or prints no such line makes a submission invalid, and its output, which the agent is not shown, is logged.

A command that has to run what the solution left can keep the private files from it: read them, delete ``private/``,
and only then start the solution's code in a process whose output is read as data.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from wmrl_envs.errors import SandboxError, TaskError
from wmrl_envs.research.limits import Limits
from wmrl_envs.research.scoring import InvalidSubmission, Runner, Scored

if TYPE_CHECKING:
    from wmrl_envs.research.execution import RunResult
    from wmrl_envs.research.task import ResearchTask

__all__ = ["COMMAND_FIELDS", "CommandScorer"]

COMMAND_FIELDS = ("command", "files", "greater_is_better", "grader_limits", "scale")
"""Fields of a task.json that only a task with this grader has."""

_logger = logging.getLogger(__name__)

_PYTHON = ("python", "python3")
_RESERVED = ("input", "private", "solution.py", "submission")
_EXPECTED = 'the last line that the command prints must be {"score": NUMBER} or {"invalid": "why"}'
_MOST_WORDS = 1000


@dataclass(frozen=True)
class CommandScorer:
    """Runs a command on the files that a solution left."""

    command: tuple[str, ...]
    files: tuple[str, ...]
    limits: Limits
    """What the command may use."""

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> CommandScorer:
        """Read the fields of a task.json.

        Raises:
            TaskError: If one is missing or wrong.
            ConfigurationError: If a limit cannot be one.
        """
        command, files = (_texts(manifest, name) for name in ("command", "files"))
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name or path.parts[0] in _RESERVED:
                raise TaskError(
                    f"files names {name!r}; it must be a path inside the solution's working folder, and none of "
                    f"{', '.join(_RESERVED)}"
                )
        limits = manifest.get("grader_limits", {})
        if not isinstance(limits, dict):
            raise TaskError(f"grader_limits must be an object, got {limits!r}")
        allowed = Limits().override(limits)
        if not _is_script(command) and allowed.processes == 0:
            raise TaskError(
                f"the command {' '.join(command)!r} starts a program, which grader_limits must allow: "
                '{"processes": 1} or more; only ["python", "SCRIPT.py", ...] runs without'
            )
        return cls(command, files, allowed)

    def most_bytes(self, task: ResearchTask) -> int:
        """Return the disk limit of a solution."""
        return task.limits.disk_mb * 2**20

    def instructions(self, task: ResearchTask) -> str:
        """Return which files to leave and what becomes of them."""
        first, *more = self.files
        further = f" (and may write {', '.join(f'./{name}' for name in more)})" if more else ""
        direction = "higher" if task.metric.greater_is_better else "lower"
        return (
            f"it must write ./{first}{further}, which is graded after the program has ended. "
            f"Score: {task.metric.name}, {direction} is better."
        )

    def score(self, task: ResearchTask, left: Mapping[str, bytes], runner: Runner | None) -> Scored | InvalidSubmission:
        """Run the command on the files that a solution left.

        Raises:
            SandboxError: If there is nothing to run it in, or the sandbox failed.
        """
        if runner is None:
            raise SandboxError(f"task {task.id!r} is graded by a command, and no sandbox was given to run it in")
        bring: dict[str, bytes | Path] = {f"submission/{name}": content for name, content in left.items()}
        bring["private"] = task.folder / "private"
        result = runner.run(self._program(), task.public, self.limits, collect=(), bring=bring)
        graded = _verdict(result)
        if isinstance(graded, str):
            said = "\n".join(part.strip() for part in (result.stdout, result.stderr, result.message) if part.strip())
            _logger.warning("the command that grades task %s failed: %s\n%s", task.id, graded, said[-2000:])
            reason = f"what the solution left cannot be scored: the grader ended with {result.error_type or graded}"
            return InvalidSubmission(reason, result.seconds)
        return graded

    def _program(self) -> str:
        """Return Python source that runs the command; a Python script shares the warm interpreter."""
        if not _is_script(self.command):
            return f"import subprocess, sys\nsys.exit(subprocess.run({list(self.command)!r}).returncode)\n"
        script = self.command[1]
        return (
            "import os, runpy, sys\n"
            f"sys.argv[:] = {list(self.command[1:])!r}\n"
            f"sys.path.insert(0, os.path.dirname(os.path.abspath({script!r})))\n"
            f"runpy.run_path({script!r}, run_name='__main__')\n"
        )


def _is_script(command: tuple[str, ...]) -> bool:
    return command[0] in _PYTHON and len(command) > 1 and command[1].endswith(".py")


def _texts(manifest: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = manifest.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(part, str) and part for part in value):
        raise TaskError(f"{name} must be a list of texts, at least one, got {value!r}")
    return tuple(value)


def _verdict(result: RunResult) -> Scored | InvalidSubmission | str:
    """Return what a command said, or in a few words why that is no verdict."""
    if result.cause != "ok":
        return "its limits" if result.message else f"exit code {result.exit_code}"
    lines = result.stdout.strip().splitlines()
    try:
        said = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        return f"no verdict ({_EXPECTED})"
    words = said.get("invalid", said.get("feedback", ""))
    if not isinstance(words, str):
        return f"no verdict ({_EXPECTED})"
    if "invalid" in said:
        return InvalidSubmission(words[:_MOST_WORDS] or "the submission is invalid", result.seconds)
    score, report = _number(said.get("score")), _number(said.get("report_score", said.get("score")))
    if score is None or report is None:
        return f"no verdict ({_EXPECTED})"
    return Scored(score, report, words[:_MOST_WORDS], result.seconds)


def _number(value: object) -> float | None:
    """Return a finite number as a float, and None for anything else, an integer beyond all floats among it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
