"""The end of micro-batches (`window.stop`): each case in which it could be wrong, late or lost."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.contracts.logs import instant_at
from tests.contracts.source_desk import DyingEngine, InterruptedRunError, SourceDesk, minutes
from windrow.ingest.admin.lag import measure_lag
from windrow.ingest.admin.rebase import rebase
from windrow.ingest.admin.rebuild import rebuild
from windrow.ingest.admin.retention_margin import retention_margin
from windrow.ingest.admin.verify import Verified, verify
from windrow.ingest.crashpoints import CrashError
from windrow.ingest.errors import (
    DataLossError,
    IdentityError,
    NotClosedError,
    OpenTransactionError,
    SpecError,
)
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.source import FrozenStop
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.frozen_stop import bounded_source, still_to_come
from windrow.ingest.runner.micro_batches import is_done, preview_next, run_batch, run_batches
from windrow.ingest.source.enumerator.micro_batch_ends import last_boundary
from windrow.ingest.testing.broker import MemoryBroker


def until(
    desk: SourceDesk, topics: object, stop: object, *, max_records: int | None = None, **source: Any
) -> Pipeline:
    """Returns the pipeline with this end.

    Args:
        desk: the desk.
        topics: a topic, a list of topics, or a pattern.
        stop: `window.stop`.
        max_records: maximum of records per batch.
        source: more settings of the source.
    """
    where = "topic_pattern" if isinstance(topics, str) and "*" in topics else "topic"
    window = {
        "grid": "batch",
        "max_records": max_records or "none",
        **({"stop": stop} if stop else {}),
    }
    return desk.pipeline({where: topics, **source}, window)


def drain(pipeline: Pipeline, request: str = "r") -> list[dict[TopicPartition, tuple[int, int]]]:
    """Runs all waiting batches, and returns what each has read."""
    results = run_batches(pipeline, Request(request))
    return [
        {s.tp: (s.start, s.stop) for s in result.committed.receipt.plan.splits}
        for result in results
    ]


def run_verify(desk: SourceDesk, pipeline: Pipeline) -> Verified:
    """Returns what `verify` finds."""
    assert desk.sink is not None
    return verify("things", desk.sink, desk.sink.dead_letters, pipeline.ledger, pipeline.broker)


def offsets_behind(
    tp: TopicPartition, desk: SourceDesk, end: int
) -> dict[TopicPartition, set[int]]:
    """Returns all offsets from `end` on."""
    return {tp: set(range(end, desk.logs.end(tp)))}


def test_an_end_before_the_start(desk: SourceDesk) -> None:
    """A given end before the start is refused with topic-partition and both offsets.

    A time before the start is done at once. Nothing is frozen for the refused end.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(*range(6)))
    begin = {"offsets": {0: 3}}
    early_stop = until(desk, tp.topic, {"offsets": {0: 2}}, start=begin)
    with pytest.raises(
        SpecError, match="is offset 2, and the next micro-batch begins at 3"
    ) as caught:
        run_batch(early_stop, Request("a"))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (tp.topic, 0, 3)
    assert bounded_source(early_stop.spec, early_stop.ledger).stop is None
    for position in ({"timestamp": instant_at(60_000).isoformat()}, {"offsets": {0: 3}}):
        pipeline = until(desk, tp.topic, position, start=begin)
        assert drain(pipeline) == []
        assert is_done(pipeline)


def test_an_instant_that_is_still_to_come(desk: SourceDesk) -> None:
    """A stop time in the future is refused until then, and then frozen."""
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1))
    position = {"timestamp": (desk.now + timedelta(seconds=1)).isoformat()}
    pipeline = until(desk, tp.topic, position)
    with pytest.raises(NotClosedError, match="that is still to come"):
        run_batch(pipeline, Request("a"))
    desk.now += timedelta(seconds=1)
    assert drain(pipeline) == [{tp: (0, 2)}]
    assert is_done(pipeline)


