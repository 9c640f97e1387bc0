"""Runs over a source: batches, loss, rebases, late messages and groups, on the in-memory
cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.contracts.source_desk import (
    FIRST,
    HOUR,
    DyingEngine,
    InterruptedRunError,
    SourceDesk,
    hour,
    minutes,
)
from windrow.ingest.admin.rebase import rebase
from windrow.ingest.crashpoints import CRASH_POINTS, CrashError, CrashPoint
from windrow.ingest.errors import (
    DataLossError,
    GridError,
    IdentityError,
    OpenTransactionError,
    SpecError,
    UnreachableError,
)
from windrow.ingest.model.boundary import TopicPartition, label_text
from windrow.ingest.model.plan import Window
from windrow.ingest.ports.broker import TopicInfo
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.micro_batches import run_batch, run_batches
from windrow.ingest.runner.run_windows import preview, run
from windrow.ingest.testing.broker import MemoryBroker

BATCH = {"grid": "batch"}


# --- batches


@pytest.mark.some(3)
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_batch_that_dies_anywhere_is_run_once(
    desk: SourceDesk, point: CrashPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash at any point, the retry and the next request leave every message once, in
    batches without gaps.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1, 2))
    pipeline = desk.pipeline({"topic": tp.topic}, BATCH)
    monkeypatch.setenv("WINDROW_CRASH", f"{point}:raise:{desk.folder / 'died'}")
    with pytest.raises(CrashError):
        run_batch(pipeline, Request("a"))
    desk.send(tp, *minutes(3))
    for request in ("a", "a", "b"):
        run_batch(pipeline, Request(request))
    assert desk.verdict().ok, str(desk.verdict())


def test_a_run_of_batches_is_bounded(desk: SourceDesk) -> None:
    """A run of batches ends at the offsets that were stable at its start.

    Its retry reports the same batches, and goes on.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(*range(10)))
    pipeline = desk.pipeline({"topic": tp.topic}, BATCH | {"max_records": 4})
    first = []
    for result in run_batches(pipeline, Request("a")):
        first.append(result.committed.receipt.window.start)
        desk.send(tp, *minutes(20, 21, 22, 23))
    assert first[:3] == [0, 1, 2]
    assert len(first) <= 5
    second_results = list(run_batches(pipeline, Request("a")))
    assert [r.recovered for r in second_results[: len(first)]] == [True] * len(first)
    assert desk.verdict().ok, str(desk.verdict())


def test_batches_and_windows_in_time_are_not_mixed(desk: SourceDesk) -> None:
    """A batch can't run on a grid of time, nor an hour on batches, nor a batch by a name that
    wasn't cut.
    """
    tp = desk.logs.partition()
    with pytest.raises(GridError):
        run_batch(desk.pipeline({"topic": tp.topic}), Request("a"))
    batches = desk.pipeline({"topic": tp.topic}, BATCH)
    with pytest.raises(GridError):
        run(batches, hour(0), Request("a"))
    with pytest.raises(SpecError, match="batch-000000003"):
        run(batches, Window("things", 3, 4), Request("a"))
    with pytest.raises(SpecError, match="batch-000000003"):
        preview(batches, Window("things", 3, 4))


def test_a_batch_is_replayed_by_name(desk: SourceDesk) -> None:
    """A batch is replayed by its name: the same offsets, as another generation."""
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1))
    pipeline = desk.pipeline({"topic": tp.topic}, BATCH)
    desk.batch(pipeline, "a")
    replay = run(pipeline, Window("things", 0, 1), Request("r", replace=True))
    assert replay.committed.receipt.generation == 1
    assert desk.verdict().ok, str(desk.verdict())


# --- loss


