"""What the correction pays, learns and draws."""

import itertools
import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium.wrappers.vector import RecordEpisodeStatistics as VectorStatistics
from toy import FAILING, MODES, Executor, Guesser, batched, fresh_run, last_infos, replies, reply, single, write_task

import wmrl_envs  # noqa: F401 - registers the environments
from wmrl_envs.correction import SCHEMES, group_advantages, rectified_advantages, stream_advantages
from wmrl_envs.errors import CheckpointError, ConfigurationError
from wmrl_envs.research.env import ResearchEnv
from wmrl_envs.research.vector_env import ResearchVectorEnv
from wmrl_envs.wrappers import CorrectionWrapper, WorldModelWrapper, vector

HIDDEN, SHOWN = {"anchor": False}, {"anchor": True}


def play(env, actions, options=None):
    """Return the rewards of one episode, and its last info."""
    env.reset(options=options)
    rewards = []
    for action in actions:
        _, reward, _, _, info = env.step(action)
        rewards.append(reward)
    return rewards, info["wmrl"]


class TestEpisode:
    """lambda = 0.4 and c = 0.6 where not said otherwise; predictions 0.6, 0.5, 0.9 of real 0.5, 0.55, 0.8."""

    actions = (reply(0.0, 0.6), reply(0.1, 0.5), reply(0.6, 0.9))

    def env(self, task, **settings):
        settings = {"fixed_lambda": 0.4, "anchor_fraction": 0.25, **settings}
        env = single(task, max_turns=3, **settings)
        env.correction.scalar.update([0.6])
        return env

    def test_pays_lambda_times_the_improvement_and_then_the_rest(self, task):
        rewards, info = play(self.env(task), self.actions, HIDDEN)
        assert rewards == pytest.approx([0.4 * 0.6, 0.0, 0.4 * 0.3 + 0.6 * 0.6])
        assert sum(rewards) == pytest.approx(0.6 + 0.4 * (0.9 - 0.6)) == pytest.approx(info["corrected_return"])
        assert info["calibrated_reward"] == 0.9 and "real_reward" not in info and "weight" not in info
        assert (info["anchor"], info["anchor_probability"], info["lambda"], info["alpha"]) == (False, 1.0, 0.4, 1.0)

    def test_forced_anchor_returns_r(self, task):
        rewards, info = play(self.env(task, ramp=0.3), self.actions, SHOWN)
        assert rewards[:2] == pytest.approx([0.24, 0.0]) and sum(rewards) == pytest.approx(0.8)
        assert (info["anchor"], info["anchor_probability"], info["real_reward"]) == (True, 1.0, 0.8)

    def test_drawn_anchor_adds_the_inverse_probability_of_what_the_prediction_missed(self, task):
        env = self.env(task, seed=4)
        for _ in range(100):
            c = env.correction.scalar.mean
            rewards, info = play(env, self.actions)
            g = c + 0.4 * (info["calibrated_reward"] - c)
            expected = g + 4 * (0.8 - g) if info["anchor"] else g
            assert sum(rewards) == pytest.approx(expected)
            assert info["anchor_probability"] == 0.25
        assert env.correction.drawn[1] in (100, 101) and 10 < env.correction.drawn[0] < 45

    def test_alpha_ramps_from_pi_to_one(self, task):
        env = self.env(task, ramp=0.2)
        seen = []
        for progress in (None, 0.0, 0.1, 0.2, 1.0):
            if progress is not None:
                env.set_progress(progress)
            seen.append(env.reset()[1]["wmrl"]["alpha"])
        assert seen == pytest.approx([1.0, 0.25, 0.625, 1.0, 1.0])
        with pytest.raises(ConfigurationError, match="1.5"):
            env.set_progress(1.5)

    def test_lost_prediction_pays_r_and_enters_no_statistic(self, task):
        env = self.env(task)
        before = env.correction.state_dict()["scalar"]
        rewards, info = play(env, (reply(0.5, 0.6), reply(0.1, "none"), reply(0.6, 0.9)), HIDDEN)
        assert sum(rewards) == pytest.approx(0.8) and not info["ungraded"] and "calibrated_reward" not in info
        assert env.correction.state_dict()["scalar"] == before and env.ledger.executions == 3

    def test_lost_prediction_without_room_pays_c(self, task):
        env = self.env(task, max_rescues=0)
        before = env.correction.state_dict()["scalar"]
        rewards, info = play(env, (reply(0.5, 0.7), reply(0.1, "none"), reply(0.6, 0.9)), HIDDEN)
        assert rewards == pytest.approx([0.28, 0.0, 0.6 - 0.28]) and info["ungraded"]
        assert env.correction.state_dict()["scalar"] == before

    def test_failed_anchor_pays_c(self, task):
        env = self.env(task)
        before = env.correction.state_dict()
        rewards, info = play(env, (reply(0.5, 0.7), FAILING, reply(0.6, 0.9)), SHOWN)
        assert sum(rewards) == pytest.approx(0.6) and info["ungraded"] and "real_reward" not in info
        after = env.correction.state_dict()
        assert (after["scalar"], after["debiaser"]) == (before["scalar"], before["debiaser"])

    def test_anchor_without_prediction_pays_r(self, task):
        rewards, info = play(self.env(task), (reply(0.5, 0.7), reply(0.6, "none"), reply(0.0, 0.5)), SHOWN)
        assert sum(rewards) == pytest.approx(0.8) and not info["ungraded"]

    @pytest.mark.parametrize("scheme", ["paper", "denoise"])
    def test_weight_of_the_anchors(self, task, scheme):
        """An anchor pays c + w (r - c), turn by turn w times the improvement of the best real reward."""
        env = self.env(task, scheme=scheme, anchor_fraction=1.0)
        env.correction.scalar._rule.k, env.correction.scalar._s2 = 1.0, 0.5
        rewards, info = play(env, self.actions)
        assert rewards == pytest.approx([1.5 * 0.5, 1.5 * 0.05, 1.5 * 0.25 - 0.5 * 0.6])
        assert sum(rewards) == pytest.approx(0.6 + 1.5 * (0.8 - 0.6))
        assert info["weight"] == 1.5 and "lambda" not in info and "alpha" not in info
        assert sum(play(env, self.actions, SHOWN)[0]) == pytest.approx(0.8)  # forced: r as it is
        rewards, info = play(env, self.actions, HIDDEN)
        assert sum(rewards) == pytest.approx(0.9) and info["weight"] == 1.0

    @pytest.mark.parametrize("scheme", ["debias", "mixed"])
    def test_mixtures(self, task, scheme):
        env = self.env(task, scheme=scheme, fixed_lambda=None)
        for _ in range(20):
            rewards, info = play(env, self.actions)
            assert sum(rewards) == pytest.approx(0.8 if info["anchor"] else 0.9) and info["weight"] == 1.0

    @pytest.mark.parametrize("scheme", ["real", "anchors-only"])
    def test_execution_alone(self, task, scheme):
        model = Guesser()
        env = self.env(task, scheme=scheme, world_model=model)
        rewards, info = play(env, self.actions)
        assert rewards == pytest.approx([0.5, 0.05, 0.25])
        assert info["real_reward"] == 0.8 and info["weight"] == 1.0 and info["anchor_probability"] == 1.0
        assert not {"predicted_reward", "calibrated_reward"} & set(info)
        assert model.batches == model.observed == [] and env.ledger.predictions == 0
        with pytest.raises(ConfigurationError, match=f"'{scheme}' predicts nothing"):
            env.reset(options=HIDDEN)

    def test_world_model_alone(self, task):
        env = self.env(task, scheme="world-model")
        for _ in range(30):
            rewards, info = play(env, self.actions)
            assert rewards == pytest.approx([0.6, 0.0, 0.3]) and info["anchor_probability"] == 0.0
        assert env.unwrapped.grader.executed == 0


