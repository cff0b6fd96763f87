"""Videos of rollouts: written, read, resized, and drawn with the progress of the rollout beside.

- ``write_video``, ``read_video`` - MP4 files, through OpenCV's own encoder: no program outside Python is called.
- ``resize`` - all frames of a video.
- ``draw_progress`` - frames with the curve of a progress model beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, MissingExtraError
from wmrl_envs.files import check_file, replacing
from wmrl_envs.robotics.progress import Video, check_videos

try:
    import cv2

    from wmrl_envs.robotics._progress_panel import PROGRESS_COLOUR, SUCCESS_COLOUR, Curve, ProgressPanel, title_strip
except ImportError as error:
    raise MissingExtraError(f"videos need OpenCV ({error}): pip install 'wmrl-envs[robotics]'") from error

__all__ = ["draw_progress", "read_video", "resize", "write_video"]

CODECS = ("vp09", "mp4v")
"""In order of preference. OpenCV's wheels have no encoder for H.264, and browsers do not play mp4v."""
LEAST_HEIGHT = 256
"""Frames are drawn at this many pixels or more, so that the words beside them can be read."""


def write_video(path: str | Path, frames: Video | Iterable[NDArray[np.uint8]], *, fps: float) -> None:
    """Write a video, whole or not at all.

    A codec stores even sizes alone: an odd height or width grows by one, the last row or column repeated.
    Colours are stored at half resolution and compressed, so they come back within a few steps of 255, not equal.

    Args:
        path: A file that ends in ``.mp4``; one that exists is replaced.
        frames: uint8 [T, H, W, 3], red first, upright; or frames uint8 [H, W, 3] one after another, so that a long
            video need not fit into memory.
        fps: Frames per second, above 0.

    Raises:
        ConfigurationError: If there is no frame, a frame is no uint8 [H, W, 3] or differs in size from the first, or
            the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() != ".mp4":
        raise ConfigurationError(f"a video is written as MP4, and {path} ends otherwise; name it {path.stem}.mp4")
    if not (math.isfinite(fps) and fps > 0):
        raise ConfigurationError(f"fps must be a number above 0, got {fps!r}")
    check_file(path)
    checked = _checked_frames(frames)
    first = next(checked, None)
    if first is None:
        raise ConfigurationError(f"there is no frame to write to {path}; a video has at least one")
    with replacing(path) as temporary:
        written = _encode(temporary, chain([first], checked), first.shape, fps)
        # The encoder reports neither a full disk nor a frame that it dropped.
        found = _promised_frames(temporary)
        if found != written:
            raise ConfigurationError(f"only {found} of {written} frames could be written to {path}; is the disk full?")


def read_video(path: str | Path) -> Video:
    """Read all frames of a video; uint8 [T, H, W, 3], red first.

    Raises:
        ConfigurationError: If there is no such file, it is no video, or it is cut short.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigurationError(f"there is no video {path}")
    promised, frames = _promised_frames(path), list(_decoded(path))
    if not frames:
        raise ConfigurationError(f"{path} cannot be read as a video: it is cut short, or something else")
    if len(frames) < promised:
        raise ConfigurationError(f"{path} is damaged: only {len(frames)} of its {promised} frames can be read")
    return np.stack(frames)


def resize(frames: Video, size: int | tuple[int, int]) -> Video:
    """Return the frames in another size, averaged where they shrink and interpolated where they grow.

    Args:
        frames: uint8 [T, H, W, 3].
        size: Height and width in pixels, at least 1; one number for both.

    Returns:
        uint8 [T, height, width, 3]; the frames themselves where the size is theirs.

    Raises:
        ConfigurationError: If the frames or the size are something else.
    """
    check_videos([frames], ["resize"])
    height, width = (size, size) if isinstance(size, int | np.integer) else size
    if height < 1 or width < 1:
        raise ConfigurationError(f"a frame of {height} x {width} pixels has no pixel; both are at least 1")
    if frames.shape[1:3] == (height, width):
        return frames
    shrinks = height * width < frames.shape[1] * frames.shape[2]
    how = cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC
    return np.stack([cv2.resize(frame, (width, height), interpolation=how) for frame in frames])


