"""Rollouts of noise, whose every bit counts."""

from __future__ import annotations

import numpy as np

from wmrl_envs.robotics.demonstrations import Rollout


def synthetic_rollout(
    decisions: int = 5,
    *,
    seed: int = 0,
    size: tuple[int, int] = (24, 32),
    state: int = 4,
    action: tuple[int, ...] = (4,),
    solved_at: int | None = 3,
    task: str = "drawer-open",
    instruction: str = "open the drawer",
    kind: str = "expert",
) -> Rollout:
    """Return a rollout of so many decisions, solved from a frame on."""
    generator = np.random.default_rng(seed)
    frames = generator.integers(0, 256, (decisions + 1, *size, 3), np.uint8)
    return Rollout(
        task=task,
        instruction=instruction,
        initial_state=int(generator.integers(2**31)),
        kind=kind,  # type: ignore[arg-type]
        frames=frames,
        states=generator.standard_normal((decisions + 1, state)).astype(np.float32),
        actions=generator.uniform(-1.0, 1.0, (decisions, *action)).astype(np.float32),
        solved=np.arange(decisions + 1) >= (decisions + 1 if solved_at is None else solved_at),
    )


def mixed_rollouts() -> list[Rollout]:
    """Return rollouts of two tasks, all kinds and three lengths, one of them solved from the start."""
    return [
        synthetic_rollout(5, seed=0),
        synthetic_rollout(
            1, seed=1, solved_at=None, kind="perturbed", task="window-open", instruction="open the window"
        ),
        synthetic_rollout(9, seed=2, solved_at=9, kind="policy"),
        synthetic_rollout(3, seed=3, solved_at=0, task="window-open", instruction="open the window"),
    ]