class TestUnbiasedness:
    """A world model that is wrong in every way; what the agent is paid is right on average."""

    positions = (0.0, 0.15, 0.3, 0.9, 0.5)
    guesses = (0.9, 0.2, 0.7, 0.5, 0.55)

    def test_mean_of_the_corrected_return_is_the_real_one(self, task):
        """Lambda, c and f are frozen at the reset, so learning them on the way does not spoil it (martingale)."""
        n = 100
        kinds = np.arange(n) % 5
        actions = tuple(reply(self.positions[k], self.guesses[k]) for k in kinds)
        envs = batched(task, n, max_turns=1, anchor_fraction=0.2, calibration={"min_pairs": 40}, seed=11, mode=MODES[1])
        envs.reset(seed=0)
        returns = np.array([envs.step(actions)[1] for _ in range(250)])
        real = 0.5 + 0.5 * np.array(self.positions)[kinds]
        error = (returns - real).reshape(250, 20, 5).mean(axis=1)
        standard_error = error.std(axis=0, ddof=1) / np.sqrt(250)
        assert (np.abs(error.mean(axis=0)) < 4 * standard_error).all() and (standard_error < 0.01).all()
        assert envs.correction.scalar.lambda_ != 1.0 and envs.correction.debiaser.num_pairs == 512

    def test_exact_mean_over_all_draws(self, task):
        """All 2 ** 3 draws of three episodes, each weighted by its probability, at lambda = 0.4 and c = 0.3."""
        p, mean = 0.25, np.zeros(3)
        actions = tuple(reply(self.positions[k], self.guesses[k]) for k in range(3))
        for draw in itertools.product([False, True], repeat=3):
            envs = batched(task, 3, max_turns=1, anchor_fraction=p, fixed_lambda=0.4, mode=MODES[2])
            envs.correction.scalar.update([0.3])
            envs.correction.draw = lambda m, draw=draw: (np.array(draw), np.full(m, p))
            envs.reset(seed=0)
            weight = np.prod([p if anchor else 1 - p for anchor in draw])
            mean += weight * envs.step(actions)[1]
        assert mean == pytest.approx(0.5 + 0.5 * np.array(self.positions[:3]), abs=1e-12)

    def test_group_advantages_from_info(self, task):
        """Averaged over which group is the anchor, the advantages from info are those of real rewards."""
        total, real = np.zeros(12), None
        actions = replies(12, 1, failures=False)[0]
        for anchor in range(3):
            envs = batched(task, 12, group_size=4, max_turns=1, anchor_fraction=1 / 3, fixed_lambda=0.4, mode=MODES[2])
            drawn = np.arange(3) == anchor
            envs.correction.draw = lambda m, drawn=drawn: (drawn, np.full(m, 1 / 3))
            envs.reset(seed=0)
            *_, infos = envs.step(actions)
            advantages, mask = stream_advantages(infos["wmrl"])
            assert mask.all()
            total += advantages / 3
            executed = infos["wmrl"]["real_reward"]
            real = executed if real is None else np.where(infos["wmrl"]["_real_reward"], executed, real)
        assert total == pytest.approx(group_advantages(real, np.arange(12) // 4), abs=1e-9)


class TestLearning:
    def test_calibration_is_frozen_for_an_episode_and_learned_from_past_ones(self, task):
        env = single(task, max_turns=2, anchor_fraction=1.0, calibration={"min_pairs": 4}, scheme="rectified")
        seen = []
        for _ in range(4):
            env.reset()
            for _ in range(2):
                *_, info = env.step(reply(0.0, 0.9))
                seen.append(info["wmrl"]["calibrated_reward"])
        assert seen == [0.9] * 4 + [0.5] * 4

    def test_pairs_are_turns_if_rectified_and_episodes_if_not(self, task):
        for scheme, pairs in (("rectified", 3), ("debias", 1), ("paper", 1), ("mixed", 0)):
            env = single(task, max_turns=3, anchor_fraction=1.0, scheme=scheme)
            play(env, TestEpisode.actions)
            assert env.correction.debiaser.num_pairs == pairs
        predicted, real = env.correction.debiaser.pairs
        assert len(predicted) == len(real) == 0

    def test_abandoned_episode_teaches_nothing(self, task):
        env = single(task, anchor_fraction=1.0)
        env.reset()
        env.step(reply(0.5))
        env.reset()
        assert env.correction.debiaser.num_pairs == 0 and env.correction.scalar.num_anchors == 0

    def test_trust_of_groups(self, task):
        """Members of a group are anchors together; groups in which all were graded by both teach lambda."""
        envs = batched(task, 12, group_size=4, max_turns=2, anchor_fraction=0.34, mode=MODES[1], seed=1)
        _, infos = envs.reset(seed=0)
        rounds = 0
        for actions in replies(12, 60, failures=False):
            anchors = infos["wmrl"]["anchor"].reshape(3, 4)
            assert (anchors.all(axis=1) == anchors.any(axis=1)).all() and anchors.any(axis=1).sum() == 1
            *_, done, _, infos = envs.step(actions)
            if done.any():
                rounds += 1
                assert envs.correction.groups.num_groups == rounds
                final = infos["final_info"]["wmrl"]
                assert (final["lambda"] == 1.0).all() if rounds <= 10 else (final["lambda"] < 1.0).any()
        assert len(set(infos["wmrl"]["group"].tolist())) == 3
        assert infos["wmrl"]["anchor_probability"] == pytest.approx(np.full(12, 1 / 3))

    def test_members_of_a_group_that_one_stream_lacks_are_left_out(self, task):
        envs = batched(task, 8, group_size=4, max_turns=1, mode=MODES[2])
        envs.reset(seed=0, options={"anchor": np.arange(8) < 4})
        actions = [reply(k / 10, 0.5 + k / 20) for k in range(8)]
        actions[1], actions[2], actions[5] = FAILING, reply(0.9, "none"), reply(0.9, "none")
        *_, infos = envs.step(tuple(actions))
        wmrl = infos["wmrl"]
        assert np.flatnonzero(wmrl["ungraded"]).tolist() == [1, 2, 5]
        advantages, mask = stream_advantages(wmrl)
        assert np.flatnonzero(~mask).tolist() == [1, 2, 5]
        kept = rectified_advantages(
            np.where(wmrl["_real_reward"], wmrl["real_reward"], np.nan),
            wmrl["calibrated_reward"],
            np.arange(8) // 4,
            wmrl["anchor"],
            1.0,
            1.0,
            1.0,
            wmrl["ungraded"],
        )
        assert advantages == pytest.approx(kept)
        assert envs.correction.groups.num_groups == 1 and envs.correction.debiaser.num_pairs == 2

    def test_lambda_by_spread(self, task):
        class Unsure(Guesser):
            def grade(self, submissions):
                predictions = super().grade(submissions)
                for prediction, submission in zip(predictions, submissions, strict=True):
                    sure = "sure" in submission.code
                    object.__setattr__(prediction, "spread", 0.05 if sure else 0.4)
                return predictions

        envs = batched(
            task, 8, group_size=8, max_turns=1, mode=MODES[1], world_model=Unsure(), anchor_fraction=1.0, spread_bins=2
        )
        envs.reset(seed=0)
        rng = np.random.default_rng(0)
        for _ in range(40):
            quality = rng.random(8)
            guess = np.where(np.arange(8) < 4, 0.5 + 0.5 * quality, rng.random(8))
            actions = tuple(
                reply(q, f"{g:.3f}", "sure" if k < 4 else "")
                for k, (q, g) in enumerate(zip(quality, guess, strict=True))
            )
            *_, infos = envs.step(actions)
        trust = infos["final_info"]["wmrl"]["lambda"]
        assert (trust[:4] > 0.7).all() and (trust[4:] < 0.4).all() and len(set(trust.tolist())) == 2
        assert (infos["wmrl"]["lambda"] == envs.correction.groups.lambda_).all()

    def test_frozen_outside_training(self, task):
        """An evaluation shares what was learned, spends no anchors, charges nothing and changes nothing."""
        run, model = fresh_run(), Guesser()
        settings = {"run": run, "anchor_fraction": 0.5, "calibration": {"min_pairs": 4}}
        kwargs = {"tasks": str(task.folder), "sandbox": Executor()}
        envs = gym.make_vec("wmrl/Research-v0", num_envs=8, **kwargs)
        envs = vector.CorrectionWrapper(vector.WorldModelWrapper(envs, model, run=run), **settings)
        envs.reset(seed=0)
        for actions in replies(8, 40, failures=False):
            envs.step(actions)
        kwargs["sandbox"].batches.clear()
        evaluation = WorldModelWrapper(gym.make("wmrl/Research-v0", **kwargs), model, run=run)
        evaluation = CorrectionWrapper(evaluation, training=False, **settings)
        assert evaluation.correction is envs.correction and not evaluation.training and envs.training
        before = json.dumps([envs.correction.state_dict(), envs.ledger.state_dict()])
        for _ in range(10):
            _, info = play(evaluation, [reply(0.5, 0.8)] * 4)
            assert not info["anchor"] and info["anchor_probability"] == 0.0
            assert info["lambda"] == envs.correction.scalar.lambda_
        assert json.dumps([envs.correction.state_dict(), envs.ledger.state_dict()]) == before
        assert evaluation.unwrapped.grader.executed == 0

    @pytest.mark.parametrize("mode", MODES)
    def test_training_may_be_switched_within_an_episode(self, task, mode):
        envs = batched(task, 4, max_turns=2, anchor_fraction=1.0, mode=mode)
        envs.reset(seed=0)
        actions = replies(4, 1, failures=False)[0]
        envs.step(actions)
        envs.training = False
        *_, infos = envs.step(actions)
        assert last_infos(infos, mode)["anchor"].all()  # it was drawn before
        _, infos = envs.reset() if mode is AutoresetMode.DISABLED else (None, envs.step(actions)[4])
        assert not infos["wmrl"]["anchor"].any()
        envs.training = True
        _, infos = envs.reset()
        assert infos["wmrl"]["anchor"].all()


class TestAnchors:
    def test_draw_without_replacement(self, task):
        envs = batched(task, 30, max_turns=1, anchor_fraction=0.1, mode=MODES[1])
        counts = np.zeros(30)
        _, infos = envs.reset(seed=0)
        for actions in replies(30, 200, failures=False):
            assert infos["wmrl"]["anchor"].sum() == 3 and (infos["wmrl"]["anchor_probability"] == 0.1).all()
            counts += infos["wmrl"]["anchor"]
            *_, infos = envs.step(actions)
        assert counts.min() > 5 and counts.max() < 40
        assert envs.correction.drawn == [603, 6030]  # the next round's marks are drawn already

    def test_marks_stand_before_the_step_that_ends_the_episodes(self, task):
        for mode in MODES:
            envs = batched(task, 20, max_turns=1, mode=mode)
            envs.reset(seed=0)
            envs.step(replies(20, 1)[0])
            marked = envs.env.core.anchor if mode is AutoresetMode.SAME_STEP else envs.env.core.next_anchor
            assert marked.sum() == 2

    @pytest.mark.parametrize("fraction", [-0.1, 2, float("nan"), "0.1", True])
    @pytest.mark.parametrize("scheme", ["rectified", "real"])
    def test_fraction_out_of_range(self, task, fraction, scheme):
        with pytest.raises(ConfigurationError, match="anchor_fraction"):
            single(task, anchor_fraction=fraction, scheme=scheme)

    @pytest.mark.parametrize("make", [single, lambda task, **settings: batched(task, 3, **settings)])
    def test_nothing_and_everything(self, task, make):
        for fraction in (0, 1):
            env = make(task, anchor_fraction=fraction, max_turns=1)
            _, info = env.reset()
            assert np.all(info["wmrl"]["anchor"] == bool(fraction))
            assert np.all(info["wmrl"]["anchor_probability"] == fraction)

    def test_forced_ones_are_not_counted_and_do_not_use_up_a_draw(self, task):
        env, twin = (single(task, anchor_fraction=0.5, max_turns=1, seed=3) for _ in range(2))
        drawn, reference = [], []
        for episode in range(30):
            if episode % 3 == 0:
                _, info = play(env, [reply(0.5)], SHOWN)
                assert info["anchor"]
            drawn.append(play(env, [reply(0.5)])[1]["anchor"])
            reference.append(play(twin, [reply(0.5)])[1]["anchor"])
        assert drawn == reference and 5 < sum(drawn) < 25

    def test_some_forced(self, task):
        envs = batched(task, 4, anchor_fraction=0.0)
        flags = np.array([True, False, False, True])
        options = {"anchor": flags, "task": "toy"}
        _, infos = envs.reset(seed=0, options=options)
        assert infos["wmrl"]["anchor"].tolist() == flags.tolist() and set(options) == {"anchor", "task"}
        assert (infos["wmrl"]["anchor_probability"] == 1.0).all()


class Echo(gym.Env):
    """Pays 1 a step for three steps, and shows what it was reset with."""

    observation_space = gym.spaces.Box(0, 10, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        self.options = options
        return self.np_random.random(2), {"options": repr(options)}

    def step(self, action):
        self.turn += 1
        return self.np_random.random(2), 1.0, False, self.turn == 3, {}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scheme", ["rectified", "real"])
def test_every_episode_has_return_3_and_length_3(mode, scheme):
    """Three steps of reward 1, in two sub-environments, with all wrappers and statistics outermost."""

    def ones(observations, actions, next_observations, infos):
        return np.ones(len(infos))

    envs = gym.vector.SyncVectorEnv([Echo] * 2, autoreset_mode=mode)
    envs = vector.WorldModelWrapper(envs, ones, run=fresh_run())
    envs = VectorStatistics(vector.CorrectionWrapper(envs, anchor_fraction=0.5, scheme=scheme, run="x"))
    envs.reset(seed=0)
    seen = []
    for _ in range(40):
        _, _, terminated, truncated, infos = envs.step(np.array([0, 1]))
        if "episode" in infos:
            done = infos["_episode"]
            seen += list(zip(infos["episode"]["r"][done].tolist(), infos["episode"]["l"][done].tolist(), strict=True))
            if mode is AutoresetMode.DISABLED:
                envs.reset(options={"reset_mask": terminated | truncated})
    assert len(seen) >= 20 and all(total == pytest.approx(3.0) and length == 3 for total, length in seen)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_single_statistics(task, scheme):
    env = RecordEpisodeStatistics(single(task, scheme=scheme, max_turns=3))
    for _ in range(5):
        env.reset()
        for _ in range(3):
            *_, info = env.step(reply(0.5, 0.75))
        assert info["episode"]["l"] == 3
        assert info["episode"]["r"] == pytest.approx(0.75) == pytest.approx(info["wmrl"]["corrected_return"])


class TestReset:
    def test_seed_three_times(self, tmp_path):
        tasks = [str(write_task(tmp_path, name)) for name in ("one", "two", "three")]
        bare = ResearchEnv(tasks, sandbox=Executor())
        run = fresh_run()
        env = ResearchEnv(tasks, sandbox=Executor())
        env = CorrectionWrapper(WorldModelWrapper(env, Guesser(), run=run), run=run)
        seen = [env.reset(seed=42)[0] for _ in range(3)]
        assert seen[0] == seen[1] == seen[2] == bare.reset(seed=42)[0]
        kwargs = {"num_envs": 4, "tasks": tasks}
        plain, envs = (ResearchVectorEnv(sandbox=Executor(), **kwargs) for _ in range(2))
        envs = vector.CorrectionWrapper(vector.WorldModelWrapper(envs, Guesser(), run=run), run=run)
        expected = repr(plain.reset(seed=42)[0])
        assert all(repr(envs.reset(seed=42)[0]) == expected for _ in range(3))

    def test_options_arrive_unchanged_without_ours(self):
        def half(*batch):
            return [0.5] * len(batch[3])

        run = fresh_run()
        env = CorrectionWrapper(WorldModelWrapper(Echo(), half, run=run), run=run)
        options = {"anchor": True, "task": "t", "nested": {"a": [1]}}
        _, info = env.reset(options=options)
        assert info["options"] == repr({"task": "t", "nested": {"a": [1]}})
        assert options == {"anchor": True, "task": "t", "nested": {"a": [1]}}
        assert env.reset()[1]["options"] == "None" and env.reset(options={})[1]["options"] == "{}"


class TestConstruction:
    def test_without_a_world_model_wrapper(self, task):
        with pytest.raises(ConfigurationError, match="(?s)Wrap in this order.*from wmrl_envs.wrappers import"):
            CorrectionWrapper(ResearchEnv(task, sandbox=Executor()))
        with pytest.raises(ConfigurationError, match="(?s)from wmrl_envs.wrappers.vector import"):
            vector.CorrectionWrapper(ResearchVectorEnv(2, task, sandbox=Executor()))

    def test_twice(self, task):
        with pytest.raises(ConfigurationError, match="corrected already"):
            CorrectionWrapper(single(task))

    def test_other_wrappers_may_lie_between(self, task):
        env = WorldModelWrapper(ResearchEnv(task, sandbox=Executor()), Guesser(), run=fresh_run())
        env = CorrectionWrapper(RecordEpisodeStatistics(env), run="x")
        assert play(env, [reply(0.5)] * 4)[1]["lambda"] == 1.0

    @pytest.mark.parametrize(
        "settings, match",
        [
            ({"scheme": "rectifed"}, "Did you mean 'rectified'"),
            ({"ramp": 1.5}, "ramp"),
            ({"scale": "center"}, "Did you mean 'centre'"),
            ({"spread_bins": 1}, "bins"),
            ({"fixed_lambda": 2.0}, "fixed"),
            ({"calibration": "papers"}, "calibration"),
            ({"calibration": {"pairs": 3}}, "min_pairs"),
            ({"calibration": {"min_pairs": 0}}, "min_pairs"),
        ],
    )
    def test_settings_out_of_range(self, task, settings, match):
        with pytest.raises(ConfigurationError, match=match):
            single(task, **settings)

    def test_calibration_of_the_paper(self, task):
        env = single(task, calibration="paper", scale="centre")
        assert (env.correction.debiaser.window, env.correction.debiaser.bins) == (5000, 10)
        assert env.scale == env.correction.groups.scale == "centre"

    def test_state_of_other_settings(self, task):
        state = single(task).state_dict()
        for other in (single(task, scheme="paper"), single(task, anchor_fraction=0.2), single(task, ramp=0.1)):
            with pytest.raises(CheckpointError):
                other.load_state_dict(state)
        with pytest.raises(CheckpointError, match="sub-environments"):
            batched(task, 2).load_state_dict(batched(task, 4).state_dict())
