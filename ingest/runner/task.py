"""The task of one split, on an executor: read -> decode -> transform -> stage.

Only this module and `run_windows.py` decide the order of steps.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import RefusedError, SpecError, UnstorableRowsError
from windrow.ingest.model.ledger_records import PoisonPill
from windrow.ingest.model.lookup import LookedUp, merge_parts
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Checksums, SplitCounts, Staged, Staging
from windrow.ingest.model.refusal_summary import Refusals
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.dead_letters import REASONS
from windrow.ingest.ports.decoder import SCHEMA, Decoded, Decoder, Refusal, checked_verdict
from windrow.ingest.ports.reader import Reader, ReadSummary
from windrow.ingest.ports.schema_registry import UsesSchemas
from windrow.ingest.ports.sink import Stager, StagerFactory
from windrow.ingest.ports.transform import Transform
from windrow.ingest.runner.accounting import SHOWN, refuse_misread, refuse_unplaced
from windrow.ingest.runner.message_times import LateBins, MessageTimes
from windrow.ingest.runner.poison_pills import leaving_out
from windrow.ingest.runner.progress import ReadProgress
from windrow.ingest.schema.messages import for_rows
from windrow.ingest.schema.row_changes import changes, only_rows

MOST_MESSAGES, MOST_BYTES = 1_000, 1 << 20
"""Limits of the messages of a split whose unknown fields are named: their number and bytes.

