"""What a solution may use while it runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from wmrl_envs.errors import ConfigurationError, did_you_mean

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one execution of a solution may use; whatever it reaches first ends it.

    Raises:
        ConfigurationError: If a limit is no finite number, not positive (``processes`` may be 0) or, where it counts
            something, no whole number.
    """

    seconds: float = 10.0
    """CPU seconds of the whole process tree."""
    wall_seconds: float | None = None
    """Wall-clock seconds; ``None`` means four times ``seconds`` plus five (read ``wall_limit``)."""
    memory_mb: int = 1024
    """Resident memory of the whole process tree, in MiB."""
    disk_mb: int = 200
    """What the scratch folder may hold, in MiB."""
    output_kb: int = 64
    """How much of stdout, and of stderr, is kept, in KiB; the rest is thrown away and the solution goes on."""
    processes: int = 0
    """How many processes the solution may start besides itself (threads are not counted)."""

    def __post_init__(self) -> None:
        """Refuse limits that no execution could keep or that are no numbers."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "wall_seconds" and value is None:
                continue
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if not number or value < 0 or (value == 0 and field.name != "processes"):
                least = "0 or more" if field.name == "processes" else "more than 0"
                raise ConfigurationError(f"limit {field.name!r} must be a number, {least}, got {value!r}")
            if field.type == "int" and value != int(value):
                raise ConfigurationError(f"limit {field.name!r} must be a whole number, got {value!r}")

    @property
    def wall_limit(self) -> float:
        """Wall-clock seconds after which the solution is ended.

        Looser than the CPU limit, so that a busy machine does not turn a solution within its means into a timeout.
        """
        return 4.0 * self.seconds + 5.0 if self.wall_seconds is None else float(self.wall_seconds)

    def override(self, changes: Mapping[str, object]) -> Limits:
        """Return these limits with some of them changed.

        Raises:
            ConfigurationError: If a name is no limit or a value cannot be one.
        """
        names = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise ConfigurationError(
                    f"unknown limit {name!r}; the limits are {', '.join(names)}.{did_you_mean(str(name), names)}"
                )
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]  # checked by __post_init__
