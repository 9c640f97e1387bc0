"""Verification finds every kind of damage, and nothing in a healthy table."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.admin.things import ANEW, OTHER, Scene
from tests.model.test_plan import PLAN
from tests.model.test_receipt import receipt as receipt_of
from tests.sinks.worlds import world_of
from windrow.ingest.admin.rebuild import rebuild
from windrow.ingest.admin.verify import (
    Verified,
    check_tiling,
    compare_receipts,
    compare_rows,
    find_uncovered,
)
from windrow.ingest.admin.verify_ledger import LedgerEntries, compare_ledger
from windrow.ingest.admin.verify_topics import compare_topic
from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.ledger.entries import IDENTITY, ITSELF, ONLY, RECEIPT
from windrow.ingest.ledger.sql import SqlLedger
from windrow.ingest.model.boundary import Boundary, Mark, TopicSeen
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Counts, Receipt
from windrow.ingest.model.tiling import difference, stop_start_difference
from windrow.ingest.ports.sink import Maintenance, RowsHeld
from windrow.ingest.testing.contracts.windows import TOPIC, plan, plan_of, receipt, stage, window


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A scene with three hours in a row."""
    return Scene.of(tmp_path, [0, 1, 2])


def wrong_findings(verified: Verified) -> list[tuple[str, str | None, str]]:
    """Returns (about, window, message) of all findings that are not mere information."""
    return [(f.about, f.window, f.message) for f in verified.findings if f.level != "info"]


def test_healthy(scene: Scene) -> None:
    """A healthy pipeline has no findings."""
    verified = scene.verify()
    assert (verified.windows, verified.rows, verified.findings, verified.exit_code) == (
        3,
        54,
        (),
        0,
    )


def test_healthy_after_replacing_and_compacting(scene: Scene) -> None:
    """A table with a replaced window, after compaction, has no findings."""
    scene.commit(1, generation=1)
    DeltaTable(scene.sink.uri).optimize.compact()
    assert scene.verify().findings == ()


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("kind", ["delta", "delta-keyed"])
def test_what_is_committed_meanwhile_is_not_wrong(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, deep: bool
) -> None:
    """A new window, a replay, and rows that expire while the table is compared leave exactly what
    couldn't be compared, and what is wrong with other windows.
    """
    world = world_of(kind)
    sink = world.sink_at(world.new_location(tmp_path, None))
    scene = Scene.of(tmp_path, [0, 1, 2, 3], sink=sink)
    damaged = kind == "delta"
    wrong = {window(3).key} if damaged else set[str]()
    if damaged:
        DeltaTable(sink.uri).delete(f"_window = '{window(3).key}' AND _offset = 30")
    read, turns = SqlLedger.recorded_receipts, [1]

    def meanwhile(ledger: SqlLedger, *arguments: Any) -> list[Receipt]:
        if turns:
            turns.pop()
            scene.commit(4)
            scene.commit(1, generation=1)
            age = datetime.now(UTC) - window(0).end
            sink.maintain(Maintenance(timedelta(days=1), keep_rows=age if damaged else None))
        return read(ledger, *arguments)

    monkeypatch.setattr(SqlLedger, "recorded_receipts", meanwhile)
    found = scene.verify(deep=deep).findings
    assert {f.window for f in found if f.level == "wrong"} == wrong
    unchecked = {window(1).key, window(4).key, window(0).key if damaged else None}
    assert {f.window for f in found if f.level == "unchecked"} == unchecked
    assert {f.level for f in scene.verify(deep=deep).findings} <= {"wrong", "info"}


def test_a_store_that_is_away_is_asked_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that doesn't answer for one window isn't asked for the next one.

    Each question would wait as long.
    """
    asked_windows: list[str] = []

    def count(window: Window, attempt: str) -> int:
        asked_windows.append(window.key)
        raise UnreachableError("the store is away", "verify", "Wait.")

    monkeypatch.setattr(scene.sink.dead_letters, "count", count)
    assert [(f.level, f.about) for f in scene.verify().findings] == [("unchecked", "table")]
    assert len(asked_windows) == 1


def test_no_table(tmp_path: Path) -> None:
    """A pipeline that never ran has no windows and no findings."""
    scene = Scene.of(tmp_path, [])
    assert scene.verify() == Verified(0, 0, ())


def test_gap_is_information(tmp_path: Path) -> None:
    """Windows that were not run are reported as information."""
    verified = Scene.of(tmp_path, [0, 3]).verify()
    assert [(f.level, f.about, f.message) for f in verified.findings] == [
        ("info", "windows", "not committed: 2026-01-02T01:00:00Z / 2026-01-02T03:00:00Z")
    ]
    assert verified.exit_code == 0


def test_a_gap_beside_an_unreadable_receipt_is_a_gap(tmp_path: Path) -> None:
    """A gap that is the window of an unreadable receipt isn't reported; other gaps are."""
    scene = Scene.of(tmp_path, [0, 2, 4])
    receipts = sorted((c.receipt for c in scene.sink.receipts()), key=lambda r: r.window)
    assert [f.message for f in check_tiling(receipts, {window(1).key})] == [
        f"not committed: {window(3).key} / {window(4).key}"
    ]
    assert len(check_tiling(receipts)) == 2


