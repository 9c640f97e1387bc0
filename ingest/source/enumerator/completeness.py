"""Whether a window's hours are over everywhere: watermarks from frozen boundaries, and
what came late anyway from receipts.

Pure.

A topic-partition's watermark is the highest label that its log is proven to have
passed: a boundary's mark under that label is `settled`. The pipeline's watermark is the
least of those of its topic-partitions, never the highest: one that lags may still bring
messages of hours that all others have left behind (`linkedin/Hoptimator` took the
newest timestamp and called windows complete too early). The least stalls where a
topic-partition is idle, so one may be exempt, but only where that is safe or was asked
for:

- its topic is stamped by the broker: at the stable `end` nothing older than the label
  can come any more, for the boundary was frozen after it (as in
  `DataSQRL/flink-sql-runner`, which takes idle partitions for done on LogAppendTime
  alone);
- `idle: exempt` (the source's `withIdleness` of Flink): whoever says so takes an idle
  topic-partition for done;
- its mark is `removed`: the topic isn't read any more.

What proves nothing: `open` (a transaction may bring older messages, also on a topic
that the broker stamps), `log_start`, `position`, `clamped`. A mark that was moved down
to a settled upper neighbour is as good as that neighbour, whose label is the higher one
and counts anyway; one that was moved up to its lower neighbour may have been the end of
the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition
from windrow.ingest.model.label import Label
from windrow.ingest.model.receipt import Receipt

State = Literal["open", "complete", "late"]
"""open: the hours may not be over everywhere. complete: they are. late: they are, and
yet later windows hold messages of these hours.
"""

Idle = Literal["wait", "exempt"]


class WindowState(msgspec.Struct, frozen=True):
    """A committed window as all boundaries and receipts show it now.

    `late` and `early` messages are in this window and stamped before and after its
    hours; `late_elsewhere` are stamped in its hours and came in later windows. Of a
    window so old that a receipt counted it together with all before it,
    `late_elsewhere` counts those too.
    """

    state: State
    watermark: datetime | None
    late: int
    early: int
    late_elsewhere: int


class Completeness(msgspec.Struct, frozen=True):
    """The pipeline's watermark (None: not even one label is proven), which
    topic-partitions hold it back, and its windows by their keys.

    `holding`: each of these has to be seen past the watermark before that rises; empty
    if it stands at the newest boundary.
    """

    watermark: datetime | None
    holding: tuple[TopicPartition, ...]
    windows: dict[str, WindowState]


def judge(
    boundaries: Sequence[Boundary],
    receipts: Sequence[Receipt],
    append_time: frozenset[str],
    idle: Idle,
) -> Completeness:
    """How complete each committed window is.

    Of micro-batches, which have no hours, nothing is judged.

    Nothing that was complete is ever open again, whatever boundaries are frozen later:
    a topic-partition that is new to a boundary holds back the windows from there on,
    for none of its messages can be in an earlier one.

    Args:
        boundaries: the frozen ones, in ascending order of their labels.
        receipts: the newest of each committed window, in any order.
        append_time: the topics whose messages the broker stamps (`TopicInfo.append_time`).
        idle: whether a topic-partition that ends before the label is waited for.
    """
    watermark, holding = _watermark(boundaries, append_time, idle)
    elsewhere = _late_elsewhere(receipts)
    windows = {}
    for receipt in receipts:
        hours, key = receipt.window.span, receipt.window.key
        if hours is not None:
            complete = watermark is not None and watermark >= hours[1]
            state: State = "open" if not complete else "late" if elsewhere[key] else "complete"
            windows[key] = WindowState(
                state, watermark, receipt.counts.late, receipt.counts.early, elsewhere[key]
            )
    return Completeness(watermark, holding, windows)


def _watermark(
    boundaries: Iterable[Boundary], append_time: frozenset[str], idle: Idle
) -> tuple[datetime | None, tuple[TopicPartition, ...]]:
    """The highest label that, by some boundary, all topic-partitions known to it have
    passed; and who holds it there.

    One pass.
    """
    passed: dict[TopicPartition, datetime] = {}
    watermark: datetime | None = None
    newest: dict[TopicPartition, datetime | None] = {}
    label: Label | None = None
    for boundary in boundaries:
        label = boundary.label
        if isinstance(label, datetime):
            passed |= {m.tp: label for m in boundary.marks if _passes(m, append_time, idle)}
            newest = {m.tp: passed.get(m.tp) for m in boundary.marks}
            least = _least(newest.values(), label)
            watermark = max(filter(None, (watermark, least)), default=None)
    if watermark == label:
        return watermark, ()
    return watermark, tuple(
        tp for tp, at in newest.items() if at is None or (watermark is not None and at <= watermark)
    )


def _least(passed: Iterable[datetime | None], label: datetime) -> datetime | None:
    """Of all that a boundary knows, and its own label where that is nothing; None if
    one of them has passed none.
    """
    known = [label, *passed]
    return None if None in known else min(filter(None, known))


def _passes(mark: Mark, append_time: frozenset[str], idle: Idle) -> bool:
    """Whether a mark shows that nothing from before its label is waited for any more."""
    return mark.how in {"settled", "removed"} or (
        mark.how == "end" and (idle == "exempt" or mark.topic in append_time)
    )


def _late_elsewhere(receipts: Iterable[Receipt]) -> Counter[str]:
    """Per window's key how many messages of its hours came in later windows."""
    late = Counter[str]()
    for receipt in receipts:
        for split in receipt.splits:
            late.update(dict(split.late_by))
    return late
