"""A progress model served over HTTP, so that one which needs another Python runs in a process of its own.

- ``ProgressServer`` - scores the videos that ``HTTPProgressModel`` sends.
- ``check_place`` - whether there can be one at an address, before a large model is loaded for it.

It needs no more than the standard library and numpy, beside what the model needs.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
from types import TracebackType

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.robotics._progress_address import read_token
from wmrl_envs.robotics._progress_handler import check_address, listen
from wmrl_envs.robotics._progress_service import ProgressService
from wmrl_envs.robotics.progress import ProgressModel

__all__ = ["ProgressServer", "check_place"]

logger = logging.getLogger(__name__)


class ProgressServer:
    """Serves a progress model to `HTTPProgressModel`.

    ``GET /health`` says which model it is, ``POST /score`` scores videos. One request at a time reaches the model, in
    one call, from a thread that is not always the same: its scores are those that the call gives in this process.
    Whoever reaches the port can use the model, unless an environment variable holds a token, which every request then
    has to bring.

    Example:
        >>> with ProgressServer(model) as server:  # doctest: +SKIP
        ...     scores = HTTPProgressModel(server.url).score(videos, instructions)
    """

    def __init__(
        self,
        model: ProgressModel,
        *,
        name: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        token_env: str | None = None,
        max_bytes: int = 256 * 2**20,
    ) -> None:
        """Take a port; requests wait until `start` or `serve_forever`.

        Args:
            model: Scores the videos; it stays the caller's, to close.
            name: What clients are told that the model is called; its class by default.
            host: Address to listen at; other machines reach the server only at one that is not loopback.
            port: To listen at; 0 takes a free one.
            token_env: Environment variable with the token that requests must bring; ``None`` takes
                ``WMRL_PROGRESS_TOKEN`` if it is set.
            max_bytes: Most bytes of uncompressed frames and instructions in one request.

        Raises:
            ConfigurationError: If an argument cannot work, or the port is taken.
        """
        if not hasattr(model, "score"):
            raise ConfigurationError(f"{type(model).__name__} has no method score(videos, instructions)")
        if max_bytes < 1:
            raise ConfigurationError(f"max_bytes={max_bytes!r} is not 1 or more bytes")
        token = read_token(token_env)
        self._service = ProgressService(model, name or type(model).__name__, max_bytes)
        self._http = listen(self._service, host, port, token)
        self._started = False
        if token is None and not _is_loopback(host):
            logger.warning(
                f"anyone who reaches port {self.port} of {host or 'this machine'} can use the model: require a token "
                "by --token-env NAME (token_env=), or listen at 127.0.0.1"
            )

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        """Where a client on this machine reaches it."""
        host = str(self._http.server_address[0])
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self) -> None:
        """Answer requests from a thread of its own."""
        self._started = True
        threading.Thread(target=self.serve_forever, name="progress-server", daemon=True).start()

    def serve_forever(self) -> None:
        """Answer requests until `close`, or an exception such as an interrupt."""
        self._started = True
        self._http.serve_forever(poll_interval=0.1)

    def close(self, patience: float = 10.0) -> bool:
        """Free the port, after the request that the model is at has been answered; those that wait are refused.

        Args:
            patience: Longest wait for it, in seconds.

        Returns:
            Whether none is left, so that the model may be closed.
        """
        if self._started:  # a loop that never began would be waited for without an end
            self._http.shutdown()
        self._http.server_close()
        return self._service.stop(patience)

    def __enter__(self) -> ProgressServer:
        """Start it."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop it."""
        self.close()


def check_place(host: str, port: int, token_env: str | None = None) -> None:
    """Refuse arguments of `ProgressServer` that cannot work.

    Raises:
        ConfigurationError: If nothing can listen there, or there is no token where one is to be.
    """
    read_token(token_env)
    check_address(host, port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
