"""The compiled pass takes only what Protobuf's library takes, with the same values."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats import onepass
from tests.formats.protobuf.schemas import Made, message, mutate, random_schema
from tests.profiles import examples
from windrow.ingest.formats.protobuf.decoder import ProtobufPass
from windrow.ingest.formats.protobuf.strict import StrictProtobuf


class Both(onepass.Both):
    """Both decoders, for a message type and its columns."""

    def __init__(self, schema: Made) -> None:
        kind, columns = schema.kind, schema.columns
        super().__init__(columns, ProtobufPass(kind, columns), StrictProtobuf(kind, columns))


@settings(max_examples=examples(150))
@given(st.integers(0, 1 << 64))
def test_the_pass_agrees_with_the_library(seed: int) -> None:
    """The compiled pass never makes a row that the library refuses or reads differently.

    The types, columns and messages are random, whole and broken.
    """
    r = random.Random(seed)
    schema = random_schema(r)
    both, odd = Both(schema), r.choice((0.0, 0.05, 0.2))
    whole_messages = [message(r, schema.kind, odd=odd) for _ in range(15)]
    both.compare(
        [
            strewn_message
            for whole_message in whole_messages
            for strewn_message in (
                whole_message,
                *(mutate(r, whole_message) for _ in range(r.randrange(3))),
            )
        ]
    )


@settings(max_examples=examples(100))
@given(st.integers(0, 50), st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes(seed: int, messages: list[bytes]) -> None:
    """For arbitrary bytes the pass takes nothing that the library refuses, and neither raises."""
    Both(random_schema(random.Random(seed))).compare(messages)


@pytest.mark.sampled(2, of=300)
def test_any_type_with_any_messages(part: int, dice: random.Random) -> None:
    """Both decoders agree about many messages, and the compiled pass takes most plain ones."""
    fast = rows = 0
    for _ in range(20):
        schema = random_schema(dice)
        both = Both(schema)
        whole_messages = [message(dice, schema.kind, odd=0) for _ in range(60)]
        counts = both.compare(whole_messages)
        fast, rows = fast + counts[0], rows + counts[1]
        both.compare([mutate(dice, whole_message) for whole_message in whole_messages])
    assert rows > 100
    assert fast > 0.4 * rows


def test_parts_of_arrays_and_nulls() -> None:
    """The compiled pass reads a slice of a batch, an empty batch and a batch with nulls.

    A message of no bytes is a message; a null isn't.
    """
    schema = random_schema(random.Random(3))
    both, whole_messages = (
        Both(schema),
        [message(random.Random(seed), schema.kind, odd=0) for seed in range(5)],
    )
    separate_masks = [
        both.fast.decode(pa.array([whole_message], pa.binary())).mask[0]
        for whole_message in (b"", *whole_messages)
    ]
    messages = pa.array([b"\xff" * 30, None, b"", *whole_messages, None, b"x"], pa.binary())
    assert both.fast.decode(messages).mask.tolist() == [False, False, *separate_masks, False, False]
    assert both.fast.decode(messages.slice(1, 4)).mask.tolist() == [False, *separate_masks[:3]]
    assert both.fast.decode(messages.slice(0, 0)).mask.tolist() == []
