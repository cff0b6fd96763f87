"""Environments without a grader: their own reward is kept back, and a model's given."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy import MODES, fresh_run, last_infos

from wmrl_envs.errors import ConfigurationError, GradingError, WorldModelError
from wmrl_envs.wrappers import CorrectionWrapper, WorldModelWrapper, vector


class Reach(gym.Env):
    """Walk on a line towards 1, for four steps; success at the end is the only reward, and it is expensive to know."""

    observation_space = gym.spaces.Dict(
        {"position": gym.spaces.Box(-9, 9, (1,), np.float64), "turn": gym.spaces.Discrete(9)}
    )
    action_space = gym.spaces.Box(-1, 1, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.turn = self.np_random.normal(), 0
        return self._see(), {"success": False}

    def step(self, action):
        self.position += 0.3 * float(action[0])
        self.turn += 1
        done = self.turn == 4
        success = done and abs(self.position - 1) < 0.5
        return self._see(), float(success), False, done, {"success": success, "distance": abs(self.position - 1)}

    def _see(self):
        return {"position": np.array([self.position]), "turn": np.int64(self.turn)}


def closer(observations, actions, next_observations, infos):
    """Return how much closer each step came; the label is hidden from it."""
    assert not any("success" in info or "wmrl" in info for info in infos)
    assert observations["position"].shape == next_observations["position"].shape == actions.shape == (len(infos), 1)
    assert (next_observations["turn"] == observations["turn"] + 1).all()
    return np.abs(observations["position"][:, 0] - 1) - [info["distance"] for info in infos]


def progress(observations, actions, next_observations, infos):
    """Judge whole episodes by where they end."""
    for episode in zip(observations, actions, next_observations, infos, strict=True):
        assert [len(column) for column in episode] == [4, 4, 4, 4]
        assert [int(item["turn"]) for item in episode[0]] == [0, 1, 2, 3]
        assert [int(item["turn"]) for item in episode[2]] == [1, 2, 3, 4]
        assert not any("success" in info for info in episode[3])
    return [np.exp(-abs(float(episode[-1]["position"][0]) - 1)) for episode in next_observations]


MODELS = {"step": closer, "episode": progress}


def singles(n, mode, per, run, *, correct=True, **settings):
    def make():
        env = WorldModelWrapper(Reach(), MODELS[per], per=per, withhold=["success"], run=run, max_rescues=n)
        return CorrectionWrapper(env, run=run, **settings) if correct else env

    return SyncVectorEnv([make] * n, autoreset_mode=mode)


def batch(n, mode, per, run, *, correct=True, model=None, **settings):
    envs = SyncVectorEnv([Reach] * n, autoreset_mode=mode)
    envs = vector.WorldModelWrapper(envs, model or MODELS[per], per=per, withhold=["success"], run=run, max_rescues=n)
    return vector.CorrectionWrapper(envs, run=run, **settings) if correct else envs


def without_groups(result):
    """Drop group ids: each single environment counts its own episodes."""
    if isinstance(result, dict):
        return {key: without_groups(value) for key, value in result.items() if key not in ("group", "_group")}
    return result


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("per", MODELS)
@pytest.mark.parametrize("scheme", ["rectified", "mixed", "real"])
def test_batch_equals_singles(mode, per, scheme):
    learning = {"scheme": scheme, "anchor_fraction": 0.3, "calibration": {"min_pairs": 5}}
    # Under same-step autoreset single environments begin anew before their neighbours have learned.
    n = 1 if mode is AutoresetMode.SAME_STEP and scheme == "rectified" else 3
    ours, theirs = batch(n, mode, per, fresh_run(), **learning), singles(n, mode, per, fresh_run(), **learning)
    pairs = [(ours.reset(seed=7), theirs.reset(seed=7))]
    ours.action_space.seed(1)
    for _ in range(120):
        actions = ours.action_space.sample()
        pairs.append((ours.step(actions), theirs.step(actions)))
        if mode is AutoresetMode.DISABLED and pairs[-1][0][3].all():
            pairs.append((ours.reset(), theirs.reset()))
    for one, other in pairs:
        for left, right in zip(one, other, strict=True):
            assert data_equivalence(without_groups(left), without_groups(right)), f"{left}\n{right}"
    assert scheme != "rectified" or ours.correction.debiaser.num_pairs >= 5


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("per", MODELS)
def test_label_is_kept_back_but_in_anchors(mode, per):
    envs = batch(4, mode, per, fresh_run(), correct=False)
    flags = np.array([True, False, True, False])
    _, infos = envs.reset(seed=0, options={"anchor": flags})
    assert infos["_success"].tolist() == flags.tolist()
    ideal = [np.ones((4, 1))] * 4
    for turn, actions in enumerate(ideal):
        _, rewards, _, done, infos = envs.step(actions)
        told = infos["final_info"] if done.any() and mode is AutoresetMode.SAME_STEP else infos
        assert told["_success"].tolist() == flags.tolist() and told["_distance"].all()
        if turn < 3:
            assert (rewards[flags] == 0.0).all()
            assert (rewards[~flags] != 0.0).all() == (per == "step")
    wmrl = last_infos(infos, mode)
    assert wmrl["_real_reward"].tolist() == flags.tolist() and wmrl["_predicted_reward"].all()
    assert envs.ledger.executions == 2 and envs.ledger.predictions == {"step": 16, "episode": 4}[per]
    assert set(wmrl["group"].tolist()) == {0, 1, 2, 3}
    if mode is AutoresetMode.SAME_STEP:  # unmarked episodes are no anchors, and their infos are kept back again
        assert "success" not in infos and not infos["wmrl"]["anchor"].any()


def test_return_is_a_sum_and_calibration_maps_sums(task):
    """Per-step predictions add up: turn t pays lambda (f(sum so far) - f(sum before))."""
    values = iter([0.5, 0.25, -0.5, 1.0])

    def told(*batch):
        return [next(values)]

    env = WorldModelWrapper(Reach(), told, withhold=["success"], run=fresh_run())
    env = CorrectionWrapper(env, fixed_lambda=0.5, run="sums", calibration={"min_pairs": 2})
    env.correction.debiaser.update([0.0, 2.0], [0.0, 4.0])  # f doubles
    env.correction.scalar.update([1.0])
    env.correction._snapshot = None
    env.reset(options={"anchor": False})
    steps = [env.step(np.zeros(1)) for _ in range(4)]
    assert [step[1] for step in steps] == pytest.approx([0.5, 0.25, -0.5, 1.0 + 0.5])
    assert [step[4]["wmrl"]["calibrated_reward"] for step in steps] == pytest.approx([1.0, 0.5, -1.0, 2.5])
    assert steps[-1][4]["wmrl"]["predicted_reward"] == 1.25


@pytest.mark.parametrize("per", MODELS)
def test_prediction_that_fails_is_made_up_for_by_the_label(per):
    """The environment was stepped for real all along, so a rescued episode's whole return is known."""

    def failing(*batch):
        return [None if index % 2 else 0.25 for index in range(len(batch[3]))]

    envs = batch(4, AutoresetMode.DISABLED, per, fresh_run(), model=failing, anchor_fraction=0.0, fixed_lambda=1.0)
    envs.reset(seed=0)
    total = np.zeros(4)
    for _ in range(4):
        _, rewards, _, _, infos = envs.step(np.ones((4, 1)))
        total += rewards
    success = [abs(env.position - 1) < 0.5 for env in envs.unwrapped.envs]
    assert total[1::2] == pytest.approx(np.array(success[1::2], float))
    assert infos["_success"].tolist() == infos["wmrl"]["_real_reward"].tolist() == [False, True, False, True]
    assert not infos["wmrl"]["ungraded"].any()
    assert envs.correction.scalar.num_anchors == 0


