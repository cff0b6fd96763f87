"""Episodes side by side: which are anchors, and what their two streams have come to so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import CheckpointError, ConfigurationError
from wmrl_envs.wrappers._streams import BoolArray, FloatArray, IntArray, Mask, Streams

__all__ = ["Slots"]

_SAVED = (
    "anchor",
    "next_anchor",
    "rescued",
    "unpredicted",
    "unexecuted",
    "real_total",
    "predicted_total",
    "spread",
    "group",
    "begun",
)


class Slots:
    """The episodes of ``n`` slots under a world model; the part that both of its modes share.

    A slot's next episode is marked ahead of time, because autoreset passes no options. An episode whose prediction
    failed may be rescued: it is executed from then on, as long as ``max_rescues`` allows.

    Attributes:
        n: Number of slots.
        group_size: Neighbouring slots that form a group.
        predicting: Whether predictions are asked for at all; a correction that executes everything turns it off.
        recording: Whether costs are charged and executions shown to the world model; off during an evaluation.
        spreading: Whether the world model's spread is kept; a correction that reads it turns it on.
        max_rescues: Most episodes under way at once that are executed because a prediction failed.
        anchor: [n] bool, the episodes under way that are anchors.
        next_anchor: [n] bool, the same of the episodes to come.
        executing: [n] bool, the episodes whose real reward is asked for: anchors and rescued ones.
        executing_rows: The same as a list of slots.
        flawed: Whether anything that was asked for in an episode under way is unknown.
    """

    def __init__(self, n: int, group_size: int, *, summed: bool, max_rescues: int | None) -> None:
        """Start with no episode under way.

        Args:
            n: Number of slots.
            group_size: Neighbouring slots that form a group; divides ``n``.
            summed: Whether an episode's reward is the sum of its turns' and not the best.
            max_rescues: Non-negative; ``None`` is a tenth of the slots and at least 1.
        """
        if max_rescues is not None and (
            isinstance(max_rescues, bool) or max_rescues != int(max_rescues) or max_rescues < 0
        ):
            raise ConfigurationError(f"max_rescues must be a whole number of at least 0, or None, got {max_rescues!r}")
        self.n, self.group_size, self.summed = n, group_size, summed
        # A group-aware agent leaves a member without a prediction out, so that executing it would buy nothing.
        default = max(1, n // 10) if group_size == 1 else 0
        self.max_rescues = default if max_rescues is None else int(max_rescues)
        self.predicting = True
        self.recording = True
        self.spreading = False
        self.anchor, self.next_anchor = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        self.rescued = np.zeros(n, np.bool_)
        self.executing = self.anchor
        self.executing_rows: list[int] = []
        self.flawed = False
        self.unpredicted, self.unexecuted = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        self.real_total, self.predicted_total = np.zeros(n), np.zeros(n)
        self.spread = np.zeros(n)
        self.group = np.zeros(n, np.int64)
        self.begun = np.zeros(n, np.bool_)
        self.streams: Streams | None = None
        self._next_group = 0

    def mark(self, slots: BoolArray, anchors: BoolArray) -> None:
        """Decide whether the next episodes of some slots are anchors.

        Args:
            slots: [n] bool, the slots that are decided.
            anchors: [n] bool, read where ``slots`` is True.
        """
        self.next_anchor = np.where(slots, anchors, self.next_anchor)

    def begin(self, slots: BoolArray) -> None:
        """Begin the next episodes of some slots ([n] bool), as marked; an unmarked one is no anchor.

        The arrays are replaced and never written to, since the streams of the last step still hold them.
        """
        # An episode's best turn is unknown before the first, its sum is 0.
        start = 0.0 if self.summed else np.nan
        forecast = start if self.predicting else np.nan
        keep = ~slots
        if not keep.any():
            self.anchor, self.next_anchor = self.next_anchor, np.zeros(self.n, np.bool_)
            self.rescued, self.unpredicted, self.unexecuted = np.zeros((3, self.n), np.bool_)
            self.real_total, self.predicted_total = np.full(self.n, start), np.full(self.n, forecast)
            self.spread = np.zeros(self.n)
            self.begun = np.ones(self.n, np.bool_)
            self.executing, self.flawed = self.anchor, False
            self.executing_rows = np.flatnonzero(self.anchor).tolist()
            return
        self.anchor = np.where(slots, self.next_anchor, self.anchor)
        self.next_anchor = self.next_anchor & keep
        self.rescued = self.rescued & keep
        self.unpredicted, self.unexecuted = self.unpredicted & keep, self.unexecuted & keep
        self.real_total = np.where(slots, start, self.real_total)
        self.predicted_total = np.where(slots, forecast, self.predicted_total)
        self.spread = np.where(slots, 0.0, self.spread)
        self.begun = self.begun | slots
        self._recount()

    def charge(self) -> None:
        """Charge what is not charged yet; nothing, unless executions are many."""

    def _recount(self) -> None:
        self.executing = self.anchor | self.rescued
        self.executing_rows = np.flatnonzero(self.executing).tolist()
        self.flawed = bool((self.unpredicted | self.unexecuted).any())

    def name_groups(self, slots: BoolArray, groups: IntArray | None) -> None:
        """Note the group ids of episodes that have just begun.

        Args:
            slots: [n] bool.
            groups: [n] int64 ids that the environment gives; ``None`` counts up, one per ``group_size`` slots.
        """
        if groups is not None:
            self.group = np.where(slots, groups, self.group)
            return
        blocks: BoolArray = np.any(slots.reshape(-1, self.group_size), axis=1)
        ids = np.zeros(len(blocks), np.int64)
        ids[blocks] = self._next_group + np.arange(blocks.sum())
        self._next_group += int(blocks.sum())
        self.group = np.where(slots, np.repeat(ids, self.group_size), self.group)

    def rescue(self, failed: BoolArray) -> BoolArray:
        """Choose the episodes that are executed from now on because their prediction failed.

        Args:
            failed: [n] bool, the slots whose prediction failed now.

        Returns:
            [n] bool, the rescued ones among them: the first ones, as many as there is room for.
        """
        room = self.max_rescues - int((self.rescued & self.begun).sum())
        wanted = failed & ~self.executing
        chosen = wanted & (np.cumsum(wanted) <= room)
        self.rescued = self.rescued | chosen
        self._recount()
        return chosen

    def miss(self, *, predictions: BoolArray | None = None, executions: BoolArray | None = None) -> None:
        """Note where ([n] bool) a prediction failed, or an execution that was asked for."""
        self.flawed = True
        if predictions is not None:
            self.unpredicted = self.unpredicted | predictions
        if executions is not None:
            self.unexecuted = self.unexecuted | executions

    def advance(
        self,
        active: BoolArray,
        done: BoolArray,
        real: FloatArray,
        predicted: FloatArray,
        spread: FloatArray,
        outcome: NDArray[np.object_] | None,
        *,
        clean: bool = False,
    ) -> Streams:
        """Take one turn into the episodes and return the step's streams.

        Args:
            active: [n] bool, the slots that took a step.
            done: [n] bool, whose episodes ended.
            real: [n] real rewards of the turn, NaN where unknown or no step was taken.
            predicted: [n] predicted rewards of the turn, NaN where there is none.
            spread: [n] the world model's spread of ``predicted``.
            outcome: [n] objects shown to the agent, or ``None``.
            clean: Whether all slots are active and ``predicted`` is known in all of them.
        """
        if self.summed:
            self.real_total = self.real_total + np.where(real == real, real, 0.0)
            self.predicted_total = self.predicted_total + np.where(predicted == predicted, predicted, 0.0)
            self.spread = np.hypot(self.spread, spread)
        else:
            self.real_total = np.fmax(self.real_total, real)
            if self.spreading:
                # NaN compares as False, so that "not known to be no better" takes the first turn too.
                better = (predicted == predicted) & ~(predicted <= self.predicted_total)
                self.spread = np.where(better, spread, self.spread)
            self.predicted_total = np.fmax(self.predicted_total, predicted)
        ended = Mask(done)
        if not ended.none:
            self.begun = self.begun & ~done
        self.streams = Streams(
            active=active,
            done=done,
            group=self.group,
            anchor=self.anchor,
            executed=self.executing,
            unpredicted=self.unpredicted,
            unexecuted=self.unexecuted,
            real=real,
            predicted=predicted,
            real_total=self.real_total,
            predicted_total=self.predicted_total,
            spread=self.spread,
            outcome=outcome,
            clean=clean and not self.flawed,
            ended=ended,
        )
        return self.streams

    def state_dict(self) -> dict[str, Any]:
        """Return the episodes under way, JSON-able and exact."""
        arrays = {name: getattr(self, name).tolist() for name in _SAVED}
        for name in ("real_total", "predicted_total"):  # JSON has no NaN
            arrays[name] = [None if value != value else value for value in arrays[name]]
        return {"slots": self.n, "group_size": self.group_size, "next_group": self._next_group, **arrays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned.

        Raises:
            CheckpointError: If it was saved with another number of slots or another group size.
        """
        if (state["slots"], state["group_size"]) != (self.n, self.group_size):
            raise CheckpointError(
                f"the state was saved with {state['slots']} sub-environments in groups of {state['group_size']}, here "
                f"there are {self.n} in groups of {self.group_size}; make the environment as it was"
            )
        for name in _SAVED:
            setattr(self, name, np.array(state[name], dtype=getattr(self, name).dtype))
        self._recount()
        self._next_group = state["next_group"]
        self.streams = None
