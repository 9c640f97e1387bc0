"""Holds what a table holds, value by value, against the checksums of its receipts:
every row and dead letter is read back.

Reads only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.admin.findings import Finding, read_again
from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.receipt import Receipt, SplitCounts
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.sink import Audit, Capabilities, PublishedAudit, PublishedRows
from windrow.ingest.schema.checksum import row_hashes, text

Kind = Literal["rows", "dead letters"]
KINDS: tuple[Kind, ...] = ("rows", "dead letters")
EXACTLY = Capabilities()
ALLOWED = "The sink's delivery_guarantee allows it."
"""What to do about rows that are lost, or there twice, where that is what was asked for."""
COMPACTED = "Kafka compacts the topic: of each key it keeps the last message."
"""What to do about rows that are gone where later ones replace them."""


class Summed(msgspec.Struct, frozen=True):
    """What was read back: per split the number of rows and their checksum, and how many
    rows lie in none of them.
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
    """Each window's rows and dead letters against its receipt, split by split; one
    window, and of it one batch, at a time.

    Of a table whose rows replace each other the dead letters alone: its rows are no
    single window's.
    """
    findings = []
    for receipt in receipts:
        for kind in KINDS if audit.keyed is None else KINDS[1:]:
            findings += _compared(receipt, kind, audit, dead_letters, capabilities)
    return findings


def _compared(
    receipt: Receipt,
    kind: Kind,
    audit: Audit,
    dead_letters: DeadLetters,
    capabilities: Capabilities,
) -> list[Finding]:
    key = receipt.window.key
    again = read_again(key, capabilities)
    try:
        if (
            kind == "rows"
            and isinstance(audit, PublishedAudit)
            and (published := audit.published(receipt.window)) is not None
        ):
            return _compared_published(receipt, published, audit.replaced(), capabilities)
        if kind == "rows":
            back = summed(receipt.splits, audit.contents(receipt.window), audit.metadata)
        else:
            back = summed(
                receipt.splits, dead_letters.contents(receipt.window), DEFAULT, receipt.attempt
            )
    except UnreachableError as error:
        return [
            Finding("unchecked", "table", f"the {kind} can't be read: {error.what}", error.do, key)
        ]
    except RefusedError as error:
        return [
            Finding(
                "wrong",
                "table",
                f"the {kind} can't be read: {error.what}",
                f"{error.do} Or: {again}",
                key,
            )
        ]
    wrong, allowed = differences(receipt, kind, back, capabilities)
    return [
        *(
            Finding("wrong", "table", what, f"Something changed the table. {again}", key)
            for what in wrong
        ),
        *(Finding("info", "table", what, ALLOWED, key) for what in allowed),
    ]


def differences(
    receipt: Receipt, kind: Kind, read_back: Summed, capabilities: Capabilities = EXACTLY
) -> tuple[list[str], list[str]]:
    """Where rows, or dead letters, are not those that were committed, one sentence per
    split: what is wrong, and what the sink may do.

    Pure. Of a split with rows that are there twice the values aren't compared: its
    checksum is that of all its rows.
    """
    problems, allowed = list[str](), list[str]()
    for split, count, checksum in zip(
        receipt.splits, read_back.counts, read_back.checksums, strict=True
    ):
        where = (
            f"{TopicPartition(split.topic, split.partition)} offsets {split.start} to {split.stop}"
            " (exclusive)"
        )
        wanted = split.rows if kind == "rows" else split.dead
        known = split.checksums.rows if kind == "rows" else split.checksums.dead
        if count != wanted:
            told = (
                allowed if kind == "rows" and capabilities.allows(lost=count < wanted) else problems
            )
            told.append(f"{where}: {count} {kind} were read back, {wanted} are in the receipt")
        elif checksum != known:
            problems.append(
                f"{where}: the {kind} are not those that were committed (checksum {checksum}, in"
                f" the receipt {known})"
            )
    return (
        problems
        + ([f"{read_back.outside} {kind} lie in none of its splits"] if read_back.outside else []),
        allowed,
    )


def _compared_published(
    receipt: Receipt, published: PublishedRows, replaced: bool, capabilities: Capabilities
) -> list[Finding]:
    sums = _Sums(receipt.splits)
    for batch in published.rows:
        sums.add(
            sums.places.of(batch["topic"], batch["partition"], batch["offset"]),
            batch["hash"].to_numpy(),
        )
    wrong, allowed = published_differences(
        receipt, published.noted, sums.summed, capabilities, replaced=replaced
    )
    key, do = receipt.window.key, COMPACTED if replaced else ALLOWED
    return [
        *(
            Finding(
                "wrong",
                "table",
                what,
                "Something else wrote under the window's headers, or it is a bug.",
                key,
            )
            for what in wrong
        ),
        *(Finding("info", "table", what, do, key) for what in allowed),
    ]


