"""A transform that kills the worker that it runs in; importable in Spark's workers."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.ports.transform import Apply
from windrow.ingest.schema.columns import Columns


@dataclass(frozen=True)
class Deadly:
    """At the sight of a message with one of these ids, so often; each death leaves a
    file in the folder.
    """

    folder: Path
    deaths: dict[int, int]

    def columns(self, before: Columns) -> Columns:
        return before

    def open(self) -> Apply:
        return self._seeing

    def _seeing(self, decoded: Decoded, _: pa.RecordBatch) -> Decoded:
        for deadly_id in {*decoded.rows["id"].to_pylist()} & self.deaths.keys():
            for death in range(self.deaths[deadly_id]):
                try:
                    (self.folder / f"{deadly_id}.{death}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
        return decoded
