"""A control topic whose first records were deleted, or that was made again.

Published messages stay published.
"""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

from tests.kafka.produce import (
    Put,
    configure,
    create_topic,
    delete_records,
    delete_topic,
    high_watermark,
    produce,
)
from tests.sinks.kafka import test_publish as publish
from tests.sinks.kafka.hooks import before_fence
from tests.sinks.kafka.world import KafkaBoth, create_location, header, open_sink, read_committed
from windrow.ingest.admin.receipts import restore
from windrow.ingest.admin.verify import verify
from windrow.ingest.errors import DamagedError, OverlapError, RefusedError
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import TopicSeen
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.ports.sink import AlreadyDone, Done, Unreadable
from windrow.ingest.sinks.kafka import topics
from windrow.ingest.sinks.kafka.control_records import OffsetSpan, owner_record
from windrow.ingest.sinks.kafka.control_topic import ControlTopic
from windrow.ingest.sinks.kafka.encoder import ORIGIN
from windrow.ingest.sinks.kafka.options import KafkaOptions
from windrow.ingest.sinks.kafka.send import spans_between
from windrow.ingest.sinks.kafka.topics import LogEnd, LogSeen, SinkTopics
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.contracts.windows import plan_of, receipt, stage, staged_receipt, window
from windrow.ingest.testing.contracts.with_dead_letters import OWNER

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.some(10, of="tests")]


@pytest.fixture
def table(kafka: str, tmp_path: Path) -> Any:
    """A table with one window."""
    sink = open_sink(create_location(kafka, str(tmp_path / "staging")), KafkaBoth)
    sink.prepare()
    assert isinstance(sink.commit(*staged_receipt(sink, 0, dead=False)), Done)
    return sink


def deleted(kafka: str, topic: str) -> None:
    """Deletes all records of a topic, as the cleanup.policy `delete` does after a while."""
    configure(kafka, topic, "cleanup.policy", "delete")
    delete_records(kafka, topic, 0, high_watermark(kafka, topic))
    configure(kafka, topic, "cleanup.policy", "compact")


def reopen(sink: Any) -> Any:
    """Opens the table as another process does."""
    return KafkaBoth(sink.connection, sink.options, sink.schema, sink.metadata)


def test_receipts_that_were_deleted_come_back_from_the_ledger(
    kafka: str, tmp_path: Path, table: Any
) -> None:
    """Without its receipts, a table's committed window never counts as new.

    Once receipt and owner are restored, all is as before. This holds for a process that opens
    the table, and for one that has read it before.
    """
    ledger, (committed_window,) = (
        open_ledger(f"sqlite:///{tmp_path / 'state.db'}"),
        list(table.receipts()),
    )
    text, row_ranges = (
        table.receipt_text(committed_window.receipt),
        table.audit().rows_held(window(0)),
    )
    assert restore("orders", table, ledger, dry_run=False).windows == ()
    deleted(kafka, table.options.control)
    for sink in (table, reopen(table)):
        for look in (
            sink.owner,
            sink.prepare,
            lambda sink=sink: sink.look(window(0)),
            lambda sink=sink: list(sink.receipts()),
        ):
            with pytest.raises(
                DamagedError, match=r"begins at offset .* were deleted.*--restore-receipts"
            ):
                look()
    assert restore("orders", table, ledger, dry_run=False).exit_code == 1, (
        "without a copy there is no way to know what is missing"
    )
    ledger.record(committed_window.receipt, text)
    assert restore("orders", table, ledger, dry_run=True).windows == ("owner", window(0).key)
    with pytest.raises(DamagedError):
        table.owner()
    assert restore("orders", reopen(table), ledger, dry_run=False).exit_code == 0
    for sink in (table, reopen(table)):
        assert list(sink.receipts()) == [committed_window]
        assert sink.receipt_text(committed_window.receipt) == text
        assert sink.audit().rows_held(window(0)) == row_ranges
    assert isinstance(table.commit(*staged_receipt(table, 1, dead=False)), Done)


def test_a_control_topic_that_is_gone_is_made_anew(kafka: str, tmp_path: Path, table: Any) -> None:
    """A control topic that is gone is made again, with the owner and the receipts of the ledger."""
    ledger, (committed_window,) = (
        open_ledger(f"sqlite:///{tmp_path / 'state.db'}"),
        list(table.receipts()),
    )
    ledger.record(committed_window.receipt, table.receipt_text(committed_window.receipt))
    delete_topic(kafka, table.options.control)
    assert restore("orders", reopen(table), ledger, dry_run=False).windows == (window(0).key,)
    assert (reopen(table).owner(), list(reopen(table).receipts())) == (OWNER, [committed_window])