def test_a_replay_never_skips_unless_told(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """A replay with fewer messages needs --accept-fewer; `on_loss: skip` doesn't apply to
    committed rows.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1, 2))
    pipeline = desk.pipeline({"topic": tp.topic, "on_loss": "skip"})
    desk.run(pipeline, 0)
    cluster.delete_records(tp, 2)
    with pytest.raises(DataLossError):
        run(pipeline, hour(0), Request("r", replace=True))
    result = run(pipeline, hour(0), Request("r", replace=True, accept_fewer=True))
    assert (result.committed.receipt.counts.read, result.committed.receipt.counts.skipped) == (1, 2)
    assert desk.verdict({tp: {0, 1}}).ok, str(desk.verdict())


def test_a_truncated_log(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """Offsets of a frozen plan that an unclean election cut off are a loss.

    With `on_loss: skip` the receipt is partial.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1, 2, 3))
    pipeline = desk.pipeline({"topic": tp.topic})
    pipeline.ledger.freeze_plans([preview(pipeline, hour(0))])
    cluster.truncate(tp, 2)
    with pytest.raises(DataLossError, match="the log holds 0 to 2"):
        desk.run(pipeline, 0)
    (result,) = desk.run(desk.pipeline({"topic": tp.topic, "on_loss": "skip"}), 0)
    assert (result.committed.receipt.counts.read, result.committed.receipt.counts.skipped) == (2, 2)
    assert result.committed.receipt.partial


