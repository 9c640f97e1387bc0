"""A program that a test starts, and that starts others."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def group(words: Sequence[str | Path], env: Mapping[str, str], log: Path) -> Iterator[None]:
    """Runs a program in the folder of its log, which gets what it says.

    It is ended with the block, and so are those that it has started.
    """
    with (
        log.open("wb") as log_file,
        subprocess.Popen(
            words, cwd=log.parent, env=env, stdout=log_file, stderr=log_file, start_new_session=True
        ) as process,
    ):
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


def peak_mib() -> float:
    """The most memory that this process has held so far, in MiB, as Linux counts it.

    Not `ru_maxrss`, which a process takes over from the one that started it.
    """
    (line,) = (
        line
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) / 1024
