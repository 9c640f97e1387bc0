"""Kafka sinks with weaker guarantees: at-least-once loses nothing, none promises nothing, and
the sink says which it has.
"""

from __future__ import annotations

import itertools
import random
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.kafka.produce import create_topic, high_watermark
from tests.sinks.kafka.attempts import ALREADY, DONE, join_attempt, start_attempt
from tests.sinks.kafka.hooks import on_send
from tests.sinks.kafka.test_kills import POINTS
from tests.sinks.kafka.test_publish import stage_rows, table
from tests.sinks.kafka.world import (
    create_location,
    options_of,
    pieces,
    read_committed,
    report,
    sink_at,
)
from windrow.ingest.admin.verify import compare_rows
from windrow.ingest.errors import DamagedError, RefusedError
from windrow.ingest.kafka import producers
from windrow.ingest.kafka.producers import Acks
from windrow.ingest.model.codec import to_json
from windrow.ingest.ports.sink import AlreadyDone, Capabilities, Delivered, Done
from windrow.ingest.sinks.kafka import control_records
from windrow.ingest.sinks.kafka.control_records import (
    ControlState,
    PublishedSplit,
    chunk_header,
    owner_record,
    receipt_records,
    split_record,
)
from windrow.ingest.sinks.kafka.send import MessageSender, PublishTarget
from windrow.ingest.sinks.kafka.store import KafkaState, TransactionContents, put_records
from windrow.ingest.sinks.kafka.topics import Topic
from windrow.ingest.sinks.kit.commit.stored_receipts import committed_by_key
from windrow.ingest.testing.contracts.windows import plan, staged_receipt, window
from windrow.ingest.testing.contracts.with_dead_letters import OWNER

SINK = Capabilities(atomic="split", replaces=False)
broker = pytest.mark.broker


def complaints(location: str, number: int) -> list[str]:
    """Returns the levels of verification's findings about a window's rows."""
    sink = sink_at(location)
    receipt = sink.look(window(number)).receipt
    return sorted(
        {
            f.level
            for f in compare_rows(
                receipt, sink.audit().rows_held(receipt.window), sink.capabilities
            )
        }
    )


@pytest.fixture
def location(kafka: str, tmp_path: Path) -> str:
    """The location of a prepared table with delivery at-least-once."""
    location = create_location(kafka, str(tmp_path / "staging"), delivery="at-least-once")
    sink_at(location).prepare()
    return location


@pytest.mark.parametrize(
    ("delivery", "acks", "expected"),
    [
        ("at-least-once", "1", ("all", True)),
        ("none", "0", ("0", False)),
        ("none", "1", ("1", False)),
        ("none", "all", ("all", False)),
    ],
)
def test_what_is_asked_of_the_brokers(
    monkeypatch: pytest.MonkeyPatch, delivery: Delivered, acks: Acks, expected: tuple[str, bool]
) -> None:
    """Without transactions, the producer has no transactional id; it is idempotent if nothing
    may get lost.

    Records are confirmed by all replicas, whatever the messages' acks are.
    """
    requested_properties: list[dict[str, Any]] = []
    monkeypatch.setattr(
        producers,
        "create_client",
        lambda _kind, properties, _unheard: requested_properties.append(dict(properties)),
    )
    options = options_of("t", "", delivery=delivery, acks=acks)
    target = PublishTarget(options, {"t": Topic(1, 1000)}, {})
    assert target.producer("id").records is None  # the fake `create_client` returned it
    assert [p for p in requested_properties if "transactional.id" in p] == []
    assert (
        requested_properties[0]["acks"],
        requested_properties[0]["enable.idempotence"],
    ) == expected
    assert (requested_properties[-1]["acks"], requested_properties[-1]["enable.idempotence"]) == (
        "all",
        True,
    )


