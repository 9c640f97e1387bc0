"""The sink contracts on several tables as one sink: in memory, and of two kinds on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.contracts.dead_letters_contract import DeadLettersContract
from tests.contracts.sink_audit_contract import SinkAuditContract
from tests.contracts.sink_checksums_contract import SinkChecksumsContract
from tests.contracts.sink_contract import SinkContract
from tests.contracts.sink_grids_contract import SinkGridsContract
from tests.contracts.sink_metadata_contract import SinkMetadataContract
from tests.sinks.hooks import answered
from tests.sinks.routes.things import RoutedBoth, in_memory, of_two_kinds, pieces
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.sinks.table_store import Unanswered


@pytest.mark.some(1)
class RoutedContract(
    SinkContract,
    SinkAuditContract,
    SinkChecksumsContract,
    SinkGridsContract,
    SinkMetadataContract,
    DeadLettersContract,
):
    """All that a sink of one table promises, but that its rows become visible at once."""

    def pieces(self, sink: RoutedBoth) -> list[pa.Table]:
        return pieces(sink)

    def test_it_says_what_it_promises(self, sink: Any) -> None:
        """Table by table; each of them replaces, and appends."""
        assert sink.capabilities == Capabilities(atomic="table")


class TestInMemory(RoutedContract):
    """Three tables in memory."""

    def make(
        self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT
    ) -> RoutedBoth:
        return in_memory(tmp_path, schema, metadata)

    def reopen(self, sink: RoutedBoth) -> RoutedBoth:
        return sink

    @contextmanager
    def no_answer(self, sink: RoutedBoth) -> Iterator[None]:
        sink.other.store.fault = "unknown"
        yield


@pytest.mark.slow
class TestOfTwoKinds(RoutedContract):
    """A Delta table, one of SQLite, and another Delta table for the rest."""

    def make(
        self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT
    ) -> RoutedBoth:
        return of_two_kinds(tmp_path, schema, metadata)

    def reopen(self, sink: RoutedBoth) -> RoutedBoth:
        return sink.again()

    @contextmanager
    def no_answer(self, sink: RoutedBoth) -> Iterator[None]:
        answered(sink.other, (Unanswered("connection reset"), True))
        yield
