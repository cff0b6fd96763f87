"""Warm-up executions: drawn from the prior, executed once, cached by content."""

import json
import os
from dataclasses import replace

import pytest
from titanic_solutions import TASK, outcome

from wmrl_envs.errors import GradingError, WorldModelError
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.leaderboard import Leaderboard
from wmrl_envs.research.outcome import Outcome, Status
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import load_task
from wmrl_envs.world_models import LearnedWorldModel
from wmrl_envs.world_models.warmup import WarmupCache, default_cache_dir, warmup_submissions

SETTINGS = {"warmup": 12, "warmup_source": "execution", "trees": 10}


class Recorder:
    """Grades without running anything, and remembers what it was asked."""

    def __init__(self, answer=None):
        self.asked = []
        self.answer = answer or (lambda batch: [Outcome(status=Status.VALID, reward=0.6, position=0.2)] * len(batch))

    def grade(self, submissions):
        self.asked += submissions
        return self.answer(submissions)


def test_the_draw_is_distinct_seeded_and_from_the_space():
    drawn = warmup_submissions(TASK, 60, seed=0)
    assert len({submission.code for submission in drawn}) == 60
    assert drawn == warmup_submissions(TASK, 60, seed=0) != warmup_submissions(TASK, 60, seed=1)
    space = DesignSpace.of(TASK)
    assert {submission.code for submission in drawn} <= {space.solution(index) for index in range(space.size)}


def test_solutions_on_record_come_first():
    space = DesignSpace.of(TASK)
    recorded = {submission.code for submission in warmup_submissions(TASK, 40, seed=5)}
    drawn = [submission.code for submission in warmup_submissions(TASK, 50, seed=0, recorded=recorded)]
    assert len(set(drawn)) == 50 and space.size > 50
    first = [code in recorded for code in drawn]
    assert first == [True] * 40 + [False] * 10


def test_preparing_executes_the_warm_up_once_and_reports_it(tmp_path):
    model, grader = LearnedWorldModel(cache_dir=tmp_path, **SETTINGS), Recorder()
    executed = model.prepare([TASK], grader)
    assert [submission for submission, _ in executed] == grader.asked and len(executed) == 12
    assert model.prepare([TASK], grader) == [] and len(grader.asked) == 12
    other = LearnedWorldModel(cache_dir=tmp_path, **SETTINGS)
    other.load_state_dict(model.state_dict())
    assert other.prepare([TASK], grader) == [] and len(grader.asked) == 12


def test_executions_that_failed_in_the_harness_are_left_out(tmp_path):
    grader = Recorder(lambda batch: [None] * 3 + [Outcome(status=Status.VALID, reward=0.6, position=0.2)] * 9)
    assert len(LearnedWorldModel(cache_dir=tmp_path, **SETTINGS).prepare([TASK], grader)) == 9
    broken = Recorder(lambda batch: [None] * len(batch))
    with pytest.raises(WorldModelError, match="0 executed solutions"):
        LearnedWorldModel(cache_dir=tmp_path, **SETTINGS).prepare([TASK], broken)
    with pytest.raises(GradingError, match="11 outcomes for 12"):
        LearnedWorldModel(cache_dir=tmp_path, **SETTINGS).prepare([TASK], Recorder(lambda batch: [None] * 11))


def test_a_task_without_a_design_space_needs_executed_pairs(tmp_path):
    task = replace(TASK, design=None)
    with pytest.raises(WorldModelError, match=r"LearnedWorldModel.fit\(submissions, outcomes\)"):
        LearnedWorldModel(cache_dir=tmp_path, **SETTINGS).prepare([task], Recorder())


def test_real_executions_are_cached_by_content(tmp_path):
    with ProcessSandbox(workers=1) as sandbox:
        model = LearnedWorldModel(cache_dir=tmp_path, **SETTINGS)
        executed = model.prepare([TASK], sandbox)
        assert len(executed) == 12 and sandbox.zygote_pid is not None
        assert {result.status for _, result in executed} > {Status.VALID}
    with ProcessSandbox(workers=1) as sandbox:
        again = LearnedWorldModel(cache_dir=tmp_path, **SETTINGS)
        assert again.prepare([TASK], sandbox) == executed
        assert sandbox.zygote_pid is None, "nothing was executed"
        batch = [
            Submission(TASK, code.solution(index)) for code in [DesignSpace.of(TASK)] for index in range(0, 900, 90)
        ]
        assert [p.reward for p in again.grade(batch)] == [p.reward for p in model.grade(batch)]
    text = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    assert len(json.loads(text)) == 12


