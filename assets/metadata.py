"""The metadata of a window's event: its receipt, lag and completeness.

`ENTRIES` has them in the order of the UI: the summary, the figures that most people look
for, problems, the rest. Counts are there even if they are zero, because Dagster plots them
and a missing count is a gap in the plot. Entries that only another kind of pipeline can
have are left out.

Dagster keeps an event for ever, in one row of its database, and its UI loads the whole row.
So lists have at most `SHOWN` topic-partitions, the most important ones. A long receipt is
replaced by the command that prints it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import dagster as dg
import msgspec

from windrow.assets.columns import column_schema, lineage
from windrow.assets.summary import summary
from windrow.ingest.admin.lag import Lag
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import with_spec
from windrow.ingest.model.boundary import HOW_WORDS, Mark, TopicPartition, label_text
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt, SplitCounts
from windrow.ingest.model.tiling import offset_ranges
from windrow.ingest.runner.context import Result
from windrow.ingest.schema.columns import Columns
from windrow.ingest.source.enumerator.completeness import WindowState

Value: TypeAlias = (
    dg.MetadataValue[Any] | dg.TableSchema | dg.TableColumnLineage | bool | int | float | str
)
"""A value of Dagster's metadata. Plain numbers are plotted over time."""

T = TypeVar("T")

SHOWN = 64
"""The maximum number of topic-partitions in a list."""

_LINES = 20
"""The maximum number of warnings in a list."""

_LONG = 16 * 1024
"""The maximum size of a receipt that is copied, in bytes."""


ENTRIES = (
    "summary",
    "rows_written",
    "deletes",
    "rows_added",
    "rows_removed",
    "dead_letters",
    "dead_reasons",
    "skipped",
    "late",
    "early",
    "event_time",
    "completeness",
    "watermark",
    "event_watermark",
    "lag_records",
    "lag_seconds",
    "partial",
    "warnings",
    "window",
    "batch",
    "topic_partitions",
    "offsets",
    "messages_read",
    "filtered",
    "dropped",
    "truncated",
    "ignored",
    "invisible",
    "aborted",
    "passed_over",
    "files_staged",
    "lookup_hits",
    "lookup_misses",
    "lookups",
    "bytes_read",
    "run_seconds",
    "rows_per_second",
    "generation",
    "dead_replayed",
    "edited",
    "recovered",
    "group_offsets",
    "rows_by_table",
    "table_version",
    "lag",
    "receipt",
    "receipt_command",
)
"""The entries in the order of the UI; `docs/dagster.md` explains them."""


def window_metadata(
    spec: PipelineSpec,
    columns: Columns,
    result: Result,
    lag: Lag | None = None,
    state: WindowState | None = None,
) -> dict[str, Value]:
    """Returns the metadata of one window's event.

    Args:
        spec: the pipeline.
        columns: the columns of its schema.
        result: the result of the window's run.
        lag: the unread messages after the window; None for an older window, or if unknown.
        state: the window's completeness; None for micro-batches, or if unknown.
    """
    receipt, counts = result.committed.receipt, result.committed.receipt.counts
    entries: dict[str, Value] = {
        "summary": dg.MetadataValue.md(summary(result, lag, state)),
        "rows_written": counts.rows,
        "dead_letters": counts.dead,
        "skipped": counts.skipped,
        "filtered": counts.filtered,
        "dropped": counts.dropped,
        "truncated": counts.truncated,
        "ignored": counts.ignored,
        "invisible": counts.invisible,
        "aborted": counts.aborted,
        "generation": receipt.generation,
        "window": span_text(receipt.window),
        "offsets": offsets_table(receipt),
        "messages_read": counts.read,
        "bytes_read": counts.bytes,
        "run_seconds": receipt.seconds,
        "rows_per_second": round(counts.rows / max(receipt.seconds, 0.001)),
    }
    if receipt.files > len(receipt.splits):  # by columns, or of several tables
        entries["files_staged"] = receipt.files
    entries |= (
        _entries_of_kind(receipt)
        | _entries_of_merge(receipt)
        | _optional(result)
        | _receipt_or_command(spec, receipt)
    )
    entries |= {} if lag is None else lag_metadata(lag)
    entries |= {} if state is None else state_metadata(state)
    schema: dict[str, Value] = {
        "dagster/column_schema": column_schema(receipt.schema, columns, spec.metadata),
        "dagster/column_lineage": lineage(spec, [name for name, _ in receipt.schema]),
    }
    in_partition = receipt.window.span is not None and receipt.merged is None
    row_count: dict[str, Value] = {"dagster/partition_row_count": receipt.table_rows}
    rows = row_count if in_partition else {}
    return {name: entries[name] for name in ENTRIES if name in entries} | rows | schema


