"""A database's table in SQLite, and its changes as Debezium's connector and Avro converter write
them.

Schemas of events are made of the table's own columns, so `ALTER TABLE` changes them, and are
registered by HTTP.
"""

from __future__ import annotations

import io
import json
import sqlite3
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import fastavro

from tests.formats.confluent.registries import framed
from tests.kafka.produce import Put
from tests.registry.server import RegistryServer

TOPIC = "shop.public.customers"
PARTITIONS = 4
_EPOCH = date(1970, 1, 1)

_AVRO: Mapping[str, Any] = {
    "BIGINT": "long",
    "TEXT": "string",
    "DATE": {"type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Date"},
    "DECIMAL": {
        "type": "bytes",
        "scale": 2,
        "precision": 12,
        "connect.version": 1,
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "logicalType": "decimal",
    },
}
"""The Avro type of each type of column."""

Row = Mapping[str, Any]


@dataclass
class Database:
    """A table of customers in memory.

    Attributes:
        registry: takes the schemas of events and keys.
        changes: the messages of all writes, in their order.
        now: the instant of the next write, in epoch milliseconds.
        connection: the database.
    """

    registry: RegistryServer
    now: int
    changes: list[Put] = field(default_factory=list)
    connection: sqlite3.Connection = field(default_factory=lambda: sqlite3.connect(":memory:"))

    def __post_init__(self) -> None:
        self.connection.row_factory = sqlite3.Row
        self.connection.execute(
            "CREATE TABLE customers (id BIGINT PRIMARY KEY NOT NULL, name TEXT NOT NULL, city TEXT,"
            " born DATE, credit DECIMAL NOT NULL)"
        )

    def types(self) -> dict[str, tuple[str, bool]]:
        """Returns the type of each column, and whether it may be null."""
        columns = self.connection.execute("PRAGMA table_info(customers)")
        return {column["name"]: (column["type"], not column["notnull"]) for column in columns}

    def rows(self) -> list[Row]:
        """Returns all rows, in the order of their keys, with the values of Python's types."""
        found = self.connection.execute("SELECT * FROM customers ORDER BY id")
        return [self._typed(dict(row)) for row in found]

    def snapshot(self) -> None:
        """Writes an event for each row, as a connector does that begins."""
        for row in self.rows():
            self._event("r", None, row)

    def insert(self, **row: Any) -> None:
        """Inserts a row."""
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        self._execute(f"INSERT INTO customers ({names}) VALUES ({marks})", *row.values())
        self._event("c", None, self._row(row["id"]))

    def update(self, key: int, **values: Any) -> None:
        """Changes columns of a row. Another key is a deletion and an insert, as in Debezium."""
        before = self._row(key)
        marks = ", ".join(f"{name} = ?" for name in values)
        self._execute(f"UPDATE customers SET {marks} WHERE id = ?", *values.values(), key)
        after = self._row(values.get("id", key))
        if before["id"] == after["id"]:
            self._event("u", before, after)
        else:
            self._deletion(before)
            self._event("c", None, after)

    def delete(self, key: int) -> None:
        """Deletes a row."""
        before = self._row(key)
        self._execute("DELETE FROM customers WHERE id = ?", key)
        self._deletion(before)

    def add_column(self, name: str, kind: str) -> None:
        """Adds a column that may be null, by ALTER TABLE. Debezium writes no event for it."""
        self._execute(f"ALTER TABLE customers ADD COLUMN {name} {kind}")

    def _execute(self, statement: str, *values: Any) -> None:
        written = [str(v) if isinstance(v, date | Decimal) else v for v in values]
        assert self.connection.execute(statement, written).rowcount in {-1, 1}, statement

    def _row(self, key: int) -> Row:
        found = self.connection.execute("SELECT * FROM customers WHERE id = ?", (key,))
        return self._typed(dict(found.fetchone()))

    def _typed(self, row: Row) -> Row:
        kinds = self.types()
        made = {"DATE": date.fromisoformat, "DECIMAL": lambda value: Decimal(str(value))}
        return {
            name: None if value is None else made.get(kinds[name][0], lambda v: v)(value)
            for name, value in row.items()
        }

    def _deletion(self, before: Row) -> None:
        """Writes an event and a tombstone."""
        self._event("d", before, None)
        self.changes.append(Put(None, self.now, *self._key(before)))

    def _event(self, op: str, before: Row | None, after: Row | None) -> None:
        types = tuple((name, *kind) for name, kind in self.types().items())
        source = {"connector": "postgresql", "ts_ms": self.now, "schema": "public"}
        event = {
            "before": _as_avro(before),
            "after": _as_avro(after),
            "source": {**source, "table": "customers"},
            "op": op,
            "ts_ms": self.now + 250,
        }
        value = self._framed("value", envelope(types), event)
        self.changes.append(Put(value, self.now, *self._key(after or before or {})))

    def _key(self, row: Row) -> tuple[int, bytes]:
        """Returns the partition and the key of a row's messages."""
        key = self._framed("key", KEY, {"id": row["id"]})
        return zlib.crc32(key) % PARTITIONS, key

    def _framed(self, part: str, schema: str, record: Mapping[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, _parsed(schema), record)
        return framed(self.registry.register(f"{TOPIC}-{part}", schema), stream.getvalue())


def _as_avro(row: Row | None) -> Row | None:
    """Returns a row with dates as the days since 1970."""
    return row and {
        name: (value - _EPOCH) // timedelta(days=1) if isinstance(value, date) else value
        for name, value in row.items()
    }


@cache
def envelope(types: tuple[tuple[str, str, bool], ...]) -> str:
    """Returns the schema of events whose rows have columns: name, type, and if it may be null."""
    fields = [
        {"name": name, "type": ["null", _AVRO[kind]], "default": None}
        if nullable
        else {"name": name, "type": _AVRO[kind]}
        for name, kind, nullable in types
    ]
    names = ("connector", "schema", "table")
    source = [{"name": "ts_ms", "type": "long"}, *({"name": n, "type": "string"} for n in names)]
    row = {"type": "record", "name": "Value", "fields": fields}
    record = {
        "type": "record",
        "name": "Envelope",
        "namespace": TOPIC,
        "connect.name": f"{TOPIC}.Envelope",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }
    return json.dumps(record)


KEY = json.dumps(
    {
        "type": "record",
        "name": "Key",
        "namespace": TOPIC,
        "fields": [{"name": "id", "type": "long"}],
    }
)


@cache
def _parsed(schema: str) -> Any:
    return fastavro.parse_schema(json.loads(schema))
