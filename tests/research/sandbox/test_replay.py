"""The replay sandbox: what execution returned, seed by seed; nothing made up for what was not executed."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from wmrl_envs.errors import RecordingError
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Grader, Submission
from wmrl_envs.research.outcome import STATUSES, Outcome, Status, ladder_reward
from wmrl_envs.research.recording import (
    DRAWS,
    RECORDING,
    Draw,
    Member,
    code_key,
    data_digest,
    outcome_of,
    read_recording,
    versions,
    write_recording,
)
from wmrl_envs.research.reply import extract_code
from wmrl_envs.research.sandbox import resolve_sandbox
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import ResearchTask, bundled_tasks, load_task

WHOLE = ("titanic", "weather", "anes96")
"""The tasks whose design space is recorded whole."""


class Constant:
    """A grader that says one thing, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Submission] = []

    def grade(self, submissions: Sequence[Submission]) -> list[Outcome | None]:
        self.asked += submissions
        return [Outcome(status=Status.TIMEOUT, reward=0.1) for _ in submissions]


@pytest.fixture
def task(write_task) -> ResearchTask:  # type: ignore[no-untyped-def]
    """A task with three recorded members: a failure, a valid one, and one with three valid draws."""
    task = load_task(write_task(design={"family": "tabular"}))
    space = DesignSpace.of(task)
    valid = STATUSES.index(Status.VALID)
    draws = {
        0: (Draw(STATUSES.index(Status.RUNTIME_ERROR), None, None, 0.25, "ValueError", 7, "ValueError: no"),),
        1: (Draw(valid, 0.55, 0.95, 0.5, None, None, ""),),
        2: tuple(Draw(valid, score, 0.5, 1.0, None, None, "") for score in (0.35, 0.65, 0.85)),
    }
    header = {"format": 1, "task": task.id, "versions": versions(), "data": data_digest(task)}
    members = [Member(number, code_key(space.solution(number)), draws[number]) for number in draws]
    write_recording(task.folder / RECORDING, header, members)
    return task


def test_it_answers_with_what_was_recorded(task: ResearchTask) -> None:
    space, replay = DesignSpace.of(task), ReplaySandbox()
    assert isinstance(replay, Grader)
    failed, valid = replay.grade([Submission(task, space.solution(0), 5), Submission(task, space.solution(1), 6)])
    assert failed is not None and valid is not None
    assert (failed.status, failed.reward, failed.error_type, failed.error_line) == (
        Status.RUNTIME_ERROR,
        0.1,
        "ValueError",
        7,
    )
    assert (failed.feedback, failed.seconds, failed.report_reward) == ("ValueError: no", 0.25, 0.1)
    assert (valid.score, valid.position, valid.reward, valid.report_reward) == (0.55, 0.5, 0.75, 0.95)
    assert valid.feedback == "submission.csv is valid: auc 0.55, leaderboard position 0.50"


def test_the_seed_chooses_the_draw(task: ResearchTask) -> None:
    code, replay = DesignSpace.of(task).solution(2), ReplaySandbox()
    outcomes = replay.grade([Submission(task, code, seed) for seed in range(6)])
    assert [outcome and outcome.score for outcome in outcomes] == [0.35, 0.65, 0.85] * 2
    assert replay.grade([Submission(task, code, 4)])[0] is outcomes[1]
    assert replay.grade([]) == []


def test_code_out_of_a_fence_is_the_recorded_solution(task: ResearchTask) -> None:
    code, replay = DesignSpace.of(task).solution(1), ReplaySandbox()
    fenced = extract_code(f"My attempt:\n```python\n{code}```\n")
    assert fenced != code, "the fence takes the last line's end away"
    assert replay.grade([Submission(task, fenced)]) == replay.grade([Submission(task, code)])


def test_the_table_gives_expectations_by_member(task: ResearchTask) -> None:
    table = ReplaySandbox().table(task)
    assert table.draws[:4].tolist() == [1, 1, 3, 0] and not table.complete
    np.testing.assert_allclose(table.rewards[:3], [0.1, 0.75, np.mean([0.65, 0.8, 0.9])])
    np.testing.assert_allclose(table.report_rewards[:3], [0.1, 0.95, 0.75])
    np.testing.assert_allclose(table.spreads[:3], [0.0, 0.0, np.std([0.65, 0.8, 0.9])], atol=1e-12)
    np.testing.assert_allclose(table.seconds[:3], [0.25, 0.5, 1.0])
    assert np.isnan(table.rewards[3:]).all() and np.isnan(table.probabilities[3:]).all()
    np.testing.assert_allclose(table.probabilities[:3].sum(axis=1), 1.0)
    assert table.probabilities[2, STATUSES.index(Status.VALID)] == 1.0


