"""Verification of a table with a primary key.

The table must be the sum of all rows that its receipts added, minus those that they removed.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from tests.sinks.delta.world import DeltaKeyed
from tests.sinks.keyed_logs import KEY, Change, Keyed, Log
from windrow.ingest.admin.verify_keyed import ReadBack, compare_merged, differences
from windrow.ingest.model.receipt import Merged, Receipt
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.testing.contracts.windows import PARTITIONS, PER_WINDOW

MESSAGES = [
    [Change(("a", 1), 1)],
    [Change(("b", 1), 1)],
    [Change(("b", 1), None)],
    [Change(("c", 1), 4)],
]
LOG: Log = {
    n: [[*MESSAGES, *([[]] * (PER_WINDOW - 4))], *([[[]] * PER_WINDOW] * (PARTITIONS - 1))]
    for n in range(2)
}


@pytest.fixture
def table(tmp_path: Path) -> Keyed:
    """A table with two equal windows; its two rows are of the second one."""
    keyed_table = DeltaKeyed(str(tmp_path / "t"), PrimaryKey(KEY, buckets=2))
    for number in LOG:
        keyed_table.commit(LOG, number)
    return keyed_table


def receipts(table: Keyed) -> list[Receipt]:
    """Returns the receipts of the table."""
    return [committed.receipt for committed in table.make_sink().receipts()]


def test_a_table_is_the_sum_of_its_receipts(table: Keyed) -> None:
    """The rows that the second window removed are those that the first one added."""
    first, second = (r.merged for r in receipts(table))
    assert isinstance(first, Merged)
    assert isinstance(second, Merged)
    assert (first.rows_added, first.rows_removed, second.rows_added, second.rows_removed) == (
        2,
        0,
        2,
        2,
    )
    assert second.removed == first.added
    assert table.findings() == []


@pytest.mark.parametrize(
    ("damage", "messages"),
    [
        ({"amount": "amount + 1"}, ["the rows are not those that were committed"]),
        (
            {"_offset": "_offset + 1000"},
            ["the rows are not those that were committed", "1 row in none of the splits"],
        ),
        (
            {"_window": "'2026-01-09T00:00:00Z'"},
            ["the rows are not those that were committed", "1 row in none of the splits"],
        ),
        (None, ["1 row in the table, 2 by its receipts"]),
    ],
    ids=["value", "offset", "window", "row"],
)
def test_what_else_writes_is_found(
    table: Keyed, damage: dict[str, str] | None, messages: list[str]
) -> None:
    """A changed value, offset or window and a deleted row are found."""
    written = DeltaTable(table.uri)
    if damage is None:
        written.delete("shop = 'a'")
    else:
        written.update(damage, predicate="shop = 'a'")
    findings = table.findings()
    assert [f.message.startswith(text) for f, text in zip(findings, messages, strict=True)] == [
        True
    ] * len(messages)
    assert {f.level for f in findings} == {"wrong"}


def test_compaction_changes_nothing(table: Keyed) -> None:
    """After compaction and vacuum the table has no findings, and windows can still be merged."""
    written = DeltaTable(table.uri)
    written.optimize.compact()
    written.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert table.findings() == []
    table.commit({**LOG, 2: LOG[1]}, 2)
    assert not table.find_mistakes()


def test_a_receipt_that_does_not_say_is_told(table: Keyed) -> None:
    """A receipt without the sums of its window is reported.

    If a receipt can't be read, the table is not compared with the receipts.
    """
    silent = [msgspec.structs.replace(r, merged=None) for r in receipts(table)]
    (finding,) = differences(silent, ReadBack(2))
    assert "the receipt doesn't say what the window did" in finding.message
    audit = table.sink.audit()
    assert audit.keyed is not None
    assert compare_merged(receipts(table)[:1], audit, audit.keyed, deep=True, complete=False) == []
    assert compare_merged(receipts(table)[:1], audit, audit.keyed, deep=False, complete=True) == []
