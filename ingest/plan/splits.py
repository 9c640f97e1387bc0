"""Two frozen boundaries become a plan of integers, and a plan is held against the cluster before it is read. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ingest.errors import DataLossError, IdentityError
from ingest.model import Boundary, Mark, Plan, Split, TopicIdentity, TopicPartition, Window, instant

_GONE = "What the topic has lost can't be read any more: run a later window, and raise the topic's retention if windows come too late."


def make_plan(window: Window, start: Boundary, stop: Boundary, sink: str) -> Plan:
    """One split per topic-partition that holds offsets between the boundaries; a partition that `start` doesn't list begins at 0.

    Raises:
        IdentityError: the boundaries are of different clusters or topics.
        ValueError: a boundary is not the window's, or `stop` cuts below `start`: they were not frozen by one ledger.
    """
    if (start.label, stop.label) != (window.start, window.end):
        msg = f"boundaries {instant(start.label)} and {instant(stop.label)} are not those of window {window.key}"
        raise ValueError(msg)
    _refuse_two_identities(window, start, stop)
    below, above = start.by_tp(), stop.by_tp()
    pairs = [(below.get(tp), above.get(tp), tp) for tp in sorted(below.keys() | above.keys())]
    splits = [split for low, high, tp in pairs if (split := _split(tp, low, high)) is not None]
    return Plan(window, start, stop, tuple(splits), sink)


def _split(tp: TopicPartition, low: Mark | None, high: Mark | None) -> Split | None:
    start, stop = (0 if mark is None else mark.offset for mark in (low, high))
    if stop < start:
        msg = f"the boundaries of {tp} are inverted: {start}..{stop}"
        raise ValueError(msg)
    return None if start == stop else Split(tp.topic, tp.partition, start, stop, None if low is None else low.leader_epoch)


def _refuse_two_identities(window: Window, start: Boundary, stop: Boundary) -> None:
    if (start.cluster_id, start.topics) == (stop.cluster_id, stop.topics):
        return
    raise IdentityError(
        f"The boundaries of window {window.key} are of two sources: {_source(start.cluster_id, start.topics)}, then "
        f"{_source(stop.cluster_id, stop.topics)}",
        "plan",
        "The topic was made anew or the cluster replaced between them: begin a new pipeline id for the new one.",
        start.topics[0].topic if start.topics else None,
    )


def _source(cluster: str, topics: tuple[TopicIdentity, ...]) -> str:
    return f"cluster {cluster}, " + ", ".join(f"topic {t.topic} with id {t.topic_id}" for t in topics)


def refuse_other_identity(plan: Plan, cluster_id: str, topics: Mapping[str, str]) -> None:
    """Hold the plan against what the cluster is now; `topics` gives topic ids by name.

    Raises:
        IdentityError: offsets of the plan mean other messages there.
    """
    if plan.stop.cluster_id != cluster_id:
        raise IdentityError(
            f"Window {plan.window.key} was planned on cluster {plan.stop.cluster_id}, and this is cluster {cluster_id}",
            "plan",
            "Point bootstrap.servers at the cluster that was planned on, or begin a new pipeline id for this one.",
        )
    for planned in plan.stop.topics:
        found = topics.get(planned.topic)
        if found != planned.topic_id:
            now = "is not there" if found is None else f"has id {found}"
            raise IdentityError(
                f"Window {plan.window.key} was planned on topic id {planned.topic_id}, and the topic now {now}",
                "plan",
                "The topic was deleted and made anew: its offsets mean other messages. Begin a new pipeline id for it.",
                planned.topic,
            )


def refuse_expired(plan: Plan, log_starts: Mapping[TopicPartition, int]) -> None:
    """Hold the plan against what is still there.

    A split that starts below the log start has lost messages for certain. A mark that is a `log_start` may have lost them: its label cut
    the log somewhere below what was left when it was resolved. Under the window's start they are its first messages, under its end its last
    ones, so either refuses the window, also where its range of that partition is empty: a window that expired whole must not pass as one
    without messages. A mark that is 0 lost nothing, and neither did one that the lower neighbour proved (`Boundary.clamped`).

    Args:
        plan: a frozen plan.
        log_starts: of all topic-partitions in the plan's splits.

    Raises:
        DataLossError: names the topic-partition, the offset wanted and the first one that is there.
    """
    for split in plan.splits:
        available = log_starts[split.tp]
        if split.start < available:
            raise DataLossError(
                f"Window {plan.window.key} wants offsets {split.start} to {split.stop}, and the first one still there is {available}",
                "plan", _GONE, split.topic, split.partition, split.start,
            )  # fmt: skip
    for boundary, part in ((plan.start, "first"), (plan.stop, "last")):
        for mark in boundary.marks:
            if mark.how == "log_start":
                raise DataLossError(
                    f"Window {plan.window.key} may have lost its {part} messages: when {instant(boundary.label)} was resolved, "
                    f"what was left of the log began at or after it, at offset {mark.offset}",
                    "plan", _GONE, mark.topic, mark.partition, mark.offset,
                )  # fmt: skip
