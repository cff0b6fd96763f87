import csv
import json
from collections import Counter

import pytest

from wmrl_envs.errors import ConfigurationError, TaskError
from wmrl_envs.research.benchmarks.importing import import_competition
from wmrl_envs.research.check import check_task
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.scoring import grade_left
from wmrl_envs.research.task import load_task


def name_of(benchmarks, competition="toy-auc"):
    return f"mle-bench:{benchmarks.data}/{competition}"


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_competition_becomes_a_complete_task_folder(benchmarks, tmp_path):
    benchmarks.tabular_competition()
    task = import_competition(name_of(benchmarks), tmp_path / "made/mine")
    assert (task.id, task.metric.name, task.kind) == ("mine", "auc", "tabular-classification")
    assert (task.id_column, task.target_columns, task.label_column) == ("id", ("target",), "target")
    assert task.leaderboard.scores("train") == task.leaderboard.scores("report")
    assert task.leaderboard.scores() == load_task(name_of(benchmarks)).leaderboard.scores()
    assert "Predict y." in task.description
    assert check_task(tmp_path / "made/mine") == []
    assert DesignSpace.of(task).size > 1000
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["mine"]


def test_a_perfect_submission_is_perfect_on_both_halves(benchmarks, tmp_path):
    benchmarks.tabular_competition()
    task = import_competition(name_of(benchmarks), tmp_path / "mine")
    answers = rows_of(task.folder / "private/answers.csv")
    text = "id,target\n" + "".join(f"{row['id']},{row['target']}\n" for row in reversed(answers))
    result = grade_left(task, {"submission.csv": text.encode()})
    assert (result.train_score, result.report_score) == (1.0, 1.0)


