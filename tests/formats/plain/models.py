"""Models of one column, and a model of two."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


class Line(pa.DataFrameModel):
    """A text column."""

    line: pl.String


class Bytes(pa.DataFrameModel):
    """A binary column."""

    body: pl.Binary


class Two(pa.DataFrameModel):
    """Two columns, which is one too many."""

    line: pl.String
    more: pl.String


class Long(pa.DataFrameModel):
    """A nullable int64."""

    count: pl.Int64 = pa.Field(nullable=True)


class Integer(pa.DataFrameModel):
    """An int32."""

    count: pl.Int32


class Short(pa.DataFrameModel):
    """An int16."""

    count: pl.Int16


class Double(pa.DataFrameModel):
    """A float64."""

    count: pl.Float64


class Float(pa.DataFrameModel):
    """A float32."""

    count: pl.Float32


class Price(pa.DataFrameModel):
    """A type that no serializer of Kafka writes."""

    price: pl.Decimal(9, 2)
