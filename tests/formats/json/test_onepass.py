"""The compiled pass takes only what the strict decoder takes, with the same values.

It takes nearly all whole documents.
"""

from __future__ import annotations

import base64
import random
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.formats import onepass
from tests.formats.json import schemas
from tests.formats.json.documents import FITTING, KEYS, LITERALS, documents
from tests.formats.json.models import Nested, Scalars
from tests.profiles import examples
from windrow.ingest.formats.json.decoder import JsonPass
from windrow.ingest.formats.json.layout import PASS
from windrow.ingest.formats.json.scan import KEY_HASH_STEP
from windrow.ingest.formats.json.strict import MAX_DEPTH, StrictJson
from windrow.ingest.formats.shared.json_dialects import EXACT, Reading, TimestampForm, Unknown
from windrow.ingest.formats.shared.onepass import ENTRIES, room_for_keys
from windrow.ingest.formats.shared.seen import MOST_PROBES
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.dtypes import TIMESTAMP

COLUMNS = Columns.of(Scalars)
DOCUMENTS = 2_000
"""The number of documents of a part of the long test. Each hundred has its own model."""


class Both(onepass.Both):
    """Both decoders, which also agree about the messages with truncated timestamps."""

    def __init__(self, columns: Columns, unknown: Unknown, reading: Reading = EXACT) -> None:
        self.cut = list[bool]()
        reading = replace(reading, unknown=unknown)
        columns = columns.with_rest() if unknown == "keep" else columns
        super().__init__(columns, JsonPass(columns, reading), StrictJson(columns, reading))

    def compare(self, messages: Sequence[bytes]) -> tuple[int, int]:
        self.cut.clear()
        counts = super().compare(messages)
        cut = [
            is_cut
            for is_cut, fast in zip(self.cut, self.fast_rows.mask.tolist(), strict=True)
            if fast
        ]
        assert len(self.fast_rows.truncated) == sum(cut)
        return counts

    def strictly(self, message: bytes) -> list[Any] | str:
        self.strict.truncation.done = False
        truth = super().strictly(message)
        self.cut.append(self.strict.truncation.done)
        return truth


UNKNOWN: tuple[Unknown, ...] = ("ignore", "keep", "dead")
WAYS: dict[Unknown, Both] = {unknown: Both(COLUMNS, unknown) for unknown in UNKNOWN}


def both_of(kind: pa.DataType, epoch: str | None = None) -> Both:
    """Returns both decoders for a single nullable column `a`."""
    return Both(Columns((Column("a", kind, nullable=True, epoch=epoch),)), "ignore")


@pytest.mark.parametrize("unknown", UNKNOWN)
@pytest.mark.parametrize("seed", range(3))
def test_generated_and_mutated_documents(seed: int, unknown: Unknown) -> None:
    """The compiled pass takes no document that the strict decoder refuses, and nearly all rows.

    Half of the documents are broken.
    """
    fast, rows = WAYS[unknown].compare(documents(3_000, seed))
    assert fast > 0.97 * rows


