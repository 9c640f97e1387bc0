"""Table of all kinds of lookup sources, one line each."""

from __future__ import annotations

from typing import Annotated

from windrow.ingest.lookups.kind import SourceSection
from windrow.ingest.settings.kinds import OfItsOption, Plugins

SOURCES = {
    "table": "windrow.ingest.lookups.table.kind:TableSection",
    "sql": "windrow.ingest.lookups.sql.kind:SqlSection",
    "http": "windrow.ingest.lookups.http.kind:HttpSection",
}

SourceOfItsKind = Annotated[
    SourceSection,
    OfItsOption(
        kinds=SOURCES, plugins=Plugins("windrow.lookups", SOURCES, SourceSection, ("source",))
    ),
]
"""The `from` of a lookup."""
