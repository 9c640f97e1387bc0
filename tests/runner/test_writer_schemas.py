"""Writers' schemas in a run: an id means one schema, despite deaths and changes of the registry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.formats.avro.wire import text, varint
from tests.formats.confluent.registries import framed
from tests.registry.server import Fault, RegistryServer
from windrow.ingest.admin.dead_replay import DeadReplayRequest, replay_dead_letters
from windrow.ingest.admin.verify import verify
from windrow.ingest.assemble import assemble
from windrow.ingest.config.load import parse_spec
from windrow.ingest.crashpoints import CRASH_POINTS, CrashError, CrashPoint
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Window
from windrow.ingest.model.writer_schema import MOST_CHARACTERS, WriterSchema
from windrow.ingest.registry.client import client_of
from windrow.ingest.runner.context import Pipeline, Request, Result
from windrow.ingest.runner.run_windows import run, run_windows
from windrow.ingest.runner.writer_schemas import decoder_for
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.testing.reader import MemoryReader

START = datetime(2026, 1, 5, tzinfo=UTC)
TP = TopicPartition("things", 0)
MODEL = """\
import pandera.polars as pa
import polars as pl


class Thing(pa.DataFrameModel):
    id: pl.Int64
    name: pl.String = pa.Field(nullable=True)
"""


def record(*fields: tuple[str, str]) -> str:
    """Returns the schema of a record."""
    return json.dumps(
        {
            "type": "record",
            "name": "Thing",
            "fields": [{"name": name, "type": kind} for name, kind in fields],
        }
    )


FIRST, SECOND, THIRD = (
    record(("id", "long")),
    record(("id", "int"), ("name", "string")),
    record(("name", "string"), ("id", "long")),
)


def hour(n: int) -> Window:
    return Window("things", START + timedelta(hours=n), START + timedelta(hours=n + 1))


def test_tasks_get_as_many_schemas_as_are_small_enough() -> None:
    """The schemas that are sent with every task are limited in their total size.

    Small ones beside a large one are sent.
    """
    half = MOST_CHARACTERS // 2
    sizes = {"1": half, "2": half + 1, "3": half - 10, "4": 5}
    schemas_known = [WriterSchema(name, "AVRO", "x" * size) for name, size in sizes.items()]
    given_ids = list[str]()

    class Prepared:
        schemas: Sequence[WriterSchema] = ()

        def asking(self, _: Any) -> Any: ...
        def schema_ids(self, *_: Any) -> Any: ...
        def open_reporting(self, _: Any) -> Any: ...

        @property
        def decoder(self) -> Any:
            return self

        def prepared(self, _: Sequence[str]) -> Any:
            return self

        def with_schemas(self, schemas: Sequence[WriterSchema]) -> Any:
            given_ids.extend(schema.id for schema in schemas)
            return self

    pipeline: Any = SimpleNamespace(
        decoder=Prepared,
        ledger=SimpleNamespace(schemas=lambda _: schemas_known),
        spec=SimpleNamespace(id="things"),
    )
    decoder_for(pipeline, ["t"])
    assert given_ids == ["1", "3", "4"]


@dataclass
class Scene:
    """A topic in memory, a registry, and a table on disk."""

    folder: Path
    registry: RegistryServer
    broker: MemoryBroker
    sent_count: int = 0

    def send(self, n: int, *values: bytes) -> None:
        """Produces messages of the n-th hour."""
        for value in values:
            self.broker.produce(
                TP, value, timestamp=START + timedelta(hours=n, seconds=self.sent_count)
            )
            self.sent_count += 1

    def pipeline(self, **decode: Any) -> Pipeline:
        """Returns a new pipeline, as each run makes it."""
        attributes = {
            "id": "things",
            "source": {
                "bootstrap_servers": "127.0.0.1:9",
                "topic": TP.topic,
                "registry": {
                    "url": self.registry.url,
                    "username": "me",
                    "password": "hunter2",
                    "timeout": "5s",
                    "retries": 0,
                },
            },
            "window": {"grid": "hourly", "start": START.isoformat()},
            "decode": {"format": "avro-confluent", "schema": "things.py:Thing", **decode},
            "sink": {"path": str(self.folder / "table")},
            "state": str(self.folder / "state.db"),
            "limits": {"max_dead_ratio": None},
        }
        pipeline = assemble(parse_spec(attributes, self.folder), LocalEngine())
        return replace(
            pipeline, broker=self.broker, reader=partial(MemoryReader, self.broker, rows_max=3)
        )

    def run(self, n: int = 0, *, replaced: bool = False, **decode: Any) -> Result:
        return run(self.pipeline(**decode), hour(n), Request(f"r{n}{replaced}", replace=replaced))

    def rows(self) -> list[tuple[int, str | None]]:
        table = DeltaTable(str(self.folder / "table")).to_pyarrow_table().sort_by("_offset")
        return [(row["id"], row["name"]) for row in table.select(["id", "name"]).to_pylist()]

    def letters(self) -> list[tuple[int, str]]:
        """Returns offset and reason of each dead letter of the first window."""
        pipeline = self.pipeline()
        receipt = next(
            commit.receipt
            for commit in pipeline.sink.receipts()
            if commit.receipt.window == hour(0)
        )
        dead = pipeline.dead_letters.read(hour(0), receipt.attempt)
        return list(zip(dead["_offset"].to_pylist(), dead["reason"].to_pylist(), strict=True))

    def nothing_is_committed(self) -> bool:
        return not list(self.pipeline().sink.receipts())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A scene with two registered schemas."""
    (tmp_path / "things.py").write_text(MODEL)
    broker = MemoryBroker()
    broker.create_topic(TP.topic, partitions=1)
    with RegistryServer(user=("me", "hunter2")) as registry:
        registry.register("things-value", FIRST)
        registry.register("things-value", SECOND)
        yield Scene(tmp_path, registry, broker)


