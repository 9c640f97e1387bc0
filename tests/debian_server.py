"""Servers of databases on loopback, from Debian's packages that are unpacked and not installed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.harness.environments import debian, environment_folder


def unpack(name: str, files: Path) -> tuple[Path, dict[str, str]]:
    """Returns the folder with the packages of a package.json, and variables for their programs."""
    home = environment_folder(name, files, debian)
    libraries = ":".join(sorted({str(path.parent) for path in home.rglob("*.so.*")}))
    return home, {**os.environ, "LD_LIBRARY_PATH": libraries}


@contextmanager
def running(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    ready: str,
    stop: signal.Signals = signal.SIGTERM,
    **owner: Any,
) -> Iterator[None]:
    """Runs a server. The block begins when the server has written `ready` to stderr.

    Args:
        command: the program and its arguments.
        environment: its environment.
        ready: the words.
        stop: the signal that ends it, also while clients are connected.
        owner: the user whom it runs as, in the words of `Popen`.
    """
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, cwd="/", **owner
    )
    assert process.stderr is not None
    try:
        while ready not in (line := process.stderr.readline()):
            assert line, "it ended before it was up"
        yield
    finally:
        process.send_signal(stop)
        process.communicate(timeout=60)