def test_halves_are_split_by_seed_and_by_class(benchmarks, tmp_path):
    benchmarks.tabular_competition()
    same, again, other = (
        rows_of(import_competition(name_of(benchmarks), tmp_path / name, seed=seed).folder / "private/answers.csv")
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert same == again != other
    for rows in (same, other):
        counts = Counter((row["target"], row["half"]) for row in rows)
        for label in "01":
            assert abs(counts[label, "train"] - counts[label, "report"]) <= 1
        halves = Counter(row["half"] for row in rows)
        assert halves["train"] == halves["report"] == 30


def test_regression_and_other_metrics(benchmarks, tmp_path):
    benchmarks.competition()
    task = import_competition(name_of(benchmarks, "toy-rmse"), tmp_path / "a", metric="mae")
    assert (task.metric.name, task.kind) == ("mae", "tabular-regression")
    assert import_competition(name_of(benchmarks, "toy-rmse"), tmp_path / "b").metric.name == "rmse"
    with pytest.raises(TaskError, match="higher is better, of the board of toy-rmse lower"):
        import_competition(name_of(benchmarks, "toy-rmse"), tmp_path / "c", metric="auc")
    with pytest.raises(TaskError, match="unknown metric"):
        import_competition(name_of(benchmarks, "toy-rmse"), tmp_path / "c", metric="rsme")
    assert not (tmp_path / "c").exists()


def test_classes_as_columns_are_learned_from_the_column_that_names_them(benchmarks, tmp_path):
    benchmarks.competition("authors", metric="multi-class-log-loss", board=[0.3, 0.4, 0.2])
    prepared = benchmarks.data / "authors/prepared"
    names = ("EAP", "HPL", "MWS")
    sizes = [(f"t{row}", row, names[row % 3]) for row in range(30)]
    lines = ["id,size,author", *(",".join(map(str, row)) for row in sizes), ""]
    (prepared / "public/train.csv").write_text("\n".join(lines))
    ids = [f"{row:03d}" for row in range(12)]
    (prepared / "public/test.csv").write_text("id,size\n" + "".join(f"{i},1\n" for i in ids))
    (prepared / "public/sample_submission.csv").write_text("id,EAP,HPL,MWS\n" + "".join(f"{i},.4,.3,.3\n" for i in ids))
    hot = [",".join(str(int(place % 3 == column)) for column in range(3)) for place in range(12)]
    rows = "".join(f"{i},{values}\n" for i, values in zip(ids, hot, strict=True))
    (prepared / "private/answers.csv").write_text("id,EAP,HPL,MWS\n" + rows)
    task = import_competition(name_of(benchmarks, "authors"), tmp_path / "authors")
    assert (task.metric.name, task.target_columns, task.label_column) == ("log_loss", names, "author")
    assert task.design == {"family": "tabular"}
    assert [column.role for column in task.inventory.columns] == ["id", "feature", "target"]


def test_tables_are_unpacked_and_the_sample_gets_its_name(benchmarks, tmp_path):
    benchmarks.image_competition()
    config = benchmarks.site / "mlebench/competitions/toy-images/config.yaml"
    config.write_text(config.read_text().replace("sample_submission.csv", "sampleSubmission.csv"))
    public = benchmarks.data / "toy-images/prepared/public"
    (public / "sample_submission.csv").rename(public / "sampleSubmission.csv")
    task = import_competition(name_of(benchmarks, "toy-images"), tmp_path / "images")
    assert (task.public / "train.csv").read_text().startswith("id,x,y\n")
    assert (task.public / "sample_submission.csv").is_file() and not (task.public / "sampleSubmission.csv").exists()
    assert len(list((task.public / "images").iterdir())) == 30
    assert (public / "images/000.png").samefile(task.public / "images/000.png")  # linked, not copied


def test_other_benchmarks_name_their_metric(benchmarks, tmp_path):
    benchmarks.dojo_competition()
    benchmarks.ds_task()
    dojo, ds = f"mle-dojo:{benchmarks.dojo}/toy-dojo", f"dsbench:{benchmarks.dsbench}/toy-ds"
    with pytest.raises(TaskError, match="none of our metrics is called 'ToyMetrics'.*--metric"):
        import_competition(dojo, tmp_path / "from-dojo")
    assert import_competition(dojo, tmp_path / "from-dojo", metric="accuracy").leaderboard.scores() == [
        0.9,
        0.8,
        0.8,
        0.5,
    ]
    task = import_competition(ds, tmp_path / "from-ds", metric="r2")
    assert task.leaderboard.scores() == [0.9, 0.5]
    assert any("it needs 10 or more" in problem for problem in check_task(task.folder))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda prepared: (prepared / "public/train.csv").unlink(),
            "holds no train.csv, neither as a file nor in a zip",
        ),
        (
            lambda prepared: (prepared / "private/answers.csv").write_text("id,z\n1,1\n"),
            "they lack target and have id, z",
        ),
        (
            lambda prepared: (prepared / "public/sample_submission.csv").write_text("id,target\n0001,1\n"),
            "do not hold the same 'id', each once",
        ),
        (lambda prepared: (prepared / "public/sample_submission.csv").write_text("id\n1\n"), "they lack targets"),
        (lambda prepared: (prepared / "public/sample_submission.csv").unlink(), "sample_submission.csv"),
        (
            lambda prepared: (prepared / "private/answers.csv").write_text(
                (prepared / "private/answers.csv").read_text().replace(",1\n", ",0\n")
            ),
            "auc cannot be computed on the",
        ),
    ],
)
def test_what_does_not_fit_is_said_and_nothing_is_left(benchmarks, tmp_path, change, reason):
    benchmarks.tabular_competition()
    change(benchmarks.data / "toy-auc/prepared")
    with pytest.raises(TaskError, match=reason):
        import_competition(name_of(benchmarks), tmp_path / "made/mine")
    assert not (tmp_path / "made").exists() or not list((tmp_path / "made").iterdir())


def test_answers_that_are_json_lines_do_not_fit(benchmarks, tmp_path):
    benchmarks.jsonl_competition()
    with pytest.raises(TaskError, match=r"test\.jsonl is no CSV file"):
        import_competition(name_of(benchmarks, "toy-json"), tmp_path / "mine")


def test_nothing_is_written_over(benchmarks, tmp_path):
    benchmarks.tabular_competition()
    (tmp_path / "mine").mkdir()
    import_competition(name_of(benchmarks), tmp_path / "mine")
    with pytest.raises(ConfigurationError, match="exists and is not empty"):
        import_competition(name_of(benchmarks), tmp_path / "mine")


def test_a_task_of_ours_is_not_imported(tmp_path):
    with pytest.raises(TaskError, match="titanic is no benchmark's competition"):
        import_competition("titanic", tmp_path / "mine")


def test_limits_of_the_name_are_kept(benchmarks, tmp_path):
    benchmarks.tabular_competition()
    task = import_competition(name_of(benchmarks) + "?seconds=4&memory_mb=2048", tmp_path / "mine")
    assert (task.limits.seconds, task.limits.memory_mb) == (4, 2048)
    assert json.loads((task.folder / "task.json").read_text())["limits"]["seconds"] == 4