@pytest.mark.sampled(2, of=550)
def test_any_schema_with_any_documents(part: int, dice: random.Random) -> None:
    """The compiled pass agrees with the strict decoder for random models and documents.

    The models are of all kinds and nested, with odd names. The documents are in any style,
    whole and broken.
    """
    fast = rows = 0
    for _ in range(DOCUMENTS // 100):
        columns = schemas.columns_of(dice, dice.choice((3, 8, 8, 30)))
        both = Both(columns, dice.choice(UNKNOWN))
        whole_documents = [schemas.document(dice, columns) for _ in range(50)]
        counts = both.compare(
            dice.sample(
                [
                    *whole_documents,
                    *(schemas.mutate(dice, document) for document in whole_documents),
                ],
                100,
            )
        )
        fast, rows = fast + counts[0], rows + counts[1]
    # The share of numbers that only the strict decoder reads is random.
    assert fast > 0.6 * rows
    assert rows > 0.2 * DOCUMENTS


SPELT: dict[TimestampForm, str] = {
    "iso-8601": (
        r'"2026-0[1-9]-[012][1-8][Tt'
        r' ][01]\d:[0-5]\d(:[0-5]\d(\.\d{1,9})?)?(Z|[+-]0[0-9](:?[0-5]\d)?)"'
    ),
    "sql": (
        r'"2026-0[1-9]-[012][1-8][T ][01]\d:[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]0[0-9]:?[0-5]\d)?"'
    ),
    "epoch_s": r"-?[1-9]\d{0,9}(\.\d{1,8})?",
    "epoch_ms": r"-?[1-9]\d{0,12}(\.\d{1,4})?",
    "epoch_us": r"-?[1-9]\d{0,15}(\.\d)?",
    "epoch_ns": r"-?[1-9]\d{0,17}",
}
"""A pattern of the timestamps of each form."""


@pytest.mark.some(2)
@pytest.mark.parametrize("form", SPELT)
@settings(max_examples=examples(300))
@given(data=st.data())
def test_timestamps_of_each_form(form: TimestampForm, data: st.DataObject) -> None:
    """The compiled pass takes the chosen form of timestamps, at any depth, with right values.

    It takes texts of another form only if the strict decoder takes them.
    """
    kinds = {"a": TIMESTAMP, "b": pa.struct([("x", TIMESTAMP)]), "c": pa.list_(TIMESTAMP)}
    both = Both(
        Columns(tuple(Column(name, kind, nullable=True) for name, kind in kinds.items())),
        "ignore",
        Reading(form),
    )
    fitting = st.from_regex(re.compile(SPELT[form], re.ASCII), fullmatch=True)
    others = [
        st.from_regex(re.compile(spelt, re.ASCII), fullmatch=True) for spelt in SPELT.values()
    ]
    broken = [
        '"2026-01-05\x0009:00:00"',
        '"2026-01-05"',
        '"2026-01-05 24:00:00"',
        '"2026-01-05 09:00:00  Z"',
        '"2026-01-05 09:00:00',
        "1.0e0",
    ]
    odd = st.one_of(*others, st.sampled_from(broken))

    def written(strategy: st.SearchStrategy[str]) -> bytes:
        return f'{{"a":{data.draw(strategy)},"b":{{"x":{data.draw(strategy)}}},"c":[{data.draw(strategy)},null]}}'.encode()  # noqa: E501

    assert both.compare([written(fitting) for _ in range(3)]) == (3, 3)
    fast, rows = both.compare([written(odd | fitting) for _ in range(3)])
    assert fast == rows


@pytest.mark.parametrize("form", SPELT)
def test_what_the_model_says_of_a_column_wins(form: TimestampForm) -> None:
    """A column's own unit overrides the spec's form of timestamps."""
    columns = Columns(
        tuple(
            Column(unit, TIMESTAMP, nullable=False, epoch=unit) for unit in ("s", "ms", "us", "ns")
        )
    )
    assert Both(columns, "ignore", Reading(form)).compare([b'{"s":7,"ms":7,"us":7,"ns":7}']) == (
        1,
        1,
    )


@pytest.mark.parametrize(("zone", "fast"), [("UTC", 1), ("Europe/Berlin", 0)])
def test_a_zone_of_a_column(zone: str, fast: int) -> None:
    """The compiled pass takes timestamps without an offset in UTC only.

    The strict decoder reads those of other zones.
    """
    columns = Columns(
        (
            Column("a", TIMESTAMP, nullable=False, zone=zone),
            Column("b", TIMESTAMP, nullable=True, epoch="ms"),
        )
    )
    assert Both(columns, "ignore").compare([b'{"a":"2026-07-01 12:00:00","b":7}']) == (fast, 1)


def test_a_message_with_several_that_are_finer_counts_once() -> None:
    """A message with several truncated timestamps counts once, also in lists and structs.

    A message that isn't taken counts nothing. With `finer: dead` no such message is taken.
    """
    kinds = {"a": TIMESTAMP, "b": pa.list_(pa.struct([("x", TIMESTAMP)])), "c": pa.int8()}
    columns = Columns(tuple(Column(name, kind, nullable=True) for name, kind in kinds.items()))
    fine = b'"2026-01-05T09:00:00.1234567Z"'
    messages = [
        b'{"a":%s,"b":[{"x":%s},{"x":%s}]}' % (fine, fine, fine),
        b'{"c":1}',
        b'{"a":%s,"c":1000}' % fine,
        b'{"b":[{"x":%s}]}' % fine,
    ]
    assert len(JsonPass(columns).decode(pa.array(messages, pa.binary())).truncated) == 2
    assert Both(columns, "ignore").compare(messages) == (3, 3)
    assert Both(replace(columns, finer="dead"), "ignore").compare(messages) == (1, 1)


@pytest.mark.parametrize("seed", range(2))
def test_lenient_documents(seed: int) -> None:
    """A lenient compiled pass makes the strict decoder's rows, and takes most of them.

    The strict decoder reads the values of other kinds.
    """
    both = Both(COLUMNS, "ignore", Reading(lenient=True))
    fast, rows = both.compare(documents(3_000, seed))
    assert rows > fast > 0.8 * rows


@pytest.mark.parametrize("value", ['{"":1}', '{"":{"":1}}'])
def test_objects_that_stand_for_lists_have_room(value: str) -> None:
    """The buffers have room for objects in place of lists of entries.

    Each key of such an object makes an entry with a key and a value. Many small keys need more
    room than their bytes suggest.
    """
    deep: pa.DataType = pa.int64()
    for _ in range(value.count("{")):
        deep = pa.list_(pa.struct([("key", pa.string()), ("value", deep)]))
    both = Both(Columns((Column("a", pa.list_(deep), nullable=True),)), "ignore")
    both.fast.decode(pa.array([b'{"a":[%s]}' % b",".join([value.encode()] * 100_000)], pa.binary()))
    assert 2 * both.fast.state[ENTRIES] <= len(both.fast.entries)
    assert both.compare([b'{"a":[%s]}' % b",".join([value.encode()] * 1_000)]) == (1, 1)


def test_objects_and_lists_as_texts() -> None:
    """A lenient String column takes objects and lists as their text, at any depth.

    The compiled pass finds the same ignored fields as the strict decoder.
    """
    text, texts = pa.string(), pa.list_(pa.string())
    kinds = {
        "a": text,
        "b": texts,
        "c": pa.map_(text, text),
        "d": pa.struct([("x", text)]),
        "e": schemas.ENTRIES,
    }
    both = Both(
        Columns(tuple(Column(name, kind, nullable=True) for name, kind in kinds.items())),
        "ignore",
        Reading(lenient=True),
    )
    values = ['{"a": 1}', "[ ]", '[{"x":"\\u00e9 é"},\t-0.50,null]', '"y"', "null", "{}"]
    whole_documents = [
        f'{{"a":{v},"b":[{v},{v}],"c":{{"k":{v}}},"d":{{"x":{v}}},"e":{{"k":{v}}}}}'.encode()
        for v in values
    ]
    assert both.compare(whole_documents) == (6, 6)
    assert both.strict.decode(b'{"a": {"b" : [1.50, "\\n"]} }')[0] == '{"b" : [1.50, "\\n"]}'
    broken = [
        '{"a":1,"a":2}',
        "[1,]",
        '{"a": 1٢}'.encode().decode("latin-1"),
        "[" * 100 + "]" * 100,
        '["\\ud800"]',
        "{1:2}",
        '["\xff"]',
    ]
    assert both.compare([f'{{"a":{value}}}'.encode("latin-1") for value in broken]) == (0, 0)
    assert both.compare([b'{"d":[1]}', b'{"b":{"x":1}}', b'{"a":1,"b":[[1],2]}']) == (0, 1)


@pytest.mark.parametrize("seed", range(2))
def test_days_and_bytes_of_decimals(seed: int) -> None:
    """Dates as days and decimals as bytes are read as the strict decoder reads them.

    The bytes, days and scales are random, in columns and nested.
    """
    dice = random.Random(seed)
    for scale, kind in (
        (None, pa.decimal128(38, 4)),
        (None, pa.decimal128(9, 2)),
        (2, pa.decimal128(20, 4)),
        (4, pa.decimal128(12, 2)),
    ):
        forms = Reading(decimals="base64", dates="epoch_days", scale=scale)
        nested = {
            "a": kind,
            "b": pa.struct([("x", kind)]),
            "c": pa.list_(kind),
            "d": pa.map_(pa.string(), kind),
            "e": pa.list_(pa.date32()),
        }
        both = Both(
            Columns(
                tuple(
                    Column(name, column_type, nullable=True) for name, column_type in nested.items()
                )
            ),
            "dead",
            forms,
        )

        def written(
            is_whole: bool, decimal_type: pa.DataType = kind, dice: random.Random = dice
        ) -> str:
            octets = (
                dice.randrange(10 ** dice.randrange(decimal_type.precision - 3))
                .to_bytes(16, "big", signed=True)
                .lstrip(b"\0")
                or b"\0"
            )
            octets = octets if octets[0] < 128 else b"\0" + octets
            text = base64.b64encode(
                octets if is_whole else dice.randbytes(dice.randrange(19))
            ).decode()
            return (
                f'"{text}"'
                if is_whole or dice.random() < 0.8
                else dice.choice((f'"{text[:-1]}"', f'"{text}="', "2.5", "null", '"MDl="'))
            )

        def document(
            is_whole: bool, dice: random.Random = dice, written: Callable[[bool], str] = written
        ) -> bytes:
            a, b, c, d = (written(is_whole) for _ in range(4))
            days = (
                dice.randrange(-719_162, 2_932_897)
                if is_whole
                else dice.choice((-719_163, 2_932_897, '"2017-09-15"', "null", 1))
            )
            return (
                f'{{"a":{a},"b":{{"x":{b}}},"c":[{c},null],"d":{{"k":{d}}},"e":[{days}]}}'.encode()
            )

        both.compare([document(is_whole=False) for _ in range(300)])
        assert both.compare([document(is_whole=True) for _ in range(50)]) == (
            (0 if scale == 4 else 50),
            (0 if scale == 4 else 50),
        )


@pytest.mark.parametrize("kind", schemas.SCALARS, ids=str)
def test_whole_values_of_each_kind_are_taken(kind: pa.DataType, dice: random.Random) -> None:
    """The compiled pass takes at least nine of ten whole values of each kind, at any depth.

    Floats are an exception: only the strict decoder can read many of them.
    """
    columns = Columns(
        tuple(
            Column(name, nested, nullable=True)
            for name, nested in (
                ("plain", kind),
                ("inside", pa.struct([("x", kind)])),
                ("list", pa.list_(kind)),
                ("map", pa.map_(pa.string(), kind)),
            )
        )
    )
    fast, rows = Both(columns, "dead").compare(
        [schemas.document(dice, columns, odd=0) for _ in range(300)]
    )
    # Many of the floats are subnormal or have too many digits.
    assert fast > (0.25 if pa.types.is_floating(kind) else 0.9) * rows


@pytest.mark.parametrize("unknown", ["ignore", "dead"])
def test_every_literal_under_every_key(unknown: Unknown) -> None:
    """Both decoders agree about odd literals under known, unknown, escaped and repeated keys."""
    fast, rows = WAYS[unknown].compare(
        [f'{{"id":1,{key}:{literal}}}'.encode() for key in KEYS for literal in LITERALS]
    )
    assert fast > 0.85 * rows > 50


ALONE = [*schemas.SCALARS, pa.list_(pa.int64()), pa.struct([("a", pa.int64())])]


@pytest.mark.parametrize("kind", ALONE, ids=str)
@pytest.mark.parametrize("nullable", [False, True])
def test_a_document_that_is_the_only_column(kind: pa.DataType, nullable: bool) -> None:
    """A document that is the only column has the verdict of the same value inside an object.

    The documents have spaces around them, a prefix, or a truncated end.
    """
    columns = Columns((Column("a", kind, nullable=nullable),))
    bare, inside = Both(columns, "dead", Reading(is_only_column=True)), Both(columns, "dead")
    literals = [literal for literal in LITERALS if not literal.startswith("{")]
    messages = [literal.encode() for literal in literals]
    pairs = [
        (bare.strictly(message), inside.strictly(b'{"a":%s}' % message)) for message in messages
    ]
    for bare_verdict, inside_verdict in pairs:
        assert isinstance(bare_verdict, str) == isinstance(inside_verdict, str)
        assert isinstance(bare_verdict, str) or repr(bare_verdict) == repr(inside_verdict)
    assert inside.compare(messages) == (0, 0)
    fast, rows = bare.compare(messages)
    assert rows == sum(not isinstance(bare_verdict, str) for bare_verdict, _ in pairs)
    assert fast >= 0.5 * rows or pa.types.is_list(kind)
    bare.compare(
        [b" %s\n" % literal for literal in messages] + [b"1" + literal for literal in messages]
    )
    bare.compare([literal[:-1] for literal in messages] + [literal + b",1" for literal in messages])
    bare.compare([b'{"a":%s}' % literal for literal in messages])


def test_documents_of_one_byte_have_room() -> None:
    """The buffers have room for documents of one byte.

    Each such document makes one or two entries, so a batch needs more room than its bytes
    suggest.
    """
    both = Both(
        Columns((Column("a", pa.decimal128(38, 0), nullable=False),)),
        "dead",
        Reading(is_only_column=True),
    )
    both.fast.decode(pa.array([b"1"] * 100_000, pa.binary()))
    assert 2 * both.fast.state[ENTRIES] <= len(both.fast.entries)
    assert both.compare([b"1"] * 1_000) == (1_000, 1_000)


@pytest.mark.parametrize("unknown", ["ignore", "dead"])
def test_every_pair_of_keys(unknown: Unknown) -> None:
    """Duplicate keys are found, whatever their spelling and the space around them."""
    pairs = [
        f'{{"id":1,{a}:1,{b}{gap}:1}}'.encode()
        for a in KEYS
        for b in KEYS
        for gap in ("", " ", "\n", "\t\r ")
    ]
    fast, rows = WAYS[unknown].compare(pairs)
    assert fast == rows > 50


def test_equal_keys_in_different_objects_are_no_duplicates() -> None:
    """Equal keys in different objects are no duplicates.

    This holds for lists of structs, for adjacent maps, and for nested objects without a column.
    """
    both = Both(Columns.of(Nested), "ignore")
    good = [
        b'{"id":1,"lines":[{"sku":"a"},{"sku":"b"}],"stock":{"a":1},"more":[{"a":{"a":1}},{"a":2}],"other":{"a":1}}'
    ]
    bad = [
        b'{"id":1,"stock":{"a":1,"a":2}}',
        b'{"id":1,"lines":[{"sku":"a","sku":"b"}]}',
        b'{"id":1,"more":{"b":{"a":1,"\\u0061":1}}}',
    ]
    assert both.compare(good * 3) == (3, 3)
    assert both.compare([*good, *bad, *good]) == (2, 2)


def test_whole_documents_are_all_taken() -> None:
    """The compiled pass takes all documents of ordinary producers.

    They are compact or spaced, with or without other fields.
    """
    whole_documents = [
        f'{{"id":{gap}1,{gap}{key}:{gap}{value}}}'.encode()
        for key, values in FITTING.items()
        if key != '"id"'
        for value in values
        for gap in ("", " ", "\n  ")
    ]
    assert WAYS["ignore"].compare(whole_documents) == (len(whole_documents), len(whole_documents))


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(LITERALS)), max_size=6),
    st.binary(max_size=3),
    st.integers(0, 200),
)
@example([('"id"', "1")], b",", 7)
def test_any_mix_of_fields_with_any_bytes_in_between(
    fields: list[tuple[str, str]], noise: bytes, position: int
) -> None:
    """Both decoders agree about any mix of fields with any bytes in between."""
    text = ("{" + ",".join(f"{k}:{v}" for k, v in fields) + "}").encode()
    WAYS["ignore"].compare([text, text[:position] + noise + text[position:]])


