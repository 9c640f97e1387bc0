"""What of a plan can still be read, and what was let go of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ingest.model import Committed, Label, Plan, Split, SplitCounts
from ingest.parts import Pipeline, Request
from ingest.plan.splits import refuse_lost, refuse_other_identity
from ingest.ports import Staged
from ingest.source import OnLoss


def loss_policy(pipeline: Pipeline, request: Request, found: Committed | None) -> OnLoss:
    """The loss policy is for the first reading; whoever replaces rows says for himself whether fewer will do."""
    if found is not None:
        return "skip" if request.accept_fewer else "fail"
    return pipeline.spec.source.on_loss


def readable_splits(pipeline: Pipeline, plan: Plan, on_loss: OnLoss) -> tuple[Split, ...]:
    """The splits that can still be read: the topics must be those that were planned, and hold what was planned."""
    names = sorted({s.topic for s in plan.splits})
    cluster, ids = asked(pipeline, names)
    gone = _let_go(pipeline, plan, names, ids, on_loss)
    readable = tuple(s for s in plan.splits if s.topic not in gone)
    left = msgspec.structs.replace(plan, splits=readable)
    refuse_other_identity(left, cluster, ids)
    if on_loss == "fail":
        tps = sorted({s.tp for s in readable})
        refuse_lost(left, pipeline.broker.log_starts(tps), pipeline.broker.stable_ends(tps))
    return readable


def asked(pipeline: Pipeline, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The cluster's id, and the ids of those topics that are there."""
    return pipeline.broker.cluster_id(), {name: info.topic_id for name, info in pipeline.broker.topics(names).items()}


def _let_go(pipeline: Pipeline, plan: Plan, names: Sequence[str], ids: Mapping[str, str], on_loss: OnLoss) -> frozenset[str]:
    """Topics of the plan that are not there any more, and that somebody has said to go on without.

    Said by `on_removed: drop` of a topic that is gone; by a rebase, with `on_loss: skip`, of one that was made anew.
    """
    gone = {name for name in names if name not in ids} if pipeline.spec.source.on_removed == "drop" else set()
    return frozenset(gone | _replaced(pipeline, plan, names) if on_loss == "skip" else gone)


def _replaced(pipeline: Pipeline, plan: Plan, names: Sequence[str]) -> set[str]:
    """Topics of the plan in whose place a rebase at its end, or later, has put others."""
    planned, gone = plan.stop.by_topic(), set[str]()
    for opening in pipeline.ledger.rebased(pipeline.spec.id):
        now = opening.by_topic()
        if _not_before(opening.label, plan.window.end):
            moved = opening.cluster_id != plan.stop.cluster_id
            gone |= {n for n in names if moved or n not in now or now[n].topic_id != planned[n].topic_id}
    return gone


def _not_before(label: Label, end: Label) -> bool:
    return label >= end  # type: ignore[operator]  # both of one pipeline, so of one kind


def with_the_gone(plan: Plan, read: Sequence[Staged]) -> list[Staged]:
    """One result per split of the plan, in its order: of a topic that is gone all offsets are skipped."""
    results = {r.split: r for r in read}
    return [results.get(split) or _skipped(split) for split in plan.splits]


def _skipped(split: Split) -> Staged:
    nothing = SplitCounts(
        topic=split.topic, partition=split.partition, start=split.start, stop=split.stop, next_offset=split.stop, read=0, bytes=0,
        valid=0, dead=0, dropped=0, rows_staged=0, dead_staged=0, aborted=0, skipped=split.stop - split.start,
    )  # fmt: skip
    return Staged(split, nothing, (), ())
