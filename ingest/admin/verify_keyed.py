"""Compares a table whose rows replace each other with the sum of its receipts.

The comparison only reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from windrow.ingest.admin.findings import REPORT, Finding, finding_of_error
from windrow.ingest.admin.verify_contents import SplitFinder, refuse_other_columns
from windrow.ingest.errors import RefusedError, UnreachableError, format_count
from windrow.ingest.model.receipt import Changed, Receipt
from windrow.ingest.ports.sink import Audit, KeyedAudit
from windrow.ingest.schema.checksum import checksum_text, hash_rows, sum_hashes

_AGAIN = "Restore the table from a backup, or begin a new one and run all windows."
_TOMBSTONES = (
    "Another program changed them. Until they are restored, an older window may bring back keys"
    f" that newer ones deleted. {_AGAIN}"
)


class ReadBack(msgspec.Struct, frozen=True):
    """Sums of the rows in the table.

    Attributes:
        rows: their number.
        checksum: their checksum; None if the rows weren't read.
        outside: the number of rows that belong to no split.
    """

    rows: int
    checksum: str | None = None
    outside: int = 0


def compare_merged(
    receipts: Sequence[Receipt], audit: Audit, keyed: KeyedAudit, *, deep: bool, complete: bool
) -> list[Finding]:
    """Compares the table's rows and tombstones with the sums over its receipts.

    Args:
        receipts: all receipts that can be read.
        audit: the table's audit.
        keyed: the same audit, with the questions that only a table with a primary key
            answers.
        deep: whether to read all rows, and compare their checksum.
        complete: whether these are all receipts. Otherwise there is no sum to compare with.
    """
    findings = [
        finding_of_error(error, "table", receipt.window.key)
        for receipt, error in keyed.lost_tombstones(receipts)
    ]
    if not complete:
        return findings
    try:
        if not findings:
            read_back = sum_rows(receipts, keyed.tombstones(), audit.metadata)
            changed = [r.merged.tombstones_changed for r in receipts if r.merged is not None]
            findings += _differences("tombstones", filter(None, changed), read_back, _TOMBSTONES)
        findings += differences(
            receipts,
            sum_rows(receipts, keyed.all_rows(), audit.metadata)
            if deep
            else ReadBack(keyed.rows()),
        )
    except (UnreachableError, RefusedError) as error:
        findings.append(finding_of_error(error, "table", prefix="the rows can't be read: "))
    return findings


def differences(receipts: Sequence[Receipt], read_back: ReadBack) -> list[Finding]:
    """Compares the rows with the sum of the rows that the windows added and removed. Pure."""
    without = [r.window.key for r in receipts if r.merged is None]
    if without:
        message = (
            "the receipt doesn't say what the window did to the table, in which rows replace each"
            f" other: {', '.join(without[:5])}"
        )
        return [Finding("wrong", "receipts", message, REPORT, without[0])]
    merged = [r.merged for r in receipts if r.merged is not None]
    return _differences("rows", merged, read_back, f"Another program changed the table. {_AGAIN}")


def _differences(
    noun: str, changed: Iterable[Changed], read_back: ReadBack, advice: str
) -> list[Finding]:
    """Compares rows, or tombstones, with the sum of the windows' changes."""
    rows = added = 0
    for change in changed:
        rows += change.rows_added - change.rows_removed
        added += int(change.added, 16) - int(change.removed, 16)
    problems = []
    if read_back.rows != rows:
        problems.append(
            f"{format_count(read_back.rows, noun.removesuffix('s'))} in the table, {rows} by its"
            f" receipts (added less removed)"
        )
    elif read_back.checksum not in {None, checksum_text(added)}:
        problems.append(
            f"the {noun} are not those that were committed (checksum {read_back.checksum}, by the"
            f" receipts {checksum_text(added)})"
        )
    if read_back.outside:
        problems.append(
            f"{format_count(read_back.outside, noun.removesuffix('s'))} in none of the splits of"
            " the window of their names"
        )
    return [Finding("wrong", "table", problem, advice) for problem in problems]


def sum_rows(
    receipts: Sequence[Receipt], batches: Iterable[pa.RecordBatch], names: Mapping[str, str]
) -> ReadBack:
    """Counts all rows and sums their hashes. Pure. One batch is in memory at a time.

    Raises:
        RefusedError: a batch lacks a column, or has a type that windrow doesn't write.
    """
    finders = {receipt.window.key: SplitFinder(receipt.splits) for receipt in receipts}
    rows = checksum = outside = 0
    for batch in batches:
        with refuse_other_columns():
            checksum += sum_hashes(hash_rows(batch))
            windows = batch.column(names["window"]).cast(pa.string()).dictionary_encode()
            kinds = {"topic": pa.string(), "partition": pa.int64(), "offset": pa.int64()}
            coordinates = [batch.column(names[name]).cast(kind) for name, kind in kinds.items()]
        rows += batch.num_rows
        numbers = windows.indices.fill_null(-1).to_numpy()
        for number in np.unique(numbers).tolist():
            row_indices = pa.array(np.flatnonzero(numbers == number))
            finder = None if number < 0 else finders.get(windows.dictionary[number].as_py())
            inside_count = (
                0
                if finder is None
                else int(
                    np.count_nonzero(
                        finder.find_splits(*(c.take(row_indices) for c in coordinates))
                        < finder.nowhere
                    )
                )
            )
            outside += len(row_indices) - inside_count
    return ReadBack(rows, checksum_text(checksum), outside)
