"""A pipeline on any broker, with a table in memory, for tests of the whole source.

The desk remembers all messages that were sent, and asks the checker for a verdict over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.contracts.logs import Logs, Sent, instant_at
from tests.sinks.with_dead_letters import MemoryBoth
from windrow.ingest.config.load import parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.formats.json.decoder import JsonEncoding
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split, Window
from windrow.ingest.model.receipt import Staged
from windrow.ingest.model.source import Isolation
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.decoder import Decode, Decoded, Decoder
from windrow.ingest.ports.engine import Engine
from windrow.ingest.ports.reader import Reader, ReadPlan
from windrow.ingest.runner.context import Pipeline, Request, Result
from windrow.ingest.runner.micro_batches import run_batch
from windrow.ingest.runner.run_windows import run
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import ModelReference, load_model
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.transform.chain import Chain
from windrow.ingest.transform.validate import Validate

THINGS = Path(__file__).parents[1] / "integration"
HOUR = 3_600_000
FIRST = instant_at(0)
LATER = instant_at(30 * 24 * HOUR)


def hour(n: int) -> Window:
    """Returns the n-th hour after T0."""
    return Window("things", FIRST + timedelta(hours=n), FIRST + timedelta(hours=n + 1))


def minutes(*stamps: float) -> Iterator[int]:
    """Converts minutes after T0 to milliseconds."""
    return (int(m * 60_000) for m in stamps)


class InterruptedRunError(Exception):
    """The error with which `DyingEngine` dies."""


@dataclass
class DyingEngine:
    """An engine that dies once.

    Attributes:
        splits_done: how many splits are staged before it dies.
        died: whether it has died.
    """

    splits_done: int
    died: bool = False

    def start(self) -> None:
        """See `ports.engine.Engine.start`."""

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> list[Staged]:
        """See `ports.engine.Engine.run`."""
        done = []
        for split in splits:
            if len(done) == self.splits_done and not self.died:
                self.died = True
                raise InterruptedRunError
            done.append(task(split))
        return done


@dataclass(frozen=True)
class PlainDecoder:
    """A decoder that takes only the id out of a thing, to read many logs quickly.

    Attributes:
        columns: the columns of the rows.
    """

    columns: Columns

    def open(self) -> Decode:
        """Returns a function that makes every message a row."""
        return self._decoded

    def _decoded(self, messages: pa.RecordBatch) -> Decoded:
        ids = [int(v.split(b":")[1].split(b",")[0]) for v in messages.column("value").to_pylist()]
        rows = pa.RecordBatch.from_arrays(
            [pa.array(ids, pa.int64()), pa.nulls(len(ids), pa.string())],
            schema=self.columns.arrow_schema,
        )
        none = pa.array([], pa.string())
        return Decoded(
            rows, pa.array(range(len(ids)), pa.int64()), pa.array([], pa.int64()), none, none, none
        )


@dataclass
class SourceDesk:
    """A pipeline on one cluster, and the messages that were sent to it.

    Attributes:
        logs: writes to the cluster.
        broker_at: returns a broker of the cluster at an isolation level.
        reader_of: returns a reader of the cluster at an isolation level.
        folder: the folder for the ledger.
        now: the desk's clock.
        engine: the engine that runs tasks.
        ids: ids for new messages.
        sent_ids: the id of each message that must be in the table, by topic-partition and
            offset.
        sink: the table; None until the first pipeline is made.
        plain: True to decode the id only.
    """

    logs: Logs
    broker_at: Callable[[Isolation], Broker]
    reader_of: Callable[[Isolation, ReadPlan], Reader]
    folder: Path
    now: datetime = LATER
    engine: Engine = field(default_factory=LocalEngine)
    ids: Iterator[int] = field(default_factory=count)
    sent_ids: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    sink: MemoryBoth | None = None
    plain: bool = False

    def send(self, tp: TopicPartition, *stamps: int, key: bytes | None = None) -> None:
        """Writes things with these timestamps, in milliseconds after T0."""
        messages = self.things(*stamps, key=key)
        first = self.logs.end(tp)
        self.logs.send(tp, *messages)
        self.note(tp, first, messages)

    def things(self, *stamps: int, key: bytes | None = None) -> list[Sent]:
        """Returns messages with unique ids."""
        return [Sent(b'{"id": %d, "name": null}' % next(self.ids), key, stamp) for stamp in stamps]

    def note(self, tp: TopicPartition, first: int, messages: Sequence[Sent]) -> None:
        """Remembers that these messages must be in the table, from an offset on."""
        ids = {
            first + i: int((m.value or b"").split(b":")[1].split(b",")[0])
            for i, m in enumerate(messages)
        }
        self.sent_ids.setdefault(tp, {}).update(ids)

    def spec(
        self, source: Mapping[str, Any], window: Mapping[str, Any] | None = None, **over: Any
    ) -> PipelineSpec:
        """Returns a spec for a pipeline of things."""
        attributes: dict[str, Any] = {
            "id": "things",
            "source": {"bootstrap_servers": "127.0.0.1:9"} | dict(source),
            "window": {"grid": "hourly", "start": FIRST} if window is None else dict(window),
            "decode": {"schema": "things.py:Thing"},
            "sink": {"path": str(self.folder / "table")},
            "state": str(self.folder / "state.db"),
        }
        return parse_spec(attributes | over, THINGS)

    def pipeline(
        self, source: Mapping[str, Any], window: Mapping[str, Any] | None = None, **over: Any
    ) -> Pipeline:
        """Returns a pipeline; all pipelines of a desk share table and ledger."""
        spec = self.spec(source, window, **over)
        columns = Columns.of(load_model(ModelReference(spec.decode.schema_, spec.folder)))
        if self.sink is None:
            self.sink = MemoryBoth("things", columns.arrow_schema, spec.metadata)
        decoder: Decoder = (
            PlainDecoder(columns)
            if self.plain
            else RowDecoder(ModelReference(spec.decode.schema_, spec.folder), JsonEncoding())
        )
        rules = (
            Chain() if self.plain else Validate(ModelReference(spec.decode.schema_, spec.folder))
        )
        return Pipeline(
            spec=spec,
            columns=lambda: columns,
            decoder=lambda: decoder,
            transform=lambda: rules,
            broker=self.broker_at(spec.source.isolation),
            reader=lambda plan: self.reader_of(spec.source.isolation, plan),
            ledger=open_ledger(spec.state_url()),
            sink=self.sink,
            dead_letters=self.sink.dead_letters,
            engine=self.engine,
            now=lambda: self.now,
            sleep=self._sleep,
        )

    def run(self, pipeline: Pipeline, *hours: int) -> list[Result]:
        """Runs hours, in this order."""
        return [run(pipeline, hour(n), Request(f"r{n}")) for n in hours]

    def batch(self, pipeline: Pipeline, request: str) -> Result | None:
        """Runs the next micro-batch."""
        return run_batch(pipeline, Request(request))

    def verdict(self, without: Mapping[TopicPartition, set[int]] | None = None) -> Report:
        """Returns the checker's verdict over all messages that were sent.

        Args:
            without: offsets that must not be in the table.
        """
        assert self.sink is not None
        left_out = without or {}
        expected = {
            tp: {o: i for o, i in id_by_offset.items() if o not in left_out.get(tp, set())}
            for tp, id_by_offset in self.sent_ids.items()
        }
        receipts = [c.receipt for c in self.sink.receipts()]
        dead = [self.sink.read_dead(r.window) for r in receipts]
        return check(expected, self.sink.pieces(), dead, receipts, "id")

    def _sleep(self, seconds: float) -> None:
        """Moves the desk's clock, which moves only here."""
        self.now += timedelta(seconds=seconds)