def test_lost_rows(scene: Scene) -> None:
    """Rows that another program deleted are found, with window and topic-partition."""
    DeltaTable(scene.sink.uri).delete(
        "_window = '2026-01-02T01:00:00Z' AND _partition = 1 AND _offset = 12"
    )
    assert wrong_findings(scene.verify()) == [
        ("table", window(1).key, "shop.orders[1]: 8 rows in the table, 9 in the receipt")
    ]


def _append(scene: Scene, change: Callable[[pa.Table], pa.Table]) -> None:
    rows = DeltaTable(scene.sink.uri).to_pyarrow_table(filters=[("_window", "=", window(1).key)])
    row = rows.filter(pa.compute.equal(rows["_partition"], 0)).slice(0, 1)
    write_deltalake(scene.sink.uri, change(row), mode="append")


def test_duplicated_rows(scene: Scene) -> None:
    """A row that is there twice is found, even if the number of rows is right."""
    _append(scene, lambda row: row)
    DeltaTable(scene.sink.uri).delete(
        "_window = '2026-01-02T01:00:00Z' AND _partition = 0 AND _offset = 15"
    )
    assert wrong_findings(scene.verify()) == [
        ("table", window(1).key, "shop.orders[0]: 1 row with the offset of another row")
    ]


def test_row_of_another_window(scene: Scene) -> None:
    """A row with an offset outside the window's range is found."""
    _append(
        scene,
        lambda row: row.set_column(
            row.schema.get_field_index("_offset"), "_offset", pa.array([99], pa.int64())
        ),
    )
    messages = [message for _, _, message in wrong_findings(scene.verify())]
    assert messages == [
        "shop.orders[0]: 10 rows in the table, 9 in the receipt",
        "shop.orders[0]: offsets 10 to 99 lie outside the receipt's range",
    ]


def test_foreign_window(scene: Scene) -> None:
    """Rows under a window without a receipt are found."""
    key = pa.array(["2026-01-05T00:00:00Z"], pa.string())
    _append(
        scene, lambda row: row.set_column(row.schema.get_field_index("_window"), "_window", key)
    )
    assert scene.verify().exit_code == 1
    assert "2026-01-05T00:00:00Z" in str(wrong_findings(scene.verify()))


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"PAR1 no more")])
def test_lost_data_files(scene: Scene, damage: Callable[[Path], None]) -> None:
    """Data files that are missing or not Parquet are reported with their windows.

    The advice says how to get the rows back, and a replay does.
    """
    files = sorted(Path(scene.sink.uri).glob("data/*/*.parquet"))
    for file in (files[0], files[-1]):
        damage(file)
    verified = scene.verify()
    assert [(f.level, f.about, f.window) for f in verified.findings] == [
        ("wrong", "table", window(n).key) for n in (0, 2)
    ]
    assert all(
        file.name in f.message
        for file, f in zip((files[0], files[-1]), verified.findings, strict=True)
    )
    assert all("windrow replay SPEC" in f.advice for f in verified.findings)
    assert verified.exit_code == 1
    for n in (0, 2):
        scene.commit(n, generation=1)
    assert scene.verify().findings == ()


def test_lost_dead_letters(scene: Scene) -> None:
    """Missing and additional dead letters are found, with their windows.

    If their whole table is missing, each window is reported.
    """
    dead = f"{scene.sink.uri}_dead"
    letters = DeltaTable(dead).to_pyarrow_table(filters=[("_window", "=", window(2).key)])
    write_deltalake(dead, letters.slice(0, 1), mode="append")
    DeltaTable(dead).delete("_window = '2026-01-02T01:00:00Z' AND _partition = 1")
    assert wrong_findings(scene.verify()) == [
        ("table", window(1).key, "1 dead letter in their table, 2 in the receipt"),
        ("table", window(2).key, "3 dead letters in their table, 2 in the receipt"),
    ]
    shutil.rmtree(dead)
    assert [where for _, where, _ in wrong_findings(scene.verify())] == [
        window(n).key for n in range(3)
    ]
    assert scene.verify().exit_code == 1


