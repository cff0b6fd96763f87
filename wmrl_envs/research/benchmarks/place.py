"""Where a benchmark's task lies: ``DIR/ID``, with options as in a web address: ``DIR/ID?direction=lower&seconds=600``.

Options are ``direction`` (``higher`` or ``lower`` is better) and the names of `wmrl_envs.research.limits.Limits`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from wmrl_envs.errors import ConfigurationError, TaskError, UnknownTaskError, did_you_mean
from wmrl_envs.files import LFS_START
from wmrl_envs.research.limits import Limits
from wmrl_envs.research.table import shown

__all__ = [
    "DIRECTIONS",
    "Place",
    "is_path",
    "package_folder",
    "read_text",
    "refuse_links",
    "refuse_pointer",
    "refuse_pointers",
    "unknown_competition",
]

DIRECTIONS = {"higher": True, "lower": False}
"""Values of the option ``direction``, and whether greater is better."""

MOST_POINTER = 1024
"""Largest such file, in bytes."""


@dataclass(frozen=True, slots=True)
class Place:
    """A parsed name of a task, without the benchmark's prefix."""

    folder: Path
    """DIR, resolved."""
    id: str
    greater_is_better: bool | None
    """The option ``direction``; None where it is not given."""
    limits: Limits

    @classmethod
    def parse(cls, text: str) -> Place:
        """Parse ``DIR/ID`` or ``DIR/ID?option=value&...``.

        Raises:
            UnknownTaskError: If there is no ID.
            ConfigurationError: If an option is unknown or its value cannot be used.
        """
        path, _, query = text.partition("?")
        if not is_path(path):
            raise UnknownTaskError(f"{shown(path, 200)} is no path of a competition")
        whole = Path(os.path.abspath(Path(path).expanduser()))  # the name that was given, wherever a link of it leads
        if not path or not whole.name:
            raise UnknownTaskError(f"{shown(path, 200)} names no competition; it must be DIR/ID")
        options = dict(parse_qsl(query, keep_blank_values=True))
        direction = options.pop("direction", None)
        if direction is not None and direction not in DIRECTIONS:
            raise ConfigurationError(f"direction must be 'higher' or 'lower' (is better), got {direction!r}")
        return cls(whole.parent.resolve(), whole.name, DIRECTIONS.get(direction or ""), _limits(options))


def _limits(options: dict[str, str]) -> Limits:
    known = ("direction", *(field.name for field in dataclasses.fields(Limits)))
    changes: dict[str, float] = {}
    for name, text in options.items():
        if name not in known:
            raise ConfigurationError(
                f"unknown option {name!r}.{did_you_mean(name, known)} The options are {', '.join(known)}"
            )
        try:
            changes[name] = int(text) if text.strip("-+").isdecimal() else float(text)
        except ValueError:
            raise ConfigurationError(f"option {name!r} must be a number, got {text!r}") from None
    return Limits().override(changes)


def is_path(text: str) -> bool:
    """Return whether a text can be a path: it holds no NUL, is not too long, and no home is missing."""
    try:
        Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False
    return "\0" not in text


def unknown_competition(
    benchmark: str, place: Place, competitions: Callable[[Path], list[str]], expected: str
) -> UnknownTaskError:
    """Return the error for a competition that is not in a benchmark's folder, with the ones that are.

    Args:
        benchmark: Its name.
        place: What was asked for.
        competitions: Lists the ids in a folder.
        expected: What DIR would hold if the competition were there.
    """
    inside = competitions(place.folder / place.id)
    if inside:
        return UnknownTaskError(
            f"{place.folder / place.id} is a folder of {benchmark} competitions, not one of them; name one, such as "
            f"{place.folder / place.id / inside[0]}"
        )
    there = competitions(place.folder)
    shown_ids = ", ".join(there[:10]) + (f" and {len(there) - 10} more" if len(there) > 10 else "")
    found = f"it holds {shown_ids}" if there else "it holds none"
    return UnknownTaskError(
        f"{place.folder} holds no {benchmark} competition {place.id!r} ({expected} is missing); {found}."
        f"{did_you_mean(place.id, there)}"
    )


def refuse_pointer(path: Path, what: str) -> None:
    """Refuse a missing file, or a pointer that git left in place of a large one; only its first bytes are read.

    Raises:
        TaskError: It names the file.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(LFS_START))
    except OSError as error:
        raise TaskError(f"cannot read {what} {path}: {error.strerror or error}") from error
    if start == LFS_START.encode():
        raise TaskError(f"{path} is a Git-LFS pointer in place of {what}; fetch it with `git lfs pull`")


def read_text(path: Path, what: str) -> str:
    """Return a text file: UTF-8, with or without a byte-order mark.

    Raises:
        TaskError: If it cannot be read, or is a Git-LFS pointer; it names the file.
    """
    refuse_pointer(path, what)
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read {what} {path}: {error}") from error


def refuse_pointers(public: Path) -> None:
    """Refuse a public folder in which a file is a Git-LFS pointer.

    Raises:
        TaskError: It names the file.
    """
    for path in sorted(public.rglob("*")):
        if path.is_file() and path.stat().st_size <= MOST_POINTER:
            refuse_pointer(path, "the data")


def refuse_links(public: Path) -> None:
    """Refuse a public folder with a link out of it, which a confined solution cannot follow.

    Raises:
        TaskError: It names the link.
    """
    inside = public.resolve()
    for path in sorted(public.rglob("*")):
        if path.is_symlink() and not path.resolve().is_relative_to(inside):
            raise TaskError(f"{path} is a link out of its folder, where no solution can read; put a copy in its place")


def package_folder(name: str) -> Path | None:
    """Return the folder of an installed package, without importing it; None where there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else None