def span_text(window: Window) -> str:
    """Returns a window's hours as `START/END`; for a micro-batch its name."""
    return window.key if window.span is None else f"{window.key}/{label_text(window.end)}"


def _receipt_or_command(spec: PipelineSpec, receipt: Receipt) -> dict[str, Value]:
    """Returns the receipt, or the command that prints it.

    If lists are cut, the number of topic-partitions is returned too.
    """
    text, topic_partitions = (
        to_json(receipt),
        len(offset_ranges(receipt.plan.start, receipt.plan.stop)),
    )
    entries: dict[str, Value] = {}
    if topic_partitions > SHOWN:
        entries["topic_partitions"] = topic_partitions
    if len(text) > _LONG:
        entries["receipt_command"] = with_spec(
            f"windrow show SPEC --window {receipt.window.key} --json", spec.spec_path
        )
    else:
        entries["receipt"] = dg.MetadataValue.json(json.loads(text))
    return entries


def _choose_lines(lines: Sequence[T], matters: Callable[[T], tuple[int, int]]) -> list[T]:
    """Returns the `SHOWN` most important lines, in their original order."""
    ranked = sorted(range(len(lines)), key=lambda index: matters(lines[index]), reverse=True)
    return [lines[index] for index in sorted(ranked[:SHOWN])]


def _entries_of_kind(receipt: Receipt) -> dict[str, Value]:
    """Returns the entries that only windows in time or only micro-batches have."""
    if isinstance(receipt.window.start, int):
        return {"batch": receipt.window.start}
    column = receipt.event_time
    by_column: dict[str, Value] = {} if column is None else {"event_time": column}
    return by_column | {"late": receipt.counts.late, "early": receipt.counts.early}


def _entries_of_merge(receipt: Receipt) -> dict[str, Value]:
    """Returns the entries of a table with a primary key."""
    merged = receipt.merged
    if merged is None:
        return {}
    return {
        "deletes": receipt.counts.deletes,
        "rows_added": merged.rows_added,
        "rows_removed": merged.rows_removed,
    }


def _optional(result: Result) -> dict[str, Value]:
    """Returns the entries that only some windows have."""
    receipt, version, group_offsets = (
        result.committed.receipt,
        result.committed.version,
        result.group_offsets,
    )
    reasons = receipt.reasons
    entries: dict[str, Value] = {}
    if receipt.passed_over:
        entries["passed_over"] = receipt.passed_over
    if receipt.dead_replay is not None:
        entries["dead_replayed"] = receipt.dead_replay.messages
        entries["edited"] = receipt.dead_replay.edited
    if result.recovered:
        entries["recovered"] = True
    if receipt.pins:
        parts = {part.lookup: msgspec.to_builtins(part) for part in receipt.lookups}
        entries["lookup_hits"] = sum(part.hits for part in receipt.lookups)
        entries["lookup_misses"] = sum(part.misses for part in receipt.lookups)
        entries["lookups"] = dg.MetadataValue.json(
            {
                pin.lookup: msgspec.to_builtins(pin) | parts.get(pin.lookup, {})
                for pin in receipt.pins
            }
        )
    if receipt.routed:
        entries["rows_by_table"] = dg.MetadataValue.json(
            {table.table: table.rows for table in receipt.routed}
        )
    if version is not None:
        entries["table_version"] = version
    if reasons:
        entries["dead_reasons"] = dg.MetadataValue.json(dict(reasons.most_common()))
    for name, lines in (("warnings", receipt.warnings), ("partial", receipt.partial)):
        if lines:
            more = (
                [f"and {len(lines) - _LINES} more: the receipt has them"]
                if len(lines) > _LINES
                else []
            )
            entries[name] = dg.MetadataValue.text("\n".join([*lines[:_LINES], *more]))
    if group_offsets is not None:
        entries["group_offsets"] = dg.MetadataValue.json(msgspec.to_builtins(group_offsets))
    return entries


def state_metadata(state: WindowState) -> dict[str, Value]:
    """Returns the entries of a window's completeness."""
    return {
        "completeness": state.state,
        **watermark_metadata(state.watermark, state.event_watermark),
    }


