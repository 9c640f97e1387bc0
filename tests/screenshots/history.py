"""A Dagster history for the pictures, made in this process: `python -m ... FOLDER`.

The folder has a day of the demo's orders and customers, as `make demo` leaves it. More
customers arrive, and aren't read yet. Of billing's last hours the first is refused, the second
has lost messages, and the last isn't complete. The folder's broker must be running.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from itertools import islice
from pathlib import Path

import confluent_kafka
import dagster as dg
from confluent_kafka.admin import AdminClient
from rich.console import Console

from windrow.assets.dagster_internals import range_tags
from windrow.assets.demo.customers import changes
from windrow.assets.demo.orders import HOURS
from windrow.assets.demo.place import DemoHome
from windrow.assets.demo.run import demo
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import TopicPartition

ORDERS = 60_000
TOPIC = dg.AssetKey(["kafka", "shop.customers"])

FIRST = 18
"""The first hour of the day that billing reads."""


def billing_key(home: DemoHome, hour: int) -> str:
    """Returns the partition key of an hour of the day."""
    return f"{home.start() + timedelta(hours=hour):%Y-%m-%d-%H:%M}"


def main(home: DemoHome) -> None:
    """Makes the history."""
    if not demo(home, ORDERS, Console(width=140)):
        raise SystemExit(1)
    from tests.screenshots.definitions import defs

    definitions = defs()
    bootstrap = definitions.resources["billing_kafka"].bootstrap_servers
    messages = changes(home.start())
    refused_key, lossy_key, last_key = (billing_key(home, n) for n in (FIRST, FIRST + 1, HOURS - 1))
    with dg.DagsterInstance.from_config(str(home.dagster_home)) as instance:

        def run(job: str, *keys: str) -> None:
            definitions.resolve_job_def(job).execute_in_process(
                instance=instance,
                tags=range_tags(dg.PartitionKeyRange(*keys)) if keys else {},
                raise_on_error=False,
            )

        def come() -> None:
            producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
            for m in islice(messages, 700):
                producer.produce("shop.customers", m.value, m.key, m.partition)
            producer.flush(60)
            run("customers_topics")

        # the first observation, of a lag of a day, would flatten the later curves
        instance.wipe_assets([TOPIC])
        run("customers_topics")
        come()
        run("billing_windows", refused_key, refused_key)
        come()
        _lose(home, bootstrap)
        run("billing_windows", lossy_key, last_key)
        come()


def _lose(home: DemoHome, bootstrap: str) -> None:
    """Deletes the first messages of billing's next window, whose start is frozen."""
    newest = open_ledger(f"{home.demo}/state.db").newest("billing")[-1]
    start = newest.by_tp()[TopicPartition("shop.orders", 0)].offset
    deleted_until = confluent_kafka.TopicPartition("shop.orders", 0, start + 200)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([deleted_until])[deleted_until].result(60)


if __name__ == "__main__":
    main(DemoHome(Path(sys.argv[1])))
