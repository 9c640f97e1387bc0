"""Types of records of one topic into tables of their own, from real Kafka, by the command."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psycopg
import pytest

from tests.integration.harness import millis
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]

HOUR = "2026-01-05T01:00:00Z"
SCHEMAS = '''

class Order(pa.DataFrameModel):
    """An order, of which the table keeps the last state."""

    number: pl.Int64
    total: pl.Int64 = pa.Field(ge=0)


class Visit(pa.DataFrameModel):
    """A visit."""

    page: pl.String
'''
ROUTES = """\
sink:
  kind: routes
  by: header
  name: type
  unrouted: dead
  tables:
    - values: [order]
      decode: {schema: "things.py:Order"}
      sink:
        kind: postgres
        url: "{{ env.DATABASE }}"
        table: orders
        staging: ./staged
        mode: upsert
        primary_key: [number]
    - values: [visit]
      decode: {schema: "things.py:Visit"}
      sink: {kind: postgres, url: "{{ env.DATABASE }}", table: visits, staging: ./staged}
  other: {kind: postgres, url: "{{ env.DATABASE }}", table: things, staging: ./staged}
"""


def test_types_of_one_topic(kafka: str, tmp_path: Path, database: str) -> None:
    """Each type has its table, with its own schema and key, all in one database.

    A run that is killed between two tables leaves the window in none of them; the next run
    commits each row once. All tables verify with their values, also after a replay.
    """
    topic = create_topic(kafka, partitions=2)
    orders = [(n % 10, n) for n in range(30)]
    values = [("order", json.dumps({"number": n, "total": total})) for n, total in orders]
    values += [("visit", json.dumps({"page": f"/{n}"})) for n in range(20)]
    values += [("refund", "{}"), ("order", '{"number": 1, "total": -1}')]
    puts = [
        Put(value.encode(), millis(1, i), 0, headers=[("type", kind.encode())])
        for i, (kind, value) in enumerate(values)
    ]
    produce(kafka, topic, puts)
    user, spec = User(kafka, topic, tmp_path), tmp_path / "things.yaml"
    with (tmp_path / "things.py").open("a") as schemas:
        schemas.write(SCHEMAS)
    spec.write_text(spec.read_text().replace("sink: {kind: delta, path: ./things}\n", ROUTES))
    with (tmp_path / ".env").open("a") as env:
        env.write(f"DATABASE={database}\n")

    def counts() -> list[int]:
        with psycopg.connect(database) as connection:
            return [
                row[0]
                for table in ("orders", "visits", "things")
                for row in connection.execute(f"SELECT count(*) FROM {table}")
            ]

    with user.starts("run", "--window", HOUR, crash="commit.between:kill") as dying:
        assert dying.wait(540) == -signal.SIGKILL
    assert counts() == [0, 0, 0]
    user.types("run", "--window", HOUR)
    assert counts() == [10, 20, 0]
    letters = user.types("dead", "show")["dead"]
    assert sorted(letter["reason"] for letter in letters) == [
        "check:total:greater_than_or_equal_to",
        "unrouted",
    ]
    user.types("replay", "--window", HOUR)
    assert counts() == [10, 20, 0]
    with psycopg.connect(database) as connection:
        totals = connection.execute("SELECT number, total FROM orders ORDER BY 1").fetchall()
    assert totals == [(n, 20 + n) for n in range(10)]
    assert user.types("verify", "--deep")["findings"] == []
    (shown,) = user.types("show")["windows"]
    assert [table["rows"] for table in shown["receipt"]["routed"]] == [30, 20]
