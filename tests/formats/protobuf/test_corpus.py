"""The messages of the corpus have their expected verdicts, alone and among the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.formats.protobuf import models
from tests.formats.protobuf.corpus import BAD, GOOD, OLDER, OLDER_ROW, ROW, at
from tests.formats.protobuf.wire import number, text, varint
from windrow.ingest.formats.protobuf.decoder import protobuf_batch_decoder
from windrow.ingest.formats.protobuf.descriptors import compiled_text, descriptor_set, message_type
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.dtypes import TIMESTAMP

HERE = Path(__file__).parent


@cache
def machine(file: str, name: str) -> BatchDecoder:
    kind = message_type(descriptor_set(HERE / file), f"shop.{name}", file)
    return protobuf_batch_decoder(kind, Columns.of(getattr(models, name)))


def shown(row: Mapping[str, Any], name: str) -> str:
    """Returns a row as Arrow returns it."""
    columns = Columns.of(getattr(models, name)).columns
    return repr({c.name: pa.array([row[c.name]], c.type).to_pylist()[0] for c in columns})


def verdict(batch_decoder: BatchDecoder, payload: bytes) -> tuple[list[str], list[str]]:
    decoded = batch_decoder.decode(pa.array([payload], pa.binary()), "dead")
    decoded.rows.validate(full=True)
    return [repr(row) for row in decoded.rows.to_pylist()], decoded.dead_reason.to_pylist()


@pytest.mark.parametrize(("payload", "row"), GOOD.values(), ids=GOOD)
def test_good_ones_are_rows(payload: bytes, row: Mapping[str, Any]) -> None:
    """A good message becomes its row by Protobuf's rules.

    All other columns have the values of a message without their fields.
    """
    assert verdict(machine("things.proto", "Order"), payload) == (
        [shown(dict(ROW) | dict(row), "Order")],
        [],
    )


@pytest.mark.parametrize(("payload", "reason"), BAD.values(), ids=BAD)
def test_bad_ones_are_refused_with_their_reason(payload: bytes, reason: str) -> None:
    """A bad message is refused with its reason, and makes no row."""
    assert verdict(machine("things.proto", "Order"), payload) == ([], [reason])


@pytest.mark.parametrize(("payload", "becomes"), OLDER.values(), ids=OLDER)
def test_the_second_version(payload: bytes, becomes: Mapping[str, Any] | str) -> None:
    """Required fields, defaults, closed enums and groups of proto2 are decoded."""
    rows = [] if isinstance(becomes, str) else [shown(dict(OLDER_ROW) | dict(becomes), "Older")]
    assert verdict(machine("older.proto", "Older"), payload) == (
        rows,
        [becomes] if isinstance(becomes, str) else [],
    )


def test_all_of_them_together() -> None:
    """Good and bad messages in one batch keep their own verdicts and rows."""
    pairs = list(zip(GOOD.values(), BAD.values(), strict=False))
    decoded = machine("things.proto", "Order").decode(
        pa.array([p for (good, _), (bad, _) in pairs for p in (good, bad)], pa.binary()), "dead"
    )
    assert decoded.row_index.to_pylist() == list(range(0, 2 * len(pairs), 2))
    assert decoded.dead_reason.to_pylist() == [reason for _, (_, reason) in pairs]
    assert [repr(row) for row in decoded.rows.to_pylist()] == [
        shown(dict(ROW) | dict(row), "Order") for (_, row), _ in pairs
    ]


def test_timestamps_finer_than_a_microsecond() -> None:
    """Both decoders round finer timestamps down to the microsecond and count them.

    With `finer: dead` both refuse such messages.
    """
    kind = message_type(descriptor_set(HERE / "things.proto"), "shop.Order", "things.proto")
    columns = Columns(
        (
            Column("at", TIMESTAMP, nullable=True),
            Column("id", TIMESTAMP, nullable=False, epoch="ns"),
        )
    )
    payloads = [number(1, 1_001) + at(1, 2_003), number(1, -1), number(1, 5_000) + at(1, 2_000)]
    batch_decoder = protobuf_batch_decoder(kind, columns)
    decoded = batch_decoder.decode(pa.array(payloads, pa.binary()), "dead")
    seconds = [
        [None if v is None else v.timestamp() for v in column.to_pylist()]
        for column in decoded.rows.columns
    ]
    assert (seconds, decoded.truncated) == (
        [[1.000002, None, 1.000002], [0.000001, -0.000001, 0.000005]],
        2,
    )
    assert len(batch_decoder.fast.decode(pa.array(payloads, pa.binary())).truncated) == 2
    assert [batch_decoder.strict.decode(payload) for payload in payloads] == [
        [1_000_002, 1],
        [None, -1],
        [1_000_002, 5],
    ]
    refused = protobuf_batch_decoder(kind, replace(columns, finer="dead")).decode(
        pa.array(payloads, pa.binary()), "dead"
    )
    assert (refused.row_index.to_pylist(), refused.dead_reason.to_pylist(), refused.truncated) == (
        [2],
        ["out_of_range"] * 2,
        0,
    )


SALES = """
syntax = "proto2";
enum State { OPEN = 0; PAID = 1; }
message Sale {
  required State state = 1;
  optional State before = 2 [default = PAID];
  repeated State history = 3;
  map<string, State> of = 4;
  oneof way { State road = 5; State rail = 6; }
  optional Sale inner = 7;
}
"""
STATES = {
    "state": (number(1, 2), {"state": 2}),
    "before": (number(1, 0) + number(2, 2), {"before": 2}),
    "history": (number(1, 0) + text(3, varint(0) + varint(2) + varint(1)), {"history": [0, 2, 1]}),
    "of": (number(1, 0) + text(4, text(1, "a") + number(2, 2)), {"of": [("a", 2)]}),
    "way": (number(1, 0) + number(5, 1) + number(6, 2), {"road": None, "rail": 2}),
    "inner": (number(1, 0) + text(7, number(1, 2)), {"inner": {"state": 2}}),
}


@pytest.mark.parametrize("name", STATES)
def test_numbers_that_an_enum_of_the_second_version_lacks(name: str) -> None:
    """An integer column takes a number that a proto2 enum lacks, wherever the field is.

    A column of symbols refuses the number. It is never the default, and never left out.
    """
    payload, becomes = STATES[name]
    kind = message_type(compiled_text(SALES, (), "a test"), "Sale", "a test")

    def decoded(state_type: pa.DataType) -> tuple[list[Any], list[str]]:
        types = {
            **dict.fromkeys(("state", "before", "road", "rail"), state_type),
            "history": pa.list_(state_type),
            "of": pa.map_(pa.string(), state_type),
            "inner": pa.struct([("state", state_type)]),
        }
        columns = Columns(tuple(Column(n, t, nullable=True) for n, t in types.items()))
        batch = protobuf_batch_decoder(kind, columns)
        outcome = batch.decode(pa.array([payload], pa.binary()), "dead")
        return outcome.rows.to_pylist(), outcome.dead_reason.to_pylist()

    row = dict.fromkeys(("road", "rail", "inner")) | {"history": [], "of": []}
    assert decoded(pa.int32()) == ([{"state": 0, "before": 1} | row | becomes], [])
    assert decoded(pa.string()) == ([], ["out_of_range"])


def test_what_is_told_of_another_wire_type() -> None:
    """The detail of a wrong wire type has the field, its type and the found wire type."""
    payloads = [text(1, "x"), text(9, number(1, 5)), text(10, b"") + text(10, number(1, 5))]
    decoded = machine("things.proto", "Order").decode(pa.array(payloads, pa.binary()), "dead")
    assert decoded.dead_detail.to_pylist() == [
        "Expected int64, got the wire type LEN - at $.id",
        "Expected string, got the wire type VARINT - at $.place.city",
        "Expected string, got the wire type VARINT - at $.places[1].city",
    ]


def test_there_are_enough() -> None:
    """The corpus has at least sixty messages."""
    assert len(GOOD) + len(BAD) + len(OLDER) >= 60


def test_messages_that_would_fill_the_memory_are_refused_unparsed() -> None:
    """A message that would fill the memory is refused before it is parsed.

    Each empty message inside it has two bytes, but takes memory for each of its fields in
    Protobuf's library.
    """
    decoded = machine("things.proto", "Order").decode(
        pa.array([b"\x08\x07", b"\x52\x00" * (1 << 19), b"\x92\x01\x00" * (1 << 18)], pa.binary()),
        "dead",
    )
    assert (decoded.row_index.to_pylist()[0], decoded.dead_reason.to_pylist()) == (0, [])
    heavy = b"\x52\x00" * (3 << 19)
    assert machine("things.proto", "Order").decode(
        pa.array([heavy], pa.binary()), "dead"
    ).dead_reason.to_pylist() == ["too_large"]
