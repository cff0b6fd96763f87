"""One Meta-World task as a simulator: seeded, exactly repeatable, and able to go back to any state.

Meta-World's own environments ignore ``reset(seed=...)``, fail one step after their last, and draw upside-down pictures;
here their physics, their success and their experts are used, and nothing else of theirs.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, MissingExtraError, UnknownTaskError, did_you_mean
from wmrl_envs.robotics.instructions import META_WORLD_INSTRUCTIONS, MT10
from wmrl_envs.robotics.rendering import SceneRenderer, import_mujoco

__all__ = ["CAMERAS", "Simulator", "Snapshot", "resolve_tasks"]

FloatArray = NDArray[np.float64]

CAMERAS = ("workspace", "corner", "corner2", "corner3", "corner4", "topview", "behindGripper", "gripperPOV")
"""Meta-World's cameras, the corner ones turned upright, and ``workspace``, a closer view of the table."""
_UPSIDE_DOWN = ("corner", "corner2", "corner3", "corner4")
_MODEL_FIELDS = ("body_pos", "body_quat", "site_pos", "geom_pos", "geom_rgba", "site_rgba")
"""What Meta-World's resets change in the model itself."""
_UPPER_ARM = (
    *(
        "controller_box",
        "pedestal_feet",
        "torso",
        "pedestal",
        "right_arm_base_link",
        "head",
        "screen",
        "right_torso_itb",
    ),
    *("right_l0", "right_l1", "right_l2", "right_l3", "right_l4", "right_l1_2", "right_l2_2", "right_l4_2"),
)
_HIDDEN_GROUP = 5
"""Geoms of this group are not drawn by default."""
HAND_AND_GRIPPER = 4