def test_a_plan_whose_topic_is_gone(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """A plan with a deleted topic is refused.

    With `on_removed: drop` its offsets are counted as skipped, and the rest is read.
    """
    first, second = desk.logs.topic(1), desk.logs.topic(1)
    for topic in (first, second):
        desk.send(TopicPartition(topic, 0), *minutes(0, 1))
    source = {"topic": [first, second]}
    pipeline = desk.pipeline(source)
    pipeline.ledger.freeze_plans([preview(pipeline, hour(0))])
    cluster.delete_topic(second)
    with pytest.raises(IdentityError, match=second):
        desk.run(pipeline, 0)
    (result,) = desk.run(desk.pipeline(source | {"on_removed": "drop"}), 0)
    assert result.committed.receipt.counts.skipped == 2
    assert desk.verdict({TopicPartition(second, 0): {0, 1}}).ok, str(desk.verdict())


def test_a_window_that_was_frozen_before_a_rebase(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """A window that was frozen before a rebase is refused, because its messages are gone with
    the old topic.

    With `on_loss: skip`, after the rebase, it is committed as partial.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1))
    pipeline, skipping = (
        desk.pipeline({"topic": tp.topic}),
        desk.pipeline({"topic": tp.topic, "on_loss": "skip"}),
    )
    plan = preview(pipeline, hour(0))
    pipeline.ledger.freeze(pipeline.spec.id, [plan.start, plan.stop])
    pipeline.ledger.freeze_plans([plan])
    cluster.recreate_topic(tp.topic)
    with pytest.raises(IdentityError):
        desk.run(skipping, 0)
    rebase(pipeline, None)
    with pytest.raises(IdentityError):
        desk.run(pipeline, 0)
    (result,) = desk.run(skipping, 0)
    assert (result.committed.receipt.counts.read, result.committed.receipt.counts.skipped) == (0, 2)
    assert result.committed.receipt.partial


@pytest.mark.parametrize("grid", [None, BATCH])
def test_a_rebase_that_leaves_a_topic_out(
    desk: SourceDesk, cluster: MemoryBroker, grid: dict[str, Any] | None
) -> None:
    """After a rebase that leaves a topic out, the next window joins the one before it, which
    had the topic.

    This holds also if nothing else has changed.
    """
    staying_tp, deleted_tp = desk.logs.partition(), desk.logs.partition()
    desk.send(staying_tp, *minutes(0, 1))
    desk.send(deleted_tp, *minutes(0, 1, 2))
    pipeline = desk.pipeline({"topic_pattern": "topic-.*"}, grid)
    run(pipeline, hour(0), Request("a")) if grid is None else run_batch(pipeline, Request("a"))
    desk.send(staying_tp, *minutes(61))
    cluster.delete_topic(deleted_tp.topic)
    rebase(pipeline, None)
    run(pipeline, hour(1), Request("b")) if grid is None else run_batch(pipeline, Request("b"))
    assert desk.verdict().ok, str(desk.verdict())


@pytest.mark.parametrize("topics", [1, 2])
def test_windows_from_before_a_rebase_can_still_be_run(
    desk: SourceDesk, cluster: MemoryBroker, topics: int
) -> None:
    """Windows from before a rebase that weren't frozen have the other topics' messages, and
    none of the new topic.

    They are partial.
    """
    names = [desk.logs.topic(1) for _ in range(topics)]
    for name in names:
        desk.send(TopicPartition(name, 0), *minutes(*(60 * n + 5 for n in range(6))))
    source = {"topic": names}
    desk.run(desk.pipeline(source), 0, 5)
    recreated_tp = TopicPartition(names[-1], 0)
    cluster.recreate_topic(recreated_tp.topic)
    skipping = desk.pipeline(source | {"on_loss": "skip"})
    rebase(skipping, None)
    with pytest.raises(IdentityError):
        desk.run(desk.pipeline(source), 2)
    inner = desk.run(skipping, 2, 4, 3, 1)
    assert all(r.committed.receipt.partial for r in inner)
    assert sum(r.committed.receipt.counts.skipped for r in inner) == 4
    assert desk.verdict({recreated_tp: {1, 2, 3, 4}}).ok, str(desk.verdict())


def test_a_drain_ends_though_a_topic_is_made_anew(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """A run of batches ends although a topic was made again, whose end offset was of the old
    topic.
    """
    busy, anew = desk.logs.topic(1), desk.logs.topic(1)
    for topic in (busy, anew):
        desk.send(TopicPartition(topic, 0), *minutes(*range(30)))
    pipeline = desk.pipeline({"topic": [busy, anew]}, BATCH | {"max_records": 8})
    batches = 0
    for _ in run_batches(pipeline, Request("a")):
        batches += 1
        if batches == 2:
            cluster.recreate_topic(anew)
            rebase(pipeline, None)
        desk.send(TopicPartition(busy, 0), *minutes(*range(4)))
        assert batches < 20
    assert batches > 2


def test_a_topic_made_anew_twice(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """A second rebase, before a window used the first, replaces it."""
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0))
    pipeline = desk.pipeline({"topic": tp.topic})
    desk.run(pipeline, 0)
    for _ in range(2):
        cluster.recreate_topic(tp.topic)
        rebase(pipeline, None)
    cluster.produce(tp, b'{"id": 77, "name": null}', timestamp=FIRST + timedelta(minutes=70))
    (result,) = desk.run(pipeline, 1)
    assert result.committed.receipt.counts.valid == 1


# --- starts and topics


def test_a_start_behind_an_open_transaction_is_not_waited_for_for_ever(desk: SourceDesk) -> None:
    """A start beyond an open transaction is waited for until max_wait is over, then raises an
    error.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1))
    pipeline = desk.pipeline({"topic": tp.topic, "start": {"offsets": {tp.topic: {0: 4}}}})
    desk.now = FIRST + timedelta(hours=2)
    sleeps = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        assert seconds > 0, "it goes on without waiting"
        desk.now += timedelta(seconds=seconds)

    with (
        desk.logs.open_transaction(tp, *desk.things(*minutes(2, 3, 4))),
        pytest.raises(OpenTransactionError),
    ):
        run(replace(pipeline, sleep=sleep), hour(0), Request("a"))
    assert not sleeps  # max_wait after the window's start is over already


def test_a_partition_that_was_added_is_read_though_an_older_spec_runs_in_between(
    desk: SourceDesk, cluster: MemoryBroker
) -> None:
    """A run of an older spec without a new partition freezes a boundary between two that have
    it.

    Its messages are still in one window.
    """
    topic = desk.logs.topic(1)
    first, added = TopicPartition(topic, 0), TopicPartition(topic, 1)
    desk.send(first, *minutes(*range(0, 240, 10)))
    older, newer = (desk.pipeline({"partitions": {topic: chosen}}) for chosen in ([0], [0, 1]))
    desk.run(older, 0)
    cluster.add_partitions(topic, 2)
    desk.send(added, *minutes(*range(65, 240, 10)))
    desk.run(newer, 3)
    desk.run(older, 1)
    desk.run(newer, 2)
    assert desk.verdict().ok, str(desk.verdict())


