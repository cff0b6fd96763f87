"""The run folder of a language model's training: what ``wmrl report`` reads, besides the trainer's own checkpoints."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wmrl_envs.agents._stage import SharedStage
from wmrl_envs.calibration_history import CalibrationHistory
from wmrl_envs.errors import CheckpointError
from wmrl_envs.files import check_folder, write_json
from wmrl_envs.research.outcome import STATUSES
from wmrl_envs.run_files import MetricsFile, versions, write_calibration
from wmrl_envs.trajectories import (
    REWARDS,
    TrajectoryLog,
    choose_episodes,
    describe_rewards,
    describe_turn,
    episodes_kept,
    stream_value,
)

__all__ = ["RunFolder"]

MOST_PAIRS = 5000
_MEANS = (*REWARDS, "lambda", "alpha")


class RunFolder:
    """Writes config.json, metrics.csv, trajectories.jsonl, the calibration and its history; a step is one batch.

    Attributes:
        rows: One dict a step.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Take a folder; nothing is written before `begin`.

        Args:
            folder: The run folder, made if missing.
            config: The settings, JSON-able.

        Raises:
            ConfigurationError: If nothing can be written there.
        """
        check_folder(folder)
        self._folder, self._config = folder, dict(config)
        self._log, self._metrics = TrajectoryLog(folder), MetricsFile(folder)
        self._history = CalibrationHistory()
        self._pairs: list[list[float]] = []
        self.rows: list[dict[str, Any]] = []
        self._seconds, self._started = 0.0, time.monotonic()

    def begin(self, state: Mapping[str, Any] | None = None) -> None:
        """Begin a run here, or go on with the one that ``state_dict`` tells of.

        Raises:
            CheckpointError: If a new run finds the folder taken.
        """
        if state is None and (self._folder / "metrics.csv").exists():
            raise CheckpointError(
                f"{self._folder} already holds a run; go on with it by train(resume_from_checkpoint=...), or name "
                "another run_folder"
            )
        if state:  # empty, where the checkpoint was written without a run folder
            self.rows, self._pairs, self._seconds = list(state["rows"]), list(state["pairs"]), state["seconds"]
            self._history.load_state_dict(state["history"])
        self._started = time.monotonic()
        write_json(self._folder / "config.json", self._config)
        write_json(self._folder / "versions.json", versions("transformers", "trl", "peft", "vllm"))
        self._log.drop_after(len(self.rows))
        self._history.write(self._folder)

    def note(self, stage: SharedStage) -> None:
        """Write what is to be known of a batch of episodes that has been judged."""
        step, streams = len(self.rows) + 1, stage.streams
        row = {"step": step, "wall_seconds": self._elapsed(), **_numbers(stage), **stage.env.ledger.summary()}
        self.rows.append({name: value for name, value in row.items() if value is not None})
        self._metrics.write(self.rows)
        slots, group_size = len(streams["anchor"]), stage.group_size
        groups = [slot // group_size for slot in range(slots)]
        chosen = choose_episodes(streams["anchor"].tolist(), groups, episodes_kept(step))
        first = (step - 1) * slots
        self._log.append(
            {"step": step, "episode": first + slot, "group": (first + slot) // group_size, **_described(stage, slot)}
            for slot in chosen
        )
        for slot in range(slots):
            pair = [stream_value(streams, name, slot) for name in ("predicted_reward", "real_reward")]
            if streams["anchor"][slot] and pair[0] is not None and pair[1] is not None:
                self._pairs.append([step, pair[0], pair[1]])
        self._pairs = self._pairs[-MOST_PAIRS:]
        knots = stage.env.calibration()["knots"]
        self._history.note(step, knots["predicted"], knots["real"])
        self._history.write(self._folder)
        write_calibration(self._folder, self._pairs, knots)

    def finish(self, stage: SharedStage) -> None:
        """Write summary.json; nothing was executed to evaluate the model, which ``wmrl evaluate --agent`` does."""
        ledger = stage.env.ledger.summary()
        summary = {"config": self._config, "steps": len(self.rows), "before": None, "after": None, "ledger": ledger}
        write_json(self._folder / "summary.json", summary)

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two batches, JSON-able."""
        history = self._history.state_dict()
        return {"rows": self.rows, "pairs": self._pairs, "history": history, "seconds": self._elapsed()}

    def _elapsed(self) -> float:
        return self._seconds + time.monotonic() - self._started


def _numbers(stage: SharedStage) -> dict[str, float | None]:
    """Return a step's numbers under the names that every run's metrics.csv has."""
    streams, slots = stage.streams, range(len(stage.streams["anchor"]))
    numbers = {name: _mean([stream_value(streams, name, slot) for slot in slots]) for name in _MEANS}
    anchors = [slot for slot in slots if streams["anchor"][slot]]
    numbers["weight"] = _mean([stream_value(streams, "weight", slot) for slot in anchors])
    numbers |= {"anchors": len(anchors) / len(slots), "ungraded": stage.metrics["ungraded"]}
    counts = Counter(outcome.status for outcome in stage.outcomes if outcome is not None)
    total = max(1, counts.total())
    return numbers | {f"status_{status}": counts[status] / total for status in STATUSES}


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _described(stage: SharedStage, slot: int) -> dict[str, Any]:
    turns, task = [], ""
    for replies, turn in stage.turns_taken:
        part = turn.of(slot)
        if part is None:
            continue
        submission, predicted, real = part
        task = submission.task.id
        turns.append(describe_turn(submission.code, predicted, real, reply=replies[slot]))
    anchor = bool(stage.streams["anchor"][slot])
    return {"task": task, "anchor": anchor, **describe_rewards(stage.streams, slot), "turns": turns}
