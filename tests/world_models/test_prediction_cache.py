"""Answers on disk: found again by content, by another process, and done without where the disk fails."""

import json
import logging
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from wmrl_envs.errors import WorldModelError
from wmrl_envs.world_models.asking import CachedBackend
from wmrl_envs.world_models.backends.protocol import Generation, Message
from wmrl_envs.world_models.prediction_cache import PredictionCache, content_key


def chat(text):
    return [Message(role="user", content=text)]


class Counting:
    """A backend that answers by the length of the chat, and fails where the chat says so."""

    def __init__(self, identity="counting:1"):
        self.identity = identity
        self.asked = []

    def choose(self, conversations, choices):
        self.asked += [member[-1]["content"] for member in conversations]
        return [
            None if member[-1]["content"] == "fail" else np.full(len(choices), 1 / len(choices))
            for member in conversations
        ]

    def generate(self, conversations, *, samples, max_tokens, temperature, seed, schema=None):
        self.asked += [member[-1]["content"] for member in conversations]
        return [
            [
                None if member[-1]["content"] == "fail" and i == 1 else Generation(f"{i} {seed}", 3, 2, False)
                for i in range(samples)
            ]
            for member in conversations
        ]


SETTINGS = {"samples": 2, "max_tokens": 5, "temperature": 0.5, "seed": 1}


def test_answers_come_back_from_another_cache_of_the_folder(tmp_path):
    first = PredictionCache(tmp_path)
    first.put({"a": [0.1, 2 / 3], "b": {"text": "é\n"}})
    first.close()
    second = PredictionCache(tmp_path)
    assert second.get(["a", "c", "b"]) == [[0.1, 2 / 3], None, {"text": "é\n"}]
    second.close()
    assert second.get(["a"]) == [None]


def test_answers_come_back_in_another_process(tmp_path):
    program = (
        "import sys, json; from wmrl_envs.world_models.prediction_cache import PredictionCache as C; "
        "cache = C(sys.argv[1]); print(json.dumps(cache.get(['a']))); cache.put({'b': 2})"
    )
    cache = PredictionCache(tmp_path)
    cache.put({"a": 1})
    shown = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout) == [1] and cache.get(["b"]) == [2]


def test_nothing_is_pickled(tmp_path):
    cache = PredictionCache(tmp_path)
    cache.put({"a": ["text" * 50_000], "b": 0.5})
    cache.close()
    database = sqlite3.connect(tmp_path / "language-model" / "cache.db")
    modes = {mode for (mode,) in database.execute("SELECT mode FROM Cache")}
    assert modes <= {1, 2}  # bytes, in the table or in a file; 4 would be a pickle


def test_each_question_is_asked_once(tmp_path):
    backend = Counting()
    asker = CachedBackend(backend, PredictionCache(tmp_path))
    first = asker.choose([chat("a"), chat("b"), chat("a")], ["x", "y"])
    assert backend.asked == ["a", "b"] and [answer.new for answer in first] == [True] * 3 and asker.hits == 0
    again = CachedBackend(backend, PredictionCache(tmp_path))
    assert [answer.new for answer in again.choose([chat("b"), chat("c")], ["x", "y"])] == [False, True]
    assert backend.asked == ["a", "b", "c"] and again.hits == 1


def test_replies_come_back_whole(tmp_path):
    backend = Counting()
    asker = CachedBackend(backend, PredictionCache(tmp_path))
    first, again = (asker.generate([chat("a")], **SETTINGS)[0] for _ in range(2))
    assert first.answer == again.answer == [Generation("0 1", 3, 2, False), Generation("1 1", 3, 2, False)]
    assert first.new and not again.new


@pytest.mark.parametrize(
    "change", [{"samples": 3}, {"max_tokens": 6}, {"temperature": 0.6}, {"seed": 2}, {"schema": {"type": "object"}}]
)
def test_every_setting_is_part_of_the_question(tmp_path, change):
    backend = Counting()
    asker = CachedBackend(backend, PredictionCache(tmp_path))
    asker.generate([chat("a")], **SETTINGS)
    asker.generate([chat("a")], **(SETTINGS | change))
    assert len(backend.asked) == 2


