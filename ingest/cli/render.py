"""Values of `ingest` as tables for people. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from rich.table import Table
from rich.text import Text

from windrow.ingest.admin.findings import Finding
from windrow.ingest.admin.lag import Lag
from windrow.ingest.admin.peek import PRINTED
from windrow.ingest.model.boundary import Boundary, TopicPartition
from windrow.ingest.model.label import label_text
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Committed, Counts, Receipt
from windrow.ingest.model.tiling import between
from windrow.ingest.model.window import Window
from windrow.ingest.runner.availability import JoiningTopic
from windrow.ingest.runner.context import Result
from windrow.ingest.runner.dead_publishing import PublishedDeadLetters
from windrow.ingest.runner.group_offsets import AlteredOffsets

if TYPE_CHECKING:
    from windrow.ingest.admin.dead_replay import DeadReplayResult


def _by_window(*columns: str, numbers: Sequence[str] = (), last: Sequence[str] = ()) -> Table:
    """Makes a table whose lines begin with a window's key.

    `numbers`: columns of numbers, after `columns`; `last`: the columns after these.
    """
    table = Table("window", pad_edge=False)
    for name in (*columns, *numbers, *last):
        table.add_column(name, justify="right" if name in numbers else "left")
    return table


def counted(count: int, thing: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


class PlannedPartition(msgspec.Struct, frozen=True):
    """One topic-partition of a plan: its offsets, and how start and stop were found."""

    topic: str
    partition: int
    start: int
    stop: int
    messages_at_most: int
    splits: int
    start_how: str
    stop_how: str


class PlannedWindow(msgspec.Struct, frozen=True):
    """A window's plan for people. `frozen`: the parts of it that are frozen already."""

    window: str
    end: str
    frozen: tuple[Literal["start", "end", "plan"], ...]
    digest: str
    partitions: tuple[PlannedPartition, ...]
    joining: tuple[JoiningTopic, ...] = ()


