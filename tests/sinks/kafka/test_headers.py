"""Headers of messages: the origin of a row, the headers of the spec, and no two headers with
one name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from windrow.ingest.errors import SpecError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Split
from windrow.ingest.sinks.kafka.encoder import ORIGIN, origin_of, origins
from windrow.ingest.sinks.kafka.options import KafkaOptions
from windrow.ingest.sinks.kafka.sink import KafkaSink
from windrow.ingest.sinks.kafka.table import ClusterConnection
from windrow.ingest.testing.contracts.windows import ROWS, messages, window


def sink(folder: Path, headers: dict[str, str], metadata: Mapping[str, str] = DEFAULT) -> KafkaSink:
    """Makes a table, which doesn't connect to its cluster."""
    options = KafkaOptions(("out",), "out.windrow", str(folder), headers=headers)
    return KafkaSink(ClusterConnection("127.0.0.1:1"), options, ROWS, metadata)


@pytest.mark.parametrize(
    ("name", "metadata"), [("windrow.origin", DEFAULT), ("_nth", {**DEFAULT, "ordinal": "_nth"})]
)
def test_a_header_that_each_message_has_already_is_refused(
    tmp_path: Path, name: str, metadata: dict[str, str]
) -> None:
    """A configured header with the name of a built-in header is refused.

    Readers could take the row's value for the row's origin.
    """
    with pytest.raises(SpecError, match=f"has a header {name}, and each message has one") as raised:
        sink(tmp_path, {name: "id"}, metadata)
    assert "Rename the header" in raised.value.advice


@pytest.mark.parametrize("name", DEFAULT)
def test_a_header_may_have_a_metadata_columns_value(tmp_path: Path, name: str) -> None:
    """A header may have a metadata column's value, also the window's, and the column's name."""
    column = DEFAULT[name]
    assert sink(tmp_path, {column: column}).encoder.headers == {column: column}


def test_an_origin_is_read_back() -> None:
    """An origin is read back, also of a message without a timestamp or with one outside the
    calendar.
    """
    read = messages(Split("shop.orders", 3, 40, 43))
    column_index = read.schema.get_field_index("timestamp")
    stamps = pa.array([1_767_312_000_001, None, 2**60]).cast(read.schema.field(column_index).type)
    decoded_origins = [
        origin_of({ORIGIN: o})
        for o in origins(read.set_column(column_index, "timestamp", stamps), window(0)).to_pylist()
    ]
    assert decoded_origins == [
        ("orders", window(0).key, "shop.orders", 3, 40 + n, millis)
        for n, millis in enumerate(["1767312000001", "", ""])
    ]


@pytest.mark.parametrize(
    "text", [b"", b"p/w/a/b/c/d", b"p/w/a/1/2", b"\xff", b"p/w/a/1/2/3/4", None]
)
def test_what_is_no_origin_is_nobodys(text: bytes | None) -> None:
    """A header of the same name that another program wrote isn't an origin."""
    assert origin_of({ORIGIN: text}) is None
    assert origin_of({}) is None
