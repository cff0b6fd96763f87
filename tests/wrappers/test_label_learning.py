"""A model of whole episodes that learns: what it is shown, and when."""

import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy import MODES, fresh_run, last_infos

from wmrl_envs.errors import WorldModelError
from wmrl_envs.wrappers import CorrectionWrapper, WorldModelWrapper, vector


class Walk(gym.Env):
    """Three steps; each pays what was asked for, so that an episode's real reward is a sum that is known."""

    observation_space = gym.spaces.Box(-99, 99, (1,), np.float64)
    action_space = gym.spaces.Box(-9, 9, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.turn = self.np_random.normal(size=1), 0
        return self.place.copy(), {"paid": 0.0}

    def step(self, action):
        self.place, self.turn = self.place + action, self.turn + 1
        paid = float(action[0])
        return self.place.copy(), paid, False, self.turn == 3, {"paid": paid, "turn": self.turn}


class Learner:
    """Predicts the mean of the labels that it has seen; keeps a diary."""

    def __init__(self, fails=()):
        self.diary, self.labels, self.fails = [], [], set(fails)

    def __call__(self, observations, actions, next_observations, infos):
        self.diary.append(("predict", [self.episode(*columns) for columns in zip(observations, actions, strict=True)]))
        assert not any("paid" in info for episode in infos for info in episode)
        asked = range(self.asked - len(infos), self.asked)
        mean = float(np.mean(self.labels)) if self.labels else 0.0
        return [None if number in self.fails else mean for number in asked]

    def observe(self, observations, actions, next_observations, infos, labels):
        for columns in (observations, actions, next_observations, infos):
            assert [len(column) for column in columns] == [3] * len(labels)
        assert not any("paid" in info for episode in infos for info in episode)
        self.diary.append(("observe", [self.episode(*columns) for columns in zip(observations, actions, strict=True)]))
        self.labels += labels

    @staticmethod
    def episode(observations, actions):
        return tuple(float(item[0]) for item in [*observations, *actions])

    @property
    def asked(self):
        return sum(len(episodes) for kind, episodes in self.diary if kind == "predict")

    def state_dict(self):
        return {"labels": self.labels}

    def load_state_dict(self, state):
        self.labels = list(state["labels"])


def batch(n, model, mode=AutoresetMode.NEXT_STEP, *, correct=True, rescues=0, **settings):
    run = fresh_run()
    envs = SyncVectorEnv([Walk] * n, autoreset_mode=mode)
    envs = vector.WorldModelWrapper(envs, model, per="episode", withhold=["paid"], run=run, max_rescues=rescues)
    return vector.CorrectionWrapper(envs, run=run, **settings) if correct else envs


def play(envs, mode, rounds, seed=0):
    """Play rounds of episodes; return what each was: its first place and actions, label, whether it is an anchor."""
    generator, played = np.random.default_rng(seed), []
    for number in range(rounds):
        if number == 0 or mode is AutoresetMode.DISABLED:
            places, _ = envs.reset(seed=seed if number == 0 else None)
        elif mode is AutoresetMode.NEXT_STEP:
            places, *_ = envs.step(np.zeros((envs.num_envs, 1)))  # begins anew whatever the actions
        paths, taken = [places[:, 0]], []
        for _ in range(3):
            actions = generator.uniform(-1, 1, (envs.num_envs, 1))
            places, *_, infos = envs.step(actions)
            paths.append(paths[-1] + actions[:, 0])
            taken.append(actions[:, 0])
        anchors = last_infos(infos, mode)["anchor"]
        for slot in range(envs.num_envs):
            row = tuple(float(column[slot]) for column in [*paths[:3], *taken])
            played.append((row, sum(row[3:]), bool(anchors[slot])))
    return played


@pytest.mark.parametrize("mode", MODES)
def test_exactly_the_anchors_are_observed_each_once_and_with_its_label(mode):
    model = Learner()
    envs = batch(5, model, mode, anchor_fraction=0.3)
    played = play(envs, mode, 12)
    observed = [episode for kind, episodes in model.diary if kind == "observe" for episode in episodes]
    assert observed == [pytest.approx(row) for row, _, anchor in played if anchor]
    assert model.labels == pytest.approx([label for _, label, anchor in played if anchor])
    assert 5 < len(observed) < 40
    assert model.asked == 60 and envs.ledger.executions == len(observed)


@pytest.mark.parametrize("mode", MODES)
def test_an_episode_is_predicted_before_its_label_is_seen_and_the_next_one_after(mode):
    model = Learner()
    envs = batch(4, model, mode, anchor_fraction=0.5)
    play(envs, mode, 8)
    kinds = [kind for kind, _ in model.diary]
    assert kinds[0] == "predict" and "observe" in kinds
    for (kind, before), (following, after) in zip(model.diary[:-1], model.diary[1:], strict=True):
        if following == "observe":
            assert kind == "predict" and set(after) <= set(before)
        else:
            assert not set(after) & set(before)


def test_single_environments_show_the_same():
    model, run = Learner(), fresh_run()
    env = WorldModelWrapper(Walk(), model, per="episode", withhold=["paid"], run=run)
    env = CorrectionWrapper(env, 0.4, run=run)
    labels = []
    for episode in range(20):
        env.reset(seed=episode)
        *_, info = [env.step(np.array([0.1 * episode + turn]))[-1] for turn in range(3)]
        if info["wmrl"]["anchor"]:
            labels.append(0.3 * episode + 3)
            assert info["wmrl"]["real_reward"] == pytest.approx(labels[-1])
        assert model.labels == pytest.approx(labels)
    assert 2 < len(labels) < 15


def test_what_was_learned_shows_in_the_next_prediction():
    model, run = Learner(), fresh_run()
    env = WorldModelWrapper(Walk(), model, per="episode", withhold=["paid"], run=run)
    returns = []
    for anchor in (False, True, False):
        env.reset(seed=0, options={"anchor": anchor})
        returns.append(sum(env.step(np.array([0.5]))[1] for _ in range(3)))
    assert returns == [0.0, 1.5, 1.5]


@pytest.mark.parametrize("mode", MODES)
def test_evaluations_teach_nothing(mode):
    """Also with anchors that are asked for by hand."""
    model = Learner()
    envs = batch(3, model, mode, anchor_fraction=1.0, training=False)
    play(envs, mode, 4)
    envs.reset(options={"anchor": True})
    for _ in range(3):
        envs.step(np.ones((3, 1)))
    assert model.asked == 15 and model.labels == []
    assert envs.ledger.executions == envs.ledger.predictions == 0


@pytest.mark.parametrize("scheme", ["world-model", "real"])
def test_schemes_without_anchors_or_without_predictions(scheme):
    model = Learner()
    play(batch(3, model, scheme=scheme), AutoresetMode.NEXT_STEP, 4)
    assert model.labels == [] and model.asked == {"world-model": 12, "real": 0}[scheme]


def test_labels_of_episodes_that_could_not_be_predicted():
    """A rescued one's label is known, and is shown; without a rescue it stays unknown and the episode ungraded."""
    rescued, left = Learner(fails={1, 4}), Learner(fails={1, 4})
    for model, rescues in ((rescued, 3), (left, 0)):
        envs = batch(3, model, correct=False, rescues=rescues)
        envs.reset(seed=0)
        for turn in range(7):
            *_, infos = envs.step(np.ones((3, 1)))
            if turn in (2, 6):  # the fourth step begins anew
                wmrl = infos["wmrl"]
                assert wmrl["ungraded"].tolist() == [False, not rescues, False]
                assert wmrl["_predicted_reward"].tolist() == [True, False, True]
                assert wmrl.get("_real_reward", np.zeros(3)).tolist() == [False, bool(rescues), False]
    assert rescued.labels == [3.0, 3.0] and left.labels == []


def test_an_episode_that_was_cut_off_is_neither_predicted_nor_learned_from():
    model = Learner()
    envs = batch(2, model, AutoresetMode.DISABLED, correct=False)
    envs.reset(seed=0, options={"anchor": np.array([True, False])})
    envs.step(np.ones((2, 1)))
    state = json.loads(json.dumps(envs.state_dict()))
    envs.load_state_dict(state)
    for _ in range(2):
        *_, infos = envs.step(np.ones((2, 1)))
    assert infos["wmrl"]["ungraded"].tolist() == [False, True]
    assert model.diary == []
    envs.reset(options={"anchor": True})
    for _ in range(3):
        envs.step(np.ones((2, 1)))
    assert model.labels == [3.0, 3.0]


def test_what_was_learned_is_restored():
    models = [Learner(), Learner()]
    first, second = (batch(4, model, anchor_fraction=0.5) for model in models)
    play(first, AutoresetMode.NEXT_STEP, 5)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert models[1].labels == models[0].labels != []


def test_a_model_that_fails_to_learn_is_named():
    class Forgetful(Learner):
        def observe(self, *batch):
            raise RuntimeError("nothing learned")

    env = WorldModelWrapper(Walk(), Forgetful(), per="episode", withhold=["paid"], run=fresh_run())
    env.reset(options={"anchor": True})
    with pytest.raises(WorldModelError, match="Forgetful failed in observe: RuntimeError: nothing learned"):
        for _ in range(3):
            env.step(np.zeros(1))
