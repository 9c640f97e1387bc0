"""What a recipe for JSON builds: the compiled pass first, then the strict way for what it didn't take."""

from __future__ import annotations

from ingest.decode.json.onepass import OnePass
from ingest.decode.json.strict import Strict, Unknown
from ingest.decode.json.values import EXACT, Reading
from ingest.decode.shared.machine import Machine
from ingest.schema.columns import Columns


def json_machine(columns: Columns, unknown: Unknown, reading: Reading = EXACT) -> Machine:
    """The machine for some columns."""
    return Machine(columns.arrow_schema, OnePass(columns, unknown, reading), Strict(columns, unknown, reading))