def test_dead_letters_of_other_attempts_do_not_count(scene: Scene) -> None:
    """Dead letters of a replaced generation, or of an attempt without a commit, don't count."""
    scene.commit(1, generation=1)
    died = plan(scene.sink, 2)
    scene.sink.commit_dead(died, "died", stage(scene.sink, died, 0, "died"))
    assert scene.verify().findings == ()


def test_missing_dead_file(scene: Scene) -> None:
    """A missing file of dead letters is found, and other windows are still verified."""
    min(Path(f"{scene.sink.uri}_dead").rglob("*.parquet")).unlink()
    DeltaTable(f"{scene.sink.uri}_dead").delete("_window = '2026-01-02T02:00:00Z'")
    assert [(level, about) for level, about, _ in levels(scene.verify())] == [
        ("wrong", "table")
    ] * 2


def levels(verified: Verified) -> list[tuple[str, str, str | None]]:
    """Returns (level, about, window) of all findings."""
    return [(f.level, f.about, f.window) for f in verified.findings]


@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda file: file.write_bytes(file.read_bytes().replace(b"10", b"11"))]
)
def test_unreadable_receipts(scene: Scene, damage: Callable[[Path], None]) -> None:
    """Receipts that are missing or damaged are reported with advice; other windows are verified."""
    for n in (0, 1):
        damage(receipt_file(scene, n))
    DeltaTable(scene.sink.uri).delete(
        "_window = '2026-01-02T02:00:00Z' AND _partition = 1 AND _offset = 22"
    )
    verified = scene.verify()
    assert levels(verified) == [
        ("wrong", about, window(n).key)
        for n, about in ((0, "receipts"), (1, "receipts"), (2, "table"))
    ]
    assert all("windrow verify SPEC --restore-receipts" in f.advice for f in verified.findings[:2])
    assert (verified.windows, verified.exit_code) == (1, 1)


def test_the_receipt_of_a_window_without_rows_is_missed(scene: Scene) -> None:
    """The missing receipt of a window without rows is found through the table's log."""
    empty = scene.commit_plan(plan_of(scene.sink, window(3), (30, 30)))
    receipt_file(scene, 3).unlink()
    assert levels(scene.verify()) == [("wrong", "receipts", empty.window.key)]
    with pytest.raises(RefusedError, match=empty.window.key):
        list(scene.sink.receipts())


def test_unreadable_batches_are_no_gap(tmp_path: Path) -> None:
    """A micro-batch with a damaged receipt was committed, so it is not reported as a gap, too."""
    scene = Scene.of(tmp_path, [0, 1, 2], grid="batch")
    receipt_file(scene, 0, "batch-000000000").unlink()
    receipt_file(scene, 1, "batch-000000001").unlink()
    assert levels(scene.verify()) == [("wrong", "receipts", f"batch-00000000{n}") for n in (0, 1)]


def test_a_table_that_is_gone(scene: Scene) -> None:
    """A missing table, such as an unmounted disk, is one finding, not one for each window."""
    Path(scene.sink.uri).rename(scene.folder / "unmounted")
    (finding,) = scene.verify().findings
    assert (finding.level, finding.about) == ("wrong", "table")
    assert "the ledger knows 3 committed windows of it" in finding.message


def test_a_ledger_of_another_table(scene: Scene) -> None:
    """If the ledger names another table than the spec, that is a finding."""
    identity = scene.sink.identity
    scene.ledger.rebind("orders", "delta:/elsewhere", None, [])
    assert [message for _, _, message in wrong_findings(scene.verify())] == [
        f"by the ledger, the pipeline writes to delta:/elsewhere; by the spec, to {identity}"
    ]


def test_a_copy_that_differs(scene: Scene) -> None:
    """A copy in the ledger from another attempt, or a newer generation, is wrong.

    A rebuild replaces it by the table's receipt.
    """
    committed_receipt = scene.commit(3)
    for copy in (
        msgspec.structs.replace(committed_receipt, attempt="lost"),
        msgspec.structs.replace(committed_receipt, generation=1),
    ):
        scene.ledger.record(copy)
        assert [(about, where) for about, where, _ in wrong_findings(scene.verify())] == [
            ("ledger", window(3).key)
        ]
        rebuild("orders", scene.sink, scene.ledger)
        assert scene.verify().findings == ()