def test_a_receipt_is_not_put_back_for_rows_that_are_gone(
    kafka: str, tmp_path: Path, table: Any
) -> None:
    """A receipt isn't restored if the window's messages are gone: the window would look
    complete.
    """
    ledger, (committed_window,) = (
        open_ledger(f"sqlite:///{tmp_path / 'state.db'}"),
        list(table.receipts()),
    )
    ledger.record(committed_window.receipt, table.receipt_text(committed_window.receipt))
    deleted(kafka, table.options.control)
    (topic,) = table.options.topics
    for partition in range(2):
        delete_records(kafka, topic, partition, high_watermark(kafka, topic, partition))
    done = restore("orders", table, ledger, dry_run=False)
    assert {("have 0 of the 20 rows" in f.message, "--again" in f.advice) for f in done.failed} == {
        (True, True)
    }
    assert (table.owner(), table.look(window(0))) == (
        OWNER,
        None,
    ), "the window can be published once more"


class OneLog:
    """Answers questions about a control topic without a cluster."""

    def __init__(self, log_seen: LogSeen) -> None:
        self.log_seen = log_seen

    def control(self, *, wait: bool) -> LogSeen:
        """Returns the log; see `SinkTopics.control`."""
        del wait
        return self.log_seen


def test_a_view_of_a_log_that_was_cut_off_is_not_gone_on_with(kafka: str, table: Any) -> None:
    """A process doesn't continue with its view of a control topic that was cut off.

    1. A process reads the control topic.
    2. The topic is cut off, and grows again to the same end.
    3. The process reads the new records.
    """
    old, end = OWNER, 1
    topic = create_topic(kafka)
    produce(kafka, topic, [Put(value, key=key) for key, value in [owner_record(old)]])
    log = OneLog(LogSeen("id", 3, 0, end))
    control_topic = table.control

    def read_owner(view: ControlTopic) -> Any:
        state = view.read(to_end=True)
        return None if state is None or state.is_new else state.owner

    view = ControlTopic(topic, log, control_topic.admin, control_topic.consumer)  # type: ignore[arg-type]
    assert read_owner(view) == old
    delete_topic(kafka, topic)
    create_topic(kafka, name=topic)
    produce(kafka, topic, [Put(b"{}", key=b'["somebody else"]')])
    assert read_owner(view) == old
    log.log_seen = LogSeen("id", 4, 0, end)
    assert read_owner(view) is None


