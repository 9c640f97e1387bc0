"""The events of a window with a thousand topic-partitions, which fit in a row of the database."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from tests.assets.world import World
from windrow.assets.metadata import SHOWN

pytestmark = pytest.mark.long

WIDE, PARTITIONS = "shop.wide", 1000
LIMIT = 64 * 1024
"""Limit in bytes of one event's metadata, as Dagster stores it."""


def test_an_event_of_a_thousand_topic_partitions_is_small(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """The event lists the important topic-partitions, has all totals, and is smaller than 64 KB.

    For the others it names a command.
    """
    world = World(tmp_path, instance, source={"bootstrap_servers": "127.0.0.1:9", "topic": WIDE})
    world.broker.create_topic(WIDE, partitions=PARTITIONS)
    for hour in range(2):  # the second hour is the table's lag
        for partition in range(PARTITIONS):
            for minute in range(2 if partition % 100 == 50 else 1):
                world.send(hour, minute, b'{"id": %d}' % partition, partition, WIDE)
        world.send(hour, 2, b"poison", PARTITIONS - 1, WIDE)
    assert world.run(0).success
    metadata = world.metadata(0)
    sizes = {name: len(dg.serialize_value(value)) for name, value in metadata.items()}
    assert sum(sizes.values()) < LIMIT, sizes
    assert (
        metadata["rows_written"].value,
        metadata["dead_letters"].value,
        metadata["topic_partitions"].value,
    ) == (PARTITIONS + 10, 1, PARTITIONS)
    listed_partitions = [line.data["partition"] for line in metadata["offsets"].records]
    assert listed_partitions == sorted(listed_partitions)
    assert (len(listed_partitions), {50, 950, PARTITIONS - 1} <= set(listed_partitions)) == (
        SHOWN,
        True,
    )
    lagging_partitions = [line.data["partition"] for line in metadata["lag"].records]
    assert (len(lagging_partitions), {50, 950, PARTITIONS - 1} <= set(lagging_partitions)) == (
        SHOWN,
        True,
    )
    assert (
        metadata["receipt_command"].value
        == "windrow show SPEC --window 2026-01-05T00:00:00Z --json"
    )
    assert "receipt" not in metadata
