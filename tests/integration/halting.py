"""A transform that waits for the test and may kill its worker. Spark's workers can import it."""

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
    """A transform that waits at certain messages.

    It waits until the folder has a file with the message's id as its name. At `deadly` it then
    kills its worker, but only the first time.

    Attributes:
        folder: the folder.
        halts: the ids at which it waits.
        deadly: the id at which it kills its worker.
    """

    folder: Path
    halts: tuple[int, ...]
    deadly: int

    def columns(self, input_columns: Columns) -> Columns:
        return input_columns

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
