"""What a few labels tell about a progress model's errors."""

import json

import numpy as np
import pytest

from wmrl_envs.errors import ProgressModelError
from wmrl_envs.robotics.label_residual import LabelResidual
from wmrl_envs.robotics.progress import Progress


def biased(count, seed, words=("open", "close")):
    """Rollouts whose success lies in what the model sees, and not in the reward that it makes of it."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((count, 6)).astype(np.float32)
    instructions = [words[i % len(words)] for i in range(count)]
    labels = (features[:, 0] + 0.3 * generator.standard_normal(count) > 0).astype(float)
    rewards = [float(value) for value in 1 / (1 + np.exp(features[:, 1] - 1.5))]  # too high, of something else
    rows = np.full(4, 0.5, np.float32)
    return [Progress(rows, rows, row) for row in features], instructions, rewards, labels.tolist()


def test_learns_what_the_model_gets_wrong():
    residual = LabelResidual()
    scores, instructions, rewards, labels = biased(200, seed=1)
    assert residual.corrected(scores, instructions, rewards) == rewards
    errors = []
    for count in (0, 40, 160):
        residual = LabelResidual()
        residual.learn(*(column[:count] for column in biased(160, seed=0)))
        found = np.array(residual.corrected(scores, instructions, rewards))
        errors.append(((found - labels) ** 2).mean())
    assert errors[0] > errors[1] > errors[2] and errors[2] < 0.5 * errors[0]
    assert np.corrcoef(rewards, labels)[0, 1] < 0.2 and np.corrcoef(found, labels)[0, 1] > 0.6


def test_a_few_labels_by_hand():
    """One label: the line a + b p is drawn towards p, and the kernel takes up its share of what is left."""
    score = Progress(np.array([0.5], np.float32), None, np.array([1.0, 2.0], np.float32))
    residual = LabelResidual()
    residual.learn([score], ["open"], [0.5], [1.0])
    lines = np.array([[1.0, 0.5]])
    line = np.linalg.solve(lines.T @ lines + np.eye(2), lines.T @ [1.0] + [0.0, 1.0])
    rest = 1.0 - lines[0] @ line
    expected = lines[0] @ line + rest / 1.3
    other = Progress(score.progress, None, np.array([3.0, 2.0], np.float32))
    apart = lines[0] @ line + np.exp(-4.0 / 8.0) * rest / 1.3
    elsewhere = lines[0] @ line + 0.3 * rest / 1.3
    found = residual.corrected([score, other, score], ["open", "open", "close"], [0.5] * 3)
    assert found == pytest.approx([expected, apart, elsewhere])


def test_what_was_not_scored_stays_so_and_teaches_nothing():
    scores, instructions, rewards, labels = biased(10, seed=0)
    plain, holed = LabelResidual(), LabelResidual()
    plain.learn(scores, instructions, rewards, labels)
    holed.learn([*scores, None], [*instructions, "open"], [*rewards, None], [*labels, 1.0])
    assert len(holed) == 10 and holed.state_dict() == plain.state_dict()
    found = plain.corrected([None, *scores], ["open", *instructions], [None, *rewards])
    assert found[0] is None and None not in found[1:]
    assert plain.corrected([None], ["open"], [None]) == [None]
    nothing = LabelResidual()
    nothing.learn([None], ["open"], [None], [1.0])
    assert nothing.corrected(scores, instructions, rewards) == rewards


def test_scores_describe_where_features_do_not():
    bright = [Progress(np.full(8, level, np.float32)) for level in np.linspace(0, 1, 21)]
    labels = [float(index < 10) for index in range(21)]
    residual = LabelResidual()
    residual.learn(bright, ["open"] * 21, [0.5] * 21, labels)
    found = residual.corrected(bright, ["open"] * 21, [0.5] * 21)
    assert found[0] > 0.7 > 0.3 > found[-1]


def test_rollouts_are_described_alike():
    residual = LabelResidual()
    residual.learn(*biased(3, seed=0))
    bare = Progress(np.zeros(4, np.float32))
    for use in (
        lambda: residual.corrected([bare], ["open"], [0.5]),
        lambda: residual.learn([bare], ["open"], [0.5], [1.0]),
    ):
        with pytest.raises(ProgressModelError, match="by 4 numbers, and earlier ones by 6"):
            use()
    assert len(residual) == 3


@pytest.mark.parametrize("before", [0, 1, 30, 600])
def test_a_resumed_run_goes_on_as_the_unbroken_one(before):
    unbroken, broken = LabelResidual(), LabelResidual()
    for one in (unbroken, broken):
        one.learn(*biased(before, seed=0)) if before else None
    resumed = LabelResidual()
    state = json.loads(json.dumps(broken.state_dict()))
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state and len(resumed) == min(before, 512)
    for one in (unbroken, resumed):
        one.learn(*biased(20, seed=2))
    queries = biased(15, seed=3)[:3]
    assert resumed.corrected(*queries) == unbroken.corrected(*queries)
