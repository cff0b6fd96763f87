"""Tasks that a command of their author grades: a training script with a validation loss, a suite of tests.

In task.json: ``"grader": "command"``, and

- ``command``: the program and its arguments, such as ``["python", "private/grade.py"]``;
- ``files``: what a solution may leave for it, paths in its working folder; it must leave the first one;
- ``greater_is_better``, and ``scale`` (``{"zero": SCORE, "one": SCORE}``) unless the folder has a leaderboard.json;
- ``grader_limits``: what the command may use, as ``limits`` says it for a solution, besides room for what it is given;
- ``example``: a program in the task folder that is a valid solution, ``example.py`` by default; ``wmrl tasks check``
  runs it, and the command on what it leaves;
- ``design``: as for other tasks.

When a solution has ended, and every process of it with it, the command runs in a sandbox of its own. Its working folder
holds ``submission/`` (the files that the solution left, and nothing else of it), ``private/`` (a copy of the task's
folder of that name), ``input/`` (the public data) and ``apart.py``. The last line that it prints is one JSON object::

    {"score": 0.83, "report_score": 0.81, "feedback": "12 of 14 tests pass"}

``score`` gives the training reward and ``report_score`` the reported one; without it both are ``score``. A submission
that cannot be scored is ``{"invalid": "why"}``. Whatever a solution prints goes nowhere near it. A command that fails
or prints no such line makes a submission invalid, and its output, which the agent is not shown, is logged.

A Python script runs in the warm interpreter that solutions are forked from, imports from its own folder and never from
where the solution's files lie. A command that has to run what the solution left does so with
`wmrl_envs.research.apart.run_apart`, which keeps the private files and the command itself from it.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from wmrl_envs.errors import SandboxError, TaskError
from wmrl_envs.research.limits import Limits
from wmrl_envs.research.scoring import InvalidSubmission, Runner, Scored
from wmrl_envs.research.verdict import read_verdict

if TYPE_CHECKING:
    from wmrl_envs.research.execution import RunResult
    from wmrl_envs.research.task import ResearchTask

__all__ = ["COMMAND_FIELDS", "EXAMPLE", "CommandScorer"]

COMMAND_FIELDS = ("command", "design", "example", "files", "greater_is_better", "grader_limits", "scale")
"""Fields of a task.json that only a task with this grader has."""

_logger = logging.getLogger(__name__)

EXAMPLE = "example.py"
"""Name of the example solution in a task folder, unless task.json names another."""

_PYTHON = ("python", "python3")
_LONGEST_NAME = 255
"""Bytes of a file's name that file systems take."""
_RESERVED = ("apart.py", "input", "private", "solution.py", "submission")
_APART = Path(__file__).with_name("apart.py")


