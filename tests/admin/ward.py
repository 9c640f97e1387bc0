"""A pipeline with dead letters that can be replayed.

The broker is in memory, the ledger is real, and the table is of any kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.sqlite.world import SqliteBoth, SqliteWorld
from tests.sinks.with_dead_letters import DeltaBoth, MemoryBoth
from windrow.ingest.admin.chosen_dead_letters import Chosen
from windrow.ingest.admin.dead_replay import (
    DeadReplayRequest,
    DeadReplayResult,
    replay_dead_letters,
)
from windrow.ingest.admin.edit_function import Edit, RefusedMessage
from windrow.ingest.admin.verify import Verified, verify
from windrow.ingest.config.load import parse_spec
from windrow.ingest.formats.kinds import make_decoder
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.run_windows import run
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import ModelReference, load_model
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.contracts.with_dead_letters import read_dead
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.testing.reader import MemoryReader
from windrow.ingest.transform.validate import Validate

START = datetime(2026, 1, 5, tzinfo=UTC)
SCHEMA = """\
import pandera.polars as pa
import polars as pl


class Thing(pa.DataFrameModel):
    id: pl.Int64 = pa.Field(ge=0)


class Looser(pa.DataFrameModel):
    id: pl.Int64
"""

Kind = Literal["delta", "memory", "sqlite"]


def hour(n: int) -> Window:
    """Returns the n-th hour."""
    return Window("things", START + timedelta(hours=n), START + timedelta(hours=n + 1))


def repair(message: RefusedMessage) -> RefusedMessage:
    """Replaces a message's value by JSON with an id that depends on its offset."""
    return replace(message, value=b'{"id": %d}' % (1000 + message.offset))


