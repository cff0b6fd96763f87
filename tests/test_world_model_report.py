"""The table, page, figure and files of an evaluation of world models."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import matplotlib.image
import pytest
from rich.console import Console

from wmrl_envs.world_model_report import console_table, differences, markdown_report, write_evaluation
from wmrl_envs.world_models.evaluation import evaluate_world_model
from wmrl_envs.world_models.evaluation_result import WorldModelEvaluation


@pytest.fixture(scope="module")
def evaluations() -> list[WorldModelEvaluation]:
    """The perfect, the constant and the learned world model; the last one cannot predict without executions."""
    return [
        evaluate_world_model(
            name, ["titanic", "weather"], solutions=60, executions=(0, 40), train_tasks=["names"], model_kwargs=own
        )
        for name, own in (("replay", {}), ("base-rate", {}), ("learned", {"trees": 5}))
    ]


def lines_of(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading."""
    below = page.split(heading, 1)[1].split("|", 1)[1]
    rows = re.match(r"(?:.*\|\n)+", below)
    assert rows is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in ("|" + rows.group()).splitlines()]


def test_page(evaluations: list[WorldModelEvaluation]) -> None:
    page = markdown_report(evaluations, "wmrl world-model evaluate ...", "evaluation.png")
    table = lines_of(page, "# World models")
    assert len({len(line) for line in table}) == 1
    assert [line[:2] for line in table[2:]] == [
        ["replay", "none"],
        ["base-rate", "0"],
        ["base-rate", "40"],
        ["learned", "0"],
        ["learned", "40"],
    ]
    columns = dict(zip(table[0], zip(*table[2:], strict=True), strict=True))
    assert columns["validity AUC ↑"][0] == "1.000 ± 0.000" and columns["validity AUC ↑"][2] == "0.500 ± 0.000"
    assert columns["rank within a task ↑"][1] == "-"
    assert set(table[5][2:]) == {"-"}
    assert columns["unreadable"][4] == "0%"
    assert "has no model of task" in page and "taken from other tasks: names" in page
    assert "![" in page and "evaluation.png" in page and "wmrl world-model evaluate ..." in page
    assert "![" not in markdown_report(evaluations, "", None)
    statuses = lines_of(page, "replay:")
    assert all(
        int(cell) == 0 for i, line in enumerate(statuses[2:]) for j, cell in enumerate(line[1:]) if i != j
    )  # a perfect model confuses nothing
    assert sum(int(cell) for line in statuses[2:] for cell in line[1:]) == 120
    assert [len(line) for line in page.splitlines() if len(line) > 120 and not line.startswith(("|", "wmrl"))] == []


def test_differences_are_paired_with_the_base_rate(evaluations: list[WorldModelEvaluation]) -> None:
    found = {(d.world_model, d.metric): d for d in differences(evaluations)}
    assert {name for name, _ in found} == {"replay", "learned"}
    gap = found["replay", "validity_auc"]
    assert (gap.baseline, gap.tasks, gap.mean, gap.error) == ("base-rate", 2, 0.5, 0.0)
    own, base = (evaluations[place].rows[-1].means["reward_error"].value for place in (2, 1))
    assert own is not None and base is not None
    assert found["learned", "reward_error"].mean == pytest.approx(own - base)
    assert ("learned", "rank") not in found  # the base rate ranks nothing
    others = differences([evaluations[2], evaluations[0]])
    assert {d.baseline for d in others} == {"learned"}
    assert "rank" in {d.metric for d in others}
    assert differences(evaluations[:1]) == []


def test_a_terminal_of_80_columns_shows_every_number(evaluations: list[WorldModelEvaluation]) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(console_table(evaluations))
    text = console.export_text()
    assert "…" not in text and "unread" not in text
    assert max(map(len, text.splitlines())) <= 80
    [learned] = [line.split() for line in text.splitlines() if line.startswith("learned") and " 40 " in line]
    assert len(learned) == 10


def test_files(evaluations: list[WorldModelEvaluation], tmp_path: Path) -> None:
    written = write_evaluation(evaluations, tmp_path / "new", "wmrl ...")
    assert (
        {path.name for path in written}
        == {
            "evaluation.md",
            "evaluation.json",
            "evaluation.png",
            "predictions.csv",
        }
        == {path.name for path in (tmp_path / "new").iterdir()}
    )
    numbers = json.loads((tmp_path / "new" / "evaluation.json").read_text())
    assert numbers["command"] == "wmrl ..."
    assert [e["world_model"] for e in numbers["evaluations"]] == ["replay", "base-rate", "learned"]
    assert len(numbers["differences"]) == 6
    with (tmp_path / "new" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120 + 2 * 120 + 120
    learned = [row for row in rows if row["world_model"] == "learned"]
    error = sum(abs(float(row["predicted_reward"]) - float(row["real_reward"])) for row in learned) / len(learned)
    assert error == pytest.approx(numbers["evaluations"][2]["rows"][1]["pooled"]["reward_error"])
    image = matplotlib.image.imread(tmp_path / "new" / "evaluation.png")
    assert image.shape[0] > 600 and image[..., :3].std() > 0.05


def test_without_matplotlib_there_is_no_figure(
    evaluations: list[WorldModelEvaluation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "wmrl_envs.world_model_figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    written = write_evaluation(evaluations[:1], tmp_path, "wmrl ...")
    assert not any(path.suffix == ".png" for path in written)
    assert "![" not in (tmp_path / "evaluation.md").read_text()