def test_a_window_run_again_after_its_table_was_lost(scene: Scene) -> None:
    """If a table was lost and its window was run again, the ledger gets the new receipt.

    If the new generation is older, verification advises a rebuild, which records it.
    """
    scene.commit(0, generation=1)
    shutil.rmtree(scene.sink.uri)
    scene.sink.prepare(TableOwner("orders", scene.ledger.identity(), "hourly"))
    for n in range(3):
        planned = scene.ledger.plan(window(n))
        assert planned is not None
        staged = stage(scene.sink, planned, 0, "again")
        new_receipt = receipt(planned, staged, 0, "again", ledger=scene.ledger.identity())
        scene.sink.commit_dead(planned, "again", staged)
        scene.sink.commit(new_receipt, staged)
        scene.ledger.record(new_receipt)
    assert [(f.window, "--rebuild-ledger" in f.advice) for f in scene.verify().findings] == [
        (window(0).key, True)
    ]
    rebuild("orders", scene.sink, scene.ledger)
    assert scene.verify().findings == ()


def receipt_file(scene: Scene, number: int, key: str | None = None) -> Path:
    """Returns the file of the n-th window's receipt."""
    (file,) = (Path(scene.sink.uri) / "_windrow" / "receipts").glob(
        f"{(key or window(number).key).replace(':', '_')}.*.json"
    )
    return file


def test_lost_ledger(scene: Scene) -> None:
    """An empty ledger lacks everything, and the advice names the rebuild."""
    scene.lose_ledger()
    verified = scene.verify()
    assert {f.about for f in verified.findings} == {"ledger"}
    assert all("--rebuild-ledger" in f.advice for f in verified.findings)
    assert verified.exit_code == 1


def test_verification_makes_no_ledger(scene: Scene) -> None:
    """Verification doesn't make a ledger if its file is missing."""
    scene.lose_ledger()
    files_before = sorted(scene.folder.rglob("*"))
    assert scene.verify().exit_code == 1
    assert sorted(scene.folder.rglob("*")) == files_before


def test_another_ledger(scene: Scene) -> None:
    """A ledger with another identity is reported."""
    with scene.ledger.writing(ITSELF) as entries:
        entries.put(IDENTITY, ONLY, "another")
    assert {f.message.rpartition(" ")[2] for f in scene.verify().findings} == {"another"}


def test_ledger_that_knows_more(scene: Scene) -> None:
    """A receipt that only the ledger has means that the table lost a commit."""
    committed_receipt = next(c.receipt for c in scene.sink.receipts())
    later = msgspec.structs.replace(committed_receipt.plan, window=window(7))
    scene.ledger.record(msgspec.structs.replace(committed_receipt, plan=later, digest=later.digest))
    assert wrong_findings(scene.verify()) == [
        ("ledger", window(7).key, "the ledger knows a receipt that the table doesn't hold")
    ]


def test_copy_missing(scene: Scene) -> None:
    """A copy that is missing in the ledger is information.

    A run that died between commit and report leaves such a ledger.
    """
    with scene.ledger.writing("orders") as entries:
        for ledger_receipt in entries.highest(RECEIPT):
            entries.remove(RECEIPT, ledger_receipt.window)
    verified = scene.verify()
    assert {f.level for f in verified.findings} == {"info"}
    assert len(verified.findings) == 3


def test_other_boundary(scene: Scene) -> None:
    """A boundary that differs in the ledger is reported with both offsets."""
    committed_receipt = next(c.receipt for c in scene.sink.receipts())
    moved = Boundary.of(
        committed_receipt.plan.stop.label,
        "cluster",
        [TOPIC],
        [Mark(TOPIC.topic, 0, 11, "settled"), Mark(TOPIC.topic, 1, 10, "settled")],
    )
    findings = compare_ledger(
        committed_receipt,
        LedgerEntries(
            committed_receipt.plan.start, moved, committed_receipt.plan, committed_receipt
        ),
        committed_receipt.ledger,
    )
    assert [f.message for f in findings] == [
        "the boundary at its end differs in the ledger: shop.orders[0] at 11 and 10"
    ]


def test_how_a_cut_was_found_is_no_difference() -> None:
    """Boundaries with the same offsets are equal, whatever the origin of their marks.

    Partitions that were added later and have offset 0 don't count.
    """
    label = window(0).start
    narrow = Boundary.of(
        label,
        "cluster",
        [TopicSeen(TOPIC.topic, TOPIC.topic_id, 1)],
        [Mark(TOPIC.topic, 0, 5, "settled")],
    )
    wide = Boundary.of(
        label,
        "cluster",
        [TOPIC],
        [Mark(TOPIC.topic, 0, 5, "clamped"), Mark(TOPIC.topic, 1, 0, "clamped")],
    )
    assert not difference(narrow, wide)
    begun = Boundary.of(
        label, "cluster", [TOPIC], wide.marks, [Mark(TOPIC.topic, 0, 2, "position")]
    )
    assert not difference(wide, begun)


