"""A day of orders as a sequence of messages, the same for the same seed. Pure.

Timestamps go up within each hour, except for 1.5% late messages, which have an earlier time
than the messages around them.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from windrow.assets.demo.poison import POISON

Kind = Literal["order", "poison", "tombstone", "aborted"]
Through = Literal["plain", "commit", "abort"]

PARTITIONS = 4
HOURS = 24
TOMBSTONES = 15
_FAR_FUTURE = int(datetime(2099, 1, 1, tzinfo=UTC).timestamp() * 1000)
_FUTURE_HOUR = 6
_TRANSACTIONS: dict[int, Through] = {4: "commit", 9: "abort", 15: "commit"}
_NOTES = ("leave at the door", "ring twice", "gift, no bill please", "call before delivery")
_TAGS = ("[]", '["sale"]', '["new","gift"]', "null")
CITIES = ("Porto", "Lyon", "Leipzig", "Xi'an", "Kraków", "Malmö")


class OrderMessage(msgspec.Struct, frozen=True):
    """A message to produce.

    Attributes:
        kind: what the message is.
        through: "plain" outside of transactions, else how its transaction ends.
        partition: the partition that it is produced to.
        key: the message's key.
        value: the message's value.
        timestamp: its timestamp, in epoch milliseconds.
        order_id: the id of the order; None for other messages.
    """

    kind: Kind
    through: Through
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int  # epoch milliseconds
    order_id: int | None


def day(start: datetime, orders: int, seed: int = 7) -> Iterator[OrderMessage]:
    """Yields the messages of the 24 hours from `start`.

    There are exactly `orders` orders, and in addition poison messages, tombstones and one
    aborted transaction.
    """
    rng = random.Random(seed)
    first = 1
    for hour in range(HOURS):
        count = orders * (hour + 1) // HOURS - orders * hour // HOURS
        yield from _hour(rng, start, hour, first, count)
        first += count


def _hour(
    rng: random.Random, start: datetime, hour: int, first: int, count: int
) -> Iterator[OrderMessage]:
    """Yields one hour of orders, by time. In some hours a twentieth of them is a transaction.

    The orders of an aborted transaction are additional ones. Their ids are far from all
    others.
    """
    begin, earliest = (int((start + timedelta(hours=h)).timestamp() * 1000) for h in (hour, 0))
    low, high = count // 2, count // 2 + max(1, count // 20)
    transaction = _TRANSACTIONS.get(hour, "plain")
    more = _poison_and_tombstones(rng, hour, count)
    for i in range(count):
        now = begin + i * 3_600_000 // count
        through: Through = "commit" if transaction == "commit" and low <= i < high else "plain"
        if transaction == "abort" and i == low:
            yield from (
                _order(rng, 10_000_000 + k, now, "aborted", "abort") for k in range(high - low)
            )
        future = hour == _FUTURE_HOUR and i == 0
        yield _order(
            rng, first + i, _FAR_FUTURE if future else _late(rng, now, earliest), "order", through
        )
        for value in more.get(i, ()):
            kind: Kind = "tombstone" if value is None else "poison"
            yield OrderMessage(
                kind, through, rng.randrange(PARTITIONS), b"customer-poison", value, now, None
            )


def _poison_and_tombstones(
    rng: random.Random, hour: int, count: int
) -> dict[int, list[bytes | None]]:
    """Returns the poison messages and tombstones of an hour, by the order that they follow."""
    values = [value for i, (_, value) in enumerate(POISON) if i % HOURS == hour]
    values_and_nulls: list[bytes | None] = [
        *values,
        *[None for i in range(TOMBSTONES) if i * 3 % HOURS == hour],
    ]
    by_order: dict[int, list[bytes | None]] = {}
    for value in values_and_nulls:
        by_order.setdefault(rng.randrange(count), []).append(value)
    return by_order


def _late(rng: random.Random, now: int, earliest: int) -> int:
    """Returns an order's timestamp: now; for 1% some minutes ago; for 0.5% some hours ago."""
    draw = rng.random()
    if draw < 0.985:
        return now
    ago = (
        rng.randrange(60_000, 45 * 60_000)
        if draw < 0.995
        else rng.randrange(3_600_000, 5 * 3_600_000)
    )
    return max(earliest, now - ago)


def _order(
    rng: random.Random, order_id: int, stamp: int, kind: Kind, through: Through
) -> OrderMessage:
    customer = f"customer-{rng.randrange(5000):04d}"
    key = customer.encode() if order_id % 50 else None
    partition = zlib.crc32(key) % PARTITIONS if key else rng.randrange(PARTITIONS)
    return OrderMessage(
        kind,
        through,
        partition,
        key,
        _value(rng, order_id, customer, stamp).encode(),
        stamp,
        order_id,
    )


def _value(rng: random.Random, order_id: int, customer: str, stamp: int) -> str:
    amount = f"{rng.randrange(1, 500)}.{rng.randrange(100):02d}"
    if order_id % 10 == 0:
        amount = f'"{amount}"'  # some shops send amounts as strings, which is exact as well
    ship_to = (
        f'{{"city":"{rng.choice(CITIES)}","postcode":"{rng.randrange(10000, 99999)}"}}'
        if order_id % 4
        else "null"
    )
    more = "" if order_id % 3 else f',"note":"{rng.choice(_NOTES)}"'
    more += "" if order_id % 100 else ',"coupon":"SPRING"'  # a field that the schema doesn't name
    created = datetime.fromtimestamp(stamp / 1000, UTC).isoformat(timespec="milliseconds")
    currency = rng.choice(("EUR", "USD", "CNY"))
    sku, quantity = f"SKU-{rng.randrange(5000):05d}", rng.randrange(1, 20)
    express = "true" if order_id % 7 == 0 else "false"
    return (
        f'{{"order_id":{order_id},"customer":"{customer}",'
        f'"amount":{amount},"currency":"{currency}",'
        f'"sku":"{sku}","quantity":{quantity},"created_at":"{created}",'
        f'"express":{express},"tags":{rng.choice(_TAGS)},"ship_to":{ship_to}{more}}}'
    )
