"""The reported score of an agent that writes code: how it gets on over the turns, and what that takes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, SandboxError
from wmrl_envs.research.outcome import Outcome
from wmrl_envs.research.vector_env import ResearchVectorEnv

if TYPE_CHECKING:
    from wmrl_envs.agents.language_model import LanguageModelAgent
    from wmrl_envs.research.configuration import Isolation, TaskLike
    from wmrl_envs.research.grading import Grader
    from wmrl_envs.research.limits import Limits

__all__ = ["EpisodeRecord", "TextEvaluation", "TurnRecord", "evaluate_text"]


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One attempt of an episode."""

    reply: str | None
    """The answer, ``None`` where the agent gave none."""
    thinking: str
    feedback: str | None
    """What the terminal showed."""
    status: str | None
    """How the attempt ended; ``None`` where it is not known."""
    reward: float | None
    """Ladder reward in [0, 1] on the training half; ``None`` where it is not known."""
    best_report_reward: float | None
    """Ladder reward in [0, 1] on the report half, of the episode's best attempt so far on the training half."""
    execution_seconds: float | None
    complete: bool
    """False where the reply was cut off at its greatest length."""
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One episode from its task to its score."""

    task: str
    """The task's id."""
    prompt: str
    """What the agent read as the task."""
    turns: tuple[TurnRecord, ...]
    known: bool
    """False where a reply could not be had, or an attempt not be executed or scored on the report half; such an episode
    is left out of the scores."""

    def to_dict(self) -> dict[str, Any]:
        """Return the episode as JSON-able data."""
        return asdict(self)


@dataclass(frozen=True)
class TextEvaluation:
    """The reported score of an agent that writes code, over really executed episodes."""

    score: float
    """Mean ladder reward in [0, 1] on the report half, each episode by its best turn on the training half."""
    standard_error: float | None
    """Of the score, over episodes; ``None`` for a single one."""
    episodes: int
    """Episodes that count."""
    left_out: int
    """Episodes with a reply that could not be had or an attempt that could not be executed, which do not count."""
    scores: tuple[float, ...]
    """The score, had the episodes ended after their first turn, their second, and so on."""
    valid: tuple[float, ...]
    """By turn, the share of attempts with a valid submission."""
    statuses: tuple[dict[str, int], ...]
    """By turn, attempts by status."""
    task_scores: dict[str, float]
    """The score by task."""
    prompt_tokens: int
    """Tokens that the agent read, in all episodes, those left out among them."""
    completion_tokens: int
    """Tokens that it wrote, in all episodes."""
    replies: int
    cut_replies: int
    """Of the replies, how many were cut off at their greatest length."""
    failed_replies: int
    """Replies that could not be had."""
    reply_seconds: float
    """Wall seconds that the agent took to reply."""
    execution_seconds: float
    """CPU seconds that the attempts took to run."""
    records: tuple[EpisodeRecord, ...]
    """All episodes, those left out among them."""

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, without the episodes' texts, as JSON-able data."""
        return {name: value for name, value in asdict(self).items() if name != "records"}


@dataclass(slots=True)
class _Step:
    """What one turn of all episodes showed."""

    outcomes: list[Outcome | None]
    feedback: tuple[str, ...]
    report: NDArray[np.float64]
    """float64 [episodes], report-half reward of the best turn so far, NaN where there is none."""


