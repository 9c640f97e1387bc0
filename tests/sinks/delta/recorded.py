"""The Delta sinks with a recorder around their steps; see `tests.protocols.traces`."""

from __future__ import annotations

from typing import Any

from deltalake.exceptions import CommitFailedError
from deltalake.transaction import CommitProperties

from tests.sinks.beside import DeltaBoth, DeltaKeyedBoth
from tests.sinks.numbered_traces import RecordedPuts
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.sinks.decision import Seen
from windrow.ingest.sinks.delta.newest import State
from windrow.ingest.sinks.delta.table import Writing


class RecordingDelta(RecordedPuts):
    """Before a sink, or a twin of it. A version is the model's number."""

    taken = CommitFailedError

    def _look_for(self, receipt: Receipt) -> tuple[State, Seen]:
        with self.recorder.step(self.who, "look") as reply:
            state, seen = super()._look_for(receipt)  # type: ignore[misc]
            reply(None if seen.committed is None else seen.committed.receipt.attempt, state.version - self.first - 1)
        return state, seen

    def _write(self, state: State, writing: Writing, properties: CommitProperties) -> None:
        write: Any = super()._write  # type: ignore[misc]
        self.told_put(state.version + 1, lambda: write(state, writing, properties))


class RecordedDelta(RecordingDelta, DeltaBoth):
    """Of a table that rows are appended to."""


class RecordedKeyed(RecordingDelta, DeltaKeyedBoth):
    """Of a table with a primary key."""
