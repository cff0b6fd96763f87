"""Which OpenGL MuJoCo draws with where there is no screen: EGL or OSMesa, whichever this machine has."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from typing import Any

from wmrl_envs.errors import MissingExtraError, RenderingError, did_you_mean

__all__ = ["choose_backend", "import_mujoco", "unusable"]

BACKENDS = ("egl", "osmesa")
_UNDECIDED = ("", "0", "1", "disable", "disabled", "enable", "enabled", "false", "glfw", "glx", "off", "on", "true")
"""What else MuJoCo understands in ``MUJOCO_GL``; none of it draws without a screen."""
_INSTALL = "On Debian or Ubuntu: apt-get install -y libegl1 libosmesa6"
_PROBE = """
import importlib, sys
context = importlib.import_module(f"mujoco.{sys.argv[1]}").GLContext(8, 8)
context.make_current()
"""


def choose_backend() -> str:
    """Return the OpenGL backend to render with: ``"egl"`` or ``"osmesa"``.

    ``MUJOCO_GL`` decides where it names one of them. Elsewhere they are tried in a process of their own, EGL first (it
    finds a GPU): a context that fails leaves PyOpenGL bound to its platform. The choice is kept in ``MUJOCO_GL``, so
    that processes started later make it too.

    Raises:
        RenderingError: If neither works; it names the packages to install. Also if ``MUJOCO_GL`` is no backend.
    """
    # Mesa's software rasteriser hands small frames to threads that cost more than they bring: 3.1 ms against 1.8.
    os.environ.setdefault("LP_NUM_THREADS", "0")
    named = _named()
    if named in BACKENDS:
        return named
    found = _probe()
    os.environ["MUJOCO_GL"] = found
    return found


def import_mujoco() -> Any:
    """Return the module ``mujoco``.

    Raises:
        MissingExtraError: If it is not installed.
        RenderingError: If ``MUJOCO_GL`` names a backend whose libraries are missing: MuJoCo loads them with itself.
    """
    named = _named()
    try:
        import mujoco
    except Exception as error:  # PyOpenGL raises an AttributeError where a library is missing
        raise unusable(named, error) from error
    return mujoco


def unusable(backend: str, error: Exception) -> Exception:
    """Return the error to raise where a backend fails: which package or extra is missing."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in ("mujoco", "OpenGL"):
        return MissingExtraError(f"rendering needs MuJoCo ({error}): pip install 'wmrl-envs[robotics]'")
    return RenderingError(
        f"the rendering backend {backend!r} does not work here ({type(error).__name__}: {error}). {_INSTALL}, or name "
        "the other one in the environment variable MUJOCO_GL (egl or osmesa)"
    )


def _named() -> str:
    """Return the backend that ``MUJOCO_GL`` asks for; an empty string where it leaves the choice."""
    value = os.environ.get("MUJOCO_GL", "")
    named = value.strip().lower()
    if named in BACKENDS:
        return named
    if named not in _UNDECIDED:
        raise RenderingError(
            f"the environment variable MUJOCO_GL names no rendering backend: {value!r}.{did_you_mean(named, BACKENDS)} "
            f"Set it to egl or osmesa, or leave it unset to have one chosen. {_INSTALL}"
        )
    return ""


@cache
def _probe() -> str:
    failures = []
    for backend in BACKENDS:
        try:
            run = subprocess.run(
                [sys.executable, "-c", _PROBE, backend],
                env=os.environ | {"MUJOCO_GL": backend},
                capture_output=True,
                text=True,
                timeout=120,
            )
        except subprocess.TimeoutExpired as error:
            failures.append(f"{backend}: no answer within {error.timeout:.0f} s")
            continue
        # EGL's own clean-up may complain when the interpreter ends; what counts is that a context was made.
        if run.returncode == 0:
            return backend
        failures.append(f"{backend}: {(run.stderr.strip().splitlines() or ['no message'])[-1]}")
    raise RenderingError(f"nothing renders here ({'; '.join(failures)}). {_INSTALL}")
