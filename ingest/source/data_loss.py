"""Data loss: messages of a plan that are gone from the log, or may be gone. Pure.

`ingest.source.reader.cursor` reports messages that a read finds missing, with the same advice.
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
"""Advice where messages are certainly gone."""


def refuse_lost(
    plan: Plan, log_starts: Mapping[TopicPartition, int], way_out: str = WAY_OUT
) -> None:
    """Checks that a plan's messages still exist.

    Messages below the log start are lost for certain. A window that may have lost
    messages (`doubts`) is refused too, even if its range is empty: an expired window
    must not pass as an empty one.

    Args:
        plan: a frozen plan; a topic-partition without splits is checked only if its
            range is empty.
        log_starts: the log starts of the topic-partitions in the plan's splits.
        way_out: advice for the user.

    Raises:
        DataLossError: names the topic-partition, the wanted offset and the first offset
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
    """Finds the topic-partitions in which a window may have lost messages.

    A `log_start` mark cut the log at its start, because earlier messages were gone when
    the mark was resolved. At the window's start, such a mark means that the window may have
    lost its first messages; at its end, the last ones. A mark at offset 0 lost nothing.
    Neither did a mark that the lower neighbour proved (`tiling.clamp`). Topics that
    aren't read any more are left out.

    Returns:
        The doubtful mark of each topic-partition, and the end of a sentence that begins
            with the window's name.
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
