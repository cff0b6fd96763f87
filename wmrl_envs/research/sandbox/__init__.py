"""Sandboxes: graders that execute a solution, or answer from recorded executions.

- ``"process"`` (`wmrl_envs.research.sandbox.process.ProcessSandbox`): runs it in a confined process on this machine.
- ``"replay"`` (`wmrl_envs.research.sandbox.replay.ReplaySandbox`): looks it up in a table of recorded executions.
- ``"package.module:attribute"``: one's own, a `Grader` or something that makes one when called without arguments.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from wmrl_envs.errors import ConfigurationError, did_you_mean
from wmrl_envs.research.grading import Grader

__all__ = ["SANDBOXES", "resolve_sandbox"]


def _process(isolation: str, **options: Any) -> Grader:
    from wmrl_envs.research.sandbox.process import ProcessSandbox

    return ProcessSandbox(isolation=isolation, **options)  # type: ignore[arg-type]  # it checks the name


def _replay(isolation: str, **options: Any) -> Grader:
    # isolation has no meaning where nothing runs
    from wmrl_envs.research.sandbox.replay import ReplaySandbox

    return ReplaySandbox(**options)


SANDBOXES: dict[str, Callable[..., Grader]] = {"process": _process, "replay": _replay}
"""Sandboxes by name; each is called with ``isolation`` and further options."""


def resolve_sandbox(sandbox: str | Grader, *, isolation: str = "auto", **options: Any) -> Grader:
    """Return the sandbox that a name stands for; an object is returned as it is.

    Args:
        sandbox: A key of ``SANDBOXES``, ``"package.module:attribute"``, or a grader.
        isolation: ``"strict"``, ``"auto"`` or ``"none"``, for sandboxes that run code on this machine.
        **options: Further arguments of a named sandbox, such as ``workers``.

    Raises:
        ConfigurationError: If the name is unknown, cannot be imported, or leads to something that is no grader.
        IsolationError: If this machine cannot isolate as strictly as was asked for.
    """
    if not isinstance(sandbox, str):
        if not isinstance(sandbox, Grader):
            raise ConfigurationError(f"a sandbox needs a grade(submissions) method; {type(sandbox).__name__} has none")
        return sandbox
    if sandbox in SANDBOXES:
        return SANDBOXES[sandbox](isolation, **options)
    if ":" in sandbox:
        return _import(sandbox, options)
    raise ConfigurationError(
        f"unknown sandbox {sandbox!r}; use one of {', '.join(map(repr, SANDBOXES))}, or 'package.module:attribute' for "
        f"one of your own.{did_you_mean(sandbox, SANDBOXES)}"
    )


def _import(path: str, options: dict[str, Any]) -> Grader:
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"cannot import the sandbox {path!r}: {error}") from error
    if isinstance(found, type) or not isinstance(found, Grader):
        if not callable(found):
            raise ConfigurationError(f"{path!r} is neither a grader nor makes one: it is a {type(found).__name__}")
        found = found(**options)
    if not isinstance(found, Grader):
        raise ConfigurationError(f"{path!r} made a {type(found).__name__}, which has no grade(submissions) method")
    return found
