"""Creating a table: it is made once, bound for good, and only extended.

Columns that Delta can't hold are refused before anything is written. `CommitContract` tests
that all sinks that make a table at the same time go on with it.
"""

from __future__ import annotations

import errno
import os
import re
from functools import partial
from pathlib import Path
from pwd import getpwuid

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.errors import SchemaChangedError, SpecError, UnreachableError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.sinks.delta import create
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.store import DeltaStore
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.sinks.kit.files.write_check import refuse_unwritable, try_writing
from windrow.ingest.testing.contracts.windows import ROWS, run_together, staged_receipt, window
from windrow.ingest.testing.contracts.with_dead_letters import OWNER

WIDER = ROWS.append(pa.field("note", pa.string()))


def prepare(sink: DeltaBoth) -> DeltaBoth:
    """Prepares a sink as all of these tests do, and returns it."""
    sink.prepare()
    return sink


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Path of a table whose folder doesn't exist yet."""
    return str(tmp_path / "deep" / "orders")


def test_the_table_as_it_is_made(uri: str) -> None:
    """A new table has the row columns, then the metadata columns with their types.

    It is partitioned by window and bound to its owner.
    """
    sink = prepare(DeltaBoth(uri, ROWS))
    table = DeltaTable(uri)
    columns = [(f.name, f.type.to_json().strip('"'), f.nullable) for f in table.schema().fields]
    assert columns == [
        ("id", "string", False),
        ("amount", "long", True),
        ("_topic", "string", False),
        ("_partition", "integer", False),
        ("_offset", "long", False),
        ("_timestamp", "timestamp", True),
        ("_window", "string", False),
    ]
    assert table.metadata().partition_columns == ["_window"]
    assert sink.owner() == TableOwner("orders", "ledger-1", "hourly")
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)


@pytest.mark.parametrize("part", range(4))
def test_a_table_is_made_once_by_those_who_make_it_at_the_same_time(uri: str, part: int) -> None:
    """Of sinks that create a table at the same time, one creates it.

    deltalake's own creation tries again after a conflict: the second of two creators then
    replaces the properties of the first.
    """
    run_together([partial(DeltaBoth(uri, ROWS).prepare, OWNER) for _ in range(8)])
    assert [DeltaTable(table_uri).version() for table_uri in (uri, f"{uri}_dead")] == [0, 0]


def test_what_is_written_is_what_is_read(uri: str) -> None:
    """Rows come back with their values, their message's coordinates and their window.

    A missing timestamp stays null.
    """
    sink = prepare(DeltaBoth(uri, ROWS))
    sink.commit(*staged_receipt(sink, 0))
    rows = (
        DeltaTable(uri)
        .to_pyarrow_table()
        .sort_by([("_partition", "ascending"), ("_offset", "ascending")])
        .to_pylist()
    )
    assert [(r["id"], r["_offset"]) for r in rows[:3]] == [("0-0", 0), ("0-1", 1), ("0-2", 2)]
    assert [r["_timestamp"] is None for r in rows[:4]] == [True, False, False, False]
    assert {r["_window"] for r in rows} == {window(0).key}
    assert {r["_topic"] for r in rows} == {"shop.orders"}


def test_a_new_nullable_column_waits_for_its_rows(uri: str) -> None:
    """Preparing a sink with a new nullable column doesn't change the table."""
    old = prepare(DeltaBoth(uri, ROWS))
    old.commit(*staged_receipt(old, 0))
    old_version = DeltaTable(uri).version()
    run_together([lambda: prepare(DeltaBoth(uri, WIDER)) for _ in range(6)])
    assert DeltaTable(uri).version() == old_version


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (
            pa.schema([ROWS.field("id"), pa.field("amount", pa.int32())]),
            "amount: long in the table, integer in the schema",
        ),
        (pa.schema([ROWS.field("id")]), r"amount: in the table \(long\), not in the schema"),
        (
            pa.schema([pa.field("id", pa.string()), ROWS.field("amount")]),
            "id: string not null in the table, string in the schema",
        ),
        (
            ROWS.append(pa.field("note", pa.string(), nullable=False)),
            r"note: new, but not nullable \(string not null\)",
        ),
    ],
)
def test_any_other_difference_is_shown(uri: str, schema: pa.Schema, says: str) -> None:
    """The error names each column that differs, with both types, and the table doesn't change."""
    prepare(DeltaBoth(uri, ROWS))
    with pytest.raises(SchemaChangedError, match=says) as raised:
        prepare(DeltaBoth(uri, schema))
    assert f"if a run made it that was refused, remove {uri}, and" in str(raised.value.advice)
    assert DeltaTable(uri).version() == 0


