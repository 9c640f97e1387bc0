"""The Delta sinks with a recorder around their steps; see `tests.protocols.traces`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.protocols.traces import Recorder
from tests.sinks.beside import DeltaBoth, DeltaKeyedBoth
from tests.sinks.hooks import on_put
from tests.sinks.numbered_traces import RecordedPuts
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.sink import Outcome
from windrow.ingest.sinks.table_store import Answer, Conflict, TableChange, Unanswered
from windrow.ingest.sinks.window_table import committed_by_key


class RecordingDelta(RecordedPuts):
    """Before a sink, or a twin of it. A version is the model's number."""

    window = ""

    def listened_to(self, recorder: Recorder, who: str) -> Any:
        store: Any = self.store  # type: ignore[attr-defined]
        writing = store.writing

        @contextmanager
        def looks() -> Iterator[Any]:
            with recorder.step(who, "look") as reply, writing() as state:
                held = committed_by_key(state, [self.window]).get(self.window)
                reply(None if held is None else held.receipt.attempt, state.version - self.first - 1)
            yield state

        store.writing = looks
        on_put(self, self._told)
        return super().listened_to(recorder, who)

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        self.window = receipt.window.key
        return super().commit(receipt, staged)

    def put(self, state: Any, change: TableChange) -> Answer:
        return state.put(change)  # type: ignore[no-any-return]

    def _told(self, state: Any, change: TableChange) -> Answer:
        def sent() -> Answer:
            answer = self.put(state, change)
            if isinstance(answer, Conflict):
                raise FileExistsError
            if isinstance(answer, Unanswered):
                raise OSError(answer.why)
            return answer

        try:
            return self.told_put(state.version + 1, sent)  # type: ignore[no-any-return]
        except FileExistsError:
            return Conflict("taken")
        except OSError as error:
            return Unanswered(str(error))


class RecordedDelta(RecordingDelta, DeltaBoth):
    """Of a table that rows are appended to."""


class RecordedKeyed(RecordingDelta, DeltaKeyedBoth):
    """Of a table with a primary key."""
