"""A window that is to be published, held against what is there already. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from windrow.ingest.errors import OverlapError, RefusedError
from windrow.ingest.model.receipt import Checksums, Committed, Receipt, SplitCounts
from windrow.ingest.model.staged import Staged
from windrow.ingest.sinks.kafka.control import Held, OffsetSpan, PublishedSplit
from windrow.ingest.sinks.kafka.stage import StagedMessages
from windrow.ingest.sinks.window_table import judge


class WindowWork(msgspec.Struct, frozen=True):
    """A window that is to be committed: its receipt, and of each split that has any
    rows its staged files and their checksum.
    """

    receipt: Receipt
    files: Mapping[int, list[StagedMessages]]
    checksums: Mapping[int, str]

    @classmethod
    def of(cls, receipt: Receipt, staged: Sequence[Staged]) -> WindowWork:
        """What was staged, by the numbers of the splits in the plan."""
        numbers = {split: n for n, split in enumerate(receipt.plan.splits)}
        # of another plan than the staged one's the decision is to refuse it
        known = [s for s in staged if s.split in numbers]
        files = {
            numbers[s.split]: [msgspec.json.decode(word, type=StagedMessages) for word in s.rows]
            for s in known
            if s.rows
        }
        sums = {numbers[s.split]: s.counts.checksums for s in known}
        return cls(receipt, files, {n: c.rows for n, c in sums.items()})

    def published(self, number: int, places: tuple[OffsetSpan, ...]) -> PublishedSplit:
        """The record of a split."""
        receipt, split = self.receipt, self.receipt.plan.splits[number]
        return PublishedSplit(
            receipt.window.key,
            number,
            receipt.digest,
            split.topic,
            split.partition,
            split.start,
            split.stop,
            sum(f.rows for f in self.files[number]),
            self._same(number),
            self.checksums.get(number, "0" * 16),
            receipt.attempt,
            places,
        )

    def refuse_other(self, split: PublishedSplit) -> None:
        """A split that is published counts if it has the rows of this attempt.

        Raises:
            RefusedError: it was published under another plan, or has other rows.
        """
        key, where = self.receipt.window.key, (split.topic, split.partition, split.start)
        if split.digest != self.receipt.digest:
            what = (
                f"Of window {key} a split was published by attempt {split.attempt} under another"
                f" plan: digest {split.digest[:12]} there"
            )
            do = (
                f"Here it is {self.receipt.digest[:12]}. Set state back to the ledger that the"
                " window was begun with."
            )
            raise RefusedError(what, "commit", do, *where)
        if split.same != self._same(split.number):
            what = (
                f"Of window {key} a split was published by attempt {split.attempt} with other rows:"
                f" {split.rows} there"
            )
            what += f", {sum(f.rows for f in self.files.get(split.number, ()))} here"
            do = (
                "Messages can't be taken back. Set schema and rules back to what they were then,"
                " and run the window again."
            )
            raise RefusedError(what, "commit", do, *where)

    def whole(self, published: Mapping[int, PublishedSplit]) -> Receipt:
        """The receipt of what the topic has: of a split that another attempt published, its checksum.

        Raises:
            RefusedError: a split isn't published, whose record was there.
        """  # noqa: E501
        missing = sorted(self.files.keys() - published.keys())
        if missing:
            what = (
                f"{len(missing)} splits of window {self.receipt.window.key} were published, and the"
                " control topic doesn't say so"
            )
            raise RefusedError(
                what,
                "commit",
                "Was the control topic made anew meanwhile? Restore it, then run the window again.",
            )
        others = {
            (s.topic, s.partition, s.start): s.checksum
            for s in published.values()
            if s.attempt != self.receipt.attempt
        }
        return msgspec.structs.replace(
            self.receipt, splits=tuple(_with_checksum(s, others) for s in self.receipt.splits)
        )

    def left(self, numbers: Iterable[int], control: Held) -> list[int]:
        """Those of some splits that have rows and aren't published."""
        published = control.splits.get(self.receipt.window.key, {})
        return [n for n in numbers if n in self.files and n not in published]

    @property
    def in_order(self) -> list[int]:
        """The numbers of the splits that have any rows, in the order of the log."""
        return sorted(self.files, key=lambda n: self.receipt.plan.splits[n])

    def _same(self, number: int) -> str:
        return "+".join(file.same for file in self.files.get(number, ()))


def _with_checksum(counts: SplitCounts, others: Mapping[tuple[str, int, int], str]) -> SplitCounts:
    there = others.get((counts.topic, counts.partition, counts.start))
    if there is None:
        return counts
    return msgspec.structs.replace(counts, checksums=Checksums(there, counts.checksums.dead))


def judged(place: str, work: WindowWork, control: Held | None) -> Committed | None:
    """The window's receipt, if the control topic has it. `place`: the table's.

    Raises:
        WindrowError: it may not be committed on what the table holds.
    """
    if control is None or control.is_new:
        raise RefusedError(
            f"the table {place} isn't there any more", "commit", "Run the window again."
        )
    receipt = work.receipt
    committed = judge(place, control, receipt)
    if committed is None:
        for split in control.splits.get(receipt.window.key, {}).values():
            work.refuse_other(split)
        refuse_half_published(work, control)
    return committed


def refuse_half_published(work: WindowWork, control: Held) -> None:
    """Offsets of splits of other windows, that are published and whose window isn't
    committed yet, are taken too.

    Raises:
        OverlapError: naming the window, and where.
    """
    mine, key = work.receipt.plan.splits, work.receipt.window.key
    for other in (
        s for window, splits in control.splits.items() if window != key for s in splits.values()
    ):
        for split in mine:
            same = (split.topic, split.partition) == (other.topic, other.partition)
            if same and split.start < other.stop and other.start < split.stop:
                first = max(split.start, other.start)
                what = (
                    f"offsets from {first} on of window {key} are published already, under window"
                    f" {other.window}, which isn't committed yet"
                )
                do = (
                    f"Was the ledger lost, or restored? Run window {other.window} by the ledger"
                    " that it was begun with."
                )
                raise OverlapError(what, "commit", do, split.topic, split.partition, first)


def refuse_out_of_order(work: WindowWork, control: Held) -> None:
    """A window whose messages replace others can't come after a later one: its older
    messages would be the last of their keys.

    Raises:
        RefusedError: naming a later window that is committed.
    """
    key = work.receipt.window.key
    later = max((other for other in control.windows if other > key), default=None)
    if later is not None:
        what = (
            f"window {key} can't be published behind window {later}: of each key the last message"
            " counts, and its messages are older"
        )
        do = (
            "Nothing of it was published. Run windows in their order; to have this one too, begin a"
            " pipeline with another id and topic."
        )
        raise RefusedError(what, "commit", do)


def no_other_generation(receipt: Receipt) -> RefusedError:
    """Why a committed window is not replaced, nor its dead letters replayed."""
    what = f"window {receipt.window.key} is committed, and messages can't be taken back"
    return RefusedError(
        what, "commit", "To write them again, begin a pipeline with another id and another topic."
    )


def last_places(published: Iterable[PublishedSplit]) -> dict[tuple[str, int], int]:
    """Per target topic-partition the last offset at which a message of these splits lies."""
    found: dict[tuple[str, int], int] = {}
    for place in (place for split in published for place in split.places):
        at = (place.topic, place.partition)
        found[at] = max(place.last, found.get(at, -1))
    return found
