"""A progress model behind HTTP: ``http://HOST:PORT``, where ``wmrl progress serve`` runs.

- ``HTTPProgressModel`` - sends videos to a server and returns its scores.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wmrl_envs.errors import ConfigurationError, ProgressModelError
from wmrl_envs.robotics._progress_address import read_token, server_address
from wmrl_envs.robotics._progress_http import Reply, TooSlow, Unanswered, exchange
from wmrl_envs.robotics._progress_replies import said, short, words
from wmrl_envs.robotics._progress_wire import (
    CONTENT_TYPE,
    MAX_VIDEOS,
    Answer,
    WireError,
    checksum,
    decode_answer,
    encode_request,
    finite,
)
from wmrl_envs.robotics.progress import Progress, Video, check_scores, check_videos

__all__ = ["HTTPProgressModel", "Health"]

logger = logging.getLogger(__name__)

_LONGEST_PAUSE = 60.0  # s
_jitter = random.Random()  # its own: numbers drawn elsewhere stay the same whether a connection broke or not
_PASSING = frozenset({502, 503, 504})
_SLOW = "If it is only slow, pass a longer timeout=, or a smaller request_bytes= for fewer videos in a request."
_SMALL = 2**20  # bytes, of an answer that is no scores


@dataclass(frozen=True, slots=True)
class Health:
    """What a progress server says of itself."""

    model: str
    """The model's name there."""
    max_frames: int | None
    """Most frames that the model reads at once; ``None`` where it does not say."""
    max_bytes: int
    """Most bytes of uncompressed frames and instructions in one request."""
    max_videos: int
    """Most videos in one request."""