@dataclass
class DeadLetterScene:
    """A pipeline with two topic-partitions.

    A filled hour has rows in each of them, and three dead letters: one is not JSON, one has
    text as id, and one breaks a rule.

    Attributes:
        folder: the folder with all files.
        kind: the kind of table.
        broker: the broker in memory.
        expected_ids: the id of each message's row, by topic-partition and offset.
        sink: the table.
        store: the table's dead letters.
    """

    folder: Path
    kind: Kind
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    expected_ids: dict[TopicPartition, dict[int, object]] = field(default_factory=dict)
    sink: Any = None
    store: Any = None

    def __post_init__(self) -> None:
        (self.folder / "schema.py").write_text(SCHEMA)
        self.broker.create_topic("shop.things", partitions=2, retention_ms=None)
        rows = pa.schema([pa.field("id", pa.int64(), nullable=False)])
        if self.kind == "delta":
            self.sink = DeltaBoth(str(self.folder / "table"), rows)
            self.store = self.sink.dead_letters
        elif self.kind == "memory":
            self.sink = MemoryBoth("things", rows)
            self.store = self.sink.dead_letters
        else:
            self.sink = SqliteBoth(str(self.folder / "table.db"), rows)
            self.store = self.sink.dead_letters

    def produce(self, n: int, *values: bytes | None) -> None:
        """Writes messages of the n-th hour, the same to both topic-partitions."""
        for p in range(2):
            tp = TopicPartition("shop.things", p)
            for i, value in enumerate(values):
                offset = self.broker.produce(
                    tp,
                    value,
                    key=b"k",
                    timestamp=START + timedelta(hours=n, seconds=i),
                    headers=[("h", b"1"), ("h", None)],
                )
                self.expected_ids.setdefault(tp, {})[offset] = self._expected_id(value)

    @staticmethod
    def _expected_id(value: bytes | None) -> object:
        """Returns the id in a message's value, also if it is text; None without an id."""
        digits = (value or b"").removeprefix(b'{"id": ').removesuffix(b"}").strip(b'"')
        return int(digits) if digits.lstrip(b"-").isdigit() else None

    def fill(self, *hours: int) -> None:
        """Writes three good messages and three bad ones for each hour and topic-partition."""
        for n in hours:
            self.produce(
                n,
                b'{"id": 1}',
                b"poison",
                b'{"id": 2}',
                b'{"id": "7"}',
                b'{"id": -5}',
                b'{"id": 3}',
            )

    def pipeline(
        self, *, lenient: bool = False, model: str = "Thing", on_null: str = "dead", **over: Any
    ) -> Pipeline:
        """Returns the pipeline; `lenient` and `model` are ways to fix its schema."""
        decode = {
            "schema": f"schema.py:{model}",
            "on_null": on_null,
            **({"coerce": "lenient"} if lenient else {}),
        }
        spec = parse_spec(
            {
                "id": "things",
                "source": {"bootstrap_servers": "127.0.0.1:9", "topic": "shop.things"},
                "window": {"grid": "hourly", "start": START},
                "decode": decode,
                "limits": {"max_dead_ratio": None},
                "sink": {"path": str(self.folder / "table")},
                "state": str(self.folder / "state.db"),
            },
            self.folder,
        )

        columns = Columns.of(load_model(ModelReference(spec.decode.schema_, spec.folder)))
        new_pipeline = Pipeline(
            spec=spec,
            columns=lambda: columns,
            decoder=lambda: make_decoder(spec.decode, spec.folder),
            transform=lambda: Validate(ModelReference(spec.decode.schema_, spec.folder)),
            broker=self.broker,
            reader=lambda plan: MemoryReader(self.broker, plan),
            ledger=open_ledger(spec.state_url()),
            sink=self.sink,
            dead_letters=self.store,
            engine=LocalEngine(),
            now=lambda: START + timedelta(days=30),
            sleep=lambda _: None,
        )
        return replace(new_pipeline, **over)

    def run(self, *hours: int, **over: Any) -> None:
        """Commits hours."""
        pipeline = self.pipeline(**over)
        for n in hours:
            run(pipeline, hour(n), Request(f"r{n}"))

    def replay_dead_letters(
        self,
        n: int,
        pipeline: Pipeline | None = None,
        edit: Edit | None = None,
        *,
        dry_run: bool = False,
        **chosen: str,
    ) -> DeadReplayResult:
        """Replays an hour's dead letters."""
        return replay_dead_letters(
            pipeline or self.pipeline(),
            hour(n),
            DeadReplayRequest("dead_replay", Chosen(**chosen), edit, dry_run),
        )

    def receipt(self, n: int) -> Receipt:
        """Returns the newest receipt of an hour."""
        return self.sink.look(hour(n)).receipt

    def open(self, n: int) -> list[tuple[int, int, str]]:
        """Returns partition, offset and reason of the open dead letters of an hour."""
        letters = read_dead(self.sink, self.store, hour(n))
        return sorted(
            zip(*(letters[c].to_pylist() for c in ("_partition", "_offset", "reason")), strict=True)
        )

    def ids(self) -> dict[tuple[str, int, int], list[int]]:
        """Returns the ids of the table's rows by window, partition and offset."""
        ids_by_place: dict[tuple[str, int, int], list[int]] = {}
        for piece in self.pieces():
            for row in piece.to_pylist():
                ids_by_place.setdefault(
                    (row["_window"], row["_partition"], row["_offset"]), []
                ).append(row["id"])
        return ids_by_place

    def pieces(self) -> list[pa.Table]:
        """Returns the table's rows in the form of the checker."""
        if self.kind == "delta":
            return delta_pieces(self.sink.uri)
        if self.kind == "sqlite":
            return SqliteWorld().pieces(self.sink)
        return list(self.sink.pieces())

    def expect(self, edit: bool = True) -> None:
        """Expects the row that `repair` makes for each message that is not JSON."""
        for offsets in self.expected_ids.values():
            offsets.update(
                {o: 1000 + o for o, expected_id in offsets.items() if expected_id is None and edit}
            )

    def verdict(self) -> Report:
        """Returns the checker's report: each message must be a row or an open dead letter, once."""
        receipts = [c.receipt for c in self.sink.receipts()]
        return check(
            self.expected_ids,
            self.pieces(),
            [read_dead(self.sink, self.store, r.window) for r in receipts],
            receipts,
            content="id",
        )

    def verified(self) -> Verified:
        """Returns the result of `windrow verify --deep`."""
        pipeline = self.pipeline()
        return verify("things", self.sink, self.store, pipeline.ledger, pipeline.broker, deep=True)

    def sound(self) -> None:
        """Asserts that neither the checker nor verification finds anything wrong."""
        assert self.verdict().ok, str(self.verdict())
        assert [f for f in self.verified().findings if f.level == "wrong"] == []
