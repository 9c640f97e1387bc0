"""The compiled fetcher and confluent-kafka's consumer on real Kafka: same messages, same
errors, and nothing is leaked.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from msgspec.structs import replace

from tests.contracts.logs import Headers, Logs, Sent
from tests.contracts.reader_contract import make_messages, messages_in, plan_of
from tests.contracts.reading import batches_of, gathered
from tests.kafka import produce
from tests.source.reader.clients import WAYS
from windrow.ingest.errors import BugError
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.capi import PRODUCER, library
from windrow.ingest.kafka.client_properties import LOG, consumer_properties
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.reader import ReadSummary
from windrow.ingest.source.reader import fields, librdkafka
from windrow.ingest.source.reader.batches import UNREADABLE
from windrow.ingest.source.reader.fetching import Fetched, Fetcher, OnError, Start
from windrow.ingest.source.reader.librdkafka import LibrdkafkaFetcher, connect, passes
from windrow.ingest.source.reader.reader import KafkaReader

pytestmark = pytest.mark.broker

MIB = 1024 * 1024
LAYOUTS = 10
"""Number of layouts per part; a soak has 1,000 in all."""


Read = Callable[..., tuple[list[pa.RecordBatch], ReadSummary]]


@pytest.fixture
def read(kafka: str, broker: KafkaBroker) -> Read:
    """A function that reads a range with one of the clients."""

    def read(
        client_name: str, tp: TopicPartition, start: int, stop: int, **bounds: int
    ) -> tuple[list[pa.RecordBatch], ReadSummary]:
        reader = KafkaReader(
            consumer_properties(kafka, {}),
            plan_of(broker, tp),
            fetching=WAYS[client_name],
            **bounds,
        )
        return gathered(reader, Split(tp.topic, tp.partition, start, stop))

    return read


# --- the same messages


def blob(dice: random.Random, max_size: int) -> bytes | None:
    return None if dice.random() < 0.2 else dice.randbytes(dice.randint(0, max_size))


def headers(dice: random.Random) -> Headers:
    count = dice.choice((0, 0, 0, 1, 3))
    return tuple((dice.choice(("", "a", "ü", "trace-id")), blob(dice, 20)) for _ in range(count))


def messages(dice: random.Random, max_count: int) -> list[Sent]:
    size = dice.choice((10, 200, 2000, 20_000))
    return [
        Sent(
            blob(dice, size),
            dice.choice((None, b"", b"k%d" % dice.randrange(20))),
            dice.randint(-10_000, 10_000),
            headers(dice),
        )
        for _ in range(dice.randint(1, max_count))
    ]


def write(dice: random.Random, logs: Logs, tp: TopicPartition) -> None:
    """Writes a random log."""
    for _ in range(dice.randint(1, 6)):
        if dice.random() < 0.7:
            logs.send(tp, *messages(dice, 60))
        else:
            logs.transaction(tp, *messages(dice, 8), commit=dice.random() < 0.5)


def write_compacted(dice: random.Random, logs: Logs) -> TopicPartition:
    tp = logs.compacted()
    for _ in range(3):
        logs.send(
            tp,
            *[
                Sent(dice.randbytes(9), b"k%d" % dice.randrange(9), n, headers(dice))
                for n in range(dice.randint(1, 9))
            ],
        )
    logs.compact(tp)
    return tp


@pytest.mark.some(1)
@pytest.mark.sampled(2, of=100)
def test_both_ways_give_the_same(
    part: int, dice: random.Random, logs: Logs, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both clients give the same batches, columns and counts for random logs.

    The logs have any compression, nulls, headers, transactions and compaction.
    """
    codec = dice.choice(("uncompressed", "gzip", "snappy", "lz4", "zstd"))
    topic = logs.topic(LAYOUTS - 1, {"compression.type": codec})
    tps = [TopicPartition(topic, p) for p in range(LAYOUTS - 1)]
    for tp in tps:
        write(dice, logs, tp)
    monkeypatch.setattr(librdkafka, "PIECE_BYTES", dice.choice((100, 5000, 16 * MIB)))
    monkeypatch.setattr(librdkafka, "AT_ONCE", dice.choice((1, 7, 100, 16_384)))
    for tp in [*tps, write_compacted(dice, logs)]:
        end = logs.end(tp)
        for start, stop in ((0, end), sorted(dice.sample(range(end + 1), 2))):
            bounds = {
                "rows_max": dice.choice((1, 9, 1000)),
                "bytes_max": dice.choice((1000, 100_000, MIB)),
            }
            (our_batches, our_summary), (their_batches, their_summary) = (
                read(client_name, tp, start, stop, **bounds)
                for client_name in ("librdkafka", "confluent")
            )
            assert messages_in(our_batches) == logs.visible_messages(tp, start, stop)
            # how far beyond the stop depends on the client
            assert replace(our_summary, next_offset=stop) == replace(
                their_summary, next_offset=stop
            )
            assert len(our_batches) == len(their_batches)
            for our_batch, their_batch in zip(our_batches, their_batches, strict=True):
                our_batch.validate(full=True)
                assert our_batch.equals(their_batch, check_metadata=True)


