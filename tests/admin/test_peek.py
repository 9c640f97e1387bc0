"""`peek` shows the messages of topics, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.admin.peek import PRINTED, Messages, peek, printable, write_messages
from windrow.ingest.errors import DataLossError, IdentityError, SpecError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.model.source import (
    AtLabel,
    AtTime,
    Earliest,
    Given,
    GroupOffsets,
    Initializer,
    Latest,
    Partitions,
    Pattern,
    Source,
    Topics,
)
from windrow.ingest.ports.broker import OffsetAndEpoch
from windrow.ingest.ports.reader import ReadPlan, ReadSummary, Take
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.partition_log import NO_TIMESTAMP
from windrow.ingest.testing.reader import MemoryReader

FIRST = datetime(2026, 1, 5, tzinfo=UTC)
ORDERS = Source(Topics(("orders",)))


def tp(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, partition)


class Readers:
    """Makes readers with small batches, and notes the rows read of each split and the
    ended reads.
    """

    def __init__(self, broker: MemoryBroker, rows_max: int = 3) -> None:
        self.broker, self.rows_max = broker, rows_max
        self.rows: dict[TopicPartition, int] = {}
        self.closed: list[TopicPartition] = []

    def __call__(self, plan: ReadPlan) -> MemoryReader:
        reader = _Noting(self.broker, plan, rows_max=self.rows_max)
        reader.notes = self
        return reader


class _Noting(MemoryReader):
    notes: Readers

    def read(self, split: Split, take: Take) -> ReadSummary:
        self.notes.rows[split.tp] = 0

        def count_batch(batch: pa.RecordBatch) -> None:
            self.notes.rows[split.tp] += batch.num_rows
            take(batch)

        try:
            return super().read(split, count_batch)
        finally:
            self.notes.closed.append(split.tp)


def fill_broker(*lengths: int) -> MemoryBroker:
    """Returns a broker with so many messages in each partition of the topic orders, one
    a minute.
    """
    broker = MemoryBroker()
    broker.create_topic("orders", partitions=len(lengths))
    for partition, length in enumerate(lengths):
        for n in range(length):
            broker.produce(tp(partition), b"%d" % n, timestamp=FIRST + timedelta(minutes=n))
    return broker


def look(
    broker: MemoryBroker,
    start: Initializer = Earliest(),  # noqa: B008
    stop: Initializer = Latest(),  # noqa: B008
    limit: int | None = None,
    source: Source = ORDERS,
    readers: Readers | None = None,
) -> list[tuple[int, int]]:
    """Returns partition and offset of each message that `peek` shows."""
    messages = peek(broker, readers or Readers(broker), source, start, stop, limit)
    return [
        pair
        for b in take_batches(messages)
        for pair in zip(b["partition"].to_pylist(), b["offset"].to_pylist(), strict=True)
    ]


def take_batches(messages: Messages) -> list[pa.RecordBatch]:
    """Returns all batches of messages."""
    batches: list[pa.RecordBatch] = []
    messages(batches.append)
    return batches


def pairs(*ranges: tuple[int, int, int]) -> list[tuple[int, int]]:
    return [(p, o) for p, low, high in ranges for o in range(low, high)]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (Earliest(), Latest(), pairs((0, 2, 10), (1, 0, 4))),
        (Latest(), Latest(), []),
        (
            AtTime(FIRST + timedelta(minutes=3)),
            AtTime(FIRST + timedelta(minutes=5)),
            pairs((0, 3, 5), (1, 3, 4)),
        ),
        (GroupOffsets("group"), Latest(), pairs((0, 7, 10), (1, 1, 4))),
        (Given(((tp(0), 8),), "latest"), Latest(), pairs((0, 8, 10))),
        # a stop above the end
        (Earliest(), Given(((tp(0), 10**9), (tp(1), 2))), pairs((0, 2, 10), (1, 0, 2))),
        # a stop below the log start, and one at it
        (Earliest(), Given(((tp(0), 1), (tp(1), 0))), []),
        # a stop below the start
        (
            Given(((tp(0), 9), (tp(1), 3))),
            Given(((tp(0), 3), (tp(1), 4), (tp(7), 1))),
            pairs((1, 3, 4)),
        ),
    ],
)
def test_a_look_shows_what_lies_between(
    start: Initializer, stop: Initializer, expected: list[tuple[int, int]]
) -> None:
    """All messages from start to stop are shown, in order.

    A stop above the log's end is not waited for.
    """
    broker = fill_broker(10, 4)
    broker.delete_records(tp(0), 2)
    broker.commit_group("group", {tp(0): 7, tp(1): 1})
    assert look(broker, start, stop) == expected


def test_a_look_follows_its_selection() -> None:
    """The topics of a pattern are shown in order, or the chosen partitions; an unknown topic is
    refused.
    """
    broker = fill_broker(1, 2)
    broker.create_topic("other")
    broker.produce(tp(0, "other"), b"")
    messages = peek(broker, Readers(broker), Source(Pattern(".*")), Earliest(), Latest(), None)
    assert [t for b in take_batches(messages) for t in b["topic"].to_pylist()] == ["orders"] * 3 + [
        "other"
    ]
    assert look(broker, source=Source(Partitions((tp(1),)))) == pairs((1, 0, 2))
    with pytest.raises(SpecError):
        peek(broker, Readers(broker), Source(Topics(("never",))), Earliest(), Latest(), None)


def test_both_ends_are_asked_before_the_first_message() -> None:
    """Start and stop are resolved before the first message, so later messages aren't shown.

    A position that `peek` can't use is refused immediately.
    """
    broker = fill_broker(2)
    messages = peek(broker, Readers(broker), ORDERS, Earliest(), Latest(), None)
    broker.produce(tp(0), b"")
    assert sum(b.num_rows for b in take_batches(messages)) == 2
    for start, stop in ((AtLabel(), Latest()), (Earliest(), AtLabel())):
        with pytest.raises(SpecError):
            peek(broker, Readers(broker), ORDERS, start, stop, None)


def test_a_look_stops_before_what_is_undecided() -> None:
    """Messages of an open transaction are not waited for; read_uncommitted shows them."""
    broker = fill_broker(2)
    broker.produce(tp(0), b"", transaction=broker.transaction())
    broker.produce(tp(0), b"")
    assert look(broker, stop=Given(((tp(0), 4),))) == pairs((0, 0, 2))
    assert look(broker.with_isolation("read_uncommitted"), stop=Given(((tp(0), 4),))) == pairs(
        (0, 0, 4)
    )


class Growing(MemoryBroker):
    """A broker that gets two messages right before each lookup by instant."""

    def first_at_or_after(
        self, tps: Sequence[TopicPartition], moment: datetime
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        for partition in tps:
            self.produce(partition, b"", timestamp=moment - timedelta(minutes=1))
            self.produce(partition, b"", timestamp=moment)
        return super().first_at_or_after(tps, moment)


def test_a_look_never_goes_beyond_the_end_it_began_with() -> None:
    """A stop above the stable end, which was asked first, is moved to the stable end."""
    broker = Growing()
    broker.create_topic("orders")
    broker.produce(tp(0), b"", timestamp=FIRST)
    assert look(broker, stop=AtTime(FIRST + timedelta(days=1))) == pairs((0, 0, 1))


def test_what_is_gone_is_told() -> None:
    """`peek` never passes over a loss: it raises DataLossError or IdentityError.

    Messages may be deleted before a given start or during the read, or the topic was made
    again.
    """
    broker = fill_broker(5)
    messages = peek(broker, Readers(broker), ORDERS, Earliest(), Latest(), None)
    broker.delete_records(tp(0), 2)
    with pytest.raises(DataLossError):
        take_batches(messages)
    with pytest.raises(DataLossError):
        look(broker, Given(((tp(0), 1),)))
    messages = peek(broker, Readers(broker), ORDERS, Earliest(), Latest(), None)
    broker.recreate_topic("orders")
    with pytest.raises(IdentityError):
        take_batches(messages)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(0, 30), st.integers(1, 4))
def test_a_limit_takes_the_first_and_reads_no_further(
    lengths: list[int], limit: int, rows_max: int
) -> None:
    """A limit shows exactly the first messages, and reads no batch after the last of them.

    Every read that began has ended.
    """
    broker = fill_broker(*lengths)
    readers = Readers(broker, rows_max)
    all_pairs = pairs(*((p, 0, n) for p, n in enumerate(lengths)))
    assert look(broker, limit=limit, readers=readers) == all_pairs[:limit]
    assert sum(readers.rows.values()) < limit + rows_max
    assert readers.closed == list(readers.rows)


def refuse_batch(_: pa.RecordBatch) -> None:
    raise LookupError


def test_a_look_that_is_left_lets_its_reader_go() -> None:
    """If the caller stops, nothing more is read, and no reader stays open."""
    broker = fill_broker(9, 9)
    readers = Readers(broker)
    with pytest.raises(LookupError):
        peek(broker, readers, ORDERS, Earliest(), Latest(), 8)(refuse_batch)
    assert (readers.closed, readers.rows) == ([tp(0)], {tp(0): 3})


# --------------------------------------------------------------------------------------------------


def odd_messages() -> MemoryBroker:
    """Returns a broker with unusual messages: odd bytes, nulls, long values, odd timestamps."""
    broker = MemoryBroker()
    broker.create_topic("orders")
    broker.produce(
        tp(0),
        "größe\n\x1b[31m".encode(),
        key=b"\xff\x00",
        timestamp=FIRST,
        headers=(("a", b"1"), ("a", None), ("ä", b"\xfe")),
    )
    broker.produce(tp(0), None, key=b"", timestamp=NO_TIMESTAMP)
    broker.produce(tp(0), b'{"base64": "AA=="}', timestamp=2**62)
    broker.produce(tp(0), b"x" * 500, timestamp=FIRST + timedelta(milliseconds=1))
    return broker


def messages_of(broker: MemoryBroker) -> Messages:
    return peek(broker, Readers(broker), ORDERS, Earliest(), Latest(), None)


def test_parquet_holds_the_messages_as_they_are(tmp_path: Path) -> None:
    """A Parquet file holds the messages as they were read from the topic, or none."""
    path = tmp_path / "look.parquet"
    assert write_messages(messages_of(odd_messages()), path) == 4
    file_table, topic_table = (
        pq.read_table(path).cast(MESSAGES),
        pa.Table.from_batches(take_batches(messages_of(odd_messages()))),
    )
    assert file_table.select(
        plain := [name for name in MESSAGES.names if name != "timestamp_type"]
    ).equals(topic_table.select(plain))
    # each batch has a dictionary of its own
    assert file_table["timestamp_type"].to_pylist() == topic_table["timestamp_type"].to_pylist()
    assert write_messages(lambda _: None, path) == 0
    assert pq.read_table(path).schema.names == MESSAGES.names
    assert list(tmp_path.iterdir()) == [path]


def test_json_lines_lose_nothing(tmp_path: Path) -> None:
    """JSON lines lose nothing: there is one object per line.

    Bytes that are no text, missing values, doubled headers and timestamps after the year 9999
    come back.
    """
    path = tmp_path / "look.jsonl"
    assert write_messages(messages_of(odd_messages()), path) == 4
    first, second, third, _ = (
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()
    )
    assert first == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp": "2026-01-05T00:00:00.000Z",
        "timestamp_type": "CreateTime",
        "key": {"base64": "/wA="},
        "value": "größe\n\x1b[31m",
        "leader_epoch": 0,
        "headers": [
            {"key": "a", "value": "1"},
            {"key": "a", "value": None},
            {"key": "ä", "value": {"base64": "/g=="}},
        ],
    }
    assert list(first) == MESSAGES.names
    assert (second["key"], second["value"], second["timestamp"], second["timestamp_type"]) == (
        "",
        None,
        None,
        "NoTimestampType",
    )
    assert (third["value"], third["timestamp"]) == ('{"base64": "AA=="}', 2**62)


@pytest.mark.parametrize("name", ["look.parquet", "look.jsonl"])
def test_a_file_is_whole_or_not_there(name: str, tmp_path: Path) -> None:
    """If writing fails, the existing file stays, and no other file is left."""
    path = tmp_path / name
    path.write_bytes(b"before")
    broker = fill_broker(9)

    def break_off(take: Take) -> None:
        take(take_batches(messages_of(broker))[0])
        raise DataLossError("gone", "read", "Look.")

    with pytest.raises(DataLossError):
        write_messages(break_off, path)
    assert [(p, p.read_bytes()) for p in tmp_path.iterdir()] == [(path, b"before")]
    assert write_messages(messages_of(broker), path) == 9
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_needs_a_form_and_a_folder(tmp_path: Path) -> None:
    """A file with an unknown ending or a missing folder is refused before any message is read."""
    for path in (tmp_path / "look.csv", tmp_path / "look", tmp_path / "nowhere" / "look.jsonl"):
        with pytest.raises(SpecError):
            write_messages(lambda _: pytest.fail("read"), path)


def test_people_see_text_and_no_control_characters() -> None:
    """Each message is one printable line with all columns; long values are cut."""
    rows = [row for batch in take_batches(messages_of(odd_messages())) for row in printable(batch)]
    assert all(len(row) == len(PRINTED) and all(cell.isprintable() for cell in row) for row in rows)
    assert rows[0] == (
        "orders[0]",
        "0",
        "2026-01-05T00:00:00.000Z",
        r"\xff\x00",
        r"größe\n\x1b[31m",
        r"a: 1, a: null, ä: \xfe",
    )
    assert rows[1] == ("orders[0]", "1", "none", "", "null", "")
    assert rows[2][2] == str(2**62)
    assert rows[3][4] == "x" * 200 + "..."
