"""Vision-language models that write their actions as tokens, as RT-2 (arXiv 2307.15818) and OpenVLA (2406.09246) do.

- ``ActionTokenPolicy`` - any such model that transformers loads, for evaluation and for policy gradients.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import CheckpointError, ConfigurationError, MissingExtraError
from wmrl_envs.robotics.action_bins import STATISTICS_FILE, ActionBins, ActionStatistics
from wmrl_envs.robotics.vla import Observations, check_actions, check_generator, check_observations

try:
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor, GenerationConfig, LogitsProcessor
except ImportError as error:
    raise MissingExtraError(
        f"a model that writes actions as tokens needs torch and transformers ({error}): "
        "pip install 'wmrl-envs[llm,robotics]'"
    ) from error

__all__ = ["PROMPT", "ActionTokenPolicy"]

PROMPT = "In: What action should the robot take to {instruction}?\nOut:"
"""How OpenVLA is asked; a model must be asked as it was in training."""


class ActionTokenPolicy:
    """Turns a vision-language model into a policy of d-dimensional actions.

    The model is shown the images and the instruction (not the state) and writes one token for each number of the
    action, most probably out of the ``bins`` last tokens of its vocabulary: bin b is token ``vocabulary - 1 - b``. Only
    these tokens are ever drawn, so that every reply is an action, and ``log_prob`` is among them alone, too.

    Example:
        >>> policy = ActionTokenPolicy.load(Path("checkpoint"))  # doctest: +SKIP
        >>> actions = policy.act(observations)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        statistics: ActionStatistics,
        *,
        chunk: int | None = None,
        prompt: str = PROMPT,
        bins: int = 256,
        vocabulary: int | None = None,
        temperature: float = 1.0,
    ) -> None:
        """Make a policy of a model that is loaded already.

        Args:
            model: As ``AutoModelForImageTextToText`` gives it; it is put into evaluation mode.
            processor: Its processor.
            statistics: The range of the actions it was trained on.
            chunk: How many actions it writes at once, k, for actions [k, d]; ``None`` is one, for actions [d].
            prompt: What it is asked; ``{instruction}`` stands for the instruction, in lower case.
            bins: How many tokens stand for numbers.
            vocabulary: One more than the token of bin 0; ``None`` is the tokenizer's size without added tokens, as
                OpenVLA has it.
            temperature: By which logits are divided, in ``act`` and in ``log_prob``.

        Raises:
            ConfigurationError: If one of these is out of range, or tokens of actions are special ones.
        """
        if chunk is not None and chunk < 1:
            raise ConfigurationError(f"chunk must be at least 1 or None, got {chunk}")
        if not 0.0 < temperature < float("inf"):
            raise ConfigurationError(f"temperature must be above 0, got {temperature}; deterministic=True takes none")
        if "{instruction}" not in prompt:
            raise ConfigurationError(f"the prompt {prompt!r} has no {{instruction}}; the model would not know its task")
        self.model = model.eval()
        self.processor = processor
        self.statistics = statistics
        self.bins = ActionBins(bins)
        self.action_shape = (statistics.size,) if chunk is None else (chunk, statistics.size)
        """[d] or [k, d]."""
        self._prompt = prompt
        self._temperature = temperature
        self._tokens = self._action_tokens(vocabulary)
        self._length = int(np.prod(self.action_shape))
        tokenizer = processor.tokenizer
        pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        # With a checkpoint's own settings, such as a repetition penalty, act would not draw what log_prob says.
        settings: Any = GenerationConfig
        model.generation_config = settings(do_sample=False, max_new_tokens=self._length, pad_token_id=pad)

    @classmethod
    def load(
        cls, folder: Path, *, dataset: str | None = None, device: str | None = None, **kwargs: Any
    ) -> ActionTokenPolicy:
        """Load a checkpoint of transformers with ``dataset_statistics.json`` beside it; no code in it is run.

        Args:
            folder: The checkpoint's.
            dataset: Whose statistics to take, where there are several.
            device: Such as ``"cuda"`` (bfloat16) or ``"cpu"`` (float32); ``None`` takes a GPU if there is one.
            kwargs: Further arguments of the constructor.

        Raises:
            CheckpointError: If transformers cannot load it.
            ConfigurationError: If there is no such folder, the statistics are missing, or an argument does not fit.
            MissingExtraError: If its processor needs a package that is not installed.
        """
        if not folder.is_dir():
            raise ConfigurationError(
                f"there is no folder {folder}; a checkpoint is a folder with config.json, weights and {STATISTICS_FILE}"
            )
        statistics = ActionStatistics.load(folder, dataset)
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        dtype = torch.bfloat16 if place.type == "cuda" else torch.float32
        processors: Any = AutoProcessor
        try:
            processor = processors.from_pretrained(folder)
            model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype)
        except ImportError as error:
            raise MissingExtraError(f"the processor in {folder} needs a package that is missing: {error}") from error
        except Exception as error:
            raise CheckpointError(f"transformers cannot load {folder}: {error}") from error
        return cls(model.to(place), processor, statistics, **kwargs)

    def save(self, folder: Path) -> None:
        """Write model, processor and statistics, as ``load`` reads them."""
        self.model.save_pretrained(folder)
        self.processor.save_pretrained(folder)
        self.statistics.save(folder)

    def act(
        self, observations: Observations, *, deterministic: bool = False, generator: np.random.Generator | None = None
    ) -> NDArray[np.float32]:
        """Write the actions of all slots, in one batch; see ``VLAPolicy.act``.

        Returns:
            float32 [n, *action_shape]: each of them the number that one bin stands for, in the environment's units.
        """
        count = check_observations(observations)
        shape = (count, self._length, self.bins.count)
        noise = np.zeros(shape) if deterministic else check_generator(generator).gumbel(size=shape)
        inputs = self._inputs(observations, count)
        start = inputs["input_ids"].shape[1]
        chosen = _ActionTokens(self._tokens, torch.as_tensor(noise, dtype=torch.float32), self._temperature, start)
        with torch.no_grad():
            written = self.model.generate(**inputs, logits_processor=[chosen])[:, start:]
        bins = self._tokens[0].item() - written.cpu().numpy()
        values = self.bins.decode(bins.reshape(count, *self.action_shape))
        return np.asarray(self.statistics.unnormalise(values), dtype=np.float32)

    def reset(self, slots: Iterable[int] | None = None) -> None:
        """Do nothing: each action depends on the observation alone."""

    def log_prob(self, observations: Observations, actions: NDArray[np.float32] | torch.Tensor) -> torch.Tensor:
        """Return the log-probability with which ``act`` draws actions; see ``TrainableVLAPolicy.log_prob``.

        It is that of their bins, so other actions of the same bins have the same one.
        """
        count = check_observations(observations)
        given = check_actions(actions, (count, *self.action_shape))
        if self.statistics.constant:
            raise ConfigurationError(
                f"the dimensions {self.statistics.constant} of {self.statistics.dataset!r} are constant (q01 = q99): "
                "an action does not tell which token was drawn; give them a range, or set their mask to false"
            )
        bins = self.bins.encode(self.statistics.normalise(given)).reshape(count, self._length)
        chosen = torch.as_tensor(bins, device=self.model.device)
        inputs = self._with_reply(self._inputs(observations, count), self._tokens.to(chosen.device)[chosen])
        if "logits_to_keep" in inspect.signature(self.model.forward).parameters:
            inputs["logits_to_keep"] = self._length + 1
        logits = self.model(**inputs).logits[:, -self._length - 1 : -1]
        among = logits[..., self._tokens.to(logits.device)].float() / self._temperature
        picked = among.log_softmax(-1).gather(-1, chosen[..., None])
        return torch.sum(picked, dim=(1, 2))

    def parameters(self) -> Iterable[torch.nn.Parameter]:
        """Return the model's parameters."""
        found: Iterable[torch.nn.Parameter] = self.model.parameters()
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the model's weights by name."""
        return dict(self.model.state_dict())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take weights that ``state_dict`` returned."""
        self.model.load_state_dict(state_dict)

    def _action_tokens(self, vocabulary: int | None) -> torch.Tensor:
        """[bins] the token of each bin."""
        tokenizer = self.processor.tokenizer
        last = (tokenizer.vocab_size if vocabulary is None else vocabulary) - 1
        known = self.model.get_output_embeddings().weight.shape[0]
        if last - self.bins.count < -1 or last >= known:
            raise ConfigurationError(
                f"{self.bins.count} bins do not fit into a vocabulary of {last + 1}; the model has {known} tokens"
            )
        tokens = torch.arange(last, last - self.bins.count, -1)
        special = sorted(set(tokens.tolist()) & {*tokenizer.all_special_ids})
        if special:
            raise ConfigurationError(
                f"the tokens of actions, {last + 1 - self.bins.count} to {last}, hold special ones ("
                f"{tokenizer.convert_ids_to_tokens(special)}); give vocabulary= as in the model's training"
            )
        return tokens

    def _inputs(self, observations: Observations, count: int) -> dict[str, Any]:
        cameras = [observations[key] for key in ("image", "image2") if key in observations]
        images = [[camera[slot] for camera in cameras] for slot in range(count)]
        texts = [self._text(instruction, len(cameras)) for instruction in observations["instruction"]]
        found = self.processor(text=texts, images=images, padding=True, padding_side="left", return_tensors="pt")
        # PaliGemma's processor adds labels, which nothing here is to learn.
        return {key: value for key, value in found.to(self.model.device).items() if key != "labels"}

    def _text(self, instruction: str, cameras: int) -> str:
        prompt = self._prompt.replace("{instruction}", instruction.strip().lower())
        if not getattr(self.processor, "chat_template", None):
            return getattr(self.processor, "image_token", "") * cameras + prompt
        content: Sequence[dict[str, str]] = [{"type": "image"}] * cameras + [{"type": "text", "text": prompt}]
        conversation = [{"role": "user", "content": content}]
        return str(self.processor.apply_chat_template(conversation, add_generation_prompt=True))

    def _with_reply(self, inputs: dict[str, Any], reply: torch.Tensor) -> dict[str, Any]:
        """Append the reply [n, length] to the prompts, with what marks it as text that was written."""
        prompts = inputs["input_ids"]
        # PaliGemma marks what it wrote with 1, and Gemma 3 images with 1: as text goes on otherwise, so it does here.
        paligemma = getattr(self.model.config, "model_type", "") == "paligemma"
        longer = dict(inputs, input_ids=torch.cat([prompts, reply.to(prompts)], dim=1))
        for key, values in inputs.items():
            if key != "input_ids" and values.shape == prompts.shape:
                mark = (
                    torch.ones_like(reply) if key == "token_type_ids" and paligemma else values[:, -1:].expand_as(reply)
                )
                longer[key] = torch.cat([values, mark.to(values)], dim=1)
        return longer


class _ActionTokens(LogitsProcessor):
    """Leaves tokens of actions alone, with Gumbel noise, so that the highest of them is a draw (Gumbel 1954)."""

    def __init__(self, tokens: torch.Tensor, noise: torch.Tensor, temperature: float, start: int) -> None:
        self._tokens, self._noise, self._temperature, self._start = tokens, noise, temperature, start

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.Tensor:
        tokens = self._tokens.to(scores.device)
        noise = self._noise[:, input_ids.shape[1] - self._start].to(scores.device)
        kept = scores[:, tokens].float() / self._temperature + noise
        return torch.full_like(scores, float("-inf"), dtype=torch.float32).index_copy(1, tokens, kept)
