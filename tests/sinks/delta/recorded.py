"""The Delta sink with a recorder around its steps; see `tests.protocols.traces`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltalake.exceptions import CommitFailedError
from deltalake.transaction import CommitProperties

from ingest.model.plan import Plan
from ingest.model.receipt import Receipt
from ingest.model.staged import Staged
from ingest.ports.sink import Outcome
from ingest.sinks.decision import Seen
from ingest.sinks.delta.newest import State
from ingest.sinks.delta.table import Writing
from tests.protocols.traces import Recorder
from tests.sinks.beside import DeltaBoth
from tests.sinks.things import ROWS


class RecordedDelta(DeltaBoth):
    """`who`: the run, as the model calls it. `first`: the table's version when the scenario begins, which the model calls -1."""

    def __init__(self, uri: str, recorder: Recorder, who: str, first: int = 0) -> None:
        super().__init__(uri, ROWS)
        self.recorder, self.who, self.first = recorder, who, first

    def commit_dead(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        with self.recorder.step(self.who, "keep_letters") as reply:
            super().commit_dead(plan, attempt, staged)
            reply("ok")

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        outcome = super().commit(receipt, staged)
        self.recorder.says(self.who, type(outcome).__name__)
        return outcome

    def _look_for(self, receipt: Receipt) -> tuple[State, Seen]:
        with self.recorder.step(self.who, "look") as reply:
            state, seen = super()._look_for(receipt)
            reply(None if seen.committed is None else seen.committed.receipt.attempt, state.version - self.first - 1)
        return state, seen

    def _write(self, state: State, writing: Writing, properties: CommitProperties) -> None:
        with self.recorder.step(self.who, "put", state.version - self.first) as reply:
            try:
                self._send(state, writing, properties)
            except CommitFailedError:
                reply("taken")
                raise
            except Exception:
                reply("unknown")
                raise
            reply("ok")

    def _send(self, *args: Any) -> None:
        """The put itself, for tests that lose an answer."""
        super()._write(*args)
