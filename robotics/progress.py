"""Progress models: how far a rollout has come with its task, seen from its video and the instruction.

- ``ProgressModel`` - scores videos frame by frame.
- ``trajectory_reward`` - one number per rollout, from its frames' scores.
- ``resolve_progress_model`` - a model by its name.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, ProgressModelError, did_you_mean

__all__ = [
    "Progress",
    "ProgressModel",
    "RewardKind",
    "Video",
    "check_scores",
    "check_videos",
    "resolve_progress_model",
    "score_videos",
    "spaced_frames",
    "trajectory_reward",
]

Video: TypeAlias = NDArray[np.uint8]
"""Frames of one rollout in order, uint8 [T, H, W, 3], red first, upright."""
RewardKind = Literal["shaped", "final", "max", "success"]


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """What a progress model says about one video of T frames."""

    progress: NDArray[np.float32]
    """[T] how much of the task is done at each frame, in [0, 1]."""
    success: NDArray[np.float32] | None = None
    """[T] probability that the task is solved at each frame, in [0, 1]; ``None`` where the model has no such head."""
    features: NDArray[np.float32] | None = None
    """[d] the model's own description of the rollout, each entry about of mean 0 and spread 1 over its training data;
    ``None`` where it gives none."""


@runtime_checkable
class ProgressModel(Protocol):
    """Scores videos of rollouts.

    A model may also have ``max_frames`` (the most frames it reads at once) and ``close()``.
    """

    def score(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
        """Score n videos.

        Args:
            videos: n arrays uint8 [T, H, W, 3]; their T, H and W may differ.
            instructions: n sentences, what the robot was told to do.

        Returns:
            One ``Progress`` per video, with one score per frame; ``None`` where the model cannot say.

        Raises:
            ProgressModelError: If the model is unreachable.
        """
        ...


def check_videos(videos: Sequence[Any], instructions: Sequence[Any]) -> None:
    """Refuse what cannot be scored, before a model sees it.

    Raises:
        ConfigurationError: It names the video, what it is and what it must be.
    """
    if len(videos) != len(instructions):
        raise ConfigurationError(f"{len(videos)} videos came with {len(instructions)} instructions; give one for each")
    for index, (video, instruction) in enumerate(zip(videos, instructions, strict=True)):
        if not isinstance(instruction, str) or not instruction.strip():
            raise ConfigurationError(
                f"instruction {index} is {instruction!r}; say in words what the robot was to do, such as 'open the "
                "drawer'"
            )
        shape, dtype = getattr(video, "shape", None), getattr(video, "dtype", None)
        if shape is None or len(shape) != 4 or shape[3] != 3 or dtype != np.uint8:
            found = f"{dtype} {list(shape)}" if shape is not None else type(video).__name__
            raise ConfigurationError(f"video {index} is {found}; a video is a uint8 array [frames, height, width, 3]")
        if 0 in shape:
            raise ConfigurationError(f"video {index} is empty ({list(shape)}); it needs at least one frame")


def score_videos(model: ProgressModel, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
    """Ask a progress model, and check question and answer.

    A video whose scores are not all finite counts as not scored: ``None``, with a warning.

    Raises:
        ConfigurationError: If a video or an instruction cannot be scored.
        ProgressModelError: If the model fails, or returns another number of videos or frames than it was asked for, or
            scores outside [0, 1].
    """
    check_videos(videos, instructions)
    if not videos:
        return []
    name = type(model).__name__
    try:
        answer = list(model.score(videos, instructions))
    except (ConfigurationError, ProgressModelError):
        raise
    except Exception as error:
        raise ProgressModelError(f"the progress model {name} failed: {type(error).__name__}: {error}") from error
    return check_scores(name, answer, videos)


def check_scores(name: str, scores: Sequence[Any], videos: Sequence[Video]) -> list[Progress | None]:
    """Check what a progress model returned.

    A video whose scores are not all finite counts as not scored: ``None``, with a warning.

    Args:
        name: Of the model, for messages.
        scores: What it returned.
        videos: What it was asked about.

    Raises:
        ProgressModelError: If there is not one ``Progress`` or ``None`` per video, with one score in [0, 1] per frame.
    """
    if len(scores) != len(videos):
        raise ProgressModelError(
            f"{name}.score returned {len(scores)} scores for {len(videos)} videos; it must return one each, in order, "
            "with None where it cannot say"
        )
    return [_checked(name, i, found, len(video)) for i, (found, video) in enumerate(zip(scores, videos, strict=True))]


def spaced_frames(length: int, count: int) -> NDArray[np.intp]:
    """Return ``count`` frame numbers spaced evenly over a video, first and last included; [count].

    In a video of fewer frames the nearest ones repeat (arXiv 2608.12564).

    Raises:
        ConfigurationError: If either is below 1.
    """
    if length < 1 or count < 1:
        raise ConfigurationError(f"a video of {length} frames cannot be read at {count} of them; both are at least 1")
    return np.rint(np.linspace(0, length - 1, count)).astype(np.intp)


def trajectory_reward(scores: Progress, kind: RewardKind = "shaped") -> float:
    """Return a rollout's reward from the scores of its frames.

    Args:
        scores: Of T frames.
        kind: ``"shaped"`` is mean(last 3 progress scores) - mean(first 3), in [-1, 1], to which potential-based shaping
            telescopes (arXiv 2608.12564); ``"final"`` the last progress score, ``"max"`` the highest (it rewards
            touching a good state and failing then), ``"success"`` the mean success probability of the last 3 frames;
            all of them in [0, 1].

    Raises:
        ConfigurationError: If the kind is unknown, or the model gave no success probabilities.
    """
    if kind == "shaped":
        return float(scores.progress[-3:].mean() - scores.progress[:3].mean())
    if kind == "final":
        return float(scores.progress[-1])
    if kind == "max":
        return float(scores.progress.max())
    if kind == "success":
        if scores.success is None:
            raise ConfigurationError(
                "the reward 'success' needs a progress model with success probabilities; this one gives progress "
                "alone: take 'shaped' or 'final'"
            )
        return float(scores.success[-3:].mean())
    valid = get_args(RewardKind)
    raise ConfigurationError(f"reward kind must be one of {valid}, got {kind!r}.{did_you_mean(str(kind), valid)}")


def resolve_progress_model(model: str | ProgressModel, **kwargs: Any) -> ProgressModel:
    """Return a progress model by its name; an object that scores videos passes through.

    Args:
        model: ``"video:FOLDER"`` (the small model of this package, as ``wmrl progress train`` leaves it),
            ``"robometer:FOLDER"`` (a checkpoint in Robometer-4B's layout), ``"http://HOST:PORT"`` (a server that
            ``wmrl progress serve`` started), or one's own as ``"package.module:attribute"``.
        kwargs: Arguments of the model's constructor.

    Raises:
        ConfigurationError: If there is no such model, or arguments came with an object.
    """
    if not isinstance(model, str):
        if not hasattr(model, "score"):
            raise ConfigurationError(f"{type(model).__name__} has no method score(videos, instructions)")
        if kwargs:
            raise ConfigurationError(f"arguments {sorted(kwargs)} came with a progress model that is an object already")
        return model
    scheme, separator, rest = model.partition(":")
    if scheme in ("http", "https"):
        from wmrl_envs.robotics.progress_client import HTTPProgressModel

        return HTTPProgressModel(model, **kwargs)
    if scheme == "video" and rest:
        from wmrl_envs.robotics.video_model import VideoProgressModel

        return VideoProgressModel.load(Path(rest), **kwargs)
    if scheme == "robometer" and rest:
        from wmrl_envs.robotics.robometer import Robometer

        return Robometer.load(Path(rest), **kwargs)
    if separator and rest:
        return _imported(scheme, rest, kwargs)
    raise ConfigurationError(
        f"unknown progress model {model!r}; name one as 'video:FOLDER', 'robometer:FOLDER', 'http://HOST:PORT' or "
        f"'package.module:attribute'.{did_you_mean(scheme, ('video', 'robometer', 'http'))}"
    )


def _imported(module: str, attribute: str, kwargs: dict[str, Any]) -> ProgressModel:
    try:
        found: Any = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"cannot import the progress model {module}:{attribute}: {error}; name one as 'video:FOLDER', "
            "'robometer:FOLDER', 'http://HOST:PORT' or 'package.module:attribute'."
            f"{did_you_mean(module, ('video', 'robometer', 'http'))}"
        ) from error
    return resolve_progress_model(found(**kwargs) if isinstance(found, type) or kwargs else found)


def _checked(name: str, index: int, found: Any, frames: int) -> Progress | None:
    if found is None:
        return None
    if not isinstance(found, Progress):
        raise ProgressModelError(f"{name}.score returned {type(found).__name__} for video {index}, no Progress")
    if found.features is not None and np.ndim(found.features) != 1:
        raise ProgressModelError(
            f"{name}.score returned features of shape {list(np.shape(found.features))} for video {index}; a rollout is "
            "described by one row of numbers, or by None"
        )
    for kind, values in (("progress", found.progress), ("success", found.success), ("features", found.features)):
        if values is None:
            continue
        if kind != "features" and np.shape(values) != (frames,):
            raise ProgressModelError(
                f"{name}.score returned {kind} of shape {list(np.shape(values))} for video {index} of {frames} frames; "
                "it must return one number per frame"
            )
        if not np.isfinite(values).all():
            warnings.warn(
                f"{name} scored video {index} with {kind} that are not all finite numbers; it counts as not scored, so "
                "that the rollout is labelled or left out",
                RuntimeWarning,
                stacklevel=3,
            )
            return None
        if kind != "features" and (np.min(values) < 0.0 or np.max(values) > 1.0):
            raise ProgressModelError(
                f"{name}.score returned {kind} in [{np.min(values):g}, {np.max(values):g}] for video {index}; it must "
                "be in [0, 1]"
            )
    return found
