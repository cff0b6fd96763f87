"""A real HTTP server that speaks OpenAI's chat completions and answers as a function says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["ChatServer", "chat_server"]

Answer = Callable[[list[dict[str, str]]], str | None]
"""The reply to a chat; None refuses the request as longer than the model reads."""


class ChatServer:
    """What a running server was asked, and where it is.

    Attributes:
        requests: The bodies of all requests for completions, in the order of their arrival.
    """

    def __init__(self, port: int) -> None:
        self.model = f"openai:http://127.0.0.1:{port}/v1#scripted"
        self.requests: list[dict[str, Any]] = []

    @property
    def chats(self) -> list[list[dict[str, str]]]:
        """The messages of every request."""
        return [request["messages"] for request in self.requests]


@contextmanager
def chat_server(answer: Answer) -> Iterator[ChatServer]:
    """Run a server until the block ends; a token of its counts is four characters."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != "/v1/chat/completions":
                return self._send(404, {"error": {"message": f"no such path: {self.path}"}})
            server.requests.append(body)
            texts = [answer(body["messages"]) for _ in range(body.get("n", 1))]
            if None in texts:
                message = "this model's maximum context length is exceeded"
                return self._send(400, {"error": {"message": message, "code": "context_length_exceeded"}})
            cut = [text[: 4 * body.get("max_tokens", 10**6)] for text in texts if text is not None]
            choices = [
                {
                    "index": index,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "stop" if text == whole else "length",
                }
                for index, (text, whole) in enumerate(zip(cut, texts, strict=True))
            ]
            usage = {
                "prompt_tokens": sum(len(message["content"]) for message in body["messages"]) // 4,
                "completion_tokens": sum(len(text) for text in cut) // 4,
            }
            self._send(200, {"object": "chat.completion", "model": "scripted", "choices": choices, "usage": usage})

        def _send(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = ChatServer(http.server_port)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
