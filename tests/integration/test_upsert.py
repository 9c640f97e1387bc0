"""Rows that replace each other, from real Kafka to a real table, by the command, on Spark."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.integration.customers import (
    DEBEZIUM,
    DELTA,
    LEFT,
    MARKED,
    PLAIN,
    customers,
    last_words,
    make_user,
    random_log,
)

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]


ICEBERG = "kind: iceberg, warehouse: lake, table: shop.things"
NO_KEY, NO_NAME = ("key", "key:null"), ("rules", "check:name:str_length")


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("decode", "sink", "location", "expected_rows", "dead"),
    [
        (PLAIN, "mode: upsert", DELTA, LEFT, [NO_KEY, NO_NAME]),
        (PLAIN, "mode: delete-aware, buckets: 3", DELTA, MARKED, [NO_KEY, NO_NAME]),
        (DEBEZIUM, "mode: upsert", DELTA, LEFT, [NO_NAME]),
        (DEBEZIUM, "mode: delete-aware, buckets: 3", ICEBERG, MARKED, [NO_NAME]),
    ],
    ids=["upsert", "delete-aware", "debezium", "iceberg"],
)
def test_the_last_word_on_each_customer(
    decode: str,
    sink: str,
    location: str,
    expected_rows: object,
    dead: list[tuple[str, str]],
    kafka: str,
    tmp_path: Path,
) -> None:
    """The table is the fold of the log if newer hours run first and one hour is replayed.

    `verify --deep` finds nothing.
    """
    user = make_user(kafka, tmp_path, sink, decode, location=location)
    for hour in (3, 2, 1):
        user.types("run", "--window", f"2026-01-05T0{hour}:00:00Z")
    assert customers(tmp_path) == expected_rows
    assert user.types("verify", "--deep")["findings"] == []
    letters = user.types("dead", "show", "--window", "2026-01-05T02:00:00Z")["dead"]
    assert sorted((d["stage"], d["reason"]) for d in letters) == dead
    user.types("replay", "--window", "2026-01-05T02:00:00Z")
    assert customers(tmp_path) == expected_rows
    assert user.types("verify", "--deep")["findings"] == []
    receipts = [window["receipt"] for window in user.types("show")["windows"]]
    assert [(r["generation"], r["counts"]["rows"], r["counts"]["deletes"]) for r in receipts] == [
        (0, 4, 1),
        (1, 2, 1),
        (0, 2, 1),
    ]
    assert sum(r["merged"]["rows_added"] - r["merged"]["rows_removed"] for r in receipts) == len(
        customers(tmp_path)
    )


LOUD = '''\
from pyspark.sql import Window
from pyspark.sql import functions as f


def newest(rows):
    """The newest row of each customer, in capitals."""
    order = Window.partitionBy("shop", "number").orderBy(f.desc("_partition"), f.desc("_offset"))
    first = rows.withColumn("n", f.row_number().over(order)).where("n = 1").drop("n")
    return first.withColumn("name", f.upper("name"))


def all_of_them(rows):
    """Every row, in capitals, wherever Spark has it."""
    return rows.repartition(3).withColumn("name", f.upper("name"))
'''


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("function", "sink"),
    [("newest", "mode: upsert"), ("all_of_them", "mode: delete-aware, buckets: 3")],
)
def test_rows_that_a_function_made(
    function: str, sink: str, kafka: str, tmp_path: Path, dice: random.Random
) -> None:
    """Rows of a function replace and are deleted by their messages' places.

    The table is the fold of the rows and of deletes that the function doesn't see, also after a
    replay.
    """
    log = random_log(dice, 40)
    user = make_user(kafka, tmp_path, sink, log=log)
    (tmp_path / "loud.py").write_text(LOUD)
    with (tmp_path / "things.yaml").open("a") as spec:
        spec.write(f"transform: {{steps: [{{spark: 'loud.py:{function}'}}]}}\n")
    for word, hour in (("run", 3), ("run", 1), ("run", 2), ("replay", 1)):
        user.types(word, "--window", f"2026-01-05T0{hour}:00:00Z")
    words = {
        customer: last.name and last.name.upper() for customer, last in last_words(log).items()
    }
    expected_rows = sorted(
        ((*customer, name) for customer, name in words.items() if name or "aware" in sink),
        key=lambda row: row[:2],
    )
    assert [row[:3] for row in customers(tmp_path)] == expected_rows
    assert user.types("verify", "--deep")["findings"] == []
