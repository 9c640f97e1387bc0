"""The cost of steps for a million rows, in CPU seconds of one task, and nothing around them.

    python -m tests.bench.steps [--rows 500000] [--rounds 5]

Batches of 32,768 rows (8,192 of the wide rows) go through an opened step in sequence. The steps
take turns in a round. `sql` is measured on three kinds of rows:
- small rows;
- small rows with a text column: every second value is null, and one of a hundred is refused by
  DuckDB. Only a batch that failed is examined again;
- rows with 60 columns of 2 KB: the step computes five of them, or all.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import time
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from tests.bench.harness.figures import Spread
from tests.bench.harness.shapes import SMALL, WIDE, Shape
from tests.transform.small_verdicts import decoded
from windrow.ingest.testing.contracts.transform import messages_for
from windrow.ingest.transform.sql.step import Sql

BATCH, WIDE_BATCH = 32_768, 8_192
LIMITS = {"small: filter, a column": 0.3}
"""The most CPU seconds for a million rows."""


@dataclass(frozen=True)
class Case:
    """A SELECT over a batch.

    Attributes:
        rows: the batch.
        query: the SELECT.
        out: the number of rows that must come out.
    """

    rows: pa.RecordBatch
    query: str
    out: int


def rows_of(shape: Shape, count: int) -> pa.RecordBatch:
    """Returns a batch of a shape's messages, in turn."""
    values = shape.values()
    text = b"\n".join(values[i % len(values)] for i in range(count))
    table = pl.read_ndjson(io.BytesIO(text), schema=pl.Schema(shape.columns)).to_arrow()
    plain = pa.schema([pa.field(f.name, _plain(f.type)) for f in table.schema])
    (batch,) = table.cast(plain).combine_chunks().to_batches()
    return batch


def _plain(kind: pa.DataType) -> pa.DataType:
    """Returns windrow's type for a type of polars."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _plain(f.type)) for f in kind])
    if pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    return pa.string() if pa.types.is_large_string(kind) or kind == pa.string_view() else kind


def with_codes(rows: pa.RecordBatch, bad: bool) -> pa.RecordBatch:
    """Returns the rows with a column of numbers as texts.

    Half of the texts are null. With `bad`, one of a hundred is no number.
    """
    r = random.Random(4)
    codes = [
        "x1" if bad and n % 100 == 0 else None if r.random() < 0.5 else str(r.randrange(10**9))
        for n in range(rows.num_rows)
    ]
    return rows.append_column("code", pa.array(codes, pa.string()))


def cases() -> dict[str, Case]:
    """Returns all cases by their descriptions."""
    small, wide = rows_of(SMALL, BATCH), rows_of(WIDE, WIDE_BATCH)
    filtered = "SELECT * REPLACE (round(amount * 100) AS amount) FROM rows WHERE currency <> 'CNY'"
    kept_count = sum(value != "CNY" for value in small["currency"].to_pylist())
    number = "SELECT * REPLACE (code::BIGINT AS code) FROM rows"
    good = BATCH - len(range(0, BATCH, 100))
    # The columns are computed although their values don't change. So the cost is the transfer
    # into DuckDB and back.
    five_columns, all_columns = (
        ", ".join(f"coalesce({name}, NULL) AS {name}" for name in names)
        for names in (wide.schema.names[:5], wide.schema.names)
    )
    return {
        "small: filter, a column": Case(small, filtered, kept_count),
        "small: a number of a text, half of them null": Case(
            with_codes(small, bad=False), number, BATCH
        ),
        "the same, one of 100 refused": Case(with_codes(small, bad=True), number, good),
        "wide: none of 60 columns computed": Case(wide, "SELECT * FROM rows", WIDE_BATCH),
        "wide: five": Case(wide, f"SELECT * REPLACE ({five_columns}) FROM rows", WIDE_BATCH),
        "wide: all": Case(wide, f"SELECT {all_columns} FROM rows", WIDE_BATCH),
    }


def once(case: Case, rows: int) -> float:
    """Returns the CPU seconds for a million rows."""
    input_rows = decoded(case.rows)
    messages, step = messages_for(input_rows), Sql(case.query, "transform.steps.0", ()).open()
    step(input_rows, messages)
    count = max(rows // case.rows.num_rows, 1)
    began = time.process_time()
    for _ in range(count):
        output_rows = step(input_rows, messages)
        assert output_rows.rows.num_rows == case.out, (
            f"{output_rows.rows.num_rows} rows, not {case.out}"
        )
    return (time.process_time() - began) / (count * case.rows.num_rows) * 1e6


def main() -> None:
    """Measures, prints and checks the limits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    all_cases = cases()
    seconds_by_case: dict[str, list[float]] = {name: [] for name in all_cases}
    for _ in range(options.rounds):
        for name, case in all_cases.items():
            seconds_by_case[name].append(once(case, options.rows))
    broken = []
    for name, seconds in seconds_by_case.items():
        spread, limit_seconds = Spread.of(seconds), LIMITS.get(name)
        limit = f" (limit {limit_seconds})" if limit_seconds else ""
        print(
            f"{name:46} {spread.median:6.2f} CPU s per million rows ({spread.lowest:.2f} to"
            f" {spread.highest:.2f}){limit}",
            flush=True,
        )
        broken += [name] if limit_seconds and spread.median > limit_seconds else []
    if broken:
        sys.exit("limits broken: " + "; ".join(broken))


if __name__ == "__main__":
    main()
