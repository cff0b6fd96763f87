"""Wrapper that corrects predicted rewards by a thin stream of real ones.

- ``CorrectionWrapper`` - draws anchor episodes, learns from them, and pays corrected rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from wmrl_envs.correction import Scale
from wmrl_envs.wrappers._autoreset import slot_flags
from wmrl_envs.wrappers._correcting import annotate
from wmrl_envs.wrappers._correction import CorrectionBase, find_world_model_wrapper
from wmrl_envs.wrappers._processes import ProcessGuard
from wmrl_envs.wrappers._streams import Mask, single_info
from wmrl_envs.wrappers.world_model import WorldModelWrapper

__all__ = ["CorrectionWrapper"]

_ALL = np.ones(1, np.bool_)
_ONE = Mask(_ALL)


class CorrectionWrapper(CorrectionBase, gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Corrects the rewards of a ``WorldModelWrapper`` by executing a few episodes for real.

    About ``anchor_fraction`` of the episodes are anchors: predicted *and* executed. From their pairs the wrapper
    learns how to calibrate predictions and how far to trust them, and it pays each episode a return whose expectation
    over the draw of the anchors is the real one (scheme ``"rectified"``; prediction-powered inference on the setting
    of arXiv 2608.12564). An agent that uses groups builds advantages from ``info["wmrl"]`` instead and ignores the
    rewards.

    Everything an episode is corrected with is frozen at its reset. Wrapped environments of one process with equal id,
    settings and ``run`` share one correction. Order: environment, ``WorldModelWrapper``, ``CorrectionWrapper``, then
    statistics and
    ``Monitor``, so that logs show what is trained on. Nothing around this wrapper may clip rewards (``VecNormalize``
    does by
    default: ``clip_reward``): a clipped corrected reward is biased again.

    A vector version of the wrapper exists: ``wmrl_envs.wrappers.vector.CorrectionWrapper``.

    ``info["wmrl"]`` gains ``anchor_probability``, ``lambda`` and ``alpha`` (in other schemes than ``"rectified"``
    ``weight`` instead), ``calibrated_reward`` and ``corrected_return``, what the episode has paid so far.

    Example:
        >>> import gymnasium as gym
        >>> from wmrl_envs.wrappers import WorldModelWrapper
        >>> def guess(observations, actions, next_observations, infos):
        ...     return [0.7] * len(infos)
        >>> env = CorrectionWrapper(WorldModelWrapper(gym.make("CartPole-v1"), guess, run="example"), run="example")
        >>> _, info = env.reset(seed=0, options={"anchor": False})
        >>> _, reward, *_ = env.step(0)
        >>> round(reward, 6), info["wmrl"]["lambda"]
        (0.7, 1.0)
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
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
        """Wrap an environment that is under a ``WorldModelWrapper``.

        Args:
            env: The environment.
            anchor_fraction: Share of episodes (or groups) to execute, in [0, 1]; schemes that fix it ignore this.
            scheme: ``"rectified"``, ``"paper"``, ``"debias"``, ``"denoise"``, ``"mixed"``, ``"world-model"``,
                ``"real"`` or ``"anchors-only"`` (as ``"real"``: make only as many sub-environments as there would be
                anchors).
            ramp: Share of training, at most 0.3 as a rule, over which alpha rises from the anchors' probability to 1,
                told by
                ``set_progress``; 0 is alpha = 1 throughout.
            scale: How group-aware agents bring each stream to its group's scale: ``"standardise"`` or ``"centre"``.
            spread_bins: Number of bins of the world model's own spread with a lambda each, for group-aware agents;
                ``None`` is one lambda.
            fixed_lambda: Lambda for ever, in [0, 1.5]; ``None`` learns it.
            calibration: Arguments of ``OnlineDebiaser`` as a mapping, ``"paper"`` for the paper's, ``None`` for ours.
            run: Environments with another name share nothing.
            training: False freezes the correction, draws no anchors and charges nothing, as in evaluations.
            seed: Seeds the draw of the anchors. It is not drawn anew by ``reset(seed=...)``, which may repeat.

        Raises:
            ConfigurationError: If an argument is out of range, or no ``WorldModelWrapper`` is below.
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
        gym.Wrapper.__init__(self, env)
        self._guard = ProcessGuard(type(self).__name__)
        below = find_world_model_wrapper(env, WorldModelWrapper, "wmrl_envs.wrappers")
        self._set_up(env, below, run=run, training=training, **settings)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Passed on.
            options: ``{"anchor": bool}`` decides whether the episode is an anchor, without a draw; all else is passed
                on.
        """
        self._guard.check()
        forced = None
        if options is not None and "anchor" in options:
            options = dict(options)
            forced = slot_flags(options.pop("anchor"), 1, 1)
        self._core.begin(_ALL, forced)
        observation, info = self.env.reset(seed=seed, options=options)
        batch: dict[str, Any] = {}
        annotate(batch, self._core.frozen(), _ONE, known=True)
        info["wmrl"] |= single_info(batch)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step and pay its corrected reward."""
        self._guard.check()
        self._core.draw_ahead(_ALL)
        observation, _, terminated, truncated, info = self.env.step(action)
        streams = self._below.core.streams
        rewards, shown = self._core.settle(streams)
        batch: dict[str, Any] = {}
        annotate(batch, shown, _ONE, known=False)
        info["wmrl"] |= single_info(batch) | {"ungraded": bool(self._core.left_out(streams)[0])}
        return observation, float(rewards[0]), terminated, truncated, info

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to travel to another process."""
        raise self._guard.error()
