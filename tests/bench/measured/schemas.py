"""The models of wide and of large messages, with rules."""

from __future__ import annotations

from typing import Any

import pandera.polars as pa
import polars as pl

PLACE = pl.Struct(
    {"city": pl.String, "zip": pl.Int32, "at": pl.Struct({"lat": pl.Float64, "lon": pl.Float64})}
)
LINE = pl.Struct({"sku": pl.String, "price": pl.Float64, "quantity": pl.Int32})
KINDS = (pl.Int64, pl.String, pl.Float64, pl.Boolean, pl.Int32, pl.String)
_WIDE: dict[str, Any] = {f"column_{i:02}": KINDS[i % len(KINDS)] for i in range(52)} | {
    "sender": PLACE,
    "receiver": PLACE,
    "lines": pl.List(LINE),
    "returned": pl.List(LINE),
    "tags": pl.List(pl.String),
    "counts": pl.List(pl.Int64),
    "prices": pl.List(pl.Float64),
    "route": pl.List(PLACE),
}
Wide = type(
    "Wide",
    (pa.DataFrameModel,),
    {
        "__annotations__": _WIDE,
        "__module__": __name__,
        "__doc__": "60 columns, eight of them nested, in 2 KB.",
        **{
            f"column_{i:02}": pa.Field(ge=0)
            for i in range(52)
            if KINDS[i % len(KINDS)] in {pl.Int64, pl.Float64, pl.Int32}
        },
    },
)


class Large(pa.DataFrameModel):
    """A document of 1 MB: half of it lines, half of it a text."""

    id: pl.Int64 = pa.Field(ge=0)
    customer: pl.String
    lines: pl.List(LINE)
    text: pl.String
