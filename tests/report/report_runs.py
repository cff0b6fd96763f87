"""Run folders as training leaves them, small and synthetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wmrl_envs.config import TrainConfig
from wmrl_envs.research.outcome import STATUSES

CODE = """import pandas as pd

def main(path: str) -> None:
    train = pd.read_csv(path)  # the data
    raise ValueError("no column")

main("input/train.csv")
"""


def outcome(status: str, reward: float, feedback: str = "", **more: Any) -> dict[str, Any]:
    return {"status": status, "reward": reward, "feedback": feedback, "seconds": 0.12, **more}


def episode(step: int, number: int, *, anchor: bool = False, task: str = "titanic", **more: Any) -> dict[str, Any]:
    """Return one episode of one turn; anchors of even steps were predicted wrongly."""
    predicted = outcome("valid", 0.7, "submission.csv is valid", score=0.8, spread=0.1)
    turn: dict[str, Any] = {"code": CODE.replace("no column", f"no column {number}"), "predicted": predicted}
    found: dict[str, Any] = {"step": step, "episode": number, "group": number // 4, "task": task, "anchor": anchor}
    found |= {"predicted_reward": 0.7, "calibrated_reward": 0.65, "turns": [turn]}
    if anchor:
        traceback = f"Traceback (most recent call last):\nValueError: no column {number}"
        error = outcome("runtime_error", 0.1, traceback, error_type="ValueError", error_line=5)
        turn["real"] = error if step % 2 == 0 else outcome("valid", 0.75, "submission.csv is valid")
        found |= {"real_reward": turn["real"]["reward"], "corrected_return": 0.4}
    return found | more


def metrics(steps: int, seed: int = 0) -> pd.DataFrame:
    """Return rows of a run that learns."""
    generator = np.random.default_rng(seed)
    step = np.arange(1, steps + 1)
    reward = 0.4 + 0.5 * step / steps + 0.03 * generator.standard_normal(steps)
    columns: dict[str, Any] = {"step": step, "wall_seconds": 0.5 * step}
    columns |= {"real_reward": reward, "predicted_reward": reward - 0.05, "calibrated_reward": reward - 0.01}
    columns |= {"lambda": 0.8, "alpha": np.minimum(1.0, step / 10), "weight": 1.5}
    columns |= {f"status_{status}": 0.0 for status in STATUSES}
    columns |= {"status_valid": 0.5 + 0.5 * step / steps, "status_runtime_error": 0.5 - 0.5 * step / steps}
    columns |= {"executions": 100 + 10 * step, "predictions": 100 * step, "execution_seconds": 20.0 + step}
    columns |= {"prediction_seconds": 0.1 * step, "warmup_seconds": 20.0, "full_seconds": 10.0 * step}
    return pd.DataFrame(columns | {"cost_ratio": (20.0 + 1.1 * step) / (10.0 * step)})


def evaluation(score: float) -> dict[str, Any]:
    return {"score": score, "standard_error": 0.02, "episodes": 64, "valid": 0.9, "statuses": {"valid": 64}}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def write_lines(path: Path, values: list[Any]) -> None:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")


def research_run(
    folder: Path,
    *,
    steps: int = 12,
    seed: int = 0,
    finished: bool = True,
    episodes: list[dict[str, Any]] | None = None,
    **settings: Any,
) -> Path:
    """Write a run folder of research tasks; ``episodes`` by default four a step, the first an anchor."""
    config = TrainConfig.from_dict({"task": "titanic", "steps": steps, "seed": seed, **settings})
    write(folder / "config.json", config.to_dict())
    write(folder / "versions.json", {"python": "3.11.7", "numpy": "2.4.0"})
    write(folder / "before.json", evaluation(0.42))
    metrics(steps, seed).to_csv(folder / "metrics.csv", index=False)
    if episodes is None:
        pairs = [(step, number) for step in range(1, steps + 1) for number in range(4)]
        episodes = [episode(step, 4 * step + number, anchor=number == 0) for step, number in pairs]
    write_lines(folder / "trajectories.jsonl", episodes)
    knots = {"predicted": [0.1, 0.5, 0.9], "real": [0.1, 0.45, 0.95]}
    history = [
        {"step": step, "predicted": [0.1, 0.9], "real": [0.1, 0.5 + 0.4 * step / steps]} for step in (2, 6, steps)
    ]
    write(folder / "calibration_history.json", history)
    if finished:
        anchors = {"step": [1, 2, 3], "predicted": [0.2, 0.5, 0.9], "real": [0.1, 0.5, 1.0]}
        write(folder / "calibration.json", anchors | {"knots": knots})
        (folder / "best_solution.py").write_text(CODE, encoding="utf-8")
        best = {"task": "titanic", "file": "best_solution.py", "status": "valid", "reward": 0.9, "report_reward": 0.88}
        ledger = {"execution_seconds": 32.0, "warmup_seconds": 20.0, "cost_ratio": 0.27, "executions": 220}
        ledger |= {"predictions": 1200, "full_seconds": 120.0}
        after = evaluation(0.8 + 0.01 * seed)
        summary = {"config": config.to_dict(), "steps": steps, "before": evaluation(0.42), "after": after}
        write(folder / "summary.json", summary | {"best_solutions": [best], "ledger": ledger})
    return folder


def robot_run(folder: Path, *, steps: int = 6, seed: int = 0) -> Path:
    """Write a run folder of robots with two real videos, one of them of an episode that was noted down."""
    from wmrl_envs.robotics.video import write_video

    tasks = {"drawer-open": 0.3, "window-open": 0.5}
    settings = {"tasks": ",".join(tasks), "reward": "mixed", "steps": steps, "seed": seed, "image_size": 64}
    write(folder / "config.json", settings)
    step = np.arange(1, steps + 1)
    rows = {"step": step, "rollouts": 80.0, "labels": 8.0, "loss": 0.1, "predicted_reward": 0.3 + 0.05 * step}
    pd.DataFrame(rows | {"real_reward": 0.3 + 0.06 * step}).to_csv(folder / "metrics.csv", index=False)
    before = {"success": tasks, "mean": 0.4, "standard_error": 0.05}
    after = {"success": {"drawer-open": 0.6, "window-open": 0.8}, "mean": 0.7, "standard_error": 0.04}
    write(folder / "before.json", before)
    write(folder / "after.json", after)
    summary = {"config": settings, "steps": steps, "before": before, "after": after, "rollouts": 480, "labels": 48}
    write(folder / "summary.json", summary)
    frames = np.zeros((30, 64, 64, 3), dtype=np.uint8)
    frames[:, :, :, 1] = np.linspace(40, 250, 30).astype(np.uint8)[:, None, None]
    for name in ("step-0003-0.mp4", "drawer-open-77.mp4"):
        write_video(folder / "videos" / name, frames, fps=15)
    progress = np.linspace(0.1, 0.9, 30).tolist()
    found = {
        "step": 3,
        "episode": 5,
        "group": 1,
        "task": "drawer-open",
        "anchor": True,
        "instruction": "open the drawer",
    }
    found |= {"progress": progress, "success_probability": progress, "real_reward": 1.0, "predicted_reward": 0.9}
    write_lines(folder / "trajectories.jsonl", [found | {"video": "videos/step-0003-0.mp4"}])
    return folder
