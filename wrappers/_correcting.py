"""Corrected rewards, episode by episode: the batched core of both ``CorrectionWrapper`` classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wmrl_envs.correction import alpha_ramp, episode_returns, scalar_return, turn_reward
from wmrl_envs.errors import CheckpointError, ConfigurationError
from wmrl_envs.wrappers._correction_state import CorrectionState, Snapshot
from wmrl_envs.wrappers._slots import Slots
from wmrl_envs.wrappers._streams import BoolArray, FloatArray, Mask, Streams, put

__all__ = ["CorrectingCore"]

_FROZEN = ("probability", "alpha", "trust", "group_trust", "weight", "group_weight", "mean")
_EPISODE = ("paid", "best")
_PENDING = ("has_next", "next_anchor", "next_probability")
_WAITING = ("waiting", "last_real", "last_calibrated", "last_spread", "last_anchor", "last_graded")


class CorrectingCore:
    """Draws the anchors of ``n`` slots, corrects their rewards, and hands what was learned to the shared state.

    Everything an episode is corrected with is frozen when it begins. Before its last turn an episode has paid lambda
    (or w) times its calibrated best so far; at the last it has paid its corrected return.

    Attributes:
        training: Whether anchors are drawn and anything is learned.
        probability: [n] with which the episode under way was drawn as an anchor; 1 where it was forced.
    """

    def __init__(self, slots: Slots, state: CorrectionState, *, training: bool) -> None:
        """Correct the episodes of ``slots`` by ``state``."""
        self._slots, self._state = slots, state
        self.n, self.group_size = slots.n, slots.group_size
        self.training = training
        n = self.n
        self.probability, self.alpha, self.mean = np.zeros(n), np.ones(n), np.zeros(n)
        self.trust, self.group_trust = np.ones(n), np.ones(n)
        self.weight, self.group_weight = np.ones(n), np.ones(n)
        self.paid, self.best = np.zeros(n), np.zeros(n)
        self.has_next, self.next_anchor = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        self.next_probability = np.zeros(n)
        self.waiting, self.last_anchor, self.last_graded = (np.zeros(n, np.bool_) for _ in range(3))
        self.last_real, self.last_calibrated, self.last_spread = np.zeros(n), np.zeros(n), np.zeros(n)
        self._snapshots: list[Snapshot] = [state.snapshot()]
        self._snapshot_of = np.zeros(n, np.intp)
        self._turns: list[tuple[int, FloatArray, FloatArray]] = []
        self._clock = 0
        self._first_turn = np.zeros(n, np.int64)
        self._marked_as: bool | None = None
        self._zeros, self._ones = np.zeros(n), np.ones(n)
        slots.predicting = not state.executes_everything
        slots.spreading = state.groups.bins is not None

    def draw_ahead(self, active: BoolArray) -> None:
        """Mark the next episodes of the slots that take a step ([n] bool), drawing those that are not drawn yet.

        Autoreset passes no options, so that an episode's kind has to be known before the step that ends the one before.
        """
        if self._marked_as is self.training:
            return  # nothing has begun since
        self._slots.recording = self.training
        if self.training:
            self._draw(active)
            self._slots.mark(active, self.next_anchor)
        else:
            self._slots.mark(active, np.full(self.n, self._state.executes_everything))
        self._marked_as = self.training if active.all() else None

    def begin(self, slots: BoolArray, forced: BoolArray | None = None, *, mark: bool = True) -> None:
        """Freeze the correction of episodes that begin.

        Args:
            slots: [n] bool, where episodes begin.
            forced: [n] bool, whether each is an anchor; ``None`` goes by the draw.
            mark: Whether to mark the episodes on the world model's slots, which then have to begin theirs afterwards;
                False where they have begun already, as ``draw_ahead`` marked them.

        Raises:
            ConfigurationError: If the scheme executes everything and an episode shall not be.
        """
        state = self._state
        if forced is not None:
            if state.executes_everything and not forced[slots].all():
                raise ConfigurationError(
                    f"options['anchor'] is False, but scheme {state.scheme.name!r} predicts nothing: leave it "
                    "out, or choose another scheme"
                )
            anchor, probability = forced, np.ones(self.n)
        elif self.training:
            self._draw(slots)
            anchor, probability = self.next_anchor, self.next_probability
            self.has_next = self.has_next & ~slots
        else:
            everything = state.executes_everything
            anchor, probability = np.full(self.n, everything), np.full(self.n, float(everything))
        if mark:
            self._slots.recording = self.training
            self._slots.mark(slots, anchor)
        weighted = state.scheme.weighted and forced is None  # an anchor forced by hand returns r as it is
        scalar = state.scalar
        # None of these arrays is ever written to: they are replaced, so that several may be one and the same.
        frozen = {
            "probability": probability,
            "alpha": self._alphas(probability),
            "mean": np.full(self.n, scalar.mean),
            "trust": np.full(self.n, scalar.lambda_),
            "group_trust": np.full(self.n, state.groups.lambda_),
            "weight": np.where(anchor, scalar.weight, 1.0) if weighted else self._ones,
            "group_weight": np.where(anchor, state.weighter.weight, 1.0) if weighted else self._ones,
            "paid": self._zeros,
            "best": self._zeros,
        }
        everywhere = bool(slots.all())
        if not everywhere:
            frozen = {name: np.where(slots, value, getattr(self, name)) for name, value in frozen.items()}
        vars(self).update(frozen)
        self._freeze(slots, everywhere)
        self._first_turn[slots] = self._clock
        self._marked_as = None

    def settle(self, streams: Streams) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Correct one step.

        Args:
            streams: The step, of the episodes that ``begin`` froze.

        Returns:
            [n] rewards, and by name the arrays [n] that go to info beside the streams (NaN is unknown).
        """
        rectified = self._state.scheme.rectified
        real, calibrated = streams.real_total, self._calibrate(streams.predicted_total)
        if not streams.clean:
            real = np.where(streams.executed & ~streams.unexecuted, real, np.nan)
            calibrated = np.where(streams.unpredicted, np.nan, calibrated)
        elif self._slots.summed:
            real = np.where(streams.executed, real, np.nan)
        if rectified:
            potential = self.trust * calibrated
        else:
            potential = self.weight * np.where(streams.anchor, real, calibrated)
        if not streams.ended.none:
            returns = self._returns(calibrated, real, streams)
            potential = returns if streams.ended.full else np.where(streams.done, returns, potential)
        rewards = turn_reward(potential, self.paid)
        if not streams.clean:
            rewards = np.where(streams.active, rewards, 0.0)
        self.paid = self.paid + rewards
        shown = self._shown(streams, calibrated)
        if self.training and self._slots.predicting:
            if self._pairs_by_turn:
                self._turns.append((self._clock, streams.predicted, streams.real))
            if not streams.ended.none:
                self._learn(streams, real, calibrated)
        self._clock += 1
        if self._slots.summed:
            self.best = np.where(streams.active & (calibrated == calibrated), calibrated, self.best)
        return rewards, shown

    def _returns(self, calibrated: FloatArray, real: FloatArray, streams: Streams) -> FloatArray:
        """Return what each episode pays in all ([n]), by the scheme."""
        fusion: dict[str, FloatArray] = {"mean": self.mean}
        if self._state.scheme.rectified:
            fusion |= {"lambda_": self.trust, "alpha": self.alpha, "probability": self.probability}
            if streams.clean:
                return scalar_return(calibrated, real, streams.anchor, **fusion)
        else:
            fusion["weight"] = self.weight
        return episode_returns(calibrated, real, streams.anchor, **fusion)[0]

    def frozen(self) -> dict[str, FloatArray]:
        """Return by name the frozen arrays [n] that go to info: of the episodes under way."""
        arrays = {"anchor_probability": self.probability}
        grouped = self.group_size > 1
        if self._state.scheme.rectified:
            arrays["lambda"] = self.group_trust if grouped else self.trust
            arrays["alpha"] = self.alpha
        else:
            arrays["weight"] = self.group_weight if grouped else self.weight
        return arrays

    def left_out(self, streams: Streams) -> BoolArray:
        """Return [n] bool, the episodes that no statistic and no group may use."""
        # A member that only execution graded has no place in a group whose statistics run over both streams.
        return streams.ungraded | streams.unpredicted if self.group_size > 1 else streams.ungraded

    def state_dict(self) -> dict[str, Any]:
        """Return the episodes under way, JSON-able and exact."""
        names = (*_FROZEN, *_EPISODE, *_PENDING, *_WAITING)
        used = sorted(set(self._snapshot_of.tolist()))
        return {
            **{name: getattr(self, name).tolist() for name in names},
            "snapshots": [self._snapshots[index].state_dict() for index in used],
            "snapshot_of": np.searchsorted(used, self._snapshot_of).tolist(),
            "turns": [[turn, _listed(x), _listed(y)] for turn, x, y in self._turns],
            "clock": self._clock,
            "first_turn": self._first_turn.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned, after the shared state and the world model's slots were loaded."""
        if len(state["paid"]) != self.n:
            raise CheckpointError(
                f"the state was saved with {len(state['paid'])} sub-environments, here there are {self.n}"
            )
        for name in (*_FROZEN, *_EPISODE, *_PENDING, *_WAITING):
            setattr(self, name, np.array(state[name], dtype=getattr(self, name).dtype))
        self._snapshots = [self._state.restored_snapshot(snapshot) for snapshot in state["snapshots"]]
        self._snapshot_of[:] = state["snapshot_of"]
        self._turns = [
            (turn, np.array(x, np.float64), np.array(y, np.float64)) for turn, x, y in state["turns"]
        ]  # None reads as NaN
        self._clock, self._first_turn[:] = state["clock"], state["first_turn"]
        self._marked_as = None

    def _draw(self, slots: BoolArray) -> None:
        """Draw the next episodes of some slots' groups that have none yet, all those groups in one draw."""
        wanted = slots & ~self.has_next
        if not wanted.any():
            return
        if wanted.all():
            anchor, probability = self._state.draw(self.n // self.group_size)
            self.next_anchor = np.repeat(anchor, self.group_size)
            self.next_probability = np.repeat(probability, self.group_size)
            self.has_next = wanted
            return
        blocks: BoolArray = np.any(wanted.reshape(-1, self.group_size), axis=1)
        anchor, probability = self._state.draw(int(blocks.sum()))
        self.next_anchor = np.where(wanted, _spread(anchor, blocks, self.group_size), self.next_anchor)
        self.next_probability = np.where(wanted, _spread(probability, blocks, self.group_size), self.next_probability)
        self.has_next = self.has_next | wanted

    def _alphas(self, probability: FloatArray) -> FloatArray:
        state = self._state
        if state.progress is None or state.ramp == 0.0:
            return self._ones
        values, inverse = np.unique(probability, return_inverse=True)
        return np.array([alpha_ramp(state.progress, float(pi), state.ramp) for pi in values])[inverse]

    def _freeze(self, slots: BoolArray, everywhere: bool) -> None:
        """Note which calibration the episodes that begin are corrected with, and drop those that no episode uses."""
        snapshot = self._state.snapshot()
        if everywhere:
            self._snapshots, self._snapshot_of = [snapshot], np.zeros(self.n, np.intp)
            return
        if self._snapshots[-1] is not snapshot:
            self._snapshots.append(snapshot)
        self._snapshot_of[slots] = len(self._snapshots) - 1
        if len(self._snapshots) > 1:
            used, self._snapshot_of = np.unique(self._snapshot_of, return_inverse=True)
            self._snapshots = [self._snapshots[index] for index in used]

    def _calibrate(self, predicted: FloatArray) -> FloatArray:
        """Return f of each slot's prediction ([n], NaN stays NaN), always a fresh array."""
        if len(self._snapshots) == 1:
            calibrated = self._snapshots[0].calibrate(predicted)
            return calibrated.copy() if calibrated is predicted else calibrated
        calibrated = predicted.copy()
        for index, snapshot in enumerate(self._snapshots):
            rows = self._snapshot_of == index
            calibrated[rows] = snapshot.calibrate(predicted[rows])
        return calibrated

    def _shown(self, streams: Streams, calibrated: FloatArray) -> dict[str, FloatArray]:
        turn = calibrated
        if not streams.ended.full:
            if self._slots.summed:
                # f maps sums: what a turn adds is the difference that it makes.
                turn = calibrated - self.best
            else:
                turn = self._calibrate(streams.predicted)
                if not streams.clean:
                    turn = np.where(streams.unpredicted, np.nan, turn)
            turn = streams.of_turn(calibrated, turn)
        shown = {"calibrated_reward": turn, "corrected_return": self.paid, **self.frozen()}
        if self.group_size > 1 and self._state.scheme.rectified and self._snapshots[0].fusion is not None:
            shown["lambda"] = self._binned_trust(streams.spread)
        return shown

    def _binned_trust(self, spread: FloatArray) -> FloatArray:
        trust = np.empty(self.n)
        for index, snapshot in enumerate(self._snapshots):
            rows = self._snapshot_of == index
            assert snapshot.fusion is not None
            trust[rows] = snapshot.fusion.lambda_for(spread[rows])
        return trust

    @property
    def _pairs_by_turn(self) -> bool:
        """Whether f is fitted on turns; where an episode's reward is a sum, it maps sums."""
        return self._state.scheme.pairs == "turn" and not self._slots.summed

    def _turn_pairs(self, anchors: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return the pairs of the turns of episodes that have just ended, episode by episode.

        That is the order in which single environments add theirs, and the calibration's window drops the oldest first.
        """
        rows = np.flatnonzero(anchors)
        turns = np.array([turn for turn, _, _ in self._turns])
        predicted = np.array([x[rows] for _, x, _ in self._turns]).T
        real = np.array([y[rows] for _, _, y in self._turns]).T
        known = (turns >= self._first_turn[rows][:, None]) & (predicted == predicted) & (real == real)
        return predicted[known], real[known]

    def _learn(self, streams: Streams, real: FloatArray, calibrated: FloatArray) -> None:
        """Learn from the episodes that ended, except those that are not graded by all that should have graded them."""
        graded = streams.done & ~streams.unpredicted & ~streams.unexecuted & (calibrated == calibrated)
        anchors = graded & streams.anchor
        if anchors.any():
            if self._pairs_by_turn:
                self._state.learn_pairs(*self._turn_pairs(anchors))
            else:
                self._state.learn_pairs(streams.predicted_total[anchors], real[anchors])
        if self._turns:
            first = self._first_turn[~streams.done].min(initial=self._clock + 1)
            self._turns = [turn for turn in self._turns if turn[0] >= first]
        self._state.learn_episodes(np.where(graded, calibrated, np.nan), np.where(anchors, real, np.nan), anchors)
        if self.group_size > 1:
            self._learn_groups(streams, real, calibrated, graded)

    def _learn_groups(self, streams: Streams, real: FloatArray, calibrated: FloatArray, graded: BoolArray) -> None:
        """Learn from the anchor groups of which the last member has ended."""
        done = streams.done
        shape = (-1, self.group_size)
        if streams.clean and streams.ended.full:  # nobody waits for anybody
            whole = streams.anchor.reshape(shape).all(axis=1)
            if whole.any():
                r, f, spread = (array.reshape(shape)[whole] for array in (real, calibrated, streams.spread))
                self._state.learn_groups(r, f, graded.reshape(shape)[whole], spread)
            return
        self.waiting |= done
        np.copyto(self.last_anchor, streams.anchor, where=done)
        np.copyto(self.last_graded, graded, where=done)
        # A saved state has no NaN: what is not graded is masked instead.
        np.copyto(self.last_real, np.where(graded & streams.anchor, real, 0.0), where=done)
        np.copyto(self.last_calibrated, np.where(graded, calibrated, 0.0), where=done)
        np.copyto(self.last_spread, streams.spread, where=done)
        complete = self.waiting.reshape(shape).all(axis=1)
        self.waiting &= ~np.repeat(complete, self.group_size)
        complete &= self.last_anchor.reshape(shape).all(axis=1)
        if complete.any():
            rows = [self.last_real, self.last_calibrated, self.last_spread]
            real, calibrated, spread = (array.reshape(shape)[complete] for array in rows)
            self._state.learn_groups(real, calibrated, self.last_graded.reshape(shape)[complete], spread)


def annotate(info: dict[str, Any], arrays: Mapping[str, FloatArray], slots: Mask, *, known: bool) -> None:
    """Add arrays [n] to ``info["wmrl"]`` of some slots.

    Args:
        info: Is added to.
        arrays: By name.
        slots: Which slots to tell about.
        known: Whether every value is known; otherwise NaN is left out.
    """
    for name, values in arrays.items():
        put(info, name, values, slots if known else slots & Mask(values == values))


def _listed(values: FloatArray) -> list[float | None]:
    """Return an array as JSON can hold it: NaN as None."""
    return [None if value != value else value for value in values.tolist()]


def _spread(values: Any, blocks: BoolArray, group_size: int) -> Any:
    """Return one value per chosen group as one per slot of all groups."""
    full = np.zeros(len(blocks), values.dtype)
    full[blocks] = values
    return np.repeat(full, group_size)