def test_topic_recreated(scene: Scene) -> None:
    """A topic with another id, or another cluster, is reported."""
    scene.broker.topic_id = "another"
    assert {message for _, _, message in wrong_findings(scene.verify())} == {
        "topic shop.orders was deleted and made again"
    }
    scene.broker.cluster = "elsewhere"
    assert {message for _, _, message in wrong_findings(scene.verify())} == {
        "committed from cluster cluster, this is elsewhere"
    }


def test_expired_is_information(scene: Scene) -> None:
    """Expired messages of a committed window are information: the window can't be replayed."""
    scene.broker.start = 15
    verified = scene.verify()
    assert [f.message for f in verified.findings] == [
        "2 of 3 windows can't be replayed: the topic doesn't hold their start any more"
    ]
    assert verified.exit_code == 0


def test_cluster_down(scene: Scene) -> None:
    """If the cluster doesn't answer, the rest is verified, and the exit code is 3."""
    scene.broker.down = True
    verified = scene.verify()
    assert [(f.level, f.about) for f in verified.findings] == [("unchecked", "topic")]
    assert verified.exit_code == 3


def test_rows_may_be_more_or_fewer_than_messages(scene: Scene) -> None:
    """If messages became several rows, rows and messages are counted separately.

    A missing row and a missing message are two different findings.
    """
    committed_receipt = next(c.receipt for c in scene.sink.receipts())
    splits = (
        msgspec.structs.replace(committed_receipt.splits[0], rows=20, rows_staged=20),
        *committed_receipt.splits[1:],
    )
    several = msgspec.structs.replace(committed_receipt, splits=splits)
    other_rows = RowsHeld(TOPIC.topic, 1, 9, 9, 0, 9)
    assert compare_rows(several, [RowsHeld(TOPIC.topic, 0, 20, 9, 0, 9), other_rows]) == []
    for rows_held, says in (
        (
            RowsHeld(TOPIC.topic, 0, 19, 9, 0, 9),
            "shop.orders[0]: 19 rows in the table, 20 in the receipt",
        ),
        (
            RowsHeld(TOPIC.topic, 0, 20, 8, 0, 9),
            "shop.orders[0]: rows of 8 messages in the table, of 9 in the receipt",
        ),
    ):
        assert [f.message for f in compare_rows(several, [rows_held, other_rows])] == [says]
    assert [
        f.message
        for f in compare_rows(committed_receipt, [RowsHeld(TOPIC.topic, 0, 9, 8, 0, 9), other_rows])
    ] == ["shop.orders[0]: 1 row with the offset of another row"]


def test_rows_that_later_ones_replaced_may_be_gone(scene: Scene) -> None:
    """If the table may lack replaced rows, fewer rows are information.

    Doubled rows and too many rows are still wrong.
    """
    committed_receipt = next(c.receipt for c in scene.sink.receipts())
    other_rows = RowsHeld(TOPIC.topic, 1, 9, 9, 0, 9)
    for rows_held, level in (
        (RowsHeld(TOPIC.topic, 0, 5, 5, 1, 9), "info"),
        (RowsHeld(TOPIC.topic, 0, 9, 8, 0, 9), "wrong"),
    ):
        assert {f.level for f in compare_rows(committed_receipt, [rows_held, other_rows])} == {
            "wrong"
        }
        assert {
            f.level
            for f in compare_rows(committed_receipt, [rows_held, other_rows], may_lack="compacted")
        } == {level}
    assert {
        f.level for f in compare_rows(committed_receipt, [other_rows], may_lack="compacted")
    } == {"info"}
    assert {
        f.level
        for f in compare_rows(
            committed_receipt,
            [RowsHeld(TOPIC.topic, 0, 10, 9, 0, 9), other_rows],
            may_lack="compacted",
        )
    } == {"wrong"}


def test_filtered_messages_add_up(scene: Scene) -> None:
    """Filtered messages are part of the messages read, and a wrong sum is found."""
    committed_receipt = next(c.receipt for c in scene.sink.receipts())
    fewer = msgspec.structs.replace(
        committed_receipt,
        counts=msgspec.structs.replace(committed_receipt.counts, valid=15, rows=15, filtered=3),
    )
    assert compare_receipts([fewer]) == []
    lying = msgspec.structs.replace(
        committed_receipt, counts=msgspec.structs.replace(committed_receipt.counts, filtered=1)
    )
    assert [f.message for f in compare_receipts([lying])] == [
        "20 messages read, but 18 valid + 2 dead + 0 dropped + 1 filtered"
    ]


