"""What is kept of a program's output.

This module imports nothing of the package: the zygote loads it by path.
"""

from __future__ import annotations

__all__ = ["READ_BYTES", "Capture"]

READ_BYTES = 2**16
"""Most bytes that are taken from a pipe at once."""


class Capture:
    """What was written to a pipe: its beginning and its end, at most ``limit`` bytes together."""

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Take in the next bytes."""
        self._total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._half + READ_BYTES:
            del self._tail[: -self._half]

    def content(self) -> bytes:
        """Return what is kept, with a line that says how much was cut."""
        tail = bytes(self._tail[-self._half :])
        cut = self._total - len(self._head) - len(tail)
        mark = f"\n[... {cut} bytes of output cut ...]\n".encode() if cut else b""
        return bytes(self._head) + mark + tail
