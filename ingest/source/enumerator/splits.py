"""Two frozen boundaries become a plan of integers, and a plan is held against the
cluster before it is read.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windrow.ingest.errors import DataLossError, IdentityError
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition
from windrow.ingest.model.label import label_text
from windrow.ingest.model.plan import Plan, Split
from windrow.ingest.model.window import Window
from windrow.ingest.source.enumerator.tiling import between, refuse_other_source

WAY_OUT = (
    "Run a later window, or set source.on_loss: skip to go on without them; raise the topic's"
    " retention if windows come too late."
)


def make_plan(
    window: Window, start: Boundary, stop: Boundary, sink: str, split_records: int | None = None
) -> Plan:
    """The offsets between two boundaries, cut into splits of at most `split_records`
    (None: one split per topic-partition).

    Args:
        window: the window that lies between them.
        start: frozen under its start, as the window that starts there sees it.
        stop: frozen under its end.
        sink: which table; part of the plan's digest.
        split_records: at least 1.

    Raises:
        IdentityError: the boundaries are of different clusters or topics.
        ValueError: a boundary is not the window's, or `stop` cuts below `start`: they
            were not frozen by one ledger.
    """
    if (start.label, stop.label) != (window.start, window.end):
        msg = (
            f"boundaries {label_text(start.label)} and {label_text(stop.label)} are not those of"
            f" window {window.key}"
        )
        raise ValueError(msg)
    refuse_other_source(stop, start)
    ranges, ends = between(start, stop), stop.cuts(mark.tp for mark in start.marks)
    lost = next((m for m in start.marks if m.tp not in ends or ends[m.tp].offset < m.offset), None)
    if lost is not None:
        msg = (
            f"the boundaries of {lost.tp} are inverted: {lost.offset}, and the window's end doesn't"
            " know it"
        )
        raise ValueError(msg)
    return Plan(window, start, stop, tuple(cut(ranges, split_records)), sink)


def cut(
    ranges: Mapping[TopicPartition, tuple[Mark, Mark]], split_records: int | None = None
) -> Iterator[Split]:
    """The splits of what lies between two boundaries (`tiling.between`), each of at
    most `split_records` offsets.
    """
    return (split for low, high in ranges.values() for split in _pieces(low, high, split_records))


def _pieces(low: Mark, high: Mark, most: int | None) -> Iterator[Split]:
    """The fewest pieces that are small enough, as equal as can be.

    The witness of the first one's start is the lower mark's: it also tells of what
    happened before the upper one was cut. The lower one's epoch may end before the
    other pieces begin; the upper one's reaches beyond them.
    """
    length = high.offset - low.offset
    count = 0 if length == 0 else 1 if most is None else -(-length // most)
    start = low.offset
    for i in range(count):
        end = low.offset + length * (i + 1) // count
        witness = high.leader_epoch if i > 0 or low.leader_epoch is None else low.leader_epoch
        yield Split(low.topic, low.partition, start, end, witness, high.leader_epoch)
        start = end


def refuse_other_identity(plan: Plan, cluster_id: str, topic_ids: Mapping[str, str]) -> None:
    """Hold the plan against what the cluster is now; only what it reads matters, so a
    plan without splits suits every cluster.

    Args:
        plan: a frozen plan.
        cluster_id: the cluster's.
        topic_ids: by name; what is missing is not there.

    Raises:
        IdentityError: offsets of the plan mean other messages there.
    """
    if plan.splits and plan.stop.cluster_id != cluster_id:
        raise IdentityError(
            f"Window {plan.window.key} was planned on cluster {plan.stop.cluster_id}, and this is"
            f" cluster {cluster_id}",
            "plan",
            "Point bootstrap_servers at the cluster that was planned on; a window of the old"
            " cluster can't be read from a new one.",
        )
    planned = {t.topic: t.topic_id for t in plan.stop.topics}
    for topic in sorted({s.topic for s in plan.splits}):
        topic_id = topic_ids.get(topic)
        if topic_id != planned[topic]:
            now = "is not there" if topic_id is None else f"has id {topic_id}"
            raise IdentityError(
                f"Window {plan.window.key} was planned on topic id {planned[topic]}, and the topic"
                f" now {now}",
                "plan",
                "The topic was deleted, or made anew: then its offsets mean other messages, and"
                " this window can't be read any more. windrow rebase SPEC shows what going on with"
                " the new one would mean.",
                topic,
            )


def refuse_lost(
    plan: Plan, log_starts: Mapping[TopicPartition, int], way_out: str = WAY_OUT
) -> None:
    """Hold the plan against what is still there.

    What lies below the log start is lost for certain. What may have been lost
    (`doubts`) refuses the window too, also where its range is empty: a window that
    expired whole must not pass as one without messages.

    Args:
        plan: a frozen plan; of a topic-partition whose splits were taken out nothing is asked.
        log_starts: of the topic-partitions in the plan's splits.
        way_out: what to do about it.

    Raises:
        DataLossError: names the topic-partition, the offset wanted and what is there.
    """
    for split in plan.splits:
        if split.start < log_starts[split.tp]:
            raise DataLossError(
                f"Window {plan.window.key} wants offsets {split.start} to {split.stop}, and the"
                f" first one still there is {log_starts[split.tp]}",
                "plan",
                way_out,
                split.topic,
                split.partition,
                split.start,
            )
    ranges, read = between(plan.start, plan.stop), {s.tp for s in plan.splits}
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
    """Topic-partitions of which the window may have lost messages: by which mark, and
    in words that follow its name.

    A mark that is a `log_start` cut the log somewhere below what was left when it was
    resolved. Where the window begins it may have lost its first messages, where it ends
    its last ones. A mark that is 0 lost nothing, and neither did one that the lower
    neighbour proved (`tiling.clamped`). Of a topic that isn't read any more nothing is
    asked.
    """
    doubted = {}
    for tp, (low, high) in between(plan.start, plan.stop).items():
        for mark, boundary, part in ((low, plan.start, "first"), (high, plan.stop, "last")):
            if mark.how == "log_start" and high.how != "removed" and tp not in doubted:
                words = (
                    f"may have lost its {part} messages: when {label_text(boundary.label)} was"
                    " resolved, what was left of the log began"
                )
                doubted[tp] = (mark, f"{words} at or after it, at offset {mark.offset}")
    return doubted
