"""A language model plays the text environments: what it reads of earlier turns, what it replies, what it counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import wmrl_envs  # noqa: F401  (registers the environments)
from chat_server import chat_server
from language_models import tiny_chat_model
from wmrl_envs.agents.history import Turn, check_room, conversation, fit_conversation, split_thinking
from wmrl_envs.agents.language_model import SYSTEM, LanguageModelAgent
from wmrl_envs.errors import ConfigurationError, WorldModelError
from wmrl_envs.world_models.backends import Backend, Message, resolve_backend

FAST = {"retries": 0}
"""Arguments of a server's client that shall fail at once."""


def turn(reply: str | None, feedback: str | None, **changes: Any) -> Turn:
    made: Any = {"reply": reply, "feedback": feedback, "thinking": "", "failed": False, "complete": True}
    return made | {"prompt_tokens": 0, "completion_tokens": 0} | changes


def words(messages: Sequence[Message]) -> int:
    return sum(len(message["content"].split()) for message in messages)


def text_of(messages: Sequence[Message] | Sequence[dict[str, str]]) -> str:
    return "\n".join(message["content"] for message in messages)


class TestThinking:
    @pytest.mark.parametrize(
        ("reply", "thinking", "answer"),
        [
            ("x = 1", "", "x = 1"),
            (" as it is \n", "", " as it is \n"),
            ("<think>a\nb</think>\n\nx = 1\n", "a\nb", "x = 1"),
            ("<THINKING>a</THINKING>x", "a", "x"),
            (
                "a draft\n```python\nx\n```\n</think>```python\ny\n```",
                "a draft\n```python\nx\n```",
                "```python\ny\n```",
            ),
            ("<think>```python\nx\n```", "```python\nx\n```", ""),
            ("<think>a</think><think>b</think>x", "a\nb", "x"),
            ("Well. <think>a</think>x", "a", "Well. x"),
            ('```python\nx = "<think>a</think>"\n```', "", '```python\nx = "<think>a</think>"\n```'),
            ('<think>a</think>```python\nx = "</think>"\n```', "a", '```python\nx = "</think>"\n```'),
            ("", "", ""),
            ("<think></think>", "", ""),
        ],
    )
    def test_is_split_from_the_answer(self, reply: str, thinking: str, answer: str) -> None:
        assert split_thinking(reply) == (thinking, answer)


