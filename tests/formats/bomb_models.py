"""The models of the tests of expensive messages."""

from __future__ import annotations

import pandera.polars as pp
import polars as pl

WIDE = pl.Struct({f"f{i:02}": pl.Int64 for i in range(60)})


class Narrow(pp.DataFrameModel):
    """The columns of `Wide` that Protobuf has types for."""

    id: pl.Int64 = pp.Field(nullable=True)
    items: pl.List(WIDE) = pp.Field(nullable=True)
    texts: pl.List(pl.String) = pp.Field(nullable=True)
    numbers: pl.List(pl.Int64) = pp.Field(nullable=True)
    instants: pl.List(pl.Datetime("us", "UTC")) = pp.Field(nullable=True)
    entries: pl.List(pl.Struct({"key": pl.String, "value": WIDE})) = pp.Field(
        nullable=True, metadata={"map": True}
    )
    instant: pl.Datetime("us", "UTC") = pp.Field(nullable=True)
    share: pl.Float64 = pp.Field(nullable=True)
    text: pl.String = pp.Field(nullable=True)


class Wide(Narrow):
    """A model whose lists and maps have items of few bytes and many values."""

    lists: pl.List(pl.List(pl.Int64)) = pp.Field(nullable=True)
    prices: pl.List(pl.Decimal(38, 10)) = pp.Field(nullable=True)
    price: pl.Decimal(38, 10) = pp.Field(nullable=True)


class Trees(Wide):
    """The columns of `Wide`, and JSON texts of records that contain themselves."""

    tree: pl.String = pp.Field(nullable=True)
    chain: pl.List(pl.String) = pp.Field(nullable=True)


class Few(pp.DataFrameModel):
    """One column of `Wide`, so that rows keep all others."""

    id: pl.Int64 = pp.Field(nullable=True)


class Line(pp.DataFrameModel):
    """A model of lines, with a column of each type that a field may have."""

    id: pl.Int64 = pp.Field(nullable=True)
    text: pl.String = pp.Field(nullable=True)
    price: pl.Decimal(38, 10) = pp.Field(nullable=True)
    share: pl.Float64 = pp.Field(nullable=True)
    instant: pl.Datetime("us", "UTC") = pp.Field(nullable=True)
    day: pl.Date = pp.Field(nullable=True)


class Text(pp.DataFrameModel):
    """A model with one text."""

    text: pl.String


class Octets(pp.DataFrameModel):
    """A model with one column of bytes."""

    octets: pl.Binary
