"""Broken twins of the Iceberg sink, each one step from the real one. A suite that can't tell them apart proves nothing.

Each takes the same road as many sinks in the wild; `meanwhile` is called between the look and the write, where the other run gets its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tests.sinks.iceberg.world import TABLE, IcebergBoth
from windrow.ingest.sinks.iceberg.at import TableAt
from windrow.ingest.sinks.iceberg.table import Prepared


class RealSink(IcebergBoth):
    """The sink itself; another run gets its turn between its first look and its first write."""

    def __init__(self, place: str, schema: pa.Schema, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(TableAt.in_folder(place, TABLE), schema)
        self.meanwhile = meanwhile
        attempt = self._lake.attempt

        def overtaken(send: Callable[[], None]) -> str | None:
            turn, self.meanwhile = self.meanwhile, lambda: None
            turn()
            return attempt(self.sending(send))

        self._lake.attempt = overtaken  # type: ignore[method-assign]

    def sending(self, send: Any) -> Callable[[], None]:
        """What sends a commit; a twin sends it in another way."""
        return send  # type: ignore[no-any-return]


class OwnRetry(RealSink):
    """Sends by PyIceberg's own commit, which tries again on a state that nobody looked at."""

    def sending(self, send: Any) -> Callable[[], None]:
        ready: Prepared = send.__self__
        return lambda: ready.commit_transaction() and None  # type: ignore[func-returns-value]


class NoAssertion(RealSink):
    """Asserts that it is the same table, and nothing of where main is."""

    def sending(self, send: Any) -> Callable[[], None]:
        ready: Prepared = send.__self__
        ready._requirements = tuple(r for r in ready._requirements if r.type != "assert-ref-snapshot-id")  # type: ignore[attr-defined]
        ready._updates = _rebased(ready)
        return send  # type: ignore[no-any-return]


def _rebased(ready: Prepared) -> Any:
    """The same updates on the newest snapshot, as a writer makes them that loads the table right before it commits."""
    ready._table.refresh()
    ready._rebuild_snapshot_updates()
    ready._requirements = ()
    return ready._updates


class Repeated(RealSink):
    """After an answer that is lost it sends again without a look."""

    lost = True

    def commit(self, receipt: Any, staged: Sequence[Any]) -> Any:
        outcome = super().commit(receipt, staged)
        state = self._lake.look_now()
        files = [f for s in staged for f in s.rows]
        if self.lost and files:
            from windrow.ingest.sinks.iceberg.stage import staged_files

            self._lake.prepared(state, self._writing_again(state, receipt, staged_files(files))).send()
        return outcome

    def _writing_again(self, state: Any, receipt: Any, files: Any) -> Any:
        from dataclasses import replace

        from windrow.ingest.sinks.iceberg.table import LakeWriting

        return replace(LakeWriting(), part=receipt.window.key, added=files)