def test_recorded_solutions_are_told(task: ResearchTask, write_task) -> None:  # type: ignore[no-untyped-def]
    space, replay = DesignSpace.of(task), ReplaySandbox()
    assert replay.recorded(task) == {space.solution(number) for number in range(3)}
    assert replay.recorded(load_task(write_task("bare", design={"family": "tabular"}))) == frozenset()
    with pytest.raises(RecordingError, match="3 of the 5400 members .* wmrl tasks record /.*/toy --members all"):
        replay.expected_report(task)


def test_a_solution_that_was_not_executed_is_an_error(task: ResearchTask) -> None:
    with pytest.raises(RecordingError, match="not among the 3 in .*recording.jsonl.gz; record the whole design space"):
        ReplaySandbox().grade([Submission(task, "print('new')")])


def test_what_is_known_without_running_needs_no_record(task: ResearchTask) -> None:
    none, broken = ReplaySandbox().grade([Submission(task, None), Submission(task, "def")])
    assert none is not None and none.status is Status.MALFORMED
    assert broken is not None and broken.status is Status.SYNTAX_ERROR


def test_a_task_without_a_recording_says_how_to_make_one(write_task) -> None:  # type: ignore[no-untyped-def]
    bare = load_task(write_task("bare"))
    with pytest.raises(RecordingError, match="no recorded executions at .* wmrl tasks record /.*/bare"):
        ReplaySandbox().preload(bare)


def test_the_fallback_grades_what_is_missing_in_its_place(task: ResearchTask, write_task) -> None:  # type: ignore[no-untyped-def]
    space, fallback = DesignSpace.of(task), Constant()
    replay = ReplaySandbox(fallback=fallback)
    bare = load_task(write_task("bare"))
    codes = [(task, space.solution(1)), (task, space.solution(9)), (bare, "pass"), (task, space.solution(0))]
    outcomes = replay.grade([Submission(owner, code) for owner, code in codes])
    assert [outcome and outcome.reward for outcome in outcomes] == [0.75, 0.1, 0.1, 0.1]
    assert [submission.code for submission in fallback.asked] == [space.solution(9), "pass"]


def test_a_fallback_by_name_executes(task: ResearchTask) -> None:
    code = 'import shutil\nshutil.copy("input/sample_submission.csv", "submission.csv")'
    with ReplaySandbox(fallback="process") as replay:
        [outcome] = replay.grade([Submission(task, code)])
    assert outcome is not None and outcome.status is Status.VALID and outcome.score == 0.5