def test_a_row_at_the_very_end_of_the_range(scene: Scene) -> None:
    """The stop is the first offset after the window: a row with that offset is found."""
    committed_receipt = next(c.receipt for c in scene.sink.receipts())
    inside, beyond = RowsHeld(TOPIC.topic, 0, 9, 9, 0, 9), RowsHeld(TOPIC.topic, 0, 9, 9, 1, 10)
    other_rows = RowsHeld(TOPIC.topic, 1, 9, 9, 0, 9)
    assert compare_rows(committed_receipt, [inside, other_rows]) == []
    assert [f.message for f in compare_rows(committed_receipt, [beyond, other_rows])] == [
        "shop.orders[0]: offsets 1 to 10 lie outside the receipt's range"
    ]


def test_overlap_and_tiling(scene: Scene) -> None:
    """An offset in two windows, and neighbours that don't meet, are found by the receipts alone."""
    first, second, _ = sorted((c.receipt for c in scene.sink.receipts()), key=lambda r: r.window)
    low = Boundary.of(
        second.plan.start.label,
        "cluster",
        [TOPIC],
        [Mark(TOPIC.topic, p, 9, "settled") for p in (0, 1)],
    )
    splits = tuple(msgspec.structs.replace(s, start=9) for s in second.plan.splits)
    early = msgspec.structs.replace(second.plan, start=low, splits=splits)
    moved = msgspec.structs.replace(second, plan=early, digest=early.digest)
    assert "offset 9 of partition 0 of topic topic-id-1 is in two windows" in str(
        compare_receipts([first, moved])
    )
    assert "is not the start of the next: shop.orders[0] at 10 and 9" in str(
        check_tiling([first, moved])
    )


def test_receipt_that_does_not_add_up(scene: Scene) -> None:
    """A receipt whose own numbers disagree is found."""
    committed_receipt = next(c.receipt for c in scene.sink.receipts())
    lying = msgspec.structs.replace(
        committed_receipt,
        counts=msgspec.structs.replace(committed_receipt.counts, read=19),
        splits=(),
    )
    assert [f.message for f in compare_receipts([lying])] == [
        "19 messages read, but 18 valid + 2 dead + 0 dropped",
        "19 read + 0 invisible + 0 skipped are not the 20 offsets of the plan",
        "its splits are not those of its plan",
    ]


def test_rows_of_an_unplanned_partition(scene: Scene) -> None:
    """Rows of a topic-partition that the window didn't read are found."""
    committed_receipt = next(c.receipt for c in scene.sink.receipts())
    good = [RowsHeld(TOPIC.topic, p, 9, 9, 0, 9) for p in (0, 1)]
    assert compare_rows(committed_receipt, good) == []
    assert [
        f.message
        for f in compare_rows(committed_receipt, [*good, RowsHeld("other", 0, 1, 1, 5, 5)])
    ] == ["other[0]: 1 row in the table, 0 in the receipt"]


def test_a_replaced_topic_is_a_seam(scene: Scene) -> None:
    """A rebase between two windows is information, and earlier windows can't be replayed."""
    scene.commit_plan(plan_of(scene.sink, window(3), (0, 10), [ANEW]))
    scene.broker.topic_id = ANEW.topic_id
    verified = scene.verify()
    assert [(f.level, f.about, f.message) for f in verified.findings] == [
        ("info", "windows", "the source was replaced at 2026-01-02T03:00:00Z (rebase)"),
        (
            "info",
            "topic",
            "3 of 4 windows can't be replayed: their source was replaced, or is gone and not read",
        ),
    ]


def test_a_rebase_without_a_window_yet(scene: Scene) -> None:
    """A rebase that is only in the ledger makes the new topic right."""
    scene.broker.topic_id = ANEW.topic_id
    assert scene.verify().exit_code == 1
    scene.ledger.rebase("orders", plan_of(scene.sink, window(3), (0, 10), [ANEW]).start)
    assert [f.message for f in scene.verify().findings] == [
        "3 of 3 windows can't be replayed: their source was replaced, or is gone and not read"
    ]


