"""The fast way takes only what the strict way takes, with the same values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.decode.json.fast import Fast
from ingest.decode.json.strict import Strict, Unknown
from ingest.decode.json.values import RefusedValueError
from ingest.schema.columns import Columns
from tests.decode.json.documents import FITTING, KEYS, LITERALS, documents
from tests.decode.json.models import Nested, Scalars
from tests.profiles import examples

COLUMNS = Columns.of(Scalars)
WAYS: dict[Unknown, tuple[Fast, Strict]] = {unknown: (Fast(COLUMNS, unknown), Strict(COLUMNS, unknown)) for unknown in ("ignore", "dead")}


def valid(documents: list[bytes]) -> list[bytes]:
    """Those that are UTF-8: others never reach the fast way."""
    return [d for d in documents if d.decode(errors="ignore").encode() == d]


def strictly(strict: Strict, document: bytes) -> list[Any] | None:
    """The truth."""
    try:
        return strict.decode(document)
    except RefusedValueError:
        return None


def compare(messages: list[bytes], unknown: Unknown) -> tuple[int, int]:
    """Prove the promise for each message; how many were taken fast, and how many are rows."""
    fast, strict = WAYS[unknown]
    text = pa.array(messages, pa.binary()).cast(pa.string())
    taken = fast.decode(text)
    assert taken.mask.null_count == 0
    truth = [strictly(strict, m) for m in messages]
    mask = taken.mask.to_pylist()
    assert [m for m, t, row in zip(messages, mask, truth, strict=True) if t and row is None] == []
    rows = [row for t, row in zip(mask, truth, strict=True) if t and row is not None]
    for i, column in enumerate(COLUMNS.columns):
        expected = pa.array([row[i] for row in rows], column.type)
        got = taken.columns[i].filter(taken.mask)
        assert repr(got.to_pylist()) == repr(expected.to_pylist()), column.name  # repr: 0.0 is not -0.0
    return len(rows), sum(row is not None for row in truth)


@pytest.mark.parametrize("unknown", ["ignore", "dead"])
@pytest.mark.parametrize("seed", range(3))
def test_generated_and_mutated_documents(seed: int, unknown: Unknown) -> None:
    """Thousands of documents, half of them broken: never taken where the truth refuses, and most rows are taken fast."""
    fast, rows = compare(valid(documents(3_000, seed)), unknown)
    assert fast > 0.9 * rows


@pytest.mark.parametrize("unknown", ["ignore", "dead"])
def test_every_literal_under_every_key(unknown: Unknown) -> None:
    """Each odd value in each column, under known, unknown, escaped and repeated names."""
    fast, rows = compare(valid([f'{{"id":1,{key}:{literal}}}'.encode() for key in KEYS for literal in LITERALS]), unknown)
    assert fast > 0.5 * rows > 50


@pytest.mark.parametrize("unknown", ["ignore", "dead"])
def test_every_pair_of_keys(unknown: Unknown) -> None:
    """Duplicates are found whatever the spelling of the key and the space around it."""
    pairs = [f'{{"id":1,{a}:1,{b}{gap}:1}}'.encode() for a in KEYS for b in KEYS for gap in ("", " ", "\n", "\t\r ")]
    fast, rows = compare(valid(pairs), unknown)
    assert fast > 0.5 * rows > 50


def test_whole_documents_are_all_taken_fast() -> None:
    """What producers really send needs no second look, compact or spaced, with or without other fields."""
    whole = [
        f'{{"id":{gap}1,{gap}{key}:{gap}{value}}}'.encode()
        for key, values in FITTING.items()
        if key != '"id"'
        for value in values
        for gap in ("", " ", "\n  ")
    ]
    assert compare(whole, "ignore") == (len(whole), len(whole))


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(LITERALS)), max_size=6), st.binary(max_size=3), st.integers(0, 200))
@example([('"id"', "1")], b",", 7)
def test_any_mix_of_fields_with_any_bytes_in_between(fields: list[tuple[str, str]], noise: bytes, at: int) -> None:
    """The same for what Hypothesis thinks of."""
    text = ("{" + ",".join(f"{k}:{v}" for k, v in fields) + "}").encode()
    compare(valid([text, text[:at] + noise + text[at:]]), "ignore")


def test_a_slice_with_nulls_and_nothing() -> None:
    """Positions are those of the slice; nulls are not taken; no messages are no messages."""
    text = pa.array(['{"id":0}', '{"id":1}', None, "x", '{"id":2,"id":3}', '{"id":4}', '":1}'], pa.string()).slice(1, 5)
    fast = WAYS["ignore"][0]
    assert fast.decode(text).mask.to_pylist() == [True, False, False, False, True]
    assert fast.decode(text.slice(0, 0)).mask.to_pylist() == []
    assert fast.decode(pa.array([None], pa.string())).mask.to_pylist() == [False]


def test_monstrous_messages_cost_only_themselves() -> None:
    """Deep nesting and ten million digits neither crash nor hang, and their neighbours are rows."""
    monsters = [
        b'{"id":1,"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[" * 100_000,
        b'{"id":' + b"9" * 10_000_000 + b"}",
        b'{"id":1,"price":0.' + b"1" * 1_000_000 + b"}",
    ]
    mask = WAYS["ignore"][0].decode(pa.array([b'{"id":1}', *monsters, b'{"id":2}'], pa.binary()).cast(pa.string())).mask.to_pylist()
    assert mask == [True, False, False, False, False, True]


def test_depth_is_at_most_what_the_strict_way_takes() -> None:
    """Around the limit, in a field that the schema doesn't name: what is one too deep is never taken, what is shallow enough mostly is."""
    arrays = [b'{"id":1,"more":' + b"[" * n + b"]" * n + b"}" for n in range(95, 105)]
    assert compare(arrays, "ignore") == (99 - 95, 100 - 95)


def test_lists_and_maps_are_left_to_the_strict_way() -> None:
    """There json_type says nothing of the values inside."""
    assert not Fast.covers(Columns.of(Nested))
    assert Fast.covers(COLUMNS)
