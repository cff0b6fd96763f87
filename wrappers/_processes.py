"""Which process a correction lives in: shared state cannot reach the sub-environments of another process."""

from __future__ import annotations

import os
import sys

from wmrl_envs.errors import ConfigurationError

__all__ = ["ProcessGuard"]

_WORKER_MODULES = ("async_vector_env", "subproc_vec_env")
"""Modules whose worker function builds one sub-environment in a process of its own."""


class ProcessGuard:
    """Remembers the process that built a wrapper, and refuses to serve another one.

    A wrapper that is copied to a worker, or built inside one, would correct the few episodes that it sees there with a
    calibration, a lambda and a ledger of its own. The refusal comes at the first ``reset`` or ``step``, whose errors
    Gymnasium's ``AsyncVectorEnv`` hands on to the caller; one in a constructor would only break the pipe.
    """

    def __init__(self, owner: str) -> None:
        """Remember this process.

        Args:
            owner: Class name of the wrapper, for the message.
        """
        self._owner = owner
        self._pid = os.getpid()
        self._worker = _inside_worker()

    def check(self) -> None:
        """Raise ``ConfigurationError`` unless this is the building process, and no worker."""
        if self._worker or os.getpid() != self._pid:
            raise self.error()

    def error(self) -> ConfigurationError:
        """Return the error that names the way out."""
        return ConfigurationError(
            f"{self._owner} shares its calibration, anchors and ledger within one process, so it cannot wrap the "
            "sub-environments of a SubprocVecEnv or an AsyncVectorEnv. Use the batched environment instead, which "
            "executes in parallel anyway: gymnasium.make_vec('wmrl/ResearchDesignWMRL-v0', num_envs=..., "
            "vectorization_mode='vector_entry_point') (with wmrl_envs.agents.SB3VecEnv for stable-baselines3), wrap "
            "the vector environment with wmrl_envs.wrappers.vector, or keep the sub-environments in this process "
            "(SyncVectorEnv, DummyVecEnv)"
        )


def _inside_worker() -> bool:
    """Return whether a worker function of a multi-process vector environment is on the call stack."""
    frame = sys._getframe(1)
    while frame is not None:
        if (
            frame.f_globals.get("__name__", "").rpartition(".")[2] in _WORKER_MODULES
            and "worker" in frame.f_code.co_name
        ):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
