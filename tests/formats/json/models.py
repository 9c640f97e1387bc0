"""The models of the tests of JSON."""

from __future__ import annotations

import pandera.polars as pp
import polars as pl


class Scalars(pp.DataFrameModel):
    """A model with every type except lists and maps. Only `id` isn't nullable."""

    id: pl.Int64
    tiny: pl.Int8 = pp.Field(nullable=True)
    quantity: pl.Int32 = pp.Field(nullable=True)
    amount: pl.Float64 = pp.Field(nullable=True)
    single: pl.Float32 = pp.Field(nullable=True)
    name: pl.String = pp.Field(nullable=True)
    paid: pl.Boolean = pp.Field(nullable=True)
    price: pl.Decimal(10, 2) = pp.Field(nullable=True)
    units: pl.Decimal(20, 0) = pp.Field(nullable=True)
    at: pl.Datetime("us", "UTC") = pp.Field(nullable=True)
    ms: pl.Datetime("us", "UTC") = pp.Field(nullable=True, metadata={"epoch": "ms"})
    day: pl.Date = pp.Field(nullable=True)
    place: pl.Struct(
        {
            "city": pl.String,
            "zip": pl.Int16,
            "geo": pl.Struct({"lat": pl.Float64, "at": pl.Datetime("us", "UTC")}),
        }
    ) = pp.Field(nullable=True)
    odd: pl.Int64 = pp.Field(nullable=True, alias="o'd\"d /~é.[0]")


class Nested(pp.DataFrameModel):
    """A model with lists and maps."""

    id: pl.Int64
    tags: pl.List(pl.String) = pp.Field(nullable=True)
    lines: pl.List(pl.Struct({"sku": pl.String, "price": pl.Decimal(8, 2)})) = pp.Field(
        nullable=True
    )
    stock: pl.List(pl.Struct({"key": pl.String, "value": pl.Int64})) = pp.Field(
        nullable=True, metadata={"map": True}
    )


class Connect(pp.DataFrameModel):
    """A model of values that Kafka Connect writes in its own forms, also nested."""

    id: pl.Int64
    price: pl.Decimal(20, 4) = pp.Field(nullable=True)
    lines: pl.List(pl.Struct({"price": pl.Decimal(8, 2), "days": pl.List(pl.Date)})) = pp.Field(
        nullable=True
    )
    rates: pl.List(pl.Struct({"key": pl.String, "value": pl.Decimal(8, 2)})) = pp.Field(
        nullable=True
    )
