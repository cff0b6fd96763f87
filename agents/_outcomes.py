"""What a batch of turns came to, as numbers for a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from wmrl_envs.research.outcome import Outcome, Prediction, Status

__all__ = ["status_shares"]


def status_shares(outcomes: Iterable[Outcome | None]) -> dict[str, float]:
    """Return shares of turns by status, and of valid ones among those executed and among those predicted.

    Args:
        outcomes: Of each turn the executed outcome or else the predicted one; ``None`` is unknown and left out.

    Returns:
        ``status/<status>``, ``valid_real`` and ``valid_predicted``; what no turn can tell is not in it.
    """
    known = [outcome for outcome in outcomes if outcome is not None]
    counts = Counter(outcome.status for outcome in known)
    shares = {f"status/{status}": count / len(known) for status, count in counts.items()}
    for name, predicted in (("valid_predicted", True), ("valid_real", False)):
        chosen = [outcome.status is Status.VALID for outcome in known if isinstance(outcome, Prediction) is predicted]
        if chosen:
            shares[name] = sum(chosen) / len(chosen)
    return shares