class HTTPProgressModel:
    """A progress model in another process, behind ``wmrl progress serve``.

    Scores are those of the model there, bit for bit, in one call of it for each request. A video that it could not
    score is ``None``, with the reason in the log. Anything else that is not as it should be is an error: a server that
    is away, of another version, or too slow, an answer that is damaged or is one to another question, a server that
    now runs another model than before.

    A connection that is refused or breaks off is tried again with growing pauses; a server that does not answer in time
    is not, since it may still be at it.

    Example:
        >>> model = HTTPProgressModel("http://127.0.0.1:8750", timeout=60.0)
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 300.0,
        retries: int = 5,
        backoff: float = 0.5,
        request_bytes: int = 64 * 2**20,
        token_env: str | None = None,
    ) -> None:
        """Take note of where the server is; nothing is sent before the first question.

        Args:
            url: ``http://HOST:PORT``, or ``https://`` where something before the server encrypts.
            timeout: Longest wait for the answer to one request, in seconds, the server's queue included.
            retries: Attempts after the first one.
            backoff: Pause before the second attempt, in seconds; it doubles with each one, up to a minute.
            request_bytes: Uncompressed bytes of videos that go into one request; more are sent one request after the
                other.
            token_env: Environment variable with the server's token; ``None`` takes ``WMRL_PROGRESS_TOKEN`` if it is
                set.

        Raises:
            ConfigurationError: If an argument cannot work.
        """
        self._url = server_address(url)
        _check("timeout", timeout, 0 < timeout < math.inf, "a number of seconds above 0")
        _check("retries", retries, retries >= 0, "0 or more attempts after the first")
        _check("backoff", backoff, 0 <= backoff < math.inf, "0 or more seconds")
        _check("request_bytes", request_bytes, request_bytes >= 1, "1 or more bytes")
        read_token(token_env)
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._retries = retries
        self._backoff = backoff
        self._request_bytes = request_bytes
        # Its name, not the token: that one is in no copy of this object, in another process or in a file.
        self._token_env = token_env
        self._health: Health | None = None

    @property
    def max_frames(self) -> int | None:
        """Most frames that the model reads at once; ``None`` where it does not say. The server is asked."""
        return self._server().max_frames

    def score(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
        """Score videos on the server, as `ProgressModel.score` does.

        Raises:
            ConfigurationError: If a video or an instruction cannot be scored, or one video is too large for the server.
            ProgressModelError: If the server cannot be reached, or does not answer with scores of these videos.
        """
        check_videos(videos, instructions)
        if not videos:
            return []
        server = self._server()
        found: list[Progress | None] = []
        for part in _parts(_sizes(videos, instructions, server), self._request_bytes, server):
            found += self._ask(videos[part], instructions[part], part.start, server)
        return found

    def health(self) -> Health:
        """Ask the server what it runs.

        Raises:
            ProgressModelError: If it cannot be reached, is no progress server, or is one of another version.
        """
        reply = self._exchange("/health", None, _SMALL)
        about = said(self.url, reply)
        try:
            health = Health(about["model"], about["max_frames"], about["max_bytes"], about["max_videos"])
            counts = [health.max_bytes, health.max_videos, 1 if health.max_frames is None else health.max_frames]
            sound = isinstance(health.model, str) and all(type(count) is int and count > 0 for count in counts)
        except KeyError:
            sound = False
        if not sound:
            raise ProgressModelError(f"{self.url} says of itself what no progress server does: {short(str(about))}")
        return health

    def close(self) -> None:
        """Forget what the server said of itself; the next question asks again."""
        self._health = None

    def _server(self) -> Health:
        if self._health is None:
            self._health = self.health()
        return self._health

    def _ask(
        self, videos: Sequence[Video], instructions: Sequence[str], first: int, server: Health
    ) -> list[Progress | None]:
        message = encode_request(videos, instructions)
        largest = _SMALL + 2**17 * len(videos) + 16 * sum(len(video) for video in videos)
        reply = self._exchange("/score", message, largest)
        if reply.status != 200 or reply.kind != CONTENT_TYPE:
            said(self.url, reply)
            raise ProgressModelError(f"{self.url} answers with {reply.kind or 'something'}, not with scores")
        try:
            answer = decode_answer(reply.body)
        except WireError as error:
            raise ProgressModelError(f"the answer of {self.url} cannot be read: {error}") from error
        return self._checked(answer, checksum(message), videos, first, server)

    def _checked(
        self, answer: Answer, request: int, videos: Sequence[Video], first: int, server: Health
    ) -> list[Progress | None]:
        if answer.request != request:
            raise ProgressModelError(f"{self.url} answers to another request than was sent; its scores are not used")
        if answer.model != server.model:
            raise ProgressModelError(
                f"{self.url} now runs {short(answer.model)!r}, and ran {short(server.model)!r} before: scores of two "
                "models do not go together; serve the first one again, or begin anew with this one"
            )
        scores, unknown = finite(answer.scores)
        name = f"{type(self).__name__}({self.url!r})"
        checked = check_scores(name, scores, videos)
        for index, reasons in enumerate(zip(answer.reasons, unknown, strict=True)):
            if any(reasons):
                logger.warning(f"{name} did not score video {first + index}: {short(' '.join(filter(None, reasons)))}")
        return checked

    def _exchange(self, path: str, body: bytes | None, limit: int) -> Reply:
        """Return the server's reply, in as many attempts as are allowed."""
        attempts, began = 0, time.monotonic()
        while True:
            try:
                reply = exchange(self._url, path, body, self._headers(), timeout=self._timeout, limit=limit)
                if reply.status not in _PASSING:
                    return reply
                what = f"HTTP {reply.status}: {words(reply)}"
            except Unanswered as failure:
                what = str(failure)
                if not failure.passing:
                    advice = _SLOW if isinstance(failure, TooSlow) else self._advice()
                    raise ProgressModelError(f"{self.url}: {what}. {advice}") from failure
            attempts += 1
            if attempts > self._retries:
                tried = f"tried {attempts} times over {time.monotonic() - began:.1f} s"
                raise ProgressModelError(f"{self.url}: {tried}: {what}. {self._advice()}")
            pause = self._backoff * 2.0 ** (attempts - 1) * _jitter.uniform(0.5, 1.0)
            time.sleep(min(pause, _LONGEST_PAUSE))

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": CONTENT_TYPE, "Connection": "close"}
        token = read_token(self._token_env)
        return headers if token is None else headers | {"Authorization": f"Bearer {token}"}

    def _advice(self) -> str:
        host, port = self._url.hostname, self._url.port or (443 if self._url.scheme == "https" else 80)
        where = f"--port {port}" if host in ("127.0.0.1", "localhost") else f"--host {host} --port {port}"
        return f"Is a progress server running there? One is started by: wmrl progress serve MODEL {where}"


def _sizes(videos: Sequence[Video], instructions: Sequence[str], server: Health) -> list[int]:
    """Return the uncompressed bytes of each video with its instruction.

    Raises:
        ConfigurationError: If one is more than the server reads, or an instruction cannot be sent.
    """
    sizes = []
    for index, (video, instruction) in enumerate(zip(videos, instructions, strict=True)):
        try:
            sizes.append(video.nbytes + len(instruction.encode()))
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"instruction {index} ({instruction!r}) is no text in UTF-8: {error}") from error
        if sizes[-1] > server.max_bytes:
            raise ConfigurationError(
                f"video {index} {list(video.shape)} has {sizes[-1]} bytes, and the server reads {server.max_bytes} in "
                "one request: start it with a larger --max-megabytes, or score fewer or smaller frames"
            )
    return sizes


def _parts(sizes: Sequence[int], limit: int, server: Health) -> Iterator[slice]:
    """Split videos into runs of at most ``limit`` bytes; a larger one goes alone."""
    most, count = min(limit, server.max_bytes), min(MAX_VIDEOS, server.max_videos)
    start, total = 0, 0
    for index, size in enumerate(sizes):
        if index > start and (total + size > most or index - start == count):
            yield slice(start, index)
            start, total = index, 0
        total += size
    yield slice(start, len(sizes))


def _check(name: str, value: object, fits: bool, valid: str) -> None:
    if not fits:
        raise ConfigurationError(f"{name}={value!r} is not {valid}")
