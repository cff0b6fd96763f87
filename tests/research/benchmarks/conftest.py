"""Folders in the layouts of mle-bench, MLE-Dojo and DSBench.

All of it is made here, small, with answers that can be scored by hand: the competitions, the boards, and the packages
``mlebench`` and ``mledojo``, of which only what graders import is there.
"""

from __future__ import annotations

import json
import textwrap
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from wmrl_envs.research.benchmarks import process

BOARD = (10, 5, 11, 15, 10, 7, 9, 10)
"""Shuffled, with a tie of three, lower is better."""

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"

RMSE = """
    import numpy as np
    from mlebench.grade_helpers import InvalidSubmissionError

    from .columns import COLUMNS


    def grade(submission, answers):
        print("graders may print")
        if list(submission.columns) != COLUMNS:
            raise InvalidSubmissionError(f"columns must be {COLUMNS}, got {list(submission.columns)}")
        if sorted(submission["id"]) != sorted(answers["id"]):
            raise InvalidSubmissionError("ids differ; the answers are " + str(answers["y"].tolist()))
        both = answers.merge(submission, on="id")
        return float(np.sqrt(((both["y_x"] - both["y_y"]) ** 2).mean()))
"""

EXACT = """
    def grade(submission, answers):
        given = dict(zip(submission["example_id"], submission["label"]))
        return sum(given[answer["example_id"]] == answer["label"] for answer in answers) / len(answers)
"""

AUC = """
    from sklearn.metrics import roc_auc_score


    def grade(submission, answers):
        both = answers.merge(submission, on="id")
        return roc_auc_score(both["target_x"], both["target_y"])
"""

ACCURACY = """
    import pandas as pd
    from mledojo.metrics.base import CompetitionMetrics, InvalidSubmissionError


    class ToyMetrics(CompetitionMetrics):
        def __init__(self, value: str = "label", higher_is_better: bool = True):
            super().__init__(higher_is_better)
            self.value = value

        def evaluate(self, y_true, y_pred):
            both = y_true.merge(y_pred, on="id", suffixes=("_true", "_pred"))
            return (both[f"{self.value}_true"] == both[f"{self.value}_pred"]).mean()

        def validate_submission(self, submission, ground_truth):
            print("so may metrics")
            if len(submission) != len(ground_truth):
                raise InvalidSubmissionError(f"{len(submission)} rows, expected {len(ground_truth)}")
            return "ok"
"""

BY_PLACE = """
    import argparse
    import os

    import pandas as pd

    parser = argparse.ArgumentParser()
    for name in ("path", "name", "answer_file", "predict_file"):
        parser.add_argument("--" + name, required=True)
    args = parser.parse_args()
    actual, submission = pd.read_csv(args.answer_file), pd.read_csv(args.predict_file)
    score = {score}
    with open(os.path.join(args.path, args.name, "result.txt"), "w") as file:
        file.write(str(score))
"""
SHARE_RIGHT = '(actual["label"] == submission["label"]).mean()'
MEAN_ERROR = '(actual["label"] - submission["label"]).abs().mean()'


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"))
    return path


def table(header: str, rows: Sequence[Sequence[object]]) -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


