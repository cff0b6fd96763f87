"""The bundled tasks' folders: whole, small, licensed, without a leak of the answers, and built the same every time."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

import wmrl_envs.research

TASKS_DIR = Path(wmrl_envs.research.__file__).parent / "tasks"
BUILDER = Path(__file__).resolve().parents[2] / "benchmarks" / "build_tasks.py"
TASKS = sorted(path.parent.name for path in TASKS_DIR.glob("*/task.json"))
KINDS = {"tabular-classification", "tabular-regression", "ordinal", "text", "image", "code"}
BINARY = {"titanic", "arrests", "flights", "names"}
CODE = ("training-loop",)
TABLES = [name for name in TASKS if name not in CODE]

each_task = pytest.mark.parametrize("task", TASKS)
each_table = pytest.mark.parametrize("task", TABLES)


def manifest(task: str) -> dict[str, Any]:
    return json.loads((TASKS_DIR / task / "task.json").read_text())


def table(task: str, path: str) -> pd.DataFrame:
    """Ids and labels as they are written, so that the name NA stays a name."""
    return pd.read_csv(TASKS_DIR / task / path, dtype={"id": str}, keep_default_na=False)


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_tasks", BUILDER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_all_kinds_of_task_are_there() -> None:
    assert len(TASKS) >= 8
    assert {manifest(task)["kind"] for task in TASKS} == KINDS


def test_data_take_less_than_four_megabytes() -> None:
    files = [path for task in TASKS for part in ("public", "private") for path in (TASKS_DIR / task / part).rglob("*")]
    assert sum(path.stat().st_size for path in files) < 4_000_000


@each_task
def test_folder_is_complete(task: str) -> None:
    folder = TASKS_DIR / task
    tables = ("public/train.csv", "public/test.csv", "public/sample_submission.csv", "private/answers.csv")
    programs = ("public/train.py", "private/grade.py", "private/held_out.json")
    for name in programs if task in CODE else tables:
        assert (folder / name).stat().st_size > 0
    found = manifest(task)
    assert found["format"] == 1
    assert found["id"] == task
    assert found["title"]
    assert found["limits"]["seconds"] > 0 and found["limits"]["memory_mb"] > 0


@each_task
def test_licence_says_source_and_terms(task: str) -> None:
    text = (TASKS_DIR / task / "LICENSE-data.txt").read_text()
    for word in ("Original source:", "Distributed by:", "Changes:", "icen"):
        assert word in text
    found = manifest(task)
    assert found["license"]
    for package in re.findall(r"(\S+) \S+, \S+ \(SHA-256 [0-9a-f]{64}\)", found["source"]):
        assert package in text
        assert package in (TASKS_DIR / "README.md").read_text()


@each_table
def test_columns_are_those_of_the_manifest(task: str) -> None:
    found = manifest(task)
    train, test = table(task, "public/train.csv"), table(task, "public/test.csv")
    answers, sample = table(task, "private/answers.csv"), table(task, "public/sample_submission.csv")
    targets, label = found["target_columns"], found["label_column"]
    assert list(train) == [*test, label]
    assert list(sample) == ["id", *targets]
    assert list(answers) == ["id", *targets, "half"]
    design = found["design"]
    assert design["family"] == found["kind"].replace("ordinal", "tabular").split("-")[0]
    described = [column for role in ("numeric", "categorical", "text", "date") for column in design.get(role, [])]
    assert sorted(described) == sorted(set(test) - {"id"})
    for column in design.get("numeric", []):
        assert pd.api.types.is_numeric_dtype(pd.read_csv(TASKS_DIR / task / "public/train.csv")[column])
    assert {"positive", "classes"} & set(design) or found["kind"] == "tabular-regression"


@each_table
def test_ids_match_and_tell_nothing(task: str) -> None:
    train, test = table(task, "public/train.csv"), table(task, "public/test.csv")
    answers, sample = table(task, "private/answers.csv"), table(task, "public/sample_submission.csv")
    assert list(test["id"]) == list(answers["id"]) == list(sample["id"])
    ids = pd.concat([train["id"], test["id"]])
    assert ids.is_unique
    assert ids.str.fullmatch(r"t\d{4,}").all()
    assert sorted(ids) == [f"t{number:04d}" for number in range(len(ids))]
    label = manifest(task)["label_column"]
    order = train["id"].str[1:].astype(int)
    codes = train[label] if pd.api.types.is_numeric_dtype(train[label]) else pd.Series(pd.factorize(train[label])[0])
    assert abs(np.corrcoef(order, codes)[0, 1]) < 4 / np.sqrt(len(train))


@each_table
def test_answers_are_not_public(task: str) -> None:
    found = manifest(task)
    test = table(task, "public/test.csv")
    assert found["label_column"] not in test
    assert not set(found["target_columns"]) & set(test)
    sample = table(task, "public/sample_submission.csv")
    assert (sample[found["target_columns"]].nunique() == 1).all()
    names = {path.name for path in (TASKS_DIR / task / "public").iterdir()}
    assert names - {"train_images.npz", "test_images.npz"} == {"train.csv", "test.csv", "sample_submission.csv"}


@each_table
def test_halves_hold_all_classes_equally(task: str) -> None:
    found = manifest(task)
    answers = table(task, "private/answers.csv")
    assert set(answers["half"]) == {"train", "report"}
    sizes = answers["half"].value_counts()
    assert sizes.min() >= 200 and sizes.max() - sizes.min() <= 1
    targets = answers[found["target_columns"]]
    assert targets.notna().all(axis=None)
    if found["kind"] == "tabular-regression":
        means = targets.iloc[:, 0].groupby(answers["half"]).mean()
        assert abs(means["train"] - means["report"]) < 0.2 * targets.iloc[:, 0].std()
        return
    classes = targets.astype(str).agg(" ".join, axis=1)
    counts = pd.crosstab(classes, answers["half"])
    assert (abs(counts["train"] - counts["report"]) <= 1).all()
    assert (counts.min(axis=None)) >= 5
    expected = found["design"].get("classes", [0, 1])
    assert len(counts) == len(expected)
    if task in BINARY:
        assert set(targets.iloc[:, 0]) == {0, 1}
        assert found["design"]["positive"] in set(table(task, "public/train.csv")[found["label_column"]])


@each_table
def test_training_rows_hold_all_classes(task: str) -> None:
    found = manifest(task)
    labels = set(table(task, "public/train.csv")[found["label_column"]])
    if "classes" in found["design"]:
        assert labels == set(found["design"]["classes"])
    elif "positive" in found["design"]:
        assert len(labels) == 2 and found["design"]["positive"] in labels


@each_table
def test_description_tells_files_columns_and_format(task: str) -> None:
    text = (TASKS_DIR / task / "description.md").read_text()
    train, test = table(task, "public/train.csv"), table(task, "public/test.csv")
    assert f"- `train.csv`: {len(train)} " in text
    assert f"- `test.csv`: {len(test)} " in text
    for column in train:
        assert f"`{column}`" in text
    example = text.split("```\n")[1].splitlines()
    assert example[0] == ",".join(["id", *manifest(task)["target_columns"]])
    assert [line.split(",")[0] for line in example[1:]] == list(test["id"][:3])
    for heading in ("# ", "## Files", "## Columns", "## Evaluation", "## Submission"):
        assert f"\n{heading}" in f"\n{text}"
    row = next(line for line in (TASKS_DIR / "README.md").read_text().splitlines() if line.startswith(f"| `{task}` |"))
    assert f"| {len(train)} | {len(test)} |" in row


def test_images_are_plain_arrays_in_the_order_of_the_tables() -> None:
    for side in ("train", "test"):
        with np.load(TASKS_DIR / "mnist5k" / "public" / f"{side}_images.npz", allow_pickle=False) as file:
            images = file["images"]
        rows = table("mnist5k", f"public/{side}.csv")
        assert images.shape == (len(rows), 28, 28)
        assert images.dtype == np.uint8
    digits = rows["id"].map(table("mnist5k", "private/answers.csv").set_index("id")["digit"])
    ink = pd.Series(images.mean(axis=(1, 2))).groupby(digits.to_numpy()).mean()
    assert ink.idxmin() == 1 and ink.idxmax() == 0


def test_what_makes_the_fast_tasks_hard_is_there() -> None:
    train = pd.read_csv(TASKS_DIR / "titanic/public/train.csv")
    test = pd.read_csv(TASKS_DIR / "titanic/public/test.csv")
    assert train[["age", "cabin", "embarked"]].isna().any().all()
    assert not train["fare"].isna().any() and test["fare"].isna().sum() == 1
    assert set(test["cabin"].dropna()) - set(train["cabin"].dropna())
    assert not {"boat", "body"} & set(train)
    train = pd.read_csv(TASKS_DIR / "weather/public/train.csv")
    test = pd.read_csv(TASKS_DIR / "weather/public/test.csv")
    assert set(test["week"]) - set(train["week"]) == {"W53"}


@pytest.mark.parametrize(("task", "column"), [("weather", "week"), ("flights", "date")])
def test_held_out_groups_do_not_overlap(task: str, column: str) -> None:
    train, test = table(task, "public/train.csv"), table(task, "public/test.csv")
    if task == "weather":
        for rows in (train, test):
            week = pd.to_datetime(rows["date"]).dt.isocalendar()
            rows[column] = week["year"].astype(str) + week["week"].astype(str)
    assert not set(train[column]) & set(test[column])


def test_titanic_is_rebuilt_byte_for_byte(builder: ModuleType, tmp_path: Path) -> None:
    """From the copy of the passenger list that comes with the installed scikit-learn."""
    assert builder.main(["titanic", "--out", str(tmp_path), "--cache", str(tmp_path / "cache")]) == 0
    written = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert len(written) == 5
    for path in written:
        assert path.read_bytes() == (TASKS_DIR / path.relative_to(tmp_path)).read_bytes()
    assert builder.main(["titanic", "--check", "--out", str(tmp_path)]) == 0
    (tmp_path / "titanic" / "public" / "test.csv").write_text("id\n")
    assert builder.main(["titanic", "--check", "--out", str(tmp_path)]) == 1


def test_builder_covers_every_bundled_task(builder: ModuleType) -> None:
    assert sorted(recipe.id for recipe in builder.RECIPES) == TASKS


def test_stratified_choice_is_exact_and_repeatable(builder: ModuleType) -> None:
    strata = pd.Series(["a"] * 70 + ["b"] * 27 + ["c"] * 3)
    chosen = builder.stratified(strata, 33, "salt")
    assert chosen.sum() == 33
    assert strata[chosen].value_counts().to_dict() == {"a": 23, "b": 9, "c": 1}
    assert (chosen == builder.stratified(strata, 33, "salt")).all()
    assert (chosen != builder.stratified(strata, 33, "other")).any()


def test_grouped_choice_keeps_groups_whole(builder: ModuleType) -> None:
    groups = pd.Series(np.arange(100) // 7)
    chosen = builder.grouped(groups, 30, "salt")
    assert 30 <= chosen.sum() < 37
    assert (pd.Series(chosen).groupby(groups).nunique() == 1).all()


def test_builder_refuses_an_unknown_task(builder: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        builder.main(["titanik"])
    assert "unknown tasks ['titanik']" in capsys.readouterr().err


def test_builder_refuses_another_file_than_the_pinned_one(builder: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "nothing-1.0.tar.gz").write_bytes(b"not what was pinned")
    source = builder.Source("nothing", "1.0", "", "0" * 64, "nowhere")
    with pytest.raises(ValueError, match="not the pinned"):
        builder.read_source(source, tmp_path)
