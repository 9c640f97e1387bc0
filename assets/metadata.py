"""What Dagster shows of a window or micro-batch: what its receipt says, and what is known beside it at that moment. Pure.

offsets                       table for people: per topic-partition where the window starts and stops, how that was found, what came of it
offset_ranges                 the ranges as JSON: {topic: {partition: [start, stop]}}, half-open
messages_read, rows_written, dead_letters, dropped
dead_reasons                  JSON: dead letters by reason; only where there are any
invisible                     offsets without a visible message: markers, aborted, compacted
aborted                       those of them that were seen to be aborted messages
skipped                       offsets that were not in the log any more, and that the spec says to go on without
partial                       what was lost, or may be, in words; only where there is anything
late, early                   messages in the window that are stamped before and after its hours; not of micro-batches
completeness, watermark       whether the window's hours are over everywhere, as seen then; not of micro-batches
bytes                         of the messages read
seconds, rows_per_second      of the run that wrote the window
lag_records, lag_seconds      offsets beyond the window's stop; the age of the first message there
lag                           table: the same per topic-partition
published                     JSON: what came of telling the consumer group; only where there is one to tell
delta_version                 of the commit; missing where the sink no longer knows it
generation                    0, and one more for each replacement
recovered                     the window was committed before; this run wrote nothing
window                        its key; of micro-batches `batch`, the number, too
receipt                       the receipt as JSON
warnings                      only where there are any
dagster/partition_row_count (not of micro-batches), dagster/column_schema, dagster/column_lineage
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias

import dagster as dg
import msgspec

from assets.columns import column_schema, lineage
from ingest.completeness import WindowState
from ingest.lag import Lag
from ingest.model import Mark, Receipt, SplitCounts, TopicPartition, to_json
from ingest.parts import Result
from ingest.spec import PipelineSpec
from ingest.tiling import between

Value: TypeAlias = dg.MetadataValue[Any] | dg.TableSchema | dg.TableColumnLineage | bool | int | float | str
"""What Dagster takes as a value of metadata; plain numbers are plotted over time."""


def window_metadata(spec: PipelineSpec, result: Result) -> dict[str, Value]:
    """Everything about one window that its receipt says."""
    receipt, counts = result.committed.receipt, result.committed.receipt.counts
    shown: dict[str, Value] = {
        "messages_read": counts.read, "rows_written": counts.valid, "dead_letters": counts.dead, "dropped": counts.dropped,
        "invisible": counts.invisible, "aborted": counts.aborted, "skipped": counts.skipped, "bytes": counts.bytes,
        "seconds": receipt.seconds, "rows_per_second": round(counts.valid / max(receipt.seconds, 0.001)),
        "generation": receipt.generation, "recovered": result.recovered, "window": receipt.window.key,
        "offsets": offsets_table(receipt), "offset_ranges": dg.MetadataValue.json(offset_ranges(receipt)),
        "receipt": dg.MetadataValue.json(json.loads(to_json(receipt))),
        "dagster/column_schema": column_schema(receipt.schema, spec.metadata),
        "dagster/column_lineage": lineage(spec, [name for name, _ in receipt.schema]),
    }  # fmt: skip
    return shown | _by_kind(receipt) | _sometimes(result)


def _by_kind(receipt: Receipt) -> dict[str, Value]:
    """What only windows in time have, or only micro-batches."""
    if isinstance(receipt.window.start, int):
        return {"batch": receipt.window.start}
    return {"late": receipt.counts.late, "early": receipt.counts.early, "dagster/partition_row_count": receipt.counts.valid}


def _sometimes(result: Result) -> dict[str, Value]:
    """What only some windows have."""
    receipt, version, published = result.committed.receipt, result.committed.version, result.published
    reasons: Counter[str] = Counter()
    for split in receipt.splits:
        reasons.update(dict(split.reasons))
    found: dict[str, Value] = {}
    if version is not None:
        found["delta_version"] = version
    if reasons:
        found["dead_reasons"] = dg.MetadataValue.json(dict(reasons.most_common()))
    for name, lines in (("warnings", receipt.warnings), ("partial", receipt.partial)):
        if lines:
            found[name] = dg.MetadataValue.text("\n".join(lines))
    if published is not None:
        found["published"] = dg.MetadataValue.json(msgspec.to_builtins(published))
    return found


def state_metadata(state: WindowState) -> dict[str, Value]:
    """Whether a window's hours are over everywhere."""
    found: dict[str, Value] = {"completeness": state.state}
    return found if state.watermark is None else found | {"watermark": dg.MetadataValue.timestamp(state.watermark)}


def lag_metadata(lag: Lag) -> dict[str, Value]:
    """How far the topics are ahead of a window's stop, in offsets and in time."""
    return {"lag_records": lag.records, "lag_seconds": round(lag.seconds, 1), "lag": lag_table(lag)}


def lag_table(lag: Lag) -> dg.TableMetadataValue:
    """One line per topic-partition."""
    return dg.MetadataValue.table([dg.TableRecord(msgspec.to_builtins(p)) for p in lag.partitions], schema=_LAG)


_LAG = dg.TableSchema(
    [
        dg.TableColumn("topic", "string"),
        *(dg.TableColumn(name, "int") for name in ("partition", "start", "end", "records")),
        dg.TableColumn("seconds", "float", description="age of the first unread message"),
        dg.TableColumn("lost", "int", description="offsets that were not read and are gone"),
    ]
)


def offset_ranges(receipt: Receipt) -> dict[str, dict[str, list[int]]]:
    """Per topic and partition `[start, stop]`; also where nothing was to be read."""
    found: dict[str, dict[str, list[int]]] = {}
    for tp, (start, stop) in between(receipt.plan.start, receipt.plan.stop).items():
        found.setdefault(tp.topic, {})[str(tp.partition)] = [start.offset, stop.offset]
    return found


def offsets_table(receipt: Receipt) -> dg.TableMetadataValue:
    """One line per topic-partition, whatever it was split into."""
    counted: dict[TopicPartition, list[SplitCounts]] = {}
    for counts in receipt.splits:
        counted.setdefault(TopicPartition(counts.topic, counts.partition), []).append(counts)
    ranges = between(receipt.plan.start, receipt.plan.stop)
    return dg.MetadataValue.table([_offsets_line(*marks, counted.get(tp, ())) for tp, marks in ranges.items()], schema=_OFFSETS)


_OFFSETS = dg.TableSchema(
    [
        dg.TableColumn("topic", "string"),
        *(dg.TableColumn(name, "int") for name in ("partition", "start", "stop", "read", "rows", "dead", "invisible", "skipped")),
        dg.TableColumn("resolved", "string", description="how start and stop were found"),
    ]
)


def _offsets_line(start: Mark, stop: Mark, counts: Iterable[SplitCounts]) -> dg.TableRecord:
    parts = list(counts)
    line: dict[str, str | int] = {
        "topic": stop.topic, "partition": stop.partition, "start": start.offset, "stop": stop.offset,
        "read": sum(c.read for c in parts), "rows": sum(c.valid for c in parts), "dead": sum(c.dead for c in parts),
        "invisible": sum(c.missing for c in parts), "skipped": sum(c.skipped for c in parts),
        "resolved": f"{start.how} .. {stop.how}",
    }  # fmt: skip
    return dg.TableRecord(line)
