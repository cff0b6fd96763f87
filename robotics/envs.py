"""Robot manipulation from pixels with a sparse success.

- ``MetaWorldEnv`` - Meta-World's tasks, one episode at a time (``wmrl/MetaWorld-v0``).
- ``MetaWorldVectorEnv`` - the same in a batch, with groups of rollouts from one initial state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.research.batched import parse_autoreset_mode
from wmrl_envs.robotics.scene import INITIAL_STATES, Scene

__all__ = ["MetaWorldEnv", "MetaWorldVectorEnv"]


class MetaWorldEnv(gym.Env[dict[str, Any], NDArray[np.float32]]):
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
        self._scene = Scene(
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
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": self._scene.frames_per_second}
        self.observation_space, self.action_space = self._scene.observation_space, self._scene.action_space

    @property
    def scene(self) -> Scene:
        """The episode's scene, for experts and tests."""
        return self._scene

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Of the draws of task and initial state; ``None`` goes on drawing.
            options: ``{"task": name}`` and ``{"initial_state": number}`` set what is drawn otherwise.

        Raises:
            ConfigurationError: If the task is none of this environment's, or the number is out of range.
        """
        super().reset(seed=seed)
        task, state = self._scene.draw(self.np_random)
        if options and "task" in options:
            task = self._scene.task_index(options["task"])
        if options and "initial_state" in options:
            state = checked_state(options["initial_state"])
        self._scene.begin(0, task, state)
        return dict(self._scene.observations[0]), self._scene.info(0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a decision.

        Raises:
            ConfigurationError: If the action has another shape, or is not finite.
            gymnasium.error.ResetNeeded: If no episode is under way.
        """
        scene = self._scene
        if scene.decision[0] < 0 or scene.over[0]:
            raise ResetNeeded("no episode is under way: call reset() first")
        reward = scene.step(0, action)
        terminated = scene.terminated(0)
        return dict(scene.observations[0]), reward, terminated, bool(scene.over[0]) and not terminated, scene.info(0)

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]
        """Return the present frame, uint8 [render_size, render_size, 3], in render mode ``"rgb_array"``."""
        if self.render_mode is None:
            return None
        if self._scene.decision[0] < 0:
            raise ResetNeeded("there is nothing to render yet: call reset() first")
        return self._scene.render(0)

    def close(self) -> None:
        """Free the renderers."""
        if hasattr(self, "_scene"):
            self._scene.close()


