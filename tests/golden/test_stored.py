"""Forms in users' tables, topics and ledgers: no file of `stored/` may change."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateTable

from tests.fixtures.stores.make import KEY, KEYED, KINDS, fill_keyed
from tests.golden import samples
from tests.golden.conftest import Golden
from tests.sinks.iceberg.world import state_of
from tests.sinks.postgres.world import PostgresKeyed
from windrow.ingest.ledger.entries import TABLE
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import HOW_WORDS
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.metadata_columns import METADATA
from windrow.ingest.model.plan import Plan, covered_ranges
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.source import FrozenStop, Partitions, Pattern, Topics
from windrow.ingest.ports import decoder
from windrow.ingest.ports.sink import Done
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.schema.metadata_types import TYPES
from windrow.ingest.sinks.files import manifest
from windrow.ingest.sinks.kafka import control_records as control
from windrow.ingest.sinks.kafka.encoder import MessageEncoder
from windrow.ingest.sinks.kafka.options import KafkaOptions
from windrow.ingest.sinks.kafka.serializers import PlainSerializer
from windrow.ingest.sinks.kafka.sink import KafkaSink
from windrow.ingest.sinks.kafka.table import ClusterConnection
from windrow.ingest.sinks.kafka.transactions import TransactionalIds
from windrow.ingest.sinks.kit import PageLine, RowFile
from windrow.ingest.sinks.kit.columns.table_columns import DEAD_LETTERS
from windrow.ingest.sinks.kit.commit.dead_letter_table import note
from windrow.ingest.sinks.kit.commit.pages import Pages, page_of, path_of
from windrow.ingest.sinks.kit.commit.stored_receipts import NamedReceipt
from windrow.ingest.testing.contracts.windows import ROWS, messages, staged_receipt

DIGEST = "ab" * 16


def test_a_receipt(golden: Golden) -> None:
    """Each field of a receipt, also a nested one, keeps its name and form, and can be
    read again.
    """
    assert [
        where for where in samples.default_paths(samples.RECEIPT) if ".plan.start." not in where
    ] == []
    text = to_json(samples.RECEIPT)
    golden("stored/receipt.json", text)
    assert from_json(text, Receipt) == samples.RECEIPT


def test_a_plan(golden: Golden) -> None:
    """Plans of hours and of micro-batches keep their form and their digest, which
    receipts contain.
    """
    plans = [samples.PLAN, samples.BATCH]
    golden("stored/plan.json", "".join(f"{to_json(plan)}\n{plan.digest}\n" for plan in plans))
    assert [from_json(to_json(plan), Plan) for plan in plans] == plans


def test_positions_and_selections(golden: Golden) -> None:
    """Each kind of end position of a micro-batch, and each selection, keeps its tag and fields."""
    stops = [FrozenStop(position, samples.STOP) for position in samples.POSITIONS]
    tps = tuple(mark.tp for mark in samples.STOP.marks)
    selections = [Topics(("shop.orders",)), Pattern("shop[.].*"), Partitions(tps)]
    golden(
        "stored/positions.json", "".join(f"{to_json(record)}\n" for record in [*stops, *selections])
    )
    assert [from_json(to_json(stop), FrozenStop) for stop in stops] == stops


def test_how_offsets_were_found(golden: Golden) -> None:
    """The words for how an offset was found keep their stored and their shown form."""
    golden("stored/how.json", HOW_WORDS)


def test_the_ledgers_table(golden: Golden) -> None:
    """The ledger's table keeps its name and columns, in SQLite and in PostgreSQL."""
    created = [
        CreateTable(TABLE).compile(dialect=d) for d in (sqlite.dialect(), postgresql.dialect())
    ]
    golden("stored/ledger.sql", "".join(f"{str(statement).strip()};\n" for statement in created))


