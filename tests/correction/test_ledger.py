import json

import pytest

from wmrl_envs.correction import Ledger
from wmrl_envs.errors import CheckpointError, ConfigurationError


def test_an_empty_ledger_knows_no_ratio():
    ledger = Ledger()
    assert ledger.seconds == 0.0
    assert ledger.mean_execution_seconds is ledger.full_seconds is ledger.cost_ratio is ledger.cached_cost_ratio is None


def test_everything_is_charged():
    ledger = Ledger()
    ledger.execute([2.0, 4.0, 6.0], warmup=True)
    for _ in range(5):
        ledger.predict(20, 0.5)
        ledger.execute([1.0, 3.0])
    assert (ledger.executions, ledger.warmup_executions, ledger.predictions) == (13, 3, 100)
    assert (ledger.execution_seconds, ledger.warmup_seconds, ledger.prediction_seconds) == (32.0, 12.0, 2.5)
    assert ledger.seconds == 34.5
    assert ledger.mean_execution_seconds == 2.0
    assert ledger.full_seconds == 200.0
    assert ledger.cost_ratio == 34.5 / 200.0


def test_execution_alone_costs_all_of_itself():
    ledger = Ledger()
    ledger.execute([1.0, 2.0, 3.0])
    assert ledger.cost_ratio == 1.0


def test_the_warm_up_tells_the_mean_while_there_is_no_other():
    ledger = Ledger()
    ledger.execute([1.0, 3.0, None], warmup=True)
    ledger.predict(10, 0.0)
    assert ledger.mean_execution_seconds == 2.0
    assert ledger.cost_ratio == 4.0 / 20.0


def test_a_repeat_is_charged_but_free_with_a_cache():
    ledger = Ledger()
    ledger.execute([1.0, 2.0], [("titanic", "a"), ("titanic", "b")], warmup=True)
    ledger.execute([1.5, 4.0, 8.0, 8.5], [("titanic", "a"), ("wine", "a"), ("titanic", "c"), ("titanic", "c")])
    assert (ledger.executions, ledger.repeated_executions, ledger.cached_executions) == (6, 2, 4)
    assert ledger.execution_seconds == 25.0
    assert ledger.repeated_seconds == 10.0
    assert ledger.cached_seconds == 15.0
    ledger.predict(100, 5.0)
    assert ledger.cached_seconds == 20.0
    assert ledger.cached_cost_ratio == 20.0 / (5.5 * 100)


def test_without_keys_nothing_is_a_repeat():
    ledger = Ledger()
    ledger.execute([1.0])
    ledger.execute([1.0])
    assert ledger.repeated_executions == 0


def test_keys_do_not_run_into_one_another():
    ledger = Ledger()
    ledger.execute([1.0] * 5, [("ab", "c"), ("a", "bc"), "abc", ("abc",), "\ud800 no utf-8"])
    assert ledger.repeated_executions == 1  # a string is the tuple of itself


def test_a_failed_execution_counts_but_costs_and_caches_nothing():
    ledger = Ledger()
    ledger.execute([None, 2.0], ["a", "b"])
    ledger.execute([3.0, float("nan")], ["a", "b"])
    assert (ledger.executions, ledger.failed_executions, ledger.repeated_executions) == (4, 2, 0)
    assert ledger.execution_seconds == 5.0
    assert ledger.mean_execution_seconds == 2.5


def test_solutions_are_not_remembered():
    ledger = Ledger()
    ledger.execute([1.0], [("task", "import secret_library")])
    assert "secret_library" not in json.dumps(ledger.state_dict())


def test_a_saved_ledger_continues():
    ledger = Ledger()
    ledger.execute([0.1, 0.2, None], ["a", "b", "c"], warmup=True)
    ledger.execute([0.3, 0.7], ["a", "d"])
    ledger.predict(3, 0.01)
    loaded = Ledger()
    loaded.load_state_dict(json.loads(json.dumps(ledger.state_dict())))
    for each in (ledger, loaded):
        each.execute([0.1, 0.2], ["d", "e"])
    assert loaded.summary() == ledger.summary()
    assert loaded.state_dict() == ledger.state_dict()
    good = ledger.state_dict()
    for damage in ({"counts": {}}, {"seen": ["xyz"]}, {"seconds": None}):
        with pytest.raises(CheckpointError, match="damaged"):
            loaded.load_state_dict({**good, **damage})
        assert loaded.state_dict() == good


def test_the_summary_is_for_json():
    ledger = Ledger()
    ledger.execute([0.5], ["a"])
    summary = json.loads(json.dumps(ledger.summary()))
    assert summary["executions"] == 1
    assert summary["cost_ratio"] == 1.0


def test_what_cannot_be_charged_is_refused_and_changes_nothing():
    ledger = Ledger()
    with pytest.raises(ValueError, match="at least 0, got -1"):
        ledger.execute([1.0, -1.0])
    with pytest.raises(ValueError, match="got 1 for 2"):
        ledger.execute([1.0, 2.0], ["a"])
    with pytest.raises(ValueError, match="infinity"):
        ledger.execute([float("inf")])
    with pytest.raises(ConfigurationError, match="n must be a whole number"):
        ledger.predict(-1, 0.0)
    for seconds in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="seconds must be at least 0"):
            ledger.predict(1, seconds)
    assert ledger.state_dict() == Ledger().state_dict()
