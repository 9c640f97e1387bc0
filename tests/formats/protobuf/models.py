"""The models of the tests of Protobuf."""

from __future__ import annotations

import pandera.polars as pp
import polars as pl

PLACE = pl.Struct({"city": pl.String, "lat": pl.Float64})


class Order(pp.DataFrameModel):
    """A model that has no column for the field `before`."""

    id: pl.Int64
    name: pl.String = pp.Field(nullable=True)
    size: pl.Int16
    paid: pl.Boolean
    kind: pl.String
    at: pl.Datetime("us", "UTC") = pp.Field(nullable=True)
    tags: pl.List(pl.Int64)
    stock: pl.List(pl.Struct({"key": pl.String, "value": pl.Int64})) = pp.Field(
        metadata={"map": True}
    )
    place: PLACE = pp.Field(nullable=True)
    places: pl.List(PLACE)
    road: pl.String = pp.Field(nullable=True)
    rail: pl.Int64 = pp.Field(nullable=True)
    boxes: pl.Int32 = pp.Field(nullable=True)
    large: pl.Int64
    share: pl.Float32
    code: pl.Binary
    hash: pl.Int64


class Older(pp.DataFrameModel):
    """A model of a proto2 message."""

    id: pl.Int64
    name: pl.String
    size: pl.Int32 = pp.Field(nullable=True)
    colour: pl.String = pp.Field(nullable=True)
    colours: pl.List(pl.String)
    line: pl.List(pl.Struct({"sku": pl.String}))
    numbers: pl.List(pl.Int32)


class Flat(pp.DataFrameModel):
    """Two columns that are not nullable."""

    id: pl.Int64
    name: pl.String