def test_recordings_can_lie_in_a_folder_of_their_own(task: ResearchTask, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    (task.folder / RECORDING).rename(folder / "toy.jsonl.gz")
    replay = resolve_sandbox("replay", tables=str(folder))
    [outcome] = replay.grade([Submission(task, DesignSpace.of(task).solution(1))])
    assert outcome is not None and outcome.score == 0.55


def rewrite(task: ResearchTask, **changes: object) -> None:
    header, members = read_recording(task.folder / RECORDING)
    write_recording(task.folder / RECORDING, {**header, **changes}, members)


def test_other_versions_warn_once(task: ResearchTask, caplog: pytest.LogCaptureFixture) -> None:
    rewrite(task, versions={**versions(), "numpy": "1.0.0"})
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            ReplaySandbox().preload(task)
    [record] = [record for record in caplog.records if "recording" in record.message]
    assert "numpy 1.0.0 (here " in record.message and "pandas" not in record.message


def test_other_data_are_an_error(task: ResearchTask) -> None:
    rewrite(task, data="0000")
    with pytest.raises(RecordingError, match="made on other data .* wmrl tasks record /.*/toy"):
        ReplaySandbox().preload(task)


def test_changed_solutions_are_an_error(task: ResearchTask) -> None:
    header, members = read_recording(task.folder / RECORDING)
    write_recording(task.folder / RECORDING, header, [members[0]._replace(key="0" * 16), *members[1:]])
    with pytest.raises(RecordingError, match="have changed since .* wmrl tasks record /.*/toy"):
        ReplaySandbox().recorded(task)


def test_a_changed_leaderboard_changes_positions_alone(task: ResearchTask) -> None:
    board = {"train": [0.5, 0.6], "report": [0.9, 0.96]}
    (task.folder / "leaderboard.json").write_text(json.dumps(board))
    moved = load_task(task.folder)
    [outcome] = ReplaySandbox().grade([Submission(moved, DesignSpace.of(moved).solution(1))])
    assert outcome is not None and (outcome.score, outcome.position, outcome.report_reward) == (0.55, 0.5, 0.75)


@pytest.mark.parametrize("name", WHOLE)
def test_the_whole_space_is_recorded(name: str) -> None:
    task, replay = load_task(name), ReplaySandbox()
    table = replay.table(task)
    assert table.complete and len(replay.expected_report(task)) == table.space.size
    assert (task.folder / RECORDING).stat().st_size < 400_000
    seeded = np.array([table.space.seeded(index) for index in range(table.space.size)])
    valid = table.probabilities[:, STATUSES.index(Status.VALID)]
    assert (table.draws[seeded & (valid == 1.0)] == DRAWS).all() and (table.draws[~seeded] == 1).all()
    assert table.spreads[table.draws == DRAWS].max() > 0.0


@pytest.mark.parametrize("name", WHOLE)
def test_the_recorded_spaces_are_worth_learning(name: str) -> None:
    """Valid often enough under the prior, failing in several ways, with a best that no sum of single choices finds."""
    table = ReplaySandbox().table(load_task(name))
    space = table.space
    members = np.array([space.choices(index) for index in range(space.size)])
    prior = np.exp(sum(logits[members[:, i]] for i, logits in enumerate(space.prior_logits)))
    assert prior.sum() == pytest.approx(1.0)
    assert 0.5 <= prior @ table.probabilities[:, STATUSES.index(Status.VALID)] <= 0.7
    assert (np.nansum(table.probabilities, axis=0) > 0).sum() >= 4
    design = np.concatenate([np.eye(count)[members[:, i]] for i, count in enumerate(space.nvec)], axis=1)
    fitted = design @ np.linalg.lstsq(design, table.rewards, rcond=None)[0]
    assert 1.0 - np.var(table.rewards - fitted) / np.var(table.rewards) < 0.8
    assert table.rewards.max() > 0.98 and prior @ table.rewards < 0.6


@pytest.mark.parametrize("name", bundled_tasks())
def test_every_bundled_task_has_a_recording(name: str) -> None:
    task = load_task(name)
    table = ReplaySandbox().table(task)
    assert (table.draws > 0).sum() == table.header["members"] >= 200
    best = np.nanargmax(table.rewards)
    [outcome] = ReplaySandbox().grade([Submission(task, table.space.solution(int(best)))])
    assert outcome is not None and outcome.reward == ladder_reward(outcome.status, outcome.position) > 0.75


def test_a_recorded_execution_happens_again() -> None:
    task = load_task("titanic")
    table = ReplaySandbox().table(task)
    cheap = [int(index) for index in np.flatnonzero(table.seconds < 0.2)[::600]]
    submissions = [Submission(task, table.space.solution(index), DRAWS * index) for index in cheap]
    same_libraries = table.header["versions"] == versions()
    with ProcessSandbox(workers=2) as process:
        for submission, executed in zip(submissions, process.grade(submissions), strict=True):
            [replayed] = ReplaySandbox().grade([submission])
            assert executed is not None and replayed is not None and executed.status is replayed.status
            if same_libraries and executed.status is not Status.VALID:
                assert dataclasses.replace(executed, seconds=0.0) == dataclasses.replace(replayed, seconds=0.0)
            elif executed.score is not None:
                # Other processors may round sums differently in the last digits.
                assert replayed.score == pytest.approx(executed.score, rel=1e-3)


def test_outcomes_of_a_table_are_made_once(task: ResearchTask) -> None:
    replay = ReplaySandbox()
    submission = Submission(task, DesignSpace.of(task).solution(1))
    assert replay.grade([submission])[0] is replay.grade([submission])[0]
    assert replay.grade([submission])[0] == outcome_of(task, read_recording(task.folder / RECORDING)[1][1].draws[0])
