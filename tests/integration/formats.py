"""Models of the tests of formats."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


class Sale(pa.DataFrameModel):
    """A sale. `shop` and `number` come from the key, `trace` from a header."""

    shop: pl.String
    number: pl.Int32
    amount: pl.Decimal(9, 2) = pa.Field(ge=0)
    note: pl.String = pa.Field(nullable=True)
    trace: pl.String = pa.Field(nullable=True)


class Count(pa.DataFrameModel):
    """Sold pieces. `shop` and `number` come from the key."""

    shop: pl.String
    number: pl.Int32
    pieces: pl.Int64 = pa.Field(ge=0)


class Reading(pa.DataFrameModel):
    """A reading, as a careless producer writes it."""

    id: pl.Int64
    at: pl.Datetime("us", "UTC")
    name: pl.String = pa.Field(nullable=True)


class Line(pa.DataFrameModel):
    """A text with a text key."""

    host: pl.String
    line: pl.String


class Kept(pa.DataFrameModel):
    """Bytes with a bytes key."""

    id: pl.Binary
    body: pl.Binary = pa.Field(nullable=True)


class Customer(pa.DataFrameModel):
    """A row whose changes are decoded, with the operation."""

    id: pl.Int64
    name: pl.String
    op: pl.String