def test_another_model_or_other_choices_are_another_question(tmp_path):
    backends = Counting(), Counting("counting:2")
    for backend in backends:
        CachedBackend(backend, PredictionCache(tmp_path)).choose([chat("a")], ["x", "y"])
    CachedBackend(backends[0], PredictionCache(tmp_path)).choose([chat("a")], ["y", "x"])
    assert [len(backend.asked) for backend in backends] == [2, 1]


def test_failures_are_asked_again(tmp_path):
    backend = Counting()
    asker = CachedBackend(backend, PredictionCache(tmp_path))
    for _ in range(2):
        assert asker.choose([chat("fail")], ["x", "y"])[0].answer is None
        assert asker.generate([chat("fail")], **SETTINGS)[0].answer[1] is None
    assert backend.asked == ["fail"] * 4


@pytest.mark.parametrize("answer", [[0.5], [np.nan, 0.5], [-0.1, 1.1], [0.0, 0.0], [[0.5, 0.5]]])
def test_what_is_no_distribution_is_none(answer):
    backend = Counting()
    backend.choose = lambda conversations, choices: [np.array(answer)]
    assert CachedBackend(backend, None).choose([chat("a")], ["x", "y"])[0].answer is None


def test_a_wrong_number_of_answers_is_refused():
    backend = Counting()
    backend.choose = lambda conversations, choices: []
    with pytest.raises(WorldModelError, match="counting:1 returned 0 answers to 1 chats"):
        CachedBackend(backend, None).choose([chat("a")], ["x", "y"])


def test_a_damaged_cache_is_done_without(tmp_path, caplog):
    cache = PredictionCache(tmp_path)
    cache.put({"a": 1})
    cache.close()
    for path in (tmp_path / "language-model").iterdir():
        path.write_bytes(b"this is no database" * 1_000)
    with caplog.at_level(logging.WARNING):
        damaged = PredictionCache(tmp_path)
        assert damaged.get(["a"]) == [None]
        damaged.put({"a": 2})
    assert caplog.text.count("going on without the cache of predictions") == 1 and "Pass cache_dir=" in caplog.text


def test_damaged_entries_are_done_without(tmp_path, caplog):
    cache = PredictionCache(tmp_path)
    cache.put({"a": 1})
    database = sqlite3.connect(tmp_path / "language-model" / "cache.db", isolation_level=None)
    database.execute("UPDATE Cache SET value = ?", (b"no zlib stream",))
    database.close()
    with caplog.at_level(logging.WARNING):
        assert cache.get(["a"]) == [None]
    assert "going on without" in caplog.text


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        cache = PredictionCache(tmp_path / "file")
    cache.put({"a": 1})
    assert cache.get(["a"]) == [None] and "going on without" in caplog.text


def test_the_key_is_the_content():
    assert content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1}) != content_key({"a": 1, "b": 3})
    assert len(content_key("\ud800")) == 64


def test_what_is_no_answer_is_not_kept(tmp_path):
    backend = Counting()
    asker = CachedBackend(backend, PredictionCache(tmp_path))
    whole = backend.choose, backend.generate
    backend.choose = lambda conversations, choices: [[np.nan, 0.5]]
    backend.generate = lambda conversations, **settings: [[Generation("one", 3, 2)]]
    assert asker.choose([chat("a")], ["x", "y"])[0].answer is None
    assert [reply and reply.text for reply in asker.generate([chat("a")], **SETTINGS)[0].answer] == ["one", None]
    backend.choose, backend.generate = whole
    assert asker.choose([chat("a")], ["x", "y"])[0].answer.tolist() == [0.5, 0.5]
    assert [reply.text for reply in asker.generate([chat("a")], **SETTINGS)[0].answer] == ["0 1", "1 1"]
