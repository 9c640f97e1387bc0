"""What a process tree costs: wall seconds, CPU seconds, peak resident memory of each Python worker. Runs in the peer's environment too."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil


def _tree() -> list[psutil.Process]:
    here = psutil.Process(os.getpid())
    return [here, *here.children(recursive=True)]


def _cpu() -> dict[int, float]:
    seconds = {}
    for process in _tree():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds[process.pid] = times.user + times.system
    return seconds


def _peak_mb(pid: int) -> float:
    """The kernel's own high-water mark of a process, so a sample can't miss the peak while the process lives."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


@dataclass
class Meter:
    """A context manager around the work to measure; only processes of this one's tree count."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    worker_mb: float = 0.0
    _seen: dict[int, float] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._before, self._began = _cpu(), time.perf_counter()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self._stop.set()
        self._thread.join(60)
        self._look()
        self.cpu_seconds = sum(now - self._before.get(pid, 0.0) for pid, now in self._seen.items())

    def _sample(self) -> None:
        while not self._stop.wait(0.1):
            self._look()

    def _look(self) -> None:
        self._seen.update(_cpu())
        for process in _tree():
            try:
                if "pyspark.daemon" in " ".join(process.cmdline()):
                    self.worker_mb = max(self.worker_mb, _peak_mb(process.pid))
            except (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError):
                continue
