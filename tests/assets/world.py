"""A pipeline in memory under Dagster, without Kafka and Spark; the ledger is a SQLite file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from tests.sinks.with_dead_letters import MemoryBoth
from windrow.assets.dagster_internals import range_tags
from windrow.assets.dependencies import Clock
from windrow.assets.factory import kafka_table
from windrow.assets.names import job_name, kafka_key, ledger_key, sink_key, spark_key
from windrow.assets.partitions import key_of
from windrow.ingest.assemble import Connection
from windrow.ingest.config.load import parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import in_time
from windrow.ingest.errors import OpenTransactionError
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import TopicPartition, label_text
from windrow.ingest.model.plan import Split, Window
from windrow.ingest.model.source import Isolation
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.reader import Reader, ReadPlan, ReadSummary, Take
from windrow.ingest.ports.sink import Sink
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import ModelReference, load_model
from windrow.ingest.sinks.kind import Rows
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.testing.reader import MemoryReader
from windrow.resources.kafka import KafkaSource
from windrow.resources.table import LedgerState

START = datetime(2026, 1, 5, tzinfo=UTC)
TOPIC = "shop.things"
PARTITIONS = 2


def hour(n: int, minute: int = 0) -> datetime:
    """Returns the start of the pipeline's n-th hour, plus some minutes."""
    return START + timedelta(hours=n, minutes=minute)


def of_table(result: dg.ExecuteInProcessResult) -> list[dg.DagsterEvent]:
    """Returns a run's materializations of the table, without those of its dead letters."""
    events = result.get_asset_materialization_events()
    return [event for event in events if event.asset_key == dg.AssetKey(["things"])]


def ranges(offsets: dg.TableMetadataValue) -> dict[str, dict[str, list[int]]]:
    """Returns the offsets of an event as `{topic: {partition: [start, stop]}}`."""
    ranges_by_topic: dict[str, dict[str, list[int]]] = {}
    for line in (record.data for record in offsets.records):
        ranges_by_topic.setdefault(str(line["topic"]), {})[str(line["partition"])] = [
            int(str(line[name])) for name in ("start", "stop")
        ]
    return ranges_by_topic


class NotingReader(MemoryReader):
    """A reader that remembers its splits."""

    def __init__(self, broker: MemoryBroker, plan: ReadPlan) -> None:
        super().__init__(broker, plan)
        self.splits: list[Split] = []

    def read(self, split: Split, take: Take) -> ReadSummary:
        """See `ports.reader.Reader.read`."""
        self.splits.append(split)
        return super().read(split, take)


class MemorySource:
    """A KafkaSource on the broker in memory."""

    reading = KafkaSource.reading
    enumerate_splits = KafkaSource.enumerate_splits
    snapshot_offsets = KafkaSource.snapshot_offsets

    def __init__(self, world: World) -> None:
        self.world = world

    def connect(self, isolation: Isolation) -> Connection:
        """Returns the broker, and a function that makes readers.

        The world keeps the readers alive, because a task finds its reader by name.
        """
        self.world.connections += 1
        broker = self.world.broker.with_isolation(isolation)

        def reader(plan: ReadPlan) -> Reader:
            noting_reader = NotingReader(broker, plan)
            self.world.readers.append(noting_reader)
            return noting_reader

        return broker, reader


class MemoryTable:
    """A Table in memory: the world's, or `instead` if it is set."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.instead: MemoryBoth | None = None

    def open(self, rows: Rows, metadata: Mapping[str, str]) -> tuple[Sink, DeadLetters]:
        """Returns the world's table, which has the same columns."""
        del rows, metadata
        both = self.instead or self.world.sink
        return both, both.dead_letters


class LocalTasks:
    """An engine that runs tasks in this process."""

    def engine(self) -> LocalEngine:
        """Returns a new engine."""
        return LocalEngine()


