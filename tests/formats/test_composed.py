"""Rows that come from key, value and headers.

A message is refused whole, by the first part that refuses it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contracts.decoder_contract import DecoderContract
from tests.formats.words import WordsDecoder, WordsSection
from windrow.ingest.errors import BugError, SpecError
from windrow.ingest.formats.cdc.kind import MaxwellJsonSection
from windrow.ingest.formats.composed import ComposedDecoder
from windrow.ingest.formats.json.decoder import JsonEncoding
from windrow.ingest.formats.json.kind import JsonSection
from windrow.ingest.formats.kinds import make_decoder
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.ports.decoder import Decoded, Decoder, Deletes
from windrow.ingest.schema.message_part import Part
from windrow.ingest.schema.messages import HEADERS, last_values
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.testing.contracts.values import (
    check_shape,
    dead,
    deleted,
    messages_with,
    verdicts,
)

HERE = Path(__file__).parent


def decoder_of(model: str, primary_key: tuple[str, ...] = (), **decode: Any) -> Decoder:
    """Returns the decoder of a `decode` section."""
    return make_decoder(
        JsonSection.model_validate({"schema": f"composed_models.py:{model}", **decode}),
        HERE,
        primary_key,
    )


SALES = decoder_of(
    "Sale",
    key={"fields": ["number", "shop"]},
    fields_include="except_key",
    headers={"trace": "x-trace"},
)
KEY = b'{"shop":"a","number":7}'


class TestComposed(DecoderContract):
    """Messages with a good key fulfil the contract of every format."""

    GOOD: ClassVar = [b'{"amount":1}', b'{"amount":2,"shop":5}', b' {"amount":3}']
    BAD: ClassVar = [b'{"amount":"hunter2"}', b"hunter2", b'{"hunter2":1}']

    def messages(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        return messages_with(values, [KEY] * len(values))

    @pytest.fixture
    def decoder(self) -> Decoder:
        return SALES


def decoded(decoder: Decoder, messages: pa.RecordBatch) -> Decoded:
    """Decodes messages and checks the shape of the result."""
    batch = decoder.open()(messages)
    check_shape(batch, decoder.columns.arrow_schema, messages.num_rows)
    return batch


def test_each_column_comes_from_its_place() -> None:
    """The columns are in the model's order, whichever part of the message they come from."""
    messages = messages_with(
        [b'{"amount":5,"shop":"not this"}'],
        [KEY],
        [[("x-trace", b"1"), ("other", b"2"), ("x-trace", b"3")]],
    )
    assert decoded(SALES, messages).rows.to_pylist() == [
        {"shop": "a", "amount": 5, "number": 7, "trace": "3"}
    ]


def test_the_first_part_that_refuses_a_message_says_why() -> None:
    """The key is judged first, then the headers, then the value.

    A refused message doesn't change its neighbours.
    """
    keys = [KEY, None, b"{", KEY, KEY, b'{"shop":1,"number":1}', KEY]
    values = [b'{"amount":0}', b"{", b"{", b"{", b'{"amount":4}', b'{"amount":5}', b'{"amount":6}']
    headers: list[list[tuple[str, bytes | None]]] = [
        [],
        [],
        [],
        [],
        [("x-trace", b"\xff")],
        [("x-trace", b"\xff")],
        [("x-trace", None)],
    ]
    batch = decoded(SALES, messages_with(values, keys, headers))
    assert batch.row_index.to_pylist() == [0, 6]
    assert [(row["amount"], row["trace"]) for row in batch.rows.to_pylist()] == [
        (0, None),
        (6, None),
    ]
    assert dead(batch) == [
        (1, "key", "key:null"),
        (2, "key", "key:not_json"),
        (3, "value", "not_json"),
        (4, "header", "header:invalid_utf8"),
        (5, "key", "key:wrong_type"),
    ]
    details = batch.dead_detail.to_pylist()
    assert (details[0], details[-1]) == (
        "Expected a value, got none - at the key",
        "Expected str, got int - at the key's $.shop",
    )
    assert (
        details[1]
        == "JSON is malformed: Expecting property name enclosed in double quotes (character 1) - at"
        " the key"
    )
    assert details[3] == "Expected UTF-8 - at the header x-trace"


