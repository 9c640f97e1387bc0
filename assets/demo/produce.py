"""Produces the day of orders once, and writes down what went where: the manifest that the check trusts."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from assets.demo.orders import PARTITIONS, OrderMessage, Through, day

TOPIC = "shop.orders"

_TOPIC_CONFIG = {
    "retention.ms": "-1",  # retention goes by the messages' own timestamps
    "message.timestamp.after.max.ms": str(2**63 - 1),  # one order comes from 2099
}


def produce_day(bootstrap: str, start: datetime, orders: int, manifest: Path) -> int:
    """Make the topic and fill it; the number of messages. The manifest appears last: where it is, the topic is whole."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=_TOPIC_CONFIG)]).values():
        future.result()
    sent = list(day(start, orders))
    offsets = _produce(bootstrap, sent)
    _write(manifest, sent, offsets)
    return len(sent)


def _produce(bootstrap: str, sent: Sequence[OrderMessage]) -> array[int]:
    """Everything in its order; the offsets that the broker reported, one per message."""
    plain = Producer(_config(bootstrap))
    offsets = array("q", [-1]) * len(sent)
    for number, (through, stretch) in enumerate(groupby(enumerate(sent), key=lambda numbered: numbered[1].through)):
        if through == "plain":
            _send(plain, stretch, offsets)
        else:
            _transact(Producer({**_config(bootstrap), "transactional.id": f"demo-{number}"}), through, stretch, offsets)
    return offsets


def _config(bootstrap: str) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "lz4", "linger.ms": 20,
        "queue.buffering.max.messages": 1_000_000,
        "log_level": 3,  # a new broker is still loading its coordinators, which is no news
    }  # fmt: skip


def _transact(producer: Producer, through: Through, stretch: Iterable[tuple[int, OrderMessage]], offsets: array[int]) -> None:
    producer.init_transactions()
    producer.begin_transaction()
    _send(producer, stretch, offsets)
    if through == "commit":
        producer.commit_transaction()
    else:
        producer.abort_transaction()


def _send(producer: Producer, stretch: Iterable[tuple[int, OrderMessage]], offsets: array[int]) -> None:
    """Until every message of the stretch has its offset; what comes next then lies behind it in the log."""
    for number, m in stretch:
        producer.produce(TOPIC, m.value, m.key, m.partition, timestamp=m.timestamp, on_delivery=partial(_note, offsets, number))
        if number % 5000 == 0:
            producer.poll(0)
    producer.flush()


def _note(offsets: array[int], number: int, error: KafkaError | None, delivered: Delivered) -> None:
    if error is not None:
        raise KafkaException(error)
    offset = delivered.offset()
    offsets[number] = -1 if offset is None else offset


def _write(manifest: Path, sent: Sequence[OrderMessage], offsets: array[int]) -> None:
    """One line per message: what it was, where it went."""
    if min(offsets) < 0:
        msg = f"{sum(o < 0 for o in offsets)} messages of the demo were not delivered; run it again"
        raise RuntimeError(msg)
    table = pa.table(
        {
            "partition": pa.array([m.partition for m in sent], pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "kind": pa.array([m.kind for m in sent]).dictionary_encode(),
            "order_id": pa.array([m.order_id for m in sent], pa.int64()),
        }
    )
    part = manifest.with_suffix(".part")
    pq.write_table(table, part)
    part.replace(manifest)
