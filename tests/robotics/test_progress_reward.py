"""A progress model as a reward of whole episodes."""

import json

import numpy as np
import pytest

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.robotics.progress import Progress, spaced_frames
from wmrl_envs.robotics.reward import ProgressReward


class Brightness:
    """Says how bright the frames are; remembers what it was shown."""

    def __init__(self, dark_is_unknown=False):
        self.dark_is_unknown, self.shown = dark_is_unknown, []

    def score(self, videos, instructions):
        self.shown += list(zip(videos, instructions, strict=True))
        return [self.one(video) for video in videos]

    def one(self, video):
        bright = (video.mean((1, 2, 3)) / 255).astype(np.float32)
        return None if self.dark_is_unknown and bright[-1] < 0.1 else Progress(bright, bright**2)


class Learner(Brightness):
    """Remembers what it was given to learn from."""

    def __init__(self):
        super().__init__()
        self.adapted = []

    def adapt(self, videos, instructions, labels):
        self.adapted.append(list(labels))


def episode(*brightness, instruction="open the drawer", key="image"):
    """Return observations before and after each step, of frames so bright."""
    frames = [np.full((4, 6, 3), round(255 * value), np.uint8) for value in brightness]
    seen = [{key: frame, "instruction": instruction} for frame in frames]
    return seen[:-1], seen[1:]


def asked(*episodes):
    before, after = zip(*episodes, strict=True)
    actions = [[np.zeros(4)] * len(steps) for steps in before]
    return list(before), actions, list(after), [[{}] * len(steps) for steps in before]


def test_reward_by_hand():
    rising, falling = episode(*np.linspace(0, 1, 15)), episode(*np.linspace(1, 0, 15), instruction="close the drawer")
    model = Brightness()
    rewards = {kind: ProgressReward(model, kind=kind)(*asked(rising, falling)) for kind in ("shaped", "final", "max")}
    shown = np.linspace(0, 1, 8)
    change = shown[-3:].mean() - shown[:3].mean()
    assert rewards["shaped"] == pytest.approx([change, -change], abs=3e-3)
    assert rewards["final"] == pytest.approx([1.0, 0.0])
    assert rewards["max"] == [1.0, 1.0]
    success = ProgressReward(model, kind="success")(*asked(rising))
    assert success == pytest.approx([(shown[-3:] ** 2).mean()], abs=5e-3)
    assert [video.shape for video, _ in model.shown] == [(8, 4, 6, 3)] * 7
    assert [text for _, text in model.shown[:2]] == ["open the drawer", "close the drawer"]


@pytest.mark.parametrize("decisions", [1, 3, 7, 20])
@pytest.mark.parametrize("frames", [1, 3, 8])
def test_the_model_sees_the_first_frame_the_last_one_and_what_is_between(decisions, frames):
    model = Brightness()
    values = np.arange(decisions + 1) / 255
    ProgressReward(model, kind="final", frames=frames)(*asked(episode(*values)))
    numbers = model.shown[0][0][:, 0, 0, 0].tolist()
    assert numbers == spaced_frames(decisions + 1, frames).tolist()


def test_another_camera():
    reward = ProgressReward(Brightness(), kind="final", image="image2")
    assert reward(*asked(episode(0.0, 1.0, key="image2"))) == [1.0]
    with pytest.raises(ConfigurationError, match=r"have no 'image2', they have \['image', 'instruction'\]"):
        reward(*asked(episode(0.0, 1.0)))
    lame = [[{"image": np.zeros((4, 6, 3), np.uint8)}]]
    with pytest.raises(ConfigurationError, match="have no 'instruction'"):
        ProgressReward(Brightness())(lame, [[0]], lame, [[{}]])


def test_what_the_model_cannot_say_is_none_and_teaches_nothing():
    reward = ProgressReward(Brightness(dark_is_unknown=True), kind="final", learn=True)
    episodes = asked(episode(0.5, 0.6), episode(0.5, 0.0), episode(0.5, 0.8))
    assert reward(*episodes) == [pytest.approx(0.6), None, pytest.approx(0.8)]
    reward.observe(*episodes, [1.0, 1.0, 1.0])
    assert reward.state_dict()["labels"]["labels"] == [1.0, 1.0]
    assert [found is None for found in reward(*episodes)] == [False, True, False]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"kind": "finl"}, "got 'finl'.*final"),
        *(({"frames": frames}, "whole number of at least 1") for frames in (0, -1, 2.5, "8", None, True, float("nan"))),
        ({"model_kwargs": {"batch_size": 3}}, "object already"),
    ],
)
def test_arguments_that_cannot_work(settings, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        ProgressReward(Brightness(), **settings)


def test_without_learning_labels_change_nothing():
    for model in (Brightness(), Learner()):
        reward = ProgressReward(model, kind="final")
        assert reward.model is model
        for _ in range(40):
            reward.observe(*asked(episode(0.5, 1.0)), [0.0])
        assert reward(*asked(episode(0.5, 1.0))) == [1.0]
        assert reward.state_dict() == {}
        assert getattr(model, "adapted", []) == []


def test_a_model_that_can_adapt_learns_in_a_copy():
    model = Learner()
    reward = ProgressReward(model, kind="final", learn=True)
    for label in range(24):
        reward.observe(*asked(episode(0.5, 1.0)), [label % 2])
    assert model.adapted == []
    assert [len(labels) for labels in reward.model.adapted] == [24]
    restored = ProgressReward(model, kind="final", learn=True)
    restored.load_state_dict(json.loads(json.dumps(reward.state_dict())))
    assert restored.model.adapted == reward.model.adapted
    assert restored.state_dict() == reward.state_dict()


def test_any_other_model_is_corrected_for():
    """It takes bright rollouts for good ones, and they are bad."""
    generator = np.random.default_rng(0)
    reward = ProgressReward(Brightness(), kind="final", learn=True)
    rollouts = [episode(0.0, end) for end in generator.random(60)]
    labels = [float(after[-1]["image"].mean() < 128) for _, after in rollouts]
    raw = reward(*asked(*rollouts[40:]))
    reward.observe(*asked(*rollouts[:40]), labels[:40])
    learned = reward(*asked(*rollouts[40:]))
    assert np.corrcoef(raw, labels[40:])[0, 1] < -0.5 and np.corrcoef(learned, labels[40:])[0, 1] > 0.7
    restored = ProgressReward(Brightness(), kind="final", learn=True)
    restored.load_state_dict(json.loads(json.dumps(reward.state_dict())))
    assert restored(*asked(*rollouts[40:])) == learned
