"""The doctor tells what runs here, and the exact command for what does not."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

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


def test_checkout_is_installed_again_with_its_constraints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checkout, installed = tmp_path / "check out", tmp_path / "wmrl_envs-9.0.dist-info"
    checkout.mkdir()
    (checkout / "constraints.txt").touch()
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: wmrl-envs\nVersion: 9.0\n"
        "Provides-Extra: agents\nRequires-Dist: no-such-package; extra == 'agents'\n"
    )
    origin = {"url": checkout.as_uri(), "dir_info": {"editable": True}}
    (installed / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)
    [agents] = [finding for finding in examine() if finding.name == "agents"]
    assert agents.help == f"pip install -e '{checkout}[agents]' -c '{checkout}/constraints.txt'"


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


ROBOTS = """
import dataclasses, json
from wmrl_envs.doctor import _robots
print(json.dumps([dataclasses.asdict(finding) for finding in _robots()]))
"""
WITHOUT_LIBRARIES = """
import ctypes

load = ctypes._dlopen

def loaded(name, *args):
    if any(hidden in str(name) for hidden in {hidden}):
        raise OSError(f"{{name}}: cannot open shared object file: No such file or directory")
    return load(name, *args)

ctypes._dlopen = loaded
"""


def robots(tmp_path: Path, hidden: tuple[str, ...] = (), backend: str = "") -> dict[str, dict[str, str]]:
    """Ask the doctor about robots in a process, and those it starts, that find some libraries missing."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_LIBRARIES.format(hidden=hidden))
    environment = {name: value for name, value in os.environ.items() if name not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    environment |= {"PYTHONPATH": str(tmp_path)} | ({"MUJOCO_GL": backend} if backend else {})
    run = subprocess.run([sys.executable, "-c", ROBOTS], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return {finding["name"]: finding for finding in json.loads(run.stdout)}


@pytest.mark.parametrize(
    ("hidden", "backend", "name"),
    [((), "", "EGL"), (("EGL",), "", "OSMesa"), ((), "osmesa", "OSMesa"), ((), "glfw", "EGL")],
)
def test_rendering_is_tried_for_real(tmp_path: Path, hidden: tuple[str, ...], backend: str, name: str) -> None:
    found = robots(tmp_path, hidden, backend)
    assert found["rendering"]["good"] is True, found
    assert found["rendering"]["value"].startswith(f"{name} draws, on ")
    assert found["videos"]["value"] == "are written and read"


@pytest.mark.parametrize(
    ("backend", "value"), [("", "neither EGL nor OSMesa works"), ("osmesa", "OSMesa does not work")]
)
def test_missing_libraries_of_rendering_are_named(tmp_path: Path, backend: str, value: str) -> None:
    found = robots(tmp_path, ("EGL", "OSMesa"), backend)["rendering"]
    assert (found["value"], found["good"], found["fatal"]) == (value, False, False)
    assert "apt-get install -y libegl1 libosmesa6" in found["help"]


def test_missing_libraries_of_robots_are_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.metadata.version

    def version(name: str) -> str:
        if name == "mujoco":
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setitem(sys.modules, "cv2", None)
    for module in ("video", "_progress_panel"):
        monkeypatch.delitem(sys.modules, f"wmrl_envs.robotics.{module}", raising=False)
    for finding in doctor._robots():
        assert finding.good is None and not finding.fatal
        assert finding.help.startswith("pip install ") and "[robotics]" in finding.help
        assert finding.value in ("needs MuJoCo", "need OpenCV")
