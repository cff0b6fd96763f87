"""What this machine can isolate, and what a level of isolation asks for."""

from __future__ import annotations

import platform
import subprocess
import sys
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from wmrl_envs.errors import ConfigurationError, IsolationError, did_you_mean
from wmrl_envs.research.sandbox import namespaces, seccomp

__all__ = ["Isolation", "IsolationReport", "Layers", "choose_layers", "namespaces_problem", "probe"]

Isolation = Literal["auto", "strict", "none"]

_ALLOW = 'to run the code unisolated all the same, which gives it your files and network, pass isolation="none"'
_warned = False


@dataclass(frozen=True, slots=True)
class Layers:
    """What confines a solution, besides limits, watchdog and the end of its process tree, which are always there."""

    landlock: int
    """ABI version of Landlock (files, TCP, signals by version), 0 without it."""
    seccomp: bool
    """Whether system calls are filtered."""
    namespaces: bool = False
    """Whether a root folder and network of their own stand in for Landlock."""

    @property
    def name(self) -> str:
        """The layers in words, such as ``Landlock (ABI 7) + seccomp + limits``."""
        layers = {
            f"Landlock (ABI {self.landlock})": self.landlock,
            "namespaces": self.namespaces,
            "seccomp": self.seccomp,
            "limits": True,
        }
        return " + ".join(name for name, there in layers.items() if there)


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """What this machine offers, and for what it lacks the reason and what would help."""

    landlock: int
    """ABI version, 0 where it is missing."""
    landlock_problem: str | None
    seccomp_problem: str | None
    namespaces_problem: str | None = None
    """Why namespaces cannot stand in for Landlock; None where they can, and where Landlock makes them needless."""

    @property
    def strict(self) -> bool:
        """Whether other people's code can be confined: ``isolation="strict"`` works."""
        return not self.problems

    @property
    def problems(self) -> tuple[str, ...]:
        """What is missing for ``isolation="strict"``, and what would help."""
        return tuple(problem for problem in (self.landlock_problem, self.seccomp_problem) if problem)

    @property
    def strongest(self) -> Layers:
        """The strongest layers that this machine has."""
        instead = not self.landlock and self.namespaces_problem is None
        return Layers(self.landlock, self.seccomp_problem is None, namespaces=instead)


@lru_cache(maxsize=1)
def probe() -> IsolationReport:
    """Find out what this machine can isolate (asked once per process)."""
    if sys.platform != "linux":
        problem = f"it needs Linux, this is {platform.system()}"
        return IsolationReport(0, problem, problem, problem)
    abi, landlock_problem = _landlock()
    return IsolationReport(abi, landlock_problem, seccomp.available(), None if abi else namespaces_problem())


@lru_cache(maxsize=1)
def namespaces_problem() -> str | None:
    """Return None if namespaces work here, else why not; tried in a process of its own, since trying changes it."""
    try:
        tried = subprocess.run(
            [sys.executable, "-I", namespaces.__file__], capture_output=True, text=True, check=True, timeout=60.0
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"namespaces could not be tried: {error}"
    return tried.stdout.strip() or None


def _landlock() -> tuple[int, str | None]:
    import landlockpy

    helps = 'Linux 5.13 or newer with "landlock" among its security modules (kernel parameter lsm=)'
    try:
        abi = landlockpy.abi_version()
    except OSError as error:
        return 0, f"Landlock is refused ({error.strerror}), most likely by the container's own filter; it needs {helps}"
    if abi == 0:
        return 0, f"Landlock is missing in kernel {platform.release()}; it needs {helps}"
    return abi, None


def choose_layers(isolation: str) -> Layers:
    """Return the layers for a level of isolation.

    Raises:
        ConfigurationError: If the level is unknown.
        IsolationError: If it is ``"strict"`` and this machine cannot confine other people's code.
    """
    global _warned
    levels = get_args(Isolation)
    if isolation not in levels:
        raise ConfigurationError(
            f"unknown isolation {isolation!r}; use one of {', '.join(levels)}.{did_you_mean(str(isolation), levels)}"
        )
    if isolation == "none":
        return Layers(0, False)
    report = probe()
    if report.strict:
        return report.strongest
    missing = "; ".join(report.problems)
    if isolation == "strict":
        raise IsolationError(f"this machine cannot isolate other people's code: {missing}. {_ALLOW.capitalize()}.")
    if not _warned:
        _warned = True
        warnings.warn(
            f"solutions run with weaker isolation ({report.strongest.name}): {missing}. "
            "Code that you do not trust needs isolation='strict'.",
            RuntimeWarning,
            stacklevel=3,
        )
    return report.strongest
