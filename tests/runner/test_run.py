"""Runs of windows on an in-memory Kafka, a real Delta table and a real ledger, without services."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.with_dead_letters import DeltaSink
from windrow.ingest.admin.rebind import rebind
from windrow.ingest.admin.rebuild import rebuild
from windrow.ingest.admin.verify_contents import sum_by_split
from windrow.ingest.config.load import parse_spec
from windrow.ingest.errors import GridError, IdentityError, SchemaChangedError
from windrow.ingest.formats.json.decoder import JsonEncoding
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import RECEIPT_VERSION, Checksums
from windrow.ingest.ports.reader import Reader, ReadPlan
from windrow.ingest.runner.context import Pipeline, Request, Result
from windrow.ingest.runner.run_windows import preview, run
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import ModelReference, load_model
from windrow.ingest.sinks.kind import delta_dead_letters
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.testing.reader import MemoryReader
from windrow.ingest.transform.validate import Validate

THINGS = Path(__file__).parent.parent / "integration"
START = datetime(2026, 1, 5, tzinfo=UTC)
PLAIN = Request("plain")


def hour(n: int, hours: int = 1) -> Window:
    """Returns a window that begins at the n-th hour."""
    return Window("things", START + timedelta(hours=n), START + timedelta(hours=n + hours))


@dataclass
class Desk:
    """Two topics with three hours of messages, and a pipeline on one of them with changeable
    settings.
    """

    folder: Path
    broker: MemoryBroker = field(default_factory=MemoryBroker)

    def __post_init__(self) -> None:
        """Produces ten messages an hour to each of two topics."""
        for topic in ("shop.things", "shop.others"):
            self.broker.create_topic(topic, partitions=1)
            for i in range(30):
                self.broker.produce(
                    TopicPartition(topic, 0),
                    b'{"id": %d, "name": null}' % i,
                    timestamp=START + timedelta(minutes=6 * i),
                )

    def pipeline(self, schema: str = "Thing", **over: Any) -> Pipeline:
        """Returns the pipeline with a schema of things.py, and with changed sections of the
        spec.
        """
        attributes: dict[str, Any] = {
            "id": "things",
            "source": {"bootstrap_servers": "127.0.0.1:9", "topic": "shop.things"},
            "window": {"grid": "hourly", "start": START},
            "decode": {"schema": f"things.py:{schema}"},
            "sink": {"path": str(self.folder / "table")},
            "state": str(self.folder / "state.db"),
        }
        spec = parse_spec(attributes | over, THINGS)
        columns = Columns.of(load_model(ModelReference(spec.decode.schema_, spec.folder)))

        def reader(plan: ReadPlan) -> Reader:
            return MemoryReader(self.broker, plan)

        return Pipeline(
            spec=spec,
            columns=lambda: columns,
            decoder=lambda: RowDecoder(
                ModelReference(spec.decode.schema_, spec.folder), JsonEncoding()
            ),
            transform=lambda: Validate(ModelReference(spec.decode.schema_, spec.folder)),
            broker=self.broker,
            reader=reader,
            ledger=open_ledger(spec.state_url()),
            sink=DeltaSink(spec.sink_path(), columns.arrow_schema),
            dead_letters=delta_dead_letters(spec.sink_path()),
            engine=LocalEngine(),
        )

    def run(self, n: int, request: Request = PLAIN, schema: str = "Thing", **over: Any) -> Result:
        """Runs the n-th hour."""
        return run(self.pipeline(schema, **over), hour(n), request)

    def produce(self, count: int) -> None:
        """Produces more things after the three hours."""
        for i in range(count):
            self.broker.produce(
                TopicPartition("shop.things", 0),
                b'{"id": %d, "name": null}' % i,
                timestamp=START + timedelta(hours=4),
            )

    def version(self) -> int:
        """Returns the table's Delta version."""
        return DeltaTable(str(self.folder / "table")).version()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk on which nothing has run."""
    return Desk(tmp_path)


def test_a_replay_of_an_uncommitted_window_is_safe_to_retry(desk: Desk) -> None:
    """A replay of a window that isn't committed commits generation 0, and its retry reports it
    instead of replacing it.
    """
    replay = Request("r1", replace=True)
    assert [
        (r.committed.receipt.generation, r.recovered)
        for r in (desk.run(1, replay), desk.run(1, replay))
    ] == [(0, False), (0, True)]


def test_what_begins_to_be_read_is_told_once(desk: Desk) -> None:
    """A window that begins to be read gives one note, also a window without splits."""
    for number, splits in ((1, "1 split"), (3, "0 splits")):
        notes: list[str] = []
        run(
            desk.pipeline(),
            hour(number),
            PLAIN,
            lambda update, notes=notes: notes.extend(update.notes),
        )  # type: ignore[misc]
        assert notes == [f"Reading window {hour(number).key}: {splits}"]


def test_a_replay_is_known_after_the_ledger_was_lost(desk: Desk) -> None:
    """After the ledger was lost, a retry of a replay replaces nothing, because the receipt has
    the request's id.
    """
    desk.run(1)
    replay = Request("r1", replace=True)
    assert desk.run(1, replay).committed.receipt.generation == 1
    (desk.folder / "state.db").unlink()
    pipeline = desk.pipeline()
    rebuild("things", pipeline.sink, pipeline.ledger)
    second_result = desk.run(1, replay)
    assert (second_result.committed.receipt.generation, second_result.recovered) == (1, True)


def test_a_receipt_says_its_form_and_what_it_summed_up(desk: Desk) -> None:
    """A receipt has the current version of its form, and each split the checksums of the
    table's rows.
    """
    receipt = desk.run(1).committed.receipt
    (rows,) = delta_pieces(str(desk.folder / "table"))
    sums = sum_by_split(receipt.splits, rows.to_batches(), DEFAULT)
    assert receipt.version == RECEIPT_VERSION
    assert [s.checksums for s in receipt.splits] == [
        Checksums(rows=checksum) for checksum in sums.checksums
    ]


@pytest.mark.parametrize("schema", ["Wider", "Other"])
def test_reporting_asks_nothing_of_the_schema_and_writes_nothing(desk: Desk, schema: str) -> None:
    """A committed window is reported whatever the current schema is, and the table doesn't
    change.
    """
    desk.run(1)
    version_before = desk.version()
    assert desk.run(1, schema=schema).recovered
    assert desk.version() == version_before


def test_the_engine_starts_while_a_window_is_planned(desk: Desk) -> None:
    """The engine starts once the table lacks the window, before the plan is frozen; not for a
    committed window.
    """
    pipeline, planned = desk.pipeline(), list[bool]()

    class Starts(LocalEngine):
        def start(self) -> None:
            planned.append(pipeline.ledger.plan(hour(1)) is not None)

    begun = replace(pipeline, engine=Starts())
    assert [run(begun, hour(1), PLAIN).recovered for _ in range(2)] == [False, True]
    assert planned == [False]


def test_a_schema_that_lost_a_column_is_refused_before_anything_is_read(desk: Desk) -> None:
    """A lost column refuses a window that isn't committed, before it is planned."""
    desk.run(1)
    with pytest.raises(SchemaChangedError, match="name"):
        desk.run(2, schema="Other")
    assert desk.pipeline().ledger.plan(hour(2)) is None


