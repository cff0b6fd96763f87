"""A language model as world model: what it is asked, what it learns, and what it does when the model fails."""

import json
import logging
import math

import gymnasium as gym
import numpy as np
import pytest
from titanic_solutions import TASK, codes, outcome

from language_models import tiny_chat_model
from wmrl_envs.errors import CheckpointError, ConfigurationError, GradingError, WorldModelError
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Outcome, Prediction, Status
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import load_task
from wmrl_envs.world_models import LanguageWorldModel, LearningWorldModel, check_predictions, resolve_world_model
from wmrl_envs.world_models.backends.protocol import Generation
from wmrl_envs.world_models.backends.transformers import TransformersBackend
from wmrl_envs.world_models.verdicts import VERDICTS

CODES = codes()
FAILING, SAVED = next(code for code in CODES if '"Fare"' in code), CODES[8]
TRACEBACK = 'Traceback (most recent call last):\n  File "solution.py", line 5, in <module>\nKeyError: "Fare"'


class Reading:
    """A language model of one rule: what selects ``Fare`` fails, and the rest is valid; it notes what it is asked."""

    def __init__(self, sure=0.7):
        self.identity = f"reading:{sure}"
        self.sure = sure
        self.chats = []
        self.batches = 0
        self.down = False
        self.lost = ""
        self.closed = False

    def _solution(self, chat):
        if self.down:
            raise WorldModelError("the server is away")
        self.chats.append(chat[-1]["content"])
        return chat[-1]["content"].split("## The solution to judge")[1].split("## Your answer")[0]

    def choose(self, conversations, choices):
        self.batches += 1
        answers = []
        for chat in conversations:
            code = self._solution(chat)
            word = "error" if '"Fare"' in code else "high"
            rest = (1 - self.sure) / (len(choices) - 1)
            answers.append(np.array([self.sure if choice == word else rest for choice in choices]))
            if self.lost and self.lost in code:
                answers[-1] = None
        return answers

    def generate(self, conversations, *, samples=1, max_tokens=512, temperature=0.0, seed=0, schema=None):
        self.batches += 1
        return [[self._reply(chat, schema, number) for number in range(samples)] for chat in conversations]

    def _reply(self, chat, schema, number):
        code = self._solution(chat)
        if self.lost and self.lost in code:
            return None
        if schema is None:
            return Generation(f"```\n{TRACEBACK}\n```", 1, 1)
        if number == 3:
            return Generation("I would rather not say.", 1, 1)
        failed = '"Fare"' in code and number < 2
        fields = {"reason": "", "status": "runtime_error" if failed else "valid", "error_type": "KeyError"}
        fields |= {"error_line": 5, "bucket": "high", "feedback": "KeyError: 'Fare'", "confidence": 0.5 + number / 10}
        return Generation(json.dumps(fields), 1, 1)

    def count_tokens(self, conversation):
        return sum(len(message["content"]) for message in conversation)

    def close(self):
        self.closed = True


def make(backend, **kwargs):
    return LanguageWorldModel(backend, **({"cache": False} | kwargs))


def submit(*sources, **kwargs):
    return [Submission(TASK, code, **kwargs) for code in sources]


def outcomes(submissions):
    return [outcome(submission.code) for submission in submissions]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def real(tiny):
    backend = TransformersBackend(str(tiny), device="cpu")
    yield backend
    backend.close()


def test_certain_outcomes_and_repeats_are_not_asked():
    backend = Reading()
    submissions = [*submit(None, "", "x = (", "a\0"), *submit(FAILING, SAVED, FAILING, seed=3)]
    predictions = make(backend).grade(submissions)
    check_predictions(backend, submissions, predictions)
    statuses = [prediction.status for prediction in predictions[:4]]
    assert statuses == ["malformed", "malformed", "syntax_error", "malformed"]
    assert len(backend.chats) == 3 and backend.batches == 2  # two solutions, and feedback to the one that fails
    assert predictions[4] == predictions[6] and predictions[5].status is Status.VALID
    assert make(backend).grade([]) == []


