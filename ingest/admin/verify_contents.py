"""Compares all rows and dead letters of a table with the checksums of its receipts.

The comparison only reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.admin.findings import (
    ALLOWED,
    EXACTLY,
    Finding,
    Level,
    changed_table_advice,
    finding_of_error,
    read_again_advice,
)
from windrow.ingest.errors import RefusedError, UnreachableError, format_count
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.receipt import Receipt, SplitCounts
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.sink import Audit, Capabilities, PublishedAudit, PublishedRows
from windrow.ingest.schema.checksum import checksum_text, hash_rows

Kind = Literal["rows", "dead letters", "messages"]


class Summed(msgspec.Struct, frozen=True):
    """Sums of rows that were read back.

    Attributes:
        counts: the number of rows of each split.
        checksums: the checksum of the rows of each split.
        outside: the number of rows that belong to no split.
    """

    counts: tuple[int, ...]
    checksums: tuple[str, ...]
    outside: int


def compare_contents(
    receipts: Sequence[Receipt],
    audit: Audit,
    dead_letters: DeadLetters,
    capabilities: Capabilities = EXACTLY,
) -> list[Finding]:
    """Compares each window's rows and dead letters with its receipt, split by split.

    One batch of one window is in memory at a time. If rows of the table replace each other,
    only the dead letters are compared, because a row doesn't belong to a single window.
    """
    findings = list[Finding]()
    for receipt in receipts:
        window = receipt.window
        if audit.keyed is None:
            findings += compare_values(receipt, audit, capabilities)
        try:
            read_back = sum_by_split(
                receipt.splits, dead_letters.contents(window), DEFAULT, receipt.attempt
            )
            problems = differences(receipt, "dead letters", read_back)[0]
            if problems and dead_letters.is_expired(window, receipt.attempt):
                continue
            findings += _changed_findings(receipt, problems, capabilities)
        except (RefusedError, UnreachableError) as error:
            findings.append(_unreadable_finding(receipt, "dead letters", error, capabilities))
    return findings


def find_unnamed(pipeline: str, audit: Audit, capabilities: Capabilities) -> list[Finding]:
    """Finds rows that were published in addition to those that receipts name."""
    if not isinstance(audit, PublishedAudit):
        return []
    try:
        count_by_window = audit.outside(pipeline)
    except (RefusedError, UnreachableError) as error:
        return [finding_of_error(error, "table")]
    level: Level = "info" if capabilities.allows(loss=False) else "wrong"
    advice = (
        "They were published before or besides the window's own: by windrow run --again, after a"
        " rebind, or by another program; or the window's receipt is lost. They can't be taken back;"
        " a reader can drop what comes twice by the header windrow.origin."
    )
    return [
        Finding(
            level,
            "table",
            f"{format_count(count, 'message')} lying where no receipt says",
            advice,
            key,
        )
        for key, count in sorted(count_by_window.items())
    ]


def compare_values(
    receipt: Receipt, audit: Audit, capabilities: Capabilities = EXACTLY
) -> list[Finding]:
    """Compares a window's rows with its receipt, split by split."""
    window, published, may_lack = receipt.window, None, None
    try:
        if isinstance(audit, PublishedAudit):
            published, may_lack = audit.published(window), audit.may_lack(window)
        lacks = may_lack is not None
        if published is None:
            read_back = sum_by_split(receipt.splits, audit.contents(window), audit.metadata)
            problems, allowed = differences(
                receipt, "rows", read_back, capabilities, may_lack=lacks
            )
            findings = _changed_findings(receipt, problems, capabilities)
        else:
            read_back = _sum_published(receipt.splits, published)
            problems, allowed = differences(
                receipt, "messages", read_back, capabilities, noted=published.noted, may_lack=lacks
            )
            advice = "Another program wrote with the window's origins, or it is a bug."
            findings = [
                Finding("wrong", "table", problem, advice, window.key) for problem in problems
            ]
    except (RefusedError, UnreachableError) as error:
        return [_unreadable_finding(receipt, "rows", error, capabilities)]
    advice = may_lack or ALLOWED
    return findings + [Finding("info", "table", problem, advice, window.key) for problem in allowed]


