"""The schema of the integration tests."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


class Thing(pa.DataFrameModel):
    """The least that can go wrong."""

    id: pl.Int64 = pa.Field(ge=0)
    name: pl.String = pa.Field(nullable=True)


class Looser(pa.DataFrameModel):
    """`Thing` as its owner fixes it after a refusal: negative ids are fine."""

    id: pl.Int64
    name: pl.String = pa.Field(nullable=True)


class Wider(Thing):
    """`Thing` with a new nullable column."""

    extra: pl.String = pa.Field(nullable=True)


class Other(pa.DataFrameModel):
    """`Thing` without its name."""

    id: pl.Int64


class Unsigned(pa.DataFrameModel):
    """`Thing` as somebody coming from other tools would write it; Delta and Spark have
    no such integers.
    """

    id: pl.UInt32
    name: pl.String = pa.Field(nullable=True)


class Tried(Thing):
    """`Thing` with a column that is called like one of windrow's own beside it in Spark."""

    Windrow_Try: pl.Int64 = pa.Field(nullable=True)
