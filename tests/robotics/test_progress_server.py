"""Progress models over HTTP: the same scores as in the process, or an error that says what is wrong."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from typer.testing import CliRunner

import colour_progress as colours
from wmrl_envs.cli import app
from wmrl_envs.errors import ConfigurationError, ProgressModelError
from wmrl_envs.robotics._progress_wire import (
    CONTENT_TYPE,
    PROTOCOL,
    Answer,
    WireError,
    checksum,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from wmrl_envs.robotics.progress import Progress, Video, resolve_progress_model, score_videos
from wmrl_envs.robotics.progress_client import HTTPProgressModel
from wmrl_envs.robotics.progress_server import ProgressServer

HERE = Path(__file__).parent
TOKEN = "a-token-of-the-tests"
PATIENCE = 120.0
"""Seconds, for what takes none on a machine that has time."""
HURRY = {"retries": 1, "backoff": 0.01}


def turning_red(frames: int = 5, height: int = 4, width: int = 6, seed: int = 0) -> Video:
    video = np.random.default_rng(seed).integers(0, 100, (frames, height, width, 3), dtype=np.uint8)
    video[..., 0] += np.linspace(0, 150, frames, dtype=np.uint8)[:, None, None]
    return video


DARK = np.zeros((3, 4, 4, 3), np.uint8)
VIDEOS = [turning_red(), turning_red(1, 1, 1), turning_red(9, 8, 3)[::2, :, ::-1], turning_red(7, 5, 5, seed=1)]
INSTRUCTIONS = ["turn red", "fais rougir l'image, s'il te plaît", "翻轉影片 🎬", "turn\nred\t"]


@contextmanager
def serving(model: Any, **settings: Any) -> Iterator[HTTPProgressModel]:
    with ProgressServer(model, **settings) as server:
        yield HTTPProgressModel(server.url, timeout=PATIENCE, **HURRY)


def assert_equal(found: list[Progress | None], expected: list[Progress | None]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is None or other is None:
            continue
        assert one.progress.dtype == other.progress.dtype
        assert one.progress.tobytes() == other.progress.tobytes()
        for mine, theirs in ((one.success, other.success), (one.features, other.features)):
            assert (mine is None) == (theirs is None)
            if mine is not None and theirs is not None:
                assert mine.dtype == theirs.dtype
                assert mine.tobytes() == theirs.tobytes()


@pytest.mark.parametrize(("success", "features"), [(True, 0), (False, 0), (True, 3), (False, 10_000)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_equals_the_model_in_process(dtype: str, success: bool, features: int) -> None:
    model, alone = (colours.Redness(dtype, success, features) for _ in "12")
    with serving(model, name="red") as client:
        assert_equal(client.score(VIDEOS, INSTRUCTIONS), alone.score(VIDEOS, INSTRUCTIONS))
        assert model.instructions == INSTRUCTIONS
        assert model.asked == [len(VIDEOS)]
        assert client.max_frames == 8
        assert client.health().model == "red"
        assert client.score([], []) == []


def test_name_of_a_server_is_a_progress_model() -> None:
    with ProgressServer(colours.Redness()) as server:
        model = resolve_progress_model(server.url, timeout=PATIENCE)
        assert_equal(score_videos(model, VIDEOS, INSTRUCTIONS), colours.Redness().score(VIDEOS, INSTRUCTIONS))


def test_big_batches_go_in_parts() -> None:
    videos, instructions = [turning_red(seed=seed) for seed in range(7)], ["turn red"] * 7
    size = videos[0].nbytes + len("turn red")
    model = colours.Redness()
    with ProgressServer(model, max_bytes=3 * size) as server:
        for request_bytes, parts in ((10 * size, [3, 3, 1]), (2 * size, [2, 2, 2, 1]), (1, [1] * 7)):
            model.asked.clear()
            client = HTTPProgressModel(server.url, request_bytes=request_bytes)
            assert_equal(client.score(videos, instructions), colours.Redness().score(videos, instructions))
            assert model.asked == parts
        with pytest.raises(ConfigurationError, match=r"video 1 \[16, 4, 6, 3\] .*--max-megabytes"):
            client.score([turning_red(), turning_red(16)], ["turn red"] * 2)


def test_noise_of_the_largest_size_fits() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    with serving(colours.Redness(), max_bytes=noise.nbytes + 3) as client:
        assert_equal(client.score([noise], ["red"]), colours.Redness().score([noise], ["red"]))


def test_not_scored_is_none_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    videos, instructions = [VIDEOS[0], DARK, VIDEOS[3]], ["turn red"] * 3
    expected = colours.Undecided().score(videos, instructions)
    assert expected[1] is None
    with serving(colours.Undecided()) as client:
        assert_equal(client.score(videos, instructions), expected)
    assert not caplog.messages
    with serving(colours.Unnumbered()) as client:
        client._request_bytes = 1
        assert_equal(client.score(videos, instructions), expected)
    assert any("did not score video 1: its progress is no finite number" in text for text in caplog.messages)


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (colours.Forgetful(), ProgressModelError, "Forgetful.score returned 1 scores for 2 videos"),
        (colours.Hasty(), ProgressModelError, "one number per frame"),
        (colours.Excited(), ProgressModelError, r"must be in \[0, 1\]"),
        (colours.Square(), ProgressModelError, r"features of shape \[2, 2\] for video 0"),
        (colours.Broken(), ProgressModelError, "ZeroDivisionError: there is no light"),
        (colours.Choosy(), ConfigurationError, "instructions must be 'turn red', got 'redder'"),
    ],
)
def test_errors_of_the_model(model: Any, error: type[Exception], words: str) -> None:
    with serving(model) as client:
        for _ in range(2):  # and the server goes on
            with pytest.raises(error, match=words):
                client.score([VIDEOS[0], DARK], ["redder"] * 2)


def test_one_request_at_a_time_reaches_the_model() -> None:
    with serving(colours.Alone()) as client, ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda seed: client.score([turning_red(seed=seed)], ["turn red"]), range(24)))
    for seed, scores in enumerate(found):
        assert_equal(scores, colours.Redness().score([turning_red(seed=seed)], ["turn red"]))


def test_bad_videos_are_not_sent() -> None:
    client = HTTPProgressModel("http://127.0.0.1:9", **HURRY)
    with pytest.raises(ConfigurationError, match="2 videos came with 1 instructions"):
        client.score(VIDEOS[:2], ["turn red"])
    with serving(colours.Redness()) as client, pytest.raises(ConfigurationError, match="instruction 0 .*UTF-8"):
        client.score([VIDEOS[0]], ["half of \ud83c"])


@pytest.mark.parametrize(
    ("url", "arguments"),
    [
        ("http:", {}),
        ("http://", {}),
        ("ftp://127.0.0.1", {}),
        ("http://127.0.0.1:port", {}),
        ("http://127.0.0.1:0", {}),
        ("http://a b:80", {}),
        ("http://127.0.0.1:80", {"timeout": 0}),
        ("http://127.0.0.1:80", {"timeout": float("nan")}),
        ("http://127.0.0.1:80", {"retries": -1}),
        ("http://127.0.0.1:80", {"backoff": -1.0}),
        ("http://127.0.0.1:80", {"request_bytes": 0}),
        ("http://127.0.0.1:80", {"token_env": "NO_SUCH_VARIABLE"}),
    ],
)
def test_bad_arguments(url: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        HTTPProgressModel(url, **arguments)


def test_address_with_a_secret_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as raised:
        HTTPProgressModel("http://me:hush@127.0.0.1:80")
    assert "hush" not in str(raised.value)


def test_token(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    with ProgressServer(colours.Redness(), token_env="MY_TOKEN") as server:
        knows = HTTPProgressModel(server.url, token_env="MY_TOKEN")
        assert_equal(knows.score(VIDEOS, INSTRUCTIONS), colours.Redness().score(VIDEOS, INSTRUCTIONS))
        assert TOKEN.encode() not in pickle.dumps(knows)
        with pytest.raises(ProgressModelError, match="wants a token.*WMRL_PROGRESS_TOKEN"):
            HTTPProgressModel(server.url).score(VIDEOS, INSTRUCTIONS)
        monkeypatch.setenv("WMRL_PROGRESS_TOKEN", TOKEN + "x")
        with pytest.raises(ProgressModelError, match="wants a token"):
            HTTPProgressModel(server.url).score(VIDEOS, INSTRUCTIONS)
        monkeypatch.setenv("WMRL_PROGRESS_TOKEN", TOKEN)
        assert HTTPProgressModel(server.url).health().model == "Redness"
        # Also where nobody asked for the health before, with a body that the server does not read.
        for authorisation in ("", f"Authorization: Basic {TOKEN}\r\n", "Authorization: Bearer\r\n"):
            assert sent(server, request(b"x" * 2**20, authorisation)).startswith(b"HTTP/1.1 401")
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("token", ["", " ", "two words", "two\nlines", "clé"])
def test_token_that_is_none(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", token)
    with pytest.raises(ConfigurationError, match="MY_TOKEN"):
        ProgressServer(colours.Redness(), token_env="MY_TOKEN")


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("::1", False), ("localhost", False), ("", True)])
def test_open_port_without_a_token_is_warned_of(host: str, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    try:
        server = ProgressServer(colours.Redness(), host=host)
    except ConfigurationError:
        assert host == "::1"  # a machine without IPv6
        return
    with server:
        assert HTTPProgressModel(server.url).health().model == "Redness"
    assert ("anyone who reaches port" in caplog.text) == warned


Script = Callable[[socket.socket, bytes], None]


@contextmanager
def scripted(script: Script, health: dict[str, Any] | bytes | None = None) -> Iterator[str]:
    """Run a server that answers for its health, and to all else as a function does on the bare socket."""
    listener = socket.create_server(("127.0.0.1", 0))
    said = {"service": "wmrl-progress", "protocol": PROTOCOL, "model": "red", "max_frames": None}
    said |= {"max_bytes": 2**20, "max_videos": 100}

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                head, _, body = read_head(connection)
                if head.startswith(b"GET"):
                    known = health if isinstance(health, bytes) else json.dumps(health or said).encode()
                    connection.sendall(reply(known, "application/json"))
                    continue
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                while len(body) < length:
                    body += connection.recv(2**16)
                try:
                    script(connection, body)
                except OSError:
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5.0)


def read_head(connection: socket.socket) -> tuple[bytes, bytes, bytes]:
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(2**16)
    return head.partition(b"\r\n\r\n")


def reply(body: bytes, kind: str = CONTENT_TYPE, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n".encode() + body


def answer_to(message: bytes, **changes: Any) -> bytes:
    videos, instructions = decode_request(message, 2**20)
    scores = colours.Redness().score(videos, instructions)
    given = {"model": "red", "request": checksum(message), "scores": scores, "reasons": [""] * len(scores)} | changes
    return encode_answer(Answer(**given))


def sends(make: Callable[[bytes], bytes]) -> Script:
    return lambda connection, request: connection.sendall(make(request))


ONE = Progress(np.ones(1, np.float32))


def test_scripted_server_would_be_understood() -> None:
    with scripted(sends(lambda request: reply(answer_to(request)))) as url:
        assert_equal(HTTPProgressModel(url).score(VIDEOS, INSTRUCTIONS), colours.Redness().score(VIDEOS, INSTRUCTIONS))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (lambda request: b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
        (lambda request: b"\x00\xff" * 40_000, "does not speak HTTP"),
        (lambda request: b"", "connection broke off"),
        (lambda request: reply(b"<html>hello</html>", "text/html"), "does not answer as a progress server.*hello"),
        (lambda request: reply(b"[" * 10**6, "application/json"), "does not answer as a progress server"),
        (lambda request: reply(b"", "text/html", "500 Internal Server Error"), "HTTP 500"),
        (lambda request: reply(b"busy", "text/plain", "503 Service Unavailable"), "tried 2 times.*HTTP 503: busy"),
        (lambda request: reply(b'{"error": 3}', "application/json", "400 Bad Request"), "HTTP 400"),
        (
            lambda request: reply(b"", "a/b", "302 Found").replace(b"\r\n\r\n", b"\r\nLocation: http://x/\r\n\r\n"),
            "points to 'http://x/', which is not followed",
        ),
        (lambda request: reply(answer_to(request), "application/octet-stream"), "does not answer as a progress"),
        (lambda request: reply(b"", length=0), "cannot be read"),
        (lambda request: reply(answer_to(request)[:-1]), "cannot be read"),
        (lambda request: reply(answer_to(request) + b"x"), "cannot be read"),
        (lambda request: reply(answer_to(request), length=10**6), "tried 2 times.*broke off after"),
        (lambda request: reply(b"x" * 4 * 10**6), "longer than"),
        (lambda request: reply(request), "kind 1"),
        (lambda request: reply(answer_to(request, request=1)), "another request"),
        (lambda request: reply(answer_to(request, model="blue")), "now runs 'blue', and ran 'red' before"),
        (lambda request: reply(answer_to(request, scores=[ONE], reasons=[""])), "1 scores for 4 videos"),
        (lambda request: reply(answer_to(request, scores=[ONE] * 4)), "one number per frame"),
        (
            lambda request: reply(answer_to(request, scores=[None, Progress(np.float32([7])), None, None])),
            r"progress in \[7, 7\]",
        ),
    ],
)
def test_answers_that_are_none(script: Callable[[bytes], bytes], words: str) -> None:
    with scripted(sends(script)) as url:
        client = HTTPProgressModel(url, timeout=PATIENCE, **HURRY)
        with pytest.raises(ProgressModelError, match=words) as raised:
            client.score(VIDEOS, INSTRUCTIONS)
        assert url in str(raised.value)
        assert len(str(raised.value)) < 1200


def test_nan_of_a_server_is_none(caplog: pytest.LogCaptureFixture) -> None:
    nan = Progress(np.float32([0.5]), np.float32([np.nan]))
    with scripted(sends(lambda request: reply(answer_to(request, scores=[nan], reasons=["it was\n\x1b dark"])))) as url:
        assert HTTPProgressModel(url).score(VIDEOS[1:2], ["turn red"]) == [None]
    assert "video 0: it was dark its success is no finite number" in caplog.text


@pytest.mark.parametrize(
    ("health", "words"),
    [
        ({"service": "wmrl-progress", "protocol": 2, "model": "red"}, "speaks version 2 .* this client version 1"),
        ({"service": "wmrl-progress", "model": "red"}, "speaks version None"),
        ({"service": "other"}, "does not answer as a progress server"),
        ({"service": "wmrl-progress", "protocol": 1, "model": "red"}, "says of itself"),
        (
            {
                "service": "wmrl-progress",
                "protocol": 1,
                "model": "red",
                "max_frames": 0,
                "max_bytes": 1,
                "max_videos": 1,
            },
            "says of itself",
        ),
        (b"no JSON", "does not answer as a progress server"),
        (b"[1, 2]", "does not answer as a progress server"),
    ],
)
def test_health_that_is_none(health: dict[str, Any] | bytes, words: str) -> None:
    with scripted(sends(lambda request: b""), health) as url:
        with pytest.raises(ProgressModelError, match=words):
            HTTPProgressModel(url, **HURRY).score(VIDEOS, INSTRUCTIONS)


def hang(connection: socket.socket, request: bytes) -> None:
    connection.recv(1)


def drip_head(connection: socket.socket, request: bytes) -> None:
    while True:
        connection.sendall(b"H")
        time.sleep(0.02)


def drip_body(connection: socket.socket, request: bytes) -> None:
    connection.sendall(reply(b"", length=1000))
    while True:
        connection.sendall(b"x")
        time.sleep(0.02)


def drip_without_a_length(connection: socket.socket, request: bytes) -> None:
    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: {CONTENT_TYPE}\r\n\r\n".encode())
    while True:
        connection.sendall(b"x")
        time.sleep(0.02)


@pytest.mark.parametrize("script", [hang, drip_head, drip_body, drip_without_a_length])
def test_server_that_does_not_come_to_an_end(script: Script) -> None:
    with scripted(script) as url:
        with pytest.raises(ProgressModelError, match="no answer within 0.3 s.*longer timeout="):
            HTTPProgressModel(url, timeout=0.3, **HURRY).score(VIDEOS, INSTRUCTIONS)


def test_broken_connections_are_tried_again() -> None:
    outcomes = [b"", reply(b"HTTP/1.1", length=100), reply(b"", "text/plain", "502 Bad Gateway")]
    with scripted(sends(lambda request: outcomes.pop(0) if outcomes else reply(answer_to(request)))) as url:
        with pytest.raises(ProgressModelError, match="tried 2 times"):
            HTTPProgressModel(url, retries=1, backoff=0.0).score(VIDEOS, INSTRUCTIONS)
        found = HTTPProgressModel(url, retries=3, backoff=0.0).score(VIDEOS, INSTRUCTIONS)
        assert_equal(found, colours.Redness().score(VIDEOS, INSTRUCTIONS))


def test_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words = f"http://127.0.0.1:{port}: tried 2 times .*refused.*wmrl progress serve MODEL --port {port}"
    client = HTTPProgressModel(f"http://127.0.0.1:{port}", **HURRY)
    with pytest.raises(ProgressModelError, match=words):
        client.score(VIDEOS, INSTRUCTIONS)
    with pytest.raises(ProgressModelError, match=words):
        client.max_frames  # noqa: B018
    with pytest.raises(ProgressModelError, match="no-such-machine.invalid"):
        HTTPProgressModel("http://no-such-machine.invalid:8750", **HURRY).health()


def test_another_model_at_the_same_address() -> None:
    with ProgressServer(colours.Redness(), name="red") as server:
        client = HTTPProgressModel(server.url, **HURRY)
        client.score(VIDEOS, INSTRUCTIONS)
    with ProgressServer(colours.Redness(), name="red", port=server.port):
        client.score(VIDEOS, INSTRUCTIONS)
    with ProgressServer(colours.Redness(), name="redder", port=server.port):
        with pytest.raises(ProgressModelError, match="now runs 'redder', and ran 'red' before"):
            client.score(VIDEOS, INSTRUCTIONS)
        client.close()
        client.score(VIDEOS, INSTRUCTIONS)


def request(body: bytes, more: str = "", kind: str = CONTENT_TYPE, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"POST /score HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n{more}\r\n"
    return head.encode() + body


def sent(server: ProgressServer, content: bytes, *, broken_off: bool = False) -> bytes:
    """Send bytes, and nothing after them, and return what comes back."""
    found = b""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection:
        connection.sendall(content)
        if broken_off:
            connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(2**16):
            found += part
    return found


def claiming(shape: tuple[int, int, int], frames: bytes) -> bytes:
    """A request whose video claims a shape that its frames need not have."""
    body = struct.pack("<IIIIQ", *shape, 3, len(frames)) + b"red" + frames
    return struct.pack("<8sHHIQI", b"wmrlprog", PROTOCOL, 1, 1, len(body), zlib.crc32(body)) + body


GOOD = encode_request(VIDEOS, INSTRUCTIONS)


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (request(GOOD), 200, b"wmrlprog"),
        (request(b"garbage"), 400, b"no message of this protocol"),
        (request(GOOD[:8] + b"\x07\x00" + GOOD[10:]), 400, b"version 7 of the protocol, this side speaks 1"),
        (request(GOOD[:-1]), 400, b"was announced"),
        (request(claiming((1, 1, 1), zlib.compress(bytes(3)))), 200, b"wmrlprog"),
        (request(claiming((1, 1, 1), zlib.compress(bytes(10**7)))), 400, b"are not the 3 bytes"),
        (request(claiming((1, 1, 2), zlib.compress(bytes(3)))), 400, b"are not the 6 bytes"),
        (request(claiming((1, 1, 1), zlib.compress(bytes(3)) + b"x")), 400, b"are not the 3 bytes"),
        (request(claiming((1, 1, 1), b"no zlib")), 400, b"cannot be decompressed"),
        (request(claiming((2**32 - 1,) * 3, b"")), 400, b"larger than this server reads"),
        (request(claiming((0, 1, 1), zlib.compress(b""))), 422, b"is empty"),
        (request(encode_request([DARK], [" "])), 422, b"say in words"),
        (request(GOOD, kind="text/plain"), 415, b"content type"),
        (request(b"", length=10**18), 413, b"larger than"),
        (request(b"", length=10**30), 413, b"larger than"),
        (request(b"").replace(b"Content-Length: 0", b"Content-Length: -5"), 400, b"no number"),
        (request(b"").replace(b"Content-Length: 0\r\n", b""), 411, b"announce its length"),
        (request(b"", "Transfer-Encoding: chunked\r\n"), 411, b"announce its length"),
        (request(b"", "Content-Length: 7\r\n"), 411, b"announce its length"),
        (request(GOOD).replace(b"/score", b"/"), 404, b"GET /health and POST /score"),
        (b"GET /score HTTP/1.1\r\n\r\n", 404, b"GET /health and POST /score"),
        (b"GET /health HTTP/1.1\r\n\r\n", 200, b"wmrl-progress"),
        (b"PUT /score HTTP/1.1\r\n\r\n", 501, b""),
        (b"\x16\x03\x01\r\n\r\n", 400, b""),
    ],
)
def test_requests(content: bytes, status: int, words: bytes, server: ProgressServer) -> None:
    found = sent(server, content)
    assert found.startswith(f"HTTP/1.1 {status} ".encode()) or (status == 400 and b"400" in found)
    assert words in found
    assert HTTPProgressModel(server.url).score(VIDEOS[:1], ["turn red"])[0] is not None


@pytest.fixture(scope="module")
def server() -> Iterator[ProgressServer]:
    with ProgressServer(colours.Redness(), max_bytes=2**20) as running:
        yield running


def test_request_that_is_broken_off(server: ProgressServer) -> None:
    found = sent(server, request(GOOD)[:-5], broken_off=True)
    assert found.startswith(b"HTTP/1.1 408") and f"only {len(GOOD) - 5} of {len(GOOD)} bytes".encode() in found
    assert HTTPProgressModel(server.url).score(VIDEOS[:1], ["turn red"])[0] is not None


def test_client_that_went_away_is_not_scored_for() -> None:
    model = colours.Slow()
    with ProgressServer(model) as server, ThreadPoolExecutor(1) as pool:
        first = pool.submit(HTTPProgressModel(server.url, timeout=PATIENCE).score, VIDEOS, INSTRUCTIONS)
        assert model.begun.wait(PATIENCE)
        with pytest.raises(ProgressModelError, match="no answer within 0.3 s"):
            HTTPProgressModel(server.url, timeout=0.3).score(VIDEOS, INSTRUCTIONS)
        model.may_go_on.set()
        assert first.result(PATIENCE)[0] is not None
    assert len(model.asked) == 1


def test_closing_waits_for_the_request_at_the_model() -> None:
    model = colours.Slow()
    server = ProgressServer(model)
    server.start()
    with ThreadPoolExecutor(2) as pool:
        client = HTTPProgressModel(server.url, timeout=PATIENCE, **HURRY)
        first, second = (pool.submit(client.score, VIDEOS, INSTRUCTIONS) for _ in "12")
        assert model.begun.wait(PATIENCE)
        assert not server.close(patience=0.1)
        model.may_go_on.set()
        assert server.close()
        answered = [future for future in (first, second) if future.exception(PATIENCE) is None]
        assert len(answered) == len(model.asked) == 1
    with pytest.raises(ProgressModelError):
        HTTPProgressModel(server.url, **HURRY).health()


def test_closing_what_never_started() -> None:
    server = ProgressServer(colours.Redness())
    assert server.close()
    with pytest.raises(ConfigurationError, match="max_bytes=0"):
        ProgressServer(colours.Redness(), max_bytes=0)
    with pytest.raises(ConfigurationError, match="cannot listen"):
        ProgressServer(colours.Redness(), host="192.0.2.1")
    with pytest.raises(ConfigurationError, match="no method score"):
        ProgressServer(object())  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.uint8, st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.just(3))),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.data(),
)
def test_format(video: Video, instruction: str, data: st.DataObject) -> None:
    message = encode_request([video, video[::-1]], [instruction, "red"])
    videos, instructions = decode_request(message, 2**20)
    assert instructions == [instruction, "red"]
    assert np.array_equal(videos[0], video) and np.array_equal(videos[1], video[::-1])
    assert video.flags.c_contiguous and not np.shares_memory(video, videos[0])
    scores = [None, Progress(np.float32(np.linspace(0, 1, len(video))), None)]
    answer = encode_answer(Answer("red", 3, scores, ["dark", ""]))
    assert_equal(list(decode_answer(answer).scores), scores)
    for decode, whole in ((lambda part: decode_request(part, 2**20), message), (decode_answer, answer)):
        at = data.draw(st.integers(0, len(whole) - 1))
        flipped = bytearray(whole)
        flipped[at] ^= data.draw(st.integers(1, 255))
        for damaged in (bytes(flipped), whole[:at], whole + b"x"):
            with pytest.raises(WireError):
                decode(damaged)


@contextmanager
def command(*args: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", "from wmrl_envs.cli import main; main()", "progress", "serve", *args],
        cwd=HERE,  # module:Class of one's own is looked for there
        env=os.environ | {"COLUMNS": "200"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def url_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("serving "), line + process.communicate()[1]
    return line.partition(" at ")[2].partition(";")[0]


def test_command_serves_and_stops() -> None:
    args = ("colour_progress:Redness", "--port", "0", "--kwargs", "dtype=float64", "--kwargs", "success=false")
    with command(*args, "--token-env", "MY_TOKEN", MY_TOKEN=TOKEN) as process:
        url = url_of(process)
        with pytest.raises(ProgressModelError, match="wants a token"):
            HTTPProgressModel(url).health()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MY_TOKEN", TOKEN)
            client = HTTPProgressModel(url, token_env="MY_TOKEN")
            found = client.score(VIDEOS, INSTRUCTIONS)
            assert client.health().model == "colour_progress:Redness"
        assert_equal(found, colours.Redness("float64", False).score(VIDEOS, INSTRUCTIONS))
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (0, "stopped\n")
        assert "without the token" in err and "Traceback" not in err


def test_command_answers_before_an_interrupt_ends_it(tmp_path: Path) -> None:
    sign = tmp_path / "begun"
    args = ("colour_progress:Slow", "--port", "0", "--kwargs", "seconds=0.5", "--kwargs", f"sign={sign}")
    with command(*args) as process, ThreadPoolExecutor(1) as pool:
        found = pool.submit(HTTPProgressModel(url_of(process), **HURRY).score, VIDEOS, INSTRUCTIONS)
        wait_for(sign)
        process.send_signal(signal.SIGINT)
        assert_equal(found.result(PATIENCE), colours.Redness().score(VIDEOS, INSTRUCTIONS))
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out, err) == (0, "stopped\n", "")


def test_server_that_dies_at_work(tmp_path: Path) -> None:
    sign = tmp_path / "begun"
    args = ("colour_progress:Slow", "--port", "0", "--kwargs", f"sign={sign}")
    with command(*args) as process, ThreadPoolExecutor(1) as pool:
        url = url_of(process)
        found = pool.submit(HTTPProgressModel(url, **HURRY).score, VIDEOS, INSTRUCTIONS)
        wait_for(sign)
        process.kill()
        with pytest.raises(ProgressModelError, match=f"{url}: tried 2 times.*wmrl progress serve MODEL --port"):
            found.result(PATIENCE)


def wait_for(file: Path) -> None:
    for _ in range(int(100 * PATIENCE)):
        if file.exists():
            return
        time.sleep(0.01)
    raise TimeoutError(file)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("colour_progress:Reddness",), "cannot import the progress model colour_progress:Reddness"),
        (("colour_progress:Exacting",), "missing 1 required positional argument: 'colour'"),
        (("colour_progress:Redness", "--kwargs", "red"), "kwargs must read name=value"),
        (("colour_progress:Redness", "--kwargs", "colour=red"), "unexpected keyword argument 'colour'"),
        (("colour_progress:Redness", "--token-env", "NO_SUCH"), "'NO_SUCH' holds no token"),
        (("colour_progress:Redness", "--host", "192.0.2.1"), "of '192.0.2.1': Cannot assign requested address"),
    ],
)
def test_command_refuses(args: tuple[str, ...], words: str) -> None:
    before = signal.getsignal(signal.SIGTERM)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["progress", "serve", "--port", "0", *args])
    assert result.exit_code == 1
    assert result.output.startswith("error: ") and words in result.output
    assert signal.getsignal(signal.SIGTERM) is before


def test_command_refuses_a_taken_port_before_it_loads_a_model() -> None:
    with ProgressServer(colours.Redness()) as server:
        args = ["progress", "serve", "no_such_module:Model", "--port", str(server.port)]
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, args)
    assert result.exit_code == 1
    assert f"cannot listen at port {server.port} of '127.0.0.1': Address already in use" in result.output


def test_server_needs_little() -> None:
    code = (
        "import sys, wmrl_envs.robotics.progress_server\n"
        "heavy = {'typer', 'rich', 'scipy', 'pandas', 'sklearn', 'torch', 'transformers', 'httpx', 'mujoco'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
