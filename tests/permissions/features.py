"""What each feature needs in Kafka: the table that `docs/permissions.md` and its tests share."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from windrow.ingest.kafka.rights import READ_TOPIC, Right
from windrow.ingest.ledger.entries import PRIVILEGES as LEDGER_PRIVILEGES
from windrow.ingest.ledger.entries import TABLE
from windrow.ingest.sinks.postgres.names import PRIVILEGES


@dataclass(frozen=True)
class KafkaFeature:
    """A feature, and the rights of a client that uses it.

    The names of the rights are the keys of the names that a test makes, in capital letters.

    Attributes:
        name: the feature, for a test's id.
        setting: the settings that use it, for the page.
        rights: all rights that it needs.
    """

    name: str
    setting: str
    rights: tuple[Right, ...]

    def named(self, **names: str) -> list[Right]:
        """Returns the rights with real names."""
        return [msgspec.structs.replace(right, name=names[right.name]) for right in self.rights]


def _on(resource: str, name: str, *operations: str, is_prefix: bool = False) -> tuple[Right, ...]:
    return tuple(
        Right(operation, resource, name, is_prefix)  # type: ignore[arg-type]
        for operation in operations
    )


_READ = _on("topic", "TOPIC", *READ_TOPIC)
_SINK = (*_on("topic", "TARGET", "Write"), *_on("topic", "CONTROL", "Read", "Write"))
_TRANSACTIONS = _on("transactional-id", "PREFIX", "Write", is_prefix=True)

KAFKA = (
    KafkaFeature(
        "read",
        "`source.topic`, `topics` and `topic_pattern`, for windows in time and for micro-batches;"
        " `windrow infer`, `peek` and `lag`; a DataFrame that is read",
        _READ,
    ),
    KafkaFeature(
        "start_at_group",
        "`source.start: {committed: GROUP}`",
        (*_READ, *_on("group", "GROUP", "Describe")),
    ),
    KafkaFeature(
        "offsets_group",
        "`source.offsets_group: GROUP`",
        (*_READ, *_on("group", "GROUP", "Read")),
    ),
    KafkaFeature("dead_letters", "`dead_letters.topic: DEAD`", _on("topic", "DEAD", "Write")),
    KafkaFeature(
        "sink",
        "`sink.kind: kafka`, with a control topic that you made; a DataFrame that is written",
        (*_SINK, *_TRANSACTIONS),
    ),
    KafkaFeature(
        "sink_makes_control",
        "`sink.kind: kafka`, with a control topic that windrow makes",
        (*_SINK, *_on("topic", "CONTROL", "Create"), *_TRANSACTIONS),
    ),
    KafkaFeature(
        "sink_without_transactions",
        "`sink.kind: kafka` with `delivery_guarantee: at-least-once` or `none`",
        _SINK,
    ),
    KafkaFeature(
        "verify",
        "`windrow verify` of `sink.kind: kafka`",
        (*_on("topic", "CONTROL", "Read"), *_on("topic", "TARGET", "Read")),
    ),
)


@dataclass(frozen=True)
class SqlFeature:
    """A feature that uses a database, and the statements that grant all that it needs.

    The page's database is `shop`, its user `loader`, and its table `sales.orders`.

    Attributes:
        name: the feature, for a test's id.
        setting: the settings that use it, for the page.
        statements: the statements.
    """

    name: str
    setting: str
    statements: tuple[str, ...]


def _grants(table: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"GRANT {name} ON TABLE {table} TO loader" for name in names)


_IN_SALES = ("GRANT USAGE ON SCHEMA sales TO loader", "GRANT CREATE ON SCHEMA sales TO loader")
_LEDGER_TABLE = f"public.{TABLE.name}"

POSTGRES = (
    SqlFeature(
        "sink_makes_all",
        "`sink.kind: postgres`, which makes the schema `windrow` and its tables",
        ("GRANT CREATE ON DATABASE shop TO loader", *_IN_SALES),
    ),
    SqlFeature(
        "sink_with_own_tables",
        "`sink.kind: postgres`, with the schema `windrow` and the tables in it of another user",
        (
            "GRANT USAGE ON SCHEMA windrow TO loader",
            *(
                statement
                for table, names in PRIVILEGES.items()
                for statement in _grants(f"windrow.{table}", names)
            ),
            *_IN_SALES,
        ),
    ),
    SqlFeature(
        "ledger_makes_table",
        "`state: postgresql://...`, which makes the ledger's table in the first schema of the"
        " user's `search_path`, by default `public`",
        (
            "GRANT USAGE ON SCHEMA public TO loader",
            "GRANT CREATE ON SCHEMA public TO loader",
        ),
    ),
    SqlFeature(
        "ledger_with_table",
        "`state: postgresql://...`, with a ledger that another user made",
        (
            "GRANT USAGE ON SCHEMA public TO loader",
            *_grants(_LEDGER_TABLE, LEDGER_PRIVILEGES),
        ),
    ),
    SqlFeature(
        "lookup",
        "`lookup` in PostgreSQL, of `relation: sales.customers`",
        (
            "GRANT USAGE ON SCHEMA sales TO loader",
            "GRANT SELECT ON TABLE sales.customers TO loader",
        ),
    ),
)

_FOLDER = (
    "below `sink.path`, and the same path with `_dead`: to make, read and remove files and folders;"
    " in a bucket to [get, put, delete and list](object-stores.md#how-the-store-is-found)"
)

SINKS = {
    "delta": _FOLDER,
    "files": _FOLDER,
    "iceberg": (
        "below `sink.warehouse` the same as for `delta`; in the catalog to make, load and change"
        " the table"
    ),
    "sqlite": "in the folder of `sink.path`: to make, read, write and remove files",
    "postgres": "[in PostgreSQL](#postgresql); below `sink.staging` the same as for `delta`",
    "kafka": "[in Kafka](#kafka); below `sink.staging` the same as for `delta`",
    "routes": "those of each of its tables",
}
LOOKUPS = {
    "table": "below the table: to read files and list folders; in a bucket to get and list",
    "sql": "[in PostgreSQL](#postgresql), [in MySQL](#mysql-and-mariadb); to read a file of SQLite",
    "http": "what the service asks for",
}
LEDGERS = {
    "sqlite": "in the folder of `state`: to make, read, write and remove files",
    "postgresql": "[in PostgreSQL](#postgresql)",
}
