"""Stages rows for several tables at once: each row goes to its table's stager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.errors import UnfitRowsError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.staged import Staging
from windrow.ingest.ports.sink import CheckingStager, Stager, StagerFactory
from windrow.ingest.schema.checksum import text
from windrow.ingest.sinks.routes.parts import TableRows
from windrow.ingest.sinks.routes.router import Router, parts_by_table


class RoutedStagerFactory(msgspec.Struct, frozen=True):
    """Makes stagers on executors, so it is picklable.

    `tables` has the identity and the factory of each table in the order of the rules, `other` last.
    """

    router: Router
    tables: tuple[tuple[str, StagerFactory], ...]

    def __call__(self, split: Split) -> RoutedStager:
        """Makes a stager of the split for one attempt."""
        return RoutedStager(self.router, [(name, factory(split)) for name, factory in self.tables])


class RoutedStager:
    """`ports.sink.Stager` over the stagers of the tables."""

    def __init__(self, router: Router, tables: Sequence[tuple[str, Stager]]) -> None:
        self._router, self._tables = router, tables
        self._messages = [0] * len(tables)

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        """Stages rows, after all tables have checked theirs."""
        if not rows.num_rows:
            return
        tables = self._router.rules_of(rows, messages)
        parts = parts_by_table(tables, rows, messages)
        for take in [
            self._ready(np.flatnonzero(tables == table), self._tables[table][1], *part)
            for table, *part in parts
        ]:
            take()
        for table, _, theirs in parts:
            offsets = theirs["offset"].to_numpy()
            # a message's rows are never in two batches
            self._messages[table] += int(np.count_nonzero(np.diff(offsets))) + 1

    def _ready(
        self,
        numbers: npt.NDArray[np.intp],
        stager: Stager,
        rows: pa.RecordBatch,
        messages: pa.RecordBatch,
    ) -> Callable[[], None]:
        """Checks a table's rows; returns a function that stages them.

        `numbers` are the rows' positions in the batch.
        """
        if not isinstance(stager, CheckingStager):
            return partial(stager.add, rows, messages)
        try:
            return stager.check(rows, messages)
        except UnfitRowsError as unfit:
            unfit.rows = numbers[unfit.rows].tolist()
            raise

    def finish(self) -> Staging:
        """Finishes all stagers; gives a committable for each table that has rows."""
        done = [stager.finish() for _, stager in self._tables]
        parts = [
            TableRows(name, staging.rows, messages, staging.checksum, staging.committables)
            for (name, _), staging, messages in zip(self._tables, done, self._messages, strict=True)
            if staging.rows
        ]
        whole = text(sum(int(staging.checksum, 16) for staging in done))
        return Staging(
            sum(staging.rows for staging in done),
            whole,
            tuple(msgspec.json.encode(part).decode() for part in parts),
        )

    def discard(self) -> None:
        for _, stager in self._tables:
            stager.discard()
