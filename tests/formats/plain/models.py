"""Schemas of one column, and one that is none."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


class Line(pa.DataFrameModel):
    """A text."""

    line: pl.String


class Bytes(pa.DataFrameModel):
    """Bytes."""

    body: pl.Binary


class Two(pa.DataFrameModel):
    """One column too many."""

    line: pl.String
    more: pl.String


class Long(pa.DataFrameModel):
    """A number."""

    count: pl.Int64 = pa.Field(nullable=True)


class Integer(pa.DataFrameModel):
    """A smaller one."""

    count: pl.Int32


class Short(pa.DataFrameModel):
    """A still smaller one."""

    count: pl.Int16


class Double(pa.DataFrameModel):
    """A number with a fraction."""

    count: pl.Float64


class Float(pa.DataFrameModel):
    """A smaller one."""

    count: pl.Float32


class Price(pa.DataFrameModel):
    """What no serializer of Kafka's writes."""

    price: pl.Decimal(9, 2)