The values of these messages are parsed a second time, which is slow. The last message may go
beyond the limit of bytes.
"""

MOST_FIELDS, LONGEST = 20, 100
"""Limits of the unknown fields of a split: how many are named, and the characters of a name."""

OTHERS = "others"
"""Name under which all fields beyond `MOST_FIELDS` are counted together."""


@dataclass
class IgnoredFields:
    """Counts of a split's messages that have unknown fields: fields without a column.

    Attributes:
        messages: the number of these messages.
        fields: paths of unknown fields, each with the number of messages that have it. Only
            messages within `MOST_MESSAGES` and `MOST_BYTES` are counted.
    """

    messages: int = 0
    fields: Counter[str] = field(default_factory=Counter)
    _looked: int = 0
    _bytes: int = 0

    def add(self, messages: pa.RecordBatch, decoded: Decoded) -> None:
        """Counts a batch of messages."""
        index = decoded.ignoring
        self.messages += len(index)
        room = MOST_MESSAGES - self._looked if self._bytes < MOST_BYTES else 0
        values = messages.column("value").take(pa.array(index[:room]))
        sizes = self._bytes + np.cumsum(pc.fill_null(pc.binary_length(values), 0).to_numpy())
        looked = index[:room][: 1 + np.searchsorted(sizes, MOST_BYTES)]
        self._looked += len(looked)
        self._bytes = int(sizes[len(looked) - 1]) if len(looked) else self._bytes
        for part in decoded.ignored if len(looked) else ():
            for position in np.flatnonzero(np.isin(part.index, looked)).tolist():
                for path in {path[:LONGEST]: None for path in part.fields(position)}:
                    named = path in self.fields or len(self.fields) < MOST_FIELDS
                    self.fields[path if named else OTHERS] += 1


@dataclass(frozen=True)
class SplitTask:
    """The task that stages one split. It is picklable, and called once per task attempt.

    A failed or repeated attempt leaves staged files that no commit refers to.

    Attributes:
        reader: reads the messages of the split.
        decoder: turns messages into rows.
        transform: changes the rows.
        rows: makes the stager of the rows.
        dead: makes the stager of the dead letters.
        late_bins: bounds that the messages' timestamps are compared with; None for a
            micro-batch.
        keyed: True if the table has a primary key. Then changes are staged, which are rows
            and deletes (`ingest.schema.row_changes`).
        progress: reports how far the task has read.
        poison_pills: the messages that are left out, and become dead letters.
    """

    reader: Reader
    decoder: Decoder
    transform: Transform
    rows: StagerFactory
    dead: StagerFactory
    late_bins: LateBins | None = None
    keyed: bool = False
    progress: ReadProgress = field(default_factory=ReadProgress)
    poison_pills: tuple[PoisonPill, ...] = ()

    def __call__(self, split: Split) -> Staged:
        """Reads, decodes, transforms and stages one split, in batches to limit memory."""
        with self.progress.reporter_of(split) as reached:
            began = time.time()
            schemas = _Schemas()
            decode = (
                self.decoder.open_reporting(schemas.add)
                if isinstance(self.decoder, UsesSchemas)
                else self.decoder.open()
            )
            transform = self.transform.open()
            rows, dead = self.rows(split), self.dead(split)
            counter = _SplitCounter(split, MessageTimes(self.late_bins), self.keyed)

            judge = leaving_out(
                self.poison_pills,
                split,
                lambda messages: transform(
                    checked_verdict(self.decoder, decode(messages)), messages
                ),
            )

            def take(messages: pa.RecordBatch) -> None:
                try:
                    decoded = judge(messages)
                except (RefusedError, SpecError) as error:
                    if error.topic is None:  # else it knows the message
                        error.topic, error.partition = split.topic, split.partition
                        error.offset = messages["offset"][0].as_py()
                    raise
                counter.check(messages, decoded)
                decoded = stage_rows(rows, messages, decoded, keyed=self.keyed)
                counter.add(messages, decoded)
                if len(decoded.dead_index):
                    self._stage_dead(dead, messages.take(decoded.dead_index), decoded)
                reached(counter.position)
                crash_point("write.middle")

            try:
                summary = self.reader.read(split, take)
                staged_dead, staged_rows = dead.finish(), rows.finish()
                crash_point("write.after")
            except BaseException:
                rows.discard()
                dead.discard()
                raise
            counts = counter.counts(summary, staged_rows, staged_dead)
            if schemas.used:
                counts = msgspec.structs.replace(counts, schemas=tuple(sorted(schemas.used)))
            return Staged(
                split,
                counts,
                staged_rows.committables,
                staged_dead.committables,
                counter.refusals.by_stage(),
                tuple(schemas.requested),
                (began, time.time()),
            )

    def _stage_dead(self, dead: Stager, refused: pa.RecordBatch, decoded: Decoded) -> None:
        """Stages refused messages with their reasons, and the schema ids in the messages."""
        stages, decoder = decoded.dead_stage, self.decoder
        ids = (
            decoder.schema_ids(refused, stages)
            if isinstance(decoder, UsesSchemas)
            else pa.nulls(refused.num_rows, pa.string())
        )
        dead.add(
            pa.RecordBatch.from_arrays(
                [stages, decoded.dead_reason, decoded.dead_detail, ids], schema=REASONS
            ),
            refused,
        )


def stage_rows(rows: Stager, messages: pa.RecordBatch, decoded: Decoded, *, keyed: bool) -> Decoded:
    """Stages the rows or changes of a batch of messages.

    Args:
        rows: the stager.
        messages: the batch of messages.
        decoded: the result of the transform.
        keyed: see `SplitTask`.

    Returns:
        The batch as staged. Messages with a row that the table can't hold became dead
        letters.
    """
    while True:
        staged, of_rows, index = _with_messages(messages, decoded, keyed=keyed)
        try:
            if staged.num_rows:
                rows.add(staged, of_rows)
        except UnstorableRowsError as refused:  # the loop ends: each turn has fewer rows
            refusal = Refusal(
                np.asarray(refused.row_indices, np.intp), "unstorable", refused.message
            )
            decoded = decoded.refused(SCHEMA, [refusal], index)
        else:
            return decoded


def rows_with_messages(
    messages: pa.RecordBatch, decoded: Decoded, *, keyed: bool
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Returns the rows or changes of a batch of messages, and the message of each row.

    Args:
        messages: the batch of messages.
        decoded: the result of the transform.
        keyed: True for changes; see `SplitTask`.
    """
    staged, of_rows, _ = _with_messages(messages, decoded, keyed=keyed)
    return staged, of_rows


def _with_messages(
    messages: pa.RecordBatch, decoded: Decoded, *, keyed: bool
) -> tuple[pa.RecordBatch, pa.RecordBatch, pa.Int64Array]:
    """Returns the result of `rows_with_messages`, and the index of each row's message."""
    if not keyed:
        one_each = decoded.rows.num_rows == decoded.valid == messages.num_rows
        return (
            decoded.rows,
            messages if one_each else for_rows(messages, decoded.row_index),
            decoded.row_index,
        )
    deletes = decoded.deletes
    if deletes is None or not len(deletes.index):
        changed, index = only_rows(decoded.rows, decoded.unavailable), decoded.row_index
    else:
        changed, index = changes(
            decoded.rows, decoded.row_index, deletes.keys, deletes.index, decoded.unavailable
        )
    return changed, for_rows(messages, index), index


