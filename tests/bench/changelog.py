"""Checks that a table with a primary key has the same rows as Flink's upsert-kafka.

    python -m tests.bench.changelog [--messages 50000] [--keys 3000] [--seed 1] [--where CONDITION]

Both read the same topic. It has updates and deletes of customers in twelve hours, and some
messages without a key. All messages of a customer are in one of three partitions. With a
condition, both sides keep only the rows that meet it: windrow by a step of SQL, Flink by the
same WHERE over the changelog.

windrow commits the hours in random order and replays two of them, so that older ones are merged
after newer ones. Flink SQL reads the topic to its end as a table of upsert-kafka, in streaming
mode. The output has the number of customers of each side, and the number of differences. The
exit code is 1 if there is any difference.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable

from tests.bench.harness import environments
from tests.bench.harness.environments import PEERS, environment_folder
from tests.bench.parts.sides import FLINK, FLINK_JAVA
from tests.kafka.produce import Put, create_topic, produce
from windrow.ingest.assemble import assemble
from windrow.ingest.config.load import parse_spec
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.run_windows import run
from windrow.ingest.testing.engine import LocalEngine

START, HOURS, PARTITIONS, LIMIT_SECONDS = datetime(2026, 1, 5, tzinfo=UTC), 12, 3, 600
SCHEMA = """\
import pandera.polars as pa
import polars as pl


class Customer(pa.DataFrameModel):
    shop: pl.String
    number: pl.Int64
    name: pl.String
    credit: pl.Int64 = pa.Field(nullable=True)
"""
Customers = dict[tuple[str, int], tuple[str, int | None]]


@dataclass(frozen=True)
class Said:
    """The options of a comparison.

    Attributes:
        messages: the number of messages.
        keys: the number of customers.
        seed: the seed of the random choices.
        where: the condition of the rows that are kept.
    """

    messages: int
    keys: int
    seed: int
    where: str


def fill(bootstrap: str, messages: int, keys: int, dice: random.Random) -> str:
    """Makes the topic and returns its name.

    Some customers are inserted and deleted often, and some are deleted without an insert.
    Messages without a key concern no customer.
    """
    topic = create_topic(bootstrap, PARTITIONS)
    puts = []
    for i in range(messages):
        shop, number = dice.choice("abc"), min(dice.randrange(keys), dice.randrange(keys))
        key = json.dumps({"shop": shop, "number": number}).encode() if i % 100 else None
        row = json.dumps({"name": f"customer {i}", "credit": dice.choice([None, i])}).encode()
        instant = START + timedelta(hours=HOURS) * (i / messages)
        value = None if dice.random() < 0.3 else row
        puts.append(
            Put(value, int(instant.timestamp() * 1000), zlib.crc32(key or b"") % PARTITIONS, key)
        )
    produce(bootstrap, topic, puts)
    return topic


def customers_by_windrow(
    bootstrap: str, topic: str, folder: Path, dice: random.Random, where: str
) -> Customers:
    """Returns the rows of windrow's table."""
    (folder / "schema.py").write_text(SCHEMA)
    spec = parse_spec(
        {
            "id": "customers",
            "source": {"bootstrap_servers": bootstrap, "topic": topic},
            "window": {"grid": "hourly", "start": START},
            "state": str(folder / "state.db"),
            "decode": {
                "schema": "schema.py:Customer",
                "key": {"fields": ["shop", "number"]},
                "fields_include": "except_key",
            },
            "limits": {"max_dead_ratio": None},
            "transform": {"steps": [{"sql": f"SELECT * FROM rows WHERE {where}"}]},
            "sink": {
                "path": str(folder / "customers"),
                "mode": "upsert",
                "primary_key": ["shop", "number"],
            },
        },
        folder,
    )
    pipeline = replace(assemble(spec, engine=LocalEngine()), now=lambda: START + timedelta(days=9))
    windows = [
        Window("customers", START + timedelta(hours=n), START + timedelta(hours=n + 1))
        for n in range(HOURS)
    ]
    for window in dice.sample(windows, HOURS):
        run(pipeline, window, Request("comparison"))
    for window in dice.sample(windows, 2):
        run(pipeline, window, Request("again", replace=True))
    rows = (
        DeltaTable(folder / "customers")
        .to_pyarrow_table(columns=["shop", "number", "name", "credit"])
        .to_pylist()
    )
    customers = {(row["shop"], row["number"]): (row["name"], row["credit"]) for row in rows}
    assert len(customers) == len(rows), "a customer is there twice"
    return customers


def customers_by_flink(bootstrap: str, topic: str, where: str) -> Customers:
    """Returns the rows that remain after Flink's changes are applied in order."""
    options = {
        "connector": "upsert-kafka",
        "topic": topic,
        "properties.bootstrap.servers": bootstrap,
        "key.format": "json",
        "value.format": "json",
        "value.fields-include": "EXCEPT_KEY",
        "scan.bounded.mode": "latest-offset",
    }
    connector_options = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    columns = (
        "shop STRING, number BIGINT, name STRING, credit BIGINT, PRIMARY KEY (shop, number) NOT"
        " ENFORCED"
    )
    statements = [
        f"CREATE TEMPORARY TABLE customers ({columns}) WITH ({connector_options})",
        f"SELECT * FROM customers WHERE {where}",
    ]
    folder = environment_folder("flink", PEERS / "flink", environments.jars)
    java = Path(os.environ["JAVA_HOME"]) / "bin/java"
    command = [
        java,
        *FLINK_JAVA,
        "-cp",
        f"{folder}/jars/*",
        PEERS / "flink/FlinkChangelog.java",
        *FLINK,
    ]
    done = subprocess.run(
        command,
        input="\n".join(statements),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"Flink ended with {done.returncode}:\n{done.stderr[-3000:]}")
    rows: Counter[tuple[str, int, str, int | None]] = Counter()
    for line in done.stdout.splitlines():
        kind, *row = json.loads(line)
        rows[tuple(row)] += 1 if kind in {"+I", "+U"} else -1
    remaining_rows = [row for row, count in rows.items() for _ in range(count)]
    customers = {(shop, number): (name, credit) for shop, number, name, credit in remaining_rows}
    assert len(customers) == len(remaining_rows), "a customer is there twice"
    return customers


def compare_customers(bootstrap: str, folder: Path, options: Said) -> tuple[Customers, Customers]:
    """Returns the customers that windrow and Flink have from a new topic."""
    dice = random.Random(options.seed)
    topic = fill(bootstrap, options.messages, options.keys, dice)
    windrow_customers = customers_by_windrow(bootstrap, topic, folder, dice, options.where)
    return windrow_customers, customers_by_flink(bootstrap, topic, options.where)


def main() -> int:
    """Compares both sides and prints the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("messages", 50_000), ("keys", 3_000), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--where", default="TRUE")
    options = Said(**vars(parser.parse_args()))
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker(Path(folder) / "broker", find_jars()) as broker,
    ):
        windrow_customers, flink_customers = compare_customers(
            broker.bootstrap, Path(folder), options
        )
    unlike = [
        key
        for key in windrow_customers.keys() | flink_customers.keys()
        if windrow_customers.get(key) != flink_customers.get(key)
    ]
    print(
        f"{options.messages} messages: {len(windrow_customers)} customers by windrow,"
        f" {len(flink_customers)} by Flink, {len(unlike)} differ"
    )
    return 1 if unlike else 0


if __name__ == "__main__":
    sys.exit(main())
