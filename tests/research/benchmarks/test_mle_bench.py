import pickle
import shutil
import sys

import gymnasium as gym
import pytest

import wmrl_envs  # noqa: F401
from wmrl_envs.errors import ConfigurationError, TaskError, UnknownTaskError
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.outcome import Status
from wmrl_envs.research.scoring import grade_left
from wmrl_envs.research.task import load_task


def name_of(benchmarks, competition, options=""):
    return f"mle-bench:{benchmarks.data}/{competition}{options}"


def open_task(benchmarks, competition, options=""):
    return load_task(name_of(benchmarks, competition, options))


def grade(task, text):
    return grade_left(task, {task.scorer.files[0]: text.encode()})


# The board [10, 5, 11, 15, 10, 7, 9, 10]: gold and silver need place 1 (5), bronze place 3 (9).
@pytest.mark.parametrize(
    ("submission", "score", "position", "medal"),
    [
        ("id,y\n3,30\n1,10\n2,20\n", 0.0, 1.0, "gold"),  # by id, not by place
        ("id,y\n1,20\n2,20\n3,30\n", 5.7735, 7 / 8, "bronze"),  # sqrt(100/3), to five places; 5 alone is better
        ("id,y\n1,15\n2,25\n3,35\n", 5.0, 1.0, "gold"),  # a tie with the best
        ("id,y\n1,20\n2,30\n3,40\n", 10.0, 5 / 8, "none"),  # a tie of three behind 5, 7, 9: place 4
        ("id,y\n1,30\n2,40\n3,50\n", 20.0, 0.0, "none"),  # worse than all
    ],
)
def test_scores_positions_and_medals(benchmarks, submission, score, position, medal):
    benchmarks.competition()
    result = grade(open_task(benchmarks, "toy-rmse"), submission)
    assert result.status is Status.VALID
    assert (result.train_score, result.report_score) == (score, score)
    assert (result.train_position, result.report_position) == (position, position)
    assert f"Medal: {medal}" in result.feedback


def test_a_board_of_one_row(benchmarks):
    benchmarks.competition(board=[7.5])
    task = open_task(benchmarks, "toy-rmse")
    good, bad = grade(task, "id,y\n1,10\n2,20\n3,30\n"), grade(task, "id,y\n1,20\n2,30\n3,40\n")
    assert (good.train_position, bad.train_position) == (1.0, 0.0)
    assert "Medal: gold" in good.feedback and "Medal: none" in bad.feedback


def test_the_task_says_what_an_agent_must_know(benchmarks):
    benchmarks.competition()
    task = open_task(benchmarks, "toy-rmse", "?seconds=60&memory_mb=4096")
    assert (task.id, task.title, task.kind) == ("toy-rmse", "A toy: toy-rmse", "competition")
    assert (task.limits.seconds, task.limits.memory_mb) == (60, 4096)
    prompt = task.prompt()
    for part in (
        "Predict y.",
        "input/train.csv",
        "./submission.csv, in the form of input/sample_submission.csv (columns: id, y)",
        "root-mean-squared-error on hidden answers by the benchmark's own code, lower is better",
        "60 CPU seconds",
    ):
        assert part in prompt
    assert "private" not in prompt


def test_tasks_are_equal_by_folder_and_travel(benchmarks):
    benchmarks.competition()
    task = open_task(benchmarks, "toy-rmse")
    twin = pickle.loads(pickle.dumps(task))
    assert twin == task == open_task(benchmarks, "toy-rmse")
    assert grade(twin, "id,y\n1,10\n2,20\n3,30\n").train_score == 0.0


def test_the_trainer_imports_no_grader_and_holds_no_answers(benchmarks):
    benchmarks.competition()
    task = open_task(benchmarks, "toy-rmse")
    grade(task, "id,y\n1,10\n2,20\n3,30\n")
    assert not [name for name in sys.modules if name.startswith("mlebench")]
    with pytest.raises(TaskError, match="no answers.csv"):
        task.answers()


