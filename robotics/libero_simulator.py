"""One LIBERO task as a simulator: exactly repeatable, quick to reset, and able to go back to any state.

LIBERO's own environment builds its scene anew at every reset, which takes seconds, and renders at every step; here the
scene is built once and frames are rendered when they are asked for. Physics and success are LIBERO's.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, TaskError
from wmrl_envs.robotics.libero_tasks import LiberoTask, import_libero

__all__ = ["CAMERAS", "CONTROL_RATE", "LiberoSimulator", "LiberoSnapshot"]

T = TypeVar("T")

CAMERAS = ("agentview", "robot0_eye_in_hand", "frontview", "birdview", "sideview")
"""``agentview`` looks at the table from opposite the robot, ``robot0_eye_in_hand`` sits at the wrist."""
CONTROL_RATE = 20
"""Simulator steps per second."""
REST = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
"""The action that moves nothing and keeps the gripper open."""
PLACEMENT_SEED = 0
"""Initial states leave out where furniture stands; LIBERO draws that at every reset, and evaluations seed it so."""
COLLISION_GEOMETRY = 0
"""The group of shapes that LIBERO does not draw."""


@dataclass(frozen=True, eq=False, slots=True)
class LiberoSnapshot:
    """Everything that the future of a simulation depends on."""

    physics: NDArray[np.float64]
    """MuJoCo's integration state."""
    gripper: NDArray[np.float64]
    """[2] where the fingers are commanded to; robosuite adds to it at every step."""
    success: bool