def _changed_findings(
    receipt: Receipt, problems: Iterable[str], capabilities: Capabilities
) -> list[Finding]:
    key = receipt.window.key
    advice = changed_table_advice(receipt, capabilities)
    return [Finding("wrong", "table", problem, advice, key) for problem in problems]


def _unreadable_finding(
    receipt: Receipt,
    kind: Kind,
    error: RefusedError | UnreachableError,
    capabilities: Capabilities,
) -> Finding:
    key = receipt.window.key
    finding = finding_of_error(error, "table", key, f"the {kind} can't be read: ")
    if finding.level == "unchecked":
        return finding
    advice = f"{error.advice} Or: {read_again_advice(receipt, capabilities)}"
    return msgspec.structs.replace(finding, advice=advice)


def differences(
    receipt: Receipt,
    kind: Kind,
    read_back: Summed,
    capabilities: Capabilities = EXACTLY,
    *,
    noted: Mapping[tuple[str, int, int], str] | None = None,
    may_lack: bool = False,
) -> tuple[list[str], list[str]]:
    """Describes the differences between read and committed rows, one sentence per split. Pure.

    If the number of a split's rows is wrong, its checksum isn't compared, because it is the
    sum over all its rows.

    Args:
        receipt: the receipt of the window.
        kind: what was read.
        read_back: the sums of the rows that were read.
        capabilities: what the sink guarantees.
        noted: the checksums of published messages, recorded when they were published.
        may_lack: whether rows may be missing without an error.

    Returns:
        The differences that are wrong, and those that the sink allows.
    """
    problems, allowed = list[str](), list[str]()
    for split, count, checksum in zip(
        receipt.splits, read_back.counts, read_back.checksums, strict=True
    ):
        expected_count, expected_checksum = _expected_count_and_checksum(split, kind, noted)
        if kind == "rows" and receipt.expired_at is not None:
            expected_count = 0
        location = (
            f"{TopicPartition(split.topic, split.partition)} offsets {split.start} to {split.stop}"
            " (exclusive)"
        )
        if count != expected_count:
            is_lacking = count < expected_count
            may = capabilities.allows(loss=is_lacking) or (is_lacking and may_lack)
            message = (
                f"{location}: {format_count(count, kind.removesuffix('s'))} read back,"
                f" {expected_count} committed"
            )
            (allowed if may and kind != "dead letters" else problems).append(message)
        elif expected_checksum != checksum:
            problems.append(
                f"{location}: the {kind} are not those that were committed (checksum {checksum},"
                f" committed {expected_checksum})"
            )
    if read_back.outside:
        problems.append(
            f"{format_count(read_back.outside, kind.removesuffix('s'))} in none of its splits"
        )
    return problems, allowed


def _expected_count_and_checksum(
    split: SplitCounts, kind: Kind, noted: Mapping[tuple[str, int, int], str] | None
) -> tuple[int, str]:
    """Returns the number of rows that a split must have, and their checksum."""
    if noted is not None:
        checksum = noted.get((split.topic, split.partition, split.start), checksum_text(0))
        return split.rows + split.deletes, checksum
    if kind == "rows":
        return split.rows, split.checksums.rows
    return split.dead, split.checksums.dead


def _sum_published(splits: Sequence[SplitCounts], published: PublishedRows) -> Summed:
    sums = _Sums(splits)
    for batch in published.rows:
        split_numbers = sums.finder.find_splits(batch["topic"], batch["partition"], batch["offset"])
        sums.add(split_numbers, batch["hash"].to_numpy())
    return sums.summed


