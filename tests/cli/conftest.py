"""The command on a pipeline without services.

Kafka is in memory, and tasks run in this process. Ledger and Delta table are real.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.command import CommandResult, run_command
from windrow.ingest import assemble as assembly
from windrow.ingest.assemble import assemble, assemble_to_look
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.model.boundary import TopicPartition, instant
from windrow.ingest.ports.engine import Engine
from windrow.ingest.ports.reader import Reader, ReadPlan
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.dead_topic import MemoryDeadTopic
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.testing.reader import MemoryReader

START = datetime(2026, 1, 5, tzinfo=UTC)
SPEC = """\
id: things
source: {bootstrap_servers: "127.0.0.1:1", SOURCE}
window: {WINDOW}
decode: {schema: "schema.py:Thing"}
limits: {max_dead_ratio: 0.6}
sink: {path: lake/things}
"""
TOPIC = "topic: shop.things"
HOURLY = "grid: hourly, start: 2026-01-05T00:00:00Z"
SCHEMA = """\
import pandera.polars as pa
import polars as pl


class Thing(pa.DataFrameModel):
    id: pl.Int64
"""


@dataclass
class Stage:
    """A spec in a folder, its topic in memory, and the command.

    Attributes:
        folder: the folder with the spec, the ledger and the table.
        broker: the broker in memory.
        now: the time for all commands.
        dead_topic: the topic for dead letters.
    """

    folder: Path
    broker: MemoryBroker
    now: datetime = START + timedelta(days=1)
    dead_topic: MemoryDeadTopic = field(default_factory=lambda: MemoryDeadTopic("things.dead"))

    @property
    def spec(self) -> str:
        """The path of the spec."""
        return str(self.folder / "things.yaml")

    def write(self, source: str = TOPIC, window: str = HOURLY) -> None:
        """Writes the spec, with these settings of its source and its windows."""
        Path(self.spec).write_text(SPEC.replace("SOURCE", source).replace("WINDOW", window))

    def sink(self, section: str) -> None:
        """Replaces the spec's section `sink`."""
        spec = Path(self.spec)
        lines = [line for line in spec.read_text().splitlines() if not line.startswith("sink:")]
        spec.write_text("\n".join([*lines, f"sink: {section}", ""]))

    def produce(self, hour: int, *values: bytes | None) -> None:
        """Writes messages one second apart, alternating between two topic-partitions."""
        for i, value in enumerate(values):
            timestamp = START + timedelta(hours=hour, seconds=i)
            self.broker.produce(
                TopicPartition("shop.things", i % 2), value, key=b"secret-key", timestamp=timestamp
            )

    def assemble(self, spec: PipelineSpec, engine: Engine | None = None) -> Pipeline:
        """Makes the real pipeline, but with Kafka and Spark replaced."""
        return self._in_memory(assemble(spec, engine or LocalEngine()))

    def assemble_to_look(self, spec: PipelineSpec, engine: Engine | None = None) -> Pipeline:
        """Makes the pipeline like `assembly.assemble_to_look`, but with Kafka and Spark
        replaced.
        """
        return self._in_memory(assemble_to_look(spec, engine or LocalEngine()))

    def _in_memory(self, pipeline: Pipeline) -> Pipeline:
        broker, reader = self.connect(pipeline.spec)
        topic = None if pipeline.dead_topic is None else self.dead_topic
        return replace(
            pipeline,
            broker=broker,
            reader=reader,
            dead_topic=topic,
            now=lambda: self.now,
            sleep=self.sleep,
        )

    def connect(self, spec: PipelineSpec) -> tuple[MemoryBroker, Callable[[ReadPlan], Reader]]:
        """Returns the cluster in memory at the spec's isolation level, and its readers."""
        broker = self.broker.with_isolation(spec.source.isolation)
        return broker, lambda plan: MemoryReader(broker, plan)

    def sleep(self, seconds: float) -> None:
        """Moves the clock."""
        self.now += timedelta(seconds=seconds)

    def call(self, *arguments: str) -> CommandResult:
        """Runs the command in this process."""
        return run_command(*arguments)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Runs the command with `--json`, and returns its JSON document."""
        result = self.call(*arguments, "--json")
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)


def hour(n: int) -> str:
    """Returns the n-th hour, as an argument of `--window`."""
    return instant(START + timedelta(hours=n))


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A pipeline whose topic has two hours with five messages, an idle third, and a fourth.

    One message of each of the first two hours is not JSON.
    """
    for name in ("DAGSTER_HOME", "WINDROW_STATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.py").write_text(SCHEMA)
    broker = MemoryBroker()
    broker.create_topic("shop.things", partitions=2, retention_ms=None)
    new_stage = Stage(tmp_path, broker)
    new_stage.write()
    new_stage.produce(0, *(b'{"id": %d}' % i for i in range(4)), b"secret-poison")
    new_stage.produce(1, *(b'{"id": %d}' % i for i in range(4)), b"secret-poison")
    new_stage.produce(3, b'{"id": 9}', b'{"id": 9}')
    for name in ("assemble", "assemble_to_look", "connect"):
        monkeypatch.setattr(assembly, name, getattr(new_stage, name))
    return new_stage
