"""The kinds of sinks that there are: one line each.

What stands behind a line is loaded when a spec names the kind.
"""

from __future__ import annotations

from collections import ChainMap
from typing import Annotated, Any

from windrow.ingest.settings.kinds import OfItsKind, kind_at
from windrow.ingest.sinks.kind import SinkKind, SinkSection

TABLES = {
    "delta": "windrow.ingest.sinks.delta.kind:DELTA",
    "files": "windrow.ingest.sinks.files.kind:FILES",
    "postgres": "windrow.ingest.sinks.postgres.kind:POSTGRES",
    "iceberg": "windrow.ingest.sinks.iceberg.kind:ICEBERG",
    "sqlite": "windrow.ingest.sinks.sqlite.kind:SQLITE",
}
"""Those that are one table."""

KINDS = ChainMap(
    {
        "kafka": "windrow.ingest.sinks.kafka.kind:KAFKA",
        "routes": "windrow.ingest.sinks.routes.kind:ROUTES",
    },
    TABLES,
)

TableOfItsKind = Annotated[SinkSection, OfItsKind("kind", "delta", TABLES)]
"""The section of one of several tables."""

SinkOfItsKind = Annotated[SinkSection, OfItsKind("kind", "delta", KINDS)]
"""A spec's `sink` section."""


KafkaOfItsKind = Annotated[SinkSection, OfItsKind("kind", "kafka", {"kafka": KINDS["kafka"]})]
"""The section of topics, for who writes to nothing else."""


def sink_kind(name: str) -> SinkKind[Any]:
    """Load a kind and nothing of the others. `name` is one of `KINDS`."""
    kind: SinkKind[Any] = kind_at(KINDS[name])
    return kind
