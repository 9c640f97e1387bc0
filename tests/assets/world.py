"""A pipeline in memory under Dagster: no Kafka, no Spark, the ledger in a SQLite file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from assets.factory import kafka_table
from assets.names import job_name
from assets.partitions import Stretch, key_of
from assets.schedule import range_tags
from ingest.decode.json.decoder import JsonDecoder
from ingest.errors import OpenTransactionError
from ingest.ledger.sql import open_ledger
from ingest.model.boundary import TopicPartition
from ingest.model.window import Window
from ingest.ports.engine import Engine
from ingest.ports.reader import Reader, ReadPlan
from ingest.run.pipeline import Pipeline
from ingest.schema.columns import Columns
from ingest.schema.load import load_model
from ingest.spec.load import parse_spec
from ingest.spec.pipeline import PipelineSpec
from ingest.testing.broker import MemoryBroker
from ingest.testing.checker import Report, check
from ingest.testing.engine import LocalEngine
from ingest.testing.reader import MemoryReader
from ingest.transform.validate import Validate
from tests.sinks.beside import MemoryBoth

START = datetime(2026, 1, 5, tzinfo=UTC)
TOPIC = "shop.things"
PARTITIONS = 2


def hour(n: int, minute: int = 0) -> datetime:
    """The n-th hour of the pipeline."""
    return START + timedelta(hours=n, minutes=minute)


class World:
    """The topic, the table, and the clock that both windrow and the test read."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, **over: Any) -> None:
        """`over`: sections of the spec instead of the usual ones."""
        self.instance = instance
        self.now = hour(100)
        self.broker = MemoryBroker()
        self.broker.create_topic(TOPIC, partitions=PARTITIONS)
        self.spec = self.spec_of(folder, **over)
        columns = Columns.of(load_model(self.spec.decode.schema_, self.spec.folder))
        self.columns = columns
        self.sink = MemoryBoth("things", columns.arrow_schema, self.spec.metadata)
        self.sent: dict[TopicPartition, dict[int, object]] = {}
        self.attempts = 0
        self.impatient = False
        self.kept: list[Reader] = []
        self.defs = kafka_table(self.spec, self.assemble)

    @staticmethod
    def spec_of(folder: Path, **over: Any) -> PipelineSpec:
        """The usual spec, with sections of it replaced."""
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

    def assemble(self, spec: PipelineSpec, engine: Engine | None = None) -> Pipeline:
        """What the asset and the check open instead of the real thing."""
        del engine
        self.attempts += 1

        def reader(plan: ReadPlan) -> Reader:
            made = MemoryReader(self.broker, plan)
            self.kept.append(made)
            return made

        decoder = JsonDecoder(spec.decode.schema_, spec.folder, on_null=spec.decode.on_null, unknown=spec.decode.unknown)
        return Pipeline(
            spec=spec, columns=lambda: self.columns, decoder=lambda: decoder,
            transform=lambda: Validate(spec.decode.schema_, spec.folder), broker=self.broker, reader=reader,
            ledger=open_ledger(spec.state_url()), sink=self.sink, dead_letters=self.sink.dead_letters,
            engine=LocalEngine(), now=lambda: self.now, sleep=self.sleep,
        )  # fmt: skip

    def ledger_id(self) -> str:
        """Of the pipeline's ledger."""
        return open_ledger(self.spec.state_url()).identity()

    def sleep(self, seconds: float) -> None:
        """Time passes for the pipeline alone; an impatient world is not one to wait in."""
        if self.impatient:
            raise OpenTransactionError("A transaction is open", "plan", "Come back.")
        self.now += timedelta(seconds=seconds)

    def fill(self, hours: int, first: int = 0, per_hour: int = 60) -> None:
        """`hours` hours from the first on: messages in turn over the partitions, evenly over each hour."""
        for n in range(first, first + hours):
            for i in range(per_hour):
                self.send(n, i * 60 // per_hour, b'{"id": %d}' % (n * per_hour + i), i % PARTITIONS)

    def send(self, n: int, minute: int, value: bytes | None, partition: int = 0, topic: str = TOPIC) -> int:
        """One message."""
        tp = TopicPartition(topic, partition)
        offset = self.broker.produce(tp, value, timestamp=hour(n, minute))
        self.sent.setdefault(tp, {})[offset] = None
        return offset

    def verdict(self) -> Report:
        """The checker's over all that was sent and all that the table says."""
        receipts = [c.receipt for c in self.sink.receipts()]
        dead = [self.sink.read_dead(r.window) for r in receipts]
        return check(self.sent, self.sink.pieces(), dead, receipts, metadata=self.spec.metadata)

    def key(self, n: int) -> str:
        """The n-th partition key."""
        return key_of(self.spec.window, hour(n))

    def minute_of(self, tp: TopicPartition, offset: int) -> int:
        """The minute of the pipeline's time in which a message is stamped."""
        [entry] = self.broker.fetch(tp, offset, offset + 1)[0]
        return (entry.timestamp - int(START.timestamp() * 1000)) // 60_000

    def run(self, first: int, last: int | None = None, **config: Any) -> dg.ExecuteInProcessResult:
        """The hours first..last in one run, both included."""
        return self.run_range(self.key(first), self.key(first if last is None else last), **config)

    def run_range(self, first: str, last: str, **config: Any) -> dg.ExecuteInProcessResult:
        """The windows of these partition keys and all between, in one run."""
        tags = range_tags(Stretch(first, last))
        ops = {"ops": {"things": {"config": config}}} if config else {}
        return self.defs.resolve_job_def(job_name(self.spec)).execute_in_process(
            instance=self.instance, tags=tags, raise_on_error=False, run_config=ops
        )

    def relax(self, **limits: Any) -> None:
        """Other limits from now on."""
        self.spec = self.spec.model_copy(update={"limits": self.spec.limits.model_copy(update=limits)})
        self.defs = kafka_table(self.spec, self.assemble)

    def batches(self, **config: Any) -> dg.ExecuteInProcessResult:
        """One run of a pipeline of micro-batches."""
        job = self.defs.resolve_job_def(job_name(self.spec))
        ops = {"ops": {"things": {"config": config}}} if config else {}
        return job.execute_in_process(instance=self.instance, raise_on_error=False, run_config=ops)

    def shown(self) -> list[dict[str, Any]]:
        """What Dagster shows of the table, the oldest event first: plain values."""
        events = self.instance.fetch_materializations(dg.AssetKey(["things"]), limit=1000).records[::-1]
        held = [r.asset_materialization.metadata for r in events if r.asset_materialization is not None]
        return [{name: value.value for name, value in metadata.items()} for metadata in held]

    def green(self) -> set[str]:
        """The partitions that Dagster shows as materialized."""
        return self.instance.get_materialized_partitions(dg.AssetKey(["things"]))

    def metadata(self, n: int) -> dict[str, Any]:
        """What Dagster shows of the n-th window now."""
        wanted = dg.AssetRecordsFilter(dg.AssetKey(["things"]), asset_partitions=[self.key(n)])
        materialization = self.instance.fetch_materializations(wanted, limit=1).records[0].asset_materialization
        assert materialization is not None
        return dict(materialization.metadata)

    def receipt_of(self, n: int) -> Any:
        """The table's own word on the n-th window."""
        found = self.sink.look(Window("things", hour(n), hour(n + 1)))
        return None if found is None else found.receipt