def test_a_tombstone_that_is_only_counted_needs_a_good_key() -> None:
    """A message with a refused key is a dead letter, even if tombstones are dropped."""
    decoder = decoder_of(
        "Sale",
        key={"fields": ["number", "shop"]},
        fields_include="except_key",
        headers={"trace": "t"},
        on_null="drop",
    )
    batch = decoded(decoder, messages_with([None, None, b'{"amount":1}'], [b"no", KEY, KEY]))
    assert (batch.row_index.to_pylist(), dead(batch), batch.dropped) == (
        [2],
        [(0, "key", "key:not_json")],
        1,
    )


def test_a_prefix_tells_the_keys_columns_from_the_values() -> None:
    """A prefix distinguishes the key's columns from the value's columns of the same name."""
    decoder = decoder_of(
        "Named", key={"fields": ["key_id"], "fields_prefix": "key_"}, fields_include="except_key"
    )
    assert decoded(decoder, messages_with([b'{"id":2}'], [b'{"id":1}'])).rows.to_pylist() == [
        {"key_id": 1, "id": 2}
    ]
    refused = decoded(decoder, messages_with([b'{"id":2}'], [b'{"key_id":1}']))
    assert refused.dead_detail.to_pylist() == ["Object misses a required field - at the key's $.id"]


@pytest.mark.parametrize(
    ("key", "octets"),
    [
        (
            {
                "format": "avro",
                "writer_schema": {
                    "type": "record",
                    "name": "K",
                    "fields": [{"name": "id", "type": "int"}],
                },
            },
            (b"\x02", b"\x80"),
        ),
        ({"format": "protobuf", "descriptor": "key.proto", "message": "K"}, (b"\x08\x01", b"\xff")),
    ],
)
def test_keys_of_formats_with_a_schema(
    key: dict[str, Any], octets: tuple[bytes, bytes], tmp_path: Path
) -> None:
    """A format with a schema reads the key's fields by their own names, without the prefix."""
    (tmp_path / "composed_models.py").write_text((HERE / "composed_models.py").read_text())
    (tmp_path / "key.proto").write_text('syntax = "proto3"; message K { int64 id = 1; }')
    section = JsonSection.model_validate(
        {
            "schema": "composed_models.py:Named",
            "key": {**key, "fields": ["key_id"], "fields_prefix": "key_"},
            "fields_include": "except_key",
        }
    )
    batch = decoded(
        make_decoder(section, tmp_path), messages_with([b'{"id":2}'] * 3, [*octets, None])
    )
    assert batch.rows.to_pylist() == [{"key_id": 1, "id": 2}]
    assert [reason for _, _, reason in dead(batch)] == [f"key:not_{key['format']}", "key:null"]


def test_an_avro_key_without_a_usable_schema() -> None:
    """An unusable schema of the key raises SpecError that names the key's setting."""
    key = {"format": "avro", "writer_schema": '{"type": "record"}', "fields": ["shop"]}
    with pytest.raises(SpecError, match=r"decode\.key\.writer_schema"):
        decoder_of("Sale", key=key, fields_include="except_key").open()


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "a": st.none() | st.integers(0, 2),
        "b": st.none() | st.sampled_from(["", "x"]),
        "c": st.none() | st.sampled_from(["1.50", 1.5, 2]),
        "d": st.none() | st.sampled_from(["2026-01-05T00:00:00Z", "2026-01-05T01:00:00+01:00"]),
        "e": st.none() | st.booleans(),
        "f": st.none() | st.sampled_from([1.5, 2]),
        "g": st.none() | st.just("2026-01-05"),
    },
)


@given(
    pairs=st.lists(st.tuples(VALUES, VALUES), max_size=8),
    names=st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True),
)
def test_key_and_value_must_agree(
    pairs: list[tuple[dict[str, Any], dict[str, Any]]], names: list[str]
) -> None:
    """A message whose key and value differ in a column is refused for the first such column.

    Null equals only null.
    """
    decoder = decoder_of("Wide", key={"fields": names})
    keys, values = ([json.dumps(pair[part]).encode() for pair in pairs] for part in (0, 1))
    verdict_by_index = verdicts(decoded(decoder, messages_with(values, keys)))
    decode_alone = RowDecoder(
        ModelReference("composed_models.py:Wide", HERE), JsonEncoding()
    ).open()
    rows = [
        (
            decode_alone(messages_with([k])).rows.to_pylist()[0],
            decode_alone(messages_with([v])).rows.to_pylist()[0],
        )
        for k, v in zip(keys, values, strict=True)
    ]
    for i, (of_key, of_value) in enumerate(rows):
        unlike = [name for name in names if of_key[name] != of_value[name]]
        expected = (
            (
                "key",
                "key:differs",
                f"Expected the same as in the value - at the key's $.{unlike[0]}",
            )
            if unlike
            else of_value
        )
        assert verdict_by_index[i] == [expected]


