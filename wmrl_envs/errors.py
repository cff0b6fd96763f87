"""The errors a user meets, one flat hierarchy.

An infrastructure failure (the harness broke, a server was away) is one of these exceptions, or ``None`` in the place of
one member of a batch. It is never a low reward: a reward says something about the solution, an error says something
about us.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

__all__ = [
    "CheckpointError",
    "ConfigurationError",
    "DatasetError",
    "GradingError",
    "IsolationError",
    "MissingExtraError",
    "ProgressModelError",
    "RecordingError",
    "RenderModeError",
    "RenderingError",
    "SandboxError",
    "TaskError",
    "UnknownTaskError",
    "WMRLError",
    "WorldModelError",
    "check_settings",
    "did_you_mean",
]


class WMRLError(Exception):
    """Base class of every error that this package raises on purpose."""


class ConfigurationError(WMRLError, ValueError):
    """An argument or a combination of arguments that cannot work."""


class RenderModeError(ConfigurationError, TypeError):
    """A render mode that an environment does not have.

    It is a TypeError as well because stable-baselines3's ``make_vec_env`` asks every environment for ``"rgb_array"``
    and takes a TypeError for the answer that it must do without.
    """


class TaskError(WMRLError):
    """A task folder that is incomplete, unreadable or contradicts itself."""


class UnknownTaskError(TaskError):
    """A task name that is neither bundled nor the path of a task folder."""


class GradingError(WMRLError):
    """A grader that broke its contract, such as the wrong number of outcomes for a batch."""


class SandboxError(WMRLError):
    """The harness around a solution failed; nothing is known about the solution."""


class IsolationError(SandboxError):
    """This machine cannot isolate other people's code as strictly as was asked for."""


class RecordingError(SandboxError):
    """A table of recorded executions is missing, damaged, or does not hold the solution asked for."""


class WorldModelError(WMRLError):
    """A world model that is unreachable, unfitted, or returns something that is no prediction."""


class RenderingError(WMRLError):
    """Nothing can be drawn on this machine: the message names the system package that is missing."""


class ProgressModelError(WorldModelError):
    """A progress model that is unreachable, or returns something that is no progress of the videos it was given."""


class CheckpointError(WMRLError):
    """A checkpoint that is missing, damaged, or belongs to another configuration."""


class DatasetError(WMRLError):
    """A dataset of rollouts that is missing, damaged, or was written by something else."""


class MissingExtraError(WMRLError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


def did_you_mean(value: str, valid: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` (with a leading space) for the closest valid name, or an empty string."""
    close = difflib.get_close_matches(value, list(valid), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def check_settings(names: Iterable[str], known: Sequence[str]) -> None:
    """Refuse a name that is no setting.

    Raises:
        ConfigurationError: It names the known ones and the closest.
    """
    for name in names:
        if name not in known:
            raise ConfigurationError(f"unknown setting {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}")
