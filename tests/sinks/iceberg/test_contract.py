"""The sink contracts on the Iceberg sink, with its catalog in SQLite."""

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
from tests.sinks.iceberg.world import TABLE, IcebergBoth, pieces
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.sinks.iceberg.commit import Prepared

pytestmark = pytest.mark.slow


@pytest.mark.some(1)
class TestIcebergSink(
    SinkContract,
    SinkAuditContract,
    SinkChecksumsContract,
    SinkGridsContract,
    SinkMetadataContract,
    DeadLettersContract,
):
    """On real Iceberg tables."""

    def make(
        self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT
    ) -> IcebergBoth:
        return IcebergBoth(CatalogTable.in_folder(str(tmp_path), TABLE), schema, metadata)

    def reopen(self, sink: IcebergBoth) -> IcebergBoth:
        return IcebergBoth(sink.at, sink.schema, sink.metadata)

    def pieces(self, sink: IcebergBoth) -> list[pa.Table]:
        return pieces(sink)

    @contextmanager
    def no_answer(self, sink: IcebergBoth) -> Iterator[None]:
        store = sink.store

        def unanswered(ready: Prepared) -> None:
            del store.send
            ready.send()
            raise OSError("connection reset")

        store.send = unanswered  # type: ignore[method-assign]
        yield