def test_an_end_beyond_the_log_is_waited_for(desk: SourceDesk) -> None:
    """An end beyond the log is waited for: existing messages are read, and the number of
    missing offsets is reported.

    The last batch may be smaller than min_records, and nothing after the end is read.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1, 2))
    window = {"grid": "batch", "min_records": 3, "stop": {"offsets": {0: 5}}}
    pipeline = desk.pipeline({"topic": tp.topic}, window)
    assert drain(pipeline, "a") == [{tp: (0, 3)}]
    desk.send(tp, *minutes(3))
    assert drain(pipeline, "b") == []
    assert not is_done(pipeline)
    assert still_to_come(pipeline) == f" Offsets left up to window.stop: 2, of {tp}."
    desk.send(tp, *minutes(4, 5))
    assert drain(pipeline, "c") == [{tp: (3, 5)}]
    assert (is_done(pipeline), still_to_come(pipeline)) == (True, "")
    assert desk.verdict({tp: {5}}).ok, str(desk.verdict())


def test_another_end(desk: SourceDesk) -> None:
    """A later end extends the run, and no end removes it.

    An end before the read offsets is refused, with advice that works.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(*range(4)))
    latest = until(desk, tp.topic, "latest", max_records=3)
    assert drain(latest, "a") == [{tp: (0, 3)}, {tp: (3, 4)}]
    desk.send(tp, *minutes(*range(4, 9)))
    assert (drain(latest, "b"), is_done(latest)) == ([], True)
    for position in ({"offsets": {0: 3}}, {"timestamp": instant_at(60_000).isoformat()}):
        sooner = until(desk, tp.topic, position)
        for ask in (preview_next, lambda p: run_batch(p, Request("c"))):
            with pytest.raises(SpecError, match=r"and the next micro-batch begins at 4") as refused:
                ask(sooner)
            assert "Set it to a later position, or leave it out" in refused.value.advice
        assert not is_done(sooner)
    later = until(desk, tp.topic, {"timestamp": instant_at(6 * 60_000).isoformat()})
    assert preview_next(later) is not None
    assert bounded_source(later.spec, later.ledger).stop is None, "a plan freezes nothing"
    assert drain(later, "d") == [{tp: (4, 6)}]
    with pytest.raises(SpecError, match="is offset 4, and the next"):
        run_batch(latest, Request("e"))
    assert drain(until(desk, tp.topic, None), "f") == [{tp: (6, 9)}]
    assert run_verify(desk, later).findings == ()
    assert desk.verdict().ok, str(desk.verdict())


