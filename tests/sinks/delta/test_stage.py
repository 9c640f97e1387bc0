"""Staging files of a Delta table: unique names, bounded memory, right counts, nothing visible,
and no row that the table can't hold.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sinks.delta.pieces import staged_paths
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.crashpoints import CrashError
from windrow.ingest.errors import BugError
from windrow.ingest.model.receipt import Staged, Staging
from windrow.ingest.sinks.kit.files import file_stager
from windrow.ingest.sinks.kit.files.file_stager import FileStager
from windrow.ingest.testing.contracts.windows import ROWS, messages, plan, stage_split

ODD_ATTEMPTS = ["a/b", "../up", "a b", "ä%20", "x" * 300, ""]


@pytest.fixture
def sink(tmp_path: Path) -> DeltaBoth:
    """A prepared sink."""
    sink = DeltaBoth(str(tmp_path / "orders"), ROWS)
    sink.prepare()
    return sink


def stager(sink: DeltaBoth, attempt: str = "a1") -> FileStager[Any]:
    """Returns a stager of window 0's first split."""
    planned = plan(sink, 0)
    return sink.stager(planned, 0, attempt)(planned.splits[0])


def staged_split(sink: DeltaBoth, attempt: str = "a1") -> Staged:
    """Stages rows and dead letters of window 0's first split."""
    planned = plan(sink, 0)
    split = planned.splits[0]
    return stage_split(
        sink.stager(planned, 0, attempt)(split),
        sink.dead_letters.stager(planned, 0, attempt)(split),
        split,
        dead=True,
    )


@pytest.mark.parametrize("attempt", ODD_ATTEMPTS)
def test_names_are_unique_and_need_no_escaping(sink: DeltaBoth, attempt: str) -> None:
    """Each attempt, even with the same name, writes new files with plain names into the
    window's folder.
    """
    words = [staged_split(sink, attempt) for _ in range(2)]
    paths = [json.loads(w)["path"] for s in words for w in s.rows]
    assert len(set(paths)) == 2
    folder = "data/_window=2026-01-02T00%3A00%3A00Z"
    assert all(re.fullmatch(rf"{folder}/[A-Za-z0-9_-]+\.parquet", p) for p in paths)
    assert {p.relative_to(sink.uri).as_posix() for p in staged_paths(sink.uri)} == set(paths)


def test_the_words_say_what_was_written(sink: DeltaBoth) -> None:
    """A committable has the path, size, rows and statistics of its file."""
    staged = staged_split(sink)
    (word,) = map(json.loads, staged.rows)
    file = Path(sink.uri) / word["path"]
    assert (word["size"], word["rows"]) == (file.stat().st_size, 9)
    stats = json.loads(word["stats"])
    assert stats["numRecords"] == pq.read_metadata(file).num_rows == 9
    assert (
        stats["minValues"]["_offset"],
        stats["maxValues"]["_offset"],
        stats["nullCount"]["_timestamp"],
    ) == (0, 9, 3)
    assert stats["maxValues"]["_timestamp"] == "2026-01-02T00:00:00.008000Z"
    assert (staged.counts.rows_staged, staged.counts.dead_staged) == (9, 1)


def test_a_split_without_rows_leaves_no_file(sink: DeltaBoth) -> None:
    """A split without rows, or with empty batches only, stages no file."""
    split_stager = stager(sink)
    none = messages(plan(sink, 0).splits[0]).slice(0, 0)
    split_stager.add(pa.record_batch([pa.array([], f.type) for f in ROWS], schema=ROWS), none)
    assert split_stager.finish() == Staging()
    assert staged_paths(sink.uri) == set()


def test_row_groups_are_bounded(sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches are collected into row groups, limited by rows and by bytes.

    A stager holds one row group in memory.
    """
    batch = messages(plan(sink, 0).splits[0])
    columns = pa.record_batch(
        [pa.array([f"{i}" for i in range(10)]), pa.array(range(10))], schema=ROWS
    )
    for name, limit in (("GROUP_ROWS", 25), ("GROUP_BYTES", 10 * columns.nbytes)):
        with monkeypatch.context() as patch:
            patch.setattr(file_stager, name, limit)
            split_stager = stager(sink)
            for _ in range(10):
                split_stager.add(columns, batch)
            path = json.loads(split_stager.finish().committables[0])["path"]
        groups = pq.read_metadata(Path(sink.uri) / path)
        rows = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
        assert sum(rows) == 100
        assert 2 <= len(rows) < 10
        assert max(rows) <= 30


def test_a_discarded_attempt_leaves_its_files(sink: DeltaBoth) -> None:
    """A discarded attempt deletes no file, because another attempt may have committed it."""
    split = plan(sink, 0).splits[0]
    split_stager = stager(sink)
    split_stager.add(
        pa.record_batch([pa.array(["x"] * 10), pa.array(range(10))], schema=ROWS), messages(split)
    )
    split_stager.discard()
    assert len(staged_paths(sink.uri)) == 1


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (pa.record_batch([pa.array(["x"] * 10)], names=["id"]), "the table has"),
        (pa.record_batch([pa.array(["x"] * 9), pa.array(range(9))], schema=ROWS), "9 rows"),
        (
            pa.record_batch(
                [pa.array([None] * 10, pa.string()), pa.array(range(10))], names=["id", "amount"]
            ),
            "column id holds 10 nulls",
        ),
        (
            pa.record_batch(
                [pa.array(["x"] * 10), pa.array(["secret"] * 10)], names=["id", "amount"]
            ),
            "column amount is string",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    sink: DeltaBoth, columns: pa.RecordBatch, says: str
) -> None:
    """Rows with wrong columns, row counts, nulls or types are refused.

    The error names the split, and no value.
    """
    with pytest.raises(BugError, match=says) as refused:
        stager(sink).add(columns, messages(plan(sink, 0).splits[0]))
    assert (refused.value.topic, refused.value.partition) == ("shop.orders", 0)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(("point", "files"), [("write.middle", 1), ("write.after", 2)])
def test_crash_points(
    sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch, point: str, files: int
) -> None:
    """The crash points are after the first batch, and after both files are closed."""
    monkeypatch.setenv("WINDROW_CRASH", f"{point}:raise")
    with pytest.raises(CrashError):
        staged_split(sink)
    assert len(staged_paths(sink.uri)) + len(staged_paths(f"{sink.uri}_dead")) == files


def test_a_file_with_a_nan_has_no_bounds(tmp_path: Path) -> None:
    """A file with a NaN has no bounds.

    Parquet's bounds omit NaN, but readers sort NaN above all numbers, and would skip the file.
    """
    schema = pa.schema([pa.field("ratio", pa.float64())])
    sink = DeltaBoth(str(tmp_path / "orders"), schema)
    sink.prepare()
    planned = plan(sink, 0)
    bounds = []
    for split, ratios in zip(planned.splits, ([float("nan"), 1.5], [2.5, 1.5]), strict=True):
        split_stager = sink.stager(planned, 0, "a1")(split)
        for i, ratio in enumerate(ratios):  # in two batches, with the NaN in the first
            split_stager.add(
                pa.record_batch([pa.array([ratio])], schema=schema), messages(split).slice(i, 1)
            )
        bounds += [
            "minValues" in json.loads(json.loads(word)["stats"])
            for word in split_stager.finish().committables
        ]
    assert bounds == [False, True]
