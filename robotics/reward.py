"""A progress model as the reward of ``WorldModelWrapper``: an episode's frames in, one number out.

- ``ProgressReward`` - the reward of a rollout from its video, if wanted corrected by the labels seen so far.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, did_you_mean
from wmrl_envs.robotics.label_memory import AdaptiveModel, LabelMemory
from wmrl_envs.robotics.label_residual import LabelResidual
from wmrl_envs.robotics.progress import (
    Progress,
    ProgressModel,
    RewardKind,
    Video,
    resolve_progress_model,
    score_videos,
    spaced_frames,
    trajectory_reward,
)

__all__ = ["ProgressReward"]

Episodes = Sequence[Sequence[Any]]


class ProgressReward:
    """Rewards whole episodes by their progress, as ``WorldModelWrapper(env, reward, per="episode")`` asks.

    With ``learn`` it also takes in the labels of the anchor episodes, so that later episodes are predicted better: a
    model that can ``adapt`` goes on learning (a copy of it does), and of any other one what it gets wrong about
    rollouts that it describes alike is corrected for. It is a prediction all the same, corrected further up as such.

    Attributes:
        model: The progress model.
        scores: What it said of the episodes that were judged last, in their order.
    """

    def __init__(
        self,
        model: str | ProgressModel,
        *,
        kind: RewardKind = "shaped",
        frames: int = 8,
        image: str = "image",
        learn: bool = False,
        model_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Build the reward.

        Args:
            model: A progress model, or its name as ``resolve_progress_model`` takes it.
            kind: What becomes of the scores; see ``trajectory_reward``.
            frames: Frames of an episode that the model is shown, evenly spaced, at least 1 (arXiv 2608.12564 takes 8).
            image: Key of the observation that holds the image.
            learn: Whether labels correct later predictions.
            model_kwargs: Arguments of a model that is named.

        Raises:
            ConfigurationError: If an argument cannot work.
        """
        valid = get_args(RewardKind)
        if kind not in valid:
            raise ConfigurationError(f"kind must be one of {valid}, got {kind!r}.{did_you_mean(str(kind), valid)}")
        if isinstance(frames, bool) or not isinstance(frames, int | np.integer) or frames < 1:
            raise ConfigurationError(f"frames must be a whole number of at least 1, got {frames!r}")
        self.model = resolve_progress_model(model, **(model_kwargs or {}))
        self._kind: RewardKind = kind
        self._frames, self._image = int(frames), image
        self.scores: list[Progress | None] = []
        self._memory: LabelMemory | None = None
        self._residual: LabelResidual | None = None
        if learn and isinstance(self.model, AdaptiveModel):
            self.model = copy.deepcopy(self.model)
            self._memory = LabelMemory(self.model)
        elif learn:
            self._residual = LabelResidual()

    def __call__(
        self, observations: Episodes, actions: Episodes, next_observations: Episodes, infos: Episodes
    ) -> list[float | None]:
        """Return the rewards of n episodes, ``None`` where the model could not score one.

        Args:
            observations: n episodes of single observations before each step.
            actions: Not read.
            next_observations: n episodes of single observations after each step.
            infos: Not read.
        """
        self.scores, instructions, rewards = self._scored(*self._videos(observations, next_observations))
        return rewards if self._residual is None else self._residual.corrected(self.scores, instructions, rewards)

    def observe(
        self,
        observations: Episodes,
        actions: Episodes,
        next_observations: Episodes,
        infos: Episodes,
        labels: Sequence[float],
    ) -> None:
        """Take in the real rewards of n episodes, if learning; episodes as they were scored."""
        if self._memory is not None:
            self._memory.learn(*self._videos(observations, next_observations), labels)
        elif self._residual is not None:
            self._residual.learn(*self._scored(*self._videos(observations, next_observations)), labels)

    def state_dict(self) -> dict[str, Any]:
        """Return the labels seen so far, JSON-able and exact."""
        learner = self._residual if self._memory is None else self._memory
        return {} if learner is None else {"labels": learner.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned."""
        learner = self._residual if self._memory is None else self._memory
        if learner is not None and "labels" in state:
            learner.load_state_dict(state["labels"])

    def video(self, observations: Sequence[Any], next_observations: Sequence[Any]) -> Video:
        """Return the frames of one episode that the model is shown, uint8 [frames, H, W, 3]."""
        seen: list[NDArray[np.uint8]] = [observations[0][self._image]]
        seen += [observation[self._image] for observation in next_observations]
        return np.stack([seen[number] for number in spaced_frames(len(seen), self._frames)])

    def _videos(self, observations: Episodes, next_observations: Episodes) -> tuple[list[Video], list[str]]:
        for key in (self._image, "instruction"):
            if key not in observations[0][0]:
                raise ConfigurationError(
                    f"the observations have no {key!r}, they have {sorted(observations[0][0])}; a progress reward "
                    "needs an image and an instruction"
                )
        videos = [self.video(before, after) for before, after in zip(observations, next_observations, strict=True)]
        return videos, [episode[0]["instruction"] for episode in observations]

    def _scored(
        self, videos: list[Video], instructions: list[str]
    ) -> tuple[list[Progress | None], list[str], list[float | None]]:
        scores = score_videos(self.model, videos, instructions)
        return (
            scores,
            instructions,
            [None if found is None else trajectory_reward(found, self._kind) for found in scores],
        )