def test_the_order_of_columns_is_no_difference(uri: str) -> None:
    """Columns in another order are no difference: Delta finds columns by name."""
    prepare(DeltaBoth(uri, ROWS))
    prepare(DeltaBoth(uri, pa.schema(list(reversed(list(ROWS))))))
    assert DeltaTable(uri).version() == 0


@pytest.mark.parametrize(
    "column",
    [
        pa.field("n", pa.uint32()),
        pa.field("n", pa.timestamp("ns", tz="UTC")),
        pa.field("n", pa.timestamp("us", tz="Europe/Berlin")),
        pa.field("n", pa.float16()),
        pa.field("n", pa.large_string()),
        pa.field("n", pa.list_(pa.uint8())),
        pa.field("n", pa.struct([pa.field("deep", pa.uint64())])),
        pa.field("n", pa.dictionary(pa.int8(), pa.string())),
        pa.field("n", pa.map_(pa.string(), pa.list_(pa.timestamp("us")))),
        pa.field("n", pa.decimal256(50, 2)),
        pa.field("_Offset", pa.int64()),
        pa.field("ID", pa.int64()),
    ],
)
def test_a_column_that_delta_would_change_is_refused(tmp_path: Path, column: pa.Field) -> None:
    """Types that Delta stores as another type, and reserved names, are refused with the
    column's name before anything is made.
    """
    with pytest.raises(SpecError, match=column.name if column.name != "ID" else "id"):
        DeltaBoth(str(tmp_path / "t"), ROWS.append(column))
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("letter", list(" ,;{}()="))
def test_a_name_that_spark_can_not_read_is_refused(tmp_path: Path, letter: str) -> None:
    """A letter that Spark can't read is refused in the name of a column, a metadata column or a
    nested field.

    The error has the name and the advice.
    """
    odd = f"a{letter}b"
    inner = pa.field(
        "place",
        pa.list_(
            pa.struct(
                [pa.field("fine", pa.map_(pa.string(), pa.struct([pa.field(odd, pa.int64())])))]
            )
        ),
    )
    for rows, metadata, named in (
        (ROWS.append(pa.field(odd, pa.int64())), DEFAULT, odd),
        (ROWS, DEFAULT | {"offset": odd}, odd),
        (ROWS.append(inner), DEFAULT, f"place.fine.{odd}"),
    ):
        with pytest.raises(SpecError, match=re.escape(repr(named))) as refused:
            DeltaBoth(str(tmp_path / "t"), rows, metadata)
        assert "a spark step" in refused.value.advice


def test_every_storable_type_travels(uri: str) -> None:
    """Every accepted type comes back as the same type."""
    kinds = [
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.decimal128(38, 9),
        pa.timestamp("us", tz="UTC"),
        pa.timestamp("us"),
        pa.list_(pa.int64()),
        pa.map_(pa.string(), pa.int64()),
        pa.struct([pa.field("a", pa.list_(pa.struct([pa.field("b", pa.date32())])))]),
    ]
    schema = pa.schema([pa.field(f"c{i}", kind) for i, kind in enumerate(kinds)])
    prepare(DeltaBoth(uri, schema))
    stored = pa.schema(DeltaTable(uri).schema().to_arrow())
    assert [stored.field(f"c{i}").type for i in range(len(kinds))] == kinds
    prepare(DeltaBoth(uri, schema))


@pytest.mark.parametrize("partition_by", [["_window"], [], ["_window", "amount"]])
def test_a_strangers_table_is_refused(uri: str, partition_by: list[str]) -> None:
    """A table that windrow did not make is refused by every call, even if its columns fit.

    This error comes before the one about partitions.
    """
    schema = pa.schema([*ROWS, pa.field("_window", pa.string())])
    DeltaTable.create(uri, Schema.from_arrow(schema), partition_by=partition_by)
    sink = DeltaBoth(uri, ROWS)
    for ask in (lambda: prepare(sink), lambda: sink.look(window(0)), lambda: list(sink.receipts())):
        with pytest.raises(SpecError, match="not made by windrow"):
            ask()


