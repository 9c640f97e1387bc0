"""The kinds of messages: their schema for windrow and for the peers, and topics of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import polars as pl
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench import orders
from tests.bench.measured.schemas import Large, Wide
from tests.bench.orders_schema import Order

PARTITIONS = 4
DAY = datetime(2026, 1, 5, tzinfo=UTC)
"""The day of the messages' timestamps, which are a millisecond apart and never after that day."""
DAY_MS = 86_400_000

Dtype = pl.DataType | type[pl.DataType]


@dataclass(frozen=True)
class Shape:
    """A kind of messages.

    Attributes:
        name: the kind's name.
        messages: the number of messages of a topic.
        model: the model.
        schema: the model's reference in a spec in tests/bench.
        values: makes the distinct messages.
    """

    name: str
    messages: int
    model: type
    schema: str
    values: Callable[[], list[bytes]]

    @property
    def columns(self) -> dict[str, Dtype]:
        """The columns' names and polars types."""
        return {name: column.dtype.type for name, column in self.model.to_schema().columns.items()}


def _word(r: random.Random) -> str:
    return "".join(r.choices("abcdefghijklmnopqrstuvwxyz", k=r.randint(6, 18)))


def _value(r: random.Random, dtype: Any) -> Any:
    if isinstance(dtype, pl.Struct):
        return {field.name: _value(r, field.dtype) for field in dtype.fields}
    if isinstance(dtype, pl.List):
        return [_value(r, dtype.inner) for _ in range(r.randint(1, 4))]
    makers: Mapping[Any, Callable[[], Any]] = {
        pl.Int64: lambda: r.randrange(10**12),
        pl.Int32: lambda: r.randrange(10**6),
        pl.Float64: lambda: round(r.random() * 1000, 2),
        pl.Boolean: lambda: r.random() < 0.5,
        pl.String: lambda: _word(r),
    }
    return makers[dtype.base_type()]()


def _wide() -> list[bytes]:
    r = random.Random(2)
    columns = WIDE.columns
    return [
        json.dumps(
            {name: _value(r, dtype) for name, dtype in columns.items()}, separators=(",", ":")
        ).encode()
        for _ in range(4_000)
    ]


def _large() -> list[bytes]:
    r = random.Random(3)
    lines = pl.Struct({"sku": pl.String, "price": pl.Float64, "quantity": pl.Int32})
    documents = [
        {
            "id": i,
            "customer": _word(r),
            "lines": [_value(r, lines) for _ in range(9_000)],
            "text": " ".join(_word(r) for _ in range(37_000)),
        }
        for i in range(10)
    ]
    return [json.dumps(value, separators=(",", ":")).encode() for value in documents]


SMALL = Shape("small", 4_000_000, Order, "orders_schema.py:Order", orders.values)
WIDE = Shape("wide", 400_000, Wide, "measured/schemas.py:Wide", _wide)
LARGE = Shape("large", 1_000, Large, "measured/schemas.py:Large", _large)
SHAPES = {shape.name: shape for shape in (SMALL, WIDE, LARGE)}
LOOKED_UP = Shape(
    "lookup", 1_000_000, Order, SMALL.schema, partial(orders.values, 4 * orders.CUSTOMERS + 1)
)
"""Small messages of nearly all customers in each topic-partition."""


def fill(
    bootstrap: str,
    topic: str,
    values: list[bytes],
    messages: int,
    *,
    partitions: int = PARTITIONS,
    every_ms: float = 1,
) -> int:
    """Makes a topic and produces messages in turn over its topic-partitions.

    Args:
        bootstrap: the broker.
        topic: the topic.
        values: the distinct values, which are repeated.
        messages: the number of messages.
        partitions: the number of topic-partitions.
        every_ms: the milliseconds between the messages' timestamps.

    Returns:
        The mean bytes of a value.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {"retention.ms": "-1", "max.message.bytes": "4000000"}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(60)
    first_ms = int(DAY.timestamp() * 1000)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "message.max.bytes": 4_000_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 256_000,
        }
    )
    for i in range(messages):
        value, key = values[i % len(values)], b"k%d" % (i % 100_000)
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    key=key,
                    partition=i % partitions,
                    timestamp=first_ms + int(i * every_ms),
                )
                break
            except BufferError:
                producer.poll(0.1)
        if i % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0
    return sum(map(len, values)) // len(values)


# --------------------------------------------------------------------------------------------------

_SPARK = {
    pl.Int64: "bigint",
    pl.Int32: "int",
    pl.Float64: "double",
    pl.Boolean: "boolean",
    pl.String: "string",
}


def spark_type(dtype: Any) -> str:
    """Returns a polars type in Spark's DDL."""
    if isinstance(dtype, pl.Struct):
        return f"struct<{', '.join(f'{field.name}: {spark_type(field.dtype)}' for field in dtype.fields)}>"  # noqa: E501
    if isinstance(dtype, pl.List):
        return f"array<{spark_type(dtype.inner)}>"
    return _SPARK[dtype.base_type()]


def flink_type(dtype: Any) -> str:
    """Returns a polars type in Flink's SQL."""
    if isinstance(dtype, pl.Struct):
        return f"ROW<{', '.join(f'`{field.name}` {flink_type(field.dtype)}' for field in dtype.fields)}>"  # noqa: E501
    if isinstance(dtype, pl.List):
        return f"ARRAY<{flink_type(dtype.inner)}>"
    return _SPARK[dtype.base_type()].upper()


def neutral_type(dtype: Any) -> Any:
    """Returns a polars type as JSON, for peers without SQL and polars.

    It is a name, {"struct": {...}} or {"list": ...}.
    """
    if isinstance(dtype, pl.Struct):
        return {"struct": {field.name: neutral_type(field.dtype) for field in dtype.fields}}
    if isinstance(dtype, pl.List):
        return {"list": neutral_type(dtype.inner)}
    return _SPARK[dtype.base_type()]
