"""Robot episodes side by side over shared simulators: the core of the single and the vector Meta-World environment."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, RenderModeError, did_you_mean
from wmrl_envs.robotics.metaworld import CAMERAS, Simulator, Snapshot, resolve_tasks

__all__ = ["Scene"]

CONTROL_RATE = 80
"""Simulator steps per second."""
INITIAL_STATES = 2**31
INSTRUCTION = spaces.Text(max_length=200, charset=string.ascii_letters + string.digits + string.punctuation + " ")
Observation = dict[str, Any]


class Scene:
    """n episodes over one simulator per task.

    Only one episode at a time is in a simulator; the others wait as snapshots, so that a group of rollouts from one
    initial state costs one scene and not eight. Frames are rendered at decisions alone.

    Attributes:
        task_names: The tasks that episodes are drawn from.
        task: [n] int64, index of each episode's task.
        initial_state: [n] int64, number of each episode's initial state.
        decision: [n] int64, decisions taken; -1 before the first ``begin``.
        success: [n] bool, whether the task was solved in the episode.
        over: [n] bool, whether the episode has ended.
    """

    def __init__(
        self,
        n: int,
        tasks: str | Sequence[str],
        *,
        camera: str,
        second_camera: str | None,
        image_size: int,
        draw_arm: bool,
        hold: int,
        chunk: int,
        max_decisions: int,
        terminate_on_success: bool,
        render_mode: str | None,
        render_size: int,
    ) -> None:
        """Check the arguments; simulators are made when they are needed. See ``MetaWorldEnv`` for the arguments."""
        self.task_names = resolve_tasks(tasks if isinstance(tasks, str) else list(tasks))
        _check_cameras(camera, second_camera)
        for name, value, low in (
            ("image_size", image_size, 16),
            ("hold", hold, 1),
            ("chunk", chunk, 1),
            ("max_decisions", max_decisions, 1),
            ("render_size", render_size, 16),
        ):
            if isinstance(value, bool) or value != int(value) or value < low:
                raise ConfigurationError(f"{name} must be a whole number of at least {low}, got {value!r}")
        if render_mode not in (None, "rgb_array"):
            raise RenderModeError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        self._cameras = {"image": camera} | ({"image2": second_camera} if second_camera else {})
        self._draw_arm = draw_arm
        self._size, self._render_size = int(image_size), int(render_size)
        self.hold, self.chunk, self.max_decisions = int(hold), int(chunk), int(max_decisions)
        self._terminate_on_success = terminate_on_success
        frame = spaces.Box(0, 255, (self._size, self._size, 3), np.uint8)
        state = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        keys = {name: frame for name in self._cameras}
        self.observation_space = spaces.Dict({**keys, "state": state, "instruction": INSTRUCTION})
        self.action_space = spaces.Box(-1.0, 1.0, (4,) if self.chunk == 1 else (self.chunk, 4), np.float32)
        self.task, self.initial_state = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.decision = np.full(n, -1, np.int64)
        self.success, self.over = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        self.observations: list[Observation] = [{} for _ in range(n)]
        self._snapshots: list[Snapshot | None] = [None] * n
        self._simulators: dict[int, Simulator] = {}
        self._inside: dict[int, int] = {}

    @property
    def frames_per_second(self) -> float:
        """Decisions per simulated second."""
        return CONTROL_RATE / (self.hold * self.chunk)

    def draw(self, generator: np.random.Generator) -> tuple[int, int]:
        """Draw a task's index and the number of an initial state."""
        return int(generator.integers(len(self.task_names))), int(generator.integers(INITIAL_STATES))

    def task_index(self, name: Any) -> int:
        """Return the index of a task by name.

        Raises:
            ConfigurationError: If it is none of this environment's.
        """
        short = name.removesuffix("-v3") if isinstance(name, str) else name
        if short not in self.task_names:
            raise ConfigurationError(
                f"options['task'] must be one of {', '.join(self.task_names)}, got {name!r}."
                f"{did_you_mean(str(name), self.task_names)}"
            )
        return self.task_names.index(short)

    def begin(self, slot: int, task: int, initial_state: int) -> None:
        """Begin an episode in a slot."""
        self.task[slot], self.initial_state[slot] = task, initial_state
        simulator = self._bare(task)
        self._put_away(task)
        simulator.begin(initial_state)
        self._inside[task] = slot
        self._begun(slot, simulator, self._observe(simulator))

    def begin_as(self, slot: int, leader: int) -> None:
        """Begin the episode that has just begun in another slot once more; the leader's simulator is not stepped."""
        task = int(self.task[leader])
        self.task[slot], self.initial_state[slot] = task, self.initial_state[leader]
        simulator = self._enter(leader)
        self._snapshots[slot] = simulator.snapshot()
        self._begun(slot, simulator, dict(self.observations[leader]))

    def step(self, slot: int, action: Any) -> float:
        """Take one decision in a slot and return its reward: 1.0 where the task is solved for the first time.

        Raises:
            ConfigurationError: If the action has another shape, or is not finite.
        """
        simulator = self._enter(slot)
        for single in self._actions(action):
            for _ in range(self.hold):
                simulator.step(single)
        before, self.success[slot] = bool(self.success[slot]), simulator.success
        self.decision[slot] += 1
        self.over[slot] = self.decision[slot] >= self.max_decisions or self.terminated(slot)
        self.observations[slot] = self._observe(simulator)
        return float(simulator.success and not before)

    def terminated(self, slot: int) -> bool:
        """Return whether a slot's episode ended by success."""
        return bool(self._terminate_on_success and self.success[slot])

    def info(self, slot: int) -> dict[str, Any]:
        """Return a slot's info in built-in types."""
        return {
            "success": bool(self.success[slot]),
            "task": self.task_names[self.task[slot]],
            "initial_state": int(self.initial_state[slot]),
        }

    def render(self, slot: int) -> NDArray[np.uint8]:
        """Return what a slot's camera sees, uint8 [render_size, render_size, 3]."""
        return self._enter(slot).render(self._cameras["image"], self._render_size)

    def simulator(self, slot: int) -> Simulator:
        """Return the simulator of a slot's task with its episode in it, for an expert to look at."""
        return self._enter(slot)

    def close(self) -> None:
        """Free the renderers."""
        for simulator in self._simulators.values():
            simulator.close()

    def _begun(self, slot: int, simulator: Simulator, observation: Observation) -> None:
        self.decision[slot], self.success[slot], self.over[slot] = 0, False, False
        self.observations[slot] = observation

    def _observe(self, simulator: Simulator) -> Observation:
        frames = {key: simulator.render(camera, self._size) for key, camera in self._cameras.items()}
        return {**frames, "state": simulator.proprioception(), "instruction": simulator.instruction}

    def _bare(self, task: int) -> Simulator:
        if task not in self._simulators:
            self._simulators[task] = Simulator(self.task_names[task], draw_arm=self._draw_arm)
        return self._simulators[task]

    def _enter(self, slot: int) -> Simulator:
        """Return the simulator of a slot's task with the slot's episode in it."""
        task = int(self.task[slot])
        simulator = self._bare(task)
        if self._inside.get(task) != slot:
            self._put_away(task)
            waiting = self._snapshots[slot]
            assert waiting is not None
            simulator.restore(waiting)
            self._inside[task] = slot
        return simulator

    def _put_away(self, task: int) -> None:
        """Keep the episode that is in a simulator, so that another one can enter."""
        slot = self._inside.pop(task, None)
        if slot is not None and self.task[slot] == task:
            self._snapshots[slot] = self._simulators[task].snapshot()

    def _actions(self, action: Any) -> NDArray[np.float32]:
        given = np.asarray(action, np.float32)
        if given.shape != self.action_space.shape or not np.isfinite(given).all():
            raise ConfigurationError(
                f"an action must be {self.action_space.shape} finite numbers in [-1, 1], got "
                f"{'numbers that are not finite' if given.shape == self.action_space.shape else given.shape}"
            )
        return np.clip(given, -1.0, 1.0).reshape(self.chunk, 4)


def _check_cameras(camera: str, second: str | None) -> None:
    for name in (camera, second):
        if name is not None and name not in CAMERAS:
            raise ConfigurationError(
                f"camera must be one of {', '.join(CAMERAS)}, got {name!r}.{did_you_mean(str(name), CAMERAS)}"
            )
