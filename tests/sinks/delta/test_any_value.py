"""Nothing is refused when rows are staged: whatever value a column's type has, a table
holds it, and its neighbours.

A decoder gives exactly the columns' types (`tests/contracts/decoder_contract.py`), so
there is no stage of dead letters behind the rules: what can't be staged is a bug in a
format or a transform, and refuses its window.
"""

from __future__ import annotations

import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import examples
from tests.sinks.things import TOPIC, messages, plan, receipt
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.model.receipt import Checksums, SplitCounts
from windrow.ingest.model.staged import Staged
from windrow.ingest.schema.checksum import checksum, text

INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
DAYS = (-719_162, 2_932_896)
MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The years 1 to 9999: a calendar type's values in every format."""


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def raw(kind: pa.DataType, low: int, high: int) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """Of a type that stands for a number: its edges, and what lies between."""
    width = pa.int32() if kind == pa.date32() else pa.int64()
    return kind, (st.integers(low, high) | st.sampled_from([low, high])).map(
        lambda n: pa.scalar(n, width).cast(kind).as_py()
    )


PLAIN: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((kind, integers(bits)) for bits, kind in INTEGERS.items()),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=40)),
    (pa.binary(), st.binary(max_size=40)),
    raw(pa.date32(), *DAYS),
    raw(pa.timestamp("us"), *MICROS),
    raw(pa.timestamp("us", tz="UTC"), *MICROS),
    *(
        (
            pa.decimal128(p, s),
            st.integers(-(10**p - 1), 10**p - 1).map(lambda n, s=s: Decimal(n).scaleb(-s)),
        )
        for p, s in ((1, 0), (18, 2))
    ),
    (
        pa.decimal128(38, 38),
        st.integers(-(2**110), 2**110).map(
            lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -38))
        ),
    ),
]


def nested(
    inner: tuple[pa.DataType, st.SearchStrategy[Any]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """Lists, structs and maps of a type."""
    kind, values = inner
    many = st.lists(st.none() | values, max_size=3)
    entries = st.dictionaries(st.text(max_size=4), st.none() | values, max_size=3).map(
        lambda d: list(d.items())
    )
    return st.sampled_from(
        [
            (pa.list_(kind), many),
            (
                pa.struct([pa.field("a", kind), pa.field("b", pa.string())]),
                st.fixed_dictionaries({"a": st.none() | values, "b": st.none()}),
            ),
            # a Delta table takes none
            *([] if "timestamp[us]" in str(kind) else [(pa.map_(pa.string(), kind), entries)]),
        ]
    )


COLUMNS = st.recursive(st.sampled_from(PLAIN), lambda below: below.flatmap(nested), max_leaves=3)


@settings(max_examples=examples(50))
@given(st.data(), st.lists(COLUMNS, min_size=1, max_size=4))
def test_whatever_a_column_can_hold_is_staged(
    data: st.DataObject, columns: list[tuple[pa.DataType, st.SearchStrategy[Any]]]
) -> None:
    """It is written, committed, and read back as it was, with its checksum; each
    extreme leaves the rows beside it unharmed.
    """
    schema = pa.schema([pa.field(f"c{i}", kind) for i, (kind, _) in enumerate(columns)])
    count = data.draw(st.integers(1, 6))
    values = [
        data.draw(st.lists(st.none() | each, min_size=count, max_size=count)) for _, each in columns
    ]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema
    )
    with tempfile.TemporaryDirectory() as folder:
        sink = DeltaBoth(f"{folder}/t", schema)
        sink.prepare()
        planned = plan(sink, 0, (0, count))
        staged = []
        for split in planned.splits:
            stager = sink.stager(planned, 0, "a1")(split)
            stager.add(rows, messages(split))
            done = stager.finish()
            counts = SplitCounts(
                TOPIC.topic,
                split.partition,
                0,
                count,
                count,
                count,
                0,
                count,
                0,
                0,
                count,
                0,
                0,
                checksums=Checksums(done.checksum, "0" * 16),
                rows=count,
            )
            staged.append(Staged(split, counts, done.committables, ()))
        sink.commit(receipt(planned, staged, 0, "a1"), staged)
        for one in staged:
            read = pq.read_table(Path(folder) / "t" / json.loads(one.rows[0])["path"])
            assert repr(read.select(schema.names).to_pylist()) == repr(rows.to_pylist())
            assert text(sum(map(checksum, read.to_batches()))) == one.counts.checksums.rows  # type: ignore[union-attr]
        assert DeltaTable(sink.uri).to_pyarrow_table().num_rows == count * len(staged)