def test_errors():
    def run(model, per="step"):
        env = WorldModelWrapper(Reach(), model, per=per, run=fresh_run())
        env.reset()
        env.step(np.zeros(1))

    with pytest.raises(GradingError, match="2 predictions for 1 items"):
        run(lambda *batch: [0.1, 0.2])
    with pytest.raises(WorldModelError, match="ZeroDivisionError"):
        run(lambda *batch: 1 / 0)
    with pytest.raises(WorldModelError, match="returned 'good' as reward 0"):
        run(lambda *batch: ["good"])
    with pytest.warns(RuntimeWarning, match="nan for member 0"):
        run(lambda *batch: [float("nan")])
    with pytest.raises(ConfigurationError, match="callable"):
        run(3)
    with pytest.raises(WorldModelError, match="nowhere"):
        run("nowhere:model")


def test_object_with_that_signature():
    class Model:
        def __call__(self, observations, actions, next_observations, infos):
            return [0.5] * len(infos)

    env = WorldModelWrapper(Reach(), Model(), run=fresh_run())
    env.reset()
    assert env.step(np.zeros(1))[1] == 0.5
    named = WorldModelWrapper(Reach(), "test_labels:closer", withhold=["success"], run=fresh_run())
    named.reset()
    named.step(np.zeros(1))
    assert named.world_model is not None
