"""Events of AWS DMS, of MongoDB and of the outbox router, and of snapshots."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.formats.cdc.formats import decoder_of
from tests.infer.test_every_value import run
from tests.infer.test_recognise import dms
from windrow.ingest.testing.contracts.values import dead, deleted, messages_with

ID = '{"$oid": "65a1b2c3d4e5f60718293a4b"}'
DOCUMENT = (
    '{"_id": {"$oid": "65a1b2c3d4e5f60718293a4b"},"name": "Ann","n": {"$numberLong": "5"},"price":'
    ' {"$numberDecimal": "12.50"},"at": {"$date": 1767603600123},"tags": ["x"]}'
)
"""A document and its id, as JsonSerialization of Debezium's connector for MongoDB (3.6.1) wrote
them."""


def of_mongodb(op: str, after: str | None) -> bytes:
    """Returns an event of Debezium's connector for MongoDB."""
    source = {"connector": "mongodb", "db": "shop", "collection": "customers", "ts_ms": 1}
    return json.dumps({"before": None, "after": after, "source": source, "op": op}).encode()


MONGODB = [of_mongodb("r", DOCUMENT), of_mongodb("u", DOCUMENT), of_mongodb("d", None), None]


@pytest.mark.parametrize("with_keys", [True, False])
def test_documents_of_mongodb(with_keys: bool) -> None:
    """`infer` proposes MongoDB's documents as a column, by their ids, and deletions delete."""
    key = json.dumps({"id": ID}).encode() if with_keys else None
    done = run([(key, value) for value in MONGODB], topic="shop.customers")
    row: dict[str, Any] = {"id": ID} if with_keys else {"op": "r"}
    assert done.rows[0] == [{"document": DOCUMENT, **row}]
    assert done.key == (("id",) if with_keys else ())
    assert done.inferred.refused == ()
    assert done.rows[2:] == ([[], []] if with_keys else [[{"document": None, "op": "d"}], []])


def test_documents_of_mongodb_in_a_keyed_table() -> None:
    """A deletion and a tombstone delete by the message's key, and an update needs its document."""
    decoder = decoder_of(
        "debezium-json",
        "Document",
        ("id",),
        envelope={"document": "after"},
        key={"format": "json", "fields": ["id"]},
        fields_include="except_key",
    )
    values = [*MONGODB, of_mongodb("u", None)]
    decoded = decoder.open()(messages_with(values, [json.dumps({"id": ID}).encode()] * 5))
    assert decoded.rows.to_pylist() == [{"id": ID, "document": DOCUMENT}] * 2
    assert deleted(decoded) == [(2, {"id": ID}), (3, {"id": ID})]
    assert dead(decoded) == [(4, "schema", "missing")]


def test_messages_of_dms() -> None:
    """A full load, changes and a change of the key make the table; messages of control don't."""
    values = [
        dms("create-table"),
        dms("load", {"id": 1, "part": "a", "name": "x"}),
        dms("update", {"id": 1, "part": "b"}, **{"before-image": {"part": "a"}}),
        dms("delete", {"id": 1, "part": "b", "name": None}),
        dms("truncate-table"),
    ]
    decoder = decoder_of("dms-json", "Part", ("id", "part"), table_include=r"public\.t")
    decoded = decoder.open()(messages_with([json.dumps(value).encode() for value in values]))
    assert [row["part"] for row in decoded.rows.to_pylist()] == ["a", "b"]
    assert deleted(decoded) == [(2, {"id": 1, "part": "a"}), (3, {"id": 1, "part": "b"})]
    assert dead(decoded) == [(4, "schema", "unknown_change")]
    assert decoded.filtered == 1


def test_messages_of_dms_are_proposed() -> None:
    """`infer` proposes the rows of DMS's messages, with the kind of each change."""
    values = [json.dumps(value).encode() for value in (dms("create-table"), dms("load"))]
    done = run([(b"public.t.1", value) for value in values])
    assert done.rows == [[], [{"id": 1, "operation": "load"}]]
    assert done.settings.decode.table_include == r"public\.t"


OUTBOX: dict[str, tuple[bytes, dict[str, Any]]] = {
    "StringConverter": (
        b'{"order": 7, "total": 12.50}',
        {"order": 7, "total": 12.5},
    ),
    "table.expand.json.payload": (b'{"order":7,"total":12.5}', {"order": 7, "total": 12.5}),
    "type:envelope:eventType": (
        b'{"payload":"{\\"order\\": 7, \\"total\\": 12.50}","eventType":"OrderCreated"}',
        {"payload": '{"order": 7, "total": 12.50}', "eventType": "OrderCreated"},
    ),
}


@pytest.mark.parametrize("form", OUTBOX)
def test_the_outbox_router(form: str) -> None:
    """Payloads of Debezium's EventRouter (3.6.1) are rows, with the aggregate's id as the key."""
    value, row = OUTBOX[form]
    done = run([(b"7", value), (b"8", value)])
    assert done.format == "json"
    assert done.rows[0] == [{"key": 7, **row}]


def test_snapshots_over_a_table_that_is_there() -> None:
    """Rows of an incremental and of a second snapshot replace the rows of their keys.

    Signals, heartbeats and marks of the snapshot change nothing. The fold by the key is the
    database's state.
    """

    def of_table(op: str, id_: int, name: str | None, snapshot: str = "false") -> bytes:
        row = {"id": id_, "part": "a", "name": name}
        images = {"before": row if op == "d" else None, "after": None if op == "d" else row}
        source = {"table": "customers", "snapshot": snapshot}
        return json.dumps({**images, "op": op, "source": source, "ts_ms": 1}).encode()

    values = [
        of_table("r", 1, "old", "first"),
        of_table("r", 2, "gone", "last"),
        of_table("u", 1, "new"),
        of_table("d", 2, "gone"),
        of_table("r", 1, "new", "incremental"),
        b'{"op": "m", "message": {"prefix": "x"}}',
        b'{"ts_ms": 1}',
        b'{"status": "END", "id": "1", "event_count": 1, "data_collections": [], "ts_ms": 1}',
        b'{"source": {}, "ts_ms": 1, "databaseName": "d", "ddl": "ALTER", "tableChanges": []}',
        of_table("r", 1, "newer", "first"),
        of_table("r", 3, "late", "last"),
    ]
    decoded = decoder_of("debezium-json", "Part", ("id", "part")).open()(messages_with(values))
    assert (dead(decoded), decoded.filtered) == ([], 4)
    table: dict[int, str | None] = {}
    removed = {index: key["id"] for index, key in deleted(decoded)}
    rows = dict(zip(decoded.row_index.to_pylist(), decoded.rows.to_pylist(), strict=True))
    for index in range(len(values)):
        table.pop(removed.get(index, -1), None)
        if index in rows:
            table[rows[index]["id"]] = rows[index]["name"]
    assert table == {1: "newer", 3: "late"}
