"""A language model in this process, on transformers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, WorldModelError
from wmrl_envs.world_models.backends._chat import ChatTokenizer
from wmrl_envs.world_models.backends._choices import Choices, score
from wmrl_envs.world_models.backends._constraint import Constraints
from wmrl_envs.world_models.backends._decoding import Sampling, sample
from wmrl_envs.world_models.backends._fingerprint import fingerprint
from wmrl_envs.world_models.backends._loading import load, read_device, read_dtype
from wmrl_envs.world_models.backends._packing import Tokens
from wmrl_envs.world_models.backends._runner import Runner
from wmrl_envs.world_models.backends.protocol import Conversation, Generation, Schema

__all__ = ["TransformersBackend"]

_LOG = logging.getLogger(__name__)


class TransformersBackend:
    """A chat language model in this process.

    What the chats of a batch share, such as a task's description and data, is read once into a cache of keys and
    values; each chat then costs only its own tokens. The last few prefixes stay in memory for the next call. The
    answers are those of one pass per chat up to rounding: 1e-4 in float32, more in bfloat16.

    Answers do not depend on what else is in the batch, and sampling leaves torch's random state alone.

    Args:
        path: A folder as `save_pretrained` writes it (a LoRA adapter's folder too), a ``.gguf`` file, which is
            converted once into the cache (`wmrl_envs.world_models.backends.gguf.converted`), or a hub's name.
        device: Such as ``"cpu"``, ``"cuda"`` or ``"mps"``; the best there is where None.
        dtype: ``"float32"``, ``"bfloat16"`` or ``"float16"``; where None float32 on a CPU, bfloat16 elsewhere.
        batch_size: Most chats at once.
        max_batch_tokens: Most tokens at once, shared prefixes and room for replies included. It bounds memory: a model
            of 4 billion parameters takes some 150 kB a token.
        share_prefix: Whether what chats share is read once. False runs the plain path, to compare.
        prefix_cache_tokens: Most tokens of prefixes that stay in memory between calls; 0 keeps none.
        chat_template_kwargs: Arguments of the chat template, such as ``{"enable_thinking": False}``.
        revision: Branch, tag or commit of a hub's name.

    Raises:
        ConfigurationError: If there is no such model, or an argument cannot work.
        WorldModelError: If the model cannot be loaded.

    Example:
        >>> backend = TransformersBackend("Qwen/Qwen3-4B", chat_template_kwargs={"enable_thinking": False})
        >>> chat = [{"role": "user", "content": "Is 7 prime? Answer yes or no."}]
        >>> backend.choose([chat], ["yes", "no"])
        [array([0.98, 0.02])]
    """

    def __init__(
        self,
        path: str,
        *,
        device: str | None = None,
        dtype: str | None = None,
        batch_size: int = 32,
        max_batch_tokens: int = 32768,
        share_prefix: bool = True,
        prefix_cache_tokens: int = 16384,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        revision: str | None = None,
    ) -> None:
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("max_batch_tokens", max_batch_tokens, 1),
            ("prefix_cache_tokens", prefix_cache_tokens, 0),
        ):
            if value < least:
                raise ConfigurationError(f"{name}={value} is below {least}")
        self.device = read_device(device)
        kind = read_dtype(dtype, self.device)
        self.name, self.model, self.tokenizer = load(str(path), revision, self.device, kind)
        self.context = _context(self.model)
        self._chat = ChatTokenizer(self.tokenizer, chat_template_kwargs or {})
        self._ends = _ends(self.model, self.tokenizer)
        self._constraints = Constraints(self.tokenizer, _first_end(self.tokenizer, self._ends))
        self._runner = Runner(
            self.model,
            pad=self._ends[0] if self._ends else 0,
            share_prefix=share_prefix,
            batch_size=batch_size,
            max_batch_tokens=max_batch_tokens,
            prefix_tokens=prefix_cache_tokens,
        )
        options = dict(self._chat.options)
        if self._ends != [self.tokenizer.eos_token_id]:
            options["reply ends on"] = self._ends
        digest = fingerprint(self.model, self.tokenizer, options)
        self._identity = f"transformers:{self.name}:{digest}:{str(kind).removeprefix('torch.')}"
        self._closed = False
        self._warned: set[str] = set()

    @property
    def identity(self) -> str:
        """Name, digest of weights, configuration, tokenizer, template and ends, and type of the numbers."""
        return self._identity

    @property
    def tokens_read(self) -> int:
        """Tokens that went through the model so far, padding included."""
        return self._runner.tokens_read

    def choose(self, conversations: Sequence[Conversation], choices: Sequence[str]) -> list[NDArray[np.float64] | None]:
        """Return the model's own probabilities over some answers.

        An answer's probability is that of its tokens, as the tokenizer divides it, at the beginning of the reply. Where
        the tokens of one begin another, the shorter one has what the longer one leaves of it.

        Args:
            conversations: n chats.
            choices: k different answers. Where each is one token, one pass over each chat is all.

        Returns:
            For each chat float64 [k] that sums to 1, or None for a chat longer than the model's context or one that
            its template does not take.

        Raises:
            ConfigurationError: If there is no choice, or one is empty or there twice.
            WorldModelError: If memory runs out.
        """
        asked = Choices(choices, self._chat.words)
        prompts = self._prompts(conversations, asked.longest)
        distinct = list(dict.fromkeys(prompt for prompt in prompts if prompt is not None))
        with self._computing():
            answers = dict(zip(distinct, score(self._runner, distinct, asked), strict=True))
        if any(answer is None for answer in answers.values()):
            self._warn("finite", "the model's probabilities are not finite; a wider dtype such as float32 may help")
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

        Tokens are drawn from the model's own distribution at the temperature: what a folder's generation_config says
        about top-k, top-p or penalties is left aside. A reply's random numbers depend on the seed, its chat, and how
        many replies to the same chat came before it in the call.

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
            WorldModelError: If memory runs out.
        """
        if samples < 1 or max_tokens < 1 or not 0 <= temperature < np.inf:
            raise ConfigurationError(
                f"samples={samples} and max_tokens={max_tokens} are at least 1, and temperature={temperature} is a "
                "finite number from 0 on"
            )
        if schema is not None and not self._ends:
            raise ConfigurationError("the tokenizer has no token that ends a reply, so that no schema can be enforced")
        prompts = self._prompts(conversations, 1)
        sampling = Sampling(
            samples=samples if temperature else 1,
            max_tokens=max_tokens,
            context=self.context,
            ends=frozenset(self._ends),
            temperature=temperature,
            seed=seed,
            index=None if schema is None else self._constraints.compile(schema),
        )
        known = [prompt for prompt in prompts if prompt is not None]
        asked = known if temperature else list(dict.fromkeys(known))
        with self._computing():
            replies = sample(self._runner, asked, sampling)
        if not temperature:  # every reply to a chat is the same one
            same = dict(zip(asked, replies, strict=True))
            replies = [same[prompt] * samples for prompt in known]
        found = iter(replies)
        return [
            [None] * samples if prompt is None else [self._generation(prompt, reply) for reply in next(found)]
            for prompt in prompts
        ]

    def count_tokens(self, conversation: Conversation) -> int:
        """Return the length of a chat as the model reads it, up to where its reply begins, in tokens."""
        self._check_open()
        return self._chat.count(conversation)

    def close(self) -> None:
        """Free the model's memory; the backend answers nothing afterwards."""
        self._closed = True
        self._runner.forget()
        self._runner.model = self.model = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _prompts(self, conversations: Sequence[Conversation], room: int) -> list[Tokens | None]:
        self._check_open()
        return [self._prompt(conversation, room) for conversation in conversations]

    def _prompt(self, conversation: Conversation, room: int) -> Tokens | None:
        try:
            tokens = self._chat.encode(conversation)
            if not tokens:
                raise ValueError("it is read as nothing")
        except Exception as error:
            self._warn(
                "template", f"a chat does not fit the chat template of {self.name}, so that it has no answer: {error}"
            )
            return None
        if len(tokens) + room > self.context:
            self._warn(
                "context",
                f"a chat of {len(tokens)} tokens is longer than the context of {self.name}, {self.context} tokens, so "
                "that it has no answer",
            )
            return None
        return tokens

    def _generation(self, prompt: Tokens, reply: list[int]) -> Generation:
        complete = reply[-1] in self._ends
        return Generation(
            text=self._chat.decode(reply[:-1] if complete else reply),
            prompt_tokens=len(prompt),
            completion_tokens=len(reply),
            complete=complete,
        )

    @contextmanager
    def _computing(self) -> Iterator[None]:
        try:
            with torch.inference_mode():
                yield
        except torch.OutOfMemoryError as error:
            self._runner.forget()
            raise WorldModelError(
                f"{self.name} ran out of memory on {self.device} with batch_size={self._runner.batch_size} and "
                f"max_batch_tokens={self._runner.max_batch_tokens}; make them smaller: {error}"
            ) from error

    def _check_open(self) -> None:
        if self._closed:
            raise WorldModelError(f"the language model {self.name} is closed; make a new backend")

    def _warn(self, kind: str, message: str) -> None:
        """Say something once."""
        if kind not in self._warned:
            self._warned.add(kind)
            _LOG.warning(message)


def _context(model: Any) -> int:
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return int(longest) if longest else 2**31


def _ends(model: Any, tokenizer: Any) -> list[int]:
    """All tokens that end a reply: those of the generation config, and the tokenizer's own."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    listed = ends if isinstance(ends, list) else [ends]
    return [int(end) for end in dict.fromkeys([*listed, tokenizer.eos_token_id]) if end is not None]


def _first_end(tokenizer: Any, ends: list[int]) -> int:
    return int(tokenizer.eos_token_id) if tokenizer.eos_token_id is not None else (ends[0] if ends else 0)
