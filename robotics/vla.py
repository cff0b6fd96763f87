"""Vision-language-action policies: what they have in common, whatever their size.

- ``VLAPolicy`` - acts on what a vector environment observes.
- ``TrainableVLAPolicy`` - one whose actions have a differentiable probability, so that policy gradients can train it.
- ``resolve_policy`` - a policy by its name.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

__all__ = [
    "Observations",
    "TrainableVLAPolicy",
    "VLAPolicy",
    "check_actions",
    "check_generator",
    "check_observations",
    "resolve_policy",
]

Observations: TypeAlias = Mapping[str, Any]
"""What a vector environment of n slots observes, as Gymnasium batches it.

``image`` (and ``image2``, of a second camera): uint8 [n, H, W, 3], red first, upright; ``state``: float32 [n, d];
``instruction``: n sentences.
"""
_FORMS = "'small:FOLDER', 'lerobot:FOLDER', 'action-tokens:FOLDER' or 'package.module:attribute'"
_SCHEMES = ("small", "lerobot", "action-tokens")


@runtime_checkable
class VLAPolicy(Protocol):
    """Acts on images, state and an instruction."""

    def act(
        self, observations: Observations, *, deterministic: bool = False, generator: np.random.Generator | None = None
    ) -> NDArray[np.float32]:
        """Choose the actions of all slots.

        Args:
            observations: Of n slots; row i is always slot i.
            deterministic: Take the likeliest action, or what comes nearest to it, instead of drawing one.
            generator: Where draws come from; not needed if ``deterministic``.

        Returns:
            float32 [n, *action_shape], in the units of the environment's actions.

        Raises:
            ConfigurationError: If the observations are not what the policy acts on, or draws have no generator.
        """
        ...

    def reset(self, slots: Iterable[int] | None = None) -> None:
        """Forget what was planned for some slots, or for all of them: an episode begins there.

        Args:
            slots: Their numbers; ``None`` means all.
        """
        ...


@runtime_checkable
class TrainableVLAPolicy(VLAPolicy, Protocol):
    """A policy for policy gradients; a ``torch.nn.Module`` has all but ``act``, ``reset`` and ``log_prob``."""

    def log_prob(self, observations: Observations, actions: NDArray[np.float32] | Tensor) -> Tensor:
        """Return the log-probability (or log-density) of actions, with its gradient.

        Args:
            observations: Of n slots.
            actions: float32 [n, *action_shape], as ``act`` returned them.

        Returns:
            float32 [n]: the log-probability with which ``act`` draws each of them.

        Raises:
            ConfigurationError: If the observations or the actions have another shape than the policy's.
        """
        ...

    def parameters(self) -> Iterable[Parameter]:
        """Return what an optimiser is to change."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all weights by name, for a checkpoint."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Take weights that ``state_dict`` returned."""
        ...


def check_observations(observations: Observations) -> int:
    """Refuse observations that no policy can act on, before a model sees them.

    Returns:
        n, the number of slots.

    Raises:
        ConfigurationError: It names the entry, what it is and what it must be.
    """
    for key in ("image", "instruction"):
        if key not in observations:
            raise ConfigurationError(
                f"the observation has no {key!r}, only {sorted(observations)}; a policy needs 'image' (uint8) and "
                "'instruction' (a sentence)"
            )
    count = _image_count("image", observations["image"])
    if "image2" in observations and _image_count("image2", observations["image2"]) != count:
        raise ConfigurationError(f"{len(observations['image2'])} images of 'image2' came with {count} of 'image'")
    _check_instructions(observations["instruction"], count)
    if "state" in observations:
        _check_state(observations["state"], count)
    return count


def check_actions(actions: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return actions as float32, or refuse what is none of a policy's.

    Args:
        actions: Of n slots.
        shape: [n, *action_shape].

    Raises:
        ConfigurationError: If they have another shape, or are not all finite.
    """
    found = np.asarray(actions.detach().cpu() if hasattr(actions, "detach") else actions, dtype=np.float32)
    if found.shape != shape:
        raise ConfigurationError(f"actions have shape {list(found.shape)}; this policy's have {list(shape)} here")
    if not np.isfinite(found).all():
        raise ConfigurationError(f"actions of slots {_rows_not_finite(found)} are not finite numbers")
    return found