ONE, TWO, THREE = (
    framed(1, varint(1)),
    framed(2, varint(2) + text("b")),
    framed(3, text("c") + varint(3)),
)


def used_schema_ids(result: Result) -> Sequence[str]:
    """Returns the ids of the schemas in the receipt."""
    (split,) = result.committed.receipt.splits
    assert isinstance(split.schemas, tuple)
    return [id_ for id_, _ in split.schemas]


def test_schemas_are_asked_for_before_anything_is_read(scene: Scene) -> None:
    """Schemas of the topic's subject are asked for before anything is read, and stored with the
    plan.

    Tasks ask for none. The receipt has the schemas that were used.
    """
    scene.send(0, ONE, TWO, ONE, ONE, TWO)
    assert used_schema_ids(scene.run()) == ["1", "2"]
    assert scene.rows() == [(1, None), (2, "b"), (1, None), (1, None), (2, "b")]
    assert not [path for path in scene.registry.requested_paths if path.startswith("/schemas/ids")]
    assert {schema.id: schema.text for schema in scene.pipeline().ledger.schemas("things")} == {
        "1": FIRST,
        "2": SECOND,
    }
    pipeline = scene.pipeline()
    assert (
        verify(
            "things",
            pipeline.sink,
            pipeline.dead_letters,
            pipeline.ledger,
            pipeline.broker,
            deep=True,
        ).findings
        == ()
    )


