"""Models of tables whose changes are decoded."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl


class Customer(pa.DataFrameModel):
    """The customers of Debezium's tutorial, with two columns of the envelope."""

    id: pl.Int32
    first_name: pl.String
    email: pl.String = pa.Field(nullable=True)
    op: pl.String
    at: pl.Datetime("us", "UTC") = pa.Field(nullable=True, metadata={"epoch": "ms"})


class Product(pa.DataFrameModel):
    """The products of Flink's examples, with columns of several types."""

    id: pl.Int64
    name: pl.String
    weight: pl.Decimal(9, 2) = pa.Field(nullable=True)
    made: pl.Date = pa.Field(nullable=True)
    changed: pl.Datetime("us", "UTC") = pa.Field(nullable=True)
    tags: pl.List(pl.String) = pa.Field(nullable=True)


class Bare(pa.DataFrameModel):
    """One nullable column."""

    id: pl.Int64 = pa.Field(nullable=True)


class Bytes(pa.DataFrameModel):
    """A column that JSON can't hold."""

    id: pl.Int64
    photo: pl.Binary


class Written(pa.DataFrameModel):
    """Types that Debezium writes in its own forms."""

    id: pl.Int64
    price: pl.Decimal(9, 2) = pa.Field(nullable=True)
    huge: pl.Decimal(38, 4) = pa.Field(nullable=True)
    day: pl.Date = pa.Field(nullable=True)
    ms: pl.Datetime("us", "UTC") = pa.Field(nullable=True, metadata={"epoch": "ms"})
    us: pl.Datetime("us", "UTC") = pa.Field(nullable=True, metadata={"epoch": "us"})
    zoned: pl.Datetime("us", "UTC") = pa.Field(nullable=True)


class Inside(pa.DataFrameModel):
    """Debezium's forms inside lists and structs, and a decimal of any scale."""

    days: pl.List(pl.Date) = pa.Field(nullable=True)
    prices: pl.List(pl.Decimal(8, 2)) = pa.Field(nullable=True)
    money: pl.Struct({"amount": pl.Decimal(14, 2), "at": pl.List(pl.Datetime("us", "UTC"))}) = (
        pa.Field(nullable=True)
    )
    any: pl.Decimal(20, 4) = pa.Field(nullable=True)
    at: pl.Datetime("us", "UTC") = pa.Field(nullable=True, metadata={"epoch": "us"})
    rates: pl.List(pl.Struct({"key": pl.String, "value": pl.Decimal(8, 2)})) = pa.Field(
        nullable=True
    )


class Part(pa.DataFrameModel):
    """A table whose key has two columns."""

    id: pl.Int64
    part: pl.String
    name: pl.String = pa.Field(nullable=True)


class Document(pa.DataFrameModel):
    """Documents of MongoDB."""

    id: pl.String
    document: pl.String


class Debtor(pa.DataFrameModel):
    """A table that a Debezium connector writes in Avro."""

    id: pl.Int64
    first_name: pl.String
    email: pl.String = pa.Field(nullable=True)
    born: pl.Date = pa.Field(nullable=True)
    debt: pl.Decimal(9, 2) = pa.Field(nullable=True)
    seen: pl.Datetime("us", "UTC") = pa.Field(nullable=True, metadata={"epoch": "us"})
    op: pl.String
    at: pl.Datetime("us", "UTC") = pa.Field(metadata={"epoch": "ms"})


class Dated(pa.DataFrameModel):
    """A table whose key is a date."""

    day: pl.Date


class Loose(pa.DataFrameModel):
    """Two nullable columns."""

    id: pl.Int64 = pa.Field(nullable=True)
    name: pl.String = pa.Field(nullable=True)


class Toasted(pa.DataFrameModel):
    """Values that PostgreSQL may store outside the row (TOAST), for each form of placeholder."""

    id: pl.Int64
    text: pl.String = pa.Field(nullable=True)
    texts: pl.List(pl.String) = pa.Field(nullable=True)
    numbers: pl.List(pl.Int64) = pa.Field(nullable=True)
    pairs: pl.List(pl.Struct({"key": pl.String, "value": pl.String})) = pa.Field(
        nullable=True, metadata={"map": True}
    )


