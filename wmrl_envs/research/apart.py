"""Runs other people's code for a command that grades: confined once more, away from whatever the command knows.

This file is copied beside the command, whose script can ``from apart import run_apart``; it imports nothing of the
package. The command's sandbox holds the code and the command alike, so between the two of them this stands:

- ``private/`` is deleted before the code starts, and its process is a fresh interpreter, which inherits nothing;
- it writes to a folder of its own alone, so it leaves no module for the command to import, and changes no file that
  the command still reads;
- it can neither signal nor trace the command, and what it prints goes to the command as text, never to its output.

The second and the third point are held by Landlock; without it (``isolation="none"``, or namespaces in its place) the
code could write to the command's folder or end the command, which makes its submission invalid.

What the code prints is its own word. Send it the questions and compare its answers with what the command knows; never
let it run the comparison. Nor let an agent read ``output`` or ``problem`` of code that has seen the questions: it would
repeat them there. What keeps it from being imported is known, and can be told, from a run without questions.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

__all__ = ["Ended", "run_apart"]

_MOST_WORDS = 300
_HERE = os.getcwd()

_BOOT = """
import ctypes.util, os, resource, sys
seconds, paths = int(sys.argv[1]), sys.argv[2:]
sys.path[:] = paths
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
ctypes.util.find_library = lambda name: None  # it would start programs; the C library is loaded already
import landlockpy
from landlockpy import AccessFS, Scope
if landlockpy.abi_version():
    writing = (
        AccessFS.WRITE_FILE | AccessFS.REMOVE_DIR | AccessFS.REMOVE_FILE | AccessFS.MAKE_CHAR | AccessFS.MAKE_DIR
        | AccessFS.MAKE_REG | AccessFS.MAKE_SOCK | AccessFS.MAKE_FIFO | AccessFS.MAKE_BLOCK | AccessFS.MAKE_SYM
        | AccessFS.REFER | AccessFS.TRUNCATE
    )
    with landlockpy.Ruleset(handled_fs=writing, scoped=Scope.SIGNAL | Scope.ABSTRACT_UNIX_SOCKET) as ruleset:
        ruleset.allow_path(".", writing)
        ruleset.allow_path("/dev/null", AccessFS.WRITE_FILE)
        ruleset.restrict()
with open(".apart.py", encoding="utf-8") as file:
    program = compile(file.read(), "apart", "exec")
sys.argv[:] = ["apart"]
sys.path.insert(0, os.getcwd())
exec(program, {"__name__": "__main__", "__file__": ".apart.py"})
"""


class Ended(NamedTuple):
    """How a program ended."""

    output: str
    """What it printed to stdout: the word of the code that it ran."""
    problem: str
    """Why it did not end well, in a few words, which may be the code's own; empty if it did."""


def run_apart(program: str, stdin: str = "", *, seconds: float = 5.0) -> Ended:
    """Run a program, and the solution's code through it, in a process apart.

    Its working folder, from which it imports, holds a copy of ``submission/``.

    Args:
        program: Python source, such as one that imports the solution's module and prints what it returns, as JSON.
        stdin: What it reads from stdin.
        seconds: CPU seconds that it may take, rounded up to a whole number; four times that and five in wall time.
    """
    shutil.rmtree(os.path.join(_HERE, "private"), ignore_errors=True)
    libraries = [path for path in sys.path if os.path.isabs(path) and os.path.commonpath([path, _HERE]) != _HERE]
    whole = math.ceil(seconds)
    with tempfile.TemporaryDirectory(dir=_HERE, ignore_cleanup_errors=True) as folder:
        shutil.copytree(os.path.join(_HERE, "submission"), folder, dirs_exist_ok=True)
        with open(os.path.join(folder, ".apart.py"), "w", encoding="utf-8") as file:
            file.write(program)
        command = [sys.executable, "-I", "-B", "-c", _BOOT, str(whole), *libraries]
        environment = {**os.environ, "HOME": folder, "TMPDIR": folder, "PWD": folder}
        try:
            ended = subprocess.run(
                command,
                input=stdin.encode(),
                capture_output=True,
                cwd=folder,
                env=environment,
                timeout=4.0 * whole + 5.0,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ended("", "it ran too long")
    output = ended.stdout.decode("utf-8", "replace")
    if ended.returncode == 0:
        return Ended(output, "")
    said = ended.stderr.decode("utf-8", "replace").strip().split("\n")[-1].strip()
    return Ended(output, said[-_MOST_WORDS:] or f"it ended with exit code {ended.returncode}")
