"""GRPO of language-model agents by TRL, on rewards that a world model predicts and a few executions correct.

- ``ResearchGRPOTrainer`` - TRL's ``GRPOTrainer`` playing ``wmrl/Research-v0``.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from wmrl_envs.agents._chat import MIN_FEEDBACK_TOKENS, ChatTokens
from wmrl_envs.agents._rollouts import Rollout, play
from wmrl_envs.agents._run_folder import RunFolder
from wmrl_envs.agents._stage import SharedStage
from wmrl_envs.agents._trl_settings import (
    check_args,
    described,
    make_env,
    placeholder_prompts,
    reply_tokens,
    token_budget,
)
from wmrl_envs.agents.language_model import SYSTEM
from wmrl_envs.errors import CheckpointError, ConfigurationError, MissingExtraError
from wmrl_envs.files import write_json

try:
    import torch
    from transformers import AutoTokenizer, PreTrainedTokenizerBase
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer
except ImportError as error:
    raise MissingExtraError(
        f"training a language model needs torch, transformers and trl ({error}): pip install 'wmrl-envs[llm]'"
    ) from error

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import BitsAndBytesConfig, PreTrainedModel, TrainerCallback

    from wmrl_envs.research.configuration import TaskLike
    from wmrl_envs.research.grading import Grader
    from wmrl_envs.world_models.protocol import WorldModel

__all__ = ["STATE_FILE", "ResearchGRPOTrainer"]

STATE_FILE = "wmrl_state.json"
"""In each checkpoint: environment, correction, ledger and world model."""


class ResearchGRPOTrainer(GRPOTrainer):
    """TRL's ``GRPOTrainer`` (Shao et al. 2024, arXiv 2402.03300) on episodes of ``wmrl/Research-v0``.

    A generation batch is ``generation_batch_size / num_generations`` groups, each on one task that the *environment*
    draws by its seed; there is no dataset of prompts. Every rollout is an episode of ``max_turns`` turns: the prompt is
    the task, and its completion is reply, feedback, reply, ... as one growing sequence of tokens, in which the feedback
    is masked out of the loss. The advantages are those of the reward scheme (arXiv 2608.12564; rectified by default)
    from the real and the calibrated stream, and the same for all turns; TRL's own are thrown away. A rollout without a
    reward (a failed prediction or execution) has advantage 0 and no token in the loss.

    Replies are sampled by the model that is trained (adapters included), or by vLLM with ``use_vllm``. An episode whose
    ``max_completion_length`` (or the model's context) is used up stays in its batch with empty replies, which add
    nothing to its score.

    Every checkpoint holds the correction, its ledger, the world model and the episodes' random state in
    ``wmrl_state.json``; ``train(resume_from_checkpoint=...)`` goes on from them, exactly so where a checkpoint falls
    between two generations. Rollouts of which a part was still to be trained on (``num_iterations`` or
    ``steps_per_generation`` above the accumulation steps) are not saved: new ones are played in their place.

    An anchor group's rectified advantages are up to ``1 / anchor_fraction`` times as large as others. A gradient that
    ``max_grad_norm`` cuts is cut most where they are, which brings back some of the world model's bias: where the log
    shows ``grad_norm`` above it, raise it, or let each optimiser step take a whole generation batch.

    With several processes (``accelerate launch``) the environment, the world model and the correction live in the
    first.

    Example:
        >>> from trl import GRPOConfig
        >>> from wmrl_envs.agents import ResearchGRPOTrainer
        >>> args = GRPOConfig("run", max_steps=100, num_generations=8, per_device_train_batch_size=32)
        >>> trainer = ResearchGRPOTrainer("Qwen/Qwen3-4B", "titanic", args=args)  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
    """

    _tag_names = ["trl", "grpo", "wmrl"]

    def __init__(
        self,
        model: str | Path | PreTrainedModel,
        tasks: TaskLike | Sequence[TaskLike] = "titanic",
        *,
        args: GRPOConfig,
        world_model: str | WorldModel = "learned",
        sandbox: str | Grader = "process",
        anchor_fraction: float = 0.1,
        scheme: str = "rectified",
        max_turns: int = 4,
        max_reply_tokens: int | None = None,
        max_feedback_tokens: int = 512,
        system: str | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        run_folder: str | Path | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        peft_config: PeftConfig | None = None,
        quantization_config: BitsAndBytesConfig | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
    ) -> None:
        """Build the environment and the trainer; nothing is executed yet.

        Args:
            model: Folder or hub name of a chat model, or the model itself.
            tasks: Tasks that groups are drawn from, uniformly; see ``ResearchEnv``.
            args: TRL's configuration. ``max_steps`` is needed; ``num_generations`` is the group's size;
                ``max_completion_length`` holds all replies and the feedback of an episode; ``scale_rewards`` is
                ``"group"`` (each stream is standardised) or ``"none"`` (centred); ``seed`` also seeds the episodes and
                the draws of the anchors.
            world_model: Predicts the outcomes: a name, or an object; see ``WorldModelWrapper``.
            sandbox: Executes the anchors: a name, or an object; see ``ResearchEnv``.
            anchor_fraction: Share of groups that are executed; see ``CorrectionWrapper``.
            scheme: Reward scheme; see ``wmrl_envs.correction.SCHEMES``.
            max_turns: Attempts per episode.
            max_reply_tokens: Longest reply; ``None`` is an equal share of ``max_completion_length`` for each turn.
            max_feedback_tokens: Longest feedback that the agent reads; of a longer one the middle is left out.
            system: System prompt; ``None`` is ``LanguageModelAgent``'s, and an empty text sends none.
            env_kwargs: Further arguments of ``wmrl/ResearchWMRL-v0``, such as ``world_model_kwargs``, ``isolation``,
                ``anchor_feedback``, ``ramp`` or ``limits``.
            run_folder: Where metrics and episodes are written as ``wmrl report`` reads them, one step for each
                generation batch; ``None`` writes none. It may be ``args.output_dir``.
            processing_class: The model's tokenizer; ``None`` loads it.
            peft_config: An adapter to train (LoRA); ``None`` trains all weights.
            quantization_config: How to quantise a model that is loaded by name.
            callbacks: Further callbacks of the trainer.
            optimizers: Optimiser and learning-rate schedule, ``None`` for what ``args`` says.

        Raises:
            ConfigurationError: If a setting cannot work.
        """
        model = str(model) if isinstance(model, Path) else model
        sizes = check_args(args, scheme, anchor_fraction)
        if max_feedback_tokens < MIN_FEEDBACK_TOKENS:
            raise ConfigurationError(
                f"max_feedback_tokens must be at least {MIN_FEEDBACK_TOKENS}, got {max_feedback_tokens}"
            )
        reply = reply_tokens(args, max_turns, max_reply_tokens)
        tokenizer = _tokenizer(model) if processing_class is None else processing_class
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            raise ConfigurationError(
                f"processing_class must be a tokenizer, got {type(tokenizer).__name__}; of a processor of images and "
                "text pass processor.tokenizer"
            )
        env = None
        if args.process_index == 0:
            env = make_env(
                sizes,
                env_kwargs or {},
                seed=args.seed,
                tasks=tasks,
                world_model=world_model,
                sandbox=sandbox,
                anchor_fraction=anchor_fraction,
                scheme=scheme,
                max_turns=max_turns,
            )
        self._stage = SharedStage(
            env, turns=max_turns, seed=args.seed, processes=args.world_size, rank=args.process_index
        )
        self._advantages: list[float] = []
        self._run_folder: RunFolder | None = None
        try:
            if env is not None and run_folder is not None:
                own = {"task": tasks, "reward": scheme, "anchor_fraction": anchor_fraction, "turns": max_turns}
                parts = {"agent": model, "world_model": world_model, "sandbox": sandbox}
                self._run_folder = RunFolder(Path(run_folder), described(args, sizes, own | parts, env_kwargs or {}))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
                super().__init__(
                    model=model,
                    reward_funcs=corrected_return,
                    args=args,
                    train_dataset=placeholder_prompts(sizes),
                    processing_class=tokenizer,
                    callbacks=callbacks,
                    optimizers=optimizers,
                    quantization_config=quantization_config,
                    peft_config=peft_config,
                    rollout_func=self._play,
                )
            self._chat = ChatTokens(
                tokenizer,
                eos_token_ids=self.eos_token_ids,
                system=SYSTEM if system is None else system,
                feedback_tokens=max_feedback_tokens,
                template_kwargs=cast("dict[str, Any]", self.chat_template_kwargs),
            )
            self._budget = token_budget(args, self.model, reply)
            if env is not None:
                self._check_prompts()
        except BaseException:
            self._stage.close()
            raise

    @property
    def env(self) -> Any:
        """The wrapped environment, in the first process: its ``ledger``, ``metrics()`` and ``calibration()``."""
        return self._stage.env

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train; the arguments are those of TRL's trainer. A run folder gets its summary at the end.

        Raises:
            CheckpointError: If a new run finds its run folder taken, or a checkpoint cannot be read.
        """
        if self._run_folder is not None and not resume_from_checkpoint:
            self._run_folder.begin()
        result = super().train(resume_from_checkpoint, *args, **kwargs)
        if self._run_folder is not None:
            self._run_folder.finish(self._stage)
        return result

    def close(self) -> None:
        """Close the environment with its sandbox."""
        self._stage.close()

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Refuse: an evaluation has to be executed.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(
            "this trainer does not evaluate, since the world model would judge: execute what a checkpoint writes by "
            "wmrl evaluate --agent"
        )

    def _check_prompts(self) -> None:
        for task in self.env.unwrapped.tasks:
            length = len(self._chat.opening(task.prompt()))
            if self._budget.room(length) < self._budget.least:
                raise ConfigurationError(
                    f"task {task.id!r} takes {length} tokens, and the model reads {self._budget.context}: no reply of "
                    f"{self._budget.least} tokens fits. Take a model of a longer context, or a shorter description"
                )

    def _play(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Play one generation batch; TRL's rollout hook."""
        self._stage.expect(len(prompts), lambda: min(1.0, self.state.global_step / self.state.max_steps))
        rollouts = play(self._stage, self._chat, self._sample, self._budget)
        self._advantages, graded, returns = self._stage.judge()
        if self._run_folder is not None:
            self._run_folder.note(self._stage)
        self._log_rollouts(rollouts)
        # The list is the trainer's own: its table of completions shows what was really read.
        prompts[:] = self._tokenizer.batch_decode([rollout.prompt for rollout in rollouts])
        known = rollouts[0].logprobs is not None
        return {
            "prompt_ids": [rollout.prompt for rollout in rollouts],
            "completion_ids": [rollout.completion for rollout in rollouts],
            "logprobs": [rollout.logprobs for rollout in rollouts] if known else None,
            "env_mask": [
                rollout.mask if use else [0] * len(rollout.mask) for rollout, use in zip(rollouts, graded, strict=True)
            ],
            "corrected_return": [value if use else None for value, use in zip(returns, graded, strict=True)],
        }

    def _sample(self, chats: Sequence[Sequence[int]], limit: int) -> tuple[list[list[int]], list[list[float]] | None]:
        with self._longest(limit):
            ids, logprobs = self._generate_single_turn([list(chat) for chat in chats], None, {}, 1)  # type: ignore[no-untyped-call]
        return ids, logprobs

    @contextmanager
    def _longest(self, limit: int) -> Iterator[None]:
        """Limit what is sampled at a time; the trainer's own limit is the whole episode's."""
        if self.use_vllm:
            before = self.vllm_generation.max_completion_length
            self.vllm_generation.max_completion_length = limit
            try:
                yield
            finally:
                self.vllm_generation.max_completion_length = before
            return
        before = self.generation_config.max_new_tokens
        self.generation_config.max_new_tokens = self.generation_kwargs["max_new_tokens"] = limit
        try:
            yield
        finally:
            self.generation_config.max_new_tokens = self.generation_kwargs["max_new_tokens"] = before

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Put the reward scheme's advantages in the place of the trainer's."""
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        output["advantages"] = torch.tensor(
            self._advantages, dtype=output["advantages"].dtype, device=output["advantages"].device
        )
        # As many as the log keeps, so that these push the trainer's own out of it.
        self._logs["advantages"].extend(  # type: ignore[attr-defined]  # a deque
            self.accelerator.gather(output["advantages"]).tolist()
        )
        return output

    def _log_rollouts(self, rollouts: Sequence[Rollout]) -> None:
        log = self._metrics["train"]
        log["wmrl/replies"].append(sum(rollout.replies for rollout in rollouts) / len(rollouts))
        log["wmrl/out_of_tokens"].append(sum(not rollout.speaking for rollout in rollouts) / len(rollouts))
        for name, value in self._stage.metrics.items():
            log[f"wmrl/{name}"].append(value)
        for name, value in self._stage.totals.items():
            log[f"wmrl/{name}"] = [value]

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.env is not None:  # before the rest, so that a checkpoint which looks whole has it
            folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
            own = {} if self._run_folder is None else {"run_folder": self._run_folder.state_dict()}
            write_json(folder / STATE_FILE, self._stage.state_dict() | own)
        super()._save_checkpoint(model, trial)  # type: ignore[no-untyped-call]

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[no-untyped-call]
        if checkpoint is None or self.env is None:
            return
        path = Path(checkpoint) / STATE_FILE
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{path} cannot be read ({error}); resume from a checkpoint of this trainer, or start a new run"
            ) from error
        self._stage.load_state_dict(state)
        if self._run_folder is not None:
            self._run_folder.begin(state.get("run_folder", {}))


def corrected_return(completions: list[Any], corrected_return: list[float | None], **_: Any) -> list[float | None]:
    """Return what the episodes are worth by the reward scheme, for the trainer's log; its advantages are not used."""
    return corrected_return


def _tokenizer(model: str | PreTrainedModel) -> PreTrainedTokenizerBase:
    # Only text is read: of models that also see, a processor would want messages in parts.
    name = model if isinstance(model, str) else model.config._name_or_path
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        name, padding_side="left", truncation_side="left"
    )
    return tokenizer
