"""The sink contracts on the files sink, on a real disk."""

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
from tests.contracts.sink_under_test import SinkUnderTest
from tests.sinks.files.world import FORMATS, FilesBoth, pieces
from tests.sinks.hooks import answered
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.sinks.table_store import Unanswered

pytestmark = pytest.mark.slow  # its dead letters are a Delta table


once = pytest.mark.some(1)
"""A case that several of these classes have is run by one of them."""


class _OnDisk(SinkUnderTest):
    written = FORMATS["parquet"]

    def make(
        self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT
    ) -> FilesBoth:
        return FilesBoth(str(tmp_path / "orders"), schema, metadata, self.written)

    def reopen(self, sink: FilesBoth) -> FilesBoth:
        return FilesBoth(sink.uri, sink.schema, sink.metadata, sink.written)

    def pieces(self, sink: FilesBoth) -> list[pa.Table]:
        return pieces(sink)

    @contextmanager
    def no_answer(self, sink: FilesBoth) -> Iterator[None]:
        answered(sink, (Unanswered("connection reset"), True))
        yield


@once
class TestParquet(
    _OnDisk,
    SinkContract,
    SinkAuditContract,
    SinkChecksumsContract,
    SinkGridsContract,
    SinkMetadataContract,
    DeadLettersContract,
):
    """Parquet files."""


@once
class TestJson(_OnDisk, SinkAuditContract, SinkChecksumsContract, SinkMetadataContract):
    """Lines of JSON: what depends on how rows are written."""

    written = FORMATS["jsonl"]