def test_a_topic_that_only_seems_gone(
    desk: SourceDesk, cluster: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer without a topic doesn't drop it, and a topic that is back before the commit
    refuses the window.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1))
    pipeline = desk.pipeline({"topic": tp.topic, "on_removed": "drop"})
    plan = preview(pipeline, hour(0))
    pipeline.ledger.freeze(pipeline.spec.id, [plan.start, plan.stop])
    pipeline.ledger.freeze_plans([plan])
    answers: list[int] = []

    def topics(names: Sequence[str]) -> dict[str, TopicInfo]:
        answers.append(len(names))
        return {} if len(answers) in blind else {n: cluster.topic(n) for n in names}

    monkeypatch.setattr(pipeline.broker, "topics", topics)
    blind: set[int] = {1, 2, 3}
    with pytest.raises(UnreachableError, match="exists again"):
        desk.run(pipeline, 0)
    answers.clear()
    blind = {1}
    (result,) = desk.run(pipeline, 0)
    assert result.committed.receipt.counts.skipped == 0
    assert desk.verdict().ok, str(desk.verdict())


def test_a_window_that_expired_whole(desk: SourceDesk) -> None:
    """A window whose messages expired after it was planned is refused.

    With on_loss: skip each of them is counted.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1, 61))
    desk.engine = DyingEngine(0)
    pipeline = desk.pipeline({"topic": tp.topic})
    with pytest.raises(InterruptedRunError):
        desk.run(pipeline, 0)
    desk.logs.cluster.delete_before(tp, 2)
    with pytest.raises(DataLossError):
        desk.run(pipeline, 0)
    first, _ = desk.run(desk.pipeline({"topic": tp.topic, "on_loss": "skip"}), 0, 1)
    assert (first.committed.receipt.counts.skipped, first.committed.receipt.counts.read) == (2, 0)
    assert desk.verdict({tp: {0, 1}}).ok, str(desk.verdict())


def test_a_rebase_makes_committed_windows_final(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """After a rebase, windows of the old topic can't be replayed, even with --accept-fewer."""
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1))
    pipeline = desk.pipeline({"topic": tp.topic, "on_loss": "skip"})
    desk.run(pipeline, 0)
    cluster.recreate_topic(tp.topic)
    rebase(pipeline, None)
    with pytest.raises(IdentityError):
        run(pipeline, hour(0), Request("r", replace=True, accept_fewer=True))
    assert desk.verdict().ok, str(desk.verdict())


