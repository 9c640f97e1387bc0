"""What Dagster shows of a window, all of it out of the receipt that the sink itself gave back. Pure.

offsets                       table for people: per topic-partition where the window starts and stops, how that was found, what came of it
offset_ranges                 the ranges as JSON: {topic: {partition: [start, stop]}}, half-open
messages_read, rows_written, dead_letters, dropped
dead_reasons                  JSON: dead letters by reason; only where there are any
invisible                     offsets without a visible message: markers, aborted, compacted
aborted                       those of them that were seen to be aborted messages
bytes                         of the messages read
seconds, rows_per_second      of the run that wrote the window
lag_records                   offsets between the window's stop and the topic's last stable offsets
lag_seconds                   age of the window's end; 0 where nothing is left to read
delta_version                 of the commit; missing where the sink no longer knows it
generation                    0, and one more for each replacement
recovered                     the window was committed before; this run wrote nothing
receipt                       the receipt as JSON
warnings                      only where there are any
dagster/partition_row_count, dagster/column_schema, dagster/column_lineage
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

import dagster as dg

from assets.names import topic_key
from ingest.decode.columns import Columns
from ingest.model import Boundary, Receipt, SplitCounts, TopicPartition, to_json
from ingest.pipeline import Result
from resources.kafka import Snapshot

Value: TypeAlias = dg.MetadataValue[Any] | dg.TableSchema | dg.TableColumnLineage | bool | int | float | str
"""What Dagster takes as a value of metadata; plain numbers are plotted over time."""


def window_metadata(result: Result) -> dict[str, Value]:
    """Everything about one window that its receipt says."""
    receipt, counts = result.committed.receipt, result.committed.receipt.counts
    shown: dict[str, Value] = {
        "messages_read": counts.read, "rows_written": counts.valid, "dead_letters": counts.dead, "dropped": counts.dropped,
        "invisible": counts.invisible, "aborted": counts.aborted, "bytes": counts.bytes,
        "seconds": receipt.seconds, "rows_per_second": round(counts.valid / max(receipt.seconds, 0.001)),
        "generation": receipt.generation, "recovered": result.recovered,
        "offsets": offsets_table(receipt), "offset_ranges": dg.MetadataValue.json(offset_ranges(receipt)),
        "receipt": dg.MetadataValue.json(json.loads(to_json(receipt))),
        "dagster/partition_row_count": counts.valid,
        "dagster/column_schema": column_schema(receipt.schema), "dagster/column_lineage": column_lineage(receipt),
    }  # fmt: skip
    return shown | _sometimes(result)


def _sometimes(result: Result) -> dict[str, Value]:
    """What only some windows have."""
    receipt, version = result.committed.receipt, result.committed.version
    reasons: Counter[str] = Counter()
    for split in receipt.splits:
        reasons.update(dict(split.reasons))
    found: dict[str, Value] = {}
    if version is not None:
        found["delta_version"] = version
    if reasons:
        found["dead_reasons"] = dg.MetadataValue.json(dict(reasons.most_common()))
    if receipt.warnings:
        found["warnings"] = dg.MetadataValue.text("\n".join(receipt.warnings))
    return found


def lag(stop: Boundary, now: Snapshot, asked_at: datetime) -> dict[str, Value]:
    """How far the topic, as it was at `asked_at`, is ahead of a window's stop, in offsets and in time."""
    left = now.offsets(after=stop)
    return {"lag_records": left, "lag_seconds": round((asked_at - stop.label).total_seconds(), 1) if left else 0.0}


def offset_ranges(receipt: Receipt) -> dict[str, dict[str, list[int]]]:
    """Per topic and partition `[start, stop]`; also where nothing was to be read."""
    found: dict[str, dict[str, list[int]]] = {}
    for mark in receipt.plan.stop.marks:
        found.setdefault(mark.topic, {})[str(mark.partition)] = [receipt.plan.start.offset(mark.tp), mark.offset]
    return found


