"""Rows keep what no column is for (`unknown: keep`), as the message has it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.formats.json import schemas
from windrow.ingest.formats.json.decoder import json_batch_decoder
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.schema.columns import REST, Column, Columns
from windrow.ingest.schema.dtypes import map_type

KEEP = Reading(unknown="keep")
CUSTOMER = pa.struct([("name", pa.string()), ("home", pa.struct([("city", pa.string())]))])
COLUMNS = Columns(
    (
        Column("id", pa.int64(), nullable=False),
        Column("customer", CUSTOMER, nullable=True),
        Column("lines", pa.list_(pa.struct([("sku", pa.string())])), nullable=True),
        Column("tags", pa.map_(pa.string(), pa.struct([("a", pa.int64())])), nullable=True),
    )
)


def decoder(columns: Columns = COLUMNS, reading: Reading = KEEP) -> BatchDecoder:
    return json_batch_decoder(columns.with_rest(), reading)


def decoded(*messages: bytes, columns: Columns = COLUMNS) -> Decoded:
    return decoder(columns).decode(pa.array(messages, pa.binary()), "dead")


def rests(*messages: bytes, columns: Columns = COLUMNS) -> list[str | None]:
    verdict = decoded(*messages, columns=columns)
    assert not len(verdict.dead_index), verdict.dead_detail
    return list(verdict.rows.column(REST).to_pylist())


@pytest.mark.parametrize(
    ("message", "rest"),
    [
        (b'{"id":1}', None),
        (b'{"id":1,"customer":{},"lines":[{}]}', None),
        (
            b' { "b" : 1.50 , "id":1,"a":\t[1e400, {"x": {}}] } ',
            '{"b" : 1.50,"a":\t[1e400, {"x": {}}]}',
        ),
        (
            b'{"id":1,"n":12345678901234567890123456789.10}',
            '{"n":12345678901234567890123456789.10}',
        ),
        (
            b'{"id":1,"customer":{"vip":true,"home":{"zip":"1"}}}',
            '{"/customer/vip":true,"/customer/home/zip":"1"}',
        ),
        (
            b'{"lines":[{"sku":"a"},{"x":1,"y":2},null,{"x":3}],"id":1}',
            '{"/lines/1/x":1,"/lines/1/y":2,"/lines/3/x":3}',
        ),
        (b'{"id":1,"tags":{"a/b~":{"q":null}}}', '{"/tags/a~1b~0/q":null}'),
        (b'{"id":1,"customer":{"a/b~":1,"":2}}', '{"/customer/a~1b~0":1,"/customer/":2}'),
        (b'{"id":1,"/customer/vip":1,"":2}', '{"/~1customer~1vip":1,"":2}'),
        (rb'{"id":1,"\u00e9":"\u00e9","\u002fa":1}', r'{"\u00e9":"\u00e9","/~1a":1}'),
        (b'{"id":1,"_rest":{"_rest":1}}', '{"_rest":{"_rest":1}}'),
        (rb'{"id":1,"\u0001":[1]}', r'{"\u0001":[1]}'),
        (
            '{"id":1,"größe":"ü","customer":{"größe":"ü"}}'.encode(),
            '{"größe":"ü","/customer/größe":"ü"}',
        ),
    ],
)
def test_the_text_has_the_message_s_own_bytes(message: bytes, rest: str | None) -> None:
    """A row keeps names, digits, spaces and the order of the message; other names are pointers."""
    assert rests(message) == [rest]


def test_only_the_row_is_kept() -> None:
    """Fields beside a row, which is inside its message, aren't kept."""
    inside = pa.struct([("id", pa.int64()), ("customer", CUSTOMER)])
    columns = Columns((Column("after", inside, nullable=True),), row_path=("after",))
    messages = (
        b'{"op":"u","after":{"id":1,"customer":{"vip":1},"x":2},"source":{"x":1}}',
        b'{"op":"u","after":{"id":2},"source":{"x":1}}',
    )
    assert rests(*messages, columns=columns) == ['{"/customer/vip":1,"x":2}', None]


