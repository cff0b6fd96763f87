"""What a progress server and its client say to each other: videos one way, scores the other.

A message is an envelope (magic, protocol version, kind, how many videos, bytes and CRC-32 of the body) and a body in
which every part is preceded by its length. All numbers are little-endian; texts are UTF-8. Frames travel as their
differences to the frame before, compressed by zlib: lossless, and a third of the bytes of frames that are compressed as
they are, since what does not move becomes zeros. Scores travel in the precision that the model gave them in.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.robotics.progress import Progress, Video

__all__ = [
    "CONTENT_TYPE",
    "MAX_VIDEOS",
    "PROTOCOL",
    "SERVICE",
    "Answer",
    "VersionError",
    "WireError",
    "checksum",
    "decode_answer",
    "decode_request",
    "encode_answer",
    "encode_request",
    "finite",
    "message_limit",
]

PROTOCOL = 1
"""Version of the format; both sides must speak the same."""
SERVICE = "wmrl-progress"
CONTENT_TYPE = "application/vnd.wmrl-progress"
MAX_VIDEOS = 1024
"""Most videos of one request."""

_MAGIC = b"wmrlprog"
_REQUEST, _ANSWER = 1, 2
_ENVELOPE = struct.Struct("<8sHHIQI")
_VIDEO = struct.Struct("<IIIIQ")  # frames, height, width, bytes of the instruction, bytes of the compressed frames
_HEAD = struct.Struct("<II")  # checksum of the request, bytes of the model's name
# Bytes of each number of progress, success and features (0: none); frames, features, bytes of the reason.
_SCORES = struct.Struct("<BBBIII")
_FLOATS: dict[int, np.dtype[Any]] = {2: np.dtype("<f2"), 4: np.dtype("<f4"), 8: np.dtype("<f8")}


class WireError(ValueError):
    """A message that is none, is damaged, or holds what it may not."""


class VersionError(WireError):
    """A message in another version of the format."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server says to one request."""

    model: str
    """Name of the model that gave the scores."""
    request: int
    """Checksum of the request that is answered."""
    scores: Sequence[Progress | None]
    reasons: Sequence[str]
    """Why a video has no scores, for the log; empty where nothing is known about that."""


def checksum(message: bytes) -> int:
    """Return the number by which an answer names its request."""
    return zlib.crc32(message)


def message_limit(max_bytes: int) -> int:
    """Return the most bytes of a request that holds ``max_bytes`` of frames and instructions."""
    return max_bytes + max_bytes // 8 + 2**20  # frames of noise do not compress, and zlib adds a little


def encode_request(videos: Sequence[Video], instructions: Sequence[str]) -> bytes:
    """Return a request as bytes.

    Args:
        videos: uint8 [T, H, W, 3] each.
        instructions: One each.

    Raises:
        UnicodeEncodeError: If an instruction cannot be UTF-8, such as half of a surrogate pair.
    """
    parts: list[bytes] = []
    for video, instruction in zip(videos, instructions, strict=True):
        text, frames = instruction.encode(), _compressed(video)
        parts += [_VIDEO.pack(*video.shape[:3], len(text), len(frames)), text, frames]
    return _message(_REQUEST, len(videos), parts)


def decode_request(message: bytes, max_bytes: int) -> tuple[list[Video], list[str]]:
    """Return the videos and instructions of a request.

    Args:
        message: What came.
        max_bytes: Most bytes of frames and instructions; nothing is unpacked beyond.

    Raises:
        WireError: If it is damaged, or larger than that.
    """
    count, reader = _opened(message, _REQUEST)
    if count > MAX_VIDEOS:
        raise WireError(f"{count} videos in one request; it may hold {MAX_VIDEOS}")
    videos: list[Video] = []
    instructions: list[str] = []
    for index in range(count):
        *shape, text, packed = reader.unpack(_VIDEO)
        size = shape[0] * shape[1] * shape[2] * 3
        max_bytes -= size + text
        if max_bytes < 0:
            raise WireError(f"the frames and instructions up to video {index} are larger than this server reads")
        instructions.append(reader.text(text))
        differences = _decompressed(reader.take(packed), size).reshape(*shape, 3)
        videos.append(np.add.accumulate(differences, axis=0, dtype=np.uint8))  # wraps around as the subtraction did
    reader.close()
    return videos, instructions


def encode_answer(answer: Answer) -> bytes:
    """Return an answer as bytes."""
    name = answer.model.encode(errors="replace")
    parts = [_HEAD.pack(answer.request, len(name)), name]
    for scores, reason in zip(answer.scores, answer.reasons, strict=True):
        text = reason.encode(errors="replace")
        arrays = [None if values is None else _floats(values) for _, values in _parts(scores)]
        sizes = [0 if values is None else values.itemsize for values in arrays]
        progress, _, features = [0 if values is None else len(values) for values in arrays]
        parts += [_SCORES.pack(*sizes, progress, features, len(text)), text]
        parts += [values.tobytes() for values in arrays if values is not None]
    return _message(_ANSWER, len(answer.scores), parts)


