"""Receipts and pages that were harmed: the damage is reported, never overwritten, and the exact
text restores them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.sinks.worlds import world_of
from windrow.ingest.errors import DamagedError, RefusedError
from windrow.ingest.ports.sink import AlreadyDone, Done, Unreadable
from windrow.ingest.testing.contracts.windows import staged_receipt, window

pytestmark = pytest.mark.slow

FILES = ("delta", "files", "iceberg")
"""Kinds whose receipts are files."""


def remove(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-50])


def change_attempt(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"a1"', b'"a2"'))


HARMS: list[tuple[str, Callable[[Path], None] | str]] = [
    *((kind, harm) for kind in FILES for harm in (remove, cut, change_attempt)),
    *(
        ("sqlite", f"{harm} WHERE window = '{window(0).key}'")
        for harm in (
            "DELETE FROM windrow_receipts",
            "UPDATE windrow_receipts SET window = 'x'",
            "UPDATE windrow_receipts SET receipt = substr(receipt, 1, 99)",
            "UPDATE windrow_receipts SET receipt = replace(receipt, 'a1', 'a2')",
            "UPDATE windrow_receipts SET receipt = 7, version = 'x'",
            "DELETE FROM windrow_offsets",
            "UPDATE windrow_offsets SET stop = stop - 1",
            "UPDATE windrow_offsets SET window = 'x'",
            "UPDATE windrow_offsets SET start = x'00'",
        )
    ),
    *(
        ("postgres", f"{harm} WHERE window_key = '{window(0).key}'")
        for harm in (
            "DELETE FROM windrow.receipts",
            "UPDATE windrow.receipts SET receipt = '{}'",
            "UPDATE windrow.receipts SET generation = 3",
            "DELETE FROM windrow.ranges",
            "UPDATE windrow.ranges SET stop = stop - 1",
        )
    ),
]


def apply(sink: Any, kind: str, harm: Any, folder: Path) -> None:
    """Harms the first window with a user's own tools."""
    if kind == "sqlite":
        with closing(sqlite3.connect(sink.store.path, isolation_level=None)) as file:
            assert file.execute(harm).rowcount
    elif kind == "postgres":
        with psycopg.connect(sink.place.url.text, autocommit=True) as server:
            assert server.execute(harm).rowcount
    else:
        (file,) = folder.glob("**/orders/_windrow/receipts/2026-01-02T00*.json")
        harm(file)


def commit(sink: Any, number: int, attempt: str = "a1") -> Any:
    return sink.commit(*staged_receipt(sink, number, 0, attempt))


def test_the_text_of_another_generation(tmp_path: Path) -> None:
    """The ledger's text of a receipt is that receipt's own, also after a later generation
    replaced it.
    """
    world = world_of("sqlite")
    sink = world.sink_at(world.new_location(tmp_path, None))
    sink.prepare()
    first = commit(sink, 0).committed.receipt
    text = sink.receipt_text(first)
    assert isinstance(sink.commit(*staged_receipt(sink, 0, 1, "b1")), Done)
    assert sink.receipt_text(first) == text
    assert sink.receipt_text(sink.look(window(0)).receipt) != text


@pytest.mark.parametrize("kind", ["delta", "iceberg", "sqlite"])
def test_columns_that_nobody_asks_for_are_not_read(kind: str, tmp_path: Path) -> None:
    """Counting dead letters reads only the column of attempts, however long the messages are."""
    world = world_of(kind)
    sink = world.sink_at(world.new_location(tmp_path, None))
    sink.prepare()
    refused, staged = staged_receipt(sink, 0)
    sink.commit_dead(refused.plan, refused.attempt, staged)
    with sink.dead_letters.store.reading() as state:
        names = {name for b in state.scan(window(0), ["attempt"]) for name in b.schema.names}
    assert names - {"_window"} == {"attempt"}


@pytest.mark.some(5)
@pytest.mark.parametrize(("kind", "harm"), HARMS)
def test_what_is_kept_of_a_window_is_told_and_restored(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, harm: Any
) -> None:
    """A harmed receipt is reported and restored.

    No look finds the window, and it isn't written again. Other windows go on if a page has its
    offsets. Only the ledger's text restores it.
    """
    world, key = world_of(kind), window(0).key
    server = request.getfixturevalue(world.server) if world.server else None
    sink_before = world.sink_at(world.new_location(tmp_path, server))
    sink_before.prepare()
    text = sink_before.receipt_text(commit(sink_before, 0).committed.receipt)
    other_text = sink_before.receipt_text(commit(sink_before, 1).committed.receipt)
    receipts = [c.receipt for c in sink_before.receipts()]
    apply(sink_before, kind, harm, tmp_path)
    sink = world.reopen(sink_before)
    unreadable = [receipt for receipt in sink.audit().receipts() if isinstance(receipt, Unreadable)]
    assert {receipt.key for receipt in unreadable} - {"x"} == {key}
    assert all(
        "--restore-receipts" in receipt.advice for receipt in unreadable if receipt.key == key
    )
    assert sink.committed([window(0), window(2)]) == {window(0)}
    for ask in (
        lambda: list(sink.receipts()),
        lambda: sink.look(window(0)),
        lambda: commit(sink, 0, "again"),
    ):
        with pytest.raises(DamagedError, match=key):
            ask()
    if kind in FILES:
        assert isinstance(commit(sink, 5), Done)
        receipts.append(sink.look(window(5)).receipt)
    audit = sink.audit()
    for wrong_text in (other_text, f"{text} ") if kind in FILES else (other_text,):
        with pytest.raises(RefusedError):
            audit.restore(window(0), wrong_text)
    audit.restore(window(0), text, dry_run=True)
    with pytest.raises(DamagedError):
        sink.look(window(0))
    audit.restore(window(0), text)
    assert [c.receipt for c in sink.receipts()] == receipts
    assert sink.receipt_text(receipts[0]) == text
    assert isinstance(commit(sink, 0, "again"), AlreadyDone)
    with pytest.raises(RefusedError, match="is not committed"):
        audit.restore(window(9), text)
