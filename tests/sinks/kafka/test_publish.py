"""Published messages: their content, messages that a topic refuses, and records that hide the
control topic's end.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.produce import OpenTransaction, Put, create_topic
from tests.sinks.kafka.hooks import before_fence
from tests.sinks.kafka.world import (
    KafkaBoth,
    create_location,
    open_sink,
    origin_of,
    read_committed,
    sink_at,
)
from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.kafka import timeouts
from windrow.ingest.kafka.producers import MESSAGE_BYTES, ProducerError, TransactionalProducer
from windrow.ingest.model.receipt import Checksums, Receipt, Staged
from windrow.ingest.ports.sink import Delivered, Done
from windrow.ingest.sinks.kafka import control_records, send, store, topics, transactions
from windrow.ingest.sinks.kafka.control_records import ControlState
from windrow.ingest.sinks.kafka.control_topic import ControlTopic
from windrow.ingest.sinks.kafka.options import KafkaOptions
from windrow.ingest.sinks.kafka.serializers import PlainSerializer
from windrow.ingest.sinks.kafka.stage import FOLDER, StagedMessageFiles, StagedMessages
from windrow.ingest.sinks.kafka.table import ClusterConnection
from windrow.ingest.sinks.kafka.topics import LogSeen, SinkTopics
from windrow.ingest.sinks.kafka.transactions import chains
from windrow.ingest.testing.contracts.windows import (
    messages,
    plan,
    receipt,
    split_counts,
    staged_receipt,
    window,
)

pytestmark = [pytest.mark.broker, pytest.mark.slow]

ROWS = pa.schema([("k", pa.binary()), ("v", pa.string()), ("to", pa.string())])


def stage_rows(
    sink: Any, rows: Sequence[tuple[bytes | None, str | None, str]]
) -> tuple[Receipt, list[Staged]]:
    """Stages a window: one row for each message of the first split, and none for the second."""
    planned = plan(sink, 0, (0, len(rows)))
    first, second = planned.splits
    stager = sink.stager(planned, 0, "a1")(first)
    batch = pa.record_batch(
        [pa.array(column, f.type) for column, f in zip(zip(*rows, strict=True), ROWS, strict=True)],
        schema=ROWS,
    )
    half = len(rows) // 2
    for part in (slice(0, half), slice(half, len(rows))):
        stager.add(
            batch.slice(part.start, part.stop - part.start),
            messages(first).slice(part.start, part.stop - part.start),
        )
    done, staged_splits = stager.finish(), []
    for split, rows_staged, words in ((first, done.rows, done.committables), (second, 0, ())):
        n = split.stop - split.start
        counts = split_counts(
            split,
            read=n,
            bytes=n,
            valid=rows_staged,
            dropped=n - rows_staged,
            rows_staged=rows_staged,
            checksums=Checksums(done.checksum if words else "0" * 16),
            rows=rows_staged,
        )
        staged_splits.append(Staged(split, counts, words, ()))
    return receipt(planned, staged_splits, 0, "a1"), staged_splits


def table(kafka: str, folder: Path, topics: Sequence[str], **more: Any) -> Any:
    """Returns a prepared table of several topics."""
    options = KafkaOptions(
        tuple(topics),
        f"{topics[0]}.windrow",
        str(folder / "staging"),
        topic_column="to",
        value=PlainSerializer("raw", ("v",)),
        key=PlainSerializer("raw", ("k",)),
        headers={"again": "v"},
        **more,
    )
    sink = KafkaBoth(ClusterConnection(kafka), options, ROWS)
    sink.prepare()
    return sink


def test_messages_are_what_the_form_says(kafka: str, tmp_path: Path) -> None:
    """Keys, values and headers are exact; null and empty differ.

    Each message is in its topic, in order, with the time of its source message.
    """
    first_topic, second_topic = create_topic(kafka, 3), create_topic(kafka, 1)
    rows = [
        (b"\x00k", "é", first_topic),
        (None, None, second_topic),
        (b"", "", first_topic),
        (b"k" * 9, "x" * 70_000, second_topic),
        (b"z", "last", first_topic),
    ]
    sink = table(kafka, tmp_path, [first_topic, second_topic], partitioner="fixed")
    assert isinstance(sink.commit(*stage_rows(sink, rows)), Done)
    for topic in (first_topic, second_topic):
        published = list(read_committed(kafka, topic))
        expected = [
            (n, k, None if v is None else v.encode())
            for n, (k, v, target) in enumerate(rows)
            if target == topic
        ]
        assert [(origin_of(m)[0][2], m.key(), m.value()) for m in published] == expected
        assert [dict(m.headers())["again"] for m in published] == [v for _, _, v in expected]
        assert {tuple(dict(m.headers())) for m in published} == {("windrow.origin", "again")}
        assert {m.partition() for m in published} == {0}
        stamps = {(m.timestamp()[1], origin_of(m)[1]) for m in published if origin_of(m)[0][2] == 1}
        assert stamps <= {(1767312000001, "1767312000001")}
    (row_range,) = sink.audit().rows_held(window(0))
    assert (row_range.rows, row_range.lowest, row_range.highest) == (5, 0, 4)


@pytest.mark.parametrize("packs", ["uncompressed", "snappy", "zstd", "lz4"])
def test_a_topic_whose_broker_packs_batches_anew(kafka: str, tmp_path: Path, packs: str) -> None:
    """Batches fit a topic whose broker compresses again, although LZ4 made them smaller.

    Such a broker checks max.message.bytes on the batches that it writes.
    """
    topic = create_topic(kafka, 1, {"compression.type": packs})
    sink = table(kafka, tmp_path, [topic])
    assert isinstance(
        sink.commit(*stage_rows(sink, [(b"%d" % n, "long" * 50, topic) for n in range(12_000)])),
        Done,
    )
    assert [m.key() for m in read_committed(kafka, topic)] == [b"%d" % n for n in range(12_000)]


def stage_large_message(kafka: str, folder: Path) -> tuple[Any, str, Any]:
    """Returns a sink, its topic, and three staged rows; the topic refuses the second."""
    small = create_topic(kafka, 1, {"max.message.bytes": "20000"})
    sink = table(kafka, folder, [small])
    noise = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=60_000))
    return (
        sink,
        small,
        stage_rows(sink, [(None, "a", small), (None, noise, small), (None, "b", small)]),
    )


def test_a_message_that_the_topic_does_not_take(kafka: str, tmp_path: Path) -> None:
    """A refused message is named by its source offset, and nothing of its split is visible.

    Once the topic accepts it, all is.
    """
    sink, small, staged_window = stage_large_message(kafka, tmp_path)
    with pytest.raises(RefusedError, match="doesn't take the message of a row") as refused:
        sink.commit(*staged_window)
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == (
        "shop.orders",
        0,
        1,
    )
    assert list(read_committed(kafka, small)) == []
    assert sink.look(window(0)) is None


@pytest.mark.parametrize(("delivery", "more"), [("exactly-once", -10), ("none", 1)])
def test_a_message_that_the_client_has_no_room_for(
    kafka: str, tmp_path: Path, delivery: Delivered, more: int
) -> None:
    """A message larger than the client's buffer is refused with its source offset, without
    waiting for room in the client's queue.

    It is never sent, whatever the topic's limit is.
    """
    topic = create_topic(kafka, 1, {"max.message.bytes": "100000000"})
    sink = table(kafka, tmp_path, [topic], delivery=delivery)
    large = "b" * (MESSAGE_BYTES + more)
    staged_window = stage_rows(sink, [(None, "a", topic), (b"k" * 20, large, topic)])
    with pytest.raises(RefusedError, match=r"more than 64 MiB.*shop\.orders\[0\]@1") as refused:
        sink.commit(*staged_window)
    assert "Refuse such rows by a rule" in refused.value.advice
    assert sink.look(window(0)) is None


def test_a_refused_message_is_named_though_its_transaction_breaks_first(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused message is named although its transaction fails first.

    1. Messages are sent, and no report has come.
    2. The topic refuses one. librdkafka first fails the transaction, then reports the message.
    3. The sink sees the failed transaction before the report.
    """
    check, broken_kinds, library = (
        TransactionalProducer.refuse_broken,
        list[str](),
        send.sending_library(),
    )

    class NoReportsYet:
        def queue_poll(self, queue: int, wait_ms: int) -> int | None:
            return library.queue_poll(queue, wait_ms) if broken_kinds else None

        def __getattr__(self, name: str) -> Any:
            return getattr(library, name)

    monkeypatch.setattr(send, "sending_library", NoReportsYet)

    def refuse_recorded(transaction: TransactionalProducer) -> None:
        deadline = time.monotonic() + 30
        try:
            while time.monotonic() < deadline:
                check(transaction)
                time.sleep(0.01)
        except ProducerError as broken:
            broken_kinds.append(broken.kind)
            raise

    monkeypatch.setattr(TransactionalProducer, "refuse_broken", refuse_recorded)
    sink, _, staged_window = stage_large_message(kafka, tmp_path)
    with pytest.raises(RefusedError, match="doesn't take the message of a row") as refused:
        sink.commit(*staged_window)
    assert (broken_kinds, refused.value.offset) == (["refused"], 1)


