"""Formats values of `ingest` as tables for people. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from rich.table import Table
from rich.text import Text

from windrow.ingest.admin.findings import Finding
from windrow.ingest.admin.lag import Lag
from windrow.ingest.admin.peek import PRINTED
from windrow.ingest.errors import format_count
from windrow.ingest.model.boundary import HOW_WORDS, Boundary, How, TopicPartition, label_text
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.tiling import offset_ranges
from windrow.ingest.runner.availability import JoiningTopic
from windrow.ingest.runner.context import Result
from windrow.ingest.runner.dead_publishing import PublishedDeadLetters
from windrow.ingest.runner.group_offsets import AlteredOffsets

if TYPE_CHECKING:
    from windrow.ingest.admin.dead_replay import DeadReplayResult
    from windrow.ingest.admin.try_steps import RemovedMessage, Step


def _table(
    columns: Mapping[str, Iterable[str]], numbers: Collection[str] = (), title: str | None = None
) -> Table:
    """Makes a table of columns, by their names. Columns in `numbers` are aligned to the right."""
    table = Table(title=title, title_justify="left", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


class PlannedPartition(msgspec.Struct, frozen=True):
    """One topic-partition of a plan: its offsets, and how start and stop were determined."""

    topic: str
    partition: int
    start: int
    stop: int
    messages_at_most: int
    splits: int
    start_how: How
    stop_how: How


class PlannedWindow(msgspec.Struct, frozen=True):
    """A window's plan for people.

    Attributes:
        window: the window's key.
        end: its end.
        frozen: the parts of it that are already frozen.
        digest: the plan's digest.
        partitions: the topic-partitions.
        joining: the topics that join in the window.
    """

    window: str
    end: str
    frozen: tuple[Literal["start", "end", "plan"], ...]
    digest: str
    partitions: tuple[PlannedPartition, ...]
    joining: tuple[JoiningTopic, ...] = ()


def planned_window(
    plan: Plan,
    frozen: Sequence[Literal["start", "end", "plan"]],
    joining: tuple[JoiningTopic, ...],
) -> PlannedWindow:
    """Makes a plan for people, with one line per topic-partition, including empty ones."""
    pieces = Counter(s.tp for s in plan.splits)
    partitions = tuple(
        PlannedPartition(
            tp.topic,
            tp.partition,
            low.offset,
            high.offset,
            high.offset - low.offset,
            pieces[tp],
            low.origin,
            high.origin,
        )
        for tp, (low, high) in offset_ranges(plan.start, plan.stop).items()
    )
    return PlannedWindow(
        plan.window.key,
        label_text(plan.window.end),
        tuple(frozen),
        plan.digest,
        partitions,
        joining,
    )


def plan_table(plan: PlannedWindow) -> Table:
    """Makes a table with one line per topic-partition."""
    frozen = f"frozen: {', '.join(plan.frozen)}" if plan.frozen else "nothing frozen yet"
    numbers = {
        "start": [f"{p.start:,}" for p in plan.partitions],
        "stop": [f"{p.stop:,}" for p in plan.partitions],
        "messages at most": [f"{p.messages_at_most:,}" for p in plan.partitions],
        "splits": [f"{p.splits:,}" for p in plan.partitions],
    }
    return _table(
        {
            "topic-partition": [str(TopicPartition(p.topic, p.partition)) for p in plan.partitions],
            **numbers,
            "start found by": [HOW_WORDS[p.start_how] for p in plan.partitions],
            "stop found by": [HOW_WORDS[p.stop_how] for p in plan.partitions],
        },
        numbers,
        f"{plan.window} / {plan.end}  ({frozen})",
    )


def run_table(runs: Sequence[Result]) -> Table:
    """Makes a table with one line per window that was run."""
    receipts = [run.committed.receipt for run in runs]
    counters = _counters(receipts)
    return _table(
        {
            "window": [r.window.key for r in receipts],
            "outcome": (run.outcome for run in runs),
            "offsets": _offsets(receipts),
            **counters,
            "seconds": [f"{r.seconds:.1f}" for r in receipts],
            "version": [_version(run.committed) for run in runs],
        },
        (*counters, "seconds", "version"),
    )


def run_notes(runs: Sequence[Result]) -> list[Text]:
    """Makes notes on windows that were run: losses, warnings, errors of a consumer group."""
    lines = list[Text]()
    for run in runs:
        receipt = run.committed.receipt
        notes = (*(f"partial: {loss}" for loss in receipt.partial), *receipt.warnings)
        lines += [Text(f"{receipt.window.key}: {note}", style="yellow") for note in notes]
        if run.published_dead is not None:
            lines.append(published_dead_line(receipt.window, run.published_dead))
        if run.group_offsets is not None and run.group_offsets.failed:
            lines += group_offsets_lines(run.group_offsets)
    return lines + ignored_lines([run.committed.receipt for run in runs])


def ignored_lines(receipts: Sequence[Receipt]) -> list[Text]:
    """Makes a line about the fields that no column is for, if a window has any."""
    fields = sum((receipt.ignored_fields for receipt in receipts), Counter[str]())
    messages = format_count(sum(receipt.counts.ignored for receipt in receipts), "message")
    field_counts = ", ".join(f"{name!a} ({n:,})" for name, n in fields.most_common())
    words = (
        f"{messages} with fields that no column is for; of the first 1,000 of a split:"
        f" {field_counts}"
    )
    return [Text(words, style="yellow")] if fields else []


def window_table(committed: Sequence[Committed]) -> Table:
    """Makes a table with one line per committed window."""
    receipts = [committed_window.receipt for committed_window in committed]
    numbers = _counters(receipts) | _if_any(
        {
            "passed over": [r.passed_over for r in receipts],
            "dead replayed": [r.dead_replay.messages if r.dead_replay else 0 for r in receipts],
            "generation": [r.generation for r in receipts],
            "lookup misses": [sum(part.misses for part in r.lookups) for r in receipts],
        }
    )
    partial = ["\n".join(r.partial) for r in receipts]
    expired = [f"{r.expired_at:%Y-%m-%d %H:%M:%SZ}" if r.expired_at else "" for r in receipts]
    return _table(
        {
            "window": [r.window.key for r in receipts],
            "offsets": _offsets(receipts),
            **numbers,
            "version": [_version(committed_window) for committed_window in committed],
            "committed from": [f"{r.staged_at:%Y-%m-%d %H:%M:%SZ}" for r in receipts],
            **({"partial": partial} if any(partial) else {}),
            **({"rows expired": expired} if any(expired) else {}),
        },
        (*numbers, "version"),
    )


_ALWAYS = {"read": "read", "written": "rows", "dead": "dead"}
_IF_ANY = ("invisible", "dropped", "filtered", "truncated", "ignored", "skipped", "late", "early")


def _counters(receipts: Sequence[Receipt]) -> dict[str, list[str]]:
    """Returns the columns of the counters; some are left out if they are zero everywhere."""
    always = {
        name: [f"{getattr(r.counts, counter):,}" for r in receipts]
        for name, counter in _ALWAYS.items()
    }
    return always | _if_any({name: [getattr(r.counts, name) for r in receipts] for name in _IF_ANY})


def _if_any(columns: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    return {name: [f"{n:,}" for n in numbers] for name, numbers in columns.items() if any(numbers)}


def _version(committed: Committed) -> str:
    return "" if committed.version is None else str(committed.version)


def _offsets(receipts: Sequence[Receipt]) -> list[str]:
    """Returns the offsets of each window, with the topics' names if there are several."""
    several = len({t.topic for r in receipts for t in r.plan.stop.topics}) > 1
    return [offsets(r.plan, several) for r in receipts]


