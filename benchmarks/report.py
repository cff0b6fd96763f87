"""Time and size of reports of many runs and of a long one, on synthetic run folders.

    python benchmarks/report.py

The folders are made here, in the form in which training leaves them: curves with noise, four episodes a step with
programs of 60 lines that all differ. It prints, per case, what reading and writing took, the size of the file, how long
Chromium takes to show the first figure, and what was left out.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from playwright.sync_api import sync_playwright

from wmrl_envs.config import TrainConfig
from wmrl_envs.report import write_report
from wmrl_envs.research.outcome import STATUSES

PROGRAM = "\n".join(f"column_{line} = train['name_{line}'].fillna({line}.5)  # why {line}" for line in range(60))
REWARDS = ("rectified", "paper", "debias", "world-model", "real")


def make_run(folder: Path, *, steps: int, seed: int, reward: str = "rectified") -> None:
    """Write a synthetic run folder."""
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    config = TrainConfig.from_dict({"task": "titanic", "steps": steps, "seed": seed, "reward": reward})
    write(folder / "config.json", config.to_dict())
    step = np.arange(1, steps + 1)
    level = 0.4 + 0.5 * step / steps
    rows = {"step": step, "wall_seconds": 0.5 * step}
    for name in ("real_reward", "predicted_reward", "calibrated_reward"):
        rows[name] = level + 0.05 * generator.standard_normal(steps)
    rows |= {name: 0.5 + 0.1 * generator.standard_normal(steps) for name in ("lambda", "alpha", "weight")}
    shares = generator.dirichlet(np.ones(len(STATUSES)), size=steps)
    rows |= {f"status_{status}": shares[:, place] for place, status in enumerate(STATUSES)}
    rows |= {"execution_seconds": 20.0 + step, "prediction_seconds": 0.1 * step, "full_seconds": 10.0 * step}
    pd.DataFrame(rows).to_csv(folder / "metrics.csv", index=False)
    noted = np.unique(np.linspace(1, steps, min(steps, 100)).astype(int))
    with (folder / "trajectories.jsonl").open("w", encoding="utf-8") as file:
        for place, at in enumerate(noted.tolist()):
            file.writelines(json.dumps(episode(at, 10 * place + number, seed)) + "\n" for number in range(10))
    knots = np.linspace(0, 1, 40)
    history = [{"step": int(at), "predicted": knots.tolist(), "real": (knots**1.2).tolist()} for at in noted[::2]]
    write(folder / "calibration_history.json", history)
    pairs = {"step": np.linspace(1, steps, 5000).astype(int).tolist()}
    pairs |= {name: generator.uniform(size=5000).tolist() for name in ("predicted", "real")}
    write(folder / "calibration.json", pairs | {"knots": history[-1]})
    score = {"score": 0.4, "standard_error": 0.02, "episodes": 64, "valid": 0.9}
    after = score | {"score": float(level[-1])}
    write(
        folder / "summary.json", {"steps": steps, "before": score, "after": after, "best_solutions": [], "ledger": {}}
    )
    write(folder / "before.json", score)


def episode(step: int, number: int, seed: int) -> dict[str, object]:
    """Return an episode whose program no other one has; every third is an anchor."""
    outcome = {"status": "valid", "reward": 0.7, "feedback": f"submission.csv is valid: score {number}", "seconds": 0.1}
    turn = {"code": f"{PROGRAM}\nseed = {seed}, {number}\n", "predicted": outcome}
    found = {"step": step, "episode": number, "group": number, "task": "titanic", "predicted_reward": 0.7}
    anchor = number % 3 == 0
    return found | {"anchor": anchor, "turns": [turn | ({"real": outcome} if anchor else {})]}


def write(path: Path, value: object) -> None:
    """Write JSON."""
    path.write_text(json.dumps(value), encoding="utf-8")


def many_runs(folder: Path) -> list[Path]:
    """Make 50 runs of 60 steps: five schemes, ten seeds each."""
    for number in range(50):
        make_run(folder / f"run-{number}", steps=60, seed=number // 5, reward=REWARDS[number % 5])
    return sorted(folder.iterdir())


def long_run(folder: Path) -> list[Path]:
    """Make one run of 100,000 steps."""
    make_run(folder / "long", steps=100_000, seed=0)
    return [folder / "long"]


def main() -> None:
    """Print a line per case."""
    cases: dict[str, Callable[[Path], list[Path]]] = {
        "50 runs x 60 steps": many_runs,
        "1 run x 100,000 steps": long_run,
    }
    print(f"synthetic run folders, Python {sys.version.split()[0]}")
    for name, make in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            runs, page = make(Path(folder)), Path(folder) / "report.html"
            started, used = time.perf_counter(), time.process_time()
            written = write_report(runs, page)
            took, used = time.perf_counter() - started, time.process_time() - used
            opened = seconds_to_open(page)
        size = f"{written['bytes'] / 1e6:.1f} MB"
        print(f"{name}: written in {took:.1f} s ({used:.1f} s of CPU), {size}, first figure after {opened:.1f} s")
        for told in written["left_out"]:
            print(f"  left out: {told}")


def seconds_to_open(path: Path) -> float:
    """Return the seconds until a browser shows the first figure of a page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        started = time.perf_counter()
        page.goto(path.as_uri())
        page.locator(".plot .scatterlayer .trace").first.wait_for(state="attached")
        took = time.perf_counter() - started
        browser.close()
    return took


if __name__ == "__main__":
    main()
