"""The Iceberg sink with a recorder around its steps; see `tests.protocols.traces`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyiceberg.exceptions import CommitFailedException

from tests.sinks.iceberg.twins import RealSink
from tests.sinks.numbered_traces import RecordedPuts
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.sink import Outcome
from windrow.ingest.sinks.iceberg.table import LakeState


class RecordingIceberg(RecordedPuts):
    """Before the sink, or a twin of it. A snapshot's number is the model's. `looked`: that of the newest look."""

    taken = CommitFailedException
    looked = 0

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        lake: Any = self._lake  # type: ignore[attr-defined]
        look_now = lake.look_now

        def looks() -> LakeState:
            with self.recorder.step(self.who, "look") as reply:
                state: LakeState = look_now()
                held = self._committed(state, receipt.window.key)  # type: ignore[attr-defined]
                self.looked = state.number
                reply(None if held is None else held.receipt.attempt, state.number - self.first - 1)
            return state

        lake.look_now = looks
        return super().commit(receipt, staged)

    def sending(self, send: Callable[[], None]) -> Callable[[], None]:
        sends: Callable[[], None] = super().sending(send)  # type: ignore[misc]
        return lambda: self.told_put(self.looked + 1, sends)


class RecordedIceberg(RecordingIceberg, RealSink):
    """The sink itself."""
