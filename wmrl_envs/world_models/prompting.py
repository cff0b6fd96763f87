"""What a language model reads when it is asked how a solution ends, built from template files that a user can replace.

A template folder holds seven Markdown files in which ``$name`` stands for a field and ``$$`` for a dollar sign:

* ``system.md``: who the model is; an empty one leaves the system message out.
* ``task.md``: the task. It comes first and is the same for all solutions of a task: a prefix that backends read once.
* ``example.md``: one executed solution and its outcome; repeated for each example.
* ``solution.md``: the solution to judge.
* ``answer-word.md``, ``answer-json.md``, ``feedback.md``: how to answer, according to what is asked.

Code is ``$code`` with numbered lines, which an answer about a line needs, or ``$plain_code`` without: a quarter fewer
tokens. ``default`` is for models of billions of parameters, ``compact`` for small ones. Templates are filled in by
`string.Template`, never run: braces and dollars in code are safe. What is filled in is other people's text, so the
markers with which chat templates separate messages are broken up in it, and a fence is longer than any in the code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Literal, TypeAlias

from wmrl_envs.errors import ConfigurationError, did_you_mean
from wmrl_envs.files import write_text
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import BUCKET_POSITIONS, Outcome, Status
from wmrl_envs.world_models.backends.protocol import Message
from wmrl_envs.world_models.prompt_text import fenced, neutral, numbered, tail, task_fields
from wmrl_envs.world_models.verdicts import VERDICTS, verdict_of

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["BUILTIN_TEMPLATES", "AnswerKind", "PromptTemplates"]

AnswerKind: TypeAlias = Literal["word", "json", "feedback"]
"""What is asked for: one of the verdicts, a JSON object, or the text that a terminal would show."""

_FORMAT = 1
"""Counts changes of how fields are written, which the template files do not show."""
_FOLDER = Path(__file__).resolve().parent / "prompts"
BUILTIN_TEMPLATES = ("default", "compact")
"""Template folders that come with the package."""

_TASK_FIELDS = (
    *("title", "description", "inventory", "files", "schema", "metric", "direction", "columns"),
    *("train_rows", "test_rows", "seconds", "memory_mb", "disk_mb", "limits", "runtime"),
    *("submission", "must_write", "must_write_briefly", "flaw", "data"),
)
_ANSWER_FIELDS = ("verdicts", "statuses", *BUCKET_POSITIONS)
_OWN_FIELDS: Mapping[str, tuple[str, ...]] = {
    "system.md": (),
    "task.md": (),
    "example.md": ("code", "plain_code", "outcome"),
    "solution.md": ("code", "plain_code"),
    "answer-word.md": _ANSWER_FIELDS,
    "answer-json.md": _ANSWER_FIELDS,
    "feedback.md": ("verdict",),
}
"""Template files, and the fields that each has besides those of the task."""
_NEEDED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "task.md": (("inventory", "schema", "description", "data"),),
    "example.md": (("code", "plain_code"), ("outcome",)),
    "solution.md": (("code", "plain_code"),),
    "feedback.md": (("verdict",),),
}
"""Fields without which a template says nothing: of each tuple one."""

_ASKED: Mapping[str, str] = {"word": "answer-word.md", "json": "answer-json.md", "feedback": "feedback.md"}
_STATUSES = (
    *(Status.RUNTIME_ERROR, Status.TIMEOUT, Status.MEMORY, Status.DISK),
    *(Status.NO_SUBMISSION, Status.INVALID_SUBMISSION, Status.VALID),
)
_MEANINGS = {
    "error": "error, an exception or a non-zero exit code",
    "timeout": "timeout, it reaches the time limit",
    "memory": "memory, it reaches the memory limit",
    "disk": "disk, it reaches the disk limit",
    "nothing": "nothing, it ends well but writes no $submission",
    "invalid": "invalid, $submission $flaw",
}
_REASONS = {
    Status.TIMEOUT: "It does not end within the time limit.",
    Status.MEMORY: "It needs more memory than the limit.",
    Status.DISK: "It writes more than the disk limit.",
    Status.NO_SUBMISSION: "It ends without an exception and never writes its submission.",
    Status.INVALID_SUBMISSION: "It writes a submission that does not answer the task.",
}
_MAX_CACHED = 256
_MAX_FEEDBACK = 400
"""Longest feedback in an example or an ideal answer, in characters; its end tells."""


class PromptTemplates:
    """Turns submissions into chats, and executed outcomes into the answers that should have been given.

    Args:
        texts: Content of each template file, by its name.
        source: Where they came from, for messages.

    Raises:
        ConfigurationError: If a template is missing, cannot be read, has an unknown field or lacks a needed one.

    Example:
        >>> from wmrl_envs.research.task import load_task
        >>> templates = PromptTemplates.load("compact")
        >>> chat = templates.conversation(Submission(load_task("titanic"), "print(1)"), answer="word")
        >>> [message["role"] for message in chat]
        ['system', 'user']
    """

    def __init__(self, texts: Mapping[str, str], source: str = "the given templates") -> None:
        self.source = source
        self._texts = {name: _checked(name, texts, source) for name in _OWN_FIELDS}
        parts = [_FORMAT, *sorted((name, template.template) for name, template in self._texts.items())]
        self.identity = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        """Hash of the templates' content; predictions are cached under it."""
        self._fields: dict[int, tuple[ResearchTask, dict[str, str], list[str]]] = {}

    @classmethod
    def load(cls, name_or_folder: str | os.PathLike[str] = "default") -> PromptTemplates:
        """Read templates: ``"default"``, ``"compact"``, or the path of a folder that holds the seven files.

        Raises:
            ConfigurationError: If there is no such folder, or a template in it cannot be used.
        """
        named = name_or_folder in BUILTIN_TEMPLATES
        folder = _FOLDER / name_or_folder if named else Path(name_or_folder)
        if not folder.is_dir():
            raise ConfigurationError(
                f"unknown templates {str(name_or_folder)!r}; they are {' or '.join(map(repr, BUILTIN_TEMPLATES))}, or "
                "the path of a folder of your own (PromptTemplates.load('default').save(folder) makes one to start "
                f"from).{did_you_mean(str(name_or_folder), BUILTIN_TEMPLATES)}"
            )
        texts = {}
        for name in _OWN_FIELDS:
            try:
                texts[name] = (folder / name).read_text(encoding="utf-8")
            except FileNotFoundError:
                continue
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"cannot read the template {folder / name}: {error}") from error
        return cls(texts, str(folder))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the seven template files into a folder, for a user to change."""
        for name, template in self._texts.items():
            write_text(Path(folder) / name, template.template)

    def conversation(
        self,
        submission: Submission,
        *,
        answer: AnswerKind = "word",
        examples: Sequence[tuple[str, Outcome]] = (),
        verdict: str | None = None,
    ) -> list[Message]:
        """Return the chat that asks how a submission ends.

        Args:
            submission: A solution that compiles; very long code is shown without its middle.
            answer: What to ask for.
            examples: Executed solutions of the same task, shown in this order.
            verdict: For ``"feedback"``, how the solution ends: one of ``VERDICTS``.

        Raises:
            ConfigurationError: If ``answer`` is unknown, the verdict is missing or unknown, or an example is an outcome
                that needs no execution.
        """
        if answer not in _ASKED:
            raise ConfigurationError(f"answer must be one of {', '.join(_ASKED)}, got {answer!r}")
        if (answer == "feedback") != (verdict is not None) or (verdict is not None and verdict not in VERDICTS):
            raise ConfigurationError(
                f"answer='feedback' needs a verdict, one of {', '.join(VERDICTS)}, and the others none; "
                f"got answer={answer!r}, verdict={verdict!r}"
            )
        fields, opening = self._task(submission.task)
        parts = [opening[-1]]
        for code, outcome in examples:
            shown = fenced(tail(outcome.feedback, 2 * _MAX_FEEDBACK)) if answer == "feedback" else ""
            shown = shown or neutral(self.answer(outcome, "json" if answer == "json" else "word"))
            parts.append(self._fill("example.md", fields, **_listings(code), outcome=shown))
        parts.append(self._fill("solution.md", fields, **_listings(submission.code or "")))
        meaning = Template(_MEANINGS.get(verdict or "", f"valid, it ranks {verdict}")).substitute(fields)
        parts.append(self._fill(_ASKED[answer], fields, verdict=meaning, **_ANSWERS))
        user: Message = {"role": "user", "content": "\n\n".join(part for part in parts if part)}
        return [*({"role": "system", "content": text} for text in opening[:-1] if text), user]  # type: ignore[list-item]

    def answer(self, outcome: Outcome, kind: Literal["word", "json"] = "word") -> str:
        """Return the reply that would have been right about an executed solution.

        The JSON's reason says no more than the outcome does, and its confidence is 1.

        Raises:
            ConfigurationError: If the outcome is one that the exact gates tell, so that nobody is asked about it.
        """
        verdict = verdict_of(outcome)
        if verdict is None:
            raise ConfigurationError(
                f"a {outcome.status} is told without asking a language model, so it is no example: leave out what "
                "wmrl_envs.research.grading.gate answers"
            )
        if kind == "word":
            return verdict
        fields = {
            "reason": _reason(outcome, verdict),
            "status": str(outcome.status),
            "error_type": outcome.error_type,
            "error_line": outcome.error_line,
            "bucket": verdict if outcome.status is Status.VALID else None,
            "feedback": _message(outcome),
            "confidence": 1.0,
        }
        return json.dumps(fields, ensure_ascii=False)

    def _task(self, task: ResearchTask) -> tuple[dict[str, str], list[str]]:
        """Return a task's fields, and the texts that all its chats begin with: the system's and the user's."""
        known = self._fields.get(id(task))
        if known is None or known[0] is not task:  # an id may come back for another object
            fields = {name: neutral(text) for name, text in task_fields(task).items()}
            opening = [self._fill("system.md", fields), self._fill("task.md", fields)]
            if len(self._fields) >= _MAX_CACHED:
                self._fields.clear()
            known = self._fields[id(task)] = (task, fields, opening)
        return known[1], known[2]

    def _fill(self, name: str, fields: Mapping[str, str], **own: str) -> str:
        return self._texts[name].substitute(fields, **own).strip()


