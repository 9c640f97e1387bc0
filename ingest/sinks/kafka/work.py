"""A staged window, ready to be published, and the checks that may refuse it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from windrow.ingest.errors import OverlapError, RefusedError, format_count
from windrow.ingest.model.owner import LEDGER_ANEW
from windrow.ingest.model.receipt import Checksums, Committed, Receipt, SplitCounts, Staged
from windrow.ingest.sinks.kafka.control_records import ControlState, OffsetSpan, PublishedSplit
from windrow.ingest.sinks.kafka.stage import StagedMessages
from windrow.ingest.sinks.kit import check_receipt


class WindowWork(msgspec.Struct, frozen=True):
    """A staged window that is to be committed.

    Attributes:
        receipt: the window's receipt.
        files: the staged files of each split that has rows, by the split's number in the
            plan.
        checksums: the checksum of each split's rows, by the same number.
    """

    receipt: Receipt
    files: Mapping[int, list[StagedMessages]]
    checksums: Mapping[int, str]

    @classmethod
    def from_staged(cls, receipt: Receipt, staged: Sequence[Staged]) -> WindowWork:
        """Makes the work from a receipt and the staged splits."""
        numbers = {split: n for n, split in enumerate(receipt.plan.splits)}
        # A window that was staged under another plan is refused later.
        planned = [s for s in staged if s.split in numbers]
        files = {
            numbers[s.split]: [msgspec.json.decode(word, type=StagedMessages) for word in s.rows]
            for s in planned
            if s.rows
        }
        sums = {numbers[s.split]: s.counts.checksums for s in planned}
        return cls(receipt, files, {n: c.rows for n, c in sums.items()})

    def published(self, number: int, places: tuple[OffsetSpan, ...]) -> PublishedSplit:
        """Makes the record of a published split."""
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

    def published_splits(self, control: ControlState) -> dict[int, PublishedSplit]:
        """Returns the records of the window's published splits, by their numbers in this plan.

        A plan that was rebuilt from these records may number its splits differently. No other
        split is published under such a plan: its record would replace the record of another
        split with the same number.

        Raises:
            RefusedError: a split was published under another plan, or with other rows.
        """
        key, published = self.receipt.window.key, dict[int, PublishedSplit]()
        splits = enumerate(self.receipt.plan.splits)
        numbers = {(s.topic, s.partition, s.start, s.stop): n for n, s in splits}
        for split in control.splits.get(key, {}).values():
            where = (split.topic, split.partition, split.start)
            number = numbers.get((*where, split.stop))
            if number is None:
                raise self._other_plan(split)
            if split.same != self._same(number):
                raise RefusedError(
                    f"attempt {split.attempt} published a split of window {key} with other rows:"
                    f" {format_count(split.rows, 'message')}, and this attempt has"
                    f" {sum(f.rows for f in self.files.get(number, ()))}",
                    "commit",
                    "Published messages can't be deleted. Set schema, rules and the sink's settings"
                    " back to what they were at that attempt, and run the window again.",
                    *where,
                )
            published[number] = split
        for split in published.values():
            if split.digest != self.receipt.digest and self.files.keys() - published.keys():
                raise self._other_plan(split)
        return published

    def _other_plan(self, split: PublishedSplit) -> RefusedError:
        return RefusedError(
            f"attempt {split.attempt} published a split of window {self.receipt.window.key} under"
            f" another plan: its digest is {split.digest[:12]}, and this attempt's"
            f" {self.receipt.digest[:12]}",
            "commit",
            "Set `state` back to the ledger that the window was begun with. If that is lost:"
            f" {LEDGER_ANEW} If the window is refused then, too: later windows in time can be run"
            " without it; to publish all of it, begin a pipeline with another id, topic, control"
            " topic and staging.",
            split.topic,
            split.partition,
            split.start,
        )

    def complete_receipt(self, published: Mapping[int, PublishedSplit]) -> Receipt:
        """Returns the receipt with the checksums of the published splits.

        A split that another attempt published has the checksum of that attempt.

        Raises:
            RefusedError: the record of a published split is missing from the control topic.
        """
        missing = sorted(self.files.keys() - published.keys())
        if missing:
            raise RefusedError(
                f"{format_count(len(missing), 'split')} of window {self.receipt.window.key} were"
                " published, and their records are missing from the control topic",
                "commit",
                "If the control topic was deleted, restore it, then run the window again.",
            )
        others = {
            (s.topic, s.partition, s.start): s.checksum
            for s in published.values()
            if s.attempt != self.receipt.attempt
        }
        return msgspec.structs.replace(
            self.receipt, splits=tuple(_with_checksum(s, others) for s in self.receipt.splits)
        )

    def unpublished(self, numbers: Iterable[int], control: ControlState) -> list[int]:
        """Returns the numbers of the splits that have rows and aren't published yet."""
        published = self.published_splits(control)
        return [n for n in numbers if n in self.files and n not in published]

    @property
    def in_order(self) -> list[int]:
        """Numbers of the splits that have rows, in the order of their offsets."""
        return sorted(self.files, key=lambda n: self.receipt.plan.splits[n])

    def _same(self, number: int) -> str:
        return "+".join(file.same for file in self.files.get(number, ()))


