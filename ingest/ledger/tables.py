"""The ledger's tables: a few key columns, and each value as its JSON."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import BigInteger, Column, MetaData, Table, Text

TABLES = MetaData()

FACTS = Table("windrow_facts", TABLES, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))
"""The ledger's identity."""

GRIDS = Table("windrow_grids", TABLES, Column("pipeline", Text, primary_key=True), Column("grid", Text, nullable=False))

BOUNDARIES = Table(
    "windrow_boundaries",
    TABLES,
    Column("pipeline", Text, primary_key=True),
    Column("label", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

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


def sortable(moment: datetime) -> str:
    """An instant as a text of fixed width, so that texts sort as instants do, in every collation."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
