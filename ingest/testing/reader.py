"""A reader of the in-memory broker: a `ports.reader.Reader` in the broker's process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from weakref import WeakValueDictionary

import pyarrow as pa

from windrow.ingest.errors import DataLossError, IdentityError, SpecError, format_count
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.reader import ReadPlan, ReadSummary, Take
from windrow.ingest.schema.messages import MESSAGES, TIMESTAMP_TYPES
from windrow.ingest.source.data_loss import REMOVED
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.partition_log import NO_TIMESTAMP, Entry

_readers: WeakValueDictionary[str, MemoryReader] = WeakValueDictionary()


class MemoryReader:
    """A reader of a `MemoryBroker`'s splits, at the broker's isolation level.

    It is pickled by a name. Unpickling gives this same object, so it works only in this
    process, while the object lives.

    Args:
        broker: the broker.
        plan: the cluster, the topics and the policy for lost messages. None: any cluster and
            topics, and lost messages raise an error.
        rows_max: the largest number of entries in a batch.
        bytes_max: the largest size of a batch, except for a single larger message.
    """

    def __init__(
        self,
        broker: MemoryBroker,
        plan: ReadPlan | None = None,
        *,
        rows_max: int = 65_536,
        bytes_max: int = 16 * 1024 * 1024,
    ) -> None:
        self._broker = broker
        self._plan = plan
        self._skips = plan is not None and plan.on_loss == "skip"
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._name = str(uuid.uuid4())
        _readers[self._name] = self

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Pickles the reader as a name: the logs stay in this process."""
        return _find, (self._name,)

    def read(self, split: Split, take: Take) -> ReadSummary:
        self._check_identity(split)
        position, read, size, aborted, skipped = split.start, 0, 0, 0, 0
        diverged = self._is_diverged(split)
        while position < split.stop:
            start, stop = self._remaining(split, position, diverged=diverged)
            skipped += start - position
            position = start
            if position == stop:
                skipped, position = skipped + split.stop - stop, split.stop
                break
            try:
                entries, position = self._broker.fetch(split.tp, position, stop, self._rows_max)
            except DataLossError:
                if self._skips:
                    continue  # messages were removed just now: ask again for the log's start
                raise
            # a message of a later epoch means: the log was cut off and has grown again
            later = next((e.offset for e in entries if e.visible and _is_later(e, split)), None)
            if later is not None:
                self._refuse_lost(split, later)
                entries = [e for e in entries if e.offset < later]
                skipped, position = skipped + split.stop - later, split.stop
            visible = [e for e in entries if e.visible]
            read += len(visible)
            size += sum(map(_size, visible))
            aborted += sum(e.aborted for e in entries)
            for piece in _pieces(visible, self._bytes_max):
                take(_batch(split, piece))
        return ReadSummary(position, read, size, aborted, skipped, diverged)

    def _remaining(self, split: Split, position: int, *, diverged: bool) -> tuple[int, int]:
        """Returns start and stop of the part of [position, split.stop) that the log still has.

        Raises:
            DataLossError: the log doesn't have all of it, and the plan doesn't skip lost
                messages.
        """
        low, high = (
            self._broker.log_starts([split.tp])[split.tp],
            self._broker.ends([split.tp])[split.tp],
        )
        start, stop = min(max(position, low), split.stop), min(high, split.stop)
        if self._is_cut(
            split,
            position,
            split.stop_epoch if diverged or position > split.start else split.leader_epoch,
        ):
            start = stop = position
        if (start, stop) == (position, split.stop):
            return start, stop
        self._refuse_lost(split, position)
        return start, max(start, stop)

    def _refuse_lost(self, split: Split, position: int) -> None:
        if not self._skips:
            low, high = (
                self._broker.log_starts([split.tp])[split.tp],
                self._broker.ends([split.tp])[split.tp],
            )
            others = low <= position and split.stop <= high
            reason = (
                "; it was cut off and has grown again, with other messages than were planned"
                if others
                else ""
            )
            raise DataLossError(
                f"offsets from {position} to {split.stop} are wanted, but the log holds {low} to"
                f" {high}{reason}",
                "read",
                REMOVED,
                split.topic,
                split.partition,
                position,
            )

    def _is_cut(self, split: Split, position: int, epoch: int | None) -> bool:
        """Returns whether the log was cut off below a position that it had reached under an epoch.

        The log may have grown again since.
        """
        return epoch is not None and self._broker.end_of_epoch(split.tp, epoch) < position

    def _is_diverged(self, split: Split) -> bool:
        """Returns whether the log was cut off below the split's start before it was planned.

        It had grown again when the split was planned. Only a reader that skips lost messages
        checks this.
        """
        cut = self._is_cut(split, split.start, split.leader_epoch)
        return (
            self._skips
            and cut
            and split.stop_epoch is not None
            and not self._is_cut(split, split.start, split.stop_epoch)
        )

    def _check_identity(self, split: Split) -> None:
        try:
            topic = self._broker.topic(split.topic)
        except SpecError as gone:
            raise _identity_error(split, f"topic {split.topic} is gone") from gone
        if split.partition >= topic.partitions:
            raise _identity_error(
                split, f"topic {split.topic} has {format_count(topic.partitions, 'partition')}"
            )
        if self._plan is None:
            return
        if self._broker.cluster_id() != self._plan.cluster_id:
            raise _identity_error(
                split,
                f"this is cluster {self._broker.cluster_id()}, the plan was made on"
                f" {self._plan.cluster_id}",
            )
        if topic.topic_id != self._plan.topics[split.topic]:
            raise _identity_error(
                split,
                f"topic {split.topic} has id {topic.topic_id}, the plan was made for"
                f" {self._plan.topics[split.topic]}",
            )


def _find(name: str) -> MemoryReader:
    reader = _readers.get(name)
    if reader is None:
        msg = (
            "a MemoryReader can't leave the process of its broker; use an engine that runs its"
            " tasks here"
        )
        raise RuntimeError(msg)
    return reader


def _identity_error(split: Split, message: str) -> IdentityError:
    return IdentityError(
        message,
        "read",
        "Offsets of another topic mean nothing here: go back to the old one, or see what windrow"
        " rebase SPEC would mean.",
        split.topic,
        split.partition,
    )


def _is_later(entry: Entry, split: Split) -> bool:
    return split.stop_epoch is not None and entry.epoch > split.stop_epoch


def _size(entry: Entry) -> int:
    return len(entry.key or b"") + len(entry.value or b"")


def _pieces(entries: Sequence[Entry], bytes_max: int) -> Iterator[Sequence[Entry]]:
    """Yields parts of entries of at most `bytes_max` bytes each, headers included.

    A part with a single message may be larger.
    """
    first, size = 0, 0
    for i, entry in enumerate(entries):
        entry_size = _size(entry) + sum(
            len(name.encode()) + len(value or b"") for name, value in entry.headers
        )
        if i > first and size + entry_size > bytes_max:
            yield entries[first:i]
            first, size = i, 0
        size += entry_size
    if first < len(entries):
        yield entries[first:]


def _batch(split: Split, entries: Sequence[Entry]) -> pa.RecordBatch:
    columns = [
        [split.topic] * len(entries),
        [split.partition] * len(entries),
        [e.offset for e in entries],
        [None if e.timestamp == NO_TIMESTAMP else e.timestamp for e in entries],
        [TIMESTAMP_TYPES[e.timestamp_type] for e in entries],
        [e.key for e in entries],
        [e.value for e in entries],
        [[{"key": k, "value": v} for k, v in e.headers] for e in entries],
        [e.epoch for e in entries],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, MESSAGES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)