@settings(max_examples=examples(100))
@given(st.lists(st.binary(max_size=12), max_size=20))
def test_any_bytes_in_a_string(texts: list[bytes]) -> None:
    """The compiled pass accepts the same UTF-8 and escapes as the strict decoder."""
    both = both_of(pa.string())
    both.compare(
        [
            b'{"a":"' + padding + text + b'"}'
            for text in texts
            for padding in (b"", b"seven77", b"eight888", b"\\n")
        ]
    )


def test_characters_at_the_edges_of_their_lengths() -> None:
    """The first and last character of each UTF-8 length are taken, as bytes and as escapes.

    Overlong, truncated, surrogate and out-of-range characters are not.
    """
    edges = [0x20, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]
    good = [chr(code).encode() for code in edges]
    escaped = [chr(code).encode("utf-16-be").hex() for code in edges]
    pairs = [
        "".join(f"\\u{text[i : i + 4]}" for i in range(0, len(text), 4)).encode()
        for text in escaped
    ]
    bad = [
        b"\x80",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
    ]
    halves = [
        rb"\ud800",
        rb"\udbff\u0041",
        rb"\udc00",
        rb"\ud800\ud800",
        rb"\ud83d\ude0",
        rb"\u00e",
        rb"\x41",
        b"\x1f",
        *(c[:-1] for c in good[2:]),
    ]
    messages = [
        b'{"a":"' + text + tail + b'"}'
        for text in (*good, *pairs, *bad, *halves)
        for tail in (b"", b"x", b"long enough")
    ]
    assert both_of(pa.string()).compare(messages) == (60, 60)


