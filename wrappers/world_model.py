"""Wrapper that replaces an expensive real reward by a model's prediction.

- ``WorldModelWrapper`` - routes an environment's grading to a world model, or replaces its reward by a model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from wmrl_envs.correction import Ledger
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.wrappers._grading import GradingCore
from wmrl_envs.wrappers._labelling import LabellingCore
from wmrl_envs.wrappers._processes import ProcessGuard
from wmrl_envs.wrappers._streams import Mask, batch_info, single_info
from wmrl_envs.wrappers._turn import GradedTurn
from wmrl_envs.wrappers._world_model import AnchorFeedback, Per, build_core, recorded_kwargs

__all__ = ["WorldModelWrapper"]

_ALL = np.ones(1, np.bool_)
_ONE = Mask(_ALL)


class WorldModelWrapper(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Replaces an environment's expensive real reward by a predicted one.

    There are two modes, told apart by whether the environment has a grader:

    - *Replaces execution* (the AutoResearch environments): solutions are graded by the world model, so that reward and
      feedback are predicted. In an anchor episode they are executed as well, and the prediction is made beside it.
    - *Replaces the label* (any other environment): the environment is stepped as it is, but its reward and the info
      keys in
      ``withhold`` are kept back unless the episode is an anchor, and a model's reward is given. The episode must not
      end early because of what is withheld: use a fixed horizon, or the label leaks through the length. What other
      wrappers below derive from the reward (``"episode"`` of ``RecordEpisodeStatistics``) leaks it too: withhold it.

    Which episodes are anchors is for ``CorrectionWrapper`` to draw, which goes around this wrapper;
    ``reset(options={"anchor": True})`` asks for one by hand. Wrapped environments of one process with equal id,
    settings and
    ``run`` share the world model and the ledger.

    A vector version of the wrapper exists: ``wmrl_envs.wrappers.vector.WorldModelWrapper``.

    ``info["wmrl"]`` has ``group``, ``anchor`` and ``ungraded``; after a turn ``predicted_reward``, in executed episodes
    ``real_reward`` (the turn's before the last step, at it the episode's), and the ``outcome`` that was shown. What is
    unknown has no key.

    Example:
        >>> import gymnasium as gym
        >>> def uprightness(observations, actions, next_observations, infos):
        ...     return 1.0 - abs(next_observations[:, 2])
        >>> env = WorldModelWrapper(gym.make("CartPole-v1"), uprightness, run="example")
        >>> _, info = env.reset(seed=0)
        >>> _, reward, *_ = env.step(0)
        >>> 0.9 < reward < 1.0
        True
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        world_model: Any = "learned",
        *,
        anchor_feedback: AnchorFeedback = "real",
        withhold: Sequence[str] = (),
        per: Per = "step",
        max_rescues: int | None = None,
        run: str = "default",
        world_model_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Wrap an environment.

        Args:
            env: The environment; other wrappers that change the reward go around this one, not under it.
            world_model: Where execution is replaced a grader, or its name (``"learned"``, ``"replay"``,
                ``"package.module:attribute"``). Where the label is replaced a callable on (observations, actions,
                next_observations, infos), or its ``"package.module:attribute"``. Per step the first three are batches
                as Gymnasium's vector environments stack them, and infos a list of dictionaries without what is
                withheld; per episode each is a list with one list over the turns per episode. It returns one number
                per transition or episode, or None where it can judge nothing.
            anchor_feedback: What the agent sees in an anchor episode where execution is replaced: ``"real"`` or
                ``"predicted"``. The corrected reward is unbiased for the episodes of both kinds alike only with
                ``"predicted"`` or with episodes of one turn; ``"real"`` shows the agent what really happened.
            withhold: Info keys that are kept back beside the reward.
            per: Whether a model that replaces the label judges each ``"step"`` or each whole ``"episode"`` at its end.
            max_rescues: Most episodes under way at once that are executed because their prediction failed; 0 leaves
                them ungraded, ``None`` is a tenth of the sub-environments, at least 1 (with groups 0).
            run: Environments with another name share nothing.
            world_model_kwargs: Arguments for a world model given by name.

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
        gym.Wrapper.__init__(self, env)
        self._guard = ProcessGuard(type(self).__name__)
        self._withhold = tuple(withhold)
        spaces: dict[str, Any] = {"observation_space": env.observation_space, "action_space": env.action_space}
        self.core, self.shared = build_core(env, world_model, **settings, **spaces)
        self._observation: Any = None

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

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Passed on.
            options: ``{"anchor": bool}`` decides whether the episode is an anchor; everything else is passed on.
        """
        self._guard.check()
        if options is not None and "anchor" in options:
            options = dict(options)
            self.core.mark(_ALL, np.full(1, _as_flag(options.pop("anchor"))))
        self.core.prepare()
        observation, info = self.env.reset(seed=seed, options=options)
        self.core.begin(_ALL)
        self.core.name_groups(_ALL, getattr(self.unwrapped, "groups", None))
        self._observation = observation
        info = dict(info)
        self._keep_back(info)
        info["wmrl"] = single_info(batch_info(None, self.core.group, self.core.anchor, _ONE))
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step whose reward is predicted (in an anchor episode real).

        Raises:
            WorldModelError: If the world model fails, or returns something that is no prediction.
            GradingError: If it returns the wrong number of predictions.
        """
        self._guard.check()
        observation, reward, terminated, truncated, info = self.env.step(action)
        done = np.array([terminated or truncated])
        info = dict(info)
        core = self.core
        if isinstance(core, GradingCore):
            streams = core.finish(_ALL, done)
        else:
            assert isinstance(core, LabellingCore)
            bare = {key: value for key, value in info.items() if key not in self._withhold}
            own = np.array([reward], np.float64)
            streams = core.finish(_ALL, done, own, [self._observation], [action], [observation], [bare])
            if not streams.executed[0]:
                reward = float(np.nan_to_num(streams.predicted[0]))
            self._keep_back(info)
        self._observation = observation
        info["wmrl"] = single_info(batch_info(streams, core.group, core.anchor, _ONE, _ONE))
        return observation, float(reward), terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """Return the episode under way, the ledger and the world model's state, JSON-able and exact.

        The environment's own state is not in it. An episode that a model judges as a whole is not saved: after loading
        in the middle of one it counts as not predicted.
        """
        return {"slots": self.core.state_dict(), "shared": self.shared.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned; the other wrappers of the run see the shared part too."""
        self.shared.load_state_dict(state["shared"])
        self.core.load_state_dict(state["slots"])

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to travel to another process."""
        raise self._guard.error()

    def _keep_back(self, info: dict[str, Any]) -> None:
        if self._withhold and not self.core.executing[0]:
            for key in self._withhold:
                info.pop(key, None)


def _as_flag(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise ConfigurationError(f"options['anchor'] must be True or False, got {value!r}")