def test_a_message_of_16_megabytes(logs: Logs, read: Read, dice: random.Random) -> None:
    """A message of 16 MiB between small ones, with a large key and header, is read unchanged."""
    tp = logs.partition()
    large = dice.randbytes(16 * MIB)
    logs.send(
        tp,
        *make_messages(3),
        Sent(large, large[:100_000], headers=(("h", large[:90_000]),)),
        *make_messages(3),
    )
    batches, _ = read("librdkafka", tp, 0, 7)
    assert [b.num_rows for b in batches] == [3, 1, 3]
    assert messages_in(batches) == logs.visible_messages(tp, 0, 7)


class Produced(ctypes.Structure):
    """The part of rd_kafka_vu_t that the tests need."""

    _fields_ = (("kind", ctypes.c_int), ("words", ctypes.c_uint64 * 8))


def send_header(bootstrap: str, topic: str, name: bytes) -> None:
    """Sends a message with a header that confluent-kafka's producer would refuse."""
    api = library()
    conf, error_buffer = api.conf_new(), ctypes.create_string_buffer(512)
    api.conf_set(conf, b"bootstrap.servers", bootstrap.encode(), error_buffer, 512)
    client = api.new(PRODUCER, conf, error_buffer, 512)
    memory = [ctypes.create_string_buffer(text) for text in (topic.encode(), name, b"1")]
    addresses = [ctypes.addressof(m) for m in memory]
    arguments = (Produced * 4)()
    for n, (kind, words) in enumerate(
        [(1, addresses[:1]), (3, [0]), (7, [2]), (9, [addresses[1], addresses[2], 1])]
    ):
        arguments[n].kind = kind
        arguments[n].words[: len(words)] = words
    native = api.library
    native.rd_kafka_produceva.restype, native.rd_kafka_produceva.argtypes = (
        ctypes.c_void_p,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t),
    )
    assert native.rd_kafka_produceva(client, arguments, 4) is None
    native.rd_kafka_flush.argtypes = (ctypes.c_void_p, ctypes.c_int)
    assert native.rd_kafka_flush(client, 30_000) == 0
    api.destroy_flags(client, 0)


def test_a_header_whose_name_is_not_utf_8(kafka: str, logs: Logs, read: Read) -> None:
    """A header name that isn't UTF-8 is read as a mark by both clients, and blocks nothing."""
    tp = logs.partition()
    produce.produce(kafka, tp.topic, [produce.Put(b"v", headers=[("a", b"1")])])
    send_header(kafka, tp.topic, b"\xff\xfe")
    produce.produce(kafka, tp.topic, [produce.Put(b"v", headers=[("a", b"1")])])
    (our_batch,), (their_batch,) = (
        read(client_name, tp, 0, 3)[0] for client_name in ("librdkafka", "confluent")
    )
    assert [[h["key"] for h in row["headers"]] for row in our_batch.to_pylist()] == [
        ["a"],
        [UNREADABLE],
        ["a"],
    ]
    assert our_batch.equals(their_batch)


# --- errors


def hear(
    client_name: str, properties: dict[str, Any], enough: Callable[[list[KafkaError]], bool]
) -> list[KafkaError]:
    """Returns the errors that a client reports until there are enough."""
    heard: list[KafkaError] = []
    deadline = time.monotonic() + 30
    with closing(WAYS[client_name](properties, Start("t", 0, 0, None), heard.append)) as fetcher:
        while not enough(heard):
            assert time.monotonic() < deadline, heard
            fetcher.poll(10, 10)
    return heard


def test_errors_of_the_connection_are_heard() -> None:
    """Errors of the connection have confluent-kafka's texts, and the client's log goes only to
    Python's logger.
    """
    properties = consumer_properties("127.0.0.1:1", {"client.id": "me"})
    lines: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = lines.append  # type: ignore[method-assign]
    LOG.addHandler(handler)
    try:
        errors_by_client = {
            client_name: {
                (e.code(), e.str().split(":")[0])
                for e in hear(
                    client_name, properties, lambda heard: len({e.code() for e in heard}) > 1
                )
            }
            for client_name in WAYS
        }
    finally:
        LOG.removeHandler(handler)
    assert errors_by_client["librdkafka"] == errors_by_client["confluent"]
    ours = [line.getMessage() for line in lines if "FAIL" in line.getMessage()]
    assert len(ours) >= 2, "one of either client"
    assert all(line.startswith("FAIL [me#consumer-") for line in ours)
    assert {line.levelno for line in lines} <= {10, 20, 30, 40, 50}


