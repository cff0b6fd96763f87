"""Throughput of the process sandbox against starting ``python solution.py`` for each of the same 40 small solutions.

The yardstick isolates nothing, limits nothing and grades nothing: it is one ``subprocess.run`` a solution, as many at a
time as the sandbox has workers. The sandbox must run at least 8 times as many solutions a second, and both must write
the same submissions. Rounds alternate, and the fastest of each counts.

    python benchmarks/sandbox.py [--task titanic] [--workers 2] [--rounds 2] [--isolation strict]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Status
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.task import ResearchTask, load_task

Result = TypeVar("Result")
LIMIT = 8.0
MODELS = {
    "LogisticRegression(max_iter=500)": "sklearn.linear_model",
    "RidgeClassifierCV()": "sklearn.linear_model",
    "GaussianNB()": "sklearn.naive_bayes",
    "DecisionTreeClassifier(max_depth=4, random_state=0)": "sklearn.tree",
    "KNeighborsClassifier(15)": "sklearn.neighbors",
    "LinearDiscriminantAnalysis()": "sklearn.discriminant_analysis",
    "SVC(kernel='linear', C=0.1)": "sklearn.svm",
    "RandomForestClassifier(20, random_state=0)": "sklearn.ensemble",
}
SCALERS = (
    "StandardScaler()",
    "MinMaxScaler()",
    "RobustScaler()",
    "QuantileTransformer(n_quantiles=50)",
    "Normalizer()",
)
TEMPLATE = """import pandas as pd
from {module} import {name}
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import {scaler_name}

train = pd.read_csv("input/train.csv")
test = pd.read_csv("input/test.csv")
sample = pd.read_csv("input/sample_submission.csv")
target = sample.columns[1]
columns = [column for column in test.columns if pd.api.types.is_numeric_dtype(test[column])]
model = make_pipeline(SimpleImputer(), {scaler}, {model})
model.fit(train[columns], train[target])
if hasattr(model, "predict_proba"):
    sample[target] = model.predict_proba(test[columns])[:, 1]
else:
    sample[target] = model.decision_function(test[columns])
sample.to_csv("submission.csv", index=False)
"""


def solutions() -> list[str]:
    """Return the sources of 40 small solutions: eight models behind five scalers."""
    return [
        TEMPLATE.format(
            module=module, name=model.split("(")[0], scaler_name=scaler.split("(")[0], scaler=scaler, model=model
        )
        for model, module in MODELS.items()
        for scaler in SCALERS
    ]


def run_plainly(codes: Sequence[str], task: ResearchTask, workers: int) -> list[bytes]:
    """Return the submissions that ``python solution.py`` writes."""
    with tempfile.TemporaryDirectory() as root, ThreadPoolExecutor(workers) as pool:

        def run(numbered: tuple[int, str]) -> bytes:
            folder = Path(root, str(numbered[0]))
            folder.mkdir()
            (folder / "solution.py").write_text(numbered[1])
            (folder / "input").symlink_to(task.public)
            subprocess.run([sys.executable, "solution.py"], cwd=folder, check=True, capture_output=True)
            return (folder / "submission.csv").read_bytes()

        return list(pool.map(run, enumerate(codes)))


def clock(function: Callable[[], Result]) -> tuple[float, Result]:
    """Return the wall seconds of a call and its result."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="titanic", help="a task with a binary target")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--isolation", choices=["auto", "strict", "none"], default="auto")
    arguments = parser.parse_args()
    task, codes = load_task(arguments.task), solutions()
    submissions = [Submission(task, code) for code in codes]
    same, seconds = 0, []
    with ProcessSandbox(workers=arguments.workers, isolation=arguments.isolation) as sandbox:
        start, _ = clock(lambda: sandbox.run("", task.public))
        run_plainly(codes[:: len(SCALERS)], task, 1)  # fills the file cache
        for _ in range(arguments.rounds):
            one, plain = clock(lambda: run_plainly(codes, task, 1))
            several, _ = clock(lambda: run_plainly(codes, task, arguments.workers))
            ours, outcomes = clock(lambda: sandbox.grade(submissions))
            seconds.append((one, several, ours))
            if any(outcome is None or outcome.status is not Status.VALID for outcome in outcomes):
                raise SystemExit("a solution failed")
        same = sum(sandbox.run(code, task.public).submission == file for code, file in zip(codes, plain, strict=True))
        print(f"{len(codes)} solutions of {task.id}; {sandbox.layers}; started once in {start:.1f} s")
    one, several, ours = (min(column) for column in zip(*seconds, strict=True))
    print(f"{'':44}{'s':>8}{'ms each':>10}{'a second':>10}")
    rows = {
        "subprocess.run, one at a time": one,
        f"subprocess.run, {arguments.workers} at a time": several,
        f"ProcessSandbox, {arguments.workers} workers, graded": ours,
    }
    for name, took in rows.items():
        print(f"{name:44}{took:8.2f}{1000 * took / len(codes):10.1f}{len(codes) / took:10.1f}")
    ratio = several / ours
    print(f"same submissions: {same} of {len(codes)}")
    print(f"throughput: {one / ours:.1f} times one at a time, {ratio:.1f} times as many at a time (at least {LIMIT:g})")
    if ratio < LIMIT or same < len(codes):
        raise SystemExit("below the limit, or other submissions")


if __name__ == "__main__":
    main()
