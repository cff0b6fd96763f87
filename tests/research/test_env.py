import json

import gymnasium as gym
import numpy as np
import pytest
from env_graders import HashGrader, InProcessGrader, outcome
from gymnasium.error import ResetNeeded

from wmrl_envs.errors import CheckpointError, ConfigurationError, GradingError, UnknownTaskError
from wmrl_envs.research.env import ResearchDesignEnv, ResearchEnv
from wmrl_envs.research.grading import MAX_CODE_CHARS
from wmrl_envs.research.outcome import STATUSES, Prediction, Status
from wmrl_envs.research.text import MAX_FEEDBACK_CHARS, MAX_REPLY_CHARS, clip_text


def reply(code: str) -> str:
    return f"Here it is.\n```python\n{code}\n```\n"


def text_env(**kwargs) -> ResearchEnv:
    return ResearchEnv(**{"sandbox": InProcessGrader(), **kwargs})


def design_env(**kwargs) -> ResearchDesignEnv:
    return ResearchDesignEnv(**{"sandbox": HashGrader(), **kwargs})


def test_the_return_is_the_best_turns_ladder_reward():
    env = text_env()
    env.reset(seed=0)
    turns = ["x = 1", "position = 0.5", "1 / 0", "position = 0.75"]
    steps = [env.step(reply(code)) for code in turns]
    assert [step[4]["wmrl"]["real_reward"] for step in steps] == [0.2, 0.75, 0.1, 0.875]
    np.testing.assert_allclose([step[1] for step in steps], [0.2, 0.55, 0.0, 0.125])
    assert [step[2] for step in steps] == [False, False, False, True]
    assert not any(step[3] for step in steps)
    assert [step[0]["turn"] for step in steps] == [step[4]["turn"] for step in steps] == [1, 2, 3, 4]
    assert "ZeroDivisionError" in steps[2][0]["feedback"]


def test_built_in_types_and_reset_info():
    env = text_env()
    observation, info = env.reset(seed=3)
    assert info == {"task": "titanic", "turn": 0, "wmrl": {"group": info["wmrl"]["group"], "ungraded": False}}
    assert observation["feedback"] == ""
    assert "input/train.csv" in observation["task"]
    _, reward, terminated, truncated, info = env.step(reply("position = 1.0"))
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
    assert type(info["wmrl"]["real_reward"]) is float and type(info["wmrl"]["group"]) is int
    assert info["wmrl"]["outcome"].status is Status.VALID


def test_an_unknown_outcome_gives_nothing_and_flags_the_rest_of_the_episode():
    env = text_env()
    env.reset(seed=0)
    env.step(reply("position = 0.2"))
    observation, reward, *_, info = env.step(reply("harness_fails = True"))
    assert reward == 0.0
    assert info["wmrl"]["ungraded"] is True
    assert "outcome" not in info["wmrl"] and "real_reward" not in info["wmrl"]
    assert "could not be run" in observation["feedback"]
    _, reward, *_, info = env.step(reply("position = 0.4"))
    assert reward == pytest.approx(0.1)
    assert info["wmrl"]["ungraded"] is True and info["wmrl"]["real_reward"] == pytest.approx(0.7)
    assert env.reset()[1]["wmrl"]["ungraded"] is False


class Halves:
    """Gives the ladder rewards (training half, report half) one after the other."""

    def __init__(self, *pairs):
        self.pairs = list(pairs)

    def grade(self, submissions):
        pair = self.pairs.pop(0)
        if pair is None:
            return [None]
        return [Prediction(status=Status.VALID, reward=pair[0], report_reward=pair[1])]