def test_answers_may_be_json_lines(benchmarks):
    benchmarks.jsonl_competition()
    task = open_task(benchmarks, "toy-json")
    # Right on a, b and c; only 1.0 of [0.25, 1.0, 0.5] is better.
    right = grade(task, "example_id,label\nd,no\na,yes\nb,no\nc,yes\n")
    assert (right.train_score, right.train_position) == (0.75, 2 / 3)


def test_image_folders_and_archives_are_described(benchmarks):
    benchmarks.image_competition()
    prompt = open_task(benchmarks, "toy-images").prompt()
    assert "input/images/*.png (30 files)" in prompt
    assert "input/train.csv.zip holds train.csv." in prompt
    assert "input/test.csv: id,x" in prompt


def test_a_sample_submission_may_be_out_of_sight(benchmarks):
    benchmarks.competition(sample="private/sample_submission.csv")
    prepared = benchmarks.data / "toy-rmse/prepared"
    (prepared / "public/sample_submission.csv").rename(prepared / "private/sample_submission.csv")
    prompt = open_task(benchmarks, "toy-rmse").prompt()
    assert "./submission.csv (columns: id, y)" in prompt and "input/sample" not in prompt


@pytest.mark.parametrize(
    ("submission", "reason"),
    [
        ("", "grade.py rejected it: columns must be"),
        ("id,z\n1,1\n", "columns must be ['id', 'y'], got ['id', 'z']"),
        ('"', "cannot be read as CSV: "),
        ("id,y\n1,a\n2,b\n3,c\n", "grade.py raised TypeError on it"),
        ("id,y\n1,\n2,\n3,\n", "its score is nan"),
    ],
)
def test_invalid_submissions(benchmarks, submission, reason):
    benchmarks.competition()
    result = grade(open_task(benchmarks, "toy-rmse"), submission)
    assert result.status is Status.INVALID_SUBMISSION
    assert result.feedback.startswith("submission.csv is no valid submission: ")
    assert reason in result.feedback


# Feedback


LEAKS = {
    "a list": "answers['y'].tolist()",
    "one value": "answers['y'][1]",
    "one value, beside what was submitted": "(answers['y'][1], submission['y'][1])",
    "a table": "answers.to_csv()",
    "a sum": "answers['y'].sum()",
    "an order": "answers['y'].is_monotonic_increasing",
    "a comparison": "(answers['y'] > submission['y']).tolist()",
    "a word": "answers['label'].str.cat()",
}


@pytest.mark.parametrize("kind", ["InvalidSubmissionError", "ValueError"])
@pytest.mark.parametrize("what", LEAKS)
def test_words_that_tell_of_the_answers_are_kept_back(benchmarks, what, kind):
    code = f"""
        from mlebench.grade_helpers import InvalidSubmissionError
        def grade(submission, answers):
            raise {kind}(f"ids differ: {{{LEAKS[what]}}}")
    """
    benchmarks.competition(code=code)
    answers = benchmarks.data / "toy-rmse/prepared/private/answers.csv"
    answers.write_text("id,y,label\n1,1,cat\n2,2,dog\n3,4,cat\n")
    # It holds every word of the answers, so that none gives itself away by being new.
    feedback = grade(open_task(benchmarks, "toy-rmse"), "id,y,label\n1,2,dog\n2,1,cat\n3,4,dog\n").feedback
    did = "rejected it" if kind == "InvalidSubmissionError" else "raised ValueError on it"
    assert feedback == f"submission.csv is no valid submission: grade.py {did}"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("KeyError('label')", "raised KeyError on it: 'label'"),
        (
            "ValueError(f'{len(submission)} rows, expected {len(answers)}')",
            "raised ValueError on it: 1 rows, expected 3",
        ),
        ("ValueError(f\"no {set(answers['id']) - set(submission['id'])}\")", "raised ValueError on it: no {2, 3}"),
        ("ValueError(f'got {submission.y[0]}')", "raised ValueError on it: got zebra"),
        ("FileNotFoundError(2, 'missing', '/home/me/secret')", "raised FileNotFoundError on it"),
        ("SystemExit('ids differ')", "raised SystemExit on it: ids differ"),
        ("Mute()", "raised Mute on it"),
    ],
)
def test_words_that_do_not_are_told(benchmarks, error, reason):
    code = f"""
        class Mute(Exception):
            def __str__(self):
                raise RuntimeError


        def grade(submission, answers):
            raise {error}
    """
    benchmarks.competition(code=code)
    feedback = grade(open_task(benchmarks, "toy-rmse"), "id,y\n1,zebra\n").feedback
    assert feedback == f"submission.csv is no valid submission: grade.py {reason}"


