"""Other people's code against strict isolation: it reaches for what is not its own, and must fail."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from attacking import all_failed, attack, needs_strict

from wmrl_envs.research.execution import RunResult
from wmrl_envs.research.sandbox.process import ProcessSandbox
from wmrl_envs.research.task import Limits, load_task

pytestmark = needs_strict


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
        print(stat.S_ISFIFO(os.fstat(3).st_mode))
        seen, waiting, texts = set(), gc.get_objects() + [sys._getframe(), os.environ], []
        while waiting:
            thing = waiting.pop()
            if id(thing) in seen: continue
            seen.add(id(thing))
            if isinstance(thing, str): texts.append(thing)
            if isinstance(thing, bytes): texts.append(thing.decode("latin-1"))
            waiting += gc.get_referents(thing)
        backwards = ("TERCES-RENIART", "REWSNA-TERCES", "vsc.srewsna/etavirp", "TERCES_TSET_LRMW")
        needles = [word[::-1] for word in backwards]
        print([needle for needle in needles if any(needle in text for text in texts)], len(texts) > 10000)
    """
    result = attack(strict, public, code, Limits(seconds=20.0))
    assert result.stdout == "[0, 1, 2, 3]\nTrue\n[] True\n", result.stderr


def test_home_and_system_files_stay_closed(strict: ProcessSandbox, public: Path) -> None:
    code = f"""
        for path in ("/etc/passwd", "/etc/shadow", "/etc/hosts", {__file__!r}, {os.path.expanduser("~/.bashrc")!r},
                     "/var/log/dpkg.log", "/proc/self/mountinfo", "/sys/kernel/mm/transparent_hugepage/enabled"):
            attempt(path, lambda: open(path).read())
        for path in ("/", "/etc", "/tmp", "/dev", "/dev/shm", "/home", "/var", "/sys", "..", {str(Path.home())!r}):
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
        for path in ("/tmp/wmrl-escape", "/dev/shm/wmrl-escape", "/var/tmp/wmrl-escape", victim + "/new",
                     victim + "/file", public + "/new.csv", public + "/train.csv", "input/train.csv", "../escape",
                     "/dev/full"):
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
