"""Random logs, and a random way to read each.

A log has plain messages, committed, aborted and open transactions, late, early and future
timestamps, gaps and new partitions. The windows are run in any order, as hours or as
micro-batches, with splits of any size. A seed decides everything, so a failure can be repeated.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.contracts.logs import MemoryCluster, OpenTransaction
from tests.contracts.source_desk import FIRST, HOUR, SourceDesk
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.micro_batches import run_batch
from windrow.ingest.runner.run_windows import run
from windrow.ingest.testing.broker import MemoryBroker

HOURS = 2


@dataclass
class Layout:
    """The log of one seed, and the way to read it.

    Attributes:
        desk: the desk for the log and its pipeline.
        seed: the seed of all random choices.
        steps: how many steps write each half of the log.
        removed: the offsets that were removed like by compaction.
    """

    desk: SourceDesk
    seed: int
    steps: int
    removed: dict[TopicPartition, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Makes one or two topics with one to three partitions."""
        self.desk.plain = True
        self.dice = random.Random(self.seed)
        self.topics = [
            self.desk.logs.topic(self.dice.randint(1, 3)) for _ in range(self.dice.randint(1, 2))
        ]
        self.partitions = {topic: self._count(topic) for topic in self.topics}
        self.clock = 0

    def read(self) -> None:
        """Writes the log in two halves, and reads after each half.

        At the end no transaction is open, and everything is read.
        """
        kind = self.dice.choices(["days", "hours", "batches"], [5, 3, 2])[0]
        pieces = self.dice.choice([None, 1, 3, 10])
        source: dict[str, Any] = {"topic": self.topics} | (
            {} if pieces is None else {"split_records": pieces}
        )
        pipeline = self.desk.pipeline(source, self._window(kind))
        self._write(self.steps, HOURS // 2)
        opened = self._open()
        self._run(pipeline, kind, range(HOURS // 2))
        for running in opened:
            self._end(running)
        if self.dice.random() < 0.3:
            self._grow()
        self._write(self.steps, HOURS)
        self._punch()
        self._run(pipeline, kind, range(HOURS // 2, HOURS + 5))  # until after the last timestamp

    def _window(self, kind: str) -> dict[str, Any]:
        if kind == "batches":
            return {"grid": "batch", "max_records": self.dice.randint(4, 30)}
        grid = "hourly" if kind == "hours" else f"0 {FIRST.hour} * * *"
        return {"grid": grid, "start": FIRST, "max_wait": "0s"}

    def _run(self, pipeline: Pipeline, kind: str, hours: range) -> None:
        """Runs all windows of these hours.

        The first day ends at the log's end when it is run. Later messages of that day are late
        messages of the second day.
        """
        if kind == "hours":
            order = list(hours)
            self.dice.shuffle(order)
            self.desk.run(pipeline, *order)
        elif kind == "days":
            begin = FIRST + timedelta(days=min(hours.start, 1))
            run(pipeline, Window("things", begin, begin + timedelta(days=1)), Request("day"))
        else:
            for n in range(10_000):
                if run_batch(pipeline, Request(f"{hours.start}-{n}")) is None:
                    return
            raise AssertionError("the batches don't end")

    # ----------------------------------------------------------------------------------------------

    def _write(self, steps: int, until: int) -> None:
        for _ in range(steps):
            tp = self._any()
            stamps = self._stamps(until)
            kind = self.dice.choices(["plain", "committed", "aborted"], [6, 2, 2])[0]
            messages = self.desk.things(*stamps)
            if kind != "aborted":
                self.desk.note(tp, self.desk.logs.end(tp), messages)
            if kind == "plain":
                self.desk.logs.send(tp, *messages)
            else:
                self.desk.logs.transaction(tp, *messages, commit=kind == "committed")

    def _stamps(self, until: int) -> list[int]:
        stamps = []
        for _ in range(self.dice.randint(1, 8)):
            self.clock = min(self.clock + self.dice.randint(0, HOUR // 4), until * HOUR - 1)
            odd = self.dice.random()
            jump = -3 * HOUR if odd < 0.05 else 3 * HOUR if odd < 0.07 else 0
            stamps.append(max(0, self.clock + jump + self.dice.randint(-60_000, 60_000)))
        return stamps

    def _open(self) -> list[tuple[OpenTransaction, TopicPartition, int]]:
        """Begins a transaction that is open while the first half is read.

        Whether it commits or aborts decides if its messages must be seen.
        """
        if self.dice.random() < 0.5:
            return []
        tp = self._any()
        running, messages = (
            self.desk.logs.cluster.begin(tp.topic),
            self.desk.things(*self._stamps(HOURS // 2)),
        )
        running.send(tp, messages)
        first = self.desk.logs.end(tp)
        commit = self.dice.random() < 0.5
        self.desk.logs.mirror(tp, messages, visible=commit)
        if commit:
            self.desk.note(tp, first, messages)
        return [(running, tp, int(commit))]

    def _end(self, opened: tuple[OpenTransaction, TopicPartition, int]) -> None:
        running, tp, commit = opened
        running.end(commit=bool(commit))
        self.desk.logs.log_of(tp).append(None)

    def _grow(self) -> None:
        topic = self.dice.choice(self.topics)
        self.partitions[topic] += 1
        self.desk.logs.cluster.add_partitions(topic, self.partitions[topic])

    def _punch(self) -> None:
        """Removes some unread messages, like compaction does, if the cluster can do
        that at once.
        """
        cluster = self.desk.logs.cluster
        if not isinstance(cluster, MemoryCluster):
            return
        for tp, messages in self.desk.sent_ids.items():
            read = self._read_up_to(cluster.broker, tp)
            unread = [o for o in messages if o >= read]
            removed = {o for o in unread if self.dice.random() < 0.2}
            cluster.broker.remove(tp, removed)
            self.removed[tp] = removed

    def _read_up_to(self, _: MemoryBroker, tp: TopicPartition) -> int:
        assert self.desk.sink is not None
        stops = [
            m.offset
            for c in self.desk.sink.receipts()
            for m in c.receipt.plan.stop.marks
            if m.tp == tp
        ]
        return max(stops, default=0)

    def _any(self) -> TopicPartition:
        topic = self.dice.choice(self.topics)
        return TopicPartition(topic, self.dice.randrange(self.partitions[topic]))

    def _count(self, topic: str) -> int:
        return self.desk.broker_at("read_committed").topic(topic).partitions
