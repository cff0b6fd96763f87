"""What the trusted side and a supervisor agree on; a message is a JSON header, then raw bytes.

This module imports nothing of the package: the zygote loads it by path.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

__all__ = ["MOST_STRETCH", "receive", "send"]

MOST_STRETCH = 5.0
"""How many times its wall limit a solution may take where other programs keep it from running."""

_LONGEST = 2**28
_PREFIX = struct.Struct("=II")


def send(connection: socket.socket, header: dict[str, Any], body: bytes = b"") -> None:
    """Send one message.

    Raises:
        OSError: If the other side is gone.
    """
    encoded = json.dumps(header).encode()
    connection.sendall(_PREFIX.pack(len(encoded), len(body)) + encoded + body)


def receive(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    """Receive one message.

    Raises:
        EOFError: If the other side closed before a whole message came.
        OSError: If nothing came within the connection's time limit, or the message is none.
    """
    header_length, body_length = _PREFIX.unpack(_exactly(connection, _PREFIX.size))
    if max(header_length, body_length) > _LONGEST:
        raise OSError(f"a message of {header_length} + {body_length} bytes is too long")
    header = json.loads(_exactly(connection, header_length))
    return header, _exactly(connection, body_length)


def _exactly(connection: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        part = connection.recv(min(length - len(received), 2**20))
        if not part:
            raise EOFError("the connection closed in the middle of a message")
        received += part
    return bytes(received)
