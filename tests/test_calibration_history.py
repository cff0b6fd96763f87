"""The history of the calibration map."""

from __future__ import annotations

import json

import numpy as np

from wmrl_envs.calibration_history import MOST, CalibrationHistory


def knots(step: int) -> tuple[list[float], list[float]]:
    generator = np.random.default_rng(step)
    return sorted(generator.random(40).tolist()), np.sort(generator.integers(6, size=40) / 5).tolist()


def test_a_long_history_is_even_and_ends_with_the_newest() -> None:
    history = CalibrationHistory()
    for step in range(1, 1004):
        history.note(step, *knots(step))
        assert len(history.maps) <= MOST + 1
    steps = [known["step"] for known in history.maps]
    assert steps == [*range(32, 1003, 32), 1003]


def test_kept_knots_are_the_same_map() -> None:
    history = CalibrationHistory()
    predicted, real = knots(1)
    history.note(1, predicted, real)
    (kept,) = history.maps
    assert len(kept["predicted"]) < 20
    at = np.linspace(0, 1, 200)
    drawn = np.interp(at, kept["predicted"], kept["real"])
    assert np.abs(drawn - np.interp(at, predicted, real)).max() < 1e-3


def test_a_history_taken_up_again_is_as_an_unbroken_one() -> None:
    unbroken = CalibrationHistory()
    for step in range(1, 150):
        unbroken.note(step, *knots(step))
    for stopped_at in (1, 60, 61, 123):
        first, second = CalibrationHistory(), CalibrationHistory()
        for step in range(1, stopped_at + 1):
            first.note(step, *knots(step))
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        for step in range(stopped_at + 1, 150):
            second.note(step, *knots(step))
        assert second.maps == unbroken.maps


def test_nothing_is_noted_before_the_first_fit() -> None:
    history = CalibrationHistory()
    history.note(1, [], [])
    assert history.maps == []