@dataclass(frozen=True)
class CommandScorer:
    """Runs a command on the files that a solution left."""

    command: tuple[str, ...]
    files: tuple[str, ...]
    limits: Limits
    """What the command may use."""
    example: str = EXAMPLE
    """Path of a valid solution in the task folder; there need not be one."""

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> CommandScorer:
        """Read the fields of a task.json.

        Raises:
            TaskError: If one is missing or wrong.
            ConfigurationError: If a limit cannot be one.
        """
        command, files = (_texts(manifest, name) for name in ("command", "files"))
        _check_files(files)
        example = manifest.get("example", EXAMPLE)
        if not isinstance(example, str) or not _inside(example):
            raise TaskError(f"example must be the path of a program inside the task folder, got {example!r}")
        limits = manifest.get("grader_limits", {})
        if not isinstance(limits, dict):
            raise TaskError(f"grader_limits must be an object, got {limits!r}")
        allowed = Limits().override(limits)
        scorer = cls(command, files, allowed, example)
        if scorer.script is None and allowed.processes == 0:
            raise TaskError(
                f"the command {' '.join(command)!r} starts a program, which grader_limits must allow: "
                '{"processes": 1} or more; only ["python", "private/SCRIPT.py", ...] runs without'
            )
        if scorer.script is not None and (not _inside(scorer.script) or _parts(scorer.script)[0] != "private"):
            raise TaskError(f"the command's script must lie in private/, got {scorer.script!r}")
        return scorer

    @property
    def script(self) -> str | None:
        """Path of the Python script that the command runs in the warm interpreter; None where it is another program."""
        first, *rest = self.command
        return rest[0] if first in _PYTHON and rest and rest[0].endswith(".py") else None

    def most_bytes(self, task: ResearchTask) -> int:
        """Return the disk limit of a solution."""
        return task.limits.disk_mb * 2**20

    def instructions(self, task: ResearchTask) -> str:
        """Return which files to leave and what becomes of them."""
        first, *more = self.files
        further = f" (and may write {', '.join(f'./{name}' for name in more)})" if more else ""
        return (
            f"it must write ./{first}{further}, which is graded after the program has ended. "
            f"Score: {task.metric.name}, {task.metric.direction} is better."
        )

    def score(self, task: ResearchTask, left: Mapping[str, bytes], runner: Runner | None) -> Scored | InvalidSubmission:
        """Run the command on the files that a solution left.

        Raises:
            SandboxError: If there is nothing to run it in, or the sandbox failed.
        """
        result = self.run(task, left, runner)
        graded = read_verdict(result, lambda words: words.replace(f"{task.folder}/", "").replace(str(task.folder), "."))
        if isinstance(graded, str):
            said = "\n".join(part.strip() for part in (result.stdout, result.stderr) if part.strip())
            _logger.warning("the command that grades task %s failed: %s\n%s", task.id, graded, said[-2000:])
            return InvalidSubmission("the command that grades the task fails on what was left", result.seconds)
        return graded

    def run(self, task: ResearchTask, left: Mapping[str, bytes], runner: Runner | None) -> RunResult:
        """Run the command on the files that a solution left, and return its run as it is.

        Raises:
            SandboxError: If there is nothing to run it in, or the sandbox failed.
        """
        if runner is None:
            raise SandboxError(f"task {task.id!r} is graded by a command, and no sandbox was given to run it in")
        private = task.folder / "private"
        bring: dict[str, bytes | Path] = {f"submission/{name}": content for name, content in left.items()}
        bring |= {"private": private, "apart.py": _APART.read_bytes()}
        given = sum(map(len, left.values())) + sum(path.stat().st_size for path in private.rglob("*") if path.is_file())
        limits = dataclasses.replace(self.limits, disk_mb=self.limits.disk_mb + -(-given // 2**20))
        return runner.run(self._program(), task.public, limits, collect=(), bring=bring)

    def _program(self) -> str:
        """Return Python source that runs the command; a Python script shares the warm interpreter."""
        if self.script is None:
            return (
                "import subprocess, sys\n"
                f"command = {list(self.command)!r}\n"
                f"command[0] = sys.executable if command[0] in {_PYTHON!r} else command[0]\n"
                "sys.exit(subprocess.run(command).returncode)\n"
            )
        # The script's folder takes the place of the working folder, where code of the solution could leave modules.
        return (
            "import os, runpy, sys\n"
            "import apart\n"
            f"sys.argv[:] = {list(self.command[1:])!r}\n"
            f"sys.path[0] = os.path.dirname(os.path.abspath({self.script!r}))\n"
            f"runpy.run_path({self.script!r}, run_name='__main__')\n"
        )


def _parts(name: str) -> tuple[str, ...]:
    return PurePosixPath(name).parts


def _inside(name: str) -> bool:
    """Return whether a text is a relative path that stays in its folder and names something in it."""
    path = PurePosixPath(name)
    return not path.is_absolute() and bool(path.parts) and ".." not in path.parts and "\0" not in name


def _check_files(files: tuple[str, ...]) -> None:
    for name in files:
        plain = _inside(name) and name.isprintable() and str(PurePosixPath(name)) == name
        if not plain or _parts(name)[0] in _RESERVED or max(map(len, os.fsencode(name).split(b"/"))) > _LONGEST_NAME:
            raise TaskError(
                f"files names {name!r:.300}; it must be a plain path inside the solution's working folder, and none of "
                f"{', '.join(_RESERVED)}"
            )
    for name in files:
        if any(str(parent) in files for parent in PurePosixPath(name).parents) or files.count(name) > 1:
            raise TaskError(f"files names {name!r} twice, or a path above it as a file")


def _texts(manifest: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = manifest.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(part, str) and part for part in value):
        raise TaskError(f"{name} must be a list of texts, at least one, got {value!r}")
    return tuple(value)