def _key(task=TASK, limits=None, seed=0, count=3):
    with ProcessSandbox(workers=1, limits=limits) as sandbox:
        batch = [Submission(task, f"x = {index}", seed) for index in range(count)]
        return WarmupCache("nowhere").key(sandbox, batch)


def test_the_key_changes_with_everything_that_changes_outcomes():
    boards = replace(TASK, leaderboard=Leaderboard([0.6, 0.71], [0.6, 0.7], greater_is_better=True))
    keys = [_key(), _key(boards), _key(limits={"seconds": 2.0}), _key(seed=1), _key(count=4)]
    assert len(set(keys)) == len(keys) and keys[0] == _key()


def test_graders_of_which_nothing_is_known_are_always_asked(tmp_path):
    cache = WarmupCache(tmp_path)
    assert cache.key(Recorder(), [Submission(TASK, "x = 1")]) is None
    for _ in range(2):
        grader = Recorder()
        LearnedWorldModel(cache_dir=tmp_path, **SETTINGS).prepare([TASK], grader)
        assert len(grader.asked) == 12
    assert not list(tmp_path.rglob("*.json"))


def test_outcomes_survive_the_cache_exactly(tmp_path):
    cache = WarmupCache(tmp_path)
    results = [
        outcome('import pandas\ntrain["Fare"]'),
        Outcome(status=Status.VALID, reward=0.1 + 0.2, position=1 / 3, score=-4e119, feedback="é\n", seconds=1e-9),
        Outcome(status=Status.TIMEOUT, reward=0.1, report_reward=0.1),
    ]
    assert cache.load("k", 3) is None
    cache.save("k", results)
    assert cache.load("k", 3) == results
    assert cache.load("k", 4) is None


@pytest.mark.parametrize("content", ["", "[1]", '[{"status": "great"}]', '{"a": 1}', "[{}]", "\ud800"])
def test_a_damaged_cache_warns_and_is_made_again(tmp_path, content):
    cache = WarmupCache(tmp_path)
    results = [Outcome(status=Status.TIMEOUT, reward=0.1)]
    cache.save("k", results)
    path = next(tmp_path.rglob("*.json"))
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.warns(RuntimeWarning, match="unreadable warm-up cache"):
        assert cache.load("k", 1) is None
    cache.save("k", results)
    assert cache.load("k", 1) == results


def test_a_folder_that_cannot_be_used_only_warns(tmp_path):
    (tmp_path / "file").write_text("")
    cache = WarmupCache(tmp_path / "file")
    with pytest.warns(RuntimeWarning, match="XDG_CACHE_HOME"):
        cache.save("k", [Outcome(status=Status.TIMEOUT, reward=0.1)])


def test_nothing_is_cached_where_the_harness_failed(tmp_path):
    WarmupCache(tmp_path).save("k", [None])
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("value", "expected"), [("/somewhere", "/somewhere"), ("", "~/.cache"), ("relative", "~/.cache")]
)
def test_the_default_folder_follows_the_platform(monkeypatch, value, expected):
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert default_cache_dir() == type(default_cache_dir())(expected).expanduser() / "wmrl-envs"


def test_shipped_recordings_make_ready_without_executing_anything():
    grader = Recorder(lambda batch: pytest.fail("executed"))
    task = load_task("titanic")
    model = LearnedWorldModel(warmup=40, trees=10)
    executed = model.prepare([task], grader)
    assert len(executed) == 40 and all(result.seconds > 0.0 for _, result in executed)
    assert [result for _, result in executed] == ReplaySandbox().grade([submission for submission, _ in executed])
    # Reading them in place of executing them changes nothing else.
    live = LearnedWorldModel(warmup=40, trees=10, warmup_source="execution")
    assert live.prepare([task], ReplaySandbox()) == executed
