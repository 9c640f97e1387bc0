"""No message stops a window: memory and time are bounded, and a failure costs one message."""

from __future__ import annotations

import decimal
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.formats.json.documents import documents
from tests.formats.json.models import Nested, Scalars
from windrow.ingest.formats.json.decoder import JsonPass, json_batch_decoder
from windrow.ingest.formats.json.strict import StrictJson
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder, Taken
from windrow.ingest.formats.shared.onepass import KEPT
from windrow.ingest.ports.decoder import Decoded
from windrow.ingest.schema.columns import Column, Columns

ROOT = Path(__file__).parents[3]
HANGS = 1_200
"""The timeout in seconds. Linear time takes some seconds; quadratic time would take hours."""


def decoded(machine: BatchDecoder, messages: list[bytes]) -> Decoded:
    return machine.decode(pa.array(messages, pa.binary()), "dead")


def verdicts(batch: Decoded) -> tuple[Any, ...]:
    """Returns the results of a batch in a comparable form."""
    return (
        repr(batch.rows.to_pylist()),
        batch.row_index,
        batch.dead_index,
        batch.dead_reason,
        batch.dead_detail,
    )


class Failing:
    """A compiled pass that raises an error for each batch."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def ready(self) -> bool:
        return True

    def decode(self, messages: pa.BinaryArray, skip: int) -> Taken:
        raise self.error


class StrictBut:
    """The strict decoder, with other values for the messages that `instead` answers."""

    def __init__(self, strict: StrictJson, instead: Callable[[bytes], list[Any] | None]) -> None:
        self.strict, self.truncation, self.instead = strict, strict.truncation, instead

    def decode(self, message: bytes) -> list[Any]:
        return self.instead(message) or self.strict.decode(message)


def without_pass(instead: Callable[[bytes], list[Any] | None]) -> BatchDecoder:
    columns = Columns.of(Nested)
    strict = StrictBut(StrictJson(columns), instead)
    return BatchDecoder(columns.arrow_schema, Failing(MemoryError()), strict)


def hostile(*arguments: str) -> Any:
    """Returns the output of `tests.formats.json.hostile`, run in a process of its own."""
    command = [sys.executable, "-m", "tests.formats.json.hostile", *arguments]
    return json.loads(
        subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=HANGS
        ).stdout
    )


@pytest.mark.long
@pytest.mark.slow
def test_no_message_of_a_megabyte_takes_more_than_linear_time() -> None:
    """Each family of hostile messages of a megabyte ends in linear time.

    A smaller message of the family has the same verdict from the whole decoder.
    """
    reasons_by_family = hostile(str(1 << 20))
    assert {
        name: reasons for name, reasons in reasons_by_family.items() if reasons[0] != reasons[1]
    } == {}
    assert reasons_by_family["unterminated string with escaped quotes: Scalars"] == [
        "not_json",
        "not_json",
    ]


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("megabytes", "count", "family"),
    [
        (16, 1, "small integers"),
        (16, 1, "empty arrays"),
        (1, 20, "small integers"),
        (16, 1, "many keys"),
        (16, 1, "tags"),
        (16, 1, "lines"),
    ],
)
def test_large_messages_of_small_values_are_rows_within_a_bound_of_memory(
    megabytes: int, count: int, family: str
) -> None:
    """A large message needs at most 32 bytes of memory for each of its bytes.

    The memory that the process needs anyway isn't counted.
    """
    rows, peak = hostile(str(megabytes << 20), str(count), family)
    assert rows == count
    assert peak < 400 + 32 * megabytes


@pytest.mark.parametrize("error", [MemoryError(), IndexError("hunter2")])
def test_where_the_pass_fails_the_strict_way_judges_alone(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """If the compiled pass fails, the strict decoder gives the same rows and dead letters.

    A warning says why decoding is slow, and shows nothing of the messages.
    """
    messages = documents(300, 1)
    columns = Columns.of(Scalars)
    both = json_batch_decoder(columns)
    strict_only = BatchDecoder(columns.arrow_schema, Failing(error), both.strict)
    assert verdicts(decoded(strict_only, messages)) == verdicts(decoded(both, messages))
    assert [record.getMessage() for record in caplog.records] == [
        f"A batch is decoded slowly: the fast way failed with {type(error).__name__}."
    ]


def test_the_strict_way_counts_truncated_timestamps() -> None:
    """Both decoders count truncated timestamps once for each message."""
    kind = pa.timestamp("us", tz="UTC")
    columns = Columns((Column("a", kind, nullable=True), Column("b", kind, nullable=True)))
    fine, coarse = (f'"2026-01-05T09:00:00.{part}Z"' for part in ("1234567", "123456"))
    messages = [
        f'{{"a": {a}, "b": {b}}}'.encode()
        for a, b in ((fine, fine), (coarse, coarse), (coarse, fine))
    ]
    both = json_batch_decoder(columns)
    strict_only = BatchDecoder(columns.arrow_schema, Failing(MemoryError()), both.strict)
    for decoder in (strict_only, both):
        assert decoded(decoder, messages).cut.tolist() == [0, 2]


def test_memory_for_a_large_message_is_given_back() -> None:
    """The compiled pass frees the extra memory that millions of small values needed.

    It keeps the memory that ordinary batches need.
    """
    fast = JsonPass(Columns.of(Nested))

    def take_all(*messages: bytes) -> None:
        assert fast.decode(pa.array(messages, pa.binary())).mask.all()

    take_all(b'{"id":1,"tags":[' + b'"",' * (KEPT + 1) + b'""],"more":"' + b"x" * 3 * KEPT + b'"}')
    assert (fast.entries.nbytes, fast.keys.nbytes) == (0, 0)
    take_all(*[b'{"id":1,"tags":["a"]}'] * 100)
    kept_entries = fast.entries
    take_all(*[b'{"id":1,"tags":["a"]}'] * 100)
    assert fast.entries is kept_entries


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RecursionError(), "undecodable"),
        (OverflowError(), "undecodable"),
        (decimal.InvalidOperation(), "undecodable"),
        (ValueError("hunter2"), "undecodable"),
        (MemoryError(), "too_large"),
    ],
)
def test_a_message_that_the_strict_way_fails_on_is_a_dead_letter(
    error: Exception, reason: str
) -> None:
    """A message on which the strict decoder raises is a dead letter.

    Its neighbours are rows. The detail names the exception's type and shows no text of it.
    """

    def refuse(message: bytes) -> None:
        if message == b"bad":
            raise error

    batch = decoded(without_pass(refuse), [b'{"id":1}', b"bad", b'{"id":2}'])
    assert (
        batch.row_index.to_pylist(),
        batch.dead_index.to_pylist(),
        batch.dead_reason.to_pylist(),
    ) == ([0, 2], [1], [reason])
    assert "hunter2" not in batch.dead_detail.to_pylist()[0]


def test_a_value_that_its_column_can_not_hold_is_a_dead_letter() -> None:
    """A value that its column can't hold is a dead letter, even if only Arrow notices it."""
    row: list[Any] = ["x", *[None] * (len(Columns.of(Nested).columns) - 1)]
    batch = decoded(
        without_pass(lambda message: row if b"9" in message else None),
        [b'{"id":1}', b'{"id":9}', b'{"id":2}'],
    )
    assert (batch.rows.column("id").to_pylist(), batch.row_index.to_pylist()) == ([1, 2], [0, 2])
    assert (batch.dead_index.to_pylist(), batch.dead_reason.to_pylist()) == ([1], ["undecodable"])


def test_items_of_few_bytes_and_many_values_are_refused_by_both_ways() -> None:
    """A message is too large if its items stand for more values than its bytes allow.

    The compiled pass leaves it, and takes one within the budget.
    """
    wide = pa.struct([(f"f{i}", pa.int64()) for i in range(60)])
    columns = Columns((Column("lines", pa.list_(wide), nullable=True),))
    machine = json_batch_decoder(columns)
    small, large = (b'{"lines":[' + b",".join([b"{}"] * n) + b"]}" for n in (2_000, 20_000))
    both = decoded(machine, [small, large])
    assert (both.row_index.to_pylist(), both.dead_reason.to_pylist()) == ([0], ["too_large"])
    assert machine.fast.decode(pa.array([small, large], pa.binary()), 0).mask.tolist() == [
        True,
        False,
    ]
