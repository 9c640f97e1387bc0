"""Produces the day of orders and customers once, and writes the manifests.

A manifest has a line for each produced message. The checks compare the tables with the
manifests.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from windrow.assets.demo.customers import CustomerMessage, changes
from windrow.assets.demo.orders import PARTITIONS, OrderMessage, Through, day

ORDERS, CUSTOMERS = "shop.orders", "shop.customers"

TOPIC_CONFIG = {
    "retention.ms": "-1",  # retention goes by the messages' own timestamps
    "message.timestamp.after.max.ms": str(2**63 - 1),  # one order comes from 2099
}


def produce_day(bootstrap: str, start: datetime, orders: int, manifest: Path) -> int:
    """Makes the topic of orders and fills it; returns the number of messages.

    The manifest is written last. If it exists, the topic is complete.
    """
    create(bootstrap, ORDERS)
    messages = list(day(start, orders))
    offsets = _produce(bootstrap, messages)
    columns = {
        "kind": pa.array([m.kind for m in messages]).dictionary_encode(),
        "order_id": pa.array([m.order_id for m in messages], pa.int64()),
    }
    _write(manifest, messages, offsets, columns)
    return len(messages)


def produce_customers(bootstrap: str, start: datetime, manifest: Path) -> int:
    """Makes the topic of customers' changes and fills it, as `produce_day` does."""
    create(bootstrap, CUSTOMERS)
    messages = list(changes(start))
    offsets = array("q", [-1]) * len(messages)
    _send(Producer(_config(bootstrap)), CUSTOMERS, enumerate(messages), offsets)
    write_customers(manifest, messages, offsets)
    return len(messages)


def write_customers(
    manifest: Path, messages: Sequence[CustomerMessage], offsets: Sequence[int]
) -> None:
    """Writes the manifest of customers' changes: each message's offset, and the row after it."""
    rows = [m.row for m in messages]
    columns = {
        "customer": pa.array([m.customer for m in messages]),
        "name": pa.array([row and row.name for row in rows], pa.string()),
        "city": pa.array([row and row.city for row in rows], pa.string()),
        "born": pa.array([row and row.born for row in rows], pa.int32()).cast(pa.date32()),
        "credit": pa.array(
            [row and Decimal(row.credit).scaleb(-2) for row in rows], pa.decimal128(12, 2)
        ),
        "changed_at": pa.array(
            [m.timestamp * 1000 for m in messages], pa.timestamp("us", tz="UTC")
        ),
        "gone": pa.array([row is None for row in rows]),
    }
    _write(manifest, messages, offsets, columns)


def create(bootstrap: str, topic: str) -> None:
    """Makes a topic, if it isn't there yet."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    if topic not in admin.list_topics(timeout=30).topics:
        new = NewTopic(topic, PARTITIONS, 1, config=TOPIC_CONFIG)
        admin.create_topics([new])[topic].result()


def _produce(bootstrap: str, messages: Sequence[OrderMessage]) -> array[int]:
    """Produces all messages in order; returns the offset of each, as the broker reported it."""
    plain = Producer(_config(bootstrap))
    offsets = array("q", [-1]) * len(messages)
    for number, (through, stretch) in enumerate(
        groupby(enumerate(messages), key=lambda numbered: numbered[1].through)
    ):
        if through == "plain":
            _send(plain, ORDERS, stretch, offsets)
        else:
            _transact(
                Producer({**_config(bootstrap), "transactional.id": f"demo-{number}"}),
                through,
                stretch,
                offsets,
            )
    return offsets


def _config(bootstrap: str) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "compression.type": "lz4",
        "linger.ms": 20,
        "queue.buffering.max.messages": 1_000_000,
        "log_level": 3,  # without the warnings that a new broker is still loading coordinators
    }


def _transact(
    producer: Producer,
    through: Through,
    stretch: Iterable[tuple[int, OrderMessage]],
    offsets: array[int],
) -> None:
    producer.init_transactions()
    producer.begin_transaction()
    _send(producer, ORDERS, stretch, offsets)
    if through == "commit":
        producer.commit_transaction()
    else:
        producer.abort_transaction()


def _send(
    producer: Producer,
    topic: str,
    stretch: Iterable[tuple[int, OrderMessage | CustomerMessage]],
    offsets: array[int],
) -> None:
    """Produces messages, and waits until each has its offset.

    So messages that are produced later have higher offsets.
    """
    for number, m in stretch:
        producer.produce(
            topic,
            m.value,
            m.key,
            m.partition,
            timestamp=m.timestamp,
            on_delivery=partial(_note, offsets, number),
        )
        if number % 5000 == 0:
            producer.poll(0)
    producer.flush()


def _note(offsets: array[int], number: int, error: KafkaError | None, delivered: Delivered) -> None:
    if error is not None:
        raise KafkaException(error)
    offset = delivered.offset()
    offsets[number] = -1 if offset is None else offset


def _write(
    manifest: Path,
    messages: Sequence[OrderMessage | CustomerMessage],
    offsets: Sequence[int],
    columns: dict[str, pa.Array],
) -> None:
    """Writes a manifest: a line per message with partition, offset and more columns."""
    if min(offsets) < 0:
        msg = f"{sum(o < 0 for o in offsets)} messages of the demo were not delivered; run it again"
        raise RuntimeError(msg)
    table = pa.table(
        {
            "partition": pa.array([m.partition for m in messages], pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            **columns,
        }
    )
    part = manifest.with_suffix(".part")
    pq.write_table(table, part)
    part.replace(manifest)
