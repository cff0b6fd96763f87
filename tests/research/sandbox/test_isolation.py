"""Levels of isolation, and what each does on machines that lack something."""

from __future__ import annotations

import os
import socket
import warnings
from pathlib import Path

import pytest

from wmrl_envs.errors import IsolationError
from wmrl_envs.research.sandbox import isolation
from wmrl_envs.research.sandbox.isolation import IsolationReport, Layers, choose_layers, probe
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.task import Limits

LACKING = IsolationReport(0, "Landlock is missing in kernel 5.4; it needs Linux 5.13", None, None)


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Landlock."""
    problem = isolation.namespaces_problem()
    report = IsolationReport(0, LACKING.landlock_problem, probe().seccomp_problem, problem)
    monkeypatch.setattr(isolation, "probe", lambda: report)
    monkeypatch.setattr(isolation, "_warned", False)


def test_strict_fails_closed_and_says_what_would_help(lacking: None) -> None:
    with pytest.raises(IsolationError, match=r"Linux 5\.13.*isolation=\"none\""):
        ProcessSandbox(isolation="strict")


def test_auto_takes_what_there_is_and_warns_once(lacking: None) -> None:
    with pytest.warns(RuntimeWarning, match="weaker isolation.*Landlock is missing"):
        ProcessSandbox(isolation="auto")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not ProcessSandbox(isolation="auto")._layers.landlock


def test_layers_by_what_the_machine_has() -> None:
    assert IsolationReport(7, None, None).strongest == Layers(7, True)
    assert LACKING.strongest == Layers(0, True, namespaces=True)
    assert IsolationReport(0, "no", "no", "no").strongest.name == "limits"
    assert IsolationReport(7, None, None).strict and not LACKING.strict and not IsolationReport(7, None, "no").strict
    assert choose_layers("none") == Layers(0, False)
    assert Layers(7, True).name == "Landlock (ABI 7) + seccomp + limits"


def test_namespaces_stand_in_for_landlock(lacking: None, public: Path) -> None:
    if isolation.probe().namespaces_problem:
        pytest.skip(f"not possible here: {isolation.probe().namespaces_problem}")
    code = f"""
import os, pandas, sklearn.linear_model, subprocess
print(len(pandas.read_csv("input/train.csv")))
def attempt(name, function):
    try: print(name, "SUCCEEDED", function())
    except OSError as error: print(name, "failed")
private = os.path.realpath("input") + "/../private/answers.csv"
attempt("private", lambda: open(private).read())
attempt("passwd", lambda: open("/etc/passwd").read())
attempt("package", lambda: open({isolation.__file__!r}).read())
attempt("environ", lambda: open("/proc/{os.getpid()}/environ").read())
attempt("write", lambda: open("input/new", "w"))
attempt("root", lambda: open("/new", "w"))
attempt("tmp", lambda: open("/tmp/new", "w"))
attempt("network", lambda: __import__("socket").create_connection(("127.0.0.1", PORT), 1))
open("submission.csv", "w").write("id,y\\n")
"""
    with warnings.catch_warnings(), socket.create_server(("127.0.0.1", 0)) as server:
        warnings.simplefilter("ignore")
        with ProcessSandbox(isolation="auto", workers=1) as sandbox:
            assert "namespaces" in sandbox.layers
            result = sandbox.run(code.replace("PORT", str(server.getsockname()[1])), public)
            assert (result.cause, result.submission) == ("ok", b"id,y\n"), result.stderr
            assert result.stdout.count("failed") == 8 and "SUCCEEDED" not in result.stdout, result.stdout
            started = sandbox.run(
                "import subprocess; subprocess.run(['true'], check=True)", public, Limits(processes=2)
            )
            assert started.cause == "ok", started.stderr


def test_none_has_limits_all_the_same(public: Path) -> None:
    with ProcessSandbox(isolation="none", workers=1) as sandbox:
        assert sandbox.run("import socket; socket.socket().close()", public).cause == "ok"
        assert sandbox.run("while True: pass", public, Limits(seconds=0.3)).cause == "timeout"
        assert sandbox.run("x = bytearray(2 * 2**30)", public, Limits(memory_mb=256)).cause == "memory"
        hidden = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(100)\nprint(1, flush=True)"
        assert sandbox.run(hidden, public, Limits(processes=2)).cause == "ok"
        zygote = sandbox.zygote_pid
    assert not Path(f"/proc/{zygote}").exists()
