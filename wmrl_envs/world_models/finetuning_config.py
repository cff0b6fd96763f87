"""The settings with which a language model is fine-tuned on recorded executions."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from wmrl_envs.errors import ConfigurationError, check_settings, did_you_mean
from wmrl_envs.world_models.recorded import DRAWS
from wmrl_envs.world_models.training_pairs import ANSWERS

__all__ = ["DTYPES", "FinetuneConfig"]

DTYPES = ("float32", "bfloat16")
"""What the passes through the model are computed in."""

_OPTIONAL = ("lora_rank", "last_layers", "max_steps")


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """What a fine-tuned world model is made of; written to its folder, and enough to repeat it."""

    base: str
    """The model to start from: a folder as `save_pretrained` writes it, a .gguf file, or a hub's name."""
    tasks: tuple[str, ...]
    """Recorded tasks to learn from: bundled names, or paths of task folders."""
    held_out: tuple[str, ...] = ()
    """Recorded tasks that are never trained on and tell what was learned; empty measures nothing."""
    examples_per_task: int = 150
    """Executed solutions of each task, at most: a cap, so that tasks of which much is recorded do not drown others."""
    held_out_examples: int = 40
    """Executed solutions of each held-out task that the loss is measured on."""
    draw: str = "prior"
    """``prior`` draws solutions as an untrained policy would, ``uniform`` each recorded one alike."""
    answer: str = "word"
    """``word`` teaches the verdict, ``json`` the whole object, ``both`` either as it is asked."""
    templates: str = "compact"
    """Prompt templates by name or folder; the world model must be given the same."""
    lora_rank: int | None = 16
    """Rank of the low-rank updates of all linear layers; None trains all weights."""
    last_layers: int | None = None
    """Train only so many layers, those nearest the output; None trains all. A third of the layers costs, without LoRA,
    two thirds of the time."""
    learning_rate: float = 5e-4
    """Peak step size, reached after a twentieth of the steps and falling linearly to zero. Training all weights wants a
    tenth of what LoRA does."""
    epochs: float = 1.0
    """Passes through the examples."""
    max_steps: int | None = None
    """Optimiser steps, in place of ``epochs``."""
    batch_size: int = 8
    """Examples per optimiser step."""
    micro_batch_size: int = 1
    """Examples that pass through the model at once, a divisor of ``batch_size``. 1 pads nothing, which is fastest on a
    CPU; more fills a GPU."""
    max_length: int = 4096
    """Longest example in tokens; longer ones are left out and counted."""
    dtype: str = "float32"
    """One of ``DTYPES``. Updates are kept in float32 either way."""
    gradient_checkpointing: bool = False
    """Whether activations are computed twice instead of kept: less memory, a third more time."""
    checkpoint_every: int = 50
    """Optimiser steps between checkpoints."""
    seed: int = 0
    """Seeds the draw of the solutions, their order, and the first values of the low-rank updates."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, before anything is loaded."""
        for name in ("tasks", "held_out"):  # lists come from JSON
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.tasks:
            raise ConfigurationError("tasks must name at least one recorded task to learn from")
        for name, valid in (("draw", DRAWS), ("answer", tuple(ANSWERS)), ("dtype", DTYPES)):
            value = getattr(self, name)
            if value not in valid:
                raise ConfigurationError(
                    f"{name} {value!r} is unknown; it is one of {', '.join(valid)}.{did_you_mean(str(value), valid)}"
                )
        counts = ["examples_per_task", "held_out_examples", "batch_size", "micro_batch_size", "max_length"]
        counts += [
            "checkpoint_every",
            *(name for name in _OPTIONAL if getattr(self, name) is not None),
        ]
        for name in counts:
            if isinstance(value := getattr(self, name), bool) or not isinstance(value, int) or value < 1:
                raise ConfigurationError(f"{name} must be a whole number of at least 1, got {value!r}")
        for name in ("learning_rate", "epochs"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigurationError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if self.batch_size % self.micro_batch_size:
            raise ConfigurationError(
                f"micro_batch_size must divide batch_size, got {self.micro_batch_size} and {self.batch_size}"
            )
        if self.seed < 0:
            raise ConfigurationError(f"seed must be at least 0, got {self.seed}")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> FinetuneConfig:
        """Read a configuration back; unknown names are an error that lists the known ones."""
        check_settings(values, [f.name for f in fields(cls)])
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as JSON-able values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
