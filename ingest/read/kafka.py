"""One split of real Kafka into Arrow batches, through confluent-kafka: `ports.Reader`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from ingest.errors import DataLossError
from ingest.model import Split
from ingest.ports import ReadSummary
from ingest.read.batching import Gatherer
from ingest.read.columns import byte_ends, to_batch
from ingest.read.cursor import Cursor
from ingest.read.gaps import Gaps
from ingest.read.identity import check_identity

ROWS_MAX = 32_768
BYTES_MAX = 16 * 1024 * 1024
STALL_SECONDS = 60.0

_FORCED = {
    "enable.partition.eof": True,  # else the end behind a compacted batch is never noticed
    "auto.offset.reset": "error",  # else a start that is gone is skipped in silence
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "check.crcs": True,
}
"""What this reader's promises stand on, whatever the properties say."""

_LOOK = {"isolation.level": "read_uncommitted", "queued.max.messages.kbytes": 1024}


@dataclass
class KafkaReader:
    """Reads splits with plain consumers that belong to no group's life: assigned, never subscribed, nothing committed.

    `properties` are librdkafka's for a consumer; `topics` are the topic ids of the plan by name; `stall_seconds` is how long nothing may
    come. Memory is bounded by `rows_max` and `bytes_max` (keys and values of one batch, held twice for a moment) and by librdkafka's queue.
    """

    properties: Mapping[str, Any] = field(repr=False)
    cluster_id: str
    topics: Mapping[str, str]
    stall_seconds: float = STALL_SECONDS
    rows_max: int = ROWS_MAX
    bytes_max: int = BYTES_MAX
    _summary: ReadSummary | None = field(default=None, init=False, repr=False)

    def batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        """See `ports.Reader.batches`.

        Raises:
            SpecError: the cluster refuses this client.
            RefusedError: the client met something in the log that it can't read, such as a wrong checksum.
        """
        self._summary = None
        check = partial(check_identity, self.properties, split, self.cluster_id, self.topics[split.topic], self.stall_seconds)
        check()
        gatherer, gaps = Gatherer(self.rows_max, self.bytes_max), Gaps(split.start)
        read = size = 0
        with closing(Cursor({**self.properties, **_FORCED}, split, self.stall_seconds, check)) as cursor:
            for messages in cursor.messages():
                batch = to_batch(split.tp, messages)
                ends = byte_ends(batch)
                gaps.note(batch.column("offset").to_numpy())
                read += batch.num_rows
                size += int(ends[-1])
                yield from gatherer.add(batch, ends)
        yield from gatherer.rest()
        gaps.note_end(split.stop)
        aborted = sum(self._aborted(split, start, stop, check) for start, stop in gaps.found)
        self._summary = ReadSummary(cursor.position, read, size, aborted)

    def summary(self) -> ReadSummary:
        """See `ports.Reader.summary`."""
        if self._summary is None:
            msg = "summary() before a split was read to its end"
            raise RuntimeError(msg)
        return self._summary

    def _aborted(self, split: Split, start: int, stop: int, check: partial[None]) -> int:
        """How many messages lie in a gap for one who looks at undecided and aborted ones too.

        Everything below the split's stop is decided, so what is seen there, and was not seen before, was aborted. What retention has
        removed since the read is not counted: the read itself was whole.
        """
        gap = Split(split.topic, split.partition, start, stop)
        with closing(Cursor({**self.properties, **_FORCED, **_LOOK}, gap, self.stall_seconds, check)) as cursor:
            try:
                return sum(map(len, cursor.messages()))
            except DataLossError:
                return 0
