"""The OpenAI-compatible backend's own parts; `test_openai_faults` has what goes wrong on the way."""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
from typing import Any

import numpy as np
import pytest
from contract import chat, conversations
from hypothesis import given
from hypothesis import strategies as st
from servers import Answer, ScriptedServer, completion, refusal

from wmrl_envs.errors import ConfigurationError, WorldModelError
from wmrl_envs.world_models.backends import Backend, Generation, resolve_backend
from wmrl_envs.world_models.backends._first_tokens import choice_probabilities
from wmrl_envs.world_models.backends._schema import misfit
from wmrl_envs.world_models.backends._token_estimate import TokenEstimate
from wmrl_envs.world_models.backends.openai import OpenAIBackend
from wmrl_envs.world_models.verdicts import VERDICTS


def echo(request: dict[str, Any], number: int) -> Answer:
    return completion(str(request["messages"][-1]["content"]))


def scored(tokens: dict[str, float]) -> Answer:
    """Return a completion that lists first tokens with their probabilities."""
    listed = [{"token": token, "logprob": math.log(p) if p else -9999.0} for token, p in tokens.items()]
    return completion("x", logprobs={"content": [listed[0] | {"top_logprobs": listed}]})


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({"low": 0.6, "high": 0.2}, [0.75, 0.25]),
        ({" low": 0.3, "Low": 0.2, "low": 0.1, '"high': 0.2}, [0.75, 0.25]),
        ({"low": 0.6, "lo": 0.3, "l": 0.05, "high": 0.2}, [0.75, 0.25]),
        ({"low,": 0.6, "lowest": 0.1, "high": 0.2}, [0.75, 0.25]),
        ({"The": 0.5, "low": 0.3, "high": 0.1, "": 0.05, " ": 0.05}, [0.75, 0.25]),
        ({"l": 0.6, "h": 0.2}, [0.75, 0.25]),
        ({"low": 0.6, "h": 0.3, "The": 0.2}, [0.6, 0.0]),  # h is no evidence, and nothing is left over
        ({"low": 0.6, "The": 0.1}, [0.6 / 0.7, 0.1 / 0.7]),  # not listed: at most the least that is
        ({"low": 0.9, "The": 0.08}, [0.9 / 0.92, 0.02 / 0.92]),  # nor more than what is left
        ({"low": 0.6, "high": 0.0}, [1.0, 0.0]),
    ],
)
def test_first_tokens_count_for_the_choice_that_they_begin(tokens: dict[str, float], expected: list[float]) -> None:
    probabilities = choice_probabilities(tokens, ["low", "high"])
    assert probabilities is not None and probabilities == pytest.approx(np.array(expected) / sum(expected))


def test_a_token_that_begins_several_choices_is_divided() -> None:
    probabilities = choice_probabilities({"run": 0.4, "low": 0.4}, ["run on", "run out", "low"])
    assert probabilities is not None and probabilities == pytest.approx([0.25, 0.25, 0.5])


def test_case_counts_where_choices_differ_by_it() -> None:
    assert choice_probabilities({"A": 0.6, "a": 0.2}, ["a", "A"]) == pytest.approx([0.25, 0.75])


def test_no_token_that_begins_a_choice_is_no_answer() -> None:
    assert choice_probabilities({"The": 0.9, "<think>": 0.1}, ["low", "high"]) is None


@given(st.dictionaries(st.text(max_size=8), st.floats(0, 1), min_size=1, max_size=20))
def test_any_list_of_tokens_gives_a_distribution_or_none(tokens: dict[str, float]) -> None:
    probabilities = choice_probabilities(tokens, VERDICTS)
    if probabilities is not None:
        assert np.all(probabilities >= 0) and probabilities.sum() == pytest.approx(1.0)


@given(st.text())
def test_any_reply_fits_its_schema_or_a_complaint_is_made(text: str) -> None:
    schema = {"type": "object", "required": ["a"]}
    assert misfit(text, schema)
    assert misfit(text.replace("{", "") + '{"a": 1}', schema) is None


