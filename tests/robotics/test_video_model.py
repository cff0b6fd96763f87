"""The embedded progress model."""

import copy

import numpy as np
import pytest
import torch
from moving_square import SIZE, WORDS, moving_square, moving_squares
from scipy.stats import spearmanr

from wmrl_envs.errors import ConfigurationError, ProgressModelError
from wmrl_envs.robotics.label_memory import AdaptiveModel
from wmrl_envs.robotics.progress import resolve_progress_model, score_videos, trajectory_reward
from wmrl_envs.robotics.video_model import VideoProgressModel, train_video_model, two_hot

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def trained() -> VideoProgressModel:
    return train_video_model(moving_squares(12), steps=400, batch_size=32)


@pytest.fixture
def model(trained) -> VideoProgressModel:
    return copy.deepcopy(trained)


def shown(rollouts):
    return [rollout.frames for rollout in rollouts], [rollout.instruction for rollout in rollouts]


def weights(model):
    return {name: tensor.clone() for name, tensor in model.network.state_dict().items()}


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one | other)


def test_learns_progress_success_and_what_failed(trained):
    rollouts = moving_squares(5, seed=100)
    scores = score_videos(trained, *shown(rollouts))
    won = np.array([rollout.success for rollout in rollouts])
    for score in np.array(scores)[won]:
        assert spearmanr(score.progress, np.arange(9)).statistic > 0.9
    for kind in ("shaped", "success"):
        rewards = np.array([trajectory_reward(score, kind) for score in scores])
        assert (rewards[won][:, None] > rewards[~won][None]).mean() > 0.9


def test_describes_its_own_training_data_in_units_of_its_spread(trained):
    rollouts = moving_squares(12)
    features = np.stack([score.features for score in trained.score(*shown(rollouts))])
    assert features.dtype == np.float32 and features.shape == (48, 128)
    assert abs(features.mean(0)).max() < 0.3 and features.std(0).max() < 1.5


def test_training_is_repeatable_under_its_seed():
    def train(seed):
        losses = []
        model = train_video_model(
            moving_squares(2), steps=3, batch_size=8, seed=seed, on_step=lambda step, loss: losses.append((step, loss))
        )
        return weights(model), losses, model.replay

    first, again, other = train(1), train(1), train(2)
    assert equal(first[0], again[0]) and first[1] == again[1] and (first[2].frames == again[2].frames).all()
    assert not equal(first[0], other[0])
    assert [step for step, _ in first[1]] == [1, 2, 3]


def test_preference_counts_only_with_pairs():
    experts = [rollout for rollout in moving_squares(2) if rollout.success]
    with_pairs, without = (
        [train_video_model(rollouts, steps=2, batch_size=8, preference=wanted) for wanted in (True, False)]
        for rollouts in (moving_squares(2), experts)
    )
    assert not equal(*map(weights, with_pairs)) and equal(*map(weights, without))


def test_training_needs_experts_and_steps():
    failures = [rollout for rollout in moving_squares(2) if not rollout.success]
    for rollouts, steps in ((failures, 3), ([], 3), (moving_squares(1), 0)):
        with pytest.raises(ConfigurationError, match="both must be above 0"):
            train_video_model(rollouts, steps=steps)


def test_scores_do_not_depend_on_the_batch(trained):
    """Videos of any length, the longest beyond a batch."""
    videos, words = shown([moving_square("right", seed=n, decisions=length) for n, length in enumerate((1, 4, 11))])
    videos.append(videos[0][:1])
    words.append(words[0])
    together = trained.score(videos, words)
    apart = VideoProgressModel(trained.network, trained.replay, batch_size=5)
    for video, one, word in zip(videos, together, words, strict=True):
        (alone,) = apart.score([video], [word])
        assert one.progress.shape == one.success.shape == (len(video),)
        for part in ("progress", "success", "features"):
            np.testing.assert_allclose(getattr(one, part), getattr(alone, part), atol=1e-5)
    assert trained.score([], []) == []


def test_frames_of_another_size_are_refused(trained):
    with pytest.raises(ConfigurationError, match="video 1 has frames of 32 x 48 pixels, the model reads 32 x 32"):
        trained.score([np.zeros((2, SIZE, SIZE, 3), np.uint8), np.zeros((2, 32, 48, 3), np.uint8)], ["push", "push"])
    with pytest.raises(ConfigurationError, match="video 0 is empty"):
        trained.score([np.zeros((0, SIZE, SIZE, 3), np.uint8)], ["push"])


