"""What a recipe for CSV builds: the compiled pass first, then the strict way for what
it didn't take.
"""

from __future__ import annotations

from windrow.ingest.formats.csv.lines import Dialect
from windrow.ingest.formats.csv.onepass import CsvPass
from windrow.ingest.formats.csv.strict import StrictLine
from windrow.ingest.formats.json.values import EXACT, Reading
from windrow.ingest.formats.shared.machine import Machine
from windrow.ingest.schema.columns import Columns


def csv_machine(columns: Columns, dialect: Dialect, reading: Reading = EXACT) -> Machine:
    """The machine for some columns."""
    return Machine(
        columns.arrow_schema,
        CsvPass(columns, dialect, reading),
        StrictLine(columns, dialect, reading),
    )
