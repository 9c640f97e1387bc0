"""A day of changes to a table of customers, as Debezium writes them. Pure.

The same seed makes the same messages. First comes a snapshot of all customers, then
inserts, updates and deletions. Each deletion is followed by a tombstone. Sometimes a
customer gets another key: Debezium writes that as a deletion and an insert.
"""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from windrow.assets.demo.orders import CITIES, HOURS, PARTITIONS

THERE_BEFORE = 2_000
"""Number of customers in the snapshot."""

CHANGES = 8_000
_NAMES = ("Ana", "Bela", "Chen", "Dilnoza", "Esi", "Farid", "Grün", "Hana")


class CustomerRow(msgspec.Struct, frozen=True):
    """A row of the database.

    Attributes:
        customer: the primary key.
        name: the customer's name.
        city: the customer's city.
        born: the date of birth, in days since 1970.
        credit: the credit, in cents.
    """

    customer: str
    name: str
    city: str | None
    born: int | None
    credit: int


class CustomerMessage(msgspec.Struct, frozen=True):
    """A message to produce.

    Attributes:
        partition: the partition that it is produced to.
        key: the message's key.
        value: the message's value; None for a tombstone.
        timestamp: its timestamp, in epoch milliseconds.
        customer: the primary key of the customer.
        row: the customer's row after the change; None if it is deleted.
    """

    partition: int
    key: bytes
    value: bytes | None
    timestamp: int  # epoch milliseconds
    customer: str
    row: CustomerRow | None


def changes(start: datetime, seed: int = 11) -> Iterator[CustomerMessage]:
    """Yields the messages of the 24 hours from `start`, in the order of the database's writes."""
    rng = random.Random(seed)
    rows = {f"customer-{n:04d}": _customer(rng, f"customer-{n:04d}") for n in range(THERE_BEFORE)}
    begin = int(start.timestamp() * 1000)
    for row in rows.values():
        yield _message("r", None, row, begin)
    number = THERE_BEFORE
    for i in range(CHANGES):
        now = begin + (i + 1) * int(timedelta(hours=HOURS).total_seconds() * 1000) // (CHANGES + 1)
        draw = rng.random()
        if draw < 0.2:
            row = _customer(rng, f"customer-{number:04d}")
            number += 1
            rows[row.customer] = row
            yield _message("c", None, row, now)
            continue
        old = rows.pop(rng.choice(list(rows)))
        if draw < 0.3:
            yield from _deletion(old, now)
        elif draw < 0.32:
            row = msgspec.structs.replace(old, customer=f"customer-{number:04d}")
            number += 1
            rows[row.customer] = row
            yield from _deletion(old, now)
            yield _message("c", None, row, now)
        else:
            row = _customer(rng, old.customer)
            rows[row.customer] = row
            yield _message("u", old, row, now)


def _customer(rng: random.Random, customer: str) -> CustomerRow:
    city, born = rng.choice([*CITIES, None]), rng.choice([None, rng.randrange(-10_000, 14_000)])
    return CustomerRow(customer, rng.choice(_NAMES), city, born, rng.randrange(1_000_000))


def _deletion(old: CustomerRow, now: int) -> Iterator[CustomerMessage]:
    deletion = _message("d", old, None, now)
    yield deletion
    yield msgspec.structs.replace(deletion, value=None)


def _message(
    op: str, old_row: CustomerRow | None, new_row: CustomerRow | None, now: int
) -> CustomerMessage:
    row = new_row or old_row
    assert row is not None
    source = {
        "version": "3.0.0.Final",
        "connector": "mysql",
        "name": "shop",
        "ts_ms": now,
        "db": "shop",
        "table": "customers",
    }
    event = {
        "before": _image(old_row),
        "after": _image(new_row),
        "source": source,
        "op": op,
        "ts_ms": now + 250,
    }
    key = json.dumps({"customer": row.customer}).encode()
    return CustomerMessage(
        zlib.crc32(key) % PARTITIONS, key, json.dumps(event).encode(), now, row.customer, new_row
    )


def _image(row: CustomerRow | None) -> dict[str, Any] | None:
    """Returns a row as Connect's JsonConverter writes it: a decimal is the bytes of its digits."""
    if row is None:
        return None
    digits = row.credit.to_bytes(row.credit.bit_length() // 8 + 1, "big", signed=True)
    return {**msgspec.structs.asdict(row), "credit": base64.b64encode(digits).decode()}
