"""The table of the kinds of sinks. A kind's module is loaded when a spec names the kind."""

from __future__ import annotations

from collections import ChainMap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windrow.ingest.errors import check_output
from windrow.ingest.settings.kinds import OfItsKind, Plugins
from windrow.ingest.sinks.kind import SinkSection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.ingest.ports.dead_letters import DeadLetters
    from windrow.ingest.ports.sink import Sink
    from windrow.ingest.sinks.kind import Rows

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

TableOfItsKind = Annotated[
    SinkSection, OfItsKind(option="kind", default="delta", kinds=TABLES, plugins=PLUGINS)
]
"""The section of one table among several."""

SinkOfItsKind = Annotated[
    SinkSection, OfItsKind(option="kind", default="delta", kinds=KINDS, plugins=PLUGINS)
]
"""A spec's `sink` section."""


KafkaOfItsKind = Annotated[
    SinkSection, OfItsKind(option="kind", default="kafka", kinds={"kafka": KINDS["kafka"]})
]
"""The section of a sink that is only Kafka topics."""


def make_table(
    section: SinkSection, rows: Rows, metadata: Mapping[str, str], folder: Path
) -> tuple[Sink, DeadLetters]:
    """Makes the table that a `sink` section describes, and the table of its dead letters.

    Raises:
        SpecError: as the section's methods.
        BugError: one of the methods returns another type.
    """
    sink, dead = section.make(rows, metadata, folder), section.dead_letters(folder)
    return check_output(section, sink, "stager"), check_output(section, dead, "stager")
