"""Progress models: what may be asked, what may be answered, and the reward that becomes of it."""

import numpy as np
import pytest

from wmrl_envs.errors import ConfigurationError, ProgressModelError
from wmrl_envs.robotics.progress import (
    Progress,
    ProgressModel,
    resolve_progress_model,
    score_videos,
    spaced_frames,
    trajectory_reward,
)


class Told:
    """Answers what it was told to; counts how often it was asked."""

    def __init__(self, *answer):
        self.answer, self.asked = answer, 0

    def score(self, videos, instructions):
        self.asked += 1
        return list(self.answer)


class Broken:
    def score(self, videos, instructions):
        raise ZeroDivisionError("weights are lost")


def progress(*values, success=None, features=None):
    def row(numbers):
        return None if numbers is None else np.array(numbers, np.float32)

    return Progress(row(values), row(success), row(features))


def video(frames=3, height=5, width=7):
    return np.zeros((frames, height, width, 3), np.uint8)


@pytest.mark.parametrize(
    ("videos", "instructions", "complaint"),
    [
        ([video(0)], ["open"], r"video 0 is empty \(\[0, 5, 7, 3\]\)"),
        ([video(), video(3, 0)], ["open", "close"], r"video 1 is empty \(\[3, 0, 7, 3\]\)"),
        ([video().astype(np.float32)], ["open"], r"float32 \[3, 5, 7, 3\]; a video is a uint8"),
        ([video()[0]], ["open"], r"uint8 \[5, 7, 3\]"),
        ([video()[..., :1]], ["open"], r"uint8 \[3, 5, 7, 1\]"),
        ([video().transpose(0, 3, 1, 2)], ["open"], r"uint8 \[3, 3, 5, 7\]"),
        ([video().tolist()], ["open"], "video 0 is list"),
        ([None], ["open"], "video 0 is NoneType"),
        ([video()], [""], "instruction 0 is ''; say in words"),
        ([video()], ["  \n"], "instruction 0"),
        ([video(), video()], ["open", None], "instruction 1 is None"),
        ([video()], [], "1 videos came with 0 instructions"),
        ([], ["open"], "0 videos came with 1 instructions"),
    ],
)
def test_what_cannot_be_scored_never_reaches_the_model(videos, instructions, complaint):
    model = Told(progress(0, 0, 0))
    with pytest.raises(ConfigurationError, match=complaint):
        score_videos(model, videos, instructions)
    assert model.asked == 0


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ([], "returned 0 scores for 1 videos"),
        ([progress(0, 0, 0)] * 2, "returned 2 scores for 1 videos"),
        ([progress(0, 0)], r"progress of shape \[2\] for video 0 of 3 frames"),
        ([progress(0, 0, 0, 0)], r"progress of shape \[4\] for video 0 of 3 frames"),
        ([Progress(np.zeros((3, 1), np.float32))], r"progress of shape \[3, 1\]"),
        ([progress(0, 0, 0, success=[0, 0])], r"success of shape \[2\]"),
        ([progress(0, 0.5, 1.01)], r"progress in \[0, 1\.01\]"),
        ([progress(-0.01, 0.5, 1)], r"progress in \[-0\.01, 1\]"),
        ([progress(0, 0, 0, success=[0, 2, 0])], r"success in \[0, 2\]"),
        ([Progress(np.zeros(3, np.float32), None, np.zeros((3, 2), np.float32))], r"features of shape \[3, 2\]"),
        ([np.zeros(3)], "returned ndarray for video 0, no Progress"),
    ],
)
def test_wrong_answers_are_refused(answer, complaint):
    with pytest.raises(ProgressModelError, match=complaint):
        score_videos(Told(*answer), [video()], ["open"])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", ["progress", "success", "features"])
def test_what_is_no_number_counts_as_not_scored(bad, part):
    rows = {"progress": [0.0, 0.5, 1.0], "success": [0.0, 0.0, 1.0], "features": [1.0, -9.0]}
    good = Progress(**{name: np.array(row, np.float32) for name, row in rows.items()})
    rows[part][1] = bad
    found = Progress(**{name: np.array(row, np.float32) for name, row in rows.items()})
    with pytest.warns(RuntimeWarning, match=f"video 1 with {part} that are not all finite"):
        scores = score_videos(Told(good, found, None), [video()] * 3, ["open"] * 3)
    assert scores == [good, None, None]


