"""Other people's code against strict isolation: each attack is made for real and must fail."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from wmrl_envs.research.execution import RunResult
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Status
from wmrl_envs.research.sandbox.isolation import probe
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.task import Limits, load_task

pytestmark = pytest.mark.skipif(not probe().strict, reason=f"strict isolation is not possible here: {probe().problems}")

QUICK = Limits(seconds=2.0, wall_seconds=5.0, memory_mb=512, disk_mb=20)

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


@pytest.fixture(scope="module")
def strict() -> Iterator[ProcessSandbox]:
    os.environ["WMRL_TEST_SECRET"] = "TRAINER-SECRET"
    with ProcessSandbox(isolation="strict", workers=1) as made:
        yield made
    del os.environ["WMRL_TEST_SECRET"]


def attack(strict: ProcessSandbox, public: Path, code: str, limits: Limits = QUICK) -> RunResult:
    return strict.run(TRY + textwrap.dedent(code), public, limits)


def all_failed(result: RunResult, count: int) -> None:
    lines = result.stdout.splitlines()
    assert result.cause == "ok", result.stderr
    assert "SUCCEEDED" not in result.stdout, result.stdout
    assert len(lines) == count, result.stdout


def test_no_network(strict: ProcessSandbox, public: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as named:
        named.bind("\0wmrl-test-abstract")
        named.listen()
        server.settimeout(0.2)
        named.settimeout(0.2)
        code = f"""
            import socket, urllib.request
            attempt("loopback", socket.create_connection, ("127.0.0.1", {server.getsockname()[1]}), 1)
            attempt("outside", socket.create_connection, ("1.1.1.1", 53), 1)
            attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)))
            attempt("raw", socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
            attempt("netlink", socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 0)
            attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0wmrl-test-abstract"))
            attempt("http", urllib.request.urlopen, "http://127.0.0.1:{server.getsockname()[1]}/", None, 1)
            attempt("listen", socket.create_server, ("127.0.0.1", 0))
        """
        all_failed(attack(strict, public, code), 8)
        for listening in (server, named):
            with pytest.raises(TimeoutError):
                listening.accept()


def test_private_answers_stay_private(strict: ProcessSandbox, public: Path) -> None:
    code = """
        import mmap, shutil, subprocess
        private = os.path.realpath("input") + "/../private/answers.csv"
        read = lambda path: open(path).read()
        attempt("real", read, private)
        attempt("relative", read, "input/../private/answers.csv")
        attempt("root", read, "/proc/self/root" + os.path.normpath(private))
        attempt("cwd", read, "/proc/self/cwd/input/../private/answers.csv")
        attempt("list", os.listdir, os.path.dirname(private))
        attempt("parent", os.listdir, os.path.realpath("input") + "/..")
        attempt("copy", shutil.copy, private, "copy.csv")
        os.symlink(private, "link.csv")
        attempt("symlink", read, "link.csv")
        attempt("hardlink", os.link, private, "hard.csv")
        attempt("rename", os.rename, private, "moved.csv")
        attempt("rename folder", os.rename, os.path.realpath("input") + "/../private", "moved")
        attempt("append", open, private, "a")
        attempt("truncate", os.truncate, private, 0)
        attempt("open by path handle", os.open, private, os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
        attempt("chdir", lambda: (os.chdir(os.path.dirname(private)), read("answers.csv")))
        attempt("exec", os.execv, "/bin/cat", ["cat", private])
        attempt("program", subprocess.run, ["cat", private])
    """
    result = attack(strict, public, code)
    all_failed(result, 17)
    assert "SECRET" not in result.stdout + result.stderr
    assert (public.parent / "private" / "answers.csv").read_text() == "id,y\n3,SECRET-ANSWER\n"


def test_bundled_answers_stay_private_wherever_the_package_lies(strict: ProcessSandbox, public: Path) -> None:
    task = load_task("titanic")
    code = f"""
        attempt("answers", open, {str(task.folder / "private" / "answers.csv")!r})
        attempt("board", open, {str(task.folder / "leaderboard.json")!r})
        attempt("package", __import__, "wmrl_envs")
    """
    all_failed(attack(strict, public, code), 3)
    all_failed(attack(strict, task.public, code), 3)


def test_the_trainer_stays_closed(strict: ProcessSandbox, public: Path) -> None:
    trainer, zygote = os.getpid(), strict.zygote_pid
    code = f"""
        for pid in ({trainer}, {zygote}, os.getppid(), 1):
            for name in ("environ", "mem", "maps", "cmdline", "status", "fd/0", "root/etc/passwd", "cwd"):
                attempt(f"{{pid}}/{{name}}", lambda: open(f"/proc/{{pid}}/{{name}}", "rb").read(64))
            attempt(f"{{pid}}/fd", os.listdir, f"/proc/{{pid}}/fd")
            syscall("ptrace attach", 101, 16, pid, 0, 0)
            syscall("ptrace seize", 101, 0x4206, pid, 0, 0)
            buffer = ctypes.create_string_buffer(64)
            syscall("process_vm_readv", 310, pid, buffer, 1, buffer, 1, 0)
            syscall("pidfd_getfd", 438, 0, 0, 0)
        attempt("proc", os.listdir, "/proc")
        attempt("own memory", open, "/proc/self/mem", "r+b")
        attempt("own environment", open, "/proc/self/environ")
    """
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers of the calls are those of x86_64")
    all_failed(attack(strict, public, code), 4 * 13 + 3)


def test_nothing_of_the_trainer_is_inherited(strict: ProcessSandbox, public: Path) -> None:
    """The trainer's environment, its open files, and the path of private data are not in the solution's memory."""
    code = """
        import gc, stat
        print([fd for fd in range(1000) if libc.fcntl(fd, 1) >= 0])
        print(stat.S_ISFIFO(os.fstat(3).st_mode), os.readlink("input"))
        seen, waiting, texts = set(), gc.get_objects() + [sys._getframe(), os.environ], []
        while waiting:
            thing = waiting.pop()
            if id(thing) in seen: continue
            seen.add(id(thing))
            if isinstance(thing, (str, bytes)): texts.append(thing if isinstance(thing, str) else thing.decode("latin-1"))
            waiting += gc.get_referents(thing)
        needles = [word[::-1] for word in ("TERCES-RENIART", "REWSNA-TERCES", "vsc.srewsna/etavirp", "TERCES_TSET_LRMW")]
        print([needle for needle in needles if any(needle in text for text in texts)], len(texts) > 10000)
    """
    result = attack(strict, public, code, Limits(seconds=20.0))
    assert result.stdout == f"[0, 1, 2, 3]\nTrue input\n[] True\n", result.stderr


def test_home_and_system_files_stay_closed(strict: ProcessSandbox, public: Path) -> None:
    code = f"""
        for path in ("/etc/passwd", "/etc/shadow", "/etc/hosts", {__file__!r}, {os.path.expanduser("~/.bashrc")!r},
                     "/var/log/dpkg.log", "/proc/self/mountinfo", "/sys/kernel/mm/transparent_hugepage/enabled"):
            attempt(path, lambda: open(path).read())
        for path in ("/", "/etc", {os.path.expanduser("~")!r}, "/tmp", "/dev", "/dev/shm", "/home", "/var", "/sys", ".."):
            attempt(path, os.listdir, path)
    """
    all_failed(attack(strict, public, code), 18)


def test_nothing_is_written_outside_the_scratch_folder(strict: ProcessSandbox, public: Path, tmp_path: Path) -> None:
    target = tmp_path / "victim"
    target.mkdir()
    (target / "file").write_text("untouched")
    (target / "file").chmod(0o640)
    before = {path: (path.stat().st_mode, path.stat().st_mtime_ns) for path in [*target.iterdir(), *public.iterdir()]}
    code = f"""
        victim, public = {str(target)!r}, os.path.realpath("input")
        for path in ("/tmp/wmrl-escape", "/dev/shm/wmrl-escape", "/var/tmp/wmrl-escape", victim + "/new", victim + "/file",
                     public + "/new.csv", public + "/train.csv", "input/train.csv", "../escape", "/dev/full"):
            attempt(path, open, path, "a")
        attempt("mkdir", os.mkdir, victim + "/folder")
        attempt("unlink", os.unlink, "input/train.csv")
        attempt("rename", os.rename, "input/train.csv", "input/other.csv")
        attempt("rename out", os.rename, "solution.py", "../solution.py")
        attempt("link out", os.link, "solution.py", victim + "/link")
        attempt("symlink out", os.symlink, "x", victim + "/link")
        attempt("truncate", os.truncate, victim + "/file", 0)
        attempt("device", os.mknod, "device", 0o600 | 0o060000, os.makedev(254, 0))
        attempt("xattr", os.setxattr, victim + "/file", "user.x", b"x")
        attempt("chroot", os.chroot, ".")
        # these claim success and do nothing
        os.chmod(victim + "/file", 0o777); os.utime(victim + "/file", (0, 0)); os.chown(victim + "/file", 1, 1)
        os.chmod("input/train.csv", 0); os.fchmod(os.open("input/train.csv", os.O_RDONLY), 0)
    """
    result = attack(strict, public, code)
    all_failed(result, 20)
    assert (target / "file").read_text() == "untouched"
    assert {path: (path.stat().st_mode, path.stat().st_mtime_ns) for path in before} == before
    assert sorted(os.listdir(target)) == ["file"] and (target / "file").stat().st_uid == os.getuid()
    assert not any(Path(folder, "wmrl-escape").exists() for folder in ("/tmp", "/dev/shm", "/var/tmp"))


def test_no_signal_and_no_limit_reaches_others(strict: ProcessSandbox, public: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as victim:
        code = f"""
            import fcntl, resource, signal
            for pid in ({victim.pid}, {strict.zygote_pid}, os.getppid()):
                attempt("kill", os.kill, pid, signal.SIGTERM)
                attempt("prlimit", resource.prlimit, pid, resource.RLIMIT_CPU, (1, 1))
                attempt("priority", os.setpriority, os.PRIO_PROCESS, pid, 19)
                attempt("affinity", os.sched_setaffinity, pid, [0])
                attempt("scheduler", os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0))
                attempt("owner", fcntl.fcntl, 0, fcntl.F_SETOWN, pid)
                attempt("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGTERM))
                attempt("session", os.setpgid, 0, os.getpgid(pid))
            attempt("kill all", os.kill, -1, 0)
            attempt("kill group", os.kill, 0, 0)
            attempt("all priorities", os.setpriority, os.PRIO_USER, 0, 19)
            attempt("new session", os.setsid)
        """
        result = attack(strict, public, code)
        alive = victim.poll() is None
        victim.kill()
    all_failed(result, 3 * 8 + 4)
    assert alive
    assert strict.run("pass", public).cause == "ok"


def test_calls_that_lead_out_are_denied(strict: ProcessSandbox, public: Path) -> None:
    calls = {
        "unshare": (272, 0x10000000), "setns": (308, 0, 0), "mount": (165, 0, 0, 0, 0, 0), "pivot_root": (155, 0, 0),
        "io_uring_setup": (425, 1, 0), "memfd_create": (319, b"x", 0), "userfaultfd": (323, 0), "bpf": (321, 0, 0, 0),
        "perf_event_open": (298, 0, 0, 0, 0, 0), "keyctl": (250, 0, 0), "add_key": (248, b"user", b"x", b"x", 1, -2),
        "shmget": (29, 0, 4096, 0o1600), "msgget": (68, 0, 0o1600), "mq_open": (240, b"x", 0o102, 0o600, 0),
        "personality": (135, 0), "open_by_handle_at": (304, 0, 0, 0), "fsopen": (430, b"tmpfs", 0),
        "fanotify_init": (300, 0, 0), "inotify_init1": (294, 0), "seccomp": (317, 0, 0, 0), "setuid": (105, 1),
        "capset": (126, 0, 0), "clone3": (435, 0, 0), "reboot": (169, 0, 0, 0), "syslog": (103, 2, 0, 0),
        "undumpable": (157, 4, 0, 0, 0), "parent death": (157, 1, 0, 0, 0), "x32 fork": (0x40000000 + 57,),
        "newest": (467, 0, 0), "sendmsg": (46, 0, 0, 0), "process_madvise": (440, 0, 0, 0, 0, 0),
    }  # fmt: skip
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers of the calls are those of x86_64")
    code = "".join(f"syscall({name!r}, {', '.join(map(repr, call))})\n" for name, call in calls.items())
    all_failed(attack(strict, public, code), len(calls))


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
    start = time.monotonic()
    result = attack(strict, public, code, Limits(seconds=20.0, wall_seconds=20.0, memory_mb=400, processes=8))
    assert result.cause == "memory" and time.monotonic() - start < 15


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
        print(subprocess.run(["sh", "-c", "echo from a shell"], capture_output=True, text=True).stdout.strip())
        print(subprocess.run([sys.executable, "-c", "print('from python')"], capture_output=True, text=True).stdout.strip())
        attempt("answers", subprocess.run, ["cat", "input/../private/answers.csv"], check=True)
        child = subprocess.Popen(["sleep", "60"]); child.terminate(); print(child.wait())
    """
    result = strict.run(TRY + textwrap.dedent(code), public, Limits(processes=3))
    lines = ["from a shell", "from python", "answers failed CalledProcessError", "-15"]
    assert result.stdout.splitlines() == lines, result.stderr[-3000:]


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
    start = time.monotonic()
    result = strict.run(code, public, Limits(wall_seconds=2.0, processes=4))
    assert result.cause == "timeout" and 2.0 <= result.seconds < 10.0 and time.monotonic() - start < 15.0
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
        "import os\nos.mkdir('m')\nfor i in range(10**6): open(f'm/{i}', 'w').close()",
    ],
)
def test_disk_floods_stop_at_the_cap(strict: ProcessSandbox, public: Path, write: str) -> None:
    result = strict.run(write, public, QUICK)
    assert result.cause == "disk", result
    assert not any(strict._folder.iterdir()) if strict._folder else False


