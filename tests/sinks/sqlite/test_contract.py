"""The sink contracts on an SQLite file."""

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
from tests.sinks.hooks import answered
from tests.sinks.sqlite.world import SqliteBoth, pieces
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.sinks.table_store import Unanswered


@pytest.mark.some(1)
class TestSqlite(
    SinkContract,
    SinkAuditContract,
    SinkChecksumsContract,
    SinkGridsContract,
    SinkMetadataContract,
    DeadLettersContract,
):
    """The contract suites, unchanged."""

    def make(
        self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT
    ) -> SqliteBoth:
        return SqliteBoth(str(tmp_path / "orders.sqlite"), schema, metadata)

    def reopen(self, sink: SqliteBoth) -> SqliteBoth:
        return SqliteBoth(sink.store.path, sink.schema, sink.metadata)

    def pieces(self, sink: SqliteBoth) -> list[pa.Table]:
        return pieces(sink)

    @contextmanager
    def no_answer(self, sink: SqliteBoth) -> Iterator[None]:
        answered(sink, (Unanswered("disk I/O error"), True))
        yield