def test_scores_are_the_models_own_probabilities():
    failing, saved = make(Reading(0.7)).grade(submit(FAILING, SAVED))
    rest = 0.3 / 9
    assert failing.probabilities[2] == pytest.approx(0.7) and saved.probabilities[8] == pytest.approx(0.7 + 3 * rest)
    rewards = np.array([0.1, 0.1, 0.1, 0.1, 0.2, 0.2, 0.525, 0.6, 0.725, 0.875])
    chances = np.array([rest] * 9 + [0.7])
    assert saved.reward == pytest.approx(chances @ rewards)
    assert saved.spread == pytest.approx(math.sqrt(chances @ rewards**2 - (chances @ rewards) ** 2))
    assert failing.seconds == saved.seconds > 0


def test_feedback_is_written_where_somebody_reads_it():
    backend = Reading()
    model = make(backend)
    failing, saved = model.grade(submit(FAILING, SAVED))
    assert failing.feedback == TRACEBACK and (failing.error_type, failing.error_line) == ("KeyError", 5)
    assert saved.feedback.startswith("submission.csv is valid: auc 0.") and "position 0.69" in saved.feedback
    assert sum("ends so: error" in chat for chat in backend.chats) == 1
    for prediction in model.grade(submit(FAILING, SAVED, final=True)):
        assert prediction.feedback == "" and prediction.error_type is None
    mixed = model.grade([*submit(FAILING, final=True), *submit(FAILING)])
    assert mixed[1].feedback == TRACEBACK  # one of the two is read
    before = len(backend.chats)
    assert make(backend, feedback=False).grade(submit(FAILING))[0].feedback == ""
    assert len(backend.chats) == before + 1


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("timeout", "Killed: the program used more than 2 CPU seconds."),
        ("memory", "Killed: the program used more than 1024 MB of memory."),
        ("disk", "Killed: the program wrote more than 200 MB to its folder."),
        ("nothing", "no submission.csv was written to the working folder"),
    ],
)
def test_what_a_sandbox_always_shows_is_not_asked(word, shown):
    backend = Reading()
    backend.choose = lambda chats, choices: [np.array([float(choice == word) for choice in choices]) for _ in chats]
    assert make(backend).grade(submit(FAILING))[0].feedback == shown and not backend.chats


def test_samples_are_averaged_and_unreadable_ones_counted(caplog):
    model = make(Reading(), mode="sample", samples=4)
    with caplog.at_level(logging.WARNING):
        failing, saved = model.grade(submit(FAILING, SAVED))
    assert failing.probabilities[2] == pytest.approx(2 / 3) and failing.probabilities[8] == pytest.approx(1 / 3)
    assert failing.confidence == pytest.approx(0.55)  # what the two that agree say, on average
    assert (failing.feedback, failing.error_type, failing.error_line) == ("KeyError: 'Fare'", "KeyError", 5)
    assert saved.reward == pytest.approx(0.875) and saved.spread == 0.0
    assert saved.error_type is None and saved.feedback.startswith("submission.csv is valid")
    assert model.unreadable == 2 and model.failed == 0
    assert caplog.text.count("2 of 8 answers of the language model could not be read") == 1


@pytest.mark.parametrize("mode", ["score", "sample"])
def test_what_the_model_does_not_answer_is_none(mode, caplog):
    backend = Reading()
    backend.lost = '"Fare"'
    model = make(backend, mode=mode)
    with caplog.at_level(logging.WARNING):
        failing, saved = model.grade(submit(FAILING, SAVED))
    assert failing is None and saved.status is Status.VALID
    assert model.failed == (1 if mode == "score" else 4) and caplog.text.count("gave no answer in") == 1
    model.observe(submit(FAILING), outcomes(submit(FAILING)))  # nothing is known about its error
    assert model.grade(submit(SAVED))[0].reward == saved.reward


def test_all_answers_unreadable_is_none():
    backend = Reading()
    backend._reply = lambda chat, schema, number: Generation("{", 1, 1, False)
    model = make(backend, mode="sample", samples=3)
    assert model.grade(submit(FAILING, SAVED)) == [None, None] and model.unreadable == 6


def test_feedback_that_is_not_written_is_told_plainly():
    backend = Reading()
    backend._reply = lambda chat, schema, number: None
    model = make(backend)
    (failing,) = model.grade(submit(FAILING))
    assert failing.status is Status.RUNTIME_ERROR and failing.feedback.startswith("Traceback") and model.failed == 1


