"""A task that fails discards its staged rows once, and raises the original error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.sinks.kafka.world import encoder_of
from windrow.ingest.errors import RefusedError, SpecError, WindrowError
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.decoder import Decoded, Deletes
from windrow.ingest.runner.task import SplitTask, stage_rows
from windrow.ingest.schema.row_changes import change_schema
from windrow.ingest.sinks.kafka.serializers import PlainSerializer
from windrow.ingest.sinks.kafka.stage import KafkaStagerFactory
from windrow.ingest.sinks.kit.files.file_stager import RowLayout
from windrow.ingest.sinks.postgres.stage import PostgresStagerFactory
from windrow.ingest.sinks.routes.parts import TableRows
from windrow.ingest.sinks.routes.stage import RoutedStagerFactory, Router, Rule
from windrow.ingest.testing.contracts.windows import messages, window

SPLIT, SPLIT_OF_FIVE = Split("t", 0, 0, 3), Split("shop.orders", 0, 0, 5)


class Recorder:
    """A stager that only records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.calls.append(name)


class Steps:
    """A reader, decoder and transform; one of the steps raises an error."""

    def __init__(self, broken: str, error: BaseException) -> None:
        self.broken, self.error = broken, error

    def _fail(self, step: str) -> None:
        if step == self.broken:
            raise self.error

    def open(self) -> Any:
        return lambda batch: self._fail("decode") or batch

    def read(self, _: Split, take: Any) -> None:
        self._fail("read")
        take(pa.record_batch({}))


@pytest.mark.parametrize("error", [ValueError("torn"), KeyboardInterrupt("stopped")])
@pytest.mark.parametrize("broken", ["read", "decode"])
def test_a_task_that_fails_discards_what_it_staged(broken: str, error: BaseException) -> None:
    """Any error, also a cancelled Spark task, discards rows and dead letters once, and is
    raised unchanged.
    """
    rows, dead, steps = Recorder(), Recorder(), Steps(broken, error)
    task = SplitTask(steps, steps, steps, lambda _: rows, lambda _: dead)  # type: ignore[arg-type]
    with pytest.raises(type(error)) as raised:
        task(SPLIT)
    assert raised.value is error
    assert (rows.calls, dead.calls) == (["discard"], ["discard"])


@pytest.mark.parametrize("topic", [None, "other"])
@pytest.mark.parametrize("kind", [SpecError, RefusedError])
def test_an_error_of_a_step_names_the_messages(kind: type[WindrowError], topic: str | None) -> None:
    """An error that refuses a window names where its batch begins, unless it names a message."""

    class Reader(Steps):
        def read(self, _: Split, take: Any) -> None:
            take(messages(SPLIT).slice(1))

    steps = Reader("decode", kind("too large", "validate", "Fewer.", topic))
    task = SplitTask(steps, steps, steps, lambda _: Recorder(), lambda _: Recorder())  # type: ignore[arg-type,return-value]
    with pytest.raises(kind) as raised:
        task(SPLIT)
    assert raised.value.log_position == (topic or "t[0]@1")


NAMES = pa.schema([pa.field("name", pa.string(), nullable=False)])


def make_decoded(
    rows: list[tuple[int, str]], deletes: list[tuple[int, str]] | None = None
) -> Decoded:
    """Returns a decoded batch of rows and deletes, each with its message's number."""

    def split(rows_of_batch: list[tuple[int, str]]) -> tuple[pa.RecordBatch, pa.Array]:
        return pa.record_batch(
            [pa.array([n for _, n in rows_of_batch], pa.string())], schema=NAMES
        ), pa.array([i for i, _ in rows_of_batch], pa.int64())

    none = pa.array([], pa.string())
    return Decoded(
        *split(rows),
        pa.array([], pa.int64()),
        none,
        none,
        none,
        deletes=None if deletes is None else Deletes(*split(deletes)),
    )


