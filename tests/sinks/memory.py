"""Tables in memory for tests. A location is a name."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.sinks.with_dead_letters import MemoryBoth
from tests.sinks.world import SinkWorld


class MemoryWorld(SinkWorld):
    """Tables in memory. A table is its sink, so there is only one process."""

    def new_location(self, folder: Path, server: Any) -> str:
        del server
        return str(folder)

    def make_sink(self, location: str, rows: pa.Schema, metadata: Mapping[str, str]) -> Any:
        return MemoryBoth(location, rows, metadata)

    def reopen(self, sink: Any) -> Any:
        return sink

    def pieces(self, sink: Any) -> list[pa.Table]:
        return sink.pieces()  # type: ignore[no-any-return]

    def no_answer(self, sink: Any) -> AbstractContextManager[None]:
        sink.store.fault = "unknown"
        return nullcontext()
