"""The messages of the corpora have their expected verdicts, alone and among all others."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from tests.formats.cdc import formats
from tests.formats.cdc.corpus import (
    CANAL,
    DEBEZIUM,
    INSIDE,
    KEYED,
    MAXWELL,
    MISSING,
    STATED,
    WRITTEN,
    A,
    Corpus,
    Verdict,
    text,
)
from tests.formats.cdc.formats import (
    BINLOG,
    CUSTOMERS,
    FORMS,
    HERE,
    PRODUCTS,
    WITH_SCHEMA,
    decoder_of,
)
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.cdc.change_metadata import is_called_after
from windrow.ingest.formats.cdc.unavailable import unavailable
from windrow.ingest.formats.kinds import FORMATS, make_decoder
from windrow.ingest.ports.decoder import Decoder
from windrow.ingest.settings.kinds import section_at
from windrow.ingest.testing.contracts.values import (
    check_shape,
    dead,
    deleted,
    messages_with,
    verdicts,
)


def wrapped(corpus: Corpus) -> Corpus:
    """Returns the corpus with a schema in each message.

    Only messages that can be wrapped in `payload` are kept.
    """
    inside = [case for case in corpus if isinstance(case[2], list) or case[2] == "filtered"]
    return [
        (
            name,
            b'{"schema":{"type":"struct","fields":[]},"payload":' + (value or b"") + b"}",
            verdict,
        )
        for name, value, verdict in inside
    ]


NUMBERED = "corpus_name", "number"
CORPORA: dict[str, tuple[Decoder, Corpus]] = {
    "debezium": (CUSTOMERS, DEBEZIUM),
    "debezium with schema": (WITH_SCHEMA, wrapped(DEBEZIUM)),
    "debezium's forms": (FORMS, WRITTEN),
    "inside others": (formats.INSIDE, INSIDE),
    "stated by schemas": (formats.STATED, STATED),
    "canal": (PRODUCTS, CANAL),
    "maxwell": (BINLOG, MAXWELL),
}


def became(decoder: Decoder, values: Sequence[bytes | None]) -> list[Verdict]:
    """Returns a verdict for each message: `gone` if it is no row and no dead letter."""
    decoded = decoder.open()(messages_with(values))
    check_shape(decoded, decoder.columns.arrow_schema, len(values))
    verdict_by_index = verdicts(decoded)
    return [
        (
            "gone"
            if i not in verdict_by_index
            else (
                [tuple(row.values()) for row in verdict_by_index[i]]
                if isinstance(verdict_by_index[i][0], dict)
                else verdict_by_index[i][0][:2]
            )
        )
        for i in range(len(values))
    ]


def expected(verdict: Verdict) -> Verdict:
    """Returns the verdict in the form that `became` returns."""
    return "gone" if isinstance(verdict, str) else verdict


def params_of(corpora: dict[str, Corpus]) -> list[Any]:
    """Returns pytest's parameters: the name of a corpus and the number of a message in it."""
    return [
        pytest.param(corpus_name, i, id=f"{corpus_name}: {case[0]}")
        for corpus_name, corpus in corpora.items()
        for i, case in enumerate(corpus)
    ]


@pytest.mark.parametrize(
    NUMBERED, params_of({corpus_name: corpus for corpus_name, (_, corpus) in CORPORA.items()})
)
def test_a_message_becomes_what_stands_beside_it(corpus_name: str, number: int) -> None:
    """A message becomes its rows with exact values, or is refused with its stage and reason.

    Any other message is counted as dropped or filtered.
    """
    decoder, corpus = CORPORA[corpus_name]
    _, value, verdict = corpus[number]
    assert became(decoder, [value]) == [expected(verdict)]
    decoded = decoder.open()(messages_with([value]))
    assert (decoded.dropped, decoded.filtered) == (
        int(verdict == "dropped"),
        int(verdict == "filtered"),
    )


@pytest.mark.parametrize("corpus_name", CORPORA)
def test_messages_do_not_move_each_other(corpus_name: str) -> None:
    """The messages of a batch don't affect each other, in any order and number."""
    r, (decoder, corpus) = random.Random(7), CORPORA[corpus_name]
    for _ in range(20):
        strewn = r.choices(corpus, k=120)
        assert became(decoder, [value for _, value, _ in strewn]) == [
            expected(verdict) for _, _, verdict in strewn
        ]


