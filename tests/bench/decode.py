"""The cost of decoding, for each kind of schema.

python -m tests.bench.decode

Each kind is one batch of 32,768 messages that one thread decodes repeatedly. The result is the
best run in CPU seconds. The second table has twenty values of one type: as columns, in a list,
and in structs of four. The bytes of names are counted, and cost little.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandera.polars as pp
import polars as pl
import pyarrow as pa

from tests.bench.orders import values
from tests.bench.orders_schema import Order
from windrow.ingest.formats.csv.decoder import csv_batch_decoder
from windrow.ingest.formats.csv.lines import Dialect
from windrow.ingest.formats.json.decoder import json_batch_decoder
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.schema.columns import Columns

MESSAGES = 32_768
RUNS = 10


class Lists(pp.DataFrameModel):
    """Lists of numbers and of strings."""

    id: pl.Int64
    prices: pl.List(pl.Float64)
    tags: pl.List(pl.String)


class Structs(pp.DataFrameModel):
    """Structs, a list of them, and a map."""

    id: pl.Int64
    place: pl.Struct(
        {
            "city": pl.String,
            "zip": pl.Int32,
            "at": pl.Struct({"lat": pl.Float64, "lon": pl.Float64}),
        }
    )
    lines: pl.List(pl.Struct({"sku": pl.String, "price": pl.Decimal(10, 2), "count": pl.Int32}))
    stock: pl.List(pl.Struct({"key": pl.String, "value": pl.Int64})) = pp.Field(
        metadata={"map": True}
    )


class Few(pp.DataFrameModel):
    """Two of many fields."""

    id: pl.Int64
    name: pl.String


KINDS = (pl.Int64, pl.String, pl.Float64, pl.Boolean, pl.Int32, pl.Date)
WIDE = {f"column_{i:02}": KINDS[i % len(KINDS)] for i in range(60)}
Wide = type("Wide", (pp.DataFrameModel,), {"__annotations__": WIDE, "__module__": __name__})


def _word(r: random.Random) -> str:
    return "".join(r.choices("abcdefghijklmnopqrstuvwxyz", k=r.randint(4, 14)))


def _lists(r: random.Random, i: int) -> dict[str, Any]:
    return {
        "id": i,
        "prices": [round(r.random() * 100, 2) for _ in range(r.randint(0, 12))],
        "tags": [_word(r) for _ in range(r.randint(0, 8))],
    }


def _structs(r: random.Random, i: int) -> dict[str, Any]:
    address = {
        "city": _word(r),
        "zip": r.randrange(100_000),
        "at": {"lat": round(r.uniform(-90, 90), 5), "lon": round(r.uniform(-180, 180), 5)},
    }
    lines = [
        {"sku": _word(r), "price": round(r.random() * 100, 2), "count": r.randint(1, 9)}
        for _ in range(r.randint(1, 4))
    ]
    return {
        "id": i,
        "place": address,
        "lines": lines,
        "stock": {_word(r): r.randrange(1000) for _ in range(r.randint(0, 4))},
    }


def _wide(r: random.Random, i: int) -> dict[str, Any]:
    value_by_type = {
        pl.Int64: i,
        pl.String: _word(r),
        pl.Float64: round(r.random() * 1000, 2),
        pl.Boolean: i % 2 == 0,
        pl.Int32: i % 1000,
        pl.Date: "2026-01-05",
    }
    return {name: value_by_type[kind] for name, kind in WIDE.items()}


def _shuffled(r: random.Random, i: int) -> dict[str, Any]:
    return dict(r.sample(list(_wide(r, i).items()), len(WIDE)))


def _unknown(r: random.Random, i: int) -> dict[str, Any]:
    return {"id": i, "more": _structs(r, i), "name": _word(r), "other": _lists(r, i)}


CASES = {
    "orders": (Order, None),
    "60 columns": (Wide, _wide),
    "60 columns, shuffled": (Wide, _shuffled),
    "lists": (Lists, _lists),
    "structs, lists of them, maps": (Structs, _structs),
    "unknown nested fields": (Few, _unknown),
}


def _lines() -> list[bytes]:
    """Returns the orders as lines of CSV. Their notes have commas."""
    return [
        ";".join("" if v is None else str(v) for v in json.loads(order).values()).encode()
        for order in values()[:MESSAGES]
    ]


def machines() -> Iterator[tuple[str, BatchDecoder, list[bytes]]]:
    """Yields the name, the decoder and the messages of each measured case.

    The messages are repeated until there are enough.
    """
    r = random.Random(1)
    for name, (model, make) in CASES.items():
        messages = (
            values()[:MESSAGES]
            if make is None
            else [json.dumps(make(r, i), separators=(",", ":")).encode() for i in range(2_000)]
        )
        yield name, json_batch_decoder(Columns.of(model)), messages
    orders, lines = csv_batch_decoder(Columns.of(Order), Dialect(";", null_literal="")), _lines()
    yield "orders as CSV", orders, lines
    yield (
        "orders as CSV, 1% with quotes",
        orders,
        [line.replace(b"EUR", b'"EUR"') if i % 33 == 0 else line for i, line in enumerate(lines)],
    )


VALUES = 20
"""The number of values in a message of the second table."""

MAKERS: Mapping[str, tuple[Any, Callable[[random.Random], Any]]] = {
    "doubles": (pl.Float64, lambda r: round(r.random() * 100, 2)),
    "integers": (pl.Int64, lambda r: r.randrange(100_000)),
    "strings": (pl.String, _word),
    "booleans": (pl.Boolean, lambda r: r.random() < 0.5),
}


def shapes(
    dtype: Any, make: Callable[[random.Random], Any]
) -> Iterator[tuple[BatchDecoder, list[bytes]]]:
    """Yields decoder and messages for values of a type: as columns, in a list, in structs."""
    r = random.Random(1)
    fields = {f"field_{i}": dtype for i in range(VALUES // 5)}
    columns = {f"column_{i:02}": dtype for i in range(VALUES)}
    for model_columns in (
        columns,
        {"values": pl.List(dtype)},
        {f"struct_{i}": pl.Struct(fields) for i in range(5)},
    ):
        model = type(
            "Model",
            (pp.DataFrameModel,),
            {"__annotations__": model_columns, "__module__": __name__},
        )
        messages = []
        for _ in range(2_000):
            values = iter([make(r) for _ in range(VALUES)])
            makers: dict[type, Callable[[], Any]] = {
                pl.List: lambda values=values: list(values),
                pl.Struct: lambda values=values: {f: next(values) for f in fields},
            }
            row = {
                name: makers.get(type(kind), lambda values=values: next(values))()
                for name, kind in model_columns.items()
            }
            messages.append(json.dumps(row, separators=(",", ":")).encode())
        yield json_batch_decoder(Columns.of(model)), messages


def measure(machine: BatchDecoder, repeated: list[bytes]) -> tuple[float, float]:
    """Returns the mean bytes of a message, and the least seconds for a batch.

    The messages are repeated until there are enough.
    """
    messages = pa.array((repeated * (MESSAGES // len(repeated) + 1))[:MESSAGES], pa.binary())
    best = float("inf")
    # The compiled pass is compiled again after a change of its code.
    while not machine.fast.ready():
        time.sleep(0.1)
    for _ in range(RUNS):
        began = time.process_time()
        decoded = machine.decode(messages, "dead")
        best = min(best, time.process_time() - began)
    assert decoded.rows.num_rows == MESSAGES
    return sum(map(len, messages.to_pylist())) / MESSAGES, best


def main() -> None:
    """Prints a line for each kind."""
    print(f"{'':30}{'bytes':>7}{'M messages/s':>14}{'ns/byte':>9}")
    for name, machine, messages in machines():
        size, best = measure(machine, messages)
        print(
            f"{name:30}{size:7.0f}{MESSAGES / best / 1e6:14.2f}{best / MESSAGES / size * 1e9:9.2f}"
        )
    print(f"\n{'ns/value, ns/byte':20}{'columns':>14}{'a list':>14}{'structs':>14}")
    for name, (dtype, make) in MAKERS.items():
        costs = [
            (size, best / MESSAGES * 1e9)
            for size, best in (measure(*shape) for shape in shapes(dtype, make))
        ]
        print(
            f"{name:20}"
            + "".join(f"{cost / VALUES:9.1f}{cost / size:5.1f}" for size, cost in costs)
        )


if __name__ == "__main__":
    main()
