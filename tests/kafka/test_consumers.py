"""Consumers that are kept between scans."""

from __future__ import annotations

from contextlib import closing
from typing import Any, cast

import confluent_kafka as ck
import pytest

from tests.forked import fork
from windrow.ingest.kafka.consumers import Consumers


class Fake:
    """A consumer that counts its calls."""

    def __init__(self) -> None:
        self.unassigned = self.closed = 0
        self.asked_topics: list[str] = []

    def unassign(self) -> None:
        self.unassigned += 1

    def list_topics(self, topic: str, seconds: float) -> None:
        self.asked_topics.append(topic)
        if topic == "silent":
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT))

    def close(self) -> None:
        self.closed += 1


class Made(list[Fake]):
    """The consumers that were made."""

    def new(self) -> ck.Consumer:
        self.append(Fake())
        return cast("ck.Consumer", self[-1])


@pytest.fixture
def fakes() -> Made:
    return Made()


def test_the_next_scan_gets_the_last_ones_consumer(fakes: Made) -> None:
    """The next scan gets the last scan's consumer without its assignment.

    This holds if the scan ended, or was left early as a generator.
    """
    consumers = Consumers(fakes.new)

    def leave_scan() -> Any:
        with consumers.lend("a"):
            yield

    with consumers.lend("a"):
        pass
    with closing(leave_scan()) as scan:
        next(scan)
    with consumers.lend("a") as third:
        assert len(fakes) == 1
        assert third is cast("ck.Consumer", fakes[0])
        assert (fakes[0].unassigned, fakes[0].closed) == (2, 0)


def test_scans_at_the_same_time_have_their_own_and_one_is_kept(fakes: Made) -> None:
    """Concurrent scans have their own consumers, and one of them is kept afterwards."""
    consumers = Consumers(fakes.new)
    with consumers.lend("a") as first, consumers.lend("a") as second:
        assert first is not second
    with consumers.lend("a"):
        assert len(fakes) == 2
        assert sorted(fake.closed for fake in fakes) == [0, 1]


def test_a_kept_one_asks_for_a_topic_that_it_has_not_read_once(fakes: Made) -> None:
    """A kept consumer asks once for the metadata of a topic that it hasn't read.

    A new consumer does so by itself. A missing answer doesn't stop the scan.
    """
    consumers = Consumers(fakes.new)
    for topic in ("a", "b", "a", "b", "silent"):
        with consumers.lend(topic):
            pass
    assert len(fakes) == 1
    assert fakes[0].asked_topics == ["b", "silent"]


def test_one_that_failed_is_not_used_again(fakes: Made) -> None:
    """A consumer that failed is closed, and the next scan gets a new one."""
    consumers = Consumers(fakes.new)
    for _ in range(2):
        with pytest.raises(ValueError, match="why"), consumers.lend("a"):
            raise ValueError("why")
    assert [fake.closed for fake in fakes] == [1, 1]


def test_what_is_idle_is_closed_with_its_keeper(fakes: Made) -> None:
    """An idle consumer is closed with its keeper, without a garbage collection."""
    consumers = Consumers(fakes.new)
    with consumers.lend("a"):
        pass
    assert fakes[0].closed == 0
    del consumers
    assert fakes[0].closed == 1


def test_another_process_leaves_a_consumer_alone(fakes: Made) -> None:
    """A forked child doesn't use or close its parent's consumers, idle or in a scan.

    It makes its own consumers.
    """
    consumers = Consumers(fakes.new)
    with consumers.lend("a"):
        pass
    open_scan = consumers.lend("a")
    open_scan.__enter__()
    with consumers.lend("a"):
        pass
    state_before = [(fake.unassigned, fake.closed) for fake in fakes]

    def child() -> None:
        with consumers.lend("a"):
            assert len(fakes) == 3
        open_scan.__exit__(None, None, None)
        assert [(fake.unassigned, fake.closed) for fake in fakes[:2]] == state_before

    process = fork(child)
    process.join(60)
    assert process.exitcode == 0
    open_scan.__exit__(None, None, None)
    assert sorted(fake.closed for fake in fakes) == [0, 1]
