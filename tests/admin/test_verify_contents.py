"""`verify --deep` finds every changed value, and nothing after Delta's own maintenance."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from tests.admin.things import Scene
from windrow.ingest.admin.verify import Verified
from windrow.ingest.admin.verify_contents import Summed, differences
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.sinks.kit.files import parquet_files
from windrow.ingest.testing.contracts.sink_metadata import RENAMED
from windrow.ingest.testing.contracts.windows import window

IN_WINDOW_1 = "_window = '2026-01-02T01:00:00Z' AND _partition = 0"
FIRST_SPLIT = "shop.orders[0] offsets 10 to 20 (exclusive)"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A scene with three hours in a row."""
    return Scene.of(tmp_path, [0, 1, 2])


def finding_rows(verified: Verified) -> list[tuple[str, str | None, str]]:
    """Returns (level, window, message) of all findings."""
    return [(f.level, f.window, f.message) for f in verified.findings]


def assert_only_finding(verified: Verified, start: str) -> None:
    """Asserts that the only finding is about window 1, begins with a text, and has advice."""
    (finding,) = verified.findings
    assert (finding.level, finding.about, finding.window) == ("wrong", "table", window(1).key)
    assert finding.message.startswith(start), finding.message
    assert f"windrow replay SPEC --window {window(1).key}" in finding.advice
    assert verified.exit_code == 1


def change(scene: Scene, column: str, value: str, where: str = "") -> None:
    """Changes values of one split of the table with deltalake."""
    DeltaTable(scene.sink.uri).update({column: value}, predicate=f"{IN_WINDOW_1}{where}")


@pytest.mark.parametrize("metadata", [DEFAULT, RENAMED], ids=["default", "renamed"])
def test_healthy(tmp_path: Path, metadata: dict[str, str]) -> None:
    """A healthy pipeline has no findings, with any metadata columns."""
    scene = Scene.of(tmp_path, [0, 1, 2], metadata=metadata)
    scene.commit(1, generation=1)
    assert scene.verify(deep=True).findings == ()


def test_a_changed_value(scene: Scene) -> None:
    """A changed value is found only when rows are read back; counts and offsets don't show it."""
    change(scene, "amount", "amount + 1")
    assert scene.verify().findings == ()
    assert_only_finding(
        scene.verify(deep=True), f"{FIRST_SPLIT}: the rows are not those that were committed"
    )


def test_an_offset_moved_onto_a_dead_letters(scene: Scene) -> None:
    """A row whose offset was changed to that of a dead letter is found.

    The number of rows and the range of offsets are still right.
    """
    change(scene, "_offset", "13", " AND _offset = 14")
    assert scene.verify().findings == ()
    assert_only_finding(
        scene.verify(deep=True), f"{FIRST_SPLIT}: the rows are not those that were committed"
    )


def test_a_changed_dead_letter(scene: Scene) -> None:
    """A dead letter with another payload is found."""
    DeltaTable(f"{scene.sink.uri}_dead").update(
        {"value": "cast('w13' as bytea)"}, predicate=IN_WINDOW_1
    )
    assert scene.verify().findings == ()
    assert_only_finding(
        scene.verify(deep=True),
        f"{FIRST_SPLIT}: the dead letters are not those that were committed",
    )


def test_exchanged_rows(scene: Scene) -> None:
    """Two rows that exchanged a value are found, although all values are there."""
    change(scene, "amount", "1 - amount", " AND _offset IN (10, 11)")
    assert_only_finding(scene.verify(deep=True), FIRST_SPLIT)


