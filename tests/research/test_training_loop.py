"""The bundled training loop: its data, its command, and everything that other tasks can do as well."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import wmrl_envs  # noqa: F401
from wmrl_envs.research.board import make_leaderboard
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.leaderboard import Leaderboard
from wmrl_envs.research.outcome import Outcome, Status
from wmrl_envs.research.recording import read_recording, record
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.scoring import InvalidSubmission, Scored
from wmrl_envs.research.task import ResearchTask, load_task
from wmrl_envs.world_models.learned import LearnedWorldModel

Weights = dict[str, np.ndarray]
FOLDER = load_task("training-loop").folder


@pytest.fixture(scope="module")
def task() -> ResearchTask:
    return load_task("training-loop")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    with ProcessSandbox(workers=2) as made:
        yield made


def weights(context: int = 2, size: int = 4, width: int = 5) -> Weights:
    rng = np.random.default_rng(0)
    return {
        "embedding": rng.normal(size=(27, size)),
        "hidden": rng.normal(size=(context * size, width)),
        "hidden_bias": np.zeros(width),
        "output": rng.normal(size=(width, 27)),
        "output_bias": np.zeros(27),
    }


def archive(arrays: dict[str, object], **options: bool) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def test_names_are_letters_and_nobody_is_held_out_and_public() -> None:
    public = (FOLDER / "public/names.txt").read_text().split()
    held_out = json.loads((FOLDER / "private/held_out.json").read_text())
    assert (len(public), len(held_out["train"]), len(held_out["report"])) == (4400, 800, 800)
    everybody = [*public, *held_out["train"], *held_out["report"]]
    assert len(set(everybody)) == 6000 and all(name.isascii() and name.isupper() for name in everybody)
    text = (FOLDER / "description.md").read_text()
    assert "4400 surnames" in text and all(f"`{name}`" in text for name in weights())


def test_the_script_to_improve_is_a_member_of_the_design_space(task: ResearchTask) -> None:
    space = DesignSpace.of(task)
    script = (FOLDER / "public/train.py").read_text()
    [index] = [index for index in range(space.size) if space.solution(index) == script]
    assert index in space.bug_free()
    labels = space.describe(space.choices(index))
    assert labels["learning rate"] == "low" and labels["optimiser"] == "gradient descent"


def test_the_command_scores_what_the_description_says(task: ResearchTask, sandbox: ProcessSandbox) -> None:
    model = weights(context=3)
    scored = task.scorer.score(task, {"weights.npz": archive(dict(model))}, sandbox)
    held_out = json.loads((FOLDER / "private/held_out.json").read_text())
    assert isinstance(scored, Scored)
    for score, names in ((scored.train, held_out["train"]), (scored.report, held_out["report"])):
        assert score == pytest.approx(np.mean([bits for name in names for bits in by_hand(model, 3, name)]), rel=1e-9)
    flat = {name: np.zeros_like(values) for name, values in model.items()}
    guessing = task.scorer.score(task, {"weights.npz": archive(dict(flat))}, sandbox)
    assert isinstance(guessing, Scored) and guessing.train == pytest.approx(np.log2(27))


def test_every_allowed_size_of_model_fits_the_commands_memory(task: ResearchTask, sandbox: ProcessSandbox) -> None:
    for shape in (20, 2000, 1), (1, 1, 3000):
        scored = task.scorer.score(task, {"weights.npz": archive(dict(weights(*shape)))}, sandbox)
        assert isinstance(scored, Scored), scored


def by_hand(model: Weights, context: int, name: str) -> Iterator[float]:
    letters = [0] * context + [ord(letter) - ord("A") + 1 for letter in name] + [0]
    for place in range(context, len(letters)):
        inputs = np.concatenate([model["embedding"][letter] for letter in letters[place - context : place]])
        logits = np.tanh(inputs @ model["hidden"] + model["hidden_bias"]) @ model["output"] + model["output_bias"]
        chances = np.exp(logits) / np.exp(logits).sum()
        yield -np.log2(chances[letters[place]])


def bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name in weights():
            file.writestr(f"{name}.npy", bytes(50_000_000))
    return buffer.getvalue()


def forged(place: int, value: int) -> bytes:
    """Return an archive whose directory says something else of its members, such as that they are encrypted."""
    content = bytearray(archive(dict(weights())))
    start = 0
    while (start := content.find(b"PK\x01\x02", start)) >= 0:
        content[start + place] |= value
        start += 4
    return bytes(content)


def members(content: bytes, suffix: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in weights():
            file.writestr(name + suffix, content)
    return buffer.getvalue()


def huge() -> bytes:
    header = io.BytesIO()
    fields = {"descr": "<f8", "fortran_order": False, "shape": (27, 10**12)}
    np.lib.format.write_array_header_1_0(header, fields)
    return members(header.getvalue(), ".npy")


def changed(**fields: object) -> bytes:
    arrays = {**weights(), **fields}
    return archive({name: value for name, value in arrays.items() if value is not None})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda: b"", "no archive of numpy arrays"),
        (lambda: b"PK\x03\x04" + bytes(100), "no archive of numpy arrays"),
        (lambda: archive(dict(weights()))[:-30], "no archive of numpy arrays"),
        (lambda: changed(hidden=np.array([None, {}], dtype=object)), "no archive of numpy arrays without pickle"),
        (lambda: forged(8, 1), "no archive of numpy arrays"),
        (lambda: forged(10, 99), "no archive of numpy arrays"),
        (huge, "no archive of numpy arrays"),
        (lambda: members(b"hello", ""), "embedding holds no real numbers"),
        (bomb, "more than 100000 numbers"),
        (lambda: changed(extra=np.zeros(200_000)), "more than 100000 numbers"),
        (lambda: changed(extra=np.zeros(3)), "holds the arrays embedding, hidden, hidden_bias, output, output_bias, e"),
        (lambda: changed(output=None), "expected embedding, hidden, hidden_bias, output, output_bias"),
        (lambda: changed(output=np.full((5, 27), np.nan)), "output holds numbers that are not finite"),
        (lambda: changed(output=np.zeros((5, 27), dtype=complex)), "output holds no real numbers"),
        (lambda: changed(output=np.array([["a"]])), "output holds no real numbers"),
        (lambda: changed(output=np.zeros((5, 26))), "output has the shape [5, 26], expected [5, 27]"),
        (lambda: changed(embedding=np.zeros((28, 4))), "embedding has the shape [28, 4]"),
        (lambda: changed(embedding=np.zeros((27, 0))), "embedding must be"),
        (lambda: changed(hidden=np.zeros((9, 5))), "hidden has the shape [9, 5], expected [8, 5]"),
        (lambda: changed(hidden=np.zeros((0, 5))), "reads 0 letters; it must be from 1 to 20"),
        (lambda: changed(hidden=np.zeros(8)), "must be [27, size] and hidden"),
        (lambda: archive(dict(weights(context=21))), "reads 21 letters"),
        (lambda: changed(output=np.full((5, 27), 1e308)), "loss is not finite"),
    ],
)
def test_what_is_no_model_is_refused_in_words(
    content: Callable[[], bytes], reason: str, task: ResearchTask, sandbox: ProcessSandbox
) -> None:
    scored = task.scorer.score(task, {"weights.npz": content()}, sandbox)
    assert isinstance(scored, InvalidSubmission)
    assert reason in scored.reason


def executed(task: ResearchTask, sandbox: ProcessSandbox, **labels: str) -> Outcome:
    space = DesignSpace.of(task)
    picks = [
        options.index(labels.get(name.replace(" ", "_"), options[0]))
        for name, options in zip(space.names, space.options, strict=True)
    ]
    [outcome] = sandbox.grade([Submission(task, space.render(picks))])
    assert outcome is not None
    return outcome


def test_members_end_in_every_way_that_such_programs_do(task: ResearchTask, sandbox: ProcessSandbox) -> None:
    plain, better = (executed(task, sandbox, learning_rate=rate) for rate in ("low", "high"))
    assert plain.status is better.status is Status.VALID
    assert plain.score is not None and better.score is not None and better.score < plain.score < np.log2(27)
    assert better.reward > plain.reward
    assert executed(task, sandbox, saving="forgotten").status is Status.NO_SUBMISSION
    unnamed = executed(task, sandbox, saving="without names")
    assert unnamed.status is Status.INVALID_SUBMISSION and "arr_0" in unnamed.feedback
    wrong = executed(task, sandbox, data="letters in lower case")
    assert wrong.status is Status.RUNTIME_ERROR and wrong.error_type == "IndexError"
    assert executed(task, sandbox, epochs="300").status is Status.TIMEOUT


def test_the_recording_is_of_this_space_and_answers_as_the_sandbox(task: ResearchTask, sandbox: ProcessSandbox) -> None:
    table = ReplaySandbox().table(task)
    cheap = np.flatnonzero((table.seconds < 0.4) & (table.draws > 0))[:3]
    submissions = [Submission(task, table.space.solution(int(index))) for index in cheap]
    for real, replayed in zip(sandbox.grade(submissions), ReplaySandbox().grade(submissions), strict=True):
        assert real is not None and replayed is not None and real.status is replayed.status
        assert replayed.score == pytest.approx(real.score, rel=1e-3) if real.score else replayed.score is None


def test_a_board_and_a_recording_are_made_of_it(tmp_path: Path, task: ResearchTask, sandbox: ProcessSandbox) -> None:
    board = json.loads(make_leaderboard(copied(tmp_path), sandbox, 3).read_text())
    assert len(board["train"]) == len(board["report"]) == 3 and board["train"] == sorted(board["train"])
    header, members = read_recording(record(task, sandbox, 3, tmp_path / "recording.jsonl.gz"))
    assert header["task"] == "training-loop" and len(members) == 3


def copied(folder: Path) -> Path:
    copy = folder / "training-loop"
    for path in FOLDER.rglob("*"):
        if path.is_file() and path.suffix != ".gz" and "__pycache__" not in path.parts:
            (copy / path.relative_to(FOLDER)).parent.mkdir(parents=True, exist_ok=True)
            (copy / path.relative_to(FOLDER)).write_bytes(path.read_bytes())
    return copy


def test_positions_are_those_of_a_loss(task: ResearchTask) -> None:
    assert isinstance(task.leaderboard, Leaderboard) and len(task.leaderboard) == 180
    assert task.leaderboard.position(0.0) == 1.0 and task.leaderboard.position(99.0) == 0.0


def test_episodes_of_choices_run_on_it() -> None:
    with gym.make("wmrl/ResearchDesign-v0", tasks=["training-loop"], sandbox="process", max_turns=1) as env:
        observation, _ = env.reset(seed=0)
        assert observation in env.observation_space
        space = env.get_wrapper_attr("design_space")
        choices = np.array([0, 0, 2, 1, 0, 0, 0, 0])
        _, reward, terminated, _, info = env.step(choices)
        assert terminated and float(reward) > 0.5 and space.describe(choices)["learning rate"] == "high"
        assert "weights.npz is valid: bits_per_letter" in info["wmrl"]["outcome"].feedback


def test_the_learned_world_model_learns_how_such_programs_end(task: ResearchTask) -> None:
    replay = ReplaySandbox()
    table = replay.table(task)
    known = np.flatnonzero(table.draws > 0)
    np.random.default_rng(0).shuffle(known)
    submissions = [Submission(task, table.space.solution(int(index))) for index in known]
    outcomes = [outcome for outcome in replay.grade(submissions) if outcome is not None]
    model = LearnedWorldModel()
    half = len(known) // 2
    model.fit(submissions[:half], outcomes[:half])
    predicted = model.grade(submissions[half:])
    real = np.array([outcome.reward for outcome in outcomes[half:]])
    said = np.array([prediction.reward for prediction in predicted if prediction is not None])
    assert np.corrcoef(said, real)[0, 1] > 0.5