def test_features_may_be_any_numbers():
    answer = progress(0, 0.5, 1, features=[-7.0, 12.0, 0.0, 3.0])
    assert score_videos(Told(answer), [video()], ["open"]) == [answer]


def test_a_model_that_fails_is_named():
    with pytest.raises(ProgressModelError, match="the progress model Broken failed: ZeroDivisionError: weights are"):
        score_videos(Broken(), [video()], ["open"])


def test_no_video_needs_no_model():
    assert score_videos(Broken(), [], []) == []


@pytest.mark.parametrize(
    ("values", "shaped", "final", "highest"),
    [
        ([0.1, 0.2, 0.3, 0.9, 0.6, 0.3], 0.6 - 0.2, 0.3, 0.9),
        ([0.0, 0.5, 1.0, 0.5], 2 / 3 - 0.5, 0.5, 1.0),  # the windows overlap
        ([0.2, 0.8], 0.0, 0.8, 0.8),
        ([0.7], 0.0, 0.7, 0.7),
        ([1, 1, 1, 0, 0, 0], -1.0, 0.0, 1.0),
    ],
)
def test_trajectory_reward(values, shaped, final, highest):
    scores = progress(*values)
    assert trajectory_reward(scores) == trajectory_reward(scores, "shaped") == pytest.approx(shaped, abs=1e-6)
    assert trajectory_reward(scores, "final") == pytest.approx(final)
    assert trajectory_reward(scores, "max") == pytest.approx(highest)


def test_success_reward():
    assert trajectory_reward(progress(0, 0, 0, 0, success=[1, 0.3, 0.6, 0.9]), "success") == pytest.approx(0.6)
    assert trajectory_reward(progress(0, 0, success=[0.2, 0.4]), "success") == pytest.approx(0.3)
    with pytest.raises(ConfigurationError, match="needs a progress model with success probabilities"):
        trajectory_reward(progress(0, 1), "success")
    with pytest.raises(ConfigurationError, match=r"got 'shapd'.*shaped"):
        trajectory_reward(progress(0, 1), "shapd")


@pytest.mark.parametrize(
    ("length", "count", "frames"),
    [
        (8, 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        (15, 8, [0, 2, 4, 6, 8, 10, 12, 14]),
        (16, 4, [0, 5, 10, 15]),
        (3, 5, [0, 0, 1, 2, 2]),  # halves go to the even neighbour
        (1, 4, [0, 0, 0, 0]),
        (9, 1, [0]),
    ],
)
def test_spaced_frames(length, count, frames):
    assert spaced_frames(length, count).tolist() == frames


@pytest.mark.parametrize(("length", "count"), [(0, 8), (8, 0), (-1, 1)])
def test_spaced_frames_of_nothing(length, count):
    with pytest.raises(ConfigurationError, match="both are at least 1"):
        spaced_frames(length, count)


def test_models_by_name():
    model = Told()
    assert resolve_progress_model(model) is model
    assert isinstance(model, ProgressModel)
    assert isinstance(resolve_progress_model("test_progress:Broken"), Broken)
    assert resolve_progress_model("test_progress:Told", **{}).answer == ()
    for name in ("video", "video:", "robometr", "", "vidio:here", "test_progress:Nobody", "test_progress:"):
        with pytest.raises(ConfigurationError, match=r"'video:FOLDER'"):
            resolve_progress_model(name)
    with pytest.raises(ConfigurationError, match="Did you mean 'video'"):
        resolve_progress_model("vidio")
    with pytest.raises(ConfigurationError, match="int has no method score"):
        resolve_progress_model(3)
    with pytest.raises(ConfigurationError, match="is an object already"):
        resolve_progress_model(model, frames=3)
    with pytest.raises(ProgressModelError, match="wmrl progress train"):
        resolve_progress_model("video:/nowhere")