def test_doubles_are_those_of_the_digits(dice: random.Random) -> None:
    """The compiled pass reads nearly all doubles, exact to the last bit.

    The literals have all exponents, up to 19 digits, halves between two doubles, and numbers
    near the limits.
    """
    literals = [
        f"{dice.randrange(10 ** dice.randint(1, 19))}e{dice.randint(-330, 300)}"
        for _ in range(6_000)
    ]
    literals += [repr(struct.unpack("<d", dice.randbytes(8))[0]) for _ in range(6_000)]
    literals += [
        f"{(1 << 53) + 2 * dice.randrange(1 << 52) + 1}{tail}"
        for _ in range(1_000)
        for tail in (".0", "e0", "00e-2", "e1", "e22")
    ]
    literals += [str(dice.randrange(1 << 60) * 2**-40) for _ in range(2_000)]
    fast, rows = both_of(pa.float64()).compare(
        [f'{{"a":{literal}}}'.encode() for literal in literals if "n" not in literal]
    )
    assert fast > 0.95 * rows > 10_000


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_digits_and_exponents_beyond_those_that_are_told(kind: pa.DataType) -> None:
    """Numbers with 20 or more digits, and with huge exponents, are read correctly.

    Some of these digits are 0 modulo 2**64, wherever the point is. Some exponents are cancelled
    by zeros after the point.
    """
    overflowing = [
        str((1 << 64 - zeros) * odd) + "0" * zeros for zeros in range(1, 25) for odd in (1, 3, 5, 7)
    ]
    points = [
        f"{text[:point]}.{text[point:]}" for text in overflowing for point in range(1, len(text))
    ]
    undone = [
        f"0.{'0' * zeros}5e{power}"
        for zeros in (300, 990, 9_999, 20_000)
        for power in (zeros + 1, 310, 1_000, 10_000, 10**9)
    ]
    both_of(kind).compare(
        [
            f'{{"a":{sign}{literal}}}'.encode()
            for literal in (*points, *undone)
            for sign in ("", "-")
        ]
    )


