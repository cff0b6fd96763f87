"""A seccomp filter for solutions, assembled by hand.

A denied call fails with an error number, as it would for a program without the permission; nothing is killed. Calls
that change metadata of files (``chmod``, ``utime``, ``chown``) and ``sync`` claim success and do nothing: Landlock does
not cover them, a program may not reach outside its folder through them, and harmless ones (``shutil.copy``) go on.
Whatever is newer than this table does not exist (``ENOSYS``).

The program is assembled here instead of through libseccomp, because the library is missing in slim images, and because
it lets everything through that it has no name for.

This module imports nothing of the package: the zygote loads it by path.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable

__all__ = ["ARCHITECTURES", "NEWEST_CALL", "assemble", "available", "install"]

NEWEST_CALL = 456
"""Number of the newest system call that is known here (the same on every architecture since Linux 5.1)."""

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Machine names that the table covers, with the kernel's AUDIT_ARCH value."""

# name: (x86_64, aarch64); None where the architecture lacks the call
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # other processes' memory and state
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    "perf_event_open": (298, 241), "move_pages": (279, 239), "migrate_pages": (256, 238), "ioprio_set": (251, 30),
    # kernel interfaces with a large surface
    "bpf": (321, 280), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "seccomp": (317, 277), "vmsplice": (278, 75), "inotify_init": (253, None), "inotify_init1": (294, 26),
    "fanotify_init": (300, 262), "personality": (135, 92), "lookup_dcookie": (212, 18), "modify_ldt": (154, None),
    # mounts and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "move_mount": (429, 429), "open_tree": (428, 428), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    # the machine
    "swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89),
    "reboot": (169, 142), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "iopl": (172, None), "ioperm": (173, None),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116), "nfsservctl": (180, 42),
    "vhangup": (153, 58), "uselib": (134, None), "ustat": (136, None), "sysfs": (139, None), "_sysctl": (156, None),
    # memory that no limit counts, and memory shared with others
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    # network; a socket pair stays, but no open file travels through it
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "sendmsg": (46, 211),
    "sendmmsg": (307, 269), "socketpair": (53, 199),
    # leaving the process group that is killed at the end, and other identities
    "setsid": (112, 157), "setpgid": (109, 154), "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145),
    "setregid": (114, 143), "setresuid": (117, 147), "setresgid": (119, 149), "setfsuid": (122, 151),
    "setfsgid": (123, 152), "setgroups": (116, 159), "capset": (126, 91),
    # file metadata
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "chmod": (90, None), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "chown": (92, None), "fchown": (93, 55), "lchown": (94, None),
    "fchownat": (260, 54), "sync": (162, 81), "syncfs": (306, 267), "truncate": (76, 45),
    "fallocate": (285, 47),  # takes space faster than a watchdog looks, and past the limit of a file's size
    # new processes and programs
    "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "clone3": (435, 435), "execve": (59, 221),
    "execveat": (322, 281),
    # judged by their arguments
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424), "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "setpriority": (141, 140), "prctl": (157, 167), "fcntl": (72, 25), "ioctl": (16, 29),
}  # fmt: skip

_PRETENDED = (
    "chmod fchmod fchmodat fchmodat2 utime utimes futimesat utimensat chown fchown lchown fchownat sync syncfs"
).split()
_UNSUPPORTED = ("fallocate setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr").split()
_STARTS = ("fork", "vfork", "execve", "execveat")
_SIGNALS = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
_OWN_PROCESS_ONLY = ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")

_CLONE_FILES, _CLONE_THREAD = 0x00000400, 0x00010000
_CLONE_NAMESPACES = 0x7E020000
_AF_UNIX = 1
# parent-death signal, dumpable (hides open files from the watchdog), mm, subreaper, core scheduling, ptracer
_PRCTL_DENIED = (1, 4, 35, 36, 62, 0x59616D61)
# owner of a file's signals (F_SETOWN, F_SETSIG, F_SETOWN_EX), leases, directory signals
_FCNTL_DENIED = (8, 10, 15, 1024, 1026)
# TIOCSTI, TIOCLINUX, FIOSETOWN, SIOCSPGRP
_IOCTL_DENIED = (0x5412, 0x541C, 0x8901, 0x8902)

_LOAD, _JUMP_EQUAL, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _EPERM = 0x7FFF0000, 0x80000000, 0x00050001
_NUMBER, _ARCH = 0, 4
_PR_SET_NO_NEW_PRIVS, _PR_GET_SECCOMP, _PR_SET_SECCOMP, _MODE_FILTER = 38, 21, 22, 2

_Instruction = tuple[int, int, int, int]