class MetaWorldVectorEnv(gym.vector.VectorEnv[Any, Any, NDArray[Any]]):
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
        if num_envs < 1 or group_size < 1 or num_envs % group_size:
            raise ConfigurationError(
                f"num_envs must be a multiple of group_size, both at least 1, got {num_envs} and {group_size}"
            )
        if terminate_on_success and group_size > 1:
            raise ConfigurationError(
                "terminate_on_success=True ends the episodes of a group at different times, so that they could not "
                "begin together: leave it out, or take group_size=1"
            )
        self._mode = parse_autoreset_mode(autoreset_mode)
        self._scene = Scene(
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
        self.num_envs, self.group_size = num_envs, group_size
        self.render_mode = render_mode
        fps = self._scene.frames_per_second
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": fps, "autoreset_mode": self._mode}
        self.single_observation_space = self._scene.observation_space
        self.single_action_space = self._scene.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._generators: list[np.random.Generator] = [seeding.np_random()[0] for _ in range(num_envs)]

    @property
    def scene(self) -> Scene:
        """The episodes' scene, for experts and tests."""
        return self._scene

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes.

        Args:
            seed: ``None`` goes on drawing, an int seeds sub-environment i with ``seed + i``, a list gives one seed (or
                ``None``) for each. A group is drawn by its first member.
            options: ``{"task": name or num_envs names}`` and ``{"initial_state": number or num_envs numbers}`` set what
                is drawn otherwise, alike within a group; ``{"reset_mask": bool [num_envs]}`` resets whole groups alone.

        Raises:
            ConfigurationError: If an option or the list of seeds does not fit.
        """
        self._seed(seed)
        options = options or {}
        mask = self._mask(options)
        tasks, states = self._listed(options, "task"), self._listed(options, "initial_state")
        for leader in range(0, self.num_envs, self.group_size):
            if mask[leader]:
                task, state = self._scene.draw(self._generators[leader])
                self._begin_group(
                    leader,
                    task if tasks is None else self._scene.task_index(tasks[leader]),
                    state if states is None else checked_state(states[leader]),
                )
        return self._observations(), self._infos(mask)

    def step(
        self, actions: Any
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Take a decision in every sub-environment; ended ones begin anew as ``metadata["autoreset_mode"]`` says.

        Raises:
            ConfigurationError: If an action has another shape, or is not finite.
            gymnasium.error.ResetNeeded: Before the first ``reset``, or if ``DISABLED`` left an ended episode unreset.
        """
        scene = self._scene
        ended = scene.over.copy()
        if (scene.decision < 0).any():
            raise ResetNeeded("no episode is under way: call reset() first")
        if ended.any() and self._mode is not AutoresetMode.NEXT_STEP:
            raise ResetNeeded(
                f"the episodes of sub-environments {np.flatnonzero(ended).tolist()} are over: reset them with "
                "reset(options={'reset_mask': mask}) before the next step"
            )
        rewards = np.zeros(self.num_envs)
        if len(actions) != self.num_envs:
            raise ConfigurationError(f"{len(actions)} actions came for {self.num_envs} sub-environments; give one each")
        for slot in np.flatnonzero(~ended).tolist():
            rewards[slot] = scene.step(slot, actions[slot])
        over = np.where(ended, False, scene.over)
        terminated = np.array([bool(done) and scene.terminated(slot) for slot, done in enumerate(over)])
        final: dict[str, Any] = {}
        if ended.any():
            self._begin_drawn(ended)
        elif self._mode is AutoresetMode.SAME_STEP and over.any():
            final = self._final(over)
            self._begin_drawn(over)
        infos = {**final, **self._infos(np.ones(self.num_envs, np.bool_))}
        return self._observations(), rewards, terminated, over & ~terminated, infos

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """Return each sub-environment's frame, uint8 [render_size, render_size, 3], in mode ``"rgb_array"``."""
        if self.render_mode is None:
            return None
        return tuple(self._scene.render(slot) for slot in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Free the renderers."""
        self._scene.close()

    def _begin_group(self, leader: int, task: int, state: int) -> None:
        self._scene.begin(leader, task, state)
        for slot in range(leader + 1, leader + self.group_size):
            self._scene.begin_as(slot, leader)

    def _begin_drawn(self, mask: NDArray[np.bool_]) -> None:
        for leader in range(0, self.num_envs, self.group_size):
            if mask[leader]:
                self._begin_group(leader, *self._scene.draw(self._generators[leader]))

    def _observations(self) -> dict[str, Any]:
        columns: dict[str, Any] = {}
        for key in self.single_observation_space.spaces:  # type: ignore[attr-defined]
            values = [observation[key] for observation in self._scene.observations]
            columns[key] = tuple(values) if key == "instruction" else np.stack(values)
        return columns

    def _infos(self, mask: NDArray[np.bool_]) -> dict[str, Any]:
        scene = self._scene
        names = np.array(scene.task_names, dtype=object)[scene.task]
        columns = {"success": scene.success, "task": names, "initial_state": scene.initial_state}
        infos: dict[str, Any] = {}
        for key, values in columns.items():
            empty = None if values.dtype == object else 0
            infos[key] = np.where(mask, values, np.array(empty, values.dtype))
            infos["_" + key] = mask.copy()
        return infos

    def _final(self, over: NDArray[np.bool_]) -> dict[str, Any]:
        observations = np.full(self.num_envs, None, dtype=object)
        for slot in np.flatnonzero(over):
            observations[slot] = dict(self._scene.observations[slot])
        return {
            "final_obs": observations,
            "_final_obs": over.copy(),
            "final_info": self._infos(over),
            "_final_info": over.copy(),
        }

    def _seed(self, seed: int | Sequence[int | None] | None) -> None:
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + slot for slot in range(self.num_envs)]
        if seed is None:
            return
        if len(seed) != self.num_envs:
            raise ConfigurationError(f"expected one seed or {self.num_envs} of them, got a list of {len(seed)}")
        for slot, value in enumerate(seed):
            if value is not None:
                self._generators[slot] = seeding.np_random(value)[0]

    def _mask(self, options: Mapping[str, Any]) -> NDArray[np.bool_]:
        if "reset_mask" not in options:
            return np.ones(self.num_envs, np.bool_)
        mask = options["reset_mask"]
        fits = isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (self.num_envs,)
        blocks = mask.reshape(-1, self.group_size) if fits else np.zeros((1, 1), np.bool_)
        if not fits or not mask.any() or (blocks.any(1) != blocks.all(1)).any():
            raise ConfigurationError(
                f"options['reset_mask'] must be a bool array of shape ({self.num_envs},) that is True somewhere and "
                f"alike within each group of {self.group_size}, got {mask!r}"
            )
        checked: NDArray[np.bool_] = mask
        return checked

    def _listed(self, options: Mapping[str, Any], key: str) -> list[Any] | None:
        """Return an option as one value per sub-environment; ``None`` where it is not set."""
        if key not in options:
            return None
        value = options[key]
        if isinstance(value, str | int | np.integer):
            return [value] * self.num_envs
        values = list(value)
        if len(values) != self.num_envs or any(
            values[slot] != values[slot - slot % self.group_size] for slot in range(self.num_envs)
        ):
            raise ConfigurationError(
                f"options[{key!r}] must be one value or {self.num_envs}, alike within each group of "
                f"{self.group_size} sub-environments, got {value!r}"
            )
        return values


def checked_state(number: Any) -> int:
    """Return the number of an initial state.

    Raises:
        ConfigurationError: If it is no whole number in [0, 2**31).
    """
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number < INITIAL_STATES:
        raise ConfigurationError(f"options['initial_state'] must be a whole number in [0, 2**31), got {number!r}")
    return int(number)
