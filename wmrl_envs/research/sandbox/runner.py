"""The process of one solution: confines itself, then behaves as ``python solution.py`` would.

This module imports nothing of the package: the zygote loads it by path.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import importlib
import io
import json
import os
import platform
import random
import resource
import signal
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping
from typing import Any, NoReturn

from . import confine, namespaces, seccomp

__all__ = ["FILE_NAME", "run_solution"]

FILE_NAME = "solution.py"
_DISK_ERRORS = (errno.EFBIG, errno.ENOSPC, errno.EDQUOT)


def run_solution(request: Mapping[str, Any], out: int, err: int, report: int, setup: int, supervisor: int) -> NoReturn:
    """Turn this freshly forked process into the solution's and end it.

    Args:
        request: What the trusted side sent: code, scratch, limits, seed, layers, paths.
        out: Pipe that becomes stdout.
        err: Pipe that becomes stderr.
        report: Pipe for what the program says about its own end (untrusted).
        setup: Pipe that says whether the process is confined; closed before other people's code runs.
        supervisor: Process id of the parent.
    """
    code = 1
    try:
        report, setup = _arrange_descriptors(out, err, report, setup)
        try:
            memory = _confine(request, supervisor)
            message = {"cpu": _cpu_seconds(), "memory": memory}
        except BaseException as error:
            os.write(setup, json.dumps({"failure": f"{type(error).__name__}: {error}"[:500]}).encode())
            os._exit(1)
        os.write(setup, json.dumps(message).encode())
        os.close(setup)
        code = _execute(str(request["code"]), report)
    finally:
        os._exit(code)


def _arrange_descriptors(out: int, err: int, report: int, setup: int) -> tuple[int, int]:
    """Keep six open files and no other: 0-2, the report pipe as 3 and the setup pipe as 4."""
    high = [os.dup2(fd, 100 + i) for i, fd in enumerate((out, err, report, setup))]
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    for target, fd in zip((1, 2, 3, 4), high, strict=True):
        os.dup2(fd, target, inheritable=target < 3)
    os.closerange(5, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return 3, 4


def _confine(request: Mapping[str, Any], supervisor: int) -> dict[str, int]:
    """Give up everything that the solution shall not have, and return the memory in use before it starts."""
    layers, limits = request["layers"], request["limits"]
    os.setsid()  # one process group for the whole tree, which is killed by one signal
    os.umask(0o077)
    _prepare_interpreter(request)
    memory = confine.memory_now()
    confine.prefer_as_oom_victim()
    may_start = int(limits["processes"]) > 0
    paths = [tuple(pair) for pair in request["paths"]]
    if layers["namespaces"]:
        namespaces.enter(paths, request["stage"], shared_memory=request["shared_memory"])
    elif request["shared_memory"]:
        namespaces.have_own_shared_memory()
        paths.append(("/dev/shm", "scratch"))
    os.chdir(request["scratch"])
    confine.die_with_parent(supervisor)  # a new user namespace would undo it
    if layers["landlock"] or layers["namespaces"] or layers["seccomp"]:
        confine.drop_capabilities(keep_reading=bool(layers["landlock"] or layers["namespaces"]))
    if layers["landlock"]:
        confine.restrict_files(paths)
    confine.limit_resources(limits, memory)
    if layers["seccomp"]:
        abi = int(layers["landlock"])
        seccomp.install(
            seccomp.assemble(platform.machine(), os.getpid(), processes=may_start, scoped=abi >= 6, truncate=abi >= 3)
        )
    return memory


def _prepare_interpreter(request: Mapping[str, Any]) -> None:
    """Make the interpreter look freshly started in the scratch folder, with seeded generators."""
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN if number == signal.SIGPIPE else signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    scratch = str(request["scratch"])
    os.environ.update(HOME=scratch, TMPDIR=scratch, PWD=scratch)
    tempfile.tempdir = None
    sys.argv = [FILE_NAME]
    sys.path.insert(0, scratch)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), encoding="utf-8", errors="replace")
    sys.stderr = io.TextIOWrapper(
        open(2, "wb", closefd=False), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    _seed(int(request["seed"]))
    if int(request["limits"]["processes"]) == 0:
        _run_jobs_in_process()


def _seed(seed: int) -> None:
    """Seed the generators that a program uses when it does not seed its own, ``default_rng()`` among them."""
    random.seed(seed)
    with contextlib.suppress(ImportError, AttributeError):
        numpy_random = importlib.import_module("numpy.random")
        numpy_random.seed(seed % 2**32)
        entropy = random.Random(seed)
        setattr(importlib.import_module("numpy.random.bit_generator"), "randbits", entropy.getrandbits)  # noqa: B010


def _run_jobs_in_process() -> None:
    """Have joblib run jobs one after another where no process may be started: ``n_jobs=2`` then works."""
    for name in ("joblib._multiprocessing_helpers", "joblib._parallel_backends", "joblib.parallel"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "mp"):
            module.mp = None  # type: ignore[attr-defined]


def _execute(source: str, report: int) -> int:
    """Run the program as the main module and return its exit code."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=FILE_NAME, __builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = main
    code = 0
    try:
        exec(compile(source, FILE_NAME, "exec", dont_inherit=True), main.__dict__)
    except BaseException as error:
        confine.spare_memory()
        code = _show(error, report)
        del error
    return _finish(main, code)


def _show(error: BaseException, report: int) -> int:
    """Print an uncaught exception as the interpreter would, report it, and return the exit code."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    shown = error.__traceback__
    while shown is not None and shown.tb_frame.f_code.co_filename != FILE_NAME:
        shown = shown.tb_next
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) and shown is None else None
    step = shown
    while step is not None:
        if step.tb_frame.f_code.co_filename == FILE_NAME:
            line = step.tb_lineno
        step = step.tb_next
    said = {
        "type": type(error).__name__,
        "line": line,
        "memory": isinstance(error, MemoryError),
        "disk": isinstance(error, OSError) and error.errno in _DISK_ERRORS,
    }
    with contextlib.suppress(OSError):
        os.write(report, json.dumps(said).encode()[:2048])
    error.__traceback__ = shown
    try:
        if sys.excepthook is sys.__excepthook__:
            traceback.print_exception(type(error), error, shown)
        else:
            sys.excepthook(type(error), error, shown)
    except BaseException:
        with contextlib.suppress(BaseException):
            print(f"{type(error).__name__}", file=sys.stderr)
    return 1


def _finish(main: types.ModuleType, code: int) -> int:
    """Do what an interpreter does at its end: wait for threads, run exit handlers, close what is still open."""
    steps = (
        threading._shutdown,  # type: ignore[attr-defined]
        atexit._run_exitfuncs,
        main.__dict__.clear,
        gc.collect,
        sys.stdout.flush,
        sys.stderr.flush,
    )
    for step in steps:
        try:
            step()
        except BaseException:
            if step is sys.stdout.flush:
                code = code or 120  # the interpreter's own code for output that could not be written
    return code


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