def decode_answer(message: bytes) -> Answer:
    """Return what a server said; whether it fits the question is for the caller to check.

    Raises:
        WireError: If it is damaged.
    """
    count, reader = _opened(message, _ANSWER)
    request, name = reader.unpack(_HEAD)
    model = reader.text(name)
    scores: list[Progress | None] = []
    reasons: list[str] = []
    for _ in range(count):
        *kinds, frames, width, text = reader.unpack(_SCORES)
        reasons.append(reader.text(text))
        arrays = [_array(reader, kind, size) for kind, size in zip(kinds, (frames, frames, width), strict=True)]
        if arrays[0] is None and (any(kinds) or frames or width):
            raise WireError("it has a video without progress that has frames, a success or features")
        scores.append(None if arrays[0] is None else Progress(arrays[0], *arrays[1:]))
    reader.close()
    return Answer(model, request, scores, reasons)


def finite(scores: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Return scores with ``None`` for those that hold a NaN or an infinity, and the reason at each of these places."""
    reasons = [_reason(item) for item in scores]
    return [None if reason else item for item, reason in zip(scores, reasons, strict=True)], reasons


class _Reader:
    """Takes a body apart from its beginning."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def take(self, size: int) -> memoryview:
        part = self._body[self._at : self._at + size]
        if len(part) < size:
            raise WireError(f"it ends {size - len(part)} bytes early")
        self._at += size
        return part

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))

    def text(self, size: int) -> str:
        try:
            return bytes(self.take(size)).decode()
        except UnicodeDecodeError as error:
            raise WireError(f"a text in it is no UTF-8: {error}") from error

    def close(self) -> None:
        if self._at != len(self._body):
            raise WireError(f"{len(self._body) - self._at} bytes follow its end")


def _message(kind: int, count: int, parts: Sequence[bytes]) -> bytes:
    body = b"".join(parts)
    return _ENVELOPE.pack(_MAGIC, PROTOCOL, kind, count, len(body), zlib.crc32(body)) + body


def _opened(message: bytes, kind: int) -> tuple[int, _Reader]:
    """Return how many videos a message is about, and its body."""
    if len(message) < _ENVELOPE.size or not message.startswith(_MAGIC):
        raise WireError(f"it begins with {message[:16]!r}, and is no message of this protocol")
    _, version, found, count, size, crc = _ENVELOPE.unpack_from(message)
    if version != PROTOCOL:
        raise VersionError(f"it is in version {version} of the protocol, this side speaks {PROTOCOL}")
    body = memoryview(message)[_ENVELOPE.size :]
    if found != kind or len(body) != size:
        raise WireError(f"it is of kind {found} with {len(body)} bytes; kind {kind} with {size} was announced")
    if zlib.crc32(body) != crc:
        raise WireError("its checksum is wrong")
    return count, _Reader(body)


def _compressed(video: Video) -> bytes:
    differences = np.array(video, order="C")
    np.subtract(video[1:], video[:-1], out=differences[1:])
    # Of differences a higher level spares 5 % of the bytes for twice the time.
    return zlib.compress(differences.data, level=1)


def _decompressed(packed: memoryview, size: int) -> NDArray[np.uint8]:
    stream = zlib.decompressobj()
    try:
        # One byte more than announced: enough to see that there is more, and no more memory than that.
        content = stream.decompress(packed, size + 1)
    except zlib.error as error:
        raise WireError(f"its frames cannot be decompressed: {error}") from error
    if len(content) != size or not stream.eof or stream.unused_data:
        raise WireError(f"its frames are not the {size} bytes that were announced")
    return np.frombuffer(content, np.uint8)


def _floats(values: Any) -> NDArray[Any]:
    """Return scores in the precision they have; what are no floating-point numbers become float64."""
    array = np.asarray(values)
    kind = _FLOATS[array.itemsize] if array.dtype.kind == "f" and array.itemsize in _FLOATS else _FLOATS[8]
    return array.astype(kind)


def _array(reader: _Reader, kind: int, frames: int) -> NDArray[Any] | None:
    if kind == 0:
        return None
    if kind not in _FLOATS:
        raise WireError(f"it has scores of {kind} bytes each; they have {', '.join(map(str, _FLOATS))}")
    return np.frombuffer(bytearray(reader.take(frames * kind)), _FLOATS[kind])


def _parts(scores: Progress | None) -> list[tuple[str, Any]]:
    """Return what a video's scores consist of, in the order in which it is sent."""
    return [(name, getattr(scores, name, None)) for name in ("progress", "success", "features")]


def _reason(scores: Any) -> str:
    if isinstance(scores, Progress):
        for name, values in _parts(scores):
            if values is not None and not np.isfinite(np.asarray(values, np.float64)).all():
                return f"its {name} is no finite number in every place"
    return ""
