"""`windrow maintain`: small files are joined, and files that nobody needs are removed."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from tests.cli.conftest import START, Stage, hour
from windrow.ingest.errors import UnreachableError
from windrow.ingest.ledger.sql import SqlLedger
from windrow.ingest.sinks.kit.commit.dead_letter_table import DeadLetterTable


@pytest.fixture
def orphans(stage: Stage) -> list[Path]:
    """Two old files that no commit names: one in the table and one in that of the dead letters.

    The table has a committed window.
    """
    stage.json("run", stage.spec, "--window", hour(0))
    for committed in (stage.folder / "lake").rglob("*.parquet"):
        os.utime(committed, (1_000_000_000, 1_000_000_000))
    orphans = [
        stage.folder / "lake" / table / "data" / "_window=2026-01-05T00%3A00%3A00Z" / "died.parquet"
        for table in ("things", "things_dead")
    ]
    for orphan in orphans:
        orphan.write_bytes(b"rows")
        os.utime(orphan, (1_000_000_000, 1_000_000_000))
    return orphans


def maintained(**figures: object) -> dict[str, object]:
    """Returns what the command says: it joined the two files of the window."""
    joined = {"joined_files": 2, "new_files": 1, "expired_versions": 0}
    joined |= {"expired_dead_letters": 0, "expired_rows": 0, "removed_files": []}
    return {"pipeline": "things", "dry_run": False, "maintained": joined | figures}


def test_a_dry_run_changes_nothing(stage: Stage, orphans: list[Path]) -> None:
    """With --dry-run, the command says what it would do."""
    removed = [str(path) for path in orphans]
    document = maintained(removed_files=removed) | {"dry_run": True}
    assert stage.json("maintain", stage.spec, "--dry-run") == document
    words = stage.call("maintain", stage.spec, "--dry-run").stdout
    assert (
        "Nothing was changed. Without --dry-run: 2 files joined in 1 file, 2 files removed."
        in words
    )
    assert all(path.exists() for path in orphans)


def test_it_joins_and_removes(
    stage: Stage, orphans: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a window are joined, and those that no commit names are removed. Prometheus is
    told, and the deep verification finds nothing.
    """
    monkeypatch.setenv("WINDROW_METRICS", str(tmp_path))
    removed = [str(path) for path in orphans]
    assert stage.json("maintain", stage.spec) == maintained(removed_files=removed)
    assert not any(path.exists() for path in orphans)
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []
    assert "Nothing to do." in stage.call("maintain", stage.spec).stdout
    figure = 'windrow_maintained_total{change="removed_files",pipeline="things"} 2.0'
    assert figure in (tmp_path / "windrow-things.prom").read_text()
    stage.json("run", stage.spec, "--window", hour(1))