def test_a_slice_with_nulls_and_nothing() -> None:
    """The positions in a slice count from its beginning. Nulls aren't taken."""
    messages = pa.array(
        [b'{"id":0}', b'{"id":1}', None, b"x", b'{"id":2,"id":3}', b'{"id":4}', b'":1}'],
        pa.binary(),
    ).slice(1, 5)
    fast = WAYS["ignore"].fast
    fast_rows = fast.decode(messages)
    assert fast_rows.mask.tolist() == [True, False, False, False, True]
    assert fast_rows.columns[0].to_pylist() == [1, 4]
    assert fast.decode(messages.slice(0, 0)).mask.tolist() == []
    assert fast.decode(pa.array([None], pa.binary())).mask.tolist() == [False]
    assert fast.decode(pa.array([b""], pa.binary())).mask.tolist() == [False]


def test_a_message_that_is_left_leaves_nothing_behind() -> None:
    """A message that the compiled pass leaves leaves no values in its buffers.

    These are values, items, and the marks of missing columns.
    """
    both = Both(Columns.of(Nested), "ignore")
    refused = b'{"id":9,"tags":["x","y"],"lines":[{"sku":"z","price":9.99},{"price":1}],"stock":{"k":1,"l":2},"more":"\x01"}'  # noqa: E501
    assert both.compare(
        [
            b'{"id":1}',
            refused,
            b'{"id":2,"tags":[]}',
            refused,
            refused,
            b'{"id":3,"lines":[{}],"stock":{"m":null}}',
            refused,
        ]
    ) == (3, 3)