def test_a_record_that_the_control_topic_does_not_take(
    kafka: str, admin: AdminClient, tmp_path: Path
) -> None:
    """A record that the control topic refuses isn't tried again: the error names the setting,
    and nothing of the window is visible.
    """
    topic = create_topic(kafka, 1)
    settings = {"cleanup.policy": "compact", "max.message.bytes": "250"}
    admin.create_topics([NewTopic(f"{topic}.windrow", 1, config=settings)])[
        f"{topic}.windrow"
    ].result(30)
    sink = table(kafka, tmp_path, [topic])
    with pytest.raises(
        RefusedError,
        match=r"control topic .* doesn't take a record: .*too large.*Raise its max\.message\.bytes",
    ):
        sink.commit(*stage_rows(sink, [(None, "a", topic), (None, "b", topic)]))
    assert list(read_committed(kafka, topic)) == []


def test_a_staged_file_that_lost_bytes_publishes_nothing(kafka: str, tmp_path: Path) -> None:
    """A staged file whose bytes became zeros publishes nothing, although Arrow can read it.

    Staged files are not synced, so a loss of power can do that and keep the file's length.
    """
    topic = create_topic(kafka, 1)
    sink = table(kafka, tmp_path, [topic])
    staged_window = stage_rows(sink, [(None, "a" * 50, topic), (None, "b" * 50, topic)])
    (file,) = (tmp_path / "staging").rglob("*.arrow")
    content = file.read_bytes()
    file.write_bytes(content.replace(b"b" * 50, bytes(50)))
    with pytest.raises(RefusedError, match="isn't what was written"):
        sink.commit(*staged_window)
    assert list(read_committed(kafka, topic)) == []
    file.write_bytes(content)
    assert isinstance(sink.commit(*staged_window), Done)
    assert [m.value() for m in read_committed(kafka, topic)] == [b"a" * 50, b"b" * 50]