def test_a_schema_that_is_under_another_subject(scene: Scene) -> None:
    """A task asks once for a schema of another subject.

    It is stored before the commit, so the next window doesn't ask.
    """
    scene.registry.register("elsewhere", THIRD)
    scene.send(0, ONE, *[THREE] * 9)
    scene.send(1, THREE)
    assert used_schema_ids(scene.run()) == ["1", "3"]
    client_of.cache_clear()
    assert used_schema_ids(scene.run(1)) == ["3"]
    assert scene.registry.requested_paths.count("/schemas/ids/3") == 1
    assert scene.rows() == [(1, None)] + [(3, "c")] * 10


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_retry_decodes_by_the_same_schemas(
    scene: Scene, point: CrashPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash at any point, the retry decodes with the same schemas, although the
    registry gives another.
    """
    scene.registry.register("elsewhere", THIRD)
    scene.send(0, ONE, THREE)
    monkeypatch.setenv("WINDROW_CRASH", f"{point}:raise:{scene.folder / 'died'}")
    with pytest.raises(CrashError):
        scene.run()
    lie = json.dumps({"schema": record(("name", "bytes"), ("id", "long"))}).encode()
    scene.registry.faults = {"/schemas/ids/3": Fault(200, lie)}
    result = scene.run()
    assert used_schema_ids(result) == ["1", "3"]
    assert scene.rows() == [(1, None), (3, "c")]
    (split,) = result.committed.receipt.splits
    digest_by_id = {
        schema.id: schema.digest for schema in scene.pipeline().ledger.schemas("things")
    }
    assert isinstance(split.schemas, tuple)
    assert dict(split.schemas).items() <= digest_by_id.items()


def test_a_registry_that_was_begun_anew(scene: Scene) -> None:
    """An id that means another schema now refuses the window before it is read, and committed
    rows stay.
    """
    scene.send(0, ONE)
    scene.send(1, ONE)
    scene.run()
    with RegistryServer(user=("me", "hunter2")) as other_registry:
        other_registry.register("things-value", SECOND)
        scene.registry.stop()
        scene.registry = other_registry
        with pytest.raises(RefusedError, match="another schema under id 1"):
            scene.run(1)
    assert scene.rows() == [(1, None)]


def test_a_task_that_is_given_another_schema(scene: Scene) -> None:
    """A schema that a task got is compared with the stored one before the commit.

    A different one refuses the window.
    """
    scene.registry.register("elsewhere", THIRD)
    scene.send(0, THREE)
    pipeline = scene.pipeline()

    class Meanwhile(LocalEngine):
        def run(self, task: Any, splits: Any) -> Any:
            pipeline.ledger.keep_schemas(
                "things", [WriterSchema("3", "AVRO", record(("name", "bytes"), ("id", "long")))]
            )
            return super().run(task, splits)

    with pytest.raises(RefusedError, match="another schema under id 3"):
        run(replace(pipeline, engine=Meanwhile()), hour(0), Request("r"))
    assert scene.nothing_is_committed()


def test_a_replacement_by_another_schema(scene: Scene) -> None:
    """After the ledger was lost, a replacement with another schema than the receipt's is
    refused.
    """
    scene.send(0, ONE)
    scene.run()
    (scene.folder / "state.db").unlink()
    lie = {"subject": "things-value", "version": 1, "id": 1, "schema": record(("id", "int"))}
    scene.registry.faults = {
        "/subjects/things-value/versions/1": Fault(200, json.dumps(lie).encode())
    }
    pipeline = scene.pipeline()
    pipeline.ledger.adopt_identity(pipeline.sink.owner().ledger)  # type: ignore[union-attr]
    client_of.cache_clear()  # a process keeps the registry's answers
    with pytest.raises(RefusedError, match="another schema under id 1"):
        scene.run(replaced=True)
    assert scene.rows() == [(1, None)]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(503),
        Fault(closes=True),
        Fault(302, headers={"Location": "http://127.0.0.1:1/"}),
        Fault(200, b"["),
    ],
)
@pytest.mark.parametrize(
    "path",
    ["/subjects/things-value/versions", "/subjects/things-value/versions/2", "/schemas/ids/3"],
)
def test_a_registry_that_is_ill(scene: Scene, path: str, fault: Fault) -> None:
    """A registry that fails raises UnreachableError in planning and in tasks, and nothing is
    committed.

    Later the window runs.
    """
    scene.registry.register("elsewhere", THIRD)
    scene.send(0, ONE, THREE)
    scene.registry.faults = {path: fault}
    with pytest.raises(UnreachableError, match="The schema registry http") as raised:
        scene.run()
    assert "hunter2" not in str(raised.value)
    assert scene.nothing_is_committed()
    scene.registry.faults = {}
    scene.run()
    assert scene.rows() == [(1, None), (3, "c")]


def test_a_registry_that_lost_a_schema(scene: Scene) -> None:
    """Messages with a schema that the registry has lost are dead letters with the id, or refuse
    the window with their offset.
    """
    scene.send(0, ONE, framed(9, varint(9)), TWO)
    with pytest.raises(RefusedError, match=r"doesn't know schema id 9.*things\[0\]@1"):
        scene.run(unknown_id="fail")
    assert scene.nothing_is_committed()
    scene.run()
    assert scene.rows() == [(1, None), (2, "b")]
    assert scene.letters() == [(1, "unknown_schema")]


def test_a_record_of_another_name(scene: Scene) -> None:
    """A record of another name is a dead letter in every window, because the topic's subject
    names the expected record.

    A dead-letter replay keeps that.
    """
    scene.registry.register("elsewhere", THIRD.replace("Thing", "ThingRemoved"))
    scene.send(0, THREE)
    scene.send(1, ONE, THREE)
    scene.run(0)
    assert scene.letters() == [(0, "other_record")]
    result = replay_dead_letters(scene.pipeline(), hour(0), DeadReplayRequest("m", dry_run=True))
    assert (result.tried, result.messages) == (1, 0)
    scene.run(1)
    assert scene.rows() == [(1, None)]
    scene.run(1, replaced=True, records=["ThingRemoved"])
    assert scene.rows() == [(3, "c")]


def test_several_records_under_a_subject(scene: Scene) -> None:
    """A subject with several records is refused until the spec names those that are rows."""
    scene.registry.register("things-value", THIRD.replace("Thing", "ThingRemoved"))
    scene.send(0, ONE)
    with pytest.raises(
        SpecError, match=r"Subject things-value .* has several records: Thing, ThingRemoved"
    ):
        scene.run()
    scene.run(records=["Thing"])
    assert scene.rows() == [(1, None)]


def test_several_windows_ask_once(scene: Scene) -> None:
    """Windows that run together ask the registry once."""
    for n in range(6):
        scene.send(n, ONE)
    results = list(run_windows(scene.pipeline(), [hour(n) for n in range(5)], Request("r")))
    assert [used_schema_ids(result) for result in results] == [["1"]] * 5
    assert scene.registry.requested_paths.count("/subjects/things-value/versions") == 1


def test_without_a_message_nobody_is_asked(scene: Scene) -> None:
    """An empty window is committed without the registry."""
    scene.send(1, ONE)
    scene.registry.stop()
    assert scene.run(0).committed.receipt.counts.read == 0
    assert scene.registry.requested_paths == []


def test_no_secret_is_kept(scene: Scene) -> None:
    """No file of a run contains the registry's password, also after a refused window."""
    scene.send(0, ONE, framed(9, b""))
    scene.send(1, TWO)
    with pytest.raises(RefusedError):
        scene.run(0, unknown_id="fail")
    scene.run(0)
    scene.run(1)
    written = [path for path in scene.folder.rglob("*") if path.is_file()]
    assert len(written) > 5
    assert [path for path in written if b"hunter2" in path.read_bytes()] == []