class Blob(pa.DataFrameModel):
    """A nullable binary column, for Avro."""

    id: pl.Int64
    photo: pl.Binary = pa.Field(nullable=True)


class Measured(pa.DataFrameModel):
    """A float, and a timestamp with an epoch unit."""

    id: pl.Int64
    f: pl.Float64 = pa.Field(nullable=True)
    at: pl.Datetime("us", "UTC") = pa.Field(nullable=True, metadata={"epoch": "ms"})


class Recorded(pa.DataFrameModel):
    """The table that Debezium recorded, by the default of `time.precision.mode`."""

    id: pl.Int64
    name: pl.String = pa.Field(nullable=True)
    small: pl.Int64 = pa.Field(nullable=True)
    big: pl.Int64 = pa.Field(nullable=True)
    r: pl.Float64 = pa.Field(nullable=True)
    d: pl.Float64 = pa.Field(nullable=True)
    b: pl.Boolean = pa.Field(nullable=True)
    price: pl.Decimal(9, 2) = pa.Field(nullable=True)
    huge: pl.Decimal(38, 4) = pa.Field(nullable=True)
    anyscale: pl.Decimal(20, 4) = pa.Field(nullable=True)
    born: pl.Date = pa.Field(nullable=True)
    ts: pl.Datetime("us", "UTC") = pa.Field(nullable=True, metadata={"epoch": "us"})
    ts3: pl.Datetime("us", "UTC") = pa.Field(nullable=True, metadata={"epoch": "ms"})
    tstz: pl.Datetime("us", "UTC") = pa.Field(nullable=True)
    t: pl.Int64 = pa.Field(nullable=True)
    ttz: pl.String = pa.Field(nullable=True)
    iv: pl.Int64 = pa.Field(nullable=True)
    u: pl.String = pa.Field(nullable=True)
    j: pl.String = pa.Field(nullable=True)
    x: pl.String = pa.Field(nullable=True)
    m: pl.String = pa.Field(nullable=True)
    tags: pl.List(pl.String) = pa.Field(nullable=True)
    nums: pl.List(pl.Int32) = pa.Field(nullable=True)
    h: pl.String = pa.Field(nullable=True)
    added: pl.String = pa.Field(nullable=True)


class RecordedMillis(Recorded):
    """The same by `time.precision.mode: connect`."""

    ts: pl.Datetime("us", "UTC") = pa.Field(nullable=True, metadata={"epoch": "ms"})


class RecordedFloats(Recorded):
    """The same by `decimal.handling.mode: double`."""

    price: pl.Float64 = pa.Field(nullable=True)
    huge: pl.Float64 = pa.Field(nullable=True)
    anyscale: pl.Float64 = pa.Field(nullable=True)


class RecordedMicros(RecordedFloats):
    """The same by `time.precision.mode: microseconds`."""

    ts3: pl.Datetime("us", "UTC") = pa.Field(nullable=True, metadata={"epoch": "us"})


class RecordedNanos(RecordedFloats):
    """The same by `time.precision.mode: nanoseconds`."""

    ts: pl.Datetime("us", "UTC") = pa.Field(nullable=True, metadata={"epoch": "ns"})
    ts3: pl.Datetime("us", "UTC") = pa.Field(nullable=True, metadata={"epoch": "ns"})


class RecordedTexts(Recorded):
    """The same by `time.precision.mode: isostring` and `decimal.handling.mode: string`."""

    price: pl.String = pa.Field(nullable=True)
    huge: pl.String = pa.Field(nullable=True)
    anyscale: pl.String = pa.Field(nullable=True)
    t: pl.String = pa.Field(nullable=True)
    ts: pl.Datetime("us", "UTC") = pa.Field(nullable=True)
    ts3: pl.Datetime("us", "UTC") = pa.Field(nullable=True)