def test_the_report_score_is_the_best_training_turns():
    env = text_env(sandbox=Halves((0.6, 0.9), (0.8, 0.55), None, (0.7, 1.0)), report=True)
    _, info = env.reset(seed=0)
    assert "report_score" not in info
    assert [env.step(reply("x = 1"))[4].get("report_score") for _ in range(4)] == [0.9, 0.55, 0.55, 0.55]
    env = text_env(sandbox=Halves((0.0, 0.0), None, (0.7, None), (0.2, 0.2)), report=True)
    env.reset(seed=0)
    assert [env.step(reply("x = 1"))[4].get("report_score") for _ in range(4)] == [0.0, 0.0, None, None]


def test_without_report_nothing_of_the_report_half_shows():
    env = text_env(sandbox=Halves((0.6, 0.9)))
    env.reset(seed=0)
    assert "report_score" not in env.step(reply("x = 1"))[4]


def test_a_prediction_is_no_real_reward():
    env = text_env(sandbox=Halves((0.6, None)))
    env.reset(seed=0)
    info = env.step(reply("x = 1"))[4]
    assert "real_reward" not in info["wmrl"] and info["wmrl"]["outcome"].reward == 0.6


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", Status.MALFORMED),
        ("no code at all", Status.MALFORMED),
        (reply("x = '\0'"), Status.MALFORMED),
        (reply("x = 1\n" + "#" * (MAX_CODE_CHARS + 1)), Status.MALFORMED),
        ("#" * (MAX_REPLY_CHARS + 1), Status.MALFORMED),
        (reply("x = 1") + "#" * MAX_REPLY_CHARS, Status.MALFORMED),
        (reply("x = '\ud800'"), Status.SYNTAX_ERROR),
        (reply("def f(:"), Status.SYNTAX_ERROR),
        (reply("x = 'naïve 漢字 \U0001f600'"), Status.NO_SUBMISSION),
        ("```python\nposition = 0.5", Status.VALID),
        (reply("position = 0.5").replace("\n", "\r\n"), Status.VALID),
    ],
    ids=[
        "empty",
        "prose",
        "nul",
        "long-code",
        "long-reply",
        "code-in-long-reply",
        "surrogate",
        "syntax",
        "unicode",
        "unclosed",
        "crlf",
    ],
)
def test_every_reply_has_a_defined_outcome(text, status):
    env = text_env()
    env.reset(seed=0)
    observation, *_, info = env.step(text)
    assert info["wmrl"]["outcome"].status is status
    assert observation in env.observation_space


def test_an_action_that_is_no_string_is_refused():
    env = text_env()
    env.reset(seed=0)
    with pytest.raises(ConfigurationError, match="a string, the agent's whole reply, got int"):
        env.step(3)


def test_long_feedback_is_clipped_in_its_middle():
    text = "head" + "x" * 50_000 + "tail"
    clipped = clip_text(text, MAX_FEEDBACK_CHARS)
    assert len(clipped) <= MAX_FEEDBACK_CHARS and clipped.startswith("head") and clipped.endswith("tail")
    assert "left out" in clipped
    env = text_env(
        sandbox=type("Loud", (), {"grade": lambda self, s: [outcome(Status.NO_SUBMISSION, feedback=text)]})()
    )
    env.reset(seed=0)
    assert env.step("x")[0] in env.observation_space


def test_stepping_without_an_episode_under_way():
    env = text_env(max_turns=1)
    with pytest.raises(ResetNeeded):
        env.step("x")
    env.reset(seed=0)
    env.step("x")
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step("x")


def test_a_seed_repeats_tasks_and_submission_seeds():
    def play(seed):
        grader = InProcessGrader()
        env = text_env(tasks=["titanic", "weather", "anes96"], sandbox=grader)
        infos = [env.reset(seed=seed)[1]]
        for _ in range(20):
            infos += [env.step(reply("position = rng.random()"))[4] for _ in range(4)]
            infos.append(env.reset()[1])
        return infos, [submission.seed for batch in grader.batches for submission in batch]

    infos, seeds = play(7)
    again, seeds_again = play(7)
    assert infos == again and seeds == seeds_again
    assert len(set(seeds)) == len(seeds) and all(0 <= seed < 2**32 for seed in seeds)
    assert {info["task"] for info in infos} == {"titanic", "weather", "anes96"}
    assert len({info["wmrl"]["group"] for info in infos}) == 21
    assert play(8)[1] != seeds


