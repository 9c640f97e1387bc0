"""Each message of a batch is exactly one of these: rows, a dead letter, or dropped."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.json.documents import documents
from tests.formats.json.models import Nested, Scalars
from tests.profiles import examples
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.json.decoder import JsonEncoding
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.contracts.values import check_shape, dead, messages_with

HERE = Path(__file__).parent
SCALARS = RowDecoder(ModelReference("models.py:Scalars", HERE), JsonEncoding())
NESTED = RowDecoder(ModelReference("models.py:Nested", HERE), JsonEncoding())
MODEL = (
    "import pandera.polars as pp\nimport polars as pl\nclass M(pp.DataFrameModel):\n    id:"
    " pl.Int64\n"
)


def test_rows_and_dead_letters_of_one_valued() -> None:
    """Rows keep their messages' order, whichever decoder takes them.

    Each dead letter has its stage and reason.
    """
    values = [
        b'{"id":1}',
        None,
        b"\xff",
        b"",
        b'{"id":"2"}',
        b'{"id":9,"more":{"a":1}}',
        b'{"id":3,"name":"x"}',
        b'{"id":4,"id":4}',
    ]
    decoded = SCALARS.open()(messages_with(values))
    assert decoded.rows.schema == Columns.of(Scalars).arrow_schema
    assert decoded.rows.column("id").to_pylist() == [1, 9, 3]
    assert decoded.row_index.to_pylist() == [0, 5, 6]
    reasons = [
        (1, "tombstone"),
        (2, "invalid_utf8"),
        (3, "not_json"),
        (4, "wrong_type"),
        (7, "duplicate_key"),
    ]
    assert dead(decoded) == [
        (i, "schema" if reason == "wrong_type" else "value", reason) for i, reason in reasons
    ]
    assert decoded.dead_detail.to_pylist()[3] == "Expected int, got str - at $.id"
    assert decoded.dropped == 0


def test_tombstones_are_dropped_where_the_spec_says_so() -> None:
    """Tombstones are dropped and counted if the spec says so.

    An empty value and the document `null` are no tombstones.
    """
    decoded = RowDecoder(
        ModelReference("models.py:Scalars", HERE), JsonEncoding(), on_null="drop"
    ).open()(messages_with([None, b'{"id":1}', None, b"null", b""]))
    assert (decoded.dropped, decoded.row_index.to_pylist()) == (2, [1])
    assert dead(decoded) == [(3, "schema", "wrong_type"), (4, "value", "not_json")]


def test_unknown_fields_die_where_the_spec_says_so() -> None:
    """Messages with unknown fields are dead letters if the spec says so, in both decoders."""
    decoded = RowDecoder(
        ModelReference("models.py:Scalars", HERE), JsonEncoding(Reading(unknown="dead"))
    ).open()(messages_with([b'{"id":1}', b'{"id":1,"more":1}']))
    assert (decoded.row_index.to_pylist(), dead(decoded)) == ([0], [(1, "schema", "unknown_field")])


def test_lists_and_maps_become_rows() -> None:
    """Lists and maps become rows of the declared Arrow types."""
    decoded = NESTED.open()(
        messages_with(
            [b'{"id":1,"tags":["a"],"stock":{"x":1}}', b'{"id":2,"tags":[1]}', b'{"id":3}']
        )
    )
    assert decoded.rows.schema == Columns.of(Nested).arrow_schema
    assert decoded.rows.column("stock").to_pylist() == [[("x", 1)], None]
    assert dead(decoded) == [(1, "schema", "wrong_type")]


@pytest.mark.parametrize("values", [[], [None], [b"x"], [b'{"id":1}']])
def test_batches_of_one_kind(values: list[bytes | None]) -> None:
    """The shapes are the same for a batch without messages, rows or dead letters."""
    decoded = SCALARS.open()(messages_with(values))
    assert decoded.rows.schema == Columns.of(Scalars).arrow_schema
    assert len(decoded.dead_index) + decoded.rows.num_rows == len(values)
    assert (decoded.row_index.type, decoded.dead_index.type, decoded.dead_reason.type) == (
        pa.int64(),
        pa.int64(),
        pa.string(),
    )


def test_a_corrected_schema_counts_in_the_same_process(tmp_path: Path) -> None:
    """`open` reads a corrected model in the same process.

    Workers outlive runs, so a retry after a fix must use the new file.
    """
    (tmp_path / "m.py").write_text(MODEL)
    decoder = RowDecoder(ModelReference("m.py:M", tmp_path), JsonEncoding())
    assert decoder.open()(messages_with([b'{"id":"x"}'])).rows.num_rows == 0
    assert decoder.columns.described() == (("id", "int64 not null"),)
    (tmp_path / "m.py").write_text(MODEL.replace("Int64", "String"))
    assert decoder.open()(messages_with([b'{"id":"x"}'])).rows.num_rows == 1
    assert decoder.columns.described() == (("id", "string not null"),)


def test_a_used_decoder_travels() -> None:
    """A used decoder can be pickled, because it is a recipe without its caches."""
    SCALARS.open()(messages_with([b'{"id":1}']))
    copy = pickle.loads(pickle.dumps(SCALARS))
    assert copy == SCALARS
    assert copy.open()(messages_with([b'{"id":1}'])).rows.num_rows == 1


def test_a_missing_schema_fails_the_window(tmp_path: Path) -> None:
    """A missing model raises SpecError and makes no dead letters."""
    with pytest.raises(SpecError, match="can't be read"):
        RowDecoder(ModelReference("gone.py:M", tmp_path), JsonEncoding()).open()(
            messages_with([b"{}"])
        )


def test_monstrous_messages_among_good_ones() -> None:
    """Huge messages don't affect their neighbours."""
    decoded = SCALARS.open()(
        messages_with(
            [b'{"id":1}', b"[" * 100_000, b'{"id":' + b"9" * 10_000_000 + b"}", b'{"id":2}']
        )
    )
    assert decoded.rows.column("id").to_pylist() == [1, 2]
    assert [reason for _, _, reason in dead(decoded)] == ["too_deep", "out_of_range"]


@settings(max_examples=examples(30))
@given(
    st.integers(0, 1000),
    st.lists(st.integers(0, 59), max_size=10),
    st.sampled_from(["dead", "drop"]),
)
def test_every_message_ends_in_exactly_one_place(
    seed: int, tombstones: list[int], on_null: Any
) -> None:
    """Rows, dead letters and dropped messages add up to all messages, without overlap.

    Rows and dead letters are in the order of messages.
    """
    values: list[bytes | None] = list(documents(60, seed))
    for i in tombstones:
        values[i] = None
    decoded = RowDecoder(
        ModelReference("models.py:Scalars", HERE), JsonEncoding(), on_null=on_null
    ).open()(messages_with(values))
    check_shape(decoded, SCALARS.columns.arrow_schema, len(values))
    assert decoded.valid == decoded.rows.num_rows
    assert decoded.filtered == 0