@dataclass
class _Schemas:
    """The writers' schemas of a split's messages.

    Attributes:
        used: id and digest of each schema.
        requested: the schemas that the registry was asked for.
    """

    used: set[tuple[str, str]] = field(default_factory=set)
    requested: list[WriterSchema] = field(default_factory=list)

    def add(self, schema: WriterSchema, is_requested: bool) -> None:
        self.used.add((schema.id, schema.digest))
        if is_requested:
            self.requested.append(schema)


@dataclass
class _SplitCounter:
    """The task's own counts, independent of the counts of reader and stager.

    Attributes:
        times: the counts of the messages by time.
        keyed: see `SplitTask`.
        position: the offset after the last message that was read.
        valid: number of messages with rows or deletes.
        dead: number of refused messages.
        dropped: number of messages without a value that the spec says to leave out.
        filtered: number of messages that a transform leaves out.
        truncated: number of messages that lost a part of a timestamp below a microsecond.
        reasons: number of dead letters by reason.
        refusals: the refusals, with stages, details and offsets.
        first_dead: offset and reason of the first dead letters.
        lookups: the counts of the lookups.
        ignored: the counts of unknown fields.
    """

    split: Split
    times: MessageTimes
    keyed: bool
    position: int = field(init=False)
    rows: int = 0
    deletes: int = 0
    valid: int = 0
    dead: int = 0
    dropped: int = 0
    filtered: int = 0
    truncated: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    refusals: Refusals = field(default_factory=Refusals)
    first_dead: list[tuple[int, str]] = field(default_factory=list)
    lookups: tuple[LookedUp, ...] = ()
    ignored: IgnoredFields = field(default_factory=IgnoredFields)

    def __post_init__(self) -> None:
        self.position = self.split.start

    def check(self, messages: pa.RecordBatch, decoded: Decoded) -> None:
        self.position = refuse_misread(self.split, messages, self.position)
        refuse_unplaced(self.split, messages, decoded, keyed=self.keyed)

    def add(self, messages: pa.RecordBatch, decoded: Decoded) -> None:
        self.rows += decoded.rows.num_rows
        self.deletes += 0 if decoded.deletes is None else decoded.deletes.keys.num_rows
        self.valid += decoded.valid
        self.dead += len(decoded.dead_index)
        self.dropped += decoded.dropped
        self.filtered += decoded.filtered
        self.truncated += decoded.truncated
        self.ignored.add(messages, decoded)
        self.lookups = merge_parts([*self.lookups, *decoded.lookups])
        reasons = decoded.dead_reason.to_pylist()
        if reasons:
            offsets = messages.column("offset").take(decoded.dead_index).to_pylist()
            self.reasons.update(reasons)
            self.refusals.add(
                decoded.dead_stage.to_pylist(), reasons, decoded.dead_detail.to_pylist(), offsets
            )
            room = SHOWN - len(self.first_dead)
            self.first_dead += zip(offsets[:room], reasons[:room], strict=True)
        self.times.add(messages, decoded)

    def counts(self, summary: ReadSummary, rows: Staging, dead: Staging) -> SplitCounts:
        split = self.split
        return SplitCounts(
            topic=split.topic,
            partition=split.partition,
            start=split.start,
            stop=split.stop,
            next_offset=summary.next_offset,
            read=summary.read,
            bytes=summary.bytes,
            aborted=summary.aborted,
            skipped=summary.skipped,
            diverged=summary.diverged,
            valid=self.valid,
            dead=self.dead,
            dropped=self.dropped,
            rows_staged=rows.rows,
            dead_staged=dead.rows,
            reasons=tuple(sorted(self.reasons.items())),
            first_dead=tuple(self.first_dead),
            **self.times.figures(),
            checksums=Checksums(rows.checksum, dead.checksum),
            rows=self.rows,
            filtered=self.filtered,
            truncated=self.truncated,
            deletes=self.deletes,
            lookups=self.lookups,
            ignored=self.ignored.messages,
            ignored_fields=tuple(self.ignored.fields.items()),
        )