def test_reset_three_times_with_one_seed():
    env = design_env(tasks=["titanic", "weather"])
    options = {"anything": [1, 2]}
    first, *others = [env.reset(seed=42, options=options) for _ in range(3)]
    for observation, info in others:
        np.testing.assert_array_equal(observation, first[0])
        assert info == first[1]
    assert options == {"anything": [1, 2]}


def test_options_choose_the_task():
    env = text_env(tasks=["titanic", "weather"])
    for name in ("weather", "titanic", "weather"):
        assert env.reset(options={"task": name})[1]["task"] == name
    with pytest.raises(UnknownTaskError, match=r"'wether'.*titanic, weather.*Did you mean 'weather'"):
        env.reset(options={"task": "wether"})
    with pytest.raises(UnknownTaskError, match="anes96"):
        env.reset(options={"task": "anes96"})


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_turns": 0}, "max_turns must be a whole number of at least 1, got 0"),
        ({"max_turns": 1.5}, "max_turns"),
        ({"max_turns": True}, "max_turns"),
        ({"tasks": []}, "tasks is empty"),
        ({"tasks": ["titanic", "titanic"]}, "'titanic' more than once"),
        ({"render_mode": "human"}, "render_mode must be None or 'ansi'"),
        ({"limits": {"second": 3}}, "Did you mean 'seconds'"),
        ({"sandbox": "proces"}, "Did you mean 'process'"),
        ({"sandbox_kwargs": {"workers": 1}}, "sandbox_kwargs=.*InProcessGrader already"),
        ({"sandbox": "process", "sandbox_kwargs": {"isolation": "none"}}, "pass it as isolation="),
        ({"limits": {"seconds": -1}}, "seconds"),
    ],
)
def test_arguments_that_cannot_work(kwargs, message):
    with pytest.raises(ConfigurationError, match=message):
        text_env(**kwargs)


def test_an_unknown_task_is_named():
    with pytest.raises(UnknownTaskError, match="Did you mean 'titanic'"):
        text_env(tasks="titanik")


def test_limits_reach_the_submissions():
    grader = InProcessGrader()
    env = text_env(sandbox=grader, limits={"seconds": 1.5})
    env.reset(seed=0)
    env.step(reply("x = 1"))
    assert grader.batches[0][0].task.limits.seconds == 1.5
    assert grader.batches[0][0].task.limits.memory_mb == text_env().tasks[0].limits.memory_mb


def test_a_grader_that_breaks_its_contract():
    class Short:
        def grade(self, submissions):
            return []

    class Wrong:
        def grade(self, submissions):
            return [0.5]

    class Nothing:
        def grade(self, submissions):
            return None

    class Raises:
        def grade(self, submissions):
            raise RuntimeError("the machine is gone")

    for grader, error, message in (
        (Short(), GradingError, "Short.grade returned 0 outcomes for 1"),
        (Wrong(), GradingError, "Wrong returned 0.5"),
        (Nothing(), GradingError, "Nothing returned None; it must return a list"),
        (Raises(), RuntimeError, "the machine is gone"),
    ):
        env = text_env(sandbox=grader)
        env.reset(seed=0)
        before = env.state_dict()
        with pytest.raises(error, match=message):
            env.step(reply("x = 1"))
        assert env.state_dict() == before


