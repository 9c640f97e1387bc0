"""Tables for which another program has switched on a feature that windrow doesn't support:
commits are refused, and nothing is committed.

deltalake 1.6 checks constraints only in writes that it makes itself. It accepts a commit that
names files, whatever they contain; with column mapping, under names that no reader looks for. A
feature that it doesn't know fails its commit like a conflict.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.sinks.with_dead_letters import DeltaBoth, DeltaKeyedBoth
from windrow.ingest.errors import (
    DamagedError,
    RefusedError,
    SchemaChangedError,
    UnreachableError,
)
from windrow.ingest.ports.sink import Done
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.delta.unsupported import WRITTEN
from windrow.ingest.testing.contracts.windows import ROWS, staged_receipt, window

OF_READERS = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
    "variantType-preview",
}
"""Features that readers must support, too."""


def write(
    uri: str,
    properties: Mapping[str, str],
    amount: Mapping[str, object],
    features: tuple[str, ...] = (),
) -> None:
    """Writes a log entry as another engine does.

    Args:
        uri: folder of the table.
        properties: new properties of the table.
        amount: new metadata of the column `amount`.
        features: new features of the protocol.
    """
    log = Path(uri) / "_delta_log"
    lines = [
        json.loads(line)
        for entry in sorted(log.glob("0*.json"), reverse=True)
        for line in entry.read_text().splitlines()
    ]
    metadata = next(line["metaData"] for line in lines if "metaData" in line)
    schema = json.loads(metadata["schemaString"])
    next(field for field in schema["fields"] if field["name"] == "amount")["metadata"] |= amount
    metadata |= {
        "schemaString": json.dumps(schema),
        "configuration": metadata["configuration"] | dict(properties),
    }
    actions: list[dict[str, Any]] = [{"metaData": metadata}]
    if features:
        actions.append(
            {
                "protocol": {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": [name for name in features if name in OF_READERS],
                    "writerFeatures": features,
                }
            }
        )
    entry = log / f"{DeltaTable(uri).version() + 1:020d}.json"
    entry.write_text("".join(json.dumps(line) + "\n" for line in actions))


def constrain(uri: str) -> None:
    """Adds a constraint that orders above a price break."""
    DeltaTable(uri).alter.add_constraint({"cheap": "amount < 8"})


ASKED: dict[str, Callable[[str], None]] = {
    "the check constraint cheap": constrain,
    "the column amount has an invariant": partial(
        write, properties={}, amount={"delta.invariants": '{"expression": "amount > 0"}'}
    ),
    "the column amount is generated": partial(
        write, properties={}, amount={"delta.generationExpression": "_offset * 2"}
    ),
    "the column amount is an identity column": partial(
        write, properties={}, amount={"delta.identity.start": 1}, features=("identityColumns",)
    ),
    **{
        f"the feature {name}": partial(write, properties={}, amount={}, features=(name,))
        for name in ("rowTracking", "typeWidening", "of a later day")
    },
}


def test_deletion_vectors_of_another_client_are_told(tmp_path: Path) -> None:
    """Verification reports deletion vectors, and how to remove them, because files alone don't
    tell which rows are left.
    """
    sink = DeltaBoth(str(tmp_path / "t"), ROWS)
    sink.prepare()
    sink.commit(*staged_receipt(sink, 0, dead=False))
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    entry = tmp_path / "t/_delta_log" / f"{DeltaTable(sink.uri).version() + 1:020d}.json"
    entry.write_text(json.dumps({"protocol": protocol}) + "\n")
    for ask in (
        sink.audit().rows_held,
        lambda requested_window: list(sink.audit().contents(requested_window)),
    ):
        with pytest.raises(UnreachableError, match=r"deletionVectors.*DROP FEATURE"):
            ask(window(0))


def mapped(uri: str) -> None:
    """Gives each column a physical name; for `amount` it differs from the table's name."""
    log = Path(uri) / "_delta_log"
    lines = [
        json.loads(line)
        for entry in sorted(log.glob("0*.json"))
        for line in entry.read_text().splitlines()
    ]
    metadata = next(line["metaData"] for line in lines if "metaData" in line)
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        name = "sum" if field["name"] == "amount" else field["name"]
        field["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": name,
        }
    properties = {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": str(len(schema["fields"])),
    }
    metadata |= {
        "schemaString": json.dumps(schema),
        "configuration": metadata["configuration"] | properties,
    }
    actions = [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": metadata}]
    (log / f"{DeltaTable(uri).version() + 1:020d}.json").write_text(
        "".join(json.dumps(line) + "\n" for line in actions)
    )


ASKED["column mapping (delta.columnMapping.mode is name)"] = mapped


@pytest.fixture(params=["append", "keyed"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaBoth | DeltaKeyedBoth:
    """A prepared sink on a new table."""
    uri = str(tmp_path / "orders")
    sink = (
        DeltaBoth(uri, ROWS)
        if request.param == "append"
        else DeltaKeyedBoth(uri, ROWS, PrimaryKey(("id",), buckets=3))
    )
    sink.prepare()
    return sink


@pytest.mark.parametrize("feature", ASKED)
def test_what_a_table_asks_for_is_told(sink: DeltaBoth | DeltaKeyedBoth, feature: str) -> None:
    """A feature that was switched on after staging refuses the commit, and refuses a later run
    before it reads.

    The table doesn't change.
    """
    receipt, staged = staged_receipt(sink, 0)
    ASKED[feature](sink.uri)
    old_version = DeltaTable(sink.uri).version()
    for ask in (partial(sink.commit, receipt, staged), sink.prepare):
        with pytest.raises(SchemaChangedError) as refused:
            ask()
        assert feature in str(refused.value)
        assert "Take that off the table (Spark: ALTER TABLE ... DROP" in str(refused.value)
    assert DeltaTable(sink.uri).version() == old_version


def test_what_is_taken_off_again_is_in_nobodys_way(sink: DeltaBoth | DeltaKeyedBoth) -> None:
    """A table whose constraint was dropped is written again, although the protocol keeps the
    feature.
    """
    receipt, staged = staged_receipt(sink, 0)
    constrain(sink.uri)
    DeltaTable(sink.uri).alter.drop_constraint("cheap")
    sink.prepare()
    assert isinstance(sink.commit(receipt, staged), Done)


@pytest.mark.parametrize("feature", sorted({*WRITTEN, "columnMapping"}))
def test_a_feature_that_asks_for_nothing_is_in_nobodys_way(
    sink: DeltaBoth | DeltaKeyedBoth, feature: str
) -> None:
    """A table is written if it has a feature that no column and no property uses, and its rows
    are read.
    """
    write(sink.uri, {}, {}, (feature,))
    sink.prepare()
    receipt, staged = staged_receipt(sink, 0)
    if feature in {"columnMapping", "deletionVectors"}:
        if isinstance(sink, DeltaKeyedBoth):
            with pytest.raises(SchemaChangedError, match=f"{feature}: its files alone don't tell"):
                sink.commit(receipt, staged)
            return
        assert isinstance(sink.commit(receipt, staged), Done)
        return
    assert isinstance(sink.commit(receipt, staged), Done)
    assert sum(batch.num_rows for batch in sink.audit().contents(window(0))) == 18


def test_what_a_nested_field_asks_for_is_told(tmp_path: Path) -> None:
    """A nested field's constraint is found like a column's."""
    rows = pa.schema([pa.field("inside", pa.struct([pa.field("n", pa.int64())]))])
    sink = DeltaBoth(str(tmp_path / "orders"), rows)
    sink.prepare()
    (entry,) = (tmp_path / "orders/_delta_log").glob("0*.json")
    entry.write_text(
        entry.read_text().replace(
            r"\"type\":\"long\",\"nullable\":true,\"metadata\":{}",
            r"\"type\":\"long\",\"nullable\":true,\"metadata\":{\"delta.invariants\":\"{}\"}",
            1,
        )
    )
    with pytest.raises(SchemaChangedError, match="the column inside has an invariant"):
        sink.prepare()


FEED = {"delta.enableChangeDataFeed": "true"}


def feed(uri: str, version: int) -> list[tuple[str, str]]:
    """Returns the changes that a change data feed derives from an entry's files: kind of
    change, and the row's id.
    """
    entry = Path(uri) / "_delta_log" / f"{version:020d}.json"
    changes = []
    for line in map(json.loads, entry.read_text().splitlines()):
        for action, change in (("add", "insert"), ("remove", "delete")):
            if action in line and line[action]["dataChange"]:
                file = pq.read_table(Path(uri) / unquote(line[action]["path"]), columns=["id"])
                changes += [(change, row_id) for row_id in file["id"].to_pylist()]
    return sorted(changes)


def test_a_feed_of_changes_is_right_or_the_commit_is_refused(tmp_path: Path) -> None:
    """A change data feed is right, or the commit is refused.

    A window gives inserts. A replacement with the same rows gives no change, with other rows
    deletes and inserts. A wider column and a table with a primary key rewrite rows without a
    message, so they are refused.
    """
    sink = DeltaBoth(str(tmp_path / "orders"), ROWS)
    sink.prepare()
    DeltaTable(sink.uri).alter.set_table_properties(FEED)
    all_ids = [f"{p}-{o}" for p in range(2) for o in range(10)]
    ids = [row_id for row_id in all_ids if not row_id.endswith("-3")]
    for generation, dead, changed in (
        (0, True, [("insert", row_id) for row_id in ids]),
        (1, True, []),
        (
            2,
            False,
            [("delete", row_id) for row_id in ids]
            + [("insert", f"{p}-{o}") for p in range(2) for o in range(10)],
        ),
    ):
        done = sink.commit(*staged_receipt(sink, 0, generation, f"a{generation}", dead=dead))
        assert isinstance(done, Done)
        assert done.committed.version is not None
        assert feed(sink.uri, done.committed.version) == sorted(changed)
    keyed = DeltaKeyedBoth(str(tmp_path / "keyed"), ROWS, PrimaryKey(("id",), buckets=3))
    keyed.prepare()
    receipt, staged = staged_receipt(keyed, 0)
    DeltaTable(keyed.uri).alter.set_table_properties(FEED)
    for ask in (partial(keyed.commit, receipt, staged), keyed.prepare):
        with pytest.raises(SchemaChangedError, match=r"its change data feed.*enableChangeDataFeed"):
            ask()


def test_rows_that_somebody_deleted_come_back_as_a_change(tmp_path: Path) -> None:
    """Rows that were deleted come back as inserts when their window is replaced with the same
    receipt.
    """
    sink = DeltaBoth(str(tmp_path / "orders"), ROWS)
    sink.prepare()
    assert isinstance(sink.commit(*staged_receipt(sink, 0)), Done)
    DeltaTable(sink.uri).alter.set_table_properties(FEED)
    DeltaTable(sink.uri).delete("id = '0-1'")
    done = sink.commit(*staged_receipt(sink, 0, 1, "a2"))
    assert isinstance(done, Done)
    assert done.committed.version is not None
    assert ("insert", "0-1") in feed(sink.uri, done.committed.version)


def test_a_wider_column_is_refused_while_there_is_a_feed_of_changes(tmp_path: Path) -> None:
    """A wider column is refused while the table has a change data feed, because every row would
    be a change.
    """
    narrow = pa.schema([ROWS.field(0), pa.field("amount", pa.int32())])
    sink = DeltaBoth(str(tmp_path / "orders"), narrow)
    sink.prepare()
    DeltaTable(sink.uri).alter.set_table_properties(FEED)
    wider = DeltaBoth(sink.uri, ROWS, evolve="widen")
    with pytest.raises(SchemaChangedError, match="its change data feed"):
        wider.prepare()
    DeltaTable(sink.uri).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    wider.prepare()
    assert isinstance(wider.commit(*staged_receipt(wider, 0)), Done)


def gap(log: Path) -> None:
    """Removes an entry in the middle of the log."""
    (log / f"{1:020d}.json").unlink()


def headless(log: Path) -> None:
    """Removes the first entry of the log."""
    (log / f"{0:020d}.json").unlink()


def garbled(log: Path) -> None:
    """Overwrites an entry in the middle with text that isn't JSON."""
    (log / f"{1:020d}.json").write_text("{")


def asks(protocol: dict[str, Any], log: Path) -> None:
    """Writes an entry in which another engine changes the protocol."""
    (log / f"{3:020d}.json").write_text(json.dumps({"protocol": protocol}) + "\n")


def of_readers(name: str) -> dict[str, Any]:
    """Returns a protocol with a feature that readers must support."""
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return versions | {"readerFeatures": [name], "writerFeatures": [name]}


def unnumbered(log: Path) -> None:
    """Switches on column mapping without ids for the columns."""
    first = (log / f"{0:020d}.json").read_text().splitlines()
    (metadata,) = (json.loads(line) for line in first if "metaData" in line)
    metadata["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    (log / f"{3:020d}.json").write_text(f"{json.dumps(protocol)}\n{json.dumps(metadata)}\n")


UNREADABLE: dict[Callable[[Path], None], tuple[type[RefusedError], str]] = {
    gap: (DamagedError, "restore them from a backup"),
    headless: (DamagedError, "restore them from a backup"),
    garbled: (DamagedError, "restore them from a backup"),
    unnumbered: (SchemaChangedError, "Take that off with what switched it on .*DROP FEATURE"),
    **{
        partial(asks, protocol): (
            SchemaChangedError,
            "Take that off with what switched it on .*DROP FEATURE",
        )
        for protocol in (
            of_readers("newest"),
            of_readers("catalogManaged"),
            {"minReaderVersion": 9, "minWriterVersion": 9},
        )
    },
}


@pytest.mark.parametrize(
    ("harm", "kind", "advice"), [(harm, *expectations) for harm, expectations in UNREADABLE.items()]
)
def test_what_is_wrong_with_a_table_is_not_told_as_its_storage(
    tmp_path: Path, harm: Callable[[Path], None], kind: type[RefusedError], advice: str
) -> None:
    """A broken log isn't reported as missing space or rights.

    Once it is repaired, the next window is accepted.
    """
    sink = DeltaBoth(str(tmp_path / "orders"), ROWS)
    sink.prepare()
    for number in range(2):
        assert isinstance(sink.commit(*staged_receipt(sink, number, dead=False)), Done)
    shutil.copytree(sink.uri, tmp_path / "copy")
    harm(Path(sink.uri) / "_delta_log")
    operations: tuple[Callable[[DeltaBoth], object], ...] = (
        lambda sink: sink.prepare(),
        lambda sink: sink.look(window(0)),
        lambda sink: list(sink.audit().receipts()),
    )
    for ask in operations:
        with pytest.raises(kind, match=advice) as raised:
            ask(DeltaBoth(sink.uri, ROWS))
        assert "storage" not in str(raised.value)
    shutil.rmtree(sink.uri)
    (tmp_path / "copy").rename(sink.uri)
    assert isinstance(sink.commit(*staged_receipt(sink, 2)), Done)
