"""Measures a process tree from outside: CPU seconds and peaks of memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psutil

TICK_SECONDS = 0.25
PSS_TICKS = 4
"""The number of ticks between two samples of PSS.

They are rare, because the kernel then walks all pages of a process.
"""


class Meter:
    """A context manager that measures a process tree during its block."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peaks: dict[str, float] = {}
        self.together_mb = 0.0
        self.cpu_seconds = 0.0

    def __enter__(self) -> Self:
        self._cpu_before = self._cpu()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_seconds = self._cpu() - self._cpu_before
        self._done.set()
        self._thread.join(60)
        self._look()
        self._weigh()

    def _tree(self) -> Iterator[psutil.Process]:
        try:
            yield from (self._root, *self._root.children(recursive=True))
        except psutil.NoSuchProcess:
            return

    def _cpu(self) -> float:
        """Returns the CPU seconds of the living processes and of their ended children.

        The kernel adds a child's time to its parent when the parent waits for the child.
        """
        total = 0.0
        for process in self._tree():
            try:
                total += sum(process.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue
        return total

    def _watch(self) -> None:
        ticks = 0
        while not self._done.wait(TICK_SECONDS):
            ticks += 1
            self._look()
            if ticks % PSS_TICKS == 0:
                self._weigh()

    def _look(self) -> None:
        """Records the kernel's peak of each process's memory.

        So no peak is missed of a process that lives until the next tick.
        """
        for process in self._tree():
            try:
                kind, peak = _kind(process), _kilobytes(process.pid, "status", "VmHWM") * 1024 / 1e6
            except (psutil.NoSuchProcess, OSError):
                continue
            self.peaks[kind] = max(self.peaks.get(kind, 0.0), peak)

    def _weigh(self) -> None:
        total = 0
        for process in self._tree():
            try:
                total += _kilobytes(process.pid, "smaps_rollup", "Pss")
            except OSError:
                continue
        self.together_mb = max(self.together_mb, total * 1024 / 1e6)


def _kind(process: psutil.Process) -> str:
    """Returns the name of a process's kind in a table.

    Spark names its worker's module to each daemon, its own and windrow's.
    """
    words = process.cmdline()
    if "pyspark.worker" in words:
        return "worker"
    return "Java" if words[:1] and Path(words[0]).name == "java" else "process"


def _kilobytes(pid: int, file: str, name: str) -> int:
    for line in Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0
