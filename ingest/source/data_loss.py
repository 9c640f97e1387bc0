"""Data loss: messages of a plan that are gone from the log, or may be, and the way out. Pure.

A read that finds messages gone says so in `ingest.source.reader.cursor`, with the same way out.
"""

from __future__ import annotations

from collections.abc import Mapping

from windrow.ingest.errors import DataLossError
from windrow.ingest.model.boundary import Mark, TopicPartition, label_text
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.tiling import offset_ranges

WAY_OUT = (
    "Run a later window, or set source.on_loss: skip to go on without these messages. Raise the"
    " topic's retention if windows run too late."
)
REMOVED = f"Retention or truncation removed these messages. {WAY_OUT}"
"""What to do where messages are certainly gone."""


def refuse_lost(
    plan: Plan, log_starts: Mapping[TopicPartition, int], way_out: str = WAY_OUT
) -> None:
    """Checks that a plan's messages still exist.

    Messages below the log start are lost for certain. A window that may have lost
    messages (`doubts`) is refused too, also if its range is empty: an expired window
    must not pass as an empty one.

    Args:
        plan: a frozen plan; a topic-partition without splits is checked only if its
            range is empty.
        log_starts: the log starts of the topic-partitions in the plan's splits.
        way_out: what to do about it.

    Raises:
        DataLossError: names the topic-partition, the wanted offset and the first one
            that exists.
    """
    for split in plan.splits:
        if split.start < log_starts[split.tp]:
            raise DataLossError(
                f"Window {plan.window.key} wants offsets {split.start} to {split.stop}, and the"
                f" log begins at {log_starts[split.tp]}",
                "plan",
                way_out,
                split.topic,
                split.partition,
                split.start,
            )
    ranges, read = offset_ranges(plan.start, plan.stop), {s.tp for s in plan.splits}
    for tp, (mark, doubt) in doubts(plan).items():
        low, high = ranges[tp]
        if tp in read or low.offset == high.offset:
            raise DataLossError(
                f"Window {plan.window.key} {doubt}",
                "plan",
                way_out,
                tp.topic,
                tp.partition,
                mark.offset,
            )


def doubts(plan: Plan) -> dict[TopicPartition, tuple[Mark, str]]:
    """The topic-partitions in which a window may have lost messages.

    With each comes the mark, and words that follow the window's name. A `log_start`
    mark cut the log somewhere below the messages that were left when it was resolved.
    At the window's start, the window may have lost its first messages; at its end, the
    last ones. A mark at offset 0 lost nothing, and neither did a mark that the lower
    neighbour proved (`tiling.clamped`). Topics that aren't read any more are left out.
    """
    doubted = {}
    for tp, (low, high) in offset_ranges(plan.start, plan.stop).items():
        for mark, boundary, part in ((low, plan.start, "first"), (high, plan.stop, "last")):
            if mark.origin == "log_start" and high.origin != "removed" and tp not in doubted:
                words = (
                    f"may have lost its {part} messages: when {label_text(boundary.label)} was"
                    " resolved, what was left of the log began"
                )
                doubted[tp] = (mark, f"{words} at or after it, at offset {mark.offset}")
    return doubted
