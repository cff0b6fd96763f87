"""Videos come back as they were written, and bad ones are refused by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import RecordVideo
from numpy.typing import NDArray

import wmrl_envs  # noqa: F401  # registers the environments
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.robotics.video import draw_progress, read_video, resize, write_video

Frames = NDArray[np.uint8]


def gliding_square(frames: int, height: int, width: int) -> Frames:
    """Return a red square that glides to the right over a blue ground."""
    video = np.zeros((frames, height, width, 3), np.uint8)
    video[..., 2] = 160
    for index in range(frames):
        left = index * width // (2 * frames)
        video[index, height // 4 : height // 2, left : left + width // 3] = (230, 40, 30)
    return video


@pytest.mark.parametrize("frames", [1, 2, 15, 60])
def test_video_comes_back_in_size_number_and_colour(tmp_path: Path, frames: int) -> None:
    video = gliding_square(frames, 64, 96)
    write_video(tmp_path / "rollout.mp4", video, fps=10)
    back = read_video(tmp_path / "rollout.mp4")
    assert (back.shape, back.dtype) == (video.shape, np.uint8)
    assert np.abs(back.astype(int) - video).mean() < 6.0
    for index in (0, frames - 1):
        left = index * 96 // (2 * frames)
        red = back[index, 20:28, left + 8 : left + 24].mean(axis=(0, 1))
        assert np.allclose(red, (230, 40, 30), atol=16), red


def test_no_frame_is_a_neighbour(tmp_path: Path) -> None:
    video = np.stack([np.full((32, 32, 3), level, np.uint8) for level in range(20, 240, 20)])
    write_video(tmp_path / "levels.mp4", video, fps=5)
    assert np.allclose(read_video(tmp_path / "levels.mp4").mean(axis=(1, 2, 3)), range(20, 240, 20), atol=4)


@pytest.mark.parametrize("fps", [0.5, 12.5, 30, 80])
def test_fps_is_kept(tmp_path: Path, fps: float) -> None:
    import cv2

    write_video(tmp_path / "rollout.mp4", gliding_square(8, 32, 32), fps=fps)
    assert cv2.VideoCapture(str(tmp_path / "rollout.mp4")).get(cv2.CAP_PROP_FPS) == pytest.approx(fps, rel=0.01)


def test_odd_size_grows_by_one_row_and_column(tmp_path: Path) -> None:
    video = gliding_square(5, 65, 97)
    write_video(tmp_path / "odd.mp4", video, fps=10)
    back = read_video(tmp_path / "odd.mp4")
    assert back.shape == (5, 66, 98, 3)
    assert np.abs(back[:, :65, :97].astype(int) - video).mean() < 6.0
    assert np.allclose(back[:, -1].mean(axis=(0, 1)), (0, 0, 160), atol=12)


def test_frames_may_come_one_by_one_and_turned(tmp_path: Path) -> None:
    upside_down = gliding_square(6, 48, 48)[:, ::-1, ::-1]

    def one_by_one() -> Iterator[Frames]:
        for frame in upside_down:
            yield frame[::-1, ::-1]

    write_video(tmp_path / "new" / "rollout.mp4", one_by_one(), fps=10)
    back = read_video(tmp_path / "new" / "rollout.mp4")
    assert np.abs(back.astype(int) - gliding_square(6, 48, 48)).mean() < 6.0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (np.zeros((64, 80, 3), np.uint8), "frame 2 is [64, 80, 3] among frames of [64, 96, 3]"),
        (np.zeros((64, 96, 3), np.float32), "frame 2 is float32 [64, 96, 3]; it must be uint8 [height, width, 3]"),
        (np.zeros((64, 96), np.uint8), "frame 2 is uint8 [64, 96]"),
        (np.zeros((64, 96, 4), np.uint8), "frame 2 is uint8 [64, 96, 4]"),
        (None, "frame 2 is None []"),
    ],
)
def test_frame_of_another_kind_is_refused_and_the_old_video_kept(tmp_path: Path, wrong: object, words: str) -> None:
    path = tmp_path / "rollout.mp4"
    write_video(path, gliding_square(3, 32, 32), fps=10)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError) as caught:
        write_video(path, [*gliding_square(2, 64, 96), wrong], fps=10)  # type: ignore[list-item]
    assert words in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["rollout.mp4"]


@pytest.mark.parametrize(
    ("name", "frames", "fps", "words"),
    [
        ("a.mp4", np.zeros((0, 8, 8, 3), np.uint8), 10, "no frame to write"),
        ("a.mp4", [], 10, "no frame to write"),
        ("a.avi", gliding_square(1, 8, 8), 10, "name it a.mp4"),
        ("a.mp4", gliding_square(1, 8, 8), 0, "fps must be a number above 0, got 0"),
        ("a.mp4", gliding_square(1, 8, 8), float("nan"), "got nan"),
        ("file/a.mp4", gliding_square(1, 8, 8), 10, "is a file, not a folder"),
        ("folder.mp4", gliding_square(1, 8, 8), 10, "is a folder"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, name: str, frames: Frames, fps: float, words: str) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder.mp4").mkdir()
    with pytest.raises(ConfigurationError) as caught:
        write_video(tmp_path / name, frames, fps=fps)
    assert words in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.mp4"]


def test_what_is_no_video_is_refused_by_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_video(tmp_path / "whole.mp4", gliding_square(30, 64, 64), fps=10)
    whole = (tmp_path / "whole.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "noise.mp4").write_bytes(np.random.default_rng(0).bytes(5000))
    (tmp_path / "text.mp4").write_text("open the drawer\n" * 100)
    (tmp_path / "empty.mp4").touch()
    for name in ("cut.mp4", "noise.mp4", "text.mp4", "empty.mp4"):
        with pytest.raises(ConfigurationError, match=f"{name} cannot be read as a video"):
            read_video(tmp_path / name)
    with pytest.raises(ConfigurationError, match=r"there is no video .*missing\.mp4"):
        read_video(tmp_path / "missing.mp4")
    capfd.readouterr()


def test_video_with_an_unreadable_frame_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "rollout.mp4"
    noise = np.random.default_rng(0).integers(0, 256, (12, 64, 64, 3), np.uint8)
    write_video(path, noise, fps=10)
    content = bytearray(path.read_bytes())
    start = content.index(b"mdat") + 4
    content[start + 2000 : len(content) - 1500] = bytes(len(content) - 1500 - start - 2000)
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"rollout\.mp4 (is damaged|cannot be read)"):
        read_video(path)


def test_resize() -> None:
    video = gliding_square(4, 64, 96)
    assert resize(video, 32).shape == (4, 32, 32, 3)
    assert resize(video, (20, 30)).shape == (4, 20, 30, 3)
    assert resize(video, (64, 96)) is video
    assert np.array_equal(resize(video, np.int64(32)), resize(video, (32, 32)))  # type: ignore[arg-type]
    # A quarter of the pixels: each the mean of four.
    means = video.reshape(4, 32, 2, 48, 2, 3).mean(axis=(2, 4))
    assert np.abs(resize(video, (32, 48)).astype(float) - means).max() <= 0.5
    assert resize(resize(video, (128, 192)), (64, 96)) == pytest.approx(video, abs=60)
    with pytest.raises(ConfigurationError, match="0 x 5 pixels"):
        resize(video, (0, 5))
    with pytest.raises(ConfigurationError, match=r"video 0 is float64 \[2, 8, 8, 3\]"):
        resize(np.zeros((2, 8, 8, 3)), 4)  # type: ignore[arg-type]


BLUE, VERMILION = (0, 114, 178), (213, 94, 0)


def pixels_of(picture: Frames, colour: tuple[int, int, int]) -> int:
    return int((np.abs(picture.astype(int) - colour).max(axis=-1) < 12).sum())


def test_curve_grows_beside_the_frames() -> None:
    video, rising = gliding_square(10, 64, 64), np.linspace(0, 1, 10)
    drawings = {
        BLUE: draw_progress(video, rising),
        VERMILION: draw_progress(video, None, success=rising),
    }
    for colour, drawn in drawings.items():
        assert drawn.shape == (10, 256, 512, 3)
        assert np.array_equal(drawn[:, :, :256], resize(video, 256))
        shown = [pixels_of(picture[70:, 256:], colour) for picture in drawn]
        assert shown[0] > 20
        assert all(after > before for before, after in zip(shown[1:], shown[2:], strict=False)), shown


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_curve_lies_where_its_value_says(value: float) -> None:
    picture = draw_progress(gliding_square(9, 256, 256), np.full(9, value))[-1, 70:, 256:]
    rows = np.flatnonzero((np.abs(picture.astype(int) - BLUE).max(axis=-1) < 12).sum(axis=1) > 100) + 70
    # The axis runs from row 228 (0) up to row 74 (1).
    assert rows.mean() == pytest.approx(228 - value * 154, abs=1.0)


def test_real_outcome_is_marked_by_shape_and_place() -> None:
    video, curve = gliding_square(4, 64, 64), np.full(4, 0.5)
    margin = {real: draw_progress(video, curve, real=real)[0, :, -22:] for real in (None, True, False)}
    dark = {real: (picture.max(axis=-1) < 90) for real, picture in margin.items()}
    assert not dark[None].any()
    assert dark[True][66:82].sum() > 60 and not dark[True][200:].any()
    assert dark[False][220:236].sum() > 20 and not dark[False][60:90].any()
    words = draw_progress(video, curve, real=True)[0], draw_progress(video, curve, real=True, anchor=True)[0]
    assert (words[0] != words[1]).any()


def test_drawing_becomes_a_video(tmp_path: Path) -> None:
    drawn = draw_progress(gliding_square(5, 63, 85), np.linspace(0, 1, 5), title="open the drawer " * 20)
    assert drawn.shape[1] % 2 == 0 and drawn.shape[2] % 2 == 0
    assert (drawn[:, :28, -8:] == 255).all()  # a long title ends before the edge
    write_video(tmp_path / "drawn.mp4", drawn, fps=4)
    assert np.abs(read_video(tmp_path / "drawn.mp4").astype(int) - drawn).mean() < 4.0


def test_rollout_without_scores_and_of_one_frame_is_drawn() -> None:
    assert draw_progress(gliding_square(3, 64, 64), None, real=False).shape == (3, 256, 512, 3)
    assert draw_progress(gliding_square(1, 300, 200), np.array([0.4]), title="x").shape == (1, 332, 500, 3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"progress": np.zeros(3)}, r"progress has shape \[3\] for 4 frames"),
        ({"progress": np.array([0, 0.5, 1.2, 1])}, r"progress has values outside \[0, 1\]"),
        ({"progress": np.zeros(4), "success": np.array([0, np.nan, 0, 0])}, "success has values outside"),
        ({"progress": np.zeros(4), "anchor": True}, "give real=True or real=False"),
    ],
)
def test_what_cannot_be_drawn_is_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        draw_progress(gliding_square(4, 32, 32), **settings)  # type: ignore[arg-type]


def test_gymnasium_records_robots(tmp_path: Path) -> None:
    def make() -> gym.Env[dict[str, object], NDArray[np.float32]]:
        tasks = ["drawer-open", "window-open"]
        return gym.make("wmrl/MetaWorld-v0", tasks=tasks, max_decisions=3, render_mode="rgb_array", render_size=128)

    folder = tmp_path / "videos"
    plain, recorder = make(), RecordVideo(make(), str(folder), episode_trigger=lambda episode: True)
    shown = []
    for task in ("drawer-open", "window-open"):
        for env in (plain, recorder):
            env.reset(seed=0, options={"task": task})
        shown.append([plain.render()])
        for _ in range(3):
            for env in (plain, recorder):
                env.step(np.array([1, 0, 1, 1], np.float32))
            shown[-1].append(plain.render())
    plain.close()
    recorder.close()
    assert sorted(os.listdir(folder)) == ["rl-video-episode-0.mp4", "rl-video-episode-1.mp4"]
    for episode, frames in enumerate(shown):
        recorded = read_video(folder / f"rl-video-episode-{episode}.mp4").astype(int)
        assert recorded.shape == (4, 128, 128, 3)
        assert np.abs(recorded - np.array(frames)).mean() < 6.0
        assert np.abs(recorded - np.array(shown[1 - episode])).mean() > 12.0
