"""Real HTTP servers for the tests: one that answers by script, and processes that serve a model."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

__all__ = ["Answer", "ScriptedServer", "completion", "flaky", "free_port", "process", "refusal"]


@dataclass
class Answer:
    """What a server sends back."""

    body: str
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    after: float = 0.0
    """Seconds before anything is sent."""
    cut: bool = False
    """Close the connection half-way through the body."""


def completion(*texts: str | None, finish: str = "stop", usage: dict[str, int] | None = None, **more: Any) -> Answer:
    """Return a chat completion with these texts; ``more`` goes into each choice."""
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": finish, **more}
        for i, text in enumerate(texts)
    ]
    body = {"object": "chat.completion", "choices": choices} | ({} if usage is None else {"usage": usage})
    return Answer(json.dumps(body))


def refusal(status: int, message: str, **headers: str) -> Answer:
    """Return an error as OpenAI words it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(json.dumps({"error": {"message": message}}), status, headers=named)


Script = Callable[[dict[str, Any], int], Answer]
"""(request, how many chat completions were asked for before) -> answer."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that did not wait is part of the play
            super().handle_error(request, client_address)


class ScriptedServer:
    """An HTTP server on a port of its own whose chat completions follow a script.

    It lists its models. What it answers to other pages (``tokenize``, ``v1/completions``) is in ``pages``; like most
    servers it has none.
    """

    def __init__(
        self,
        script: Script,
        *,
        models: Sequence[str] = ("small",),
        port: int = 0,
        pages: Mapping[str, Callable[[dict[str, Any]], Answer]] | None = None,
    ) -> None:
        self.script = script
        self.pages = dict(pages or {})
        self.models = models
        self.requests: list[dict[str, Any]] = []
        """Bodies of the requests for chat completions."""
        self.most_together = 0
        self._together = 0
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path != "/v1/chat/completions":
                    page = server.pages.get(self.path.strip("/"))
                    self._send(refusal(404, "Not Found") if page is None else page(request))
                    return
                with server._lock:
                    number = len(server.requests)
                    server.requests.append(request)
                    server._together += 1
                    server.most_together = max(server.most_together, server._together)
                try:
                    self._send(server.script(request, number))
                finally:
                    with server._lock:
                        server._together -= 1

            def do_GET(self) -> None:
                if self.path.endswith("/v1/models"):
                    self._send(Answer(json.dumps({"data": [{"id": model} for model in server.models]})))
                else:
                    self._send(refusal(404, "Not Found"))

            def _send(self, answer: Answer) -> None:
                body = answer.body.encode()
                if server._stopped.wait(answer.after):
                    self.close_connection = True
                    return
                try:
                    self.send_response(answer.status)
                    self.send_header("content-type", answer.content_type)
                    self.send_header("content-length", str(len(body)))
                    for name, value in answer.headers.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body[: len(body) // 2] if answer.cut else body)
                    self.close_connection = self.close_connection or answer.cut
                except OSError:  # the client did not wait
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self._stopped = threading.Event()
        self._server = _Server(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def stop(self) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextmanager
def flaky(url: str) -> Iterator[ScriptedServer]:
    """Stand before a real server and spoil every other answer, each time otherwise, so that a second try gets it."""
    real, lock, asked = url.removesuffix("/v1"), threading.Lock(), 0
    faults = (
        refusal(500, "out of luck"),
        Answer("<html>Bad gateway</html>", 502, content_type="text/html"),
        Answer('{"choices": []}' * 9, cut=True),
        refusal(429, "slow down", retry_after="0"),
        Answer('{"choices": null}'),
    )

    def passed_on(page: str, request: dict[str, Any]) -> Answer:
        reply = httpx.post(f"{real}/{page}", json=request, timeout=60)
        return Answer(reply.text, reply.status_code, reply.headers["content-type"])

    def spoilt(request: dict[str, Any], number: int) -> Answer:
        nonlocal asked
        with lock:
            asked += 1
            now = asked
        return faults[now // 2 % len(faults)] if now % 2 else passed_on("v1/chat/completions", request)

    pages = {page: partial(passed_on, page) for page in ("tokenize", "v1/completions")}
    with ScriptedServer(spoilt, pages=pages) as server:
        yield server


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(command: Sequence[str], port: int, log: Path, *, patience: float = 120.0, **env: str) -> Iterator[str]:
    """Run a server until the block ends; give its URL once it answers.

    Args:
        command: Its program and arguments.
        port: Where it will listen.
        log: Takes its output, which is shown if it does not come up.
        patience: Seconds it may take to come up.
        **env: Environment variables.
    """
    with log.open("w") as output:
        server = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | env, start_new_session=True
        )
        try:
            _await(server, f"http://127.0.0.1:{port}/health", log, patience)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            try:
                server.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _await(server: subprocess.Popen[bytes], url: str, log: Path, patience: float) -> None:
    end = time.monotonic() + patience
    while time.monotonic() < end and server.poll() is None:
        try:
            if httpx.get(url, timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the server did not come up (exit code {server.poll()}):\n{log.read_text()[-3000:]}")
