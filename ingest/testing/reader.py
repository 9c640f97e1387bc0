"""The in-memory broker's reader: `ports.Reader` on a `MemoryBroker`, in the same process only."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from weakref import WeakValueDictionary

import pyarrow as pa

from ingest.errors import IdentityError, SpecError
from ingest.messages import MESSAGES, TIMESTAMP_TYPES
from ingest.model import Split
from ingest.ports import ReadSummary
from ingest.testing.broker import MemoryBroker
from ingest.testing.log import NO_TIMESTAMP, Entry

_readers: WeakValueDictionary[str, MemoryReader] = WeakValueDictionary()


class MemoryReader:
    """Reads splits of a `MemoryBroker`.

    `cluster_id` and `topics` (topic ids by name) are those of the plan; None asks for no particular one. A pickled reader comes back as
    this very object, so it must come back in this process and while this object lives.
    """

    def __init__(
        self, broker: MemoryBroker, *, cluster_id: str | None = None, topics: Mapping[str, str] | None = None,
        rows_max: int = 65_536, bytes_max: int = 16 * 1024 * 1024,
    ) -> None:  # fmt: skip
        self._broker = broker
        self._cluster_id = cluster_id
        self._topics = None if topics is None else dict(topics)
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._summary: ReadSummary | None = None
        self._name = str(uuid.uuid4())
        _readers[self._name] = self

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Travels as a name: the logs stay where they are."""
        return _find, (self._name,)

    def batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        """See `ports.Reader.batches`."""
        self._summary = None
        self._check_identity(split)
        position, read, size, aborted = split.start, 0, 0, 0
        while position < split.stop:
            entries, position = self._broker.fetch(split.tp, position, split.stop, self._rows_max)
            visible = [e for e in entries if e.visible]
            read += len(visible)
            size += sum(map(_size, visible))
            aborted += sum(e.aborted for e in entries)
            for piece in _pieces(visible, self._bytes_max):
                yield _batch(split, piece)
        self._summary = ReadSummary(position, read, size, aborted)

    def summary(self) -> ReadSummary:
        """See `ports.Reader.summary`."""
        if self._summary is None:
            msg = "summary() before a split was read to its end"
            raise RuntimeError(msg)
        return self._summary

    def _check_identity(self, split: Split) -> None:
        try:
            topic_id = self._broker.topic(split.topic).topic_id
        except SpecError as gone:
            raise _other(split, f"topic {split.topic} is gone") from gone
        if self._cluster_id is not None and self._broker.cluster_id() != self._cluster_id:
            raise _other(split, f"this is cluster {self._broker.cluster_id()}, the plan was made on {self._cluster_id}")
        if self._topics is not None and topic_id != self._topics[split.topic]:
            raise _other(split, f"topic {split.topic} has id {topic_id}, the plan was made for {self._topics[split.topic]}")


def _find(name: str) -> MemoryReader:
    reader = _readers.get(name)
    if reader is None:
        msg = "a MemoryReader can't leave the process of its broker; use an engine that runs its tasks here"
        raise RuntimeError(msg)
    return reader


def _other(split: Split, what: str) -> IdentityError:
    do = "Offsets of another topic mean nothing here: go back to the old one, or begin a new pipeline with an id and a table of its own."
    return IdentityError(what, "read", do, split.topic, split.partition)


def _size(entry: Entry) -> int:
    return len(entry.key or b"") + len(entry.value or b"")


def _pieces(entries: Sequence[Entry], bytes_max: int) -> Iterator[Sequence[Entry]]:
    """Runs of at most `bytes_max`; a single message may be larger."""
    first, size = 0, 0
    for i, entry in enumerate(entries):
        if i > first and size + _size(entry) > bytes_max:
            yield entries[first:i]
            first, size = i, 0
        size += _size(entry)
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
