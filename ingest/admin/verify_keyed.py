"""Compares a table whose rows replace each other with the sum of its receipts.

Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from windrow.ingest.admin.findings import REPORT, Finding, failure
from windrow.ingest.admin.verify_contents import Places
from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.receipt import Changed, Receipt
from windrow.ingest.ports.sink import Audit, KeyedAudit
from windrow.ingest.schema.checksum import row_hashes, text, total

_AGAIN = "Restore the table from a backup, or begin a new one and run all windows."
_TOMBSTONES = (
    "Something changed them. Until they are as they were, an older window may bring back keys that"
    f" newer ones took out. {_AGAIN}"
)


class ReadBack(msgspec.Struct, frozen=True):
    """The rows that were read: their number and checksum, and how many lie in no split of
    their window.
    """

    rows: int
    checksum: str
    outside: int


def compare_merged(
    receipts: Sequence[Receipt], audit: Audit, keyed: KeyedAudit, *, deep: bool, whole: bool
) -> list[Finding]:
    """The table against the sum over its receipts, and its tombstones.

    Args:
        receipts: of all windows whose receipts can be read.
        audit: the table's.
        keyed: the same, for what only a table with a primary key answers.
        deep: whether to read all rows back and sum them up.
        whole: whether these are all receipts; else there is no sum to compare with.
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
    """Where the rows are not the sum of what their windows added and removed. Pure."""
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
                f"{read_back.outside} rows lie in none of the splits of the window that they name"
            )
    return [
        Finding("wrong", "table", problem, f"Something changed the table. {_AGAIN}")
        for problem in problems
    ]


def tombstone_differences(receipts: Sequence[Receipt], read_back: ReadBack) -> list[Finding]:
    """Where the tombstones are not the sum of what their windows deleted.

    Pure.
    """
    merged = [r.merged for r in receipts if r.merged is not None]
    wanted, wanted_sum = _sum([m.buried for m in merged if m.buried is not None])
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
            f"{read_back.outside} tombstones are of a message that lies in no split of the window"
            " that they name"
        )
    return [Finding("wrong", "table", problem, _TOMBSTONES) for problem in problems]


def _sum(changed: Sequence[Changed]) -> tuple[int, str]:
    """The number of rows that there must be, and their checksum."""
    checksum = sum(int(c.added, 16) - int(c.removed, 16) for c in changed)
    return sum(c.rows_added - c.rows_removed for c in changed), text(checksum)


def summed(
    receipts: Sequence[Receipt], batches: Iterable[pa.RecordBatch], names: Mapping[str, str]
) -> ReadBack:
    """Counts and sums up all rows. Pure; holds one batch.

    Raises:
        RefusedError: a batch has no such columns, or holds types that no table of windrow has.
    """
    places = {receipt.window.key: Places(receipt.splits) for receipt in receipts}
    rows = checksum = outside = 0
    for batch in batches:
        try:
            checksum += total(row_hashes(batch))
            windows = batch.column(names["window"]).cast(pa.string()).dictionary_encode()
            kinds = {"topic": pa.string(), "partition": pa.int64(), "offset": pa.int64()}
            coordinates = [batch.column(names[name]).cast(kind) for name, kind in kinds.items()]
        except (KeyError, TypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            what = f"a file has other columns than windrow wrote ({type(error).__name__})"
            raise RefusedError(what, "commit", "Restore the file from a backup.") from error
        rows += batch.num_rows
        numbers = windows.indices.fill_null(-1).to_numpy()
        for number in np.unique(numbers).tolist():
            mine = pa.array(np.flatnonzero(numbers == number))
            known = None if number < 0 else places.get(windows.dictionary[number].as_py())
            held = (
                0
                if known is None
                else int(
                    np.count_nonzero(known.of(*(c.take(mine) for c in coordinates)) < known.nowhere)
                )
            )
            outside += len(mine) - held
    return ReadBack(rows, text(checksum), outside)
