"""A pipeline's table and its ledger as Dagster resources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, cast

import dagster as dg
from pydantic import Field

from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.settings_file import refusal, validate
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.sink import Sink
from windrow.ingest.settings.document import Document
from windrow.ingest.settings.secrets import in_folder, written
from windrow.ingest.settings.values import Reference, Section
from windrow.ingest.sinks.kind import Rows
from windrow.ingest.sinks.kinds import SinkOfItsKind, make_table


class Table(dg.ConfigurableResource[None]):
    """The table of rows and receipts, with its dead letters.

    Example:
        from windrow import load_spec
        from windrow.dagster import Table, kafka_table, sink_key

        spec = load_spec("payments/defs.yaml")
        table = Table(settings={"kind": "delta", "path": "staging/payments"}, folder="/srv/lake")
        defs = kafka_table(spec, {sink_key(spec): table})
    """

    settings: Mapping[str, Any] = Field(repr=False, description="As under a spec's sink")
    folder: str = Field(description="The folder that relative paths are relative to")

    @classmethod
    def of(cls, spec: PipelineSpec) -> Self:
        """Makes the resource from a spec's table."""
        return cls(
            settings=spec.reached_sink.model_dump(mode="json", exclude_none=True),
            folder=str(spec.folder),
        )

    def open(self, rows: Rows, metadata: Mapping[str, str]) -> tuple[Sink, DeadLetters]:
        """Returns the table and its dead letters. Reads and writes nothing.

        Args:
            rows: the columns of the rows, without the metadata columns.
            metadata: the metadata columns, name -> column.

        Raises:
            SpecError: a field is wrong.
        """
        settings, mistakes = validate(_Settings, {"sink": self.settings}, shared=True)
        if settings is None:
            raise refusal("the resource Table", mistakes, Document())
        return make_table(settings.sink, rows, metadata, Path(self.folder))


class _Settings(Section):
    sink: SinkOfItsKind


class LedgerState(dg.ConfigurableResource[None]):
    """The database of boundaries, plans and copies of receipts: SQLite or PostgreSQL.

    Example:
        from windrow import load_spec
        from windrow.dagster import LedgerState, kafka_table, ledger_key

        spec = load_spec("payments/defs.yaml")
        ledger = LedgerState(url="sqlite:////srv/windrow/state.db")
        defs = kafka_table(spec, {ledger_key(spec): ledger})
    """

    url: str = Field(repr=False, description="A path, sqlite:///path or postgresql+psycopg://...")
    password: Mapping[str, Any] = Field(
        default_factory=dict, repr=False, description="As a spec's state_password"
    )

    @classmethod
    def of(cls, spec: PipelineSpec) -> Self:
        """Makes the resource from a spec's ledger."""
        password = in_folder(spec.state_password, spec.folder)
        as_written = cast("Mapping[str, Any]", written(password) or {})
        return cls(url=spec.state_url(), password=as_written)

    def ledger(self) -> Ledger:
        """Opens the ledger. The first write creates it.

        Raises:
            SpecError: a field is wrong.
            UnreachableError: the database doesn't answer.
        """
        fields = {"password": self.password or None}
        settings, mistakes = validate(_LedgerPassword, fields, shared=True)
        if settings is None:
            raise refusal("the resource LedgerState", mistakes, Document())
        return open_ledger(self.url, settings.password)


class _LedgerPassword(Section):
    password: Reference | None
