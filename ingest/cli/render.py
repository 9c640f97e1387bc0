"""Values of `ingest` as tables for people. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from rich.table import Table
from rich.text import Text

from ingest.model import Committed, Mark, Plan, TopicPartition, Window, instant
from ingest.verify import Finding


class PlannedPartition(msgspec.Struct, frozen=True):
    """One topic-partition of a plan: what will be read, and how each end was found."""

    topic: str
    partition: int
    start: int
    stop: int
    messages_at_most: int
    splits: int
    start_how: str
    stop_how: str


class PlannedWindow(msgspec.Struct, frozen=True):
    """A window's plan for people. `frozen`: which of it is decided for good: nothing, the plan, or (its) start and end."""

    window: str
    end: str
    frozen: tuple[Literal["start", "end", "plan"], ...]
    digest: str
    partitions: tuple[PlannedPartition, ...]


class Run(msgspec.Struct, frozen=True):
    """One window that a run or replay ended with."""

    recovered: bool
    committed: Committed


def planned(plan: Plan, frozen: Sequence[Literal["start", "end", "plan"]]) -> PlannedWindow:
    """A plan with one line per topic-partition, those without a message too."""
    start, stop = plan.start.by_tp(), plan.stop.by_tp()
    pieces = Counter(s.tp for s in plan.splits)
    partitions = []
    for tp in sorted({*start, *stop}):
        low, high = _cut(start.get(tp), tp), _cut(stop.get(tp), tp)
        length = high.offset - low.offset
        partitions.append(PlannedPartition(tp.topic, tp.partition, low.offset, high.offset, length, pieces[tp], low.how, high.how))
    window = plan.window
    return PlannedWindow(window.key, instant(window.end), tuple(frozen), plan.digest, tuple(partitions))


def _cut(mark: Mark | None, tp: TopicPartition) -> Mark:
    """A boundary is total: what it doesn't list is cut at 0."""
    return Mark(tp.topic, tp.partition, 0, "clamped") if mark is None else mark


def plan_table(plan: PlannedWindow) -> Table:
    """One line per topic-partition."""
    frozen = f"frozen: {', '.join(plan.frozen)}" if plan.frozen else "nothing frozen yet"
    table = Table("topic-partition", title=f"{plan.window} / {plan.end}  ({frozen})", title_justify="left")
    for name in ("start", "stop", "messages at most", "splits"):
        table.add_column(name, justify="right")
    table.add_column("start found by")
    table.add_column("stop found by")
    for p in plan.partitions:
        numbers = (p.start, p.stop, p.messages_at_most, p.splits)
        table.add_row(str(TopicPartition(p.topic, p.partition)), *(f"{n:,}" for n in numbers), p.start_how, p.stop_how)
    return table


def run_table(runs: Iterable[Run]) -> Table:
    """One line per window that was run."""
    table = Table("window", "outcome", "offsets")
    for name in ("read", "written", "dead", "invisible", "seconds", "version"):
        table.add_column(name, justify="right")
    for run in runs:
        receipt = run.committed.receipt
        c = receipt.counts
        outcome = "committed already" if run.recovered else "committed"
        numbers = (f"{n:,}" for n in (c.read, c.valid, c.dead, c.invisible))
        table.add_row(receipt.window.key, outcome, offsets(receipt.plan), *numbers, f"{receipt.seconds:.1f}", _version(run.committed))
    return table


def window_table(committed: Iterable[Committed]) -> Table:
    """One line per committed window."""
    table = Table("window", "offsets")
    for name in ("read", "written", "dead", "invisible", "generation", "version"):
        table.add_column(name, justify="right")
    table.add_column("committed from")
    for one in committed:
        r, c = one.receipt, one.receipt.counts
        numbers = (f"{n:,}" for n in (c.read, c.valid, c.dead, c.invisible, r.generation))
        table.add_row(r.window.key, offsets(r.plan), *numbers, _version(one), instant(r.staged_at.replace(microsecond=0)))
    return table


def offsets(plan: Plan) -> str:
    """`0: 10..20  1: 5..9`, from the first split's start to the last one's stop."""
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for s in plan.splits:
        low, high = ranges.get(s.tp, (s.start, s.stop))
        ranges[s.tp] = (min(low, s.start), max(high, s.stop))
    return "  ".join(f"{tp.partition}: {low}..{high}" for tp, (low, high) in sorted(ranges.items())) or "empty"


def _version(committed: Committed) -> str:
    return "" if committed.version is None else str(committed.version)


class DeadLetter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that was refused. `key` and `value` only where they were asked for."""

    window: str
    topic: str
    partition: int
    offset: int
    stage: str
    reason: str
    detail: str | None
    key: bytes | None = None
    value: bytes | None = None


def dead_letters(window: Window, rows: Iterable[dict[str, object]], *, payload: bool) -> list[DeadLetter]:
    """Rows of the sink's dead letters as values."""
    return [
        DeadLetter(
            window.key, str(r["_topic"]), int(str(r["_partition"])), int(str(r["_offset"])), str(r["stage"]), str(r["reason"]),
            None if r["detail"] is None else str(r["detail"]), _bytes(r["key"], payload), _bytes(r["value"], payload),
        )
        for r in rows
    ]  # fmt: skip


def _bytes(value: object, wanted: bool) -> bytes | None:
    return value if wanted and isinstance(value, bytes) else None


def dead_table(letters: Sequence[DeadLetter], *, payload: bool) -> Table:
    """One line per dead letter; bytes as Python writes them, so that nothing in them reaches the terminal."""
    table = Table("window", "message", "stage", "reason", "detail", *(("key", "value") if payload else ()))
    for d in letters:
        place = f"{TopicPartition(d.topic, d.partition)}@{d.offset}"
        cells = (d.window, place, d.stage, d.reason, d.detail or "", *((_shown(d.key), _shown(d.value)) if payload else ()))
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _shown(value: bytes | None) -> str:
    return "null" if value is None else repr(value)[2:-1]


def finding_line(finding: Finding) -> Text:
    """One line; wrong ones in red."""
    style = {"wrong": "red", "unchecked": "yellow", "info": "dim"}[finding.level]
    where = finding.about if finding.window is None else f"{finding.about} {finding.window}"
    return Text(f"{finding.level:9} {where}: {finding.what}. {finding.do}".rstrip(), style=style)
