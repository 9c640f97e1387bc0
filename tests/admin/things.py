"""A committed table with its ledger and topic, for tests of verification and rebuilding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.admin.verify import Verified, verify
from windrow.ingest.errors import IdentityError, UnreachableError
from windrow.ingest.ledger.sql import SqlLedger, open_ledger
from windrow.ingest.model.boundary import Mark, TopicPartition, TopicSeen
from windrow.ingest.model.grid import BATCH
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.broker import OffsetAndEpoch, TopicInfo
from windrow.ingest.testing.contracts.windows import (
    PARTITIONS,
    PER_WINDOW,
    ROWS,
    TOPIC,
    plan_of,
    receipt,
    stage,
    window,
)

ANEW = TopicSeen(TOPIC.topic, "topic-id-2", 2)
AGAIN = TopicSeen(TOPIC.topic, "topic-id-4", 2)
"""The topic after it was made again once, and twice."""

OTHER = TopicSeen("shop.returns", "topic-id-3", 1)


@dataclass
class FakeTopic:
    """A fake cluster that answers the questions of verification.

    Attributes:
        cluster: the cluster's id.
        topic_id: the topic's id.
        start: the log start of each partition.
        down: whether the cluster doesn't answer.
        is_deleted: whether the topic doesn't exist.
        end_of: the log ends that differ from the default.
    """

    cluster: str = "cluster"
    topic_id: str = TOPIC.topic_id
    start: int = 0
    down: bool = False
    is_deleted: bool = False
    end_of: dict[TopicPartition, int] = field(default_factory=dict)

    def cluster_id(self) -> str:
        return self.cluster

    def topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        if self.down:
            raise UnreachableError("the cluster does not answer", "plan", "Start it.")
        known_names = [] if self.is_deleted else [n for n in names if n == TOPIC.topic]
        return {
            n: TopicInfo(n, self.topic_id, PARTITIONS, compacted=False, retention_ms=None)
            for n in known_names
        }

    def log_starts(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self.start)

    def ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.end_of.get(tp, 10**6) for tp in tps}

    def first_at_or_after(
        self, tps: Sequence[TopicPartition], moment: datetime
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        del moment
        return dict.fromkeys(tps, OffsetAndEpoch(self.start, None))

    def stable_ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        return {tp: OffsetAndEpoch(end, None) for tp, end in self.ends(tps).items()}

    def diverged_marks(self, marks: Sequence[Mark]) -> list[Mark]:
        del marks
        return []


@dataclass
class Scene:
    """A pipeline with committed windows.

    Attributes:
        folder: the folder with all files.
        sink: the table.
        ledger: the ledger.
        broker: the cluster.
        grid: the grid of windows.
        metadata: the table's names of metadata columns.
    """

    folder: Path
    sink: DeltaBoth
    ledger: SqlLedger
    broker: FakeTopic = field(default_factory=FakeTopic)
    grid: str = "hourly"
    metadata: Mapping[str, str] = field(default_factory=lambda: DEFAULT)

    @classmethod
    def of(
        cls,
        folder: Path,
        windows: Sequence[int],
        grid: str = "hourly",
        metadata: Mapping[str, str] = DEFAULT,
        sink: Any = None,
    ) -> Scene:
        """Makes a scene with these hours, or micro-batches, committed like a run does.

        The table is a Delta table, unless a sink is given.
        """
        sink = sink or DeltaBoth(str(folder / "orders"), ROWS, metadata)
        ledger = open_ledger(str(folder / "state.db"))
        scene = cls(folder, sink, ledger, grid=grid, metadata=metadata)
        sink.prepare(TableOwner("orders", ledger.identity(), grid))
        ledger.bind_grid("orders", grid)
        for number in windows:
            scene.commit(number)
        return scene

    def commit(self, number: int, generation: int = 0) -> Receipt:
        """Commits the window with the n-th ten offsets."""
        new_window = Window("orders", number, number + 1) if self.grid == BATCH else window(number)
        return self.commit_plan(
            plan_of(self.sink, new_window, (number * PER_WINDOW, (number + 1) * PER_WINDOW)),
            generation,
        )

    def commit_plan(self, planned: Plan, generation: int = 0) -> Receipt:
        """Commits one window with all steps.

        If another boundary is frozen at its start, a rebase comes first.
        """
        try:
            self.ledger.freeze("orders", [planned.start, planned.stop])
        except IdentityError:
            self.ledger.rebase("orders", planned.start)
            self.ledger.freeze("orders", [planned.stop])
        planned = self.ledger.freeze_plans([planned])[0]
        staged = stage(self.sink, planned, generation, f"a{generation}")
        new_receipt = receipt(
            planned,
            staged,
            generation,
            f"a{generation}",
            ledger=self.ledger.identity(),
            grid=self.grid,
        )
        new_receipt = msgspec.structs.replace(
            new_receipt, request=f"request of {planned.window.key}"
        )
        self.sink.commit_dead(planned, new_receipt.attempt, staged)
        done = self.sink.commit(new_receipt, staged)
        self.ledger.record(done.committed.receipt)
        return new_receipt

    def verify(
        self, *, deep: bool = False, sleep: Callable[[float], None] = lambda _: None
    ) -> Verified:
        """Returns the findings of verification; with `deep` it reads all rows back."""
        return verify(
            "orders",
            self.sink,
            self.sink.dead_letters,
            self.ledger,
            self.broker,  # type: ignore[arg-type]
            deep=deep,
            sleep=sleep,
        )

    def lose_ledger(self) -> None:
        """Replaces the ledger by an empty one."""
        (self.folder / "state.db").unlink()
        self.ledger = open_ledger(str(self.folder / "state.db"))
