"""`sql` and `python` steps between real Kafka and a real table, by the command, on Spark."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.integration.customers import customers, last_words, make_user, random_log
from tests.integration.harness import millis
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]

STEPS = """\
transform:
  steps:
    - sql: SELECT *, string_split(name, ' ') AS words, _topic AS topic FROM rows WHERE id <> 3
    - sql: SELECT id, topic, unnest(words) AS word FROM rows
    - sql: SELECT id, topic, word, CAST(word AS BIGINT) AS number FROM rows
    - {python: 'code.py:negative', schema: 'code.py:Number', on_error: dead}
metadata: {ordinal: _ordinal}
"""

CODE = """\
import pandera.polars as pa
import polars as pl


class Number(pa.DataFrameModel):
    id: pl.Int64
    topic: pl.String
    number: pl.Int64 = pa.Field(nullable=True)


def negative(rows: pl.DataFrame) -> pl.DataFrame:
    if (rows["number"] == 10).any():
        raise ValueError
    return rows.with_columns(number=-pl.col("number"))
"""


def test_rows_through_steps(kafka: str, tmp_path: Path) -> None:
    """Steps filter rows, split them and compute columns, in this order.

    A row that fails is a dead letter. It is replayed after the step is fixed, and the counts
    are always right.
    """
    topic = create_topic(kafka, 1)
    names = ["7 8", "9", "lost", "1 x", "10"]
    produce(
        kafka,
        topic,
        [
            Put(json.dumps({"id": n, "name": name}).encode(), millis(1, n))
            for n, name in enumerate(names, 1)
        ],
    )
    user = User(kafka, topic, tmp_path)
    spec = tmp_path / "things.yaml"
    plain = spec.read_text().replace("max_dead_ratio: 0.1", "max_dead_ratio: 1.0")
    spec.write_text(plain + STEPS)
    (tmp_path / "code.py").write_text(CODE)
    user.types("run", "--window", "2026-01-05T01:00:00Z")
    counts = user.types("show")["windows"][0]["receipt"]["counts"]
    assert [counts[c] for c in ("read", "valid", "filtered", "dead", "rows")] == [5, 2, 1, 2, 3]
    assert table(tmp_path) == [(1, 0, -7), (1, 1, -8), (2, 0, -9)]
    letters = user.types("dead", "show", "--window", "2026-01-05T01:00:00Z")["dead"]
    assert sorted((letter["stage"], letter["reason"]) for letter in letters) == [
        ("rules", "python:ValueError"),
        ("rules", "sql:number"),
    ]
    spec.write_text(plain + STEPS.replace("CAST(", "TRY_CAST("))
    user.types("dead", "replay", "--window", "2026-01-05T01:00:00Z")
    assert table(tmp_path)[3:] == [(4, 0, -1), (4, 1, None)]
    assert user.types("verify", "--deep")["findings"] == []


def table(folder: Path) -> list[tuple[object, ...]]:
    """Returns id, ordinal and number of each row, in order."""
    rows = DeltaTable(folder / "things").to_pyarrow_table().to_pylist()
    assert {row["topic"] for row in rows} == {row["_topic"] for row in rows}
    return sorted((row["id"], row["_ordinal"], row["number"]) for row in rows)


SHUFFLED = """\
from pyspark.sql import DataFrame


def shuffled(rows: DataFrame) -> DataFrame:
    return rows.repartition(3)
"""


@pytest.mark.parametrize(
    "first_step", ["", pytest.param("{spark: 'code.py:shuffled'}, ", marks=pytest.mark.long)]
)
def test_a_filter_before_a_table_with_a_key(
    kafka: str, tmp_path: Path, dice: random.Random, first_step: str
) -> None:
    """A row that the filter removes deletes its key.

    The table is the same as with a filter over the final rows, for any order of windows, also
    after a `spark` step.
    """
    (tmp_path / "code.py").write_text(SHUFFLED)
    log = random_log(dice, 40)
    user = make_user(kafka, tmp_path, "mode: upsert", log=log)
    with (tmp_path / "things.yaml").open("a") as spec:
        spec.write(
            f'transform: {{steps: [{first_step}{{sql: "SELECT * FROM rows WHERE'
            " right(name, 1) > 'q'\"}]}\n"
        )
    for word, hour in (("run", 3), ("run", 1), ("run", 2), ("replay", 1)):
        user.types(word, "--window", f"2026-01-05T0{hour}:00:00Z")
    expected_rows = sorted(
        (*customer, last.name)
        for customer, last in last_words(log).items()
        if last.name and last.name[-1] > "q"
    )
    assert [row[:3] for row in customers(tmp_path)] == expected_rows
    assert user.types("verify", "--deep")["findings"] == []
