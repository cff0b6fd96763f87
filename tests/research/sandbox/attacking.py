"""Code that attacks the sandbox from inside, and what says that it failed."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from wmrl_envs.research.execution import RunResult
from wmrl_envs.research.sandbox.isolation import probe
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.task import Limits

needs_strict = pytest.mark.skipif(
    not probe().strict, reason=f"strict isolation is not possible here: {probe().problems}"
)

QUICK = Limits(seconds=2.0, wall_seconds=20.0, memory_mb=512, disk_mb=20)

TRY = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, function, *arguments, **named):
    try:
        print(name, "SUCCEEDED", function(*arguments, **named), flush=True)
    except BaseException as error:
        print(name, "failed", type(error).__name__, flush=True)
def syscall(name, number, *arguments):
    result = libc.syscall(number, *arguments)
    print(name, "SUCCEEDED" if result >= 0 else "failed " + errno.errorcode[ctypes.get_errno()], flush=True)
"""


def attack(strict: ProcessSandbox, public: Path, code: str, limits: Limits = QUICK) -> RunResult:
    return strict.run(TRY + textwrap.dedent(code), public, limits)


def all_failed(result: RunResult, count: int) -> None:
    lines = result.stdout.splitlines()
    assert result.cause == "ok", result.stderr
    assert "SUCCEEDED" not in result.stdout, result.stdout
    assert len(lines) == count, result.stdout