@pytest.mark.parametrize(NUMBERED, params_of(KEYED))
def test_changes_of_a_table_with_a_key(corpus_name: str, number: int) -> None:
    """A message deletes the row with its old key and adds its new rows.

    The message is between two other messages.
    """
    decoder, (_, value, verdict) = (
        decoder_of(corpus_name, "Part", primary_key=("id", "part")),
        KEYED[corpus_name][number],
    )
    first = KEYED[corpus_name][0]
    decoded = decoder.open()(messages_with([first[1], value, first[1]]))
    check_shape(decoded, decoder.columns.arrow_schema, 3)
    verdict_by_index = verdicts(decoded)
    assert (verdict_by_index[0], verdict_by_index[2]) == (first[2], first[2])
    became = verdict_by_index.get(1, [])
    assert (became[0][:2] if became and isinstance(became[0], tuple) else became) == (
        [] if isinstance(verdict, str) else verdict
    )
    assert (decoded.dropped, decoded.filtered) == (
        int(verdict == "dropped"),
        int(verdict == "filtered"),
    )


def test_a_key_that_the_messages_key_has() -> None:
    """A deletion or a tombstone deletes the row of its message's key, whatever the value says."""
    decoder = decoder_of(
        "debezium-json",
        "Part",
        ("part", "id"),
        key={"fields": ["part", "id"]},
        fields_include="except_key",
    )
    key, row = b'{"id":1,"part":"a"}', b'{"op":"c","after":{"name":"x"}}'
    decoded = decoder.open()(
        messages_with(
            [row, b'{"op":"d"}', None, b'{"op":"d"}', row], [key, key, key, b'{"id":1}', key]
        )
    )
    check_shape(decoded, decoder.columns.arrow_schema, 5)
    key_deleted = [[{"part": "a", "id": 1}]]
    refused = [("key", "key:missing", "Object misses a required field - at the key's $.part")]
    assert verdicts(decoded) == {0: [A], 1: key_deleted, 2: key_deleted, 3: refused, 4: [A]}


def test_a_former_key_in_a_form_of_its_own() -> None:
    """The old key is read by the same rules as the key.

    A message with an invalid old key is refused.
    """
    decoder = decoder_of("debezium-json", "Dated", ("day",))
    befores = [{"day": 1}, {"day": 2}, {}, None, {"day": 2932897}]
    decoded = decoder.open()(
        messages_with(
            [json.dumps({"op": "u", "before": b, "after": {"day": 2}}).encode() for b in befores]
        )
    )
    assert [index for index, _ in deleted(decoded)] == [0]
    assert deleted(decoded)[0][1] == {"day": date(1970, 1, 2)}
    assert decoded.row_index.to_pylist() == [0, 1, 2, 3]
    assert decoded.dead_detail.to_pylist() == [
        "Expected a date that the calendar has - at $.before.day"
    ]


def test_a_key_that_is_a_part_of_the_messages_key() -> None:
    """The columns of the primary key that the message's key lacks come from the deleted row."""
    decoder = decoder_of(
        "debezium-json", "Part", ("part", "id"), key={"fields": ["id"]}, fields_include="except_key"
    )
    values = [
        b'{"op":"d","before":{"part":"a"}}',
        b'{"op":"u","before":{"part":"b"},"after":{"part":"a"}}',
    ]
    decoded = decoder.open()(messages_with(values, [b'{"id":1}'] * 2))
    assert verdicts(decoded) == {
        0: [[{"part": "a", "id": 1}]],
        1: [[{"part": "b", "id": 1}], {"id": 1, "part": "a", "name": None}],
    }


@pytest.mark.parametrize("name", ['"NaN"', '"Infinity"', '"-Infinity"', "NaN", "-Infinity"])
def test_floats_that_are_no_numbers(name: str) -> None:
    """NaN and the infinities are read as Debezium writes them for PostgreSQL.

    They are read with and without a schema in the message. The schema still applies to other
    values.
    """
    want = repr(float(name.strip('"')))
    row = f'{{"op":"r","before":null,"after":{{"id":2,"f":{name},"at":7000}}}}'
    at_field = '{"field":"at","type":"int64","name":"io.debezium.time.MicroTimestamp"}'
    after_field = f'{{"field":"after","type":"struct","fields":[{at_field}]}}'
    with_schema = f'{{"schema":{{"type":"struct","fields":[{after_field}]}},"payload":{row}}}'
    for value, schema_include, second in ((row, False, 7.0), (with_schema, True, 0.007)):
        decoder = decoder_of("debezium-json", "Measured", schema_include=schema_include)
        [verdict] = became(decoder, [value.encode()])
        assert isinstance(verdict, list)
        [(_, number, instant)] = verdict
        assert (repr(number), instant.timestamp()) == (want, second)