def test_what_comes_after_the_freeze_is_not_read(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """A partition or topic that is added after the end was frozen isn't read, and lag names it.

    With another end, or none, it is read from its beginning.
    """
    first = desk.logs.topic(1)
    desk.send(TopicPartition(first, 0), *minutes(0, 1))
    pipeline = until(desk, "topic-.*", "latest", max_records=1)
    assert run_batch(pipeline, Request("a")) is not None
    desk.logs.cluster.add_partitions(first, 2)
    newer = (TopicPartition(first, 1), TopicPartition(desk.logs.topic(1), 0))
    for tp in newer:
        desk.send(tp, *minutes(2, 3))
    assert drain(pipeline, "b") == [{TopicPartition(first, 0): (1, 2)}]
    assert is_done(pipeline)
    unread = measure_lag(
        cluster,
        bounded_source(pipeline.spec, pipeline.ledger),
        pipeline.ledger.newest("things")[-1],
        desk.now,
    )
    assert (unread.records, unread.newer) == (0, newer)
    assert desk.verdict({tp: {0, 1} for tp in newer}).ok
    longer = until(desk, "topic-.*", {"timestamp": instant_at(3 * 60_000).isoformat()})
    assert drain(longer, "c") == [dict.fromkeys(newer, (0, 1))]
    assert is_done(longer)
    assert run_verify(desk, longer).findings == ()
    assert desk.verdict({tp: {1} for tp in newer}).ok, str(desk.verdict())


@pytest.mark.parametrize(
    ("others", "read"),
    [
        ("latest", {0: (0, 1), 1: (0, 2)}),
        ("earliest", {0: (0, 1)}),
        ("committed", {0: (0, 1), 1: (0, 1)}),
    ],
)
def test_topic_partitions_that_are_not_listed(
    desk: SourceDesk, cluster: MemoryBroker, others: str, read: dict[int, tuple[int, int]]
) -> None:
    """Topic-partitions without an end are refused; with `others` they end at the log's end,
    aren't read, or end at a group's offset.
    """
    topic = desk.logs.topic(2)
    first_tp, second_tp = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for tp in (first_tp, second_tp):
        desk.send(tp, *minutes(0, 1))
    cluster.commit_group("g", {second_tp: 1})
    with pytest.raises(SpecError, match=r"No offset is given for topic-1\[1\]") as refused:
        run_batch(until(desk, topic, {"offsets": {0: 1}}), Request("a"))
    assert "window.stop.others to earliest or latest" in refused.value.advice
    stop: dict[str, object] = {"offsets": {0: 1}, "others": others}
    if others == "committed":
        stop["committed"] = "g"
        nobody = until(desk, topic, stop | {"committed": "nobody"})
        with pytest.raises(SpecError, match=r"Group nobody has committed nothing") as refused:
            run_batch(nobody, Request("a"))
        assert "window.stop.reset to earliest or latest" in refused.value.advice
    pipeline = until(desk, topic, stop)
    assert drain(pipeline) == [{TopicPartition(topic, p): offsets for p, offsets in read.items()}]
    assert is_done(pipeline)


def test_retention_takes_messages_before_the_end(desk: SourceDesk) -> None:
    """Messages before the end that retention deletes are lost, or counted with on_loss: skip.

    Later messages don't count.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(*range(8)))
    pipeline = until(desk, tp.topic, {"offsets": {0: 5}}, max_records=2)
    assert run_batch(pipeline, Request("a")) is not None
    desk.logs.cluster.delete_before(tp, 7)
    assert retention_margin(pipeline).level == "fail"
    with pytest.raises(DataLossError):
        run_batch(pipeline, Request("b"))
    skipping = until(desk, tp.topic, {"offsets": {0: 5}}, on_loss="skip")
    assert drain(skipping, "c") == [{tp: (2, 4)}, {tp: (4, 5)}]
    assert is_done(skipping)
    assert retention_margin(skipping).message == "nothing is unread"
    assert desk.verdict({tp: {2, 3, 4, 5, 6, 7}}).ok, str(desk.verdict())


def test_an_end_in_a_gap_of_a_compacted_topic(desk: SourceDesk) -> None:
    """An end in a gap of a compacted topic is reached by a batch that may be empty."""
    tp = desk.logs.compacted()
    for key in (b"a", b"b", b"b", b"b", b"a"):
        desk.send(tp, *minutes(0), key=key)
    sent_messages = desk.sent_ids.pop(tp)
    desk.logs.compact(tp)
    pipeline = until(desk, tp.topic, {"offsets": {0: 2}})
    assert drain(pipeline) == [{tp: (0, 2)}]
    assert is_done(pipeline)
    longer = until(desk, tp.topic, {"offsets": {0: 4}})
    assert drain(longer, "s") == [{tp: (2, 4)}]
    desk.sent_ids[tp] = {3: sent_messages[3]}
    assert is_done(longer)
    assert desk.verdict().ok, str(desk.verdict())


def test_an_open_transaction(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """`latest` is the stable end: messages of an open transaction after it are never read.

    A given end beyond it is waited for. A committed group offset beyond it is asked for again
    later.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0))
    with desk.logs.open_transaction(tp, *desk.things(*minutes(1))):
        pipeline, given_pipeline = (
            until(desk, tp.topic, "latest"),
            until(desk, tp.topic, {"offsets": {0: 2}}),
        )
        cluster.commit_group("g", {tp: 2})
        with pytest.raises(OpenTransactionError, match="The stop, offset 2, lies behind"):
            run_batch(until(desk, tp.topic, {"committed": "g"}), Request("a"))
        assert drain(pipeline) == [{tp: (0, 1)}]
        assert is_done(pipeline)
        assert (drain(given_pipeline, "s"), is_done(given_pipeline)) == ([], False)
    desk.send(tp, *minutes(2))
    assert drain(pipeline, "t") == []
    assert drain(given_pipeline, "u") == [{tp: (1, 2)}]
    assert desk.verdict(offsets_behind(tp, desk, 2)).ok, str(desk.verdict())


