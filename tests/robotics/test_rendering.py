"""Frames are what the camera sees, upright, whatever else renders in the process; and what is missing is named."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from wmrl_envs.errors import RenderingError
from wmrl_envs.robotics.rendering import SceneRenderer, choose_backend, import_mujoco

BACKENDS = ("egl", "osmesa")
# A camera that looks down at four boxes in the corners of what it sees.
FOUR_BOXES = """
<mujoco>
  <visual><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>
  <worldbody>
    <camera name="down" pos="0 0 2" fovy="53.13"/>
    <geom name="top_left" type="box" size=".5 .5 .1" pos="-.5 .5 0" rgba="1 0 0 1"/>
    <geom name="top_right" type="box" size=".5 .5 .1" pos=".5 .5 0" rgba="0 0 1 1"/>
    <geom name="bottom_left" type="box" size=".5 .5 .1" pos="-.5 -.5 0" rgba="0 1 0 1"/>
    <geom name="bottom_right" type="box" size=".5 .5 .1" pos=".5 -.5 0" rgba="1 1 1 1"/>
  </worldbody>
</mujoco>
"""
ONE_BOX = """
<mujoco>
  <worldbody>
    <light pos="0 0 3"/>
    <camera name="down" pos="0 0 2"/>
    <geom type="box" size=".3 .2 .1" rgba=".9 .6 .1 1"/>
  </worldbody>
</mujoco>
"""


class Eye:
    """A model with its camera and a renderer."""

    def __init__(self, xml: str, height: int = 32, width: int = 32) -> None:
        mujoco = import_mujoco()
        self.model = mujoco.MjModel.from_xml_string(xml)
        self.data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, self.data)
        self.camera = mujoco.MjvCamera()
        self.camera.type, self.camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, 0
        self.renderer = SceneRenderer(self.model, height, width)

    def see(self) -> np.ndarray:
        return self.renderer.render(self.data, self.camera)


def run(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own; what this one has chosen for itself is not handed down."""
    own = ("MUJOCO_GL", "PYOPENGL_PLATFORM")
    environment = {name: value for name, value in os.environ.items() if name not in own} | variables
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=240
    )


def test_frames_are_upright_and_not_mirrored():
    frame = Eye(FOUR_BOXES, 4, 4).see()
    assert (frame.shape, frame.dtype) == ((4, 4, 3), np.uint8)
    corners = {"top_left": frame[0, 0], "top_right": frame[0, 3], "bottom_left": frame[3, 0], "white": frame[3, 3]}
    assert [np.argmax(corners["top_left"]), corners["top_left"].min()] == [0, 0]
    assert [np.argmax(corners["top_right"]), corners["top_right"].min()] == [2, 0]
    assert [np.argmax(corners["bottom_left"]), corners["bottom_left"].min()] == [1, 0]
    assert corners["white"].min() > 200


def test_a_frame_has_the_height_and_width_asked_for():
    assert Eye(FOUR_BOXES, 24, 40).see().shape == (24, 40, 3)
    assert Eye(FOUR_BOXES, 500, 700).see().shape == (500, 700, 3)


def test_frames_are_contiguous_and_nobody_elses():
    eye = Eye(ONE_BOX)
    first = eye.see()
    kept = first.copy()
    eye.model.geom_rgba[0] = (0, 0, 1, 1)
    second = eye.see()
    assert first.flags.c_contiguous and first.flags.writeable and first.flags.owndata
    assert np.array_equal(first, kept) and not np.array_equal(second, kept)
    second[:] = 7
    assert not np.array_equal(eye.see(), second)


def check_company() -> None:
    """Fail where frames depend on what else renders in this process."""
    boxes, box = Eye(FOUR_BOXES).see(), Eye(ONE_BOX, 48, 48).see()
    gc.collect()
    assert boxes.std() > 10 and box.std() > 10
    one, other = Eye(FOUR_BOXES), Eye(ONE_BOX, 48, 48)
    for _ in range(2):
        assert np.array_equal(one.see(), boxes) and np.array_equal(other.see(), box)
    closed, dropped = Eye(ONE_BOX), Eye(FOUR_BOXES, 64, 64)
    closed.see()
    dropped.see()
    closed.renderer.close()
    assert np.array_equal(one.see(), boxes)
    one.see()
    del dropped
    gc.collect()
    assert np.array_equal(other.see(), box) and np.array_equal(one.see(), boxes)
    frames: list[np.ndarray] = []
    thread = threading.Thread(target=lambda: frames.extend([one.see(), Eye(ONE_BOX, 48, 48).see()]))
    thread.start()
    thread.join()
    assert np.array_equal(frames[0], boxes) and np.array_equal(frames[1], box)
    assert np.array_equal(one.see(), boxes)
    with pytest.raises(RenderingError, match="cannot draw frames of 100000 x 100000 pixels.*smaller image_size"):
        SceneRenderer(one.model, 100_000, 100_000)
    assert np.array_equal(one.see(), boxes) and np.array_equal(other.see(), box)