class TestConversation:
    def test_user_and_assistant_alternate_whatever_is_missing(self) -> None:
        turns = [
            turn("first", "error"),
            turn(None, None, failed=True),
            turn(None, "seen"),
            turn("", "", complete=False),
        ]
        for system in ("be good", ""):
            messages = conversation(system, "the task", turns, 3)
            roles = [message["role"] for message in messages]
            assert roles == ["system"] * bool(system) + ["user", "assistant", "user", "assistant", "user"]
            assert all(message["content"].strip() for message in messages)
        assert "the task" in messages[0]["content"] and "first 3 attempts" in messages[0]["content"]
        assert "error" in messages[2]["content"] and "seen" in messages[2]["content"]
        assert "cut off" in messages[4]["content"] and "cut off" not in messages[2]["content"]

    def test_everything_is_there_where_it_fits(self) -> None:
        turns = [turn(f"reply {i}", f"feedback {i}") for i in range(3)]
        assert fit_conversation("s", "t", turns, budget=1000, count=words) == conversation("s", "t", turns)

    def test_oldest_turns_go_first_and_a_note_stands_in_their_place(self) -> None:
        turns = [turn(f"reply{i} " + "x " * 50, f"feedback{i} " + "y " * 50) for i in range(4)]
        previous = 5
        for budget in (700, 450, 350, 250, 170, 140):
            text = text_of(messages := fit_conversation("s", "the task", turns, budget=budget, count=words))
            assert words(messages) <= budget
            kept = [i for i in range(4) if f"reply{i}" in text]
            assert kept == list(range(4 - len(kept), 4)) and len(kept) <= previous
            assert [i for i in range(4) if f"feedback{i}" in text] == (kept or [3])
            assert "the task" in messages[1]["content"]
            missing = 4 - len(kept)
            note = {0: "left out here", 1: "first attempt and"}.get(missing, f"first {missing} attempts")
            assert (note in text) == (missing > 0)
            previous = len(kept)
        assert previous == 0

    def test_last_feedback_is_clipped_in_its_middle_before_its_reply_goes(self) -> None:
        turns = [turn("the program", "begins " + "y " * 5000 + "ends")]
        messages = fit_conversation("s", "the task", turns, budget=300, count=words)
        assert 290 <= words(messages) <= 300
        assert messages[2]["content"] == "the program"
        for part in ("begins", "left out", "ends"):
            assert part in messages[3]["content"]

    def test_reply_too_long_by_itself_goes_and_its_feedback_stays(self) -> None:
        turns = [turn("x " * 500, "KeyError: 'age'")]
        messages = fit_conversation("s", "the task", turns, budget=300, count=words)
        assert [message["role"] for message in messages] == ["system", "user"]
        assert "KeyError: 'age'" in messages[1]["content"] and "first attempt" in messages[1]["content"]

    def test_failed_turns_take_no_room(self) -> None:
        turns = [turn("reply", "feedback"), turn(None, None, failed=True)]
        assert fit_conversation("", "t", turns, budget=1000, count=words) == conversation("", "t", turns[:1])

    def test_errors_name_the_numbers(self) -> None:
        with pytest.raises(ConfigurationError, match="more than the 20 tokens"):
            fit_conversation("s", "t " * 50, [turn("reply", "feedback")], budget=20, count=words)
        with pytest.raises(
            ConfigurationError, match=r"context_tokens=120 leaves 20 .* max_tokens=100: .* at least \d{3}"
        ):
            check_room("s", "t " * 50, context_tokens=120, max_tokens=100, count=words)
        check_room("s", "t " * 50, context_tokens=320, max_tokens=100, count=words)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    backend = resolve_backend(f"transformers:{tiny_chat_model(tmp_path_factory.mktemp('tiny'))}", device="cpu")
    yield backend
    backend.close()


def agent_of(backend: Backend | str, **changes: Any) -> LanguageModelAgent:
    return LanguageModelAgent(backend, **{"max_tokens": 12, "temperature": 1.0, **changes})


class TestInProcess:
    """With a real model in this process, which says nothing sensible."""

    def test_plays_an_episode(self, tiny: Backend) -> None:
        env = gym.make("wmrl/Research-v0", tasks="titanic", sandbox="replay", max_turns=2)
        agent = agent_of(tiny)
        observation, _ = env.reset(seed=0)
        state, ended = None, False
        while not ended:
            reply, state = agent.predict(observation, state)
            assert isinstance(reply, str) and reply in env.action_space
            observation, reward, ended, _, info = env.step(reply)
            assert (reward, info["wmrl"]["outcome"].status) == (0.0, "malformed")
        env.close()
        [slot] = state or []
        assert [part["feedback"] is None for part in slot["turns"]] == [False, True]
        assert "no code found" in str(slot["turns"][0]["feedback"])
        assert agent.usage.replies == 2 and 0 < agent.usage.completion_tokens <= 24
        assert agent.usage.prompt_tokens > 1000 and agent.usage.failed_replies == 0

    def test_run_repeats_under_its_seed_and_a_state_is_taken_up_from_json(self, tiny: Backend) -> None:
        env = gym.make_vec("wmrl/Research-v0", num_envs=3, tasks="titanic", sandbox="replay", max_turns=2)

        def play(seed: int) -> tuple[list[Any], Any]:
            agent = agent_of(tiny, seed=seed)
            observations, _ = env.reset(seed=0)
            first, state = agent.predict(observations)
            before = json.dumps(state)
            observations, *_ = env.step(first)
            second, state = agent.predict(observations, json.loads(before))
            assert json.dumps(json.loads(before)) == before
            assert agent.usage.replies == 6
            return [first, second], state

        replies, state = play(1)
        assert all(isinstance(part, tuple) and len(part) == 3 for part in replies)
        assert len(set(replies[0])) == 3, "equal chats are answered differently"
        assert play(1) == (replies, state)
        assert play(2)[0] != replies
        env.close()

    def test_deterministic_replies_are_equal_for_equal_chats(self, tiny: Backend) -> None:
        observation = {"task": ("a task",) * 2, "feedback": ("",) * 2, "turn": np.array([0, 0])}
        first, _ = agent_of(tiny, seed=1).predict(observation, deterministic=True)
        assert first[0] == first[1]
        assert agent_of(tiny, seed=2).predict(observation, deterministic=True)[0] == first
        assert agent_of(tiny, temperature=0.0).predict(observation)[0] == first

    def test_task_that_does_not_fit_is_refused_before_anything_is_asked(self, tiny: Backend) -> None:
        agent = agent_of(tiny, context_tokens=300, max_tokens=100)
        with pytest.raises(ConfigurationError, match=r"the task takes \d{4} tokens.*leaves 200"):
            agent.predict({"task": "word " * 1000, "feedback": "", "turn": 0})
        assert agent.usage.replies == 0


