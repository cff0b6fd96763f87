"""HTTP around a progress server: who may ask, how much is read, and how errors are told."""

from __future__ import annotations

import hmac
import json
import logging
import socket
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.robotics._progress_service import ProgressService, Refusal
from wmrl_envs.robotics._progress_wire import CONTENT_TYPE, PROTOCOL, SERVICE

__all__ = ["check_address", "listen"]

logger = logging.getLogger(__name__)

_READ = 300.0  # s, for a whole request
_CHUNK = 2**16  # bytes


def listen(service: ProgressService, host: str, port: int, token: str | None) -> ThreadingHTTPServer:
    """Return a server that listens at an address and leaves the answers to a service.

    Raises:
        ConfigurationError: If it cannot listen there.
    """
    return _listening(host, port, type("_Handler", (_Handler,), {"service": service, "token": token}))


def check_address(host: str, port: int) -> None:
    """Refuse an address where nothing can listen.

    Raises:
        ConfigurationError: It names the address.
    """
    _listening(host, port, BaseHTTPRequestHandler).server_close()


def _listening(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    try:
        return (_Server6 if ":" in host else _Server)((host, port), handler)
    except (OSError, OverflowError, UnicodeError) as error:
        what = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"cannot listen at port {port} of {host!r}: {what}; take another port (0 finds a free one), or an address "
            "of this machine, such as 127.0.0.1"
        ) from error


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def server_bind(self) -> None:
        # HTTPServer's own asks the name service for the machine's name, which can take seconds and is not used.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, OSError):  # the client went away
            logger.info(f"a request of {client_address[0]} broke off: {error}")
        else:
            logger.exception("a request failed")


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    service: ProgressService
    token: str | None
    protocol_version = "HTTP/1.1"
    server_version, sys_version = SERVICE, ""
    timeout = 30.0  # s without a byte

    def do_GET(self) -> None:
        self._respond(self._health)

    def do_POST(self) -> None:
        self._respond(self._score)

    def log_message(self, format: str, *args: Any) -> None:
        logger.info(f"{self.address_string()}: {(format % args)!r}")

    def _respond(self, answer: Callable[[], None]) -> None:
        self.close_connection = True
        try:
            self._authorise()
            answer()
        except Refusal as refusal:
            self._refuse(refusal.status, str(refusal))
        except OSError:  # the client went away
            raise
        except Exception as error:
            logger.exception("a request failed")
            self._refuse(500, f"the server failed: {type(error).__name__}: {error}")

    def _refuse(self, status: int, message: str) -> None:
        said = {"service": SERVICE, "protocol": PROTOCOL, "error": message}
        self._send(status, json.dumps(said).encode(), "application/json")
        self._linger()

    def _health(self) -> None:
        if self.path != "/health":
            raise Refusal(404, f"there is no page {self.path[:100]!r}; there are GET /health and POST /score")
        self._send(200, json.dumps(self.service.health).encode(), "application/json")

    def _score(self) -> None:
        if self.path != "/score":
            raise Refusal(404, f"there is no page {self.path[:100]!r}; there are GET /health and POST /score")
        # Pages of other sites cannot send this type from a browser without asking first, which is not granted.
        if self.headers.get_content_type() != CONTENT_TYPE:
            raise Refusal(415, f"the content type must be {CONTENT_TYPE}")
        length = self._length()
        with self.service.place():
            self._send(200, self.service.answer(self._body(length), self._is_waited_for), CONTENT_TYPE)

    def _authorise(self) -> None:
        if self.token is None:
            return
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        # In constant time, so that the time of a refusal says nothing about the token.
        if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token.encode()):
            logger.warning(f"refused a request of {self.address_string()} without the token")
            raise Refusal(401, "the server wants a token: send it as a bearer")

    def _length(self) -> int:
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or len(set(lengths)) != 1:
            raise Refusal(411, "the request must announce its length")
        if not (lengths[0].isascii() and lengths[0].isdecimal()):
            raise Refusal(400, f"the length {lengths[0][:40]!r} is no number")
        if len(lengths[0]) > 20 or int(lengths[0]) > self.service.largest_message:
            raise Refusal(413, f"the request is larger than the {self.service.largest_message} bytes that are read")
        return int(lengths[0])

    def _body(self, length: int) -> bytes:
        """Return the request's body, and let nobody hold a place by sending it slowly."""
        body, until = bytearray(), time.monotonic() + _READ
        while len(body) < length:
            try:
                part = self.rfile.read1(min(length - len(body), _CHUNK))
            except TimeoutError:
                part = b""
            if not part or time.monotonic() > until:
                raise Refusal(408, f"only {len(body)} of {length} bytes of the request came")
            body += part
        return bytes(body)

    def _is_waited_for(self) -> bool:
        self.connection.settimeout(0.0)
        try:
            return bool(self.connection.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self.connection.settimeout(self.timeout)

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def _linger(self) -> None:
        """Read some of what a refused client still sends: closing before that may take the refusal from it."""
        until = time.monotonic() + 2.0
        self.connection.settimeout(0.5)
        try:
            self.connection.shutdown(socket.SHUT_WR)
            while time.monotonic() < until and self.rfile.read1(_CHUNK):
                pass
        except OSError:
            pass
