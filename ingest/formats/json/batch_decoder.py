"""What a recipe for JSON builds: the compiled pass first, then the strict way for what
it didn't take.
"""

from __future__ import annotations

from windrow.ingest.formats.json.onepass import OnePass
from windrow.ingest.formats.json.strict import Strict, Unknown
from windrow.ingest.formats.json.values import EXACT, Reading
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.schema.columns import Columns


def json_batch_decoder(
    columns: Columns, unknown: Unknown, reading: Reading = EXACT
) -> BatchDecoder:
    """The machine for some columns."""
    return BatchDecoder(
        columns.arrow_schema, OnePass(columns, unknown, reading), Strict(columns, unknown, reading)
    )
