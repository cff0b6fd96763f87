"""What the single and the vector ``CorrectionWrapper`` share: settings, state, the way to the world model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from wmrl_envs.correction import Ledger, Scale
from wmrl_envs.errors import ConfigurationError
from wmrl_envs.wrappers._correcting import CorrectingCore
from wmrl_envs.wrappers._correction_state import CorrectionState
from wmrl_envs.wrappers._sharing import environment_key, settings_key, share
from wmrl_envs.wrappers._turn import GradedTurn

__all__ = ["CorrectionBase", "find_world_model_wrapper"]

W = TypeVar("W")


def find_world_model_wrapper(env: Any, kind: type[W], module: str) -> W:
    """Return the ``WorldModelWrapper`` (of class ``kind``) among the wrappers of ``env``.

    Raises:
        ConfigurationError: If there is none, or ``env`` is already corrected.
    """
    layer = env
    while True:
        if isinstance(layer, kind):
            return layer
        if isinstance(layer, CorrectionBase):
            raise ConfigurationError(f"{env} is corrected already; one CorrectionWrapper is enough")
        if layer is layer.unwrapped or not hasattr(layer, "env"):
            raise ConfigurationError(
                f"CorrectionWrapper corrects the predictions of a WorldModelWrapper, and {env} has none. Wrap "
                "in this order:\n"
                f"    from {module} import CorrectionWrapper, WorldModelWrapper\n"
                "    env = WorldModelWrapper(env, world_model)\n"
                "    env = CorrectionWrapper(env, anchor_fraction=0.1)"
            )
        layer = layer.env


class _WorldModelWrapper(Protocol):
    core: Any
    shared: Any

    @property
    def ledger(self) -> Ledger: ...
    @property
    def last_turn(self) -> GradedTurn | None: ...

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class CorrectionBase:
    """Settings, state and the calls between steps of ``CorrectionWrapper``, single and vector alike."""

    correction: CorrectionState
    """What the wrappers of the run share."""

    def _set_up(self, env: Any, below: _WorldModelWrapper, *, run: str, training: bool, **settings: Any) -> None:
        self._below = below

        def build() -> CorrectionState:
            return CorrectionState(**settings)

        # The ledger's identity stands for the world model: another world model is another correction.
        key = ("correction", environment_key(env), settings_key({**settings, "below": id(below.shared)}), run)
        self.correction = share(key, build)
        self._core = CorrectingCore(below.core, self.correction, training=training)

    @property
    def training(self) -> bool:
        """Whether anchors are drawn and the correction learns; may be set at any time."""
        return self._core.training

    @training.setter
    def training(self, value: bool) -> None:
        self._core.training = bool(value)

    @property
    def ledger(self) -> Ledger:
        """What the run executed and predicted, and what it cost."""
        return self._below.ledger

    @property
    def world_model(self) -> Any:
        """The world model of the run."""
        return self._below.shared.predictor.model

    @property
    def last_turn(self) -> GradedTurn | None:
        """What the last turn submitted, with predicted and real outcomes; ``None`` where nothing is graded."""
        return self._below.last_turn

    @property
    def scale(self) -> Scale:
        """How a group-aware agent is to bring each stream to its group's scale."""
        return self.correction.groups.scale

    def set_progress(self, fraction: float) -> None:
        """Tell how far training has come, for the ramp of alpha; episodes that begin from now on go by it.

        Args:
            fraction: In [0, 1].

        Raises:
            ConfigurationError: If it is outside [0, 1].
        """
        if not 0.0 <= fraction <= 1.0:
            raise ConfigurationError(f"the progress of training must be in [0, 1], got {fraction!r}")
        self.correction.progress = float(fraction)

    def metrics(self) -> dict[str, float | int | None]:
        """Return numbers for a log: the ledger's, what the fusion has come to, and the pairs of the calibration.

        ``lambda`` (or ``weight``, where the scheme weighs anchors) is the one that episodes of this environment begin
        with now; ``None`` is unknown.
        """
        state, grouped = self.correction, self._core.group_size > 1
        numbers = {**self.ledger.summary(), "pairs": state.debiaser.num_pairs}
        if state.scheme.rectified:
            numbers["lambda"] = state.groups.lambda_ if grouped else state.scalar.lambda_
        elif state.scheme.weighted:
            numbers["weight"] = state.weighter.weight if grouped else state.scalar.weight
        return numbers

    def calibration(self) -> dict[str, Any]:
        """Return the calibration's pairs, oldest first, and its knots, as lists of predicted and real rewards."""
        names = ("predicted", "real")
        pairs, knots = self.correction.debiaser.pairs, self.correction.debiaser.knots
        return {
            **{name: axis.tolist() for name, axis in zip(names, pairs, strict=True)},
            "knots": {name: axis.tolist() for name, axis in zip(names, knots, strict=True)},
        }

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a run needs to go on exactly, JSON-able.

        It holds the correction, its draws, the ledger, the world model's state and the episodes under way, and not the
        environment's own state: save ``env.unwrapped`` beside it.
        """
        return {
            "correction": self.correction.state_dict(),
            "episodes": self._core.state_dict(),
            "world_model_wrapper": self._below.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned; the other wrappers of the run see the shared part too.

        Raises:
            CheckpointError: If the state was saved under other settings, or with another number of sub-environments.
        """
        self._below.load_state_dict(state["world_model_wrapper"])
        self.correction.load_state_dict(state["correction"])
        self._core.load_state_dict(state["episodes"])
