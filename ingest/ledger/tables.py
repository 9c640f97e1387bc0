"""The ledger's tables: a few key columns, and each value as its JSON (see
`ingest.ledger.texts`).
"""

from __future__ import annotations

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
"""The ledger's identity."""

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
"""The one table that each pipeline writes to, by the sink's identity."""

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
"""What rebases recorded: how windows that start at a label see its boundary."""

REQUESTS = Table(
    "windrow_requests",
    TABLES,
    Column("pipeline", Text, primary_key=True),
    Column("request", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
)
"""The micro-batch that each request runs."""

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
"""The generation each replacing request aims at."""

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
"""Writers' schemas by their ids; numbered as they came."""

NUMBERS = "batch-"
"""Texts of numbers sort from here on, texts of instants before it, in every collation:
digits come before letters.
"""


def sortable(label: Label) -> str:
    """A label as a text of fixed width, so that texts sort as labels do."""
    if isinstance(label, int):
        return f"{NUMBERS}{label:019d}"
    return label.astimezone(UTC).isoformat(timespec="microseconds")