def published_differences(
    receipt: Receipt,
    noted: Mapping[tuple[str, int, int], str],
    read_back: Summed,
    capabilities: Capabilities = EXACTLY,
    *,
    replaced: bool = False,
) -> tuple[list[str], list[str]]:
    """Where messages are not those that were published, one sentence per split: what is
    wrong, and what may be.

    Pure. Of a split with messages that are there twice, or gone, the rest isn't
    compared: the checksum is that of all. `replaced`: whether those that later ones
    replaced may be gone.
    """
    problems, allowed = list[str](), list[str]()
    for split, count, checksum in zip(
        receipt.splits, read_back.counts, read_back.checksums, strict=True
    ):
        where = (
            f"{TopicPartition(split.topic, split.partition)} offsets {split.start} to {split.stop}"
            " (exclusive)"
        )
        wanted, known = (
            split.rows + split.deletes,
            noted.get((split.topic, split.partition, split.start), text(0)),
        )
        if count != wanted:
            lost = count < wanted
            told = allowed if capabilities.allows(lost=lost) or (lost and replaced) else problems
            told.append(f"{where}: {count} messages were read back, {wanted} were published")
        elif checksum != known:
            problems.append(
                f"{where}: the messages are not those that were published (checksum {checksum},"
                f" published {known})"
            )
    return (
        problems
        + (
            [f"{read_back.outside} messages are of none of its splits"] if read_back.outside else []
        ),
        allowed,
    )


def summed(
    splits: Sequence[SplitCounts],
    batches: Iterable[pa.RecordBatch],
    names: Mapping[str, str],
    attempt: str | None = None,
) -> Summed:
    """Count and sum up rows by the split that holds their offset; of dead letters,
    those of one attempt.

    Pure; holds one batch.

    Raises:
        RefusedError: a batch has no such columns, or holds types that no table of windrow has.
    """
    sums = _Sums(splits)
    for batch in batches:
        try:
            where = sums.places.of(
                *(batch.column(names[name]) for name in ("topic", "partition", "offset"))
            )
            hashes = row_hashes(batch, leave_out=(names["window"],))
            if attempt is not None:
                mine = pc.equal(batch.column("attempt").cast(pa.string()), attempt).fill_null(False)
                where, hashes = (
                    found[mine.to_numpy(zero_copy_only=False)] for found in (where, hashes)
                )
        except (KeyError, TypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            what = f"a file has other columns than windrow wrote ({type(error).__name__})"
            raise RefusedError(what, "commit", "Restore the file from a backup.") from error
        sums.add(where, hashes)
    return sums.summed


class _Sums:
    """Counts and checksums of rows by their splits."""

    def __init__(self, splits: Sequence[SplitCounts]) -> None:
        self.places = Places(splits)
        self._sums, self._counts = (
            np.zeros(len(splits) + 1, np.uint64),
            np.zeros(len(splits) + 1, np.int64),
        )

    def add(self, where: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64]) -> None:
        """Rows more: of each the number of its split, and its hash."""
        np.add.at(self._sums, where, hashes)
        np.add.at(self._counts, where, 1)

    @property
    def summed(self) -> Summed:
        """What was added up."""
        return Summed(
            tuple(self._counts[:-1].tolist()),
            tuple(text(int(s)) for s in self._sums[:-1]),
            int(self._counts[-1]),
        )


class Places:
    """Which split holds an offset of a topic-partition.

    `nowhere`: the number that stands for none.
    """

    def __init__(self, splits: Sequence[SplitCounts]) -> None:
        self.nowhere = len(splits)
        held: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
        for place, split in enumerate(splits):
            held[split.topic, split.partition].append((split.start, split.stop, place))
        self._ranges = {tp: np.array(sorted(ranges), np.int64).T for tp, ranges in held.items()}

    def of(self, topic: pa.Array, partition: pa.Array, offset: pa.Array) -> npt.NDArray[np.int64]:
        """Per row the number of its split; the number of splits, where none holds it."""
        topics = topic.cast(pa.string()).dictionary_encode()
        codes = topics.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        partitions, offsets = (
            column.cast(pa.int64()).fill_null(-1).to_numpy() for column in (partition, offset)
        )
        places = np.full(len(codes), self.nowhere)
        pairs = np.stack([codes, partitions], axis=1)
        for code, number in np.unique(pairs, axis=0).tolist():
            ranges = (
                None if code < 0 else self._ranges.get((topics.dictionary[code].as_py(), number))
            )
            if ranges is None:
                continue
            rows = np.flatnonzero((codes == code) & (partitions == number))
            starts, stops, numbers = ranges
            at = np.searchsorted(starts, offsets[rows], side="right") - 1
            held = (at >= 0) & (offsets[rows] < stops[at])
            places[rows[held]] = numbers[at[held]]
        return places
