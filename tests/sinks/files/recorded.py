"""The files sink with a recorder around its steps; see `tests.protocols.traces`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.protocols.traces import Recorder
from tests.sinks.files.twins import RealSink
from tests.sinks.numbered_traces import RecordedPuts
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.sink import Outcome
from windrow.ingest.sinks.files.state import FilesState


class RecordingFiles(RecordedPuts):
    """Before the sink, or a twin of it."""

    window = ""

    def listened_to(self, recorder: Recorder, who: str) -> Any:
        log: Any = self._log  # type: ignore[attr-defined]
        put = log.put
        log.put = lambda state, change: self.told_put(state.number + 1, lambda: put(state, change))
        return super().listened_to(recorder, who)

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        self.window = receipt.window.key
        return super().commit(receipt, staged)

    def _state(self) -> FilesState:
        with self.recorder.step(self.who, "look") as reply:
            state: FilesState = super()._state()  # type: ignore[misc]
            held = self._log.committed(state, self.window)  # type: ignore[attr-defined]
            reply(None if held is None else held.receipt.attempt, state.number - self.first - 1)
        return state


class RecordedFiles(RecordingFiles, RealSink):
    """The sink itself."""
