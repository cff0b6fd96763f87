"""The batched twin of ``wmrl_envs.wrappers.CorrectionWrapper``.

- ``CorrectionWrapper`` - draws anchor groups, learns from them, and pays corrected rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from wmrl_envs.correction import Scale
from wmrl_envs.wrappers._autoreset import autoreset_mode, slot_flags, slots_to_reset
from wmrl_envs.wrappers._correcting import annotate
from wmrl_envs.wrappers._correction import CorrectionBase, find_world_model_wrapper
from wmrl_envs.wrappers._processes import ProcessGuard
from wmrl_envs.wrappers._streams import BoolArray, FloatArray, Mask, put
from wmrl_envs.wrappers.vector.world_model import WorldModelWrapper

__all__ = ["CorrectionWrapper"]


class CorrectionWrapper(CorrectionBase, VectorWrapper[Any, Any, Any, Any, Any], RecordConstructorArgs):
    """Corrects the rewards of a vector ``WorldModelWrapper`` by executing a few groups for real.

    See ``wmrl_envs.wrappers.CorrectionWrapper``. The members of a group (``group_size`` neighbours) are anchors
    together. For them ``info["wmrl"]["lambda"]`` is the trust that rectifies group advantages; the rewards are those
    of an agent that sees scalar returns.

    Example:
        >>> import gymnasium as gym
        >>> from wmrl_envs.wrappers.vector import WorldModelWrapper
        >>> def guess(observations, actions, next_observations, infos):
        ...     return [0.7] * len(infos)
        >>> envs = WorldModelWrapper(gym.make_vec("CartPole-v1", num_envs=20), guess, run="example")
        >>> envs = CorrectionWrapper(envs, anchor_fraction=0.1, run="example")
        >>> _, infos = envs.reset(seed=0)
        >>> int(infos["wmrl"]["anchor"].sum())
        2
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        anchor_fraction: float = 0.1,
        scheme: str = "rectified",
        *,
        ramp: float = 0.0,
        scale: Scale = "standardise",
        spread_bins: int | None = None,
        fixed_lambda: float | None = None,
        calibration: Mapping[str, Any] | str | None = None,
        run: str = "default",
        training: bool = True,
        seed: int = 0,
    ) -> None:
        """Wrap a vector environment; the arguments are those of the single wrapper.

        Raises:
            ConfigurationError: If an argument is out of range, or no vector ``WorldModelWrapper`` is below.
        """
        settings: dict[str, Any] = {
            "anchor_fraction": anchor_fraction,
            "scheme": scheme,
            "ramp": ramp,
            "scale": scale,
            "spread_bins": spread_bins,
            "fixed_lambda": fixed_lambda,
            "calibration": calibration,
            "seed": seed,
        }
        RecordConstructorArgs.__init__(self, **settings, run=run, training=training)
        VectorWrapper.__init__(self, env)
        self._guard = ProcessGuard(type(self).__name__)
        self._mode = autoreset_mode(env)
        below = find_world_model_wrapper(env, WorldModelWrapper, "wmrl_envs.wrappers.vector")
        self._set_up(env, below, run=run, training=training, **settings)
        self._all = np.ones(self._core.n, np.bool_)
        self._every = Mask(self._all)
        self._over = np.zeros(self._core.n, np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes.

        Args:
            seed: Passed on.
            options: ``{"anchor": bool or bool [n]}`` decides which episodes are anchors, without a draw, equal within
                each group; all else is passed on.
        """
        self._guard.check()
        slots, forced = slots_to_reset(options, self._core.n), None
        if options is not None:
            options = dict(options)  # the environment below may take keys out
            if "anchor" in options:
                forced = slot_flags(options.pop("anchor"), self._core.n, self._core.group_size)
        self._core.begin(slots, forced)
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]  # lists are fine
        self._over[slots] = False
        annotate(infos["wmrl"], self._core.frozen(), Mask(slots), known=True)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Take a step in every sub-environment and pay the corrected rewards."""
        self._guard.check()
        core = self._core
        resets = self._over
        if self._mode is AutoresetMode.NEXT_STEP and resets.any():
            core.begin(resets)
            core.draw_ahead(~resets)
        else:
            core.draw_ahead(self._all)
        observations, _, terminations, truncations, infos = self.env.step(actions)
        streams = self._below.core.streams
        if not streams.active.any():  # the dummy step of next-step autoreset, everywhere at once
            annotate(infos["wmrl"], core.frozen(), self._every, known=True)
            self._over = streams.done
            return observations, np.zeros(core.n), terminations, truncations, infos
        rewards, shown = core.settle(streams)
        clean, turned = streams.clean, self._every if streams.clean else Mask(streams.active)
        left_out = None if clean else core.left_out(streams)
        if self._mode is AutoresetMode.SAME_STEP and not streams.ended.none:
            final = infos["final_info"]["wmrl"]
            annotate(final, shown, streams.ended, known=clean)
            if left_out is not None:
                put(final, "ungraded", left_out, streams.ended)
            turned = turned & Mask(~streams.done)
            core.begin(streams.done, mark=False)
            # What `begin` froze anew is shown for the episodes that it began.
            shown |= {name: np.where(turned.array, shown[name], values) for name, values in core.frozen().items()}
        wmrl = infos["wmrl"]
        own = {name: shown.pop(name) for name in ("calibrated_reward", "corrected_return")}
        annotate(wmrl, own, turned, known=clean)
        annotate(wmrl, shown, self._every, known=True)
        if left_out is not None:
            put(wmrl, "ungraded", left_out & turned.array, self._every)
        self._over = streams.done
        return observations, rewards, terminations, truncations, infos

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a run needs to go on exactly, JSON-able; see the single wrapper."""
        return super().state_dict() | {"over": self._over.tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._over = np.array(state["over"], np.bool_)

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to travel to another process."""
        raise self._guard.error()
