"""seccomp: which calls of the kernel a process may make, for good. It hides the filter's machine code.

The rules: no new process and no other program, no network, no hand on other processes, no mount, no change of modes, owners
and times; of the calls that came after Linux 5.0, only a few known ones. x86-64 and 64-bit ARM.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys
from typing import NamedTuple

_LIBC = ctypes.CDLL(None, use_errno=True)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_FIRST_NEW = 424  # from here on the numbers are the same on every architecture
_NEW_ALLOWED = (436, 439, 441, 449)  # close_range, faccessat2, epoll_pwait2, futex_waitv
#: name -> number on x86-64, on ARM (0: it is not there); refused whatever the arguments
_DENIED = {
    "fork": (57, 0), "vfork": (58, 0), "execve": (59, 221), "execveat": (322, 281),
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "shmget": (29, 194), "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "memfd_create": (319, 279), "userfaultfd": (323, 282), "vmsplice": (278, 75),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272), "perf_event_open": (298, 241),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122), "setpriority": (141, 140), "ioprio_set": (251, 30), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "bpf": (321, 280), "seccomp": (317, 277), "personality": (135, 92), "modify_ldt": (154, 0),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60), "acct": (163, 89),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "syslog": (103, 116), "reboot": (169, 142),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "iopl": (172, 0), "ioperm": (173, 0), "sethostname": (170, 161),
    "setdomainname": (171, 162), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "vhangup": (153, 58), "uselib": (134, 0), "mknod": (133, 0), "mknodat": (259, 33),
    "truncate": (76, 45), "chmod": (90, 0), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, 0), "fchown": (93, 55),
    "lchown": (94, 0), "fchownat": (260, 54), "utime": (132, 0), "utimes": (235, 0), "futimesat": (261, 0),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16),
}  # fmt: skip


class _Rule(NamedTuple):
    """A call whose argument decides: refused if `argument & mask` is, or if it is not, one of `values`."""

    numbers: tuple[int, int]
    argument: int
    mask: int
    values: tuple[int, ...]
    is_refused_if_in: bool


def _rules(pid: int) -> tuple[_Rule, ...]:
    everything = 0xFFFFFFFF
    return (
        _Rule((56, 220), 0, 0x00010000, (0x00010000,), False),  # clone: threads only
        _Rule((62, 129), 0, everything, (pid,), False),  # kill: itself only
        _Rule((234, 131), 0, everything, (pid,), False),  # tgkill: itself only; abort() needs it
        _Rule((302, 261), 0, everything, (0, pid), False),  # prlimit64: itself only
        _Rule((53, 199), 1, 0xF, (1,), False),  # socketpair: streams only, which can address nobody else; asyncio needs them
        _Rule((72, 25), 1, everything, (8, 10, 15), True),  # fcntl: no signals of input and output to others
        _Rule((16, 29), 1, everything, (0x5412, 0x541C, 0x8901, 0x8902), True),  # ioctl: the same, and no typing for others
        _Rule((2, 0), 1, 0x203, (0x200,), True),  # open for reading that empties the file, which old Landlock lets pass
        _Rule((257, 56), 2, 0x203, (0x200,), True),  # openat: the same
    )


def program(pid: int) -> bytes | None:
    """Return the filter for the process `pid` in the kernel's machine code; None on an architecture it is not known for."""
    if platform.machine() not in _ARCHITECTURES or sys.maxsize < 1 << 32:
        return None
    column, architecture = _ARCHITECTURES[platform.machine()]
    denied, unknown = _FAIL | errno.EPERM, _FAIL | errno.ENOSYS
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    lines += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]  # the 32-bit numbers of x86-64
    new = [line for number in _NEW_ALLOWED for line in ((_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW))]
    lines += [(_AT_LEAST, 0, len(new) + 1, _FIRST_NEW), *new, (_RETURN, 0, 0, unknown)]
    for rule in _rules(pid):
        if rule.numbers[column]:
            lines += _checked(rule, rule.numbers[column], denied)
    for numbers in _DENIED.values():
        if numbers[column]:
            lines += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, denied)]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _checked(rule: _Rule, number: int, denied: int) -> list[tuple[int, int, int, int]]:
    met, otherwise = (denied, _ALLOW) if rule.is_refused_if_in else (_ALLOW, denied)
    tests = [line for value in rule.values for line in ((_EQUAL, 0, 1, value), (_RETURN, 0, 0, met))]
    body = [(_LOAD, 0, 0, 16 + 8 * rule.argument), (_AND, 0, 0, rule.mask), *tests, (_RETURN, 0, 0, otherwise)]
    return [(_EQUAL, 0, len(body), number), *body]


def install(code: bytes) -> bool:
    """Put the filter on this process and all its threads to come; say if it holds. No new privileges must be set before."""
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    return int(_LIBC.prctl(22, 2, header, 0, 0)) == 0
