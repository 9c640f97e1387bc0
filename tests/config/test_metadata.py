"""The metadata columns: users name them, and those that verification needs can't be left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.config.test_window import attributes
from windrow.ingest.config.load import parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.model.metadata_columns import DEFAULT


def spec(folder: Path, metadata: Any) -> PipelineSpec:
    """Returns the spec with these metadata columns."""
    return parse_spec({**attributes({"grid": "batch"}), "metadata": metadata}, folder)


def test_defaults(tmp_path: Path) -> None:
    """Without the section, there are five metadata columns."""
    assert dict(parse_spec(attributes({"grid": "batch"}), tmp_path).metadata) == dict(DEFAULT)


def test_an_entry_renames_or_adds(tmp_path: Path) -> None:
    """An entry renames or adds a column; other columns keep their defaults and the fixed order.

    Only the timestamp can be left out.
    """
    metadata = spec(
        tmp_path,
        {"key": "message_key", "offset": "kafka_offset", "timestamp": "none", "headers": "none"},
    ).metadata
    assert list(metadata.items()) == [
        ("topic", "_topic"),
        ("partition", "_partition"),
        ("offset", "kafka_offset"),
        ("key", "message_key"),
        ("window", "_window"),
    ]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"topic": "none"}, "metadata.topic: can't be left out: receipts are verified against it"),
        (
            {"partition": "none"},
            "metadata.partition: can't be left out: receipts are verified against it",
        ),
        ({"offset": None}, "metadata.offset: can't be left out: receipts are verified against it"),
        (
            {"window": "none"},
            "metadata.window: can't be left out: windows are verified and replaced by it",
        ),
        ({"keys": "x"}, "metadata.keys: unknown key; did you mean key?"),
        ({"key": "a b"}, "metadata.key: must be a column name"),
        ({"key": ""}, "metadata.key: must be a column name"),
        ({"key": 3}, "metadata.key: must be a column name"),
        ({"key": "_WINDOW"}, "metadata.key: key and window would both be column _window"),
        ({"topic": "_offset"}, "metadata.topic: topic and offset would both be column _offset"),
        (["key"], "metadata: must be a mapping"),
    ],
)
def test_wrong_metadata(tmp_path: Path, metadata: Any, message: str) -> None:
    """A name that no table can have, and a missing column that verification needs, are refused."""
    with pytest.raises(SpecError) as caught:
        spec(tmp_path, metadata)
    (mistake,) = [line.strip() for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert mistake.startswith(message)
