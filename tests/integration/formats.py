"""Schemas of the formats' tests."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


class Sale(pa.DataFrameModel):
    """A shop's sale: the shop and its number are the key's, the trace a header's."""

    shop: pl.String
    number: pl.Int32
    amount: pl.Decimal(9, 2) = pa.Field(ge=0)
    note: pl.String = pa.Field(nullable=True)
    trace: pl.String = pa.Field(nullable=True)


class Count(pa.DataFrameModel):
    """Pieces sold: the shop and the number are the key's."""

    shop: pl.String
    number: pl.Int32
    pieces: pl.Int64 = pa.Field(ge=0)


class Reading(pa.DataFrameModel):
    """What a careless producer writes."""

    id: pl.Int64
    at: pl.Datetime("us", "UTC")
    name: pl.String = pa.Field(nullable=True)


class Line(pa.DataFrameModel):
    """A text under a text."""

    host: pl.String
    line: pl.String


class Kept(pa.DataFrameModel):
    """Bytes under bytes."""

    id: pl.Binary
    body: pl.Binary = pa.Field(nullable=True)


class Customer(pa.DataFrameModel):
    """A row whose changes are told, and what happened to it."""

    id: pl.Int64
    name: pl.String
    op: pl.String
