"""Fine-tunes a causal language model on recorded executions, so that it predicts how solutions end.

The model learns, with TRL's SFTTrainer, to answer the very prompts that
`wmrl_envs.world_models.language_model.LanguageWorldModel` asks by what execution returned. Tasks that are held out tell
what it learned about code rather than about the tasks. The run's folder holds:

- ``config.json``: the settings and the identity of the prompt templates;
- ``checkpoints/``: the trainer's own, until the run is finished;
- ``model/``: the whole model (LoRA merged), its tokenizer and chat template, for ``transformers:FOLDER/model``;
- ``summary.json``: what was trained on, and the loss on held-out tasks before and after.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmrl_envs.errors import CheckpointError, ConfigurationError, MissingExtraError, WMRLError
from wmrl_envs.files import check_folder, write_json
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import ResearchTask, load_task
from wmrl_envs.world_models.finetuning_config import FinetuneConfig
from wmrl_envs.world_models.prompting import PromptTemplates
from wmrl_envs.world_models.training_pairs import Example, draw_pairs, tokenized

if TYPE_CHECKING:
    from wmrl_envs.world_models.backends._chat import ChatTokenizer
    from wmrl_envs.world_models.finetuning_trainer import Examples

__all__ = ["FinetuneConfig", "finetune"]

_LOG = logging.getLogger(__name__)
_FORMAT = 1
_HELD_OUT_SEED = 1_000_003
"""Added to the seed for held-out examples, so that nobody takes them for the training draw of another split."""


def finetune(
    config: FinetuneConfig,
    out: Path,
    *,
    resume: bool = False,
    recordings: ReplaySandbox | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Fine-tune a language model on recorded executions, and leave it in a folder of its own.

    Killed at any moment, the run is taken up at its last checkpoint by ``resume`` and ends with the same weights.

    Args:
        config: The settings.
        out: Folder of the run. It must hold no run unless ``resume`` is set.
        resume: Go on from the last checkpoint, or from the beginning where there is none; a finished run stays as it
            is.
        recordings: Recorded executions; None means those in the tasks' folders.
        progress: Called with (optimiser steps done, all).

    Returns:
        The summary, as in summary.json: settings, examples by task, steps, losses on held-out tasks by task in nats per
        token of an answer, before and after, and the model's folder.

    Raises:
        ConfigurationError: If a task is trained on and held out, or the base is no model.
        UnknownTaskError: If a task does not exist.
        RecordingError: If nothing is recorded of a task; the message says how to record it.
        CheckpointError: If the folder holds a run and ``resume`` is not set, or a run of other settings.
        MissingExtraError: If what training needs is not installed.
    """
    check_folder(out)
    tasks, held_out = _tasks(config)
    templates = PromptTemplates.load(config.templates)
    fresh = _claim(out, {"format": _FORMAT, **config.to_dict(), "templates_identity": templates.identity}, resume)
    if (out / "summary.json").exists():
        return dict(json.loads((out / "summary.json").read_text(encoding="utf-8")))
    try:
        return _run(config, out, tasks, held_out, templates, recordings, progress)
    except WMRLError:
        if fresh:
            _release(out)
        raise


def _run(
    config: FinetuneConfig,
    out: Path,
    tasks: list[ResearchTask],
    held_out: list[ResearchTask],
    templates: PromptTemplates,
    recordings: ReplaySandbox | None,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Any]:
    """Train, and write the model and the summary."""
    try:
        from wmrl_envs.world_models.backends._chat import ChatTokenizer
        from wmrl_envs.world_models.finetuning_trainer import Finetuner
    except ImportError as error:
        raise MissingExtraError(
            f"fine-tuning needs torch, transformers, trl and peft ({error}): pip install 'wmrl-envs[llm]'"
        ) from error
    start = time.perf_counter()
    replay = ReplaySandbox() if recordings is None else recordings
    tuner = Finetuner(config, out / "checkpoints")
    chats = ChatTokenizer(tuner.tokenizer, {})
    train = _examples(config, tasks, replay, chats, templates)
    held = _examples(config, held_out, replay, chats, templates, held_out=True)
    tuner.train(train, held, progress)
    _save_whole(out / "model", tuner.save)
    summary = {
        "config": config.to_dict(),
        "templates_identity": templates.identity,
        "examples": {task: len(examples) for task, examples in train.items()},
        "held_out_examples": {task: len(examples) for task, examples in held.items()},
        **tuner.report(),
        "seconds": round(time.perf_counter() - start, 1),
        "model": str(out / "model"),
    }
    write_json(out / "summary.json", summary)
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    return summary


def _tasks(config: FinetuneConfig) -> tuple[list[ResearchTask], list[ResearchTask]]:
    tasks, held_out = ([load_task(name) for name in names] for names in (config.tasks, config.held_out))
    names = [task.id for task in (*tasks, *held_out)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(
            f"each task is either trained on or held out, and named once; {', '.join(twice)} is named again"
        )
    return tasks, held_out


def _release(out: Path) -> None:
    """Give back the folder of a run that could not begin, such as with a base that is not there."""
    checkpoints = out / "checkpoints"
    if not any(checkpoints.glob("checkpoint-*")) and not (out / "model").exists():
        shutil.rmtree(checkpoints, ignore_errors=True)
        (out / "config.json").unlink(missing_ok=True)


def _claim(out: Path, settings: dict[str, Any], resume: bool) -> bool:
    """Write the settings into the run's folder, or check that they are those of the run in it.

    Returns:
        Whether the run is a new one.
    """
    path = out / "config.json"
    if not path.exists():
        if (out / "checkpoints").exists() or (out / "model").exists():
            raise CheckpointError(f"{out} holds checkpoints or a model, but no config.json; name another folder")
        write_json(path, settings)
        return True
    if not resume:
        raise CheckpointError(f"{out} already holds a run; go on with it by resume, or name another folder")
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        different = [name for name in {**saved, **settings} if saved.get(name) != settings.get(name)]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if different:
        changes = ", ".join(f"{name} was {saved.get(name)!r}, now {settings.get(name)!r}" for name in different)
        raise CheckpointError(f"{out} was made with other settings: {changes}; start a run of its own for these")
    return False


def _examples(
    config: FinetuneConfig,
    tasks: list[ResearchTask],
    recordings: ReplaySandbox,
    chats: ChatTokenizer,
    templates: PromptTemplates,
    *,
    held_out: bool = False,
) -> Examples:
    count = config.held_out_examples if held_out else config.examples_per_task
    seed = config.seed + (_HELD_OUT_SEED if held_out else 0)
    found: dict[str, list[Example]] = {}
    for task in tasks:
        pairs = draw_pairs(task, recordings, count=count, draw=config.draw, seed=seed)
        kept, too_long = tokenized(pairs, chats, templates, answer=config.answer, max_length=config.max_length)
        if too_long:
            _LOG.warning(
                "%d of %d examples of task %r are longer than max_length=%d tokens and were left out",
                *(too_long, too_long + len(kept), task.id, config.max_length),
            )
        if not kept:
            raise ConfigurationError(
                f"no example of task {task.id!r} fits into max_length={config.max_length} tokens; raise it, or take "
                "shorter templates"
            )
        found[task.id] = kept
    return found


def _save_whole(folder: Path, save: Callable[[Path], None]) -> None:
    """Write a folder beside its place and move it there, so that nobody ever loads half of it."""
    for left in folder.parent.glob(f".{folder.name}-*"):
        shutil.rmtree(left, ignore_errors=True)
    if folder.exists():  # written before a kill that came before the summary
        shutil.rmtree(folder)
    beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        save(beside)
        beside.chmod(0o755)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
