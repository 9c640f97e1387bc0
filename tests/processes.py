"""Programs that a test starts, and the memory of the test's own process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def group(words: Sequence[str | Path], env: Mapping[str, str], log: Path) -> Iterator[None]:
    """Runs a program inside the block, in the folder of its log.

    The log gets the program's output. At the end of the block, the program and all processes
    that it started are ended.
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
    """Returns the peak memory of this process in MiB, from Linux's VmHWM.

    `ru_maxrss` is not used, because a process inherits its value from its parent.
    """
    (line,) = (
        line
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) / 1024
