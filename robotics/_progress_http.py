"""One request over HTTP that ends within a time, whatever the other side does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from urllib.parse import SplitResult

__all__ = ["Reply", "TooSlow", "Unanswered", "exchange"]

_CONNECT = 10.0  # s


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    kind: str
    """Content type, without parameters."""
    location: str
    """Where a redirection points to."""
    body: bytes


class Unanswered(Exception):
    """There was no reply.

    Attributes:
        passing: Whether it may be otherwise at the next attempt.
    """

    def __init__(self, what: str, *, passing: bool) -> None:
        super().__init__(what)
        self.passing = passing


class TooSlow(Unanswered):
    """There was no reply in time; the server may still be at it."""

    def __init__(self, timeout: float) -> None:
        super().__init__(f"no answer within {timeout:g} s", passing=False)


def exchange(
    url: SplitResult, path: str, body: bytes | None, headers: Mapping[str, str], *, timeout: float, limit: int
) -> Reply:
    """Send a GET, or a POST where there is a body, and return the reply; redirections are not followed.

    Args:
        url: Of the server.
        path: Below it.
        body: To send.
        headers: To send.
        timeout: Longest time in seconds from the connection to the last byte of the reply.
        limit: Most bytes of a reply.

    Raises:
        TooSlow: If there is none in time.
        Unanswered: If there is none.
    """
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    with closing(kind(url.hostname or "", url.port, timeout=min(timeout, _CONNECT))) as connection:
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            raise Unanswered(f"{type(error).__name__}: {error}", passing=True) from error
        connection.sock.settimeout(timeout)
        expired = threading.Event()
        watchdog = threading.Timer(timeout, _give_up, (connection.sock, expired))
        watchdog.daemon = True
        watchdog.start()
        try:
            reply = _reply(connection, url.path + path, body, headers, limit)
        except (OSError, HTTPException, ValueError, Unanswered) as error:
            if expired.is_set() or isinstance(error, TimeoutError):
                raise TooSlow(timeout) from error
            raise _unanswered(error) from error
        finally:
            watchdog.cancel()
        if expired.is_set():  # what came may be cut off
            raise TooSlow(timeout)
        return reply


def _give_up(connection: socket.socket, expired: threading.Event) -> None:
    """End a connection from another thread: a socket's own timeout starts again with every byte."""
    expired.set()
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _reply(connection: HTTPConnection, path: str, body: bytes | None, headers: Mapping[str, str], limit: int) -> Reply:
    try:
        connection.request("GET" if body is None else "POST", path, body, dict(headers))
    except (BrokenPipeError, ConnectionResetError):
        pass  # a server that refuses says why, and does not read on
    response = connection.getresponse()
    content = _content(response, limit)
    kind = (response.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
    return Reply(response.status, kind, response.headers.get("Location", ""), content)


def _content(response: HTTPResponse, limit: int) -> bytes:
    content = response.read(limit + 1)
    if len(content) > limit:
        raise Unanswered(f"the answer is longer than the {limit} bytes that it could have", passing=False)
    announced = response.headers.get("Content-Length", "")
    if announced.isdecimal() and int(announced) != len(content):
        raise Unanswered(f"the answer broke off after {len(content)} of {announced} bytes", passing=True)
    return content


def _unanswered(error: Exception) -> Unanswered:
    if isinstance(error, Unanswered):
        return error
    if isinstance(error, OSError | IncompleteRead):  # among them a connection that ends before the first byte
        return Unanswered(f"the connection broke off: {type(error).__name__}: {error}", passing=True)
    return Unanswered(f"what answers does not speak HTTP: {type(error).__name__}: {str(error)[:100]!r}", passing=False)
