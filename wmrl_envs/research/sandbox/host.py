"""The trusted side's hold on a zygote: start it, ask it for supervisors, notice its death, end it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

from wmrl_envs.errors import SandboxError
from wmrl_envs.research.sandbox.paths import unusual_folders

__all__ = ["Zygote"]

_SCRIPT = Path(__file__).with_name("zygote.py")
_START_SECONDS = 300.0
"""Longest wait for the libraries to be imported, in seconds; 1 to 3 on an idle machine."""
_PASSED_ON = ("LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "TZ")
"""Of the caller's environment: how shared libraries are found, and how OpenBLAS is tuned on this machine."""
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "MPLBACKEND": "Agg",
    "MALLOC_ARENA_MAX": "2",
    "LOKY_MAX_CPU_COUNT": "1",
    **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "BLIS", "VECLIB")},
}


class Zygote:
    """A running zygote. Thread-safe."""

    def __init__(self) -> None:
        """Start it and wait until it has imported the libraries.

        Raises:
            SandboxError: If it ends or says nothing.
        """
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = dict(_ENVIRONMENT)
        if folders := unusual_folders():
            environment["PYTHONPATH"] = ":".join(folders)
        environment |= {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        with tempfile.TemporaryFile() as said, theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-s", str(_SCRIPT), str(theirs.fileno())],
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # an interrupt at the terminal is for the trainer alone
            )
            theirs.close()
            self._wait_until_ready(said)

    def _wait_until_ready(self, said: IO[bytes]) -> None:
        self._requests.settimeout(_START_SECONDS)
        try:
            ready = self._requests.recv(16) == b"ready"
        except OSError:
            ready = False
        if not ready:
            self.close()
            said.seek(0)
            words = said.read()[-2000:].decode(errors="replace").strip()
            raise SandboxError(
                f"the process that solutions are forked from did not start: {words or 'it said nothing'}"
            )
        self._requests.settimeout(30.0)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def supervisor(self) -> socket.socket:
        """Return a connection to a fresh supervisor.

        Raises:
            SandboxError: If the zygote is gone.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._lock:
                socket.send_fds(self._requests, [b"f"], [theirs.fileno()])
        except OSError as error:
            ours.close()
            raise SandboxError(f"the process that solutions are forked from is gone ({error})") from error
        return ours

    def close(self) -> None:
        """End it; solutions that run end as well when their connections are closed."""
        self._requests.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
            return
        self._process.kill()
        self._process.wait()
