"""Values of every type keep their checksum in a Delta table, whichever program rewrites
the files.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.admin.verify_contents import compare_contents
from windrow.ingest.schema.checksum import checksum
from windrow.ingest.schema.messages import HEADERS
from windrow.ingest.sinks.kit.files.parquet_files import batches_in
from windrow.ingest.testing.contracts.windows import commit_rows

PLACE = pa.struct(
    [
        pa.field("city", pa.string()),
        pa.field("marks", pa.list_(pa.float64())),
        pa.field("at", pa.struct([("x", pa.int8())])),
    ]
)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-128, 127]),
    "short": (pa.int16(), [-(2**15), 7]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "single": (pa.float32(), [1.5, float("-inf"), -0.0, float("nan")]),
    "double": (pa.float64(), [0.1, -0.0, float("nan"), 5e-324]),
    "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "stamp": (
        pa.timestamp("us", "UTC"),
        [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)],
    ),
    "local": (pa.timestamp("us"), [datetime.fromisoformat("1969-12-31T23:59:59.999999")]),
    "price": (pa.decimal128(12, 2), [Decimal("-12.34"), Decimal("9999999999.99")]),
    "sum": (pa.decimal128(38, 4), [Decimal("-" + "9" * 34 + ".9999"), Decimal("0.0001")]),
    "text": (pa.string(), ["", "grün", "\0", "x" * 5000]),
    "bytes": (pa.binary(), [b"", bytes(range(256)), b"\0" * 9]),
    "place": (
        PLACE,
        [
            {"city": "Ulm", "marks": [1.0, None], "at": {"x": 7}},
            {"city": None, "marks": [], "at": None},
        ],
    ),
    "numbers": (pa.list_(pa.int32()), [[], [3, None, -1], [None]]),
    "lists": (pa.list_(pa.list_(pa.string())), [[], [[], None, ["a", None, ""]]]),
    "headers": (HEADERS, [[], [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]]),
    "map": (pa.map_(pa.string(), pa.binary()), [[], [("k", b"v"), ("n", None)]]),
    "maps": (
        pa.map_(pa.string(), pa.list_(pa.int64())),
        [[("a", [1, None]), ("b", None), ("c", [])]],
    ),
}
ROWS = pa.schema([pa.field(name, kind) for name, (kind, _) in VALUES.items()])


def columns(rows: int) -> pa.RecordBatch:
    """Returns rows in which each column repeats its values and a null."""
    return pa.record_batch(
        [
            pa.array([[None, *v][i % (len(v) + 1)] for i in range(rows)], k)
            for k, v in VALUES.values()
        ],
        schema=ROWS,
    )


@pytest.fixture
def sink(tmp_path: Path) -> DeltaBoth:
    """A table with one window that has two splits of ten rows."""
    new_sink = DeltaBoth(str(tmp_path / "all"), ROWS)
    commit_rows(new_sink, columns(10))
    return new_sink


def _merged(table: DeltaTable) -> None:
    merging = table.merge(
        table.to_pyarrow_table(), "s._offset = t._offset AND s._partition = t._partition", "s", "t"
    )
    merging.when_matched_update_all().execute()


REWRITES: dict[str, Callable[[DeltaTable], object]] = {
    "as staged": lambda table: table,
    "compacted": lambda table: table.optimize.compact(),
    "z-ordered": lambda table: table.optimize.z_order(["long", "price"]),
    "updated": lambda table: table.update({"int": "int"}),
    "merged": _merged,
}


@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
def test_no_value_of_any_type_is_changed_by_a_rewrite(
    sink: DeltaBoth, rewrite: Callable[[DeltaTable], object]
) -> None:
    """After any rewrite by deltalake, verification finds the committed values."""
    rewrite(DeltaTable(sink.uri))
    receipts = [c.receipt for c in sink.receipts()]
    assert compare_contents(receipts, sink.audit(), sink.dead_letters) == []


@pytest.mark.parametrize(
    "written",
    [
        {
            "store_schema": False,
            "use_deprecated_int96_timestamps": True,
            "compression": "snappy",
            "use_compliant_nested_type": False,
        },
        {
            "store_schema": False,
            "data_page_version": "2.0",
            "use_dictionary": False,
            "row_group_size": 3,
        },
        {
            "store_decimal_as_integer": True,
            "use_byte_stream_split": ["double"],
            "use_dictionary": False,
            "version": "1.0",
        },
    ],
    ids=["as Spark does", "version 2 pages", "other encodings"],
)
def test_no_value_of_any_type_is_changed_by_another_writer(
    sink: DeltaBoth, written: dict[str, Any]
) -> None:
    """Files of other writers have the same checksum.

    Some have timestamps of 96 bits, some have no Arrow schema.
    """
    for file in (Path(sink.uri) / "data").rglob("*.parquet"):
        buffer = io.BytesIO()
        pq.write_table(pq.read_table(file, partitioning=None), buffer, **written)
        sums = [
            sum(map(checksum, batches_in(pa.BufferReader(source)))) % 2**64
            for source in (file.read_bytes(), buffer.getvalue())
        ]
        assert sums[0] == sums[1]
