"""Compares a table whose rows replace each other with the sum of its receipts.

It only reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from windrow.ingest.admin.findings import REPORT, Finding, failure
from windrow.ingest.admin.verify_contents import SplitFinder, other_columns_refused
from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.receipt import Changed, Receipt
from windrow.ingest.ports.sink import Audit, KeyedAudit
from windrow.ingest.schema.checksum import row_hashes, text, total

_AGAIN = "Restore the table from a backup, or begin a new one and run all windows."
_TOMBSTONES = (
    "Another program changed them. Until they are restored, an older window may bring back keys"
    f" that newer ones deleted. {_AGAIN}"
)


class ReadBack(msgspec.Struct, frozen=True):
    """Sums of rows that were read: number, checksum, and how many are in no split."""

    rows: int
    checksum: str
    outside: int


def compare_merged(
    receipts: Sequence[Receipt], audit: Audit, keyed: KeyedAudit, *, deep: bool, whole: bool
) -> list[Finding]:
    """Compares the table's rows and tombstones with the sums over its receipts.

    Args:
        receipts: all receipts that can be read.
        audit: the table's audit.
        keyed: the same, with the questions that only a table with a primary key answers.
        deep: whether to read all rows, and compare their checksum.
        whole: whether these are all receipts; otherwise there is no sum to compare with.
    """
    findings = [
        failure(error, "table", receipt.window.key)
        for receipt, error in keyed.lost_tombstones(receipts)
    ]
    if not whole:
        return findings
    try:
        if not findings:
            findings += tombstone_differences(
                receipts, summed(receipts, keyed.tombstones(), audit.metadata)
            )
        findings += differences(
            receipts,
            keyed.rows(),
            summed(receipts, keyed.every(), audit.metadata) if deep else None,
        )
    except (UnreachableError, RefusedError) as error:
        findings.append(failure(error, "table", prefix="the rows can't be read: "))
    return findings


def differences(
    receipts: Sequence[Receipt], rows: int, read_back: ReadBack | None
) -> list[Finding]:
    """Compares the rows with the sum of what the windows added and removed. Pure."""
    merged = [r.merged for r in receipts if r.merged is not None]
    without = [r.window.key for r in receipts if r.merged is None]
    if without:
        what = (
            "the receipt doesn't say what the window did to the table, in which rows replace each"
            f" other: {', '.join(without[:5])}"
        )
        return [Finding("wrong", "receipts", what, REPORT, without[0])]
    wanted, wanted_sum = _sum(merged)
    problems = (
        [f"{rows} rows in the table, {wanted} by its receipts (added less removed)"]
        if rows != wanted
        else []
    )
    if read_back is not None:
        if read_back.rows != rows:
            problems.append(f"{read_back.rows} rows were read back, {rows} are in the table's log")
        elif read_back.checksum != wanted_sum and not problems:
            problems.append(
                f"the rows are not those that were committed (checksum {read_back.checksum}, by the"
                f" receipts {wanted_sum})"
            )
        if read_back.outside:
            problems.append(
                f"{read_back.outside} rows are in none of the splits of the window that they name"
            )
    return [
        Finding("wrong", "table", problem, f"Another program changed the table. {_AGAIN}")
        for problem in problems
    ]


def tombstone_differences(receipts: Sequence[Receipt], read_back: ReadBack) -> list[Finding]:
    """Compares the tombstones with the sum of what the windows deleted. Pure."""
    merged = [r.merged for r in receipts if r.merged is not None]
    wanted, wanted_sum = _sum(
        [m.tombstones_changed for m in merged if m.tombstones_changed is not None]
    )
    problems = []
    if read_back.rows != wanted:
        problems.append(f"{read_back.rows} keys have a tombstone, {wanted} by its receipts")
    elif read_back.checksum != wanted_sum:
        problems.append(
            f"the tombstones aren't those that were committed (checksum {read_back.checksum}, by"
            f" the receipts {wanted_sum})"
        )
    if read_back.outside:
        problems.append(
            f"{read_back.outside} tombstones are of a message that is in no split of the window"
            " that they name"
        )
    return [Finding("wrong", "table", problem, _TOMBSTONES) for problem in problems]


def _sum(changed: Sequence[Changed]) -> tuple[int, str]:
    """The expected number of rows, and their checksum."""
    checksum = sum(int(c.added, 16) - int(c.removed, 16) for c in changed)
    return sum(c.rows_added - c.rows_removed for c in changed), text(checksum)


def summed(
    receipts: Sequence[Receipt], batches: Iterable[pa.RecordBatch], names: Mapping[str, str]
) -> ReadBack:
    """Counts all rows and sums their hashes. Pure. Holds one batch at a time.

    Raises:
        RefusedError: a batch lacks a column, or has a type that windrow doesn't write.
    """
    finders = {receipt.window.key: SplitFinder(receipt.splits) for receipt in receipts}
    rows = checksum = outside = 0
    for batch in batches:
        with other_columns_refused():
            checksum += total(row_hashes(batch))
            windows = batch.column(names["window"]).cast(pa.string()).dictionary_encode()
            kinds = {"topic": pa.string(), "partition": pa.int64(), "offset": pa.int64()}
            coordinates = [batch.column(names[name]).cast(kind) for name, kind in kinds.items()]
        rows += batch.num_rows
        numbers = windows.indices.fill_null(-1).to_numpy()
        for number in np.unique(numbers).tolist():
            mine = pa.array(np.flatnonzero(numbers == number))
            known = None if number < 0 else finders.get(windows.dictionary[number].as_py())
            held = (
                0
                if known is None
                else int(
                    np.count_nonzero(known.of(*(c.take(mine) for c in coordinates)) < known.nowhere)
                )
            )
            outside += len(mine) - held
    return ReadBack(rows, text(checksum), outside)
