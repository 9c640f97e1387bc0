"""Compares receipts with the cluster and topics that their windows were read from.

The comparison only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from windrow.ingest.admin.findings import Finding
from windrow.ingest.errors import RefusedError, UnreachableError, format_count
from windrow.ingest.model.boundary import Boundary, TopicPartition, is_later
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.source import OnRemoved
from windrow.ingest.ports.broker import Broker, TopicInfo
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.source.enumerator.cutoff import WAY_OUT, confirmed_cut_off, describe_cutoff
from windrow.ingest.source.enumerator.timestamp_search import (
    UNSTAMPED,
    UNSTAMPED_WAY_OUT,
    without_timestamps,
)


def against_topics(
    pipeline_id: str,
    receipts: Sequence[Receipt],
    ledger: Ledger,
    broker: Broker,
    on_removed: OnRemoved,
    sleep: Callable[[float], None],
) -> list[Finding]:
    """Checks whether the topics are still the ones that the windows were read from.

    The cluster gets a few requests about all topics together.
    """
    current = _current(pipeline_id, receipts, ledger)
    if current is None:
        return []
    topics = broker.topics(
        sorted(
            {t.topic for r in receipts for t in r.plan.stop.topics}
            | {t.topic for t in current.topics}
        )
    )
    read = {split.tp for r in receipts for split in r.plan.splits}
    tps = sorted(
        tp
        for tp in read | {begin.tp for r in receipts for begin in r.plan.stop.start_marks}
        if tp.topic in topics and tp.partition < topics[tp.topic].partitions
    )
    cluster = broker.cluster_id()
    findings = compare_topic(receipts, current, cluster, topics, broker.log_starts(tps), on_removed)
    return findings + (
        _logs_now(current, topics, broker, sleep) if current.cluster_id == cluster else []
    )


def _current(pipeline: str, receipts: Sequence[Receipt], ledger: Ledger) -> Boundary | None:
    """Returns the start of the next window: the end of the newest window, or a later rebase."""
    newest = receipts[-1].plan.stop if receipts else None
    try:
        rebases = ledger.rebased_boundaries(pipeline)
    except (RefusedError, UnreachableError):  # the comparison with the ledger reports it
        return newest
    if newest is None or not rebases or is_later(newest.label, rebases[-1].label):
        return newest
    return rebases[-1]


def _logs_now(
    current: Boundary,
    topics: Mapping[str, TopicInfo],
    broker: Broker,
    sleep: Callable[[float], None],
) -> list[Finding]:
    """Finds logs that end below the pipeline's position, or have no timestamps."""
    same = {
        t.topic
        for t in current.topics
        if t.topic in topics and topics[t.topic].topic_id == t.topic_id
    }
    marks = [m for m in current.marks if m.topic in same]
    in_time = [] if isinstance(current.label, int) else [m.tp for m in marks]
    ends = broker.stable_ends(in_time) if in_time else {}
    return [
        Finding("wrong", "topic", f"{tp}: {UNSTAMPED}", UNSTAMPED_WAY_OUT)
        for tp in without_timestamps(broker, ends)
    ] + [
        Finding(
            "wrong", "topic", f"{mark.tp}: {describe_cutoff(mark, end, current.label)}", WAY_OUT
        )
        for mark, end in confirmed_cut_off(broker, marks, sleep)
    ]


