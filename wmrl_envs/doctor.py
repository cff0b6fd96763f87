"""What this machine can isolate and run, and what to install for the rest."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wmrl_envs.errors import MissingExtraError, WMRLError

__all__ = ["Finding", "examine", "print_report"]

DISTRIBUTION = "wmrl-envs"
CORE = ("numpy", "scipy", "pandas", "scikit-learn", "gymnasium")
TIMEOUT = 120.0
"""Seconds after which a first frame is given up."""
INSTALL_GL = "on Debian or Ubuntu: apt-get install -y libegl1 libosmesa6"
MEMORY_PER_SOLUTION = 1.0
"""GB that one solution may take by default, so how many run side by side."""

_SOLUTION = """
import pandas as pd
pd.read_csv("input/sample_submission.csv").to_csv("submission.csv", index=False)
"""
_SCENE = """
import mujoco
from OpenGL.GL import GL_RENDERER, glGetString
from wmrl_envs.robotics.rendering import SceneRenderer

model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><light pos='0 0 3'/><geom size='.4' rgba='1 0 0 1'/></worldbody></mujoco>"
)
data, camera = mujoco.MjData(model), mujoco.MjvCamera()
mujoco.mj_forward(model, data)
camera.distance = 2.0
renderer = SceneRenderer(model, 16, 16)
red, *others = map(int, renderer.render(data, camera)[10, 8])
device = (glGetString(GL_RENDERER) or b"an unnamed device").decode()
print("drawn" if red > max(others) + 50 else "blank", device, sep="\\t", flush=True)
"""
_MARKS = {True: "[green]✓[/green]", False: "[red]✗[/red]", None: "[yellow]![/yellow]"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    section: str
    name: str
    value: str
    """What was found, in words."""
    good: bool | None = True
    """True: as it should be; ``None``: something optional is missing; False: something does not work."""
    help: str = ""
    """What to do about it; an exact command where there is one."""
    fatal: bool = False
    """Whether the core cannot run because of it."""


def examine() -> list[Finding]:
    """Look at the machine, the isolation, the libraries and the bundled tasks.

    Executes one harmless solution in the sandbox, and draws one scene where MuJoCo is installed.
    """
    parts: tuple[Callable[[], Iterator[Finding]], ...] = (_machine, _isolation, _libraries, _extras, _robots, _tasks)
    return [finding for part in parts for finding in part()]


def print_report(findings: list[Finding], console: Console) -> None:
    """Print the findings as a table, and below it everything that can be done about them."""
    table = Table(show_header=False, box=None, padding=(0, 1))
    section = ""
    for finding in findings:
        if finding.section != section:
            section = finding.section
            table.add_row("", f"[bold]{section}[/bold]", "")
        table.add_row(_MARKS[finding.good], finding.name, escape(finding.value))
    console.print(table)
    helps = [finding for finding in findings if finding.help]
    if helps:
        console.print("\n[bold]What to do[/bold]")
    for finding in helps:
        console.print(f"{_MARKS[finding.good]} {finding.name}: {escape(finding.help)}", highlight=False, soft_wrap=True)
    fatal = any(finding.fatal for finding in findings)
    verdict = "[red]The core cannot run here.[/red]" if fatal else "[green]The core runs here.[/green]"
    console.print(f"\n{verdict}")


def _machine() -> Iterator[Finding]:
    section = "Machine"
    yield Finding(section, "system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = psutil.virtual_memory()
    yield Finding(section, "cores", f"{cores} usable: that many solutions run side by side")
    enough = memory.available / 2**30 >= MEMORY_PER_SOLUTION * cores
    yield Finding(
        section,
        "memory",
        f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GB available",
        good=True if enough else None,
        help=""
        if enough
        else f"{cores} solutions side by side may take {MEMORY_PER_SOLUTION:g} GB each; pass fewer workers",
    )
    scratch = Path(tempfile.gettempdir())
    free = psutil.disk_usage(str(scratch)).free / 2**30
    yield Finding(
        section,
        "scratch space",
        f"{free:.1f} GB free in {scratch}",
        good=True if free >= 1 else None,
        help="" if free >= 1 else "set TMPDIR to a folder with at least 1 GB free",
    )


def _isolation() -> Iterator[Finding]:
    from wmrl_envs.research.sandbox.isolation import probe

    section = "Sandbox"
    report = probe()
    for name, value, problem in (
        ("Landlock", f"ABI {report.landlock}: files, network and signals are confined", report.landlock_problem),
        ("seccomp", "system calls are filtered", report.seccomp_problem),
    ):
        yield Finding(section, name, problem or value, good=True if problem is None else None, help=problem or "")
    if report.strict:
        yield Finding(section, "isolation", "strict: other people's code can be confined")
    else:
        yield Finding(
            section,
            "isolation",
            f"auto alone ({report.strongest.name}): our own templates run, other people's code should not",
            good=None,
            help="wmrl/Research-v0 refuses to run here; isolation='none' runs other people's code with your rights",
        )
    yield _execution(section)


def _execution(section: str) -> Finding:
    from wmrl_envs.research.sandbox.process import ProcessSandbox
    from wmrl_envs.research.task import TASKS_DIR, bundled_tasks

    public = TASKS_DIR / bundled_tasks()[0] / "public"
    try:
        with ProcessSandbox(workers=1) as sandbox:
            result = sandbox.run(_SOLUTION, public)
            layers = sandbox.layers
    except WMRLError as error:
        return Finding(section, "a solution", "does not run", good=False, help=str(error), fatal=True)
    if result.cause != "ok" or not isinstance(result.submission, bytes):
        reason = (result.stderr or result.message or f"exit code {result.exit_code}").strip().splitlines()[-1]
        return Finding(section, "a solution", "runs, and fails", good=False, help=reason, fatal=True)
    return Finding(section, "a solution", f"runs in {result.seconds:.2f} CPU s under {layers}")


def _libraries() -> Iterator[Finding]:
    section = "Core"
    yield Finding(section, "Python", platform.python_version())
    for name in (DISTRIBUTION, *CORE):
        found = _version(name)
        yield Finding(
            section,
            name,
            found or "missing",
            good=found is not None,
            help="" if found else _install(""),
            fatal=found is None,
        )


def _extras() -> Iterator[Finding]:
    section = "Extras"
    for extra, packages in _requirements().items():
        present = {name: _version(name) for name in packages}
        missing = [name for name, found in present.items() if found is None]
        versions = ", ".join(f"{name} {found}" for name, found in present.items() if found)
        if missing:
            yield Finding(
                section,
                extra,
                f"lacks {', '.join(missing)}",
                good=None,
                help=_install(f"[{extra}]"),
            )
        else:
            yield Finding(section, extra, versions)
    if _version("torch") is not None:
        torch = importlib.import_module("torch")
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none; the agents train on the CPU"
        yield Finding(section, "GPU", gpu)


def _robots() -> Iterator[Finding]:
    yield _rendering("Robots")
    yield _videos("Robots")


def _rendering(section: str) -> Finding:
    from wmrl_envs.robotics.rendering import choose_backend

    if _version("mujoco") is None:
        return Finding(section, "rendering", "needs MuJoCo", good=None, help=_install("[robotics]"))
    try:
        backend = choose_backend()
    except WMRLError as error:
        return Finding(section, "rendering", "neither EGL nor OSMesa works", good=False, help=str(error))
    except subprocess.TimeoutExpired:
        return Finding(section, "rendering", "does not answer", good=False, help=INSTALL_GL)
    name = {"egl": "EGL", "osmesa": "OSMesa"}.get(backend, backend)
    # In a process of its own: OpenGL may end the interpreter, and binds it to the platform that was tried first.
    command = [sys.executable, "-c", _SCENE]
    try:
        run = subprocess.run(
            command, env=os.environ | {"MUJOCO_GL": backend}, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return Finding(section, "rendering", f"{name} does not answer", good=False, help=INSTALL_GL)
    outcome, _, device = run.stdout.strip().partition("\t")
    if outcome == "drawn":
        return Finding(section, "rendering", f"{name} draws, on {device}")
    if outcome == "blank":
        return Finding(section, "rendering", f"{name} draws blank frames, on {device}", good=False, help=INSTALL_GL)
    reason = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
    return Finding(section, "rendering", f"{name} does not work", good=False, help=f"{reason}; {INSTALL_GL}")


def _videos(section: str) -> Finding:
    import numpy as np

    frames = np.full((2, 32, 32, 3), 128, np.uint8)
    try:
        from wmrl_envs.robotics.video import read_video, write_video

        with tempfile.TemporaryDirectory() as folder:
            write_video(Path(folder) / "grey.mp4", frames, fps=10)
            same = read_video(Path(folder) / "grey.mp4").shape == frames.shape
    except MissingExtraError:
        return Finding(section, "videos", "need OpenCV", good=None, help=_install("[robotics]"))
    except WMRLError as error:
        return Finding(section, "videos", "cannot be written", good=False, help=str(error))
    return Finding(section, "videos", "are written and read" if same else "come back in another size", good=same)


def _requirements() -> dict[str, list[str]]:
    """Return the packages of each extra, as the installed distribution states them."""
    extras: dict[str, list[str]] = {}
    try:
        stated = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    for requirement in stated:
        name, extra = re.match(r"[\w.-]+", requirement), re.search(r"""extra\s*==\s*["']([\w.-]+)["']""", requirement)
        if name and extra:
            extras.setdefault(extra.group(1), []).append(name.group())
    return extras


def _tasks() -> Iterator[Finding]:
    from wmrl_envs.research.recording import RECORDING, read_recording, versions
    from wmrl_envs.research.task import TASKS_DIR, bundled_tasks, load_task

    section = "Tasks"
    sound, problems = [], []
    for name in bundled_tasks():
        try:
            load_task(name)
            sound.append(name)
        except WMRLError as error:
            problems.append(str(error))
    yield Finding(section, "bundled", ", ".join(sound) or "none", good=not problems, help="; ".join(problems))
    installed = versions()
    recorded, stale = [], set()
    for name in sound:
        if not (TASKS_DIR / name / RECORDING).is_file():
            continue
        try:
            header = read_recording(TASKS_DIR / name / RECORDING)[0]
        except WMRLError as error:
            yield Finding(section, f"recording of {name}", "unreadable", good=False, help=str(error))
            continue
        recorded.append(name)
        made = dict(header.get("versions", {}))
        stale |= {f"{package} {made.get(package)}" for package, here in installed.items() if made.get(package) != here}
    yield Finding(
        section,
        "recorded for replay",
        ", ".join(recorded) or "none",
        good=None if stale or not recorded else True,
        help=f"recorded under {', '.join(sorted(stale))}; live executions here may end differently" if stale else "",
    )


def _install(extra: str) -> str:
    """Return the command that installs the package again with an extra: from where it came from, as it came."""
    try:
        origin = json.loads(importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        origin = {}
    folder = urllib.parse.urlparse(str(origin.get("url", "")))
    if folder.scheme == "file" and "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        checkout = urllib.request.url2pathname(folder.path)
        # Without the constraints pip may bring a torch of several gigabytes for CUDA.
        pins = os.path.join(checkout, "constraints.txt")
        constrained = f" -c {shlex.quote(pins)}" if os.path.isfile(pins) else ""
        return f"pip install {editable}{shlex.quote(checkout + extra)}{constrained}"
    return f"pip install {shlex.quote(DISTRIBUTION + extra)}"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