def test_windows_beside_the_grid_are_refused(desk: Desk) -> None:
    """A window that is too long, or doesn't start on the grid, can't run or be planned."""
    half_past = Window("things", START + timedelta(minutes=30), START + timedelta(minutes=90))
    for window in (hour(1, hours=2), half_past):
        for refused in (
            lambda w=window: run(desk.pipeline(), w, PLAIN),
            lambda w=window: preview(desk.pipeline(), w),
        ):
            with pytest.raises(GridError):
                refused()


def test_a_changed_grid_is_refused_with_any_table(desk: Desk) -> None:
    """A changed grid is refused by the table, and by the ledger if the table was replaced."""
    desk.run(1)
    daily = {"grid": "daily", "start": START}
    for refused in (run, lambda p, w, _: preview(p, w)):
        with pytest.raises(GridError, match="hourly"):
            refused(desk.pipeline(window=daily), hour(0, hours=24), PLAIN)
    rebind(desk.pipeline(sink={"path": str(desk.folder / "new")}))
    with pytest.raises(GridError, match="hourly"):
        run(
            desk.pipeline(window=daily, sink={"path": str(desk.folder / "new")}),
            hour(0, hours=24),
            PLAIN,
        )


@pytest.mark.parametrize(
    "over",
    [
        {"sink": {"path": "elsewhere"}},
        {"source": {"bootstrap_servers": "127.0.0.1:9", "topic": "shop.others"}},
    ],
)
def test_a_frozen_plan_binds_topic_and_table(desk: Desk, over: dict[str, Any]) -> None:
    """A frozen plan can't be run on another topic or into another table."""
    pipeline = desk.pipeline()
    pipeline.ledger.bind_sink(pipeline.spec.id, pipeline.sink.identity)
    pipeline.ledger.freeze_plans([preview(pipeline, hour(1))])
    over = {
        k: {n: str(desk.folder / v) if n == "path" else v for n, v in section.items()}
        for k, section in over.items()
    }
    with pytest.raises(IdentityError, match=r"was planned for|writes to"):
        desk.run(1, **over)
    assert desk.run(1).committed.receipt.counts.valid == 10


def test_a_lost_ledger_takes_a_windows_start_from_the_window_after_it(desk: Desk) -> None:
    """With the ledger lost, a window's end comes from the start of the committed window after
    it, so that both tile.
    """
    later = desk.run(1).committed.receipt
    (desk.folder / "state.db").unlink()
    pipeline = desk.pipeline()
    pipeline.ledger.adopt_identity(later.ledger)
    earlier = desk.run(0).committed.receipt
    assert earlier.plan.stop == later.plan.start
    assert [r.counts.read for r in (earlier, later)] == [10, 10]
