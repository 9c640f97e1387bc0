"""The compiled pass takes exactly what the strict decoder takes, with the same values.

Both read messages as fastavro does.
"""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats import onepass
from tests.formats.avro.schemas import Made, Reference, Writer, mutate, random_schema
from tests.profiles import examples
from windrow.ingest.formats.avro.decoder import AvroPass
from windrow.ingest.formats.avro.schema import parse_schema
from windrow.ingest.formats.avro.strict import StrictAvro
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.testing.contracts.values import verdicts

HOLDS_NOT = {"out_of_range", "missing", "invalid_utf8", "too_large"}
"""The reasons for which a whole message may be refused, because columns can't hold its values."""


class Both(onepass.Both):
    """Both decoders, for an Avro schema and its columns."""

    exact = True

    def __init__(self, schema: Made) -> None:
        parsed = parse_schema(text(schema), "a test")
        fast, strict = AvroPass(parsed, schema.columns), StrictAvro(parsed, schema.columns)
        super().__init__(schema.columns, fast, strict)


def text(schema: Made) -> str:
    return json.dumps(schema.avro)


@settings(max_examples=examples(150))
@given(st.integers(0, 1 << 64))
def test_whole_messages_are_read_as_fastavro_reads_them(seed: int) -> None:
    """A whole message is read as fastavro reads it, in any encoding that a writer may choose.

    It is refused only for values that the columns can't hold.
    """
    r = random.Random(seed)
    schema = random_schema(r)
    both, reference, writer = (
        Both(schema),
        Reference(schema),
        Writer(r, schema, odd=r.choice((0.0, 0.1))),
    )
    messages = [writer.message() for _ in range(20)]
    reasons = [both.strictly(message) for message in messages]
    assert {reason for reason in reasons if isinstance(reason, str)} <= HOLDS_NOT
    rows = [
        message
        for message, reason in zip(messages, reasons, strict=True)
        if not isinstance(reason, str)
    ]
    fast, _ = both.compare(messages)
    assert fast == len(rows)
    decoded = BatchDecoder(schema.columns.arrow_schema, both.fast, both.strict).decode(
        pa.array(rows, pa.binary()), "dead"
    )
    assert decoded.row_index.to_pylist() == list(range(len(rows)))
    read = [reference.row(message) for message in rows]
    for i, column in enumerate(schema.columns.columns):
        assert repr(decoded.rows.column(i).to_pylist()) == repr(
            pa.array([row[i] for row in read], column.type).to_pylist()
        ), column.name


@settings(max_examples=examples(100))
@given(st.integers(0, 1 << 64))
def test_poisoned_messages_move_no_neighbour(seed: int) -> None:
    """Broken messages don't change the rows of the whole messages around them.

    A broken message is a row only if the strict decoder takes it.
    """
    r = random.Random(seed)
    schema = random_schema(r)
    both, writer = Both(schema), Writer(r, schema, odd=0.02)
    whole_messages = [writer.message() for _ in range(15)]
    strewn = [
        strewn_message
        for message in whole_messages
        for strewn_message in (message, *(mutate(r, message) for _ in range(r.randrange(3))))
    ]
    both.compare(strewn)
    machine = BatchDecoder(schema.columns.arrow_schema, both.fast, both.strict)
    together = verdicts(machine.decode(pa.array(strewn, pa.binary()), "dead"))
    separate_verdicts = [
        verdicts(machine.decode(pa.array([message], pa.binary()), "dead"))[0] for message in strewn
    ]
    assert repr([together[i] for i in range(len(strewn))]) == repr(separate_verdicts)


@settings(max_examples=examples(100))
@given(st.integers(0, 50), st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes(seed: int, messages: list[bytes]) -> None:
    """For arbitrary bytes both decoders agree, and neither raises."""
    Both(random_schema(random.Random(seed))).compare(messages)


@pytest.mark.sampled(2, of=300)
def test_any_schema_with_any_messages(part: int, dice: random.Random) -> None:
    """Both decoders agree about many whole and broken messages of many schemas."""
    fast = rows = 0
    for _ in range(20):
        schema = random_schema(dice, dice.choice((3, 8, 20)))
        both, writer = Both(schema), Writer(dice, schema)
        whole_messages = [writer.message() for _ in range(60)]
        counts = both.compare(whole_messages)
        fast, rows = fast + counts[0], rows + counts[1]
        both.compare([mutate(dice, message) for message in whole_messages])
    assert fast == rows
    assert rows > 400


def test_parts_of_arrays_and_nulls() -> None:
    """The compiled pass reads a slice of a batch, an empty batch and a batch with nulls."""
    schema = random_schema(random.Random(3))
    both, writer = Both(schema), Writer(random.Random(4), schema)
    messages = pa.array(
        [b"\xff" * 30, None, *(writer.message() for _ in range(5)), None, b"x"], pa.binary()
    )
    assert both.fast.decode(messages).mask.tolist() == [
        False,
        False,
        True,
        True,
        True,
        True,
        True,
        False,
        False,
    ]
    assert both.fast.decode(messages.slice(1, 4)).mask.tolist() == [False, True, True, True]
    assert both.fast.decode(messages.slice(0, 0)).mask.tolist() == []
