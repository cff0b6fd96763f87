"""A model's files as a digest, for engines that keep the weights to themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["folder_digest"]

_SMALL = 2**24
"""Bytes up to which a file is read whole: configurations, tokenizers and templates are."""

_BLOCKS, _BLOCK = 64, 2**16


def folder_digest(folder: Path) -> str:
    """Return 16 hexadecimal digits over a model's files: small ones whole, weights by their size and some blocks.

    Training changes weights everywhere, so that the blocks tell two models apart. Where the folder lies and what it is
    called do not matter.
    """
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        for block in _blocks(file):
            digest.update(block)
    return digest.hexdigest()[:16]


def _blocks(file: Path) -> Iterator[bytes]:
    size = file.stat().st_size
    with file.open("rb") as stream:
        if size <= _SMALL:
            yield stream.read()
            return
        for i in range(_BLOCKS):
            stream.seek(i * (size - _BLOCK) // (_BLOCKS - 1))
            yield stream.read(_BLOCK)
