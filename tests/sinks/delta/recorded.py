"""The Delta sinks with a recorder around their steps; see `tests.protocols.traces`.

A version is the model's number.
"""

from __future__ import annotations

from typing import Any

from tests.protocols.traces import Recorder
from tests.sinks.hooks import on_put
from tests.sinks.numbered_traces import RecordedTable
from tests.sinks.with_dead_letters import DeltaBoth, DeltaKeyedBoth
from windrow.ingest.sinks.table_store import Answer, TableChange


class _Puts:
    """Behind the recorder: what a put comes to, which a twin may change."""

    def put(self, state: Any, change: TableChange) -> Answer:
        return state.put(change)  # type: ignore[no-any-return]

    def once(self, state: Any, change: TableChange) -> Answer:
        return self.put(state, change)


class RecordingDelta(RecordedTable, _Puts):
    """Before a sink, or a twin of it."""

    def listened_to(self, recorder: Recorder, who: str) -> Any:
        on_put(self, self.once)
        return super().listened_to(recorder, who)


class RecordedDelta(RecordingDelta, DeltaBoth):
    """Of a table that rows are appended to."""


class RecordedKeyed(RecordingDelta, DeltaKeyedBoth):
    """Of a table with a primary key."""
