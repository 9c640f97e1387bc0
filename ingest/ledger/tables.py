"""The ledger's tables: a few key columns, and each value as JSON.

What is stored of a window grows with its topic-partitions, and is much the same for each: a
thousand of them are a megabyte of JSON, and a tenth of that compressed. So long texts are
compressed. Short ones stay readable for a person who looks into the database.
"""

from __future__ import annotations

import base64
import zlib
from datetime import UTC

from sqlalchemy import BigInteger, Column, MetaData, Table, Text

from windrow.ingest.model.label import Label

TABLES = MetaData()

FACTS = Table(
    "windrow_facts",
    TABLES,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""The ledger's id, under the name `identity`."""

GRIDS = Table(
    "windrow_grids",
    TABLES,
    Column("pipeline", Text, primary_key=True),
    Column("grid", Text, nullable=False),
)

SINKS = Table(
    "windrow_sinks",
    TABLES,
    Column("pipeline", Text, primary_key=True),
    Column("sink", Text, nullable=False),
)
"""The table that each pipeline writes to, by the sink's identity."""

BOUNDARIES = Table(
    "windrow_boundaries",
    TABLES,
    Column("pipeline", Text, primary_key=True),
    Column("label", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

OPENINGS = Table(
    "windrow_openings",
    TABLES,
    Column("pipeline", Text, primary_key=True),
    Column("label", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""The boundaries that rebases recorded for the windows that start at their labels."""

REQUESTS = Table(
    "windrow_requests",
    TABLES,
    Column("pipeline", Text, primary_key=True),
    Column("request", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
)
"""The number of the micro-batch that each request runs."""

PLANS = Table(
    "windrow_plans",
    TABLES,
    Column("pipeline", Text, primary_key=True),
    Column("window_start", Text, primary_key=True),
    Column("window_end", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

TARGETS = Table(
    "windrow_targets",
    TABLES,
    Column("pipeline", Text, primary_key=True),
    Column("window_start", Text, primary_key=True),
    Column("window_end", Text, primary_key=True),
    Column("request", Text, primary_key=True),
    Column("generation", BigInteger, nullable=False),
)
"""The generation that each replacing request writes."""

RECEIPTS = Table(
    "windrow_receipts",
    TABLES,
    Column("pipeline", Text, primary_key=True),
    Column("window_start", Text, primary_key=True),
    Column("window_end", Text, primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("value", Text, nullable=False),
)

SCHEMAS = Table(
    "windrow_schemas",
    TABLES,
    Column("pipeline", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("value", Text, nullable=False),
)
"""Writers' schemas by their ids, numbered in the order in which they were recorded."""

NUMBERS = "batch-"
"""The prefix of the labels of micro-batches.

They sort behind the labels that are times, in every collation: digits come before letters.
"""


def sortable(label: Label) -> str:
    """Writes a label as a text of fixed width, so that texts sort as labels do."""
    if isinstance(label, int):
        return f"{NUMBERS}{label:019d}"
    return label.astimezone(UTC).isoformat(timespec="microseconds")


LONG = 16 * 1024
"""A text with more characters is compressed."""

_COMPRESSED = "zlib:"
"""The prefix of a compressed text; no JSON begins so."""


def packed(text: str) -> str:
    """Compresses a long text, for a column of the ledger."""
    if len(text) <= LONG:
        return text
    return _COMPRESSED + base64.b64encode(zlib.compress(text.encode(), 1)).decode()


def unpacked(stored: str) -> str:
    """Reads the text in a column.

    Raises:
        ValueError: it is damaged.
    """
    if not stored.startswith(_COMPRESSED):
        return stored
    content = base64.b64decode(stored.removeprefix(_COMPRESSED), validate=True)
    try:
        return zlib.decompress(content).decode()
    except zlib.error as error:
        raise ValueError(str(error)) from None
