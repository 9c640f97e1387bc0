"""Completeness of the newest windows: their states, and why a window is still open.

Dagster's check and sensor use it, and `windrow state`, which Airflow's sensor calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import in_time
from windrow.ingest.errors import SpecError, join_first_few
from windrow.ingest.model.boundary import Boundary, How, TopicPartition, instant
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.source.enumerator.completeness import Completeness, EventTime, assess


def refuse_batches(spec: PipelineSpec) -> None:
    """Refuses a question about the completeness of micro-batches.

    Raises:
        SpecError: the pipeline has micro-batches.
    """
    if spec.window.is_batch:
        raise SpecError(
            f"{spec.id} has micro-batches, which have no hours to be complete",
            "spec",
            "Run downstream work after each of them.",
        )


def completeness_of(pipeline: Pipeline, newest: int, more: Sequence[Receipt] = ()) -> Completeness:
    """Measures how complete the newest committed windows are, and the windows of `more`.

    The ledger's copies of their receipts are read. The watermark is None also if it is
    before the oldest of these windows: then none of them is complete.

    Args:
        pipeline: the pipeline.
        newest: the number of newest windows.
        more: receipts of other windows.

    Raises:
        GridError: the pipeline has micro-batches, which have no hours.
        UnreachableError: the ledger doesn't answer, or the cluster, which is asked for the
            topics with LogAppendTime.
    """
    spec, ledger = pipeline.spec, pipeline.ledger
    boundaries = ledger.newest(spec.id, newest + 1)
    receipts = {r.window: r for r in (*ledger.recorded_receipts(spec.id, newest), *more)}
    names = sorted(
        {topic_log.topic for boundary in boundaries[-1:] for topic_log in boundary.topics}
    )
    stamped = frozenset(
        name for name, info in pipeline.broker.topics(names).items() if info.append_time
    )
    window = in_time(spec.window)
    event_time = (
        None
        if window.event_time is None or window.event_delay is None
        else EventTime(window.event_time, window.event_delay)
    )
    return assess(boundaries, list(receipts.values()), stamped, window.idle, event_time)


_REASONS: Mapping[How, tuple[str, str]] = {
    "end": (
        "when the newest window was cut, its log held no message from after that window",
        (
            "The next window's run looks again. If the topic-partition may be idle, set"
            " `window.idle: exempt`; if it may not, look at its producer."
        ),
    ),
    "open": (
        "a transaction was open there when the newest window was cut",
        "End the transaction of its producer; the next window's run looks again.",
    ),
    "log_start": (
        "retention had taken what would prove more",
        "The next window's run looks again; run windows sooner, or keep messages longer.",
    ),
    "clamped": (
        "the newest cut was moved to a neighbour's, which proves nothing by itself",
        "The next window's run looks again.",
    ),
    "position": (
        "the pipeline begins there, at a position of its spec",
        "The next window's run looks again.",
    ),
}
"""The reason why a mark doesn't prove completeness, and what to do, by `Mark.origin`."""

_UNKNOWN = ("no boundary proves more", "The next window's run looks again.")


def describe_holding(completeness: Completeness, newest: Boundary) -> str:
    """Describes which topic-partitions hold the watermark back, since when, why, and what to do.

    Args:
        completeness: the completeness of the windows.
        newest: the newest frozen boundary.
    """
    if completeness.event_time is not None:
        return _describe_events(completeness)
    marks = newest.by_tp()
    by_reason: dict[tuple[str, str], list[TopicPartition]] = {}
    for tp in completeness.holding:
        reason_and_advice = _REASONS.get(marks[tp].origin, _UNKNOWN) if tp in marks else _UNKNOWN
        by_reason.setdefault(reason_and_advice, []).append(tp)
    since = (
        "at no window yet"
        if completeness.watermark is None
        else f"at {instant(completeness.watermark)}"
    )
    return " ".join(
        f"{join_first_few([f'`{tp}`' for tp in tps])} {'hold' if len(tps) > 1 else 'holds'} the"
        f" watermark {since}: {reason}. {advice}"
        for (reason, advice), tps in by_reason.items()
    )


def _describe_events(completeness: Completeness) -> str:
    """Describes which topic-partitions hold the event watermark back, and what to do."""
    tps = join_first_few([f"`{tp}`" for tp in completeness.holding])
    column, watermark = completeness.event_time, completeness.event_watermark
    since = "at no time yet" if watermark is None else f"at {instant(watermark)}"
    if not completeness.holding:
        return f"The event watermark is {since}, and every topic-partition is idle: wait."
    return (
        f"{tps} {'hold' if len(completeness.holding) > 1 else 'holds'} the event watermark {since}:"
        f" the committed windows have no later `{column}` from before their ends. The next windows"
        " raise it. If a topic-partition may be idle, set `window.idle: exempt`; if not, look at"
        " its producer."
    )
