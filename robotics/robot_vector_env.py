"""Robot episodes in a batch, with groups of rollouts from one initial state, whatever the family of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.research.batched import parse_autoreset_mode
from wmrl_envs.robotics.episodes import Episodes

__all__ = ["RobotVectorEnv", "check_groups"]

E = TypeVar("E", bound=Episodes[Any])


class RobotVectorEnv(gym.vector.VectorEnv[Any, Any, NDArray[Any]], Generic[E]):
    """What the vector environments of robots share; a family adds its arguments."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}  # type: ignore[misc]  # per class, as Gymnasium's own

    def __init__(self, scene: E, *, group_size: int, autoreset_mode: str | AutoresetMode) -> None:
        self._scene = scene
        self._mode = parse_autoreset_mode(autoreset_mode)
        self.num_envs, self.group_size = len(scene.task), group_size
        self.render_mode = scene.render_mode
        own = {"render_fps": scene.frames_per_second, "autoreset_mode": self._mode}
        self.metadata = {**self.metadata, **own}  # type: ignore[misc]
        self.single_observation_space, self.single_action_space = scene.observation_space, scene.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._generators: list[np.random.Generator] = [seeding.np_random()[0] for _ in range(self.num_envs)]

    @property
    def scene(self) -> E:
        """The episodes themselves, for experts and tests."""
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
        draws = {}
        for leader in range(0, self.num_envs, self.group_size):
            if mask[leader]:
                asked = None if tasks is None else self._scene.task_index(tasks[leader])
                task, state = self._scene.draw(self._generators[leader], asked)
                if states is not None:
                    state = self._scene.checked_state(task, states[leader])
                draws[leader] = task, state
        for leader, drawn in draws.items():  # not before all of them are known to be right
            self._begin_group(leader, *drawn)
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
        acting = np.flatnonzero(~ended).tolist()
        self._check_actions(actions, acting)
        for slot in acting:
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

    def _check_actions(self, actions: Any, acting: list[int]) -> None:
        """Refuse a wrong action before any sub-environment has moved."""
        count = len(actions) if hasattr(actions, "__len__") else None
        if count != self.num_envs:
            raise ConfigurationError(
                f"expected {self.num_envs} actions, one per sub-environment, got {count or actions!r}"
            )
        for slot in acting:
            self._scene.checked_action(actions[slot])

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
        if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str):
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


def check_groups(num_envs: int, group_size: int, terminate_on_success: bool) -> None:
    """Refuse groups that do not fill the batch, or whose episodes could not begin together.

    Raises:
        ConfigurationError: It says which.
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