def draw_progress(
    frames: Video,
    progress: NDArray[np.floating[Any]] | None,
    *,
    success: NDArray[np.floating[Any]] | None = None,
    real: bool | None = None,
    anchor: bool = False,
    title: str = "",
) -> Video:
    """Draw the curve of a progress model beside the frames of a rollout; it grows with them.

    Args:
        frames: uint8 [T, H, W, 3]; a height below 256 is enlarged.
        progress: [T] in [0, 1]; ``None`` where the rollout could not be scored.
        success: [T] probability in [0, 1] that the task is solved; a second, dashed curve.
        real: Whether the task was really solved: marked by a dot at 1 or a cross at 0; ``None`` where unknown.
        anchor: Whether that label was paid for, and the agent has learned from it.
        title: Written above, such as the instruction.

    Returns:
        uint8 [T, H', W', 3] of even size: what ``write_video`` takes.

    Raises:
        ConfigurationError: If the frames are no video, a curve has another length or leaves [0, 1], or there is an
            anchor without its real label.
    """
    title = " ".join(title.split())
    check_videos([frames], [title or "draw"])
    if anchor and real is None:
        raise ConfigurationError("an anchor is a rollout whose real success is known; give real=True or real=False")
    curves = [
        Curve(name, _checked_curve(name, values, len(frames)), colour, dashed=name == "success")
        for name, values, colour in (("progress", progress, PROGRESS_COLOUR), ("success", success, SUCCESS_COLOUR))
        if values is not None
    ]
    height, width = frames.shape[1:3]
    scale = max(1.0, LEAST_HEIGHT / height)
    frames = resize(frames, (_rounded_up(height * scale), _rounded_up(width * scale)))
    panel = ProgressPanel(frames.shape[1], len(frames), curves)
    if real is not None:
        panel.outcome(real, anchor)
    drawn = np.stack([np.hstack(pair) for pair in zip(frames, panel.pictures(), strict=True)])
    if not title:
        return drawn
    strip = title_strip(title, drawn.shape[2], frames.shape[1])
    return np.concatenate([np.broadcast_to(strip, (len(drawn), *strip.shape)), drawn], axis=1)


def _checked_frames(frames: Iterable[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
    first: tuple[int, ...] | None = None
    for index, frame in enumerate(frames):
        shape, dtype = np.shape(frame), getattr(frame, "dtype", None)
        if len(shape) != 3 or shape[2] != 3 or 0 in shape or dtype != np.uint8:
            raise ConfigurationError(f"frame {index} is {dtype} {list(shape)}; it must be uint8 [height, width, 3]")
        first = first or shape
        if shape != first:
            raise ConfigurationError(f"frame {index} is {list(shape)} among frames of {list(first)}; resize it first")
        yield frame


def _encode(path: Path, frames: Iterable[NDArray[np.uint8]], shape: tuple[int, ...], fps: float) -> int:
    size = _rounded_up(shape[1]), _rounded_up(shape[0])
    writers = (
        cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*codec), fps, size) for codec in CODECS
    )
    writer = next((writer for writer in writers if writer.isOpened()), None)
    if writer is None:
        raise ConfigurationError(f"this OpenCV ({cv2.__version__}) encodes none of {', '.join(CODECS)} at {fps:g} fps")
    count = 0
    try:
        for frame in frames:
            padding = ((0, size[1] - shape[0]), (0, size[0] - shape[1]), (0, 0))
            writer.write(np.ascontiguousarray(np.pad(frame, padding, mode="edge")[..., ::-1]))
            count += 1
    finally:
        writer.release()
    return count


def _promised_frames(path: Path) -> int:
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    try:
        return int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) if capture.isOpened() else 0
    finally:
        capture.release()


def _decoded(path: Path) -> Iterator[NDArray[np.uint8]]:
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    try:
        while True:
            there, frame = capture.read()
            if not there:
                return
            yield np.ascontiguousarray(frame[..., ::-1]).astype(np.uint8, copy=False)
    finally:
        capture.release()


def _rounded_up(length: float) -> int:
    return 2 * math.ceil(round(length, 6) / 2)


def _checked_curve(name: str, values: Any, frames: int) -> NDArray[np.float32]:
    curve = np.asarray(values, dtype=np.float32)
    if curve.shape != (frames,):
        raise ConfigurationError(f"{name} has shape {list(curve.shape)} for {frames} frames; it is one number a frame")
    if not (np.isfinite(curve).all() and curve.min() >= 0.0 and curve.max() <= 1.0):
        raise ConfigurationError(f"{name} has values outside [0, 1]: {np.array2string(curve, threshold=8)}")
    return curve
