"""Documented and hostile messages of Debezium, Canal and Maxwell, with verdicts.

A verdict is one of these:
- a list of rows, each a tuple of its values;
- a stage and a reason;
- the word `dropped` or `filtered`.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

Verdict = list[tuple[Any, ...]] | tuple[str, str] | str
Corpus = list[tuple[str, bytes | None, Verdict]]
"""Cases: a name, the message's value, and the verdict."""


def text(document: object) -> bytes:
    """Returns the document as JSON."""
    return json.dumps(document).encode()


# --------------------------------------------------------------------------------------------------

SOURCE = {
    "version": "2.7.0.Final",
    "connector": "mysql",
    "name": "mysql-server-1",
    "ts_ms": 1767603600000,
    "snapshot": "false",
    "db": "inventory",
    "table": "customers",
    "server_id": 223344,
    "gtid": None,
    "file": "mysql-bin.000003",
    "pos": 484,
    "row": 0,
    "thread": 7,
    "query": "UPDATE customers SET first_name='Anne Marie' WHERE id=1004",
}
AT = datetime(2026, 1, 5, 9, tzinfo=UTC)
ANNE = {"id": 1004, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
MARIE = {**ANNE, "first_name": "Anne Marie"}


def event(
    op: object, before: object = None, after: object = None, **more: object
) -> dict[str, Any]:
    """Returns Debezium's envelope."""
    return {
        "before": before,
        "after": after,
        "source": SOURCE,
        "op": op,
        "ts_ms": 1767603600123,
        "transaction": None,
        **more,
    }


def customer(first_name: str, op: str) -> tuple[Any, ...]:
    """Returns a row of `Customer`."""
    return 1004, first_name, "annek@noanswer.org", op, AT


MISSING, WRONG_TYPE = ("schema", "missing"), ("schema", "wrong_type")
_C, _D = text(event("c", None, ANNE)), text(event("d", ANNE, None))
DEBEZIUM: Corpus = [
    ("create", _C, [customer("Anne", "c")]),
    ("snapshot read", text(event("r", None, ANNE)), [customer("Anne", "r")]),
    ("update", text(event("u", ANNE, MARIE)), [customer("Anne Marie", "u")]),
    (
        "update of PostgreSQL without a before-image",
        text(event("u", None, MARIE)),
        [customer("Anne Marie", "u")],
    ),
    (
        "update whose before-image has the key alone",
        text(event("u", {"id": 1004}, MARIE)),
        [customer("Anne Marie", "u")],
    ),
    (
        "update that never sends a before-image",
        text({"after": MARIE, "op": "u", "source": SOURCE}),
        [customer("Anne Marie", "u")],
    ),
    ("delete", _D, [customer("Anne", "d")]),
    ("delete whose after-image is nonsense", text(event("d", ANNE, 7)), [customer("Anne", "d")]),
    ("tombstone after a delete", None, "dropped"),
    ("truncate", text(event("t")), ("schema", "truncate")),
    (
        "logical message of PostgreSQL",
        text(event("m", message={"prefix": "foo", "content": "YmFy"})),
        "filtered",
    ),
    ("heartbeat", text({"ts_ms": 1767603600123}), "filtered"),
    (
        "a transaction begins",
        text({"status": "BEGIN", "id": "571:1", "event_count": None, "data_collections": None}),
        "filtered",
    ),
    (
        "a transaction ends",
        text(
            {"status": "END", "id": "571:1", "event_count": 9, "data_collections": [{}], "ts_ms": 1}
        ),
        "filtered",
    ),
    (
        "a table is altered",
        text(
            {
                "source": SOURCE,
                "ts_ms": 1,
                "databaseName": "d",
                "schemaName": None,
                "ddl": "ALTER",
                "tableChanges": [],
            }
        ),
        "filtered",
    ),
    (
        "a row without its envelope that has the field of a heartbeat",
        text({"ts_ms": 1, "id": 1, "first_name": "hunter2"}),
        MISSING,
    ),
    (
        "a row without its envelope that has the fields of a transaction",
        text({"status": "END", "id": 1, "x": "hunter2"}),
        MISSING,
    ),
    (
        "a row of another table",
        text(event("c", None, ANNE, source={**SOURCE, "table": "hunter2"})),
        ("schema", "other_table"),
    ),
    (
        "a row of a table whose name ends alike",
        text(event("c", None, ANNE, source={"table": "omers"})),
        ("schema", "other_table"),
    ),
    (
        "a row of no table that is told",
        text(event("c", None, ANNE, source={"ts_ms": 1767603600000})),
        [customer("Anne", "c")],
    ),
    (
        "null column",
        text(event("c", None, {**ANNE, "email": None})),
        [(1004, "Anne", None, "c", AT)],
    ),
    (
        "column that isn't there",
        text(event("c", None, {"id": 1, "first_name": "A"})),
        [(1, "A", None, "c", AT)],
    ),
    (
        "column that the schema doesn't name",
        text(event("c", None, {**ANNE, "more": [{"x": 1}]})),
        [customer("Anne", "c")],
    ),
    (
        "fields in another order",
        text({"op": "c", "source": SOURCE, "after": ANNE, "before": None}),
        [customer("Anne", "c")],
    ),
    (
        "field of the envelope that nobody knows",
        text(event("c", None, ANNE, hunter2={"a": [1, {}]})),
        [customer("Anne", "c")],
    ),
    (
        "source that isn't there",
        text({"op": "c", "after": ANNE}),
        [(1004, "Anne", "annek@noanswer.org", "c", None)],
    ),
    (
        "source that is null",
        text({"op": "c", "after": ANNE, "source": None}),
        [(1004, "Anne", "annek@noanswer.org", "c", None)],
    ),
    (
        "white space and escapes",
        _C.replace(b'"op"', b' "\\u006fp" ').replace(b"Anne", b"\\u0041nne"),
        [customer("Anne", "c")],
    ),
    ("create without a row", text(event("c", None, None, hunter2=1)), MISSING),
    ("delete without a before-image", text(event("d", None, None, hunter2=1)), MISSING),
    ("delete that misses a column", text(event("d", {"id": 1004, "hunter2": 1})), MISSING),
    ("row that misses a column", text(event("c", None, {"id": 1, "hunter2": 2})), MISSING),
    (
        "row with null where there must be a value",
        text(event("c", None, {**ANNE, "first_name": None, "hunter2": 2})),
        MISSING,
    ),
    ("no operation", text({"before": None, "after": ANNE, "hunter2": 1}), MISSING),
    ("null operation", text(event(None, None, ANNE, hunter2=1)), MISSING),
    ("unknown operation", text(event("hunter2", None, ANNE)), ("schema", "unknown_change")),
    (
        "operation in capitals",
        text(event("C", None, {**ANNE, "email": "hunter2"})),
        ("schema", "unknown_change"),
    ),
    ("operation that is a number", text(event(1, None, {**ANNE, "email": "hunter2"})), WRONG_TYPE),
    ("row that is a list", text(event("c", None, ["hunter2"])), WRONG_TYPE),
    ("row that is a text, as MongoDB's", text(event("c", None, '{"id": "hunter2"}')), WRONG_TYPE),
    (
        "number in a string",
        text(event("c", None, {**ANNE, "id": "1004", "email": "hunter2"})),
        WRONG_TYPE,
    ),
    (
        "number beyond its column",
        text(event("c", None, {**ANNE, "id": 2**31, "email": "hunter2"})),
        ("schema", "out_of_range"),
    ),
    (
        "source's time as a text",
        text(event("c", None, ANNE, source={"ts_ms": "hunter2"})),
        WRONG_TYPE,
    ),
    ("row of a delete that is no row", text(event("d", "hunter2")), WRONG_TYPE),
    (
        "event inside the schema's envelope",
        text({"schema": {"hunter2": 1}, "payload": event("c", None, ANNE)}),
        MISSING,
    ),
    ("a key twice in the envelope", _C[:-1] + b',"op":"hunter2"}', ("value", "duplicate_key")),
    (
        "a key twice in the row",
        _C.replace(b'"id"', b'"email":"hunter2","id"'),
        ("value", "duplicate_key"),
    ),
    (
        "a key twice in the source",
        _C.replace(b'"db"', b'"file":"hunter2","db"'),
        ("value", "duplicate_key"),
    ),
    ("cut off", text(event("c", None, {**ANNE, "email": "hunter2"}))[:-9], ("value", "not_json")),
    ("empty", b"", ("value", "not_json")),
    ("not UTF-8", _C.replace(b"Anne", b"hunter2\xff"), ("value", "invalid_utf8")),
    (
        "too deep",
        b'{"op":"c","after":' + b"[" * 120 + b'"hunter2"' + b"]" * 120 + b"}",
        ("value", "too_deep"),
    ),
    (
        "a list of events",
        b"[" + text(event("c", None, {**ANNE, "email": "hunter2"})) + b"]",
        WRONG_TYPE,
    ),
    ("just a row", text({**ANNE, "email": "hunter2"}), MISSING),
]

WRITTEN: Corpus = [
    (
        "everything",
        text(
            event(
                "c",
                None,
                {
                    "id": 1,
                    "price": "AMg=",
                    "huge": "ASNFZ4mrze8=",
                    "day": 20458,
                    "ms": 1767603600123,
                    "us": 1767603600123456,
                    "zoned": "2026-01-05T10:00:00.5+01:00",
                },
            )
        ),
        [
            (
                1,
                Decimal("2.00"),
                Decimal(0x0123456789ABCDEF).scaleb(-4),
                date(2026, 1, 5),
                AT.replace(microsecond=123000),
                AT.replace(microsecond=123456),
                AT.replace(microsecond=500000),
            )
        ],
    ),
    (
        "negative",
        text(event("c", None, {"id": 1, "price": "/w=="})),
        [(1, Decimal("-0.01"), *[None] * 5)],
    ),
    (
        "zero",
        text(event("c", None, {"id": 1, "price": "AA==", "day": 0})),
        [(1, Decimal("0.00"), None, date(1970, 1, 1), *[None] * 3)],
    ),
    (
        "more bytes than needed",
        text(event("c", None, {"id": 1, "price": "////////////////////"})),
        [(1, Decimal("-0.01"), *[None] * 5)],
    ),
    (
        "the largest",
        text(event("c", None, {"id": 1, "price": "O5rJ/w=="})),
        [(1, Decimal("9999999.99"), *[None] * 5)],
    ),
    (
        "one too large",
        text(event("c", None, {"id": 1, "price": "O5rKAA==", "hunter2": 1})),
        ("schema", "out_of_range"),
    ),
    (
        "far too large",
        text(event("c", None, {"id": 1, "huge": "f" * 400, "hunter2": 1})),
        ("schema", "out_of_range"),
    ),
    (
        "digits",
        text(event("c", None, {"id": 1, "price": "2.00", "hunter2": 1})),
        ("schema", "wrong_format"),
    ),
    (
        "no bytes",
        text(event("c", None, {"id": 1, "price": "", "hunter2": 1})),
        ("schema", "wrong_format"),
    ),
    (
        "base64 without its end",
        text(event("c", None, {"id": 1, "price": "AMg", "hunter2": 1})),
        ("schema", "wrong_format"),
    ),
    (
        "base64 with a blank",
        text(event("c", None, {"id": 1, "price": "AM g=", "hunter2": 1})),
        ("schema", "wrong_format"),
    ),
    (
        "base64 with more behind it",
        text(event("c", None, {"id": 1, "price": "AMg=AMg=", "hunter2": 1})),
        ("schema", "wrong_format"),
    ),
    (
        "letters beyond ASCII",
        text(event("c", None, {"id": 1, "price": "hünter2", "hunter2": 1})),
        ("schema", "wrong_format"),
    ),
    (
        "decimal as a number",
        text(event("c", None, {"id": 1, "price": 2.5})),
        [(1, Decimal("2.50"), *[None] * 5)],
    ),
    (
        "decimal as a boolean",
        text(event("c", None, {"id": 1, "price": True, "hunter2": 1})),
        WRONG_TYPE,
    ),
    (
        "date as a text",
        text(event("c", None, {"id": 1, "day": "2026-01-05", "hunter2": 1})),
        WRONG_TYPE,
    ),
    (
        "date before the year 1",
        text(event("c", None, {"id": 1, "day": -719163, "hunter2": 1})),
        ("schema", "out_of_range"),
    ),
    (
        "the last date",
        text(event("c", None, {"id": 1, "day": 2932896})),
        [(1, None, None, date(9999, 12, 31), *[None] * 3)],
    ),
    (
        "date after the year 9999",
        text(event("c", None, {"id": 1, "day": 2932897, "hunter2": 1})),
        ("schema", "out_of_range"),
    ),
    (
        "time beyond the calendar",
        text(event("c", None, {"id": 1, "ms": 2**60, "hunter2": 1})),
        ("schema", "out_of_range"),
    ),
]

NOTHING = [None] * 6
INSIDE: Corpus = [
    (
        "everything",
        text(
            event(
                "c",
                None,
                {
                    "days": [18262, None],
                    "prices": ["1234", "MDk="],
                    "money": {"amount": "1e10", "at": [1767603600123]},
                    "any": {"scale": 2, "value": "MDk="},
                    "at": 1767603600123456,
                    "rates": {"a": "MDk=", "b": None},
                },
            )
        ),
        [
            (
                [date(2020, 1, 1), None],
                [Decimal("-26588.24"), Decimal("123.45")],
                {"amount": Decimal("-27572.60"), "at": [AT.replace(microsecond=123000)]},
                Decimal("123.4500"),
                AT.replace(microsecond=123456),
                [{"key": "a", "value": Decimal("123.45")}, {"key": "b", "value": None}],
            )
        ],
    ),
    (
        "a day that is none",
        text(event("c", None, {"days": [2932897], "hunter2": 1})),
        ("schema", "out_of_range"),
    ),
    (
        "a date as a text",
        text(event("c", None, {"days": ["2026-01-05"], "hunter2": 1})),
        WRONG_TYPE,
    ),
    (
        "digits in a list",
        text(event("c", None, {"prices": ["1.00"], "hunter2": 1})),
        ("schema", "wrong_format"),
    ),
    (
        "a finer scale of its own",
        text(event("c", None, {"any": {"scale": 5, "value": "MDk="}, "hunter2": 1})),
        ("schema", "out_of_range"),
    ),
    (
        "too large in a struct",
        text(event("c", None, {"money": {"amount": "f" * 40}, "hunter2": 1})),
        ("schema", "out_of_range"),
    ),
]


def stated(kinds: dict[str, Any], row: dict[str, Any], **more: Any) -> bytes:
    """Returns an event with its schema, in which the row's fields have the given kinds."""
    fields = [{"field": name, "optional": True, **kind} for name, kind in kinds.items()]
    images = [
        {"type": "struct", "fields": fields, "optional": True, "field": image}
        for image in ("before", "after")
    ]
    schema = {
        "type": "struct",
        "fields": [*images, {"type": "string", "field": "op"}],
        "name": "shop.Envelope",
    }
    return text({"schema": schema, "payload": event("c", None, row), **more})


def of_scale(scale: object) -> dict[str, Any]:
    """Returns Connect's decimal type."""
    return {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": scale},
    }


def named(kind: str, name: str) -> dict[str, Any]:
    """Returns one of Debezium's types."""
    return {"type": kind, "name": f"io.debezium.time.{name}"}


def at_of(kind: str, name: str, value: object, micros: int | None) -> tuple[str, bytes, Verdict]:
    """Returns a case whose message states the type of `at`.

    Args:
        kind: the type in Connect's schema.
        name: the name of Debezium's type.
        value: the written value of `at`.
        micros: the microseconds of the expected value; None if the message is refused.
    """
    row = (
        [(*NOTHING[:4], AT.replace(microsecond=micros), None)] if micros is not None else WRONG_TYPE
    )
    return (
        name,
        stated(
            {"at": named(kind, name)}, {"at": value, **({"hunter2": 1} if micros is None else {})}
        ),
        row,
    )


ANY = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
STATED: Corpus = [
    (
        "everything",
        stated(
            {
                "days": {"type": "array", "items": named("int32", "Date")},
                "prices": {"type": "array", "items": of_scale("1")},
                "money": {
                    "type": "struct",
                    "fields": [
                        {"field": "amount", **of_scale(0)},
                        {"field": "at", "type": "array", "items": named("int64", "MicroTimestamp")},
                    ],
                },
                "any": ANY,
                "at": named("int64", "Timestamp"),
                "rates": {"type": "map", "keys": {"type": "string"}, "values": of_scale("2")},
            },
            {
                "days": [18262, None],
                "prices": ["MDk=", 2.5],
                "money": {"amount": "MDk=", "at": [1767603600123456]},
                "any": {"scale": 3, "value": "MDk="},
                "at": 1767603600123,
                "rates": {"a": "MDk="},
            },
        ),
        [
            (
                [date(2020, 1, 1), None],
                [Decimal("1234.50"), Decimal("2.50")],
                {"amount": Decimal("12345.00"), "at": [AT.replace(microsecond=123456)]},
                Decimal("12.3450"),
                AT.replace(microsecond=123000),
                [{"key": "a", "value": Decimal("123.45")}],
            )
        ],
    ),
    (
        "a finer scale",
        stated(
            {"prices": {"type": "array", "items": of_scale("4")}},
            {"prices": ["MDk="], "hunter2": 1},
        ),
        ("schema", "out_of_range"),
    ),
    (
        "a finer scale whose last digits are zeros",
        stated({"any": of_scale("6")}, {"any": "Etao"}),
        [(*NOTHING[:3], Decimal("1.2346"), None, None)],
    ),
    (
        "digits as a text",
        stated({"any": {"type": "string"}}, {"any": "1234"}),
        [(*NOTHING[:3], Decimal(1234), None, None)],
    ),
    at_of("int64", "Timestamp", 1767603600123, 123000),
    at_of("int64", "MicroTimestamp", 1767603600123456, 123456),
    at_of("string", "ZonedTimestamp", "2026-01-05T09:00:00.5Z", 500000),
    at_of("int32", "Date", 18262, None),
    at_of("int64", "MicroTime", 18262, None),
    (
        "Connect's own",
        stated(
            {"at": {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}},
            {"at": 1767603600123},
        ),
        [(*NOTHING[:4], AT.replace(microsecond=123000), None)],
    ),
    (
        "a name that says nothing",
        stated({"at": {"type": "int64", "name": "shop.At"}}, {"at": 1767603600123456}),
        [(*NOTHING[:4], AT.replace(microsecond=123456), None)],
    ),
    (
        "dates of another form",
        stated(
            {"days": {"type": "array", "items": named("string", "IsoDate")}},
            {"days": ["2020-01-01Z"]},
        ),
        [([date(2020, 1, 1)], *NOTHING[1:])],
    ),
    (
        "no schema",
        text({"payload": event("c", None, {"any": "1.5"})}),
        [(*NOTHING[:3], Decimal("1.5"), None, None)],
    ),
    (
        "no schema that Connect has",
        text({"schema": "int32", "payload": event("c", None, {"any": "1.5"})}),
        [(*NOTHING[:3], Decimal("1.5"), None, None)],
    ),
    (
        "a schema cut off",
        b'{"payload":{"op":"c","after":{"any":1}},"schema":{"hunter2"',
        ("value", "not_json"),
    ),
    (
        "a schema twice",
        stated({}, {"any": 1, "hunter2": 1})[:-1] + b',"schema":{}}',
        ("value", "duplicate_key"),
    ),
]

# --------------------------------------------------------------------------------------------------

SCOOTER = {
    "id": "111",
    "name": "scooter",
    "weight": "5.18",
    "made": "2026-01-05",
    "changed": "2026-01-05 09:00:00.5",
    "tags": None,
}
ROW = (111, "scooter", Decimal("5.18"), date(2026, 1, 5), AT.replace(microsecond=500000), None)
OTHER = (112, "drum", None, None, None, None)


def flat(kind: object, data: object, **more: object) -> dict[str, Any]:
    """Returns Canal's flat message."""
    return {
        "data": data,
        "database": "inventory",
        "es": 1589373560000,
        "id": 9,
        "isDdl": False,
        "mysqlType": {"id": "INTEGER"},
        "old": None,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": 4},
        "table": "products",
        "ts": 1589373560798,
        "type": kind,
        **more,
    }


DRUM = {"id": "112", "name": "drum", "weight": None}
CANAL: Corpus = [
    ("insert", text(flat("INSERT", [SCOOTER])), [ROW]),
    ("insert of several rows", text(flat("INSERT", [SCOOTER, DRUM, SCOOTER])), [ROW, OTHER, ROW]),
    ("update", text(flat("UPDATE", [SCOOTER], old=[{"weight": "5.15"}])), [ROW]),
    ("delete of several rows", text(flat("DELETE", [DRUM, SCOOTER])), [OTHER, ROW]),
    ("numbers as numbers", text(flat("INSERT", [{**SCOOTER, "id": 111, "weight": 5.18}])), [ROW]),
    ("no row", text(flat("INSERT", [])), "filtered"),
    (
        "a table is made",
        text(flat("CREATE", None, isDdl=True, sql="CREATE TABLE hunter2")),
        "filtered",
    ),
    ("a row of a first load", text(flat("INIT", [SCOOTER])), [ROW]),
    *(
        (f"{word} of no table", text(flat(word, None, table=None)), "filtered")
        for word in ("GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT")
    ),
    (
        "a table is altered, by a word of another version",
        text(flat("SOMETHING", None, isDdl=True)),
        "filtered",
    ),
    (
        "a change of shape that says nothing else",
        text({"isDdl": True, "database": "inventory", "table": "products"}),
        "filtered",
    ),
    ("an index is made", text(flat("CINDEX", None, isDdl=True)), "filtered"),
    ("a statement", text(flat("QUERY", None)), "filtered"),
    (
        "an insert that says that it is of the table's shape",
        text(flat("INSERT", 7, isDdl=True)),
        "filtered",
    ),
    (
        "truncate",
        text(flat("TRUNCATE", None, isDdl=True, sql="TRUNCATE hunter2")),
        ("schema", "truncate"),
    ),
    ("another table", text(flat("INSERT", [{"id": "x"}], table="orders")), "filtered"),
    (
        "a table whose name only begins alike",
        text(flat("INSERT", [{"id": "x"}], table="products2")),
        "filtered",
    ),
    ("a table of another database", text(flat("INSERT", 7, database="hunter2")), "filtered"),
    (
        "an unknown kind of change in another table",
        text(flat("hunter2", 7, table="orders")),
        "filtered",
    ),
    (
        "no table",
        text({"type": "INSERT", "database": "inventory", "data": [{**SCOOTER, "name": "hunter2"}]}),
        MISSING,
    ),
    ("unknown kind of change", text(flat("hunter2", [SCOOTER])), ("schema", "unknown_change")),
    (
        "kind in small letters",
        text(flat("insert", [{**SCOOTER, "name": "hunter2"}])),
        ("schema", "unknown_change"),
    ),
    ("no rows", text(flat("INSERT", None, sql="hunter2")), MISSING),
    ("one row without a list", text(flat("INSERT", {**SCOOTER, "name": "hunter2"})), WRONG_TYPE),
    ("a row that is null", text(flat("INSERT", [SCOOTER, None, SCOOTER], sql="hunter2")), MISSING),
    (
        "one row of several misses its name",
        text(flat("INSERT", [SCOOTER, {"id": "1"}], sql="hunter2")),
        MISSING,
    ),
    (
        "one row of several doesn't fit",
        text(flat("INSERT", [SCOOTER, {**DRUM, "id": "hunter2"}])),
        ("schema", "wrong_format"),
    ),
    (
        "a time of another form",
        text(flat("INSERT", [{**DRUM, "changed": "2026-01-05T09:00:00Z hunter2"}])),
        ("schema", "wrong_format"),
    ),
    (
        "a deleted row that doesn't fit",
        text(flat("DELETE", [{**DRUM, "weight": "hunter2"}])),
        ("schema", "wrong_format"),
    ),
    ("no JSON", b"hunter2", ("value", "not_json")),
]

# --------------------------------------------------------------------------------------------------

PRODUCT = {
    "id": 111,
    "name": "scooter",
    "weight": 5.18,
    "made": "2026-01-05",
    "changed": "2026-01-05 09:00:00.500000",
}


def change(kind: object, data: object, **more: object) -> dict[str, Any]:
    """Returns Maxwell's message."""
    return {
        "database": "test",
        "table": "product",
        "type": kind,
        "ts": 1596684904,
        "xid": 7201,
        "commit": True,
        "data": data,
        "primary_key_columns": ["id"],
        **more,
    }


MAXWELL: Corpus = [
    ("insert", text(change("insert", PRODUCT)), [ROW]),
    ("update", text(change("update", PRODUCT, old={"weight": 5.15})), [ROW]),
    ("delete", text(change("delete", PRODUCT)), [ROW]),
    ("row of a bootstrap", text(change("bootstrap-insert", PRODUCT)), [ROW]),
    ("a bootstrap begins", text(change("bootstrap-start", {})), "filtered"),
    ("a bootstrap is complete", text(change("bootstrap-complete", {})), "filtered"),
    (
        "a table is made",
        text(
            {"type": "table-create", "database": "test", "table": "product", "def": {"columns": []}}
        ),
        "filtered",
    ),
    (
        "a table is altered",
        text({"type": "table-alter", "database": "test", "table": "product", "old": {}, "def": {}}),
        "filtered",
    ),
    ("a database is dropped", text({"type": "database-drop", "database": "test"}), "filtered"),
    (
        "a list column",
        text(change("insert", {**PRODUCT, "tags": ["a", None]})),
        [(*ROW[:-1], ["a", None])],
    ),
    ("unknown kind of change", text(change("hunter2", PRODUCT)), ("schema", "unknown_change")),
    ("no row", text({"type": "insert", "database": "test", "table": "hunter2"}), MISSING),
    ("row that is empty", text(change("insert", {}, hunter2=1)), MISSING),
    (
        "number in a string",
        text(change("insert", {**PRODUCT, "id": "111", "name": "hunter2"})),
        WRONG_TYPE,
    ),
    ("several rows", text(change("insert", [{**PRODUCT, "name": "hunter2"}])), WRONG_TYPE),
    ("no JSON", b'{"type":"insert","hunter2', ("value", "not_json")),
]


# ----------------------------------------------------------------- tables with a primary key

A, B = {"id": 1, "part": "a", "name": "x"}, {"id": 1, "part": "b", "name": "x"}
KEYED: dict[str, list[tuple[str, bytes | None, Any]]] = {
    "debezium-json": [
        ("insert", text(event("c", None, A)), [A]),
        ("update", text(event("u", {**A, "name": "y"}, A)), [A]),
        ("update of PostgreSQL without a before-image", text(event("u", None, A)), [A]),
        ("update of the key", text(event("u", B, A)), [[{"id": 1, "part": "b"}], A]),
        (
            "update of the key whose before-image has what changed alone",
            text(event("u", {"part": "b"}, A)),
            [[{"id": 1, "part": "b"}], A],
        ),
        (
            "update whose before-image has nulls",
            text(event("u", {"id": None, "part": None}, A)),
            [A],
        ),
        ("deletion", text(event("d", A)), [[{"id": 1, "part": "a"}]]),
        (
            "deletion whose before-image has the key alone",
            text(event("d", {"part": "a", "id": 1})),
            [[{"id": 1, "part": "a"}]],
        ),
        (
            "deletion whose before-image has nonsense beside the key",
            text(event("d", {**A, "name": 7})),
            [[{"id": 1, "part": "a"}]],
        ),
        ("deletion that misses a column of the key", text(event("d", {"id": 1})), MISSING),
        ("deletion without a before-image", text(event("d")), MISSING),
        (
            "update whose before-image has a key of another kind",
            text(event("u", {"id": "1"}, A)),
            WRONG_TYPE,
        ),
        ("update without a row", text(event("u", B)), MISSING),
        ("tombstone", None, "dropped"),
        ("truncate", text(event("t")), ("schema", "truncate")),
    ],
    "canal-json": [
        ("insert", text(flat("INSERT", [A, B])), [A, B]),
        ("insert with a list of former rows", text(flat("INSERT", [A, B], old=[])), [A, B]),
        ("update", text(flat("UPDATE", [A, B], old=[{"name": "y"}, None])), [A, B]),
        (
            "update of a key",
            text(flat("UPDATE", [B, A], old=[{"name": "y"}, {"part": "c", "id": "7"}])),
            [[{"id": 7, "part": "c"}], B, A],
        ),
        (
            "two keys are exchanged",
            text(flat("UPDATE", [A, B], old=[{"part": "b"}, {"part": "a"}])),
            [[{"id": 1, "part": "b"}], [{"id": 1, "part": "a"}], A, B],
        ),
        (
            "deletion",
            text(flat("DELETE", [A, {"id": "2", "part": "b"}])),
            [[{"id": 1, "part": "a"}], [{"id": 2, "part": "b"}]],
        ),
        (
            "fewer former rows than rows",
            text(flat("UPDATE", [A, B], old=[{"name": "y"}])),
            ("schema", "row_count"),
        ),
        (
            "more former rows than rows",
            text(flat("UPDATE", [A], old=[{}, {}])),
            ("schema", "row_count"),
        ),
        (
            "a former key of another kind",
            text(flat("UPDATE", [A, B], old=[None, {"id": "x"}])),
            ("schema", "wrong_format"),
        ),
        ("one deleted row without its key", text(flat("DELETE", [A, {"id": "2"}])), MISSING),
        ("no deleted row", text(flat("DELETE", [])), "filtered"),
    ],
    "maxwell-json": [
        ("insert", text(change("insert", A)), [A]),
        ("update", text(change("update", A, old={"name": "y"})), [A]),
        (
            "update of the key",
            text(change("update", A, old={"id": 3})),
            [[{"id": 3, "part": "a"}], A],
        ),
        ("deletion", text(change("delete", A)), [[{"id": 1, "part": "a"}]]),
        ("deletion without its key", text(change("delete", {"id": 1})), MISSING),
    ],
}