def test_monstrous_messages_cost_only_themselves() -> None:
    """Deep nesting and ten million digits don't crash or hang, and the neighbours are rows."""
    monsters = [
        b"[" * 100_000,
        b'{"id":' + b"9" * 10_000_000 + b"}",
        b'{"id":1,"price":0.' + b"1" * 1_000_000 + b"}",
    ]
    mask = (
        WAYS["ignore"]
        .fast.decode(pa.array([b'{"id":1}', *monsters, b'{"id":2}'], pa.binary()))
        .mask.tolist()
    )
    assert mask == [True, False, False, False, True]


def test_depth_is_what_the_strict_way_takes() -> None:
    """Messages are taken up to the depth limit, and refused one level beyond it."""
    arrays = [
        b'{"id":1,"more":' + b"[" * n + b"]" * n + b"}" for n in range(MAX_DEPTH - 5, MAX_DEPTH + 5)
    ]
    objects = [
        b'{"id":1,"more":' + b'{"a":' * n + b"1" + b"}" * n + b"}"
        for n in range(MAX_DEPTH - 5, MAX_DEPTH + 5)
    ]
    assert WAYS["ignore"].compare([*arrays, *objects]) == (10, 10)


def test_keys_that_are_made_to_meet_cost_a_bounded_search() -> None:
    """The search for a key has a bounded number of steps, even if the keys' hashes collide.

    1. Someone who knows the hash can make keys that all start their search at the same slot.
    2. The compiled pass then leaves the message.
    3. The strict decoder makes it a row.
    """
    room, unknown_object = 4_096, 2  # The second object of the first message.

    def slot_of(key: bytes) -> int:
        mixed = (PASS.hash_of(np.frombuffer(key, np.uint8), 0, len(key)) ^ unknown_object) * int(
            KEY_HASH_STEP
        ) & (1 << 64) - 1
        return (mixed ^ mixed >> 32) & room - 1

    meeting = [key for i in range(600_000) if slot_of(key := b"%d" % i) == 7]
    assert len(meeting) > MOST_PROBES

    def message(keys: list[bytes]) -> bytes:
        more = b",".join(b'"%s":1' % key for key in keys)
        return b'{"id":1,"more":{' + more + b"}" + b" " * (2 * room - len(more) - 17) + b"}"

    assert room_for_keys(len(message(meeting)) // 2) == room
    for keys, taken_count in ((meeting[:MOST_PROBES], 1), (meeting[: MOST_PROBES + 1], 0)):
        assert Both(COLUMNS, "ignore").compare([message(keys)]) == (taken_count, 1)