def sum_by_split(
    splits: Sequence[SplitCounts],
    batches: Iterable[pa.RecordBatch],
    names: Mapping[str, str],
    attempt: str | None = None,
) -> Summed:
    """Counts rows and sums their hashes, by the split that contains their offset. Pure.

    One batch is in memory at a time.

    Args:
        splits: the splits of the window.
        batches: the rows or dead letters.
        names: the metadata columns, name -> column.
        attempt: only dead letters of this attempt; None: all.

    Raises:
        RefusedError: a batch lacks a column, or has a type that windrow doesn't write.
    """
    sums = _Sums(splits)
    for batch in batches:
        with refuse_other_columns():
            split_numbers = sums.finder.find_splits(
                *(batch.column(names[name]) for name in ("topic", "partition", "offset"))
            )
            hashes = hash_rows(batch, leave_out=(names["window"],))
            if attempt is not None:
                is_of_attempt = pc.equal(
                    batch.column("attempt").cast(pa.string()), attempt
                ).fill_null(False)
                chosen_mask = is_of_attempt.to_numpy(zero_copy_only=False)
                split_numbers, hashes = split_numbers[chosen_mask], hashes[chosen_mask]
        sums.add(split_numbers, hashes)
    return sums.summed


@contextmanager
def refuse_other_columns() -> Iterator[None]:
    """Refuses a file whose columns or types aren't those that windrow writes.

    Raises:
        RefusedError: the block failed with an Arrow error about columns or types.
    """
    try:
        yield
    except (KeyError, TypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RefusedError(
            f"a file has other columns than windrow wrote ({type(error).__name__})",
            "commit",
            "Restore the file from a backup.",
        ) from error


class _Sums:
    """Counts and checksums of rows, by split."""

    def __init__(self, splits: Sequence[SplitCounts]) -> None:
        self.finder = SplitFinder(splits)
        self._sums, self._counts = (
            np.zeros(len(splits) + 1, np.uint64),
            np.zeros(len(splits) + 1, np.int64),
        )

    def add(self, split_numbers: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64]) -> None:
        np.add.at(self._sums, split_numbers, hashes)
        np.add.at(self._counts, split_numbers, 1)

    @property
    def summed(self) -> Summed:
        return Summed(
            tuple(self._counts[:-1].tolist()),
            tuple(checksum_text(int(s)) for s in self._sums[:-1]),
            int(self._counts[-1]),
        )


class SplitFinder:
    """Finds the split that contains an offset of a topic-partition.

    Attributes:
        nowhere: the number that means no split.
    """

    def __init__(self, splits: Sequence[SplitCounts]) -> None:
        self.nowhere = len(splits)
        ranges_by_tp: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
        for number, split in enumerate(splits):
            ranges_by_tp[split.topic, split.partition].append((split.start, split.stop, number))
        self._ranges = {
            tp: np.array(sorted(ranges), np.int64).T for tp, ranges in ranges_by_tp.items()
        }

    def find_splits(
        self, topic: pa.Array, partition: pa.Array, offset: pa.Array
    ) -> npt.NDArray[np.int64]:
        """Returns the number of each row's split, or `nowhere`."""
        topics = topic.cast(pa.string()).dictionary_encode()
        codes = topics.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        partitions, offsets = (
            column.cast(pa.int64()).fill_null(-1).to_numpy() for column in (partition, offset)
        )
        split_numbers = np.full(len(codes), self.nowhere)
        pairs = np.stack([codes, partitions], axis=1)
        for code, number in np.unique(pairs, axis=0).tolist():
            ranges = (
                None if code < 0 else self._ranges.get((topics.dictionary[code].as_py(), number))
            )
            if ranges is None:
                continue
            rows = np.flatnonzero((codes == code) & (partitions == number))
            starts, stops, numbers = ranges
            range_indices = np.searchsorted(starts, offsets[rows], side="right") - 1
            is_inside = (range_indices >= 0) & (offsets[rows] < stops[range_indices])
            split_numbers[rows[is_inside]] = numbers[range_indices[is_inside]]
        return split_numbers
