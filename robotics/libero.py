"""LIBERO's manipulation tasks from pixels with a sparse success.

- ``LiberoEnv`` - one episode at a time (``wmrl/Libero-v0``).
- ``LiberoVectorEnv`` - the same in a batch, with groups of rollouts from one initial state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from wmrl_envs.robotics import libero_simulator
from wmrl_envs.robotics.episodes import Episodes, check_whole
from wmrl_envs.robotics.libero_simulator import LiberoSimulator
from wmrl_envs.robotics.libero_tasks import SUITES, episode_steps, resolve_tasks
from wmrl_envs.robotics.robot_env import RobotEnv
from wmrl_envs.robotics.robot_vector_env import RobotVectorEnv, check_groups

__all__ = ["SUITES", "LiberoEnv", "LiberoEpisodes", "LiberoVectorEnv"]

Tasks = int | str | Sequence[int | str]


class LiberoEpisodes(Episodes[LiberoSimulator]):
    """Episodes of LIBERO's tasks."""

    CAMERAS = libero_simulator.CAMERAS
    CONTROL_RATE = libero_simulator.CONTROL_RATE
    STATE_SIZE = 8
    ACTION_SIZE = 7

    def __init__(
        self,
        n: int,
        suite: str,
        tasks: Tasks,
        *,
        hold: int,
        chunk: int,
        max_decisions: int | None,
        settle_steps: int,
        fast_rendering: bool,
        **settings: Any,
    ) -> None:
        """Check the arguments; see ``LiberoEnv`` for them."""
        check_whole("settle_steps", settle_steps, 0)
        check_whole("hold", hold, 1)
        check_whole("chunk", chunk, 1)
        if max_decisions is None:
            max_decisions = -(-episode_steps(suite) // (hold * chunk))
        super().__init__(n, hold=hold, chunk=chunk, max_decisions=max_decisions, **settings)
        self._tasks = resolve_tasks(suite, tasks)
        self.task_names = tuple(self._tasks)
        self._settle_steps, self._fast_rendering = int(settle_steps), bool(fast_rendering)

    def initial_states(self, task: int) -> int:
        """Return how many initial states LIBERO has for a task."""
        return len(self._tasks[self.task_names[task]].states)

    def make_simulator(self, task: int) -> LiberoSimulator:
        """Return a simulator of a task."""
        return LiberoSimulator(
            self._tasks[self.task_names[task]], settle_steps=self._settle_steps, fast_rendering=self._fast_rendering
        )


class LiberoEnv(RobotEnv[LiberoEpisodes]):
    """LIBERO's tasks (arXiv 2306.03310) for policies that see pixels, proprioception and a sentence.

    **Observation**: ``Dict(image: uint8 [image_size, image_size, 3]`` upright, ``state: float32 [8]`` (the hand's
    position in metres, its rotation as axis times angle, the positions of the two fingers), ``instruction: Text)``;
    with a second camera ``image2``. LIBERO itself gives images upside down; these are flipped vertically, once. Some
    published policies were trained on images that were turned by 180 degrees instead, which mirrors them: give those
    ``image[:, ::-1]``.

    **Action**: float32 [7] in [-1, 1], the movement of the hand along x, y and z (1 is 5 cm), its rotation about them
    (1 is 0.5 rad) and the gripper (positive closes it), held for ``hold`` simulator steps of 1/20 s; with ``chunk``
    above 1 [chunk, 7], one after the other. Numbers outside are clipped.

    **Reward**: 1.0 at the decision within which the task is solved for the first time, by LIBERO's own criterion at any
    simulator step, else 0.0: the return is the sparse success. ``info["success"]`` says whether it was solved so far,
    ``info["task"]`` and ``info["initial_state"]`` what the episode is.

    **Ending**: truncated after ``max_decisions``; the horizon is fixed, so that an episode's end gives no label away.

    **Reset**: LIBERO has fixed initial states, fifty for most tasks. Task and initial state are drawn under the seed;
    ``options={"task": name, "initial_state": number}`` sets either. The robot then rests for ``settle_steps``, since
    the objects fall into place first. Where furniture stands, which the states leave out and LIBERO draws anew at
    each reset, is as after LIBERO's ``seed(0)``: equal numbers are equal scenes, in every process.

    Example:
        >>> import gymnasium as gym, wmrl_envs
        >>> env = gym.make("wmrl/Libero-v0", suite="libero_10", tasks=8)  # doctest: +SKIP
        >>> observation, info = env.reset(options={"initial_state": 3})  # doctest: +SKIP
        >>> observation["instruction"]  # doctest: +SKIP
        'put both moka pots on the stove'
    """

    def __init__(
        self,
        suite: str = "libero_10",
        tasks: Tasks = 0,
        *,
        camera: str = "agentview",
        second_camera: str | None = None,
        image_size: int = 128,
        fast_rendering: bool = False,
        hold: int = 1,
        chunk: int = 1,
        max_decisions: int | None = None,
        settle_steps: int = 10,
        terminate_on_success: bool = False,
        render_mode: str | None = None,
        render_size: int = 256,
    ) -> None:
        """Build the environment; a task's scene is built at its first reset: a few seconds, about a gigabyte of memory.

        Args:
            suite: ``"libero_10"``, ``"libero_spatial"``, ``"libero_object"``, ``"libero_goal"``, ``"libero_90"``, or a
                perturbed one of LIBERO-PRO, such as ``"libero_10_swap"``.
            tasks: One task or several, each by its index in the suite, its name or its instruction; ``"all"`` is all.
            camera: Of ``image`` and of ``render``: ``"agentview"``, or another of ``libero_simulator.CAMERAS``.
            second_camera: Of ``image2``; ``None`` has none. ``"robot0_eye_in_hand"`` sits at the wrist.
            image_size: Height and width of the observed images in pixels.
            fast_rendering: Whether images go without shadows, reflections and smoothing, as LIBERO's do not: for
                policies that are trained here rather than elsewhere.
            hold: Simulator steps for which an action is held.
            chunk: Actions per decision.
            max_decisions: Decisions per episode; ``None`` takes the simulator steps that evaluations on the suite allow
                (520 for ``libero_10``).
            settle_steps: Simulator steps at rest before the first observation.
            terminate_on_success: Whether the episode ends when the task is solved. Under a world model this would give
                away the label that is to be predicted.
            render_mode: ``"rgb_array"`` or ``None``.
            render_size: Height and width of ``render``'s frames in pixels.

        Raises:
            ConfigurationError: If an argument cannot work.
            RenderModeError: If there is no such render mode.
            MissingExtraError: If LIBERO is not installed.
            UnknownTaskError: If there is no such suite, or it has no such task.
            TaskError: If the package lacks the task's files.
        """
        scene = LiberoEpisodes(
            1,
            suite,
            tasks,
            camera=camera,
            second_camera=second_camera,
            image_size=image_size,
            fast_rendering=fast_rendering,
            hold=hold,
            chunk=chunk,
            max_decisions=max_decisions,
            settle_steps=settle_steps,
            terminate_on_success=terminate_on_success,
            render_mode=render_mode,
            render_size=render_size,
        )
        super().__init__(scene)


class LiberoVectorEnv(RobotVectorEnv[LiberoEpisodes]):
    """``LiberoEnv`` in a batch; ``group_size`` neighbouring sub-environments share task and initial state.

    All share one simulator per task, so that sub-environments cost no memory.
    """

    def __init__(
        self,
        num_envs: int = 1,
        suite: str = "libero_10",
        tasks: Tasks = 0,
        *,
        group_size: int = 1,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        camera: str = "agentview",
        second_camera: str | None = None,
        image_size: int = 128,
        fast_rendering: bool = False,
        hold: int = 1,
        chunk: int = 1,
        max_decisions: int | None = None,
        settle_steps: int = 10,
        terminate_on_success: bool = False,
        render_mode: str | None = None,
        render_size: int = 256,
    ) -> None:
        """Build the environment; arguments that are not named here are ``LiberoEnv``'s.

        Args:
            num_envs: Sub-environments.
            group_size: Neighbouring sub-environments that begin every episode alike; divides ``num_envs``.
            autoreset_mode: When an ended episode begins anew: ``"NextStep"``, ``"SameStep"`` or ``"Disabled"``.
            suite: See ``LiberoEnv``.
            tasks: See ``LiberoEnv``.
            camera: See ``LiberoEnv``.
            second_camera: See ``LiberoEnv``.
            image_size: See ``LiberoEnv``.
            fast_rendering: See ``LiberoEnv``.
            hold: See ``LiberoEnv``.
            chunk: See ``LiberoEnv``.
            max_decisions: See ``LiberoEnv``.
            settle_steps: See ``LiberoEnv``.
            terminate_on_success: See ``LiberoEnv``; only with ``group_size=1``, as groups begin together.
            render_mode: See ``LiberoEnv``.
            render_size: See ``LiberoEnv``.

        Raises:
            ConfigurationError: If an argument cannot work.
            MissingExtraError: If LIBERO is not installed.
            UnknownTaskError: If there is no such suite, or it has no such task.
        """
        check_groups(num_envs, group_size, terminate_on_success)
        scene = LiberoEpisodes(
            num_envs,
            suite,
            tasks,
            camera=camera,
            second_camera=second_camera,
            image_size=image_size,
            fast_rendering=fast_rendering,
            hold=hold,
            chunk=chunk,
            max_decisions=max_decisions,
            settle_steps=settle_steps,
            terminate_on_success=terminate_on_success,
            render_mode=render_mode,
            render_size=render_size,
        )
        super().__init__(scene, group_size=group_size, autoreset_mode=autoreset_mode)