def offsets_table(receipt: Receipt) -> dg.TableMetadataValue:
    """One line per topic-partition."""
    counted = {TopicPartition(c.topic, c.partition): c for c in receipt.splits}
    return dg.MetadataValue.table(
        [_offsets_line(receipt, mark.tp, counted.get(mark.tp)) for mark in receipt.plan.stop.marks], schema=_OFFSETS
    )


_OFFSETS = dg.TableSchema(
    [
        dg.TableColumn("partition", "string"),
        *(dg.TableColumn(name, "int") for name in ("start", "stop", "read", "rows", "dead", "invisible")),
        dg.TableColumn("resolved", "string", description="how start and stop were found"),
    ]
)


def _offsets_line(receipt: Receipt, tp: TopicPartition, counts: SplitCounts | None) -> dg.TableRecord:
    start, stop = receipt.plan.start.by_tp().get(tp), receipt.plan.stop.by_tp()[tp]
    how = f"{start.how if start else 'new'} .. {stop.how}"
    read, rows, dead, missing = (counts.read, counts.valid, counts.dead, counts.missing) if counts else (0, 0, 0, 0)
    line: dict[str, str | int] = {
        "partition": str(tp), "start": start.offset if start else 0, "stop": stop.offset,
        "read": read, "rows": rows, "dead": dead, "invisible": missing, "resolved": how,
    }  # fmt: skip
    return dg.TableRecord(line)


OWN_COLUMNS = (("_topic", "string"), ("_partition", "int32"), ("_offset", "int64"), ("_timestamp", "timestamp"), ("_window", "string"))
"""What windrow adds to each row."""


def column_schema(columns: Sequence[tuple[str, str]]) -> dg.TableSchema:
    """The columns of a committed window: (name, type) of the schema it was read with, and windrow's own."""
    return dg.TableSchema([dg.TableColumn(name, kind) for name, kind in (*columns, *OWN_COLUMNS)])


def declared_schema(columns: Columns) -> dg.TableSchema:
    """The columns as the schema declares them, with their checks."""
    declared = [
        dg.TableColumn(c.name, kind, c.description, dg.TableColumnConstraints(nullable=c.nullable, other=list(c.constraints)))
        for c, (_, kind) in zip(columns.columns, columns.described(), strict=True)
    ]
    own = [dg.TableColumn(name, kind) for name, kind in OWN_COLUMNS]
    return dg.TableSchema([*declared, *own], dg.TableConstraints(list(columns.constraints)))


def column_lineage(receipt: Receipt) -> dg.TableColumnLineage:
    """Each column comes from the value of the topics' messages; windrow's own from what the message carries beside it."""
    topics = sorted({t.topic for t in receipt.plan.stop.topics})
    return lineage_to(topics, [name for name, _ in receipt.schema])


def lineage_to(topics: Sequence[str], columns: Sequence[str]) -> dg.TableColumnLineage:
    """Lineage of columns to the parts of a message: value, topic, partition, offset, timestamp."""
    sources = dict.fromkeys(columns, "value") | {name: name.removeprefix("_") for name, _ in OWN_COLUMNS if name != "_window"}
    return dg.TableColumnLineage({name: [dg.TableColumnDep(topic_key(t), part) for t in topics] for name, part in sources.items()})


def topic_metadata(found: Snapshot) -> dict[str, Value]:
    """What an observation of the topic shows."""
    starts = sorted(found.starts.items())
    records = [dg.TableRecord({"partition": tp.partition, "start": start, "end": found.ends[tp].offset}) for tp, start in starts]
    return {
        "end_offsets": dg.MetadataValue.table(records), "end_offsets_digest": found.digest, "partitions": found.topic.partitions,
        "messages": found.offsets(), "cluster_id": found.cluster_id, "topic_id": found.topic.topic_id,
    }  # fmt: skip
