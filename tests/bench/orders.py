"""Fills a topic with N seeded orders of about 158 bytes."""

from __future__ import annotations

import json
import random

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

FIRST_MS = 1_760_000_000_000  # 2025-10-09T08:53:20Z; one message a millisecond, so 4,000,000 stay within that day
DISTINCT = 20_000


def values() -> list[bytes]:
    """Their bytes, as many as differ."""
    r = random.Random(1)
    return [
        json.dumps(
            {
                "order_id": i, "customer": f"customer-{r.randrange(100_000)}", "amount": round(r.random() * 1000, 2),
                "currency": r.choice(["EUR", "USD", "CNY"]), "sku": f"SKU-{r.randrange(5000):05d}", "quantity": r.randrange(1, 20),
                "created_at": FIRST_MS + i, "note": None if i % 3 else "leave at the door, ring twice",
            },
            separators=(",", ":"),
        ).encode()
        for i in range(DISTINCT)
    ]  # fmt: skip


def fill(bootstrap: str, topic: str, n: int, partitions: int) -> float:
    """Make the topic and produce; mean bytes per value."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})]).values():
        future.result(60)
    made = values()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 500_000,
            "batch.size": 1_000_000,
        }
    )
    for i in range(n):
        while True:
            try:
                producer.produce(topic, made[i % DISTINCT], key=b"k%d" % (i % 100_000), partition=i % partitions, timestamp=FIRST_MS + i)
                break
            except BufferError:
                producer.poll(0.1)
        if i % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    return sum(map(len, made)) / len(made)