def test_a_table_of_another_form_is_refused(uri: str) -> None:
    """A table of another form (the layout of windrow's properties and receipts) is refused by
    every call.
    """
    sink = prepare(DeltaBoth(uri, ROWS))
    DeltaTable(uri).alter.set_table_properties({"windrow.form": "1"}, raise_if_not_exists=False)
    for ask in (
        lambda: prepare(DeltaBoth(uri, ROWS)),
        lambda: sink.look(window(0)),
        lambda: list(sink.receipts()),
    ):
        with pytest.raises(
            SpecError, match="another version of windrow, in form 1; this one knows form 2"
        ):
            ask()


def test_a_table_that_would_forget_its_receipts_is_refused(uri: str) -> None:
    """A table whose application transactions expire is refused.

    The advice has the command that ends it.
    """
    sink = prepare(DeltaBoth(uri, ROWS))
    DeltaTable(uri).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 7 days"}
    )
    with pytest.raises(SpecError, match="UNSET TBLPROPERTIES"):
        prepare(sink)
    with pytest.raises(SpecError):
        sink.look(window(0))


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """A table that can't be made for want of rights raises SpecError, and isn't tried again."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SpecError, match=f"{tmp_path}/file is no folder"):
        prepare(DeltaBoth(str(tmp_path / "file" / "orders"), ROWS))


def denied(*_: object, **__: object) -> None:
    """Raises the system's error for a user without write access."""
    raise PermissionError(errno.EACCES, "Permission denied")


def test_who_may_not_write_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names user, folder and owner. Neither the check nor the trial leaves a file."""
    path = tmp_path / "lake" / "things"
    for fine in (str(path), f"file://{path}"):
        refuse_unwritable(fine)
        try_writing(fine)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("windrow.ingest.sinks.kit.files.write_check.TemporaryFile", denied)
    monkeypatch.setattr(os, "access", lambda *_: False)
    me = getpwuid(os.geteuid()).pw_name
    for check in (refuse_unwritable, try_writing):
        check("gs://lake/things")
        with pytest.raises(
            SpecError,
            match=f"{me} may not write in {tmp_path}, which belongs to user {me}.*set sink.path",
        ):
            check(str(path))
    monkeypatch.setattr(DeltaTable, "create", denied)
    with pytest.raises(SpecError, match="may not write in"):
        prepare(DeltaBoth(str(path), ROWS))


def test_a_full_disk_is_no_want_of_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk raises UnreachableError, not SpecError, after a limited number of tries."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(DeltaStore, "waits", (0.0,))
    monkeypatch.setattr("windrow.ingest.sinks.kit.files.write_check.TemporaryFile", full)
    monkeypatch.setattr(DeltaTable, "create", full)
    with pytest.raises(UnreachableError, match="No space left"):
        prepare(DeltaBoth(str(tmp_path / "orders"), ROWS))


def test_a_table_that_cannot_be_read_is_loaded_once(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed load isn't repeated: a load has its own retries, and may take minutes."""
    loads = list[str]()

    def load(uri: str) -> None:
        loads.append(uri)
        raise UnreachableError("no answer", "setup", "Look at the storage.")

    monkeypatch.setattr(tables, "load", load)
    with pytest.raises(UnreachableError, match="no answer"):
        create.ensure(Place(uri), uri, ROWS, OWNER, tables.Shape("_window", None), (0.0, 0.0))
    assert loads == [uri]


def test_one_place_has_one_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative path, absolute path and file URI have the same identity, also before the table
    exists.
    """
    monkeypatch.chdir(tmp_path)
    spelled = ["orders", str(tmp_path / "orders"), f"file://{tmp_path}/orders", "orders/"]
    assert {DeltaBoth(uri, ROWS).identity for uri in spelled} == {f"delta:{tmp_path}/orders"}
    assert list(tmp_path.iterdir()) == []


def test_dead_letters_have_their_own_table(uri: str) -> None:
    """The dead letters' table is beside the data.

    It is bound to the same owner, and partitioned by window.
    """
    prepare(DeltaBoth(uri, ROWS))
    dead = DeltaTable(f"{uri}_dead")
    assert dead.metadata().partition_columns == ["_window"]
    assert tables.owner_of(f"{uri}_dead", dead, tables.Shape("_window", None)) == TableOwner(
        "orders", "ledger-1", "hourly"
    )
    assert delta_pieces(f"{uri}_dead") == []
