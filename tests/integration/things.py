"""The models of the integration tests."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


class Thing(pa.DataFrameModel):
    """A small model."""

    id: pl.Int64 = pa.Field(ge=0)
    name: pl.String = pa.Field(nullable=True)


class Looser(pa.DataFrameModel):
    """`Thing` with negative ids allowed, as a user fixes it after a refusal."""

    id: pl.Int64
    name: pl.String = pa.Field(nullable=True)


class Wider(Thing):
    """`Thing` with a new nullable column."""

    extra: pl.String = pa.Field(nullable=True)


class Other(pa.DataFrameModel):
    """`Thing` without its name."""

    id: pl.Int64


class Unsigned(pa.DataFrameModel):
    """`Thing` with an unsigned integer, which Delta and Spark don't have."""

    id: pl.UInt32
    name: pl.String = pa.Field(nullable=True)


class Tried(Thing):
    """`Thing` with a column that has the name of one of windrow's own columns in Spark."""

    Windrow_Try: pl.Int64 = pa.Field(nullable=True)


class Dated(Thing):
    """`Thing` with the time of its event."""

    created_at: pl.Datetime("us", "UTC") = pa.Field(nullable=True)