def test_words_on_answers_in_json_lines_are_kept_back(benchmarks):
    code = "def grade(submission, answers):\n    raise ValueError(submission.kind[0], EXPRESSION)\n"
    expressions = {
        "quoted": "answers[0]['label']",
        "counted": "len(answers)",
        "ids": "[answer['example_id'] for answer in answers]",
    }
    folder = benchmarks.jsonl_competition()
    feedback = {}
    for name, expression in expressions.items():
        (folder / "grade.py").write_text(code.replace("EXPRESSION", expression))
        feedback[name] = grade(open_task(benchmarks, "toy-json"), "example_id,label,kind\na,yes,x\n").feedback
    assert feedback["quoted"].endswith("raised ValueError on it")
    assert feedback["counted"].endswith("on it: ('x', 4)")
    assert feedback["ids"].endswith("on it: ('x', ['a', 'b', 'c', 'd'])")


def test_a_grader_cannot_change_the_answers_for_the_next(benchmarks):
    changing = """
        def grade(submission, answers):
            value = float((answers["y"] - submission["y"]).abs().mean())
            answers["y"] = 0
            submission["y"] = 0
            return value
    """
    benchmarks.competition(code=changing)
    task = open_task(benchmarks, "toy-rmse")
    assert [grade(task, "id,y\n1,10\n2,20\n3,33\n").train_score for _ in range(2)] == [1.0, 1.0]


# Files


def test_files_beside_the_data_go_before_those_of_the_package(benchmarks):
    folder = benchmarks.competition()
    (folder / "leaderboard.csv").write_text("version https://git-lfs.github.com/spec/v1\n")
    beside = benchmarks.data.parent / "competitions/toy-rmse"
    beside.mkdir(parents=True)
    (beside / "leaderboard.csv").write_text("teamId,score\na,1\nb,2\n")
    assert open_task(benchmarks, "toy-rmse").leaderboard.scores() == [1, 2]
    inside = benchmarks.data / "competitions/toy-rmse"
    shutil.copytree(folder, inside)
    (inside / "leaderboard.csv").write_text("teamId,score\na,3\n")
    (folder / "grade.py").unlink()
    task = open_task(benchmarks, "toy-rmse")
    assert task.leaderboard.scores() == [3]
    assert task.scorer.order.code == str(inside / "grade.py")
    assert grade(task, "id,y\n1,10\n2,20\n3,30\n").train_score == 0.0  # its relative import works, too


def test_a_pointer_in_place_of_the_board_is_refused(benchmarks):
    folder = benchmarks.competition()
    (folder / "leaderboard.csv").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(TaskError, match=r"leaderboard\.csv is a Git-LFS pointer.*git lfs pull") as error:
        open_task(benchmarks, "toy-rmse")
    assert str(folder / "leaderboard.csv") in str(error.value)