def test_the_ledgers_rows(tmp_path: Path, golden: Golden) -> None:
    """The rows that each of the ledger's methods writes keep their kinds, keys and values."""
    ledger, file = open_ledger(f"{tmp_path}/ledger.db"), tmp_path / "ledger.db"
    ledger.adopt_identity("ledger-1")
    ledger.bind_grid("orders", "hourly")
    ledger.bind_sink("orders", "sqlite:orders#orders")
    ledger.freeze("orders", [samples.BEGIN, samples.STOP])
    ledger.freeze_plans([samples.PLAN])
    ledger.rebase("orders", samples.STOP)
    ledger.put_pause("orders", samples.PAUSE)
    ledger.assign("orders", "request-3", 7)
    ledger.freeze_stop("orders", samples.FROZEN_STOP)
    ledger.target_generation(samples.WINDOW, "request-3", 1)
    ledger.freeze_pins(samples.WINDOW, 1, [samples.PIN])
    ledger.refuse(msgspec.structs.replace(samples.REFUSED, window=samples.BATCH.window))
    ledger.record(samples.RECEIPT)
    ledger.keep_schemas("orders", [samples.WRITER_SCHEMA])
    with closing(sqlite3.connect(file)) as database:
        rows = database.execute(
            f"SELECT pipeline, kind, key, value FROM {TABLE.name} ORDER BY 1, 2, 3"
        )
        golden("stored/ledger.rows", "".join("\t".join(row) + "\n" for row in rows))


def test_pages_and_notes(golden: Golden) -> None:
    """A page of windows and notes keeps its form, with and without files of windows.

    The names of notes, receipts and pages stay too.
    """
    named = NamedReceipt(1, DIGEST)
    notes = {note(kind, samples.WINDOW, "attempt-2"): 5 for kind in ("dead", "published")}
    line = manifest.FilesLine(1, DIGEST, 5, (RowFile("data/a.parquet", 10, 2),))
    lines = [{samples.WINDOW.key: PageLine(1, DIGEST, 5)}, {samples.WINDOW.key: line}]
    pages = [
        Pages([DIGEST], [page_of(lines[0], {}, ())]).with_page(
            page_of(page_lines, notes, covered_ranges(samples.PLAN))
        )
        for page_lines in lines
    ]
    texts = [msgspec.json.encode(page).decode() for page, _ in pages]
    places = [path_of(DIGEST), named.path(samples.WINDOW.key)]
    golden("stored/pages.txt", "".join(f"{line}\n" for line in [*texts, *places]))


def test_a_manifest_of_files(golden: Golden) -> None:
    """A manifest keeps its path, its form and its number. The owner keeps its properties."""
    new_manifest = manifest.Manifest(
        manifest.FORM, DIGEST, samples.OWNER, "parquet", b"columns", DIGEST
    )
    lines = [manifest.path_of(257), manifest.encode(new_manifest).decode().strip()]
    lines.append(json.dumps(samples.OWNER.properties))
    golden("stored/manifest.txt", "".join(f"{line}\n" for line in lines))


def test_records_of_a_control_topic(golden: Golden) -> None:
    """Keys, values and headers of the control topic's records stay, with and without
    transactions.
    """
    span = control.OffsetSpan("out", 1, 5, 9, "topic-id-2")
    counts, key = samples.SPLIT_COUNTS, samples.WINDOW.key
    split = control.PublishedSplit(
        *(key, 0, samples.PLAN.digest, counts.topic, counts.partition, counts.start, counts.stop),
        *(6, samples.SUMS[1], samples.SUMS[2], "attempt-2", (span,)),
    )
    records = [
        control.owner_record(samples.OWNER, 3),
        control.split_record(split),
        *control.receipt_records(key, to_json(samples.RECEIPT), (split,)),
        *control.receipt_records(key, to_json(samples.RECEIPT), (split,), "attempt-2"),
    ]
    lines = [f"{name.decode()}\t{value and value.decode()}" for name, value in records]
    lines.append(repr(control.chunk_header(records[2:4])))
    golden("stored/control_topic.txt", "".join(f"{line}\n" for line in lines))


def test_names_of_a_kafka_table(golden: Golden) -> None:
    """A table's transactional ids and its identity stay.

    Rights are granted to these ids, and later runs fence earlier ones by them.
    """
    ids = TransactionalIds("windrow.sink", "orders.windrow", 64)
    table = KafkaSink(ClusterConnection("b:2, a:1"), KafkaOptions(("out",), ids.control, ""), ROWS)
    golden("stored/kafka_names.json", [*ids.of_window(samples.PLAN), table.identity])