def test_a_route_grades_in_place_of_the_sandbox():
    env = text_env()
    seen = []

    def route(slots, submissions):
        seen.append((slots.tolist(), [submission.code.strip() for submission in submissions]))
        return [Prediction(status=Status.VALID, reward=0.7, feedback="as if")]

    env.route = route
    env.reset(seed=0)
    observation, reward, *_, info = env.step(reply("x = 1"))
    assert (reward, observation["feedback"], seen) == (0.7, "as if", [([0], ["x = 1"])])
    env.route = lambda slots, submissions: []
    with pytest.raises(GradingError, match="0 outcomes for 1"):
        env.step(reply("x = 1"))
    env.route = None
    assert env.step(reply("x = 1"))[4]["wmrl"]["real_reward"] == 0.2


def test_the_seam_of_a_single_environment():
    env = design_env(tasks=["titanic", "weather"], max_turns=3)
    env.reset(seed=1)
    assert (env.num_slots, env.group_size, env.max_turns) == (1, 1, 3)
    assert env.groups.shape == (1,) and env.groups.dtype == np.int64
    assert [task.id for task in env.tasks] == ["titanic", "weather"]
    assert isinstance(env.grader, HashGrader) and env.route is None


@pytest.mark.parametrize("at", range(9))
def test_state_is_complete_mid_episode(at):
    """Saved after any step, through JSON, into a fresh environment: the rest is the same to the last bit."""

    def make():
        return design_env(tasks=["titanic", "weather"], report=True, render_mode="ansi")

    def follow(env, actions, start):
        seen = []
        for index, action in enumerate(actions, start):
            if index % 5 == 4:
                observation, info = env.reset()
                seen.append((observation.tolist(), 0.0, info))
            else:
                observation, reward, *_, info = env.step(action)
                seen.append((observation.tolist(), reward, info))
            seen.append(env.render())
        return seen

    env = make()
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(15)]
    env.reset(seed=5)
    follow(env, actions[:at], 0)
    state = json.loads(json.dumps(env.state_dict()))
    assert state == env.state_dict()
    expected = follow(env, actions[at:], at)
    other = make()
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert follow(other, actions[at:], at) == expected
    assert other.np_random_seed == 5


def test_a_state_of_another_environment_is_refused():
    state = design_env(max_turns=3).state_dict()
    with pytest.raises(CheckpointError, match="max_turns=3, this one has max_turns=4"):
        design_env().load_state_dict(state)
    del state["core"]["keys"]
    with pytest.raises(CheckpointError, match="lacks keys"):
        design_env(max_turns=3).load_state_dict(state)


def test_close_spares_a_sandbox_that_was_passed_in():
    grader = InProcessGrader()
    text_env(sandbox=grader).close()
    assert grader.closed == 0


def test_close_closes_a_sandbox_that_the_environment_made():
    env = ResearchEnv(sandbox="env_graders:InProcessGrader")
    assert isinstance(env.grader, InProcessGrader)
    env.close()
    env.close()
    assert env.grader.closed >= 1


def test_render_shows_the_code_and_the_terminal():
    env = text_env(render_mode="ansi")
    env.reset(seed=0)
    env.step(reply("1 / 0"))
    assert all(part in env.render() for part in ("titanic, turn 1 of 4", "1 / 0", "ZeroDivisionError"))
    assert text_env().render() is None


SOLUTION = """
import pandas as pd
from sklearn.linear_model import LogisticRegression

train, test = pd.read_csv("input/train.csv"), pd.read_csv("input/test.csv")
columns = ["pclass", "sibsp", "parch"]
model = LogisticRegression().fit(train[columns], train["survived"])
test["survived"] = model.predict_proba(test[columns])[:, 1]
test[["id", "survived"]].to_csv("submission.csv", index=False)
print("done")
"""


def test_written_solutions_are_really_executed():
    env = ResearchEnv("titanic", isolation="auto", max_turns=2, report=True, sandbox_kwargs={"workers": 1})
    env.reset(seed=0)
    observation, *_, info = env.step(reply(SOLUTION.replace("pclass", "class")))
    assert info["wmrl"]["real_reward"] == 0.1 and "KeyError" in observation["feedback"]
    observation, _, terminated, _, info = env.step(reply(SOLUTION))
    assert terminated and info["wmrl"]["outcome"].status is Status.VALID
    assert "done" in observation["feedback"]
    assert 0.5 < info["wmrl"]["real_reward"] < 1.0 and 0.5 < info["report_score"] < 1.0
    env.close()