def test_a_staged_file_whose_lengths_are_gone_is_refused(tmp_path: Path) -> None:
    """Descending offsets in a staged file, as in a page of zeros, are refused before they reach
    compiled code.
    """
    offsets = pa.array([0, 4, 0, 6], pa.int32()).buffers()[1]
    column = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.py_buffer(b"abcdef")])
    with (
        pa.OSFile(str(tmp_path / "f.arrow"), "wb") as out,
        pa.ipc.new_file(out, pa.schema([("value", pa.binary())])) as writer,
    ):
        writer.write_batch(pa.record_batch({"value": column}))
    with pytest.raises(RefusedError, match="can't be read"):
        list(StagedMessageFiles(str(tmp_path)).batches(StagedMessages("f.arrow", 0, 3, "", "")))


def test_a_young_staged_file_is_nobodys_to_sweep(tmp_path: Path) -> None:
    """Only files that were last written before the grace period are removed."""
    (tmp_path / FOLDER).mkdir()
    for name in ("old", "young"):
        (tmp_path / FOLDER / name).touch()
    os.utime(tmp_path / FOLDER / "old", (1_000, 1_000))
    assert StagedMessageFiles(str(tmp_path)).sweep(timedelta(hours=1), dry_run=False) == [
        f"{tmp_path}/{FOLDER}/old"
    ]
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["young"]