def test_steps_before_a_failed_one_are_told(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the table of dead letters can't be maintained, Prometheus is told what was done before."""
    stage.json("run", stage.spec, "--window", hour(0))

    def fail(*_: object, **__: object) -> None:
        raise UnreachableError("the storage is gone", "setup", "Run it again.")

    monkeypatch.setattr(DeadLetterTable, "maintain", fail)
    monkeypatch.setenv("WINDROW_METRICS", str(tmp_path))
    assert stage.call("maintain", stage.spec).exit_code == UnreachableError.exit_code
    figure = 'windrow_maintained_total{change="joined_files",pipeline="things"} 2.0'
    assert figure in (tmp_path / "windrow-things.prom").read_text()


def test_what_is_young_stays(stage: Stage, orphans: list[Path]) -> None:
    """Files within `maintain.keep_files` stay, because they may belong to a running attempt."""
    for path in orphans:
        os.utime(path)
    assert stage.json("maintain", stage.spec) == maintained()
    assert all(path.exists() for path in orphans)


def test_dead_letters_expire(stage: Stage) -> None:
    """With `maintain.keep_dead_letters`, dead letters of windows that were committed earlier are
    removed. Verification finds nothing wrong, and their replay is refused with a way out that
    works.
    """
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    spec = Path(stage.spec)
    spec.write_text(f"{spec.read_text()}maintain: {{keep_dead_letters: 30d, file_size: 0}}\n")
    words = stage.call("maintain", stage.spec, "--dry-run").stdout
    assert "Nothing was changed. Without --dry-run: 2 dead letters expired." in words
    assert len(stage.json("dead", "show", stage.spec)["dead"]) == 2
    assert stage.json("maintain", stage.spec)["maintained"]["expired_dead_letters"] == 2
    assert stage.json("dead", "show", stage.spec)["dead"] == []
    assert "Nothing to do." in stage.call("maintain", stage.spec).stdout
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []
    refused = stage.call("dead", "replay", stage.spec, "--window", hour(0))
    assert refused.exit_code == 1
    assert "older than maintain.keep_dead_letters" in " ".join(refused.output.split())
    stage.json("replay", stage.spec, "--window", hour(0))
    assert len(stage.json("dead", "show", stage.spec)["dead"]) == 1
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []


@pytest.fixture
def aged(stage: Stage) -> Stage:
    """A pipeline with two committed hours. The rows of the first one are too old for its spec."""
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    age, spec = datetime.now(UTC) - START - timedelta(minutes=90), Path(stage.spec)
    minutes = age // timedelta(minutes=1)
    spec.write_text(f"{spec.read_text()}maintain: {{keep_rows: {minutes}m, file_size: 0}}\n")
    return stage


def told_of(stage: Stage) -> list[object]:
    """Returns what the command says of completeness and lag."""
    window = ("--window", f"{hour(0)}/{hour(2)}")
    return [stage.json("state", stage.spec, *window), stage.json("lag", stage.spec)]


def test_rows_expire(aged: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `maintain.keep_rows`, rows of windows that ended earlier are removed. Verification finds
    nothing wrong; completeness and lag stay as they are. The window stays committed, with the
    instant at which its rows went.
    """
    monkeypatch.setenv("WINDROW_METRICS", str(tmp_path))
    told_before = told_of(aged)
    words = aged.call("maintain", aged.spec, "--dry-run").stdout
    assert "Nothing was changed. Without --dry-run: 4 rows expired." in words
    assert aged.json("maintain", aged.spec)["maintained"]["expired_rows"] == 4
    assert "Nothing to do." in aged.call("maintain", aged.spec).stdout
    figure = 'windrow_maintained_total{change="expired_rows",pipeline="things"} 4.0'
    assert figure in (tmp_path / "windrow-things.prom").read_text()
    verified = aged.json("verify", aged.spec, "--deep")
    assert (verified["rows"], verified["findings"]) == (4, [])
    assert told_of(aged) == told_before
    receipts = [shown["receipt"] for shown in aged.json("show", aged.spec)["windows"]]
    assert [receipt["expired_at"] is not None for receipt in receipts] == [True, False]
    assert [receipt["counts"]["rows"] for receipt in receipts] == [4, 4]
    assert "rows expired" in aged.call("show", aged.spec).stdout
    ran = aged.call("run", aged.spec, "--window", hour(0))
    assert "committed already, generation 1, rows expired" in " ".join(ran.stdout.split())


def test_an_expired_window_comes_back_on_request(aged: Stage) -> None:
    """Neither a replay nor a dead-letter replay brings rows back that have expired. The error names
    the option that does.
    """
    aged.json("maintain", aged.spec)
    for command in (("replay",), ("dead", "replay")):
        refused = aged.call(*command, aged.spec, "--window", hour(0))
        assert refused.exit_code == 1
        words = " ".join(refused.output.split())
        assert "were older than maintain.keep_rows" in words
        assert f"--window {hour(0)} --bring-back reads the window again" in words
    others = aged.json("dead", "replay", aged.spec, "--stage", "value", "--dry-run")["windows"]
    assert [result["window"] for result in others] == [hour(1)]
    aged.json("replay", aged.spec, "--window", hour(0), "--bring-back")
    verified = aged.json("verify", aged.spec, "--deep")
    assert (verified["rows"], verified["findings"]) == (8, [])
    assert aged.json("maintain", aged.spec)["maintained"]["expired_rows"] == 4


def test_rows_that_another_program_writes_into_an_expired_window(aged: Stage) -> None:
    """Verification names them, and its advice works."""
    table = aged.folder / "lake" / "things"
    rows = DeltaTable(str(table)).to_pyarrow_table(filters=[("_window", "=", hour(0))])
    aged.json("maintain", aged.spec)
    write_deltalake(str(table), rows, mode="append")
    for deep in ([], ["--deep"]):
        found = aged.json("verify", aged.spec, *deep, code=1)["findings"]
        assert {finding["window"] for finding in found} == {hour(0)}
        assert all(f"--window {hour(0)} --bring-back" in finding["do"] for finding in found)
    aged.json("replay", aged.spec, "--window", hour(0), "--bring-back")
    assert aged.json("verify", aged.spec, "--deep")["findings"] == []


def test_a_ledger_that_was_gone_gets_its_copies(
    aged: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a maintenance can't tell the ledger which rows have expired, the next one does."""

    def fail(*_: object, **__: object) -> None:
        raise UnreachableError("the ledger is gone", "ledger", "Run it again.")

    with monkeypatch.context() as patch:
        patch.setattr(SqlLedger, "record", fail)
        assert aged.call("maintain", aged.spec).exit_code == UnreachableError.exit_code
    (found,) = aged.json("verify", aged.spec)["findings"]
    assert (found["level"], found["window"]) == ("info", hour(0))
    assert "Nothing to do." in aged.call("maintain", aged.spec).stdout
    assert aged.json("verify", aged.spec)["findings"] == []