def test_what_a_rebase_does_not_explain_is_torn() -> None:
    """A rebase changes the offsets of replaced topics only; other differences are found.

    Offsets of another cluster are not compared, and a topic may be left out.
    """
    label = window(0).start

    def cut(topics: list[TopicSeen], *offsets: int, cluster: str = "cluster") -> Boundary:
        return Boundary.of(
            label,
            cluster,
            topics,
            [Mark(t.topic, 0, o, "settled") for t, o in zip(topics, offsets, strict=True)],
        )

    stop = cut([TOPIC, OTHER], 10, 20)
    assert not stop_start_difference(stop, stop)
    assert not stop_start_difference(stop, cut([ANEW, OTHER], 0, 20))
    assert not stop_start_difference(stop, cut([OTHER], 20))
    assert not stop_start_difference(stop, cut([TOPIC, OTHER], 1, 2, cluster="other"))
    assert stop_start_difference(stop, cut([ANEW, OTHER], 0, 21)) == "shop.returns[0] at 20 and 21"
    assert (
        stop_start_difference(stop, cut([TOPIC, OTHER], 10, 19)) == "shop.returns[0] at 20 and 19"
    )


def test_batches_come_one_after_the_other(tmp_path: Path) -> None:
    """Micro-batches are verified like windows, but a missing one is wrong."""
    scene = Scene.of(tmp_path, [0, 1, 2], grid="batch")
    assert scene.verify().findings == ()
    receipts = sorted((c.receipt for c in scene.sink.receipts()), key=lambda r: r.window)
    assert [(f.level, f.message) for f in check_tiling(receipts[1:])] == [
        ("wrong", "not committed: batch-000000000 / batch-000000001")
    ]
    assert [(f.level, f.message) for f in check_tiling(receipts[::2])] == [
        ("wrong", "not committed: batch-000000001 / batch-000000002")
    ]


def test_partial_windows_are_told(scene: Scene) -> None:
    """A partial window is reported as information, in the words of its receipt."""
    committed_receipt = next(c.receipt for c in scene.sink.receipts())
    split = msgspec.structs.replace(
        committed_receipt.splits[0], read=6, bytes=12, valid=5, rows=5, rows_staged=5, skipped=4
    )
    splits = (split, *committed_receipt.splits[1:])
    partial_receipt = msgspec.structs.replace(
        committed_receipt,
        splits=splits,
        counts=Counts.total(splits),
        partial=("4 offsets were gone",),
    )
    assert [(f.level, f.message, f.window) for f in compare_receipts([partial_receipt])] == [
        ("info", "the window is partial: 4 offsets were gone", committed_receipt.window.key)
    ]


def test_a_plan_covers_what_lies_between_its_boundaries(scene: Scene) -> None:
    """A plan's splits must be exactly the offsets between its boundaries.

    A gap, an overlap and an unknown topic-partition are found. A new topic begins at its start
    mark.
    """
    planned = plan(scene.sink, 1)
    first, *rest = planned.splits
    halves = (msgspec.structs.replace(first, stop=13), msgspec.structs.replace(first, start=13))
    assert find_uncovered(msgspec.structs.replace(planned, splits=(*halves, *rest))) == []
    torn_apart = "the splits of shop.orders[0] are not the offsets 10 to 20 between its boundaries"
    assert find_uncovered(msgspec.structs.replace(planned, splits=(*halves[:1], *rest))) == [
        torn_apart
    ]
    assert find_uncovered(msgspec.structs.replace(planned, splits=(first, *halves, *rest))) == [
        torn_apart
    ]
    strange = msgspec.structs.replace(first, topic="other")
    assert find_uncovered(msgspec.structs.replace(planned, splits=(*planned.splits, strange))) == [
        "other[0] is read, and is missing in its boundary"
    ]
    new = Mark(OTHER.topic, 0, 30, "settled")
    stop = Boundary.of(
        planned.stop.label,
        "cluster",
        [TOPIC, OTHER],
        [*planned.stop.marks, new],
        [Mark(OTHER.topic, 0, 25, "position")],
    )
    begun = msgspec.structs.replace(first, topic=OTHER.topic, start=25, stop=30)
    assert (
        find_uncovered(msgspec.structs.replace(planned, stop=stop, splits=(*planned.splits, begun)))
        == []
    )


def test_a_topic_that_is_gone(scene: Scene) -> None:
    """A deleted topic is wrong while the pipeline reads it, and information afterwards."""
    scene.broker.is_deleted = True
    assert {message for _, _, message in wrong_findings(scene.verify())} == {
        "topic shop.orders was deleted"
    }
    last = plan_of(scene.sink, window(3), (30, 30))
    ends = [
        msgspec.structs.replace(
            b, marks=tuple(msgspec.structs.replace(m, origin="removed") for m in b.marks)
        )
        for b in (last.start, last.stop)
    ]
    scene.commit_plan(msgspec.structs.replace(last, start=ends[0], stop=ends[1]))
    assert [(f.level, f.message) for f in scene.verify().findings] == [
        (
            "info",
            "3 of 4 windows can't be replayed: their source was replaced, or is gone and not read",
        )
    ]


