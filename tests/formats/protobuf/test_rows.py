"""Messages of Protobuf's library become the rows that they were written from.

Broken messages between them don't change these rows.
"""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.protobuf.models import Order
from tests.profiles import examples
from windrow.ingest.formats.protobuf.decoder import protobuf_batch_decoder
from windrow.ingest.formats.protobuf.descriptors import descriptor_set, message_type
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.schema.columns import Columns
from windrow.ingest.testing.contracts.values import verdicts

HERE = Path(__file__).parent
COLUMNS = Columns.of(Order)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(max_size=12)
PLACE = st.fixed_dictionaries({"city": TEXT, "lat": st.floats(allow_nan=False)})
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31)  # The zone is drawn separately.  # noqa: DTZ001
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": INT64,
    "name": st.none() | TEXT,
    "size": st.integers(-(1 << 15), (1 << 15) - 1),
    "paid": st.booleans(),
    "kind": st.sampled_from(["NONE", "BOOK", "PEN"]),
    "at": st.none() | st.datetimes(FIRST, LAST, timezones=st.just(UTC)),
    "tags": st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=4),
    "stock": st.dictionaries(TEXT, INT64, max_size=4),
    "place": st.none() | PLACE,
    "places": st.lists(PLACE, max_size=3),
    "road": st.none() | TEXT,
    "rail": st.none() | INT64,
    "boxes": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
    "large": st.integers(0, (1 << 63) - 1),
    "share": st.floats(width=32, allow_nan=False),
    "code": st.binary(max_size=8),
    "hash": st.integers(0, (1 << 32) - 1),
}


@cache
def kind() -> Any:
    return message_type(descriptor_set(HERE / "things.proto"), "shop.Order", "things.proto")


@cache
def machine() -> BatchDecoder:
    return protobuf_batch_decoder(kind(), COLUMNS)


def written(row: dict[str, Any]) -> bytes:
    """Returns the row as the library writes it."""
    message = message_factory.GetMessageClass(kind())()
    for name, value in row.items():
        if name == "at" and value is not None:
            message.at.FromDatetime(value)
        elif name == "boxes" and value is not None:
            message.boxes.value = value
        elif name == "stock":
            message.stock.update(value)
        elif name == "place" and value is not None:
            message.place.SetInParent()
            message.place.city, message.place.lat = value["city"], value["lat"]
        elif name == "places":
            for place_row in value:
                message.places.add(**place_row)
        elif name == "tags":
            message.tags.extend(value)
        elif name == "kind":
            message.kind = {"NONE": 0, "BOOK": 1, "PEN": 2}[value]
        elif value is not None:
            setattr(message, name, value)
    return bytes(message.SerializeToString())


def expected(row: dict[str, Any]) -> str:
    """Returns the row as Arrow returns it."""
    row = row | {"stock": sorted(row["stock"].items())}
    return repr({c.name: pa.array([row[c.name]], c.type).to_pylist()[0] for c in COLUMNS.columns})


def mutated(r: random.Random, message: bytes) -> bytes:
    position = r.randrange(len(message) + 1)
    return r.choice(
        (
            message[:position],
            message[:position] + r.randbytes(3) + message[position:],
            message[:position] + b"\xff" * 11,
            message + b"\x0c",
        )
    )


@settings(max_examples=examples(150))
@given(st.lists(st.fixed_dictionaries(FIELDS), min_size=1, max_size=6))
def test_what_the_library_writes_is_the_row(rows: list[dict[str, Any]]) -> None:
    """A message of the library becomes its row, for any values.

    At most one field of a oneof is set.
    """
    rows = [row | ({"road": None} if row["rail"] is not None else {}) for row in rows]
    decoded = machine().decode(pa.array([written(row) for row in rows], pa.binary()), "dead")
    assert decoded.dead_reason.to_pylist() == []
    assert [repr(row) for row in decoded.rows.to_pylist()] == [expected(row) for row in rows]
    assert not any(math.isnan(row["share"]) for row in rows)


@settings(max_examples=examples(100))
@given(st.lists(st.fixed_dictionaries(FIELDS), min_size=1, max_size=6), st.integers(0, 1 << 32))
def test_poisoned_messages_move_no_neighbour(rows: list[dict[str, Any]], seed: int) -> None:
    """Whole messages among broken ones become the same rows as alone."""
    r = random.Random(seed)
    whole_messages = [written(row) for row in rows]
    strewn = [
        strewn_message
        for message in whole_messages
        for strewn_message in (message, *(mutated(r, message) for _ in range(r.randrange(3))))
    ]
    together = verdicts(machine().decode(pa.array(strewn, pa.binary()), "dead"))
    separate_verdicts = [
        verdicts(machine().decode(pa.array([message], pa.binary()), "dead"))[0]
        for message in strewn
    ]
    assert repr([together[i] for i in range(len(strewn))]) == repr(separate_verdicts)


@settings(max_examples=examples(100))
@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes(messages: list[bytes]) -> None:
    """Each message of arbitrary bytes is a row or a dead letter."""
    decoded = machine().decode(pa.array(messages, pa.binary()), "dead")
    assert decoded.rows.num_rows + len(decoded.dead_index) == len(messages)
