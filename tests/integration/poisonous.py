"""A transform that kills any process in which it sees certain messages."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.ports.transform import Apply
from windrow.ingest.schema.columns import Columns
from windrow.ingest.testing.engine import WorkerDiedError

Way = Literal["abort", "segfault", "memory"]

_DEATHS: dict[Way, Callable[[], object]] = {
    "abort": lambda: os.kill(os.getpid(), signal.SIGABRT),
    "segfault": lambda: ctypes.string_at(0),
    "memory": lambda: bytearray(1 << 46),
}


@dataclass(frozen=True)
class Poisonous:
    """A transform that kills its process whenever it sees a message with one of these ids.

    Attributes:
        deaths: how the process dies, by the id.
        together: two ids that kill it only if they are in one batch.
        test_process: the process of a test whose engine has no workers. It doesn't die: the
            engine's worker does, in the engine's own way.
    """

    deaths: dict[int, Way]
    together: tuple[int, ...] = ()
    test_process: int = 0

    def columns(self, input_columns: Columns) -> Columns:
        return input_columns

    def open(self) -> Apply:
        return self._seeing

    def _seeing(self, decoded: Decoded, _: pa.RecordBatch) -> Decoded:
        ids = {*decoded.rows["id"].to_pylist()}
        deaths = [self.deaths[deadly_id] for deadly_id in sorted(ids & self.deaths.keys())]
        if self.together and ids >= {*self.together}:
            deaths.append("abort")
        for death in deaths:
            if os.getpid() == self.test_process:
                raise WorkerDiedError
            _DEATHS[death]()
        return decoded
