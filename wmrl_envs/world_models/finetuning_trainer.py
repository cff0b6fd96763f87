"""The trainer behind `wmrl_envs.world_models.finetuning`: TRL's SFTTrainer, its checkpoints, and the merged model."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import torch
import transformers
from datasets import Dataset
from datasets.utils import logging as datasets_logging
from peft import LoraConfig, PeftModel
from torch.nn.functional import cross_entropy
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.world_models.backends._loading import default_device, load, quietly
from wmrl_envs.world_models.finetuning_config import FinetuneConfig
from wmrl_envs.world_models.training_pairs import Example

__all__ = ["Examples", "Finetuner"]

Examples: TypeAlias = dict[str, list[Example]]
"""By task."""

_COMPLETE = "complete"
"""Name of the file that says that a checkpoint was written to its end."""
_WARM_UP = 0.05
IGNORED = -100
"""Label of a token that is no part of an answer; cross-entropy leaves it out by itself."""


class Finetuner:
    """A language model in training.

    Args:
        config: The settings.
        checkpoints: Folder of the checkpoints. They are the trainer's own, read back by torch's restricted loader.

    Raises:
        ConfigurationError: If the base is no model.
        WorldModelError: If it cannot be loaded.
    """

    def __init__(self, config: FinetuneConfig, checkpoints: Path) -> None:
        self.config, self.checkpoints = config, checkpoints
        device = torch.device(default_device())
        half = config.dtype == "bfloat16"
        # All weights are kept in float32 where all are trained: most updates are smaller than bfloat16 resolves.
        dtype = torch.bfloat16 if half and config.lora_rank is not None else torch.float32
        _, self.model, self.tokenizer = load(config.base, None, device, dtype)
        self._dtype = dtype
        self._autocast = half and config.lora_rank is None
        self._trainer: SFTTrainer | None = None

    def train(self, train: Examples, held_out: Examples, progress: Callable[[int, int], None] | None) -> None:
        """Train to the end, from the last complete checkpoint where there is one.

        Args:
            train: Examples to learn from.
            held_out: Examples whose loss is measured before and after.
            progress: Called with (optimiser steps done, all).
        """
        start = last_checkpoint(self.checkpoints)
        if self.config.lora_rank is None:
            self._release()
        with _quiet():
            trainer = self._trainer = _AnswerTrainer(
                model=self.model,
                args=self._arguments(measure_first=bool(held_out) and start is None),
                train_dataset=Dataset.from_list([example for examples in train.values() for example in examples]),
                eval_dataset={task: Dataset.from_list(examples) for task, examples in held_out.items()} or None,
                processing_class=self.tokenizer,
                peft_config=self._lora(),
                callbacks=[_Progress(progress, self.checkpoints)],
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train(resume_from_checkpoint=None if start is None else str(start))
            self.model = trainer.accelerator.unwrap_model(trainer.model)
            if held_out:
                trainer.evaluate()

    def report(self) -> dict[str, Any]:
        """Return the steps taken, the losses on the way, and those on held-out tasks before and after, by task."""
        assert self._trainer is not None
        state = self._trainer.state
        measured = [row for row in state.log_history if any(name.startswith("eval_") for name in row)]
        return {
            "steps": state.global_step,
            "loss": [[row["step"], row["loss"]] for row in state.log_history if "loss" in row],
            "held_out_loss_before": _losses(row for row in measured if row["step"] == 0),
            "held_out_loss_after": _losses(row for row in measured if row["step"] == state.global_step),
        }

    def save(self, folder: Path) -> None:
        """Write the whole model, its tokenizer and its chat template, in the type that its weights were kept in."""
        model = self.model
        if isinstance(model, PeftModel):
            # Merged in float32, since the updates were trained so.
            model = model.float().merge_and_unload(progressbar=False)
        with quietly():
            model.to(self._dtype).save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        for path in folder.iterdir():  # safetensors are written for their owner alone
            path.chmod(0o644)

    def _release(self) -> None:
        """Let the weights be trained that are to be."""
        for module in [self.model] if self.config.last_layers is None else self._last_layers():
            module.requires_grad_(True)

    def _lora(self) -> LoraConfig | None:
        rank = self.config.lora_rank
        if rank is None:
            return None
        modules: str | list[str] = "all-linear"
        if self.config.last_layers is not None:
            trained = {linear for layer in self._last_layers() for linear in layer.modules()}
            named = self.model.named_modules()
            modules = [name for name, part in named if part in trained and isinstance(part, torch.nn.Linear)]
        return LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=modules, task_type="CAUSAL_LM")

    def _last_layers(self) -> list[torch.nn.Module]:
        layers = getattr(self.model.get_decoder(), "layers", None)
        if layers is None:
            raise ConfigurationError(
                f"the layers of a {type(self.model).__name__} are not known to be in order; leave last_layers out"
            )
        last = self.config.last_layers or 0
        if last > len(layers):
            raise ConfigurationError(
                f"last_layers must be at most {len(layers)}, the layers that there are, got {last}"
            )
        return list(layers[len(layers) - last :])

    def _arguments(self, *, measure_first: bool) -> SFTConfig:
        config = self.config
        return SFTConfig(
            output_dir=str(self.checkpoints),
            per_device_train_batch_size=config.micro_batch_size,
            per_device_eval_batch_size=config.micro_batch_size,
            gradient_accumulation_steps=config.batch_size // config.micro_batch_size,
            learning_rate=config.learning_rate,
            lr_scheduler_type="linear",
            warmup_steps=_WARM_UP,
            weight_decay=0.0,
            num_train_epochs=config.epochs,
            max_steps=config.max_steps or -1,
            completion_only_loss=True,
            max_length=None,
            eval_strategy="no",
            eval_on_start=measure_first,
            logging_steps=5,
            save_strategy="steps",
            save_steps=config.checkpoint_every,
            save_total_limit=2,  # the one before the last stays until the last is complete
            gradient_checkpointing=config.gradient_checkpointing,
            bf16=self._autocast,
            fp16=False,
            use_cpu=default_device() == "cpu",
            dataloader_pin_memory=False,
            seed=config.seed,
            report_to=[],
            disable_tqdm=True,
        )


class _AnswerTrainer(SFTTrainer):
    """Asks for logits where answers stand, and not for the hundreds of tokens of each prompt.

    With a vocabulary of tens of thousands these would cost more than the layers of a small model.
    """

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        labels = inputs["labels"]
        first = int((labels != IGNORED).any(dim=0).nonzero()[0])  # padding is to the right
        outputs = model(
            input_ids=inputs["input_ids"],
            attention_mask=inputs.get("attention_mask"),
            use_cache=False,
            logits_to_keep=labels.shape[1] - first + 1,  # each token is foretold by the one before it
        )
        targets = labels[:, first:].flatten()
        total = cross_entropy(outputs.logits[:, :-1].flatten(0, 1).float(), targets, reduction="sum")
        loss = total / ((targets != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch)
        return (loss, outputs) if return_outputs else loss


class _Progress(TrainerCallback):
    """Tells how far training has come, and marks each checkpoint when it is complete."""

    def __init__(self, told: Callable[[int, int], None] | None, checkpoints: Path) -> None:
        self._told, self._checkpoints = told, checkpoints

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._told is not None:
            self._told(state.global_step, state.max_steps)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        (self._checkpoints / f"checkpoint-{state.global_step}" / _COMPLETE).touch()


def last_checkpoint(folder: Path) -> Path | None:
    """Return the last complete checkpoint, None where there is none; those that a kill left incomplete are removed."""
    complete = []
    for path in folder.glob("checkpoint-*"):
        if (path / _COMPLETE).exists():
            complete.append(path)
        else:
            shutil.rmtree(path)
    return max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def _losses(rows: Any) -> dict[str, float]:
    return {
        name.removeprefix("eval_").removesuffix("_loss"): float(value)
        for row in rows
        for name, value in row.items()
        if name.startswith("eval_") and name.endswith("_loss")
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep progress bars of the libraries off, and their advice on settings that are as we want them."""
    shown = datasets_logging.is_progress_bar_enabled()
    verbosity = transformers.logging.get_verbosity()
    datasets_logging.disable_progress_bar()
    transformers.logging.set_verbosity(logging.ERROR)
    try:
        with quietly(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        if shown:
            datasets_logging.enable_progress_bar()