def test_a_message_whose_key_and_value_lost_a_part_of_a_timestamp() -> None:
    """A message that loses a part of a timestamp in key and value counts once.

    A refused message doesn't count.
    """
    fine, coarse = (
        f'{{"d": "2026-01-05T09:00:00.{fraction}Z"}}'.encode() for fraction in ("1234567", "123456")
    )
    pairs = [
        (fine, fine),
        (fine, coarse),
        (coarse, coarse),
        (fine, b"{"),
        (fine, b'{"d": null}'),
        (coarse, fine),
    ]
    batch = decoded(
        decoder_of("Wide", key={"fields": ["d"]}),
        messages_with([value for _, value in pairs], [key for key, _ in pairs]),
    )
    assert (batch.valid, batch.truncated) == (4, 3)


def test_a_header_that_must_be_there() -> None:
    """A header's bytes become the column. A missing header or value refuses the message."""
    decoder = decoder_of("Strict", headers={"source": "src"})
    messages = messages_with(
        [b'{"id":1}'] * 4,
        None,
        [[("src", b"\xff")], [("src", None)], [], [("src", b""), ("SRC", b"x")]],
    )
    batch = decoded(decoder, messages)
    assert [row["source"] for row in batch.rows.to_pylist()] == [b"\xff", b""]
    assert dead(batch) == [(1, "header", "header:missing"), (2, "header", "header:missing")]


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["a", "b", ""]), st.none() | st.binary(max_size=2)),
            max_size=4,
        ),
        max_size=6,
    )
)
def test_of_several_headers_the_last_counts(headers: list[list[tuple[str, bytes | None]]]) -> None:
    """The last of several headers with the same name counts, also in a slice of a batch."""
    column = pa.array(
        [[{"key": k, "value": v} for k, v in message_headers] for message_headers in headers],
        HEADERS,
    )
    expected = [dict(message_headers).get("a") for message_headers in headers]
    assert last_values(column, "a").to_pylist() == expected
    assert last_values(column.slice(1), "a").to_pylist() == expected[1:]


def test_several_rows_of_a_value_have_the_columns_of_its_key(tmp_path: Path) -> None:
    """A format that makes several rows of a message, or none, works with a key too."""
    (tmp_path / "m.py").write_text(
        "import pandera.polars as pa\nimport polars as pl\n\n\nclass M(pa.DataFrameModel):\n   "
        " word: pl.String\n    id: pl.Int64\n    letters: pl.Int32\n"
    )
    section = JsonSection.model_validate(
        {"schema": "m.py:M", "key": {"fields": ["id"]}, "fields_include": "except_key"}
    )
    assert section.key is not None
    key = RowDecoder(ModelReference("m.py:M", tmp_path), JsonEncoding(), part=section.key.part)
    decoder = ComposedDecoder(
        ModelReference("m.py:M", tmp_path), WordsDecoder(9), key, ("id",), part=section.part
    )
    keys = [b'{"id":0}', b"", b'{"id":2}', b'{"id":3}']
    batch = decoded(decoder, messages_with([b"a bc", b"x", b"", b"d"], keys))
    assert [tuple(row.values()) for row in batch.rows.to_pylist()] == [
        ("a", 0, 1),
        ("bc", 0, 2),
        ("d", 3, 1),
    ]
    assert (batch.row_index.to_pylist(), dead(batch), batch.filtered) == (
        [0, 0, 3],
        [(1, "key", "key:not_json")],
        1,
    )
    part = Part(without=("word", "letters"))
    several = ComposedDecoder(
        ModelReference("m.py:M", tmp_path), key, WordsDecoder(9), ("word", "letters"), part=part
    ).open()
    with pytest.raises(BugError, match="no row of a key, or several"):
        several(messages_with([b'{"id":1}'], [b"a b"]))