def test_nothing_at_all_is_done(desk: SourceDesk) -> None:
    """Empty partitions are done at once: no batch is cut, and later messages aren't read."""
    tp = desk.logs.partition()
    pipeline = until(desk, tp.topic, "latest")
    assert not is_done(pipeline)
    assert drain(pipeline) == []
    desk.send(tp, *minutes(0))
    assert (drain(pipeline, "s"), is_done(pipeline)) == ([], True)


def test_a_topic_that_joins_between_the_last_batch_and_the_end(desk: SourceDesk) -> None:
    """An end for a pipeline that has run without one includes a new topic without messages, and
    is done.
    """
    old = desk.logs.topic(1)
    desk.send(TopicPartition(old, 0), *minutes(0))
    assert len(drain(until(desk, "topic-.*", None))) == 1
    new = TopicPartition(desk.logs.topic(1), 0)
    desk.send(new, *minutes(0, 1, 2))
    desk.logs.cluster.delete_before(new, 3)
    pipeline = until(desk, "topic-.*", "latest")
    drain(pipeline, "s")
    assert is_done(pipeline)


def test_a_topic_that_goes(desk: SourceDesk) -> None:
    """A topic that is gone is refused by name, and skipped with on_removed: drop.

    Once all is read, the topic isn't asked for.
    """
    kept_topic, deleted_topic = desk.logs.topic(1), desk.logs.topic(1)
    desk.send(TopicPartition(kept_topic, 0), *minutes(0))
    desk.send(TopicPartition(deleted_topic, 0), *minutes(0, 1))
    pipeline = until(desk, "topic-.*", "latest", max_records=2)
    assert run_batch(pipeline, Request("a")) is not None
    assert not is_done(until(desk, "topic-.*", "latest", on_removed="drop")), "nothing is gone yet"
    desk.logs.cluster.delete(deleted_topic)
    with pytest.raises(DataLossError, match=deleted_topic):
        run_batch(pipeline, Request("b"))
    dropping = until(desk, "topic-.*", "latest", on_removed="drop")
    assert (drain(dropping, "c"), is_done(dropping)) == ([], True)
    desk.logs.cluster.delete(kept_topic)
    assert (drain(dropping, "d"), is_done(dropping)) == ([], True)


def test_a_topic_made_anew(desk: SourceDesk) -> None:
    """After a rebase an end in the old topic is refused.

    Another position is one in the new topic.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1, 2))
    assert len(drain(until(desk, tp.topic, {"offsets": {0: 3}}, max_records=2))) == 2
    desk.logs.recreate(tp.topic)
    desk.send(tp, *minutes(3, 4))
    longer = until(desk, tp.topic, {"offsets": {0: 5}})
    with pytest.raises(IdentityError, match="rebase"):
        run_batch(longer, Request("a"))
    rebase(longer, None)
    done = until(desk, tp.topic, {"offsets": {0: 3}})
    assert not is_done(done)
    with pytest.raises(IdentityError, match="frozen before a rebase") as refused:
        run_batch(done, Request("b"))
    assert "Set it to another position" in refused.value.advice
    latest = until(desk, tp.topic, "latest")
    assert drain(latest, "c") == [{tp: (0, 2)}]
    assert is_done(latest)


# --- races, deaths and lost ledgers


def test_two_runs_at_once_freeze_one_end(desk: SourceDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs that resolve `latest` at once both use the end that was recorded first, and each
    offset is read once.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1))
    pipeline = until(desk, tp.topic, "latest")

    def overtake(*arguments: Any) -> FrozenStop:
        own_boundary = last_boundary(*arguments)
        desk.send(tp, *minutes(2))
        pipeline.ledger.freeze_stop("things", last_boundary(*arguments))
        return own_boundary

    monkeypatch.setattr("windrow.ingest.runner.frozen_stop.last_boundary", overtake)
    assert drain(pipeline, "a") == [{tp: (0, 3)}]
    desk.send(tp, *minutes(3))
    assert drain(pipeline, "b") == []
    assert desk.sink is not None
    assert {c.receipt.stop for c in desk.sink.receipts()} == {
        bounded_source(pipeline.spec, pipeline.ledger).stop
    }
    assert is_done(pipeline)
    assert run_verify(desk, pipeline).findings == ()
    assert desk.verdict({tp: {3}}).ok, str(desk.verdict())


@pytest.mark.parametrize("killed", ["boundary.before", "boundary.after", "read"])
def test_a_run_that_dies_between_the_freeze_and_the_first_commit(
    desk: SourceDesk, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """After a run that died between the freeze and the first commit, the next run has the same
    end, though the log has grown.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1))
    desk.engine = DyingEngine(0 if killed == "read" else 9)
    pipeline = until(desk, tp.topic, "latest")

    def dies(name: str) -> None:
        if name == killed:
            raise CrashError(name)

    monkeypatch.setattr("windrow.ingest.runner.micro_batches.crash_point", dies)
    with pytest.raises((CrashError, InterruptedRunError)):
        drain(pipeline)
    monkeypatch.undo()
    assert not is_done(pipeline)
    desk.send(tp, *minutes(2))
    assert drain(until(desk, tp.topic, "latest")) == [{tp: (0, 2)}]
    assert is_done(pipeline)
    assert desk.verdict(offsets_behind(tp, desk, 2)).ok, str(desk.verdict())


