"""A pipeline on some broker, with a table in memory, and the checker's verdict over all
that was sent: for whole-source cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.contracts.logs import Logs, Sent, at
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
FIRST = at(0)
LATER = at(30 * 24 * HOUR)


def hour(n: int) -> Window:
    """The n-th hour after T0."""
    return Window("things", FIRST + timedelta(hours=n), FIRST + timedelta(hours=n + 1))


def minutes(*stamps: float) -> Iterator[int]:
    """Minutes after T0 as milliseconds."""
    return (int(m * 60_000) for m in stamps)


class InterruptedRunError(Exception):
    """The engine was told to die here."""


@dataclass
class DyingEngine:
    """Dies after so many splits were staged, once."""

    after: int
    died: bool = False

    def start(self) -> None:
        """See `ports.engine.Engine.start`."""

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> list[Staged]:
        """See `ports.engine.Engine.run`."""
        done = []
        for split in splits:
            if len(done) == self.after and not self.died:
                self.died = True
                raise InterruptedRunError
            done.append(task(split))
        return done


@dataclass(frozen=True)
class PlainDecoder:
    """Takes the id out of a thing, and nothing else: where many logs are read, decoding
    is not what is looked at.
    """

    columns: Columns

    def open(self) -> Decode:
        """Every message is a row."""
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
    """`broker_at` and `reader_of` give a broker and readers of one cluster at an
    isolation level; `logs` writes to it.

    `plain`: decode no more than is needed to tell the messages apart.
    """

    logs: Logs
    broker_at: Callable[[Isolation], Broker]
    reader_of: Callable[[Isolation, ReadPlan], Reader]
    folder: Path
    now: datetime = LATER
    engine: Engine = field(default_factory=LocalEngine)
    ids: Iterator[int] = field(default_factory=count)
    sent: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    sink: MemoryBoth | None = None
    plain: bool = False

    def send(self, tp: TopicPartition, *stamps: int, key: bytes | None = None) -> None:
        """Things with these timestamps (milliseconds after T0)."""
        messages = self.things(*stamps, key=key)
        first = self.logs.end(tp)
        self.logs.send(tp, *messages)
        self.note(tp, first, messages)

    def things(self, *stamps: int, key: bytes | None = None) -> list[Sent]:
        """Messages with ids of their own."""
        return [Sent(b'{"id": %d, "name": null}' % next(self.ids), key, stamp) for stamp in stamps]

    def note(self, tp: TopicPartition, first: int, messages: Sequence[Sent]) -> None:
        """These must be seen, from an offset on."""
        ids = {
            first + i: int((m.value or b"").split(b":")[1].split(b",")[0])
            for i, m in enumerate(messages)
        }
        self.sent.setdefault(tp, {}).update(ids)

    def spec(
        self, source: Mapping[str, Any], window: Mapping[str, Any] | None = None, **over: Any
    ) -> PipelineSpec:
        """A spec for things."""
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
        """The pipeline; all of one desk share table and ledger."""
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
        """Run hours, in this order."""
        return [run(pipeline, hour(n), Request(f"r{n}")) for n in hours]

    def batch(self, pipeline: Pipeline, request: str) -> Result | None:
        """Run the next micro-batch."""
        return run_batch(pipeline, Request(request))

    def verdict(self, without: Mapping[TopicPartition, set[int]] | None = None) -> Report:
        """The checker's, over all that was sent and must be in the table; `without` are
        offsets that must not be.
        """
        assert self.sink is not None
        left_out = without or {}
        expected = {
            tp: {o: i for o, i in id_by_offset.items() if o not in left_out.get(tp, set())}
            for tp, id_by_offset in self.sent.items()
        }
        receipts = [c.receipt for c in self.sink.receipts()]
        dead = [self.sink.read_dead(r.window) for r in receipts]
        return check(expected, self.sink.pieces(), dead, receipts, "id")

    def _sleep(self, seconds: float) -> None:
        """Time passes only here."""
        self.now += timedelta(seconds=seconds)
