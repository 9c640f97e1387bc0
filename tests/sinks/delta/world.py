"""Delta tables as the harness of `tests.chaos` has them; a place is a folder, whose
name says whether the table has a primary key.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.things import ROWS
from tests.sinks.with_dead_letters import DeltaBoth, DeltaKeyedBoth
from windrow.ingest.schema.primary_key import PrimaryKey

LOG_ORDER = [("_partition", "ascending"), ("_offset", "ascending")]


def sink_at(place: str) -> Any:
    """The sink at a place."""
    return (
        DeltaKeyedBoth(place, ROWS, PrimaryKey(("id",), buckets=3))
        if place.endswith("-keyed")
        else DeltaBoth(place, ROWS)
    )


def pieces(sink: Any) -> list[pa.Table]:
    """All visible rows: one table per file, but where rows lie by their keys."""
    found = delta_pieces(sink.uri)
    return (
        [pa.concat_tables(found).sort_by(LOG_ORDER)]
        if found and isinstance(sink, DeltaKeyedBoth)
        else found
    )
