"""A small AutoResearch world for tests of the wrappers: solutions are really executed, by ``exec`` in this process."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from wmrl_envs.research.env import ResearchEnv
from wmrl_envs.research.grading import Submission, gate
from wmrl_envs.research.outcome import Outcome, Prediction, Status, ladder_reward
from wmrl_envs.research.vector_env import ResearchVectorEnv
from wmrl_envs.wrappers import CorrectionWrapper, WorldModelWrapper, vector

MODES = list(AutoresetMode)
_RUNS = itertools.count()


def fresh_run() -> str:
    return f"test {next(_RUNS)}"


def write_task(folder: Path, name: str = "toy") -> Path:
    """Write a complete task folder with eight rows."""
    folder = folder / name
    (folder / "public").mkdir(parents=True)
    (folder / "private").mkdir()
    manifest = {
        "format": 1,
        "id": name,
        "title": "A toy",
        "kind": "tabular-classification",
        "metric": "auc",
        "id_column": "id",
        "target_columns": ["target"],
        "limits": {"seconds": 3},
        "design": None,
        "license": "CC0-1.0",
        "source": "made up",
    }
    board = [0.1 * rank for rank in range(1, 11)]
    files = {
        "task.json": json.dumps(manifest),
        "description.md": "# A toy\n",
        "LICENSE-data.txt": "CC0-1.0\n",
        "leaderboard.json": json.dumps({"train": board, "report": board}),
        "private/answers.csv": "id,target,half\n"
        + "".join(f"{row},{row // 2 % 2},{('train', 'report')[row % 2]}\n" for row in range(8)),
        "public/sample_submission.csv": "id,target\n" + "".join(f"{row},0.5\n" for row in range(8)),
        "public/test.csv": "id,size\n" + "".join(f"{row},{row}\n" for row in range(8)),
        "public/train.csv": "id,size,target\n" + "".join(f"t{row},{row},{row // 2 % 2}\n" for row in range(8)),
    }
    for path, text in files.items():
        (folder / path).write_text(text)
    return folder


class Executor:
    """Executes code that assigns its leaderboard position to ``position``; ``harness_fails = True`` is unknown.

    The code sees ``rng``, seeded by the submission's seed. Each execution takes a quarter of a second on the books.
    """

    def __init__(self) -> None:
        self.batches: list[list[Submission]] = []

    def grade(self, submissions: Sequence[Submission]) -> list[Outcome | None]:
        self.batches.append(list(submissions))
        return [gate(submission) or self._run(submission) for submission in submissions]

    def _run(self, submission: Submission) -> Outcome | None:
        names: dict = {"rng": random.Random(submission.seed)}
        try:
            exec(submission.code, names)
        except Exception as error:
            return _outcome(Outcome, Status.RUNTIME_ERROR, feedback=repr(error), seconds=0.25)
        if names.get("harness_fails"):
            return None
        return _outcome(Outcome, Status.VALID, names["position"], feedback="scored", seconds=0.25)

    @property
    def executed(self) -> int:
        return sum(map(len, self.batches))


class Guesser:
    """Predicts the reward that stands in the code's comment ``# guess 0.7``; ``# guess none`` cannot be predicted."""

    def __init__(self) -> None:
        self.batches: list[list[Submission]] = []
        self.observed: list[tuple[list[Submission], list[Outcome | None]]] = []

    def grade(self, submissions: Sequence[Submission]) -> list[Outcome | None]:
        self.batches.append(list(submissions))
        return [self._guess(submission.code or "") for submission in submissions]

    def observe(self, submissions, outcomes) -> None:
        self.observed.append((list(submissions), list(outcomes)))

    def _guess(self, code: str) -> Prediction | None:
        found = re.search(r"# guess (\S+)", code)
        if found is None or found[1] == "none":
            return None
        return Prediction(
            status=Status.VALID, reward=float(found[1]), position=0.5, feedback="predicted", spread=0.1, seconds=0.001
        )


def _outcome(kind, status: Status, position: float | None = None, **more) -> Outcome:
    return kind(status=status, reward=ladder_reward(status, position), position=position, **more)


def reply(position: object, guess: object = 0.7, note: object = "") -> str:
    """Return a reply whose real position is an expression, and whose predicted reward is ``guess``."""
    return f"```python\nposition = {position}  # guess {guess}\n# {note}\n```"


FAILING = "```python\nharness_fails = True  # guess 0.6\n```"


def replies(n: int, steps: int, seed: int = 0, *, failures: bool = True) -> list[tuple[str, ...]]:
    """Return replies whose predictions are biased and noisy; a few cannot be predicted, or not be executed."""
    rng = np.random.default_rng(seed)

    def one() -> str:
        if failures and rng.random() < 0.03:
            return rng.choice([FAILING, reply(0.5, "none"), "no code at all # guess 0.1"])
        quality = rng.random()
        guess = np.clip(0.5 + 0.4 * quality**2 + 0.1 * rng.normal(), 0, 1)
        return reply(f"min(1, max(0, {quality:.3f} + 0.05 * rng.random() - 0.05))", f"{guess:.4f}", rng.random())

    return [tuple(one() for _ in range(n)) for _ in range(steps)]


def single(task, *, max_turns=4, world_model=None, executor=None, run=None, correct=True, **settings):
    """Return a wrapped single environment; ``settings`` go to the wrapper that knows them."""
    below, above = split(settings)
    run = fresh_run() if run is None else run
    env = ResearchEnv(task, sandbox=executor or Executor(), max_turns=max_turns)
    env = WorldModelWrapper(env, world_model or Guesser(), run=run, **below)
    return CorrectionWrapper(env, run=run, **above) if correct else env


def batched(
    task,
    n,
    *,
    max_turns=4,
    world_model=None,
    executor=None,
    run=None,
    correct=True,
    mode=MODES[0],
    group_size=1,
    **settings,
):
    """Return the batched twin of ``single``."""
    below, above = split(settings)
    run = fresh_run() if run is None else run
    envs = ResearchVectorEnv(
        n, task, sandbox=executor or Executor(), max_turns=max_turns, autoreset_mode=mode, group_size=group_size
    )
    envs = vector.WorldModelWrapper(envs, world_model or Guesser(), run=run, **below)
    return vector.CorrectionWrapper(envs, run=run, **above) if correct else envs


def side_by_side(task, n, *, mode, world_model=None, run=None, **settings):
    """Return ``n`` wrapped single environments that share one correction, under ``SyncVectorEnv``."""
    world_model, run = world_model or Guesser(), run or fresh_run()
    return SyncVectorEnv([lambda: single(task, world_model=world_model, run=run, **settings)] * n, autoreset_mode=mode)


def split(settings):
    names = {"anchor_feedback", "max_rescues"}
    below = {name: value for name, value in settings.items() if name in names}
    return below, {name: value for name, value in settings.items() if name not in names}


def last_infos(infos: dict, mode: AutoresetMode) -> dict:
    """Return ``info["wmrl"]`` of episodes that ended with this step."""
    return infos["final_info"]["wmrl"] if mode is AutoresetMode.SAME_STEP else infos["wmrl"]