def test_an_end_that_the_cluster_has_not_told_is_asked_for_again(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control topic isn't taken for empty if the connection breaks while its end is asked for.

    librdkafka's answer then has neither an offset nor an error.
    """
    staged_window = staged_receipt(table, 0, dead=False)
    list_offsets, lost = AdminClient.list_offsets, list[Any]()

    def lose_answers(admin: AdminClient, specs: Any, **options: Any) -> Any:
        if len(lost) == 4 or {tp.topic for tp in specs} != {table.options.control}:
            return list_offsets(admin, specs, **options)
        lost.append(specs)
        future = Future[Any]()
        future.set_result(ListOffsetsResultInfo(-1001, -1, -1))
        return dict.fromkeys(specs, future)

    monkeypatch.setattr(AdminClient, "list_offsets", lose_answers)
    assert isinstance(reopen(table).commit(*staged_window), AlreadyDone)
    assert len(lost) == 4


def test_messages_of_others_with_a_windows_origin_are_told(
    kafka: str, tmp_path: Path, table: Any
) -> None:
    """Messages of another program with a window's origin are reported.

    They don't restore a lost receipt. No advice says to publish the rows again. A header that
    isn't an origin, and another pipeline's origin, don't count.
    """
    ledger, (committed_window,) = (
        open_ledger(f"sqlite:///{tmp_path / 'state.db'}"),
        list(table.receipts()),
    )
    ledger.record(committed_window.receipt, table.receipt_text(committed_window.receipt))
    delete_topic(kafka, table.options.control)
    (topic,) = table.options.topics
    ours = header(next(read_committed(kafka, topic)), ORIGIN)
    others = b"others/" + (ours or b"").partition(b"/")[2]
    foreign = [Put(b"{}", headers=[(ORIGIN, text)]) for text in (b"x", b"a/1/2/3", others, None)]
    produce(kafka, topic, [Put(b"{}"), *foreign])
    assert restore("orders", reopen(table), ledger, dry_run=True).failed == ()
    produce(kafka, topic, [Put(b"{}", headers=[(ORIGIN, ours)])])
    (failed,) = restore("orders", reopen(table), ledger, dry_run=True).failed
    assert "the topics have 21 of the 20 rows" in failed.message
    assert ("published twice" in failed.advice, "--again" in failed.advice) == (True, False)


def test_a_target_topic_that_was_made_anew_or_is_gone_is_told(
    kafka: str, tmp_path: Path, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of a target topic that was deleted, or made again, are reported as lost for
    good.

    The finding isn't "can't be checked", and doesn't advise a replay, which the sink refuses. A
    shorter log is asked for again before it is believed, once for all windows.
    """
    (topic,), ledger = table.options.topics, open_ledger(f"sqlite:///{tmp_path / 'state.db'}")

    def verify_message() -> str:
        findings = verify("orders", table, table.dead_letters, ledger, MemoryBroker()).findings
        table_findings = [f for f in findings if f.about == "table"]
        assert {
            (
                f.level,
                f.window,
                "begin a pipeline with another id" in f.advice,
                "replay" in f.advice,
            )
            for f in table_findings
        } == {("wrong", window(0).key, True, False)}
        return table_findings[0].message

    delete_topic(kafka, topic)
    create_topic(kafka, 2, name=topic)
    assert "was deleted and made again, and the window's messages were at" in verify_message()
    ends_calls, audit, ends = [], table.audit(), SinkTopics.ends
    monkeypatch.setattr(SinkTopics, "ends", lambda *args: ends_calls.append(1) or ends(*args))
    for _ in range(3):
        with pytest.raises(RefusedError, match="was deleted and made again"):
            audit.rows_held(window(0))
    assert len(ends_calls) == 3
    produce(kafka, topic, [Put(b"{}", partition=n % 2) for n in range(100)])
    assert "was deleted and made again, and the window's messages were at" in verify_message()
    delete_topic(kafka, topic)
    assert "doesn't exist any more, and the window's messages were at" in verify_message()


def test_a_log_that_lost_its_end_is_told(table: Any) -> None:
    """A log that ends before its published messages is reported, although its topic's id is the
    same.
    """
    (topic,) = table.options.topics
    log = table.topics.ends()[topic, 0]
    present_span = OffsetSpan(topic, 0, 0, log.end - 1, log.topic_id)
    missing_span = OffsetSpan(topic, 0, 0, log.end, log.topic_id)
    ((span, reason),) = table.topics.find_deleted([present_span, missing_span]).items()
    assert (span, f"ends at {log.end}" in reason) == (missing_span, True)


def test_a_cluster_without_topic_ids_has_what_it_had(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown topic id doesn't count as a different id, neither of a log nor of published
    messages.
    """
    topic_partition, log = max(table.topics.ends().items(), key=lambda pair: pair[1].end)
    span = OffsetSpan(*topic_partition, 0, log.end - 1, log.topic_id)
    assert table.topics.find_deleted([span, msgspec.structs.replace(span, topic_id="")]) == {}
    monkeypatch.setattr(topics, "NO_TOPIC_ID", log.topic_id)
    assert table.topics.ends()[topic_partition] == LogEnd("", log.end)
    assert table.topics.find_deleted([span]) == {}


def test_where_messages_lie_between_two_looks() -> None:
    """Messages between two looks are found by the growth of each log; a topic made again
    meanwhile refuses the window.

    An added topic-partition counts from its beginning; one that didn't grow has none.
    """
    ends_before = {("a", 0): LogEnd("x", 5), ("a", 1): LogEnd("x", 7)}
    ends_after = {("a", 0): LogEnd("x", 9), ("a", 1): LogEnd("x", 7), ("a", 2): LogEnd("x", 2)}
    assert spans_between(ends_before, ends_after) == (
        OffsetSpan("a", 0, 5, 8, "x"),
        OffsetSpan("a", 2, 0, 1, "x"),
    )
    with pytest.raises(RefusedError, match="a was deleted and made again while"):
        spans_between(ends_before, {("a", 0): LogEnd("y", 9)})


class DiedError(Exception):
    """The error that ends a run like a kill."""


def dies_before_the_receipt(sink: Any, number: int) -> None:
    """Publishes a window's splits, and dies before the receipt."""

    def die() -> None:
        raise DiedError

    before_fence(sink, die, of_receipt=True)
    with pytest.raises(DiedError):
        sink.commit(*staged_receipt(sink, number, dead=False))


@pytest.mark.parametrize("others", [0, 100], ids=["empty", "with others' messages"])
def test_a_retry_whose_published_messages_are_gone_is_refused(
    kafka: str, table: Any, others: int
) -> None:
    """A retry is refused if the target topic of published splits was made again: its receipt
    would count missing rows.

    1. A window's splits are published, and its run dies.
    2. The target topic is made again.
    3. The retry is refused; later windows can be run. Verification doesn't advise the retry.
    """
    (topic,) = table.options.topics
    dies_before_the_receipt(table, 1)
    delete_topic(kafka, topic)
    create_topic(kafka, 2, name=topic)
    produce(kafka, topic, [Put(b"{}", partition=n % 2) for n in range(others)])
    sink = reopen(table)
    with pytest.raises(
        RefusedError, match=r"published in part, .* deleted and made again"
    ) as raised:
        sink.commit(*staged_receipt(sink, 1, 0, "retry", dead=False))
    assert "Later windows of this pipeline can be run" in raised.value.advice
    assert sink.look(window(1)) is None
    (half,) = (
        unreadable for unreadable in sink.audit().receipts() if isinstance(unreadable, Unreadable)
    )
    assert (half.key, half.advice) == (window(1).key, raised.value.advice)
    assert "what was published is gone" in half.message
    assert isinstance(sink.commit(*staged_receipt(sink, 2, dead=False)), Done)


@pytest.mark.parametrize("others", [0, 100], ids=["empty", "with others' messages"])
def test_messages_that_are_gone_before_the_receipt_are_noticed(
    kafka: str, table: Any, others: int
) -> None:
    """A run whose target topic is made again before the receipt writes no receipt, because it
    would count missing rows.
    """
    (topic,) = table.options.topics

    def made_anew() -> None:
        delete_topic(kafka, topic)
        create_topic(kafka, 2, name=topic)
        produce(kafka, topic, [Put(b"{}", partition=n % 2) for n in range(others)])

    before_fence(table, made_anew, of_receipt=True)
    with pytest.raises(RefusedError, match=r"published in part, .* deleted and made again"):
        table.commit(*staged_receipt(table, 1, dead=False))
    assert reopen(table).look(window(1)) is None


@pytest.mark.parametrize("deep", [False, True])
def test_messages_that_are_deleted_before_the_receipt_were_published(
    kafka: str, tmp_path: Path, table: Any, deep: bool
) -> None:
    """Messages that retention deletes before the receipt count as published, because readers
    may have read them.

    The window is committed. Verification reports the deletion with level info, and verifies the
    rest.
    """
    (topic,), ledger = table.options.topics, open_ledger(f"sqlite:///{tmp_path / 'state.db'}")

    origins = list[bytes | None]()

    def deletes() -> None:
        origins.extend(header(message, ORIGIN) for message in read_committed(kafka, topic))
        for partition in range(2):
            end = high_watermark(kafka, topic, partition)
            delete_records(kafka, topic, partition, max(0, end - 4))

    def verified() -> set[tuple[str, str | None, bool]]:
        findings = verify(
            "orders", reopen(table), table.dead_letters, ledger, MemoryBroker(), deep=deep
        ).findings
        return {
            (f.level, f.window, "retention deleted them" in f.advice)
            for f in findings
            if f.about == "table"
        }

    before_fence(table, deletes, of_receipt=True)
    assert isinstance(table.commit(*staged_receipt(table, 1, dead=False)), Done)
    expired = {("info", window(0).key, True), ("info", window(1).key, True)}
    assert verified() == expired
    (ours, *_) = (origin for origin in origins if window(1).key in str(origin))
    produce(kafka, topic, [Put(b"{}", headers=[(ORIGIN, ours)])] * 20)
    assert verified() - expired == ({("wrong", window(1).key, False)} if deep else set())


def test_a_topic_that_is_no_target_any_more_still_has_its_windows(
    kafka: str, tmp_path: Path
) -> None:
    """Messages in a topic that the spec no longer names are verified there, until the topic
    itself is deleted.
    """
    first_topic, second_topic = create_topic(kafka, 1), create_topic(kafka, 1)
    old = publish.table(kafka, tmp_path, [first_topic, second_topic])
    window_receipt, staged = publish.stage_rows(
        old, [(None, "a", first_topic), (None, "b", second_topic)]
    )
    assert isinstance(old.commit(window_receipt, staged), Done)
    options = msgspec.structs.replace(old.options, topics=(first_topic,))
    sink = KafkaBoth(old.connection, options, old.schema, old.metadata)
    (row_range,) = sink.audit().rows_held(window(0))
    assert row_range.rows == 2
    assert sink.audit().outside("orders") == {}
    delete_topic(kafka, second_topic)
    with pytest.raises(RefusedError, match=rf"{second_topic}\[0\] doesn't exist any more"):
        sink.audit().rows_held(window(0))


def test_windows_that_share_offsets_of_a_topic_that_was_made_anew(
    kafka: str, tmp_path: Path, table: Any
) -> None:
    """Windows that share offsets of a source topic that was made again each have their own
    rows.

    1. A window is published.
    2. The source's topic is made again, and the pipeline continues by a rebase.
    3. A window with the same offsets is published.
    4. Each window has its own rows, and each lost receipt is restored.
    """
    ledger = open_ledger(f"sqlite:///{tmp_path / 'state.db'}")
    planned = plan_of(table, window(3), (0, 10), [TopicSeen("shop.orders", "topic-id-2", 2)])
    staged = stage(table, planned, 0, "a1", dead=False)
    assert isinstance(table.commit(receipt(planned, staged, 0, "a1"), staged), Done)
    committed_windows, audit = list(table.receipts()), table.audit()
    assert len(committed_windows) == 2
    for committed_window in committed_windows:
        assert [h.rows for h in audit.rows_held(committed_window.receipt.window)] == [10, 10]
        ledger.record(committed_window.receipt, table.receipt_text(committed_window.receipt))
    assert audit.outside("orders") == {}
    delete_topic(kafka, table.options.control)
    assert len(restore("orders", reopen(table), ledger, dry_run=False).windows) == 2
    assert list(reopen(table).receipts()) == committed_windows


def test_two_pipelines_publish_rows_of_one_topic_to_one_target(
    kafka: str, tmp_path: Path, table: Any
) -> None:
    """Two pipelines that publish one source topic to one target each have their own messages
    there.
    """
    (topic,) = table.options.topics
    options = KafkaOptions((topic,), f"{topic}.other", str(tmp_path / "other"))
    other_sink = KafkaBoth(table.connection, options, table.schema, table.metadata)
    other_sink.prepare(TableOwner("other", "ledger-1", "hourly"))
    planned = plan_of(other_sink, window(0, "other"), (0, 10))
    staged = stage(other_sink, planned, 0, "a1", dead=False)
    assert isinstance(other_sink.commit(receipt(planned, staged, 0, "a1"), staged), Done)
    for sink in (table, other_sink):
        (committed_window,) = sink.receipts()
        assert [h.rows for h in sink.audit().rows_held(committed_window.receipt.window)] == [10, 10]
        assert sink.audit().outside(committed_window.receipt.window.pipeline) == {}


@pytest.mark.parametrize(
    ("offsets", "first"), [((25, 35), 25), ((11, 21), 20), ((10, 20), None), ((30, 40), None)]
)
def test_offsets_that_another_window_has_half_published_are_refused(
    table: Any, offsets: tuple[int, int], first: int | None
) -> None:
    """Offsets that another window has published in part are refused.

    1. A window with offsets 20 to 30 is published, and has no receipt.
    2. The ledger is lost.
    3. A window with other boundaries isn't published if it has any of these offsets.
    """
    dies_before_the_receipt(table, 2)
    sink = reopen(table)
    planned = plan_of(sink, window(7), offsets)
    staged = stage(sink, planned, 0, "a1", dead=False)
    window_receipt = receipt(planned, staged, 0, "a1")
    if first is None:
        assert isinstance(sink.commit(window_receipt, staged), Done)
        return
    with pytest.raises(OverlapError, match=f"has published offsets from {first} on") as raised:
        sink.commit(window_receipt, staged)
    assert f"run window {window(2).key} with the ledger" in raised.value.advice
    assert sink.look(window(7)) is None


def test_an_owner_that_cannot_be_read_is_restored(kafka: str, tmp_path: Path, table: Any) -> None:
    """An owner record that another program overwrote is written again, and only then reported
    as restored.
    """
    ledger, (committed_window,) = (
        open_ledger(f"sqlite:///{tmp_path / 'state.db'}"),
        list(table.receipts()),
    )
    ledger.record(committed_window.receipt, table.receipt_text(committed_window.receipt))
    produce(kafka, table.options.control, [Put(b"{}", key=b'["owner"]')])
    ends = high_watermark(kafka, table.options.control)
    assert restore("orders", reopen(table), ledger, dry_run=True).windows == ("owner",)
    assert high_watermark(kafka, table.options.control) == ends
    assert restore("orders", reopen(table), ledger, dry_run=False).windows == ("owner",)
    assert high_watermark(kafka, table.options.control) > ends
    assert (reopen(table).owner(), list(reopen(table).receipts())) == (OWNER, [committed_window])
    assert restore("orders", reopen(table), ledger, dry_run=False).windows == ()