def check_generator(generator: np.random.Generator | None) -> np.random.Generator:
    """Return the generator that draws need, or refuse that there is none.

    Raises:
        ConfigurationError: If it is ``None``.
    """
    if generator is None:
        raise ConfigurationError(
            "sampled actions need generator=numpy.random.default_rng(seed); deterministic=True does without"
        )
    return generator


def resolve_policy(policy: str | VLAPolicy, **kwargs: Any) -> VLAPolicy:
    """Return a policy by its name; an object that acts passes through.

    Args:
        policy: ``"small:FOLDER"`` (the small policy of this package), ``"lerobot:FOLDER"`` (a checkpoint of LeRobot),
            ``"action-tokens:FOLDER"`` (a vision-language model of transformers that writes its actions as tokens, with
            ``dataset_statistics.json`` beside it), or one's own as ``"package.module:attribute"``.
        kwargs: Arguments of the policy's ``load``, or of one's own class or function.

    Raises:
        ConfigurationError: If there is no such policy, or arguments came with an object.
        MissingExtraError: If what it needs is not installed.
    """
    if not isinstance(policy, str):
        if not isinstance(policy, VLAPolicy):
            raise ConfigurationError(f"{type(policy).__name__} is no policy; it needs the methods act and reset")
        if kwargs:
            raise ConfigurationError(f"arguments {sorted(kwargs)} came with a policy that is an object already")
        return policy
    scheme, separator, rest = policy.partition(":")
    if scheme == "small" and rest:
        from wmrl_envs.robotics.policy import SmallVLA

        return SmallVLA.load(Path(rest), **kwargs)
    if scheme == "lerobot" and rest:
        from wmrl_envs.robotics.lerobot import LeRobotPolicy

        return LeRobotPolicy.load(Path(rest), **kwargs)
    if scheme == "action-tokens" and rest:
        from wmrl_envs.robotics.action_tokens import ActionTokenPolicy

        return ActionTokenPolicy.load(Path(rest), **kwargs)
    if separator and rest:
        return _imported(scheme, rest, kwargs)
    raise ConfigurationError(f"unknown policy {policy!r}; name one as {_FORMS}.{did_you_mean(scheme, _SCHEMES)}")


def _imported(module: str, attribute: str, kwargs: dict[str, Any]) -> VLAPolicy:
    try:
        found: Any = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"cannot import the policy {module}:{attribute}: {error}; name one as {_FORMS}."
            f"{did_you_mean(module, _SCHEMES)}"
        ) from error
    return resolve_policy(found(**kwargs) if isinstance(found, type) or kwargs else found)


def _image_count(key: str, images: Any) -> int:
    shape, dtype = getattr(images, "shape", None), getattr(images, "dtype", None)
    if shape is None or dtype != np.uint8 or len(shape) != 4 or shape[3] != 3 or 0 in shape:
        found = f"{dtype} {list(shape)}" if shape is not None else type(images).__name__
        raise ConfigurationError(
            f"{key!r} is {found}; it is a uint8 array [slots, height, width, 3] as a vector environment batches it "
            "(of a single environment: image[None])"
        )
    return int(shape[0])


def _check_instructions(instructions: Any, count: int) -> None:
    if isinstance(instructions, str) or not isinstance(instructions, Sequence | np.ndarray):
        raise ConfigurationError(f"'instruction' is {instructions!r}; it is a tuple of one sentence for each slot")
    if len(instructions) != count:
        raise ConfigurationError(f"{len(instructions)} instructions came with {count} images; give one for each")
    for slot, instruction in enumerate(instructions):
        if not isinstance(instruction, str) or not instruction.strip():
            raise ConfigurationError(
                f"the instruction of slot {slot} is {instruction!r}; say in words what the robot is to do, such as "
                "'open the drawer'"
            )


def _check_state(state: Any, count: int) -> None:
    shape, dtype = getattr(state, "shape", None), getattr(state, "dtype", None)
    if shape is None or len(shape) != 2 or shape[0] != count or not np.issubdtype(dtype, np.floating):
        found = f"{dtype} {list(shape)}" if shape is not None else type(state).__name__
        raise ConfigurationError(f"'state' is {found}; with {count} images it is a float array [{count}, numbers]")
    if not np.isfinite(state).all():
        raise ConfigurationError(f"the states of slots {_rows_not_finite(state)} are not finite numbers")


def _rows_not_finite(values: NDArray[Any]) -> list[int]:
    return [row for row, numbers in enumerate(values) if not np.isfinite(numbers).all()]
