"""The store of executed solutions: which are near, and what their errors say."""

import json

import numpy as np
import pytest

from wmrl_envs.research.outcome import STATUSES, Outcome, Status
from wmrl_envs.world_models.executed import ExecutedSolutions
from wmrl_envs.world_models.features import DataNames, syntax_tokens

NAMES = DataNames(frozenset({"id", "age"}), "id", frozenset({"y"}), frozenset({"train.csv"}))
VALID = Outcome(status=Status.VALID, reward=0.9, position=0.8)
FAILED = Outcome(status=Status.RUNTIME_ERROR, reward=0.1)
BASE = np.array([0.5, *[1 / len(STATUSES)] * len(STATUSES)])


def store(*executed, base=BASE):
    found = ExecutedSolutions(NAMES)
    found.add(executed)
    for solution in found:
        solution.base = base
    found.refit()
    return found


def distance(code, other):
    return len(syntax_tokens(code, NAMES) ^ syntax_tokens(other, NAMES))


def test_nearest_come_last_and_ties_go_to_the_latest():
    executed = [(code, VALID) for code in ("f(a)", "f(b)", "g(a, b, c)", "h(z)")]
    found = store(*executed)
    codes = [code for code, _ in found.nearest("f(a)", 4, itself=True)]
    assert codes[-1] == "f(a)" and codes[0] == "g(a, b, c)"
    distances = [distance("f(a)", code) for code in codes]
    assert distances == sorted(distances, reverse=True)
    assert [code for code, _ in found.nearest("f(a)", 1, itself=False)] == ["f(b)"]
    # Never seen tokens count as much as any: equally far from both, the later one is shown.
    twins = store(("f(a)", VALID), ("f(b)", FAILED))
    assert twins.nearest("f(unseen)", 1, itself=True) == [("f(b)", FAILED)]
    assert found.nearest("f(a)", 0, itself=True) == [] == store().nearest("f(a)", 3, itself=True)


def test_the_same_code_comes_before_its_twins():
    found = store(("f(1)", VALID), ("f(2)", FAILED))  # numbers are no tokens
    assert found.nearest("f(1)", 1, itself=True) == [("f(1)", VALID)]
    assert found.nearest("f(1)", 1, itself=False) == [("f(2)", FAILED)]


def test_the_latest_outcome_is_shown_and_the_mean_corrects():
    found = store(("f(a)", VALID), ("f(a)", FAILED))
    assert len(found) == 1 and found.nearest("f(a)", 1, itself=True) == [("f(a)", FAILED)]
    beliefs, spread = found.correct(["f(a)"], BASE[None, :], np.array([0.3]))
    assert beliefs[0, 0] == pytest.approx(0.5) and beliefs[0, 1:].sum() == pytest.approx(1.0)
    assert spread[0] < 0.1
    assert beliefs[0, 1 + STATUSES.index(Status.VALID)] == pytest.approx(1 / 9 + (0.5 - 1 / 9) / 1.05)


def test_correction_is_the_posterior_of_its_formula():
    codes = ["f(a)", "f(b)", "g(a, b)", "h(a)(b)"]
    executed = [(code, FAILED if "b" in code else VALID) for code in codes]
    found = store(*executed)
    kernel = np.exp(-np.array([[distance(a, b) for b in codes] for a in codes]) / 12.0)
    errors = np.array([outcome.reward - 0.5 for _, outcome in executed])
    weights = np.linalg.solve(kernel + 0.1 * np.eye(4), errors)
    query = "f(a, unseen)"
    similarity = np.exp(-np.array([distance(query, code) for code in codes]) / 12.0)
    beliefs, _ = found.correct([query], BASE[None, :], np.array([0.3]))
    assert beliefs[0, 0] == pytest.approx(0.5 + similarity @ weights)


def test_additions_count_after_the_next_refit():
    found = store(("f(a)", VALID))
    before = found.correct(["g(b)"], BASE[None, :], np.array([0.3]))[0]
    found.add([("g(b)", FAILED), ("new(tokens)", FAILED)])
    np.testing.assert_array_equal(found.correct(["g(b)"], BASE[None, :], np.array([0.3]))[0], before)
    assert found.nearest("g(b)", 1, itself=True) == [("g(b)", FAILED)]


def test_solutions_that_were_never_predicted_correct_nothing():
    found = store(("f(a)", VALID), base=None)
    assert not found.corrects and len(found) == 1
    np.testing.assert_array_equal(found.correct(["f(a)"], BASE[None, :], np.array([0.3]))[0], BASE[None, :])


def test_only_the_latest_are_kept():
    found = store(*((f"f(a{number})", VALID) for number in range(1_003)))
    assert len(found) == 1_000 and found.get("f(a2)") is None and found.get("f(a3)") is not None


def test_a_saved_store_is_the_same():
    found = store(("f(a)", VALID), ("f(b)", FAILED), ("f(a)", FAILED), ("g(x)", VALID))
    loaded = ExecutedSolutions.from_state(json.loads(json.dumps(found.state_dict())))
    queries = ["f(a)", "g(y)", "k(0)"]
    beliefs, spread = np.stack([BASE] * 3), np.full(3, 0.3)
    for one, other in zip(
        found.correct(queries, beliefs, spread), loaded.correct(queries, beliefs, spread), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert all(found.nearest(q, 3, itself=True) == loaded.nearest(q, 3, itself=True) for q in queries)
    assert loaded.state_dict() == found.state_dict()