def test_a_client_without_a_listener_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """A client without a logging handler prints nothing, because log lines may quote secrets,
    and a worker's stderr is stored.
    """
    hear("librdkafka", consumer_properties("127.0.0.1:1", {}), lambda heard: len(heard) > 1)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "wrong_properties",
    [
        {"fetch.min.bytes": "many"},
        {"no.such.property": 1},
        {"ssl.ca.location": "/no/such"},
        {"fetch.max.bytes": 1},
    ],
)
def test_properties_that_cannot_be_used(wrong_properties: dict[str, Any]) -> None:
    """Unusable properties raise the same error in both clients, and no client is left."""
    properties = (
        consumer_properties("127.0.0.1:1", {}) | {"security.protocol": "SSL"} | wrong_properties
    )
    errors = []
    for client_name in WAYS:
        with pytest.raises(KafkaException) as refused:
            WAYS[client_name](properties, Start("t", 0, 0, None), lambda _: None)
        errors.append(
            (
                refused.value.args[0].code(),
                refused.value.args[0].str().removeprefix("Failed to create consumer: "),
            )
        )
    assert errors[0] == errors[1]


def test_a_fatal_error_is_an_event() -> None:
    """A fatal error is an event that ends the read, not an error of the connection, which would
    pass.
    """
    fetcher = make_fetcher(consumer_properties("127.0.0.1:1", {}))
    library = fetcher.api.library
    library.rd_kafka_test_fatal_error.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    library.rd_kafka_test_fatal_error(
        fetcher.handle,
        KafkaError.UNKNOWN_PRODUCER_ID,
        b"for a test",
    )
    deadline = time.monotonic() + 30
    with closing(fetcher):
        while not (events := fetcher.poll(1, 1).events):
            assert time.monotonic() < deadline
    ((error, offset),) = events
    assert (error.code(), offset) == (KafkaError._FATAL, 0)
    assert "for a test" in error.str()


# --- messages that it refuses or gives back


def make_fetcher(
    properties: dict[str, Any], start: Start | None = None, listen: OnError = lambda _: None
) -> LibrdkafkaFetcher:
    fetcher = connect(properties, start or Start("t", 0, 0, None), listen)
    assert isinstance(fetcher, LibrdkafkaFetcher)
    return fetcher


@pytest.fixture
def fetcher(kafka: str, logs: Logs) -> Iterator[LibrdkafkaFetcher]:
    """A fetcher on a log of three messages."""
    tp = logs.partition()
    logs.send(tp, *make_messages(3))
    with closing(
        make_fetcher(consumer_properties(kafka, {}), Start(tp.topic, 0, 0, None))
    ) as fetcher:
        yield fetcher


def polled(fetcher: Fetcher) -> int:
    """Returns the number of messages in the first poll with messages."""
    deadline = time.monotonic() + 30
    while (count := fetcher.poll(3, 3).count) == 0:
        assert time.monotonic() < deadline
    return count


