"""The sink contracts on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.contracts.dead_letters_contract import DeadLettersContract
from tests.contracts.sink_audit_contract import SinkAuditContract
from tests.contracts.sink_checksums_contract import SinkChecksumsContract
from tests.contracts.sink_contract import SinkContract
from tests.contracts.sink_grids_contract import SinkGridsContract
from tests.contracts.sink_keyed_contract import SinkKeyedContract
from tests.contracts.sink_metadata_contract import SinkMetadataContract
from tests.sinks.postgres.keyed_world import PostgresKeyedBoth
from tests.sinks.postgres.keyed_world import pieces as keyed_pieces
from tests.sinks.postgres.world import PostgresBoth, pieces, place_of
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.changes import DELETED
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.postgres import server

pytestmark = pytest.mark.slow  # starts a server


once = pytest.mark.some(1)
"""A case that several of these classes have is run by one of them."""


class _OnAServer:
    """What both suites do to a server."""

    database: str

    @pytest.fixture(autouse=True)
    def _database(self, database: str) -> None:
        self.database = database

    @contextmanager
    def no_answer(self, sink: Any) -> Iterator[None]:
        commit = server.commit
        with pytest.MonkeyPatch.context() as patch:

            def unanswered(connection: Any) -> None:
                patch.undo()
                commit(connection)
                raise psycopg.OperationalError("the connection is lost")

            patch.setattr(server, "commit", unanswered)
            yield


@once
class TestPostgresSink(
    _OnAServer,
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
    ) -> PostgresBoth:
        return PostgresBoth(place_of(f"{self.database}#{tmp_path.name}"), schema, metadata)

    def reopen(self, sink: PostgresBoth) -> PostgresBoth:
        return PostgresBoth(sink.place, sink.schema, sink.metadata)

    def pieces(self, sink: PostgresBoth) -> list[pa.Table]:
        return pieces(sink)


@once
class TestPostgresKeyedSink(
    _OnAServer, SinkKeyedContract, SinkGridsContract, SinkMetadataContract, DeadLettersContract
):
    """Those of a table with a primary key."""

    MARKS = False

    def make(
        self, tmp_path: Path, schema: pa.Schema, metadata: Mapping[str, str] = DEFAULT
    ) -> PostgresKeyedBoth:
        key = PrimaryKey(("id",), marks=self.MARKS)
        return PostgresKeyedBoth(
            place_of(f"{self.database}#{tmp_path.name}"), schema, key, metadata
        )

    def reopen(self, sink: PostgresKeyedBoth) -> PostgresKeyedBoth:
        return PostgresKeyedBoth(sink.place, sink.schema, sink.primary_key, sink.metadata)

    def pieces(self, sink: PostgresKeyedBoth) -> list[pa.Table]:
        return keyed_pieces(sink)


class TestPostgresMarkedSink(TestPostgresKeyedSink):
    """Where what is deleted stays as its key.

    The mark's column, which comes with the key, is none of what the suites say of columns.
    """

    MARKS = True

    def pieces(self, sink: PostgresKeyedBoth) -> list[pa.Table]:
        return [piece.drop_columns([DELETED]) for piece in keyed_pieces(sink)]