@pytest.mark.parametrize("residual", [False, True])
def test_nearest_executions_are_shown_with_their_outcomes(residual):
    backend = Reading()
    model = make(backend, examples=2, residual=residual, feedback=False)
    executed = submit(*CODES[::7], FAILING)
    model.observe(executed, outcomes(executed))
    backend.chats.clear()
    model.grade(submit(FAILING))
    (chat,) = backend.chats
    shown = chat.split("## The solution to judge")[0].split("## A solution that was executed")[1:]
    assert len(shown) == 2
    plain = FAILING.replace("\n", "")
    own = [plain in "".join(line.partition("| ")[2] for line in example.split("\n")) for example in shown]
    # The residual tells its own outcome; without one the prompt does, nearest to the question.
    assert own == ([False, False] if residual else [False, True])
    assert all("\nerror" in example or "\nhigh" in example or "\nlow" in example for example in shown) or not residual


def test_examples_belong_to_their_task():
    backend = Reading()
    model = make(backend, examples=1, residual=False, feedback=False)
    model.observe(submit(FAILING), outcomes(submit(FAILING)))
    model.grade([Submission(load_task("weather"), FAILING)])
    assert "that was executed" not in backend.chats[-1]


def test_executions_correct_what_is_predicted():
    backend = Reading(0.9)
    model = make(backend, feedback=False)
    order = np.random.default_rng(0).permutation(CODES).tolist()
    trained, held_out = submit(*order[:120]), submit(*order[120:])
    before = model.grade(held_out)
    model.grade(trained)
    asked = len(backend.chats)
    model.observe(trained, outcomes(trained))
    assert len(backend.chats) == asked  # what it predicted about them is remembered
    after = model.grade(held_out)
    real = np.array([item.reward for item in outcomes(held_out)])

    def error(predictions):
        return np.abs(np.array([prediction.reward for prediction in predictions]) - real).mean()

    assert error(after) < 0.5 * error(before)
    for prediction, earlier in zip(after, before, strict=True):
        assert sum(prediction.probabilities) == pytest.approx(1.0) and min(prediction.probabilities) >= 0.0
        assert 0.0 <= prediction.reward <= 1.0 and prediction.spread <= earlier.spread
        assert prediction.status == max(zip(prediction.probabilities, list(Status), strict=True))[1]
        assert (prediction.position is not None) == (prediction.status is Status.VALID)
    off = make(Reading(0.9), residual=False, feedback=False)
    off.observe(trained, outcomes(trained))
    assert [p.reward for p in off.grade(held_out)] == [p.reward for p in before]


def test_errors_are_those_made_before_the_outcome_was_known():
    backend = Reading()
    model = make(backend, examples=1, feedback=False)
    pair = submit(CODES[0], CODES[1])
    model.fit(pair, outcomes(pair))
    # Each was predicted with the other one as its example.
    for chat, other in zip(backend.chats, (1, 0), strict=True):
        examples, _, question = chat.partition("## The solution to judge")
        assert CODES[other].rstrip().split("\n")[-1] in examples
        assert CODES[1 - other].rstrip().split("\n")[-1] in question
    backend.chats.clear()
    third = submit(CODES[4])
    model.observe(third, outcomes(third))
    assert len(backend.chats) == 1 and CODES[4].rstrip().split("\n")[-1] in backend.chats[0].partition("to judge")[2]
    model.observe(third, outcomes(third))
    assert len(backend.chats) == 1  # a second execution needs no second prediction


def test_what_teaches_nothing():
    backend = Reading()
    model = make(backend)
    malformed = Outcome(status=Status.MALFORMED, reward=0.0)
    model.observe(submit(FAILING, "x = (", None), [None, outcome(FAILING), malformed])
    assert not backend.chats and model.state_dict()["executed"] == {}
    off = make(backend, residual=False)
    off.fit(submit(FAILING), outcomes(submit(FAILING)))
    assert not backend.chats and off.state_dict()["executed"] == {}
    with pytest.raises(GradingError, match="1 outcomes for 2 submissions"):
        model.observe(submit(FAILING, SAVED), [None])


