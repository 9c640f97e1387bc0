"""The kinds of sinks, one line each; a kind is loaded when a spec names it."""

from __future__ import annotations

from collections import ChainMap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from windrow.ingest.settings.kinds import OfItsKind, kind_at
from windrow.ingest.settings.plugins import Plugins
from windrow.ingest.sinks.kind import SinkKind, SinkSection

if TYPE_CHECKING:
    from windrow.ingest.ports.dead_letters import DeadLetters

TABLES = {
    "delta": "windrow.ingest.sinks.delta.kind:DELTA",
    "files": "windrow.ingest.sinks.files.kind:FILES",
    "postgres": "windrow.ingest.sinks.postgres.kind:POSTGRES",
    "iceberg": "windrow.ingest.sinks.iceberg.kind:ICEBERG",
    "sqlite": "windrow.ingest.sinks.sqlite.kind:SQLITE",
}
"""The kinds that are one table."""

KINDS = ChainMap(
    {
        "kafka": "windrow.ingest.sinks.kafka.kind:KAFKA",
        "routes": "windrow.ingest.sinks.routes.kind:ROUTES",
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


def sink_kind(name: str) -> SinkKind[Any]:
    """Loads one kind by the name that a section of it has."""
    kind: SinkKind[Any] = kind_at(KINDS[name]) if name in KINDS else PLUGINS.kind(name)
    return kind


def delta_dead_letters(table: str) -> DeadLetters:
    """The dead letters of the table at a place, in a Delta table beside it."""
    delta = sink_kind("delta")
    return delta.dead_letters(delta.section.model_validate({"path": table}), Path("/"))