def test_saved_and_loaded(tmp_path, model):
    model.save(tmp_path / "model")
    loaded = resolve_progress_model(f"video:{tmp_path / 'model'}")
    videos, words = shown(moving_squares(2, seed=50))
    labels = [0.0, 1.0] * 4
    for _ in range(2):
        for one, other in zip(model.score(videos, words), loaded.score(videos, words), strict=True):
            for part in ("progress", "success", "features"):
                assert (getattr(one, part) == getattr(other, part)).all()
        model.adapt(videos, words, labels)
        loaded.adapt(videos, words, labels)


@pytest.mark.parametrize("lost", ["progress.json", "progress.safetensors", "replay.npz"])
def test_a_folder_that_cannot_be_read(tmp_path, trained, lost):
    trained.save(tmp_path)
    (tmp_path / lost).write_bytes(b"{")
    with pytest.raises(ProgressModelError, match="wmrl progress train"):
        VideoProgressModel.load(tmp_path)
    (tmp_path / lost).unlink()
    with pytest.raises(ProgressModelError, match="wmrl progress train"):
        VideoProgressModel.load(tmp_path)


class TestAdapt:
    """Learning from labels that say the opposite of what the model holds true of one task."""

    @pytest.fixture(scope="class")
    def labelled(self):
        rollouts = [moving_square("right", seed=n, success=n % 2 == 0) for n in range(200, 216)]
        return *shown(rollouts), [float(not rollout.success) for rollout in rollouts]

    @pytest.fixture(scope="class")
    def adapted(self, trained, labelled):
        model = copy.deepcopy(trained)
        model.adapt(*labelled)
        return model

    def test_takes_over_the_labels(self, trained, adapted):
        fresh = [moving_square("right", seed=n, success=n % 2 == 0) for n in range(300, 316)]
        before, after = (
            [trajectory_reward(score, "success") for score in model.score(*shown(fresh))]
            for model in (trained, adapted)
        )
        wanted = np.array([float(not rollout.success) for rollout in fresh])
        assert abs(np.array(after) - wanted).mean() < 0.35 < 0.65 < abs(np.array(before) - wanted).mean()

    def test_still_tells_apart_what_the_demonstrations_taught(self, adapted):
        others = [moving_square("down", seed=n, success=n % 2 == 0) for n in range(300, 310)]
        found = [trajectory_reward(score, "success") for score in adapted.score(*shown(others))]
        won = np.array([rollout.success for rollout in others])
        assert np.array(found)[won].min() > np.array(found)[~won].max()

    def test_leaves_the_model_alone_that_it_is_a_copy_of(self, trained, adapted):
        assert isinstance(trained, AdaptiveModel)
        assert not equal(weights(trained), weights(adapted))
        assert equal(weights(trained), trained._trained)
        assert equal(adapted._trained, trained._trained)

    def test_is_repeatable_whatever_was_learned_before(self, trained, model, labelled, adapted):
        videos, words, labels = labelled
        model.adapt(videos[:4], words[:4], [0.5] * 4)
        np.random.default_rng(3).random()
        torch.rand(5)
        model.adapt(videos, words, labels)
        assert equal(weights(model), weights(adapted))

    def test_without_labels_goes_back_to_where_it_was(self, trained, adapted):
        model = copy.deepcopy(adapted)
        model.adapt([], [], [])
        assert equal(weights(model), weights(trained))

    def test_short_videos(self, model):
        for frames in (1, 2):
            model.adapt([np.zeros((frames, SIZE, SIZE, 3), np.uint8)], [WORDS["right"]], [1.0])


def test_two_hot():
    targets = torch.tensor([0.0, 0.5, 0.77, 1.0])
    rows = two_hot(targets)
    assert rows.shape == (4, 10) and (rows > 0).sum(1).tolist() == [1, 2, 2, 1]
    torch.testing.assert_close(rows.sum(1), torch.ones(4))
    torch.testing.assert_close(rows @ torch.linspace(0, 1, 10), targets)


def test_arguments_that_cannot_work(trained):
    with pytest.raises(ConfigurationError, match="batch_size must be at least 1"):
        VideoProgressModel(trained.network, trained.replay, batch_size=0)
    with pytest.raises(ConfigurationError, match="image_size must be a multiple of 16, got 40"):
        type(trained.network)(image_size=40)