def records_of(
    attempt: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[tuple[bytes, bytes]], int]:
    """Returns the records of a receipt of window 0 in several chunks, and the number of chunks."""
    monkeypatch.setattr(control_records, "CHUNK_BYTES", 400)

    class _Nowhere:
        identity = "kafka:nowhere"

    from windrow.ingest.testing.contracts.windows import receipt

    attempt_receipt = receipt(plan(_Nowhere(), 0), [], 0, attempt)  # type: ignore[arg-type]
    records = [
        (key, value)
        for key, value in receipt_records(window(0).key, to_json(attempt_receipt), (), attempt)
        if value is not None
    ]
    ((_, chunks),) = chunk_header(records)  # type: ignore[arg-type]
    assert len(records) == int(chunks) >= 3
    return records, int(chunks)


def test_of_two_receipts_at_once_the_first_that_is_whole_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two receipts whose chunks are mixed in any order, all readers take the same one: the
    first that is complete.

    This holds for a reader of the whole topic, and for a reader that continues.
    """
    first_records, chunks = records_of("one", monkeypatch)
    second_records, _ = records_of("two", monkeypatch)
    # different keys, so compaction deletes no chunk of either
    assert not {key for key, _ in first_records} & {key for key, _ in second_records}
    n = len(first_records) + len(second_records)
    for places in itertools.islice(
        itertools.combinations(range(n), len(first_records)), 0, None, 7
    ):
        rest_of_first, rest_of_second, state, first = (
            iter(first_records),
            iter(second_records),
            ControlState(),
            "",
        )
        for step in range(n):
            state.take(
                *next(rest_of_first if step in places else rest_of_second), str(chunks).encode()
            )
            committed_window = committed_by_key(state, [window(0).key]).get(window(0).key)
            first = first or ("" if committed_window is None else committed_window.receipt.attempt)
            assert committed_window is None or committed_window.receipt.attempt == first
        assert first == ("one" if places[-1] < n - 1 else "two")


def test_what_somebody_else_wrote_is_told_of_its_window_or_passed_over() -> None:
    """A record that another program wrote never ends the reading.

    With the key of a window it is damage to that window only; with another key it is ignored.
    """
    state, key = ControlState(), window(0).key
    state.take(b"strange", b"{}", b"many")
    state.take(msgspec.json.encode(["receipt", key, 0]), b"{}", b"many")
    assert committed_by_key(state, [window(1).key]) == {}
    with pytest.raises(DamagedError, match="can't be read"):
        committed_by_key(state, [key])


def test_a_table_whose_binding_is_damaged_is_nobodys() -> None:
    """A table whose owner record is damaged doesn't count as new.

    An owner that was read before stays.
    """
    record, value = owner_record(OWNER)
    state = ControlState()
    state.take(record, b"{}", None)
    with pytest.raises(DamagedError, match="owner"):
        state.owner  # noqa: B018
    state.take(record, value, None)
    state.take(record, b"{}", None)
    assert state.owner == OWNER


PUBLISHED = PublishedSplit(window(0).key, 0, "", "t", 0, 0, 1, 1, "", "0" * 16, "a1")


def test_a_topic_with_records_and_no_owner_is_nobodys() -> None:
    """A control topic with records and no owner, as an earlier windrow's, is refused, and not
    bound to the first pipeline.
    """
    state = ControlState()
    state.take(*split_record(PUBLISHED), None)
    assert not state.is_new
    with pytest.raises(DamagedError, match="has records, but none that names its owner"):
        state.owner  # noqa: B018


def test_a_receipt_that_lacks_a_field_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receipt without a field is damaged, also if its plan can be read; `--restore-receipts`
    writes it again.
    """
    records, chunks = records_of("one", monkeypatch)
    text = b"".join(value for _, value in records).replace(b'"counts"', b'"kounts"')
    state = ControlState()
    state.take(records[0][0], text, b"1")
    assert (chunks > 1, state.damaged.keys()) == (True, {window(0).key})


