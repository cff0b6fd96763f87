"""Demonstrations by Meta-World's scripted experts, and failures to tell them from.

- ``Rollout`` - one episode as arrays.
- ``collect`` - expert and perturbed rollouts of some tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.robotics.metaworld import Simulator
from wmrl_envs.robotics.scene import Scene

__all__ = ["Kind", "Rollout", "collect", "hold_out"]

Kind = Literal["expert", "perturbed", "policy"]


@dataclass(frozen=True, eq=False, slots=True)
class Rollout:
    """One episode of T decisions."""

    task: str
    instruction: str
    initial_state: int
    kind: Kind
    """Who acted: the expert; the expert disturbed or giving up; a policy."""
    frames: NDArray[np.uint8]
    """[T + 1, H, W, 3] images before each decision, and the last one."""
    states: NDArray[np.float32]
    """[T + 1, 4] proprioception."""
    actions: NDArray[np.float32]
    """[T, *action] what the expert would have done in each state, also where something else was done; what a policy
    did."""
    solved: NDArray[np.bool_]
    """[T + 1] whether the task had been solved by then."""

    @property
    def success(self) -> bool:
        """Whether the task was solved in the end."""
        return bool(self.solved[-1])

    @property
    def progress(self) -> NDArray[np.float32] | None:
        """float32 [T + 1] in [0, 1]: the share of the time to success that has passed; ``None`` without success."""
        if not self.success:
            return None
        first = int(np.argmax(self.solved))
        return np.minimum(np.arange(len(self.solved)) / max(first, 1), 1.0).astype(np.float32)


def collect(
    tasks: str | Sequence[str],
    per_task: int,
    *,
    perturbed: int = 0,
    seed: int = 0,
    on_rollout: Callable[[Rollout], None] = lambda rollout: None,
    **settings: Any,
) -> list[Rollout]:
    """Return rollouts of scripted experts, and of experts that are disturbed.

    Every decision is labelled with the expert's own, averaged over the simulator steps for which it is held. An expert
    rollout that fails is drawn again (at most five times).

    Args:
        tasks: As ``MetaWorldEnv`` takes them.
        per_task: Expert rollouts of each task.
        perturbed: Disturbed ones of each task: a constant push, noise at every decision, or an expert that gives up or
            wanders from some decision on. Most of them fail.
        seed: Of initial states and disturbances.
        on_rollout: Called with each rollout as it is done.
        settings: Further arguments of ``MetaWorldEnv`` (``camera``, ``image_size``, ``hold``, ...).

    Raises:
        ConfigurationError: If a number is negative or both are 0, or an expert fails at a task again and again.
        UnknownTaskError: If a task is none of Meta-World's.
    """
    if per_task < 0 or perturbed < 0 or per_task + perturbed == 0:
        raise ConfigurationError(
            f"per_task and perturbed count rollouts, at least one of them above 0, got {per_task} and {perturbed}"
        )
    defaults: dict[str, Any] = {
        "camera": "workspace",
        "second_camera": None,
        "image_size": 64,
        "draw_arm": True,
        "hold": 10,
        "chunk": 1,
        "max_decisions": 15,
        "terminate_on_success": False,
        "render_mode": None,
        "render_size": 256,
    }
    scene = Scene(1, tasks, **defaults | settings)
    generator = np.random.default_rng(seed)
    rollouts = []
    try:
        for index in range(len(scene.task_names)):
            for number in range(per_task + perturbed):
                rollout = _expert(scene, index, generator) if number < per_task else _disturbed(scene, index, generator)
                on_rollout(rollout)
                rollouts.append(rollout)
    finally:
        scene.close()
    return rollouts


def hold_out(rollouts: Sequence[Rollout], share: float, *, seed: int = 0) -> tuple[list[Rollout], list[Rollout]]:
    """Return rollouts to train on and, of each task and kind, a share held out (rounded, at least one).

    Raises:
        ConfigurationError: If a task has too few rollouts of a kind to hold one out.
    """
    generator = np.random.default_rng(seed)
    kept: list[Rollout] = []
    held: list[Rollout] = []
    for task, kind in dict.fromkeys((rollout.task, rollout.kind) for rollout in rollouts):
        own = [rollout for rollout in rollouts if (rollout.task, rollout.kind) == (task, kind)]
        if len(own) < 2:
            raise ConfigurationError(
                f"{task!r} has one {kind} rollout, so that none can be held out; collect more demonstrations"
            )
        count = min(max(1, round(share * len(own))), len(own) - 1)
        order = [own[index] for index in generator.permutation(len(own)).tolist()]
        held += order[:count]
        kept += order[count:]
    return kept, held


Disturb = Callable[[int, NDArray[np.float32]], NDArray[Any]]


def _expert(scene: Scene, task: int, generator: np.random.Generator) -> Rollout:
    for _ in range(6):
        rollout = _play(scene, task, generator, "expert", lambda decision, action: action)
        if rollout.success:
            return rollout
    raise ConfigurationError(
        f"the expert of {scene.task_names[task]!r} failed six times within {scene.max_decisions} decisions of "
        f"{scene.hold * scene.chunk} simulator steps; allow more decisions, or hold actions for fewer steps"
    )


def _disturbed(scene: Scene, task: int, generator: np.random.Generator) -> Rollout:
    shape = scene.action_space.shape
    push = generator.uniform(-1.0, 1.0, shape) * generator.uniform(0.0, 0.7)
    noise = generator.uniform(0.0, 0.6)
    gives_up = int(generator.integers(1, scene.max_decisions)) if generator.random() < 0.5 else scene.max_decisions
    wanders = generator.uniform(-0.5, 0.5, shape) * generator.integers(2)

    def disturb(decision: int, action: NDArray[np.float32]) -> NDArray[Any]:
        own = action + push if decision < gives_up else wanders
        return own + noise * generator.standard_normal(shape)

    return _play(scene, task, generator, "perturbed", disturb)


def _play(scene: Scene, task: int, generator: np.random.Generator, kind: Kind, disturb: Disturb) -> Rollout:
    scene.begin(0, task, scene.draw(generator)[1])
    observations, solved = [scene.observations[0]], [False]
    actions: list[NDArray[np.float32]] = []
    while not scene.over[0]:
        label = expert_decision(scene.simulator(0), scene.hold, scene.chunk).reshape(scene.action_space.shape)
        scene.step(0, disturb(len(actions), label))
        observations.append(scene.observations[0])
        actions.append(label)
        solved.append(bool(scene.success[0]))
    return Rollout(
        task=scene.task_names[task],
        instruction=observations[0]["instruction"],
        initial_state=int(scene.initial_state[0]),
        kind=kind,
        frames=np.stack([observation["image"] for observation in observations]),
        states=np.stack([observation["state"] for observation in observations]),
        actions=np.stack(actions),
        solved=np.array(solved),
    )


def expert_decision(simulator: Simulator, hold: int, chunk: int) -> NDArray[np.float32]:
    """Return the expert's next actions, each the mean of ``hold`` simulator steps, float32 [chunk, 4].

    The simulator is where it was afterwards.
    """
    before = simulator.snapshot()
    actions = np.empty((chunk * hold, 4), np.float32)
    for step in range(chunk * hold):
        actions[step] = simulator.expert_action()
        simulator.step(actions[step])
    simulator.restore(before)
    return np.asarray(actions.reshape(chunk, hold, 4).mean(axis=1), np.float32)