def watermark_metadata(
    watermark: datetime | None, event_watermark: datetime | None
) -> dict[str, Value]:
    """Returns the entries of the watermarks that there are."""
    watermarks = {"watermark": watermark, "event_watermark": event_watermark}
    return {
        name: dg.MetadataValue.timestamp(instant)
        for name, instant in watermarks.items()
        if instant is not None
    }


def lag_metadata(lag: Lag) -> dict[str, Value]:
    """Returns the entries of the lag after a window's stop, in offsets and in time."""
    return {"lag_records": lag.records, "lag_seconds": round(lag.seconds, 1), "lag": lag_table(lag)}


def lag_table(lag: Lag) -> dg.TableMetadataValue:
    """Returns one line per topic-partition.

    If there are too many, those with losses are shown, then those with the largest lag.
    """
    partitions = _choose_lines(lag.partitions, lambda p: (p.lost_offsets, p.records))
    return dg.MetadataValue.table(
        [dg.TableRecord(msgspec.to_builtins(p)) for p in partitions], schema=_LAG
    )


_LAG = dg.TableSchema(
    [
        dg.TableColumn("topic", "string"),
        *(dg.TableColumn(name, "int") for name in ("partition", "start", "end", "records")),
        dg.TableColumn("seconds", "float", description="age of the first unread message"),
        dg.TableColumn("lost", "int", description="offsets that were not read and are gone"),
    ]
)


def offsets_table(receipt: Receipt) -> dg.TableMetadataValue:
    """Returns one line per topic-partition.

    If there are too many, those with losses and dead letters are shown, then the longest.
    """
    counts_by_partition: dict[TopicPartition, list[SplitCounts]] = {}
    for counts in receipt.splits:
        counts_by_partition.setdefault(TopicPartition(counts.topic, counts.partition), []).append(
            counts
        )
    chosen_marks = _choose_lines(
        list(offset_ranges(receipt.plan.start, receipt.plan.stop).items()),
        lambda part: _sort_key(*part[1], counts_by_partition.get(part[0], ())),
    )
    lines = [_offsets_line(*marks, counts_by_partition.get(tp, ())) for tp, marks in chosen_marks]
    empty = {name for name in _USUALLY_ZERO if not any(line[name] for line in lines)}
    columns = [column for column in _OFFSETS if column.name not in empty]
    records = [
        dg.TableRecord({name: value for name, value in line.items() if name not in empty})
        for line in lines
    ]
    return dg.MetadataValue.table(records, schema=dg.TableSchema(columns))


def _sort_key(start: Mark, stop: Mark, counts: Iterable[SplitCounts]) -> tuple[int, int]:
    """Returns the sort key of a topic-partition: messages lost or refused, then offsets."""
    return sum(c.skipped + c.dead for c in counts), stop.offset - start.offset


_USUALLY_ZERO = ("invisible", "skipped")

_OFFSETS = [
    dg.TableColumn("topic", "string"),
    dg.TableColumn("partition", "int"),
    dg.TableColumn("start", "int", "the first offset"),
    dg.TableColumn("stop", "int", "the offset after the last one"),
    dg.TableColumn("read", "int", "messages"),
    dg.TableColumn("rows", "int"),
    dg.TableColumn("dead", "int", "dead letters"),
    dg.TableColumn("invisible", "int", "offsets without a visible message"),
    dg.TableColumn("skipped", "int", "offsets that were not in the log any more"),
    dg.TableColumn(
        "resolved",
        "string",
        "how start and stop were found, one word if in the same way. timestamps: the first message"
        " of a later window. log-end: the log's end, without a later message. open-transaction: the"
        " same, with an open transaction behind it. neighbour: moved to the neighbour's cut."
        " log-start: the oldest offset in the log. position: a position in the spec. micro-batch:"
        " the end of a micro-batch. removed: the topic is not read any more",
    ),
]


def _offsets_line(start: Mark, stop: Mark, counts: Iterable[SplitCounts]) -> dict[str, str | int]:
    """Returns a line of the table. `resolved` has no space, so that the UI doesn't wrap it."""
    parts = list(counts)
    return {
        "topic": stop.topic,
        "partition": stop.partition,
        "start": start.offset,
        "stop": stop.offset,
        "read": sum(c.read for c in parts),
        "rows": sum(c.rows for c in parts),
        "dead": sum(c.dead for c in parts),
        "invisible": sum(c.missing for c in parts),
        "skipped": sum(c.skipped for c in parts),
        "resolved": "→".join(dict.fromkeys((HOW_WORDS[start.origin], HOW_WORDS[stop.origin]))),
    }