@broker
@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "none"])
def test_there_are_transactions_only_where_they_are_needed(
    kafka: str, tmp_path: Path, guarantee: str
) -> None:
    """Only exactly-once uses transactions.

    Each transaction adds a marker to every log that it touched. Without transactions there are
    as many offsets as messages.
    """
    location = create_location(kafka, str(tmp_path / "staging"), delivery=guarantee)
    sink = sink_at(location)
    sink.prepare()
    assert isinstance(sink.commit(*staged_receipt(sink, 0)), Done)
    ends = [high_watermark(kafka, sink.options.topics[0], partition) for partition in range(2)]
    assert (sum(ends) > 18) is (guarantee == "exactly-once")
    assert sum(piece.num_rows for piece in pieces(sink_at(location))) == 18
    assert complaints(location, 0) == []
    assert sink_at(location).capabilities.delivery == guarantee


@broker
@pytest.mark.slow
def test_nothing_is_lost_at_any_point(location: str) -> None:
    """The retry of a killed window finishes it: no row is missing, and verification finds
    nothing wrong.
    """
    for number, point in enumerate(POINTS):
        assert (
            join_attempt(start_attempt(location, number, "first", f"{point}:kill"))
            == -signal.SIGKILL
        )
        assert join_attempt(start_attempt(location, number, "retry")) in {DONE, ALREADY}, point
    checker_report = report(location, range(len(POINTS)))
    assert msgspec.structs.replace(checker_report, duplicated=(), out_of_order=()).ok, str(
        checker_report
    )
    assert {level for number in range(len(POINTS)) for level in complaints(location, number)} <= {
        "info"
    }


@broker
@pytest.mark.slow
@pytest.mark.sampled(1, of=4)
def test_nothing_is_lost_at_random_delays(part: int, dice: random.Random, location: str) -> None:
    """After runs killed at random moments, each followed by a retry, every row is there once or
    more often.
    """
    for number in range(4):
        process = start_attempt(location, number, "first")
        process.join(0.2 + dice.random() * 0.8)
        process.kill()
        join_attempt(process)
        assert join_attempt(start_attempt(location, number, "retry")) in {DONE, ALREADY}
    checker_report = report(location, range(4))
    assert (checker_report.missing, checker_report.invented, checker_report.accounting) == (
        (),
        (),
        (),
    ), str(checker_report)
    # a run that dies after its messages and before their record leaves them there twice
    assert not checker_report.receipts or checker_report.duplicated, str(checker_report)


class DiedError(Exception):
    """The error that ends a run like a kill."""


def dies(sink: Any, *, record_first: bool) -> None:
    """Runs window 0 until its messages are sent, but not recorded.

    Args:
        sink: the sink.
        record_first: True for the broken twin: it records the messages, and dies before it
            sends them.
    """

    def stopped(state: KafkaState, change: TransactionContents) -> Any:
        if record_first:
            assert change.work is not None
            records = [split_record(change.work.published(n, ())) for n in change.splits]
            put_records(state.store.target, state.transaction, records)
            raise DiedError
        state.send(change)
        raise DiedError

    on_send(sink, stopped)
    with pytest.raises(DiedError):
        sink.commit(*staged_receipt(sink, 0))


@broker
@pytest.mark.slow
def test_a_row_that_is_there_twice_is_allowed_and_told(location: str) -> None:
    """A duplicate row is allowed, and reported.

    1. A run's messages are confirmed.
    2. It dies before it writes their record.
    3. Its retry publishes them again.
    """
    dies(sink_at(location), record_first=False)
    assert join_attempt(start_attempt(location, 0, "retry")) == DONE
    checker_report = report(location, range(1))
    assert (len(checker_report.duplicated), checker_report.missing) == (18, ())
    assert set(complaints(location, 0)) <= {"info"}


@broker
@pytest.mark.slow
def test_the_twin_that_records_first_loses_rows(location: str) -> None:
    """A twin that records messages before they are confirmed loses rows: the retry skips them.

    Checker and verification report it.
    """
    dies(sink_at(location), record_first=True)
    assert join_attempt(start_attempt(location, 0, "retry")) == DONE
    assert len(report(location, range(1)).missing) == 18
    assert complaints(location, 0) == ["wrong"]


