"""The Iceberg sink with a recorder around its steps; see `tests.protocols.traces`.

A snapshot's number is the model's.
"""

from __future__ import annotations

from tests.sinks.iceberg.twins import RealSink
from tests.sinks.numbered_traces import RecordedTable


class RecordedIceberg(RecordedTable, RealSink):
    """The sink itself."""