def evaluate_text(
    agent: LanguageModelAgent,
    tasks: TaskLike | Sequence[TaskLike] = "titanic",
    *,
    episodes: int,
    turns: int = 4,
    seed: int = 0,
    sandbox: str | Grader = "process",
    isolation: Isolation = "strict",
    limits: Limits | Mapping[str, object] | None = None,
    sandbox_kwargs: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> TextEvaluation:
    """Let an agent attempt tasks, execute what it writes for real, and score it on the report half.

    Args:
        agent: Replies to text observations.
        tasks: Bundled tasks by name, task folders by path, or loaded tasks; each episode is on one of them.
        episodes: Episodes to play, side by side.
        turns: Attempts per episode.
        seed: Seeds the choice of tasks and the solutions' own seeds; the agent's sampling has a seed of its own.
        sandbox: Executes the code; one that is named is closed at the end.
        isolation: ``"strict"``, ``"auto"`` or ``"none"``, as in `wmrl_envs.research.env.ResearchEnv`.
        limits: Overrides the tasks' limits.
        sandbox_kwargs: Arguments for a sandbox given by name.
        progress: Called after each turn with the number of turns taken and of all.

    Raises:
        ConfigurationError: If an argument cannot work.
        SandboxError: If not a single episode could be played to its end.
        WorldModelError: If the model cannot be reached, or gave none of a turn's replies.
    """
    if episodes < 1:
        raise ConfigurationError(f"an evaluation needs at least 1 episode, got {episodes}")
    env = ResearchVectorEnv(
        episodes,
        tasks,
        max_turns=turns,
        sandbox=sandbox,
        isolation=isolation,
        limits=limits,
        sandbox_kwargs=sandbox_kwargs,
        report=True,
        autoreset_mode=AutoresetMode.DISABLED,
    )
    steps: list[_Step] = []
    reply_seconds, state = 0.0, None
    with closing(env):
        observations, infos = env.reset(seed=seed)
        names, prompts = infos["task"].tolist(), observations["task"]
        for turn in range(turns):
            start = time.perf_counter()
            replies, state = agent.predict(observations, state)
            reply_seconds += time.perf_counter() - start
            observations, _, _, _, infos = env.step(replies)
            steps.append(_step(observations, infos, episodes))
            if progress is not None:
                progress(turn + 1, turns)
    assert state is not None  # there is at least one turn
    failed = np.array(agent.failed(state)) | np.asarray(infos["wmrl"]["ungraded"], dtype=bool)
    played = [_turns(state[index], steps, index) for index in range(episodes)]
    records = tuple(
        EpisodeRecord(name, prompt, attempts, not gap and all(turn.best_report_reward is not None for turn in attempts))
        for name, prompt, attempts, gap in zip(names, prompts, played, failed.tolist(), strict=True)
    )
    return _summary(records, reply_seconds)


def _step(observations: dict[str, Any], infos: dict[str, Any], episodes: int) -> _Step:
    report = np.full(episodes, np.nan)
    if "report_score" in infos:
        report = np.where(infos["_report_score"], infos["report_score"], np.nan)
    outcomes = infos["wmrl"].get("outcome")
    listed: list[Outcome | None] = [None] * episodes if outcomes is None else outcomes.tolist()
    return _Step(listed, tuple(observations["feedback"]), report)


def _turns(slot: Any, steps: Sequence[_Step], index: int) -> tuple[TurnRecord, ...]:
    return tuple(
        TurnRecord(
            reply=turn["reply"],
            thinking=turn["thinking"],
            feedback=None if turn["failed"] else step.feedback[index],
            status=None if outcome is None or turn["failed"] else str(outcome.status),
            reward=None if outcome is None or turn["failed"] else outcome.reward,
            best_report_reward=None if np.isnan(step.report[index]) else float(step.report[index]),
            execution_seconds=None if outcome is None else outcome.seconds,
            complete=turn["complete"],
            prompt_tokens=turn["prompt_tokens"],
            completion_tokens=turn["completion_tokens"],
        )
        for turn, step in zip(slot["turns"], steps, strict=True)
        for outcome in [step.outcomes[index]]
    )


def _summary(records: tuple[EpisodeRecord, ...], reply_seconds: float) -> TextEvaluation:
    known = [record for record in records if record.known]
    if not known:
        raise SandboxError(
            f"none of {len(records)} evaluation episodes could be played to its end: replies could not be had or "
            "attempts not be executed; look at the language model's server, and run 'wmrl doctor'"
        )
    table = np.array([[turn.best_report_reward for turn in record.turns] for record in known], dtype=np.float64)
    final = table[:, -1]
    statuses = [Counter(str(turn.status) for turn in column) for column in zip(*(r.turns for r in known), strict=True)]
    everything = [turn for record in records for turn in record.turns]
    return TextEvaluation(
        score=float(final.mean()),
        standard_error=float(final.std(ddof=1) / np.sqrt(len(final))) if len(final) > 1 else None,
        episodes=len(known),
        left_out=len(records) - len(known),
        scores=tuple(table.mean(axis=0).tolist()),
        valid=tuple(count["valid"] / len(known) for count in statuses),
        statuses=tuple(dict(count) for count in statuses),
        task_scores={
            name: float(final[[record.task == name for record in known]].mean())
            for name in sorted({record.task for record in known})
        },
        prompt_tokens=sum(turn.prompt_tokens for turn in everything),
        completion_tokens=sum(turn.completion_tokens for turn in everything),
        replies=sum(turn.reply is not None for turn in everything),
        cut_replies=sum(not turn.complete for turn in everything),
        failed_replies=sum(turn.reply is None for turn in everything),
        reply_seconds=reply_seconds,
        execution_seconds=sum(turn.execution_seconds or 0.0 for turn in everything),
        records=records,
    )
