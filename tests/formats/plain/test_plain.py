"""A message's bytes become the only column of a row; unusable models are refused."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.plain.decoder import PlainDecoder
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.contracts.values import dead, messages_with

HERE = Path(__file__).parent


def is_text(value: bytes) -> bool:
    """Returns whether Python decodes the value as UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(
    values=st.lists(
        st.none() | st.binary(max_size=8) | st.text(max_size=5).map(str.encode), max_size=30
    )
)
def test_a_text_is_what_python_takes_for_one(values: list[bytes | None]) -> None:
    """A message of UTF-8 is a row, and any other message is a dead letter."""
    decoded = PlainDecoder("string", None).open()(messages_with(values))
    good = [i for i, value in enumerate(values) if value is not None and is_text(value)]
    assert decoded.row_index.to_pylist() == good
    assert decoded.rows["value"].to_pylist() == [(values[i] or b"").decode() for i in good]
    reasons = {
        i: "tombstone" if value is None else "invalid_utf8"
        for i, value in enumerate(values)
        if i not in good
    }
    assert dead(decoded) == [(i, "value", reason) for i, reason in reasons.items()]


@pytest.mark.parametrize("kind", ["string", "raw"])
@pytest.mark.parametrize(
    ("on_null", "rows", "letters", "dropped"),
    [
        ("dead", [0, 2], [(1, "value", "tombstone")], 0),
        ("drop", [0, 2], [], 1),
        ("keep", [0, 1, 2], [], 0),
    ],
)
def test_what_becomes_of_a_tombstone(
    kind: Any, on_null: Any, rows: list[int], letters: list[Any], dropped: int
) -> None:
    """A tombstone is a dead letter, is counted, or is a row with null.

    An empty value is no tombstone.
    """
    decoded = PlainDecoder(kind, None, on_null=on_null).open()(messages_with([b"a", None, b""]))
    assert (decoded.row_index.to_pylist(), dead(decoded), decoded.dropped) == (
        rows,
        letters,
        dropped,
    )
    assert decoded.rows["value"].null_count == (on_null == "keep")


@pytest.mark.parametrize(
    ("model", "form", "values"),
    [
        ("Long", ">q", [17, -1, 2**63 - 1, -(2**63)]),
        ("Integer", ">i", [17, -1, 2**31 - 1]),
        ("Short", ">h", [17, -1]),
        ("Double", ">d", [1.5, -0.0, math.inf]),
        ("Float", ">f", [1.5, -0.0]),
    ],
)
def test_numbers_as_kafkas_serializers_write_them(model: str, form: str, values: list[Any]) -> None:
    """Numbers are big-endian with exactly the bytes of their type, also in a slice of a batch."""
    decode = PlainDecoder("raw", ModelReference(f"models.py:{model}", HERE)).open()
    octets = [struct.pack(form, value) for value in values]
    messages = messages_with([b"", octets[0][1:], *octets, None, octets[0] + b"\0"])
    decoded = decode(messages)
    assert repr(decoded.rows["count"].to_pylist()) == repr(values)
    assert decoded.row_index.to_pylist() == list(range(2, 2 + len(values)))
    assert decoded.dead_reason.to_pylist() == ["wrong_format"] * 2 + ["tombstone", "wrong_format"]
    assert decoded.dead_detail[0].as_py() == f"Expected {len(octets[0])} bytes"
    assert decode(messages.slice(3, 1)).rows["count"].to_pylist() == values[1:2]
    assert decode(messages.slice(0, 0)).rows.num_rows == 0


def test_a_number_may_be_missing() -> None:
    """A number column may be null if messages without a value are kept."""
    model = ModelReference("models.py:Long", HERE)
    decoded = PlainDecoder("raw", model, on_null="keep").open()(
        messages_with([None, bytes(7) + b"\x11"])
    )
    assert decoded.rows["count"].to_pylist() == [None, 17]


@pytest.mark.parametrize(
    ("kind", "model", "on_null", "message"),
    [
        ("string", "Two", "dead", "a message is one column, but the schema has line, more"),
        ("string", "Bytes", "dead", "body is binary, and must be String"),
        ("raw", "Line", "dead", "line is string, and must be Binary"),
        ("raw", "Bytes", "keep", "body must be nullable for on_null: keep"),
        ("raw", "Price", "dead", r"price is decimal128\(9, 2\), and must be Binary, or a number"),
        ("string", "Long", "dead", "count is int64, and must be String"),
    ],
)
def test_a_schema_that_will_not_do(kind: Any, model: str, on_null: Any, message: str) -> None:
    """An unusable model raises SpecError before anything is read, with the fault and the remedy."""
    decoder = PlainDecoder(kind, ModelReference(f"models.py:{model}", HERE), on_null=on_null)
    for ask in (lambda: decoder.columns, decoder.open):
        with pytest.raises(SpecError, match=message):
            ask()
