"""Rollouts that a tiny network learns from within seconds: a square crosses the picture."""

from __future__ import annotations

import numpy as np

from wmrl_envs.robotics.demonstrations import Rollout

SIZE = 32
WORDS = {"right": "push the square to the right", "down": "push the square down"}


def moving_square(task: str, *, seed: int, success: bool = True, decisions: int = 8) -> Rollout:
    """Return a rollout whose square reaches the far side, or turns back half way.

    The expert's action is the direction, and the state where the square is.
    """
    generator = np.random.default_rng(seed)
    far = 1.0 if success else generator.uniform(0.3, 0.6)
    way = np.linspace(0.0, 1.0, decisions + 1)
    way = way if success else np.minimum(way, far) - 0.5 * np.maximum(way - far, 0.0)
    across = int(generator.integers(4, 20))
    frames = np.full((decisions + 1, SIZE, SIZE, 3), 40, np.uint8)
    for frame, share in zip(frames, way, strict=True):
        along = round(float(share) * (SIZE - 8))
        top, left = (across, along) if task == "right" else (along, across)
        frame[top : top + 8, left : left + 8] = (230, 60, 60)
    direction = np.array([1.0, 0.0] if task == "right" else [0.0, 1.0], np.float32)
    return Rollout(
        task=task,
        instruction=WORDS[task],
        initial_state=seed,
        kind="expert" if success else "perturbed",
        frames=frames,
        states=np.stack([way, np.full_like(way, across / 20)], axis=1).astype(np.float32),
        actions=np.repeat(direction[None], decisions, axis=0),
        solved=way >= 1.0,
    )


def moving_squares(each: int, *, seed: int = 0) -> list[Rollout]:
    """Return so many successes and failures of both tasks."""
    numbers = range(seed, seed + each)
    return [moving_square(task, seed=n, success=won) for task in WORDS for won in (True, False) for n in numbers]