def test_a_message_of_a_kafka_table(golden: Golden) -> None:
    """A message keeps the header with its origin, by which the topic is verified, and
    its other parts.
    """
    read = messages(samples.PLAN.splits[0]).slice(0, 2)
    rows = pa.record_batch([["a", "b"], [1, None]], schema=ROWS)
    value = PlainSerializer("json", ("id", "amount"))
    options = KafkaOptions(("out",), "out.windrow", "", value=value, headers={"id": "id"})
    encoded = MessageEncoder(options).encode(rows, read, samples.WINDOW).to_pylist()
    golden("stored/kafka_message.json", [{k: str(v) for k, v in row.items()} for row in encoded])


def test_dead_letters(golden: Golden) -> None:
    """The columns of dead letters keep their order and types, and the stages keep their names."""
    stages = [decoder.KEY, decoder.HEADER, decoder.VALUE, decoder.SCHEMA, decoder.RULES]
    golden("stored/dead_letters.json", {"columns": columns(DEAD_LETTERS), "stages": stages})


def test_metadata_columns(golden: Golden) -> None:
    """Metadata columns, and the columns of messages in staged files, keep their names and types."""
    type_by_name = {name: str(TYPES[name]) for name in METADATA}
    golden("stored/metadata.json", {"metadata": type_by_name, "messages": columns(MESSAGES)})


def columns(schema: pa.Schema) -> dict[str, str]:
    """Returns the types of columns by name; columns that can't be null have a mark."""
    return {f.name: f"{f.type}{'' if f.nullable else ' not null'}" for f in schema}


# --------------------------------------------------------------------------------------------------


def commit_two(sink: Any) -> None:
    """Commits a window and its dead letters, and replaces them."""
    sink.prepare()
    for generation in (0, 1):
        receipt, staged = staged_receipt(sink, 0, generation, f"a{generation}")
        sink.commit_dead(receipt.plan, receipt.attempt, staged)
        assert isinstance(sink.commit(receipt, staged), Done)


def steady(text: str) -> str:
    """Replaces ids, and digests of texts with ids, which differ in each run."""
    text = re.sub(r"snap-[0-9]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    return re.sub(r"(?<![0-9a-f])(?!0000000000)[0-9a-f]{16,}", "ID", text)


def laid_out(folder: Path, identity: str) -> dict[str, Any]:
    """Returns a table's identity, and the paths of its files without ids, each once."""
    paths = {steady(str(path.relative_to(folder))) for path in folder.rglob("*") if path.is_file()}
    return {"identity": identity.replace(str(folder), "FOLDER"), "files": sorted(paths)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files-parquet", "files-jsonl", "files-csv"])
def test_a_table_of_files(kind: str, tmp_path: Path, golden: Golden) -> None:
    """Files of rows, receipts, pages and manifests keep their paths, and the table its identity.

    Plans and the ledger contain the identity.
    """
    sink = KINDS[kind](str(tmp_path))
    commit_two(sink)
    golden(f"stored/{kind}.json", laid_out(tmp_path, sink.identity))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "delta-keyed"])
def test_a_delta_table(kind: str, tmp_path: Path, golden: Golden) -> None:
    """The log's properties, application ids and notes, the files' paths and tombstones'
    columns stay.
    """
    if kind in KEYED:
        table = KEYED[kind](str(tmp_path))
        fill_keyed(table)
        sink = table.sink
    else:
        sink = KINDS[kind](str(tmp_path))
        commit_two(sink)
    layout = laid_out(tmp_path, sink.identity)
    for entry in sorted((tmp_path / "orders" / "_delta_log").glob("*.json")):
        for action in map(json.loads, entry.read_text().splitlines()):
            if "metaData" in action:
                layout["configuration"] = dict(sorted(action["metaData"]["configuration"].items()))
                layout["partitioned by"] = action["metaData"]["partitionColumns"]
            if "txn" in action:
                layout["application"] = action["txn"]["appId"]
            if "windrow" in action.get("commitInfo", {}):
                layout["note"] = shape(json.loads(action["commitInfo"]["windrow"]))
    for file in sorted((tmp_path / "orders" / "_windrow").rglob("*.parquet"))[:1]:
        parquet_metadata = (pq.read_metadata(file).metadata or {}).items()
        layout["tombstones"] = columns(pq.read_schema(file).remove_metadata())
        layout["of tombstones"] = sorted(
            k.decode() for k, _ in parquet_metadata if k != b"ARROW:schema"
        )
    golden(f"stored/{kind}.json", layout)


