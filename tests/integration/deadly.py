"""A transform that kills its own worker. Spark's workers can import it."""

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
    """A transform that kills its worker when it sees a message with one of these ids.

    Each death leaves a file in the folder.

    Attributes:
        folder: the folder for these files.
        deaths: the number of deaths for each id.
    """

    folder: Path
    deaths: dict[int, int]

    def columns(self, input_columns: Columns) -> Columns:
        return input_columns

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
