"""A table of files with a recorder around its steps; see `tests.protocols.traces`."""

from __future__ import annotations

from tests.sinks.files.twins import RealSink
from tests.sinks.numbered_traces import RecordedTable


class RecordedFiles(RecordedTable, RealSink):
    """The sink itself."""
