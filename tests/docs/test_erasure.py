"""The page about erasing a person's rows: its steps are typed, and windrow says what it claims."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.cli.conftest import START, Stage, hour, stage
from tests.clock import clock_ahead
from tests.shape.readme import ROOT
from windrow.ingest.assemble import open_table
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.maintain import MaintainSpec
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.ports.sink import Maintenance
from windrow.ingest.sinks.postgres.kind import PostgresSection
from windrow.ingest.testing.broker import MemoryBroker

__all__ = ["stage"]

PAGE = (ROOT / "docs" / "erasure.md").read_text(encoding="utf-8")
PERSON = "x@example.org"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SCHEMA = """\
import pandera.polars as pa
import polars as pl


class Order(pa.DataFrameModel):
    customer: pl.String = pa.Field(nullable=True)
    amount: pl.Int64
"""
SINKS = {
    "Delta": "{path: lake/orders}",
    "Iceberg": "{kind: iceberg, warehouse: lake, table: shop.orders}",
    "SQLite": "{kind: sqlite, path: lake/orders.sqlite, table: orders}",
    "PostgreSQL": '{kind: postgres, url: "URL", table: public.orders, staging: staging}',
    "files": "{kind: files, path: lake/orders}",
}
HEADINGS = {
    "Delta": "Delta",
    "Iceberg": "Iceberg",
    "SQLite": "PostgreSQL and SQLite",
    "PostgreSQL": "PostgreSQL and SQLite",
}
"""The headings of the page under which an engine deletes rows."""


@pytest.fixture
def orders(stage: Stage, kind: str, request: pytest.FixtureRequest) -> Stage:
    """A table with an hour of the person and of others, and the person's dead letter at offset 2 of
    partition 0. The next hour isn't committed.
    """
    stage.broker = MemoryBroker()
    stage.broker.create_topic("shop.things", partitions=1, retention_ms=None)
    Path("schema.py").write_text(SCHEMA)
    stage.write()
    spec = Path(stage.spec).read_text().replace("schema.py:Thing", "schema.py:Order")
    Path(stage.spec).write_text(spec)
    url = request.getfixturevalue("database") if kind == "PostgreSQL" else ""
    stage.sink(SINKS[kind].replace("URL", url))
    person = b'{"customer": "%s", "amount": %s}'
    produce(stage, 0, b'{"customer": null, "amount": 1}', person % (PERSON.encode(), b"2"))
    produce(stage, 0, person % (PERSON.encode(), b'"much"'))
    produce(stage, 1, person % (PERSON.encode(), b"3"), b'{"customer": "y", "amount": 4}')
    stage.json("run", stage.spec, "--window", hour(0))
    return stage


def produce(stage: Stage, n: int, *values: bytes) -> None:
    """Writes messages of an hour to the one topic-partition."""
    for value in values:
        tp, timestamp = TopicPartition("shop.things", 0), START + timedelta(hours=n)
        stage.broker.produce(tp, value, key=None, timestamp=timestamp)


def part(heading: str) -> str:
    """Returns the text under a heading of the page, up to the next one."""
    return re.split(r"^#+ ", PAGE.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def typed(stage: Stage, heading: str) -> None:
    """Does what the blocks under a heading say."""
    for language, block in FENCE.findall(part(heading)):
        ACTIONS[language](stage, block)


def type_commands(stage: Stage, block: str) -> None:
    for line in block.splitlines():
        done = stage.call(*shlex.split(line.replace("SPEC", stage.spec))[1:])
        assert done.exit_code == 0, done.output


def add_setting(stage: Stage, block: str) -> None:
    Path(stage.spec).write_text(Path(stage.spec).read_text() + block)


def run_sql(stage: Stage, block: str) -> None:
    sink = load_spec(Path(stage.spec)).sink
    if isinstance(sink, PostgresSection):
        with psycopg.connect(sink.url, autocommit=True) as server:
            server.execute(block.encode())
        return
    with closing(sqlite3.connect("lake/orders.sqlite", isolation_level=None)) as database:
        database.execute(block)


ACTIONS: dict[str, Callable[[Stage, str], None]] = {
    "sh": type_commands,
    "yaml": add_setting,
    "python": lambda _, block: exec(block, {}),
    "sql": run_sql,
}


def findings(stage: Stage, *options: str) -> list[tuple[str, str, str]]:
    """Returns what verification finds: level, window, and the first words."""
    done = stage.call("verify", stage.spec, *options, "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == int(bool(document["findings"]))
    return [
        (finding["level"], finding["window"], finding["what"]) for finding in document["findings"]
    ]


def customers(stage: Stage) -> list[object]:
    """Returns the customers in the table, in order."""
    sink, _ = open_table(load_spec(Path(stage.spec)))
    rows = [
        row
        for committed in sink.receipts()
        for batch in sink.audit().contents(committed.receipt.window)
        for row in batch.to_pylist()
    ]
    return [row["customer"] for row in rows]


def files_with(stage: Stage, kind: str) -> list[Path]:
    """Returns the files of the tables, their staged files and the ledger that have the address.

    Logs and manifests, which may have it, are left out.
    """
    files = [path for path in stage.folder.rglob("*") if path.is_file() and path.suffix != ".yaml"]
    if kind == "PostgreSQL":
        sink = load_spec(Path(stage.spec)).sink
        assert isinstance(sink, PostgresSection)
        with psycopg.connect(sink.url, autocommit=True) as server:
            server.execute("CHECKPOINT")
            folder = "SELECT current_setting('data_directory') || '/' || pg_relation_filepath({})"
            for table in ("orders", "orders_dead"):
                row = server.execute(sql.SQL(folder).format(table)).fetchone()
                assert row is not None
                files.append(Path(row[0]))
    logs = {"_delta_log", "metadata"}
    return [p for p in files if not logs & {*p.parts} and PERSON.encode() in p.read_bytes()]


def finish(stage: Stage, kind: str) -> None:
    """Does the last two steps, and the last one again when older versions and files may go."""
    typed(stage, f"In {kind}")
    typed(stage, "6. Older versions, then go on")
    limits = Maintenance(keep_files=timedelta(days=1), keep_versions=timedelta(minutes=-30))
    with clock_ahead(timedelta(days=2)), pytest.MonkeyPatch.context() as patch:
        patch.setattr(MaintainSpec, "limits", limits)  # at least 7 days in a spec
        typed(stage, "6. Older versions, then go on")


def dead_letters(stage: Stage) -> int:
    return len(stage.json("dead", "show", stage.spec)["dead"])


@pytest.mark.some(2)
@pytest.mark.parametrize("kind", SINKS)
def test_a_replay_leaves_the_person_out(orders: Stage, kind: str) -> None:
    """With step 2, a replay takes the person's rows out of a table of any kind, and verification
    finds nothing. Dead letters are read again, so they are deleted last. Verification names their
    window, and their replay is refused.
    """
    assert customers(orders) == [None, PERSON]
    assert files_with(orders, kind) != []
    typed(orders, "1. Pause, and name the windows")
    typed(orders, "2. Leave the key out from now on")
    typed(orders, "3. The rows")
    assert customers(orders) == [None]
    assert (findings(orders, "--deep"), dead_letters(orders)) == ([], 1)
    if kind != "files":
        typed(orders, f"Dead letters in {HEADINGS[kind]}")
        finish(orders, kind)
        assert files_with(orders, kind) == []


@pytest.mark.some(2)
@pytest.mark.parametrize("kind", HEADINGS)
def test_an_engine_deletes_the_person(orders: Stage, kind: str) -> None:
    """Where the topic has lost messages, the engine deletes rows and dead letters. Verification
    names their window and no other, and everything else goes on. Once the topic has the messages, a
    replay ends it.
    """
    typed(orders, "1. Pause, and name the windows")
    typed(orders, "2. Leave the key out from now on")
    typed(orders, HEADINGS[kind])
    assert customers(orders) == [None]
    (row_finding,) = findings(orders)
    assert row_finding[:2] == ("wrong", hour(0))
    assert "1 row in the table, 2 in the receipt" in row_finding[2]
    typed(orders, f"Dead letters in {HEADINGS[kind]}")
    assert dead_letters(orders) == 0
    for options in ([], ["--deep"]):
        found = findings(orders, *options)
        assert {finding[:2] for finding in found} == {("wrong", hour(0))}
        assert any("0 dead letters in their table, 1 in the receipt" in f[2] for f in found)
    finish(orders, kind)
    assert files_with(orders, kind) == []
    refused = orders.call("dead", "replay", orders.spec, "--window", hour(0))
    assert (refused.exit_code, "are not those of its receipt" in refused.output) == (1, True)
    orders.json("run", orders.spec, "--window", hour(1))
    assert customers(orders) == [None, "y"]
    assert {finding[1] for finding in findings(orders)} == {hour(0)}
    orders.json("replay", orders.spec, "--window", hour(0))
    assert (customers(orders), findings(orders, "--deep")) == ([None, "y"], [])


@pytest.mark.parametrize("kind", ["Delta"])
def test_a_replay_of_lost_messages_is_refused(orders: Stage, kind: str) -> None:
    """If the topic has fewer messages, the replay of step 3 is refused. With --accept-fewer, the
    rows of all messages that are gone leave the table, too.
    """
    del kind
    orders.broker.delete_records(TopicPartition("shop.things", 0), 1)
    typed(orders, "2. Leave the key out from now on")
    refused = orders.call("replay", orders.spec, "--window", hour(0))
    assert (refused.exit_code, "--accept-fewer" in refused.output) == (1, True)
    orders.json("replay", orders.spec, "--window", hour(0), "--accept-fewer")
    assert customers(orders) == []
