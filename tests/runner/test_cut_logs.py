"""Runs over logs that are cut off in the middle of a run, or for a moment.

Only the in-memory cluster can do that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec
import pytest

from tests.contracts.logs import MemoryCluster
from tests.contracts.source_desk import SourceDesk, minutes
from windrow.ingest.errors import CutOffError, DataLossError
from windrow.ingest.model.boundary import Boundary, TopicPartition
from windrow.ingest.model.plan import Split, Window
from windrow.ingest.model.receipt import Staged
from windrow.ingest.model.source import Earliest, Source, Topics
from windrow.ingest.ports.broker import OffsetAndEpoch
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.micro_batches import preview_next, run_batch
from windrow.ingest.runner.run_windows import run
from windrow.ingest.source.enumerator.micro_batch_ends import first_boundary
from windrow.ingest.testing.broker import MemoryBroker

BATCH = {"grid": "batch"}


def cut_and_grow(cluster: MemoryBroker, tp: TopicPartition, end: int) -> None:
    """Cuts the log off at `end`, and makes it longer than before."""
    longer = cluster.ends([tp])[tp] + 5
    cluster.truncate(tp, end)
    for _ in range(longer - end):
        cluster.produce(tp, b'{"id": 1, "name": null}')


@dataclass
class BetweenSplits:
    """An engine that calls `happens` after the first split."""

    happens: Callable[[], None]

    def start(self) -> None:
        """Does nothing; see `ports.engine.Engine.start`."""

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> list[Staged]:
        """Runs the splits; see `ports.engine.Engine.run`."""
        first = task(splits[0])
        self.happens()
        return [first, *map(task, splits[1:])]


def test_a_log_that_is_cut_between_two_splits(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """A log that is cut off and grows again between two splits raises DataLossError: its
    messages aren't the planned ones.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(*range(20)))
    desk.engine = BetweenSplits(lambda: cut_and_grow(cluster, tp, 5))
    with pytest.raises(DataLossError, match="from 10 to 20 are wanted"):
        desk.run(desk.pipeline({"topic": tp.topic, "split_records": 10}), 0)


@pytest.mark.parametrize("grid", [None, BATCH])
def test_an_end_that_is_too_small_for_a_moment(
    desk: SourceDesk,
    cluster: MemoryBroker,
    monkeypatch: pytest.MonkeyPatch,
    grid: dict[str, str] | None,
) -> None:
    """An end that is too small for a moment is asked for again, and the next window runs
    normally.

    A leader that was just elected may report one.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1, 2))
    pipeline = desk.pipeline({"topic": tp.topic}, grid)
    number = iter(range(9))

    def go() -> None:
        if grid is None:
            desk.run(pipeline, next(number))
        else:
            assert run_batch(pipeline, Request(f"r{next(number)}")) is not None

    go()
    desk.send(tp, *minutes(61, 62))
    stable, ends, slept = MemoryBroker.stable_ends, MemoryBroker.ends, list[float]()

    def small() -> int:
        return 2 if len(slept) < 2 else 9

    def stale_stable(
        broker: MemoryBroker, tps: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        return {
            tp: msgspec.structs.replace(p, offset=min(p.offset, small()))
            for tp, p in stable(broker, tps).items()
        }

    def stale_ends(
        broker: MemoryBroker, tps: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return {tp: min(end, small()) for tp, end in ends(broker, tps).items()}

    monkeypatch.setattr(MemoryBroker, "stable_ends", stale_stable)
    monkeypatch.setattr(MemoryBroker, "ends", stale_ends)
    pipeline = replace(pipeline, sleep=slept.append)
    go()
    assert len(slept) == 2
    assert desk.verdict().ok, str(desk.verdict())


def test_one_topic_partition_of_several_was_cut(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """If one of several topic-partitions is cut off below the last window's end, the window is
    refused, or its receipt says so.
    """
    topic = desk.logs.topic(2)
    first_tp, second_tp = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for tp in (first_tp, second_tp):
        desk.send(tp, *minutes(0, 1, 2))
    desk.run(desk.pipeline({"topic": topic}), 0)
    desk.send(second_tp, *minutes(61))
    cluster.truncate(first_tp, 1)
    with pytest.raises(CutOffError) as refused:
        desk.run(desk.pipeline({"topic": topic}), 1)
    assert (refused.value.topic, refused.value.partition) == (topic, 0)
    (result,) = desk.run(desk.pipeline({"topic": topic, "on_loss": "skip"}), 1)
    assert [words.partition(":")[0] for words in result.committed.receipt.partial] == [
        f"{topic}[0]"
    ]


def test_a_window_that_was_frozen_before_the_cut(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """An empty window whose boundaries were frozen before the cut is refused, because its log
    ends below them.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1, 2))
    pipeline = desk.pipeline({"topic": tp.topic})
    desk.run(pipeline, 0, 2)
    cluster.truncate(tp, 1)
    with pytest.raises(CutOffError, match="ends at offset 1 now, below 3"):
        desk.run(pipeline, 1)
    cluster.recreate_topic(tp.topic)
    (result,) = desk.run(pipeline, 1)
    assert result.committed.receipt.partial == (), "of another topic of that name nothing is asked"


