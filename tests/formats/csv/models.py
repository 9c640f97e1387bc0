"""Models of CSV lines."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


class Every(pa.DataFrameModel):
    """A model with a column of every type that a field can have."""

    whole: pl.Int64 = pa.Field(nullable=True)
    small: pl.Int8 = pa.Field(nullable=True)
    text: pl.String = pa.Field(nullable=True)
    share: pl.Float64 = pa.Field(nullable=True)
    single: pl.Float32 = pa.Field(nullable=True)
    price: pl.Decimal(9, 2) = pa.Field(nullable=True)
    huge: pl.Decimal(38, 4) = pa.Field(nullable=True)
    at: pl.Datetime("us", "UTC") = pa.Field(nullable=True)
    ms: pl.Datetime("us", "UTC") = pa.Field(nullable=True, metadata={"epoch": "ms"})
    day: pl.Date = pa.Field(nullable=True)
    fine: pl.Boolean = pa.Field(nullable=True)


class Order(pa.DataFrameModel):
    """A model of ordinary lines, where only `note` is nullable."""

    id: pl.Int64
    name: pl.String
    amount: pl.Decimal(9, 2)
    note: pl.String = pa.Field(nullable=True)


class One(pa.DataFrameModel):
    """A model with one text column."""

    text: pl.String


class Deep(pa.DataFrameModel):
    """A model with types that no field can have."""

    id: pl.Int64
    tags: pl.List(pl.String)
    body: pl.Binary