@pytest.mark.parametrize("keyed", [False, True])
def test_a_row_that_the_table_has_no_place_for_is_a_dead_letter(
    tmp_path: Path, keyed: bool
) -> None:
    """A row that PostgreSQL can't hold makes its message a dead letter with all its rows.

    Here a row or a delete's key has a NUL. The other messages are staged.
    """
    layout = RowLayout(
        change_schema(NAMES, ["name"]) if keyed else NAMES,
        {"window": "_window", "offset": "_offset"},
        "a",
    )
    stager = PostgresStagerFactory(str(tmp_path), "f", layout, "_window", "w")(SPLIT_OF_FIVE)
    rows = [(0, "a"), (1, "b"), (1, "b\0"), (2, "\0"), (4, "e")]
    decoded_batch = stage_rows(
        stager,
        messages(SPLIT_OF_FIVE),
        make_decoded(rows, [(3, "\0d")] if keyed else None),
        keyed=keyed,
    )
    assert (decoded_batch.row_index.to_pylist(), decoded_batch.rows["name"].to_pylist()) == (
        [0, 4],
        ["a", "e"],
    )
    assert decoded_batch.dead_index.to_pylist() == ([1, 2, 3] if keyed else [1, 2])
    assert set(
        zip(
            decoded_batch.dead_stage.to_pylist(), decoded_batch.dead_reason.to_pylist(), strict=True
        )
    ) == {("schema", "unstorable")}
    assert (
        decoded_batch.dead_detail[0].as_py()
        == "column name holds the character NUL, which no text of PostgreSQL can hold"
    )
    assert stager.finish().rows == 2


def test_a_row_that_one_of_several_tables_has_no_place_for(tmp_path: Path) -> None:
    """A row that one of several tables can't hold makes its message a dead letter, and no table
    keeps a row of it.

    The other messages are staged once.
    """
    layout = RowLayout(NAMES, {"window": "_window", "offset": "_offset"}, "a")
    tables = tuple(
        (name, PostgresStagerFactory(str(tmp_path), name, layout, "_window", "w"))
        for name in ("first", "second", "other")
    )
    router = Router("column", "name", (Rule(pattern="(?s)a.*"), Rule(pattern="(?s)b.*")))
    stager = RoutedStagerFactory(router, tables)(SPLIT_OF_FIVE)
    rows = [
        (0, "a"),
        (0, "b"),
        (1, "a1"),
        (1, "b\0"),
        (2, "a2\0"),
        (2, "b2"),
        (3, "c3\0"),
        (4, "a4"),
        (4, "c4"),
    ]
    decoded_batch = stage_rows(stager, messages(SPLIT_OF_FIVE), make_decoded(rows), keyed=False)
    assert (decoded_batch.dead_index.to_pylist(), decoded_batch.rows["name"].to_pylist()) == (
        [1, 2, 3],
        ["a", "b", "a4", "c4"],
    )
    parts = [msgspec.json.decode(part, type=TableRows) for part in stager.finish().committables]
    assert [(part.table, part.rows, part.messages) for part in parts] == [
        ("first", 2, 2),
        ("second", 1, 1),
        ("other", 1, 1),
    ]


def test_a_row_for_a_topic_that_is_not_listed(tmp_path: Path) -> None:
    """A row for a topic that isn't listed, or for none, makes its message a dead letter.

    The topic's name isn't repeated.
    """
    part = PlainSerializer("raw", ("name",))
    encoder = encoder_of(part, ("orders",), str(tmp_path), topic_column="name")
    stager = KafkaStagerFactory(
        RowLayout(NAMES, {"window": "_window", "offset": "_offset"}, "a"),
        encoder,
        window(0),
    )(SPLIT_OF_FIVE)
    decoded_batch = stage_rows(
        stager,
        messages(SPLIT_OF_FIVE),
        make_decoded([(0, "orders"), (1, "hunter2"), (3, "")]),
        keyed=False,
    )
    assert (decoded_batch.dead_index.to_pylist(), decoded_batch.rows["name"].to_pylist()) == (
        [1, 3],
        ["orders"],
    )
    assert set(decoded_batch.dead_detail.to_pylist()) == {"column name names none of sink.topics"}
