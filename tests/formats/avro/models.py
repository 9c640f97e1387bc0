"""The model and the writer's schema that the tests of Avro share."""

from __future__ import annotations

import json

import pandera.polars as pp
import polars as pl

SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {
            "name": "old",
            "type": {
                "type": "record",
                "name": "Old",
                "fields": [{"name": "older", "type": ["null", "Old"]}],
            },
        },
        {"name": "size", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "BB", "CCC"]}},
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "stock", "type": {"type": "map", "values": "int"}},
        {"name": "nothing", "type": {"type": "array", "items": "null"}},
        {
            "name": "place",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Place",
                    "fields": [
                        {"name": "city", "type": "string"},
                        {"name": "lat", "type": "double"},
                        {"name": "zip", "type": "float"},
                    ],
                },
            ],
        },
        {"name": "number", "type": ["null", "int", "long"]},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 4}},
    ],
}
TEXT = json.dumps(SCHEMA)


class Order(pp.DataFrameModel):
    """A table that has no columns for the writer's fields `old`, `nothing` and `code`."""

    id: pl.Int64
    name: pl.String = pp.Field(nullable=True)
    size: pl.Int16
    paid: pl.Boolean
    kind: pl.String
    amount: pl.Decimal(10, 2)
    at: pl.Datetime("us", "UTC")
    tags: pl.List(pl.String)
    stock: pl.List(pl.Struct({"key": pl.String, "value": pl.Int64})) = pp.Field(
        metadata={"map": True}
    )
    place: pl.Struct({"lat": pl.Float64, "city": pl.String}) = pp.Field(nullable=True)
    number: pl.Int64


class Flat(pp.DataFrameModel):
    """Two columns that are not nullable."""

    id: pl.Int64
    name: pl.String


class Named(pp.DataFrameModel):
    """Two nullable columns."""

    id: pl.Int64 = pp.Field(nullable=True)
    name: pl.String = pp.Field(nullable=True)


class Loose(pp.DataFrameModel):
    """One column that is not nullable, and nullable columns of each kind."""

    id: pl.Int64
    name: pl.String = pp.Field(nullable=True)
    tags: pl.List(pl.String) = pp.Field(nullable=True)
    place: pl.Struct({"lat": pl.Float64, "tags": pl.List(pl.String)}) = pp.Field(nullable=True)


FLAT = json.dumps(
    {
        "type": "record",
        "name": "Flat",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
    }
)
