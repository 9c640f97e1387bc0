"""What a recipe for CSV builds: the compiled pass first, then the strict way for what it didn't take."""

from __future__ import annotations

from windrow.ingest.decode.csv.lines import Dialect
from windrow.ingest.decode.csv.onepass import CsvPass
from windrow.ingest.decode.csv.strict import StrictLine
from windrow.ingest.decode.json.values import EXACT, Reading
from windrow.ingest.decode.shared.machine import Machine
from windrow.ingest.schema.columns import Columns


def csv_machine(columns: Columns, dialect: Dialect, reading: Reading = EXACT) -> Machine:
    """The machine for some columns."""
    return Machine(columns.arrow_schema, CsvPass(columns, dialect, reading), StrictLine(columns, dialect, reading))
