"""Calls for files of a whole process: of Python, Arrow, Rust and SQLite alike.

Linux hands the calls of a process to a supervisor (seccomp's user notification), which lets
them go on, does them, or answers them with an error. The supervisor must be another process.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import struct
from contextlib import suppress
from pathlib import Path

from tests.faults.injector import Injector, Mode

X86 = platform.machine() == "x86_64"
PATHS = {  # the arguments of each path: the folder that it is relative to, and the path
    "open": {2: [(None, 0)], 257: [(0, 1)]} if X86 else {56: [(0, 1)]},
    "rename": {82: [(None, 0), (None, 1)], 264: [(0, 1), (2, 3)], 316: [(0, 1), (2, 3)]}
    if X86
    else {38: [(0, 1), (2, 3)], 276: [(0, 1), (2, 3)]},
    "link": {86: [(None, 0), (None, 1)], 265: [(0, 1), (2, 3)]} if X86 else {37: [(0, 1), (2, 3)]},
    "unlink": {87: [(None, 0)], 263: [(0, 1)]} if X86 else {35: [(0, 1)]},
    "mkdir": {83: [(None, 0)], 258: [(0, 1)]} if X86 else {34: [(0, 1)]},
}
HANDLES = (
    {1: "write", 18: "pwrite", 74: "fsync", 75: "fsync"}
    if X86
    else {64: "write", 68: "pwrite", 82: "fsync", 83: "fsync"}
)
NAMES = {number: name for name, numbers in PATHS.items() for number in numbers} | HANDLES
ARGUMENTS = {number: paths for numbers in PATHS.values() for number, paths in numbers.items()}
GROWING = {"write", "pwrite", "mkdir", "link", "create"}
"""The calls that need room on the disk."""

EFFECTS = {"rename": os.rename, "link": os.link, "unlink": os.unlink, "mkdir": os.mkdir}
"""The calls that can take effect without an answer."""

_SECCOMP, _PIDFD_GETFD = (317 if X86 else 277), 438
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_libc = ctypes.CDLL(None, use_errno=True)


def hand_over() -> int:
    """Hands the calls of this process, from now on, to the owner of the returned handle."""
    count = len(NAMES)
    steps = [(0x20, 0, 0, 0)]  # load the number of the call
    steps += [(0x15, count - i, 0, number) for i, number in enumerate(NAMES)]
    steps += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x7FC00000)]  # allow; notify
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
    assert _libc.prctl(38, 1, 0, 0, 0) == 0
    handle = int(_libc.syscall(_SECCOMP, 1, 8, ctypes.create_string_buffer(program)))
    assert handle >= 0, os.strerror(ctypes.get_errno())
    return handle


def supervise(handle: int, process: int, folder: Path, injector: Injector) -> None:
    """Answers the calls of a process until it ends. Only files in `folder` may fail."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    while not any(event & select.POLLHUP for _, event in poll.poll()):
        notice = bytearray(80)
        with suppress(OSError):  # the caller may have ended meanwhile
            fcntl.ioctl(handle, _RECEIVE, notice)
            number, thread, _, call, _, _, *arguments = struct.unpack("QIIiIQ6Q", notice)
            result = None
            with suppress(OSError):  # a file without a name, such as a pipe
                result = _Call(process, thread, call, arguments).answer(str(folder), injector)
            value, flags = (0, _CONTINUE) if result is None else (result, 0)
            error = min(0, value)
            fcntl.ioctl(
                handle, _SEND, bytearray(struct.pack("QqiI", number, max(value, 0), error, flags))
            )
    os.close(handle)


class _Call:
    """One call of a thread of the process."""

    def __init__(self, process: int, thread: int, call: int, arguments: list[int]) -> None:
        self._process, self._thread, self._arguments = process, thread, arguments
        self.name = NAMES[call]
        self.paths = (
            [_linked(thread, f"fd/{arguments[0]}")]
            if call in HANDLES
            else [self._path(*numbers) for numbers in ARGUMENTS[call]]
        )
        flags = arguments[2 if call in {257, 56} else 1]
        if self.name == "open" and flags & os.O_CREAT:
            self.name = "create"

    def answer(self, folder: str, injector: Injector) -> int | None:
        """Returns the result of the call, negative for an error; None to let it go on."""
        path = self.paths[-1]
        if not path.startswith(f"{folder}/"):
            return None
        is_first = not injector.hit
        mode: Mode | None = injector.meet("file", f"{self.name} {path[len(folder) + 1 :]}")
        if mode is None:
            return None
        # Threads make calls in another order than in the recorded run.
        if self.name not in {"full": GROWING, "lost": EFFECTS}.get(mode, (self.name,)):
            return None
        if mode == "full":
            return self._write_half() if is_first and "write" in self.name else -errno.ENOSPC
        if mode == "lost":
            with suppress(OSError):
                self._take_effect()
        return -errno.EIO

    def _take_effect(self) -> None:
        EFFECTS[self.name](*self.paths)  # type: ignore[operator]

    def _write_half(self) -> int:
        process = os.pidfd_open(self._process)
        own = int(_libc.syscall(_PIDFD_GETFD, process, self._arguments[0], 0))
        os.close(process)
        content = self._memory(self._arguments[1], max(self._arguments[2] // 2, 1))
        try:
            if self.name == "pwrite":
                return os.pwrite(own, content, self._arguments[3])
            return os.write(own, content)
        finally:
            os.close(own)

    def _path(self, folder_number: int | None, number: int) -> str:
        path = self._memory(self._arguments[number], 4096).partition(b"\0")[0].decode()
        if path.startswith("/"):
            return path
        handle = None if folder_number is None else self._arguments[folder_number] & 0xFFFFFFFF
        base = "cwd" if handle in {None, 0xFFFFFF9C} else f"fd/{handle}"
        return f"{_linked(self._thread, base)}/{path}"

    def _memory(self, address: int, size: int) -> bytes:
        with Path(f"/proc/{self._thread}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(size)


def _linked(thread: int, name: str) -> str:
    return str(Path(f"/proc/{thread}/{name}").readlink())