def test_a_ledger_that_was_rebuilt_has_the_end(desk: SourceDesk) -> None:
    """A rebuilt ledger has the end from the receipts, so `latest` isn't resolved again. verify
    reports a difference.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1))
    pipeline = until(desk, tp.topic, "latest", max_records=1)
    assert len(drain(pipeline)) == 2
    desk.send(tp, *minutes(2))
    assert desk.sink is not None
    empty = replace(pipeline, ledger=open_ledger(str(desk.folder / "other.db")))
    rebuild("things", desk.sink, empty.ledger)
    assert (drain(empty, "s"), is_done(empty)) == ([], True)
    assert run_verify(desk, empty).findings == ()
    rebuild("things", desk.sink, empty.ledger)
    frozen = bounded_source(pipeline.spec, pipeline.ledger).stop
    assert frozen is not None

    class Forgetful:
        def __getattr__(self, name: str) -> object:
            return getattr(pipeline.ledger, name)

        def frozen_stop(self, *_: object) -> None:
            return None

    forgot = run_verify(desk, replace(pipeline, ledger=Forgetful()))  # type: ignore[arg-type]
    assert [f.message for f in forgot.findings] == [
        "the end in window.stop is missing in the ledger"
    ] * 2


@pytest.mark.some(1)
@pytest.mark.parametrize("seed", range(6))
def test_each_offset_up_to_the_end_is_read_once(
    desk: SourceDesk, dice: random.Random, seed: int
) -> None:
    """All batches together are exactly [start, stop) of each topic-partition, while logs grow.

    Sizes of batches, starts, ends and crashes are random.
    """
    del seed
    desk.plain = True
    topic = desk.logs.topic(3)
    tps = [TopicPartition(topic, p) for p in range(3)]
    for tp in tps:
        desk.send(tp, *minutes(*range(dice.randint(0, 6))))
    start = {tp: dice.randint(0, desk.logs.end(tp)) for tp in tps}
    stop = {tp: start[tp] + dice.randint(0, 8) for tp in tps}
    position: object = {"offsets": {tp.partition: stop[tp] for tp in tps}}
    if dice.random() < 0.3:
        position, stop = "latest", {tp: desk.logs.end(tp) for tp in tps}

    def pipeline() -> Pipeline:
        max_records = dice.choice([None, 2, 3, 7])
        least = dice.randint(1, max_records or 6)
        window = {"grid": "batch", "max_records": max_records or "none", "min_records": least}
        begin = {"offsets": {tp.partition: start[tp] for tp in tps}}
        return desk.pipeline({"topic": topic, "start": begin}, {**window, "stop": position})

    for n in range(200):
        desk.engine = DyingEngine(dice.choice([0, 1, 2, 99, 99]))
        stopping = pipeline()
        try:
            drain(stopping, f"r{n}")
        except InterruptedRunError:
            continue
        if is_done(stopping):
            break
        for tp in tps:
            desk.send(tp, *minutes(*range(dice.randint(0, 4))))
    assert is_done(pipeline())
    left_out = {tp: {*range(start[tp]), *range(stop[tp], desk.logs.end(tp))} for tp in tps}
    assert desk.verdict(left_out).ok, str(desk.verdict())
    assert run_verify(desk, pipeline()).findings == ()
