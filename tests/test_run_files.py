"""What every kind of run leaves: metrics.csv grows by a line a step, and a folder that cannot be written says so."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from runs import small_config, steps_done
from wmrl_envs.checkpoint import checkpoints
from wmrl_envs.errors import CheckpointError
from wmrl_envs.run_files import MetricsFile
from wmrl_envs.train import train


def test_rows_are_appended_to_what_writing_them_whole_gives(tmp_path: Path) -> None:
    rows = [{"step": 1, "a": 0.1}, {"step": 2, "a": 3}, {"step": 3, "late": 7}, {"step": 4, "a": 0.5, "late": "x,y"}]
    for folder in ("one by one", "resumed", "whole"):
        (tmp_path / folder).mkdir()
    grown = MetricsFile(tmp_path / "one by one")
    for count in range(1, 5):
        grown.write(rows[:count])
    (tmp_path / "resumed" / "metrics.csv").write_text("step,a\n1,0.1\n2,")
    resumed = MetricsFile(tmp_path / "resumed")
    for count in (2, 3, 4):
        resumed.write(rows[:count])
    MetricsFile(tmp_path / "whole").write(rows)
    texts = {(tmp_path / folder / "metrics.csv").read_text() for folder in ("one by one", "resumed", "whole")}
    assert texts == {'step,a,late\n1,0.1,\n2,3,\n3,,7\n4,0.5,"x,y"\n'}


def test_a_step_is_written_without_those_before_it(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path)
    rows = [{"step": 1, "a": 0.1}]
    file.write(rows)
    before = (tmp_path / "metrics.csv").stat().st_ino
    file.write([*rows, {"step": 2, "a": 0.2}])
    assert (tmp_path / "metrics.csv").stat().st_ino == before
    assert (tmp_path / "metrics.csv").read_text() == "step,a\n1,0.1\n2,0.2\n"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's own thread
def test_a_disk_that_fills_up_ends_a_run_that_can_go_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(row: dict[str, object]) -> None:
        if row["step"] == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))

    settings = {"steps": 4, "groups": 2, "evaluation_rollouts": 0}
    try:
        with pytest.raises(CheckpointError, match=rf"cannot be written to {run} \(.*go on .* --resume {run}"):
            train(small_config(**settings), run, on_step=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    train(small_config(**settings), run, resume=True)
    assert steps_done(run) == 4


def test_checkpoints_of_another_version_are_a_clear_error(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(small_config(steps=2, groups=2, evaluation_rollouts=0), run)
    for path in checkpoints(run / "checkpoints"):
        state = json.loads((path / "state.json").read_text())
        del state["trajectories"]
        (path / "state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match=r"made by another version of wmrl-envs \(KeyError: 'trajectories'\)"):
        train(small_config(steps=3, groups=2, evaluation_rollouts=0), run, resume=True)
