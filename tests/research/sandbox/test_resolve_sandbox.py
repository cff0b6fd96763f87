from __future__ import annotations

import sys
import types

import pytest

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.research.sandbox import resolve_sandbox
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.sandbox.replay import ReplaySandbox


class Own:
    def __init__(self, speed: int = 1) -> None:
        self.speed = speed

    def grade(self, submissions):
        return [None] * len(submissions)


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType("own_sandbox")
    made.__dict__.update(Own=Own, ready=Own(3), number=7, lists=list)
    monkeypatch.setitem(sys.modules, "own_sandbox", made)


def test_names() -> None:
    sandbox = resolve_sandbox("process", isolation="none", workers=3)
    assert isinstance(sandbox, ProcessSandbox) and (sandbox.workers, sandbox.layers) == (3, "limits")
    assert isinstance(resolve_sandbox("replay", isolation="strict"), ReplaySandbox)


def test_objects_pass_through() -> None:
    own = Own()
    assert resolve_sandbox(own) is own
    with pytest.raises(ConfigurationError, match="dict has none"):
        resolve_sandbox({})  # type: ignore[arg-type]


def test_ones_own_by_path() -> None:
    assert resolve_sandbox("own_sandbox:ready").speed == 3
    assert resolve_sandbox("own_sandbox:Own", speed=2).speed == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("proces", "Did you mean 'process'"),
        ("docker-compose", "'process', 'replay'"),
        ("no_such_module:x", "No module named"),
        ("own_sandbox:nothing", "has no attribute"),
        ("own_sandbox:number", "it is a int"),
        ("own_sandbox:lists", "made a list"),
        (":x", "cannot import"),
    ],
)
def test_what_leads_nowhere_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        resolve_sandbox(name)
