"""A small task folder that tests can spoil."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

TaskWriter = Callable[..., Path]


@pytest.fixture
def write_task(tmp_path: Path) -> TaskWriter:
    """Return a function that writes a complete task folder and returns its path.

    By default: eight ids, one binary target, AUC, even rows for training. ``answers`` maps an id to its target values.
    """

    def write(
        name: str = "toy",
        *,
        metric: str = "auc",
        kind: str = "tabular-classification",
        targets: Sequence[str] = ("target",),
        answers: Mapping[str, Sequence[object]] | None = None,
        placeholder: object = 0.5,
        boards: object = None,
        **fields: Any,
    ) -> Path:
        folder = tmp_path / name
        (folder / "public").mkdir(parents=True, exist_ok=True)
        (folder / "private").mkdir(exist_ok=True)
        if answers is None:
            answers = {f"{place:03d}": [place // 2 % 2] for place in range(8)}
        manifest = {
            "format": 1,
            "id": name,
            "title": "A toy",
            "kind": kind,
            "metric": metric,
            "id_column": "id",
            "target_columns": list(targets),
            "limits": {"seconds": 3},
            "design": None,
            "license": "CC0-1.0",
            "source": "made up",
        }
        (folder / "task.json").write_text(json.dumps({**manifest, **fields}))
        (folder / "description.md").write_text("# A toy\n\nPredict the target.\n")
        (folder / "LICENSE-data.txt").write_text("CC0-1.0\n")
        board = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
        (folder / "leaderboard.json").write_text(json.dumps(boards or {"train": board, "report": board}))
        _write(folder / "private/answers.csv", ["id", *targets, "half"], [
            [identifier, *values, ("train", "report")[place % 2]]
            for place, (identifier, values) in enumerate(answers.items())
        ])  # fmt: skip
        _write(folder / "public/sample_submission.csv", ["id", *targets], [
            [identifier, *[placeholder] * len(targets)] for identifier in answers
        ])  # fmt: skip
        _write(folder / "public/test.csv", ["id", "size", "colour"], [
            [identifier, place, "red"] for place, identifier in enumerate(answers)
        ])  # fmt: skip
        _write(folder / "public/train.csv", ["id", "size", "colour", *targets], [
            [f"t{identifier}", place, "" if place == 0 else "blue", *values]
            for place, (identifier, values) in enumerate(answers.items())
        ])  # fmt: skip
        return folder

    return write


@pytest.fixture
def write_code_task(tmp_path: Path) -> TaskWriter:
    """Return a function that writes a folder whose task is graded by a Python script, and returns its path.

    By default a solution leaves ``answer.txt``, a number, which is its score.
    """

    def write(grade: str = "", name: str = "toy-code", files: Mapping[str, str] | None = None, **fields: Any) -> Path:
        folder = tmp_path / name
        manifest = {
            "format": 1,
            "id": name,
            "title": "A toy",
            "kind": "code",
            "metric": "closeness",
            "grader": "command",
            "command": ["python", "private/grade.py"],
            "files": ["answer.txt"],
            "greater_is_better": True,
            "scale": {"zero": 0, "one": 1},
            "license": "CC0-1.0",
            "source": "made up",
        }
        contents = {
            "task.json": json.dumps({key: value for key, value in {**manifest, **fields}.items() if value is not None}),
            "description.md": "# A toy\n\nWrite a number.\n",
            "LICENSE-data.txt": "CC0-1.0\n",
            "example.py": 'open("answer.txt", "w").write("0.8")\n',
            "public/hint.txt": "It is below 1.\n",
            "private/grade.py": grade or GRADE,
            **(files or {}),
        }
        for path, text in contents.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return folder

    return write


GRADE = """
import json

with open("submission/answer.txt") as file:
    answer = file.read()
try:
    score = float(answer)
except ValueError:
    print(json.dumps({"invalid": "answer.txt holds no number"}))
else:
    print(json.dumps({"score": score, "report_score": score / 2, "feedback": "looked at"}))
"""


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n")
