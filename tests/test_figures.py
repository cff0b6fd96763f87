"""Figures are drawn from what a run's folder holds, whatever the run was."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from runs import small_config
from wmrl_envs.figures import STATUS_COLOURS, draw_figures
from wmrl_envs.research.outcome import STATUSES
from wmrl_envs.train import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures") / "run"
    train(small_config(steps=3), folder)
    return folder


def test_one_file_for_each_figure(run: Path) -> None:
    written = draw_figures(run)
    assert [path.stem for path in written] == ["score", "calibration", "weight", "statuses", "cost", "overview"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_run_of_a_single_step_without_evaluations(run: Path, tmp_path: Path) -> None:
    for name in ("summary.json", "calibration.json"):
        (tmp_path / name).write_text((run / name).read_text())
    summary = json.loads((run / "summary.json").read_text())
    (tmp_path / "summary.json").write_text(json.dumps(summary | {"before": None, "after": None}))
    pd.read_csv(run / "metrics.csv").head(1).to_csv(tmp_path / "metrics.csv", index=False)
    assert len(draw_figures(tmp_path)) == 6


def test_every_status_has_a_colour_of_its_own() -> None:
    assert set(STATUS_COLOURS) == set(STATUSES)
    assert len(set(STATUS_COLOURS.values())) == len(STATUSES)