def test_fewer_in_one_partition_is_fewer(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """Fewer messages in one topic-partition refuse a replay, despite more in another."""
    topic = desk.logs.topic(2)
    first_tp, second_tp = TopicPartition(topic, 0), TopicPartition(topic, 1)
    desk.send(first_tp, *minutes(0, 1))
    desk.send(second_tp, *minutes(0))
    with cluster.transaction() as aborted:
        cluster.produce(
            second_tp, b'{"id": 50, "name": null}', timestamp=FIRST, transaction=aborted
        )
        cluster.produce(
            second_tp, b'{"id": 51, "name": null}', timestamp=FIRST, transaction=aborted
        )
        aborted.abort()
        aborted.state.status = "open"  # so that leaving the block has something to end
        desk.logs.mirror(second_tp, desk.things(0, 0), visible=False)
    desk.run(desk.pipeline({"topic": topic}), 0)
    cluster.remove(first_tp, {1})
    with pytest.raises(DataLossError, match="1 message left, generation 0 had 2"):
        run(
            desk.pipeline({"topic": topic, "isolation": "read_uncommitted"}),
            hour(0),
            Request("r", replace=True),
        )


def test_a_new_topic_that_begins_at_the_end(desk: SourceDesk) -> None:
    """The end of a new topic is frozen when it is first seen, also without new messages.

    Later messages are read.
    """
    old, new = desk.logs.topic(1), desk.logs.topic(1)
    desk.send(TopicPartition(old, 0), *minutes(0))
    desk.batch(desk.pipeline({"topic": old, "start": "earliest"}, BATCH), "a")
    desk.send(TopicPartition(new, 0), *minutes(1))
    both = desk.pipeline({"topic": [old, new], "joining": "window"}, BATCH)
    assert desk.batch(both, "b") is not None
    desk.send(TopicPartition(new, 0), *minutes(2))
    assert desk.batch(both, "c") is not None
    assert desk.verdict({TopicPartition(new, 0): {0}}).ok, str(desk.verdict())


def test_a_drain_ends_though_a_topic_goes(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """A run of batches ends although one of its topics is removed."""
    busy_topic, deleted_topic = desk.logs.topic(1), desk.logs.topic(1)
    for topic in (busy_topic, deleted_topic):
        desk.send(TopicPartition(topic, 0), *minutes(*range(8)))
    pipeline = desk.pipeline(
        {"topic": [busy_topic, deleted_topic], "on_removed": "drop"}, BATCH | {"max_records": 4}
    )
    batches = 0
    for _ in run_batches(pipeline, Request("a")):
        batches += 1
        if batches == 1:
            cluster.delete_topic(deleted_topic)
        desk.send(TopicPartition(busy_topic, 0), *minutes(*range(4)))
        assert batches < 20
    assert batches > 1


def test_what_lies_before_the_start_is_no_window(desk: SourceDesk) -> None:
    """The library refuses a window before the pipeline's start, as the command does."""
    tp = desk.logs.partition()
    with pytest.raises(GridError, match="before the start"):
        desk.run(desk.pipeline({"topic": tp.topic, "start": "earliest"}), -1)


# --- hours


def test_late_and_early_messages_are_rows_and_counted(desk: SourceDesk) -> None:
    """Late messages count by the hour of their timestamp.

    Messages older than the first window count for the first.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(130, 70, 5, -600, 500))
    desk.send(tp, *minutes(*range(121, 150)))
    pipeline = desk.pipeline({"topic": tp.topic})
    (result,) = desk.run(pipeline, 2)
    receipt = result.committed.receipt
    assert receipt.counts.valid == 34
    late = {key: n for s in receipt.splits for key, n in s.late_by}
    assert (receipt.counts.late, receipt.counts.early) == (3, 1)
    assert late == {label_text(hour(0).start): 2, label_text(hour(1).start): 1}


def test_a_group_gets_the_newest_windows_offsets_only(
    desk: SourceDesk, cluster: MemoryBroker
) -> None:
    """A backfill of older windows doesn't move the consumer group back, and a group that
    refuses offsets fails nothing.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 61, 125))
    pipeline = desk.pipeline({"topic": tp.topic, "offsets_group": "watchers"})
    newest, older = desk.run(pipeline, 1, 0)
    assert newest.group_offsets is not None
    assert newest.group_offsets.succeeded == 1
    assert older.group_offsets is None
    assert cluster.committed_offsets("watchers", [tp]) == {tp: 2}
    cluster.refuse_offsets("watchers", "consumers are at work in the group")
    (refused,) = desk.run(pipeline, 2)
    assert refused.group_offsets is not None
    assert (refused.group_offsets.succeeded, refused.group_offsets.failed) == (0, 1)
    assert desk.verdict().ok, str(desk.verdict())


def test_a_daily_window_of_a_year(desk: SourceDesk) -> None:
    """A grid may have windows of different lengths, such as months."""
    tp = desk.logs.partition()
    months = [
        Window(
            "things",
            FIRST.replace(month=m, day=1, hour=0),
            FIRST.replace(month=m + 1, day=1, hour=0),
        )
        for m in (1, 2)
    ]
    begun = {"grid": "0 0 1 * *", "start": months[0].start}
    desk.send(tp, *(int((w.start - FIRST).total_seconds() * 1000) + 26 * HOUR for w in months))
    desk.now = FIRST + timedelta(days=120)
    pipeline = desk.pipeline({"topic": tp.topic}, begun)
    for n, window in enumerate(reversed(months)):
        run(pipeline, window, Request(f"m{n}"))
    assert desk.verdict().ok, str(desk.verdict())
