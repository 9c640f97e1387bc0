"""Which planned splits are still in the log, and which topics the run gives up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from windrow.ingest.errors import IdentityError, UnreachableError
from windrow.ingest.model.boundary import Mark
from windrow.ingest.model.label import is_later
from windrow.ingest.model.plan import Plan, Split
from windrow.ingest.model.receipt import Committed, SplitCounts
from windrow.ingest.model.source import OnLoss
from windrow.ingest.model.staged import Staged
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.next_start import next_start
from windrow.ingest.source.enumerator.cutoff import (
    cut_off_error,
    described,
    surely_cut_off,
    surely_gone,
)
from windrow.ingest.source.enumerator.splits import WAY_OUT, refuse_lost, refuse_other_identity


def loss_policy(pipeline: Pipeline, request: Request, committed: Committed | None) -> OnLoss:
    """Whether this run may go on without messages that are gone.

    The spec's policy is for the first reading; whoever replaces rows says with the
    request whether fewer will do.
    """
    if committed is not None:
        return "skip" if request.accept_fewer else "fail"
    return pipeline.spec.source.on_loss


def readable_splits(
    pipeline: Pipeline, plan: Plan, on_loss: OnLoss, committed: Committed | None
) -> tuple[Split, ...]:
    """The splits of a plan that can still be read.

    Their topics are those that were planned, and hold what was planned.

    `committed`: what a replacing run is to replace; None for a first reading.

    Whether the log's end was cut off is for the reader to find out where something is
    to be read; where nothing is, it is asked here.

    Raises:
        IdentityError: a topic, or the cluster, is another one than was planned. Where
            the newest boundary is of another cluster too, the spec names a wrong one,
            which no window can be read from.
        DataLossError, CutOffError: the log lacks what was planned.
        UnreachableError: the cluster doesn't answer.
    """
    names = sorted({s.topic for s in plan.splits})
    cluster, ids = _current_topics(pipeline, names)
    gone = (
        _given_up(pipeline, plan, cluster, ids, on_loss) if committed is None else frozenset[str]()
    )
    if len(ids) + len(gone) < len(names):
        # what was missing may have come back while it was asked for again
        cluster, ids = _current_topics(pipeline, names)
    readable = tuple(s for s in plan.splits if s.topic not in gone)
    left = msgspec.structs.replace(plan, splits=readable)
    try:
        refuse_other_identity(left, cluster, ids)
    except IdentityError as error:
        reached = next_start(pipeline.ledger, pipeline.spec.id)
        error.of_setting = reached is not None and reached.cluster_id != cluster
        raise
    if on_loss == "fail":
        way_out = (
            WAY_OUT
            if committed is None
            else "Replay with --accept-fewer if fewer is what you want."
        )
        refuse_lost(left, pipeline.broker.log_starts(sorted({s.tp for s in readable})), way_out)
    if on_loss == "fail" and committed is None:
        for mark, end in _cut_short(pipeline, plan):
            raise cut_off_error(mark, end, plan.stop.label)
    return readable


def refuse_back(pipeline: Pipeline, plan: Plan, read: Iterable[Split]) -> None:
    """Hold the topics against the plan once more, right before the commit: those that
    were read, and those that the run gave up.

    Raises:
        IdentityError: a topic that was read is another one now.
        UnreachableError: a topic that the run gave up is there again.
    """
    splits = tuple(read)
    cluster, ids = _current_topics(pipeline, sorted({s.topic for s in plan.splits}))
    refuse_other_identity(msgspec.structs.replace(plan, splits=splits), cluster, ids)
    planned = plan.stop.by_topic()
    for topic in sorted({s.topic for s in plan.splits} - {s.topic for s in splits}):
        if cluster == plan.stop.cluster_id and ids.get(topic) == planned[topic].topic_id:
            what = (
                f"The topic was not there when window {plan.window.key} was read, and is there"
                " again"
            )
            raise UnreachableError(
                what, "check", "Nothing was committed. Run the window again.", topic
            )


def _current_topics(pipeline: Pipeline, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The cluster's id, and the ids of those topics that are there."""
    return pipeline.broker.cluster_id(), {
        name: info.topic_id for name, info in pipeline.broker.topics(names).items()
    }


