"""No message stops a window: memory and effort are bounded, and whatever fails costs its own message at most."""

from __future__ import annotations

import decimal
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ingest.decode.json import bounded
from ingest.decode.json.decoder import Decoded, Machine
from ingest.decode.json.fast import Fast, Taken
from ingest.schema.columns import Columns
from tests.decode.json.documents import documents
from tests.decode.json.models import Nested, Scalars

ROOT = Path(__file__).parents[3]
HANGS = 1_200
"""Seconds. What is linear takes some; at the sizes below, what is quadratic takes hours."""


def decoded(machine: Machine, messages: list[bytes]) -> Decoded:
    return machine.decode(pa.array(messages, pa.binary()), "dead")


def verdicts(found: Decoded) -> tuple[Any, ...]:
    """All that a batch came to, comparable."""
    return repr(found.rows.to_pylist()), found.row_index, found.dead_index, found.dead_reason, found.dead_detail


def alone(messages: list[bytes]) -> Decoded:
    """The strict way's verdicts."""
    machine = Machine(Scalars, "ignore")
    machine._fast = None
    return decoded(machine, messages)


def failing(monkeypatch: pytest.MonkeyPatch, on: str, error: Exception) -> list[int]:
    """An engine that raises where a piece holds `on`; the sizes of the pieces that it was given."""
    given: list[int] = []

    class Failing(Fast):
        def decode(self, text: pa.StringArray) -> Taken:
            given.append(len(text))
            if any(on in (value or "") for value in text.to_pylist()):
                raise error
            return super().decode(text)

    monkeypatch.setattr(bounded, "Fast", Failing)
    return given


def hostile(*arguments: str) -> Any:
    """What the families of hostile messages came to, in a process of their own."""
    command = [sys.executable, "-m", "tests.decode.json.hostile", *arguments]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=HANGS).stdout)


@pytest.mark.slow
def test_no_message_of_a_megabyte_takes_more_than_linear_time() -> None:
    """Every family of hostile messages ends, with the same verdict for a large message and, by both ways, for a smaller one."""
    found = hostile(str(1 << 20))
    assert {name: reasons for name, reasons in found.items() if reasons[0] != reasons[1]} == {}
    assert found["unterminated string with escaped quotes: Scalars"] == ["not_json", "not_json"]


@pytest.mark.slow
@pytest.mark.parametrize(("megabytes", "count", "family"), [(16, 1, "small integers"), (16, 1, "empty arrays"), (1, 20, "small integers")])
def test_large_messages_of_small_values_are_rows_within_a_bound_of_memory(megabytes: int, count: int, family: str) -> None:
    """At most 32 bytes a byte of the largest message, beside what the process takes anyway."""
    rows, peak = hostile(str(megabytes << 20), str(count), family)
    assert rows == count
    assert peak < 400 + 32 * megabytes


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    [duckdb.OutOfMemoryException("full"), duckdb.InternalException("broken"), pa.ArrowInvalid("x"), MemoryError(), RuntimeError("x")],
)
def test_what_the_engine_can_not_do_costs_only_its_message(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The piece is halved until the message is alone; that one goes the strict way, and nothing is raised."""
    given = failing(monkeypatch, "poison", error)
    messages = [b'{"id":%d}' % i for i in range(100)]
    messages[37] = b'{"id":37,"name":"poison"}'
    engine = bounded.Bounded(Columns.of(Scalars), "ignore")
    mask = engine.decode(pa.array(messages, pa.binary()).cast(pa.string())).mask.to_pylist()
    assert [i for i, taken in enumerate(mask) if not taken] == [37]
    assert given[0] == 100
    assert 1 in given
    assert verdicts(decoded(Machine(Scalars, "ignore"), messages)) == verdicts(alone(messages))


@pytest.mark.slow
def test_an_engine_that_always_fails_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked a bounded number of times a batch, and every message goes the strict way."""
    given = failing(monkeypatch, "", duckdb.OutOfMemoryException("full"))
    messages = [b'{"id":%d}' % i for i in range(3_000)]
    assert verdicts(decoded(Machine(Scalars, "ignore"), messages)) == verdicts(alone(messages))
    assert len(given) == bounded.MOST_FAILURES


def test_where_the_fast_way_takes_little_it_is_asked_about_the_first_messages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of objects in an unknown field are the strict way's: the second batch costs a probe. Flat messages bring the fast way back."""
    given = failing(monkeypatch, "poison", RuntimeError())
    machine = Machine(Scalars, "ignore")
    nested, flat = [b'{"id":1,"more":[{"a":1},{"a":2}]}'] * 2_000, [b'{"id":1}'] * 2_000
    for batch in (nested, nested, flat, flat):
        assert decoded(machine, batch).rows.num_rows == 2_000
    assert given == [2_000, bounded.PROBE, bounded.PROBE, 2_000 - bounded.PROBE, 2_000]


@pytest.mark.parametrize("seed", range(3))
def test_pieces_of_any_size_say_the_same(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Small pieces, a longest message that many exceed, a small probe: the verdicts are those of the strict way alone."""
    monkeypatch.setattr(bounded, "PIECE", 700)
    monkeypatch.setattr(bounded, "LONGEST_MESSAGE", 120)
    monkeypatch.setattr(bounded, "PROBE", 4)
    messages = documents(600, seed)
    assert verdicts(decoded(Machine(Scalars, "ignore"), messages)) == verdicts(alone(messages))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RecursionError(), "undecodable"), (OverflowError(), "undecodable"), (decimal.InvalidOperation(), "undecodable"),
        (ValueError("hunter2"), "undecodable"), (MemoryError(), "too_large"),
    ],
)  # fmt: skip
def test_a_message_that_the_strict_way_fails_on_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str) -> None:
    """With the type of what was raised and no text of it; its neighbours are rows."""
    machine = Machine(Nested, "ignore")
    decode = machine._strict.decode
    monkeypatch.setattr(machine._strict, "decode", lambda message: decode(message) if message != b"bad" else (_ for _ in ()).throw(error))
    found = decoded(machine, [b'{"id":1}', b"bad", b'{"id":2}'])
    assert (found.row_index.to_pylist(), found.dead_index.to_pylist(), found.dead_reason.to_pylist()) == ([0, 2], [1], [reason])
    assert "hunter2" not in found.dead_detail.to_pylist()[0]


def test_a_value_that_its_column_can_not_hold_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only the table's type shows it, after the strict way has passed it."""
    machine = Machine(Nested, "ignore")
    decode = machine._strict.decode
    monkeypatch.setattr(machine._strict, "decode", lambda message: ["x", *decode(message)[1:]] if b"9" in message else decode(message))
    found = decoded(machine, [b'{"id":1}', b'{"id":9}', b'{"id":2}'])
    assert (found.rows.column("id").to_pylist(), found.row_index.to_pylist()) == ([1, 2], [0, 2])
    assert (found.dead_index.to_pylist(), found.dead_reason.to_pylist()) == ([1], ["undecodable"])