def test_choose_asks_for_one_token_and_names_the_choices() -> None:
    with ScriptedServer(lambda request, number: scored({"low": 0.6, "high": 0.2})) as server:
        backend = OpenAIBackend(f"{server.url}#small", top_logprobs=7)
        for probabilities in backend.choose(conversations(2), ["high", "low"]):
            assert probabilities == pytest.approx([0.25, 0.75])
        backend.close()
    request = server.requests[0]
    assert (request["max_tokens"], request["top_logprobs"], request["temperature"]) == (1, 7, 0)
    assert request["structured_outputs"] == {"choice": ["high", "low"]}


def test_a_server_that_lists_fewer_tokens_is_asked_for_fewer() -> None:
    def script(request: dict[str, Any], number: int) -> Answer:
        if request["top_logprobs"] > 5:
            return refusal(400, "top_logprobs must be at most 5")
        return scored({"low": 0.6, "high": 0.2})

    with ScriptedServer(script) as server:
        backend = OpenAIBackend(f"{server.url}#small")
        assert backend.choose(conversations(1), ["low", "high"])[0] == pytest.approx([0.75, 0.25])
        backend.close()


def test_a_chat_whose_answer_is_no_choice_is_none(caplog: pytest.LogCaptureFixture) -> None:
    with ScriptedServer(lambda request, number: scored({"<think>": 0.9})) as server:
        backend = OpenAIBackend(f"{server.url}#small")
        assert backend.choose(conversations(2), ["low", "high"]) == [None, None]
        backend.close()
    assert "none of ['low', 'high'] begins with one of its tokens ['<think>']" in caplog.text


@pytest.mark.parametrize("logprobs", [None, {"content": None}, {"content": []}, {"content": [None]}])
def test_a_server_without_log_probabilities_names_the_way_out(logprobs: Any) -> None:
    with ScriptedServer(lambda request, number: completion("low", logprobs=logprobs)) as server:
        backend = OpenAIBackend(f"{server.url}#small")
        with pytest.raises(WorldModelError, match='gives no log-probabilities.*mode="sample"'):
            backend.choose(conversations(2), ["low", "high"])
        backend.close()


WORDS = {"low": [3], "high": [4], "run out": [5, 6]}
LOGS = {3: math.log(0.3), 4: math.log(0.1), 5: math.log(0.2), 6: math.log(0.5)}


def tokenize(request: dict[str, Any]) -> Answer:
    return Answer(json.dumps({"tokens": WORDS[request["prompt"]] if "prompt" in request else [1, 2]}))


def by_number(request: dict[str, Any], number: int) -> Answer:
    asked = request.get("logprob_token_ids")
    if asked is None:
        return scored({"low": 0.5, "high": 0.5})
    listed = [{"token": f"token_id:{token}", "logprob": LOGS[token]} for token in asked]
    return completion("x", logprobs={"content": [{"token": "token_id:9", "logprob": 0.0, "top_logprobs": listed}]})


def test_tokens_by_number_score_exactly_and_longer_choices_token_by_token() -> None:
    def go_on(request: dict[str, Any]) -> Answer:
        assert request["prompt"] == [1, 2, 5] and request["logprob_token_ids"] == [6]
        return Answer(json.dumps({"choices": [{"text": "x", "logprobs": {"top_logprobs": [{"token_id:6": LOGS[6]}]}}]}))

    pages = {"tokenize": tokenize, "v1/completions": go_on}
    with ScriptedServer(by_number, pages=pages) as server:
        backend = OpenAIBackend(f"{server.url}#small")
        assert backend.choose(conversations(1), list(WORDS))[0] == pytest.approx([0.6, 0.2, 0.2])
        backend.close()


def test_a_server_that_leaves_token_numbers_out_of_account_is_read_by_first_tokens() -> None:
    with ScriptedServer(lambda *_: scored({"low": 0.6, "high": 0.2}), pages={"tokenize": tokenize}) as server:
        backend = OpenAIBackend(f"{server.url}#small", concurrency=1)
        for _ in range(2):
            assert backend.choose(conversations(1), ["low", "high"])[0] == pytest.approx([0.75, 0.25])
        backend.close()
    assert ["logprob_token_ids" in request for request in server.requests] == [True, False, False]


def test_tokens_are_counted_by_the_server_where_it_does() -> None:
    with ScriptedServer(echo, pages={"tokenize": tokenize}) as server:
        backend = OpenAIBackend(f"{server.url}#small")
        assert backend.count_tokens(chat("x" * 999)) == 2
        backend.close()


