"""A transform that waits for the test, and may kill its worker; importable in Spark's workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.ports.transform import Apply
from windrow.ingest.schema.columns import Columns


@dataclass(frozen=True)
class Halting:
    """At a message with one of these ids it waits until a file of that name is in the folder.

    The first time at `deadly` it kills its worker then.
    """

    folder: Path
    halts: tuple[int, ...]
    deadly: int

    def columns(self, before: Columns) -> Columns:
        return before

    def open(self) -> Apply:
        return self._seeing

    def _seeing(self, decoded: Decoded, _: pa.RecordBatch) -> Decoded:
        pause, deadline = threading.Event(), time.monotonic() + 120
        for halting_id in {*decoded.rows["id"].to_pylist()} & {*self.halts}:
            while not (self.folder / str(halting_id)).exists():
                assert time.monotonic() < deadline, f"nobody lets {halting_id} pass"
                pause.wait(0.02)
            if halting_id == self.deadly and not (self.folder / "died").exists():
                (self.folder / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return decoded
