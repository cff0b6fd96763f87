"""Robot episodes side by side over shared simulators: the core of the single and the vector environments.

- ``RobotSimulator`` - one task of a family, such as Meta-World's or LIBERO's.
- ``Episodes`` - n episodes over one simulator per task.
"""

from __future__ import annotations

import string
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from wmrl_envs.errors import ConfigurationError, RenderModeError, did_you_mean

__all__ = ["Episodes", "RobotSimulator"]

INSTRUCTION = spaces.Text(max_length=200, charset=string.ascii_letters + string.digits + string.punctuation + " ")
STATE_BOUND = 10.0
"""Proprioception is in metres, radians and shares; none of them comes near."""
Observation = dict[str, Any]


class RobotSimulator(Protocol):
    """One task in simulation: exactly repeatable, and able to go back to any state."""

    instruction: str
    """What the robot is told."""
    success: bool
    """Whether the task was solved at any simulator step since the last ``begin``."""

    def begin(self, initial_state: int) -> None:
        """Begin from an initial state."""
        ...

    def step(self, action: NDArray[Any]) -> None:
        """Move for one simulator step; the action is [a] in [-1, 1]."""
        ...

    def proprioception(self) -> NDArray[np.float32]:
        """Return the robot's own state, float32 [d]."""
        ...

    def render(self, camera: str, size: int) -> NDArray[np.uint8]:
        """Return an upright frame, uint8 [size, size, 3]."""
        ...

    def snapshot(self) -> Any:
        """Return a copy of everything that the future depends on."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Go back to a state of this simulator."""
        ...

    def close(self) -> None:
        """Free the renderers."""
        ...


S = TypeVar("S", bound=RobotSimulator)


