"""The in-memory reader and broker keep the contract of logs that were cut off, also for a cut
in the middle of a read.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pyarrow as pa
import pytest

from tests.contracts.logs import Logs, MemoryCluster
from tests.contracts.reading import batches_of, gathered
from tests.contracts.source_desk import SourceDesk
from tests.contracts.truncation_contract import Cut, TruncationContract
from windrow.ingest.errors import DataLossError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.model.source import OnLoss
from windrow.ingest.ports.reader import ReadPlan, ReadSummary, Take
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.reader import MemoryReader

TP = TopicPartition("t", 0)


@pytest.fixture
def broker() -> MemoryBroker:
    """A broker with ten messages of one byte each."""
    broker = MemoryBroker()
    broker.create_topic("t")
    write(broker, 10)
    return broker


def write(broker: MemoryBroker, count: int) -> None:
    for _ in range(count):
        broker.produce(TP, b"v")


def reader(broker: MemoryBroker, on_loss: OnLoss) -> MemoryReader:
    plan = ReadPlan(broker.cluster_id(), {"t": broker.topic("t").topic_id}, on_loss)
    return MemoryReader(broker, plan, rows_max=2)


def read(
    broker: MemoryBroker, split: Split, change: Callable[[], None] = lambda: None
) -> tuple[list[int], ReadSummary]:
    """Returns the offsets of a read with on_loss: skip. The log changes after two messages."""
    offsets: list[int] = []
    summary = reader(broker, "skip").read(split, after_first(change, offsets))
    return offsets, summary


def after_first(change: Callable[[], None], offsets: list[int]) -> Take:
    """Returns a function that collects offsets, and changes the log after the first batch."""

    def take(batch: pa.RecordBatch) -> None:
        if not offsets:
            change()
        offsets.extend(batch.column("offset").to_pylist())

    return take


def test_a_log_that_is_truncated_while_reading(broker: MemoryBroker) -> None:
    """If a log is truncated while it is read, messages that were given stay, the remaining ones
    are read, and the rest is skipped.
    """
    assert read(broker, Split("t", 0, 0, 10), lambda: broker.truncate(TP, 5)) == (
        list(range(5)),
        ReadSummary(10, 5, 5, 0, 5),
    )
    assert read(broker, Split("t", 0, 0, 5), lambda: broker.truncate(TP, 1)) == (
        [0, 1],
        ReadSummary(5, 2, 2, 0, 3),
    )


def test_a_log_that_is_truncated_while_reading_fails(broker: MemoryBroker) -> None:
    """With on_loss: fail, a truncation during a read raises DataLossError with the read's
    position and the remaining offsets.
    """
    offsets: list[int] = []
    with pytest.raises(
        DataLossError, match="from 2 to 10 are wanted, but the log holds 0 to 5"
    ) as error:
        reader(broker, "fail").read(
            Split("t", 0, 0, 10), after_first(lambda: broker.truncate(TP, 5), offsets)
        )
    assert error.value.offset == 2
    assert offsets == [0, 1]


def test_a_log_that_was_cut_and_grew_again(broker: MemoryBroker) -> None:
    """If the plan has a leader epoch, other messages at its offsets are a loss."""
    split = Split("t", 0, 6, 10, broker.stable_ends([TP])[TP].leader_epoch)
    broker.truncate(TP, 3)
    write(broker, 9)
    with pytest.raises(DataLossError, match="from 6 to 10"):
        batches_of(reader(broker, "fail"), split)
    assert gathered(reader(broker, "skip"), split) == ([], ReadSummary(10, 0, 0, 0, 4))


def test_a_clean_change_of_leader_is_no_loss(broker: MemoryBroker) -> None:
    """A clean change of leader, after or at the split's start, is no loss: a planned restart of
    a broker does that.
    """
    split = Split("t", 0, 6, 12, broker.stable_ends([TP])[TP].leader_epoch)
    broker.elect(TP)
    write(broker, 2)
    assert read(broker, split) == ([6, 7, 8, 9, 10, 11], ReadSummary(12, 6, 6, 0, 0))


def test_aborted_messages_that_are_gone_are_not_counted(broker: MemoryBroker) -> None:
    """Read, invisible and skipped offsets add up to the split's length.

    Only aborted messages that were seen are counted.
    """
    for _ in range(2):
        with broker.transaction() as running:
            broker.produce(TP, b"v", transaction=running)
            broker.produce(TP, b"v", transaction=running)
        failed = broker.transaction()
        broker.produce(TP, b"v", transaction=failed)
        failed.abort()
    broker.delete_records(TP, 14)
    assert read(broker, Split("t", 0, 10, 20)) == ([15, 16], ReadSummary(20, 2, 2, 1, 4))


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Cut:
    """The in-memory cluster, cut once."""
    broker, tables = MemoryBroker(), count()
    cluster = MemoryCluster(broker)
    logs = Logs(cluster)

    def desk() -> SourceDesk:
        folder = tmp_path_factory.mktemp(f"table{next(tables)}")
        return SourceDesk(
            logs,
            broker.with_isolation,
            lambda isolation, plan: MemoryReader(broker.with_isolation(isolation), plan),
            folder,
        )

    return Cut(cluster, desk, lambda plan: MemoryReader(broker, plan))


class TestTruncation(TruncationContract):
    """The contract of truncated logs, in memory."""
