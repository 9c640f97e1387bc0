"""Iceberg tables with a primary key: the contract of keyed tables, and the files of snapshots."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent

from tests.sinks.iceberg.test_evolve import MORE, NARROW, stage_window
from tests.sinks.iceberg.test_maintenance import AT_ONCE, delete, expire_all, rewrite
from tests.sinks.iceberg.world import TABLE, IcebergBoth, IcebergKeyed, state_of
from tests.sinks.keyed_contract import KEYS, A, B, C, KeyedTableContract, log_of
from tests.sinks.keyed_logs import ROWS, Change
from tests.sinks.kit.commit.test_sweep import age_files
from windrow.ingest.errors import SchemaChangedError
from windrow.ingest.ports.sink import Done
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.testing.contracts.windows import window

pytestmark = pytest.mark.slow


class TestIcebergKeyedTable(KeyedTableContract):
    """The contract of keyed tables, on real Iceberg tables."""

    LOGS = 2

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.places = (str(tmp_path / f"{number}") for number in count())

    def table(self, kind: str, rows: Any = ROWS) -> IcebergKeyed:
        return IcebergKeyed(next(self.places), KEYS[kind], rows=rows)


def paths(table: IcebergKeyed) -> dict[str, int]:
    """Returns the bucket of each file of the newest snapshot, by its path."""
    return {t.file.file_path: t.file.partition[0] for t in state_of(table.sink).tasks()}


def test_a_window_replaces_the_files_of_its_buckets(tmp_path: Path) -> None:
    """A window is one snapshot, in which only files of the buckets that it changes are new.

    Snapshots don't get more manifests with each window.
    """
    table = IcebergKeyed(str(tmp_path), PrimaryKey(("shop", "id"), buckets=16))
    keys = [("a", number) for number in range(7)]
    log = log_of([[Change(key, 0)] for key in keys], *([[Change(A, n)]] for n in range(1, 9)))
    table.commit(log, 0)
    before = paths(table)
    for number in range(1, 9):
        table.commit(log, number)
    after = paths(table)
    assert len({before[path] for path in before.keys() - after.keys()}) == 1
    assert set(before.values()) == set(after.values())
    assert not table.find_mistakes()
    newest = state_of(table.sink).table
    assert len(newest.snapshots()) == 9
    snapshot = newest.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(newest.io)) == 3


# polars warns that a package is missing
@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_readers_see_each_key_once(tmp_path: Path) -> None:
    """Polars and DuckDB see the rows that PyIceberg sees, after updates and deletes."""
    table = IcebergKeyed(str(tmp_path), KEYS["upsert"])
    log = log_of(
        [[Change(A, 1)], [Change(B, 1)], [Change(("c", 1), 1)]], [[Change(A, 2)], [Change(B, None)]]
    )
    for number in (0, 1):
        table.commit(log, number)
    assert not table.find_mistakes()
    expected = [("a", 2), ("c", 1)]
    scan = pl.scan_iceberg(state_of(table.sink).table.metadata_location)
    assert scan.select("shop", "amount").collect().sort("shop").rows() == expected
    files = [path.removeprefix("file://") for path in paths(table)]
    with duckdb.connect() as connection:
        rows = connection.read_parquet(files)
        assert rows.order("shop").project("shop, amount").fetchall() == expected


def test_what_others_rewrote_is_merged_into(tmp_path: Path) -> None:
    """Files that another program rewrote are merged into, and a window without any row left
    stays committed, after the expiry of windrow's snapshots too.
    """
    table = IcebergKeyed(str(tmp_path), KEYS["upsert"])
    log = log_of([[Change(A, 1)]], [[Change(A, None)], [Change(B, 1)]], [[Change(B, 2)]])
    for number in (0, 1):
        table.commit(log, number)
    rewrite(table.sink)
    expire_all(table.sink)
    table.reopen()
    assert table.sink.look(window(0)) is not None
    table.commit(log, 2)
    assert not table.find_mistakes()


def test_maintenance_keeps_what_a_merge_needs(tmp_path: Path) -> None:
    """Maintenance expires snapshots and removes the files of replaced buckets. It joins no files,
    and keeps receipts and tombstones: an older window still restores no deleted key.
    """
    table = IcebergKeyed(str(tmp_path), KEYS["one-bucket"])
    others = [[Change(B, 1)], [Change(C, 1)]]
    log = log_of([[Change(A, 1)]], [[Change(A, 2)]], [[Change(A, None)], *others])
    for number in (0, 2):
        table.commit(log, number)
    about = state_of(table.sink).table
    rows = about.scan().to_arrow()
    about.overwrite(rows.slice(0, 1))
    about.append(rows.slice(1))
    assert [*paths(table).values()] == [0, 0]
    age_files(table.sink)
    receipts = list(table.sink.receipts())
    maintained = table.sink.maintain(AT_ONCE)
    assert (maintained.joined_files, maintained.expired_versions > 0) == (0, True)
    assert any(path.endswith(".parquet") for path in maintained.removed_files)
    table.reopen()
    assert list(table.sink.receipts()) == receipts
    table.commit(log, 1)
    assert sorted(row["shop"] for row in table.read()) == [B[0], C[0]]


def test_rows_that_others_deleted_refuse_a_window(tmp_path: Path) -> None:
    """A merge refuses files in which another program deleted rows, since their rows would come
    back; verification counts the rows that are left.
    """
    table = IcebergKeyed(str(tmp_path), KEYS["one-bucket"])
    log = log_of([[Change(A, 1)], [Change(B, 1)]], [[Change(B, 2)]])
    table.commit(log, 0)
    (path,) = paths(table)
    positions = pa.table({"file_path": [path], "pos": pa.array([0], pa.int64())})
    delete(table.sink, positions, content=DataFileContent.POSITION_DELETES)
    ready = table.stage_window(log, 1, 0)
    with pytest.raises(SchemaChangedError, match="rows that another program deleted"):
        table.sink.commit(*ready)
    assert [f.message for f in table.findings()] == [
        "1 row in the table, 2 by its receipts (added less removed)"
    ]


def test_a_table_with_another_key_is_refused(tmp_path: Path) -> None:
    """A table refuses another primary key, and appends."""
    table = IcebergKeyed(str(tmp_path), KEYS["upsert"])
    place = CatalogTable.in_folder(str(tmp_path), TABLE)
    with pytest.raises(SchemaChangedError, match=r"another primary key: .*buckets"):
        IcebergBoth(place, ROWS, primary_key=PrimaryKey(("shop", "id"), buckets=3)).prepare()
    with pytest.raises(SchemaChangedError, match="partitioned by _bucket, not by _window"):
        IcebergBoth(place, ROWS).prepare()
    assert table.sink.look(window(0)) is None


def test_new_columns_come_with_a_merge(tmp_path: Path) -> None:
    """A merge adds new columns, which are null in the rows that stay, and a run with the older
    schema goes on.
    """
    place, key = CatalogTable.in_folder(str(tmp_path), TABLE), PrimaryKey(("id",), buckets=2)
    old, new = (IcebergBoth(place, schema, primary_key=key) for schema in (NARROW, MORE))
    old.prepare()
    for number, sink in enumerate((old, new, old)):
        assert isinstance(sink.commit(*stage_window(sink, number)), Done)
    rows = state_of(new).table.scan().to_arrow()
    assert (rows.num_rows, rows["note"].null_count) == (10, 10)
    audit = new.audit()
    assert audit.keyed is not None
    assert audit.keyed.rows() == 10
