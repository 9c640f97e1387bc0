"""Every start position becomes an integer that the log holds, or an error that says why not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ingest.errors import DataLossError, OpenTransactionError, SpecError, WindrowError
from ingest.model.boundary import TopicPartition
from ingest.model.source import AtTime, Committed, Earliest, Given, Initializer, Latest, Reset
from ingest.plan.positions import positions
from ingest.testing.broker import MemoryBroker

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def broker() -> MemoryBroker:
    """Partition 0 holds 3 to 10, one message a minute from noon (offset 0) on; partition 1 is empty."""
    broker = MemoryBroker()
    broker.create_topic("t", 2)
    for i in range(10):
        broker.produce(A, b"", timestamp=NOON + timedelta(minutes=i))
    broker.delete_records(A, 3)
    return broker


def offsets(broker: MemoryBroker, start: Initializer) -> list[int]:
    """Where the two partitions begin."""
    found = positions(broker, start, [A, B])
    return [found[A].offset, found[B].offset]


def test_the_ends_of_the_log(broker: MemoryBroker) -> None:
    """Earliest is the log start and latest the stable end."""
    assert (offsets(broker, Earliest()), offsets(broker, Latest())) == ([3, 0], [10, 0])


def test_the_end_goes_by_the_isolation_level(broker: MemoryBroker) -> None:
    """An open transaction holds back the end only of those who read what is committed."""
    broker.produce(A, b"", transaction=broker.transaction())
    assert (offsets(broker, Latest()), offsets(broker.at("read_uncommitted"), Latest())) == ([10, 0], [11, 0])


@pytest.mark.parametrize(("minutes", "no_match", "expected"), [(5, "latest", [5, 0]), (-9, "earliest", [3, 0]), (30, "earliest", [3, 0])])
def test_an_instant(broker: MemoryBroker, minutes: int, no_match: Reset, expected: list[int]) -> None:
    """Kafka's own answer, and what was asked for where it has none."""
    assert offsets(broker, AtTime(NOON + timedelta(minutes=minutes), no_match)) == expected


def test_a_group(broker: MemoryBroker) -> None:
    """What it has committed, and what was asked for where it has not, or where the log doesn't hold that any more."""
    broker.commit_group("g", {A: 6})
    assert offsets(broker, Committed("g", "latest")) == [6, 0]
    broker.commit_group("g", {A: 2, B: 4})
    assert offsets(broker, Committed("g", "earliest")) == [3, 0]


def test_given_offsets(broker: MemoryBroker) -> None:
    """Both ends of the log are there too; others begin where it was asked for."""
    assert offsets(broker, Given(((A, 10), (B, 0)))) == [10, 0]
    assert offsets(broker, Given(((A, 3),), "latest")) == [3, 0]


@pytest.mark.parametrize(
    ("start", "kind", "words"),
    [
        (AtTime(NOON, "fail"), SpecError, r"No message is stamped 2026-01-05T12:00:00Z or later .*t\[1\]\).*no_match"),
        (Committed("none"), SpecError, r"Group none has committed nothing .*t\[0\]\).*reset"),
        (Committed("g"), SpecError, r"Group g has committed offset 2, and the log holds 3 to 10 .*t\[0\]\).*reset"),
        (Given(((A, 5),)), SpecError, r"No offset is given .*t\[1\]\).*others"),
        (Given(((A, 2),), "latest"), DataLossError, r"Offset 2 .* holds 3 to 10 .*t\[0\]@2\).*earliest"),
        (Given(((A, 11),), "latest"), SpecError, r"Offset 11 .* holds 3 to 10 .*t\[0\]@11\).*latest"),
    ],
)
def test_no_answer_is_an_error(broker: MemoryBroker, start: Initializer, kind: type[WindrowError], words: str) -> None:
    """It names the topic-partition, what was wanted, what is there and what to set."""
    broker.commit_group("g", {A: 2, B: 0})
    with pytest.raises(kind, match=words):
        positions(broker, start, [A, B])


@pytest.mark.parametrize("start", [Given(((A, 11),), "latest"), Committed("g", "earliest")])
def test_a_position_behind_an_open_transaction_is_too_early(broker: MemoryBroker, start: Initializer) -> None:
    """It is neither lost nor a mistake, so no reset may pour out the history."""
    broker.produce(A, b"", transaction=broker.transaction())
    broker.commit_group("g", {A: 11})
    with pytest.raises(OpenTransactionError, match=r"open since offset 10"):
        positions(broker, start, [A, B])
    assert offsets(broker.at("read_uncommitted"), start) == [11, 0]