def compare_topic(
    receipts: Sequence[Receipt],
    current: Boundary,
    cluster_id: str,
    topics: Mapping[str, TopicInfo],
    starts: Mapping[TopicPartition, int],
    on_removed: OnRemoved = "fail",
) -> list[Finding]:
    """Checks whether receipts are of this cluster and topics, and can be replayed. Pure.

    Windows before a rebase, or of topics that aren't read any more, are information.
    """
    findings, expired, abandoned_windows = [], [], []
    for receipt in receipts:
        cluster, lost_topics = _lost_cluster(receipt, cluster_id), _lost_topics(receipt, topics)
        released_topics = _left_behind(receipt, current) | (
            {n for n in lost_topics if n not in topics} if on_removed == "drop" else set()
        )
        if cluster is None and not lost_topics:
            expired += (
                [receipt.window.key]
                if any(s.start < starts.get(s.tp, 0) for s in receipt.plan.splits)
                else []
            )
        elif (cluster is not None and current.cluster_id == cluster_id) or (
            cluster is None and lost_topics <= released_topics
        ):
            abandoned_windows.append(receipt.window.key)
        elif cluster is not None:
            advice = (
                "Point the spec at the cluster that the table was built from; if it was replaced"
                " for good: windrow rebase SPEC."
            )
            findings.append(Finding("wrong", "topic", cluster, advice, receipt.window.key))
        else:
            findings.append(_deleted_topic_finding(receipt, sorted(lost_topics), topics))
        findings += _passed_over(receipt, cluster_id, topics, starts)
    for keys, reason in (
        (expired, "the topic doesn't hold their start any more"),
        (abandoned_windows, "their source was replaced, or is gone and not read"),
    ):
        if keys:
            windows = format_count(len(receipts), "window")
            message = f"{len(keys)} of {windows} can't be replayed: {reason}"
            findings.append(
                Finding("info", "topic", message, f"The newest of them is {keys[-1]}.", None)
            )
    return findings


def _passed_over(
    receipt: Receipt,
    cluster_id: str,
    topics: Mapping[str, TopicInfo],
    starts: Mapping[TopicPartition, int],
) -> list[Finding]:
    """Finds topics that joined in the window, and have older messages."""
    stop, ids = receipt.plan.stop, receipt.plan.stop.by_topic()
    return [
        Finding(
            "info",
            "topic",
            f"No window has {format_count(begin.offset - starts[tp], 'offset')} of {tp},"
            f" {starts[tp]} to"
            f" {begin.offset}: the log had them before its topic joined in this window",
            "Who wants them reads the topic by a pipeline of another id, into another table.",
            receipt.window.key,
        )
        for tp, begin in stop.joining_marks(receipt.plan.start).items()
        if starts.get(tp, begin.offset) < begin.offset
        and (stop.cluster_id, ids[tp.topic].topic_id) == (cluster_id, topics[tp.topic].topic_id)
    ]


def _lost_cluster(receipt: Receipt, cluster_id: str) -> str | None:
    """Describes how the cluster differs from the receipt's; None if it doesn't.

    The cluster of a window without messages isn't compared.
    """
    made_on = receipt.plan.stop.cluster_id
    return (
        f"committed from cluster {made_on}, this is {cluster_id}"
        if receipt.plan.splits and made_on != cluster_id
        else None
    )


def _lost_topics(receipt: Receipt, topics: Mapping[str, TopicInfo]) -> set[str]:
    """Returns the topics of the window that don't exist any more, or were recreated."""
    ids, read = receipt.plan.stop.by_topic(), {s.topic for s in receipt.plan.splits}
    return {
        name for name in read if name not in topics or topics[name].topic_id != ids[name].topic_id
    }


def _left_behind(receipt: Receipt, current: Boundary) -> set[str]:
    """Returns topics of the receipt that the pipeline doesn't read any more.

    They were replaced, left out of the spec, or removed with `source.on_removed: drop`.
    """
    ids, now = receipt.plan.stop.by_topic(), current.by_topic()
    carried = {m.topic for m in current.marks if m.origin == "removed"} - {
        m.topic for m in current.marks if m.origin != "removed"
    }
    return {
        name
        for name, topic in ids.items()
        if name not in now or now[name].topic_id != topic.topic_id or name in carried
    }


def _deleted_topic_finding(
    receipt: Receipt, lost_topics: Sequence[str], topics: Mapping[str, TopicInfo]
) -> Finding:
    recreated_topics = [name for name in lost_topics if name in topics]
    message = (
        f"topic {', '.join(recreated_topics or lost_topics)} was"
        f" deleted{' and made again' if recreated_topics else ''}"
    )
    advice = (
        "The rows are safe; the window can't be replayed, and new windows are refused until windrow"
        " rebase SPEC"
    )
    return Finding(
        "wrong",
        "topic",
        message,
        f"{advice}." if recreated_topics else f"{advice} or source.on_removed: drop.",
        receipt.window.key,
    )
