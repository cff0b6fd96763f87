"""Whether a command that grades does so: tried for real, on what the task's example solution leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wmrl_envs.errors import TaskError
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.scoring import InvalidSubmission, Left, Runner
from wmrl_envs.research.verdict import read_verdict

if TYPE_CHECKING:
    from wmrl_envs.research.command import CommandScorer
    from wmrl_envs.research.execution import RunResult
    from wmrl_envs.research.task import ResearchTask

__all__ = ["check_command"]

_MOST_SHOWN = 1500


def check_command(task: ResearchTask, scorer: CommandScorer, sandbox: Runner | None = None) -> list[str]:
    """Return what is wrong with a task that a command grades, one sentence each.

    The example solution is executed and graded; an empty file in place of what it leaves must not do as well.

    Args:
        task: The task.
        scorer: Its scorer.
        sandbox: Runs the programs; None means a ``ProcessSandbox`` of its own.

    Raises:
        SandboxError: If programs cannot be run.
    """
    from wmrl_envs.research.sandbox.process import ProcessSandbox

    problems = []
    if task.design:
        try:
            DesignSpace.of(task)
        except TaskError as error:
            problems.append(f"task.json: {error}")
    if not (task.folder / scorer.example).is_file():
        why = "a valid solution, which this check executes and has graded"
        return [*problems, f'there is no {scorer.example} ({why}); task.json can name another one as "example"']
    if sandbox is not None:
        return problems + _tried(task, scorer, sandbox)
    with ProcessSandbox(workers=1) as own:
        return problems + _tried(task, scorer, own)


def _tried(task: ResearchTask, scorer: CommandScorer, sandbox: Runner) -> list[str]:
    code = (task.folder / scorer.example).read_text(encoding="utf-8", errors="replace")
    most = scorer.most_bytes(task)
    ran = sandbox.run(code, task.public, task.limits, collect=scorer.files, most_bytes=most)
    if ran.cause != "ok":
        return [f"the example solution {scorer.example} fails{_shown(ran)}"]
    content, problem = _content(ran.left, scorer)
    if problem:
        return [f"the example solution {scorer.example}: {problem}"]
    graded = scorer.run(task, content, sandbox)
    verdict = read_verdict(graded)
    if isinstance(verdict, str):
        return [f"the command that grades fails on what {scorer.example} leaves: {verdict}{_shown(graded)}"]
    if isinstance(verdict, InvalidSubmission):
        return [f"the command that grades refuses what {scorer.example} leaves: {verdict.reason}"]
    empty = read_verdict(scorer.run(task, {scorer.files[0]: b""}, sandbox))
    if isinstance(empty, (str, InvalidSubmission)):
        return []
    better = empty.train >= verdict.train if task.metric.greater_is_better else empty.train <= verdict.train
    if not better:
        return []
    return [f"an empty {scorer.files[0]} scores {empty.train:g}, no worse than what {scorer.example} leaves"]


def _content(left: Left, scorer: CommandScorer) -> tuple[dict[str, bytes], str]:
    """Return the content of the files, and what is wrong with them."""
    refused = [file.reason for file in left.values() if isinstance(file, InvalidSubmission)]
    content = {name: file for name, file in left.items() if isinstance(file, bytes)}
    if not refused and scorer.files[0] not in content:
        refused = [f"no {scorer.files[0]} was written to the working folder"]
    return content, "; ".join(refused)


def _shown(result: RunResult) -> str:
    """Return what a program printed, its end, after a colon."""
    parts = (result.message, result.stdout, result.stderr)
    said = "\n".join(part.strip() for part in parts if part.strip())
    return f":\n{said[-_MOST_SHOWN:]}" if said else ""
