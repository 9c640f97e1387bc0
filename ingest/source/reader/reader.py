"""Reads a split of a Kafka topic into Arrow batches: a `ports.reader.Reader`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import numpy as np
import numpy.typing as npt

from windrow.ingest.client_cache import keep, take_client
from windrow.ingest.errors import DataLossError
from windrow.ingest.kafka.allowed_properties import Value
from windrow.ingest.kafka.client_properties import Recipe, reveal_secrets
from windrow.ingest.kafka.identity import IdentityCheck
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.reader import ReadPlan, ReadSummary, Take
from windrow.ingest.source.reader.batches import Gatherer, byte_ends, first_later, header_ends
from windrow.ingest.source.reader.cursor import Cursor
from windrow.ingest.source.reader.fetching import Fetching
from windrow.ingest.source.reader.librdkafka import connect

GAPS_MAX = 100
OFFSETS_MAX = 1_000_000


@dataclass
class Gaps:
    """The first gaps of at least two offsets.

    A gap of one offset is a transaction marker or a compacted message, and isn't recorded.

    Attributes:
        expected: the next offset if no gap follows.
        ranges: the first offset of each gap, and the first offset after it.
    """

    expected: int
    ranges: list[tuple[int, int]] = field(default_factory=list)
    _offsets_left: int = OFFSETS_MAX

    def add_visible(self, offsets: npt.NDArray[np.int64]) -> None:
        """Adds the offsets of visible messages, ascending, none of them below `expected`."""
        last = int(offsets[-1])
        if last - self.expected != len(offsets) - 1:
            starts = np.concatenate(([self.expected], offsets[:-1] + 1))
            for i in np.flatnonzero(offsets - starts >= 2)[:GAPS_MAX]:
                self._keep(int(starts[i]), int(offsets[i]))
        self.expected = last + 1

    def add_end(self, stop: int) -> None:
        """Records that the reader has seen no more messages before `stop`."""
        if stop - self.expected >= 2:
            self._keep(self.expected, stop)

    def add_skipped(self, start: int, stop: int) -> None:
        """Records that no more messages were seen before `start`, and none exist up to `stop`."""
        self.add_end(start)
        self.expected = stop

    def _keep(self, start: int, stop: int) -> None:
        stop = min(stop, start + self._offsets_left)
        if len(self.ranges) < GAPS_MAX and start < stop:
            self.ranges.append((start, stop))
            self._offsets_left -= stop - start


ROWS_MAX = 32_768
BYTES_MAX = 16 * 1024 * 1024
STALL_SECONDS = 60.0
# The limit for checking the cluster's identity, even if a read may stall for hours.
_ANSWER_SECONDS = 60.0

_FORCED = {
    "enable.partition.eof": True,  # without it, the end after a compacted batch is never noticed
    "auto.offset.reset": "error",  # without it, a missing start is skipped silently
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "check.crcs": True,
}
"""The properties that this reader's promises depend on; they override the user's."""

_SINGLE_BATCHES = {"fetch.message.max.bytes": 1, "queued.min.messages": 1}
"""Properties by which a fetch brings one batch of Kafka: a broker sends a first one whole."""

_COMMITTED, _UNCOMMITTED = "read_committed", "read_uncommitted"
_LOOK = {"isolation.level": _UNCOMMITTED, "queued.max.messages.kbytes": 1024}


@dataclass(frozen=True)
class KafkaReader:
    """Reads splits with clients that are assigned, never subscribed, and that commit nothing.

    While a worker takes splits of one job (`ingest.client_cache`), it reads them with the
    same clients and asks for the cluster's identity once. That is enough, because the driver
    asks before the job and before each commit. Without a job each read has its own clients.

    Memory is bounded by `rows_max`, by `bytes_max` (a batch may be held twice for a moment)
    and by librdkafka's queue.

    Attributes:
        properties: librdkafka's properties of a consumer, with the isolation level.
            References to secrets are resolved at each read.
        plan: the ids of the planned cluster and topics, and what to do on data loss.
        stall_seconds: how long no message may arrive.
        rows_max: the most rows of a batch.
        bytes_max: the most bytes of keys, values and headers of a batch.
        fetching: makes the clients.
    """

    properties: Recipe = field(repr=False)
    plan: ReadPlan
    stall_seconds: float = STALL_SECONDS
    rows_max: int = ROWS_MAX
    bytes_max: int = BYTES_MAX
    fetching: Fetching = connect

    def __post_init__(self) -> None:
        """Checks that the isolation level is set, so that librdkafka's default is never used."""
        if self.properties.get("isolation.level") not in {_COMMITTED, _UNCOMMITTED}:
            msg = f"isolation.level must be {_COMMITTED} or {_UNCOMMITTED}"
            raise ValueError(msg)

    def read(self, split: Split, take: Take) -> ReadSummary:
        """Reads a split, as `ports.reader.Reader.read` describes.

        Raises:
            SpecError: the cluster refuses this client, or the reference to a secret leads to
                no secret.
            RefusedError: the client met data in the log that it can't read, such as a wrong
                checksum.
        """
        properties = reveal_secrets(self.properties)
        if self.plan.single_batches:
            properties = {**properties, **_SINGLE_BATCHES}
        client = IdentityCheck, frozenset(properties.items())
        identity = cast("IdentityCheck | None", take_client(client)) or IdentityCheck(properties)
        planned = (
            split,
            self.plan.cluster_id,
            self.plan.topics[split.topic],
            min(self.stall_seconds, _ANSWER_SECONDS),
        )
        identity.check(*planned)
        summary = self._read(properties, split, take, partial(identity.check, *planned, anew=True))
        keep(client, identity)
        return summary

    def _read(
        self, properties: Mapping[str, Value], split: Split, take: Take, check: partial[None]
    ) -> ReadSummary:
        gatherer, gaps = Gatherer(self.rows_max, self.bytes_max), Gaps(split.start)
        read = size = 0
        skip = gaps.add_skipped if self.plan.on_loss == "skip" else None
        with closing(
            Cursor(self.fetching, {**properties, **_FORCED}, split, self.stall_seconds, check, skip)
        ) as cursor:
            for batch in (batch for fetched in cursor.messages() for batch in fetched.batches):
                later = first_later(batch, split.stop_epoch)
                planned = batch if later is None else batch.slice(0, later)
                if planned.num_rows:
                    ends = byte_ends(planned)
                    gaps.add_visible(planned.column("offset").to_numpy())
                    read += planned.num_rows
                    size += int(ends[-1])
                    for full_batch in gatherer.add(planned, ends + header_ends(planned)):
                        take(full_batch)
                if later is not None:
                    cursor.lose_from(batch.column("offset")[later].as_py())
                    break
        for full_batch in gatherer.rest():
            take(full_batch)
        gaps.add_end(split.stop)
        aborted = (
            self._count_aborted(properties, split, gaps, check)
            if properties["isolation.level"] == _COMMITTED
            else 0
        )
        return ReadSummary(cursor.position, read, size, aborted, cursor.skipped, cursor.diverged)

    def _count_aborted(
        self, properties: Mapping[str, Value], split: Split, gaps: Gaps, check: partial[None]
    ) -> int:
        """Counts the aborted messages, by reading the gaps with read_uncommitted.

        All transactions below the split's stop are decided. So a message that is seen in a
        gap, and was not visible before, was aborted. Messages that retention has removed since
        the read are not counted; the read itself was complete. The last gap is read first,
        because retention removes the oldest messages first.
        """
        looking = {**properties, **_FORCED, **_LOOK}
        count = 0
        for start, stop in reversed(gaps.ranges):
            gap = Split(split.topic, split.partition, start, stop)
            with closing(Cursor(self.fetching, looking, gap, self.stall_seconds, check)) as cursor:
                try:
                    count += sum(fetched.count for fetched in cursor.messages())
                except DataLossError:
                    return count
        return count