@pytest.mark.parametrize("content", [None, "version https://git-lfs.github.com/spec/v1\n"])
def test_missing_answers_are_refused(benchmarks, content):
    benchmarks.competition()
    answers = benchmarks.data / "toy-rmse/prepared/private/answers.csv"
    answers.unlink() if content is None else answers.write_text(content)
    with pytest.raises(TaskError, match="answers") as error:
        open_task(benchmarks, "toy-rmse")
    assert str(answers) in str(error.value)


@pytest.mark.parametrize("content", ["", "\n"])
def test_empty_answers_are_refused(benchmarks, content):
    benchmarks.competition()
    answers = benchmarks.data / "toy-rmse/prepared/private/answers.csv"
    answers.write_text(content)
    with pytest.raises(TaskError, match="are empty") as error:
        grade(open_task(benchmarks, "toy-rmse"), "id,y\n1,1\n")
    assert str(answers) in str(error.value)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def grade(:\n", "cannot be imported: SyntaxError"),
        ("import no_such_package\n", "cannot be imported: ModuleNotFoundError: No module named 'no_such_package'"),
        ("import sys\nsys.exit(3)\n", "cannot be imported: SystemExit"),
        ("def score(a, b):\n    return 1\n", "has no function 'grade'"),
        ("def grade(a, b):\n    return None\n", "returned NoneType 'None', which is no score"),
    ],
)
def test_a_broken_grader_is_named(benchmarks, code, reason):
    folder = benchmarks.competition(code=code)
    task = open_task(benchmarks, "toy-rmse")
    with pytest.raises(TaskError, match="mle-bench competition cannot be graded") as error:
        grade(task, "id,y\n1,1\n")
    assert f"{folder / 'grade.py'} {reason}" in str(error.value)


@pytest.mark.parametrize("name", ["config.yaml", "grade.py", "leaderboard.csv"])
def test_a_missing_file_is_named_with_where_it_was_sought(benchmarks, name):
    folder = benchmarks.competition()
    (folder / name).unlink()
    with pytest.raises(TaskError, match=f"{name} is in none of") as error:
        open_task(benchmarks, "toy-rmse")
    assert str(folder) in str(error.value) and str(benchmarks.data / "competitions/toy-rmse") in str(error.value)


def test_without_the_package_the_message_says_how_to_get_it(benchmarks):
    benchmarks.competition()
    shutil.rmtree(benchmarks.site / "mlebench")
    with pytest.raises(TaskError, match=r"config\.yaml is in none of .*pip install git\+.*mle-bench"):
        open_task(benchmarks, "toy-rmse")


def test_unknown_competitions_are_told_what_there_is(benchmarks):
    benchmarks.competition()
    with pytest.raises(UnknownTaskError, match="it holds toy-rmse.*Did you mean 'toy-rmse'"):
        open_task(benchmarks, "toy-rmsee")
    with pytest.raises(UnknownTaskError, match="a folder of mle-bench competitions, not one of them.*toy-rmse"):
        load_task(f"mle-bench:{benchmarks.data}")
    for name in ("", "?direction=lower", "a\0b"):
        with pytest.raises(UnknownTaskError):
            load_task(f"mle-bench:{name}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- a\n", "no section 'dataset'"),
        ("dataset: {answers: a}\ngrader: {name: a, grade_fn: b}\nname: c\n", r"dataset\.sample_submission"),
        ("a: [", "cannot read"),
    ],
)
def test_a_configuration_that_cannot_be_used(benchmarks, text, reason):
    folder = benchmarks.competition()
    (folder / "config.yaml").write_text(text)
    with pytest.raises(TaskError, match=reason) as error:
        open_task(benchmarks, "toy-rmse")
    assert str(folder / "config.yaml") in str(error.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("teamId,score\n", "is empty"),
        ("", "it is empty"),
        ("teamId,score\na,1\nb,\n", "holds '' in data row 2"),
        ("teamId,score\na,nan\n", "holds 'nan' in data row 1"),
        ("score_of\n1\n", "has no column 'score'"),
    ],
)
def test_boards_that_cannot_rank(benchmarks, content, reason):
    folder = benchmarks.competition()
    (folder / "leaderboard.csv").write_text(content)
    with pytest.raises(TaskError, match=reason) as error:
        open_task(benchmarks, "toy-rmse")
    assert str(folder / "leaderboard.csv") in str(error.value)