def offsets(plan: Plan, several: bool) -> str:
    """Formats the offsets of a plan: `0: 10..20  1: 5..9`.

    They go from the first split's start to the last split's stop of each partition.

    Args:
        plan: the plan.
        several: whether there are several topics, which get a line each.
    """
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for s in plan.splits:
        low, high = ranges.get(s.tp, (s.start, s.stop))
        ranges[s.tp] = (min(low, s.start), max(high, s.stop))
    lines: dict[str, list[str]] = {}
    for tp, (low, high) in sorted(ranges.items()):
        lines.setdefault(tp.topic, []).append(f"{tp.partition}: {low}..{high}")
    return (
        "\n".join(
            (f"{topic}  " if several else "") + "  ".join(parts) for topic, parts in lines.items()
        )
        or "empty"
    )


class DeadLetter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that was refused, with the reason.

    Attributes:
        window: the key of its window.
        topic: its topic.
        partition: its partition.
        offset: its offset.
        stage: the stage that refused it.
        reason: the reason.
        detail: the details of the reason.
        schema_id: the id of its schema, if its format has one.
        key: its key, with `--payload` only.
        value: its value, with `--payload` only.
    """

    window: str
    topic: str
    partition: int
    offset: int
    stage: str
    reason: str
    detail: str | None
    schema_id: str | None = None
    key: bytes | None = None
    value: bytes | None = None


def dead_letters(
    window: Window, rows: Iterable[dict[str, object]], *, payload: bool
) -> list[DeadLetter]:
    """Converts rows of dead letters to values."""
    return [
        DeadLetter(
            window.key,
            str(r["_topic"]),
            int(str(r["_partition"])),
            int(str(r["_offset"])),
            str(r["stage"]),
            str(r["reason"]),
            None if r["detail"] is None else str(r["detail"]),
            None if r["schema_id"] is None else str(r["schema_id"]),
            r["key"] if payload and isinstance(r["key"], bytes) else None,
            r["value"] if payload and isinstance(r["value"], bytes) else None,
        )
        for r in rows
    ]


def dead_table(dead: Sequence[DeadLetter], *, payload: bool) -> Table:
    """Makes a table with one line per dead letter.

    Bytes are escaped, so that no control character reaches the terminal.
    """
    columns = {
        "window": [d.window for d in dead],
        "message": [f"{TopicPartition(d.topic, d.partition)}@{d.offset}" for d in dead],
        "stage": [d.stage for d in dead],
        "reason": [d.reason for d in dead],
        "detail": [d.detail or "" for d in dead],
    }
    if any(d.schema_id is not None for d in dead):
        columns["schema"] = [d.schema_id or "" for d in dead]
    if payload:
        columns |= {
            "key": [_shown(d.key) for d in dead],
            "value": [_shown(d.value) for d in dead],
        }
    return _table(columns)


def dead_replay_table(results: Sequence[DeadReplayResult]) -> Table:
    """Makes a table with one line per window whose dead letters were replayed."""
    numbers = {
        "open before": [m.open for m in results],
        "tried": [m.tried for m in results],
        "accepted": [m.messages for m in results],
        "edited": [m.edited for m in results],
        "rows": [m.rows for m in results],
        "open now": [m.open - m.messages for m in results],
        "generation": [m.committed.receipt.generation for m in results],
    }
    columns = {name: [f"{n:,}" for n in counts] for name, counts in numbers.items()}
    return _table({"window": [m.window for m in results], **columns}, numbers)


def still_refused(results: Iterable[DeadReplayResult]) -> list[Text]:
    """Makes one line per window and stage, with the reasons why messages were refused again."""
    return [
        Text(
            f"{m.window}: {refusal.count} refused again at stage {refusal.stage}:"
            f" {'; '.join(f'{detail} ({n})' for detail, n in refusal.kinds)}",
            style="yellow",
        )
        for m in results
        for refusal in m.refused
    ]


def refused_lines(refused: Mapping[str, str], spec: Path, *, above: bool) -> list[Text]:
    """Makes notes on windows that aren't committed and have dead letters.

    Args:
        refused: key -> newest attempt.
        spec: the pipeline's file.
        above: whether the dead letters are printed above the note.
    """
    if above:
        return [
            Text(f"{key} is not committed; these are of its newest attempt, {attempt}.")
            for key, attempt in sorted(refused.items())
        ]
    return [
        Text(
            f"{key} is not committed; see what was refused: windrow dead show {spec} --window {key}"
        )
        for key in sorted(refused)
    ]


def _shown(value: bytes | None) -> str:
    return "null" if value is None else repr(value)[2:-1]


def finding_line(finding: Finding) -> Text:
    """Formats a finding as a line; wrong ones are red."""
    style = {"wrong": "red", "unchecked": "yellow", "info": "dim"}[finding.level]
    location = finding.about if finding.window is None else f"{finding.about} {finding.window}"
    return Text(
        f"{finding.level:9} {location}: {finding.message}. {finding.advice}".rstrip(), style=style
    )


def message_table(rows: Sequence[Sequence[str]]) -> Table:
    """Makes a table with one line per message, from the texts of `ingest.admin.peek.printable`."""
    return _table(dict(zip(PRINTED, zip(*rows, strict=True), strict=True)))


def not_shown(*, more: bool) -> list[Text]:
    """Makes a line if there are more messages than `--limit`."""
    return [Text("There are more, which are not shown (--limit)")] if more else []


def step_tables(tried_step: Step) -> list[Table | Text]:
    """Makes a table of a step's rows, and a line for each message that has no row after it."""
    rows = format_count(len(tried_step.rows), "row")
    title = f"{tried_step.name}: {rows}"
    parts: list[Table | Text] = [Text(title)]
    if tried_step.rows:
        columns = {
            "message": list(tried_step.messages),
            **{name: [_cell(row[name]) for row in tried_step.rows] for name in tried_step.columns},
        }
        parts = [_table(columns, title=title)]
    return [
        *parts,
        *(
            Text(_removed_line(removed_message), style="dim")
            for removed_message in tried_step.removed
        ),
    ]


