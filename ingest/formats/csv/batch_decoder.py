"""What a recipe for CSV builds: the compiled pass first, then the strict way for what
it didn't take.
"""

from __future__ import annotations

from windrow.ingest.formats.csv.lines import Dialect
from windrow.ingest.formats.csv.onepass import CsvPass
from windrow.ingest.formats.csv.strict import StrictLine
from windrow.ingest.formats.json.values import EXACT, Reading
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.schema.columns import Columns


def csv_batch_decoder(columns: Columns, dialect: Dialect, reading: Reading = EXACT) -> BatchDecoder:
    """The machine for some columns."""
    return BatchDecoder(
        columns.arrow_schema,
        CsvPass(columns, dialect, reading),
        StrictLine(columns, dialect, reading),
    )
