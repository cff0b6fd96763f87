"""The pieces of text that a prompt is filled with: code, a task's facts, and other people's words made harmless."""

from __future__ import annotations

import platform
import re
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from wmrl_envs.research.submission import AnswersScorer

if TYPE_CHECKING:
    from wmrl_envs.research.inventory import DataInventory
    from wmrl_envs.research.task import ResearchTask

__all__ = ["fenced", "neutral", "numbered", "tail", "task_fields"]

_LIBRARIES = ("numpy", "pandas", "scikit-learn")
_MAX_ABOUT = 400
_MAX_LINE = 1_000
_MAX_LINES = 1_000
_MAX_SHOWN = 40_000
"""Most characters of code that are shown (about 13,000 tokens)."""

_LINE_END = re.compile(r"\r\n|\r|\n")
_BACKTICKS = re.compile(r"`{3,}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# The markers of the usual chat templates. A tokenizer reads them as control tokens wherever they stand, so that a
# string in a program could end the question and begin the answer.
_MARKER = re.compile(
    r"<(?=[|｜]|/?(?:s|bos|eos|pad|unk|think|start_of_turn|end_of_turn)>)"
    r"|\[(?=\||/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])"
)


def neutral(text: str) -> str:
    """Return a text that can be put into any chat: no control characters, lone surrogates or chat markers.

    A marker such as ``<|im_end|>`` is broken up by a space after its first character.
    """
    text = text.encode("utf-8", "replace").decode("utf-8")
    return _MARKER.sub(lambda match: f"{match[0]} ", _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text))


def fenced(text: str, language: str = "") -> str:
    """Return a text in a fence that nothing in it can close; empty for an empty text."""
    if not text.strip():
        return ""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{neutral(text)}\n{fence}"


def numbered(code: str, *, numbers: bool = True) -> str:
    """Return code in a fence, each line with its number as tracebacks count them; the middle of long code left out.

    Args:
        code: The code.
        numbers: Whether lines have their numbers.
    """
    lines = _LINE_END.split(code.rstrip())
    width = len(str(len(lines)))
    shown = [(f"{number:>{width}} | " if numbers else "") + _clipped(line) for number, line in enumerate(lines, 1)]
    head, back = _reach(shown), _reach(shown[::-1])
    if head + back < len(shown):
        left_out = f"[lines {head + 1} to {len(shown) - back} are not shown]"
        shown = [*shown[:head], left_out, *shown[len(shown) - back :]]
    return fenced("\n".join(shown), "python")


def _reach(lines: list[str]) -> int:
    """Return how many lines fit into half of what is shown."""
    room = _MAX_SHOWN // 2
    for count, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0 or count == _MAX_LINES // 2:
            return count
    return len(lines)


def _clipped(line: str) -> str:
    if len(line) <= _MAX_LINE:
        return line
    return f"{line[: _MAX_LINE // 2]}[... {len(line) - _MAX_LINE} characters ...]{line[-_MAX_LINE // 2 :]}"


def tail(text: str, limit: int) -> str:
    """Return the last whole lines of a text that fit into a number of characters, or the end of the last line."""
    text = text.strip()
    if len(text) <= limit:
        return text
    end = text[-limit:]
    return end.split("\n", 1)[1] if "\n" in end and text[-limit - 1] != "\n" else end


def task_fields(task: ResearchTask) -> dict[str, str]:
    """Return what the templates may say about a task, by field."""
    inventory, limits, scorer = task.inventory, task.limits, task.scorer
    description = task.description.strip().removeprefix(f"# {task.title}").strip()
    processes = f"{limits.processes} other processes" if limits.processes else "no other processes"
    return {
        "title": task.title,
        "description": description,
        "inventory": inventory.describe(),
        "files": ", ".join(name for name, _ in inventory.files),
        "schema": inventory.brief(),
        "metric": task.metric.name,
        "direction": task.metric.direction,
        "columns": ", ".join((task.id_column, *task.target_columns)),
        "train_rows": str(inventory.train_rows),
        "test_rows": str(inventory.test_rows),
        "seconds": f"{limits.seconds:g}",
        "memory_mb": str(limits.memory_mb),
        "disk_mb": str(limits.disk_mb),
        "limits": f"{limits.seconds:g} CPU seconds, {limits.memory_mb} MB of memory, {limits.disk_mb} MB of disk, "
        f"{processes}, no network",
        "runtime": _runtime(),
        "submission": scorer.files[0],
        "data": _data(inventory, description),
        **(_by_answers(task) if isinstance(scorer, AnswersScorer) else _by_scorer(task)),
    }


def _data(inventory: DataInventory, description: str) -> str:
    """Return the data in a line or two; where there are no columns, the description's first paragraph says more."""
    files = f"Files in ./input: {', '.join(name for name, _ in inventory.files)}."
    if inventory.columns:
        rows = f"train.csv has {inventory.train_rows} rows, test.csv {inventory.test_rows}."
        return f"{files} {rows}\nColumns of train.csv: {inventory.brief()}."
    return "\n".join([description.split("\n\n")[0][:_MAX_ABOUT], files])


def _by_answers(task: ResearchTask) -> dict[str, str]:
    """Return what a solution must write where our own answers score it."""
    columns = ", ".join((task.id_column, *task.target_columns))
    return {
        "must_write": (
            f"it must write ./submission.csv with the columns of input/sample_submission.csv ({columns}), exactly one "
            f"row for each id of input/test.csv, and nothing else. It is scored by {task.metric.name} on hidden "
            f"answers; {task.metric.direction} is better."
        ),
        "must_write_briefly": f"It must write ./submission.csv with the columns {columns}.",
        "flaw": "has wrong ids, columns or values",
    }


def _by_scorer(task: ResearchTask) -> dict[str, str]:
    return {
        "must_write": task.scorer.instructions(task),
        "must_write_briefly": f"It must write ./{task.scorer.files[0]}.",
        "flaw": "is not what the task asks for",
    }


@lru_cache(maxsize=1)
def _runtime() -> str:
    """Return the versions that solutions run with: this interpreter's, which the default sandbox starts."""
    found = [f"Python {platform.python_version()}"]
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)