def test_the_corpora_are_large_enough() -> None:
    """The corpora have more than a hundred messages.

    Each tool has rows, refusals and counted messages.
    """
    assert sum(len(corpus) for _, corpus in CORPORA.values()) > 100
    for corpus in (DEBEZIUM, CANAL, MAXWELL):
        assert {type(verdict) for _, _, verdict in corpus} == {list, tuple, str}


def test_reasons_say_where() -> None:
    """A refusal names the path in the envelope, also if the envelope is wrapped."""
    details = {name: became_in_words(CUSTOMERS, value) for name, value, _ in DEBEZIUM}
    assert (
        details["row that misses a column"] == "Expected a value, got none - at $.after.first_name"
    )
    assert details["delete without a before-image"] == "Expected a value, got none - at $.before"
    assert (
        details["unknown operation"] == "Expected a change of Debezium (c, r, u, d, t, m) - at $.op"
    )
    assert (
        details["truncate"] == "Expected the change of a row, got the removal of all rows - at $.op"
    )
    assert (
        details["row that is a text, as MongoDB's"]
        == "Expected a row, got a text, as events of MongoDB have it: take the text as a column"
        " (decode.envelope: {document: after}), or have ExtractNewDocumentState unwrap it"
        " - at $.after"
    )
    assert (
        details["a row of another table"]
        == "Expected a row of the table that the topic is named after; decode.table_include says"
        " which tables' rows are wanted - at $.source.table"
    )
    assert details["source's time as a text"] == "Expected int, got str - at $.source.ts_ms"
    inside = became_in_words(WITH_SCHEMA, b'{"payload":{"op":"c","after":{"id":1}}}')
    assert inside == "Expected a value, got none - at $.payload.after.first_name"
    canal = {name: became_in_words(PRODUCTS, value) for name, value, _ in CANAL}
    assert (
        canal["one row of several misses its name"]
        == "Expected a value, got none - at $.data[...].name"
    )
    assert canal["a row that is null"] == "Expected a value, got none - at $.data[...]"
    assert canal["no table"] == "Expected a value, got none - at $.table"


def test_tables_that_are_wanted() -> None:
    """The wanted tables are named with or without their database schema.

    The topic's name doesn't count. A message without a table is refused. Debezium's marker
    events are only counted.
    """
    sources = [
        {"table": "orders"},
        {"table": "orders", "schema": "s"},
        {"table": "s.orders"},
        {"table": "customers"},
        {},
    ]
    values = [text({"op": "c", "after": A, "source": source}) for source in sources]
    verdicts_by_pattern: dict[str, list[Any]] = {
        "orders": [[A], [A], "gone", "gone"],
        r"s\.orders": ["gone", [A], [A], "gone"],
        "orders|customers": [[A], [A], "gone", [A]],
    }
    for pattern, verdict in verdicts_by_pattern.items():
        decoder = decoder_of("debezium-json", "Part", table_include=pattern)
        decoded = decoder.open()(messages_with([*values, text({"ts_ms": 1})]))
        assert [verdicts(decoded).get(i, "gone") for i in range(4)] == verdict
        assert (dead(decoded), decoded.filtered) == (
            [(4, "schema", "missing")],
            1 + verdict.count("gone"),
        )
    decoder = decoder_of("debezium-json", "Part", database_include="a")
    values = [
        text({"op": "c", "after": A, "source": {"db": db, "table": "customers"}}) for db in "ab"
    ]
    assert list(verdicts(decoder.open()(messages_with(values)))) == [0]


