"""Episodes side by side over the batched core: what the vector environments share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, did_you_mean
from wmrl_envs.research.base import CoreSeam, Interface
from wmrl_envs.research.core import ResearchCore
from wmrl_envs.research.infos import vector_infos
from wmrl_envs.research.state import load_core_state, save_core_state

__all__ = ["BatchedEnv", "parse_autoreset_mode"]

Seeds = int | Sequence[int | None] | None
StepResult = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class BatchedEnv(CoreSeam, gym.vector.VectorEnv[Any, Any, NDArray[Any]]):
    """Episodes side by side over the batched core."""

    def __init__(
        self,
        core: ResearchCore,
        interface: Interface,
        *,
        owns_grader: bool,
        report: bool,
        autoreset_mode: AutoresetMode,
        render_mode: str | None,
    ) -> None:
        self._core, self._interface, self._owns_grader = core, interface, owns_grader
        self._report = bool(report)
        self._mode = autoreset_mode
        self.render_mode = render_mode
        core.keep_code = render_mode is not None
        self.metadata = {"render_modes": ["ansi"], "render_fps": 1, "autoreset_mode": autoreset_mode}
        self.num_envs = core.num_slots
        self.single_observation_space, self.single_action_space = interface.observation_space, interface.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._all = np.ones(self.num_envs, dtype=np.bool_)
        self._seeds: list[int | None] = [None] * self.num_envs

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin episodes.

        Args:
            seed: ``None`` goes on with the present generators, an int seeds sub-environment i with ``seed + i``, a list
                gives one seed (or ``None``) for each.
            options: ``{"task": id}`` sets the task; ``{"reset_mask": bool [num_envs]}`` resets some sub-environments
                alone, in whole groups. The dictionary is left as it is.

        Raises:
            UnknownTaskError: If the id is none of this environment's tasks.
            ConfigurationError: If the mask or the list of seeds does not fit.
        """
        mask = self._all if options is None or "reset_mask" not in options else self._checked(options["reset_mask"])
        self._seed(seed, mask)
        self._core.reset(np.flatnonzero(mask), options)
        return self._interface.observe(), self._infos(mask, self._blank())

    def step(self, actions: Any) -> StepResult:
        """Take a turn in every sub-environment; ended episodes begin anew as ``metadata["autoreset_mode"]`` says.

        Args:
            actions: One action per sub-environment. Where ``NEXT_STEP`` begins an episode the action is ignored.

        Raises:
            ConfigurationError: If an action is outside the action space.
            GradingError: If the grader breaks its contract; then nothing has changed.
            gymnasium.error.ResetNeeded: Before the first ``reset``, or if ``DISABLED`` left an ended episode unreset.
        """
        core, ended = self._core, self._core.finished
        if (core.turn < 0).any():
            raise ResetNeeded("no episode is under way: call reset() first")
        if ended.any() and self._mode is not AutoresetMode.NEXT_STEP:
            raise ResetNeeded(
                f"the episodes of sub-environments {np.flatnonzero(ended).tolist()} are over: reset them with "
                "reset(options={'reset_mask': mask}) before the next step"
            )
        active = np.flatnonzero(~ended)
        outcomes, rewards = self._blank(), np.zeros(self.num_envs)
        codes = self._interface.decode(actions, active)
        rewards[active], graded = core.step(active, codes)
        outcomes[active] = graded
        if ended.any():
            core.reset(np.flatnonzero(ended))
        terminated = core.finished
        final = self._finish(terminated, outcomes) if self._mode is AutoresetMode.SAME_STEP and terminated.any() else {}
        infos = {**final, **self._infos(self._all, outcomes)}
        return self._interface.observe(), rewards, terminated, np.zeros(self.num_envs, dtype=np.bool_), infos

    def render(self) -> tuple[str, ...] | None:
        """Return each sub-environment's last code and what its terminal showed (``render_mode="ansi"``)."""
        return tuple(self._screen(slot) for slot in range(self.num_envs)) if self.render_mode == "ansi" else None

    def close_extras(self, **kwargs: Any) -> None:
        """Close the sandbox, if this environment made it."""
        self._close_grader()

    def state_dict(self) -> dict[str, Any]:
        """Return the episodes under way as JSON-able data, random numbers included."""
        return {"core": save_core_state(self._core), "seeds": list(self._seeds), "autoreset_mode": self._mode.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state.

        Raises:
            CheckpointError: If it was saved with other arguments.
        """
        load_core_state(self._core, state["core"])
        self._seeds = list(state["seeds"])

    @property  # type: ignore[misc]  # read-only, as SyncVectorEnv's
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The sub-environments' random generators."""
        return tuple(self._generators())

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # as SyncVectorEnv
        """The seeds of the sub-environments' random generators."""
        self._generators()
        return tuple(-1 if seed is None else seed for seed in self._seeds)

    def _generators(self) -> list[np.random.Generator]:
        for slot, generator in enumerate(self._core.generators):
            if generator is None:
                self._core.generators[slot], self._seeds[slot] = seeding.np_random()
        return [generator for generator in self._core.generators if generator is not None]

    def _seed(self, seed: Seeds, mask: NDArray[np.bool_]) -> None:
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + slot for slot in range(self.num_envs)]
        if seed is not None:
            if len(seed) != self.num_envs:
                raise ConfigurationError(f"expected one seed or {self.num_envs} of them, got a list of {len(seed)}")
            for slot in np.flatnonzero(mask).tolist():
                if seed[slot] is not None:
                    self._core.generators[slot], self._seeds[slot] = seeding.np_random(seed[slot])
        self._generators()

    def _checked(self, mask: Any) -> NDArray[np.bool_]:
        if (
            not isinstance(mask, np.ndarray)
            or mask.shape != (self.num_envs,)
            or mask.dtype != np.bool_
            or not mask.any()
        ):
            got = f"{mask.dtype} of shape {mask.shape}" if isinstance(mask, np.ndarray) else repr(mask)
            raise ConfigurationError(
                f"options['reset_mask'] must be a numpy bool array of shape ({self.num_envs},) with at least one True, "
                f"got {got}{' without a True' if isinstance(mask, np.ndarray) and not mask.any() else ''}"
            )
        whole = mask.reshape(-1, self.group_size)
        split = np.flatnonzero(whole.any(1) & ~whole.all(1))
        if split.size:
            first = int(split[0]) * self.group_size
            raise ConfigurationError(
                f"options['reset_mask'] resets part of a group: sub-environments {first} to "
                f"{first + self.group_size - 1} share one task (group_size={self.group_size}), and the mask names "
                f"{(np.flatnonzero(whole[split[0]]) + first).tolist()} of them; reset whole groups"
            )
        return mask

    def _finish(self, ended: NDArray[np.bool_], outcomes: NDArray[np.object_]) -> dict[str, Any]:
        """Return the ended episodes' last observations and infos, and begin new ones in their place."""
        observations, slots = self._interface.observe(), np.flatnonzero(ended)
        final = self._blank()
        for slot in slots.tolist():
            final[slot] = self._interface.pick(observations, slot)
        infos = {
            "final_obs": final,
            "_final_obs": ended.copy(),
            "final_info": self._infos(ended, outcomes),
            "_final_info": ended.copy(),
        }
        outcomes[slots] = None
        self._core.reset(slots)
        return infos

    def _infos(self, slots: NDArray[np.bool_], outcomes: NDArray[np.object_]) -> dict[str, Any]:
        return vector_infos(self._core, slots, outcomes, report=self._report)

    def _blank(self) -> NDArray[np.object_]:
        return np.full(self.num_envs, None, dtype=object)


def parse_autoreset_mode(mode: str | AutoresetMode) -> AutoresetMode:
    """Return the mode that a JSON-able argument names.

    Raises:
        ConfigurationError: If it is none.
    """
    for known in AutoresetMode:
        if mode is known or (isinstance(mode, str) and mode.lower() in (known.value.lower(), known.name.lower())):
            return known
    names = [known.value for known in AutoresetMode]
    raise ConfigurationError(
        f"autoreset_mode must be one of {', '.join(names)}, got {mode!r}.{did_you_mean(str(mode), names)}"
    )