@pytest.mark.parametrize("page", [Answer('{"tokens": []}'), Answer("<html/>"), Answer("{}"), refusal(501, "no")])
def test_tokens_are_estimated_where_the_page_is_another_one(page: Answer) -> None:
    with ScriptedServer(echo, pages={"tokenize": lambda request: page}) as server:
        backend = OpenAIBackend(f"{server.url}#small")
        assert backend.count_tokens(chat("x" * 999)) > 999
        backend.close()


def test_the_estimate_is_the_bytes_until_the_server_tells_a_count() -> None:
    estimate, long = TokenEstimate(), chat("wörter " * 200)
    size = sum(len(message["content"].encode()) for message in long)
    assert estimate.of(long) > size
    estimate.observe(long, size // 4)
    assert size // 4 < estimate.of(long) < size // 2
    estimate.observe(chat("x" * 800), 800)  # the longest in tokens counts
    assert estimate.of(long) > size
    assert TokenEstimate(0.5).of(long) < size


def test_it_works_inside_a_running_loop() -> None:
    with ScriptedServer(echo) as server:
        backend = OpenAIBackend(f"{server.url}#small")

        async def notebook() -> Any:
            return backend.generate([chat("a"), chat("b")])

        texts = [reply.text for (reply,) in asyncio.run(notebook()) if reply is not None]
        backend.close()
    assert texts == ["a", "b"]


def test_it_works_from_several_threads_and_after_it_was_closed() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ScriptedServer(echo) as server:
        backend = OpenAIBackend(f"{server.url}#small", concurrency=3)
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda i: backend.generate([chat(f"chat {i}")]), range(12)))
        backend.close()
        backend.close()
        found += [backend.generate([chat("chat 12")])]
        backend.close()
    assert [reply.text for ((reply,),) in found if reply is not None] == [f"chat {i}" for i in range(13)]
    assert server.most_together <= 3


def test_it_works_in_a_forked_child() -> None:
    with ScriptedServer(echo) as server:
        backend = OpenAIBackend(f"{server.url}#small")
        backend.generate([chat("parent")])
        answers = multiprocessing.get_context("fork").Queue()
        child = multiprocessing.get_context("fork").Process(target=_child, args=(backend, answers))
        child.start()
        assert answers.get(timeout=60) == "child"
        child.join()
        backend.close()


def _child(backend: Backend, answers: Any) -> None:
    ((reply,),) = backend.generate([chat("child")])
    answers.put(reply and reply.text)


def test_tokens_are_estimated_where_the_server_does_not_count_them() -> None:
    with ScriptedServer(lambda request, number: completion("twelve bytes", "")) as server:
        backend = OpenAIBackend(f"{server.url}#small")
        (replies,) = backend.generate([chat("x")], samples=2, temperature=1.0)
        backend.close()
    assert [reply and reply.completion_tokens for reply in replies] == [3, 1]


def test_the_tokens_of_samples_that_came_together_are_shared_out() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 40}
    with ScriptedServer(lambda request, number: completion("x" * 12, "x" * 36, usage=usage)) as server:
        backend = OpenAIBackend(f"{server.url}#small")
        (replies,) = backend.generate([chat("x")], samples=2, temperature=1.0)
        backend.close()
    assert replies == [Generation("x" * 12, 9, 10), Generation("x" * 36, 9, 30)]


def test_greedy_samples_are_one_request() -> None:
    with ScriptedServer(echo) as server:
        backend = OpenAIBackend(f"{server.url}#small")
        (replies,) = backend.generate([chat("a")], samples=3)
        backend.close()
    assert [reply and reply.text for reply in replies] == ["a"] * 3 and len(server.requests) == 1


def test_the_seed_decides_and_any_whole_number_is_one() -> None:
    with ScriptedServer(lambda request, number: completion(str(request["seed"]))) as server:
        backend = OpenAIBackend(f"{server.url}#small")
        seeds = [backend.generate([chat("a")], seed=seed)[0][0] for seed in (0, 1, 1, -1, 2**70 + 5)]
        backend.close()
    assert [reply and reply.text for reply in seeds] == ["0", "1", "1", str(2**31 - 1), "5"]


