"""Headless rendering of MuJoCo scenes: a backend that works here, and the settings that make pixels cheap.

- ``choose_backend`` - EGL or OSMesa, whichever this machine has.
- ``SceneRenderer`` - frames of one model, right also beside others in one process.
"""

from __future__ import annotations

import atexit
import importlib
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import MissingExtraError, RenderingError

if TYPE_CHECKING:
    import mujoco

__all__ = ["SceneRenderer", "choose_backend"]

BACKENDS = ("egl", "osmesa")
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
        RenderingError: If neither works; it names the packages to install.
    """
    # Mesa's software rasteriser hands small frames to threads that cost more than they bring: 3.1 ms against 1.8.
    os.environ.setdefault("LP_NUM_THREADS", "0")
    named = os.environ.get("MUJOCO_GL", "").strip().lower()
    if named in BACKENDS:
        return named
    found = _probe()
    os.environ["MUJOCO_GL"] = found
    return found


_living: weakref.WeakSet[SceneRenderer] = weakref.WeakSet()


def _close_all() -> None:
    """Free the contexts before the backend ends itself, which would complain of each that is left."""
    for renderer in list(_living):
        renderer.close()


class SceneRenderer:
    """Frames of one MuJoCo model, fast: without shadows, reflections and multisampling, which cost most of the time.

    On a software rasteriser a frame of a Meta-World scene takes a tenth of the time that the default settings take.
    Every call makes the renderer's own context current, since with several in a process frames would otherwise come
    from another scene, or be black after one has been closed.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        height: int,
        width: int,
        *,
        fast: bool = True,
        hidden_groups: Sequence[int] = (),
    ) -> None:
        """Make a context.

        Args:
            model: The model; its quality settings are changed.
            height: Pixels.
            width: Pixels.
            fast: Whether to leave out what costs most; else the model's own quality counts.
            hidden_groups: Groups of shapes that are not drawn.

        Raises:
            MissingExtraError: If MuJoCo is not installed.
            RenderingError: If no backend works.
        """
        backend = choose_backend()
        try:
            import mujoco

            context_type = importlib.import_module(f"mujoco.{backend}").GLContext
        except ImportError as error:
            raise _unusable(backend, error) from error
        self._mujoco: Any = mujoco
        self._model = model
        if fast:
            model.vis.quality.shadowsize = 0
            model.vis.quality.offsamples = 0
        model.vis.global_.offheight = max(height, model.vis.global_.offheight)
        model.vis.global_.offwidth = max(width, model.vis.global_.offwidth)
        try:
            self._context: Any = context_type(width, height)
            self._context.make_current()
        except Exception as error:
            raise _unusable(backend, error) from error
        self._scene = mujoco.MjvScene(model, maxgeom=2000)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION) if fast else ():
            self._scene.flags[flag] = 0
        self._option, self._perturb = mujoco.MjvOption(), mujoco.MjvPerturb()
        for group in hidden_groups:
            self._option.geomgroup[group] = 0
        self._target = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._target)
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        if not _living:
            atexit.register(_close_all)  # after the backend's own registration, so that it is called before
        _living.add(self)

    def render(self, data: mujoco.MjData, camera: mujoco.MjvCamera) -> NDArray[np.uint8]:
        """Return what a camera sees, uint8 [height, width, 3], contiguous, the camera's up at the top."""
        mujoco = self._mujoco
        self._context.make_current()
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self._model, data, self._option, self._perturb, camera, everything, self._scene)
        pixels = np.empty((self._viewport.height, self._viewport.width, 3), np.uint8)
        mujoco.mjr_render(self._viewport, self._scene, self._target)
        mujoco.mjr_readPixels(pixels, None, self._viewport, self._target)
        return np.ascontiguousarray(pixels[::-1])  # OpenGL's first row is the lowest

    def close(self) -> None:
        """Free the context; harmless when repeated."""
        if self._context is None:
            return
        self._context.make_current()
        self._target.free()
        self._context.free()
        self._context = None


@cache
def _probe() -> str:
    failures = []
    for backend in BACKENDS:
        environment = {name: value for name, value in os.environ.items() if name != "PYOPENGL_PLATFORM"}
        run = subprocess.run(
            [sys.executable, "-c", _PROBE, backend],
            env=environment | {"MUJOCO_GL": backend},
            capture_output=True,
            text=True,
            timeout=120,
        )
        # EGL's own clean-up may complain when the interpreter ends; what counts is that a context was made.
        if run.returncode == 0:
            return backend
        failures.append(f"{backend}: {(run.stderr.strip().splitlines() or ['no message'])[-1]}")
    raise RenderingError(f"nothing renders here ({'; '.join(failures)}). {_INSTALL}")


_INSTALL = "On Debian or Ubuntu: apt-get install -y libegl1 libosmesa6"


def _unusable(backend: str, error: Exception) -> Exception:
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in ("mujoco", "OpenGL"):
        return MissingExtraError(f"rendering needs MuJoCo ({error}): pip install 'wmrl-envs[robotics]'")
    return RenderingError(
        f"the rendering backend {backend!r} does not work here ({type(error).__name__}: {error}). {_INSTALL}, or name "
        "the other one in the environment variable MUJOCO_GL (egl or osmesa)"
    )
