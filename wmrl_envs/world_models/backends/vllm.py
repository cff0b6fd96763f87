"""A language model in this process, on vLLM's offline engine."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vllm import LLM, SamplingParams
from vllm.platforms import current_platform
from vllm.sampling_params import StructuredOutputsParams

from wmrl_envs.errors import ConfigurationError, WorldModelError
from wmrl_envs.world_models.backends._chat import ChatTokenizer
from wmrl_envs.world_models.backends._choices import Choices
from wmrl_envs.world_models.backends._folder_digest import folder_digest
from wmrl_envs.world_models.backends._loading import place_of
from wmrl_envs.world_models.backends._packing import Tokens
from wmrl_envs.world_models.backends.protocol import Conversation, Generation, Schema

__all__ = ["VLLMBackend"]

_LOG = logging.getLogger(__name__)

_MOST_BY_NUMBER = 128
"""Most tokens whose log-probabilities vLLM gives by number in one answer."""


class VLLMBackend:
    """A chat language model in this process, on vLLM: for many chats at once, on one or more GPUs.

    What chats share, such as a task's description and data, is read once: the engine's prefix caching is on. The
    engine runs in a process of its own that starts by running the main script again, so that a script which makes this
    backend does so below ``if __name__ == "__main__":``.

    Args:
        path: A folder as `save_pretrained` writes it, a ``.gguf`` file, which is converted once into the cache, or a
            hub's name.
        chat_template_kwargs: Arguments of the chat template, such as ``{"enable_thinking": False}``.
        **engine_args: Arguments of ``vllm.LLM``, such as ``max_model_len=8192``, ``gpu_memory_utilization=0.5`` or
            ``tensor_parallel_size=2``. Set unless given: ``enable_prefix_caching=True``, JSON without free blanks, and
            on a CPU ``dtype="float32"`` and ``enforce_eager=True``.

    Raises:
        ConfigurationError: If there is no such model, or the engine knows no such argument.
        WorldModelError: If the engine does not start.

    Example:
        >>> backend = VLLMBackend("Qwen/Qwen3-4B", chat_template_kwargs={"enable_thinking": False})
        >>> chat = [{"role": "user", "content": "Is 7 prime? Answer yes or no."}]
        >>> backend.choose([chat], ["yes", "no"])
        [array([0.98, 0.02])]
    """

    def __init__(self, path: str, *, chat_template_kwargs: Mapping[str, Any] | None = None, **engine_args: Any) -> None:
        place = place_of(str(path), engine_args.get("revision"))
        given = _defaults() | engine_args
        try:
            self._llm: Any = LLM(model=str(place), **given)
        except (TypeError, ImportError):
            raise
        except Exception as error:
            raise WorldModelError(
                f"vLLM does not start with {path!r} and {given}: {' '.join(str(error).split())} "
                "Its own messages above say more; too little memory is mended by a smaller max_model_len or "
                "gpu_memory_utilization (on a CPU: the environment variable VLLM_CPU_KVCACHE_SPACE, in GiB)"
            ) from error
        self.name = place.name if isinstance(place, Path) else path
        self.context = int(self._llm.llm_engine.model_config.max_model_len)
        self._chat = ChatTokenizer(self._llm.get_tokenizer(), chat_template_kwargs or {})
        settings = json.dumps([given, self._chat.options], sort_keys=True, default=repr)
        digest = hashlib.sha256(f"{folder_digest(_folder(place, engine_args))} {settings}".encode()).hexdigest()[:16]
        self._identity = f"vllm:{self.name}:{digest}"

    @property
    def identity(self) -> str:
        """Name, and a digest of the model's files and of the settings."""
        return self._identity

    def choose(self, conversations: Sequence[Conversation], choices: Sequence[str]) -> list[NDArray[np.float64] | None]:
        """Return the model's own probabilities over some answers.

        An answer's probability is that of its tokens, as the tokenizer divides it, at the beginning of the reply. One
        token is asked for after the chat, and one after each beginning of an answer of several tokens.

        Args:
            conversations: n chats.
            choices: k different answers. Where each is one token, one pass over each chat is all.

        Returns:
            For each chat float64 [k] that sums to 1, or None for a chat longer than the model's context or one that
            its template does not take.

        Raises:
            ConfigurationError: If there is no choice, or one is empty or there twice.
            WorldModelError: If the engine has died.
        """
        asked = Choices(choices, self._chat.words)
        prompts = [self._prompt(conversation, asked.longest + 2) for conversation in conversations]
        distinct = list(dict.fromkeys(prompt for prompt in prompts if prompt is not None))
        scores = (self._scores if _takes_numbers(asked) else self._prompt_scores)(distinct, asked)
        answers = {prompt: asked.probabilities(logs) for prompt, logs in zip(distinct, scores, strict=True)}
        found = [None if prompt is None else answers[prompt] for prompt in prompts]
        return [None if answer is None else answer.copy() for answer in found]

    def generate(
        self,
        conversations: Sequence[Conversation],
        *,
        samples: int = 1,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
        schema: Schema | None = None,
    ) -> list[list[Generation | None]]:
        """Return sampled replies.

        Tokens are drawn from the model's own distribution at the temperature. A reply's random numbers depend on the
        seed, its chat, and how many replies to the same chat came before it in the call.

        Args:
            conversations: n chats.
            samples: Replies per chat.
            max_tokens: Longest reply, in tokens; shorter where the model's context ends.
            temperature: 0 takes the most probable token each time.
            seed: Seed of the sampling.
            schema: The reply is a JSON object that fits this schema, unless ``max_tokens`` cuts it.

        Returns:
            For each chat a list of ``samples`` replies, None for a chat longer than the model's context or one that
            its template does not take.

        Raises:
            ConfigurationError: If an argument is out of range, or the schema cannot be enforced.
            WorldModelError: If the engine has died.
        """
        if samples < 1 or max_tokens < 1 or not 0 <= temperature < math.inf:
            raise ConfigurationError(
                f"samples={samples} and max_tokens={max_tokens} are at least 1, and temperature={temperature} is a "
                "finite number from 0 on"
            )
        prompts = [self._prompt(conversation, 1) for conversation in conversations]
        known = [prompt for prompt in prompts if prompt is not None]
        different = 1 if temperature == 0 else samples
        before: Counter[Tokens] = Counter()
        parameters = []
        for prompt in known:
            parameters.append(
                SamplingParams(
                    n=different,
                    max_tokens=min(max_tokens, self.context - len(prompt)),
                    temperature=temperature,
                    seed=_seed(seed, prompt, before[prompt]),
                    structured_outputs=None if schema is None else StructuredOutputsParams(json=dict(schema)),
                )
            )
            before[prompt] += 1
        outputs = iter(self._ask(known, parameters))
        return [
            [None] * samples if prompt is None else _generations(next(outputs)) * (samples // different)
            for prompt in prompts
        ]

    def count_tokens(self, conversation: Conversation) -> int:
        """Return the length of a chat as the model reads it, up to where its reply begins."""
        return len(self._chat.encode(conversation))

    def close(self) -> None:
        """Stop the engine; the backend answers nothing afterwards."""
        if self._llm is not None:
            self._llm.llm_engine.engine_core.shutdown()
            self._llm = None

    def _scores(self, prompts: Sequence[Tokens], asked: Choices) -> list[dict[tuple[Tokens, int], float]]:
        """Return the log-probabilities that the choices need, from one token after each of their beginnings."""
        contexts = ((), *asked.contexts)
        one = {"max_tokens": 1, "temperature": 0.0, "detokenize": False}
        parameters = [SamplingParams(logprob_token_ids=asked.next_tokens(context), **one) for context in contexts]
        outputs = iter(self._ask([p + c for p in prompts for c in contexts], parameters * len(prompts)))
        scores: list[dict[tuple[Tokens, int], float]] = []
        for _ in prompts:
            logs = {context: next(outputs).outputs[0].logprobs[0] for context in contexts}
            scores.append({(c, token): logs[c][token].logprob for c in contexts for token in asked.next_tokens(c)})
        return scores

    def _prompt_scores(self, prompts: Sequence[Tokens], asked: Choices) -> list[dict[tuple[Tokens, int], float]]:
        """Return the same from one pass over chat and choice for each: no cached prefix is used for these."""
        parameters = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        sequences = [prompt + choice for prompt in prompts for choice in asked.tokens]
        outputs = iter(self._ask(sequences, [parameters] * len(sequences)))
        scores: list[dict[tuple[Tokens, int], float]] = []
        for prompt in prompts:
            logs: dict[tuple[Tokens, int], float] = {}
            for choice in asked.tokens:
                listed = next(outputs).prompt_logprobs[len(prompt) :]
                logs |= {(choice[:i], token): listed[i][token].logprob for i, token in enumerate(choice)}
            scores.append(logs)
        return scores

    def _ask(self, prompts: Sequence[Tokens], parameters: Sequence[SamplingParams]) -> list[Any]:
        if not prompts:
            return []
        with self._running():
            inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
            return list(self._llm.generate(inputs, list(parameters), use_tqdm=False))

    @contextmanager
    def _running(self) -> Iterator[None]:
        if self._llm is None:
            raise WorldModelError(f"the language model {self.name} is closed; make a new backend")
        try:
            yield
        except ValueError as error:
            raise ConfigurationError(f"vLLM does not take this question to {self.name}: {error}") from error
        except Exception as error:
            raise WorldModelError(
                f"vLLM failed on {self.name}: {' '.join(str(error).split())}; its own messages above say more"
            ) from error

    def _prompt(self, conversation: Conversation, room: int) -> Tokens | None:
        try:
            tokens = self._chat.encode(conversation)
        except Exception as error:
            _LOG.warning("a chat does not fit the chat template of %s, so that it has no answer: %s", self.name, error)
            return None
        if len(tokens) + room > self.context:
            _LOG.warning(
                "a chat of %d tokens is longer than the context of %s, %d tokens, so that it has no answer",
                len(tokens),
                self.name,
                self.context,
            )
            return None
        return tokens


def _defaults() -> dict[str, Any]:
    # Small models fill the room for blanks that JSON allows between its parts, and never come to an end.
    blanks = {"backend": "xgrammar", "disable_any_whitespace": True}
    defaults: dict[str, Any] = {"enable_prefix_caching": True, "structured_outputs_config": blanks}
    return defaults | ({"dtype": "float32", "enforce_eager": True} if current_platform.is_cpu() else {})


def _folder(place: Path | str, engine_args: Mapping[str, Any]) -> Path:
    if isinstance(place, Path):
        return place
    from huggingface_hub import snapshot_download

    files = snapshot_download(
        place,
        revision=engine_args.get("revision"),
        cache_dir=engine_args.get("download_dir"),
        local_files_only=True,
    )
    return Path(files)


def _takes_numbers(asked: Choices) -> bool:
    """Whether this release of vLLM gives log-probabilities of tokens by number, as many as are needed."""
    most = max(len(asked.next_tokens(context)) for context in ((), *asked.contexts))
    return hasattr(SamplingParams, "logprob_token_ids") and most <= _MOST_BY_NUMBER


def _seed(seed: int, prompt: Tokens, before: int) -> int:
    return int.from_bytes(hashlib.sha256(repr((seed, prompt, before)).encode()).digest()[:7], "big")


def _generations(output: Any) -> list[Generation | None]:
    return [
        Generation(
            text=reply.text,
            prompt_tokens=len(output.prompt_token_ids),
            completion_tokens=len(reply.token_ids),
            complete=reply.finish_reason != "length",
        )
        for reply in sorted(output.outputs, key=lambda reply: reply.index)
    ]