def test_a_split_that_fails_lets_no_other_begin(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one split fails because the cluster is gone, no other split begins.

    The next attempt publishes the staged messages.
    """
    monkeypatch.setattr(transactions, "SMALL", 1)
    sink = sink_at(create_location(kafka, str(tmp_path / "staging")))
    sink.prepare()
    staged_window, begun = staged_receipt(sink, 0, dead=False), list[object]()
    assert len(chains(staged_window[0].plan)) == 2

    def unreachable() -> None:
        begun.append(None)
        raise UnreachableError("gone", "commit", "")

    monkeypatch.setattr(store, "PARALLEL", 1)
    before_fence(sink, unreachable)
    with pytest.raises(UnreachableError, match="gone"):
        sink.commit(*staged_window)
    assert len(begun) == 1
    assert isinstance(sink.commit(*staged_window), Done)


def test_a_receipt_in_several_chunks(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receipt in several chunks is read back exactly, also by another process."""
    monkeypatch.setattr(control_records, "CHUNK_BYTES", 700)
    location = create_location(kafka, str(tmp_path / "staging"))
    sink = sink_at(location)
    sink.prepare()
    window_receipt, files = staged_receipt(sink, 0, dead=False)
    done = sink.commit(window_receipt, files)
    assert sink_at(location).look(window(0)) == done.committed
    assert len(sink_at(location).receipt_text(window_receipt)) > 1400


def test_an_open_transaction_of_somebody_else_is_waited_for(kafka: str, tmp_path: Path) -> None:
    """An open transaction of another program in the control topic stops the publication until
    it is over.

    Records after it can't be read, and one may say that a split is published already.
    """
    location = create_location(kafka, str(tmp_path / "staging"))
    sink = sink_at(location)
    sink.prepare()
    foreign_transaction = OpenTransaction(kafka, sink.options.control)
    foreign_transaction.send([Put(b"{}", key=b"strange")])
    sink.control.patience = 1.0
    window_receipt, files = staged_receipt(sink, 0, dead=False)
    with pytest.raises(UnreachableError, match="can't be read to its end"):
        sink.commit(window_receipt, files)
    assert list(committed_now(kafka, sink)) == []
    assert sink.look(window(0)) is None
    foreign_transaction.abort()
    sink.control.patience = 30.0
    assert isinstance(sink.commit(window_receipt, files), Done)


def test_a_broker_that_does_not_know_the_control_topic_yet(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window is published even if a broker that just started answers that there is no control
    topic.

    The table counts as gone only after that answer is confirmed.
    """
    monkeypatch.setattr(timeouts, "APART_SECONDS", 0.01)
    sink = table(kafka, tmp_path, [create_topic(kafka, 1)])
    work = stage_rows(sink, [(b"k", "v", sink.options.topics[0])])
    read_log, stale_answers = SinkTopics.control, timeouts.TIMES - 1

    def answer_late(self: SinkTopics, *, wait: bool) -> LogSeen | None:
        nonlocal stale_answers
        stale_answers -= 1
        return None if stale_answers >= 0 else read_log(self, wait=wait)

    monkeypatch.setattr(SinkTopics, "control", answer_late)
    assert isinstance(sink.commit(*work), Done)
    stale_answers = timeouts.TIMES
    with pytest.raises(RefusedError, match="doesn't exist any more"):
        sink.commit(*work)


def committed_now(kafka: str, sink: Any) -> list[Any]:
    """Returns the committed messages of the table's one topic."""
    return list(read_committed(kafka, sink.options.topics[0]))


def test_a_transaction_may_be_shorter_than_a_request(kafka: str, tmp_path: Path) -> None:
    """A `transaction_timeout` shorter than a client's request timeout is used, and librdkafka
    doesn't refuse it.
    """
    sink = open_sink(
        create_location(kafka, str(tmp_path / "staging")), KafkaBoth, timeout=timedelta(seconds=15)
    )
    sink.prepare()
    assert isinstance(sink.commit(*staged_receipt(sink, 0, dead=False)), Done)


@pytest.mark.parametrize("silent", [False, True], ids=["late", "never"])
def test_who_looks_behind_a_commit_sees_it(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    """A look right after a commit sees it: the commit waits for the control topic's marker.

    It is done even if it can't look. Kafka answers a commit before the marker is there.
    """
    sink = open_sink(create_location(kafka, str(tmp_path / "staging")), KafkaBoth)
    sink.prepare()
    window_receipt, files = staged_receipt(sink, 0, dead=False)
    points, looks, read = list[str](), list[object](), ControlTopic.read

    def late(self: ControlTopic, *, to_end: bool = False) -> ControlState | None:
        if not points or len(looks) == 3:
            return read(self, to_end=to_end)
        looks.append(None)
        if silent:
            raise UnreachableError("nobody answers", "commit", "Wait.")
        return ControlState()

    monkeypatch.setattr(
        store,
        "crash_point",
        lambda point: points.append(point) if point == "commit.after" else None,
    )
    monkeypatch.setattr(ControlTopic, "read", late)
    assert isinstance(sink.commit(window_receipt, files), Done)
    assert len(looks) == (1 if silent else 3)


@pytest.mark.parametrize("waits", [True, False], ids=["the sink", "its twin"])
def test_a_receipt_comes_behind_its_rows(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """A receipt isn't visible before its rows can be read.

    The twin that doesn't wait has a receipt of unreadable rows.

    1. Another program's transaction is open.
    2. A window is published after it.
    3. The receipt waits until readers see the rows.
    """
    location = create_location(kafka, str(tmp_path / "staging"))
    sink = sink_at(location)
    sink.prepare()
    window_receipt, files = staged_receipt(sink, 0, dead=False)
    topic, looked, ends = sink.options.topics[0], threading.Event(), topics.log_ends

    def watch_ends(
        questions: Any, partitions: Any, level: ck.IsolationLevel
    ) -> dict[tuple[str, int], int]:
        offset_ends = ends(questions, partitions, level)
        if level == ck.IsolationLevel.READ_COMMITTED:
            looked.set()
        return offset_ends

    monkeypatch.setattr(topics, "SEEN_SECONDS", 60.0)
    monkeypatch.setattr(topics, "log_ends", watch_ends)
    if not waits:
        monkeypatch.setattr(SinkTopics, "wait_until_seen", lambda *_: looked.set())
    open_transaction = OpenTransaction(kafka, topic)
    open_transaction.send([Put(b"another's", 0, partition) for partition in range(2)])
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(sink.commit, window_receipt, files)
        try:
            assert looked.wait(60)
            if not waits:
                assert isinstance(commit.result(60), Done)
            assert (sink_at(location).look(window(0)) is None) is waits
        finally:
            open_transaction.abort()
        assert isinstance(commit.result(60), Done)
    assert sink_at(location).look(window(0)) is not None
