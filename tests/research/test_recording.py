"""Recordings: really executed members, taken up again after a break, written whole and read back exactly."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wmrl_envs.errors import ConfigurationError, RecordingError, SandboxError
from wmrl_envs.research.board import make_leaderboard
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.execution import RunResult
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import STATUSES, Status
from wmrl_envs.research.recording import (
    DRAWS,
    Draw,
    Member,
    code_key,
    data_digest,
    draw_of,
    members_to_record,
    outcome_of,
    read_recording,
    record,
    versions,
    write_recording,
)
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.task import ResearchTask, load_task

_MEMBERS = 5


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    with ProcessSandbox(workers=2) as sandbox:
        yield sandbox


@pytest.fixture
def task(write_task) -> ResearchTask:  # type: ignore[no-untyped-def]
    return load_task(write_task(design={"family": "tabular"}, limits={"seconds": 1}))


class Counting:
    """Counts the runs of a sandbox, and may break at one of them."""

    def __init__(self, sandbox: ProcessSandbox, breaks_at: int | None = None) -> None:
        self.sandbox, self.count, self.breaks_at, self.workers = sandbox, 0, breaks_at, 1

    def run(self, *args: Any, **options: Any) -> RunResult:
        self.count += 1
        if self.breaks_at is not None and self.count >= self.breaks_at:
            raise SandboxError("the harness broke")
        return self.sandbox.run(*args, **options)


def without_seconds(members: list[Member]) -> list[Member]:
    return [member._replace(draws=tuple(draw._replace(seconds=0.0) for draw in member.draws)) for member in members]


def test_a_recording_holds_what_execution_returns(task: ResearchTask, sandbox: ProcessSandbox) -> None:
    seen: list[tuple[int, int]] = []
    path = record(task, sandbox, _MEMBERS, progress=lambda done, total: seen.append((done, total)))
    assert path == task.folder / "recording.jsonl.gz" and seen[-1] == (_MEMBERS, _MEMBERS)
    assert not path.with_name(path.name + ".partial").exists()
    header, members = read_recording(path)
    space = DesignSpace.of(task)
    assert header["task"] == "toy" and header["versions"] == versions() and header["members"] == _MEMBERS
    assert [member.number for member in members] == sorted(members_to_record(space, _MEMBERS))
    for member in members:
        code = space.solution(member.number)
        assert member.key == code_key(code)
        seeded = space.seeded(member.number) and STATUSES[member.draws[0].status] is Status.VALID
        assert len(member.draws) == (DRAWS if seeded else 1)
        for k, draw in enumerate(member.draws):
            [executed] = sandbox.grade([Submission(task, code, seed=DRAWS * member.number + k)])
            assert executed is not None and draw.seconds > 0
            if executed.status is Status.TIMEOUT:  # by CPU or by wall seconds, as busy as the machine is
                assert STATUSES[draw.status] is Status.TIMEOUT
                continue
            assert outcome_of(task, draw) == dataclasses.replace(executed, seconds=draw.seconds)


def test_a_broken_recording_goes_on_where_it_stopped(
    task: ResearchTask, sandbox: ProcessSandbox, tmp_path: Path
) -> None:
    whole = read_recording(record(task, sandbox, _MEMBERS, tmp_path / "whole.jsonl.gz"))[1]
    target = tmp_path / "broken.jsonl.gz"
    needed = sum(len(member.draws) for member in whole)
    with pytest.raises(SandboxError):
        record(task, Counting(sandbox, breaks_at=3), _MEMBERS, target)
    journal = target.with_name(target.name + ".partial")
    kept = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert kept and not target.exists()
    journal.write_text(journal.read_text() + '[17,"torn')
    counting = Counting(sandbox)
    record(task, counting, _MEMBERS, target)
    assert counting.count == needed - sum(len(draws) for _, _, draws in kept)
    assert without_seconds(read_recording(target)[1]) == without_seconds(whole)


def test_a_recording_is_extended_by_what_it_lacks(task: ResearchTask, sandbox: ProcessSandbox) -> None:
    few, more = Counting(sandbox), Counting(sandbox)
    before = read_recording(record(task, few, 2))[1]
    after = read_recording(record(task, more, _MEMBERS))[1]
    assert len(before) == 2 and len(after) == _MEMBERS and set(before) <= set(after)
    assert few.count + more.count == sum(len(member.draws) for member in after)
    again = Counting(sandbox)
    assert read_recording(record(task, again, 3))[1] == after and again.count == 0


def test_a_journal_of_other_data_is_thrown_away(task: ResearchTask, sandbox: ProcessSandbox, tmp_path: Path) -> None:
    target = tmp_path / "table.jsonl.gz"
    with pytest.raises(SandboxError):
        record(task, Counting(sandbox, breaks_at=3), _MEMBERS, target)
    answers = task.folder / "private" / "answers.csv"
    answers.write_text(answers.read_text().replace("000,0", "000,1"))
    counting = Counting(sandbox)
    _, members = read_recording(record(load_task(task.folder), counting, _MEMBERS, target))
    assert counting.count == sum(len(member.draws) for member in members)


@pytest.mark.parametrize("members", [0, -1, 10**6])
def test_a_number_of_members_that_there_are_not_is_refused(
    task: ResearchTask, sandbox: ProcessSandbox, members: int
) -> None:
    with pytest.raises(ConfigurationError, match=f"members must be from 1 to .* got {members}"):
        record(task, sandbox, members)


def test_an_outcome_survives_being_recorded(task: ResearchTask, sandbox: ProcessSandbox) -> None:
    codes = [
        'import shutil\nprint("hello")\nshutil.copy("input/sample_submission.csv", "submission.csv")',
        "print(1 / 0)",
        "open('submission.csv', 'w').write('id\\n1\\n')",
        "pass",
    ]
    for outcome in sandbox.grade([Submission(task, code) for code in codes]):
        assert outcome is not None
        back = outcome_of(task, draw_of(task, outcome, 0.5 if outcome.status is Status.VALID else None))
        report = back.report_reward if outcome.status is Status.VALID else outcome.report_reward
        assert back == dataclasses.replace(outcome, seconds=back.seconds, report_reward=report)
        assert back.seconds == pytest.approx(outcome.seconds, abs=1e-4)


def test_a_recording_outlives_its_leaderboard(task: ResearchTask, write_task) -> None:  # type: ignore[no-untyped-def]
    draw = Draw(STATUSES.index(Status.VALID), 0.75, 0.25, 0.1, None, None, "hello\n")
    assert outcome_of(task, draw).position == 0.7 and outcome_of(task, draw).report_reward == 0.6
    other = load_task(write_task("other", boards={"train": [0.7, 0.8], "report": [0.1, 0.2]}))
    outcome = outcome_of(other, draw)
    assert (outcome.position, outcome.reward, outcome.report_reward) == (0.5, 0.75, 1.0)
    assert outcome.feedback == "hello\nsubmission.csv is valid: auc 0.75, leaderboard position 0.50"


def test_equal_recordings_are_equal_bytes(tmp_path: Path) -> None:
    draw = Draw(3, None, None, 0.25, "ValueError", 7, "Traceback\nValueError: no")
    members = [Member(2, "ab", (draw,)), Member(5, "cd", (draw, draw._replace(feedback="other")))]
    for name in ("one", "two"):
        write_recording(tmp_path / name, {"format": 1, "task": "toy"}, members)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    header, back = read_recording(tmp_path / "one")
    assert back == members and header["feedbacks"] == ["Traceback\nValueError: no", "other"]
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}


def test_a_damaged_recording_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl.gz"
    draw = Draw(3, None, None, 0.25, "ValueError", 7, "no")
    write_recording(path, {"format": 1, "task": "toy"}, [Member(2, "ab", (draw,))])
    whole = path.read_bytes()
    damaged = {
        "cannot read the recording": whole[:-9],
        "Git-LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        "format 2 is unknown": gzip.compress(gzip.decompress(whole).replace(b'"format": 1', b'"format": 2')),
        "announces 1 solutions": gzip.compress(gzip.decompress(whole).split(b"\n")[0]),
    }
    for message, content in damaged.items():
        path.write_bytes(content)
        with pytest.raises(RecordingError, match=message):
            read_recording(path)
    with pytest.raises(RecordingError, match="cannot read the recording"):
        read_recording(tmp_path / "absent")


def test_a_leaderboard_is_made_of_executed_sound_members(write_task, sandbox: ProcessSandbox) -> None:  # type: ignore[no-untyped-def]
    folder = write_task(design={"family": "tabular"}, limits={"seconds": 1})
    (folder / "leaderboard.json").unlink()
    path = make_leaderboard(folder, sandbox, 4, seed=1)
    first = json.loads(path.read_text())
    assert len(first["train"]) == len(first["report"]) == first["made"]["valid"] <= 4 == first["made"]["population"]
    assert first["train"] == sorted(first["train"], reverse=True)
    assert load_task(folder).leaderboard.scores() == first["train"]
    assert json.loads(make_leaderboard(folder, sandbox, 4, seed=1).read_text()) == first
    with pytest.raises(ConfigurationError, match="population must be at least 1, got 0"):
        make_leaderboard(folder, sandbox, 0)


def test_compiled_files_beside_a_tasks_own_are_no_data(write_task):
    folder = write_task()
    before = data_digest(ResearchTask.load(folder)), ResearchTask.load(folder).inventory.files
    for name in ("public", "private"):
        (folder / name / "__pycache__").mkdir()
        (folder / name / "__pycache__" / "train.cpython-311.pyc").write_bytes(b"compiled")
    assert (data_digest(ResearchTask.load(folder)), ResearchTask.load(folder).inventory.files) == before
