"""Processes that run in the background and are found again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from windrow.ingest.kafka.embedded.server import end, find_noted, note


def test_only_the_noted_process_is_found(tmp_path: Path) -> None:
    """The recorded process is found and ended, and isn't found afterwards.

    Another process that got its id isn't found either.
    """
    file = tmp_path / "ui.json"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert note(file, child.pid).pid == child.pid
        process = find_noted(file)
        assert process is not None
        end([process], signal.SIGTERM, 30)
    assert find_noted(file) is None
    file.write_text(f'{{"pid": {os.getpid()}, "started": 1.0}}')
    assert find_noted(file) is None


def test_who_does_not_end_is_killed(tmp_path: Path) -> None:
    """A process that ignores the signal is killed after some time."""
    deaf = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); input()"
    )
    command = [sys.executable, "-c", deaf]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        end([note(tmp_path / "noted", child.pid)], signal.SIGTERM, 0.2)
        assert find_noted(tmp_path / "noted") is None