def cut_short(pipeline: Pipeline, plan: Plan) -> tuple[str, ...]:
    """What the receipt of a window says of logs that end below where it ends, and of
    which it reads nothing, one sentence each.

    Nothing where the source doesn't say to go on: then such a window is refused
    (`readable_splits`).
    """
    if pipeline.spec.source.on_loss == "fail":
        return ()
    return tuple(
        f"{mark.tp}: {described(mark, end, plan.stop.label)}; what is written there until it has"
        " grown back is in no window"
        for mark, end in _cut_short(pipeline, plan)
    )


def _cut_short(pipeline: Pipeline, plan: Plan) -> list[tuple[Mark, int | None]]:
    """Of a topic that is another one now, or gone, nothing is asked."""
    read, planned = {s.tp for s in plan.splits}, plan.stop.by_topic()
    marks = [m for m in plan.stop.marks if m.tp not in read and m.offset > 0 and m.how != "removed"]
    if not marks:
        return []
    cluster, ids = _current_topics(pipeline, sorted({m.topic for m in marks}))
    same = [
        m
        for m in marks
        if cluster == plan.stop.cluster_id and ids.get(m.topic) == planned[m.topic].topic_id
    ]
    return surely_cut_off(pipeline.broker, same, pipeline.sleep)


def _given_up(
    pipeline: Pipeline, plan: Plan, cluster: str, ids: Mapping[str, str], on_loss: OnLoss
) -> frozenset[str]:
    """Topics of the plan that are not there any more, and that somebody has said to go on without.

    Said by `on_removed: drop` of a topic that is gone from the cluster that was planned
    on; by a rebase, with `on_loss: skip`, of one that was made anew.

    Raises:
        IdentityError: there was a rebase, and the spec doesn't say to go on.
    """
    names = sorted({s.topic for s in plan.splits})
    replaced = (
        _replaced(pipeline, plan, names)
        if any(ids.get(n) != plan.stop.by_topic()[n].topic_id for n in names)
        else set()
    )
    if replaced and on_loss == "fail":
        what = (
            f"Window {plan.window.key} was planned before a rebase, and its messages are gone with"
            " the old topic"
        )
        do = "Set source.on_loss: skip to commit it without them, as partial."
        raise IdentityError(what, "plan", do, min(replaced))
    drops = pipeline.spec.source.on_removed == "drop" and cluster == plan.stop.cluster_id
    missing = [name for name in names if name not in ids] if drops else []
    return frozenset({*replaced, *surely_gone(pipeline.broker, missing, pipeline.sleep)})


def _replaced(pipeline: Pipeline, plan: Plan, names: Sequence[str]) -> set[str]:
    """Topics of the plan in whose place a rebase at its end, or later, has put others."""
    planned, gone = plan.stop.by_topic(), set[str]()
    for opening in pipeline.ledger.rebased(pipeline.spec.id):
        now = opening.by_topic()
        if not is_later(plan.window.end, opening.label):
            moved = opening.cluster_id != plan.stop.cluster_id
            gone |= {
                n for n in names if moved or n not in now or now[n].topic_id != planned[n].topic_id
            }
    return gone


def with_the_gone(plan: Plan, read: Sequence[Staged]) -> list[Staged]:
    """One result per split of the plan, in its order: of a topic that is gone all
    offsets are skipped.
    """
    results = {r.split: r for r in read}
    return [results.get(split) or _skipped(split) for split in plan.splits]


def _skipped(split: Split) -> Staged:
    nothing = SplitCounts(
        topic=split.topic,
        partition=split.partition,
        start=split.start,
        stop=split.stop,
        next_offset=split.stop,
        read=0,
        bytes=0,
        valid=0,
        dead=0,
        dropped=0,
        rows_staged=0,
        dead_staged=0,
        aborted=0,
        skipped=split.stop - split.start,
        rows=0,
    )
    return Staged(split, nothing, (), ())
