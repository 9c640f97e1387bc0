"""Models whose columns come from the key, the value and the headers."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


class Sale(pa.DataFrameModel):
    """A model with `shop` and `number` from the key, and `trace` from a header."""

    shop: pl.String
    amount: pl.Int64
    number: pl.Int32 = pa.Field(ge=1)
    trace: pl.String = pa.Field(nullable=True)


class Named(pa.DataFrameModel):
    """A model for a key and a value that both have a field `id`."""

    key_id: pl.Int64
    id: pl.Int64


class Strict(pa.DataFrameModel):
    """A model whose header column isn't nullable."""

    id: pl.Int64
    source: pl.Binary


class Wide(pa.DataFrameModel):
    """A column of each type that can be compared between key and value."""

    a: pl.Int64 = pa.Field(nullable=True)
    b: pl.String = pa.Field(nullable=True)
    c: pl.Decimal(9, 2) = pa.Field(nullable=True)
    d: pl.Datetime("us", "UTC") = pa.Field(nullable=True)
    e: pl.Boolean = pa.Field(nullable=True)
    f: pl.Float64 = pa.Field(nullable=True)
    g: pl.Date = pa.Field(nullable=True)


class Nested(pa.DataFrameModel):
    """A model with a column that can't be compared."""

    id: pl.Int64
    tags: pl.List(pl.String)


class Letters(pa.DataFrameModel):
    """A model whose columns differ in type from those of the format `words`."""

    word: pl.String
    letters: pl.String