# Direction


def test_the_metric_says_the_direction_whatever_the_order_of_the_board(benchmarks):
    benchmarks.competition(board=[15, 5, 10])
    benchmarks.competition("toy-auc", metric="auc-roc", board=[0.5, 0.9, 0.7])
    assert open_task(benchmarks, "toy-rmse").metric.greater_is_better is False
    assert open_task(benchmarks, "toy-auc").metric.greater_is_better is True


def test_the_name_of_a_task_says_the_direction(benchmarks):
    benchmarks.competition(metric="a-metric-of-theirs")
    with pytest.raises(TaskError, match=r"not known of the metric 'a-metric-of-theirs'.*\?direction=higher"):
        open_task(benchmarks, "toy-rmse")
    lower, higher = (open_task(benchmarks, "toy-rmse", f"?direction={word}") for word in ("lower", "higher"))
    assert (lower.leaderboard.rank(10), higher.leaderboard.rank(10)) == (4, 3)
    assert lower.leaderboard.scores() == higher.leaderboard.scores()[::-1]
    with pytest.raises(ConfigurationError, match="must be 'higher' or 'lower'"):
        open_task(benchmarks, "toy-rmse", "?direction=up")
    with pytest.raises(ConfigurationError, match="Did you mean 'direction'"):
        open_task(benchmarks, "toy-rmse", "?directon=lower")
    with pytest.raises(ConfigurationError, match="'seconds' must be a number"):
        open_task(benchmarks, "toy-rmse", "?direction=lower&seconds=long")


def test_a_board_in_the_other_order_contradicts_the_metric(benchmarks):
    benchmarks.competition(metric="dice-hausdorff-combo", board=[1, 2, 2, 3])
    with pytest.raises(TaskError, match="in order as if lower were better.*higher is better; say which"):
        open_task(benchmarks, "toy-rmse")
    assert open_task(benchmarks, "toy-rmse", "?direction=lower").metric.greater_is_better is False


def test_a_competition_whose_configuration_names_another_metric(benchmarks):
    benchmarks.competition("ventilator-pressure-prediction", metric="dice-hausdorff-combo", board=[1, 2, 2, 3])
    task = open_task(benchmarks, "ventilator-pressure-prediction")
    assert (task.metric.name, task.metric.greater_is_better) == ("mean-absolute-error", False)


# End to end


def test_it_has_no_design_space(benchmarks):
    benchmarks.competition()
    with pytest.raises(TaskError, match="wmrl tasks import"):
        DesignSpace.of(open_task(benchmarks, "toy-rmse"))


def test_an_environment_steps_with_a_real_execution(benchmarks):
    benchmarks.competition()
    solution = """```python
import pandas as pd
train, test = pd.read_csv("input/train.csv"), pd.read_csv("input/test.csv")
slope = (train["y"] / train["x"]).mean()
pd.DataFrame({"id": test["id"], "y": slope * test["x"] + 5}).to_csv("submission.csv", index=False)
```"""
    env = gym.make("wmrl/Research-v0", tasks=[name_of(benchmarks, "toy-rmse")], sandbox="process")
    try:
        env.reset(seed=0)
        _, reward, _, _, info = env.step(solution)
    finally:
        env.close()
    outcome = info["wmrl"]["outcome"]
    assert outcome.status is Status.VALID, outcome.feedback
    assert (outcome.score, outcome.position, outcome.report_reward) == (5.0, 1.0, outcome.reward)  # a tie with the best
    assert info["wmrl"]["real_reward"] == pytest.approx(reward)
    assert "Medal: gold" in outcome.feedback