def test_a_large_text_makes_a_dead_letter() -> None:
    """A row keeps at most 1 MB, and a small message doesn't become a large row."""
    fits, large = (b'{"id":1,"x":"%s"}' % (b"x" * n) for n in ((1 << 20) - 8, (1 << 20) - 7))
    far = b'{"id":1,"tags":{"%s":{%s}}}' % (
        b"k" * 3_000,
        b",".join(b'"%d":1' % n for n in range(500)),
    )
    verdict = decoded(fits, large, far)
    assert verdict.row_index.to_pylist() == [0]
    assert len(verdict.rows.column(REST)[0].as_py()) == 1 << 20
    assert verdict.dead_reason.to_pylist() == ["too_large"] * 2


def test_nan_is_kept_where_it_is_allowed() -> None:
    """A number that JSON doesn't have is kept like any other."""
    reading = replace(KEEP, non_numeric=True)
    messages = pa.array([b'{"id":1,"x":[NaN,-Infinity]}'], pa.binary())
    rows = decoder(reading=reading).decode(messages, "dead").rows
    assert rows.column(REST).to_pylist() == ['{"x":[NaN,-Infinity]}']


def test_nearly_all_messages_are_read_by_the_compiled_pass() -> None:
    """The compiled pass keeps fields of the row, of objects in it, and of a list's items."""
    messages = [
        b'{"id":1,"x":[{"y":1}],"customer":{"vip":1},"lines":[{"sku":"a","x":1}]}',
        b'{"new":"field","id":1}',
    ]
    taken = decoder().fast.decode(pa.array(messages, pa.binary()), 0)
    assert taken.mask.tolist() == [True, True]
    assert taken.columns[-1].to_pylist() == [
        '{"x":[{"y":1}],"/customer/vip":1,"/lines/0/x":1}',
        '{"new":"field"}',
    ]


@pytest.mark.sampled(2, of=100)
def test_row_and_text_together_hold_every_member(part: int, dice: random.Random) -> None:
    """What has no column is in the text: each member once, in order, digit by digit."""
    kept_count = 0
    for _ in range(60):
        columns = schemas.columns_of(dice, dice.choice((1, 3, 8)))
        smaller = _without_some(dice, columns)
        messages = [schemas.document(dice, columns, odd=0) for _ in range(30)]
        verdict = decoded(*messages, columns=smaller)
        texts = verdict.rows.column(REST).to_pylist()
        for number, text in zip(verdict.row_index.to_pylist(), texts, strict=True):
            expected = list(_members(_parsed(messages[number]), _struct(smaller), ""))
            assert (_parsed(text) if text else []) == expected, messages[number]
            kept_count += len(expected)
    assert kept_count > 500


def _without_some(dice: random.Random, columns: Columns) -> Columns:
    """Returns columns without some of the columns, and of the fields of structs."""
    kept = [c for c in columns.columns if dice.random() < 0.7] or list(columns.columns[:1])
    return replace(columns, columns=tuple(replace(c, type=_smaller(dice, c.type)) for c in kept))


def _smaller(dice: random.Random, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        fields = [f for f in kind if dice.random() < 0.7] or [kind.field(0)]
        return pa.struct([pa.field(f.name, _smaller(dice, f.type)) for f in fields])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _smaller(dice, kind.item_type))
    return pa.list_(_smaller(dice, kind.value_type)) if pa.types.is_list(kind) else kind


class _Pairs(list[tuple[str, Any]]):
    """An object, as the pairs of its names and values."""


def _parsed(text: str | bytes) -> Any:
    return json.loads(text, object_pairs_hook=_Pairs, parse_int=str.encode, parse_float=str.encode)


def _struct(columns: Columns) -> pa.StructType:
    return pa.struct(list(columns.arrow_schema))


def _members(value: Any, kind: pa.DataType, path: str) -> Iterator[tuple[str, Any]]:
    """Yields the members of a value that its type has no place for, by their names in the text."""
    if isinstance(value, _Pairs):
        fields = {f.name: f.type for f in kind} if pa.types.is_struct(kind) else None
        entries = kind if pa.types.is_map(kind) else map_type(kind)
        for name, inner in value:
            pointer = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            if fields is not None and name not in fields:
                yield (pointer if path or name.startswith("/") else name), inner
            else:
                below = entries.item_type if fields is None else fields[name]
                yield from _members(inner, below, pointer)
    elif isinstance(value, list) and pa.types.is_list(kind):
        for index, inner in enumerate(value):
            yield from _members(inner, kind.value_type, f"{path}/{index}")
