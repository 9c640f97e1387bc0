"""The sink contracts on the Delta sink and on its twin in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from tests.contracts.dead_letters_contract import DeadLettersContract
from tests.contracts.sink_audit_contract import SinkAuditContract
from tests.contracts.sink_checksums_contract import SinkChecksumsContract
from tests.contracts.sink_contract import SinkContract
from tests.contracts.sink_grids_contract import SinkGridsContract
from tests.contracts.sink_metadata_contract import SinkMetadataContract
from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.hooks import answered
from tests.sinks.with_dead_letters import DeltaBoth, MemoryBoth
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.sinks.table_store import Unanswered


class TestMemorySink(
    SinkContract,
    SinkAuditContract,
    SinkChecksumsContract,
    SinkGridsContract,
    SinkMetadataContract,
    DeadLettersContract,
):
    """In memory."""

    def make(
        self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT
    ) -> MemoryBoth:
        return MemoryBoth(str(tmp_path), schema, metadata)

    def reopen(self, sink: MemoryBoth) -> MemoryBoth:
        return sink

    def pieces(self, sink: MemoryBoth) -> list[pa.Table]:
        return sink.pieces()

    @contextmanager
    def no_answer(self, sink: MemoryBoth) -> Iterator[None]:
        sink.store.fault = "unknown"
        yield


@pytest.mark.some(1)
class TestDeltaSink(
    SinkContract,
    SinkAuditContract,
    SinkChecksumsContract,
    SinkGridsContract,
    SinkMetadataContract,
    DeadLettersContract,
):
    """On real Delta tables."""

    def make(
        self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT
    ) -> DeltaBoth:
        return DeltaBoth(str(tmp_path / "orders"), schema, metadata)

    def reopen(self, sink: DeltaBoth) -> DeltaBoth:
        return DeltaBoth(sink.uri, sink.schema, sink.metadata)

    def pieces(self, sink: DeltaBoth) -> list[pa.Table]:
        return delta_pieces(sink.uri)

    @contextmanager
    def no_answer(self, sink: DeltaBoth) -> Iterator[None]:
        answered(sink, (Unanswered("connection reset"), True))
        yield