def test_several_topics_are_asked_about(scene: Scene) -> None:
    """All topics are asked for, also one that only an older window read."""
    old_plan = plan_of(scene.sink, window(0), (0, 10), [OTHER])
    older = receipt(old_plan, stage(scene.sink, old_plan, 0, "a0"), 0, "a0")
    current = plan(scene.sink, 2).stop
    both = Boundary.of(
        current.label,
        "cluster",
        [*current.topics, OTHER],
        [*current.marks, Mark(OTHER.topic, 0, 10, "settled")],
    )
    topics = scene.broker.topics([TOPIC.topic, OTHER.topic])
    findings = compare_topic([older], both, "cluster", topics, {})
    assert [(f.level, f.message) for f in findings] == [("wrong", "topic shop.returns was deleted")]


def test_a_log_that_ends_below_the_newest_boundary(scene: Scene) -> None:
    """A log that ends below the newest boundary is wrong, with advice.

    The cluster is asked several times. After the topic or the cluster changed, ends aren't
    compared.
    """
    waited: list[float] = []
    tp = scene.ledger.newest("orders")[0].marks[1].tp
    scene.broker.end_of = {tp: 30}
    assert scene.verify().findings == ()
    scene.broker.end_of = {tp: 29}
    (finding,) = scene.verify(sleep=waited.append).findings
    assert (finding.level, finding.about, len(waited)) == ("wrong", "topic", 2)
    assert (
        finding.message
        == f"{tp}: the log ends at offset 29 now, below 30, which it had reached when"
        " 2026-01-02T03:00:00Z was frozen"
    )
    assert "source.on_loss: skip" in finding.advice
    scene.broker.topic_id = "another"
    assert "ends at" not in str(wrong_findings(scene.verify()))
    scene.broker.topic_id, scene.broker.cluster = TOPIC.topic_id, "another"
    assert "ends at" not in str(wrong_findings(scene.verify()))


def test_an_end_that_is_too_small_for_a_moment(scene: Scene) -> None:
    """An end that is too small only once is no finding; a new leader may report one."""
    scene.broker.end_of = dict.fromkeys((m.tp for m in scene.ledger.newest("orders")[0].marks), 0)
    assert scene.verify(sleep=lambda _: scene.broker.end_of.clear()).findings == ()


def test_renamed_columns(tmp_path: Path) -> None:
    """Rows are counted by the table's own names of the metadata columns."""
    names = {name: f"kafka-{name}" for name in DEFAULT}
    scene = Scene.of(tmp_path, [0, 1], metadata=names)
    assert scene.verify().findings == ()
    DeltaTable(scene.sink.uri).delete('"kafka-partition" = 1 AND "kafka-offset" = 12')
    assert wrong_findings(scene.verify()) == [
        ("table", window(1).key, "shop.orders[1]: 8 rows in the table, 9 in the receipt")
    ]


MADE = msgspec.structs.replace(receipt_of(PLAN.digest), generation=1)


@pytest.mark.parametrize(
    ("copy", "level", "expected_message"),
    [
        (None, "info", "the ledger's copy of the receipt is missing or older"),
        (
            msgspec.structs.replace(MADE, generation=0),
            "info",
            "the ledger's copy of the receipt is missing or older",
        ),
        (
            msgspec.structs.replace(MADE, generation=2),
            "wrong",
            "the ledger's copy of the receipt is newer",
        ),
        (
            msgspec.structs.replace(MADE, attempt="b"),
            "wrong",
            "the ledger's copy of the receipt differs",
        ),
    ],
)
def test_a_copy_that_is_not_the_tables(copy: object, level: str, expected_message: str) -> None:
    """An older copy in the ledger is information: a run died after its commit.

    A newer copy is wrong: its commit is missing in the table.
    """
    findings = compare_ledger(MADE, LedgerEntries(PLAN.start, PLAN.stop, PLAN, copy), MADE.ledger)  # type: ignore[arg-type]
    assert [(f.level, f.message) for f in findings] == [(level, expected_message)]
    assert compare_ledger(MADE, LedgerEntries(PLAN.start, PLAN.stop, PLAN, MADE), MADE.ledger) == []
