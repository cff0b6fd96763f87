"""Robot manipulation from pixels with a sparse success.

- ``MetaWorldEnv`` - Meta-World's tasks, one episode at a time (``wmrl/MetaWorld-v0``).
- ``MetaWorldVectorEnv`` - the same in a batch, with groups of rollouts from one initial state.
"""

from __future__ import annotations

from collections.abc import Sequence

from gymnasium.vector import AutoresetMode

from wmrl_envs.robotics.robot_env import RobotEnv
from wmrl_envs.robotics.robot_vector_env import RobotVectorEnv, check_groups
from wmrl_envs.robotics.scene import Scene

__all__ = ["MetaWorldEnv", "MetaWorldVectorEnv"]


class MetaWorldEnv(RobotEnv[Scene]):
    """Meta-World's tasks for policies that see pixels, proprioception and a sentence.

    **Observation**: ``Dict(image: uint8 [image_size, image_size, 3]`` upright, ``state: float32 [4]`` (the hand's
    position in metres, how far the gripper is open in [0, 1]), ``instruction: Text)``; with a second camera ``image2``.

    **Action**: float32 [4] in [-1, 1], the movement of the hand along x, y and z and the gripper (1 closes it), held
    for ``hold`` simulator steps of 1/80 s; with ``chunk`` above 1 [chunk, 4], one after the other. Numbers outside are
    clipped.

    **Reward**: 1.0 at the decision within which the task is solved for the first time, by Meta-World's own criterion at
    any simulator step, else 0.0: the return is the sparse success. ``info["success"]`` says whether it was solved so
    far, ``info["task"]`` and ``info["initial_state"]`` what the episode is.

    **Ending**: truncated after ``max_decisions``; the horizon is fixed, so that an episode's end gives no label away.

    **Reset**: task and initial state are drawn under the seed; ``options={"task": name, "initial_state": number}`` sets
    either. Equal numbers are equal scenes, in every process.

    Example:
        >>> import gymnasium as gym, wmrl_envs
        >>> env = gym.make("wmrl/MetaWorld-v0", tasks="drawer-open", max_decisions=2)
        >>> observation, info = env.reset(seed=0)
        >>> observation["instruction"], observation["image"].shape
        ('open the drawer', (64, 64, 3))
        >>> env.close()
    """

    def __init__(
        self,
        tasks: str | Sequence[str] = "drawer-open",
        *,
        camera: str = "workspace",
        second_camera: str | None = None,
        image_size: int = 64,
        draw_arm: bool = True,
        hold: int = 10,
        chunk: int = 1,
        max_decisions: int = 15,
        terminate_on_success: bool = False,
        render_mode: str | None = None,
        render_size: int = 256,
    ) -> None:
        """Build the environment.

        Args:
            tasks: Names (``"drawer-open"``), several of them, or ``"MT10"``.
            camera: Of ``image`` and of ``render``: ``"workspace"``, or one of Meta-World's.
            second_camera: Of ``image2``; ``None`` has none. ``"gripperPOV"`` sits at the wrist.
            image_size: Height and width of the observed images in pixels.
            draw_arm: Whether images show the arm above the wrist; without it they take about half the time.
            hold: Simulator steps for which an action is held.
            chunk: Actions per decision.
            max_decisions: Decisions per episode.
            terminate_on_success: Whether the episode ends when the task is solved. Under a world model this would give
                away the label that is to be predicted.
            render_mode: ``"rgb_array"`` or ``None``.
            render_size: Height and width of ``render``'s frames in pixels.

        Raises:
            UnknownTaskError: If a task is none of Meta-World's.
            ConfigurationError: If another argument cannot work.
            RenderModeError: If there is no such render mode.
        """
        scene = Scene(
            1,
            tasks,
            camera=camera,
            second_camera=second_camera,
            image_size=image_size,
            draw_arm=draw_arm,
            hold=hold,
            chunk=chunk,
            max_decisions=max_decisions,
            terminate_on_success=terminate_on_success,
            render_mode=render_mode,
            render_size=render_size,
        )
        super().__init__(scene)


class MetaWorldVectorEnv(RobotVectorEnv[Scene]):
    """``MetaWorldEnv`` in a batch; ``group_size`` neighbouring sub-environments share task and initial state.

    All share one simulator per task, so that sub-environments cost no memory. Without groups it equals
    ``gymnasium.vector.SyncVectorEnv`` over ``MetaWorldEnv`` in every autoreset mode.

    Example:
        >>> import gymnasium as gym, wmrl_envs
        >>> envs = gym.make_vec("wmrl/MetaWorld-v0", num_envs=4, tasks="drawer-open", group_size=2)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations["image"].shape
        (4, 64, 64, 3)
        >>> envs.close()
    """

    def __init__(
        self,
        num_envs: int = 1,
        tasks: str | Sequence[str] = "drawer-open",
        *,
        group_size: int = 1,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        camera: str = "workspace",
        second_camera: str | None = None,
        image_size: int = 64,
        draw_arm: bool = True,
        hold: int = 10,
        chunk: int = 1,
        max_decisions: int = 15,
        terminate_on_success: bool = False,
        render_mode: str | None = None,
        render_size: int = 256,
    ) -> None:
        """Build the environment; arguments that are not named here are ``MetaWorldEnv``'s.

        Args:
            num_envs: Sub-environments.
            group_size: Neighbouring sub-environments that begin every episode alike; divides ``num_envs``.
            autoreset_mode: When an ended episode begins anew: ``"NextStep"``, ``"SameStep"`` or ``"Disabled"``.
            tasks: See ``MetaWorldEnv``.
            camera: See ``MetaWorldEnv``.
            second_camera: See ``MetaWorldEnv``.
            image_size: See ``MetaWorldEnv``.
            draw_arm: See ``MetaWorldEnv``.
            hold: See ``MetaWorldEnv``.
            chunk: See ``MetaWorldEnv``.
            max_decisions: See ``MetaWorldEnv``.
            terminate_on_success: See ``MetaWorldEnv``; only with ``group_size=1``, as groups begin together.
            render_mode: See ``MetaWorldEnv``.
            render_size: See ``MetaWorldEnv``.

        Raises:
            ConfigurationError: If an argument cannot work.
            UnknownTaskError: If a task is none of Meta-World's.
        """
        check_groups(num_envs, group_size, terminate_on_success)
        scene = Scene(
            num_envs,
            tasks,
            camera=camera,
            second_camera=second_camera,
            image_size=image_size,
            draw_arm=draw_arm,
            hold=hold,
            chunk=chunk,
            max_decisions=max_decisions,
            terminate_on_success=terminate_on_success,
            render_mode=render_mode,
            render_size=render_size,
        )
        super().__init__(scene, group_size=group_size, autoreset_mode=autoreset_mode)