def _flip_byte(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 0x10
    file.write_bytes(content)


def _read(scene: Scene) -> pa.Table:
    return (
        DeltaTable(scene.sink.uri)
        .to_pyarrow_table()
        .sort_by([("_partition", "ascending"), ("_offset", "ascending")])
    )


@pytest.mark.slow
def test_a_flipped_byte_anywhere(tmp_path: Path) -> None:
    """A changed byte anywhere in a data file is found, or a reader still gets the same table."""
    scene = Scene.of(tmp_path, [1])
    file = next(
        f
        for f in (Path(scene.sink.uri) / "data").rglob("*.parquet")
        if pq.read_table(f)["_partition"][0].as_py() == 0
    )
    content, table_before = file.read_bytes(), _read(scene)
    found_count = 0
    for position in range(5, len(content), 61):
        _flip_byte(file, position)
        verified = scene.verify(deep=True)
        if not any(f.level == "wrong" and f.window == window(1).key for f in verified.findings):
            assert _read(scene).equals(table_before), position
        else:
            found_count += 1
        file.write_bytes(content)
    assert found_count >= 10
    assert scene.verify(deep=True).findings == ()


def test_a_flipped_byte_in_a_page(scene: Scene) -> None:
    """A damaged page is reported with its file, and other windows are still read."""
    file = min((Path(scene.sink.uri) / "data" / "_window=2026-01-02T01%3A00%3A00Z").iterdir())
    _flip_byte(file, pq.read_metadata(file).row_group(0).column(0).data_page_offset + 40)
    (finding,) = [f for f in scene.verify(deep=True).findings if f.level == "wrong"]
    assert finding.window == window(1).key
    assert file.name in finding.message
    assert "is damaged" in finding.message


def test_a_file_that_is_gone(scene: Scene) -> None:
    """A missing file is reported with its window and name, and other windows are still read."""
    deleted_file = next(
        (Path(scene.sink.uri) / "data" / "_window=2026-01-02T00%3A00%3A00Z").iterdir()
    )
    deleted_file.unlink()
    change(scene, "amount", "amount + 1")
    problems = [
        (f.window, f.message) for f in scene.verify(deep=True).findings if f.level == "wrong"
    ]
    assert {key for key, _ in problems} == {window(0).key, window(1).key}
    messages = [message for key, message in problems if key == window(0).key]
    assert all(deleted_file.name in message for message in messages)
    assert any("can't be read" in message for message in messages), "the reading back says so too"


def test_lost_and_foreign_rows(scene: Scene) -> None:
    """Lost rows are counted for each split, and so are rows with offsets of no split."""
    change(scene, "_offset", "99", " AND _offset = 14")
    whats = [f.message for f in scene.verify(deep=True).findings]
    assert f"{FIRST_SPLIT}: 8 rows read back, 9 committed" in whats
    assert "1 row in none of its splits" in whats


def _compacted(table: DeltaTable) -> None:
    table.optimize.compact()


def _ordered(table: DeltaTable) -> None:
    table.optimize.z_order(["amount", "id"])


def _vacuumed(table: DeltaTable) -> None:
    table.optimize.compact()
    table.create_checkpoint()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def _rewritten(table: DeltaTable) -> None:
    """Rewrites every file with the same values."""
    table.update({"amount": "amount"})


@pytest.mark.parametrize("maintained", [_compacted, _ordered, _vacuumed, _rewritten])
def test_maintenance_is_not_found(scene: Scene, maintained: Callable[[DeltaTable], None]) -> None:
    """Compaction, z-order, vacuum and rewriting leave no findings, also for dead letters."""
    for uri in (scene.sink.uri, f"{scene.sink.uri}_dead"):
        if uri == scene.sink.uri or maintained in {_compacted, _vacuumed}:
            maintained(DeltaTable(uri))
    assert scene.verify(deep=True).findings == ()


def test_a_column_that_came_later_is_not_found(scene: Scene) -> None:
    """A nullable column that was added later, also after compaction, leaves no findings."""
    extra = Schema.from_arrow(pa.schema([pa.field("extra", pa.struct([("a", pa.int64())]))]))
    DeltaTable(scene.sink.uri).alter.add_columns(extra.fields)
    assert scene.verify(deep=True).findings == ()
    DeltaTable(scene.sink.uri).optimize.compact()
    assert "extra" in DeltaTable(scene.sink.uri).to_pyarrow_table().column_names
    assert scene.verify(deep=True).findings == ()


def test_no_table(tmp_path: Path) -> None:
    """A pipeline that never ran has no findings."""
    assert Scene.of(tmp_path, []).verify(deep=True) == Verified(0, 0, ())


def test_a_table_without_its_dead_letters(scene: Scene) -> None:
    """A missing table of dead letters is reported for each split."""
    shutil.rmtree(f"{scene.sink.uri}_dead")
    whats = [f.message for f in scene.verify(deep=True).findings]
    assert f"{FIRST_SPLIT}: 0 dead letters read back, 1 committed" in whats


def test_reading_back_is_bounded(tmp_path: Path) -> None:
    """Reading back holds only one batch, limited by rows and by bytes, however large a row
    group is.
    """
    scene = Scene.of(tmp_path, [0])
    n, max_bytes = 200_000, 24 << 20
    rows, rng = DeltaTable(scene.sink.uri).to_pyarrow_table(), np.random.default_rng(1)
    letters = rng.integers(97, 123, n * 200, np.uint8)
    ids = pa.StringArray.from_buffers(
        n, pa.py_buffer(np.arange(n + 1, dtype=np.int32) * 200), pa.py_buffer(letters)
    )
    columns = {"id": ids, "amount": pa.array(rng.integers(0, 2**60, n))}
    table = pa.table(
        {f.name: columns.get(f.name, pa.repeat(rows[f.name][0], n)) for f in rows.schema},
        schema=rows.schema,
    )
    write_deltalake(scene.sink.uri, table, mode="overwrite")
    (file,) = Path(scene.sink.uri).glob("_window=*/*.parquet")
    assert pq.read_metadata(file).row_group(0).total_byte_size > max_bytes
    pool, default = pa.proxy_memory_pool(pa.system_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        batch_lengths = [batch.num_rows for batch in scene.sink.audit().contents(window(0))]
    finally:
        pa.set_memory_pool(default)
    assert (sum(batch_lengths), max(batch_lengths) <= parquet_files.BATCH_ROWS) == (n, True)
    assert pool.max_memory() < max_bytes


ONCE, NONE = Capabilities(delivery="at-least-once"), Capabilities(delivery="none")


@pytest.mark.parametrize(
    ("count", "checksum", "capabilities", "may_lack", "level"),
    [
        (9, "a", Capabilities(), False, ""),
        (9, "b", Capabilities(), False, "wrong"),
        (9, "b", Capabilities(), True, "wrong"),
        (9, "b", NONE, False, "wrong"),
        (8, "b", Capabilities(), False, "wrong"),
        (8, "b", Capabilities(), True, "allowed"),
        (8, "b", ONCE, False, "wrong"),
        (8, "b", NONE, False, "allowed"),
        (18, "b", Capabilities(), True, "wrong"),
        (18, "b", ONCE, False, "allowed"),
    ],
)
def test_what_was_published_and_what_is_there(
    scene: Scene, count: int, checksum: str, capabilities: Capabilities, may_lack: bool, level: str
) -> None:
    """If all messages are there, their checksum must be the noted one.

    Otherwise their number decides, and whether the sink may lose or double messages.
    """
    committed_receipt = next(c.receipt for c in scene.sink.receipts())
    noted = {(s.topic, s.partition, s.start): "a" for s in committed_receipt.splits}
    back = Summed((count, 9), (checksum, "a"), 0)
    problems, allowed = differences(
        committed_receipt, "messages", back, capabilities, noted=noted, may_lack=may_lack
    )
    assert (len(problems), len(allowed)) == (level == "wrong", level == "allowed")
    back = Summed((9, 9), ("a", "a"), 1)
    problems, _ = differences(
        committed_receipt, "messages", back, capabilities, noted=noted, may_lack=may_lack
    )
    assert problems == ["1 message in none of its splits"]
