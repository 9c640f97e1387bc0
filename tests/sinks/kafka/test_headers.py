"""Names of headers: no message has two headers of one name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sinks.things import ROWS
from windrow.ingest.errors import SpecError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.sinks.kafka.options import ClusterConnection, Options
from windrow.ingest.sinks.kafka.sink import KafkaSink


def sink(folder: Path, headers: dict[str, str]) -> KafkaSink:
    """Makes a table, which doesn't connect to its cluster."""
    options = Options(("out",), "out.windrow", str(folder), headers=headers)
    return KafkaSink(ClusterConnection("127.0.0.1:1"), options, ROWS)


@pytest.mark.parametrize("name", DEFAULT)
def test_a_header_named_like_a_metadata_column_is_refused(tmp_path: Path, name: str) -> None:
    """Readers could take the row's value for the place that it was read from."""
    column = DEFAULT[name]
    with pytest.raises(SpecError, match=f"has a header {column}, and .* for metadata.{name}") as no:
        sink(tmp_path, {column: "id"})
    assert "Rename the header" in no.value.do


def test_a_header_may_have_a_metadata_columns_value(tmp_path: Path) -> None:
    """Only the names of headers must differ."""
    assert sink(tmp_path, {"read-from": DEFAULT["topic"]}).encoder.headers["read-from"]
