"""Other people's code against strict isolation: it takes too much or stays too long, and must be ended."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from attacking import QUICK, all_failed, attack, needs_strict

from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Status
from wmrl_envs.research.sandbox.isolation import namespaces_problem
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.task import Limits, load_task

pytestmark = needs_strict


@pytest.mark.parametrize(
    "allocate",
    [
        "x = bytearray(4 * 2**30)",
        "import numpy as np; x = np.ones(2**29)",
        "x = [bytearray(2**24) for _ in range(256)]",
        "import mmap; x = mmap.mmap(-1, 4 * 2**30); x.write(bytes(4 * 2**30))",
        "import mmap\nx = [mmap.mmap(-1, 2**27) for _ in range(32)]\nfor m in x: m.write(bytes(2**27))",
    ],
)
def test_four_gigabytes_do_not_fit_into_one(strict: ProcessSandbox, public: Path, allocate: str) -> None:
    result = strict.run(allocate, public, Limits(seconds=10.0, memory_mb=1024, disk_mb=20))
    assert result.cause == "memory" or "Cannot allocate memory" in result.stderr, result


def test_memory_counts_over_children(strict: ProcessSandbox, public: Path) -> None:
    code = """
        import time
        for _ in range(6):
            if os.fork() == 0:
                held = bytearray(os.urandom(2**20) * 150)
                time.sleep(30)
                os._exit(0)
        time.sleep(30)
    """
    result = attack(strict, public, code, Limits(seconds=20.0, wall_seconds=100.0, memory_mb=400, processes=8))
    assert result.cause == "memory"


def test_children_that_share_memory_are_not_counted_twice(strict: ProcessSandbox, public: Path) -> None:
    code = """
        import time
        held = bytearray(os.urandom(2**20) * 100)
        for _ in range(4):
            if os.fork() == 0:
                time.sleep(0.3)
                os._exit(0)
        for _ in range(4): os.wait()
    """
    result = attack(strict, public, code, Limits(memory_mb=400, processes=4))
    assert result.cause == "ok", result


def test_two_hundred_forks(strict: ProcessSandbox, public: Path) -> None:
    code = """
        import multiprocessing, subprocess, threading
        for i in range(200): attempt(f"fork {i}", os.fork)
        attempt("spawn", os.posix_spawn, "/bin/true", ["true"], {})
        attempt("subprocess", subprocess.run, ["true"])
        attempt("process", multiprocessing.get_context("fork").Process(target=print).start)
        attempt("exec", os.execv, "/bin/true", ["true"])
        thread = threading.Thread(target=print, args=("threads work",)); thread.start(); thread.join()
    """
    result = attack(strict, public, code)
    assert result.stdout.endswith("threads work\n") and "SUCCEEDED" not in result.stdout
    bomb = "import os\nwhile True: os.fork()"
    result = strict.run(bomb, public, Limits(seconds=5.0, processes=3))
    assert (result.cause, result.message) == ("error", "Killed: the program started more than 3 other processes.")
    _, alive = psutil.wait_procs(psutil.Process(strict.zygote_pid).children(recursive=True), timeout=5)
    assert not alive  # the supervisor itself may take a moment


def test_the_allowance_for_processes_is_one(strict: ProcessSandbox, public: Path) -> None:
    code = """
        import subprocess, sys
        print(subprocess.check_output(["sh", "-c", "echo from a shell"], text=True).strip())
        print(subprocess.check_output([sys.executable, "-c", "print('from python')"], text=True).strip())
        attempt("answers", subprocess.run, ["cat", "input/../private/answers.csv"], check=True)
        child = subprocess.Popen(["sleep", "60"]); child.terminate(); print(child.wait())
    """
    result = attack(strict, public, code, Limits(processes=3))
    lines = ["from a shell", "from python", "answers failed CalledProcessError", "-15"]
    assert result.stdout.splitlines() == lines, result.stderr[-3000:]


def test_pools_of_processes_work_within_the_allowance(strict: ProcessSandbox, public: Path) -> None:
    if namespaces_problem():
        pytest.skip(f"semaphores of one's own are not possible here: {namespaces_problem()}")
    code = """
        import multiprocessing
        with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(abs, [-1, 2]))
        from joblib import Parallel, delayed
        print(Parallel(n_jobs=2, backend="multiprocessing")(delayed(abs)(i) for i in (-3, 4)))
        print(os.listdir("/dev/shm"))
        attempt("fill", lambda: open("/dev/shm/x", "wb").write(bytes(100 * 2**20)))
    """
    result = attack(strict, public, code, Limits(processes=8))
    assert result.cause == "ok", result.stderr
    assert result.stdout.splitlines()[:2] == ["[1, 2]", "[3, 4]"] and "fill failed OSError" in result.stdout
    assert not Path("/dev/shm/x").exists()


def test_ignoring_signals_does_not_help(strict: ProcessSandbox, public: Path) -> None:
    code = """
        import signal
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            try: signal.signal(number, signal.SIG_IGN)
            except OSError: pass
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        print(os.getpid(), flush=True)
        while True: pass
    """
    result = attack(strict, public, code, Limits(seconds=0.5))
    assert result.cause == "timeout"
    assert not psutil.pid_exists(int(result.stdout))


def test_a_stopped_program_ends(strict: ProcessSandbox, public: Path) -> None:
    result = strict.run("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", public, Limits(wall_seconds=0.5))
    assert result.cause == "timeout"


@pytest.mark.parametrize("ending", ["pass", "time.sleep(60)", "os.kill(os.getpid(), 9)", "1/0"])
def test_no_daemon_survives(strict: ProcessSandbox, public: Path, ending: str) -> None:
    code = f"""
        import signal, time
        if os.fork() == 0:
            attempt("session", os.setsid)
            attempt("group", os.setpgid, 0, 0)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            if os.fork() == 0:
                print("pid", os.getpid(), flush=True)
                while True: time.sleep(60)
            os._exit(0)
        os.wait()
        time.sleep(0.2)
        {ending}
    """
    result = attack(strict, public, code, Limits(wall_seconds=1.5, processes=3))
    pid = int(result.stdout.split("pid ")[1].split()[0])
    assert "SUCCEEDED" not in result.stdout
    assert not psutil.pid_exists(pid)
    expected = {"pass": "ok", "time.sleep(60)": "timeout"}.get(ending, "error")
    assert result.cause == expected


def test_sleepers_in_fore_and_background_end_at_the_limit(strict: ProcessSandbox, public: Path) -> None:
    code = "import subprocess; subprocess.run(['sh', '-c', 'sleep 61 & sleep 61'])"
    result = strict.run(code, public, Limits(wall_seconds=2.0, processes=4))
    assert result.cause == "timeout" and 2.0 <= result.seconds < 30.0
    assert not [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", "61"]]


def test_a_gigabyte_of_output_fills_nothing(strict: ProcessSandbox, public: Path) -> None:
    code = "import os\nfor _ in range(1024): os.write(1, bytes(2**20))\nos.write(2, b'done')"
    result = strict.run(code, public, Limits(seconds=20.0, wall_seconds=60.0, output_kb=16))
    assert (result.cause, result.stderr) == ("ok", "done")
    assert len(result.stdout) < 17_000


@pytest.mark.parametrize(
    "write",
    [
        "f = open('big', 'wb')\nwhile True: f.write(bytes(2**20))",
        "import os\nfd = os.open('big', os.O_RDWR | os.O_CREAT)\nos.posix_fallocate(fd, 0, 5 * 2**30)",
        "for i in range(5120): open(f'file{i}', 'wb').write(bytes(2**20))",
        "import os\nfor i in range(500): os.mkdir('d'); os.chdir('d'); open('f', 'wb').write(bytes(2**20))",
        "import os\nwhile True: os.mkdir('d' * 250); os.chdir('d' * 250); open('f', 'wb').write(bytes(2**18))",
        "import os\nkept = []\nfor i in range(200):\n"
        "    kept.append(open('gone', 'wb')); kept[-1].write(bytes(2**20)); kept[-1].flush(); os.unlink('gone')\n"
        "import time; time.sleep(30)",
        "import os\nfor i in range(200): os.posix_fallocate(os.open(f'{i}', os.O_RDWR | os.O_CREAT), 0, 15 * 2**20)",
        "import os\nos.mkdir('m')\nfor i in range(10**6): open(f'm/{i}', 'w').close()",
    ],
)
def test_disk_floods_stop_at_the_cap(strict: ProcessSandbox, public: Path, write: str) -> None:
    # Making files may cost more CPU than it writes, on a slow disk: the limit of seconds must not come first.
    result = strict.run(write, public, dataclasses.replace(QUICK, seconds=20.0, wall_seconds=60.0))
    assert result.cause == "disk", result
    assert strict._folder is not None and not list(strict._folder.glob("run-*"))


def test_exit_one_is_a_runtime_error_and_an_allocation_is_memory(strict: ProcessSandbox, write_task) -> None:
    task = load_task(write_task(limits={"seconds": 3, "memory_mb": 256}))
    codes = ["raise SystemExit(1)", "x = bytearray(2 * 2**30)"]
    outcomes = strict.grade([Submission(task, code) for code in codes])
    assert [outcome.status for outcome in outcomes if outcome] == [Status.RUNTIME_ERROR, Status.MEMORY]


@pytest.mark.parametrize(
    "report",
    [
        b'{"type": "' + b"A" * 3000 + b'", "line": 10000000, "memory": 1, "failure": "harness"}',
        b'{"type": "Two words", "line": true}',
        b'{"type": "Fine", "line": -3}'.replace(b"Fine", b"[]"),
        b"[" * 2000,
        b"[" * 900 + b"]" * 900,
        b"\xff" * 100_000,
    ],
)
def test_a_forged_report_decides_nothing(strict: ProcessSandbox, public: Path, report: bytes) -> None:
    zygote = strict.zygote_pid
    result = attack(strict, public, f"os.write(3, {report!r}); os._exit(1)")
    assert (result.cause, result.exit_code, result.error_type, result.error_line) == ("error", 1, None, None)
    assert strict.zygote_pid == zygote


def test_threads_are_bounded_and_cannot_hide(strict: ProcessSandbox, public: Path) -> None:
    many = """
        import threading, time
        threading.stack_size(32768)
        while True: threading.Thread(target=time.sleep, args=(60,)).start()
    """
    headless = """
        import threading, time
        threading.Thread(target=time.sleep, args=(60,)).start()
        libc.syscall(60, 0)
    """
    for code in (many, headless) if os.uname().machine == "x86_64" else (many,):
        result = attack(strict, public, code)
        assert (result.cause, "too many threads" in result.message) == ("error", True), result
    # a thread that does not share its open files: CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD
    if os.uname().machine == "x86_64":
        all_failed(attack(strict, public, "syscall('own files', 56, 0x10B00, 0, 0, 0, 0)"), 1)


def test_processor_time_of_children_that_nobody_waits_for_counts(strict: ProcessSandbox, public: Path) -> None:
    code = """
        import signal, time
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for _ in range(20):
            if os.fork() == 0:
                while time.process_time() < 0.2: pass
                os._exit(0)
            try: os.wait()
            except OSError: pass
    """
    result = attack(strict, public, code, Limits(seconds=1.0, wall_seconds=200.0, processes=2))
    assert result.cause == "timeout" and "CPU" in result.message


def test_the_submission_is_read_after_everything_ended(strict: ProcessSandbox, public: Path) -> None:
    """A process that swaps the file for a link while it is read does not exist any more."""
    code = """
        if os.fork() == 0:
            while True:
                try:
                    os.symlink(os.path.realpath("input") + "/../private/answers.csv", "link")
                    os.replace("link", "submission.csv")
                    open("plain", "w").write("id,y\\n")
                    os.replace("plain", "submission.csv")
                except OSError: pass
        import time; time.sleep(0.3)
    """
    for _ in range(3):
        result = attack(strict, public, code, Limits(processes=1))
        assert result.cause == "ok" and b"SECRET" not in (
            result.submission if isinstance(result.submission, bytes) else b""
        )


TRAINER = """
import os, sys, threading, time
from wmrl_envs.research.sandbox.isolation import namespaces_problem
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.task import Limits

sandbox = ProcessSandbox(isolation="strict")
code = "import os, time\\nif os.fork(): open('up', 'w').close()\\ntime.sleep(100)"
threading.Thread(target=sandbox.run, args=(code, sys.argv[1], Limits(processes=1))).start()
while sandbox._folder is None or not list(sandbox._folder.glob("*/up")):
    time.sleep(0.05)
print(sandbox.zygote_pid, sandbox._folder, flush=True)
time.sleep(100)
"""


def test_a_killed_trainer_leaves_nothing_alive(public: Path) -> None:
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER, str(public)], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    zygote, folder = trainer.stdout.readline().split()
    processes = [psutil.Process(int(zygote)), *psutil.Process(int(zygote)).children(recursive=True)]
    assert len(processes) == 4  # zygote, supervisor, solution, its child
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    trainer.stdout.close()
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not alive
    assert not Path(folder).exists()