@pytest.mark.parametrize(
    ("model", "decode", "message"),
    [
        (
            "Sale",
            {"key": {"fields": ["shop", "store"]}},
            "decode.key.fields names store, which the schema doesn't have: it has shop, amount",
        ),
        ("Sale", {"headers": {"track": "x"}}, "names track, which the schema doesn't have"),
        (
            "Sale",
            {"headers": {"amount": "x"}},
            "amount: comes from the header x, so it must be String or Binary, not int64",
        ),
        (
            "Named",
            {"key": {"fields": ["id", "key_id"]}, "fields_include": "except_key"},
            "no column of the schema is left for it",
        ),
        (
            "Nested",
            {"key": {"fields": ["tags"]}},
            "tags: comes from key and value, which must agree, but list",
        ),
        ("Strict", {}, "can't be used for JSON, which has no bytes: source"),
    ],
)
def test_a_schema_that_will_not_do(model: str, decode: dict[str, Any], message: str) -> None:
    """An unusable model raises SpecError before anything is read.

    The error has the column and the setting.
    """
    decoder = decoder_of(model, **decode)
    for ask in (lambda: decoder.columns, decoder.open):
        with pytest.raises(SpecError, match=message):
            ask()


def test_parts_that_do_not_give_what_they_should() -> None:
    """A decoder with other columns than requested raises SpecError before anything is read.

    This holds for columns that belong to the key too.
    """
    sale, named = "composed_models.py:Sale", "composed_models.py:Named"
    key = RowDecoder(ModelReference(sale, HERE), JsonEncoding(), part=Part(only=("shop",)))
    for message in (
        "amount: the value doesn't have it",
        "word: the value has it, but it comes from",
    ):
        with pytest.raises(SpecError, match=message):
            ComposedDecoder(
                ModelReference(sale, HERE),
                WordsDecoder(9),
                key,
                ("shop",),
                part=Part(without=("shop",)),
            ).open()
    of_key = RowDecoder(ModelReference(named, HERE), JsonEncoding(), part=Part(only=("key_id",)))
    with pytest.raises(SpecError, match="key_id: the value has it, but it comes from elsewhere"):
        ComposedDecoder(
            ModelReference(named, HERE),
            RowDecoder(ModelReference(named, HERE), JsonEncoding()),
            of_key,
            ("key_id",),
            part=Part(without=("key_id",)),
        ).open()
    with pytest.raises(BugError, match="other columns than it was asked for"):
        ComposedDecoder(
            ModelReference(sale, HERE),
            RowDecoder(ModelReference(sale, HERE), JsonEncoding()),
            key,
            ("amount",),
        ).open()
    with pytest.raises(
        SpecError, match="letters: it is int32 in the value, and string in the schema"
    ):
        ComposedDecoder(ModelReference("composed_models.py:Letters", HERE), WordsDecoder(9)).open()


# --------------------------------------------------------------------------------------------------


class TestKeyed(TestComposed):
    """The contract of every format holds if messages without a value delete rows."""

    @pytest.fixture
    def decoder(self) -> Decoder:
        return decoder_of(
            "Sale",
            ("shop", "number"),
            key={"fields": ["number", "shop"]},
            fields_include="except_key",
            headers={"trace": "x-trace"},
        )


def test_a_message_without_a_value_deletes_by_its_key() -> None:
    """A message without a value deletes the row of its key, whatever its headers are.

    A refused key is a dead letter. An empty value is a value.
    """
    keys = [KEY, KEY, b"no", b'{"shop":"b","number":0}', KEY, KEY]
    values = [None, b'{"amount":1}', None, None, b"", None]
    headers: list[list[tuple[str, bytes | None]]] = [[("x-trace", b"\xff")], [], [], [], [], []]
    decoder = decoder_of(
        "Sale",
        ("shop", "number"),
        key={"fields": ["number", "shop"]},
        fields_include="except_key",
        headers={"trace": "x-trace"},
    )
    batch = decoded(decoder, messages_with(values, keys, headers))
    assert deleted(batch) == [
        (0, {"shop": "a", "number": 7}),
        (3, {"shop": "b", "number": 0}),
        (5, {"shop": "a", "number": 7}),
    ]
    assert (batch.row_index.to_pylist(), dead(batch)) == (
        [1],
        [(2, "key", "key:not_json"), (4, "value", "not_json")],
    )
    assert batch.valid == 4


@pytest.mark.parametrize("primary_key", [(), ("amount",), ("number", "amount")])
def test_a_message_without_a_value_is_the_values_to_judge(primary_key: tuple[str, ...]) -> None:
    """The value's format judges a message without a value if its key lacks a primary key column."""
    decoder = decoder_of(
        "Sale", primary_key, key={"fields": ["number"]}, fields_include="except_key"
    )
    batch = decoded(decoder, messages_with([None], [b'{"number":7}']))
    assert (dead(batch), batch.deletes) == ([(0, "value", "tombstone")], None)