class TestOverHTTP:
    """With a scripted model behind a real server, whose requests can be looked at."""

    def test_feedback_comes_back_and_thinking_does_not(self) -> None:
        def answer(chat: Any) -> str:
            return f"<think>secret</think>\nanswer {len(chat)}"

        observation: dict[str, Any] = {"task": "the task", "feedback": "", "turn": 0}
        with chat_server(answer) as server, agent_of(server.model, max_tokens=50) as agent:
            reply, state = agent.predict(observation)
            assert reply == "answer 2"
            reply, state = agent.predict(observation | {"feedback": "KeyError: 'age'", "turn": 1}, state)
            assert reply == "answer 4"
            reply, state = agent.predict(observation, state)
            assert reply == "answer 2", "turn 0 begins anew"
        assert [slot["episode"] for slot in state] == [1]
        first, second, third = server.chats
        assert first == third == conversation(SYSTEM, "the task", [])
        assert second[:2] == first and second[2] == {"role": "assistant", "content": "answer 2"}
        assert "KeyError: 'age'" in second[3]["content"]
        assert "secret" not in text_of(second)
        seeds = [request["seed"] for request in server.requests]
        assert len(set(seeds)) == 3
        assert {request["max_tokens"] for request in server.requests} == {50}

    def test_task_is_pinned_and_oldest_turns_are_dropped(self) -> None:
        task = "the task " + "t " * 200
        with (
            chat_server(lambda chat: "reply " + "r " * 100) as server,
            agent_of(server.model, context_tokens=1000, max_tokens=100, system="") as agent,
        ):
            state = None
            for number in range(8):
                feedback = f"feedback{number - 1} " + "f " * 50 if number else ""
                _, state = agent.predict({"task": task, "feedback": feedback, "turn": number}, state)
            budget = 900
            for number, chat in enumerate(server.chats):
                assert agent.backend.count_tokens(chat) <= budget
                assert task.strip() in chat[0]["content"]
                assert number == 0 or f"feedback{number - 1}" in chat[-1]["content"]
            assert "left out" not in text_of(server.chats[1])
            assert "feedback0" not in text_of(server.chats[7]) and "left out" in server.chats[7][0]["content"]
            assert state is not None and len(state[0]["turns"]) == 8, "the state keeps everything"

    def test_system_prompt_can_be_a_text_a_file_or_none(self, tmp_path: Path) -> None:
        (tmp_path / "system.md").write_text("from a file")
        with chat_server(lambda chat: "reply") as server:
            for system in ("a text", tmp_path / "system.md", "", None):
                with agent_of(server.model, system=system) as agent:
                    agent.predict({"task": "the task", "feedback": "", "turn": 0})
        assert [chat[0]["content"] for chat in server.chats] == ["a text", "from a file", "the task", SYSTEM]
        with pytest.raises(ConfigurationError, match="cannot read the system prompt"):
            agent_of(server.model, system=tmp_path / "nowhere.md")

    def test_reply_that_cannot_be_had_is_marked_and_not_remembered(self) -> None:
        def answer(chat: Any) -> str | None:
            return None if "second task" in chat[1]["content"] and len(chat) == 2 else f"answer {len(chat)}"

        observations: dict[str, Any] = {
            "task": ("first", "second task"),
            "feedback": ("", ""),
            "turn": np.array([0, 0]),
        }
        with chat_server(answer) as server, agent_of(server.model, model_kwargs=FAST) as agent:
            replies, state = agent.predict(observations)
            assert replies == ("answer 2", "")
            assert agent.failed(state) == [False, True]
            assert agent.usage.failed_replies == 1 and agent.usage.replies == 1
            later = observations | {"feedback": ("fine", "no code found"), "turn": np.array([1, 1])}
            replies, state = agent.predict(later, state)
            assert replies == ("answer 4", "")
            assert "no code found" not in text_of(server.chats[-1])
            with pytest.raises(WorldModelError, match="none of 1 replies.*context_tokens=8192"):
                agent.predict({"task": "second task", "feedback": "", "turn": 0})

    def test_server_that_is_away_is_an_error(self) -> None:
        with chat_server(lambda chat: "reply") as server:
            pass
        with agent_of(server.model, model_kwargs=FAST) as agent, pytest.raises(WorldModelError, match="127.0.0.1"):
            agent.predict({"task": "the task", "feedback": "", "turn": 0})

    def test_cut_reply_is_counted_and_said(self) -> None:
        with chat_server(lambda chat: "x" * 500) as server, agent_of(server.model) as agent:
            _, state = agent.predict({"task": "the task", "feedback": "", "turn": 0})
            agent.predict({"task": "the task", "feedback": "error", "turn": 1}, state)
            assert agent.usage.cut_replies == agent.usage.replies == 2
            assert "was cut off" in server.chats[1][-1]["content"]

    def test_episode_that_somebody_else_began_is_gone_on_with(self) -> None:
        with chat_server(lambda chat: "reply") as server, agent_of(server.model) as agent:
            agent.predict({"task": "the task", "feedback": "KeyError", "turn": 2})
            assert [message["role"] for message in server.chats[0]] == ["system", "user"]
            assert "the task" in server.chats[0][1]["content"] and "KeyError" in server.chats[0][1]["content"]
            start: Any = np.array([True, False])
            batch = {"task": ("a", "b"), "feedback": ("x", "y"), "turn": np.array([1, 1])}
            _, state = agent.predict({**batch, "turn": np.array([0, 0])})
            _, state = agent.predict(batch, state, episode_start=start)
            assert [len(slot["turns"]) for slot in state] == [2, 2]
            assert state[0]["turns"][0]["reply"] is None and state[1]["turns"][0]["reply"] == "reply"

    def test_refuses_what_is_no_text_observation(self) -> None:
        with chat_server(lambda chat: "reply") as server, agent_of(server.model) as agent:
            with pytest.raises(ConfigurationError, match="wmrl/Research-v0"):
                agent.predict(np.zeros(23))  # type: ignore[arg-type]
            _, state = agent.predict({"task": "the task", "feedback": "", "turn": 0})
            with pytest.raises(ConfigurationError, match="state is of 1 episodes and the observation of 2"):
                agent.predict({"task": ("a", "b"), "feedback": ("", ""), "turn": np.array([1, 1])}, state)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be a whole number of at least 1, got 0"),
        ({"context_tokens": 2.5}, "context_tokens must be a whole number"),
        ({"context_tokens": 100, "max_tokens": 100}, "context_tokens=100 must be more than max_tokens=100"),
        ({"temperature": -1}, "temperature must be a finite number of at least 0, got -1"),
        ({"temperature": float("nan")}, "temperature"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"model": "transformer:here"}, "Did you mean 'transformers'?"),
        ({"model_kwargs": {"colour": 1}}, "colour"),
    ],
)
def test_constructor_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        LanguageModelAgent(**{"model": "openai:http://127.0.0.1:9/v1#none", **changes})
