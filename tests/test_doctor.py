"""The doctor tells what runs here, and the exact command for what does not."""

from __future__ import annotations

import importlib.metadata

import pytest
from typer.testing import CliRunner

from wmrl_envs import doctor
from wmrl_envs.cli import app
from wmrl_envs.doctor import examine
from wmrl_envs.errors import SandboxError
from wmrl_envs.research.sandbox.process import ProcessSandbox


def test_this_machine_runs_the_core() -> None:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    for words in (
        "Landlock",
        "seccomp",
        "cores",
        "GB available",
        "Python",
        "torch",
        "a solution",
        "The core runs here",
    ):
        assert words in result.output


def test_missing_extra_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.metadata.version

    def version(name: str) -> str:
        if name in ("torch", "stable-baselines3"):
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    [agents] = [finding for finding in examine() if finding.name == "agents"]
    assert agents.good is None
    assert agents.value == "lacks torch, stable-baselines3"
    assert agents.help.startswith("pip install ")
    assert "[agents]" in agents.help


def test_core_that_cannot_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*args: object, **kwargs: object) -> None:
        raise SandboxError("the process that solutions are forked from did not start")

    monkeypatch.setattr(ProcessSandbox, "run", run)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "did not start" in result.output
    assert "The core cannot run here" in result.output


def test_extras_are_those_of_the_distribution() -> None:
    assert {"torch", "stable-baselines3", "tensorboard", "matplotlib"} <= set(doctor._requirements()["agents"])
