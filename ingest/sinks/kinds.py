"""The kinds of sinks, one line each; a kind is loaded when a spec names it."""

from __future__ import annotations

from collections import ChainMap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windrow.ingest.settings.kinds import OfItsKind, section_at
from windrow.ingest.settings.plugins import Plugins
from windrow.ingest.sinks.kind import SinkSection

if TYPE_CHECKING:
    from windrow.ingest.ports.dead_letters import DeadLetters

TABLES = {
    "delta": "windrow.ingest.sinks.delta.kind:DeltaSection",
    "files": "windrow.ingest.sinks.files.kind:FilesSection",
    "postgres": "windrow.ingest.sinks.postgres.kind:PostgresSection",
    "iceberg": "windrow.ingest.sinks.iceberg.kind:IcebergSection",
    "sqlite": "windrow.ingest.sinks.sqlite.kind:SqliteSection",
}
"""The kinds that are one table."""

KINDS = ChainMap(
    {
        "kafka": "windrow.ingest.sinks.kafka.kind:KafkaSection",
        "routes": "windrow.ingest.sinks.routes.kind:RoutesSection",
    },
    TABLES,
)

PLUGINS = Plugins("windrow.sinks", KINDS, SinkSection, ("make", "dead_letters"))

TableOfItsKind = Annotated[SinkSection, OfItsKind("kind", "delta", TABLES, PLUGINS)]
"""The section of one of several tables."""

SinkOfItsKind = Annotated[SinkSection, OfItsKind("kind", "delta", KINDS, PLUGINS)]
"""A spec's `sink` section."""


KafkaOfItsKind = Annotated[SinkSection, OfItsKind("kind", "kafka", {"kafka": KINDS["kafka"]})]
"""The section of Kafka topics alone."""


def delta_dead_letters(table: str) -> DeadLetters:
    """The dead letters of the table at a place, in a Delta table beside it."""
    section: SinkSection = section_at(TABLES["delta"]).model_validate({"path": table})
    return section.dead_letters(Path("/"))