def resolve_tasks(tasks: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return Meta-World task names without a version, such as ``("drawer-open",)``.

    Args:
        tasks: One name, several, or ``"MT10"``; ``drawer-open-v3`` is accepted as well.

    Raises:
        UnknownTaskError: If a task is none of Meta-World's fifty.
        ConfigurationError: If none or one twice is named.
    """
    named = [tasks] if isinstance(tasks, str) else list(tasks)
    names = [task for name in named for task in (MT10 if name == "MT10" else (name,))]
    found = tuple(name.removesuffix("-v3") if isinstance(name, str) else name for name in names)
    for name in found:
        if name not in META_WORLD_INSTRUCTIONS:
            raise UnknownTaskError(
                f"{name!r} is no Meta-World task.{did_you_mean(str(name), META_WORLD_INSTRUCTIONS)} Known: MT10, "
                f"{', '.join(META_WORLD_INSTRUCTIONS)}"
            )
    if not found or len(set(found)) < len(found):
        raise ConfigurationError(f"tasks must name at least one task and none twice, got {tasks!r}")
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Snapshot:
    """Everything that the future of a simulation depends on."""

    physics: FloatArray
    """MuJoCo's integration state."""
    model: tuple[NDArray[Any], ...]
    """The fields of the model that resets change."""
    attributes: dict[str, Any]
    """Meta-World's own variables."""


class Simulator:
    """One Meta-World task.

    Attributes:
        task: Its name.
        instruction: What the robot is told.
        success: Whether the task was solved at any simulator step since the last ``begin``.
    """

    def __init__(self, task: str, *, draw_arm: bool = True) -> None:
        """Load the task's scene; nothing is rendered yet.

        Args:
            task: One of Meta-World's, without version.
            draw_arm: Whether frames show the arm above the wrist.

        Raises:
            MissingExtraError: If metaworld is not installed.
            RenderingError: If ``MUJOCO_GL`` names a backend that cannot be loaded.
        """
        mujoco = import_mujoco()
        try:
            from metaworld.env_dict import ALL_V3_ENVIRONMENTS
        except ImportError as error:
            raise MissingExtraError(
                f"Meta-World's tasks need metaworld ({error}): pip install 'wmrl-envs[robotics]'"
            ) from error
        self.task, self.instruction = task, META_WORLD_INSTRUCTIONS[task]
        self._mujoco = mujoco
        env: Any = ALL_V3_ENVIRONMENTS[f"{task}-v3"]()
        env._freeze_rand_vec, env.seeded_rand_vec, env._set_task_called = False, True, True
        env._partially_observable = False  # the experts need to see the goal
        env.__dict__.pop("sawyer_observation_space", None)
        self._env = env
        if not draw_arm:
            self._hide(_UPPER_ARM)
        self._renderers: dict[int, SceneRenderer] = {}
        self._cameras: dict[str, Any] = {}
        self.success = False
        self._pristine = self.snapshot()

    def begin(self, initial_state: int) -> None:
        """Begin from an initial state: where objects and goal lie is drawn from its number alone."""
        self.restore(self._pristine)
        env, mujoco = self._env, self._mujoco
        env.np_random = np.random.default_rng(initial_state)
        # Twice, as Meta-World does: only then does the hand come to its place among objects that are at theirs.
        for already_drawn in (False, True):
            env._freeze_rand_vec = already_drawn
            mujoco.mj_resetData(env.model, env.data)
            env.reset_model()
        self._derive()  # Meta-World moves bodies last, and would show them where they were before
        env._prev_obs = env._get_curr_obs_combined_no_goal()
        self.success = False

    def step(self, action: NDArray[Any]) -> None:
        """Move for one simulator step (1/80 s).

        Args:
            action: [4] in [-1, 1]: movement of the hand along x, y and z, and the gripper (1 closes it).
        """
        env = self._env
        env.set_xyz_action(action[:3])
        env.do_simulation([action[3], -action[3]], env.frame_skip)
        self._mujoco.mj_forward(env.model, env.data)
        # Some of Meta-World's rewards remember; evaluated at every step, as Meta-World does.
        _, info = env.evaluate_state(env._get_obs(), action)
        self.success = self.success or bool(info["success"])

    def expert_action(self) -> NDArray[np.float32]:
        """Return what Meta-World's scripted expert would do now, float32 [4] in [-1, 1]."""
        env = self._env
        previous = env._prev_obs
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it asks for more than 1, which is clipped
            action = _expert(self.task).get_action(env._get_obs())
        env._prev_obs = previous
        return np.asarray(np.clip(action, -1.0, 1.0), np.float32)

    def proprioception(self) -> NDArray[np.float32]:
        """Return float32 [4]: the hand's position in metres and how far the gripper is open, in [0, 1]."""
        return np.asarray(self._env._get_curr_obs_combined_no_goal()[:HAND_AND_GRIPPER], np.float32)

    def render(self, camera: str, size: int) -> NDArray[np.uint8]:
        """Return an upright frame, uint8 [size, size, 3]."""
        if size not in self._renderers:
            self._renderers[size] = SceneRenderer(self._env.model, size, size)
        frame = self._renderers[size].render(self._env.data, self._camera(camera))
        return np.ascontiguousarray(frame[::-1, ::-1]) if camera in _UPSIDE_DOWN else frame

    def snapshot(self) -> Snapshot:
        """Return a copy of the present state."""
        env = self._env
        attributes = {
            name: copy.copy(value)
            for name, value in vars(env).items()
            if isinstance(value, np.ndarray | float | int | tuple | np.generic) or value is None
        }
        attributes["__success__"] = self.success
        return Snapshot(self._physics(), tuple(getattr(env.model, field).copy() for field in _MODEL_FIELDS), attributes)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a state of this simulator."""
        env = self._env
        for field, value in zip(_MODEL_FIELDS, snapshot.model, strict=True):
            getattr(env.model, field)[:] = value
        attributes = {name: copy.copy(value) for name, value in snapshot.attributes.items()}
        self.success = attributes.pop("__success__")
        vars(env).update(attributes)
        self._set_physics(snapshot.physics)
        self._derive()

    def close(self) -> None:
        """Free the renderers."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers = {}

    def _physics(self) -> FloatArray:
        env, mujoco = self._env, self._mujoco
        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        physics = np.empty(mujoco.mj_stateSize(env.model, kind))
        mujoco.mj_getState(env.model, env.data, physics, kind)
        return physics

    def _set_physics(self, physics: FloatArray) -> None:
        mujoco = self._mujoco
        mujoco.mj_setState(self._env.model, self._env.data, physics, mujoco.mjtState.mjSTATE_INTEGRATION)

    def _derive(self) -> None:
        """Compute all that follows from the physics' state, such as where bodies are."""
        physics = self._physics()
        self._mujoco.mj_forward(self._env.model, self._env.data)
        self._set_physics(physics)  # mj_forward leaves its own warm start, which alters the next step's last digits

    def _hide(self, bodies: tuple[str, ...]) -> None:
        mujoco, model = self._mujoco, self._env.model
        names = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, body) for body in model.geom_bodyid]
        model.geom_group[np.isin(names, bodies)] = _HIDDEN_GROUP

    def _camera(self, name: str) -> Any:
        if name not in self._cameras:
            mujoco = self._mujoco
            camera = mujoco.MjvCamera()
            if name == "workspace":
                camera.type = mujoco.mjtCamera.mjCAMERA_FREE
                camera.lookat[:] = (0.0, 0.68, 0.12)
                camera.distance, camera.azimuth, camera.elevation = 1.15, 215.0, -32.0
            else:
                camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
                camera.fixedcamid = mujoco.mj_name2id(self._env.model, mujoco.mjtObj.mjOBJ_CAMERA, name)
            self._cameras[name] = camera
        return self._cameras[name]


@cache
def _expert(task: str) -> Any:
    from metaworld import policies

    experts: dict[str, Any] = policies.ENV_POLICY_MAP
    return experts[f"{task}-v3"]()
