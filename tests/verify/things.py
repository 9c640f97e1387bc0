"""A committed table with its ledger and topic, for verification and rebuilding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ingest.errors import UnreachableError
from ingest.ledger.sql import SqlLedger, open_ledger
from ingest.model import Receipt, TopicPartition
from ingest.ports import TopicInfo
from ingest.tablerows import delta_rows
from ingest.verify import Verified, verify
from ingest.write.delta import DeltaSink
from tests.write.things import PARTITIONS, ROWS, TOPIC, plan, receipt, stage


@dataclass
class FakeTopic:
    """Answers what verification asks a cluster."""

    cluster: str = "cluster"
    topic_id: str = TOPIC.topic_id
    start: int = 0
    down: bool = False
    asked: list[TopicPartition] = field(default_factory=list)

    def cluster_id(self) -> str:
        return self.cluster

    def topic(self, name: str) -> TopicInfo:
        if self.down:
            raise UnreachableError("the cluster does not answer", "plan", "Start it.")
        return TopicInfo(name, self.topic_id, PARTITIONS, compacted=False, retention_ms=None)

    def log_starts(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked += tps
        return dict.fromkeys(tps, self.start)


@dataclass
class Scene:
    """A pipeline whose windows were committed."""

    folder: Path
    sink: DeltaSink
    ledger: SqlLedger
    broker: FakeTopic = field(default_factory=FakeTopic)

    @classmethod
    def of(cls, folder: Path, windows: Sequence[int]) -> Scene:
        """With these hours committed as a run would."""
        sink, ledger = DeltaSink(str(folder / "orders"), ROWS), open_ledger(str(folder / "state.db"))
        scene = cls(folder, sink, ledger)
        sink.prepare(ledger.identity(), "orders", "hourly")
        ledger.bind_grid("orders", "hourly")
        for number in windows:
            scene.commit(number)
        return scene

    def commit(self, number: int, generation: int = 0) -> Receipt:
        """One window, all steps."""
        planned = plan(self.sink, number)
        self.ledger.freeze("orders", [planned.start, planned.stop])
        planned = self.ledger.freeze_plan(planned)
        staged = stage(self.sink, planned, generation, f"a{generation}")
        made = receipt(planned, staged, generation, f"a{generation}", ledger=self.ledger.identity())
        self.sink.commit_dead(planned, made.attempt, staged)
        self.sink.commit(made, staged)
        self.ledger.record(made)
        return made

    def verify(self) -> Verified:
        """What verification finds now."""
        return verify("orders", self.sink, self.ledger, self.broker, delta_rows(self.sink.uri))  # type: ignore[arg-type]

    def lose_ledger(self) -> None:
        """The state file is gone; an empty one is in its place."""
        (self.folder / "state.db").unlink()
        self.ledger = open_ledger(str(self.folder / "state.db"))