@dataclass(frozen=True)
class Struck(WordsDecoder):
    """Words as rows. Words that begin with a minus are deleted."""

    primary_key: tuple[str, ...] | None = None

    def with_deletes(
        self, primary_key: tuple[str, ...], *, keeps_unavailable: bool = False
    ) -> Struck:
        return replace(self, primary_key=primary_key)

    def _decode_words(self, messages: pa.RecordBatch) -> Decoded:
        batch = super()._decode_words(messages)
        if self.primary_key is None:
            return batch
        struck = pc.starts_with(batch.rows["word"], "-").to_numpy(zero_copy_only=False)
        keys = batch.rows.filter(pa.array(struck)).select(list(self.primary_key))
        deletes = Deletes(keys, batch.row_index.filter(pa.array(struck)))
        return replace(batch, deletes=deletes).with_rows(
            batch.rows.filter(pa.array(~struck)), np.flatnonzero(~struck)
        )


def test_change_events_delete_by_the_columns_that_they_have(tmp_path: Path) -> None:
    """Columns of the primary key that the value lacks come from the message's key.

    Both are in the order of the primary key.
    """
    (tmp_path / "m.py").write_text(
        "import pandera.polars as pa\nimport polars as pl\n\n\nclass M(pa.DataFrameModel):\n   "
        " word: pl.String\n    id: pl.Int64\n    letters: pl.Int32\n"
    )
    section = JsonSection.model_validate(
        {"schema": "m.py:M", "key": {"fields": ["id"]}, "fields_include": "except_key"}
    )
    assert section.key is not None
    key = RowDecoder(ModelReference("m.py:M", tmp_path), JsonEncoding(), part=section.key.part)
    values, keys = [b"a -b", b"-c", None, b"d -e f", b"-\xff"], [b'{"id":%d}' % i for i in range(5)]
    whole_key = ComposedDecoder(
        ModelReference("m.py:M", tmp_path),
        Struck(9).with_deletes(("word",)),
        key,
        ("id",),
        (),
        section.part,
        ("id", "word"),
    )
    batch = decoded(whole_key, messages_with([None, *values], [b"{", *keys]))
    assert deleted(batch) == [
        (1, {"id": 0, "word": "-b"}),
        (2, {"id": 1, "word": "-c"}),
        (4, {"id": 3, "word": "-e"}),
    ]
    assert [(row["id"], row["word"]) for row in batch.rows.to_pylist()] == [
        (0, "a"),
        (3, "d"),
        (3, "f"),
    ]
    assert (batch.valid, len(dead(batch))) == (3, 3)
    of_key = ComposedDecoder(
        ModelReference("m.py:M", tmp_path),
        Struck(9).with_deletes(()),
        key,
        ("id",),
        (),
        section.part,
        ("id",),
    )
    batch = decoded(of_key, messages_with(values, keys))
    assert deleted(batch) == [(i, {"id": i}) for i in range(4)]  # message 2 has no value
    assert batch.valid == 4


def test_rows_of_other_tables_are_filtered_whatever_their_key(tmp_path: Path) -> None:
    """The key of a message is judged only if the message is of a wanted table."""
    (tmp_path / "m.py").write_text(
        "import pandera.polars as pa\nimport polars as pl\n\n\nclass M(pa.DataFrameModel):\n   "
        " id: pl.Int64\n    amount: pl.Int64\n"
    )
    section = MaxwellJsonSection.model_validate(
        {
            "schema": "m.py:M",
            "table_include": "sales",
            "key": {"fields": ["id"]},
            "fields_include": "except_key",
        }
    )
    event = b'{"database":"d","table":"%s","type":"insert","data":{"amount":1}}'
    values = [event % b"sales", event % b"carts", event % b"sales", None, b"{"]
    keys = [b'{"id":1}', b'{"cart":1}', b'{"sale":1}', b"x", b"y"]
    batch = decoded(make_decoder(section, tmp_path), messages_with(values, keys))
    assert batch.rows.to_pylist() == [{"id": 1, "amount": 1}]
    assert batch.filtered == 1
    assert dead(batch) == [
        (2, "key", "key:missing"),
        (3, "key", "key:not_json"),
        (4, "key", "key:not_json"),
    ]


def test_who_can_tell_deletes_is_asked() -> None:
    """A format of change events gives deletes only if the table has a primary key."""
    section = StruckSection()
    assert make_decoder(section, HERE) == Struck(9)
    assert make_decoder(section, HERE, ("word",)) == Struck(9, ("word",))


class StruckSection(WordsSection):
    def decoder(self, folder: Path) -> Struck:
        return Struck(9)
