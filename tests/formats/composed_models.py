"""Schemas whose columns come from key, value and headers."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


class Sale(pa.DataFrameModel):
    """The shop and the number are the key's, the trace a header's."""

    shop: pl.String
    amount: pl.Int64
    number: pl.Int32 = pa.Field(ge=1)
    trace: pl.String = pa.Field(nullable=True)


class Named(pa.DataFrameModel):
    """Key and value have a field `id` each."""

    key_id: pl.Int64
    id: pl.Int64


class Strict(pa.DataFrameModel):
    """The header must be there."""

    id: pl.Int64
    source: pl.Binary


class Wide(pa.DataFrameModel):
    """A column of each type that key and value can agree on."""

    a: pl.Int64 = pa.Field(nullable=True)
    b: pl.String = pa.Field(nullable=True)
    c: pl.Decimal(9, 2) = pa.Field(nullable=True)
    d: pl.Datetime("us", "UTC") = pa.Field(nullable=True)
    e: pl.Boolean = pa.Field(nullable=True)
    f: pl.Float64 = pa.Field(nullable=True)
    g: pl.Date = pa.Field(nullable=True)


class Nested(pa.DataFrameModel):
    """A column that can't be compared."""

    id: pl.Int64
    tags: pl.List(pl.String)


class Letters(pa.DataFrameModel):
    """Not as the words' format has them."""

    word: pl.String
    letters: pl.String
