"""Headless rendering of MuJoCo scenes: frames of one model, cheap, and right also beside others in one process.

``choose_backend`` and ``import_mujoco`` come from ``rendering_backend``.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import weakref
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import RenderingError
from wmrl_envs.robotics.rendering_backend import choose_backend, import_mujoco, unusable

if TYPE_CHECKING:
    import mujoco

__all__ = ["SceneRenderer", "choose_backend", "import_mujoco"]


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
        with self._others_kept():
            self._context = self._backend.GLContext(width, height)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        with self._others_kept():
            self._context.make_current()
            yield

    def free(self) -> None:
        with self._others_kept():
            self._context.free()

    @contextlib.contextmanager
    def _others_kept(self) -> Iterator[None]:
        """Leave current what was: Gymnasium's own environments make their context so only once, when they make it."""
        egl = getattr(self._backend, "EGL", None)
        if egl is None:  # OSMesa lends a context to every thread that asks, and does not tell how to give one back
            yield
            return
        before = [egl.eglGetCurrentSurface(egl.EGL_DRAW), egl.eglGetCurrentSurface(egl.EGL_READ)]
        before.append(egl.eglGetCurrentContext())
        display = egl.eglGetCurrentDisplay() if before[-1] else self._backend.EGL_DISPLAY
        try:
            yield
        finally:
            display = display or self._backend.EGL_DISPLAY  # made with the first context
            if display:
                egl.eglMakeCurrent(display, *before)


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
        raise unusable(backend, error) from error
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