@pytest.mark.parametrize("mode", ["score", "sample"])
def test_an_unreachable_model_leaves_everything_as_it_was(mode):
    backend = Reading()
    model = make(backend, mode=mode, examples=1)
    executed = submit(*CODES[:3])
    model.observe(executed, outcomes(executed))
    state = json.dumps(model.state_dict())
    backend.down = True
    for call in (
        lambda: model.grade(submit(FAILING)),
        lambda: model.observe(submit(FAILING), outcomes(submit(FAILING))),
        lambda: model.fit(submit(FAILING), outcomes(submit(FAILING))),
    ):
        with pytest.raises(WorldModelError, match="the server is away"):
            call()
        assert json.dumps(model.state_dict()) == state
    backend.down = False
    assert model.grade(submit(FAILING))[0] is not None


@pytest.mark.parametrize("kwargs", [{}, {"examples": 2}, {"examples": 2, "residual": False}, {"mode": "sample"}])
def test_a_saved_state_predicts_and_learns_alike(kwargs, tmp_path):
    model = make(Reading(), **kwargs)
    executed = submit(*CODES[:60:3])
    model.grade(submit(*CODES[:90]))
    model.observe(executed, outcomes(executed))
    state = json.loads(json.dumps(model.state_dict(), allow_nan=False))
    loaded = make(Reading(), **kwargs)
    loaded.load_state_dict(state)
    later = submit(*CODES[1:90:3])
    for _ in range(2):
        first, second = model.grade(submit(*CODES)), loaded.grade(submit(*CODES))
        assert first == second  # seconds aside
        model.observe(later, outcomes(later))
        loaded.observe(later, outcomes(later))
    assert model.state_dict() == loaded.state_dict()


def test_a_state_of_other_settings_is_refused(caplog):
    state = make(Reading()).state_dict()
    with pytest.raises(CheckpointError, match="build LanguageWorldModel with the saved ones"):
        make(Reading(), examples=1).load_state_dict(state)
    with pytest.raises(CheckpointError, match="templates"):
        make(Reading(), templates="compact").load_state_dict(state)
    with pytest.raises(CheckpointError, match="unknown format 2"):
        make(Reading()).load_state_dict(state | {"format": 2})
    with pytest.raises(CheckpointError, match="no state of a language world model"):
        make(Reading()).load_state_dict({"format": 1})
    with caplog.at_level(logging.WARNING):
        make(Reading(0.8)).load_state_dict(state)
    assert "the errors of reading:0.7, and it goes on with reading:0.8" in caplog.text


def test_warm_up_is_executed_once_and_only_where_asked(tmp_path):
    task, sandbox = load_task("titanic"), ReplaySandbox()
    model = make(Reading(), warmup=12, cache_dir=tmp_path)
    executed = model.prepare([task], sandbox)
    assert len(executed) == 12 and all(found.seconds >= 0 for _, found in executed)
    assert model.prepare([task], sandbox) == []
    again = make(Reading(), warmup=12, cache_dir=tmp_path)
    again.load_state_dict(json.loads(json.dumps(model.state_dict())))
    assert again.prepare([task], sandbox) == []
    backend = Reading()
    assert make(backend).prepare([TASK], None) == [] and not backend.chats
    assert isinstance(model, LearningWorldModel)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"mode": "scores"}, r"unknown mode 'scores'; it is 'score' or 'sample'\. Did you mean 'score'\?"),
        ({"samples": 0}, "samples must be a whole number of at least 1, got 0"),
        ({"examples": -1}, "examples must be a whole number of at least 0"),
        ({"warmup": 2.5}, r"warmup must be a whole number .*, got 2\.5"),
        ({"max_tokens": True}, "max_tokens must be a whole number"),
        ({"temperature": -0.1}, "temperature must be 0 or more"),
        ({"temperature": float("nan")}, "temperature must be 0 or more"),
        ({"mode": "sample", "temperature": 0}, "gives the same answer 4 times"),
        ({"warmup": 5, "residual": False}, "warmup=5 would execute solutions for nothing"),
        ({"templates": "defautl"}, "Did you mean 'default'"),
        ({"model_kwargs": {"dtype": "float32"}}, "were given with a Reading object"),
    ],
)
def test_arguments_that_cannot_work(kwargs, message):
    with pytest.raises(ConfigurationError, match=message):
        make(Reading(), **kwargs)


def test_a_backend_belongs_to_whoever_made_it(tiny):
    backend = Reading()
    with make(backend) as model:
        model.grade(submit(SAVED))
    assert not backend.closed
    named = resolve_world_model(f"transformers:{tiny}", cache=False, model_kwargs={"device": "cpu"})
    assert named.grade(submit(SAVED))[0] is not None
    named.close()


