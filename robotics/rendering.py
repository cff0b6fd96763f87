"""Headless rendering of MuJoCo scenes: a backend that works here, and the settings that make pixels cheap.

- ``choose_backend`` - EGL or OSMesa, whichever this machine has.
- ``import_mujoco`` - the module, which loads a backend's libraries itself.
- ``SceneRenderer`` - frames of one model, right also beside others in one process.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import MissingExtraError, RenderingError, did_you_mean

if TYPE_CHECKING:
    import mujoco

__all__ = ["SceneRenderer", "choose_backend", "import_mujoco"]

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
        raise _unusable(named, error) from error
    return mujoco


class SceneRenderer:
    """Frames of one MuJoCo model, fast: without shadows, reflections and multisampling, which cost most of the time.

    On a software rasteriser a frame of a Meta-World scene takes a tenth of the time that the default settings take.
    Every call makes the renderer's own context current, since with several in a process frames would otherwise come
    from another scene, or be black after one has been closed; and lets go of it, so that any thread may call.
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
            RenderingError: If no backend works, or none can draw frames so large.
        """
        backend = choose_backend()
        self._mujoco = mujoco = import_mujoco()
        self._model = model
        if fast:
            model.vis.quality.shadowsize = 0
            model.vis.quality.offsamples = 0
        model.vis.global_.offheight, model.vis.global_.offwidth = height, width
        self._scene = mujoco.MjvScene(model, maxgeom=2000)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION) if fast else ():
            self._scene.flags[flag] = 0
        self._option, self._perturb = mujoco.MjvOption(), mujoco.MjvPerturb()
        for group in hidden_groups:
            self._option.geomgroup[group] = 0
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        self._context, self._target = _make(backend, model, height, width)
        self._dropped = weakref.finalize(self, _left.append, (self._context, self._target))
        self._dropped.atexit = False  # _free_all comes at the right time
        _open.add(self)

    def render(self, data: mujoco.MjData, camera: mujoco.MjvCamera) -> NDArray[np.uint8]:
        """Return what a camera sees, uint8 [height, width, 3], contiguous, the camera's up at the top.

        Raises:
            RenderingError: If the renderer has been closed.
        """
        if not self._dropped.alive:
            raise RenderingError("this renderer has been closed; make another one")
        mujoco = self._mujoco
        _free_left()
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self._model, data, self._option, self._perturb, camera, everything, self._scene)
        pixels = np.empty((self._viewport.height, self._viewport.width, 3), np.uint8)
        with self._context.current():
            mujoco.mjr_render(self._viewport, self._scene, self._target)
            mujoco.mjr_readPixels(pixels, None, self._viewport, self._target)
        return np.ascontiguousarray(pixels[::-1])  # OpenGL's first row is the lowest

    def close(self) -> None:
        """Free the context; harmless when repeated."""
        if self._dropped.detach():
            _free(self._context, self._target)


class _Context:
    """A backend's OpenGL context, current in a thread only while it is used there."""

    def __init__(self, backend: str, height: int, width: int) -> None:
        self._backend: Any = importlib.import_module(f"mujoco.{backend}")
        self._context = self._backend.GLContext(width, height)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        self._context.make_current()
        try:
            yield
        finally:
            if hasattr(self._backend, "EGL"):  # OSMesa lends a context to every thread that asks
                egl = self._backend.EGL
                display = self._backend.EGL_DISPLAY
                egl.eglMakeCurrent(display, egl.EGL_NO_SURFACE, egl.EGL_NO_SURFACE, egl.EGL_NO_CONTEXT)

    def free(self) -> None:
        self._context.free()


_open: weakref.WeakSet[SceneRenderer] = weakref.WeakSet()
_left: list[tuple[_Context, Any]] = []
"""What renderers held that were dropped without being closed. Freed later, since garbage is collected at any moment,
and freeing needs the context to be current."""


def _make(backend: str, model: mujoco.MjModel, height: int, width: int) -> tuple[_Context, Any]:
    mujoco = import_mujoco()
    _free_left()
    context = None
    try:
        context = _Context(backend, height, width)
        with context.current():
            _free_at_exit()
            target = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, target)
    except (MemoryError, mujoco.FatalError) as error:
        if context is not None:
            context.free()
        raise RenderingError(
            f"the rendering backend {backend!r} cannot draw frames of {width} x {height} pixels here ({error}); take "
            "a smaller image_size or render_size"
        ) from error
    except Exception as error:
        raise _unusable(backend, error) from error
    return context, target


def _free(context: _Context, target: Any) -> None:
    with context.current():
        target.free()
    context.free()


def _free_left() -> None:
    while _left:
        _free(*_left.pop())


@cache
def _free_at_exit() -> None:
    """Have all contexts freed before the backend ends itself, which would complain of each that is left."""
    atexit.register(_free_all)  # the backend registers its end with its first context, so this is called before


def _free_all() -> None:
    for renderer in list(_open):
        renderer.close()
    _free_left()


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


def _unusable(backend: str, error: Exception) -> Exception:
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in ("mujoco", "OpenGL"):
        return MissingExtraError(f"rendering needs MuJoCo ({error}): pip install 'wmrl-envs[robotics]'")
    return RenderingError(
        f"the rendering backend {backend!r} does not work here ({type(error).__name__}: {error}). {_INSTALL}, or name "
        "the other one in the environment variable MUJOCO_GL (egl or osmesa)"
    )