@broker
@pytest.mark.slow
def test_two_runs_of_one_window(location: str) -> None:
    """Two runs of one window agree.

    1. A has looked.
    2. B publishes the window, and commits it.
    3. A goes on. It finds B's receipt, which all readers have.
    """
    sink = sink_at(location)
    receipt, files = staged_receipt(sink, 0, 0, "A")

    def late(state: KafkaState, change: TransactionContents) -> Any:
        if not turns:
            turns.append(join_attempt(start_attempt(location, 0, "B")))
        return state.send(change)

    turns = list[int | None]()
    on_send(sink, late)
    outcome = sink.commit(receipt, files)
    assert isinstance(outcome, AlreadyDone)
    assert (
        outcome.committed.receipt.attempt
        == sink_at(location).look(window(0)).receipt.attempt
        == "B"
    )
    assert turns == [DONE]
    assert report(location, range(1)).missing == ()


def stage_noisy(kafka: str, folder: Path, guarantee: str) -> tuple[Any, str, Any]:
    """Returns a table whose topic refuses the second of three messages, the topic, and a staged
    window with them.
    """
    small = create_topic(kafka, 1, {"max.message.bytes": "20000"})
    sink = table(kafka, folder, [small], delivery=guarantee)
    noise = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=60_000))
    return (
        sink,
        small,
        stage_rows(sink, [(None, "a", small), (None, noise, small), (None, "b", small)]),
    )


@broker
@pytest.mark.slow
def test_at_least_once_a_message_that_is_not_taken_refuses_the_window(
    kafka: str, tmp_path: Path
) -> None:
    """With at-least-once, a refused message refuses its window.

    The error names the message's source offset, and there is no receipt. The advice says that
    the other messages may be in the topic.
    """
    sink, _, staged_window = stage_noisy(kafka, tmp_path, "at-least-once")
    with pytest.raises(RefusedError, match="doesn't take the message of a row") as refused:
        sink.commit(*staged_window)
    assert refused.value.offset == 1
    assert "may be in the topic already" in refused.value.advice
    assert sink.look(window(0)) is None


@broker
@pytest.mark.slow
def test_more_messages_than_the_clients_queue_takes(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages beyond the client's queue are sent: delivery reports make room, and no message
    is missing.
    """
    few = {**producers.PRODUCER, "queue.buffering.max.messages": 5}
    monkeypatch.setattr(producers, "PRODUCER", few)
    sink = sink_at(location)
    assert isinstance(sink.commit(*staged_receipt(sink, 0, dead=False)), Done)
    assert report(location, range(1)).ok
    assert complaints(location, 0) == []


@broker
@pytest.mark.slow
def test_the_twin_that_looks_at_no_report_loses_rows(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A twin that ignores delivery reports loses rows: without a transaction only a report says
    that a message was not written.
    """
    monkeypatch.setattr(MessageSender, "keep_failure", lambda _sender, _message: None)
    sink, topic, staged_window = stage_noisy(kafka, tmp_path, "at-least-once")
    assert isinstance(sink.commit(*staged_window), Done)
    assert len(list(read_committed(kafka, topic))) < 3


@broker
@pytest.mark.slow
def test_without_a_guarantee_the_receipt_is_written_regardless(kafka: str, tmp_path: Path) -> None:
    """With delivery none, a message that the topic refuses is lost silently.

    Verification reports it with level info.
    """
    sink, topic, staged_window = stage_noisy(kafka, tmp_path, "none")
    assert isinstance(sink.commit(*staged_window), Done)
    assert len(list(read_committed(kafka, topic))) < 3
    receipt = sink.look(window(0)).receipt
    assert {
        f.level
        for f in compare_rows(receipt, sink.audit().rows_held(receipt.window), sink.capabilities)
    } == {"info"}


def test_the_face_of_a_promise() -> None:
    """Only a table with a weaker guarantee may lose or repeat messages."""
    none, once = Capabilities(delivery="none"), Capabilities(delivery="at-least-once")
    assert [
        p.allows(loss=has_loss) for p in (Capabilities(), once, none) for has_loss in (True, False)
    ] == [
        False,
        False,
        False,
        True,
        True,
        True,
    ]