class LiberoSimulator:
    """One LIBERO task.

    Attributes:
        task: Its name.
        instruction: What the robot is told.
        success: Whether the task was solved at any simulator step since the last ``begin``.
    """

    def __init__(self, task: LiberoTask, *, settle_steps: int = 10, fast_rendering: bool = False) -> None:
        """Build the task's scene (a few seconds); nothing is rendered yet.

        Args:
            task: From ``resolve_tasks``.
            settle_steps: Simulator steps after setting an initial state during which the robot rests: its objects are
                stored a little above what they lie on, and fall.
            fast_rendering: Whether frames go without shadows, reflections and smoothing.

        Raises:
            MissingExtraError: If LIBERO is not installed.
            TaskError: If the task's initial states belong to another scene.
        """
        import_libero()
        import mujoco
        from libero.libero.envs.env_wrapper import ControlEnv

        self.task, self.instruction, self.success = task.name, task.instruction, False
        self._mujoco: Any = mujoco
        self._states, self._settle_steps, self._fast = task.states, settle_steps, fast_rendering
        with _placement():
            self._control: Any = _placed(
                lambda: ControlEnv(
                    bddl_file_name=str(task.bddl),
                    use_camera_obs=False,
                    has_offscreen_renderer=False,
                    hard_reset=False,
                    ignore_done=True,
                )
            )
        self._env: Any = self._control.env
        sim = self._env.sim
        self._model, self._data = sim.model._model, sim.data._data
        width = 1 + self._model.nq + self._model.nv
        if task.states.shape[1] != width:
            raise TaskError(
                f"the initial states of {task.name!r} in {task.suite} hold {task.states.shape[1]} numbers each, but "
                f"its scene has {width}: they were made for another one"
            )
        self._renderers: dict[int, Any] = {}

    def begin(self, initial_state: int) -> None:
        """Begin from one of LIBERO's initial states; the robot rests for the settling steps.

        Raises:
            ConfigurationError: If there is no initial state of this number.
        """
        if not 0 <= initial_state < len(self._states):
            raise ConfigurationError(
                f"{self.task} has {len(self._states)} initial states, 0 to {len(self._states) - 1}; got {initial_state}"
            )
        with _placement():
            _placed(self._env.reset)
        gripper = self._env.robots[0].gripper
        gripper.current_action = np.zeros_like(gripper.current_action)  # a reset leaves the last episode's
        self._control.set_init_state(self._states[initial_state])
        for _ in range(self._settle_steps):
            self._env.step(REST)
        self.success = False

    def step(self, action: NDArray[Any]) -> None:
        """Move for one simulator step (1/20 s).

        Args:
            action: [7] in [-1, 1]: movement of the hand along x, y and z (1 is 5 cm), rotation about them (1 is 0.5
                rad), and the gripper (positive closes it, negative opens it).
        """
        _, _, solved, _ = self._env.step(np.asarray(action, np.float64))
        self.success = self.success or bool(solved)

    def proprioception(self) -> NDArray[np.float32]:
        """Return float32 [8]: the hand's position in metres, its rotation as axis times angle, the two fingers."""
        from robosuite.utils.transform_utils import convert_quat, quat2axisangle

        self._refresh()
        robot, sim = self._env.robots[0], self._env.sim
        position = sim.data.site_xpos[robot.eef_site_id]
        quaternion = convert_quat(sim.data.get_body_xquat(robot.robot_model.eef_name), to="xyzw")
        fingers = sim.data.qpos[robot._ref_gripper_joint_pos_indexes]
        return np.concatenate([position, quat2axisangle(quaternion), fingers]).astype(np.float32)

    def render(self, camera: str, size: int) -> NDArray[np.uint8]:
        """Return an upright frame, uint8 [size, size, 3]; LIBERO's own lie on their heads."""
        if size not in self._renderers:
            from wmrl_envs.robotics.rendering import SceneRenderer

            self._renderers[size] = SceneRenderer(
                self._model, size, size, fast=self._fast, hidden_groups=(COLLISION_GEOMETRY,)
            )
        self._refresh()
        view = self._mujoco.MjvCamera()
        view.type = self._mujoco.mjtCamera.mjCAMERA_FIXED
        view.fixedcamid = self._env.sim.model.camera_name2id(camera)
        frame: NDArray[np.uint8] = self._renderers[size].render(self._data, view)
        return frame

    def snapshot(self) -> LiberoSnapshot:
        """Return a copy of the present state."""
        kind = self._mujoco.mjtState.mjSTATE_INTEGRATION
        physics = np.empty(self._mujoco.mj_stateSize(self._model, kind))
        self._mujoco.mj_getState(self._model, self._data, physics, kind)
        return LiberoSnapshot(physics, self._env.robots[0].gripper.current_action.copy(), self.success)

    def restore(self, snapshot: LiberoSnapshot) -> None:
        """Go back to a state of this simulator."""
        kind = self._mujoco.mjtState.mjSTATE_INTEGRATION
        self._mujoco.mj_setState(self._model, self._data, snapshot.physics, kind)
        self._mujoco.mj_forward(self._model, self._data)
        self._env._post_process()  # what depends on the state alone, such as whether the stove glows
        # mj_forward leaves its own warm start behind, which would alter the next step in its last digits.
        self._mujoco.mj_setState(self._model, self._data, snapshot.physics, kind)
        self._env.robots[0].gripper.current_action = snapshot.gripper.copy()
        self._env.robots[0].controller.update(force=True)
        self.success = snapshot.success

    def close(self) -> None:
        """Free the renderers and the scene; harmless when repeated."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()
        if self._control is not None:
            self._env.close()
            self._control = self._env = self._model = self._data = None

    def _refresh(self) -> None:
        """Bring positions up to the state: MuJoCo's steps leave those from before the step behind."""
        self._mujoco.mj_kinematics(self._model, self._data)
        self._mujoco.mj_comPos(self._model, self._data)
        self._mujoco.mj_camlight(self._model, self._data)


@contextmanager
def _placement() -> Iterator[None]:
    """Let LIBERO draw from numpy's global generator as if freshly seeded, unheard, and leave that as it was."""
    before = np.random.get_state()
    np.random.seed(PLACEMENT_SEED)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        np.random.set_state(before)


def _placed(function: Callable[[], T]) -> T:
    """Call what places objects at random until they fit, as LIBERO does."""
    from robosuite.utils.errors import RandomizationError

    for _ in range(99):
        with contextlib.suppress(RandomizationError):
            return function()
    return function()
