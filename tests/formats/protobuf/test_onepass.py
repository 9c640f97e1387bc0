"""The compiled pass takes only what Protobuf's library takes, with the same values."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.protobuf.schemas import Made, made, message, mutated
from tests.profiles import examples
from windrow.ingest.formats.protobuf.decoder import ProtobufPass
from windrow.ingest.formats.protobuf.strict import StrictProtobuf
from windrow.ingest.formats.shared.refusal import RefusedValueError

ROOT = Path(__file__).parents[3]


class Both:
    """The pass and the truth, for a type and columns."""

    def __init__(self, schema: Made) -> None:
        self.columns = schema.columns
        self.fast = ProtobufPass(schema.kind, schema.columns)
        self.strict = StrictProtobuf(schema.kind, schema.columns)

    def compare(self, messages: Sequence[bytes]) -> tuple[int, int]:
        """Prove the promise for each message; how many the pass took, and how many are rows."""
        taken = self.fast.decode(pa.array(messages, pa.binary()))
        truth = [self._strictly(message) for message in messages]
        mask = taken.mask.tolist()
        assert [
            m for m, t, row in zip(messages, mask, truth, strict=True) if t and isinstance(row, str)
        ] == []
        expected = [
            row for t, row in zip(mask, truth, strict=True) if t and not isinstance(row, str)
        ]
        for i, (column, array) in enumerate(zip(self.columns.columns, taken.columns, strict=True)):
            array.validate(full=True)
            assert array.type == column.type
            wanted = pa.array([row[i] for row in expected], column.type)
            # repr: 0.0 is not -0.0
            assert repr(array.to_pylist()) == repr(wanted.to_pylist()), column.name
        return sum(mask), sum(not isinstance(row, str) for row in truth)

    def _strictly(self, message: bytes) -> list[Any] | str:
        """The truth: values, or a reason."""
        try:
            return self.strict.decode(message)
        except RefusedValueError as refused:
            return refused.reason


@settings(max_examples=examples(150))
@given(st.integers(0, 1 << 64))
def test_the_pass_agrees_with_the_library(seed: int) -> None:
    """Any type, any columns that can come from it, messages whole and broken: never a
    row that the library refuses, never another one.
    """
    r = random.Random(seed)
    schema = made(r)
    both, odd = Both(schema), r.choice((0.0, 0.05, 0.2))
    whole = [message(r, schema.kind, odd=odd) for _ in range(15)]
    both.compare(
        [each for one in whole for each in (one, *(mutated(r, one) for _ in range(r.randrange(3))))]
    )


@settings(max_examples=examples(100))
@given(st.integers(0, 50), st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes(seed: int, messages: list[bytes]) -> None:
    """Whatever comes, nothing is taken that the library refuses, and neither fails."""
    Both(made(random.Random(seed))).compare(messages)


@pytest.mark.sampled(2, of=300)
def test_any_type_with_any_messages(part: int, dice: random.Random) -> None:
    """Many messages of a type. Of those that are written plainly, the pass takes most."""
    fast = rows = 0
    for _ in range(20):
        schema = made(dice)
        both = Both(schema)
        whole = [message(dice, schema.kind, odd=0) for _ in range(60)]
        counts = both.compare(whole)
        fast, rows = fast + counts[0], rows + counts[1]
        both.compare([mutated(dice, one) for one in whole])
    assert rows > 100
    assert fast > 0.4 * rows


@pytest.mark.long
def test_no_byte_outside_its_memory_is_looked_at() -> None:
    """The same code with checks of all bounds, in a process of its own, on types and
    messages as above: no index is ever wrong.
    """
    command = [sys.executable, "-m", "tests.formats.protobuf.test_onepass"]
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "checked"), done.stderr


def test_parts_of_arrays_and_nulls() -> None:
    """A part of a batch, one of nothing, and one with nulls: what has no bytes is a
    message, and what isn't there is none.
    """
    schema = made(random.Random(3))
    both, whole = (
        Both(schema),
        [message(random.Random(seed), schema.kind, odd=0) for seed in range(5)],
    )
    alone = [both.fast.decode(pa.array([one], pa.binary())).mask[0] for one in (b"", *whole)]
    messages = pa.array([b"\xff" * 30, None, b"", *whole, None, b"x"], pa.binary())
    assert both.fast.decode(messages).mask.tolist() == [False, False, *alone, False, False]
    assert both.fast.decode(messages.slice(1, 4)).mask.tolist() == [False, *alone[:3]]
    assert both.fast.decode(messages.slice(0, 0)).mask.tolist() == []


def main() -> None:
    """What is checked with bounds."""
    dice = random.Random(os.environ.get("SEED", "1"))
    for _ in range(150):
        schema = made(dice)
        both = Both(schema)
        whole = [message(dice, schema.kind, odd=0.05) for _ in range(20)]
        both.compare(
            [
                *whole,
                *(mutated(dice, one) for one in whole),
                *(dice.randbytes(dice.randrange(30)) for _ in range(20)),
            ]
        )
    print("checked")


if __name__ == "__main__":
    main()
