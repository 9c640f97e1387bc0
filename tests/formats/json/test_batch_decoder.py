"""No message stops a window: memory and effort are bounded, and whatever fails costs
its own message at most.
"""

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
"""Seconds. What is linear takes some; at the sizes below, what is quadratic takes hours."""


def decoded(machine: BatchDecoder, messages: list[bytes]) -> Decoded:
    return machine.decode(pa.array(messages, pa.binary()), "dead")


def verdicts(batch: Decoded) -> tuple[Any, ...]:
    """All that a batch came to, comparable."""
    return (
        repr(batch.rows.to_pylist()),
        batch.row_index,
        batch.dead_index,
        batch.dead_reason,
        batch.dead_detail,
    )


class Failing:
    """A pass that can't do anything any more."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def ready(self) -> bool:
        return True

    def decode(self, messages: pa.BinaryArray, skip: int) -> Taken:
        raise self.error


class StrictBut:
    """The strict way, with other values where it is told so."""

    def __init__(self, strict: StrictJson, instead: Callable[[bytes], list[Any] | None]) -> None:
        self.strict, self.truncation, self.instead = strict, strict.truncation, instead

    def decode(self, message: bytes) -> list[Any]:
        return self.instead(message) or self.strict.decode(message)


def without_pass(instead: Callable[[bytes], list[Any] | None]) -> BatchDecoder:
    columns = Columns.of(Nested)
    strict = StrictBut(StrictJson(columns), instead)
    return BatchDecoder(columns.arrow_schema, Failing(MemoryError()), strict)


def hostile(*arguments: str) -> Any:
    """What the families of hostile messages came to, in a process of their own."""
    command = [sys.executable, "-m", "tests.formats.json.hostile", *arguments]
    return json.loads(
        subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=HANGS
        ).stdout
    )


@pytest.mark.long
@pytest.mark.slow
def test_no_message_of_a_megabyte_takes_more_than_linear_time() -> None:
    """Every family of hostile messages ends, with the same verdict for a large message
    and, by both ways, for a smaller one.
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
    """At most 32 bytes a byte of the largest message, beside what the process takes anyway."""
    rows, peak = hostile(str(megabytes << 20), str(count), family)
    assert rows == count
    assert peak < 400 + 32 * megabytes


@pytest.mark.parametrize("error", [MemoryError(), IndexError("hunter2")])
def test_where_the_pass_fails_the_strict_way_judges_alone(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Same rows, same dead letters; a warning says why it takes longer, and nothing of
    a message.
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
    """As the compiled pass does: each message once, at its place."""
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
    """What millions of small values took of the pass's own memory doesn't stay for the
    next batches; what any batch takes does.
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
    """With the type of what was raised and no text of it; its neighbours are rows."""

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
    """Also where only the table's type shows it, after the strict way has passed it."""
    row: list[Any] = ["x", *[None] * (len(Columns.of(Nested).columns) - 1)]
    batch = decoded(
        without_pass(lambda message: row if b"9" in message else None),
        [b'{"id":1}', b'{"id":9}', b'{"id":2}'],
    )
    assert (batch.rows.column("id").to_pylist(), batch.row_index.to_pylist()) == ([1, 2], [0, 2])
    assert (batch.dead_index.to_pylist(), batch.dead_reason.to_pylist()) == ([1], ["undecodable"])