class Episodes(Generic[S]):
    """n episodes over one simulator per task.

    Only one episode at a time is in a simulator; the others wait as snapshots, so that a group of rollouts from one
    initial state costs one scene and not eight. Frames are rendered at decisions alone. A family of tasks says in a
    subclass what its simulators are.

    Attributes:
        task_names: The tasks that episodes are drawn from.
        task: [n] int64, index of each episode's task.
        initial_state: [n] int64, number of each episode's initial state.
        decision: [n] int64, decisions taken; -1 before the first ``begin``.
        success: [n] bool, whether the task was solved in the episode.
        over: [n] bool, whether the episode has ended.
        terminate_on_success: Whether success ends an episode.
    """

    CAMERAS: ClassVar[tuple[str, ...]]
    CONTROL_RATE: ClassVar[int]
    """Simulator steps per second."""
    STATE_SIZE: ClassVar[int]
    ACTION_SIZE: ClassVar[int]
    task_names: tuple[str, ...]

    def __init__(
        self,
        n: int,
        *,
        camera: str,
        second_camera: str | None,
        image_size: int,
        hold: int,
        chunk: int,
        max_decisions: int,
        terminate_on_success: bool,
        render_mode: str | None,
        render_size: int,
    ) -> None:
        """Check the arguments; simulators are made when they are needed. See ``MetaWorldEnv`` for the arguments."""
        self._check_cameras(camera, second_camera)
        check_whole("image_size", image_size, 16)
        check_whole("hold", hold, 1)
        check_whole("chunk", chunk, 1)
        check_whole("max_decisions", max_decisions, 1)
        check_whole("render_size", render_size, 16)
        check_flag("terminate_on_success", terminate_on_success)
        if render_mode not in (None, "rgb_array"):
            raise RenderModeError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        self._cameras = {"image": camera} | ({"image2": second_camera} if second_camera else {})
        self._size, self._render_size = int(image_size), int(render_size)
        self.hold, self.chunk, self.max_decisions = int(hold), int(chunk), int(max_decisions)
        self.terminate_on_success, self.render_mode = terminate_on_success, render_mode
        frame = spaces.Box(0, 255, (self._size, self._size, 3), np.uint8)
        state = spaces.Box(-STATE_BOUND, STATE_BOUND, (self.STATE_SIZE,), np.float32)
        keys = {name: frame for name in self._cameras}
        self.observation_space = spaces.Dict({**keys, "state": state, "instruction": INSTRUCTION})
        shape = (self.ACTION_SIZE,) if self.chunk == 1 else (self.chunk, self.ACTION_SIZE)
        self.action_space = spaces.Box(-1.0, 1.0, shape, np.float32)
        self.task, self.initial_state = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.decision = np.full(n, -1, np.int64)
        self.success, self.over = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        self.observations: list[Observation] = [{} for _ in range(n)]
        self._snapshots: list[Any] = [None] * n
        self._simulators: dict[int, S] = {}
        self._inside: dict[int, int] = {}

    def initial_states(self, task: int) -> int:
        """Return how many initial states a task has."""
        raise NotImplementedError

    def make_simulator(self, task: int) -> S:
        """Return a simulator of a task."""
        raise NotImplementedError

    @property
    def frames_per_second(self) -> float:
        """Decisions per simulated second."""
        return self.CONTROL_RATE / (self.hold * self.chunk)

    def draw(self, generator: np.random.Generator, task: int | None = None) -> tuple[int, int]:
        """Draw a task's index, unless it is given, and the number of one of its initial states."""
        drawn = int(generator.integers(len(self.task_names)))
        task = drawn if task is None else task
        return task, int(generator.integers(self.initial_states(task)))

    def task_index(self, name: Any) -> int:
        """Return the index of a task by name.

        Raises:
            ConfigurationError: If it is none of this environment's.
        """
        if name not in self.task_names:
            raise ConfigurationError(
                f"options['task'] must be one of {', '.join(self.task_names)}, got {name!r}."
                f"{did_you_mean(str(name), self.task_names)}"
            )
        return self.task_names.index(name)

    def checked_state(self, task: int, number: Any) -> int:
        """Return the number of an initial state.

        Raises:
            ConfigurationError: If the task has none of this number.
        """
        count = self.initial_states(task)
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number < count:
            raise ConfigurationError(
                f"options['initial_state'] must be a whole number in [0, {count}) for {self.task_names[task]!r}, got "
                f"{number!r}"
            )
        return int(number)

    def checked_action(self, action: Any) -> NDArray[np.float32]:
        """Return a decision's actions, float32 [chunk, a] in [-1, 1].

        Raises:
            ConfigurationError: If the action has another shape, or is not finite.
        """
        shape = self.action_space.shape
        try:
            given = np.asarray(action, np.float32)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"an action must be {shape} finite numbers in [-1, 1], got {action!r}") from error
        if given.shape != shape or not np.isfinite(given).all():
            raise ConfigurationError(
                f"an action must be {shape} finite numbers in [-1, 1], got "
                f"{'numbers that are not finite' if given.shape == shape else given.shape}"
            )
        return np.clip(given, -1.0, 1.0).reshape(self.chunk, self.ACTION_SIZE)

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
        for single in self.checked_action(action):
            for _ in range(self.hold):
                simulator.step(single)
        before, self.success[slot] = bool(self.success[slot]), simulator.success
        self.decision[slot] += 1
        self.over[slot] = self.decision[slot] >= self.max_decisions or self.terminated(slot)
        self.observations[slot] = self._observe(simulator)
        return float(simulator.success and not before)

    def terminated(self, slot: int) -> bool:
        """Return whether a slot's episode ended by success."""
        return bool(self.terminate_on_success and self.success[slot])

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

    def simulator(self, slot: int) -> S:
        """Return the simulator of a slot's task with its episode in it, for an expert to look at."""
        return self._enter(slot)

    def close(self) -> None:
        """Free the renderers."""
        for simulator in self._simulators.values():
            simulator.close()

    def _begun(self, slot: int, simulator: S, observation: Observation) -> None:
        self.decision[slot], self.success[slot], self.over[slot] = 0, False, False
        self.observations[slot] = observation

    def _observe(self, simulator: S) -> Observation:
        frames = {key: simulator.render(camera, self._size) for key, camera in self._cameras.items()}
        return {**frames, "state": simulator.proprioception(), "instruction": simulator.instruction}

    def _bare(self, task: int) -> S:
        if task not in self._simulators:
            self._simulators[task] = self.make_simulator(task)
        return self._simulators[task]

    def _enter(self, slot: int) -> S:
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

    def _check_cameras(self, camera: str, second: str | None) -> None:
        for name in (camera, second):
            if name is not None and name not in self.CAMERAS:
                raise ConfigurationError(
                    f"camera must be one of {', '.join(self.CAMERAS)}, got {name!r}."
                    f"{did_you_mean(str(name), self.CAMERAS)}"
                )


def check_whole(name: str, value: Any, low: int) -> None:
    """Refuse an argument that is no whole number of at least ``low``.

    Raises:
        ConfigurationError: It names the argument and what it got.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise ConfigurationError(f"{name} must be a whole number of at least {low}, got {value!r}")


def check_flag(name: str, value: Any) -> None:
    """Refuse an argument that is neither True nor False, such as ``"no"``, which would count as True.

    Raises:
        ConfigurationError: It names the argument and what it got.
    """
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, got {value!r}")