@pytest.mark.parametrize("templates", ["default", "compact"])
def test_a_real_model_scores(real, templates, tmp_path):
    model = LanguageWorldModel(real, templates=templates, examples=1, cache_dir=tmp_path, max_tokens=8)
    submissions = submit(*CODES[:6])
    predictions = model.grade(submissions)
    check_predictions(model, submissions, predictions)
    chat = model.templates.conversation(submissions[0], answer="word")
    (probabilities,) = real.choose([chat], VERDICTS)
    assert predictions[0].probabilities[2] == pytest.approx(probabilities[0], abs=1e-4)
    assert all(isinstance(prediction, Prediction) and prediction.seconds > 0 for prediction in predictions)
    assert model.cache_hits == 0
    again = LanguageWorldModel(real, templates=templates, examples=1, cache_dir=tmp_path, max_tokens=8)
    cached = again.grade(submissions)
    assert cached == predictions and again.cache_hits >= 6 and all(p.seconds == 0.0 for p in cached)
    again.observe(submissions[:3], outcomes(submissions[:3]))
    check_predictions(again, submissions, again.grade(submissions))


def test_a_real_model_samples(real, tmp_path):
    model = LanguageWorldModel(real, mode="sample", templates="compact", max_tokens=200, cache_dir=tmp_path)
    submissions = submit(*CODES[:2])
    predictions = model.grade(submissions)
    check_predictions(model, submissions, predictions)
    assert model.failed == 0 and model.unreadable <= 8
    assert [prediction is None for prediction in predictions].count(True) * 4 <= model.unreadable
    again = LanguageWorldModel(real, mode="sample", templates="compact", max_tokens=200, cache_dir=tmp_path)
    assert again.grade(submissions) == predictions and again.cache_hits == 2


def wrapped(tiny, folder, **kwargs):
    """Return arguments of the wrapped environment with a real language model behind it."""
    model = {"templates": "compact", "examples": 1, "warmup": 4, "max_tokens": 8, "cache_dir": str(folder)}
    return {
        "tasks": "titanic",
        "max_turns": 2,
        "world_model": f"transformers:{tiny}",
        "world_model_kwargs": model | {"model_kwargs": {"device": "cpu"}},
        "anchor_fraction": 0.5,
        "run": str(folder),
        **kwargs,
    }


def replies(count):
    space = ReplaySandbox().table(load_task("titanic")).space
    return [f"```python\n{space.solution(500 * index)}\n```" for index in range(count)]


def test_an_environment_runs_on_a_real_model_and_real_executions(tiny, tmp_path):
    env = gym.make("wmrl/ResearchWMRL-v0", **wrapped(tiny, tmp_path, sandbox="process", isolation="auto"))
    shown, anchors = [], 0
    env.reset(seed=0, options={"anchor": True})
    for reply in [*replies(5), "I have no idea."]:
        observation, reward, terminated, _, info = env.step(reply)
        assert np.isfinite(reward)
        shown.append(observation["feedback"])
        anchors += bool("real_reward" in info["wmrl"] and terminated)
        if terminated:
            env.reset(options={"anchor": anchors < 2})
    assert all(shown[::2]) and anchors == 2
    model = env.get_wrapper_attr("world_model")
    assert len(model.state_dict()["executed"]["titanic"]["solutions"]) == 8  # the warm-up's four, and the anchors'
    assert env.get_wrapper_attr("ledger").executions == 8
    env.close()


def test_a_batched_environment_runs_on_a_real_model(tiny, tmp_path):
    kwargs = wrapped(tiny, tmp_path, sandbox="replay", group_size=2)
    env = gym.make_vec("wmrl/ResearchWMRL-v0", 4, vectorization_mode="vector_entry_point", **kwargs)
    env.reset(seed=0)
    texts = replies(8)
    shown = []
    for step in range(6):
        observation, reward, _, _, _ = env.step(tuple(texts[(step + slot) % 8] for slot in range(4)))
        assert np.isfinite(reward).all()
        shown.append(observation["feedback"])
    assert all(shown[0]) and all(shown[3])  # after first turns; last ones show nobody anything
    model = env.env.world_model
    assert model.failed == 0 and len(model.state_dict()["executed"]["titanic"]["solutions"]) > 4
    env.close()