def test_a_chat_that_stands_there_twice_gets_two_replies() -> None:
    with ScriptedServer(lambda request, number: completion(str(request["seed"]))) as server:
        backend = OpenAIBackend(f"{server.url}#small")
        replies = backend.generate([chat("a"), chat("b"), chat("a")], samples=2, temperature=1.0, seed=3)
        backend.close()
    first, other, second = ([reply and reply.text for reply in batch] for batch in replies)
    assert first == other and len({*first, *second}) == 4


def test_extra_fields_go_into_every_request_and_into_the_identity() -> None:
    with ScriptedServer(echo) as server:
        plain = OpenAIBackend(f"{server.url}/#small")
        more = OpenAIBackend(f"{server.url}#small", extra_body={"chat_template_kwargs": {"enable_thinking": False}})
        more.generate([chat("a")])
        more.close()
    assert server.requests[0]["chat_template_kwargs"] == {"enable_thinking": False}
    assert plain.identity == f"openai:{server.url}#small"
    assert more.identity != plain.identity and more.identity.startswith(plain.identity)


def test_the_key_is_the_environment_s_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from the environment")
    assert OpenAIBackend("http://host/v1#small")._settings.api_key == "from the environment"
    assert OpenAIBackend("http://host/v1#small", api_key="given")._settings.api_key == "given"
    monkeypatch.delenv("OPENAI_API_KEY")
    assert OpenAIBackend("http://host/v1#small")._settings.api_key == "EMPTY"


@pytest.mark.parametrize(
    "place", ["http://host/v1", "host:8000#small", "#small", "http://host/v1#", "ftp://host#small"]
)
def test_a_place_without_a_model_or_an_address_is_refused(place: str) -> None:
    with pytest.raises(ConfigurationError, match="it is 'URL#MODEL'"):
        OpenAIBackend(place)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"concurrency": 0},
        {"timeout": 0},
        {"timeout": math.inf},
        {"retries": -1},
        {"backoff": -0.1},
        {"top_logprobs": 0},
        {"tokens_per_byte": 0},
        {"tokens_per_byte": 2},
    ],
)
def test_an_argument_that_cannot_work_is_named(kwargs: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(kwargs))}="):
        resolve_backend("openai:http://host/v1#small", **kwargs)


@pytest.mark.parametrize("kwargs", [{"samples": 0}, {"max_tokens": 0}, {"temperature": -1}, {"temperature": math.nan}])
def test_a_question_that_cannot_be_asked_is_named(kwargs: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(kwargs))}="):
        OpenAIBackend("http://host/v1#small").generate([chat("a")], **kwargs)


@pytest.mark.parametrize("choices", [[], [""], ["low", "low"]])
def test_choices_are_different_texts(choices: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="choices are different texts"):
        OpenAIBackend("http://host/v1#small").choose([chat("a")], choices)


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="tries"):
        resolve_backend("openai:http://host/v1#small", tries=3)


@pytest.mark.parametrize("place", ["http://u:hush@host/v1#m", "u:hush@host", "http://host/v1?key=hush#m"])
def test_an_address_with_a_secret_is_refused_without_showing_it(place: str) -> None:
    with pytest.raises(ConfigurationError, match="pass a key by api_key=") as caught:
        OpenAIBackend(place)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "place", ["http://host:port/v1#m", "http://host:99999/v1#m", "http://:80/v1#m", "http://[::1/v1#m"]
)
def test_an_address_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(ConfigurationError, match="names no model on a server"):
        OpenAIBackend(place)


@pytest.mark.parametrize("key", ["hu\nsh", "hush\u2026"])
def test_a_key_is_never_shown(key: str) -> None:
    place = "http://127.0.0.1:9/v1#m"
    with pytest.raises(ConfigurationError, match="holds characters that no key has") as wrong:
        OpenAIBackend(place, api_key=key)
    with pytest.raises(ConfigurationError, match="unexpected keyword argument 'retrie'") as unknown:
        resolve_backend(f"openai:{place}", retrie=1, api_key="hush")
    backend = OpenAIBackend(place, api_key="hush ")
    for text in (str(wrong.value), str(unknown.value), repr(vars(backend)), backend.identity):
        assert "hush" not in text
    assert backend._settings.api_key == "hush"