class World:
    """A pipeline with its topic, its table, and a clock that the test can set."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, **over: Any) -> None:
        """Makes the pipeline; `over` replaces sections of the usual spec."""
        self.instance = instance
        self.now = hour(100)
        self.broker = MemoryBroker()
        self.broker.create_topic(TOPIC, partitions=PARTITIONS)
        self.spec = self.spec_of(folder, **over)
        columns = Columns.of(load_model(ModelReference(self.spec.decode.schema_, self.spec.folder)))
        self.columns = columns.with_rest() if self.spec.decode.keeps_unknown else columns
        self.sink = MemoryBoth("things", self.columns.arrow_schema, self.spec.metadata)
        self.sent_offsets: dict[TopicPartition, dict[int, object]] = {}
        self.connections = 0
        self.impatient = False
        self.readers: list[NotingReader] = []
        self.tasks = LocalTasks()
        self.load()

    @staticmethod
    def spec_of(folder: Path, **over: Any) -> PipelineSpec:
        """Returns the usual spec, with some sections replaced."""
        return parse_spec(
            {
                "id": "things",
                "source": {"bootstrap_servers": "127.0.0.1:9", "topic": TOPIC},
                "window": {"grid": "hourly", "start": START, "delay": "5m"},
                "decode": {"schema": "things.py:Thing"},
                "limits": {"max_dead_ratio": 0.5},
                "sink": {"path": str(folder / "table")},
                "state": str(folder / "state.db"),
                **over,
            },
            Path(__file__).parent,
        )

    def load(self) -> None:
        """Makes the definitions of the current spec, with resources in memory.

        The ledger is the spec's own.
        """
        resources = {
            kafka_key(self.spec): MemorySource(self),
            sink_key(self.spec): MemoryTable(self),
            spark_key(self.spec): self.tasks,
        }
        self.defs = kafka_table(self.spec, resources, Clock(lambda: self.now, self.sleep))

    def topic_resources(self, source: type[MemorySource]) -> dict[str, object]:
        """Returns the resources of the topics' assets."""
        ledger = LedgerState(url=self.spec.state_url())
        return {kafka_key(self.spec): source(self), ledger_key(self.spec): ledger}

    def ledger_id(self) -> str:
        """Returns the id of the pipeline's ledger."""
        return open_ledger(self.spec.state_url()).identity()

    def sleep(self, seconds: float) -> None:
        """Moves the pipeline's clock; an impatient world raises OpenTransactionError instead."""
        if self.impatient:
            raise OpenTransactionError("A transaction is open", "plan", "Come back.")
        self.now += timedelta(seconds=seconds)

    def fill(self, hours: int, first: int = 0, per_hour: int = 60) -> None:
        """Writes messages for some hours, evenly over each hour and the partitions."""
        for n in range(first, first + hours):
            for i in range(per_hour):
                self.send(n, i * 60 // per_hour, b'{"id": %d}' % (n * per_hour + i), i % PARTITIONS)

    def send(
        self, n: int, minute: int, value: bytes | None, partition: int = 0, topic: str = TOPIC
    ) -> int:
        """Writes one message, and returns its offset."""
        tp = TopicPartition(topic, partition)
        offset = self.broker.produce(tp, value, timestamp=hour(n, minute))
        self.sent_offsets.setdefault(tp, {})[offset] = None
        return offset

    def verdict(self) -> Report:
        """Returns the checker's report over all messages that were sent."""
        receipts = [c.receipt for c in self.sink.receipts()]
        dead = [self.sink.read_dead(r.window) for r in receipts]
        return check(
            self.sent_offsets, self.sink.pieces(), dead, receipts, metadata=self.spec.metadata
        )

    def key(self, n: int) -> str:
        """Returns the n-th partition key."""
        window = self.spec.window
        return label_text(n) if window.is_batch else key_of(in_time(window), hour(n))

    def minute_of(self, tp: TopicPartition, offset: int) -> int:
        """Returns a message's timestamp, in minutes after the pipeline's start."""
        [entry] = self.broker.fetch(tp, offset, offset + 1)[0]
        return (entry.timestamp - int(START.timestamp() * 1000)) // 60_000

    def run(self, first: int, last: int | None = None, **config: Any) -> dg.ExecuteInProcessResult:
        """Runs the hours or micro-batches from `first` to `last`, both included."""
        return self.run_range(self.key(first), self.key(first if last is None else last), **config)

    def run_range(self, first: str, last: str, **config: Any) -> dg.ExecuteInProcessResult:
        """Runs the windows from one partition key to another, in one run."""
        tags = range_tags(dg.PartitionKeyRange(first, last))
        ops = {"ops": {"things": {"config": config}}} if config else {}
        return self.defs.resolve_job_def(job_name(self.spec)).execute_in_process(
            instance=self.instance, tags=tags, raise_on_error=False, run_config=ops
        )

    def relax(self, **limits: Any) -> None:
        """Changes the limits of the spec."""
        self.spec = self.spec.model_copy(
            update={"limits": self.spec.limits.model_copy(update=limits)}
        )
        self.load()

    def set_retries(self, times: int, wait: float = 0) -> None:
        """Changes the number of retries, and the seconds between them."""
        block = {"retries": times, "retry_wait": timedelta(seconds=wait)}
        dagster = self.spec.dagster.model_copy(update=block)
        self.spec = self.spec.model_copy(update={"dagster": dagster})
        self.load()

    def run_batches(self, **config: Any) -> dg.ExecuteInProcessResult:
        """Runs a pipeline of micro-batches without a partition."""
        job = self.defs.resolve_job_def(job_name(self.spec))
        ops = {"ops": {"things": {"config": config}}} if config else {}
        return job.execute_in_process(instance=self.instance, raise_on_error=False, run_config=ops)

    def plain_events(self) -> list[dict[str, Any]]:
        """Returns the metadata of the table's events as plain values, the oldest event first."""
        events = self.instance.fetch_materializations(dg.AssetKey(["things"]), limit=1000).records[
            ::-1
        ]
        metadata_of_events = [
            r.asset_materialization.metadata for r in events if r.asset_materialization is not None
        ]
        return [
            {name: value.value for name, value in metadata.items()}
            for metadata in metadata_of_events
        ]

    def green_keys(self) -> set[str]:
        """Returns the partitions that Dagster shows as materialized."""
        return self.instance.get_materialized_partitions(dg.AssetKey(["things"]))

    def metadata(self, n: int) -> dict[str, Any]:
        """Returns the metadata of the n-th window's newest event."""
        records_filter = dg.AssetRecordsFilter(
            dg.AssetKey(["things"]), asset_partitions=[self.key(n)]
        )
        materialization = (
            self.instance.fetch_materializations(records_filter, limit=1)
            .records[0]
            .asset_materialization
        )
        assert materialization is not None
        return dict(materialization.metadata)

    def receipt_of(self, n: int) -> Any:
        """Returns the receipt of the n-th hour in the table; None without one."""
        committed = self.sink.look(Window("things", hour(n), hour(n + 1)))
        return None if committed is None else committed.receipt