@pytest.mark.parametrize("backend", BACKENDS)
def test_frames_do_not_depend_on_what_else_renders_and_the_end_is_quiet(backend):
    done = run("import test_rendering; test_rendering.check_company()", MUJOCO_GL=backend)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


def test_frames_do_not_depend_on_what_else_renders_here():
    check_company()


def test_gymnasiums_own_renderers_go_on_beside_ours():
    code = """
import gc, numpy as np, test_rendering
from gymnasium.envs.mujoco.mujoco_rendering import OffScreenViewer
theirs = test_rendering.Eye(test_rendering.FOUR_BOXES)
theirs.renderer.close()
viewer = OffScreenViewer(theirs.model, theirs.data, 32, 32)
def see():
    return viewer.render("rgb_array", camera_id=0)
expected = see()
assert expected.std() > 10
ours = [test_rendering.Eye(test_rendering.ONE_BOX) for _ in range(2)]
assert np.array_equal(see(), expected)
for eye in ours:
    eye.see()
assert np.array_equal(see(), expected)
ours[0].renderer.close()
assert np.array_equal(see(), expected)
del ours[1], eye
gc.collect()
ours[0] = test_rendering.Eye(test_rendering.ONE_BOX)
assert ours[0].see().std() > 10
assert np.array_equal(see(), expected)
viewer.close()
"""
    done = run(code, MUJOCO_GL="egl")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_renderer_says_so():
    eye = Eye(ONE_BOX)
    eye.see()
    eye.renderer.close()
    eye.renderer.close()
    with pytest.raises(RenderingError, match="has been closed"):
        eye.see()


@pytest.mark.parametrize("backend", BACKENDS)
def test_open_renderers_end_quietly_with_the_interpreter(backend):
    code = """
import test_rendering, gc
eyes = [test_rendering.Eye(test_rendering.ONE_BOX) for _ in range(3)]
frames = [eye.see() for eye in eyes]
eyes[0].renderer.close()
cycle = [eyes.pop()]
cycle.append(cycle)
print(len(frames))
"""
    done = run(code, MUJOCO_GL=backend)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "3\n")


def test_the_choice_is_made_once_and_kept_for_processes_started_later():
    assert choose_backend() in BACKENDS and os.environ["MUJOCO_GL"] == choose_backend()
    code = """
import os
from wmrl_envs.robotics.rendering import choose_backend
print(choose_backend(), os.environ["MUJOCO_GL"], choose_backend())
"""
    for asked, chosen in (("", ("egl",)), ("glfw", ("egl",)), (" OSMesa", ("osmesa",))):
        words = run(code, MUJOCO_GL=asked).stdout.split()
        assert len(words) == 3 and words[0] == words[2] and words[0] in chosen
    assert run(code, PYOPENGL_PLATFORM="osmesa").stdout.split()[0] == "osmesa"  # PyOpenGL would refuse another one


RESET = """
import gymnasium as gym, wmrl_envs
try:
    gym.make("wmrl/MetaWorld-v0").reset(seed=0)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def without_gl(tmp_path):
    """Return variables under which the dynamic loader finds no usable EGL and no OSMesa."""
    for name in ("libEGL.so", "libEGL.so.0", "libEGL.so.1", "libOSMesa.so", "libOSMesa.so.6", "libOSMesa.so.8"):
        (tmp_path / name).touch()
    return {"LD_LIBRARY_PATH": str(tmp_path)}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("egl", "the rendering backend 'egl' does not work here"),
        ("osmesa", "the rendering backend 'osmesa' does not work here"),
        ("", "nothing renders here (egl: "),
    ],
)
def test_missing_libraries_are_named_with_their_packages(asked, message, without_gl):
    done = run(RESET, MUJOCO_GL=asked, **without_gl)
    assert done.stdout.startswith(f"RenderingError {message}"), done
    assert "apt-get install -y libegl1 libosmesa6" in done.stdout


def test_a_backend_that_is_none_is_refused_with_a_suggestion(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "osmessa")
    with pytest.raises(RenderingError, match="'osmessa'. Did you mean 'osmesa'.*egl or osmesa.*libosmesa6"):
        choose_backend()
    done = run(RESET, MUJOCO_GL="elg")
    assert done.stdout.startswith("RenderingError the environment variable MUJOCO_GL names no rendering backend: 'elg'")


@pytest.mark.parametrize("module", ["mujoco", "metaworld", "OpenGL"])
def test_missing_packages_are_named_with_their_extra(module):
    done = run(f"import sys; sys.modules[{module!r}] = None\n{RESET}", MUJOCO_GL="egl")
    assert done.stdout.startswith("MissingExtraError"), done
    assert "pip install 'wmrl-envs[robotics]'" in done.stdout and module in done.stdout
