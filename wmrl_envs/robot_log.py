"""What a run that fine-tunes a robot policy leaves for its readers, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.calibration_history import CalibrationHistory
from wmrl_envs.robotics.finetune import RobotTrainer, Rollouts
from wmrl_envs.robotics.progress import Progress, spaced_frames
from wmrl_envs.robotics.video import draw_progress, write_video
from wmrl_envs.trajectories import TrajectoryLog, choose_episodes, describe_rewards, episodes_kept, stream_value

__all__ = ["RobotLog"]

FILMED = 2
"""Rollouts of a step that are filmed: an anchor and one that was only predicted, where there are both."""
MOST_PAIRS = 5000


class RobotLog:
    """Writes the rollouts of some steps, films of a few, the calibration's history and its pairs.

    The first, second, fourth, eighth ... step is filmed.

    Attributes:
        history: The calibration so far.
        pairs: ``[step, predicted, real]`` of each rollout that was both predicted and labelled; the last 5,000.
    """

    def __init__(self, folder: Path, *, films: bool, fps: float) -> None:
        """Write to a run folder.

        Args:
            folder: The run folder.
            films: Whether anything is filmed.
            fps: Frames per second of the films.
        """
        self._folder, self._films, self._fps = folder, films, fps
        self._log = TrajectoryLog(folder)
        self.history = CalibrationHistory()
        self.pairs: list[list[float]] = []

    def start(self, step: int) -> None:
        """Begin after a step of a run, dropping what an interrupted one wrote about later ones."""
        self._log.drop_after(step)
        self.history.write(self._folder)

    def before_step(self, trainer: RobotTrainer) -> None:
        """Say what of the coming step is to be filmed."""
        step = trainer.step + 1
        trainer.film = FILMED if self._films and step & (step - 1) == 0 else 0

    def after_step(self, trainer: RobotTrainer) -> None:
        """Write what is to be known of a step that is done."""
        rollouts = trainer.rollouts
        assert rollouts is not None
        scores: list[Progress | None] = getattr(trainer.env.world_model, "scores", [])
        videos = self._film(trainer.step, rollouts, scores)
        group_size = trainer.config.group_size
        slots = range(len(rollouts.tasks))
        anchors = rollouts.streams["anchor"].tolist()
        chosen = choose_episodes(anchors, [slot // group_size for slot in slots], episodes_kept(trainer.step))
        first = (trainer.step - 1) * len(slots)
        self._log.append(
            {"step": trainer.step, "episode": first + slot, "group": (first + slot) // group_size}
            | _described(rollouts, slot, scores[slot] if scores else None)
            | ({"video": videos[slot]} if slot in videos else {})
            for slot in chosen
        )
        self._note_calibration(trainer, rollouts.streams)

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps, JSON-able."""
        return {"history": self.history.state_dict(), "pairs": self.pairs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned."""
        self.history.load_state_dict(state["history"])
        self.pairs = list(state["pairs"])

    def _film(self, step: int, rollouts: Rollouts, scores: list[Progress | None]) -> dict[int, str]:
        """Write the films of a step; return their names by rollout."""
        names = {}
        for index, (slot, frames) in enumerate(rollouts.filmed.items()):
            real = stream_value(rollouts.streams, "real_reward", slot)
            found = scores[slot] if scores else None
            drawn = draw_progress(
                frames,
                None if found is None else _over_frames(found.progress, len(frames)),
                success=None if found is None or found.success is None else _over_frames(found.success, len(frames)),
                real=None if real is None else real > 0.5,
                anchor=real is not None,
                title=rollouts.instructions[slot],
            )
            names[slot] = f"videos/step-{step:04d}-{index}.mp4"
            write_video(self._folder / names[slot], drawn, fps=self._fps)
        return names

    def _note_calibration(self, trainer: RobotTrainer, streams: Mapping[str, NDArray[Any]]) -> None:
        for slot in range(len(streams["anchor"])):
            pair = [stream_value(streams, name, slot) for name in ("predicted_reward", "real_reward")]
            if pair[0] is not None and pair[1] is not None:
                self.pairs.append([trainer.step, pair[0], pair[1]])
        self.pairs = self.pairs[-MOST_PAIRS:]
        knots = trainer.env.calibration()["knots"]
        self.history.note(trainer.step, knots["predicted"], knots["real"])
        self.history.write(self._folder)


def _described(rollouts: Rollouts, slot: int, scores: Progress | None) -> dict[str, Any]:
    episode: dict[str, Any] = {
        "task": rollouts.tasks[slot],
        "anchor": bool(rollouts.streams["anchor"][slot]),
        "instruction": rollouts.instructions[slot],
        **describe_rewards(rollouts.streams, slot),
    }
    if scores is not None:
        episode["progress"] = _rounded(scores.progress)
        if scores.success is not None:
            episode["success_probability"] = _rounded(scores.success)
    return episode


def _rounded(scores: NDArray[np.float32]) -> list[float]:
    return [round(float(score), 4) for score in scores]


def _over_frames(scores: NDArray[np.float32], frames: int) -> NDArray[np.float64]:
    """Return scores of some evenly spaced frames for all frames, linear in between."""
    at = spaced_frames(frames, len(scores))
    known, first = np.unique(at, return_index=True)
    return np.interp(np.arange(frames), known, scores[first])