def test_a_message_that_cannot_be_one_is_a_bug(
    fetcher: LibrdkafkaFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that the passes refuse ends the read, so that an unexpected memory layout is
    noticed.
    """
    fetcher.state[fields.PARTITION] = 9  # as if messages were of another partition
    with pytest.raises(BugError, match="can't be the next message"):
        polled(fetcher)


def test_a_message_of_another_topic_is_a_bug(fetcher: LibrdkafkaFetcher) -> None:
    """A message of another topic raises BugError: the library is asked for the topic of the
    first message.
    """
    fetcher.tp = TopicPartition("another", 0)
    with pytest.raises(BugError, match="can't be the next message"):
        polled(fetcher)


def test_a_position_before_a_message_is_a_bug(
    fetcher: LibrdkafkaFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's position before a message that was read raises BugError."""
    monkeypatch.setattr(fetcher, "position", lambda: 1)
    with pytest.raises(BugError, match=r"position in .* is 1, and"):
        polled(fetcher)


def test_what_was_not_taken_is_given_back(
    fetcher: LibrdkafkaFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that weren't taken are destroyed by the next poll, or with the client, also
    after an interrupt.
    """
    count = polled(fetcher)
    assert int((fetcher.messages != 0).sum()) == count
    fetcher.poll(1, 3)
    assert not fetcher.messages[1:].any()

    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(passes, "look", interrupted)
    with pytest.raises(KeyboardInterrupt):
        polled(fetcher)
    fetcher.close()
    fetcher.close()
    assert not fetcher.messages.any()


def test_messages_that_were_given_back_are_out_of_reach(fetcher: LibrdkafkaFetcher) -> None:
    """Batches of a poll that are taken after the next poll, or after the end, raise BugError,
    because their memory is freed.
    """
    deadline = time.monotonic() + 30
    while not (fetched := fetcher.poll(3, 3)).count:
        assert time.monotonic() < deadline
    fetcher.poll(1, 3)
    with pytest.raises(BugError, match="after they were destroyed"):
        list(fetched.batches)
    last = fetcher.poll(1, 3)
    last = Fetched(1, last.position, last.events, fetcher.batches(1, fetcher.turn))
    fetcher.close()
    with pytest.raises(BugError, match="after they were destroyed"):
        list(last.batches)


@pytest.mark.parametrize("where", ["consumer_close", "destroy_flags"])
def test_an_interrupt_while_closing(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Ctrl-C while the library closes a client is raised after the call, and closing again
    frees nothing twice.
    """
    fetcher = make_fetcher(consumer_properties("127.0.0.1:1", {}))
    api, called = fetcher.api, list[str]()

    def interrupted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def then(*arguments: Any) -> Any:
            called.append(name)
            result = call(*arguments)
            if name == where:
                raise KeyboardInterrupt
            return result

        return then

    with monkeypatch.context() as patch:
        for name in ("consumer_close", "destroy_flags"):
            patch.setattr(api, name, interrupted(name, getattr(api, name)))
        with pytest.raises(KeyboardInterrupt):
            fetcher.close()
        fetcher.close()
    assert called == ["consumer_close", "destroy_flags"][: len(called)]


def test_a_client_that_cannot_be_assigned_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that can't be assigned raises the library's error, and leaves no thread.

    Other threads may start meanwhile, so several clients are tried.
    """
    properties = consumer_properties("127.0.0.1:1", {})
    make_fetcher(properties).close()
    threads = psutil.Process().num_threads()
    api = library()
    monkeypatch.setattr(api, "assign", lambda *_: KafkaError._FATAL)
    for _ in range(5):
        with pytest.raises(KafkaException) as refused:
            LibrdkafkaFetcher(api, properties, Start("t", 0, 0, None), lambda _: None)
        assert refused.value.args[0].code() == KafkaError._FATAL
    assert psutil.Process().num_threads() < threads + 5


# --- leaks


class LeftError(Exception):
    """The error that ends a read early."""


def leave(_: pa.RecordBatch) -> None:
    raise LeftError


@pytest.mark.sampled(1, of=2)
def test_many_splits_leave_nothing_behind(
    part: int, kafka: str, broker: KafkaBroker, logs: Logs, dice: random.Random
) -> None:
    """Memory, threads and open files stay limited over 60 splits, in a soak over 1,000, read to
    the end or left in the middle.
    """
    tp = TopicPartition(logs.topic(1, {"compression.type": "lz4"}), 0)
    logs.send(
        tp, *[Sent(dice.randbytes(500), b"key", headers=(("name", b"value"),)) for _ in range(5000)]
    )
    reader = KafkaReader(
        consumer_properties(kafka, {}),
        plan_of(broker, tp),
        fetching=WAYS["librdkafka"],
        rows_max=1000,
    )
    this_process = psutil.Process()

    def some_splits(count: int) -> tuple[int, int, float]:
        for _ in range(count):
            start = dice.randrange(4000)
            if dice.random() < 0.3:
                with pytest.raises(LeftError):
                    reader.read(Split(tp.topic, 0, start, 5000), leave)
            else:
                assert (
                    sum(
                        b.num_rows
                        for b in batches_of(reader, Split(tp.topic, 0, start, start + 999))
                    )
                    == 999
                )
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # otherwise glibc may keep memory that was freed
        return (
            this_process.num_threads(),
            this_process.num_fds(),
            this_process.memory_info().rss / MIB,
        )

    threads, files, memory = some_splits(30)
    count = (60, 1000)[part]
    threads_then, files_then, memory_then = some_splits(count)
    print(
        f"{count} splits: {threads} -> {threads_then} threads, {files} -> {files_then} files,"
        f" {memory:.0f} -> {memory_then:.0f} MiB"
    )
    assert threads_then < threads + 10  # other tests may start some meanwhile
    assert files_then < files + 10
    assert memory_then < memory + 32