def assemble(machine: str, pid: int, *, processes: bool = False, scoped: bool = False, truncate: bool = True) -> bytes:
    """Return the filter as the kernel's array of ``struct sock_filter`` (8 bytes each).

    Args:
        machine: A key of ``ARCHITECTURES``.
        pid: The process that will be filtered; the only one that it may signal.
        processes: Whether it may start processes and programs.
        scoped: Whether Landlock confines signals, so that it may signal the processes that it starts.
        truncate: Whether Landlock confines ``truncate``, which is denied otherwise.

    Raises:
        KeyError: If the table does not cover the machine.
    """
    column = list(ARCHITECTURES).index(machine)
    numbers = {name: pair[column] for name, pair in _NUMBERS.items()}
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_GE, 0, 1, NEWEST_CALL + 1),  # newer calls, and the x32 variants of old ones
        _fail(errno.ENOSYS),
    ]
    for name, number in numbers.items():
        if number is None:
            continue
        rule = _rule(name, pid, processes, scoped, truncate)
        if rule:
            program += [(_JUMP_EQUAL, 0, len(rule), number), *rule]
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _rule(name: str, pid: int, processes: bool, scoped: bool, truncate: bool) -> list[_Instruction]:
    """Return the instructions for one call, ending in a return; none where the call is allowed."""
    free_signals = processes and scoped
    if name in _PRETENDED:
        return [_fail(0)]
    if name in _UNSUPPORTED:
        return [_fail(errno.EOPNOTSUPP)]
    if name == "clone3":  # its flags lie in memory where a filter cannot read them: libc falls back to clone
        return [_fail(errno.ENOSYS)]
    if name == "clone":
        # a thread with open files of its own could hide them from the watchdog
        threads_only = [(_JUMP_SET, 1, 0, _CLONE_THREAD), (_RETURN, 0, 0, _ALLOW if processes else _EPERM)]
        threads_only += [(_JUMP_SET, 1, 0, _CLONE_FILES), _fail(errno.EPERM)]
        same_namespaces = [(_JUMP_SET, 0, 1, _CLONE_NAMESPACES), _fail(errno.EPERM)]
        return [_argument(0), *same_namespaces, *threads_only, (_RETURN, 0, 0, _ALLOW)]
    if name in _STARTS:
        return [] if processes else [_fail(errno.EPERM)]
    if name in _SIGNALS:
        return [] if free_signals else _only_if_equal(0, pid)
    if name in ("tkill", "pidfd_send_signal"):
        return [] if free_signals else [_fail(errno.EPERM)]
    if name in _OWN_PROCESS_ONLY:
        return _only_if_equal(0, 0)
    if name == "setpriority":  # (PRIO_PROCESS, self): the other kinds name all processes of a user
        return [_argument(0), (_JUMP_EQUAL, 1, 0, 0), _fail(errno.EPERM), *_only_if_equal(1, 0)]
    if name == "socketpair":
        return _only_if_equal(0, _AF_UNIX)
    if name == "truncate":
        return [] if truncate else [_fail(errno.EPERM)]
    denied_operations = {"prctl": (0, _PRCTL_DENIED), "fcntl": (1, _FCNTL_DENIED), "ioctl": (1, _IOCTL_DENIED)}
    if name in denied_operations:
        return _unless_among(*denied_operations[name])
    return [_fail(errno.EPERM)]


def _fail(number: int) -> _Instruction:
    return (_RETURN, 0, 0, 0x00050000 | number)


def _argument(index: int) -> _Instruction:
    # the low half on little-endian machines; each argument judged here is an int, or flags in its low half
    return (_LOAD, 0, 0, 16 + 8 * index)


def _only_if_equal(index: int, value: int) -> list[_Instruction]:
    return [_argument(index), (_JUMP_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW), _fail(errno.EPERM)]


def _unless_among(index: int, values: Iterable[int]) -> list[_Instruction]:
    checks = [step for value in values for step in ((_JUMP_EQUAL, 0, 1, value), _fail(errno.EPERM))]
    return [_argument(index), *checks, (_RETURN, 0, 0, _ALLOW)]


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def install(program: bytes) -> None:
    """Put the calling process under a filter for good, with no way to gain privileges.

    Raises:
        OSError: If the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    described = _Program(len(program) // 8, program)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(described), 0, 0
    ):
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp filter refused: {errno.errorcode.get(number, number)}")


def available() -> str | None:
    """Return None if filters can be installed here, else why not and what would help."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        return f"the system call filter knows {' and '.join(ARCHITECTURES)}, not {machine}"
    libc = ctypes.CDLL(None, use_errno=True)
    # a null program: EFAULT from a kernel with filters, EINVAL from one without
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, None, 0, 0) and ctypes.get_errno() == errno.EFAULT:
        return None
    return "this kernel has no seccomp filters (it needs CONFIG_SECCOMP_FILTER)"
