"""The reported score of an agent that writes code: real solutions, a real sandbox, a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chat_server import ChatServer, chat_server
from language_models import tiny_chat_model
from wmrl_envs.agents.language_model import LanguageModelAgent
from wmrl_envs.cli_evaluate import write_transcripts
from wmrl_envs.errors import ConfigurationError, SandboxError, WorldModelError
from wmrl_envs.evaluate_predictions import predict_beside
from wmrl_envs.evaluate_text import TextEvaluation, evaluate_text
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Outcome
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import load_task
from wmrl_envs.world_models.backends import resolve_backend
from wmrl_envs.world_models.registry import resolve_world_model

TASK = load_task("titanic")
SPACE = DesignSpace.of(TASK)
MISSPELT, LINEAR, BOOSTED, UNSUBMITTED = (
    SPACE.render(np.array(choices))
    for choices in ([1, 2, 1, 4, 0, 0], [1, 2, 1, 1, 0, 0], [1, 2, 1, 1, 8, 0], [1, 2, 1, 1, 0, 4])
)


def fenced(code: str) -> str:
    return f"<think>Hm.</think>Here it is.\n```python\n{code}```\n"


def attempts(chat: list[dict[str, str]]) -> int:
    return sum(message["role"] == "assistant" for message in chat)


def mending(chat: list[dict[str, str]]) -> str:
    """Misspell a column, read the error, mend it, try a better model, and spoil it in the end."""
    return fenced([MISSPELT, LINEAR, BOOSTED, UNSUBMITTED][attempts(chat)])


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    with ProcessSandbox(isolation="strict", workers=2) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def mended(sandbox: ProcessSandbox) -> Iterator[tuple[TextEvaluation, ChatServer]]:
    with chat_server(mending) as server, LanguageModelAgent(server.model, max_tokens=2000) as agent:
        yield evaluate_text(agent, "titanic", episodes=3, turns=4, seed=1, sandbox=sandbox), server


def test_scores_are_those_of_the_solutions(mended: tuple[TextEvaluation, ChatServer]) -> None:
    result, _ = mended
    recorded = ReplaySandbox().grade([Submission(TASK, code) for code in (MISSPELT, LINEAR, BOOSTED)])
    expected = [outcome.report_reward for outcome in recorded if outcome is not None]
    assert result.scores == pytest.approx((*expected, expected[-1]), abs=0.03)
    assert result.score == result.scores[-1] > result.scores[1] > result.scores[0] == pytest.approx(0.1)
    assert result.standard_error == pytest.approx(0, abs=0.02)
    assert result.task_scores == {"titanic": pytest.approx(result.score)}
    assert (result.episodes, result.left_out) == (3, 0)
    assert result.statuses == ({"runtime_error": 3}, {"valid": 3}, {"valid": 3}, {"no_submission": 3})
    assert result.valid == (0, 1, 1, 0)


def test_server_is_shown_what_happened(mended: tuple[TextEvaluation, ChatServer]) -> None:
    result, server = mended
    by_turn = {number: [chat for chat in server.chats if attempts(chat) == number] for number in range(4)}
    assert all(TASK.prompt().strip() in chat[1]["content"] for chat in server.chats)
    assert all(by_turn.values())
    for chat in by_turn[1]:
        assert MISSPELT in chat[2]["content"] and "Hm." not in chat[2]["content"]
        assert "KeyError: 'Fare'" in chat[3]["content"] and "line 26" in chat[3]["content"]
    assert all("submission.csv is valid" in chat[5]["content"] for chat in by_turn[2])
    assert sum(request.get("n", 1) for request in server.requests) == 12, "equal chats are one request"


def test_tokens_and_seconds_are_counted(mended: tuple[TextEvaluation, ChatServer]) -> None:
    result, _ = mended
    assert (result.replies, result.cut_replies, result.failed_replies) == (12, 0, 0)
    assert result.prompt_tokens > 12 * len(TASK.prompt()) // 4
    written = sum(len(fenced(code)) // 4 for code in (MISSPELT, LINEAR, BOOSTED, UNSUBMITTED))
    assert abs(result.completion_tokens - 3 * written) <= 3
    assert result.reply_seconds > 0 and result.execution_seconds > 0.1


def test_transcripts_hold_everything(mended: tuple[TextEvaluation, ChatServer], tmp_path: Path) -> None:
    result, _ = mended
    write_transcripts(result, tmp_path / "transcripts")
    files = sorted((tmp_path / "transcripts").iterdir())
    assert [file.name for file in files] == [f"episode-{index:04d}.json" for index in range(3)]
    episode = json.loads(files[0].read_text())
    assert episode["task"] == "titanic" and episode["prompt"] == TASK.prompt() and episode["known"]
    assert [turn["status"] for turn in episode["turns"]] == ["runtime_error", "valid", "valid", "no_submission"]
    assert [turn["thinking"] for turn in episode["turns"]] == ["Hm."] * 4
    assert BOOSTED in episode["turns"][2]["reply"]
    assert "no submission.csv" in episode["turns"][3]["feedback"]
    assert episode["turns"][3]["best_report_reward"] == episode["turns"][2]["best_report_reward"]
    numbers = result.to_dict()
    assert "records" not in numbers and json.loads(json.dumps(numbers, allow_nan=False))["score"] == result.score


def test_world_model_predicts_beside(mended: tuple[TextEvaluation, ChatServer], sandbox: ProcessSandbox) -> None:
    beside = predict_beside(mended[0], [TASK], resolve_world_model("replay"), sandbox)
    assert (beside.attempts, beside.unpredicted, beside.status_accuracy) == (12, 0, 1.0)
    assert beside.predicted == pytest.approx(beside.real, abs=0.03)
    assert beside.real[0] == pytest.approx(0.1) and beside.error < 0.03


class _Predictor:
    """Predicts those attempts whose code it knows."""

    def __init__(self, *known: str) -> None:
        self.known = [code.strip() for code in known]

    def grade(self, submissions: list[Submission]) -> list[Outcome | None]:
        predictions = ReplaySandbox().grade(submissions)
        return [
            prediction if str(submission.code).strip() in self.known else None
            for submission, prediction in zip(submissions, predictions, strict=True)
        ]


def test_attempts_without_a_prediction_do_not_count(
    mended: tuple[TextEvaluation, ChatServer], sandbox: ProcessSandbox
) -> None:
    beside = predict_beside(mended[0], [TASK], _Predictor(LINEAR), sandbox)
    assert (beside.attempts, beside.unpredicted) == (3, 9)
    assert [mean is None for mean in beside.predicted] == [mean is None for mean in beside.real]
    assert [mean is None for mean in beside.real] == [True, False, True, True]
    with pytest.raises(WorldModelError, match="predicted none of 12 attempts"):
        predict_beside(mended[0], [TASK], _Predictor(), sandbox)


def test_run_repeats(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    with closing(resolve_backend(f"transformers:{tiny_chat_model(tmp_path)}", device="cpu")) as backend:
        first, again, other = (
            evaluate_text(agent, ["titanic", "weather"], episodes=2, turns=2, seed=agent.seed, sandbox=sandbox)
            for agent in (LanguageModelAgent(backend, seed=seed, max_tokens=12) for seed in (1, 1, 2))
        )
    assert first.records == again.records
    assert first.records != other.records
    assert first.score == 0 and set(first.task_scores) <= {"titanic", "weather"}
    assert first.statuses == ({"malformed": 2}, {"malformed": 2})
    assert first.replies == 4 and first.cut_replies > 0


def failing_for(number: int) -> Any:
    """Return an answer that fails from the given attempt on in every episode whose first attempt was misspelt."""
    seen: list[int] = []

    def answer(chat: list[dict[str, str]]) -> str | None:
        if attempts(chat) == 0:
            seen.append(0)
            return fenced(MISSPELT if len(seen) == 1 else LINEAR)
        return None if attempts(chat) >= number and MISSPELT in chat[2]["content"] else fenced(LINEAR)

    return answer


def test_episode_whose_reply_cannot_be_had_is_left_out(sandbox: ProcessSandbox) -> None:
    with (
        chat_server(failing_for(1)) as server,
        LanguageModelAgent(server.model, max_tokens=2000, model_kwargs={"retries": 0}) as agent,
    ):
        result = evaluate_text(agent, episodes=3, turns=2, sandbox=sandbox)
    assert (result.episodes, result.left_out, result.failed_replies) == (2, 1, 1)
    assert result.statuses == ({"valid": 2}, {"valid": 2})
    assert result.score > 0.5, "what is unknown lowers no score"
    [gone] = [record for record in result.records if not record.known]
    assert [turn.status for turn in gone.turns] == ["runtime_error", None]
    assert gone.turns[1].reply is None and gone.turns[1].reward is None and gone.turns[1].feedback is None


class _Failing:
    """A sandbox whose harness fails for one solution."""

    def grade(self, submissions: list[Submission]) -> list[Outcome | None]:
        outcomes = ReplaySandbox().grade(submissions)
        lost = [str(submission.code).strip() == LINEAR.strip() for submission in submissions]
        return [None if gone else outcome for gone, outcome in zip(lost, outcomes, strict=True)]


def test_episode_that_cannot_be_executed_is_left_out() -> None:
    first: list[int] = []

    def answer(chat: list[dict[str, str]]) -> str:
        first.append(1)
        return fenced(LINEAR if len(first) == 1 else BOOSTED)

    with chat_server(answer) as server, LanguageModelAgent(server.model, max_tokens=2000) as agent:
        result = evaluate_text(agent, episodes=2, turns=1, sandbox=_Failing())
        assert (result.episodes, result.left_out, result.standard_error) == (1, 1, None)
        assert result.score > 0.6
    with chat_server(lambda chat: fenced(LINEAR)) as server, LanguageModelAgent(server.model) as agent:
        with pytest.raises(SandboxError, match="none of 2 evaluation episodes"):
            evaluate_text(agent, episodes=2, turns=1, sandbox=_Failing())


def test_refuses_no_episodes_and_a_model_that_is_away(sandbox: ProcessSandbox) -> None:
    with chat_server(mending) as server:
        pass
    with LanguageModelAgent(server.model, model_kwargs={"retries": 0}) as agent:
        with pytest.raises(ConfigurationError, match="at least 1 episode, got 0"):
            evaluate_text(agent, episodes=0, sandbox=sandbox)
        with pytest.raises(WorldModelError, match="127.0.0.1"):
            evaluate_text(agent, episodes=2, sandbox=sandbox)
