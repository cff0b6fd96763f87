"""Language models by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

from wmrl_envs.errors import ConfigurationError, MissingExtraError, WMRLError, did_you_mean
from wmrl_envs.redaction import without_keys
from wmrl_envs.world_models.backends.protocol import Backend

__all__ = ["BACKENDS", "resolve_backend"]

_HERE = "wmrl_envs.world_models.backends"

BACKENDS = {
    "transformers": (f"{_HERE}.transformers", "TransformersBackend", "llm"),
    "vllm": (f"{_HERE}.vllm", "VLLMBackend", "vllm"),
    "openai": (f"{_HERE}.openai", "OpenAIBackend", "llm"),
}
"""Prefix -> module, class and the extra that brings what it needs."""


def resolve_backend(model: str | Backend, **kwargs: Any) -> Backend:
    """Return the language model that a name stands for; an object passes through.

    Args:
        model: ``"transformers:PATH"`` (a folder, a GGUF file or a hub's name), ``"vllm:PATH"``,
            ``"openai:URL#MODEL"``, or a backend.
        **kwargs: Arguments of the backend's constructor.

    Raises:
        ConfigurationError: If the name or an argument is unknown.
        MissingExtraError: If what the backend needs is not installed.
    """
    if not isinstance(model, str):
        if kwargs:
            raise ConfigurationError(
                f"arguments {sorted(kwargs)} were given with a {type(model).__name__} object; pass them to its "
                "constructor, or name the language model by a string"
            )
        return model
    prefix, separator, place = model.partition(":")
    if prefix not in BACKENDS or not separator or not place:
        raise ConfigurationError(
            f"unknown language model {model!r}; it is 'transformers:PATH', 'vllm:PATH' or 'openai:URL#MODEL', such as "
            f"'openai:http://localhost:8000/v1#Qwen/Qwen3-4B'.{did_you_mean(prefix, BACKENDS)}"
        )
    module, name, extra = BACKENDS[prefix]
    try:
        factory = cast(Callable[..., Backend], getattr(importlib.import_module(module), name))
        return factory(place, **kwargs)
    except WMRLError:
        raise
    except ImportError as error:
        raise MissingExtraError(
            f"{prefix}: needs {error.name or error}, which is not installed: pip install 'wmrl-envs[{extra}]'"
        ) from error
    except TypeError as error:
        raise ConfigurationError(
            f"cannot make the language model {model!r} with {without_keys(kwargs)}: {error}"
        ) from error
