"""Customers whose table holds each one's last message: a log of three hours, and its result."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from deltalake import DeltaTable

from tests.integration.harness import millis
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.sinks.iceberg.catalogs import load

SCHEMA = '''\
"""Customers."""

import pandera.polars as pa
import polars as pl


class Customer(pa.DataFrameModel):
    """The shop and the number are the key's."""

    shop: pl.String
    number: pl.Int32
    name: pl.String = pa.Field(str_length={"min_value": 1})
    credit: pl.Decimal(9, 2) = pa.Field(nullable=True)
'''

Customer = tuple[str, int]
Log = Mapping[int, Sequence[tuple[Customer | None, str | None]]]
LOG: Log = {
    1: [
        (("a", 1), "Ann"),
        (("a", 2), "Bob"),
        (("b", 1), "Cid"),
        (("a", 1), "Anna"),
        (("b", 2), None),
    ],
    2: [(("a", 2), None), (("b", 1), "Cyd"), (("b", 3), "Dot"), (None, None), (("b", 4), "")],
    3: [(("b", 3), None), (("a", 2), "Bo"), (("b", 5), "Eve")],
}
"""The messages of each hour: the customer and the name; None: a message without a value.

One message has no key, and one has a name that breaks a rule.
"""

LEFT = [("a", 1, "Anna"), ("a", 2, "Bo"), ("b", 1, "Cyd"), ("b", 5, "Eve")]
MARKED = [*LEFT[:3], ("b", 2, None), ("b", 3, None), LEFT[3]]


PLAIN = (
    "{schema: 'customers.py:Customer', key: {fields: [shop, number]}, fields_include: except_key}"
)
DEBEZIUM = "{format: debezium-json, schema: 'customers.py:Customer'}"


def plain(customer: Customer | None, name: str | None) -> list[bytes | None]:
    """Returns the values of a producer of upserts. The key is in the message's key."""
    del customer
    return [None if name is None else json.dumps({"name": name, "credit": "1.50"}).encode()]


def debezium(customer: Customer | None, name: str | None) -> list[bytes | None]:
    """Returns Debezium's events, with the row before and after.

    A deletion is followed by a message without a value.
    """
    if customer is None:
        return [None]
    row = {"shop": customer[0], "number": customer[1], "name": name or "", "credit": 1.5}
    if name is None:
        return [json.dumps({"before": row, "after": None, "op": "d"}).encode(), None]
    return [json.dumps({"before": None, "after": row, "op": "c"}).encode()]


def random_log(dice: random.Random, messages: int) -> Log:
    """Returns a log of three hours, with the given number of messages in each.

    There are few customers, so that their messages replace each other. Some messages are
    refused.
    """
    whose: list[Customer | None] = [None, *((shop, number) for shop in "ab" for number in range(5))]
    return {
        hour: [
            (dice.choice(whose), dice.choice([None, None, "", *(f"{hour}-{n}" for n in "pqrst")]))
            for _ in range(messages)
        ]
        for hour in (1, 2, 3)
    }


class Last(NamedTuple):
    """A customer's last message.

    Attributes:
        name: the customer's name; None if the message deletes the customer.
        partition: the message's partition.
        offset: the message's offset.
    """

    name: str | None
    partition: int
    offset: int


def last_words(log: Log) -> dict[Customer, Last]:
    """Returns each customer's last message, computed with a dict in the order of the log."""
    last_by_customer: dict[Customer, Last] = {}
    offsets: Counter[int] = Counter()
    for hour in sorted(log):
        for customer, name in log[hour]:
            partition = _partition(customer)
            if customer is not None and name != "":
                last_by_customer[customer] = Last(name, partition, offsets[partition])
            offsets[partition] += 1
    return last_by_customer


def _partition(customer: Customer | None) -> int:
    return 0 if customer is None else customer[1] % 2


DELTA = "path: ./things"
"""A Delta table next to the spec."""


def make_user(
    kafka: str,
    folder: Path,
    sink: str,
    decode: str = PLAIN,
    *,
    log: Log = LOG,
    location: str = DELTA,
) -> User:
    """Makes a user with a pipeline of customers.

    Args:
        kafka: the broker.
        folder: the folder of the spec.
        sink: the options of the sink, without its location.
        decode: the `decode` section.
        log: the messages.
        location: the sink's kind and location; by default a Delta table next to the spec.
    """
    topic, values = create_topic(kafka, partitions=2), plain if decode == PLAIN else debezium
    puts = []
    for hour, messages in log.items():
        for second, (customer, name) in enumerate(messages):
            key = (
                None
                if customer is None
                else json.dumps({"number": customer[1], "shop": customer[0]}).encode()
            )
            puts += [
                Put(value, millis(hour, second=second), _partition(customer), key)
                for value in values(customer, name)
            ]
    # These messages complete the last hour.
    puts += [Put(None, millis(4), partition, b'{"shop":"z","number":0}') for partition in range(2)]
    produce(kafka, topic, puts)
    user = User(kafka, topic, folder)
    (folder / "customers.py").write_text(SCHEMA)
    (folder / "things.yaml").write_text(
        "id: things\nsource: {bootstrap_servers: '{{ env.BROKER }}', topic:"
        f" {topic}}}\nwindow: {{grid: hourly, start: 2026-01-05T00:00:00Z, delay: 1m}}\ndecode:"
        f" {decode}\nsink: {{{location}, primary_key: [shop, number], {sink}}}\nstate:"
        " ./state.db\nlimits: {max_dead_ratio: 1}\n"
    )
    return user


def customers(folder: Path) -> list[tuple[Any, ...]]:
    """Returns the rows of the table, which is a Delta table or an Iceberg table."""
    if (folder / "lake").exists():
        table = load(CatalogTable.in_folder(f"{folder}/lake", "shop.things"))
        assert table is not None
        rows = table.scan().to_arrow().to_pylist()
    else:
        rows = DeltaTable(folder / "things").to_pyarrow_table().to_pylist()
    return sorted((row["shop"], row["number"], row["name"]) for row in rows)
