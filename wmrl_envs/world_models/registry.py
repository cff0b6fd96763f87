"""World models by name, so that an environment's settings stay JSON-able."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

from wmrl_envs.errors import ConfigurationError, WMRLError, WorldModelError, did_you_mean
from wmrl_envs.redaction import without_keys
from wmrl_envs.world_models.backends.registry import BACKENDS
from wmrl_envs.world_models.protocol import WorldModel

__all__ = ["WORLD_MODELS", "resolve_world_model"]

WORLD_MODELS = {
    "base-rate": "wmrl_envs.world_models.base_rate:BaseRateWorldModel",
    "learned": "wmrl_envs.world_models.learned:LearnedWorldModel",
    "replay": "wmrl_envs.world_models.table:TableWorldModel",
}
"""Names and where they live; imported when they are asked for."""

_LANGUAGE = "wmrl_envs.world_models.language_model:LanguageWorldModel"


def resolve_world_model(world_model: str | WorldModel, **kwargs: Any) -> WorldModel:
    """Return the world model that a name stands for; an object passes through.

    Args:
        world_model: A name in ``WORLD_MODELS``, a language model (``"transformers:PATH"``, ``"vllm:PATH"``,
            ``"openai:URL#MODEL"``), ``"package.module:attribute"`` (a class or function that is called with ``kwargs``,
            or an object with a ``grade`` method), or a world model itself.
        **kwargs: Arguments of its constructor.

    Raises:
        ConfigurationError: If the name or an argument is unknown, or an object comes with arguments.
        WorldModelError: If what the name stands for cannot be imported or has no ``grade`` method.
    """
    if not isinstance(world_model, str):
        if kwargs:
            raise ConfigurationError(
                f"arguments {sorted(kwargs)} were given with a {type(world_model).__name__} object; pass them to its "
                "constructor, or name the world model by a string"
            )
        return _checked(world_model, type(world_model).__name__)
    if world_model.partition(":")[0] in BACKENDS:
        return _checked(_called(_imported(_LANGUAGE), world_model, {"model": world_model, **kwargs}), world_model)
    path = WORLD_MODELS.get(world_model, world_model)
    if ":" not in path:
        raise ConfigurationError(
            f"unknown world model {world_model!r}; it is one of {', '.join(WORLD_MODELS)}, a language model as "
            "'transformers:PATH', 'vllm:PATH' or 'openai:URL#MODEL', or 'package.module:attribute'."
            f"{did_you_mean(world_model, (*WORLD_MODELS, *BACKENDS))}"
        )
    found = _imported(path)
    if not isinstance(found, type) and hasattr(found, "grade"):
        return resolve_world_model(cast(WorldModel, found), **kwargs)
    if not callable(found):
        raise WorldModelError(f"{path} is a {type(found).__name__}, neither a world model nor something that makes one")
    return _checked(_called(found, path, kwargs), path)


def _imported(path: str) -> object:
    module, _, attribute = path.partition(":")
    try:
        found: object = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise WorldModelError(f"cannot import the world model {path!r}: {error}") from error
    return found


def _called(factory: object, path: str, kwargs: dict[str, Any]) -> object:
    try:
        return cast(Callable[..., object], factory)(**kwargs)
    except WMRLError:
        raise
    except TypeError as error:
        raise ConfigurationError(
            f"cannot build the world model {path!r} with {without_keys(kwargs)}: {error}"
        ) from error


def _checked(found: object, name: str) -> WorldModel:
    if not callable(getattr(found, "grade", None)):
        raise WorldModelError(f"{name} has no grade(submissions) method, so it is no world model")
    return cast(WorldModel, found)
