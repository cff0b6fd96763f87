"""The log of a run's episodes, by itself: what is written, what is left out, and what a reader makes of damage."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wmrl_envs.research.outcome import Outcome, Prediction, Status
from wmrl_envs.trajectories import (
    FILE,
    TrajectoryLog,
    choose_episodes,
    describe_turn,
    episodes_kept,
    read_trajectories,
)


def episodes(*steps: int) -> list[dict[str, object]]:
    return [{"step": step, "task": "titanic \u2028 \x00 \ud800", "turns": []} for step in steps]


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    log = TrajectoryLog(tmp_path)
    log.append(episodes(1, 1))
    log.append([])
    log.append(episodes(2))
    assert read_trajectories(tmp_path) == episodes(1, 1, 2)
    assert read_trajectories(tmp_path / "nothing") == []


@pytest.mark.parametrize(
    "damage", [b'{"step": 3, "turns": [{"co', b'{"step": 3\xff', b"12", b"null\n", b"\x00\x00\n", b"[" * 100_000]
)
def test_damage_costs_its_own_line_alone(tmp_path: Path, damage: bytes) -> None:
    log = TrajectoryLog(tmp_path)
    log.append(episodes(1, 2))
    with (tmp_path / FILE).open("ab") as file:
        file.write(damage)
    assert read_trajectories(tmp_path) == episodes(1, 2)
    log.drop_after(2)
    log.append(episodes(3))
    assert read_trajectories(tmp_path) == episodes(1, 2, 3)


@pytest.mark.parametrize("step", [0, 1, 2, 3, 9])
def test_a_resumed_run_drops_the_steps_that_it_takes_again(tmp_path: Path, step: int) -> None:
    TrajectoryLog(tmp_path / "nothing").drop_after(step)
    log = TrajectoryLog(tmp_path)
    log.append(episodes(1, 2, 2, 3))
    before = (tmp_path / FILE).read_text()
    log.drop_after(step)
    kept = [number for number in (1, 2, 2, 3) if number <= step]
    assert read_trajectories(tmp_path) == episodes(*kept)
    assert before.startswith((tmp_path / FILE).read_text())


def test_a_long_run_keeps_few_episodes() -> None:
    kept = [episodes_kept(step) for step in range(1, 100_001)]
    assert kept[:50] == [16] * 50
    assert max(kept[50:]) == 4
    assert kept[50:56] == [0, 4, 0, 4, 0, 4]
    assert kept[100:108] == [0, 0, 0, 4, 0, 0, 0, 4]
    assert 1500 < sum(kept) < 2500


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=40), st.integers(0, 16))
def test_chosen_episodes_are_anchors_first_and_as_many_as_there_is_room_for(
    members: list[tuple[bool, int]], most: int
) -> None:
    anchors, groups = [anchor for anchor, _ in members], [group for _, group in members]
    chosen = choose_episodes(anchors, groups, most)
    assert len(set(chosen)) == len(chosen) == min(most, len(members))
    kinds = [anchors[index] for index in chosen]
    assert kinds == sorted(kinds, reverse=True)
    if not all(anchors) and most > 3:
        assert not all(kinds)


def test_every_group_is_seen_before_any_is_seen_twice() -> None:
    anchors, groups = [True] * 8 + [False] * 8, [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert choose_episodes(anchors, groups, 8) == [0, 4, 1, 5, 2, 6, 8, 12]
    assert choose_episodes([True] * 4, [0, 0, 1, 1], 3) == [0, 2, 1]


def test_a_turn_says_what_was_predicted_and_what_was_real() -> None:
    predicted = Prediction(status=Status.VALID, reward=0.7, position=math.nan, spread=0.1, feedback="x" * 5000)
    real = Outcome(status=Status.RUNTIME_ERROR, reward=0.1, error_type="ValueError", error_line=3, report_reward=0.9)
    turn = describe_turn("c" * 20_003, predicted, real, reply="here")
    assert json.loads(json.dumps(turn, allow_nan=False)) == turn
    assert turn["code"] == "c" * 20_000 + "\n[3 more characters]"
    assert turn["reply"] == "here"
    assert turn["predicted"] == {
        "status": "valid",
        "reward": 0.7,
        "seconds": 0.0,
        "spread": 0.1,
        "feedback": "x" * 4000 + "\n[1000 more characters]",
    }
    assert turn["real"] == {
        "status": "runtime_error",
        "reward": 0.1,
        "seconds": 0.0,
        "error_type": "ValueError",
        "error_line": 3,
        "feedback": "",
    }
    assert describe_turn(None, None, None) == {}