class Benchmarks:
    """Writes benchmark folders below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site, self.data = root / "site", root / "data"
        self.dojo, self.dsbench = root / "dojo", root / "dsbench"

    def packages(self) -> None:
        """Write what graders import of the two packages."""
        write(self.site / "mlebench/__init__.py", "")
        write(self.site / "mlebench/grade_helpers.py", "class InvalidSubmissionError(Exception):\n    pass\n")
        write(self.site / "mledojo/__init__.py", "")
        write(self.site / "mledojo/metrics/__init__.py", "")
        write(
            self.site / "mledojo/metrics/base.py",
            """
            class CompetitionMetrics:
                def __init__(self, higher_is_better=True):
                    self.higher_is_better = higher_is_better


            class InvalidSubmissionError(Exception):
                pass
            """,
        )

    def competition(
        self,
        name: str = "toy-rmse",
        *,
        metric: str = "root-mean-squared-error",
        board: Sequence[object] = BOARD,
        code: str = RMSE,
        answers: str = "answers.csv",
        sample: str = "public/sample_submission.csv",
        function: str | None = None,
    ) -> Path:
        """Write a competition of mle-bench, in the package and as prepared; return its folder in the package."""
        folder = self.site / "mlebench/competitions" / name
        write(
            folder / "config.yaml",
            f"""
            id: {name}
            name: "A toy: {name}"
            competition_type: simple
            description: mlebench/competitions/{name}/description.md

            dataset:
              answers: {name}/prepared/private/{answers}
              sample_submission: {name}/prepared/{sample}

            grader:
              name: {metric}
              grade_fn: {function or f"mlebench.competitions.{name}.grade:grade"}

            preparer: mlebench.competitions.{name}.prepare:prepare
            """,
        )
        write(folder / "description.md", "# A toy\n\nPredict y.\n")
        write(folder / "columns.py", 'COLUMNS = ["id", "y"]\n')
        write(folder / "grade.py", code)
        write(
            folder / "leaderboard.csv",
            table("teamId,score", [(f"t{place}", score) for place, score in enumerate(board)]),
        )
        prepared = self.data / name / "prepared"
        write(prepared / "public/train.csv", table("id,x,y", [(f"t{n}", n, 10 * n) for n in range(1, 9)]))
        write(prepared / "public/test.csv", table("id,x", [(n, n) for n in (1, 2, 3)]))
        write(prepared / "public/sample_submission.csv", table("id,y", [(n, 0) for n in (1, 2, 3)]))
        write(prepared / "private/answers.csv", table("id,y", [(1, 10), (2, 20), (3, 30)]))
        return folder

    def tabular_competition(self, name: str = "toy-auc", *, rows: int = 60) -> Path:
        """Write a competition of mle-bench with columns to learn from: label 1 where the size is above its middle."""
        folder = self.competition(
            name, metric="auc-roc", board=[0.5 + step / 40 for step in (7, 3, *range(8, 20))], code=AUC
        )
        prepared = self.data / name / "prepared"
        sizes = [(37 * row) % rows for row in range(rows)]
        labels = [int(size + 8 * (row % 3 - 1) > rows // 2) for row, size in enumerate(sizes)]
        table_rows = [(f"{row:04d}", size, ("red", "blue")[row % 2]) for row, size in enumerate(sizes)]
        train = [(f"t{row[0]}", *row[1:], label) for row, label in zip(table_rows, labels, strict=True)]
        write(prepared / "public/train.csv", table("id,size,colour,target", train))
        write(prepared / "public/test.csv", table("id,size,colour", table_rows))
        write(prepared / "public/sample_submission.csv", table("id,target", [(row[0], 0.5) for row in table_rows]))
        answers = [(row[0], label) for row, label in zip(table_rows, labels, strict=True)]
        write(prepared / "private/answers.csv", table("id,target", answers))
        return folder

    def jsonl_competition(self, name: str = "toy-json") -> Path:
        """Write a competition whose answers are JSON lines: a is yes, b is no, c is yes, d is maybe."""
        folder = self.competition(name, metric="accuracy", board=(0.25, 1.0, 0.5), code=EXACT, answers="test.jsonl")
        prepared = self.data / name / "prepared"
        answers = {"a": "yes", "b": "no", "c": "yes", "d": "maybe"}
        lines = [json.dumps({"example_id": key, "label": label}) for key, label in answers.items()]
        write(prepared / "private/test.jsonl", "\n".join(lines) + "\n")
        write(prepared / "public/sample_submission.csv", table("example_id,label", [(key, "no") for key in answers]))
        return folder

    def image_competition(self, name: str = "toy-images") -> Path:
        """Write a competition with a folder of 30 images and a zipped table."""
        folder = self.competition(name)
        public = self.data / name / "prepared/public"
        (public / "images").mkdir()
        for number in range(30):
            (public / f"images/{number:03d}.png").write_bytes(b"\x89PNG")
        with zipfile.ZipFile(public / "train.csv.zip", "w") as archive:
            archive.write(public / "train.csv", "train.csv")
        (public / "train.csv").unlink()
        return folder

    def dojo_competition(
        self,
        name: str = "toy-dojo",
        *,
        private: Sequence[object] | None = (0.8, 0.5, 0.9, 0.8),
        public: Sequence[object] | None = (0.6, 0.7),
        code: str = ACCURACY,
    ) -> Path:
        """Write a competition of MLE-Dojo with shuffled boards; return its folder."""
        folder = self.dojo / name
        write(folder / "utils/metric.py", code)
        write(folder / "data/public/description.txt", "Name the label.\n")
        write(folder / "data/public/train.csv", table("id,x,label", [(f"t{n}", n, n % 2) for n in range(8)]))
        write(folder / "data/public/test.csv", table("id,x", [(n, n) for n in range(5)]))
        write(folder / "data/public/sample_submission.csv", table("id,label", [(n, 0) for n in range(5)]))
        write(folder / "data/private/test_answer.csv", table("id,label", [(n, n % 2) for n in range(5)]))
        for which, board in (("private", private), ("public", public)):
            if board is not None:
                rows = list(enumerate(board, 1))
                write(folder / f"data/private/{which}_leaderboard.csv", table("rank,score", rows))
        return folder

    def ds_task(
        self, name: str = "toy-ds", *, baseline: object = 0.5, best: object = 0.9, score: str = SHARE_RIGHT
    ) -> Path:
        """Write a task of DSBench with ten answers, 0 to 9; return the benchmark's folder."""
        root, data = self.dsbench, self.dsbench / "data"
        listed = root / "data.json"
        known = listed.read_text() if listed.is_file() else ""
        write(
            listed,
            known + json.dumps({"name": name, "url": "https://example.org", "size": "1 kB", "year": 2020}) + "\n",
        )
        write(data / f"task/{name}.txt", "Name the label.\n")
        write(data / f"data_resplit/{name}/train.csv", table("id,x,label", [(f"t{n}", n, n) for n in range(10)]))
        write(data / f"data_resplit/{name}/test.csv", table("id,x", [(f"r{n}", n) for n in range(10)]))
        write(data / f"data_resplit/{name}/sample_submission.csv", table("id,label", [(f"r{n}", 0) for n in range(10)]))
        write(data / f"answers/{name}/test_answer.csv", table("id,label", [(f"r{n}", n) for n in range(10)]))
        write(root / f"evaluation/{name}_eval.py", textwrap.dedent(BY_PLACE).format(score=score))
        write(root / f"save_performance/baseline/{name}/result.txt", f"{baseline}")
        write(root / f"save_performance/GT/{name}/result.txt", f"{best}")
        return root


@pytest.fixture
def benchmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Benchmarks]:
    """Return a writer of benchmark folders, with the two packages where imports find them."""
    made = Benchmarks(tmp_path)
    made.packages()
    monkeypatch.syspath_prepend(str(made.site))
    yield made
    process.close_all()
