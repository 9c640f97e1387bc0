"""The schema of the tests in this folder."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


class Thing(pa.DataFrameModel):
    """The least that can go wrong."""

    id: pl.Int64 = pa.Field(ge=0)
    name: pl.String = pa.Field(nullable=True)


class Dated(Thing):
    """`Thing` with the time of its event."""

    created_at: pl.Datetime("us", "UTC") = pa.Field(nullable=True)