def planned(
    plan: Plan,
    frozen: Sequence[Literal["start", "end", "plan"]],
    joining: tuple[JoiningTopic, ...],
) -> PlannedWindow:
    """A plan with one line per topic-partition, also those without a message."""
    pieces = Counter(s.tp for s in plan.splits)
    partitions = tuple(
        PlannedPartition(
            tp.topic,
            tp.partition,
            low.offset,
            high.offset,
            high.offset - low.offset,
            pieces[tp],
            low.how,
            high.how,
        )
        for tp, (low, high) in between(plan.start, plan.stop).items()
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
    """One line per topic-partition."""
    frozen = f"frozen: {', '.join(plan.frozen)}" if plan.frozen else "nothing frozen yet"
    table = Table(
        "topic-partition", title=f"{plan.window} / {plan.end}  ({frozen})", title_justify="left"
    )
    for name in ("start", "stop", "messages at most", "splits"):
        table.add_column(name, justify="right")
    table.add_column("start found by")
    table.add_column("stop found by")
    for p in plan.partitions:
        numbers = (p.start, p.stop, p.messages_at_most, p.splits)
        table.add_row(
            str(TopicPartition(p.topic, p.partition)),
            *(f"{n:,}" for n in numbers),
            p.start_how,
            p.stop_how,
        )
    return table


def run_table(runs: Sequence[Result]) -> Table:
    """One line per window that was run."""
    receipts = [run.committed.receipt for run in runs]
    counters = _counters(receipts)
    table = _by_window(
        "outcome",
        "offsets",
        numbers=(*counters, "seconds", "version"),
    )
    several = _several(receipts)
    for run, r in zip(runs, receipts, strict=True):
        numbers = (_number(r.counts, name) for name in counters)
        table.add_row(
            r.window.key,
            outcome(run),
            offsets(r.plan, several),
            *numbers,
            f"{r.seconds:.1f}",
            "" if run.committed.version is None else str(run.committed.version),
        )
    return table


def outcome(run: Result) -> str:
    """The outcome of a window: `committed`, `replaced`, or `committed already`."""
    generation = run.committed.receipt.generation
    word = "committed already" if run.recovered else "replaced" if generation else "committed"
    return f"{word}, generation {generation}" if generation else word


def committed_line(run: Result) -> str:
    """A line about a window, printed as soon as it is committed."""
    receipt = run.committed.receipt
    return (
        f"Window {receipt.window.key}: {outcome(run)}, {receipt.counts.rows:,} rows,"
        f" {receipt.counts.dead:,} dead letters"
    )


def run_notes(runs: Iterable[Result]) -> list[Text]:
    """Notes on windows that were run: losses, warnings, errors of a consumer group."""
    lines = list[Text]()
    for run in runs:
        receipt = run.committed.receipt
        noted = (*(f"partial: {lost}" for lost in receipt.partial), *receipt.warnings)
        lines += [Text(f"{receipt.window.key}: {note}", style="yellow") for note in noted]
        if run.letters is not None:
            lines.append(published_dead_line(receipt.window, run.letters))
        if run.group_offsets is not None and run.group_offsets.failed:
            lines += group_offsets_lines(run.group_offsets)
    return lines


def window_table(committed: Sequence[Committed]) -> Table:
    """One line per committed window."""
    receipts = [one.receipt for one in committed]
    counters = _counters(receipts)
    replays = ("dead replayed",) if any(r.dead_replay for r in receipts) else ()
    generation = ("generation",) if any(r.generation for r in receipts) else ()
    passed_over = ("passed over",) if any(r.passed_over for r in receipts) else ()
    partial = ("partial",) if any(r.partial for r in receipts) else ()
    table = _by_window(
        "offsets",
        numbers=(*counters, *passed_over, *replays, *generation, "version"),
        last=("committed from", *partial),
    )
    several = _several(receipts)
    for one, r in zip(committed, receipts, strict=True):
        table.add_row(
            r.window.key,
            offsets(r.plan, several),
            *(_number(r.counts, name) for name in counters),
            *((f"{r.passed_over:,}",) if passed_over else ()),
            *((f"{r.dead_replay.messages:,}" if r.dead_replay else "0",) if replays else ()),
            *((f"{r.generation:,}",) if generation else ()),
            "" if one.version is None else str(one.version),
            f"{r.staged_at:%Y-%m-%d %H:%M:%SZ}",
            *(("\n".join(r.partial),) if partial else ()),
        )
    return table


_ALWAYS = ("read", "written", "dead")
_IF_ANY = ("invisible", "dropped", "filtered", "truncated", "skipped", "late", "early")


def _counters(receipts: Sequence[Receipt]) -> tuple[str, ...]:
    """The counters that get a column: some of them only if a window has any."""
    return (
        *_ALWAYS,
        *(name for name in _IF_ANY if any(getattr(r.counts, name) for r in receipts)),
    )


def _number(counts: Counts, name: str) -> str:
    return f"{getattr(counts, 'rows' if name == 'written' else name):,}"


def _several(receipts: Iterable[Receipt]) -> bool:
    """Returns whether there are several topics, so that offsets need the topic's name."""
    return len({t.topic for r in receipts for t in r.plan.stop.topics}) > 1


def offsets(plan: Plan, several: bool) -> str:
    """The offsets of a plan: `0: 10..20  1: 5..9`.

    From the first split's start to the last one's stop. `several`: a line per topic.
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

    `key` and `value` only with `--payload`; `schema_id` only if its format has one.
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
    """One line per dead letter.

    Bytes are escaped, so that no control character reaches the terminal.
    """
    ids = any(d.schema_id is not None for d in dead)
    more = (*(("schema",) if ids else ()), *(("key", "value") if payload else ()))
    table = _by_window("message", "stage", "reason", "detail", *more)
    for d in dead:
        place = f"{TopicPartition(d.topic, d.partition)}@{d.offset}"
        cells = [d.window, place, d.stage, d.reason, d.detail or ""]
        cells += [d.schema_id or ""] if ids else []
        cells += [_shown(d.key), _shown(d.value)] if payload else []
        table.add_row(*(Text(cell) for cell in cells))
    return table


def dead_replay_table(results: Sequence[DeadReplayResult]) -> Table:
    """One line per window whose dead letters were replayed."""
    numbers = ("open before", "tried", "accepted", "edited", "rows", "open now", "generation")
    table = _by_window(numbers=numbers)
    for m in results:
        counts = (
            m.open,
            m.tried,
            m.messages,
            m.edited,
            m.rows,
            m.open - m.messages,
            m.committed.receipt.generation,
        )
        table.add_row(m.window, *(f"{n:,}" for n in counts))
    return table


def still_refused(results: Iterable[DeadReplayResult]) -> list[Text]:
    """One line per window and stage with the reasons why messages were refused again."""
    return [
        Text(
            f"{m.window}: {one.count} refused again at stage {one.stage}:"
            f" {'; '.join(f'{what} ({n})' for what, n in one.kinds)}",
            style="yellow",
        )
        for m in results
        for one in m.refused
    ]


def refused_lines(refused: Mapping[str, str], spec: Path, *, above: bool) -> list[Text]:
    """Notes on windows that aren't committed and have dead letters.

    `refused`: key -> newest attempt. `above`: the dead letters are printed above the
    note.
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
    """A finding as a line; wrong ones are red."""
    style = {"wrong": "red", "unchecked": "yellow", "info": "dim"}[finding.level]
    where = finding.about if finding.window is None else f"{finding.about} {finding.window}"
    return Text(f"{finding.level:9} {where}: {finding.what}. {finding.do}".rstrip(), style=style)


def message_table(rows: Iterable[Sequence[str]]) -> Table:
    """One line per message, of the texts of `ingest.admin.peek.printable`."""
    table = Table(*PRINTED)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def lag_table(lag: Lag) -> Table:
    """One line per topic-partition, and their total."""
    lost = ("lost",) if lag.lost else ()
    table = Table("topic-partition")
    for name in ("unread from", "end", "records", "seconds", *lost):
        table.add_column(name, justify="right")
    for p in lag.partitions:
        numbers = (
            f"{p.start:,}",
            f"{p.end:,}",
            f"{p.records:,}",
            f"{p.seconds:,.0f}",
            *((f"{p.lost:,}",) if lost else ()),
        )
        table.add_row(str(TopicPartition(p.topic, p.partition)), *numbers)
    table.add_section()
    table.add_row(
        "total",
        "",
        "",
        f"{lag.records:,}",
        f"{lag.seconds:,.0f}",
        *((f"{lag.lost:,}",) if lost else ()),
    )
    return table


def group_offsets_lines(done: AlteredOffsets) -> list[Text]:
    """The offsets that a consumer group accepted, and errors."""
    taken = f"Group {done.group} has the offsets of {done.succeeded} topic-partitions"
    if not done.failed:
        return [Text(f"{taken}.")]
    return [
        Text(f"{taken}, and not those of {done.failed}:", style="yellow"),
        *(Text(f"  {why}") for why in done.why),
    ]


def published_dead_line(window: Window, published: PublishedDeadLetters) -> Text:
    """A line about a window's newly published dead letters."""
    return Text(
        f"{window.key}: {published.letters:,} dead letters were published to {published.topic}."
    )


def rebase_table(boundary: Boundary) -> Table:
    """One line per topic-partition: the offset at which windows go on.

    A topic that begins with all its partitions at offset 0 has one line.
    """
    table = Table("topic-partition", "topic id")
    table.add_column("offset", justify="right")
    table.add_column("found by")
    marks = boundary.by_tp().values()
    for seen in boundary.topics:
        for m in (m for m in marks if m.topic == seen.topic):
            table.add_row(str(m.tp), seen.topic_id, f"{m.offset:,}", m.how)
        if seen.partitions == 0:
            table.add_row(f"{seen.topic} (all)", seen.topic_id, "0", "its start")
    return table
