"""The page served on this machine while runs go on."""

from __future__ import annotations

import ipaddress
import re
import socket
import socketserver
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.report.page import policy, render
from wmrl_envs.report.sources import Sources

__all__ = ["ReportServer"]

_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_RANGE = re.compile(r"bytes=(\d{1,15})-(\d{0,15})")


class ReportServer:
    """Serves the page of runs and what is new of them.

    It answers ``/``, ``/data.json`` (with an ETag, so that a run that did not move costs a comparison) and the videos
    that the page shows; nothing else of the machine can be asked for. A name in the Host header other than this
    machine's is refused, so that no web page elsewhere can have a browser read a run under a name of its own.

    Example:
        >>> server = ReportServer([Path("runs/titanic")])  # doctest: +SKIP
        >>> server.serve()  # doctest: +SKIP
    """

    def __init__(self, paths: Sequence[Path], *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Take the port; nothing is served yet.

        Args:
            paths: Run folders, or folders that hold some.
            host: Address to listen at; all but loopback ones let others read the runs.
            port: Port; 0 takes a free one.

        Raises:
            ConfigurationError: If a path is no run folder, or the address or port cannot be taken.
        """
        self._sources = Sources(paths)
        try:
            self._server = _Server((host, port), self._sources, host)
        except (OSError, OverflowError) as problem:
            raise ConfigurationError(
                f"nothing can be served at {host}, port {port} ({problem}); name another one by --host and --port, or "
                "leave --port out for a free one"
            ) from problem

    @property
    def url(self) -> str:
        """Address of the page."""
        host, port = self._server.host, self._server.server_port
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    @property
    def loopback(self) -> bool:
        """Whether this machine alone can reach the page."""
        return self._server.host in _LOOPBACK or _is_loopback(self._server.host)

    def serve(self) -> None:
        """Serve until `close` is called from another thread or an exception, such as an interrupt, ends it."""
        try:
            self._server.serve_forever(poll_interval=0.2)
        finally:
            self._server.server_close()

    def close(self) -> None:
        """End `serve`."""
        self._server.shutdown()


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # a browser that keeps a connection open holds up no end

    def __init__(self, address: tuple[str, int], sources: Sources, host: str) -> None:
        self.sources, self.host = sources, host
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # The base class asks the network for the machine's name, which may take seconds and is of no use here.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.host, self.server_address[1]

    def knows(self, header: str | None) -> bool:
        """Whether a Host header names this machine: a name of someone else's that leads here is refused."""
        name, separator, port = (header or "").rpartition(":")
        if not separator or port.endswith("]"):
            name, port = header or "", "80"
        name = name.strip("[]").lower()
        if port != str(self.server_port):
            return False
        # Addresses are no names: others' pages cannot have them.
        return name in _LOOPBACK | {self.host.lower()} or (not _is_loopback(self.host) and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return name in _LOOPBACK or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "wmrl", ""
    timeout = 60

    def do_GET(self) -> None:
        if not self.server.knows(self.headers.get("Host")):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, b"This address is not served here.\n", "text/plain")
            return
        path = self.path.partition("?")[0]
        try:
            if path == "/":
                _, shown, _ = self.server.sources.current()
                html = render(shown, live=True).encode("utf-8")
                self._send(HTTPStatus.OK, html, "text/html; charset=utf-8", {"Content-Security-Policy": policy(True)})
            elif path == "/data.json":
                self._data()
            elif found := re.fullmatch(r"/videos/([0-9a-f]{16})\.mp4", path):
                self._video(found[1])
            else:
                self._send(HTTPStatus.NOT_FOUND, b"There is no such page; the report is at /.\n", "text/plain")
        except ConnectionError:
            self.close_connection = True  # the reader left
        except (ConfigurationError, OSError) as problem:
            # The folder was moved or removed while it was watched.
            text = f"{problem}\n".encode("utf-8", "replace")
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, text, "text/plain; charset=utf-8")

    def _data(self) -> None:
        tag, _, body = self.server.sources.current()
        headers = {"ETag": f'"{tag}"'}
        if self.headers.get("If-None-Match") == headers["ETag"]:
            self._send(HTTPStatus.NOT_MODIFIED, b"", None, headers)
        else:
            self._send(HTTPStatus.OK, body, "application/json", headers)

    def _video(self, mark: str) -> None:
        """Send a video or the part of it that is asked for, without which browsers cannot seek."""
        path = self.server.sources.video(mark)
        try:
            body = b"" if path is None else path.read_bytes()
        except OSError:
            body = b""
        if not body:
            self._send(HTTPStatus.NOT_FOUND, b"This video is not there any more.\n", "text/plain")
            return
        headers = {"Accept-Ranges": "bytes"}
        found = _RANGE.fullmatch(self.headers.get("Range", ""))
        if found is None:
            self._send(HTTPStatus.OK, body, "video/mp4", headers)
            return
        first, last = int(found[1]), min(int(found[2] or len(body) - 1), len(body) - 1)
        if first > last:
            headers["Content-Range"] = f"bytes */{len(body)}"
            self._send(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, b"", None, headers)
            return
        headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
        self._send(HTTPStatus.PARTIAL_CONTENT, body[first : last + 1], "video/mp4", headers)

    def _send(self, status: HTTPStatus, body: bytes, kind: str | None, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({} if kind is None else {"Content-Type": kind}).items():
            self.send_header(name, value)
        fixed = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        fixed |= {"Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY"}
        for name, value in (fixed | (headers or {})).items():
            self.send_header(name, value)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet: a line per poll would hide the address."""