def shape(value: Any) -> Any:
    """Returns the names in a document, with the types of their values."""
    if isinstance(value, dict):
        return {name: shape(member) for name, member in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["iceberg", "iceberg-keyed"])
def test_an_iceberg_table(kind: str, tmp_path: Path, golden: Golden) -> None:
    """Windrow's properties of an Iceberg table and of its commits stay, and the paths of files."""
    if kind in KEYED:
        table = KEYED[kind](str(tmp_path))
        fill_keyed(table)
        sink = table.sink
    else:
        sink = KINDS[kind](str(tmp_path))
        commit_two(sink)
    metadata = state_of(sink).table.metadata
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    layout = laid_out(tmp_path, sink.identity)
    for name, properties in (
        ("properties", metadata.properties),
        ("summary", snapshot.summary.additional_properties),
    ):
        layout[name] = {k: steady(v) for k, v in properties.items() if k.startswith("windrow.")}
    golden(f"stored/{kind}.json", layout)


@pytest.mark.slow
def test_tables_in_sqlite(tmp_path: Path, golden: Golden) -> None:
    """The tables in an SQLite file stay: windrow's own, and those of rows and dead letters.

    The notes in them stay too.
    """
    sink = KINDS["sqlite"](str(tmp_path))
    commit_two(sink)
    with closing(sqlite3.connect(tmp_path / "orders.db")) as database:
        created = database.execute("SELECT sql FROM sqlite_master WHERE sql <> ''").fetchall()
        windrow_rows = [
            database.execute(f"SELECT {columns} FROM windrow_{table} ORDER BY ROWID").fetchall()
            for table, columns in (
                ("tables", "name, form, owner, window_column, version"),
                ("notes", "name, value"),
                ("offsets", "*"),
                ("receipts", "window, version"),
            )
        ]
    lines = [steady(sql) for (sql,) in created] + [
        steady(str(row)) for rows in windrow_rows for row in rows
    ]
    lines.append(sink.identity.replace(str(tmp_path), "FOLDER"))
    golden("stored/sqlite.sql", "".join(f"{line}\n" for line in lines))


_COLUMNS = """
SELECT table_schema, table_name, column_name, data_type, is_nullable, collation_name, column_default
FROM information_schema.columns WHERE table_schema IN ('windrow', 'public')
ORDER BY 1, 2, ordinal_position
"""
_INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname IN ('windrow', 'public') ORDER BY 1"


def test_tables_in_postgresql(database: str, golden: Golden) -> None:
    """The tables in PostgreSQL stay: windrow's own, and those of rows, dead letters and tombstones.

    Their indexes and notes, and the stored metadata of columns, stay too.
    """
    sink = KINDS["postgres"](database)
    commit_two(sink)
    PostgresKeyed(f"{database}#keyed", KEY)
    query = "SELECT place, window_column, form, columns FROM windrow.targets ORDER BY 1"
    with psycopg.connect(database) as connection:
        lines = [str(row) for row in connection.execute(_COLUMNS)]
        lines += [row[0] for row in connection.execute(_INDEXES)]
        lines += [str(row) for row in connection.execute("SELECT name, value FROM windrow.notes")]
        for *target, stored in connection.execute(query):
            schema = pa.ipc.read_schema(pa.py_buffer(stored))
            field_metadata = {f.name: f.metadata for f in schema if f.metadata}
            lines.append(str([*target, schema.metadata, field_metadata]))
    host = database.partition("host=")[2]
    lines.append(sink.identity.replace(host, "HOST"))
    golden("stored/postgres.sql", "".join(f"{steady(line)}\n" for line in lines))