def _removed_line(message: RemovedMessage) -> str:
    return f"  {message.message}: {message.reason}" + (
        f": {message.detail}" if message.detail else ""
    )


def _cell(value: object) -> str:
    text = "null" if value is None else value if isinstance(value, str) else str(value)
    return text if text.isprintable() else repr(text)


def lag_table(lag: Lag) -> Table:
    """Makes a table with one line per topic-partition, and their total."""
    numbers = {
        "unread from": [f"{p.start:,}" for p in lag.partitions],
        "end": [f"{p.end:,}" for p in lag.partitions],
        "records": [f"{p.records:,}" for p in lag.partitions],
        "seconds": [f"{p.seconds:,.0f}" for p in lag.partitions],
        **({"lost": [f"{p.lost_offsets:,}" for p in lag.partitions]} if lag.lost_offsets else {}),
    }
    names = [str(TopicPartition(p.topic, p.partition)) for p in lag.partitions]
    table = _table({"topic-partition": names, **numbers}, numbers)
    table.add_section()
    lost_cells = (f"{lag.lost_offsets:,}",) if lag.lost_offsets else ()
    table.add_row("total", "", "", f"{lag.records:,}", f"{lag.seconds:,.0f}", *lost_cells)
    return table


def group_offsets_lines(done: AlteredOffsets) -> list[Text]:
    """Makes lines about the offsets that a consumer group accepted, and errors."""
    summary = (
        f"Group {done.group} has the offsets of {format_count(done.succeeded, 'topic-partition')}"
    )
    if not done.failed:
        return [Text(f"{summary}.")]
    return [
        Text(f"{summary}, and not those of {done.failed}:", style="yellow"),
        *(Text(f"  {reason}") for reason in done.reasons),
    ]


def published_dead_line(window: Window, published: PublishedDeadLetters) -> Text:
    """Makes a line about a window's newly published dead letters."""
    return Text(
        f"{window.key}: {format_count(published.dead_letters, 'dead letter')} published to"
        f" {published.topic}."
    )


def rebase_table(boundary: Boundary) -> Table:
    """Makes a table with one line per topic-partition: the offset at which windows continue.

    A topic that begins with all its partitions at offset 0 has one line.
    """
    marks = boundary.by_tp().values()
    rows: list[tuple[str, str, str, str]] = []
    for topic_log in boundary.topics:
        rows += [
            (str(m.tp), topic_log.topic_id, f"{m.offset:,}", HOW_WORDS[m.origin])
            for m in marks
            if m.topic == topic_log.topic
        ]
        if topic_log.partitions == 0:
            rows.append((f"{topic_log.topic} (all)", topic_log.topic_id, "0", "its start"))
    names = ("topic-partition", "topic id", "offset", "found by")
    columns = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    return _table(columns, {"offset"})