def without_epochs(boundary: Boundary) -> Boundary:
    """Returns the boundary as an older version froze it: without leader epochs."""
    return msgspec.structs.replace(
        boundary, marks=tuple(msgspec.structs.replace(m, leader_epoch=None) for m in boundary.marks)
    )


def test_a_boundary_of_an_older_version(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """A window that begins at a boundary without leader epochs runs with a warning that a cut
    can't be detected.

    The next window can detect it again.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(*range(6)))
    pipeline = desk.pipeline({"topic": tp.topic}, BATCH | {"max_records": 4})
    begin = without_epochs(first_boundary(cluster, Source(Topics((tp.topic,)), Earliest()), 0))
    end = msgspec.structs.replace(
        begin, label=1, marks=tuple(msgspec.structs.replace(m, offset=4) for m in begin.marks)
    )
    pipeline.ledger.freeze("things", [begin, end])
    warned = []
    for n in range(3):
        result = run_batch(pipeline, Request(f"r{n}"))
        desk.send(tp, *minutes(9))
        assert result is not None
        warned.append(
            ["without a leader epoch" in words for words in result.committed.receipt.warnings]
        )
    assert warned == [[], [True], []]
    assert desk.verdict().missing == ((tp, 8),)


def test_a_plan_of_an_older_version_is_still_held_against_the_log(
    desk: SourceDesk, cluster: MemoryBroker
) -> None:
    """If only the plan's end has a leader epoch, a cut after the plan is detected."""
    tp = desk.logs.partition()
    desk.send(tp, *minutes(*range(6)))
    pipeline = desk.pipeline({"topic": tp.topic}, BATCH)
    begin = first_boundary(cluster, Source(Topics((tp.topic,)), Earliest()), 0)
    at_four = msgspec.structs.replace(
        begin, marks=tuple(msgspec.structs.replace(m, offset=4) for m in begin.marks)
    )
    pipeline.ledger.freeze("things", [without_epochs(at_four)])
    pipeline.ledger.freeze_plans([preview_next(pipeline) or pytest.fail("nothing is waiting")])
    cut_and_grow(cluster, tp, 2)
    with pytest.raises(DataLossError, match="from 4 to 6 are wanted"):
        run(pipeline, Window("things", 0, 1), Request("r"))


def test_hours_over_a_cut_log_and_its_way_back(desk: SourceDesk, cluster: MemoryBroker) -> None:
    """An empty hour is refused if the log was cut off and has just grown again to the last
    window's end.
    """
    tp = desk.logs.partition()
    desk.send(tp, *minutes(0, 1, 2))
    pipeline = desk.pipeline({"topic": tp.topic})
    desk.run(pipeline, 0)
    desk.logs.cut(MemoryCluster(cluster), {tp: 1})
    desk.send(tp, *minutes(130, 131))
    with pytest.raises(DataLossError, match=r"cut off below offset 3 and has grown again"):
        desk.run(pipeline, 1)
