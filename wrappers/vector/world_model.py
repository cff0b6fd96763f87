"""The batched twin of ``wmrl_envs.wrappers.WorldModelWrapper``.

- ``WorldModelWrapper`` - one call of the world model, and one of the sandbox, for all sub-environments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from wmrl_envs.correction import Ledger
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.wrappers._autoreset import autoreset_mode, slot_flags, slots_to_reset
from wmrl_envs.wrappers._grading import GradingCore
from wmrl_envs.wrappers._labelling import LabellingCore, unbatched
from wmrl_envs.wrappers._processes import ProcessGuard
from wmrl_envs.wrappers._streams import BoolArray, FloatArray, Mask, Streams, batch_info
from wmrl_envs.wrappers._turn import GradedTurn
from wmrl_envs.wrappers._world_model import AnchorFeedback, Per, build_core, recorded_kwargs
from wmrl_envs.wrappers.vector._infos import keep_back, slot_infos

__all__ = ["WorldModelWrapper"]


class WorldModelWrapper(VectorWrapper[Any, Any, Any, Any, Any], RecordConstructorArgs):
    """Replaces a vector environment's expensive real rewards by predicted ones.

    See ``wmrl_envs.wrappers.WorldModelWrapper`` for the two modes and the infos. Whatever the autoreset mode, the
    dummy step of next-step autoreset is not judged, and under same-step autoreset the last turn stands in
    ``final_info``.

    Example:
        >>> import gymnasium as gym
        >>> def uprightness(observations, actions, next_observations, infos):
        ...     return 1.0 - abs(next_observations[:, 2])
        >>> envs = WorldModelWrapper(gym.make_vec("CartPole-v1", num_envs=3), uprightness, run="example")
        >>> _ = envs.reset(seed=0)
        >>> _, rewards, *_, infos = envs.step(envs.action_space.sample())
        >>> infos["wmrl"]["anchor"].tolist(), bool((rewards < 1.0).all())
        ([False, False, False], True)
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        world_model: Any = "learned",
        *,
        anchor_feedback: AnchorFeedback = "real",
        withhold: Sequence[str] = (),
        per: Per = "step",
        max_rescues: int | None = None,
        run: str = "default",
        world_model_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Wrap a vector environment; the arguments are those of the single wrapper.

        Raises:
            ConfigurationError: If an argument is unknown or does not fit the environment.
        """
        settings: dict[str, Any] = {
            "anchor_feedback": anchor_feedback,
            "withhold": tuple(withhold),
            "per": per,
            "max_rescues": max_rescues,
            "run": run,
            "world_model_kwargs": world_model_kwargs,
        }
        RecordConstructorArgs.__init__(self, **recorded_kwargs(world_model, **settings))
        VectorWrapper.__init__(self, env)
        self._guard = ProcessGuard(type(self).__name__)
        self._mode = autoreset_mode(env)
        self._withhold = tuple(withhold)
        spaces: dict[str, Any] = {
            "observation_space": env.single_observation_space,
            "action_space": env.single_action_space,
        }
        self.core, self.shared = build_core(env, world_model, **settings, **spaces)
        if self.core.n != env.num_envs:
            raise ConfigurationError(
                f"{env.unwrapped} has {self.core.n} slots, but {env.num_envs} sub-environments are stepped"
            )
        self._all = np.ones(self.core.n, np.bool_)
        self._every = Mask(self._all)
        self._over = np.zeros(self.core.n, np.bool_)
        self._observations: Any = None

    @property
    def world_model(self) -> Any:
        """The world model of the run."""
        return self.shared.predictor.model

    @property
    def ledger(self) -> Ledger:
        """What the run executed and predicted, and what it cost."""
        self.core.charge()
        return self.shared.ledger

    @property
    def last_turn(self) -> GradedTurn | None:
        """What the last turn submitted, with predicted and real outcomes; ``None`` where the label is replaced."""
        return self.core.last_turn if isinstance(self.core, GradingCore) else None

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes.

        Args:
            seed: Passed on.
            options: ``{"anchor": bool or bool [n]}`` decides whether the episodes are anchors; everything else is
                passed on.
        """
        self._guard.check()
        core = self.core
        slots = slots_to_reset(options, core.n)
        if options is not None:
            options = dict(options)  # the environment below may take keys out
            if "anchor" in options:
                core.mark(slots, slot_flags(options.pop("anchor"), core.n, core.group_size))
        core.prepare()
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]  # lists are fine
        core.begin(slots)
        core.name_groups(slots, getattr(self.unwrapped, "groups", None))
        self._over[slots] = False
        self._observations = observations
        infos = keep_back(infos, self._withhold, core.executing)
        infos["wmrl"], infos["_wmrl"] = batch_info(None, core.group, core.anchor, Mask(slots)), slots.copy()
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Take a step in every sub-environment; the rewards are predicted (in anchor episodes real).

        Raises:
            WorldModelError: If the world model fails, or returns something that is no prediction.
            GradingError: If it returns the wrong number of predictions.
        """
        self._guard.check()
        core = self.core
        resets = self._over
        dummy = self._mode is AutoresetMode.NEXT_STEP and bool(resets.any())
        if dummy:
            core.begin(resets)
        active = ~resets if dummy else self._all
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        done = terminations | truncations
        if dummy:
            core.name_groups(resets, getattr(self.unwrapped, "groups", None))
        if isinstance(core, GradingCore):
            streams = core.finish(active, done)
        else:
            streams, rewards = self._judge(active, done, rewards, actions, observations, infos)
        infos = dict(infos)
        turned = self._every if active is self._all else Mask(active)
        if self._mode is AutoresetMode.SAME_STEP and not streams.ended.none:
            final = keep_back(infos.get("final_info", {}), self._withhold, streams.executed)
            final["wmrl"] = batch_info(streams, streams.group, streams.anchor, streams.ended, streams.ended)
            final["_wmrl"], infos["_final_info"] = done.copy(), done.copy()
            infos["final_info"] = final
            core.begin(done)
            core.name_groups(done, getattr(self.unwrapped, "groups", None))
            turned = turned & Mask(~done)
        if self._withhold:
            infos = keep_back(infos, self._withhold, core.executing)
        infos["wmrl"], infos["_wmrl"] = (
            batch_info(streams, core.group, core.anchor, self._every, turned),
            self._all.copy(),
        )
        self._over = done
        self._observations = observations
        return observations, rewards, terminations, truncations, infos

    def state_dict(self) -> dict[str, Any]:
        """Return the episodes under way, the ledger and the world model's state, JSON-able and exact.

        The environment's own state is not in it. Episodes that a model judges as a whole are not saved: after loading
        in the middle of one it counts as not predicted.
        """
        return {"slots": self.core.state_dict(), "over": self._over.tolist(), "shared": self.shared.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned; the other wrappers of the run see the shared part too."""
        self.shared.load_state_dict(state["shared"])
        self.core.load_state_dict(state["slots"])
        self._over = np.array(state["over"], np.bool_)

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to travel to another process."""
        raise self._guard.error()

    def _judge(
        self,
        active: BoolArray,
        done: BoolArray,
        rewards: FloatArray,
        actions: Any,
        observations: Any,
        infos: dict[str, Any],
    ) -> tuple[Streams, FloatArray]:
        """Let the model judge a step of an environment without a grader; return the streams and the rewards to show."""
        core = self.core
        assert isinstance(core, LabellingCore)
        before = unbatched(self.observation_space, self._observations)
        after = unbatched(self.observation_space, observations)
        told = slot_infos(infos, core.n, (*self._withhold, "final_info", "final_obs"))
        if self._mode is AutoresetMode.SAME_STEP and done.any():
            ended = slot_infos(infos.get("final_info", {}), core.n, self._withhold)
            for slot in np.flatnonzero(done):
                after[slot], told[slot] = infos["final_obs"][slot], ended[slot]
        taken = unbatched(self.action_space, actions)
        streams = core.finish(active, done, np.asarray(rewards, np.float64), before, taken, after, told)
        shown = np.where(streams.executed, rewards, np.nan_to_num(streams.predicted))
        return streams, np.where(active, shown, 0.0)