def test_exit_one_is_a_runtime_error_and_an_allocation_is_memory(strict: ProcessSandbox, write_task) -> None:
    task = load_task(write_task(limits={"seconds": 3, "memory_mb": 256}))
    codes = ["raise SystemExit(1)", "x = bytearray(2 * 2**30)"]
    outcomes = strict.grade([Submission(task, code) for code in codes])
    assert [outcome.status for outcome in outcomes if outcome] == [Status.RUNTIME_ERROR, Status.MEMORY]


def test_a_forged_report_describes_and_decides_nothing(strict: ProcessSandbox, public: Path) -> None:
    code = """
        os.write(3, b'{"type": "' + b"A" * 3000 + b'", "line": 10000000, "memory": 1, "failure": "harness"}')
        os.write(3, b"\\xff" * 100000)
        os._exit(1)
    """
    result = attack(strict, public, code)
    assert (result.cause, result.error_type, result.error_line) == ("error", None, None)


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
        assert result.cause == "ok" and b"SECRET" not in (result.submission if isinstance(result.submission, bytes) else b"")


def test_a_killed_trainer_leaves_nothing_alive(public: Path, tmp_path: Path) -> None:
    script = tmp_path / "trainer.py"
    script.write_text(
        "import sys\nfrom wmrl_envs.research.sandbox.process import ProcessSandbox\nfrom wmrl_envs.research.task import Limits\n"
        "sandbox = ProcessSandbox(isolation='strict')\nsandbox.run('pass', sys.argv[1])\n"
        "code = 'import os, time\\nif os.fork() == 0: time.sleep(100)\\n"
        "open(\"up\", \"w\").close()\\ntime.sleep(100)'\n"
        "import threading\n"
        "threading.Thread(target=sandbox.run, args=(code, sys.argv[1], Limits(processes=1))).start()\n"
        "import os, time\n"
        "while not any(os.path.exists(f'{sandbox._folder}/{name}/up') for name in os.listdir(sandbox._folder)): time.sleep(0.05)\n"
        "print(sandbox.zygote_pid, sandbox._folder, flush=True)\ntime.sleep(100)\n"
    )
    trainer = subprocess.Popen([sys.executable, str(script), str(public)], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    zygote, folder = trainer.stdout.readline().split()
    processes = [psutil.Process(int(zygote)), *psutil.Process(int(zygote)).children(recursive=True)]
    assert len(processes) == 4  # zygote, supervisor, solution, its child
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert not alive
    assert not os.listdir(folder)


def test_runs_do_not_see_each_other(strict: ProcessSandbox, public: Path) -> None:
    code = """
        import time
        path = os.path.dirname(os.getcwd())
        attempt("list", os.listdir, path)
        time.sleep(0.3)
        for i in range(300): attempt("read", open, f"{path}/run-{i}/solution.py")
    """
    results: list[RunResult] = []
    threads = [threading.Thread(target=lambda: results.append(attack(strict, public, code))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        assert result.stdout.count("SUCCEEDED") == 1  # its own
