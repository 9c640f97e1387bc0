"""A measured program: a process that reads jobs as lines and answers with numbers of rows.

A row was read or written. The program is windrow or a peer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

import pyarrow.parquet as pq

from tests.bench.harness.figures import Run
from tests.bench.harness.meter import Meter

ROOT = Path(__file__).parents[3]
LIMIT_SECONDS = 600.0
TAIL = 3_000


class FailedError(Exception):
    """A side that ended, hung or didn't do its job."""


class Program:
    """The process of a side. It answers in lines of JSON; all other output goes to a log."""

    def __init__(
        self, command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]
    ) -> None:
        """Starts the process.

        Args:
            command: the command.
            folder: the process's own folder, for its log and its output.
            environment: further environment variables.
        """
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.out = folder / "out"
        self._log = folder / "log"
        began = time.perf_counter()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=os.environ | environment,
            )
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            self._read_reply()
        except BaseException:
            self.end()
            raise
        self.ready = time.perf_counter() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def run(
        self,
        job: Mapping[str, Any],
        rows: int,
        *,
        expected: int = 0,
        written: Callable[[], int] = lambda: 0,
    ) -> Run:
        """Runs a job once.

        Args:
            job: the job.
            rows: the number of rows that must be read.
            expected: the number of rows that must be written.
            written: counts the written rows.

        Raises:
            FailedError: the process read or wrote another number, ended, or doesn't answer.
        """
        shutil.rmtree(self.out, ignore_errors=True)
        assert self._process.stdin is not None
        with Meter(self._process.pid) as meter:
            began = time.perf_counter()
            try:
                self._process.stdin.write(json.dumps(job).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise self._error_of("ended") from None
            reply = self._read_reply()
            seconds = time.perf_counter() - began
        if reply["rows"] != rows:
            raise self._error_of(f"read {reply['rows']:,} of {rows:,} messages")
        if (row_count := written()) != expected:
            raise self._error_of(f"wrote {row_count:,} of {expected:,} rows")
        return Run(
            reply.get("seconds", seconds), meter.cpu_seconds, rows, meter.peaks, meter.together_mb
        )

    def end(self) -> None:
        """Ends the process."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None  # Both are pipes.  # noqa: PT018
        try:
            process.stdin.close()
            process.wait(30)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            process.kill()
            process.wait(30)
        self._listener.join(30)
        process.stdout.close()
        shutil.rmtree(self.out, ignore_errors=True)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _read_reply(self) -> dict[str, Any]:
        """Returns the next line that is JSON, and ignores other lines."""
        until = time.monotonic() + LIMIT_SECONDS
        try:
            while line := self._lines.get(timeout=max(until - time.monotonic(), 0.0)):
                if line.startswith(b"{"):
                    return dict(json.loads(line))
        except Empty:
            raise self._error_of(f"didn't answer for {LIMIT_SECONDS:.0f} s") from None
        self._lines.put(b"")  # Later calls find the end too.
        raise self._error_of("ended")

    def _error_of(self, message: str) -> FailedError:
        return FailedError(
            f"{message}; its log ends with:\n{self._log.read_text(errors='replace')[-TAIL:]}"
        )


def parquet_rows(folder: Path) -> int:
    """Returns the number of rows in all Parquet files below a folder, from their footers."""
    return sum(pq.read_metadata(path).num_rows for path in parquet_files(folder))


def parquet_files(folder: Path) -> list[Path]:
    """Returns all Parquet files below a folder, except those of a log.

    Flink's files have no suffix. The folder of a partition has a value, `_window=...`.
    """
    return [
        path
        for path in folder.rglob("*")
        if path.is_file()
        and path.suffix in {"", ".parquet"}
        and all(part[0] not in "._" or "=" in part for part in path.relative_to(folder).parts)
    ]