def _with_checksum(counts: SplitCounts, others: Mapping[tuple[str, int, int], str]) -> SplitCounts:
    checksum = others.get((counts.topic, counts.partition, counts.start))
    if checksum is None:
        return counts
    return msgspec.structs.replace(counts, checksums=Checksums(checksum, counts.checksums.dead))


def check_window(location: str, work: WindowWork, control: ControlState | None) -> Committed | None:
    """Returns the window's receipt, or None if the window isn't committed.

    Args:
        location: the table's place, for messages.
        work: the window.
        control: the state of the table; None: there is no control topic.

    Raises:
        WindrowError: the window can't be committed in this state of the table.
    """
    if control is None or control.is_new:
        raise RefusedError(
            f"the table {location} doesn't exist any more", "commit", "Run the window again."
        )
    receipt = work.receipt
    committed = check_receipt(location, control, receipt)
    if committed is None:
        work.published_splits(control)
        refuse_half_published(work, control)
    return committed


def refuse_half_published(work: WindowWork, control: ControlState) -> None:
    """Checks the window's offsets against the published splits of uncommitted windows.

    Raises:
        OverlapError: another window has published some of the offsets.
    """
    planned_splits, key = work.receipt.plan.splits, work.receipt.window.key
    for published in (
        s for window, splits in control.splits.items() if window != key for s in splits.values()
    ):
        for split in planned_splits:
            same = (split.topic, split.partition) == (published.topic, published.partition)
            if same and split.start < published.stop and published.start < split.stop:
                first = max(split.start, published.start)
                raise OverlapError(
                    f"window {published.window}, which isn't committed yet, has published offsets"
                    f" from {first} on, which are in window {key}, too",
                    "commit",
                    f"If the ledger was lost or restored, run window {published.window} with the"
                    f" ledger that it was begun with. If that is lost: {LEDGER_ANEW}",
                    split.topic,
                    split.partition,
                    first,
                )


def refuse_out_of_order(work: WindowWork, control: ControlState) -> None:
    """Refuses a window if a later window is committed and messages replace each other.

    Otherwise the window's older messages would become the last ones of their keys.

    Raises:
        RefusedError: a later window is committed.
    """
    key = work.receipt.window.key
    later = max((window_key for window_key in control.windows if window_key > key), default=None)
    if later is not None:
        raise RefusedError(
            f"window {key} can't be published after window {later}: the last message of each key"
            " counts, and this window's messages are older",
            "commit",
            "Nothing was published. Run windows in their order; to publish this window, too, begin"
            " a pipeline with another id, topic and staging.",
        )


def no_other_generation(receipt: Receipt) -> RefusedError:
    """Makes the error for a replay of a committed window, or of its dead letters."""
    return RefusedError(
        f"window {receipt.window.key} is committed, and published messages can't be deleted",
        "commit",
        "To write them again, begin a pipeline with another id, topic and staging.",
    )


def last_offsets_of(published: Iterable[PublishedSplit]) -> dict[tuple[str, int], int]:
    """Returns the last offset of the splits' messages in each target topic-partition."""
    last_offset_by_log: dict[tuple[str, int], int] = {}
    for span in (span for split in published for span in split.places):
        log_key = (span.topic, span.partition)
        last_offset_by_log[log_key] = max(span.last, last_offset_by_log.get(log_key, -1))
    return last_offset_by_log