# --- the design environment


def test_the_observation_is_the_documented_table():
    env = design_env(tasks=["weather", "titanic"])
    observation, _ = env.reset(seed=0, options={"task": "titanic"})
    assert observation.dtype == np.float32 and observation.shape == (23,) == env.observation_space.shape
    inventory = env.tasks[1].inventory
    columns = [column for column in inventory.columns if column.role == "feature"]
    numeric = sum(column.dtype != "string" for column in columns)
    missing = sum(column.n_missing for column in columns)
    expected = [
        np.log10(inventory.train_rows) / 7,
        np.log10(len(columns)) / 4,
        numeric / len(columns),
        1 - numeric / len(columns),
        missing / inventory.train_rows / len(columns),
        *[1, 0, 0, 0, 0],
        0.0,
        *[0.0] * 9,
        1.0,
        0.0,
        0.0,
    ]
    np.testing.assert_allclose(observation, expected, rtol=1e-6)


def test_the_observation_follows_the_episode():
    env = design_env()
    observation, _ = env.reset(seed=0)
    env.action_space.seed(1)
    best = last = 0.0
    statuses = set()
    for turn in range(60):
        if turn % 4 == 0:
            observation, _ = env.reset()
            best = last = 0.0
        observation, _, _, _, info = env.step(env.action_space.sample())
        assert observation in env.observation_space
        outcome = info["wmrl"].get("outcome")
        last = last if outcome is None else outcome.reward
        best = max(best, last)
        index = 9 if outcome is None else STATUSES.index(outcome.status)
        assert observation[10] == np.float32((turn % 4 + 1) / 4)
        assert np.flatnonzero(observation[11:21]).tolist() == [index]
        np.testing.assert_array_equal(observation[21:], np.float32([last, best]))
        statuses.add(index)
    assert len(statuses) == 10


def test_actions_render_to_the_tasks_own_solution():
    class Keeps(HashGrader):
        def grade(self, submissions):
            self.last = submissions
            return super().grade(submissions)

    env = design_env(sandbox=Keeps())
    env.reset(seed=0)
    env.action_space.seed(0)
    action = env.action_space.sample()
    env.step(action)
    assert env.grader.last[0].code == env.design_space.render(action.tolist())
    np.testing.assert_array_equal(env.action_space.nvec, env.design_space.nvec)


@pytest.mark.parametrize("change", ["low", "high", "shape", "float", "string"])
def test_an_action_outside_the_space_is_refused(change):
    env = design_env()
    env.reset(seed=0)
    action = np.zeros(len(env.design_space.nvec), dtype=np.int64)
    if change == "low":
        action[0] = -1
    elif change == "high":
        action[1] = env.design_space.nvec[1]
    bad = {"shape": action[:-1], "float": action + 0.5, "string": "0"}.get(change, action)
    with pytest.raises(ConfigurationError, match="outside the action space|expected whole numbers of shape"):
        env.step(bad)
    assert env.step(np.zeros_like(action, dtype=np.int32))[4]["turn"] == 1


def test_checks_of_gymnasium_and_stable_baselines3(recwarn):
    from gymnasium.utils.env_checker import check_env
    from stable_baselines3.common.env_checker import check_env as check_env_sb3

    check_env_sb3(design_env())
    for env_id, grader in (("wmrl/Research-v0", InProcessGrader), ("wmrl/ResearchDesign-v0", HashGrader)):
        check_env(gym.make(env_id, sandbox=f"env_graders:{grader.__name__}").unwrapped)
    assert [str(warning.message) for warning in recwarn] == []