MARK = "__debezium_unavailable_value"
MARKED: dict[str, tuple[str, Any]] = {
    "text": ("text", MARK),
    "base64": ("text", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
    "hex": ("text", MARK.encode().hex()),
    "hstore as JSON": ("text", json.dumps({MARK: MARK}, separators=(",", ":"))),
    "array of texts": ("texts", [MARK]),
    "array of numbers": ("numbers", list(MARK.encode())),
    "hstore": ("pairs", {MARK: MARK}),
}


@pytest.mark.parametrize("name", MARKED)
def test_a_value_that_a_change_left_alone_is_none(name: str) -> None:
    """A value that a change left unchanged is a dead letter or null, by `unavailable`.

    This holds for each form of Debezium's placeholder. A similar value is an ordinary value.
    """
    column, mark = MARKED[name]
    alike: Any = (
        {"x": MARK}
        if isinstance(mark, dict)
        else mark + mark
        if isinstance(mark, list)
        else f" {mark}"
    )
    kept_value = [("x", MARK)] if isinstance(mark, dict) else alike
    values = [
        text({"op": op, side: {"id": 1, column: value}})
        for op, side, value in (
            ("u", "after", mark),
            ("u", "after", alike),
            ("d", "before", mark),
            ("u", "after", None),
        )
    ]
    null = {"id": 1, "text": None, "texts": None, "numbers": None, "pairs": None}
    refused = decoder_of("debezium-json", "Toasted").open()(messages_with(values))
    assert dead(refused) == [(0, "schema", "unavailable"), (2, "schema", "unavailable")]
    assert refused.rows[column].to_pylist() == [kept_value, None]
    assert str(refused.dead_detail[0]).endswith(f"(decode.unavailable) - at $.after.{column}")
    nulls = decoder_of("debezium-json", "Toasted", unavailable="null").open()(messages_with(values))
    assert nulls.rows.to_pylist() == [null, {**null, column: kept_value}, null, null]
    keyed = decoder_of("debezium-json", "Toasted", ("id",)).open()(messages_with(values[2:3]))
    assert deleted(keyed) == [(0, {"id": 1})]


def test_marks_in_lists_of_other_kinds() -> None:
    """The placeholder is found in lists of other types, also in slices of arrays.

    The types are an hstore as list of keys and values, dates made of its bytes, and the UUID
    that Java makes of it.
    """
    entries = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    numbers = pa.array([[1], list(MARK.encode()), None, [2, 3]], pa.list_(pa.int32()))
    uuid = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
    for values in (
        pa.array([[("x", MARK)], [(MARK, MARK)], None, []], entries),
        pa.ListArray.from_arrays(
            numbers.offsets, numbers.values.view(pa.date32()), mask=numbers.is_null()
        ),
        pa.array([[uuid, uuid], [uuid], None, ["x"]], pa.list_(pa.string())),
    ):
        assert [
            None if mask is None else mask.tolist()
            for mask in map(unavailable, (values, values[1:3], values[2:]))
        ] == [
            [False, True, False, False],
            [True, False],
            None,
        ]


def left_alone(decoder: Decoder, *events: Any) -> tuple[Any, Any]:
    """Returns the unchanged columns of each row, and the dead letters."""
    decoded = decoder.open()(messages_with([text(event) for event in events]))
    return None if decoded.unavailable is None else decoded.unavailable.to_pylist(), dead(decoded)


def test_what_a_change_leaves_alone_is_named_where_the_table_keeps_it() -> None:
    """Unchanged columns are named for a table that keeps the old values.

    This needs an update that keeps its key, and nullable columns. For another change the row
    with the old value is unknown, so it is refused.
    """
    keeping = make_keeping()
    old, new = {**A, "name": "x"}, {**A, "name": MARK}
    update = {"op": "u", "before": None, "after": new}
    assert left_alone(keeping, update, {**update, "after": old}, {**update, "before": A}) == (
        [["name"], [], ["name"]],
        [],
    )
    refused = (3, "schema", "unavailable")
    created, moved, of_key = (
        {**update, "op": "c"},
        {**update, "before": {"part": "b"}},
        {**update, "after": {**old, "part": MARK}},
    )
    for event in (created, {**created, "op": "r"}, moved, of_key):
        assert left_alone(
            keeping, update, {**update, "op": "d", "before": A}, {**update, "after": old}, event
        ) == ([["name"], []], [refused])
    assert left_alone(make_keeping(unavailable="null"), update) == (None, [])
    assert left_alone(make_keeping(unavailable="dead"), update) == (
        None,
        [(0, "schema", "unavailable")],
    )
    with pytest.raises(SpecError, match="keep needs a table whose rows can keep"):
        _ = decoder_of("debezium-json", "Part", ("id", "part"), unavailable="keep").columns


def make_keeping(**decode: Any) -> Decoder:
    """Returns the decoder for a table with a primary key whose rows keep unchanged values."""
    section = section_at(FORMATS["debezium-json"]).model_validate(
        {"format": "debezium-json", "schema": "models.py:Part", **decode}
    )
    return make_decoder(section, HERE, ("id", "part"), keeps_unavailable=True)


def test_a_value_that_must_be_there_is_never_none() -> None:
    """An unchanged value is refused if its column isn't nullable, also with `unavailable: null`."""
    value = text({"op": "u", "after": {**A, "part": MARK}})
    assert dead(
        decoder_of("debezium-json", "Part", unavailable="null").open()(messages_with([value]))
    ) == [(0, *MISSING)]


@pytest.mark.parametrize(
    ("topic", "table", "is_its_topic"),
    [
        ("shop.public.customers", "customers", True),
        ("customers", "Customers", True),
        ("shop.my_table", "my$table", True),
        ("shop.public._orders", "_orders", True),
        ("shop.public.__", "表格", True),
        ("reorders", "orders", False),
        ("shop.customers", "orders", False),
        ("all", "customers", False),
    ],
)
def test_a_topic_that_is_called_after_a_table(topic: str, table: str, is_its_topic: bool) -> None:
    """A topic matches a table by Debezium's naming, even without the first part of its name."""
    assert is_called_after(topic, table) == is_its_topic


def became_in_words(decoder: Decoder, value: bytes | None) -> str | None:
    """Returns the detail of the refusal; None if the message isn't refused."""
    detail = decoder.open()(messages_with([value])).dead_detail
    return str(detail[0].as_py()) if len(detail) else None


def of_many(count: int, sql: str = "") -> bytes:
    """Returns a message of Canal with this many rows."""
    rows = b",".join([b'{"id":1,"part":"a","name":null}'] * count)
    return b'{"type":"UPDATE","old":null,"sql":"%s","data":[%s]}' % (sql.encode(), rows)


@pytest.mark.parametrize("primary_key", [(), ("id", "part")], ids=["growing", "keyed"])
def test_a_message_may_have_many_rows(primary_key: tuple[str, ...]) -> None:
    """A message may have many rows.

    The envelope's and the key's columns are repeated for each row.
    """
    decoder = decoder_of("canal-json", "Part", primary_key, envelope={"name": "sql"})
    decoded = decoder.open()(
        messages_with([of_many(50_000, "x"), of_many(2, "y")], [b"k" * 40] * 2)
    )
    assert (decoded.rows.num_rows, len(decoded.dead_index)) == (50_002, 0)
    assert decoded.rows["name"].to_pylist()[-3:] == ["x", "y", "y"]


@pytest.mark.parametrize(
    ("sql", "key", "header"),
    [("x" * 1_000_000, b"k", b"h"), ("x", b"k" * 1_000_000, b"h"), ("x", b"k", b"h" * 1_000_000)],
    ids=["envelope", "key", "header"],
)
def test_rows_times_what_stands_beside_them_is_bounded(sql: str, key: bytes, header: bytes) -> None:
    """A message is refused as too large if its rows would repeat too many bytes.

    Otherwise a megabyte could become a hundred gigabytes.
    """
    decoder = decoder_of("canal-json", "Part", envelope={"name": "sql"})
    values, keys = [of_many(100_000, sql), of_many(1, sql), of_many(1)], [key, key, None]
    decoded = decoder.open()(messages_with(values, keys, [[("h", header)], [("h", header)], []]))
    assert dead(decoded) == [(0, "value", "too_large")]
    assert decoded.row_index.to_pylist() == [1, 2]


@pytest.mark.parametrize("rows", [20, 70, 100, 130, 200, 600, 2_000, 20_000])
def test_a_batch_of_messages_made_for_it_is_bounded(rows: int) -> None:
    """The memory for a hostile batch is bounded, for any size of its messages.

    A batch of 16 MB must not become more than an Arrow array of texts can hold.
    """
    decoder = decoder_of("canal-json", "Loose", envelope={"name": "sql"})
    value = b'{"type":"INSERT","data":[%s],"sql":"%s"}' % (
        b",".join([b"{}"] * rows),
        b"x" * 3 * rows,
    )
    decoded = decoder.open()(messages_with([value] * 3 + [of_many(1)]))
    assert decoded.rows.nbytes < 120 * 3 * len(value)
    assert decoded.row_index.to_pylist()[-1] == 3