def _listings(code: str) -> dict[str, str]:
    return {"code": numbered(code), "plain_code": numbered(code, numbers=False)}


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


_ANSWERS = {
    "verdicts": ", ".join(VERDICTS),
    "statuses": ", ".join(_STATUSES),
    **{bucket: _percent(position) for bucket, position in BUCKET_POSITIONS.items()},
}


def _reason(outcome: Outcome, verdict: str) -> str:
    if outcome.status is Status.VALID:
        return f"It writes a valid submission whose score ranks {verdict} on the leaderboard."
    if outcome.status is not Status.RUNTIME_ERROR:
        return _REASONS[outcome.status]
    where = f"Line {outcome.error_line}" if outcome.error_line else "It"
    return f"{where} raises {outcome.error_type}." if outcome.error_type else f"{where} ends with a non-zero exit code."


def _message(outcome: Outcome) -> str:
    """Return the end of the feedback that says why: from the line that names the exception, or else the last line."""
    lines = tail(outcome.feedback, _MAX_FEEDBACK).split("\n")
    named = re.compile(rf"[\w.]*{re.escape(outcome.error_type)}\b") if outcome.error_type else None
    starts = [number for number, line in enumerate(lines) if named and named.match(line)]
    return "\n".join(lines[starts[-1] if starts else -1 :])


def _checked(name: str, texts: Mapping[str, str], source: str) -> Template:
    """Return a template whose fields all exist and that has those it needs."""
    if name not in texts:
        raise ConfigurationError(f"{source} lacks the template {name}; the files are {', '.join(_OWN_FIELDS)}")
    template = Template(texts[name])
    valid = (*_OWN_FIELDS[name], *_TASK_FIELDS)
    if not template.is_valid():
        raise ConfigurationError(
            f"the template {name} of {source} has a dollar sign that begins no field; write $$ for a dollar sign. "
            f"Its fields are {_dollars(valid)}"
        )
    found = template.get_identifiers()
    for field in found:
        if field not in valid:
            raise ConfigurationError(
                f"the template {name} of {source} has the unknown field ${field}; its fields are "
                f"{_dollars(valid)}.{did_you_mean(field, valid)}"
            )
    for alternatives in _NEEDED.get(name, ()):
        if not set(alternatives) & set(found):
            raise ConfigurationError(
                f"the template {name} of {source} lacks the field {_dollars(alternatives, ' or ')}; its fields are "
                f"{_dollars(valid)}"
            )
    return template


def _dollars(names: Iterable[str], joint: str = ", ") -> str:
    return joint.join(f"${name}" for name in names)
