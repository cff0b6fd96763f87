"""Executed solutions as JSON: what a learned world model is saved as, and what its warm-up cache holds."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

from wmrl_envs.research.outcome import Outcome, Status

__all__ = ["Executed", "pack", "pack_outcome", "unpack", "unpack_outcome"]

Executed: TypeAlias = tuple[str, Outcome]
"""A solution's source and what its execution returned."""

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Outcome)}


def pack_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON-able fields, defaults left out; numbers survive exactly."""
    values = {name: getattr(outcome, name) for name in _DEFAULTS}
    return {name: value for name, value in values.items() if value != _DEFAULTS[name]} | {"status": str(outcome.status)}


def unpack_outcome(fields: dict[str, Any]) -> Outcome:
    """Return the outcome that `pack_outcome` was given."""
    return Outcome(**{**fields, "status": Status(fields["status"])})


def pack(executed: list[Executed]) -> list[dict[str, Any]]:
    """Return executed solutions as JSON-able records, in order."""
    return [{"code": code, "outcome": pack_outcome(outcome)} for code, outcome in executed]


def unpack(records: list[dict[str, Any]]) -> list[Executed]:
    """Return the executed solutions that `pack` was given."""
    return [(record["code"], unpack_outcome(record["outcome"])) for record in records]
